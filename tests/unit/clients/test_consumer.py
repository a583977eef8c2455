"""The consumer: subscriptions, positions, commits, and groups in one thread."""

import re
import threading
from collections import namedtuple
from contextlib import contextmanager

import pytest

from logstore import (
    Broker,
    CommitFailedError,
    Consumer,
    CorruptRecordError,
    FencedInstanceIdError,
    IllegalStateError,
    InvalidConfigurationError,
    LogStoreError,
    MemberToRemove,
    NoOffsetForPartitionError,
    OffsetAndMetadata,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    VirtualClock,
    WakeupError,
)
from logstore.clients.consumer_config import DEFAULTS
from logstore.clients.settings import ConsumerSettings
from logstore.coordinator.groups.consumer_protocol import decode_subscription
from logstore.errors import InvalidRegularExpressionError, KafkaTimeoutError
from logstore.runtime import Deadlock
from tests.support.world.messages import exactly
from tests.support.world.transactions import Bench

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def broker():
    with Broker(
        clock=VirtualClock(), seed=1, broker_config={"offsets.topic.num.partitions": 1}
    ) as broker:
        broker.create_topic("t", 2)
        yield broker


def fill(broker, count=5, topic="t", partition=0):
    broker.append_many(topic, [(b"k", b"%d" % each) for each in range(count)], partition=partition)


def values(polled):
    return sorted(record.value for records in polled.values() for record in records)


def reader(broker, *partitions, **configs):
    consumer = broker.consumer(auto_offset_reset="earliest", **configs)
    consumer.assign(partitions or [T0])
    return consumer


class Listener:
    def __init__(self):
        self.told = []

    def on_partitions_revoked(self, partitions):
        self.told.append(("revoked", sorted(partitions)))

    def on_partitions_assigned(self, partitions):
        self.told.append(("assigned", sorted(partitions)))


def rounds(*consumers, count=6, timeout_ms=100):
    """Poll members in one thread by turns, and return the records of each."""
    got = [[] for _ in consumers]
    for _ in range(count):
        for number, consumer in enumerate(consumers):
            got[number] += values(consumer.poll(timeout_ms))
    return got


# -- reading ----------------------------------------------------------------------------------


def test_records_have_the_form_of_kafka_python(broker):
    broker.append(
        "t", value=b"v", key=b"k", partition=0, timestamp=5, headers=[("a", b"1"), ("b", None)]
    )
    broker.append("t", value=None, partition=0, timestamp=6)
    first, second = reader(broker).poll()[T0]
    assert first == ("t", 0, 0, 0, 5, 0, b"k", b"v", (("a", b"1"), ("b", None)), None, 1, 1, 3)
    assert (second.key, second.value, second.serialized_value_size) == (None, None, -1)
    assert second.serialized_header_size == -1


def test_deserializers_of_each_shape(broker):
    class Three:
        closed = False

        def deserialize(self, topic, headers, data):
            return topic, len(headers), data

        def close(self):
            self.closed = True

    three = Three()
    broker.append("t", value=b"v", key=b"k", partition=0, headers={"a": b""})
    consumer = reader(broker, value_deserializer=bytes.decode, key_deserializer=three)
    (record,) = consumer.poll()[T0]
    assert (record.key, record.value) == (("t", 1, b"k"), "v")
    assert record.serialized_key_size == 1
    consumer.close()
    assert three.closed


def test_a_poll_is_limited_and_the_next_continues(broker):
    fill(broker, 5)
    fill(broker, 5, partition=1)
    consumer = reader(broker, T0, T1, max_poll_records=3)
    seen = []
    while records := consumer.poll():
        seen.append([(tp.partition, len(found)) for tp, found in records.items()])
    assert seen == [[(0, 3)], [(1, 3)], [(0, 2), (1, 1)], [(1, 1)]]
    assert consumer.position(T0) == 5
    assert values(consumer.poll()) == []


def test_iteration_ends_after_its_timeout(broker):
    fill(broker, 3)
    consumer = reader(broker, consumer_timeout_ms=5000)
    before = broker.clock.now_ms()
    offsets = []
    for record in consumer:
        offsets.append(record.offset)
        assert consumer.position(T0) == record.offset + 1
    assert offsets == [0, 1, 2]
    assert broker.clock.now_ms() - before == 5000
    consumer.close()
    assert list(consumer) == []


def test_an_endless_iteration_raises(broker):
    with pytest.raises(Deadlock):
        next(reader(broker))


def test_a_poll_moves_virtual_time_up_to_its_timeout(broker):
    consumer = reader(broker)
    before = broker.clock.now_ms()
    assert consumer.poll(700) == {}
    assert broker.clock.now_ms() - before == 700
    assert consumer.poll() == {}
    assert broker.clock.now_ms() - before == 700


def test_a_poll_returns_records_appended_while_it_waits(broker):
    consumer = reader(broker)
    producer = broker.producer(linger_ms=300)
    producer.send("t", b"late", partition=0)
    before = broker.clock.now_ms()
    assert values(consumer.poll(5000)) == [b"late"]
    assert broker.clock.now_ms() - before == 300


