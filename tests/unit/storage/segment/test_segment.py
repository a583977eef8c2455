"""Segments: the behaviour scenarios of group E, and other cases."""

import random

import pytest

from logstore.config.log_config import LogConfig
from logstore.errors import (
    CorruptRecordError,
    SegmentOverflowError,
)
from logstore.record.batch import RecordBatch
from logstore.runtime import Runtime
from logstore.storage.log.epochs import EpochEntry, LeaderEpochCache
from logstore.storage.producers.state import ProducerStateManager
from logstore.storage.segment import UNKNOWN_POSITION, BatchExtent, LogSegment, RollReason
from logstore.types import INT32_MAX, INT64_MAX, AbortedTxn, OffsetPosition, TimestampOffset
from tests.support.world.builders import (
    MIB,
    TP,
    abort,
    append,
    append_columns,
    batch,
    commit,
    data_batch,
    log_name,
    read_offsets,
)
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.messages import exactly

BASE = 40
BIG_INDEX = 10 << 20


# -- the scenarios ---------------------------------------------------------------------------


def test_s039_an_empty_segment(world):
    """S-039: reads return nothing, and the next offset is the base."""
    segment = world.segment(BASE)
    assert segment.read(40, 300) is None
    assert segment.read_next_offset() == 40


def test_s040_reads_in_gaps_and_behind_the_end(world):
    """S-040: an offset in a gap or within a batch reads from the batch at or after it."""
    segment = world.segment(BASE)
    append(segment, batch(50, 51))
    append(segment, batch(60, 61))
    assert read_offsets(segment, 52) == [60, 61]
    assert read_offsets(segment, 55) == [60, 61]
    assert segment.read(62, 300) is None


@pytest.mark.parametrize("min_one_message", (False, True))
def test_s041_an_unknown_maximum_position_reads_nothing(world, min_one_message):
    """S-041: only the metadata are returned: start offset, segment base, position."""
    segment = world.segment(BASE)
    append(segment, batch(50, 51))
    for start in (48, 50, 51):
        found = segment.read(
            start, 1, max_position=UNKNOWN_POSITION, min_one_message=min_one_message
        )
        assert found.data == b""
        assert (start, segment.base_offset, found.position) == (start, 40, 0)
    for start in (52, 53):
        options = {"max_position": UNKNOWN_POSITION, "min_one_message": min_one_message}
        assert segment.read(start, 1, **options) is None


def test_s042_truncation_at_the_second_of_two_records(world):
    """S-042: 30 times, truncating to o+1 leaves exactly the record o of the two appended."""
    segment = world.segment(BASE)
    for offset in range(40, 70):
        first, second = batch(offset), batch(offset + 1)
        append(segment, first)
        append(segment, second)
        assert segment.read(offset, 10_000).data == first + second
        segment.truncate_to(offset + 1)
        assert segment.read(offset, 10_000).data == first
        segment._check()


def test_s043_truncation_reloads_the_largest_timestamp(world):
    """S-043: the entries are the same as in Kafka 3.9.2.

    It counts bytes batch by batch and adds an entry when *more* than the interval went before:
    with an interval of two batches minus a byte, every second batch from the third on, 14 of 30.
    Each batch is a separate append here, so the number per append chunk is the same.
    """
    size = len(batch(40, timestamp=400))
    segment = world.segment(BASE, index_interval_bytes=2 * size - 1)
    for offset in range(40, 70):
        data = batch(offset, timestamp=10 * offset)
        assert len(data) == size
        append(segment, data)
    assert segment.time_index.entries == 14
    assert segment.offset_index.entries == 14
    assert segment.time_index.entry(0) == TimestampOffset(420, 42)
    segment.truncate_to(41)
    assert segment.time_index.entries == 0
    assert segment.largest_timestamp == 400
    assert segment.read_next_offset() == 41
    segment._check()


