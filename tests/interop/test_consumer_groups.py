"""Consumer groups of KIP-848: the answers of a running Kafka 4.3.1, and Java's consumer."""

import os
import re
import subprocess
import time

import pytest

from logstore import Broker
from tests.interop import consumer_conversations
from tests.interop.conftest import unavailable
from tests.support.interop.caller import Caller
from tests.support.interop.judge import KAFKA_3, Unavailable
from tests.support.interop.real_broker import (
    GROUP_FEATURES,
    RealBroker,
    class_path,
    java,
    kafka_4_3,
)

pytestmark = pytest.mark.interop

SEEDS = 40
LONG_SEEDS = int(os.environ.get("LOGSTORE_CONSUMER_CONVERSATIONS", "500"))


def compare(seeds, tmp_path):
    try:
        return consumer_conversations.run(seeds, tmp_path)
    except Unavailable as error:
        unavailable(error)


def test_conversations_are_answered_as_kafka_answers_them(tmp_path):
    tally = compare(range(SEEDS), tmp_path)
    answers = {answer for _, answer in tally}
    assert {
        "NONE",
        "INVALID_REQUEST",
        "UNKNOWN_MEMBER_ID",
        "FENCED_MEMBER_EPOCH",
        "FENCED_INSTANCE_ID",
        "UNRELEASED_INSTANCE_ID",
        "UNSUPPORTED_ASSIGNOR",
        "INVALID_REGULAR_EXPRESSION",
        "GROUP_ID_NOT_FOUND",
        "['STALE_MEMBER_EPOCH']",
    } <= answers


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_conversations(tmp_path):
    compare(range(SEEDS, SEEDS + LONG_SEEDS), tmp_path)


# -- the same directory ----------------------------------------------------------------------------

CONFIG = {"offsets.topic.num.partitions": 2, "group.consumer.assignment.interval.ms": 0}
"""Kafka's broker has as many partitions of the topic."""

JOIN = {"rebalance_timeout_ms": 60_000, "topic_partitions": {}}


def beat(side, member_id, epoch, **fields):
    request = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, **fields}
    return side.heartbeat(1, request)


def side_of(bootstrap):
    side = consumer_conversations.Side(bootstrap)
    consumer_conversations.wait_for_coordinator(side)
    return side


def test_both_brokers_load_what_the_other_wrote(tmp_path):
    """A group lives on Kafka, then here, then on Kafka again, on the same directory."""
    try:
        class_path = kafka_4_3()
    except Unavailable as error:
        unavailable(error)
    settings = {**consumer_conversations.SETTINGS, "log.cleaner.enable": "true"}
    kafka = RealBroker(class_path, tmp_path / "kafka", settings, features=GROUP_FEATURES)
    with kafka:
        caller = Caller(kafka.bootstrap)
        topics = [
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in consumer_conversations.TOPICS.items()
        ]
        caller.call("CreateTopics", 7, {"topics": topics, "timeout_ms": 30_000})
        caller.close()
        side = side_of(kafka.bootstrap)
        assert beat(side, "a", 0, **JOIN, subscribed_topic_names=["ca", "cb"])["epoch"] == 2
        beat(side, "p", 0, **JOIN, subscribed_topic_regex="c[ac]", rack_id="r")
        time.sleep(1)
        beat(side, "p", 3)
        has = beat(side, "a", 2)["assignment"]
        joined = beat(side, "s", 0, **JOIN, subscribed_topic_names=["cb"], instance_id="i")
        beat(side, "s", -2, instance_id="i")
        assert joined["error"] == "NONE"
        assert side.commit("g", "a", 2, "ca", 0) == ["NONE"]
        before = side.describe("g")
        kafka.stop()
    with Broker(str(kafka.data_dir), broker_config=CONFIG) as broker, broker.listen() as listener:
        side = side_of(listener.bootstrap)
        assert side.describe("g") == before
        answer = beat(side, "a", 2, topic_partitions=has)
        assert answer["error"] == "NONE"
        assert side.describe("g")["epochs"] == before["epochs"], "the hash of the topics is equal"
        assert side.commit("g", "a", answer["epoch"], "ca", 1) == ["NONE"]
        returned = beat(side, "t", 0, **JOIN, subscribed_topic_names=["cb"], instance_id="i")
        assert returned["error"] == "NONE"
        beat(side, "p", -1)
        broker.clean("__consumer_offsets", force=True, roll=True)
        before = side.describe("g")
    with kafka:
        side = side_of(kafka.bootstrap)
        assert side.describe("g") == before
        answer = beat(side, "a", answer["epoch"], topic_partitions=answer["assignment"] or has)
        assert answer["error"] == "NONE"
        assert side.fetch("g", None, -1)[1] == [("ca", 0, 1), ("ca", 1, 1)]