@pytest.mark.parametrize("level", ("read_uncommitted", "read_committed"))
def test_open_and_aborted_transactions(level):
    bench = Bench(broker_config={"offsets.topic.num.partitions": 1})
    bench.broker.create_topic("t")
    producer = bench.transactional()
    for value, end in ((b"a", producer.abort_transaction), (b"c", producer.commit_transaction)):
        producer.begin_transaction()
        producer.send("t", value)
        end()
    producer.begin_transaction()
    producer.send("t", b"open")
    consumer = reader(bench.broker, isolation_level=level)
    if level == "read_committed":
        assert values(consumer.poll()) == [b"c"]
        assert consumer.position(T0) == 4
        assert consumer.end_offsets([T0]) == {T0: 4}
        producer.commit_transaction()
        assert values(consumer.poll()) == [b"open"]
    else:
        assert values(consumer.poll()) == [b"a", b"c", b"open"]
        assert consumer.end_offsets([T0]) == {T0: 5}
        producer.abort_transaction()
    assert consumer.poll() == {}
    assert consumer.position(T0) == consumer.end_offsets([T0])[T0] == 6
    assert consumer.highwater(T0) == 6


def test_a_damaged_batch_is_named_and_the_position_stays_before_it():
    bench = Bench(broker_config={"offsets.topic.num.partitions": 1})
    bench.broker.create_topic("t")
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send("t", b"aborted")
    producer.abort_transaction()
    segment = bench.log().active_segment
    position = segment.size_bytes
    bench.broker.append("t", value=b"damaged")
    bench.fs.open(segment.log_path, write=True).write_at([b"\xff"], position + 70)
    consumer = reader(bench.broker, isolation_level="read_committed")
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=r"00000\.log"):
            consumer.poll()
        assert consumer.position(T0) == 2


# -- where to begin ---------------------------------------------------------------------------


def test_where_to_begin(broker):
    fill(broker)
    consumer = broker.consumer()
    consumer.assign([T0])
    assert consumer.position(T0) == 5  # kafka-python's default: latest
    none = broker.consumer(auto_offset_reset="none")
    none.assign([T0])
    with pytest.raises(NoOffsetForPartitionError):
        none.poll()
    consumer.seek_to_beginning()
    assert consumer.position(T0) == 0
    consumer.seek_to_end(T0)
    fill(broker, 1)
    assert consumer.position(T0) == 6
    consumer.seek(T0, 4)
    assert values(consumer.poll()) == [b"0", b"4"]


def test_a_position_outside_the_log_is_reset_or_refused(broker):
    fill(broker)
    consumer = reader(broker)
    consumer.seek(T0, 99)
    assert len(values(consumer.poll())) == 5
    broker.delete_records({T0: 3})
    consumer.seek(T0, 1)
    assert values(consumer.poll()) == [b"3", b"4"]
    strict = broker.consumer(auto_offset_reset="none")
    strict.assign([T0])
    strict.seek(T0, 1)
    with pytest.raises(OffsetOutOfRangeError):
        strict.poll()
    strict.seek(T0, 3)
    assert len(strict.poll()[T0]) == 2


def test_offsets_by_time_and_ends(broker):
    broker.append("t", value=b"a", partition=0, timestamp=1000)
    broker.append("t", value=b"b", partition=0, timestamp=2000)
    consumer = reader(broker)
    assert consumer.offsets_for_times({T0: 1500, T1: 1500}) == {T0: (1, 2000, 0), T1: None}
    assert consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
    assert consumer.end_offsets([T0, T1]) == {T0: 2, T1: 0}
    with pytest.raises(ValueError, match=exactly("the timestamp for t-0 must not be negative: -1")):
        consumer.offsets_for_times({T0: -1})


def test_paused_partitions_give_nothing(broker):
    fill(broker)
    fill(broker, 1, partition=1)
    consumer = reader(broker, T0, T1)
    consumer.pause(T0)
    assert consumer.paused() == {T0}
    assert values(consumer.poll(100)) == [b"0"]
    assert consumer.poll(100) == {}
    consumer.resume(T0)
    assert len(consumer.poll()[T0]) == 5


# -- subscriptions without a group ------------------------------------------------------------


def test_without_a_group_all_partitions_are_read_new_ones_too(broker):
    fill(broker, 1)
    consumer = broker.consumer("t", "later", auto_offset_reset="earliest")
    assert consumer.assignment() == {T0, T1}
    assert consumer.subscription() == {"t", "later"}
    assert values(consumer.poll()) == [b"0"]
    broker.create_topic("later")
    broker.create_partitions("t", 3)
    broker.append("later", value=b"x")
    broker.append("t", value=b"y", partition=2)
    assert values(consumer.poll()) == [b"x", b"y"]
    broker.delete_topic("later")
    consumer.poll()
    assert {tp.topic for tp in consumer.assignment()} == {"t"}
    consumer.unsubscribe()
    assert consumer.assignment() == set()
    assert consumer.subscription() is None


def test_a_pattern_subscription_includes_new_topics(broker):
    consumer = broker.consumer(auto_offset_reset="earliest")
    consumer.subscribe(pattern="orders-|__")
    for name in ("orders-eu", "orders-us", "not-orders-x"):
        broker.create_topic(name)
        broker.append(name, value=name.encode())
    assert values(consumer.poll()) == [b"orders-eu", b"orders-us"]
    assert consumer.topics() == {"t", "orders-eu", "orders-us", "not-orders-x"}
    assert consumer.partitions_for_topic("t") == {0, 1}
    assert consumer.partitions_for_topic("no") == set()


def test_a_pattern_that_is_refused_changes_nothing(broker):
    consumer = broker.consumer()
    with pytest.raises(InvalidRegularExpressionError):
        consumer.subscribe(pattern="(?=t)t")
    with pytest.raises(TypeError):
        consumer.subscribe(pattern=re.compile("t"))
    assert consumer.subscription() is None
    consumer.subscribe(["t"])


