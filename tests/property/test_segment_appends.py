"""Appending by columns, or what comes next, writes the files that appending batches writes.

Kernels: `find_index_entries`.
"""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from logstore.errors import InvalidOffsetError, SegmentOverflowError
from logstore.record.batch import RecordBatch
from logstore.runtime import MemoryFileSystem
from logstore.storage.index import OffsetIndex, TimeIndex
from logstore.storage.segment import BatchExtent
from logstore.types import INT32_MAX
from tests.support.world.builders import append, append_columns, batch, memory_world

drawn_batches = st.tuples(
    st.integers(1, 3),  # records
    st.sampled_from([0, 0, 1, 100]),  # gap before
    st.integers(-1, 6),  # timestamp
    st.sampled_from([0, 0, 50, 300]),  # bytes of the value
)
actions = st.lists(
    st.one_of(
        st.lists(drawn_batches, min_size=1, max_size=12),
        st.sampled_from(["truncate", "reopen", "inactive", "config"]),
    ),
    min_size=1,
    max_size=6,
)


@given(
    actions=actions,
    interval=st.sampled_from([0, 1, 69, 70, 200, 4096]),
    index_bytes=st.sampled_from([48, 60, 1000]),
    base=st.sampled_from([0, 40, 2**40]),
    segment_bytes=st.sampled_from([300, 1 << 20]),
    segment_ms=st.sampled_from([2, 1 << 40]),
)
def test_every_way_to_append_leaves_the_same_files(
    actions, interval, index_bytes, base, segment_bytes, segment_ms
):
    """Indexes that fill up, an interval of any size, appends after truncation and reopening.

    Whoever appends batch by batch and asks for the next one first gets it only where no roll is
    due.
    """
    config = {"index_interval_bytes": interval, "segment_index_bytes": index_bytes}
    config |= {"segment_bytes": segment_bytes, "segment_ms": segment_ms}
    worlds = [memory_world(), memory_world(), memory_world()]
    segments = [world.segment(base, **config) for world in worlds]
    offset = base
    for action in actions:
        if action == "truncate":
            for segment in segments:
                segment.truncate_to(base + (offset - base) // 2)
            offset = segments[0].read_next_offset()
        elif action == "inactive":
            for segment in segments:
                segment.on_become_inactive()
                assert not segment.append_next(batch(offset), offset, 0), "its indexes are full"
                segment.resize_indexes()
        elif action == "reopen":
            for segment in segments:
                segment.close()
            segments = [world.segment(base, create=False, **config) for world in worlds]
        elif action == "config":
            segment_bytes = 600 - segment_bytes % 600
            for segment in segments:
                segment.set_config(replace(segment.config, segment_bytes=segment_bytes))
        else:
            data = []
            for count, gap, timestamp, size in action:
                offset += gap
                data.append(
                    batch(offset, offset + count - 1, timestamp=timestamp, value=bytes(size))
                )
                offset += count
            append(segments[0], *data)
            append_columns(segments[1], *data)
            for each in data:
                append_next(segments[2], each)
        one, *others = segments
        for other in others:
            assert one.size_bytes == other.size_bytes
            assert one.max_timestamp_so_far == other.max_timestamp_so_far
            assert one.roll_reason(0, 0, offset, 0) == other.roll_reason(0, 0, offset, 0)
            assert one.time_waited_for_roll(0, 7) == other.time_waited_for_roll(0, 7)
            other._check()
    for segment in segments:
        segment.close()
    assert worlds[0].files() == worlds[1].files() == worlds[2].files()


def append_next(segment, data):
    extent = BatchExtent.of(RecordBatch(data).header)
    reason = segment.roll_reason(
        extent.size_bytes, extent.max_timestamp, extent.last_offset, segment.created_ms
    )
    if segment.append_next(data, extent.last_offset, extent.max_timestamp):
        assert reason is None
    else:
        append(segment, data)


def test_most_batches_need_nothing_but_their_bytes():
    segment = memory_world().segment(0, index_interval_bytes=4096)
    taken = []
    for offset in range(100):
        data = batch(offset, value=bytes(400))
        taken.append(segment.append_next(data, offset, 1000))
        if not taken[-1]:
            append(segment, data)
    # The first one, and each that gets an entry: the tenth after it.
    assert [offset for offset in range(100) if not taken[offset]] == [0, *range(9, 100, 9)]


@pytest.mark.parametrize(("offset", "fits"), ((INT32_MAX, True), (INT32_MAX + 1, False)))
def test_the_next_batch_stays_within_31_bits_of_the_base(offset, fits):
    segment = memory_world().segment(40)
    append(segment, batch(40))
    assert segment.append_next(batch(40 + offset), 40 + offset, 1000) is fits


@pytest.mark.parametrize("append", (append, append_columns))
@pytest.mark.parametrize(("rise", "places", "times"), ((1, 3, 3), (0, 6, 1)))
def test_neither_index_gets_entries_once_one_is_full(append, rise, places, times):
    """Of 48 bytes: six entries, and three with the slot for the last one left."""
    segment = memory_world().segment(0, index_interval_bytes=0, segment_index_bytes=48)
    for first in (0, 5):
        append(segment, *[batch(first + at, timestamp=9 + rise * (first + at)) for at in range(5)])
    assert len(list(segment.offset_index)) == places
    assert len(list(segment.time_index)) == times


def test_no_columns_append_nothing():
    segment = memory_world().segment(0)
    assert segment.append(np.empty((0, 3), np.int64), []) == 0
    assert segment.size_bytes == 0


def test_columns_that_do_not_fit_31_bits_are_refused_before_the_write():
    segment = memory_world().segment(40)
    with pytest.raises(SegmentOverflowError):
        append_columns(segment, batch(40), batch(40 + INT32_MAX + 1))
    assert segment.file.size() == segment.size_bytes == 0
    assert BatchExtent.of(RecordBatch(batch(40)).header).last_offset == 40


# --- rows of an index -------------------------------------------------------------------------


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def offset_index() -> OffsetIndex:
    index = OffsetIndex(MemoryFileSystem(), "index", 10, max_index_bytes=40, writable=True)
    index.append(12, 100)
    return index


@pytest.mark.parametrize(
    ("offsets", "positions", "error"),
    (
        (rows(12, 13), rows(200, 300), InvalidOffsetError),
        (rows(13, 13), rows(200, 300), InvalidOffsetError),
        (rows(14, 13), rows(200, 300), InvalidOffsetError),
        (rows(13, 11 + INT32_MAX), rows(200, 300), SegmentOverflowError),
        (rows(9, 13), rows(200, 300), SegmentOverflowError),
        (rows(13, 14), rows(200, INT32_MAX + 1), SegmentOverflowError),
        (rows(13, 14), rows(-1, 300), SegmentOverflowError),
        (rows(13, 14, 15, 16, 17), rows(1, 2, 3, 4, 5), SegmentOverflowError),
    ),
)
def test_rows_that_an_offset_index_refuses_leave_it_as_it_was(offsets, positions, error):
    index = offset_index()
    with pytest.raises(error):
        index.append_rows(np.column_stack([offsets, positions]))
    assert list(index) == [(12, 100)]
    index.append_rows(np.array([(13, 200), (10 + INT32_MAX, INT32_MAX)], np.int64))
    index.append_rows(np.empty((0, 2), np.int64))
    assert list(index)[1:] == [(13, 200), (10 + INT32_MAX, INT32_MAX)]
    index._check()


@pytest.mark.parametrize(
    ("entries", "error"),
    (
        ([(5, 13), (6, 14)], InvalidOffsetError),  # not above the last timestamp
        ([(6, 11), (7, 14)], InvalidOffsetError),  # an offset below the last one
        ([(6, 13), (6, 14)], InvalidOffsetError),
        ([(6, 14), (7, 13)], InvalidOffsetError),
        ([(6, 13), (7, 11 + INT32_MAX)], SegmentOverflowError),
        ([(6, 9), (7, 13)], SegmentOverflowError),
        ([(6, 13), (7, 14), (8, 15)], SegmentOverflowError),  # the last slot is reserved
    ),
)
def test_rows_that_a_time_index_refuses_leave_it_as_it_was(entries, error):
    index = TimeIndex(MemoryFileSystem(), "index", 10, max_index_bytes=48, writable=True)
    index.maybe_append(5, 12)
    with pytest.raises(error):
        index.append_rows(np.array(entries, np.int64))
    assert list(index) == [(5, 12)]
    index.append_rows(np.array([(6, 12), (7, 13)], np.int64))
    index.append_rows(np.empty((0, 2), np.int64))
    assert list(index)[1:] == [(6, 12), (7, 13)]
    index._check()