def test_kafka_3_9_loads_classic_groups_next_to_consumer_groups(tmp_path):
    """Kafka 3.9 skips the records of consumer groups that it finds."""
    broker = RealBroker(class_path(KAFKA_3), tmp_path / "kafka")
    with broker:
        caller = Caller(broker.bootstrap)
        topic = {"name": "ca", "num_partitions": 1, "replication_factor": 1}
        caller.call("CreateTopics", 7, {"topics": [topic], "timeout_ms": 30_000})
        caller.close()
        consumer_conversations.wait_for_coordinator(side_of(broker.bootstrap))
        broker.stop()
    with Broker(str(broker.data_dir), broker_config=CONFIG) as ours, ours.listen() as listener:
        side = side_of(listener.bootstrap)
        assert beat(side, "a", 0, **JOIN, subscribed_topic_names=["ca"])["error"] == "NONE"
        for group in ("h", "i", "j"):
            assert side.commit(group, "", -1, "ca", 0) == ["NONE"]
    with broker:
        side = side_of(broker.bootstrap)
        for group in ("h", "i", "j"):
            assert side.fetch(group, None, -1)[1] == [("ca", 0, 1)]


# -- Java's tools ----------------------------------------------------------------------------------


def test_javas_consumers_share_a_group(tmp_path):
    try:
        class_path = kafka_4_3()
    except Unavailable as error:
        unavailable(error)

    def consume(bootstrap, *options):
        arguments = (
            *("--bootstrap-server", bootstrap, "--group", "g", "--from-beginning"),
            *("--command-property", "group.protocol=consumer", "--timeout-ms", "60000"),
        )
        return subprocess.Popen(
            java(class_path, f"{TOOLS}.ConsoleConsumer", *arguments, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    with Broker() as broker, broker.listen() as listener:
        broker.create_topic("t", 6)
        send(broker, range(300))
        members = [consume(listener.bootstrap, "--topic", "t")]
        members.append(consume(listener.bootstrap, "--include", "t.*"))
        wait_until(lambda: shares(broker) == [3, 3])
        send(broker, range(300, 360))
        command = java(class_path, f"{TOOLS}.group.ConsumerGroupCommand")
        arguments = ("--bootstrap-server", listener.bootstrap, "--group", "g", "--describe")
        arguments += ("--members", "--verbose")
        told = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        assert len(re.findall(r"(?m)^g +\S{22} .* t:\d,\d,\d", told)) == 2
        wait_until(
            lambda: sum(each.offset for each in broker.groups.committed("g").values()) == 360
        )
        read = []
        for member in members:
            member.terminate()
            read += member.communicate()[0].split()
        wait_until(lambda: broker.groups.list_groups()[0].state == "Empty")
    assert sorted(map(int, filter(str.isdigit, read)))[:360] == list(range(360))


TOOLS = "org.apache.kafka.tools.consumer"


def send(broker, numbers):
    with broker.producer() as producer:
        for number in numbers:
            producer.send("t", value=str(number).encode(), partition=number % 6)


def committed(broker):
    return broker.groups.committed("g").values()


def shares(broker):
    found = broker.groups.describe_consumer_group("g")
    return [sum(map(len, each.assignment.values())) for each in found.members]


def wait_until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise TimeoutError