def test_one_way_at_a_time(broker):
    consumer = broker.consumer()
    with pytest.raises(IllegalStateError):
        consumer.poll()
    consumer.subscribe(["t"])
    for wrong in (lambda: consumer.assign([T0]), lambda: consumer.subscribe(pattern="x")):
        with pytest.raises(IllegalStateError):
            wrong()
    consumer.unsubscribe()
    consumer.assign([T0])
    with pytest.raises(IllegalStateError):
        consumer.subscribe(["t"])
    consumer.assign([])
    consumer.subscribe(["t"])


# -- commits ----------------------------------------------------------------------------------


def test_a_group_reads_on_where_it_committed(broker):
    fill(broker)
    first = reader(broker, group_id="g", enable_auto_commit=False, max_poll_records=2)
    first.poll()
    first.commit()
    first.poll()
    assert first.committed(T0) == 2
    assert first.committed(T0, metadata=True) == OffsetAndMetadata(2, "", 0)
    assert first.committed(T1) is None
    first.close()
    assert values(reader(broker, group_id="g").poll()) == [b"2", b"3", b"4"]


def test_offsets_are_committed_by_the_way(broker):
    fill(broker)
    consumer = reader(broker, group_id="g", max_poll_records=2)
    consumer.poll()
    assert broker.groups.committed("g") == {}
    broker.clock.advance(seconds=5)
    consumer.poll()
    assert broker.groups.committed("g")[T0].offset == 2
    consumer.poll()
    assert broker.groups.committed("g")[T0].offset == 2
    assert consumer.poll(7000) == {}  # and while it waits
    assert broker.groups.committed("g")[T0].offset == 5
    fill(broker, 1)
    consumer.poll()
    consumer.close()
    assert broker.groups.committed("g")[T0].offset == 6
    other = reader(broker, group_id="h")
    other.poll()
    other.__exit__(RuntimeError)
    assert broker.groups.committed("h") == {}


@pytest.mark.parametrize("timeout_ms", (60_000, float("inf")))
def test_offsets_are_committed_while_a_long_poll_waits(broker, timeout_ms):
    """They are committed when due, not when the poll ends: a poll without timeout never does."""
    fill(broker)
    consumer = reader(broker, group_id="g", auto_commit_interval_ms=5000)
    consumer.poll()
    due_ms = broker.clock.now_ms() + 5000
    committed = []

    def look():
        found = broker.groups.committed("g").get(T0)
        committed.append((broker.clock.now_ms(), found and found.offset))

    scheduler = broker.groups.scheduler
    scheduler.schedule("look", look, delay_ms=4999)
    scheduler.schedule("look", look, delay_ms=5001)
    scheduler.schedule("end", lambda: fill(broker, 1), delay_ms=9000)
    assert values(consumer.poll(timeout_ms)) == [b"0"]
    assert committed == [(due_ms - 1, None), (due_ms + 1, 5)]


def test_a_poll_that_nothing_can_end_is_a_deadlock_with_offsets_to_commit_too(broker):
    fill(broker)
    consumer = reader(broker, group_id="g")
    consumer.poll()
    with pytest.raises(Deadlock):
        consumer.poll(float("inf"))
    assert broker.groups.committed("g")[T0].offset == 5, "the automatic commit was already due"


def test_commit_async_calls_a_callback(broker):
    fill(broker)
    told = []
    consumer = reader(
        broker, group_id="g", default_offset_commit_callback=lambda *args: told.append(args)
    )
    consumer.poll()
    future = consumer.commit_async()
    assert future.succeeded()
    assert future.is_done
    assert told == [({T0: OffsetAndMetadata(5, "", 0)}, None)]
    failed = consumer.commit_async({T0: OffsetAndMetadata(1, "x" * 5000)}, lambda *_: None)
    assert failed.failed()
    assert isinstance(failed.exception, OffsetMetadataTooLargeError)
    assert len(told) == 1


def test_commits_that_are_refused(broker):
    consumer = reader(broker, group_id="g")
    with pytest.raises(UnknownTopicOrPartitionError):
        consumer.commit({TopicPartition("no", 0): OffsetAndMetadata(1)})
    with pytest.raises(TypeError):
        consumer.commit({T0: 5})
    without = reader(broker)
    for wrong in (
        without.commit,
        without.commit_async,
        without.group_metadata,
        lambda: without.committed(T0),
    ):
        with pytest.raises(IllegalStateError):
            wrong()


# -- groups -----------------------------------------------------------------------------------


def test_one_member_reads_all_at_the_first_poll(broker):
    fill(broker)
    listener = Listener()
    consumer = broker.consumer(group_id="g", auto_offset_reset="earliest")
    consumer.subscribe(["t"], listener=listener)
    assert len(values(consumer.poll())) == 5
    assert listener.told == [("assigned", [T0, T1])]
    group, generation, member_id, instance_id = consumer.group_metadata()
    assert (group, generation, instance_id) == ("g", 1, None)
    assert member_id.startswith("logstore-consumer-")
    consumer.close()
    assert listener.told[1:] == [("revoked", [T0, T1])]
    assert broker.groups.describe("g").state == "Empty"


