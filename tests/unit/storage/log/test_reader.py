"""Reading: the behaviour scenarios of group H, isolation, holes and damage."""

import pytest

from logstore.errors import (
    CorruptRecordError,
    IllegalStateError,
    InvalidRecordError,
    OffsetOutOfRangeError,
)
from logstore.record.batch import RecordBatch
from logstore.storage.log import NewRecord
from logstore.storage.log.reader import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    AbortedRange,
    Isolation,
    ListedOffset,
)
from logstore.types import AppendOrigin
from tests.support.oracles.cleaner_oracle import empty_batch
from tests.support.world.builders import (
    abort,
    batch,
    batches_of,
    commit,
    data_batch,
    log_name,
    offsets_of,
    records_of,
)
from tests.support.world.messages import exactly

REPLICA = AppendOrigin.REPLICATION
T = 1_700_000_000_000


def send(log, *timestamps):
    return log.writer.append_records([NewRecord(b"k", b"v", timestamp) for timestamp in timestamps])


def follow(log, *batches):
    for data in batches:
        log.writer.append_batches(data, REPLICA)


# -- the scenarios ---------------------------------------------------------------------------


def test_s076_sizes_below_one_batch(world):
    """S-076: one complete batch if requested, otherwise a flagged piece, otherwise nothing."""
    log = world.log()
    first, second = batch(0, 4), batch(5, 9)
    follow(log, first, second)
    result = log.reader.read(0, 1, min_one_message=True)
    assert (result.data, result.first_entry_incomplete) == (first, False)
    result = log.reader.read(0, 1)
    assert (result.data, result.first_entry_incomplete) == (first[:1], True)
    result = log.reader.read(0, 0)
    assert (result.data, result.first_entry_incomplete) == (b"", False)


def test_s077_a_segment_without_its_tail_is_skipped(world):
    """S-077: the first segment lost everything from offset 1 on; read(1) continues in the next."""
    log = world.log(segment_bytes=400)
    for _ in range(15):
        send(log, 1000)
    assert len(log.segments) > 2
    first, second = log.segments.view[:2]
    first.truncate_to(1)
    assert second.base_offset > 1
    assert offsets_of(log.reader.read(1, 400).data)[0] == second.base_offset
    assert records_of(log, 1)[0].offset == second.base_offset


def test_s078_a_read_begins_with_the_batch_that_holds_the_offset(world):
    """S-078: the bytes start at the batch; the decoder skips earlier records."""
    log = world.log()
    follow(log, batch(0, 2), batch(3, 5))
    for offset in (0, 1, 2):
        assert log.reader.read(offset, 1 << 20).data == batch(0, 2) + batch(3, 5)
        assert [record.offset for record in records_of(log, offset)] == list(range(offset, 6))


def test_s079_a_transaction_over_three_segments_is_listed_once(world):
    """S-079: committed reads name the aborted transaction and its first offset exactly once."""
    log = world.log()
    follow(log, data_batch(0, 4, 137))
    log.writer.roll()
    follow(log, data_batch(5, 9, 137, sequence=5))
    log.writer.roll()
    follow(log, data_batch(10, 14, 137, sequence=10), abort(15, 137))
    log.writer.roll()
    assert len(log.segments) == 4
    for start in (0, 5, 10, 15):
        result = log.reader.read(start, 1 << 20, isolation=Isolation.READ_COMMITTED)
        assert result.aborted == (AbortedRange(137, 0),)
    assert log.reader.read(0, 1 << 20).aborted == ()
    assert list(log.reader.records(0, isolation=Isolation.READ_COMMITTED)) == []
    assert len(list(log.reader.records(0))) == 15


def test_s080_offsets_by_time(world):
    """S-080: the first record at or after a time, across two segments, from the log start on."""
    log = world.log(index_interval_bytes=0)
    for timestamp in (0, 50, 20, 60):
        send(log, T + timestamp)
    log.writer.roll()
    for timestamp in (10, 70):
        send(log, T + timestamp)

    def lookup(target):
        found = log.reader.offset_for_timestamp(target)
        return None if found is None else (found.timestamp - T, found.offset)

    assert lookup(T + 1) == (50, 1)
    assert lookup(T + 51) == (60, 3)
    assert lookup(T + 61) == (70, 5)
    assert lookup(T + 71) is None
    assert lookup(MAX_TIMESTAMP) == (70, 5)
    assert lookup(T) == (0, 0)
    log.offsets.log_start_offset = 2
    assert lookup(T) == (20, 2)


