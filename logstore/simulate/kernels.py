"""A compiled loop over segments: records counted, tombstones noted."""

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
"""Why a survey ended: with the data, for want of room, or at a batch that is none of its kind."""

_OTHER_BITS = CODEC_MASK | TIMESTAMP_TYPE_BIT


@kernel
def survey(
    data: Bytes, start: int, offsets: Int64s, timestamps: Int64s, found: int
) -> tuple[int, int, int, int]:
    """Count the data records of whole batches, and note the tombstones among them.

    It stops at batches that are compressed, have log append time, or are damaged.

    Parameters
    ----------
    data, start
        Batches from `start` on; the last may be cut off.
    offsets, timestamps : (room,) int64, out
        Of the tombstones, from row `found` on; the timestamps as the records state them.

    Returns
    -------
    (status, position, records, found)
        Where the batch begins that ended it, records before it, and the tombstones noted so far.
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
                return OTHER, position, records, found
            count = read_i32(data, position + RECORD_COUNT_POSITION)
            if found + count > len(offsets):
                return FULL, position, records, found
            base_offset = read_i64(data, position + BASE_OFFSET_POSITION)
            base_timestamp = read_i64(data, position + BASE_TIMESTAMP_POSITION)
            at = position + HEADER_SIZE
            for _ in range(count):
                status, record = read_record(data, at, end)
                if status != OK:
                    return OTHER, position, records, found
                if record.value_size < 0:
                    offsets[found] = base_offset + record.offset_delta
                    timestamps[found] = base_timestamp + record.timestamp_delta
                    found += 1
                at = record.end
            records += count
        position = end
    return WHOLE, position, records, found
