"""The batch table: one row a batch of a chunk, and the scan that fills it.

A chunk of a segment lies in `data`; decompressed sections are appended behind it, so that every
records section is an extent of the same array. The `COL_*` constants name the table's columns.
Positions are bytes from the start of `data`, ends exclusive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from logstore.jit import Bytes, Int64s, borrowed, inline_kernel, kernel
from logstore.record.kernels import (
    OK,
    Int,
    RecordFields,
    crc32c,
    read_i16,
    read_i32,
    read_i64,
    read_record,
)
from logstore.record.layout import (
    ATTRIBUTES_POSITION,
    BASE_OFFSET_POSITION,
    BASE_TIMESTAMP_POSITION,
    BATCH_LENGTH_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    LAST_OFFSET_DELTA_POSITION,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    MIN_BATCH_LENGTH,
    MIN_RECORD_SIZE,
    PRODUCER_EPOCH_POSITION,
    PRODUCER_ID_POSITION,
    RECORD_COUNT_POSITION,
    TIMESTAMP_TYPE_BIT,
)
from logstore.types import INT64_MAX

COL_POSITION = 0
COL_SIZE = 1
COL_BASE_OFFSET = 2
COL_LAST_OFFSET = 3
COL_ATTRIBUTES = 4
COL_BASE_TIMESTAMP = 5
COL_MAX_TIMESTAMP = 6
COL_PRODUCER_ID = 7
COL_RECORD_COUNT = 8
COL_SECTION_START = 9
COL_SECTION_END = 10
COL_VERDICT = 11  # in: one of VERDICT_*
COL_DISCARD = 12  # in: DISCARD_* of all the batch's records
COL_FORM = 13  # out: one of FORM_*
COL_KEPT = 14  # out: records kept
COL_OUT_BASE_TIMESTAMP = 15  # out: baseTimestamp of a rebuilt batch
COL_OUT_MAX_TIMESTAMP = 16  # out: maxTimestamp of the batch as written
COL_OUT_SIZE = 17  # out: upper bound after classify, exact after assemble
COL_FIRST_KEPT = 18  # out: index of the batch's first kept record among those of the chunk
COL_OUT_HORIZON = 19  # out: 1 if a rebuilt batch carries a delete horizon
COL_PARSED = 20  # out: records that were judged; 0 when all were discarded unread
COL_PRODUCER_EPOCH = 21
COL_CONTROL = 22  # one of CONTROL_*, once the control batches were read
TABLE_COLUMNS = 23

PLACE_COLUMNS = COL_DISCARD + 1
"""Columns from the first on that tell what a batch is, once it was mapped."""

CONTROL_NONE = -1  # a data batch
CONTROL_ABORT = 0
CONTROL_COMMIT = 1
CONTROL_OTHER = 2
CONTROL_EMPTY = 3  # compaction removed its record

VERDICT_DELETE_EMPTY = 0
VERDICT_RETAIN_EMPTY = 1

DISCARD_NONE = 0
DISCARD_ABORTED = 1
DISCARD_EXPIRING = 2  # a control batch whose records go once a horizon has passed

FORM_DROPPED = 0
FORM_VERBATIM = 1
FORM_REBUILT = 2
FORM_EMPTY = 3

# Statuses, besides `OK`.
DAMAGED = 1
MAP_FULL = 2
COMPRESSED = 3
MISPLACED = 4  # its offsets do not belong where it stands

# Sums of `scan_batches`.
SUM_ATTRIBUTES = 0  # bits that any batch has
SUM_PRODUCERS = 1  # batches of producers that have an id
SUM_RECORDS = 2
SUM_LARGEST = 3  # records of the batch that has most
SUM_UNFIT = 4  # first row with more records than its bytes can hold, -1 if none has
SUMS = 5

_CONTROL_KEY_SIZE_MIN = 4
_CONTROL_TYPE_POSITION = 2  # in the key, after its version


@kernel
def scan_batches(
    data: Bytes,
    end: int,
    check_crc: bool,
    least_offset: int,
    greatest_offset: int,
    table: Int64s,
    sums: Int64s,
) -> Any:
    """Walk the whole batches of `data[:end]` into `table`, verifying each.

    Parameters
    ----------
    check_crc : bool
        Whether to compare the stored CRC-32C; lengths, magic, record count and offsets are always
        checked.
    least_offset, greatest_offset : int
        What the first batch may begin with and the last one end with; between, offsets rise.
    table : (rows, TABLE_COLUMNS) int64, out
    sums : (SUMS,) int64, out
        Over the rows that were filled.

    Returns
    -------
    (status, rows, position)
        Rows filled, and the position after the last whole batch. `DAMAGED` or `MISPLACED` if the
        batch at that position is; `OK` if the chunk ends there, perhaps inside a batch, or the
        table is full. O(bytes) with CRCs, else O(batches).
    """
    data = borrowed(data)
    rows = 0
    position = 0
    last_offset = np.int64(least_offset) - np.int64(1)
    attributes_or = producers = records = largest = np.int64(0)
    unfit = -1
    status = OK
    while rows < len(table) and end - position >= HEADER_SIZE_UP_TO_MAGIC:
        length = read_i32(data, position + BATCH_LENGTH_POSITION)
        size = length + LOG_OVERHEAD
        if (
            length < MIN_BATCH_LENGTH
            or data[position + MAGIC_POSITION] != MAGIC
            or size < HEADER_SIZE
        ):
            status = DAMAGED
            break
        if size > end - position:
            break
        base_offset = read_i64(data, position + BASE_OFFSET_POSITION)
        last_offset_delta = read_i32(data, position + LAST_OFFSET_DELTA_POSITION)
        record_count = read_i32(data, position + RECORD_COUNT_POSITION)
        # All bits that have a meaning are in the low byte.
        attributes = np.int64(data[position + ATTRIBUTES_POSITION + 1])
        if (
            base_offset < 0
            or last_offset_delta < 0
            or base_offset > INT64_MAX - last_offset_delta
            or record_count < 0
        ):
            status = DAMAGED
            break
        if check_crc:
            stored = np.int64(np.uint32(read_i32(data, position + CRC_POSITION)))
            if crc32c(data, position + ATTRIBUTES_POSITION, position + size) != stored:
                status = DAMAGED
                break
        # Not below the next one: behind the largest offset there is none.
        if base_offset <= last_offset or base_offset + last_offset_delta > greatest_offset:
            status = MISPLACED
            break
        last_offset = base_offset + last_offset_delta
        producer_id = read_i64(data, position + PRODUCER_ID_POSITION)
        attributes_or |= attributes
        producers += producer_id >= 0
        records += record_count
        largest = max(largest, record_count)
        if (
            unfit < 0
            and attributes & CODEC_MASK == 0
            and record_count * MIN_RECORD_SIZE > size - HEADER_SIZE
        ):
            unfit = rows
        row = table[rows]
        row[COL_POSITION] = position
        row[COL_SIZE] = size
        row[COL_BASE_OFFSET] = base_offset
        row[COL_LAST_OFFSET] = last_offset
        row[COL_ATTRIBUTES] = attributes
        row[COL_BASE_TIMESTAMP] = read_i64(data, position + BASE_TIMESTAMP_POSITION)
        row[COL_MAX_TIMESTAMP] = read_i64(data, position + MAX_TIMESTAMP_POSITION)
        row[COL_PRODUCER_ID] = producer_id
        row[COL_RECORD_COUNT] = record_count
        row[COL_SECTION_START] = position + HEADER_SIZE
        row[COL_SECTION_END] = position + size
        row[COL_VERDICT] = VERDICT_DELETE_EMPTY
        row[COL_DISCARD] = DISCARD_NONE
        row[COL_PRODUCER_EPOCH] = read_i16(data, position + PRODUCER_EPOCH_POSITION)
        row[COL_CONTROL] = CONTROL_NONE
        rows += 1
        position += size
    sums[SUM_ATTRIBUTES] = attributes_or
    sums[SUM_PRODUCERS] = producers
    sums[SUM_RECORDS] = records
    sums[SUM_LARGEST] = largest
    sums[SUM_UNFIT] = unfit
    return status, rows, position


@inline_kernel
def read_row_record(data: Bytes, row: Int64s, position: Int) -> tuple[int, RecordFields]:
    """Parse the record at `position` of a row's section; its offset lies in the batch.

    Returns (status, RecordFields): `OK` or `DAMAGED`. The loop over a row's records begins at
    `COL_SECTION_START`, goes on at the `end` of each, and has to arrive at `COL_SECTION_END`.
    """
    status, record = read_record(data, position, row[COL_SECTION_END])
    if status != OK or row[COL_BASE_OFFSET] + record.offset_delta > row[COL_LAST_OFFSET]:
        return DAMAGED, record
    return OK, record


@inline_kernel
def record_timestamp(row: Int64s, record: RecordFields) -> Any:
    """Return the timestamp of a row's record, in ms."""
    if row[COL_ATTRIBUTES] & TIMESTAMP_TYPE_BIT:
        return row[COL_MAX_TIMESTAMP]
    return row[COL_BASE_TIMESTAMP] + record.timestamp_delta


@kernel
def read_control_types(data: Bytes, table: Int64s) -> tuple[int, int]:
    """Fill in the kind of each control batch in its row; data batches are passed over.

    Returns
    -------
    (status, row)
        `OK` with the number of rows, or `DAMAGED` with the row of a batch whose key cannot be
        read.
    """
    data = borrowed(data)
    table = borrowed(table)
    for index in range(len(table)):
        row = table[index]
        if not row[COL_ATTRIBUTES] & CONTROL_BIT:
            continue
        if row[COL_RECORD_COUNT] == 0:
            row[COL_CONTROL] = CONTROL_EMPTY
            continue
        status, record = read_record(data, row[COL_SECTION_START], row[COL_SECTION_END])
        if status != OK or record.key_size < _CONTROL_KEY_SIZE_MIN:
            return DAMAGED, index
        if read_i16(data, record.key_start) < 0:  # the key's version
            return DAMAGED, index
        kind = read_i16(data, record.key_start + _CONTROL_TYPE_POSITION)
        row[COL_CONTROL] = kind if CONTROL_ABORT <= kind <= CONTROL_COMMIT else CONTROL_OTHER
    return OK, len(table)
