"""Assertions for users' tests: passing, failing, and the messages of failures."""

import pytest

from logstore import Broker, TopicPartition, UnknownTopicOrPartitionError, VirtualClock
from logstore.testing import (
    assert_committed,
    assert_compacted,
    assert_tombstone_gone,
    history,
    records_by_key,
)
from logstore.testing.describing import described
from tests.support.world.messages import exactly

USERS = TopicPartition("users", 0)


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock(), seed=0) as broker:
        broker.create_topic("users", configs={"cleanup.policy": "compact"})
        for key, value in ((b"1", b"ann"), (b"2", b"bob"), (b"1", b"anna")):
            broker.append("users", key=key, value=value)
        yield broker


def message_of(assertion, *arguments):
    with pytest.raises(AssertionError) as failure:
        assertion(*arguments)
    return str(failure.value).splitlines()


def clean(broker, topic="users"):
    broker.clean(topic, force=True, roll=True)


# --- records by key ----------------------------------------------------------------------------


def test_records_and_history_of_keys(broker):
    broker.append("users", key=b"2", value=None)
    found = records_by_key(broker, "users")
    assert {key: [r.offset for r in records] for key, records in found.items()} == {
        b"1": [0, 2],
        b"2": [1, 3],
    }
    assert history(broker, "users", b"2") == [b"bob", None]
    assert history(broker, "users", b"3") == []


def test_partitions_and_transactions(broker):
    broker.create_topic("t", partitions=2)
    broker.append("t", key=b"k", value=b"second", partition=1)
    broker.append("t", key=b"k", value=b"first", partition=0)
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"open", key=b"k", partition=0)
    assert history(broker, "t", b"k") == [b"first", b"second"]
    assert history(broker, "t", b"k", 1) == [b"second"]
    assert history(broker, "t", b"k", 0, isolation="read_uncommitted") == [b"first", b"open"]


def test_faults_affect_clients_but_not_observers(broker):
    rule = broker.fail("fetch", error="NOT_LEADER_OR_FOLLOWER", delay=1000)
    before_ms = broker.clock.now_ms()
    assert history(broker, "users", b"1") == [b"ann", b"anna"]
    assert message_of(assert_compacted, broker, "users")
    assert message_of(assert_tombstone_gone, broker, "users", b"1")
    assert "offset 2: key b'1', value b'anna'" in described(broker)
    assert (rule.hits, broker.clock.now_ms()) == (0, before_ms)


@pytest.mark.parametrize("assertion", (history, assert_tombstone_gone))
def test_a_key_is_bytes(broker, assertion):
    with pytest.raises(TypeError, match=exactly("key must be bytes, not '1'")):
        assertion(broker, "users", "1")


@pytest.mark.parametrize(
    ("assertion", "arguments"),
    ((records_by_key, ()), (assert_compacted, ()), (assert_tombstone_gone, (b"1",))),
)
def test_a_topic_that_there_is_not_is_refused(broker, assertion, arguments):
    with pytest.raises(UnknownTopicOrPartitionError, match=exactly("unknown topic 'usres'")):
        assertion(broker, "usres", *arguments)


# --- compacted ---------------------------------------------------------------------------------


def test_compacted(broker):
    assert message_of(assert_compacted, broker, "users") == [
        "users-0 is not compacted: 1 of 2 keys have more than one record",
        "  key b'1': offsets 0, 2; compaction keeps 2",
        "  cleaning waits for active_segment: the active segment starts at offset 0; dirty data"
        " begins at offset 0, 0 bytes of it in closed segments",
        "  broker.clean('users', force=True, roll=True) ignores this",
    ]
    clean(broker)
    assert_compacted(broker, "users")
    broker.append("users", key=b"2", value=b"again")
    assert "  key b'2': offsets 1, 3; compaction keeps 3" in message_of(
        assert_compacted, broker, "users"
    )


def test_operations_without_a_result_are_reported_as_done(broker):
    broker.roll("users")
    assert message_of(assert_compacted, broker, "users", 0)[-1] == (
        "  users-0 is due for cleaning: call broker.clean('users')"
    )


def test_many_keys_are_cut_and_a_wrong_policy_is_named(broker):
    broker.create_topic("events")
    for number in range(24):
        broker.append("events", key=b"%d" % (number % 12), value=b"")
    lines = message_of(assert_compacted, broker, "events")
    assert lines[0] == "events-0 is not compacted: 12 of 12 keys have more than one record"
    assert lines[10:] == [
        "  key b'9': offsets 9, 21; compaction keeps 21",
        "  … and 2 more",
        "  cleaning waits for policy: cleanup.policy is delete",
    ]


