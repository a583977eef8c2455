"""Filling a map from a chunk's records (cleaner-semantics §5, §13.5)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.cleaner.kernels.offsets import map_put
from logstore.cleaner.kernels.slots import (
    STATE_ENTRIES,
    STATE_LATEST_OFFSET,
    STATE_LIMIT,
    STATE_MALFORMED,
    STATE_MESSAGES,
    STATE_MIN_VERSION,
    STATE_UNVERSIONED,
    MapArrays,
    borrowed_map,
)
from logstore.cleaner.kernels.table import (
    COL_ATTRIBUTES,
    COL_BASE_OFFSET,
    COL_DISCARD,
    COL_LAST_OFFSET,
    COL_MAX_TIMESTAMP,
    COL_RECORD_COUNT,
    COL_SECTION_END,
    COL_SECTION_START,
    DAMAGED,
    DISCARD_NONE,
    MAP_FULL,
    read_row_record,
    record_timestamp,
)
from logstore.cleaner.kernels.versions import (
    FOUND,
    MALFORMED,
    OFFSET,
    TIMESTAMP,
    KernelStrategy,
    Order,
    record_version,
    version_put,
)
from logstore.jit import Bytes, Int64s, borrowed, kernel
from logstore.record.kernels import OK
from logstore.record.layout import CONTROL_BIT


class Build(NamedTuple):
    """What of a log goes into a map, and by which rule."""

    strategy: KernelStrategy
    start_offset: int
    end_offset: int  # exclusive
    insert: bool  # whether unknown keys get an entry, and what is met is counted


@kernel
def map_batches(data: Bytes, table: Int64s, key_map: MapArrays, build: Build) -> tuple[int, int]:
    """Let the keyed records of a chunk compete for their keys, in offset order (§5, §13.5).

    Control batches and discarded ones map nothing but count and move the latest offset; a control
    batch counts as one message, in Kafka too, even if compaction left nothing of it but its header.
    Without `insert`, in the seed pass, known keys' entries are raised alone, and what cannot win by
    its timestamp is not read.

    Returns
    -------
    (status, row)
        `OK` with the number of rows; `MAP_FULL` if a keyed record met a full map: the build ends
        there, between two puts; `DAMAGED` if the row's records cannot be read.
    """
    data = borrowed(data)
    table = borrowed(table)
    key_map = borrowed_map(key_map)
    state = key_map.state
    strategy = build.strategy
    insert = build.insert
    for index in range(len(table)):
        row = table[index]
        count = row[COL_RECORD_COUNT]
        is_too_old = (
            not insert
            and strategy.number == TIMESTAMP
            and row[COL_MAX_TIMESTAMP] <= state[STATE_MIN_VERSION]
        )
        if row[COL_ATTRIBUTES] & CONTROL_BIT:
            state[STATE_MESSAGES] += 1
        elif row[COL_DISCARD] != DISCARD_NONE or is_too_old:
            state[STATE_MESSAGES] += count
        else:
            position = row[COL_SECTION_START]
            for _ in range(count):
                status, record = read_row_record(data, row, position)
                if status != OK:
                    return DAMAGED, index
                position = record.end
                offset = row[COL_BASE_OFFSET] + record.offset_delta
                if record.key_size >= 0 and build.start_offset <= offset < build.end_offset:
                    if insert and state[STATE_ENTRIES] >= state[STATE_LIMIT]:
                        return MAP_FULL, index
                    key_start, key_size = record.key_start, record.key_size
                    if strategy.number == OFFSET:
                        fits = map_put(key_map, data, key_start, key_size, offset)
                        found = FOUND
                    else:
                        timestamp = record_timestamp(row, record)
                        found, version = record_version(data, record, timestamp, strategy)
                        order = Order(found == FOUND, version, offset)
                        fits = version_put(key_map, data, key_start, key_size, order, insert)
                    if not fits:
                        return MAP_FULL, index
                    if insert and found != FOUND:
                        state[STATE_UNVERSIONED] += 1
                        if found == MALFORMED:
                            state[STATE_MALFORMED] += 1
                state[STATE_MESSAGES] += 1
            if position != row[COL_SECTION_END]:
                return DAMAGED, index
        if insert and row[COL_LAST_OFFSET] >= build.start_offset:
            state[STATE_LATEST_OFFSET] = row[COL_LAST_OFFSET]
    return OK, len(table)
