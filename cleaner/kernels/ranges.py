"""The parts of a mapped segment that its rewrite has to read.

What becomes of a batch can be known from the winners alone: if none of its records is one, all of
them are superseded, and its bytes are of no use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from logstore.cleaner.kernels.classify import PassRules, is_told_by_winners
from logstore.cleaner.kernels.slots import STATE_WINNERS_BASE, MapArrays, borrowed_map
from logstore.cleaner.kernels.table import (
    COL_BASE_OFFSET,
    COL_LAST_OFFSET,
    COL_POSITION,
    COL_RECORD_COUNT,
    COL_SIZE,
)
from logstore.cleaner.kernels.versions import borrowed_strategy
from logstore.cleaner.kernels.winners import count_winners
from logstore.jit import Int64s, borrowed, kernel


@kernel
def choose_ranges(
    places: Int64s,
    first_row: int,
    key_map: MapArrays,
    rules: PassRules,
    kept_last_offset: int,
    room: int,
    span: int,
    least_gap: int,
    ranges: Int64s,
) -> Any:
    """Choose the bytes to read for the next chunk of a segment.

    Parameters
    ----------
    places : (n, PLACE_COLUMNS) int64
        The segment's batches, one behind the other, as they were mapped: the first columns of a
        table, their positions those in the file. None is of a producer.
    first_row : int
        The first batch of the chunk, which is always read.
    kept_last_offset : int
        A batch that ends there is read: its header stays.
    room, span : int
        Most bytes to read, and to read or pass over, the first batch apart.
    least_gap : int
        Bytes that are passed over; fewer are read with those around them.
    ranges : (n, 2) int64, out
        Positions where a range begins and ends, exclusive.

    Returns
    -------
    (count, row, records)
        Ranges, at least one; the row that the next chunk begins with; records of the batches that
        were passed over, all of them superseded.
    """
    places = borrowed(places)
    ranges = borrowed(ranges)
    key_map = borrowed_map(key_map)
    rules = PassRules(
        borrowed_strategy(rules.strategy),
        rules.keep_offset,
        rules.safe_ms,
        rules.now_ms,
        rules.new_horizon_ms,
        rules.by_winners,
    )
    winners_base = key_map.state[STATE_WINNERS_BASE]
    start = places[first_row, COL_POSITION]
    filled = places[first_row, COL_SIZE]
    ranges[0, 0] = start
    ranges[0, 1] = start + filled
    count = 1
    records = np.int64(0)
    waiting = np.int64(0)  # of the batches behind the last range
    row = first_row + 1
    while row < len(places):
        place = places[row]
        position, end = place[COL_POSITION], place[COL_POSITION] + place[COL_SIZE]
        first, last = place[COL_BASE_OFFSET], place[COL_LAST_OFFSET]
        if end - start > span:
            break
        if (
            last != kept_last_offset
            and is_told_by_winners(place, key_map, rules)
            and count_winners(key_map.winners, first - winners_base, last - winners_base + 1) == 0
        ):
            waiting += place[COL_RECORD_COUNT]
            row += 1
            continue
        is_near = position - ranges[count - 1, 1] < least_gap
        begin = ranges[count - 1, 1] if is_near else position
        if filled + end - begin > room:
            break
        if not is_near:
            ranges[count, 0] = position
            count += 1
            records += waiting
        ranges[count - 1, 1] = end
        filled += end - begin
        waiting = np.int64(0)
        row += 1
    return count, row, records + waiting