@pytest.mark.parametrize("strategy", ("range", "roundrobin", "sticky", "cooperative-sticky"))
def test_two_members_in_one_thread_share_a_topic(broker, strategy):
    fill(broker)
    fill(broker, partition=1)
    configs = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "partition_assignment_strategy": [strategy],
    }
    first, second = broker.consumer("t", **configs), broker.consumer("t", **configs)
    assert len(values(first.poll())) == 10
    rounds(first, second, count=8)
    assert len(first.assignment()) == len(second.assignment()) == 1
    assert first.assignment() | second.assignment() == {T0, T1}
    fill(broker)
    fill(broker, partition=1)
    assert [len(got) for got in rounds(first, second, count=1)] == [5, 5]
    first.close()
    assert rounds(second) == [[]]
    assert second.assignment() == {T0, T1}


def test_cooperative_members_keep_their_partitions(broker):
    """Only partitions that move are revoked; members continue to read the others (KIP-429)."""
    configs = {"group_id": "g", "partition_assignment_strategy": ["cooperative-sticky"]}
    listener, other = Listener(), Listener()
    first, second = broker.consumer(**configs), broker.consumer(**configs)
    first.subscribe(["t"], listener=listener)
    second.subscribe(["t"], listener=other)
    first.poll()
    second.poll()
    fill(broker, 1)
    assert first.assignment() == {T0, T1}
    assert values(first.poll()) == [b"0"]
    rounds(first, second, count=8)
    (kept,) = first.assignment()
    (moved,) = second.assignment()
    assert listener.told == [("assigned", [T0, T1]), ("revoked", [moved])]
    assert [told for told in other.told if told[1]] == [("assigned", [moved])]
    assert kept != moved


def test_a_member_that_crashed_is_missed_after_its_session(broker):
    configs = {"group_id": "g", "session_timeout_ms": 10_000, "auto_offset_reset": "earliest"}
    first, second = broker.consumer("t", **configs), broker.consumer("t", **configs)
    rounds(first, second)
    first.crash()
    with pytest.raises(IllegalStateError):
        first.poll()
    rounds(second, count=1, timeout_ms=9000)
    assert len(second.assignment()) == 1
    rounds(second, count=2, timeout_ms=5000)
    assert second.assignment() == {T0, T1}


def test_a_member_that_does_not_poll_is_removed_and_rejoins(broker):
    listener = Listener()
    lost = []
    listener.on_partitions_lost = lambda partitions: lost.append(sorted(partitions))
    consumer = broker.consumer(group_id="g", max_poll_interval_ms=60_000)
    consumer.subscribe(["t"], listener=listener)
    fill(broker)
    consumer.poll()
    broker.clock.advance(seconds=59)
    assert broker.groups.describe("g").state == "Stable"
    broker.clock.advance(seconds=4)
    assert broker.groups.describe("g").state == "Empty"
    with pytest.raises(CommitFailedError):
        consumer.commit()
    assert consumer.assignment() == {T0, T1}
    consumer.poll()
    assert lost == [[T0, T1]]
    assert consumer.assignment() == {T0, T1}
    consumer.commit()