def test_s044_a_full_truncation_starts_the_segment_again(world):
    """S-044: the roll clock restarts, the indexes can grow, and appending works again."""
    segment = world.segment(BASE)
    append(segment, batch(40, 41, timestamp=-1))
    world.clock.advance(ms=500)
    now_ms = world.clock.now_ms()
    assert segment.time_waited_for_roll(now_ms, -1) == 500
    segment.truncate_to(0)
    assert segment.size_bytes == segment.file.size() == 0
    assert segment.time_waited_for_roll(now_ms, -1) == 0
    assert not segment.time_index.is_full
    assert not segment.offset_index.is_full
    assert segment.read(0, 1024) is None
    append(segment, batch(40, 41))
    assert read_offsets(segment, 40) == [40, 41]


def test_s045_next_offset(world):
    """S-045: 53 after a batch 50-52."""
    segment = world.segment(BASE)
    append(segment, batch(50, 52))
    assert segment.read_next_offset() == 53


def test_s046_index_files_appear_when_touched(world):
    """S-046: renaming creates nothing; an index touched later has the renamed name."""
    segment = world.segment(0)
    assert list(world.files()) == [log_name(0)]
    segment.change_suffix(".deleted")
    assert list(world.files()) == [log_name(0) + ".deleted"]
    segment.offset_index.lookup(1)
    assert list(world.files()) == ["00000000000000000000.index.deleted", log_name(0) + ".deleted"]
    segment.time_index.lookup(1)
    assert "00000000000000000000.timeindex.deleted" in world.files()
    assert len(world.files()) == 3


@pytest.mark.parametrize("kind", (".index", ".timeindex"))
def test_s047_recovery_rebuilds_a_damaged_index(world, kind):
    """S-047: noise from byte 5 on in one of the indexes; offsets and times are found again."""
    options = {"index_interval_bytes": 1, "segment_index_bytes": BIG_INDEX}
    segment = world.segment(0, **options)
    for offset in range(100):
        append(segment, batch(offset, timestamp=10 * offset))
    segment.close()
    name = f"{0:020d}{kind}"
    sound = world.files()[name]
    world.write(name, sound[:5] + random.Random(47).randbytes(len(sound) - 5))

    segment = world.segment(0, create=False, **options)
    assert world.recover(segment).truncated_bytes == 0
    for offset in range(100):
        assert read_offsets(segment, offset, 1, min_one_message=True) == [offset]
        found, _ = segment.find_offset_by_timestamp(10 * offset, 0)
        assert found == TimestampOffset(10 * offset, offset)
        if offset < 99:
            found, _ = segment.find_offset_by_timestamp(10 * offset + 1, 0)
            assert found.offset == offset + 1
    assert world.files()[name] == sound
    segment._check()


@pytest.mark.parametrize("begun_before", (False, True))
def test_s048_recovery_rebuilds_the_transaction_index(world, begun_before):
    """S-048: one entry for the abort, its start taken from a state known before the segment."""
    segment = world.segment(100)
    append(segment, data_batch(100, 101, 5))
    append(segment, data_batch(102, 103, 10))
    append(segment, batch(104, 105))
    append(segment, abort(106, 10))
    append(segment, commit(107, 5))
    state = ProducerStateManager(world.fs, world.directory, TP)
    if begun_before:
        state.update_from_batch(RecordBatch(data_batch(75, 75, 10)).header)
        state.map_end_offset = 100
    result = world.recover(segment, state)
    assert result[:3] == (segment.size_bytes, 0, None)
    first_offset = 75 if begun_before else 102
    assert segment.txn_index.entries() == [AbortedTxn(10, first_offset, 106, 100)]
    assert state.map_end_offset == 108
    assert state.first_undecided_offset() is None