def test_s081_special_times_on_an_empty_log(world):
    """S-081: earliest and latest are the bounds, the largest timestamp does not exist."""
    log = world.log()
    assert log.reader.offset_for_timestamp(EARLIEST_TIMESTAMP) == ListedOffset(-1, 0, -1)
    assert log.reader.offset_for_timestamp(EARLIEST_LOCAL_TIMESTAMP) == ListedOffset(-1, 0, -1)
    assert log.reader.offset_for_timestamp(LATEST_TIMESTAMP) == ListedOffset(
        -1, log.log_end_offset, -1
    )
    assert log.reader.offset_for_timestamp(MAX_TIMESTAMP) is None
    assert log.reader.offset_for_timestamp(LATEST_TIERED_TIMESTAMP).offset == -1
    assert log.reader.offset_for_timestamp(0) is None


def test_special_times_on_an_empty_log_that_starts_later(world):
    log = world.log(log_start_offset=7)
    assert log.reader.offset_for_timestamp(EARLIEST_TIMESTAMP) == ListedOffset(-1, 7, -1)
    assert log.reader.offset_for_timestamp(LATEST_TIMESTAMP) == ListedOffset(-1, 7, -1)


def test_s082_a_segment_that_matches_only_below_the_log_start_ends_the_search(world):
    """S-082: no answer, although a later segment would have one."""
    log = world.log()
    send(log, 500)
    send(log, 100)
    log.writer.roll()
    send(log, 600)
    log.offsets.log_start_offset = 1
    assert log.reader.offset_for_timestamp(400) is None
    assert log.reader.offset_for_timestamp(501).offset == 2
    log.offsets.log_start_offset = 0
    assert log.reader.offset_for_timestamp(400)[:2] == (500, 0)


def test_s083_the_record_within_a_batch(world):
    """S-083: both lookups return the record itself, not the batch."""
    log = world.log()
    send(log, 5, 9, 7)
    assert log.reader.offset_for_timestamp(8) == ListedOffset(9, 1, 0)
    assert log.reader.offset_for_timestamp(MAX_TIMESTAMP) == ListedOffset(9, 1, 0)


# -- bounds ----------------------------------------------------------------------------------


def test_offsets_outside_the_log_are_refused_with_both_bounds(world):
    log = world.log(log_start_offset=5)
    send(log, 1, 2, 3)
    for offset in (-1, 4, 9):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.reader.read(offset, 100)
        error = caught.value
        assert (error.offset, error.log_start_offset, error.log_end_offset) == (offset, 5, 8)
        with pytest.raises(OffsetOutOfRangeError):
            next(log.reader.records(offset))
    assert log.reader.read(8, 100).data == b""
    assert list(log.reader.records(8)) == []


def test_the_high_watermark_bounds_a_read(world):
    """At any high watermark a read returns exactly the complete batches below it."""
    log = world.log(segment_bytes=250)
    for _ in range(8):
        send(log, 1000)
    for watermark in range(9):
        log.offsets.high_watermark = watermark
        assert offsets_of(log.reader.read(0, 1 << 20, isolation=Isolation.LOG_END).data) != []
        seen = [record.offset for record in records_of(log)]
        assert seen == list(range(watermark))
        for start in range(9):
            if start >= watermark:
                assert log.reader.read(start, 1 << 20).data == b""
    log.offsets.high_watermark = 8


def test_an_append_moves_the_high_watermark_as_far_as_the_strategy_lets_it(world):
    """As a leader that waits for its replicas: they lag, catch up, and lag again."""
    log = world.log()
    send(log, 1000)
    assert log.high_watermark == log.log_end_offset == 1
    followed = 1
    log.offsets.high_watermark_for = lambda log_end: min(followed, log_end)
    send(log, 1000)
    send(log, 1000)
    assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (1, 1, 3)
    assert [record.offset for record in records_of(log)] == [0]
    followed = 2
    log.offsets.set_high_watermark(followed)
    assert [record.offset for record in records_of(log)] == [0, 1]
    followed = 4
    send(log, 1000)
    assert log.high_watermark == 4


def test_an_upper_bound_in_a_hole_does_not_let_a_later_segment_through(world):
    log = world.log()
    follow(log, batch(0), batch(1))
    log.writer.roll(10)
    follow(log, batch(10))
    log.offsets.high_watermark = 5
    assert [record.offset for record in records_of(log)] == [0, 1]
    assert log.reader.read(2, 1 << 20).data == b""
    log.offsets.high_watermark = 11


def test_ends_of_record_and_batch_reads_are_exclusive(world):
    log = world.log()
    follow(log, batch(0, 2), batch(3, 5), batch(6, 8))
    assert [r.offset for _, r in log.reader.records(1, 5)] == [1, 2, 3, 4]
    assert [b.header.base_offset for b in log.reader.batches(1, 6)] == [0, 3]
    assert [b.header.base_offset for b in log.reader.batches(3)] == [3, 6]
    assert list(log.reader.records(4, 4)) == []


