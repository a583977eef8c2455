"""Compiled loops that fill the maps from a chunk's records (cleaner-semantics §5, §13.5).

Chunks and their tables are those of `cleaner.kernels`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cleaner.kernels import (
    COL_ATTRIBUTES,
    COL_BASE_OFFSET,
    COL_BASE_TIMESTAMP,
    COL_DISCARD,
    COL_LAST_OFFSET,
    COL_MAX_TIMESTAMP,
    COL_RECORD_COUNT,
    COL_SECTION_END,
    COL_SECTION_START,
    CONTROL_BIT,
    DAMAGED,
    DISCARD_NONE,
    MAP_FULL,
    OK,
    Bytes,
    Int64s,
    UInt64s,
    record_fields,
)
from cleaner.map_kernels import (
    STATE_ENTRIES,
    STATE_LATEST_OFFSET,
    STATE_LIMIT,
    STATE_MALFORMED,
    STATE_MESSAGES,
    STATE_MIN_VERSION,
    STATE_UNVERSIONED,
    map_put,
)
from cleaner.version_kernels import FOUND, MALFORMED, TIMESTAMP, record_version, version_put
from logstore.jit import borrowed, kernel

if TYPE_CHECKING:
    import numpy as np

_APPEND_TIME = 0x08


@kernel
def map_batches(
    data: Bytes,
    table: Int64s,
    first_row: int,
    end_row: int,
    first_dirty_offset: int,
    slots: UInt64s,
    state: Int64s,
    k0: np.uint64,
    k1: np.uint64,
) -> Any:
    """Put the keys of the rows [first, end) into the map, in offset order (§5).

    Control batches and discarded ones map nothing but count and move the latest offset; a control
    batch counts as one message, in Kafka too, even if compaction left nothing of it but its header.

    Returns
    -------
    (status, row)
        `OK` with `end_row`; `MAP_FULL` if a keyed record met a full map: the build ends there,
        between two puts; `DAMAGED` if the row's records cannot be read.
    """
    data = borrowed(data)
    table = borrowed(table)
    slots = borrowed(slots)
    state = borrowed(state)
    for index in range(first_row, end_row):
        row = table[index]
        last_offset = row[COL_LAST_OFFSET]
        count = row[COL_RECORD_COUNT]
        if row[COL_ATTRIBUTES] & CONTROL_BIT:
            state[STATE_MESSAGES] += 1
        elif row[COL_DISCARD] != DISCARD_NONE:
            state[STATE_MESSAGES] += count
        else:
            position = row[COL_SECTION_START]
            end = row[COL_SECTION_END]
            base_offset = row[COL_BASE_OFFSET]
            for _ in range(count):
                fields = record_fields(data, position, end)
                if fields[0] != OK:
                    return DAMAGED, index
                position = fields[1]
                offset = base_offset + fields[3]
                if offset > last_offset:
                    return DAMAGED, index
                key_size = fields[6]
                if key_size >= 0 and offset >= first_dirty_offset:
                    if state[STATE_ENTRIES] >= state[STATE_LIMIT]:
                        return MAP_FULL, index
                    if not map_put(slots, state, data, fields[5], key_size, offset, k0, k1):
                        return MAP_FULL, index
                state[STATE_MESSAGES] += 1
            if position != end:
                return DAMAGED, index
        if last_offset >= first_dirty_offset:
            state[STATE_LATEST_OFFSET] = last_offset
    return OK, end_row


@kernel
def map_versions(
    data: Bytes,
    table: Int64s,
    first_row: int,
    end_row: int,
    start_offset: int,
    end_offset: int,
    slots: UInt64s,
    state: Int64s,
    strategy: int,
    header: Bytes,
    insert: bool,
    k0: np.uint64,
    k1: np.uint64,
) -> Any:
    """Let the records of the rows [first, end) with offsets in [start, end) compete (§13.5).

    Parameters
    ----------
    insert : bool
        Whether unknown keys get an entry, as in a build; everything counts then as in
        `map_batches`. Without it, in the seed pass, known keys' entries are raised alone; what
        cannot win by its timestamp is not read.

    Returns
    -------
    (status, row)
        As `map_batches`.
    """
    data = borrowed(data)
    table = borrowed(table)
    slots = borrowed(slots)
    state = borrowed(state)
    header = borrowed(header)
    for index in range(first_row, end_row):
        row = table[index]
        attributes = row[COL_ATTRIBUTES]
        last_offset = row[COL_LAST_OFFSET]
        count = row[COL_RECORD_COUNT]
        if attributes & CONTROL_BIT:
            state[STATE_MESSAGES] += 1
        elif row[COL_DISCARD] != DISCARD_NONE or (
            not insert
            and strategy == TIMESTAMP
            and row[COL_MAX_TIMESTAMP] <= state[STATE_MIN_VERSION]
        ):
            state[STATE_MESSAGES] += count
        else:
            position = row[COL_SECTION_START]
            end = row[COL_SECTION_END]
            append_time = attributes & _APPEND_TIME != 0
            for _ in range(count):
                fields = record_fields(data, position, end)
                if fields[0] != OK:
                    return DAMAGED, index
                position = fields[1]
                offset = row[COL_BASE_OFFSET] + fields[3]
                if offset > last_offset:
                    return DAMAGED, index
                if fields[6] >= 0 and start_offset <= offset < end_offset:
                    if insert and state[STATE_ENTRIES] >= state[STATE_LIMIT]:
                        return MAP_FULL, index
                    timestamp = row[COL_BASE_TIMESTAMP] + fields[2]
                    if append_time:
                        timestamp = row[COL_MAX_TIMESTAMP]
                    status, version = record_version(
                        data, fields[4], fields[1], timestamp, header, strategy
                    )
                    if not version_put(
                        slots, state, data, fields[5], fields[6], offset,
                        status == FOUND, version, insert, k0, k1,
                    ):  # fmt: skip
                        return MAP_FULL, index
                    if insert and status != FOUND:
                        state[STATE_UNVERSIONED] += 1
                        if status == MALFORMED:
                            state[STATE_MALFORMED] += 1
                state[STATE_MESSAGES] += 1
            if position != end:
                return DAMAGED, index
        if insert and last_offset >= start_offset:
            state[STATE_LATEST_OFFSET] = last_offset
    return OK, end_row
