"""Compiled loop that selects the batches to be added to the sparse indexes."""

from __future__ import annotations

from logstore.jit import Int64s, borrowed, kernel

EXTENT_LAST_OFFSET = 0
EXTENT_MAX_TIMESTAMP = 1
EXTENT_SIZE = 2
EXTENT_COLUMNS = 3

COUNTER_BYTES = 0  # since the last entry
COUNTER_TIMESTAMP = 1  # the largest so far, and the offset of its record
COUNTER_OFFSET = 2
COUNTER_INDEXED = 3  # the largest timestamp with an entry
COUNTER_ROOM = 4  # entries that still fit into the offset index
COUNTER_TIME_ROOM = 5
COUNTERS = 6


@kernel
def find_index_entries(
    extents: Int64s,
    position: int,
    interval_bytes: int,
    counters: Int64s,
    places: Int64s,
    times: Int64s,
) -> tuple[int, int, int]:
    """Select the batches in a sequence that get index entries (storage-format §8.1).

    When either index is full, no more entries are selected, and the next append rolls the
    segment.

    Parameters
    ----------
    extents : (batches, EXTENT_COLUMNS) int64
        See `BatchExtent`.
    position : int
        Byte position of the first batch in the `.log`.
    interval_bytes : int
        A batch gets an entry if more than this many bytes precede it since the last entry.
    counters : (COUNTERS,) int64, in and out
        Values before the first batch on input, after the last batch on output.
    places : (batches, 2) int64, out
        Last offset and position, for the offset index.
    times : (batches, 2) int64, out
        The largest timestamp so far and the first offset that has it, for the time index. Only
        timestamps that are not yet in the index.

    Returns
    -------
    (places, times, position)
        Number of rows filled, and the position after the last batch. O(batches).
    """
    extents = borrowed(extents)
    places = borrowed(places)
    times = borrowed(times)
    place_rows = 0
    time_rows = 0
    for index in range(len(extents)):
        extent = extents[index]
        if extent[EXTENT_MAX_TIMESTAMP] > counters[COUNTER_TIMESTAMP]:
            counters[COUNTER_TIMESTAMP] = extent[EXTENT_MAX_TIMESTAMP]
            counters[COUNTER_OFFSET] = extent[EXTENT_LAST_OFFSET]
        if counters[COUNTER_BYTES] > interval_bytes:
            counters[COUNTER_BYTES] = 0
            if counters[COUNTER_ROOM] > 0 and counters[COUNTER_TIME_ROOM] > 0:
                counters[COUNTER_ROOM] -= 1
                places[place_rows, 0] = extent[EXTENT_LAST_OFFSET]
                places[place_rows, 1] = position
                place_rows += 1
                if counters[COUNTER_TIMESTAMP] > counters[COUNTER_INDEXED]:
                    counters[COUNTER_INDEXED] = counters[COUNTER_TIMESTAMP]
                    counters[COUNTER_TIME_ROOM] -= 1
                    times[time_rows, 0] = counters[COUNTER_TIMESTAMP]
                    times[time_rows, 1] = counters[COUNTER_OFFSET]
                    time_rows += 1
        counters[COUNTER_BYTES] += extent[EXTENT_SIZE]
        position += extent[EXTENT_SIZE]
    return place_rows, time_rows, position
