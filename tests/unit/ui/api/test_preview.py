"""Previews of settings over HTTP: the result of `Broker.preview`, with equivalent command lines."""

import json
import shlex
import shutil
import threading

import pytest
from click.testing import CliRunner

from logstore import Acl, Authorizer, Broker, VirtualClock
from logstore.cli.main import main
from logstore.ui import locks
from logstore.ui.api import preview
from tests.support.world.page import Asked

GIVEN = {
    "set": {"cleanup.policy": "compact,delete", "retention.ms": "30m"},
    "unset": ["segment.ms"],
}


def in_json(value):
    return json.loads(json.dumps(value))


def asked(page, **body):
    answer = page.post("/api/preview", body)
    assert answer.status == 200, answer.body
    return answer.json


def test_it_is_the_number_set_for_python(page, broker):
    told = asked(page, topic="events", **GIVEN)
    commands = told.pop("commands")
    python = broker.preview("events", set=GIVEN["set"], unset=GIVEN["unset"])
    assert told == in_json(python.to_json())
    assert commands["set"] == (
        "logstore topic alter --set cleanup.policy=compact,delete --set retention.ms=30m"
        " --unset segment.ms events"
    )
    one = asked(page, topic="events", partition=1, **GIVEN)
    assert [each["partition"] for each in one["partitions"]] == [1]
    quick = asked(page, topic="events", quick=True, **GIVEN)["partitions"][1]
    assert quick["after"]["first_pass"] is None
    assert "quick" in quick["unread"]


def test_a_large_log_is_read_on_request(page, broker, monkeypatch):
    monkeypatch.setattr(preview, "READ_BYTES_MAX", 100)
    given = {"topic": "users", "set": {"min.cleanable.dirty.ratio": "0.1"}}
    told = asked(page, **given)["partitions"][0]
    assert (told["after"]["will_clean"], told["after"]["first_pass"]) == (True, None)
    assert "exceed the read limit" in told["unread"]
    told = asked(page, deep=True, **given)["partitions"][0]
    assert told["unread"] is None
    assert told["after"]["first_pass"]["fates"]["superseded"] > 0


def test_only_so_many_partitions_are_looked_at(page, monkeypatch):
    monkeypatch.setattr(preview, "PARTITIONS_MAX", 1)
    told = asked(page, topic="events", set={"retention.ms": "1h"})
    assert (len(told["partitions"]), told["left_out"]) == (1, 1)


def test_without_a_topic_it_is_the_broker_s_settings(page, broker):
    told = asked(page, set={"log.retention.ms": "1000"})
    assert told["topic"] is None
    assert {each["topic"] for each in told["partitions"]} == {"users"}  # events has its own
    line = "logstore broker alter --set log.retention.ms=1000"
    assert told["commands"] == {"set": line, "preview": []}
    told = asked(page, set={"log.retention.ms": "1000"}, cluster_wide=True)
    assert told["commands"]["set"] == f"{line} --cluster-wide"


def test_nothing_given_changes_nothing(page):
    told = asked(page, topic="users")
    assert (told["changed"], told["commands"]["set"], told["loses"]) == ([], None, None)
    assert told["partitions"][0]["before"]["gates"] == told["partitions"][0]["after"]["gates"]


def test_the_lines_report_the_same(tmp_path):
    data, copy = tmp_path / "data", tmp_path / "copy"
    with Broker(data, clock=VirtualClock(), seed=1) as broker:
        broker.create_topic("users", 2, {"segment.bytes": "300", "max.message.bytes": "5000"})
        for number in range(20):
            broker.append("users", key=b"k%d" % (number % 3), value=b"v" * 60, partition=0)
            broker.clock.advance(minutes=5)
        moment = broker.clock.now_ms()
    shutil.copytree(data, copy)
    given = {"set": {"cleanup.policy": "compact,delete", "retention.ms": "50m"}}
    with Broker(data, clock=VirtualClock(moment)) as broker, Asked(broker) as page:
        told = asked(page, topic="users", partition=0, unset=["max.message.bytes"], **given)
    lines = told["commands"]["preview"]
    answers = []
    for line in lines:
        words = [str(copy) if word == str(data) else word for word in shlex.split(line)][1:]
        done = CliRunner().invoke(main, ["--format", "json", *words])
        assert done.exit_code == 0, done.output
        answers.append(json.loads(done.stdout))
    explained, cleaned, retained = answers
    after = told["partitions"][0]["after"]
    (partition,) = explained["partitions"]
    for name in ("will_clean", "binding", "gates", "passes_needed", "tombstones", "opens_at_ms"):
        assert partition[name] == after[name]
    times = {"index_ms": 0, "clean_ms": 0}
    assert cleaned["cleaned"][0] | times == after["first_pass"] | times
    assert (
        sum(each["size_bytes"] for each in retained["removed"])
        == (after["retention"]["size_bytes"])
    )
    assert retained["removed"]


def test_topics_without_permission_are_left_out(broker):
    broker.alter_configs("events", {}, unset=["retention.ms"])
    authorizer = Authorizer()
    with Asked(broker, authorizer, "User:ann") as page:
        body = {"topic": "users", "set": {"retention.ms": "1000"}}
        for operation in ("describe_configs", "describe"):
            assert page.post("/api/preview", body).status == 403
            authorizer.add(Acl("User:ann", operation, "topic", "users"))
        assert page.post("/api/preview", body).status == 200
        broker_wide = {"set": {"log.retention.ms": "1000"}}
        assert page.post("/api/preview", broker_wide).status == 403
        authorizer.add(Acl("User:ann", "describe_configs", "cluster", "kafka-cluster"))
        told = page.post("/api/preview", broker_wide).json
        assert {each["topic"] for each in told["partitions"]} == {"users"}
        assert told["left_out"] == 2


@pytest.mark.parametrize("body", ({"topic": "users", "partition": 7}, {"topic": "nowhere"}))
def test_missing_names_are_not_found(page, body):
    assert page.post("/api/preview", body).status == 404


def test_previews_at_once_meet_no_obstacle_in_each_other(page, monkeypatch):
    """Each runs the cleaning pass, for which it has the partition to itself."""
    monkeypatch.setattr(locks, "WAIT_S", 100_000.0)  # however slow the machine is
    given = {"topic": "users", "set": {"min.cleanable.dirty.ratio": "0.1"}}
    told = []

    def ask():
        told.extend(asked(page, **given)["partitions"][0]["after"] for _ in range(2))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 8
    assert all(each["first_pass"] is not None for each in told)


def test_the_loss_names_visible_topics_only(broker):
    for topic in ("open", "hidden"):
        broker.create_topic(topic, 1)
        broker.append(topic, value=b"x")
    broker.clock.advance(ms=60_000)
    acls = [
        Acl("User:ann", "describe_configs", "cluster", "kafka-cluster"),
        Acl("User:ann", "describe", "topic", "open"),
    ]
    with Asked(broker, Authorizer(acls), "User:ann") as page:
        told = page.post("/api/preview", {"set": {"log.retention.ms": "1000"}}).json
    assert [each["topic"] for each in told["partitions"]] == ["open"]
    assert [each["topic"] for each in told["loses"]["partitions"]] == ["open"]
    assert told["left_out"] == 2
