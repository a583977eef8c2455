"""Compiled loop of appends by columns: which batches get an entry in the sparse indexes."""

from __future__ import annotations

from logstore.jit import Int64s, borrowed, kernel

EXTENT_LAST_OFFSET = 0
EXTENT_MAX_TIMESTAMP = 1
EXTENT_SIZE = 2
EXTENT_COLUMNS = 3

ENTRY_OFFSET = 0
ENTRY_POSITION = 1
ENTRY_TIMESTAMP = 2  # the largest so far
ENTRY_TIMESTAMP_OFFSET = 3  # the first that bears it
ENTRY_COLUMNS = 4

COUNTER_BYTES = 0  # since the last entry
COUNTER_TIMESTAMP = 1  # the largest so far, and the first offset that bears it
COUNTER_OFFSET = 2


@kernel
def find_index_entries(
    extents: Int64s, position: int, interval_bytes: int, counters: Int64s, entries: Int64s
) -> tuple[int, int]:
    """Choose the entries of batches that follow one another (storage-format §8.1).

    Parameters
    ----------
    extents : (batches, EXTENT_COLUMNS) int64
        As `BatchExtent`.
    position : int
        Of the first batch, in bytes from the start of the `.log`.
    interval_bytes : int
        A batch gets an entry if more went before it since the last one.
    counters : (3,) int64, in and out
        As they are before the first and after the last batch.
    entries : (batches, ENTRY_COLUMNS) int64, out

    Returns
    -------
    (rows, position)
        Rows filled, and the position after the last batch. O(batches).
    """
    extents = borrowed(extents)
    entries = borrowed(entries)
    rows = 0
    for index in range(len(extents)):
        extent = extents[index]
        if extent[EXTENT_MAX_TIMESTAMP] > counters[COUNTER_TIMESTAMP]:
            counters[COUNTER_TIMESTAMP] = extent[EXTENT_MAX_TIMESTAMP]
            counters[COUNTER_OFFSET] = extent[EXTENT_LAST_OFFSET]
        if counters[COUNTER_BYTES] > interval_bytes:
            entry = entries[rows]
            entry[ENTRY_OFFSET] = extent[EXTENT_LAST_OFFSET]
            entry[ENTRY_POSITION] = position
            entry[ENTRY_TIMESTAMP] = counters[COUNTER_TIMESTAMP]
            entry[ENTRY_TIMESTAMP_OFFSET] = counters[COUNTER_OFFSET]
            rows += 1
            counters[COUNTER_BYTES] = 0
        counters[COUNTER_BYTES] += extent[EXTENT_SIZE]
        position += extent[EXTENT_SIZE]
    return rows, position