def test_reads_cross_batches_larger_than_one_read(world):
    log = world.log(max_message_bytes=8 << 20)
    sizes = [10, 3 << 20, 10, (1 << 20) - 30, 5]
    follow(log, *[batch(offset, value=bytes(size)) for offset, size in enumerate(sizes)])
    assert [len(record.value) for record in records_of(log)] == sizes


# -- holes -----------------------------------------------------------------------------------


def test_holes_are_skipped(world):
    """Gaps in and between batches and at segment ends, an emptied batch, an empty segment."""
    log = world.log()
    follow(log, batch(2, 3), batch(7))
    log.writer.roll(20)
    log.writer.roll(20)
    follow(log, empty_batch(RecordBatch(batch(20, 24)).header), batch(30))
    stored = [2, 3, 7, 30]
    for start in range(32):
        expected = [offset for offset in stored if offset >= start]
        assert [record.offset for record in records_of(log, start)] == expected


def test_a_read_ends_in_a_hole_at_the_end_of_the_log(world):
    log = world.log()
    follow(log, batch(0, 4))
    log.writer.roll(20)
    assert (log.log_end_offset, log.high_watermark) == (20, 5)
    assert records_of(log, 5) == []
    log.offsets.set_high_watermark(20)
    assert records_of(log, 5) == []
    assert records_of(log, 20) == []


# -- isolation -------------------------------------------------------------------------------


def lts(log):
    """Append the log LTS of the scenarios' conventions."""
    sequences = {}

    def data(pid, first, last):
        sequence = sequences.get(pid, 0)
        sequences[pid] = sequence + last - first + 1
        return data_batch(first, last, pid, sequence=sequence)

    follow(
        log,
        *(data(1, 0, 4), batch(5, 7), data(2, 8, 9), data(1, 10, 13), data(3, 14, 16)),
        *(batch(17, 18), data(1, 19, 28), abort(29, 1), data(2, 30, 35), data(4, 36, 38)),
        *(batch(39, 48), data(3, 49, 57), commit(58, 3), data(4, 59, 66), data(2, 67, 73)),
        *(abort(74, 2), batch(75, 84), data(4, 85, 88), commit(89, 4)),
    )


COMMITTED = [
    *range(5, 8),
    *range(14, 19),
    *range(36, 58),
    *range(59, 67),
    *range(75, 89),
]


@pytest.mark.parametrize("segment_bytes", (400, 1000, 100_000))
def test_committed_reads_drop_aborted_data(world, segment_bytes):
    """From every offset on, for any segments; markers are never returned."""
    log = world.log(segment_bytes=segment_bytes, index_interval_bytes=100)
    lts(log)
    assert log.last_stable_offset == 90
    for start in range(91):
        seen = [r.offset for _, r in log.reader.records(start, isolation=Isolation.READ_COMMITTED)]
        assert seen == [offset for offset in COMMITTED if offset >= start]
    everything = [r.offset for _, r in log.reader.records(0)]
    assert everything == [offset for offset in range(90) if offset not in (29, 58, 74, 89)]


def test_committed_reads_stop_at_the_last_stable_offset(world):
    log = world.log()
    follow(log, batch(0, 1), data_batch(2, 3, 1), batch(4, 5))
    assert log.last_stable_offset == 2
    assert [r.offset for _, r in log.reader.records(0, isolation=Isolation.READ_COMMITTED)] == [
        0,
        1,
    ]
    assert len(records_of(log)) == 6
    follow(log, commit(6, 1))
    assert log.last_stable_offset == 7
    assert len(list(log.reader.records(0, isolation=Isolation.READ_COMMITTED))) == 6


def test_a_producer_that_aborts_twice_and_then_commits(world):
    log = world.log()
    follow(
        log,
        *(data_batch(0, 1, 1), abort(2, 1), data_batch(3, 4, 1, sequence=2), abort(5, 1)),
        *(data_batch(6, 7, 1, sequence=4), commit(8, 1), batch(9)),
    )
    for start in range(10):
        seen = [r.offset for _, r in log.reader.records(start, isolation=Isolation.READ_COMMITTED)]
        assert seen == [offset for offset in (6, 7, 9) if offset >= start]


def test_a_marker_without_its_record_is_not_a_marker(world):
    log = world.log()
    follow(log, batch(0), empty_batch(RecordBatch(commit(1, 5)).header), batch(2))
    assert [record.offset for record in records_of(log)] == [0, 2]


# -- times -----------------------------------------------------------------------------------


