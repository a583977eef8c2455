"""Actions of the page: as on the command line, once, and with confirmation of a loss."""

import json
import shlex
import shutil

import pytest
from click.testing import CliRunner

from logstore import Acl, Authorizer, Broker, TopicPartition, VirtualClock
from logstore.cli.main import main
from logstore.errors import InvalidConfigurationError
from logstore.ui import locks
from logstore.ui.app import ROUTES
from logstore.wire.permissions import NEEDS
from tests.support.world.page import Asked

USERS, EVENTS = "/api/partitions/users/0", "/api/partitions/events/1"
TIMES = ("index_ms", "clean_ms")


def timeless(value):
    """Return JSON without the values that depend on a clock or on chance."""
    if isinstance(value, list):
        return [timeless(each) for each in value]
    if isinstance(value, dict):
        hidden = (*TIMES, "id")
        return {name: timeless(each) for name, each in value.items() if name not in hidden}
    return value


def logs(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*.log")
        if path.stat().st_size
    }


def filled(path):
    """Return a broker on a disk; its topics have names that a shell would take apart."""
    broker = Broker(path, clock=VirtualClock(), seed=1)
    broker.create_topic("users", 1, {"cleanup.policy": "compact", "segment.bytes": "300"})
    broker.create_topic("-odd_name", 1)
    broker.create_topic("events", 2, {"retention.ms": "4h", "segment.bytes": "600"})
    for number in range(12):
        broker.append("users", key=b"k%d" % (number % 3), value=b"v" * 60)
        broker.append("events", value=b"long" * 50, partition=1)
        broker.clock.advance(minutes=30)
    return broker


