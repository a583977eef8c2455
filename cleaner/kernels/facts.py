"""List the fate of each record in a pass. Not used by cleaning itself."""

from __future__ import annotations

from logstore.cleaner.kernels.classify import SUPERSEDED
from logstore.cleaner.kernels.offsets import SLOT_WORDS, map_get
from logstore.cleaner.kernels.slots import MapArrays, borrowed_map
from logstore.cleaner.kernels.table import (
    COL_BASE_OFFSET,
    COL_CONTROL,
    COL_PARSED,
    COL_RECORD_COUNT,
    COL_SECTION_END,
    COL_SECTION_START,
    DAMAGED,
    read_row_record,
)
from logstore.cleaner.kernels.versions import version_get
from logstore.jit import Bytes, Int64s, borrowed, kernel
from logstore.record.kernels import OK
from logstore.types import NO_OFFSET

FACT_OFFSET = 0
FACT_FATE = 1
FACT_SUPERSEDED_BY = 2  # offset mapped for the key if superseded, or NO_OFFSET
FACT_KEY_START = 3
FACT_KEY_SIZE = 4  # -1 for null
FACT_CONTROL = 5  # COL_CONTROL of the batch
FACT_COLUMNS = 6


@kernel
def list_records(
    data: Bytes,
    table: Int64s,
    codes: Bytes,
    unread_fates: Bytes,
    key_map: MapArrays,
    facts: Int64s,
) -> tuple[int, int]:
    """List the fate that `classify_batches` chose for each record, and the superseding offset.

    Parameters
    ----------
    table : (rows, TABLE_COLUMNS) int64
        Output of `classify_batches`. In chunks that were not classified, `COL_PARSED` is 0.
    codes : (parsed,) uint8
        Fates of the records of parsed batches, batch by batch.
    unread_fates : (rows,) uint8
        Fate of the records in each batch that was not parsed.
    key_map : MapArrays
        Only used for superseded records.
    facts : (records, FACT_COLUMNS) int64, out
        One row per record. Positions are offsets in `data`.

    Returns
    -------
    (status, row)
        `OK` with the number of rows, or `DAMAGED` with the row of an unparsed batch whose records
        cannot be read. O(bytes).
    """
    data = borrowed(data)
    table = borrowed(table)
    key_map = borrowed_map(key_map)
    next_code = 0
    next_fact = 0
    for index in range(len(table)):
        row = table[index]
        position = row[COL_SECTION_START]
        is_parsed = row[COL_PARSED] > 0
        for _ in range(row[COL_RECORD_COUNT]):
            status, record = read_row_record(data, row, position)
            if status != OK:
                return DAMAGED, index
            position = record.end
            fate = unread_fates[index]
            if is_parsed:
                fate = codes[next_code]
                next_code += 1
            fact = facts[next_fact]
            next_fact += 1
            fact[FACT_OFFSET] = row[COL_BASE_OFFSET] + record.offset_delta
            fact[FACT_FATE] = fate
            fact[FACT_SUPERSEDED_BY] = NO_OFFSET
            if fate == SUPERSEDED:
                if key_map.slots.shape[1] == SLOT_WORDS:
                    winner = map_get(key_map, data, record.key_start, record.key_size)
                else:
                    order, _ = version_get(key_map, data, record.key_start, record.key_size)
                    winner = order.offset
                fact[FACT_SUPERSEDED_BY] = winner
            fact[FACT_KEY_START] = record.key_start
            fact[FACT_KEY_SIZE] = record.key_size
            fact[FACT_CONTROL] = row[COL_CONTROL]
        if position != row[COL_SECTION_END]:
            return DAMAGED, index
    return OK, len(table)