def test_a_member_that_has_to_join_again_cannot_commit(broker):
    configs = {"group_id": "g", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    first, second = broker.consumer("t", **configs), broker.consumer("t", **configs)
    fill(broker)
    first.poll()
    second.poll()
    first.commit()  # commits of the old generation are still accepted
    first.poll()
    with pytest.raises(RebalanceInProgressError):
        second.commit({T0: OffsetAndMetadata(1)})
    rounds(first, second)
    second.commit({T1: OffsetAndMetadata(0)})
    assert broker.groups.committed("g")[T0].offset == 5


def test_a_static_member_returns_to_its_partitions(broker):
    configs = {"group_id": "g", "session_timeout_ms": 30_000}
    first = broker.consumer("t", **configs, group_instance_id="a")
    second = broker.consumer("t", **configs, group_instance_id="b")
    rounds(first, second)
    had, generation = second.assignment(), second.group_metadata().generation_id
    second.close()
    broker.clock.advance(seconds=10)
    again = broker.consumer("t", **configs, group_instance_id="b")
    rounds(first, again, count=2)
    assert again.assignment() == had
    assert again.group_metadata().generation_id == generation
    third = broker.consumer("t", **configs, group_instance_id="b")
    third.poll()
    broker.clock.advance(seconds=4)
    with pytest.raises(FencedInstanceIdError):
        again.poll()


def test_a_leader_sees_new_partitions_and_a_subscription_new_topics(broker):
    first = broker.consumer("t", group_id="g")
    second = broker.consumer("t", group_id="g")
    rounds(first, second)
    broker.create_partitions("t", 4)
    rounds(first, second)
    assert len(first.assignment()) == len(second.assignment()) == 2
    broker.create_topic("u")
    second.subscribe(["t", "u"])
    rounds(first, second)
    assert TopicPartition("u", 0) in second.assignment()
    assert len(first.assignment() | second.assignment()) == 5


def test_a_subscription_that_changes_while_its_consumer_joins(broker):
    """The poll ends at its timeout, although the consumer will have to join once more."""
    broker.create_topic("u")
    first = broker.consumer("t", group_id="g")
    rounds(first)
    second = broker.consumer(group_id="g")
    second.subscribe(pattern="^[tuv]$")
    second.poll()
    broker.create_topic("v")
    began_ms = broker.clock.now_ms()
    assert second.poll(100) == {}
    assert broker.clock.now_ms() - began_ms == 100
    rounds(first, second)
    assert {tp.topic for tp in second.assignment()} == {"t", "u", "v"}


def test_a_consumer_in_a_transaction_is_fenced_by_its_generation(broker):
    """Exactly-once processing: commit consumed offsets together with produced records."""
    broker.create_topic("out")
    fill(broker)
    consumer = broker.consumer(
        "t", group_id="g", enable_auto_commit=False, auto_offset_reset="earliest"
    )
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    records = consumer.poll()[T0]
    producer.begin_transaction()
    for record in records:
        producer.send("out", record.value + b"!")
    offsets = {T0: OffsetAndMetadata(records[-1].offset + 1)}
    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    producer.commit_transaction()
    assert consumer.committed(T0) == 5
    whose = consumer.group_metadata()
    other = broker.consumer("t", group_id="g")
    rounds(consumer, other)
    producer.begin_transaction()
    with pytest.raises(
        Exception,
        match=exactly(
            "group 'g' rejected offsets of member "
            "'logstore-consumer-1-e4b06ce6-0741-47a8-bce4-2c8218072e8c' in generation "
            "1: ILLEGAL_GENERATION"
        ),
    ):
        producer.send_offsets_to_transaction(offsets, whose)
    producer.abort_transaction()


def test_members_with_threads_of_their_own(tmp_path):
    """With the system clock, a poll blocks until a record is appended."""
    with Broker(broker_config={"offsets.topic.num.partitions": 1}) as broker:
        broker.create_topic("t", 2)
        got = []
        done = threading.Event()

        def work():
            with broker.consumer(
                "t", group_id="g", auto_offset_reset="earliest", max_poll_records=7
            ) as consumer:
                while not done.is_set():
                    for records in consumer.poll(50).values():
                        got.extend((record.partition, record.offset) for record in records)
                    if len(set(got)) == 200:
                        done.set()

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(100):
            broker.append("t", value=b"%d" % number, partition=0)
            broker.append("t", value=b"%d" % number, partition=1)
        assert done.wait(60)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert sorted(set(got)) == [(p, offset) for p in (0, 1) for offset in range(100)]


# -- a consumer and several threads -------------------------------------------------------------


@contextmanager
def polling(consumer):
    """Start a thread with a poll that only `wakeup` ends; yield the list of its errors."""
    errors, is_inside = [], threading.Event()

    def work():
        try:
            consumer.poll(float("inf"))
        except LogStoreError as error:
            errors.append(error)

    has_news = consumer._has_news

    def noted():
        is_inside.set()
        return has_news()

    consumer._has_news = noted
    thread = threading.Thread(target=work, name="reader")
    thread.start()
    assert is_inside.wait(60)
    yield errors
    consumer.wakeup()
    thread.join(60)
    assert not thread.is_alive()


USES = {
    "poll": lambda consumer: consumer.poll(),
    "iteration": next,
    "position": lambda consumer: consumer.position(T0),
    "seek": lambda consumer: consumer.seek(T0, 1),
    "pause": lambda consumer: consumer.pause(T0),
    "commit": lambda consumer: consumer.commit(),
    "commit_async": lambda consumer: consumer.commit_async(),
    "committed": lambda consumer: consumer.committed(T0),
    "assign": lambda consumer: consumer.assign([T1]),
    "assignment": lambda consumer: consumer.assignment(),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "close": lambda consumer: consumer.close(),
    "with": lambda consumer: consumer.__exit__(None, None, None),
}


def test_another_thread_is_refused_while_one_uses_the_consumer():
    """Like Java's consumer, refuse other threads' calls except `wakeup`."""
    with Broker(broker_config={"offsets.topic.num.partitions": 1}) as broker:
        broker.create_topic("t", 2)
        consumer = reader(broker, group_id="g")
        with polling(consumer) as errors:
            for name, use in USES.items():
                with pytest.raises(
                    IllegalStateError, match="thread 'reader' is using it"
                ) as raised:
                    use(consumer)
                assert "wakeup" in str(raised.value), name
            assert consumer.metrics() is not None, "any thread may read metrics"
        assert [type(error) for error in errors] == [WakeupError]
        broker.append("t", value=b"x", partition=0)
        assert values(consumer.poll()) == [b"x"], "the consumer remains usable in this thread"


def test_records_are_given_to_one_thread_alone():
    """Threads that share a consumer without a lock get an error, and no record is read twice."""
    with Broker() as broker:
        broker.create_topic("t")
        fill(broker, 400)
        consumer = reader(broker, max_poll_records=1)
        got, refused, go = [], [], threading.Barrier(4)

        def work():
            go.wait(60)
            for _ in range(400):
                try:
                    got.extend(values(consumer.poll()))
                except IllegalStateError:
                    refused.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        got += values(consumer.poll(max_records=400))
        assert sorted(got) == sorted(b"%d" % each for each in range(400))


def test_a_wakeup_ends_the_next_poll_once(broker):
    consumer = reader(broker)
    fill(broker, 1)
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(timeout_ms=60_000)
    assert values(consumer.poll()) == [b"0"]


def test_a_wakeup_ends_an_iteration_and_a_wait_in_virtual_time(broker):
    consumer = reader(broker)
    before_ms = broker.clock.now_ms()
    scheduler = broker.groups.scheduler
    scheduler.schedule("wake", consumer.wakeup, delay_ms=500)
    with pytest.raises(WakeupError):
        next(consumer)
    assert broker.clock.now_ms() - before_ms == 500


def test_a_rebalance_listener_may_use_its_consumer(broker):
    fill(broker)

    class Seeking(Listener):
        def on_partitions_assigned(self, partitions):
            consumer.seek(T0, 3)

    consumer = broker.consumer(group_id="g", auto_offset_reset="earliest")
    consumer.subscribe(["t"], listener=Seeking())
    assert values(consumer.poll()) == [b"3", b"4"]


def test_a_broker_closes_while_another_thread_polls():
    broker = Broker()
    broker.create_topic("t", 2)
    consumer = reader(broker)
    errors = []

    def work():
        try:
            while True:
                consumer.poll(10)
        except LogStoreError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    broker.close()
    thread.join(60)
    assert [type(error) for error in errors] == [IllegalStateError]
    assert "closed" in str(errors[0])


# -- configs and other arguments --------------------------------------------------------------


def test_configs_of_kafka_python_are_accepted_and_others_refused(broker):
    names = ConsumerSettings.__optional_keys__
    broker.consumer(**dict.fromkeys(names - DEFAULTS.keys()))
    with pytest.raises(InvalidConfigurationError, match="'groupid'; the nearest is 'group_id'"):
        broker.consumer(groupid="g")
    assert len(names) == 68 + len({"group_protocol", "group_remote_assignor"})


@pytest.mark.parametrize(
    ("configs", "text"),
    (
        ({"group_id": ""}, "group_id must be a non-empty string, not ''"),
        ({"group_id": 5}, "group_id must be a non-empty string, not 5"),
        ({"group_instance_id": "a"}, "group_instance_id requires group_id"),
        (
            {"group_id": "g", "group_instance_id": "a b"},
            (
                "group_instance_id must be 1 to 249 characters from A-Z a-z 0-9 . _ - (and "
                "not '.' or '..'), not 'a b'"
            ),
        ),
        (
            {"group_id": "g", "group_instance_id": ".."},
            (
                "group_instance_id must be 1 to 249 characters from A-Z a-z 0-9 . _ - (and "
                "not '.' or '..'), not '..'"
            ),
        ),
        (
            {"auto_offset_reset": "middle"},
            "auto_offset_reset must be earliest, latest or none, not 'middle'",
        ),
        (
            {"isolation_level": "log_end"},
            ("isolation_level must be read_uncommitted or read_committed, not 'log_end'"),
        ),
        (
            {"partition_assignment_strategy": "range"},
            "partition_assignment_strategy must be a list of assignors, not 'range'",
        ),
        (
            {"partition_assignment_strategy": []},
            "partition_assignment_strategy must be a list of assignors, not []",
        ),
        (
            {"partition_assignment_strategy": ["rnage"]},
            "unknown assignor 'rnage'; the nearest is 'range'",
        ),
        (
            {"partition_assignment_strategy": ["range", "cooperative-sticky"]},
            (
                "partition_assignment_strategy mixes eager and cooperative assignors: "
                "range, cooperative-sticky"
            ),
        ),
        ({"max_poll_records": 0}, "max_poll_records is out of range: 0"),
        (
            {"session_timeout_ms": 3000, "heartbeat_interval_ms": 3000},
            "heartbeat_interval_ms 3000 must be lower than session_timeout_ms 3000",
        ),
        ({"key_deserializer": 5}, "key_deserializer is not callable: 5"),
        ({"consumer_timeout_ms": "1"}, "consumer_timeout_ms must be a number, not '1'"),
    ),
)
def test_unsupported_configs(broker, configs, text):
    with pytest.raises(InvalidConfigurationError) as refused:
        broker.consumer(**configs)
    assert str(refused.value) == text


def test_kafka_python_s_types_are_accepted(broker):
    fill(broker)
    partition = namedtuple("TopicPartition", ("topic", "partition"))
    offset = namedtuple("OffsetAndMetadata", ("offset", "metadata", "leader_epoch"))
    assignor = type("RangePartitionAssignor", (), {"name": "range"})
    consumer = reader(
        broker, partition("t", 0), group_id="g", partition_assignment_strategy=[assignor]
    )
    consumer.seek(partition("t", 0), 2)
    assert len(consumer.poll()[T0]) == 3
    consumer.commit({partition("t", 0): offset(4, None, -1)})
    assert consumer.committed(partition("t", 0)) == 4


def test_arguments_that_are_refused(broker):
    consumer = reader(broker)
    for call, error in (
        (lambda: consumer.poll(-1), ValueError),
        (lambda: consumer.poll(max_records=0), ValueError),
        (lambda: consumer.poll(max_records=1.5), TypeError),
        (lambda: consumer.seek(T0, -1), ValueError),
        (lambda: consumer.seek(T1, 1), ValueError),
        (lambda: consumer.seek("t", 1), TypeError),
        (lambda: consumer.position(T1), IllegalStateError),
        (lambda: consumer.position("t"), TypeError),
        (lambda: consumer.pause(T1), IllegalStateError),
        (lambda: consumer.assign([TopicPartition("no", 0)]), UnknownTopicOrPartitionError),
        (lambda: broker.consumer().subscribe("t"), TypeError),
        (lambda: broker.consumer().subscribe(), ValueError),
        (lambda: broker.consumer().subscribe(["t"], "t"), ValueError),
        (lambda: broker.consumer().subscribe(["t"], listener=object()), TypeError),
        (lambda: broker.consumer().seek_to_end(), ValueError),
    ):
        with pytest.raises(error):
            call()


def test_a_consumer_closes_with_the_broker(broker):
    fill(broker)
    consumer = broker.consumer("t", group_id="g", auto_offset_reset="earliest")
    assert isinstance(consumer, Consumer)
    consumer.poll()
    broker.close()
    consumer.close()
    with pytest.raises(IllegalStateError):
        consumer.poll()


def test_an_unsubscribed_member_is_notified_of_revoked_partitions(broker):
    fill(broker)
    listener = Listener()
    consumer = broker.consumer(group_id="g", auto_offset_reset="earliest")
    consumer.subscribe(["t"], listener=listener)
    consumer.poll()
    consumer.unsubscribe()
    assert listener.told == [("assigned", [T0, T1]), ("revoked", [T0, T1])]
    assert broker.groups.committed("g")[T0].offset == 5
    assert broker.groups.describe("g").state == "Empty"
    consumer.subscribe(["t"])
    consumer.poll()
    assert consumer.assignment() == {T0, T1}
    assert len(listener.told) == 2


def test_a_broker_that_closes_commits_its_consumers_positions(tmp_path):
    config = {"offsets.topic.num.partitions": 1}
    with Broker(tmp_path, broker_config=config) as broker:
        broker.create_topic("t", 1)
        fill(broker)
        reader(broker, group_id="g").poll()
        reader(broker, group_id="h", enable_auto_commit=False).poll()
    with Broker(tmp_path, broker_config=config) as broker:
        assert broker.groups.committed("g")[T0].offset == 5
        assert broker.groups.committed("h") == {}


def test_unchanged_offsets_are_not_committed_again(broker):
    fill(broker)
    consumer = reader(broker, group_id="g")
    consumer.poll()
    assert consumer._has_to_commit()
    for count in range(2):
        broker.clock.advance(seconds=5)
        consumer.poll()
        assert not consumer._has_to_commit()
        fill(broker, 1)
        assert len(consumer.poll()[T0]) == 1, count
        assert consumer._has_to_commit()
    for configs in ({"group_id": "h", "enable_auto_commit": False}, {}):
        other = reader(broker, **configs)
        assert len(other.poll()[T0]) == 7
        assert not other._has_to_commit()


EXCLUSIVE = (
    "subscription by topics, subscription by pattern and assignment of partitions are mutually"
    " exclusive"
)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    (
        (lambda c: c.poll(-1), ValueError, "timeout_ms must not be negative: -1"),
        (lambda c: c.poll(max_records=0), ValueError, "max_records must be positive: 0"),
        (lambda c: c.poll(max_records=True), TypeError, "max_records must be an int, not True"),
        (
            lambda c: c.seek(T0, -1),
            ValueError,
            "an offset must be a non-negative int, not -1",
        ),
        (
            lambda c: c.seek(T0, True),
            ValueError,
            "an offset must be a non-negative int, not True",
        ),
        (lambda c: c.assign(["t"]), TypeError, "expected a TopicPartition, not 't'"),
        (lambda c: c.subscribe(["t"]), IllegalStateError, EXCLUSIVE),
        (lambda c: c.subscribe(pattern="t"), IllegalStateError, EXCLUSIVE),
        (lambda c: c.subscribe("t"), TypeError, "topics must be a list, not the string 't'"),
        (
            lambda c: c.subscribe([T0]),
            TypeError,
            f"a topic must be a string, not {T0!r}; for partitions, use assign()",
        ),
        (lambda c: c.subscribe(), ValueError, "pass either topics or a pattern"),
        (lambda c: c.subscribe(["t"], "t"), ValueError, "pass either topics or a pattern"),
        (lambda c: c.commit(), IllegalStateError, "the consumer has no group_id"),
    ),
)
def test_a_refusal_gives_the_reason(broker, call, error, message):
    consumer = reader(broker)
    with pytest.raises(error) as raised:
        call(consumer)
    assert str(raised.value) == message
    assert consumer.assignment() == {T0}


