"""Recovery of one segment: what is rebuilt, what is cut, and what is refused untouched."""

import random

import pytest

from logstore.epochs import EpochEntry, LeaderEpochCache
from logstore.errors import (
    SegmentOverflowError,
    UnsupportedFormatError,
)
from logstore.record.batch import RecordBatch, empty_batch
from logstore.types import TimestampOffset
from tests.support.builders import (
    LOG_APPEND_TIME,
    MIB,
    append,
    batch,
    log_name,
    old_message,
    read_offsets,
)

BIG_INDEX = 10 << 20


def test_recovery_keeps_what_is_sound(world):
    """Nothing is cut, the indexes are those of the appends, a second run changes nothing."""
    segment = world.segment(0, index_interval_bytes=100)
    for offset in range(0, 90, 3):
        append(segment, batch(offset, offset + 2, timestamp=1000 - offset % 7))
    append(segment, empty_batch(RecordBatch(batch(90, 95)).header))
    append(segment, batch(96, timestamp_type=LOG_APPEND_TIME, append_time=9999))
    segment.close()
    before = world.files()
    recovered = []
    for _ in range(2):
        segment = world.segment(0, create=False, index_interval_bytes=100)
        assert world.recover(segment) == (segment.size_bytes, 0, None)
        assert segment.max_timestamp_so_far == TimestampOffset(9999, 96)
        segment.close()
        recovered.append(world.files(".log", ".index", ".timeindex"))
    assert recovered[0] == recovered[1]
    assert recovered[0].keys() == before.keys()
    assert recovered[0][log_name(0)] == before[log_name(0)]


def test_recovery_crosses_the_pieces_it_reads(world):
    """Batches of 100 bytes to 3 MiB, so that pieces of 1 MiB end everywhere."""
    rng = random.Random(3)
    segment = world.segment(0, segment_index_bytes=BIG_INDEX, index_interval_bytes=4096)
    offset = 0
    for _ in range(40):
        size = rng.choice((0, 100, 40_000, MIB - 100, MIB, 3 * MIB))
        append(segment, batch(offset, value=bytes(size)))
        offset += rng.randrange(1, 5)
    last = segment.read_next_offset() - 1
    entries = list(segment.offset_index)
    assert world.recover(segment).truncated_bytes == 0
    assert segment.read_next_offset() == last + 1
    assert {entry.offset for entry in entries} <= {
        at.header.last_offset for at in segment.batches()
    }
    segment._check()


@pytest.mark.parametrize("zeros", (1, 17, 18, 61, 5000, 3 * MIB))
def test_recovery_cuts_zeros(world, zeros):
    segment = world.segment(0)
    append(segment, batch(0))
    world.write(log_name(0), batch(0) + bytes(zeros))
    segment = world.segment(0, create=False)
    assert world.recover(segment)[:2] == (len(batch(0)), zeros)
    assert world.files()[log_name(0)] == batch(0)


def test_recovery_cuts_batches_whose_offsets_do_not_rise(world):
    sound = batch(5, 9) + batch(10)
    for last in (batch(10), batch(3), batch(7, 9)):
        world.put({log_name(5): sound + last + batch(20)})
        segment = world.segment(5, create=False)
        result = world.recover(segment)
        assert result.valid_bytes == len(sound)
        assert "stands where offsets from 11 on belong" in result.reason
    world.put({log_name(50): batch(49)})
    assert world.recover(world.segment(50, create=False)).valid_bytes == 0


def test_recovery_cuts_a_malformed_marker(world):
    bad = batch(1, key=b"xy", producer_id=5, producer_epoch=0, is_control=True)
    world.put({log_name(0): batch(0) + bad + batch(2)})
    result = world.recover(world.segment(0, create=False))
    assert result.valid_bytes == len(batch(0))
    assert "control record" in result.reason


def test_recovery_refuses_offsets_beyond_the_segment_and_changes_nothing(world):
    """Such a segment must be split; cutting it would lose sound data."""
    world.put({log_name(0): batch(0) + batch(2**31), f"{0:020d}.index": bytes(8)})
    before = world.files()
    with pytest.raises(SegmentOverflowError, match="left as it is"):
        world.recover(world.segment(0, create=False))
    assert world.files() == before


@pytest.mark.parametrize("magic", (0, 1))
def test_recovery_refuses_old_messages_and_changes_nothing(world, magic):
    """Also behind sound batches; a damaged one is an ordinary torn tail."""
    message = old_message(magic, offset=1)
    world.put({log_name(0): batch(0) + message + batch(2), f"{0:020d}.index": bytes(8)})
    before = world.files()
    with pytest.raises(UnsupportedFormatError) as caught:
        world.recover(world.segment(0, create=False))
    assert (caught.value.magic, caught.value.position) == (magic, len(batch(0)))
    assert world.files() == before
    world.put({log_name(0): batch(0) + message[:-1] + b"!" + batch(2)})
    assert world.recover(world.segment(0, create=False)).valid_bytes == len(batch(0))


def test_recovery_fits_smaller_indexes_than_the_first_writers(world):
    segment = world.segment(0, segment_index_bytes=BIG_INDEX, index_interval_bytes=0)
    append(segment, *[batch(offset, timestamp=offset) for offset in range(100)])
    segment.close()
    segment = world.segment(0, create=False, segment_index_bytes=120, index_interval_bytes=0)
    world.recover(segment)
    assert segment.time_index.entries == 10
    assert segment.offset_index.entries == 9
    assert segment.max_timestamp_so_far == TimestampOffset(99, 99)
    assert read_offsets(segment, 99, 1, min_one_message=True) == [99]


def test_recovery_does_not_replace_newer_epochs(world):
    epochs = LeaderEpochCache(world.fs, world.directory)
    epochs.assign(5, 0)
    segment = world.segment(0)
    append(segment, batch(0, leader_epoch=3), batch(1, leader_epoch=-1), batch(2, leader_epoch=6))
    world.recover(segment, epochs=epochs)
    assert epochs.entries == (EpochEntry(5, 0), EpochEntry(6, 2))