def test_s049_recovery_rebuilds_leader_epochs(world):
    """S-049: the cache learns where each newer epoch begins."""
    segment = world.segment(100)
    append(segment, batch(104, 105, leader_epoch=0))
    append(segment, batch(106, 107, leader_epoch=1))
    append(segment, batch(108, 109, leader_epoch=1))
    append(segment, batch(110, 111, leader_epoch=2))
    epochs = LeaderEpochCache(world.fs, world.directory)
    world.recover(segment, epochs=epochs)
    expected = (EpochEntry(0, 104), EpochEntry(1, 106), EpochEntry(2, 110))
    assert epochs.entries == expected
    assert LeaderEpochCache(world.fs, world.directory).entries == expected


@pytest.mark.parametrize("damaged", (*range(0, 20, 3), 19))
def test_s050_recovery_cuts_at_the_first_damaged_batch(world, damaged):
    """S-050: noise from within batch i to the end of the file; batches 0 to i-1 remain."""
    rng = random.Random(damaged)
    for into in (0, rng.randrange(1, 14), 14):
        segment = world.segment(0)
        positions = [append(segment, batch(offset)) for offset in range(20)]
        segment.close()
        data = world.files()[log_name(0)]
        start = positions[damaged] + into
        world.write(log_name(0), data[:start] + rng.randbytes(len(data) - start))

        segment = world.segment(0, create=False)
        result = world.recover(segment)
        assert result[:2] == (positions[damaged], len(data) - positions[damaged])
        assert segment.file.size() == segment.size_bytes == positions[damaged]
        assert (read_offsets(segment, 0, MIB) or []) == list(range(damaged))
        segment._check()
        segment.delete_if_exists()


def test_s051_preallocation(world):
    """S-051: the file has its full length while open, and the length of its data once closed."""
    size = 512 * MIB
    options = {"preallocate": True, "segment_bytes": size}
    segment = world.segment(BASE, **options)
    first, second, third = batch(50, 51), batch(60, 61), batch(70)
    append(segment, first)
    append(segment, second)
    assert segment.file.size() == size
    assert world.fs.stat(segment.log_path).size == size
    assert segment.size_bytes == len(first + second)
    assert read_offsets(segment, 55) == [60, 61]
    segment.close()
    assert world.fs.stat(segment.log_path).size == len(first + second)

    segment = world.segment(BASE, create=False, **options)
    assert segment.size_bytes == len(first + second)
    assert read_offsets(segment, 55) == [60, 61]
    assert append(segment, third) == len(first + second)
    segment.close()
    assert world.files()[log_name(BASE)] == first + second + third


def test_s052_append_from_file_stops_where_offsets_do_not_fit(world):
    """S-052: two batches fit base 0, the third one base 2^31-1."""
    batches = [
        batch(0, value=bytes(1024)),
        batch(500, value=bytes(MIB + 1)),
        batch(2**31 + 4, value=bytes(1024)),
    ]
    world.write("source", b"".join(batches))
    source = world.fs.open(world.path("source"))
    segment = world.segment(0)
    copied = segment.append_from_file(source, "source")
    assert copied == len(batches[0] + batches[1])
    segment.close()
    assert world.files()[log_name(0)] == batches[0] + batches[1]

    other = world.segment(INT32_MAX)
    assert other.append_from_file(source, "source", copied) == len(batches[2])
    assert read_offsets(other, 0, MIB) == [2**31 + 4]
    other._check()


def test_s053_first_batch_timestamp(world):
    """S-053: none for an empty segment, then the first batch's largest."""
    segment = world.segment(0)
    assert segment.first_batch_timestamp() == INT64_MAX
    append(segment, batch(0, 2, timestamp=(5, 1000, 7)))
    append(segment, batch(3, timestamp=2000))
    assert segment.first_batch_timestamp() == 1000
    segment.close()
    assert world.segment(0, create=False).first_batch_timestamp() == 1000


# -- appends ---------------------------------------------------------------------------------


