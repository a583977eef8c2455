"""Write the survivors of a chunk batch by batch, in the form chosen by `classify`."""

from __future__ import annotations

import numpy as np

from logstore.cleaner.kernels.table import (
    COL_ATTRIBUTES,
    COL_FIRST_KEPT,
    COL_FORM,
    COL_KEPT,
    COL_LAST_OFFSET,
    COL_OUT_BASE_TIMESTAMP,
    COL_OUT_HORIZON,
    COL_OUT_MAX_TIMESTAMP,
    COL_OUT_SIZE,
    COL_POSITION,
    COL_SECTION_END,
    COL_SIZE,
    COMPRESSED,
    FORM_DROPPED,
    FORM_EMPTY,
    FORM_VERBATIM,
    record_timestamp,
)
from logstore.jit import Bytes, Int64s, borrowed, kernel
from logstore.record.kernels import (
    OK,
    copy_bytes,
    crc32c,
    read_record,
    varint_size,
    write_be,
    write_varint,
)
from logstore.record.layout import (
    ATTRIBUTES_POSITION,
    BASE_TIMESTAMP_POSITION,
    BATCH_LENGTH_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_POSITION,
    RECORD_COUNT_POSITION,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from logstore.storage.segment.kernels import EXTENT_LAST_OFFSET, EXTENT_MAX_TIMESTAMP, EXTENT_SIZE
from logstore.types import NO_TIMESTAMP

_ATTRIBUTES_BUT_HORIZON = CODEC_MASK | TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


@kernel
def write_kept_records(
    data: Bytes, row: Int64s, kept_starts: Int64s, out: Bytes, position: int
) -> int:
    """Write the retained records of a batch, with timestamps relative to its new base timestamp.

    Offset deltas, keys, values and headers are unchanged. Returns the position after the records.
    """
    data = borrowed(data)
    out = borrowed(out)
    first = row[COL_FIRST_KEPT]
    for index in range(first, first + row[COL_KEPT]):
        _, record = read_record(data, kept_starts[index], row[COL_SECTION_END])
        timestamp_delta = record_timestamp(row, record) - row[COL_OUT_BASE_TIMESTAMP]
        tail = record.key_length_position
        size = varint_size(timestamp_delta) + varint_size(record.offset_delta)
        position = write_varint(out, position, 1 + size + (record.end - tail))
        out[position] = np.uint8(0)  # its attributes
        position = write_varint(out, position + 1, timestamp_delta)
        position = write_varint(out, position, record.offset_delta)
        position = copy_bytes(data, tail, record.end, out, position)
    return position


@kernel
def write_header(data: Bytes, row: Int64s, out: Bytes, start: int, end: int) -> int:
    """Write the header of a rebuilt or emptied batch whose records end at `end`, and its CRC.

    Returns `end`.
    """
    copy_bytes(data, row[COL_POSITION], row[COL_POSITION] + HEADER_SIZE, out, start)
    attributes = row[COL_ATTRIBUTES] & _ATTRIBUTES_BUT_HORIZON
    base_timestamp = row[COL_OUT_BASE_TIMESTAMP]
    record_count = row[COL_KEPT]
    if row[COL_FORM] == FORM_EMPTY:
        attributes &= ~CODEC_MASK
        base_timestamp = np.int64(NO_TIMESTAMP)
        record_count = np.int64(0)
    elif row[COL_OUT_HORIZON]:
        attributes |= DELETE_HORIZON_BIT
    write_be(out, start + BATCH_LENGTH_POSITION, end - start - LOG_OVERHEAD, 4)
    write_be(out, start + ATTRIBUTES_POSITION, attributes, 2)
    write_be(out, start + BASE_TIMESTAMP_POSITION, base_timestamp, 8)
    write_be(out, start + MAX_TIMESTAMP_POSITION, row[COL_OUT_MAX_TIMESTAMP], 8)
    write_be(out, start + RECORD_COUNT_POSITION, record_count, 4)
    write_be(out, start + CRC_POSITION, crc32c(out, start + ATTRIBUTES_POSITION, end), 4)
    return end


@kernel
def assemble_batches(
    data: Bytes,
    table: Int64s,
    first_row: int,
    kept_starts: Int64s,
    out: Bytes,
    position: int,
    extents: Int64s,
    filled: int,
) -> tuple[int, int, int, int]:
    """Write the surviving batches from a row on to `out`, from `position` on.

    The caller must ensure that `out` has room for the sum of `COL_OUT_SIZE`, which is replaced with
    the exact sizes. Adjacent unchanged batches are copied together.

    Parameters
    ----------
    extents : (n, EXTENT_COLUMNS) int64, out
        From row `filled` on: last offset, largest timestamp and size of each batch written.

    Returns
    -------
    (status, row, position, filled)
        `OK` with the number of rows, or `COMPRESSED` with the row of a rebuilt batch that must be
        compressed. The caller must then write that batch and continue after it. Its extent is
        already filled in.
    """
    data = borrowed(data)
    table = borrowed(table)
    kept_starts = borrowed(kept_starts)
    out = borrowed(out)
    extents = borrowed(extents)
    run_start = run_end = np.int64(0)
    for index in range(first_row, len(table)):
        row = table[index]
        form = row[COL_FORM]
        if form == FORM_DROPPED:
            continue
        extent = extents[filled]
        filled += 1
        extent[EXTENT_LAST_OFFSET] = row[COL_LAST_OFFSET]
        extent[EXTENT_MAX_TIMESTAMP] = row[COL_OUT_MAX_TIMESTAMP]
        extent[EXTENT_SIZE] = row[COL_SIZE]
        if form == FORM_VERBATIM:
            if row[COL_POSITION] != run_end:
                position = copy_bytes(data, run_start, run_end, out, position)
                run_start = row[COL_POSITION]
            run_end = row[COL_POSITION] + row[COL_SIZE]
            continue
        position = copy_bytes(data, run_start, run_end, out, position)
        run_start = run_end
        start = position
        if form == FORM_EMPTY:
            position = write_header(data, row, out, start, start + HEADER_SIZE)
        else:
            if row[COL_ATTRIBUTES] & CODEC_MASK:
                return COMPRESSED, index, position, filled
            end = write_kept_records(data, row, kept_starts, out, start + HEADER_SIZE)
            position = write_header(data, row, out, start, end)
        extent[EXTENT_SIZE] = row[COL_OUT_SIZE] = position - start
    position = copy_bytes(data, run_start, run_end, out, position)
    return OK, len(table), position, filled
