"""Setup and expected outcome of each story, shared by all clients."""

import json
from collections import Counter

import pytest

from logstore import TopicPartition
from logstore.testing import assert_committed, assert_tombstone_gone, records_by_key

SMALL = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
COMPACT = {"cleanup.policy": "compact"}

on_both = pytest.mark.parametrize(
    "storage", ("memory", pytest.param("disk", marks=pytest.mark.logstore(storage="disk")))
)

ACCOUNTS = ("a", "b", "c")
TRANSFERS = 8


def values(broker, topic, **options):
    return [record.value for record in broker.read(topic, **options)]


def orders_topics(broker):
    """Create the topics of the orders, which are durable once answered."""
    broker.create_topic("orders", configs={"flush.messages": "1", "max.message.bytes": "500"})
    broker.create_topic("rejected")


def users_topic(broker, partitions=3):
    broker.create_topic("users", partitions=partitions, configs=COMPACT)
    for number in range(60):
        value = None if number % 7 == 0 else b"v%d" % number
        broker.append("users", key=b"u%d" % (number % 10), value=value)
    broker.clean("users", force=True, roll=True)


def events_topic(broker):
    """Create the topics of events and counts; return the expected counts."""
    broker.create_topic("events")
    broker.create_topic("counts", configs=COMPACT)
    users = [b"u%d" % (number % 4) for number in range(50)]
    for user in users:
        broker.append("events", key=user, value=b"login")
    return Counter(users)


def users_to_erase(broker):
    broker.create_topic("users", configs={**COMPACT, "max.compaction.lag.ms": "3600000"})
    broker.create_topic("erasure-requests")
    for user in (b"ann", b"bob", b"eve"):
        broker.append("users", key=user, value=user + b"'s address")


def assert_bob_leaves_the_disk(broker, data_dir):
    """Check that time and other users' updates alone remove bob's records from disk."""

    def is_written_to():
        broker.append("users", key=b"ann", value=b"ann's newer address")
        return b"bob" not in records_by_key(broker, "users")

    for _ in range(30):
        broker.clock.advance(hours=4)
        if is_written_to():
            break
    assert_tombstone_gone(broker, "users", b"bob")
    broker.clock.advance(minutes=10)  # file.delete.delay.ms
    for path in data_dir.glob("users-0/*"):
        assert b"bob" not in path.read_bytes(), path.name
    assert set(broker.table("users")) == {b"ann", b"eve"}


def transfers_topic(broker):
    """Create the topics of transfers and of the ledger; return the expected balances."""
    broker.create_topic("transfers")
    broker.create_topic("ledger")
    expected = Counter()
    for number in range(TRANSFERS):
        source, target = ACCOUNTS[number % 3], ACCOUNTS[(number + 1) % 3]
        transfer = {"from": source, "to": target, "cents": number + 1}
        broker.append("transfers", key=None, value=json.dumps(transfer).encode())
        expected[source] -= number + 1
        expected[target] += number + 1
    return expected


def balances(broker):
    result = Counter()
    for key, records in records_by_key(broker, "ledger").items():
        result[key.decode()] = sum(int(record.value) for record in records)
    return result


def assert_all_booked(broker):
    assert_committed(broker, "booking", {TopicPartition("transfers", 0): TRANSFERS})


def is_all_booked(broker):
    committed = broker.groups.committed("booking").get(TopicPartition("transfers", 0))
    return committed is not None and committed.offset == TRANSFERS
