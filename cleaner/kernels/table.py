"""The batch table, with a row for each batch in a chunk, and the scan that fills it.

`data` contains a chunk of a segment, followed by decompressed sections, so that all record sections
are extents of a single array. The `COL_*` constants are the columns of the table. Positions are in
bytes from the start of `data`, and ends are exclusive.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
    TRANSACTIONAL_BIT,
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
COL_DISCARD = 12  # in: DISCARD_*, for all records of the batch
COL_PRODUCER_EPOCH = 13
COL_CONTROL = 14  # one of CONTROL_*, set after control batches are read
COL_FORM = 15  # out: one of FORM_*
COL_KEPT = 16  # out: number of retained records
COL_OUT_BASE_TIMESTAMP = 17  # out: baseTimestamp of a rebuilt batch
COL_OUT_MAX_TIMESTAMP = 18  # out: maxTimestamp of the batch as written
COL_OUT_SIZE = 19  # out: upper bound after classify, exact after assemble
COL_FIRST_KEPT = 20  # out: index of its first record among the chunk's retained records
COL_OUT_HORIZON = 21  # out: 1 if a rebuilt batch has a delete horizon
COL_PARSED = 22  # out: number of classified records, 0 if all were discarded unread
TABLE_COLUMNS = 23

LOCATION_COLUMNS = COL_DISCARD + 1
"""The first columns, which describe a mapped batch."""

CONTROL_NONE = -1  # a data batch
CONTROL_ABORT = 0
CONTROL_COMMIT = 1
CONTROL_OTHER = 2
CONTROL_EMPTY = 3  # its record was removed by compaction

VERDICT_DELETE_EMPTY = 0
VERDICT_RETAIN_EMPTY = 1

DISCARD_NONE = 0
DISCARD_ABORTED = 1
DISCARD_EXPIRING = 2  # a control batch that is removed after its horizon
DISCARD_NONE_MAPPED = 3  # discarded neither now nor when the map was built

FORM_DROPPED = 0
FORM_VERBATIM = 1
FORM_REBUILT = 2
FORM_EMPTY = 3

# Statuses other than `OK`.
DAMAGED = 1
MAP_FULL = 2
COMPRESSED = 3
MISPLACED = 4  # its offsets are out of order
TORN = 5  # incomplete

_CONTROL_KEY_SIZE_MIN = 4
_CONTROL_TYPE_POSITION = 2  # in the key, after the version


class Header(NamedTuple):
    """The fields of a batch header needed here."""

    size: Any  # size of the whole batch
    base_offset: Any
    last_offset: Any
    attributes: Any
    producer_id: Any
    record_count: Any


class Sums(NamedTuple):
    """Totals over rows; see `Scan`."""

    attributes: Int
    producers: Int
    records: Int
    largest: Int
    unfit: Int


class Scan(NamedTuple):
    """The result of scanning batches, in addition to the rows.

    Kernels return its fields, because compiled code returns plain tuples ten times as fast.
    """

    status: int  # `OK`, `DAMAGED` or `MISPLACED`
    rows: int  # filled rows
    position: int  # position after the last complete batch
    attributes: int  # union of all batches' attribute bits
    producers: int  # number of batches with a producer id
    records: int
    largest: int  # maximum number of records in a batch
    unfit: int  # first row with an impossible record count, or -1
    passed_over: int  # number of records in batches without a row, which are all superseded


_NO_HEADER = Header(0, 0, 0, 0, 0, 0)
NO_ROWS = Sums(0, 0, 0, 0, -1)


@inline_kernel
def read_header(data: Bytes, position: int, end: int) -> tuple[int, Header]:
    """Read and check the header of the batch at `position`.

    Returns
    -------
    (status, Header)
        `OK`, `DAMAGED`, or `TORN` if `data[:end]` ends inside the batch, in which case the header
        is empty. Neither the CRC nor the offsets are checked.
    """
    if end - position < HEADER_SIZE_UP_TO_MAGIC:
        return TORN, _NO_HEADER
    length = read_i32(data, position + BATCH_LENGTH_POSITION)
    size = length + LOG_OVERHEAD
    if length < MIN_BATCH_LENGTH or data[position + MAGIC_POSITION] != MAGIC or size < HEADER_SIZE:
        return DAMAGED, _NO_HEADER
    if size > end - position:
        return TORN, _NO_HEADER
    base_offset = read_i64(data, position + BASE_OFFSET_POSITION)
    last_offset_delta = read_i32(data, position + LAST_OFFSET_DELTA_POSITION)
    record_count = read_i32(data, position + RECORD_COUNT_POSITION)
    if (
        base_offset < 0
        or last_offset_delta < 0
        or base_offset > INT64_MAX - last_offset_delta
        or record_count < 0
    ):
        return DAMAGED, _NO_HEADER
    return OK, Header(
        size,
        base_offset,
        base_offset + last_offset_delta,
        # All defined attribute bits are in the low byte.
        np.int64(data[position + ATTRIBUTES_POSITION + 1]),
        read_i64(data, position + PRODUCER_ID_POSITION),
        record_count,
    )


@inline_kernel
def fill_row(row: Int64s, data: Bytes, position: int, header: Header) -> None:
    """Write the header fields of the batch at `position` into its row."""
    row[COL_POSITION] = position
    row[COL_SIZE] = header.size
    row[COL_BASE_OFFSET] = header.base_offset
    row[COL_LAST_OFFSET] = header.last_offset
    row[COL_ATTRIBUTES] = header.attributes
    row[COL_BASE_TIMESTAMP] = read_i64(data, position + BASE_TIMESTAMP_POSITION)
    row[COL_MAX_TIMESTAMP] = read_i64(data, position + MAX_TIMESTAMP_POSITION)
    row[COL_PRODUCER_ID] = header.producer_id
    row[COL_RECORD_COUNT] = header.record_count
    row[COL_SECTION_START] = position + HEADER_SIZE
    row[COL_SECTION_END] = position + header.size
    row[COL_VERDICT] = VERDICT_DELETE_EMPTY
    row[COL_DISCARD] = DISCARD_NONE
    row[COL_PRODUCER_EPOCH] = read_i16(data, position + PRODUCER_EPOCH_POSITION)
    row[COL_CONTROL] = CONTROL_NONE


@inline_kernel
def is_unfit(header: Header) -> bool:
    """Return whether an uncompressed batch has a higher record count than its bytes permit."""
    return (  # type: ignore[no-any-return]
        header.attributes & CODEC_MASK == 0
        and header.record_count * MIN_RECORD_SIZE > header.size - HEADER_SIZE
    )


@inline_kernel
def with_row(sums: Sums, number: int, header: Header) -> Sums:
    """Return the sums including one more row."""
    return Sums(
        sums.attributes | header.attributes,
        sums.producers + (header.producer_id >= 0),
        sums.records + header.record_count,
        max(sums.largest, header.record_count),
        np.int64(number) if sums.unfit < 0 and is_unfit(header) else np.int64(sums.unfit),
    )


@inline_kernel
def scanned(status: Int, rows: Int, position: Int, sums: Sums, passed_over: Int) -> Any:
    """Return the fields of a `Scan` that ended with a given status."""
    # An incomplete batch is not damage, because the rest may follow.
    return (
        OK if status == TORN else status,
        rows,
        position,
        sums.attributes,
        sums.producers,
        sums.records,
        sums.largest,
        sums.unfit,
        passed_over,
    )


@kernel
def scan_batches(
    data: Bytes,
    end: int,
    check_crc: bool,
    least_offset: int,
    greatest_offset: int,
    table: Int64s,
) -> Any:
    """Walk the complete batches in `data[:end]` into `table`, verifying each batch.

    Parameters
    ----------
    check_crc : bool
        Whether to verify the CRC-32C. Lengths, magic, record count and offsets are always checked.
    least_offset, greatest_offset : int
        Minimum offset of the first batch and maximum offset of the last one. Offsets must increase
        in between.
    table : (rows, TABLE_COLUMNS) int64, out

    Returns
    -------
    Scan
        `DAMAGED` or `MISPLACED` if the batch at the final position is; `OK` if the chunk ends
        there, possibly inside a batch, or the table is full. O(bytes) with CRCs, O(batches)
        without.
    """
    data = borrowed(data)
    table = borrowed(table)
    rows = 0
    position = 0
    last_offset = np.int64(least_offset) - np.int64(1)
    found = NO_ROWS
    status = OK
    while rows < len(table):
        status, header = read_header(data, position, end)
        if status != OK:
            break
        if check_crc:
            stored = np.int64(np.uint32(read_i32(data, position + CRC_POSITION)))
            if crc32c(data, position + ATTRIBUTES_POSITION, position + header.size) != stored:
                status = DAMAGED
                break
        # Compare last offsets, because the largest offset has no successor.
        if header.base_offset <= last_offset or header.last_offset > greatest_offset:
            status = MISPLACED
            break
        last_offset = header.last_offset
        fill_row(table[rows], data, position, header)
        found = with_row(found, rows, header)
        rows += 1
        position += header.size
    return scanned(status, rows, position, found, 0)


@inline_kernel
def read_row_record(data: Bytes, row: Int64s, position: Int) -> tuple[int, RecordFields]:
    """Parse the record at `position` in a row's section, and check that its offset is in the batch.

    Returns (status, RecordFields), where status is `OK` or `DAMAGED`. A loop over a row's records
    starts at `COL_SECTION_START`, continues at the `end` of each record, and must end at
    `COL_SECTION_END`.
    """
    status, record = read_record(data, position, row[COL_SECTION_END])
    if status != OK or row[COL_BASE_OFFSET] + record.offset_delta > row[COL_LAST_OFFSET]:
        return DAMAGED, record
    return OK, record


@inline_kernel
def record_timestamp(row: Int64s, record: RecordFields) -> Any:
    """Return the timestamp of a row's record, in milliseconds."""
    if row[COL_ATTRIBUTES] & TIMESTAMP_TYPE_BIT:
        return row[COL_MAX_TIMESTAMP]
    return row[COL_BASE_TIMESTAMP] + record.timestamp_delta