def test_records_without_a_key_belong_to_no_key(broker):
    broker.create_topic("events")
    broker.append_many("events", [(None, b"a"), (None, b"b")])
    assert_compacted(broker, "events")


def test_the_strategy_selects_the_retained_record(broker):
    broker.create_topic(
        "versions", configs={"cleanup.policy": "compact", "compaction.strategy": "timestamp"}
    )
    for timestamp in (1000, 3000, 2000):
        broker.append("versions", key=b"k", value=b"v", timestamp=timestamp)
    assert "  key b'k': offsets 0, 1, 2; compaction keeps 1" in message_of(
        assert_compacted, broker, "versions"
    )
    clean(broker, "versions")
    assert [r.offset for r in broker.read("versions")] == [1, 2], "the last of a log stays"
    assert_compacted(broker, "versions")


# --- gone --------------------------------------------------------------------------------------


def test_tombstone_gone(broker):
    assert message_of(assert_tombstone_gone, broker, "users", b"1")[:3] == [
        "there are still records with key b'1'",
        "  users-0 offset 0: key b'1', value b'ann':"
        " superseded by offset 2; the next pass removes it",
        "  users-0 offset 2: key b'1', value b'anna':"
        " it is the latest record of the key, without a tombstone after it",
    ]
    broker.append("users", key=b"1", value=None)
    assert message_of(assert_tombstone_gone, broker, "users", b"1")[3] == (
        "  users-0 offset 3: key b'1', a tombstone: it has no delete horizon: its first"
        " cleaning pass sets one, delete.retention.ms (86400000 ms) later"
    )
    clean(broker)
    assert message_of(assert_tombstone_gone, broker, "users", b"1")[1] == (
        "  users-0 offset 3: key b'1', a tombstone: its delete horizon is 2024-01-02T00:00:00.000Z"
        " (1704153600000 ms); now is 2024-01-01T00:00:00.000Z (1704067200000 ms)"
    )
    broker.clock.advance(days=2)
    assert message_of(assert_tombstone_gone, broker, "users", b"1")[1] == (
        "  users-0 offset 3: key b'1', a tombstone: the next pass removes it (delete"
        " horizon 2024-01-02T00:00:00.000Z (1704153600000 ms))"
    )
    clean(broker)
    assert_tombstone_gone(broker, "users", b"1")
    assert_tombstone_gone(broker, "users", b"1", 0)


def test_aborted_records_are_there_for_some_reader(broker):
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("users", b"secret", key=b"9")
    producer.abort_transaction()
    assert history(broker, "users", b"9") == []
    assert (
        "offset 3: key b'9', value b'secret'"
        in message_of(assert_tombstone_gone, broker, "users", b"9")[1]
    )


def test_nothing_is_gone_where_nothing_ever_was(broker):
    broker.create_topic("empty", partitions=2)
    assert message_of(assert_tombstone_gone, broker, "empty", b"1") == [
        "empty is empty: no record was ever appended"
    ]


# --- committed ---------------------------------------------------------------------------------


def test_committed(broker):
    consumer = broker.consumer("users", group_id="billing", auto_offset_reset="earliest")
    consumer.poll(max_records=2)
    consumer.commit()
    assert_committed(broker, "billing", {USERS: 2, TopicPartition("users", 7): None})
    assert message_of(assert_committed, broker, "billing", {USERS: 3, ("orders", 0): 1}) == [
        "the committed offsets of group 'billing' differ:",
        "  users-0: 2, expected 3; the log ends at 3",
        "  orders-0: nothing, expected 1",
    ]
    assert message_of(assert_committed, broker, "billing", {USERS: None}) == [
        "the committed offsets of group 'billing' differ:",
        "  users-0: 2, expected nothing; the log ends at 3",
    ]
    assert message_of(assert_committed, broker, "biling", {USERS: 2})[-1] == (
        "  unknown group 'biling'; did you mean 'billing'?"
    )
    assert message_of(assert_committed, broker, "x", {USERS: 2})[-1] == "  unknown group 'x'"


def test_offsets_of_an_open_transaction_are_not_committed_yet(broker):
    from logstore import OffsetAndMetadata

    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({USERS: OffsetAndMetadata(3)}, "billing")
    assert message_of(assert_committed, broker, "billing", {USERS: 3})[1] == (
        "  users-0: nothing, expected 3; the log ends at 3; an open transaction has pending offsets"
    )
    producer.commit_transaction()
    assert_committed(broker, "billing", {USERS: 3})


def test_a_failing_assertion_shows_the_test_and_not_its_own_lines():
    for assertion in (assert_compacted, assert_tombstone_gone, assert_committed):
        assert "__tracebackhide__" in assertion.__code__.co_varnames
