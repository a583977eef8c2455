"""Consumer groups of KIP-848 on one directory with Kafka 4.3.1 and 3.9, and Java's consumer."""

import re
import subprocess
import time

import pytest

from logstore import Broker
from tests.interop.conftest import unavailable
from tests.interop.conversations import until
from tests.support.interop.caller import Caller
from tests.support.interop.judge import KAFKA_3, Unavailable
from tests.support.interop.real_broker import (
    GROUP_FEATURES,
    RealBroker,
    class_path,
    java,
    kafka_4_3,
)
from tests.support.world.wire import name_of

pytestmark = pytest.mark.interop

TOPICS = {"ca": 3, "cb": 5, "cc": 1}
SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.coordinator.append.linger.ms": "0",
    "log.roll.ms": "600000",
}


class Side:
    """A broker of either kind, with plain values of its answers."""

    def __init__(self, bootstrap):
        self.caller = Caller(bootstrap)
        answer = self.caller.call("Metadata", 12, {"topics": None})
        self.ids = {each.name: each.topic_id for each in answer.topics if each.name in TOPICS}
        self.names = {topic_id: name for name, topic_id in self.ids.items()}

    def heartbeat(self, fields):
        owned = fields.get("topic_partitions")
        if owned is not None:
            fields = {
                **fields,
                "topic_partitions": [
                    {"topic_id": self.ids[name], "partitions": numbers}
                    for name, numbers in owned.items()
                ],
            }
        answer = self.caller.call("ConsumerGroupHeartbeat", 1, fields)
        assignment = None
        if answer.assignment is not None:
            assignment = {
                self.names[each.topic_id]: sorted(each.partitions)
                for each in answer.assignment.topic_partitions
            }
        return {
            "error": name_of(answer.error_code),
            "member": answer.member_id,
            "epoch": answer.member_epoch,
            "interval": answer.heartbeat_interval_ms,
            "assignment": assignment,
        }

    def describe(self, group):
        (found,) = self.caller.call(
            "ConsumerGroupDescribe",
            1,
            {"group_ids": [group], "include_authorized_operations": False},
        ).groups
        return {
            "error": name_of(found.error_code),
            "state": found.group_state,
            "epochs": (found.group_epoch, found.assignment_epoch),
            "assignor": found.assignor_name,
            "members": sorted(
                (
                    each.member_id,
                    each.instance_id,
                    each.member_epoch,
                    sorted(each.subscribed_topic_names),
                    each.subscribed_topic_regex,
                    _partitions(each.assignment),
                    _partitions(each.target_assignment),
                    each.member_type,
                    each.client_id,
                )
                for each in found.members
            ),
        }

    def commit(self, group, member_id, epoch, topic, partition):
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": epoch,
            "member_id": member_id,
            "topics": [
                {
                    "name": topic,
                    "partitions": [{"partition_index": partition, "committed_offset": 1}],
                }
            ],
        }
        answer = self.caller.call("OffsetCommit", 9, fields)
        return [name_of(p.error_code) for each in answer.topics for p in each.partitions]

    def fetch(self, group, member_id, epoch):
        asked = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "topics": None}
        (found,) = self.caller.call(
            "OffsetFetch", 9, {"groups": [asked], "require_stable": True}
        ).groups
        return name_of(found.error_code), sorted(
            (each.name, p.partition_index, p.committed_offset)
            for each in found.topics
            for p in each.partitions
        )


def _partitions(assignment):
    return sorted(
        (each.topic_name, sorted(each.partitions)) for each in assignment.topic_partitions
    )


def wait_for_coordinator(side):
    fields = {"key_type": 0, "coordinator_keys": ["x"]}
    for _ in range(200):
        (found,) = side.caller.call("FindCoordinator", 4, fields).coordinators
        if found.error_code == 0 and side.fetch("x", None, -1)[0] == "NONE":
            break
        time.sleep(0.1)


# -- the same directory ----------------------------------------------------------------------------

CONFIG = {"offsets.topic.num.partitions": 2, "group.consumer.assignment.interval.ms": 0}
"""Kafka's broker has as many partitions of the topic."""

JOIN = {"rebalance_timeout_ms": 60_000, "topic_partitions": {}}


def beat(side, member_id, epoch, **fields):
    request = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, **fields}
    return side.heartbeat(request)


def side_of(bootstrap):
    side = Side(bootstrap)
    wait_for_coordinator(side)
    return side


def test_both_brokers_load_what_the_other_wrote(tmp_path):
    """A group lives on Kafka, then here, then on Kafka again, on the same directory."""
    try:
        class_path = kafka_4_3()
    except Unavailable as error:
        unavailable(error)
    kafka = RealBroker(class_path, tmp_path / "kafka", SETTINGS, features=GROUP_FEATURES)
    with kafka:
        caller = Caller(kafka.bootstrap)
        topics = [
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in TOPICS.items()
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
        until(lambda: side.describe("g")["error"] != "COORDINATOR_LOAD_IN_PROGRESS")
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
        wait_for_coordinator(side_of(broker.bootstrap))
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