@kernel
def read_control_types(data: Bytes, table: Int64s) -> tuple[int, int]:
    """Write the type of each control batch into its row, skipping data batches.

    Returns
    -------
    (status, row)
        `OK` with the number of rows, or `DAMAGED` with the row of a batch whose key cannot be read.
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
        if read_i16(data, record.key_start) < 0:  # version of the key
            return DAMAGED, index
        kind = read_i16(data, record.key_start + _CONTROL_TYPE_POSITION)
        row[COL_CONTROL] = kind if CONTROL_ABORT <= kind <= CONTROL_COMMIT else CONTROL_OTHER
    return OK, len(table)


@inline_kernel
def _is_among(offsets: Int64s, offset: Int) -> bool:
    """Return whether an ascending list of offsets contains a given offset."""
    low, high = 0, len(offsets)
    while low < high:
        middle = (low + high) // 2
        if offsets[middle] < offset:
            low = middle + 1
        else:
            high = middle
    return low < len(offsets) and offsets[low] == offset


@kernel
def list_transactional(
    table: Int64s, is_mapped_known: bool, discarded_before: Int64s, found: Int64s
) -> int:
    """List the runs of transactional batches in a chunk, and its control batches, in order.

    A run consists of one producer's data batches in adjacent rows. Each control batch is listed
    separately.

    Parameters
    ----------
    table : (n, TABLE_COLUMNS) int64
        Receives `DISCARD_NONE_MAPPED` in the mapped data batches.
    is_mapped_known : bool
        Whether the mapped batches are known.
    discarded_before : (m,) int64
        Last offsets (ascending) of the batches that were not mapped, including other chunks.
    found : (rows, 6) int64, out
        For each run: first row, row after the last one, last offsets of its first and last batch,
        producer id and `COL_CONTROL`.

    Returns
    -------
    int
        Number of runs.
    """
    table = borrowed(table)
    discarded_before = borrowed(discarded_before)
    found = borrowed(found)
    count = 0
    open_end = -1  # row at which a batch continues the last run
    for index in range(len(table)):
        row = table[index]
        if not row[COL_ATTRIBUTES] & (TRANSACTIONAL_BIT | CONTROL_BIT):
            continue
        last_offset = row[COL_LAST_OFFSET]
        is_data = row[COL_CONTROL] == CONTROL_NONE
        if not (is_data and index == open_end and row[COL_PRODUCER_ID] == found[count - 1, 4]):
            found[count, 0] = index
            found[count, 2] = last_offset
            found[count, 4] = row[COL_PRODUCER_ID]
            found[count, 5] = row[COL_CONTROL]
            count += 1
        found[count - 1, 1] = index + 1
        found[count - 1, 3] = last_offset
        if is_data:
            open_end = index + 1
            if is_mapped_known and not _is_among(discarded_before, last_offset):
                row[COL_DISCARD] = DISCARD_NONE_MAPPED
    return count


@kernel
def keep_last_batches(table: Int64s, last_offsets: Int64s, producer_ids: Int64s) -> None:
    """Retain at least the header of each batch that ends at a given offset of its producer.

    Parameters
    ----------
    table : (n, TABLE_COLUMNS) int64
        Receives the verdicts.
    last_offsets : (m,) int64
        Ascending. Some may be equal.
    producer_ids : (m,) int64
        The producer id for each offset.
    """
    table = borrowed(table)
    last_offsets = borrowed(last_offsets)
    producer_ids = borrowed(producer_ids)
    index = 0
    for wanted in range(len(last_offsets)):
        while index < len(table) and table[index, COL_LAST_OFFSET] < last_offsets[wanted]:
            index += 1
        if index == len(table):
            break
        row = table[index]
        if (
            row[COL_LAST_OFFSET] == last_offsets[wanted]
            and row[COL_PRODUCER_ID] == producer_ids[wanted]
        ):
            row[COL_VERDICT] = VERDICT_RETAIN_EMPTY