def test_a_subscription_may_only_change_to_one_of_its_kind(broker):
    for first, second in (
        ({"topics": ["t"]}, {"pattern": "t"}),
        ({"pattern": "t"}, {"topics": ["t"]}),
    ):
        consumer = broker.consumer(auto_offset_reset="earliest")
        with pytest.raises(
            IllegalStateError, match=exactly("call subscribe() or assign() before reading")
        ):
            consumer.poll()
        consumer.subscribe(**first)
        consumer.subscribe(**first)
        with pytest.raises(IllegalStateError) as raised:
            consumer.subscribe(**second)
        assert str(raised.value) == EXCLUSIVE
        with pytest.raises(IllegalStateError) as raised:
            consumer.assign([T0])
        assert str(raised.value) == EXCLUSIVE
        consumer.unsubscribe()
        consumer.subscribe(**second)
        assert consumer.assignment() == {T0, T1}


@pytest.mark.parametrize("missing", ("on_partitions_revoked", "on_partitions_assigned"))
def test_a_listener_needs_both_methods(broker, missing):
    listener = Listener()
    setattr(listener, missing, None)
    consumer = broker.consumer()
    with pytest.raises(TypeError) as raised:
        consumer.subscribe(["t"], listener=listener)
    assert str(raised.value) == f"a rebalance listener needs a method {missing}: {listener!r}"
    assert consumer.subscription() is None


