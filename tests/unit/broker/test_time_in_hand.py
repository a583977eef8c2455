"""Time in a test's hand: waits, events, snapshots and forks."""

from datetime import UTC, datetime, timedelta

import pytest

from logstore import Broker, InvalidConfigurationError, TopicPartition, VirtualClock
from logstore.runtime import Deadlock
from logstore.runtime.clock import VIRTUAL_EPOCH_MS
from tests.support.world.brokers import values
from tests.support.world.messages import exactly

T0 = TopicPartition("t", 0)


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock(), seed=5) as broker:
        broker.create_topic("t")
        yield broker


def test_time_passes_until_something_holds(broker):
    producer = broker.producer(linger_ms=1500)
    producer.send("t", b"late")
    assert broker.run_until(lambda: values(broker, "t") == [b"late"], timeout=timedelta(hours=3))
    assert broker.clock.now_ms() == VIRTUAL_EPOCH_MS + 1500
    assert not broker.run_until(lambda: False, timeout=timedelta(seconds=2))
    assert not broker.run_until(lambda: False, timeout=500)
    assert broker.clock.now_ms() == VIRTUAL_EPOCH_MS + 4000
    assert broker.run_until(lambda: True, timeout=0)
    with pytest.raises(Deadlock):
        broker.run_until(lambda: False)
    with pytest.raises(
        ValueError,
        match=exactly("a timeout must not be negative: datetime.timedelta(days=-1, seconds=86399)"),
    ):
        broker.run_until(lambda: False, timeout=timedelta(seconds=-1))


def test_time_passes_up_to_a_moment(broker):
    producer = broker.producer(linger_ms=1500)
    producer.send("t", b"late")
    moment = datetime(2024, 1, 2, tzinfo=UTC)
    assert broker.run_until(moment)
    assert broker.clock.now_ms() == VIRTUAL_EPOCH_MS + 86_400_000
    assert values(broker, "t") == [b"late"]
    assert broker.run_until(VIRTUAL_EPOCH_MS)  # long over
    assert not broker.run_until(broker.clock.now_ms() + 5000, timeout=1000)
    assert broker.clock.now_ms() == VIRTUAL_EPOCH_MS + 86_401_000
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "datetime.datetime(2024, 1, 2, 0, 0) has no time zone: datetime(…, "
            "tzinfo=timezone.utc) is an exact time"
        ),
    ):
        broker.run_until(datetime(2024, 1, 2))  # refused


def test_time_moves_from_event_to_event(broker):
    assert not broker.clock.step()
    producer = broker.producer(linger_ms=1500)
    producer.send("t", b"late")
    assert broker.clock.step()
    assert broker.clock.now_ms() == VIRTUAL_EPOCH_MS + 1500
    assert values(broker, "t") == [b"late"]
    assert not broker.clock.step()
    assert broker.clock.now_ms() == VIRTUAL_EPOCH_MS + 1500


def test_the_machine_s_time_passes_too():
    with Broker() as broker:
        broker.create_topic("t")
        producer = broker.producer(linger_ms=5)
        producer.send("t", b"late")
        assert broker.run_until(
            lambda: values(broker, "t") == [b"late"], timeout=timedelta(minutes=1)
        )
        assert not broker.run_until(lambda: False, timeout=1)


def test_a_fork_is_independent_of_the_original(broker):
    broker.append_many("t", [(b"k", b"%d" % number) for number in range(100)])
    broker.clock.advance(hours=1)
    with broker.fork() as fork:
        assert fork.clock.now_ms() == broker.clock.now_ms()
        assert values(fork, "t") == values(broker, "t")
        fork.append("t", value=b"there")
        broker.append("t", value=b"here")
        fork.clock.advance(days=1)
        assert (values(fork, "t")[-1], values(broker, "t")[-1]) == (b"there", b"here")
        assert broker.clock.now_ms() == VIRTUAL_EPOCH_MS + 3_600_000
        assert fork.topic("t").id == broker.topic("t").id
    assert values(broker, "t")[-1] == b"here"


def test_a_fork_has_what_was_open(broker):
    """An open transaction, producers' sequences, and the offsets and members of groups."""
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"open")
    consumer = broker.consumer("t", group_id="g", auto_offset_reset="earliest")
    consumer.poll()
    consumer.commit()
    with broker.fork() as fork:
        assert fork.log("t").last_stable_offset == 0
        assert fork.groups.committed("g")[T0].offset == 1
        assert fork.groups.describe("g").members == broker.groups.describe("g").members
        successor = fork.producer(transactional_id="x")
        successor.init_transactions()
        assert list(fork.read("t", isolation="read_committed")) == []
    producer.commit_transaction()
    assert [record.value for record in broker.read("t", isolation="read_committed")] == [b"open"]


def test_many_brokers_are_made_of_one_snapshot_alike(broker):
    """With a seed they draw the same, and write the same bytes."""
    broker.append("t", value=b"first")
    snapshot = broker.snapshot()
    broker.append("t", value=b"later")
    left = []
    for _ in range(2):
        with snapshot.broker() as each:
            assert values(each, "t") == [b"first"]
            consumer = each.consumer("t", group_id="g", client_id="c")
            consumer.poll()
            each.clock.advance(seconds=1)
            log = each.log("__consumer_offsets", each.groups.partition_of("g").partition)
            left.append([batch.data for batch in log.reader.batches(0)])
    assert left[0] == left[1] != []


def test_brokers_that_cannot_be_forked(tmp_path):
    with (
        Broker(tmp_path, clock=VirtualClock()) as on_disk,
        pytest.raises(
            InvalidConfigurationError,
            match=exactly("a snapshot requires a broker in memory with a virtual clock"),
        ),
    ):
        on_disk.fork()
    with (
        Broker() as real,
        pytest.raises(
            InvalidConfigurationError,
            match=exactly("a snapshot requires a broker in memory with a virtual clock"),
        ),
    ):
        real.snapshot()


@pytest.mark.parametrize(
    ("end_ms", "timeout", "passed_ms", "is_reached"),
    (
        (5000, None, 5000, True),
        (5000, 5000, 5000, True),
        (5000, 4999, 4999, False),
        (5000, 9000, 5000, True),
        (5000, 1.5, 2, False),
        (5000, timedelta(milliseconds=7), 7, False),
        (0, None, 0, True),
        (-1, 3000, 0, True),
    ),
)
def test_time_passes_up_to_the_earlier_of_an_end_and_a_timeout(
    broker, end_ms, timeout, passed_ms, is_reached
):
    start_ms = broker.clock.now_ms()
    assert broker.run_until(start_ms + end_ms, timeout=timeout) is is_reached
    assert broker.clock.now_ms() == start_ms + passed_ms
    at = datetime.fromtimestamp((start_ms + passed_ms + end_ms) / 1000, UTC)
    assert broker.run_until(at, timeout=timeout) is is_reached
    assert broker.clock.now_ms() == start_ms + 2 * passed_ms