def test_several_batches_of_one_append_are_indexed_one_by_one(world):
    """Kafka's followers and cleaner append chunks; since 3.9.1 each batch counts alone."""
    batches = [batch(offset, timestamp=10 * offset) for offset in range(10, 20)]
    size = len(batches[0])
    segment = world.segment(0, index_interval_bytes=size)
    append(segment, *batches)
    assert list(segment.offset_index) == [
        OffsetPosition(10 + row, row * size) for row in (2, 4, 6, 8)
    ]
    assert list(segment.time_index) == [
        TimestampOffset(10 * (10 + row), 10 + row) for row in (2, 4, 6, 8)
    ]
    whole = world.files(".index", ".timeindex")
    segment.delete_if_exists()
    segment = world.segment(0, index_interval_bytes=size)
    for data in batches:
        append(segment, data)
    assert world.files(".index", ".timeindex") == whole


def test_interval_zero_indexes_every_batch_but_the_first(world):
    segment = world.segment(0, index_interval_bytes=0)
    append(segment, batch(0), batch(1), batch(2))
    assert [entry.offset for entry in segment.offset_index] == [1, 2]


def test_the_time_index_holds_the_last_offset_of_the_first_batch_with_the_maximum(world):
    segment = world.segment(0, index_interval_bytes=0)
    append(segment, batch(0, 2, timestamp=(5, 9, 7)))
    append(segment, batch(3, 4, timestamp=9))
    append(segment, batch(5, timestamp=8))
    assert list(segment.time_index) == [TimestampOffset(9, 2)]
    assert segment.max_timestamp_so_far == TimestampOffset(9, 2)


def test_appending_nothing_does_nothing(world):
    segment = world.segment(0)
    assert segment.append([], []) == 0
    assert list(world.files()) == [log_name(0)]


@pytest.mark.parametrize(
    ("offset", "message"),
    (
        (39, "offset 39 does not fit segment 40"),
        (BASE + INT32_MAX + 1, "offset 2147483688 does not fit segment 40"),
    ),
)
def test_an_offset_outside_31_bits_is_refused_before_the_write(world, offset, message):
    segment = world.segment(BASE)
    append(segment, batch(BASE))
    with pytest.raises(SegmentOverflowError, match=exactly(message)):
        append(segment, batch(offset))
    assert segment.file.size() == segment.size_bytes == len(batch(BASE))
    append(segment, batch(BASE + INT32_MAX))
    assert segment.read_next_offset() == BASE + INT32_MAX + 1


def test_an_index_that_fills_up_within_one_append_takes_no_more(world):
    """The next append rolls; existing entries stay readable."""
    segment = world.segment(0, index_interval_bytes=0, segment_index_bytes=48)
    append(segment, *[batch(offset, timestamp=offset) for offset in range(50)])
    assert segment.time_index.is_full
    assert segment.offset_index.entries == segment.time_index.entries == 3
    assert read_offsets(segment, 49, 1, min_one_message=True) == [49]
    assert segment.roll_reason(70, 50, 50, 0) is RollReason.TIME_INDEX_FULL
    segment.on_become_inactive()
    assert list(segment.time_index)[-1] == TimestampOffset(49, 49)
    segment._check()


def faulty_segment(world, **config):
    fs = FaultyFileSystem(world.fs)
    runtime = Runtime(world.clock, fs, world.runtime.rng)
    config = LogConfig(segment_index_bytes=1000, **config)
    return fs, LogSegment(runtime, world.directory, 0, config, create=True)


