"""Compiled loop that counts records and collects tombstones of a segment."""

from __future__ import annotations

from logstore.jit import Bytes, Int64s, borrowed, kernel
from logstore.record.kernels import OK, read_i16, read_i32, read_i64, read_record
from logstore.record.layout import (
    ATTRIBUTES_POSITION,
    BASE_OFFSET_POSITION,
    BASE_TIMESTAMP_POSITION,
    BATCH_LENGTH_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    RECORD_COUNT_POSITION,
    TIMESTAMP_TYPE_BIT,
)

WHOLE, FULL, OTHER = range(3)
"""Why a survey ended: no more data, full output arrays, or an undecodable batch."""

_OTHER_BITS = CODEC_MASK | TIMESTAMP_TYPE_BIT


@kernel
def survey(
    data: Bytes, start: int, offsets: Int64s, timestamps: Int64s, tombstones: int
) -> tuple[int, int, int, int]:
    """Count the data records of complete batches and collect the tombstones among them.

    Stops at a batch that is compressed, uses log append time, or is damaged.

    Parameters
    ----------
    data, start
        Batches from position `start` on. The last batch may be incomplete.
    offsets, timestamps : (capacity,) int64, out
        Offsets and record timestamps of the tombstones, written from row `tombstones`.

    Returns
    -------
    (status, position, records, tombstones)
        Position of the batch where the loop stopped, number of records before it, and total number
        of tombstones.
    """
    data = borrowed(data)
    position = start
    records = 0
    while len(data) - position >= HEADER_SIZE:
        end = position + LOG_OVERHEAD + read_i32(data, position + BATCH_LENGTH_POSITION)
        if end > len(data):
            break
        attributes = read_i16(data, position + ATTRIBUTES_POSITION)
        if attributes & CONTROL_BIT == 0:
            if attributes & _OTHER_BITS != 0:
                return OTHER, position, records, tombstones
            count = read_i32(data, position + RECORD_COUNT_POSITION)
            if tombstones + count > len(offsets):
                return FULL, position, records, tombstones
            base_offset = read_i64(data, position + BASE_OFFSET_POSITION)
            base_timestamp = read_i64(data, position + BASE_TIMESTAMP_POSITION)
            at = position + HEADER_SIZE
            for _ in range(count):
                status, record = read_record(data, at, end)
                if status != OK:
                    return OTHER, position, records, tombstones
                if record.value_size < 0:
                    offsets[tombstones] = base_offset + record.offset_delta
                    timestamps[tombstones] = base_timestamp + record.timestamp_delta
                    tombstones += 1
                at = record.end
            records += count
        position = end
    return WHOLE, position, records, tombstones