def test_leader_epochs_are_listed(world):
    log = world.log()
    follow(log, batch(0, timestamp=10, leader_epoch=3), batch(1, timestamp=20, leader_epoch=5))
    assert log.reader.offset_for_timestamp(EARLIEST_TIMESTAMP) == ListedOffset(-1, 0, 3)
    assert log.reader.offset_for_timestamp(LATEST_TIMESTAMP) == ListedOffset(-1, 2, 5)
    assert log.reader.offset_for_timestamp(10) == ListedOffset(10, 0, 3)
    assert log.reader.offset_for_timestamp(MAX_TIMESTAMP) == ListedOffset(20, 1, 5)


def test_a_time_without_meaning_is_refused(world):
    with pytest.raises(InvalidRecordError, match=exactly("unknown ListOffsets timestamp -6")):
        world.log().reader.offset_for_timestamp(-6)


def test_lookups_by_time_equal_a_scan(world):
    """Times that go up and down over several segments, every query against a plain search."""
    log = world.log(segment_bytes=600, index_interval_bytes=0)
    times = [(37 * step) % 101 for step in range(60)]
    for first in range(0, 60, 3):
        send(log, *times[first : first + 3])
    assert len(log.segments) > 3
    for target in range(102):
        expected = next((row for row, time in enumerate(times) if time >= target), None)
        found = log.reader.offset_for_timestamp(target)
        assert (None if found is None else found.offset) == expected
    assert log.reader.offset_for_timestamp(MAX_TIMESTAMP).offset == times.index(max(times))


# -- damage ----------------------------------------------------------------------------------


def damaged_log(world, position, data=b"\xff"):
    log = world.log()
    follow(log, batch(0), batch(1), batch(2))
    log.close()
    stored = bytearray(world.files()[log_name(0)])
    stored[position : position + len(data)] = data
    world.write(log_name(0), bytes(stored))
    return world.log()


def test_a_damaged_batch_is_named_when_it_is_read(world):
    """A clean load does not check; reading does, and returns the records before the damage."""
    size = len(batch(0))
    log = damaged_log(world, size + 65)
    records = log.reader.records(0)
    assert next(records)[1].offset == 0
    with pytest.raises(CorruptRecordError, match="bad CRC") as caught:
        next(records)
    assert (caught.value.path, caught.value.position) == (world.path(log_name(0)), size)
    assert [b.header.base_offset for b in log.reader.batches(0)] == [0, 1, 2], (
        "raw reads do not check"
    )


def test_records_before_the_damage_are_read_up_to_a_bound_after_it(world):
    """The last stable offset is inside the segment, after the damage."""
    log = world.log()
    follow(log, batch(0), batch(1), batch(2), data_batch(3, 3, 7), batch(4))
    segment = log.segments.first
    start = len(batch(0)) + len(batch(1))
    segment.file.write_at([b"\x09"], start + 16)
    assert log.last_stable_offset == 3
    found = log.reader.records(0, isolation=Isolation.READ_COMMITTED)
    assert [next(found)[1].offset for _ in range(2)] == [0, 1]
    with pytest.raises(CorruptRecordError, match="magic 9") as caught:
        next(found)
    assert (caught.value.path, caught.value.position) == (segment.log_path, start)


def test_records_that_cannot_be_decoded_are_damage_at_rest(world):
    log = world.log()
    header = RecordBatch(batch(0, 1)).header
    broken = batches_of(batch(0))[0].data[61:]
    from logstore.record.batch import seal_batch

    data = seal_batch(
        broken,
        last_offset_delta=1,
        record_count=2,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        partition_leader_epoch=0,
    )
    follow(log, data)
    with pytest.raises(CorruptRecordError, match="premature end") as caught:
        records_of(log)
    assert caught.value.check == "record_structure"
    with pytest.raises(CorruptRecordError, match="premature end"):
        log.reader.offset_for_timestamp(5)


def test_a_closed_log_is_not_read(world):
    log = world.log()
    send(log, 5)
    log.close()
    with pytest.raises(IllegalStateError, match="closed"):
        log.reader.read(0, 100)
    with pytest.raises(IllegalStateError, match="closed"):
        log.reader.offset_for_timestamp(5)


def test_the_first_offset_at_a_time_is_found_where_a_time_index_is_lost(world):
    """A lost index starts empty: the records of such a segment must be read."""
    log = world.log(segment_bytes=300)
    for number in range(12):
        log.writer.append_records([NewRecord(b"k", b"v", 1000 + number)])
    log.close()
    assert len([name for name in world.files() if name.endswith(".log")]) > 2
    for name in [name for name in world.files() if name.endswith(".timeindex")]:
        world.fs.remove(world.path(name))
    log = world.log(segment_bytes=300)
    assert [log.reader.first_offset_at(1000 + n) for n in range(13)] == [*range(12), 12]