@pytest.mark.parametrize("append", (append, append_columns))
@pytest.mark.parametrize("kind", (".log", ".index", ".timeindex"))
def test_a_failed_write_is_taken_back(world, kind, append):
    fs, segment = faulty_segment(world, index_interval_bytes=0)
    append(segment, batch(0, timestamp=5), batch(1, timestamp=3))
    state = (segment.size_bytes, segment.max_timestamp_so_far, list(segment.offset_index))
    log = world.files(".log")
    fs.rule = lambda operation, path: operation == "write" and path.endswith(kind)
    with pytest.raises(OSError, match="injected failure"):
        append(segment, batch(2, timestamp=9), batch(3, timestamp=9))
    fs.rule = lambda *_: False
    assert state == (segment.size_bytes, segment.max_timestamp_so_far, list(segment.offset_index))
    assert world.files(".log") == log
    segment._check()
    append(segment, batch(2, timestamp=9), batch(3, timestamp=9))
    segment._check()
    segment.close()
    after = world.files()
    segment.delete_if_exists()
    twin = world.segment(0, index_interval_bytes=0)
    append(twin, batch(0, timestamp=5), batch(1, timestamp=3))
    append(twin, batch(2, timestamp=9), batch(3, timestamp=9))
    twin.close()
    assert after == world.files()


def test_a_write_that_cannot_be_taken_back_is_written_over(world):
    fs, segment = faulty_segment(world)
    append(segment, batch(0))
    fs.rule = lambda operation, _: operation in ("write", "truncate")
    with pytest.raises(OSError, match="injected failure"):
        append(segment, batch(1, value=bytes(500)))
    assert segment.file.size() > segment.size_bytes
    fs.rule = lambda *_: False
    append(segment, batch(1))
    segment._check()
    assert read_offsets(segment, 0, MIB) == [0, 1]
    segment.close()
    assert world.files()[log_name(0)] == batch(0) + batch(1)


# -- reads -----------------------------------------------------------------------------------


def test_reads_are_bounded_by_size_and_position(world):
    segment = world.segment(0)
    first, second = batch(0, 2), batch(3, 5)
    append(segment, first)
    append(segment, second)
    found = segment.read(1, 10)
    assert (found.data, found.first_entry_incomplete) == (first[:10], True)
    assert segment.read(1, 10, min_one_message=True).data == first
    assert segment.read(4, 1 << 20, max_position=len(first)).data == b""
    found = segment.read(0, 1 << 20, max_position=len(first))
    assert (found.data, found.first_entry_incomplete) == (first, False)
    assert segment.read(0, 0).data == b""
    with pytest.raises(
        ValueError,
        match=exactly(
            "invalid maximum size -1 for a read of LogSegment(base_offset=0, size_bytes=188)"
        ),
    ):
        segment.read(0, -1)


def test_lookups_by_time_skip_records_below_a_start_offset(world):
    segment = world.segment(0, index_interval_bytes=0)
    append(segment, batch(0, 2, timestamp=(5, 9, 7), leader_epoch=3))
    append(segment, batch(3, 4, timestamp=(8, 20), leader_epoch=4))
    assert segment.find_offset_by_timestamp(8, 0) == (TimestampOffset(9, 1), 3)
    assert segment.find_offset_by_timestamp(8, 2) == (TimestampOffset(8, 3), 4)
    assert segment.find_offset_by_timestamp(9, 2) == (TimestampOffset(20, 4), 4)
    assert segment.find_offset_by_timestamp(21, 0) is None


def test_the_largest_timestamp_falls_back_to_the_files_own(world):
    segment = world.segment(0)
    append(segment, batch(0, timestamp=-1))
    segment.set_last_modified_ms(12_345)
    assert segment.largest_timestamp == 12_345
    append(segment, batch(1, timestamp=0))
    assert segment.largest_timestamp == 0


def test_an_index_that_points_behind_the_data_does_not_hide_it(world):
    segment = world.segment(0, index_interval_bytes=0)
    append(segment, *[batch(offset) for offset in range(4)])
    segment.close()
    world.write(log_name(0), batch(0) + batch(1))
    assert world.segment(0, create=False).read_next_offset() == 2


