"""A consumer reads every record of a log with holes, and stops after its last batch.

Real clients have hung on each of these shapes: holes at the end of a log, a segment or a batch,
empty batches kept for their producer, batches of markers only, a start inside a hole.
"""

import random

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec
from logstore.record.records import Record
from logstore.testing import holes
from logstore.types import AppendOrigin
from tests.support.oracles.cleaner_oracle import empty_batch
from tests.support.world.transactions import Bench

TP = TopicPartition("t", 0)
FOREVER_MS = 2**31 - 1
LEVELS = ("read_uncommitted", "read_committed")
CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4)


def drain(broker, level, start=None, **configs):
    """Read all records, check the final position, and return the offsets; the loop is bounded."""
    consumer = broker.consumer(
        auto_offset_reset="earliest", isolation_level=level, enable_auto_commit=False, **configs
    )
    consumer.assign([TP])
    if start is not None:
        consumer.seek(TP, start)
    last = last_position(broker, level, consumer.position(TP))
    offsets = []
    for _ in range(2000):
        before = consumer.position(TP)
        if before >= last:
            assert consumer.poll() == {}
            assert consumer.position(TP) == last
            return offsets
        for record in consumer.poll().get(TP, []):
            assert record.offset >= before
            offsets.append(record.offset)
        position = consumer.position(TP)
        assert position > before, f"stuck at {position} of {last}"
        assert not offsets or position > offsets[-1]
    raise AssertionError(f"position {consumer.position(TP)} never reaches {last}")


def last_position(broker, level, start):
    """Return where a client's position ends up: after the last batch below the end."""
    log = broker.log("t")
    end = log.last_stable_offset if level == "read_committed" else log.high_watermark
    batches = log.reader.batches(start)
    return max(
        [start, *(each.header.next_offset for each in batches if each.header.base_offset < end)]
    )


def holey(log, rng):
    """Copy a leader's log that cleaners have rewritten, with gaps in any place."""
    offset = rng.choice((0, 0, 7))
    for _ in range(rng.randrange(1, 12)):
        offset += rng.choice((0, 0, 1, 5, 40))  # a hole before the batch
        width = rng.randrange(1, 6)
        left = sorted(rng.sample(range(width), rng.randrange(1, width + 1)))
        records = [Record(offset + each, 1000, b"k", b"v" * rng.randrange(9)) for each in left]
        data = build_batch(
            records,
            base_offset=offset,
            last_offset=offset + width - 1,  # and one at its own ends
            codec=rng.choice(CODECS),
            partition_leader_epoch=0,
        )
        if rng.random() < 0.25:
            data = empty_batch(RecordBatch(data).header)
        log.writer.append_batches(data, AppendOrigin.REPLICATION)
        offset += width
        if rng.random() < 0.3:
            log.writer.roll(offset + rng.choice((0, 0, 3, 50)))  # a gap over a segment's border
            offset = log.log_end_offset
    if rng.random() < 0.4:
        log.writer.roll(offset + rng.choice((1, 30)))  # nothing at all up to the end
        log.offsets.set_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("part", range(4))
def test_positions_end_after_the_last_batch_of_logs_with_holes(part):
    for seed in range(part, 200, 4):
        rng = random.Random(seed)
        with Broker(clock=VirtualClock()) as broker:
            broker.create_topic("t")
            log = broker.log("t")
            holey(log, rng)
            stored = [record.offset for _, record in log.reader.records(log.log_start_offset)]
            for level in LEVELS:
                assert drain(broker, level, max_poll_records=rng.choice((1, 2, 500))) == stored
                start = rng.randrange(log.log_start_offset, log.log_end_offset + 1)
                assert drain(broker, level, start) == [each for each in stored if each >= start]


def story(bench, rng):
    """Transactions that commit and abort, plain records, rolls, cleanings and deletions."""
    broker, clock = bench.broker, bench.clock
    producers = [bench.transactional(name, transaction_timeout_ms=FOREVER_MS) for name in "xy"]
    is_open = [False, False]
    for _ in range(rng.randrange(5, 40)):
        slot = rng.randrange(2)
        kind = rng.choice(("plain", "send", "send", "end", "end", "roll", "clean", "delete"))
        if kind == "plain":
            broker.append("t", value=b"v", key=b"%d" % rng.randrange(4))
        elif kind == "send":
            if not is_open[slot]:
                producers[slot].begin_transaction()
                is_open[slot] = True
            value = rng.choice((b"v", None))
            producers[slot].send("t", value, key=b"%d" % rng.randrange(4))
        elif kind == "end" and is_open[slot]:
            rng.choice((producers[slot].commit_transaction, producers[slot].abort_transaction))()
            is_open[slot] = False
        elif kind == "roll":
            clock.advance(minutes=rng.choice((1, 60 * 30)))
            broker.roll("t")
        elif kind == "clean":
            broker.clean("t", force=True)
        elif kind == "delete" and rng.random() < 0.3:
            log = broker.log("t")
            broker.delete_records({TP: rng.randrange(log.high_watermark + 1)})
    for slot in (0, 1):
        if is_open[slot] and rng.random() < 0.7:
            producers[slot].abort_transaction()
    broker.roll("t")
    broker.clean("t", force=True)


@pytest.mark.parametrize("part", range(4))
def test_positions_end_after_the_last_batch_of_cleaned_transactions(part):
    for seed in range(part, 80, 4):
        rng = random.Random(seed)
        bench = Bench(broker_config={"transaction.max.timeout.ms": FOREVER_MS})
        bench.broker.create_topic("t", configs={"cleanup.policy": "compact,delete"})
        bench.clock.advance(hours=1)
        story(bench, rng)
        for level in LEVELS:
            stored = [record.offset for record in bench.broker.read("t", isolation=level)]
            assert drain(bench.broker, level) == stored
            assert drain(bench.broker, level, max_poll_records=1) == stored
        bench.broker.close()


@pytest.mark.parametrize("part", range(2))
def test_positions_end_after_the_last_batch_of_shapes_that_follow_each_other(part):
    """Shapes of the factory in any order, with seeks into holes and polls of any size."""
    shapes = list(holes.SHAPES)
    for seed in range(part, 33, 2):
        rng = random.Random(seed)
        with Broker(clock=VirtualClock(), seed=seed) as broker:
            for shape in (*rng.choices(shapes, k=rng.randrange(4)), shapes[seed % len(shapes)]):
                holes.fill(broker, shape, topic="t")
            for _ in range(rng.choice((0, 0, 3))):
                broker.append("t", key=b"%d-0" % rng.randrange(30), value=b"later")
            result = holes.read_offsets(broker, "t")
            for level, stored in zip(
                LEVELS, (result.offsets, result.committed_offsets), strict=True
            ):
                size = rng.choice((1, 2, 3, 500))
                assert drain(broker, level, max_poll_records=size) == list(stored), seed
                for _ in range(3):
                    start = rng.randrange(result.log_start_offset, result.log_end_offset + 1)
                    left = [each for each in stored if each >= start]
                    assert drain(broker, level, start, max_poll_records=size) == left, seed


def test_markers_alone_are_moved_over():
    bench = Bench()
    bench.broker.create_topic("t")
    producer = bench.transactional()
    for _ in range(3):
        producer.begin_transaction()
        producer.send("t", b"gone")
        producer.flush()
        producer.abort_transaction()
    assert drain(bench.broker, "read_committed") == []
    bench.broker.delete_records({TP: 5})
    assert drain(bench.broker, "read_uncommitted") == []
