"""Records that a rewrite does not read have no effect on its output or its numbers."""

from dataclasses import replace
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from logstore.cleaner.kernels.ranges import choose_ranges, copy_locations
from logstore.cleaner.kernels.table import (
    COL_BASE_OFFSET,
    COL_LAST_OFFSET,
    COL_POSITION,
    COL_RECORD_COUNT,
    COL_SIZE,
    LOCATION_COLUMNS,
    TABLE_COLUMNS,
)
from logstore.cleaner.passes import chunks, locations, rewrite, skipping
from logstore.cleaner.passes.offset_map import OffsetMap
from logstore.cleaner.passes.rewrite import Rules
from logstore.record.codecs import Codec
from tests.support.world.builders import memory_world
from tests.support.world.cleaning import Producer, compacted, map_of, put, run_pass, snapshot

# --- the choice -------------------------------------------------------------------------------


def chosen(batches, row, kept_row, room, span, least_gap):
    """The oracle of `choose_ranges`: ranges to read, the next row, records that are skipped.

    `batches` has (size, records, is dead) of each.
    """
    starts = [sum(size for size, _, _ in batches[:at]) for at in range(len(batches) + 1)]
    ends = starts[1:]
    ranges = [[starts[row], ends[row]]]
    read = {row}
    behind = row + 1
    while behind < len(batches) and ends[behind] - starts[row] <= span:
        if not batches[behind][2] or behind == kept_row:
            grown = [list(each) for each in ranges]
            if starts[behind] - grown[-1][1] < least_gap:
                grown[-1][1] = ends[behind]
            else:
                grown.append([starts[behind], ends[behind]])
            if sum(end - start for start, end in grown) > room:
                break
            ranges = grown
        behind += 1
    for start, end in ranges:
        read |= {at for at in range(len(batches)) if start <= starts[at] < end}
    passed = [at for at in range(row, behind) if at not in read]
    return ranges, behind, sum(batches[at][1] for at in passed)


@given(
    batches=st.lists(
        st.tuples(st.integers(61, 300), st.integers(1, 9), st.booleans()), min_size=1, max_size=12
    ),
    row=st.integers(0, 11),
    kept=st.sampled_from([-1, -1, 0, 2, 7]),
    room=st.sampled_from([300, 700, 100_000]),
    span=st.sampled_from([400, 1500, 100_000]),
    least_gap=st.sampled_from([0, 1, 150, 500]),
    step=st.sampled_from([1, 1, 13]),
    latest=st.sampled_from([500, 500, 5]),
    keep_offset=st.sampled_from([-1, -1, 3]),
)
def test_choose_ranges_equals_the_oracle(
    batches, row, kept, room, span, least_gap, step, latest, keep_offset
):
    """Each batch has one offset here, and wins unless it is dead.

    Offsets from 64 on have no bit, offsets above the latest were not mapped, and one is kept.
    """
    row %= len(batches)
    rows = np.zeros((len(batches), LOCATION_COLUMNS), np.int64)
    position = 0
    a_map = OffsetMap(24 * 100, winners_end=64)
    a_map.latest_offset = latest
    for number, (size, records, is_dead) in enumerate(batches):
        rows[number, COL_POSITION] = position
        rows[number, COL_SIZE] = size
        offset = number * step
        rows[number, COL_BASE_OFFSET] = rows[number, COL_LAST_OFFSET] = offset
        rows[number, COL_RECORD_COUNT] = records
        position += size
        if not is_dead and offset < 64:
            a_map.arrays.winners[0] |= np.uint64(1 << offset)
        is_told = offset < 64 and offset <= latest and offset != keep_offset
        batches[number] = (size, records, is_dead and is_told)
    ranges = np.full((len(batches), 2), -1, np.int64)
    rules = Rules().for_kernels(0, 0, by_winners=True)._replace(keep_offset=keep_offset)
    count, behind, end, passed_over = choose_ranges(
        row, room, rows, ranges, a_map.arrays, rules, kept * step, span, least_gap
    )
    assert end == sum(size for size, *_ in batches[:behind])
    expected = chosen(batches, row, kept, room, span, least_gap)
    assert (ranges[:count].tolist(), behind, passed_over) == expected
    assert (ranges[count:] == -1).all()


@given(counts=st.lists(st.integers(0, 5), max_size=4), filled=st.integers(0, 3), seed=st.integers())
@settings(max_examples=30)
def test_copy_locations_copies_the_rows_of_chunks_in_file_order(counts, filled, seed):
    rng = np.random.default_rng(abs(seed))
    noted = np.full((filled + sum(counts) + 2, LOCATION_COLUMNS), -1, np.int64)
    expected = noted.copy()
    for number, count in enumerate(counts):
        table = rng.integers(0, 2**40, (count, TABLE_COLUMNS))
        before, start = filled, number << 20
        filled = copy_locations(table, start, noted, filled)
        expected[before:filled] = table[:, :LOCATION_COLUMNS]
        expected[before:filled, COL_POSITION] += start
    assert noted.tolist() == expected.tolist()


# --- whole passes -----------------------------------------------------------------------------

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
PAIRS = st.lists(st.tuples(KEYS, st.sampled_from([b"v", b"w" * 200, None])), min_size=1, max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("put"), PAIRS),
    st.tuples(st.just("put"), PAIRS),
    st.tuples(st.sampled_from(["compressed", "idempotent", "commit", "abort", "roll"]), PAIRS),
)


def history(steps):
    """A log of such batches, with the last of its segments active."""
    log = compacted(world := memory_world())
    producers = [Producer(log, number) for number in range(2)]
    for kind, pairs in steps:
        if kind == "roll":
            log.writer.roll()
        elif kind in ("put", "compressed"):
            put(log, *pairs, codec=Codec.ZSTD if kind == "compressed" else Codec.NONE)
        else:
            producer = producers[kind != "idempotent"]
            producer.send(*pairs, transactional=kind != "idempotent")
            if kind in ("commit", "abort"):
                getattr(producer, kind)()
    log.writer.roll()
    return world, log


@pytest.mark.slow
@given(
    steps=st.lists(STEPS, min_size=1, max_size=14),
    least_gap=st.sampled_from([1, 100, 400]),
    io_buffer_bytes=st.sampled_from([61, 300, 100_000]),
    slots=st.sampled_from([3, 1000]),
    unfolded_bytes=st.sampled_from([1, 2**24]),
)
@settings(max_examples=150)
def test_a_pass_leaves_the_same_whatever_it_skips(
    steps, least_gap, io_buffer_bytes, slots, unfolded_bytes
):
    """Skip reading, skip the row, or skip both for records that are removed."""
    results = []
    for most, survivors in ((0, None), (1000, None), (1000, skipping.Survivors)):
        with (
            patch.object(rewrite, "Survivors", survivors or (lambda *_: None)),
            patch.object(chunks, "UNFOLDED_BYTES", unfolded_bytes),
            patch.object(locations, "LOCATIONS_MAX", most),
            patch.object(locations, "LEAST_BATCH_BYTES", 1),
            patch.object(skipping, "LEAST_GAP_BYTES", least_gap),
            patch.object(skipping, "SPAN_BYTES", 1000),
        ):
            world, log = history(steps)
            stats = run_pass(log, config=map_of(slots, io_buffer_bytes=io_buffer_bytes))
            results.append((snapshot(world), replace(stats, index_ms=0, clean_ms=0)))
    assert results[0] == results[1] == results[2]
