"""Kafka's classes read every record that the group coordinator writes.

`kafka-dump-log --offsets-decoder` parses keys and values with Kafka's generated messages and prints
them as JSON, with subscriptions and assignments. Its output for a history of consumers is compared
with the broker's own description of its groups.
"""

import json
import random
import re

import pytest

from logstore import Broker, OffsetAndMetadata, TopicPartition, VirtualClock
from logstore.names import GROUP_OFFSETS_TOPIC
from tests.interop.conftest import unavailable
from tests.support.interop.dump_tool import kafka_dump
from tests.support.interop.judge import Unavailable

pytestmark = pytest.mark.interop

OFFSET, GROUP = "1", "2"
RECORD = re.compile(r"\| offset: (\d+) .*? key: (\{.*?\}\}) payload: (.*)")


def told_by_kafka(folder):
    """Return key and value of every data record, as Kafka's decoder prints them."""
    files = sorted(str(path) for path in folder.glob("*.log"))
    try:
        output = kafka_dump(["--offsets-decoder", "--print-data-log"], files, folder)
    except Unavailable as error:
        unavailable(error)
    assert (output.exit_code, output.reports) == (0, "")
    result = []
    for line in output.output.splitlines():
        if line.startswith("|") and "endTxnMarker" not in line:
            offset, key, value = RECORD.fullmatch(line).groups()
            value = None if value == "<DELETE>" else json.loads(value)
            result.append((int(offset), json.loads(key), value))
    return result


def newest(report, kind):
    """Return the newest value of each key of a kind that was not deleted."""
    result = {}
    for _, key, value in report:
        if key["type"] == kind:
            result[tuple(key["data"].values())] = value
    return {key: value["data"] for key, value in result.items() if value is not None}


def story(broker, rng):
    """Let consumers of two groups join, read, commit, leave and crash, and a producer commit."""
    strategies = ("range", "roundrobin", "sticky", "cooperative-sticky")
    consumers = []
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    names = iter(range(100))
    for _ in range(60):
        kind = rng.choice(("come", "poll", "poll", "poll", "go", "crash", "transaction", "wait"))
        if kind == "come" and len(consumers) < 5:
            group = rng.choice(("first", "zweité"))
            strategy = strategies[:3] if group == "first" else strategies[3:]
            consumer = broker.consumer(
                *rng.choice((("t",), ("t", "u"))),
                group_id=group,
                group_instance_id=rng.choice((None, f"static-{next(names)}")),
                partition_assignment_strategy=strategy,
                auto_offset_reset="earliest",
                session_timeout_ms=6000,
                heartbeat_interval_ms=2000,
            )
            consumers.append(consumer)
        elif kind == "poll":
            broker.append("t", value=b"v", partition=rng.randrange(4))
            for consumer in consumers:
                consumer.poll(rng.choice((0, 100)))
        elif kind == "go" and consumers:
            consumers.pop().close()
        elif kind == "crash" and consumers:
            consumers.pop(0).crash()
        elif kind == "transaction":
            producer.begin_transaction()
            tp = TopicPartition("t", rng.randrange(4))
            offsets = {tp: OffsetAndMetadata(rng.randrange(99), "méta" * rng.randrange(3))}
            producer.send_offsets_to_transaction(offsets, "transactions")
            rng.choice((producer.commit_transaction, producer.abort_transaction))()
        elif kind == "wait":
            broker.clock.advance(seconds=rng.choice((1, 5, 20)))
    for _ in range(12):
        for consumer in consumers:
            consumer.poll(1000)
    broker.groups.commit("by hand", {TopicPartition("u", 0): OffsetAndMetadata(2**63 - 1, "", 7)})
    return consumers


@pytest.mark.parametrize("seed", range(4))
def test_kafka_reads_every_record_as_it_was_meant(seed, tmp_path):
    rng = random.Random(seed)
    config = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    broker = Broker(tmp_path, clock=VirtualClock(), broker_config=config, seed=seed)
    broker.create_topic("t", 4)
    broker.create_topic("u", 2)
    consumers = story(broker, rng)
    groups = broker.groups
    ids = [each.group_id for each in groups.list_groups()]
    described = {each: groups.describe(each) for each in ids}
    committed = {each: groups.committed(each) for each in ids if each != "transactions"}
    for consumer in consumers:
        consumer.crash()
    broker.log(GROUP_OFFSETS_TOPIC).flush()
    report = told_by_kafka(tmp_path / f"{GROUP_OFFSETS_TOPIC}-0")
    broker.close()

    assert len(report) > 10
    versions = {(key["type"], value["version"]) for _, key, value in report if value is not None}
    assert versions == {(OFFSET, "3"), (GROUP, "3")}
    offsets = newest(report, OFFSET)
    for group, partitions in committed.items():
        for tp, offset in partitions.items():
            value = offsets[group, tp.topic, tp.partition]
            assert value["offset"] == offset.offset
            assert value["leaderEpoch"] == offset.leader_epoch
            assert value["metadata"] == offset.metadata
    stored = newest(report, GROUP)
    for group, now in described.items():
        value = stored.get((group,))
        if now.state != "Stable" or value is None:
            continue
        assert (value["protocolType"], value["protocol"]) == (now.protocol_type, now.protocol)
        assert {each["memberId"] for each in value["members"]} == {
            each.member_id for each in now.members
        }
        shares = [
            (topic["topic"], number)
            for member in value["members"]
            for topic in member["assignment"]["assignedPartitions"]
            for number in topic["partitions"]
        ]
        assert len(set(shares)) == len(shares)
        assert {topic for member in value["members"] for topic in member["subscription"]["topics"]}


def test_a_group_that_was_deleted_leaves_tombstones(tmp_path):
    config = {"offsets.topic.num.partitions": 1}
    with Broker(tmp_path, clock=VirtualClock(), broker_config=config) as broker:
        broker.create_topic("t", 2)
        broker.append("t", value=b"v", partition=0)
        with broker.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.poll()
        broker.groups.delete(["g"])
    report = told_by_kafka(tmp_path / f"{GROUP_OFFSETS_TOPIC}-0")
    assert newest(report, OFFSET) == newest(report, GROUP) == {}
    assert [value for _, _, value in report[-3:]] == [None] * 3