def test_several_partitions_are_paused_and_positioned_together(broker):
    fill(broker)
    fill(broker, 3, partition=1)
    consumer = reader(broker, T0, T1)
    consumer.seek_to_end()
    assert (consumer.position(T0), consumer.position(T1)) == (5, 3)
    consumer.seek_to_beginning(T1)
    assert (consumer.position(T0), consumer.position(T1)) == (5, 0)
    consumer.seek_to_end(T1)
    consumer.seek_to_beginning()
    assert (consumer.position(T0), consumer.position(T1)) == (0, 0)
    consumer.pause(T0, T1)
    assert (consumer.paused(), consumer.poll()) == ({T0, T1}, {})
    consumer.resume(T1)
    assert {tp: len(found) for tp, found in consumer.poll().items()} == {T1: 3}


@pytest.mark.parametrize(("timeout_ms", "tries"), ((99, 1), (100, 2), (250, 3)))
def test_a_fetch_is_tried_again_after_the_backoff(broker, timeout_ms, tries):
    broker.append("t", value=b"v", partition=0)
    consumer = reader(broker, retry_backoff_ms=100)
    before_ms = broker.clock.now_ms()
    with broker.fail("fetch", error="NOT_LEADER_OR_FOLLOWER") as rule:
        assert consumer.poll(timeout_ms=timeout_ms) == {}
    assert (rule.hits, broker.clock.now_ms() - before_ms) == (tries, timeout_ms)


