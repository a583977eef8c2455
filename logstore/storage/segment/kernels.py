"""Compiled loop that selects the batches that get an entry in the sparse indexes."""

from __future__ import annotations

from logstore.jit import Int64s, borrowed, kernel

EXTENT_LAST_OFFSET = 0
EXTENT_MAX_TIMESTAMP = 1
EXTENT_SIZE = 2
EXTENT_COLUMNS = 3

COUNTER_BYTES = 0  # since the last entry
COUNTER_TIMESTAMP = 1  # the largest so far, and the first offset that bears it
COUNTER_OFFSET = 2
COUNTER_INDEXED = 3  # the largest timestamp that has an entry
COUNTER_ROOM = 4  # entries that the offset index has room for
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
        As `BatchExtent`.
    position : int
        Of the first batch, in bytes from the start of the `.log`.
    interval_bytes : int
        A batch gets an entry if more went before it since the last one.
    counters : (COUNTERS,) int64, in and out
        As they are before the first and after the last batch.
    places : (batches, 2) int64, out
        Last offset and position, for the offset index.
    times : (batches, 2) int64, out
        The largest timestamp so far and the first offset that bears it, for the time index: of
        entries whose timestamp has none yet.

    Returns
    -------
    (places, times, position)
        Rows filled, and the position after the last batch. O(batches).
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
