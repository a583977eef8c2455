"""Rolling: the behaviour scenarios of group G, and failures of the disk."""

import logging
import random

import pytest

from logstore.errors import KafkaStorageError
from logstore.runtime import Runtime
from logstore.storage.log import NewRecord
from logstore.storage.segment import RollReason
from logstore.types import INT32_MAX, AppendOrigin
from tests.support.world.builders import batch, log_name, memory_world, records_of
from tests.support.world.faulty import FaultyFileSystem

HOUR = 3_600_000
DAY = 24 * HOUR


def send(log, timestamp=None, key=b"k"):
    return log.writer.append_records([NewRecord(key, b"v", timestamp)])


def test_s068_records_without_time_roll_by_the_wall_clock(world):
    """S-068: an empty segment does not roll, a later one does after segment.ms."""
    log = world.log(segment_ms=HOUR)
    world.clock.advance(ms=HOUR + 1)
    assert send(log, -1).roll_reason is None
    assert len(log.segments) == 1
    for count in (2, 3, 4):
        world.clock.advance(ms=HOUR + 1)
        assert send(log, -1).roll_reason is RollReason.TIME
        assert len(log.segments) == count
    world.clock.advance(ms=HOUR)
    send(log, -1)
    assert len(log.segments) == 4


def test_s069_the_wall_clock_decides_when_the_first_record_has_no_time(world):
    """S-069: the times of later records do not count for such a segment."""
    log = world.log(segment_ms=HOUR)
    send(log, -1)
    send(log, world.clock.now_ms() + HOUR + 1)
    assert len(log.segments) == 1
    world.clock.advance(ms=HOUR + 1)
    send(log, -1)
    assert len(log.segments) == 2


def test_s070_record_times_decide_when_the_first_record_has_one(world):
    """S-070: the clock alone does not roll, a record later than segment.ms does."""
    log = world.log(segment_ms=HOUR)
    first = world.clock.now_ms()
    send(log, first)
    world.clock.advance(ms=HOUR + 1)
    send(log, first)
    send(log, first + HOUR)
    assert len(log.segments) == 1
    send(log, first + HOUR + 1)
    assert len(log.segments) == 2


def test_s071_jitter_is_drawn_once_a_segment(world):
    """S-071: no roll at H - J, a roll after H - jitter; each segment draws a new jitter."""
    jitter = 20 * 60_000
    log = world.log(segment_ms=HOUR, segment_jitter_ms=jitter)
    first = world.clock.now_ms()
    send(log, first)
    drawn = set()
    for count in range(1, 6):
        segment = log.active_segment
        value = segment.roll_jitter_ms
        assert 0 <= value < jitter
        drawn.add(value)
        for waited in (HOUR - jitter, HOUR - value):
            send(log, first + waited)
            assert len(log.segments) == count
            assert segment.roll_jitter_ms == value
        first += HOUR - value + 1
        send(log, first)
        assert len(log.segments) == count + 1
    assert len(drawn) > 1


def test_the_jitter_is_below_the_smaller_of_its_bound_and_segment_ms(world):
    config = {"segment_ms": 10, "segment_jitter_ms": 1_000_000}
    drawn = {world.segment(base, **config).roll_jitter_ms for base in range(300)}
    assert drawn == set(range(10))
    assert world.segment(1000, segment_ms=10).roll_jitter_ms == 0


def test_s072_a_follower_rolls_when_offsets_leave_31_bits(world):
    """S-072: the new base is the first offset of the append."""
    log = world.log()
    log.writer.append_batches(batch(0), AppendOrigin.REPLICATION)
    log.writer.append_batches(batch(INT32_MAX), AppendOrigin.REPLICATION)
    assert len(log.segments) == 1
    first = 2**31 + 5
    append = log.writer.append_batches(batch(first) + batch(first + 7), AppendOrigin.REPLICATION)
    assert append.roll_reason is RollReason.OFFSET_SPAN
    assert [segment.base_offset for segment in log.segments] == [0, first]
    assert log.log_end_offset == first + 8
    assert [record.offset for record in records_of(log)] == [0, INT32_MAX, first, first + 7]


def test_a_follower_rolls_when_the_last_of_several_batches_leaves_31_bits(world):
    log = world.log()
    log.writer.append_batches(batch(0), AppendOrigin.REPLICATION)
    log.writer.append_batches(batch(100) + batch(2**31), AppendOrigin.REPLICATION)
    assert [segment.base_offset for segment in log.segments] == [0, 100]
    log._check()


def test_s073_an_empty_active_segment_is_recreated(world):
    """S-073: its files are new and appends work, even if its empty index counted as full."""
    log = world.log()
    first = log.active_segment
    log.writer.roll()
    assert len(log.segments) == 1
    assert log.active_segment is not first
    assert send(log).first_offset == 0
    log.writer.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 1]

    full = log.active_segment
    full.offset_index.resize(0)
    assert full.offset_index.is_full
    append = send(log)
    assert append.roll_reason is RollReason.OFFSET_INDEX_FULL
    assert (append.first_offset, len(log.segments)) == (1, 2)
    assert log.active_segment is not full
    assert log.active_segment.offset_index.max_entries > 0
    assert len(records_of(log)) == 2
    log.close()