def test_a_file_of_more_than_2_31_bytes_is_refused(world):
    world.write(log_name(0), b"")
    file = world.fs.open(world.path(log_name(0)), write=True)
    file.truncate(2**31)
    with pytest.raises(CorruptRecordError) as caught:
        world.segment(0, create=False)
    error = caught.value
    assert error.args[0] == "a segment of 2147483648 bytes is larger than 2^31-1"
    assert (error.path, error.check) == (world.path(log_name(0)), "segment_size")
    assert (error.expected, error.found) == (2147483647, 2147483648)
    file.truncate(INT32_MAX)
    assert world.segment(0, create=False).size_bytes == INT32_MAX


# -- names, dates, ends ----------------------------------------------------------------------


def test_all_files_follow_a_change_of_suffix_and_vanish_together(world):
    segment = world.segment(100, index_interval_bytes=0)
    append(segment, data_batch(100, 100, 5), batch(101), abort(102, 5))
    segment.txn_index.append(AbortedTxn(5, 100, 102, 103))
    segment.change_suffix(".cleaned")
    names = [f"{100:020d}{kind}" for kind in (".index", ".log", ".timeindex", ".txnindex")]
    assert list(world.files()) == [name + ".cleaned" for name in names]
    segment.set_last_modified_ms(777_000)
    for name in names[:3]:
        assert world.fs.stat(world.path(name + ".cleaned")).mtime_ms == 777_000
    segment.change_suffix("")
    assert list(world.files()) == names
    segment.flush()
    segment.delete_if_exists()
    assert world.files() == {}
    segment.delete_if_exists()


def test_closing_trims_and_notes_the_last_time(world):
    segment = world.segment(0)
    append(segment, batch(0, 4, timestamp=50))
    assert world.fs.stat(segment.time_index.path).size == 996
    segment.close()
    files = world.files()
    assert files[f"{0:020d}.index"] == b"", "created by the first append, as in Kafka"
    assert files[f"{0:020d}.timeindex"] == (50).to_bytes(8, "big") + (4).to_bytes(4, "big")
    segment = world.segment(0, create=False)
    assert segment.max_timestamp_so_far == TimestampOffset(50, 4)
    segment.close()
    assert world.files() == files


def test_indexes_without_room_for_an_entry_do_no_harm(world):
    segment = world.segment(0, segment_index_bytes=4)
    append(segment, batch(0))
    append(segment, batch(1))
    assert segment.roll_reason(70, 1000, 2, 0) is RollReason.OFFSET_INDEX_FULL
    segment.on_become_inactive()
    segment.close()
    assert read_offsets(world.segment(0, create=False), 1) == [1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    (
        ((100, 1000, 5, 0), None),
        ((930, 1000, 5, 0), None),
        ((931, 1000, 5, 0), RollReason.SIZE),
        ((100, 2000, 5, 0), None),
        ((100, 2001, 5, 0), RollReason.TIME),
        ((100, 1000, INT32_MAX, 0), None),
        ((100, 1000, INT32_MAX + 1, 0), RollReason.OFFSET_SPAN),
    ),
)
def test_each_reason_to_roll(world, arguments, reason):
    segment = world.segment(0, segment_bytes=1000, segment_ms=1000)
    append(segment, batch(0, key=b"q", value=b"v"))
    assert segment.size_bytes == 70
    assert segment.roll_reason(*arguments) is reason


def test_truncation_leaves_the_rest_as_it_was(world):
    """Every offset of a segment with holes, compared with a segment that was never longer."""
    spans = [(0, 2), (3, 3), (10, 14), (15, 15), (30, 31)]
    for target in range(34):
        segment = world.segment(0, index_interval_bytes=0)
        for first, last in spans:
            append(segment, batch(first, last, timestamp=100 * first))
        kept = [span for span in spans if span[1] < target]
        size = sum(len(batch(*span, timestamp=100 * span[0])) for span in kept)
        total = segment.size_bytes
        assert segment.truncate_to(target) == total - size
        assert segment.size_bytes == segment.file.size() == size
        assert segment.read_next_offset() == (kept[-1][1] + 1 if kept else 0)
        assert segment.max_timestamp_so_far.timestamp == (100 * kept[-1][0] if kept else -1)
        segment._check()
        append(segment, batch(40))
        segment._check()
        segment.delete_if_exists()