@pytest.mark.parametrize(("timeout_ms", "tries"), ((99, 1), (100, 2), (250, 3), (300, 4)))
def test_a_commit_is_tried_again_until_its_time_is_over(broker, timeout_ms, tries):
    consumer = reader(broker, group_id="g", retry_backoff_ms=100)
    error = "COORDINATOR_LOAD_IN_PROGRESS"
    before_ms = broker.clock.now_ms()
    with broker.fail("commit", error=error) as rule, pytest.raises(KafkaTimeoutError) as raised:
        consumer.commit({T0: OffsetAndMetadata(0)}, timeout_ms=timeout_ms)
    assert str(raised.value) == f"not committed within {timeout_ms} ms: {error}"
    assert (rule.hits, broker.clock.now_ms() - before_ms) == (tries, (tries - 1) * 100)
    with broker.fail("commit", error=error, times=2):
        consumer.commit({T0: OffsetAndMetadata(0)})
    assert broker.groups.committed("g")[T0].offset == 0
    assert broker.clock.now_ms() - before_ms == (tries + 1) * 100


def test_all_partitions_are_revoked_before_an_eager_rebalance(broker):
    listener = Listener()
    first = broker.consumer(group_id="g")
    first.subscribe(["t"], listener=listener)
    first.poll()
    second = broker.consumer("t", group_id="g")
    rounds(first, second)
    assert listener.told == [
        ("assigned", [T0, T1]),
        ("revoked", [T0, T1]),
        ("assigned", sorted(first.assignment())),
    ]
    assert len(first.assignment()) == 1


def test_a_member_that_was_removed_hears_so_at_its_commit_and_loses_its_partitions(broker):
    told = []

    class Losing(Listener):
        def on_partitions_lost(self, partitions):
            self.told.append(("lost", sorted(partitions)))

    listener = Losing()
    consumer = broker.consumer(group_id="g", enable_auto_commit=False)
    consumer.subscribe(["t"], listener=listener)
    consumer.poll()
    member = consumer.group_metadata().member_id
    broker.admin().remove_group_members("g", [MemberToRemove(member)])
    for _ in range(2):
        with pytest.raises(CommitFailedError) as raised:
            consumer.commit({T0: OffsetAndMetadata(0)})
        told.append(str(raised.value))
    assert told == [
        f"group 'g' rejected the offsets of {[T0]}: UNKNOWN_MEMBER_ID",
        f"{consumer!r} is not a member of its group: poll, then commit again",
    ]
    consumer.poll()
    assert listener.told == [
        ("assigned", [T0, T1]),
        ("lost", [T0, T1]),
        ("assigned", [T0, T1]),
    ]
    consumer.commit({T0: OffsetAndMetadata(0)})


def test_without_on_partitions_lost_lost_partitions_are_revoked(broker):
    listener = Listener()
    consumer = broker.consumer(group_id="g", max_poll_interval_ms=60_000)
    consumer.subscribe(["t"], listener=listener)
    consumer.poll()
    broker.clock.advance(seconds=70)
    consumer.poll()
    assert listener.told == [
        ("assigned", [T0, T1]),
        ("revoked", [T0, T1]),
        ("assigned", [T0, T1]),
    ]


@pytest.mark.parametrize(
    ("strategy", "user_data", "owned"),
    (
        ("range", None, ()),
        ("roundrobin", None, ()),
        ("cooperative-sticky", b"\0\0\0\1", (T0, T1)),
    ),
)
def test_a_member_joins_with_its_subscription_and_what_it_owns(
    broker, monkeypatch, strategy, user_data, owned
):
    requests = []
    coordinator = broker.groups
    join = type(coordinator).join

    def noted(self, request, callback):
        requests.append(request)
        return join(self, request, callback)

    monkeypatch.setattr(type(coordinator), "join", noted)
    consumer = broker.consumer(
        "u",
        "t",
        group_id="g",
        client_id="me",
        group_instance_id="i",
        session_timeout_ms=9000,
        max_poll_interval_ms=70_000,
        partition_assignment_strategy=[strategy],
    )
    consumer.poll()
    member = consumer.group_metadata().member_id
    broker.create_topic("u")
    consumer.poll()
    first, second = requests
    for request, known, mine in ((first, "", None), (second, member, owned)):
        assert request[:2] == ("g", "consumer")
        assert request[3:-1] == (9000, 70_000, known, "i", "me", "/127.0.0.1", True, True)
        assert request.may_describe is None
        ((name, metadata),) = request[2]
        subscription = decode_subscription(metadata)
        assert (name, subscription.topics) == (strategy, ("t", "u"))
        assert subscription.owned_partitions == (mine or ())
    assert decode_subscription(second[2][0][1]).user_data == user_data