def test_s074_stale_files_of_the_new_base_are_deleted(world, caplog):
    """S-074: any file with the new segment's name is deleted, with a warning."""
    log = world.log()
    send(log)
    stale = [f"{1:020d}{kind}" for kind in (".log", ".index", ".timeindex", ".txnindex")]
    for name in stale:
        world.write(name, b"left by somebody")
    with caplog.at_level(logging.WARNING):
        log.writer.roll()
    for name in stale:
        assert any(name in message for message in caplog.messages)
        assert world.files().get(name, b"") != b"left by somebody"
    assert world.files()[log_name(1)] == b""
    send(log)
    assert len(records_of(log)) == 2
    log.close()
    assert f"{1:020d}.txnindex" not in world.files()


@pytest.mark.parametrize(
    ("policy", "segments"), ((("compact",), 2), (("compact", "delete"), 2), (("delete",), 1))
)
def test_s075_the_maximum_compaction_lag_rolls_compacted_logs(world, policy, segments):
    """S-075: with policy compact and max.compaction.lag.ms 1000 the log rolls after 1001 ms."""
    log = world.log(max_compaction_lag_ms=1000, segment_ms=DAY, cleanup_policy=policy)
    first = world.clock.now_ms()
    send(log, first)
    send(log, first + 1000)
    assert len(log.segments) == 1
    send(log, first + 1001)
    assert len(log.segments) == segments


def test_the_size_rolls_and_a_larger_batch_than_fits_is_written_to_the_new_segment(world):
    log = world.log(segment_bytes=200)
    sizes = [send(log).size_bytes for _ in range(2)]
    assert len(log.segments) == 1
    assert 200 - sum(sizes) < sizes[0]
    assert send(log).roll_reason is RollReason.SIZE
    assert [segment.size_bytes for segment in log.segments] == [sum(sizes), sizes[0]]


def test_a_roll_finishes_the_segment_and_flushes_it(world):
    """The closed segment's files are trimmed and durable, and the producer snapshot exists."""
    fs = FaultyFileSystem(world.fs)
    log = world.log(runtime=Runtime(world.clock, fs, world.runtime.rng))
    for _ in range(3):
        send(log, 5)
    assert log.recovery_point == 0
    fs.operations.clear()
    log.writer.roll()
    names = {path.rpartition("/")[2] for operation, path in fs.operations if operation == "sync"}
    assert names >= {f"{0:020d}{kind}" for kind in (".log", ".index", ".timeindex")}
    assert ("sync_dir", world.directory) in fs.operations
    files = world.files()
    assert files[f"{0:020d}.timeindex"] == (5).to_bytes(8, "big") + bytes(4)
    assert files[f"{0:020d}.index"] == b""
    assert f"{3:020d}.snapshot" in files
    assert (log.recovery_point, log.log_end_offset, log.high_watermark) == (3, 3, 3)
    assert f"{3:020d}.index" not in files, "an untouched segment owns its .log only"
    log.flush()
    assert f"{3:020d}.index" not in world.files()
    log.flush(force=True)
    assert f"{3:020d}.index" in world.files()


def test_preallocated_segments_are_trimmed_when_rolled(world):
    log = world.log(preallocate=True, segment_bytes=100_000)
    send(log)
    assert world.fs.stat(world.path(log_name(0))).size == 100_000
    log.writer.roll()
    assert world.fs.stat(world.path(log_name(0))).size == log.segments.first.size_bytes
    assert world.fs.stat(world.path(log_name(1))).size == 100_000
    log.close()
    assert world.fs.stat(world.path(log_name(1))).size == 0


def test_any_failure_of_the_disk_during_a_roll_leaves_a_log_that_reopens():
    """Each operation of a roll fails once; after a restart no appended record is missing."""
    number = 0
    while True:
        world = memory_world()
        fs = FaultyFileSystem(world.fs)
        log = world.log(runtime=Runtime(world.clock, fs, random.Random(0)))
        expected = [send(log).first_offset for _ in range(3)]
        countdown = iter(range(number, -1, -1))
        fs.rule = lambda *_, steps=countdown: next(steps, None) == 0
        try:
            log.writer.roll()
        except KafkaStorageError:
            fs.rule = lambda *_: False
            assert log.is_offline
            with pytest.raises(KafkaStorageError, match="offline"):
                send(log)
            with pytest.raises(KafkaStorageError, match="offline"):
                records_of(log)
            log.close()
        else:
            break
        finally:
            fs.rule = lambda *_: False
        reopened = world.log(clean=False, recovery_point=log.recovery_point)
        assert [record.offset for record in records_of(reopened)] == expected
        assert send(reopened).first_offset == 3
        reopened._check()
        number += 1
    assert number > 10