def test_extents_are_read_from_headers():
    header = RecordBatch(batch(5, 9, timestamp=77)).header
    assert BatchExtent.of(header) == (9, 77, header.size_bytes)


def test_a_truncation_restarts_the_count_of_bytes_up_to_the_next_entry(world):
    """As in Kafka; bytes before the cut do not count towards the next entry."""
    segment = world.segment(0, index_interval_bytes=100)
    for offset in range(2):
        append(segment, batch(offset))
    segment.truncate_to(1)
    append(segment, batch(1))
    append(segment, batch(2))
    assert segment.offset_index.entries == 0
    append(segment, batch(3))
    assert [entry.offset for entry in segment.offset_index] == [3]


# -- the next append -------------------------------------------------------------------------


def begun(world, *timestamps, **config):
    """Return a segment of one-record batches, and a function that tries to append another one."""
    segment = world.segment(BASE, **config)
    for offset, timestamp in enumerate(timestamps, BASE):
        append(segment, batch(offset, timestamp=timestamp))

    def goes_on(timestamp=1000):
        offset = segment.read_next_offset()
        return segment.append_next(batch(offset, timestamp=timestamp), offset, timestamp)

    return segment, goes_on


def test_the_first_batch_of_a_segment_is_more_than_its_bytes(world):
    segment, goes_on = begun(world)
    assert not goes_on()
    append(segment, batch(BASE))
    assert goes_on()
    segment.truncate_to(BASE)
    assert not goes_on()


def test_no_runway_when_a_batch_may_be_too_late(world):
    segment, goes_on = begun(world, 1000, segment_ms=10)
    assert goes_on(1010)
    assert not goes_on(1011)
    assert segment.roll_reason(1, 1011, BASE + 2, 0) is RollReason.TIME


def test_nothing_comes_next_as_long_as_the_first_batch_has_no_time(world):
    _, goes_on = begun(world, -1)
    assert not goes_on(-1), "its age by the clock counts"


def test_nothing_comes_next_in_a_segment_that_was_opened_until_something_was_appended(world):
    begun(world, 1000)[0].close()
    segment = world.segment(BASE, create=False)
    segment.resize_indexes()
    segment.rolls_from_ms(10)  # reads the time of its first batch
    assert not segment.append_next(batch(BASE + 1), BASE + 1, 1000)
    append(segment, batch(BASE + 1))
    assert segment.append_next(batch(BASE + 2), BASE + 2, 1000)


@pytest.mark.parametrize(
    ("timestamps", "index_bytes"), (((1, 2), 24), ((1000,) * 4, 36)), ids=("times", "offsets")
)
def test_nothing_comes_next_once_an_index_is_full(world, timestamps, index_bytes):
    segment, goes_on = begun(world, index_interval_bytes=100, segment_index_bytes=index_bytes)
    for offset, timestamp in enumerate(timestamps, BASE):
        append(segment, batch(2 * offset, timestamp=timestamp, value=bytes(200)))
        append(segment, batch(2 * offset + 1, timestamp=timestamp, value=b""))
    assert (segment.time_index.is_full, segment.offset_index.is_full) == (
        index_bytes == 24,
        index_bytes == 36,
    )
    assert not goes_on()


def test_nothing_comes_next_where_indexes_are_trimmed_or_settings_are_others(world):
    segment, goes_on = begun(world, 1000)
    assert goes_on()
    segment.on_become_inactive()
    assert not goes_on()
    segment.resize_indexes()
    assert not goes_on(), "until something is appended"
    append(segment, batch(BASE + 2))
    assert goes_on()
    segment.set_config(LogConfig(segment_bytes=segment.size_bytes))
    assert not goes_on()
