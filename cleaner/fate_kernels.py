"""The compiled loop behind `cleaner.fate`: one row of facts a record, for people to look at.

Cleaning itself does without it. Source: cleaner-semantics §8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleaner.kernels import (
    COL_BASE_OFFSET,
    COL_CONTROL,
    COL_LAST_OFFSET,
    COL_PARSED,
    COL_RECORD_COUNT,
    COL_SECTION_END,
    COL_SECTION_START,
    DAMAGED,
    OK,
    SUPERSEDED,
    Bytes,
    Int64s,
    UInt64s,
    record_fields,
)
from cleaner.map_kernels import map_get
from cleaner.version_kernels import version_get
from logstore.jit import borrowed, kernel

if TYPE_CHECKING:
    import numpy as np

FACT_OFFSET = 0
FACT_FATE = 1
FACT_SUPERSEDED_BY = 2  # the offset mapped for its key, NO_OFFSET unless it is superseded
FACT_KEY_START = 3
FACT_KEY_SIZE = 4  # -1 for null
FACT_CONTROL = 5  # COL_CONTROL of its batch
FACT_COLUMNS = 6

NO_OFFSET = -1


@kernel
def list_records(
    data: Bytes,
    table: Int64s,
    codes: Bytes,
    unread_fates: Bytes,
    slots: UInt64s,
    state: Int64s,
    k0: np.uint64,
    k1: np.uint64,
    facts: Int64s,
) -> tuple[int, int]:
    """Tell of each record of a chunk what `classify_batches` decided, and by which offset.

    Parameters
    ----------
    table : (rows, TABLE_COLUMNS) int64
        As `classify_batches` left it; of a chunk that it did not see `COL_PARSED` is 0.
    codes : (parsed,) uint8
        Fates of the records of parsed batches, one batch after another.
    unread_fates : (rows,) uint8
        Fate of the records of each batch that was not parsed.
    slots, state, k0, k1
        The map; looked up for superseded records only.
    facts : (records, FACT_COLUMNS) int64, out
        A row a record; positions are those of `data`.

    Returns
    -------
    (status, row)
        `OK` with the number of rows, or `DAMAGED` with the row whose records cannot be read,
        which only one that was not parsed can be. O(bytes).
    """
    data = borrowed(data)
    table = borrowed(table)
    slots = borrowed(slots)
    state = borrowed(state)
    next_code = 0
    next_fact = 0
    for index in range(len(table)):
        row = table[index]
        position = row[COL_SECTION_START]
        end = row[COL_SECTION_END]
        is_parsed = row[COL_PARSED] > 0
        for _ in range(row[COL_RECORD_COUNT]):
            fields = record_fields(data, position, end)
            offset = row[COL_BASE_OFFSET] + fields[3]
            if fields[0] != OK or offset > row[COL_LAST_OFFSET]:
                return DAMAGED, index
            position = fields[1]
            fate = unread_fates[index]
            if is_parsed:
                fate = codes[next_code]
                next_code += 1
            fact = facts[next_fact]
            next_fact += 1
            fact[FACT_OFFSET] = offset
            fact[FACT_FATE] = fate
            fact[FACT_SUPERSEDED_BY] = NO_OFFSET
            if fate == SUPERSEDED:
                if slots.shape[1] == 2:
                    winner = map_get(slots, state, data, fields[5], fields[6], k0, k1)
                else:
                    winner = version_get(slots, state, data, fields[5], fields[6], k0, k1)[0]
                fact[FACT_SUPERSEDED_BY] = winner
            fact[FACT_KEY_START] = fields[5]
            fact[FACT_KEY_SIZE] = fields[6]
            fact[FACT_CONTROL] = row[COL_CONTROL]
        if position != end:
            return DAMAGED, index
    return OK, len(table)