ACTIONS = {
    "create": (
        "POST",
        "/api/topics",
        {
            "name": "new",
            "partitions": 2,
            "configs": {
                "cleanup.policy": "compact,delete",
                "compaction.strategy": "header",
                "compaction.strategy.header": 'it\'s; "$HOME" & more',
                "retention.ms": "7d",
            },
        },
    ),
    "create-odd": ("POST", "/api/topics", {"name": "-new"}),
    "alter": (
        "POST",
        "/api/topics/users/configs",
        {
            "set": {"delete.retention.ms": "12h", "min.cleanable.dirty.ratio": 0.25},
            "unset": ["segment.bytes"],
        },
    ),
    "alter-and-lose": ("POST", "/api/topics/events/configs", {"set": {"retention.ms": "2h"}}),
    "alter-broker": (
        "POST",
        "/api/broker/configs",
        {
            "set": {"log.retention.ms": "30d", "log.cleaner.dedupe.buffer.size": "64MiB"},
        },
    ),
    "delete": ("DELETE", "/api/topics/events", {}),
    "delete-odd": ("DELETE", "/api/topics/-odd_name", {}),
    "roll": ("POST", f"{USERS}/roll", {}),
    "clean": ("POST", f"{USERS}/clean", {}),
    "clean-forced": ("POST", f"{USERS}/clean", {"force": True, "roll": True}),
    "retain": ("POST", f"{EVENTS}/retain", {}),
    "delete-records": ("POST", f"{EVENTS}/delete-records", {"before_offset": 5}),
    "delete-all-records": ("POST", f"{EVENTS}/delete-records", {"before_offset": -1}),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_the_line_does_what_the_action_does(tmp_path, action):
    method, path, body = ACTIONS[action]
    here, there = tmp_path / "a dir's data", tmp_path / "copy"
    filled(here).close()
    shutil.copytree(here, there)
    clock = VirtualClock(1_704_067_200_000 + 6 * 3_600_000)
    with Broker(here, clock=clock) as broker, Asked(broker) as page:
        answer = page.post(path, body, method)
        if answer.status == 409:
            answer = page.post(path, body | {"confirm": answer.json["confirm"]}, method)
        assert answer.status == 200, answer.body
        done, command = answer.json["done"], answer.json["command"]
    words = [str(there) if word == str(here) else word for word in shlex.split(command)]
    assert words[0] == "logstore"
    assert str(there) in words
    ran = CliRunner().invoke(main, ["--format", "json", *words[1:]])
    assert ran.exit_code == 0, ran.output
    printed = json.loads(ran.stdout)
    assert printed.pop("assumed", []) == []
    assert timeless(printed) == timeless(done)
    assert logs(there) == logs(here)


def test_retention_deletes_nothing_under_an_assumed_policy(tmp_path):
    """The command line of a dry run states the policy, and thereby deletes."""
    here, there = tmp_path / "data", tmp_path / "copy"
    filled(here).close()
    (here / "logstore-topics.json").unlink()
    shutil.copytree(here, there)
    clock = VirtualClock(1_704_067_200_000 + 30 * 24 * 3_600_000)
    with Broker(here, clock=clock) as broker, Asked(broker) as page:
        answer = page.post(f"{EVENTS}/retain", {"dry_run": True})
        decided, command = answer.json["done"], answer.json["command"]
        assert decided["removed"]
        answer = page.post(f"{EVENTS}/retain", {})
        assert answer.status == 400
        assert answer.json["error"]["type"] == "InvalidConfigurationError"
        with pytest.raises(InvalidConfigurationError, match="was not changed"):
            broker.retain("events")
    assert logs(there) == logs(here)
    words = [str(there) if word == str(here) else word for word in shlex.split(command)]
    ran = CliRunner().invoke(main, ["--format", "json", *words[1:]])
    assert ran.exit_code == 0, ran.output
    assert timeless(json.loads(ran.stdout)["removed"]) == timeless(decided["removed"])


LOSSES = {
    name: ACTIONS[name]
    for name in ("alter-and-lose", "delete", "retain", "delete-records", "delete-all-records")
}


@pytest.fixture
def steered(tmp_path):
    with filled(tmp_path / "data") as broker, Asked(broker) as page:
        yield page


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A page for requests that change nothing."""
    with filled(tmp_path_factory.mktemp("shared") / "data") as broker, Asked(broker) as page:
        yield page


def state(broker):
    return [
        (topic, [broker.log(topic.name, number).size_bytes for number in topic.partitions])
        for topic in broker.topics()
    ], broker.broker_config


@pytest.mark.parametrize("action", LOSSES)
def test_data_loss_requires_a_specific_confirmation(steered, action):
    method, path, body = LOSSES[action]
    broker = steered.context.broker
    before = state(broker)
    for given in (body, body | {"confirm": "no token"}, body | {"confirm": "ünï"}):
        refused = steered.post(path, given, method)
        assert refused.status == 409
        assert state(broker) == before
    told = refused.json
    assert told["error"]["type"] == "ConfirmationNeededError"
    assert told["loses"]["records"] > 0
    assert told["loses"]["bytes"] > 0
    assert told["loses"]["from_ms"] < told["loses"]["to_ms"]
    assert "events-1" in told["loses"]["text"]
    assert told["command"].startswith("logstore ")
    if action == "alter-and-lose":
        broker.retain("events")  # records that expire anyway do not count
    visible = len(list(broker.read("events", 1)))
    done = steered.post(path, body | {"confirm": told["confirm"]}, method)
    assert done.status == 200
    left = 0
    if action == "alter-and-lose":
        broker.retain("events")
    if action != "delete":
        left = len(list(broker.read("events", 1)))
    assert visible - left == told["loses"]["records"]


def test_a_yes_is_to_one_loss_only(steered):
    broker = steered.context.broker
    path = f"{EVENTS}/delete-records"
    five = steered.post(path, {"before_offset": 5}).json["confirm"]
    refused = steered.post(path, {"before_offset": 6, "confirm": five})
    assert refused.status == 409
    whole = steered.post("/api/topics/events", {}, "DELETE").json["confirm"]
    assert steered.post("/api/topics/events", {"confirm": five}, "DELETE").status == 409
    broker.append("events", value=b"one more", partition=1)  # it was not among the reported records
    again = steered.post("/api/topics/events", {"confirm": whole}, "DELETE")
    assert again.status == 409
    assert again.json["loses"]["records"] == 13
    assert [topic.name for topic in broker.topics()] == ["-odd_name", "events", "users"]
    # Records appended above are not lost by it.
    assert steered.post(path, {"before_offset": 5, "confirm": five}).status == 200
    assert broker.log("events", 1).log_start_offset == 5


def test_a_topic_of_the_same_name_is_another_one(steered):
    broker = steered.context.broker
    token = steered.post("/api/topics/events", {}, "DELETE").json["confirm"]
    broker.delete_topic("events")
    clock, now_ms = broker.clock, broker.clock.now_ms()
    clock.set_ms(1_704_067_200_000)
    broker.create_topic("events", 2, {"retention.ms": "4h", "segment.bytes": "600"})
    for _ in range(12):  # records of the same times at the same offsets
        broker.append("events", value=b"long" * 50, partition=1)
        clock.set_ms(clock.now_ms() + 30 * 60_000)
    clock.set_ms(now_ms)
    assert steered.post("/api/topics/events", {"confirm": token}, "DELETE").status == 409


def test_nothing_is_asked_where_nothing_is_lost(steered):
    assert steered.post("/api/topics/-odd_name", {}, "DELETE").status == 200
    lower = {"set": {"retention.ms": "30d"}}
    assert steered.post("/api/topics/events/configs", lower).status == 200
    assert steered.post(f"{USERS}/clean", {"force": True, "roll": True}).status == 200
    compact = {"set": {"cleanup.policy": "compact"}}
    assert steered.post("/api/topics/events/configs", compact).status == 200
    again = steered.post("/api/topics/events/configs", {"unset": ["cleanup.policy"]})
    assert again.status == 200, again.body


def test_the_loss_lists_all_records_deleted_by_lower_broker_retention(steered):
    broker = steered.context.broker
    broker.alter_configs("events", {}, unset=["retention.ms"])
    body = {"set": {"log.retention.ms": "60000"}}
    told = steered.post("/api/broker/configs", body)
    assert told.status == 409
    assert told.json["loses"]["records"] == 12
    done = steered.post("/api/broker/configs", body | {"confirm": told.json["confirm"]})
    assert done.json["done"]["changed"][0]["after"] == {
        "value": "60000",
        "origin": "dynamic broker",
    }


def test_a_cluster_wide_default_loses_nothing_if_the_broker_has_a_value(steered):
    broker = steered.context.broker
    broker.alter_configs("events", {}, unset=["retention.ms"])
    broker.alter_broker_configs({"log.retention.ms": "1d"}, cluster_wide=False)
    body = {"set": {"log.retention.ms": "60000"}, "cluster_wide": True}
    done = steered.post("/api/broker/configs", body)
    assert (done.status, done.json["done"]["changed"]) == (200, [])


def test_forcing_a_cleaning_asks_where_a_lag_promised_more(steered):
    broker = steered.context.broker
    broker.alter_configs("users", {"min.compaction.lag.ms": "3h"})
    body = {"force": True, "roll": True}
    told = steered.post(f"{USERS}/clean", body)
    assert told.status == 409
    before = len(list(broker.read("users")))
    preview = steered.post(f"{USERS}/clean", body | {"dry_run": True}).json["done"]
    assert preview["dry_run"] is True
    done = steered.post(f"{USERS}/clean", body | {"confirm": told.json["confirm"]}).json["done"]
    gone = before - len(list(broker.read("users")))
    assert 0 < told.json["loses"]["records"] <= gone
    assert timeless(done["cleaned"]) == timeless(preview["cleaned"])


DRY_RUNS = ("create", "roll", "clean", "clean-forced", "retain", "delete-records")


@pytest.mark.parametrize("action", DRY_RUNS)
def test_a_dry_run_reports_the_result_and_changes_nothing(steered, action):
    method, path, body = ACTIONS[action]
    before = state(steered.context.broker)
    told = steered.post(path, body | {"dry_run": True}, method)
    assert told.status == 200
    assert state(steered.context.broker) == before
    refused = steered.post(path, body, method)
    token = {"confirm": refused.json["confirm"]} if refused.status == 409 else None
    done = refused if token is None else steered.post(path, body | token, method)
    told, done = told.json, done.json
    assert told["command"] == done["command"]
    if action == "create":
        done["done"] = {name: done["done"][name] for name in told["done"]}
    for each in (told, done):
        each["done"].pop("dry_run", None)
    assert timeless(told["done"]) == timeless(done["done"])


def test_an_uncleanable_partition_is_tried_again(steered):
    broker = steered.context.broker
    broker.cleaner.uncleanable_partitions.add(TopicPartition("users", 0), ValueError("damage"))
    assert steered.post(f"{USERS}/retry", {}).json["done"]["was_uncleanable"] is True
    assert steered.post(f"{USERS}/retry", {}).json["done"]["was_uncleanable"] is False
    assert broker.cleaner.uncleanable_partitions.all() == ()


def test_damage_is_dropped_with_its_topic_and_reported(tmp_path):
    filled(tmp_path / "data").close()
    with Broker(tmp_path / "data", clock=VirtualClock()) as broker, Asked(broker) as page:
        metadata = tmp_path / "data/events-1/partition.metadata"
        metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
        told = page.post("/api/topics/events", {}, "DELETE").json
        assert "all of events-1, which cannot be opened" in told["loses"]["text"]
        assert told["loses"]["bytes"] > 12 * 200
        body = {"confirm": told["confirm"]}
        assert page.post("/api/topics/events", body, "DELETE").status == 200


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
def test_a_copied_directory_is_only_looked_at(tmp_path, action):
    filled(tmp_path / "data").close()
    method, path, body = ACTIONS[action]
    with Broker(tmp_path / "data", read_only=True) as broker, Asked(broker) as page:
        refused = page.post(path, body, method)
        assert refused.status == 403
        assert refused.json["error"]["type"] == "ReadOnlyError"
        if action in DRY_RUNS:
            assert page.post(path, body | {"dry_run": True}, method).status == 200
        given = {"topic": "events", "set": {"retention.ms": "1000"}}
        assert page.post("/api/preview", given).status == 200


HOSTILE = (
    ("/api/topics", {"name": 5}, "name"),
    ("/api/topics", {}, "name"),
    ("/api/topics", {"name": "../up"}, None),
    ("/api/topics", {"name": "a", "partitions": 10**9}, "partitions"),
    ("/api/topics", {"name": "a", "partitions": True}, "partitions"),
    ("/api/topics", {"name": "a", "partitions": 1.5}, "partitions"),
    ("/api/topics", {"name": "a", "configs": {"retention.ms": None}}, "retention.ms"),
    ("/api/topics", {"name": "a", "configs": {"retention.ms": {"a": 1}}}, "retention.ms"),
    ("/api/topics", {"name": "a", "configs": {"retention.mss": "1"}}, "retention.mss"),
    ("/api/topics", {"name": "a", "configs": {"retention.ms": "7 days"}}, "retention.ms"),
    ("/api/topics", {"name": "a", "configs": []}, "configs"),
    ("/api/topics", {"name": "a", "config": {}}, "config"),
    ("/api/topics/users/configs", {"set": {"cleanup.policy": "\ud800"}}, "cleanup.policy"),
    (
        "/api/topics/users/configs",
        {"set": {"compaction.strategy.header": "a\nb"}},
        "compaction.strategy.header",
    ),
    ("/api/topics/users/configs", {"unset": "retention.ms"}, "unset"),
    ("/api/topics/users/configs", {"unset": [5]}, "unset"),
    ("/api/topics/users/configs", {"set": {"segment.ms": 10**30}}, "segment.ms"),
    ("/api/topics/users/configs", {"set": {"a": "1"}, "unset": ["a"]}, "a"),
    ("/api/broker/configs", {"set": {"log.dirs": "/"}}, "log.dirs"),
    ("/api/broker/configs", {"set": {"log.cleaner.threads": "50"}}, "log.cleaner.threads"),
    ("/api/broker/configs", {"set": {"log.dirs": "/other"}}, "log.dirs"),
    (
        "/api/broker/configs",
        {"set": {"log.retention.ms": 5}, "unset": ["log.retention.ms"]},
        "log.retention.ms",
    ),
    (f"{USERS}/delete-records", {"before_offset": 1}, None),  # its policy does not delete
    (f"{EVENTS}/delete-records", {"before_offset": -2}, "before_offset"),
    (f"{EVENTS}/delete-records", {"before_offset": 2**63}, "before_offset"),
    (f"{EVENTS}/delete-records", {"before_offset": 1000}, None),
    (f"{EVENTS}/delete-records", {"before_offset": "1"}, "before_offset"),
    (f"{EVENTS}/retain", {"confirm": 5}, "confirm"),
    (f"{EVENTS}/roll", {"dry_run": "yes"}, "dry_run"),
    ("/api/clock", {}, None),
    ("/api/clock", {"to_ms": 0}, "to_ms"),
    ("/api/clock", {"to_ms": 1, "by_ms": 1}, None),
    ("/api/clock", {"by_ms": -1}, "by_ms"),
    ("/api/clock", {"by_ms": 2**63}, "by_ms"),
    ("/api/clock", {"next_event": False}, "next_event"),
    ("/api/preview", {"topic": "users", "partition": -1}, "partition"),
    ("/api/preview", {"topic": ["users"]}, "topic"),
    ("/api/preview", {"topic": "users", "quick": 1}, "quick"),
)


@pytest.mark.parametrize(("path", "body", "field"), HOSTILE)
def test_impossible_requests_are_refused_by_name_and_change_nothing(shared, path, body, field):
    broker = shared.context.broker
    before, now_ms = state(broker), broker.clock.now_ms()
    refused = shared.post(path, body)
    assert refused.status == 400, refused.body
    assert refused.json["error"].get("field") == field
    assert (state(broker), broker.clock.now_ms()) == (before, now_ms)


@pytest.mark.parametrize(
    "sent",
    (
        b"[" * 100_000,
        b'{"name":' * 50_000,
        b"nonsense",
        b"[]",
        b'{"name": "a", "partitions": 1e400}',
        b'{"name": "a", "partitions": ' + b"9" * 5000 + b"}",
        b'{"name": "a", "configs": {"segment.ms": NaN}}',
        b"\xff\xfe",
    ),
    ids=("deep", "deep objects", "nonsense", "list", "inf", "huge", "nan", "no text"),
)
def test_a_body_that_is_none_is_refused(steered, sent):
    before = state(steered.context.broker)
    refused = steered.ask("POST", "/api/topics", sent)
    assert refused.status == 400, refused.body
    assert state(steered.context.broker) == before


def test_the_nearest_name_is_suggested(steered):
    body = {"topic": "users", "set": {"retention.mss": "1"}}
    assert steered.post("/api/preview", body).json["error"]["suggestion"] == "retention.ms"
    told = steered.post("/api/topics/user/configs", {"set": {}})
    assert (told.status, told.json["error"]["suggestion"]) == (404, "users")


def test_an_existing_topic_is_distinguished(steered):
    for body in ({"name": "users"}, {"name": "users", "dry_run": True}):
        assert steered.post("/api/topics", body).status == 409


def test_a_action_waits_for_its_turn_and_not_for_ever(steered, monkeypatch):
    monkeypatch.setattr(locks, "WAIT_S", 0.0)
    with steered.context.change_lock.hold():
        refused = steered.post(f"{USERS}/roll", {})
    assert refused.status == 503
    assert refused.json["error"]["type"] == "BusyError"
    assert steered.post(f"{USERS}/roll", {}).status == 200


# -- permissions -------------------------------------------------------------------------------


SAME_AS = {
    "create-topic": "CreateTopics",
    "delete-topic": "DeleteTopics",
    "alter-configs": "IncrementalAlterConfigs",
    "alter-broker-configs": "IncrementalAlterConfigs",
    "delete-records": "DeleteRecords",
    "retain": "DeleteRecords",
    "roll": "CreatePartitions",
    "clean": "CreatePartitions",
    "retry": "CreatePartitions",
    "move-clock": "ElectLeaders",
}
"""Actions, and the request over the wire that needs the same permission. For actions that Kafka
lacks: one that changes a topic, or the cluster, but not its records or settings."""


def test_every_action_needs_what_the_wire_s_request_of_its_kind_needs():
    actions = {route.action.name: route.action for route in ROUTES if route.action is not None}
    assert actions.keys() == SAME_AS.keys()
    for name, api in SAME_AS.items():
        assert (actions[name].operation, actions[name].resource_type) in NEEDS[api]


RIGHTS = {
    "create": ("create", "topic", "new"),
    "alter": ("alter_configs", "topic", "users"),
    "alter-broker": ("alter_configs", "cluster", "kafka-cluster"),
    "delete": ("delete", "topic", "events"),
    "roll": ("alter", "topic", "users"),
    "clean": ("alter", "topic", "users"),
    "retain": ("delete", "topic", "events"),
    "delete-records": ("delete", "topic", "events"),
}


@pytest.mark.parametrize("action", RIGHTS)
def test_a_action_is_done_for_whom_it_is_allowed(tmp_path, action):
    operation, kind, name = RIGHTS[action]
    method, path, body = ACTIONS[action]
    # A principal that may see a topic may not change it.
    authorizer = Authorizer([Acl("User:ann", "describe", "topic", "*")])
    with filled(tmp_path / "data") as broker, Asked(broker, authorizer, "User:ann") as page:
        refused = page.post(path, body, method)
        assert refused.status == 403
        assert "AuthorizationFailed" in refused.json["error"]["type"]
        authorizer.add(Acl("User:ann", operation, kind, name))
        assert page.post(path, body, method).status in (200, 409)


def test_a_loss_names_no_topic_that_may_not_be_seen(broker):
    """A setting of the broker holds for all of them."""
    authorizer = Authorizer([Acl("User:ann", "alter_configs", "cluster", "kafka-cluster")])
    for topic in ("open", "hidden"):
        broker.create_topic(topic, 1)
        for _ in range(4):
            broker.append(topic, value=b"x")
    broker.clock.advance(ms=60_000)
    body = {"set": {"log.retention.ms": "1000"}}
    with Asked(broker, authorizer, "User:ann") as page:
        refused = page.post("/api/broker/configs", body)
        assert (refused.status, refused.json["loses"]["records"]) == (409, 8)
        assert b"open" not in refused.body
        assert b"hidden" not in refused.body
        assert "of 2 partitions" in refused.json["error"]["message"]
        assert refused.json["loses"]["left_out"] == 2
        authorizer.add(Acl("User:ann", "describe", "topic", "open"))
        refused = page.post("/api/broker/configs", body)
        assert b"hidden" not in refused.body
        assert "of open-0 and 1 more partition;" in refused.json["error"]["message"]
        # Its confirmation covers all files that are deleted.
        done = page.post("/api/broker/configs", {**body, "confirm": refused.json["confirm"]})
        assert done.status == 200, done.body
