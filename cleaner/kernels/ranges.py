"""Select the parts of a mapped segment that the rewrite must read or parse.

The selection is based on winner bits. If a batch has no winner, all of its records are superseded,
and its bytes are not needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from logstore.cleaner.kernels.classify import (
    PassRules,
    borrowed_rules,
    is_decided_by_winners,
    winners_decide,
)
from logstore.cleaner.kernels.slots import STATE_WINNERS_BASE, MapArrays, borrowed_map
from logstore.cleaner.kernels.table import (
    COL_BASE_OFFSET,
    COL_LAST_OFFSET,
    COL_POSITION,
    COL_RECORD_COUNT,
    COL_SIZE,
    LOCATION_COLUMNS,
    MISPLACED,
    NO_ROWS,
    fill_row,
    is_unfit,
    read_header,
    scanned,
    with_row,
)
from logstore.cleaner.kernels.winners import count_winners, is_winner
from logstore.jit import Bytes, Int64s, borrowed, inline_kernel, kernel
from logstore.record.kernels import OK, Int
from logstore.record.layout import CODEC_MASK, CONTROL_BIT


@inline_kernel
def has_winner(key_map: MapArrays, first_offset: Int, last_offset: Int) -> bool:
    """Return whether any record in a range of offsets, all of which have a bit, is a winner."""
    first = np.int64(first_offset) - key_map.state[STATE_WINNERS_BASE]
    if first_offset == last_offset:
        return is_winner(key_map.winners, first)
    bits = np.int64(last_offset) - np.int64(first_offset) + 1
    return count_winners(key_map.winners, first, first + bits) > 0  # type: ignore[return-value]


@kernel
def copy_locations(table: Int64s, start: int, locations: Int64s, filled: int) -> int:
    """Copy the locations of a chunk's batches to `locations`, from row `filled` on.

    Parameters
    ----------
    table : (n, TABLE_COLUMNS) int64
        The mapped batches of the chunk.
    start : int
        Position of the chunk in its file.
    locations : (room, LOCATION_COLUMNS) int64, out
        Receives the locations. Positions are positions in the file.

    Returns
    -------
    int
        The number of filled rows.
    """
    table = borrowed(table)
    locations = borrowed(locations)
    for index in range(len(table)):
        location = locations[filled + index]
        for column in range(LOCATION_COLUMNS):
            location[column] = table[index, column]
        location[COL_POSITION] += start
    return filled + len(table)


@kernel
def choose_ranges(
    first_row: int,
    room: int,
    locations: Int64s,
    ranges: Int64s,
    key_map: MapArrays,
    rules: PassRules,
    kept_last_offset: int,
    span: int,
    least_gap: int,
) -> Any:
    """Select the bytes to read for the next chunk of a segment.

    Parameters
    ----------
    first_row : int
        First batch of the chunk, which is always read.
    room, span : int
        Maximum number of bytes to read and to span, excluding the first batch.
    locations : (n, LOCATION_COLUMNS) int64
        The segment's batches in order, from `copy_locations`. No batch may have a producer.
    ranges : (n, 2) int64, out
        Start and exclusive end of each range.
    kept_last_offset : int
        The batch that ends at this offset is read, because its header is retained.
    least_gap : int
        Minimum size of a gap to skip. Smaller gaps are read.

    Returns
    -------
    (count, row, position, records)
        The number of ranges (at least one); the first row of the next chunk, and the end of the row
        before it; and the number of records in skipped batches, which are all superseded.
    """
    locations = borrowed(locations)
    ranges = borrowed(ranges)
    key_map = borrowed_map(key_map)
    rules = borrowed_rules(rules)
    start = locations[first_row, COL_POSITION]
    filled = locations[first_row, COL_SIZE]
    ranges[0, 0] = start
    ranges[0, 1] = start + filled
    count = 1
    records = np.int64(0)
    waiting = np.int64(0)  # records of batches after the last range
    row = first_row + 1
    while row < len(locations):
        location = locations[row]
        position, end = location[COL_POSITION], location[COL_POSITION] + location[COL_SIZE]
        first, last = location[COL_BASE_OFFSET], location[COL_LAST_OFFSET]
        if end - start > span:
            break
        if (
            last != kept_last_offset
            and is_decided_by_winners(location, key_map, rules)
            and not has_winner(key_map, first, last)
        ):
            waiting += location[COL_RECORD_COUNT]
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
    last = locations[row - 1]
    return count, row, last[COL_POSITION] + last[COL_SIZE], records + waiting


@kernel
def scan_survivors(
    data: Bytes,
    end: int,
    least_offset: int,
    greatest_offset: int,
    kept_last_offset: int,
    table: Int64s,
    key_map: MapArrays,
    rules: PassRules,
) -> Any:
    """Scan batches like `scan_batches`, without CRCs and without rows for batches without winners.

    Three kinds of batches always have a row: the first batch, batches of producers, and batches
    after a compressed batch or a control batch, because a chunk may have to end before such a
    batch.

    Parameters
    ----------
    kept_last_offset : int
        The batch that ends at this offset has a row, because its header is retained.

    Returns
    -------
    Scan
    """
    data = borrowed(data)
    table = borrowed(table)
    key_map = borrowed_map(key_map)
    rules = borrowed_rules(rules)
    rows = 0
    position = 0
    last_offset = np.int64(least_offset) - np.int64(1)
    found = NO_ROWS
    passed_over = np.int64(0)
    status = OK
    while rows < len(table):
        status, header = read_header(data, position, end)
        if status != OK:
            break
        # Compare last offsets, because the largest offset has no successor.
        if header.base_offset <= last_offset or header.last_offset > greatest_offset:
            status = MISPLACED
            break
        last_offset = header.last_offset
        if (
            rows > 0
            and (found.attributes | header.attributes) & (CODEC_MASK | CONTROL_BIT) == 0
            and found.unfit < 0
            and not is_unfit(header)
            and header.producer_id < 0
            and last_offset != kept_last_offset
            and winners_decide(header.base_offset, last_offset, header.attributes, key_map, rules)
            and not has_winner(key_map, header.base_offset, last_offset)
        ):
            passed_over += header.record_count
        else:
            fill_row(table[rows], data, position, header)
            found = with_row(found, rows, header)
            rows += 1
        position += header.size
    return scanned(status, rows, position, found, passed_over)
