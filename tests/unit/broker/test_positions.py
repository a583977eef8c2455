"""Where a consumer's position ends up at the end of a log: after the last batch, as in clients.

Java's consumer, kafka-python and aiokafka end up at the same positions at Kafka 3.9.2 and 4.4.0.
"""

import pytest

from logstore import Broker, Cluster, VirtualClock
from logstore.errors import OffsetOutOfRangeError
from logstore.testing import holes
from tests.support.world.replicated import TP, ReplicatedLog

LAYOUTS = ("memory", "disk", "cluster of 1", "cluster of 3", "cluster of 3 on disk")
LEVELS = ("read_uncommitted", "read_committed")


@pytest.fixture(params=LAYOUTS)
def world(request, tmp_path):
    directory = tmp_path / "data" if request.param.endswith("disk") else None
    if request.param.startswith("cluster"):
        count = int(request.param.split()[2])
        with Cluster(brokers=count, clock=VirtualClock(), data_dir=directory) as cluster:
            yield ReplicatedLog(cluster, list(cluster.brokers.values()))
    else:
        with Broker(directory, clock=VirtualClock()) as broker:
            yield ReplicatedLog(broker, [broker])


def reader(world, level):
    consumer = world.broker.consumer(auto_offset_reset="earliest", isolation_level=level)
    consumer.assign([TP])
    return consumer


def drained(consumer, **options):
    """Poll until a poll gives nothing; return the offsets."""
    offsets = []
    while polled := consumer.poll(timeout_ms=100, **options):
        offsets += [record.offset for record in polled[TP]]
    return offsets


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", (1, 500))
def test_a_position_stays_after_the_last_batch_before_a_bare_end(world, level, size):
    world.batch(0, (0, 1, 2), 2)
    world.bare_end(7)
    world.settle()
    consumer = reader(world, level)
    assert drained(consumer, max_records=size) == [0, 1, 2]
    assert consumer.position(TP) == 3
    assert consumer.end_offsets([TP]) == {TP: 7}
    world.batch(7, (7,), 7)
    world.settle()
    assert drained(consumer) == [7]
    assert consumer.position(TP) == 8


@pytest.mark.parametrize("level", LEVELS)
def test_a_position_moves_over_a_hole_that_the_last_batch_spans(world, level):
    world.batch(0, (0, 1), 4)
    world.settle()
    consumer = reader(world, level)
    assert drained(consumer) == [0, 1]
    assert consumer.position(TP) == 5


@pytest.mark.parametrize("level", LEVELS)
def test_a_position_moves_over_a_hole_between_batches(world, level):
    world.batch(0, (0, 1), 1)
    world.bare_end(7)
    world.batch(7, (7,), 7)
    world.settle()
    consumer = reader(world, level)
    assert consumer.poll()[TP][-1].offset == 7
    consumer.seek(TP, 4)
    assert drained(consumer) == [7]
    assert consumer.position(TP) == 8


@pytest.mark.parametrize("start", (3, 5))
def test_a_position_in_a_bare_end_stays_where_it_is(world, start):
    world.batch(0, (0, 1, 2), 2)
    world.bare_end(7)
    world.settle()
    consumer = reader(world, "read_uncommitted")
    consumer.seek(TP, start)
    assert drained(consumer) == []
    assert consumer.position(TP) == start


def test_a_log_without_any_batch_is_read_from_its_start(world):
    world.bare_end(7)
    world.settle()
    consumer = reader(world, "read_committed")
    assert drained(consumer) == []
    assert consumer.position(TP) == world.broker.log(TP).log_start_offset


def test_a_wait_in_a_bare_end_lets_the_time_of_the_poll_pass(world):
    world.bare_end(7)
    world.settle()
    clock = world.broker.clock
    consumer = reader(world, "read_committed")
    before_ms = clock.now_ms()
    assert consumer.poll(timeout_ms=500) == {}
    assert clock.now_ms() - before_ms == 500


def test_a_wait_in_a_bare_end_is_over_when_the_log_start_moves_beyond_the_position():
    with Broker(clock=VirtualClock()) as broker:
        world = ReplicatedLog(broker, [broker])
        world.bare_end(7)
        world.settle()
        consumer = broker.consumer(auto_offset_reset="none")
        consumer.assign([TP])
        consumer.seek(TP, 3)
        before_ms = broker.clock.now_ms()
        broker.groups.scheduler.schedule(
            "delete", lambda: broker.delete_records({TP: 7}), delay_ms=10
        )
        with pytest.raises(OffsetOutOfRangeError, match="position 3 of t-0"):
            consumer.poll(timeout_ms=500)
        assert broker.clock.now_ms() - before_ms == 10


def test_a_hole_before_an_open_transaction_ends_what_a_committed_reader_reads():
    with Broker(clock=VirtualClock()) as broker:
        world = ReplicatedLog(broker, [broker])
        world.batch(0, (0, 1, 2), 2)
        world.bare_end(7)
        world.settle()
        with broker.producer(transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"open").get()
            consumer = reader(world, "read_committed")
            assert drained(consumer) == [0, 1, 2]
            assert consumer.end_offsets([TP]) == {TP: 7}
            assert consumer.position(TP) == 3
            producer.commit_transaction()
        assert drained(consumer) == [7]
        assert consumer.position(TP) == 9, "after the marker"


@pytest.mark.parametrize(
    ("shape", "level", "position"),
    (
        ("trailing_hole", "read_committed", 5),
        ("last_offset_gone", "read_committed", 5),
        ("bare_end", "read_uncommitted", 3),
        ("bare_end", "read_committed", 3),
        ("aborted_end", "read_uncommitted", 6),
        ("aborted_end", "read_committed", 6),
        ("nothing_left", "read_committed", 3),
        ("empty_batch", "read_committed", 5),
    ),
)
def test_positions_are_those_of_clients(tmp_path, shape, level, position):
    """As Java's consumer, kafka-python and aiokafka stop over the same directories."""
    holes.make(shape, tmp_path / "data", topic="t")
    with Broker(tmp_path / "data", clock=VirtualClock()) as broker:
        consumer = broker.consumer(auto_offset_reset="earliest", isolation_level=level)
        consumer.assign([TP])
        drained(consumer)
        assert consumer.position(TP) == position
