"""Compiled loops over the bytes of record batches: CRC-32C, varints, decode, encode.

Every array of bytes is `(n,) uint8, C-contiguous`; positions are bytes from its start, ends are
exclusive. Kernels return `(status, position)`; `DECODE_*` says which check failed, and
`logstore.record.columns` turns it into an error. The oracles are `records.py` and `varint.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from logstore.jit import CRC_TABLES, crc32c_u64, kernel, load_u64

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Int = int | np.int64

OK = 0
PREMATURE_END = 1
BAD_VARINT = 2
BAD_RECORD_SIZE = 3
BAD_OFFSET_DELTA = 4
FIELD_OVERRUN = 5
BAD_HEADER_COUNT = 6
BAD_HEADER_KEY_SIZE = 7
RECORD_NOT_CONSUMED = 8
RECORDS_REMAINING = 9


@kernel
def crc32c(data: Bytes, start: int, end: int) -> int:
    """Return the CRC-32C of `data[start:end]`. O(n), 8 bytes an instruction."""
    crc = np.uint64(0xFFFFFFFF)
    position = start
    while position + 8 <= end:
        crc = crc32c_u64(crc, load_u64(data, position))
        position += 8
    tail = np.uint32(crc)
    while position < end:
        slot = np.int64((tail ^ np.uint32(data[position])) & np.uint32(0xFF))
        tail = (tail >> np.uint32(8)) ^ CRC_TABLES[0, slot]
        position += 1
    return np.int64(tail ^ np.uint32(0xFFFFFFFF))  # type: ignore[return-value]  # boxed as int


@kernel
def read_varint(data: Bytes, position: int, end: int, max_bytes: int) -> Any:
    """Read a zigzag varint of at most `max_bytes` (5 or 10) at `position`.

    Returns (value int64, position after it int64); the position is -1 if the encoding is too
    long or runs past `end`. A varint of 5 bytes drops the bits above its 32nd.
    """
    if position < end:
        first = np.uint64(data[position])
        if first < np.uint64(0x80):
            return np.int64(first >> np.uint64(1)) ^ -np.int64(first & np.uint64(1)), position + 1
    zigzag = np.uint64(0)
    shift = np.uint64(0)
    limit = min(end, position + max_bytes)
    while position < limit:
        byte = np.uint64(data[position])
        position += 1
        zigzag |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            if max_bytes == 5:
                zigzag &= np.uint64(0xFFFFFFFF)
            return (
                np.int64(zigzag >> np.uint64(1)) ^ -np.int64(zigzag & np.uint64(1)),
                position,
            )
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@kernel
def varint_size(value: Int) -> int:
    """Return the bytes that the zigzag encoding of a signed 64-bit `value` takes, 1 to 10."""
    signed = np.int64(value)
    zigzag = np.uint64(signed << np.int64(1)) ^ np.uint64(signed >> np.int64(63))
    size = 1
    while zigzag >= np.uint64(0x80):
        zigzag >>= np.uint64(7)
        size += 1
    return size


@kernel
def write_varint(out: Bytes, position: int, value: Int) -> int:
    """Write the zigzag encoding of `value` at `position`; return the position after it."""
    signed = np.int64(value)
    zigzag = np.uint64(signed << np.int64(1)) ^ np.uint64(signed >> np.int64(63))
    while zigzag >= np.uint64(0x80):
        out[position] = np.uint8((zigzag & np.uint64(0x7F)) | np.uint64(0x80))
        zigzag >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(zigzag)
    return position + 1


@kernel
def copy_bytes(source: Bytes, start: int, end: int, out: Bytes, position: int) -> int:
    """Copy `source[start:end]` to `out` at `position`; return the position after it."""
    size = end - start
    out[position : position + size] = source[start:end]
    return position + size


@kernel
def check_headers(data: Bytes, position: int, end: int) -> Any:
    """Walk the header count and headers at `position`.

    Returns (status, position after them); the status is OK or one of the `BAD_*` codes.
    """
    count, position = read_varint(data, position, end, 5)
    if position < 0:
        return BAD_VARINT, position
    if count < 0 or count > end - position:
        return BAD_HEADER_COUNT, position
    for _ in range(count):
        size, position = read_varint(data, position, end, 5)
        if position < 0:
            return BAD_VARINT, position
        if size < 0:
            return BAD_HEADER_KEY_SIZE, position
        if size > end - position:
            return FIELD_OVERRUN, position
        position += size
        size, position = read_varint(data, position, end, 5)
        if position < 0:
            return BAD_VARINT, position
        if size > 0:
            if size > end - position:
                return FIELD_OVERRUN, position
            position += size
    return OK, position


@kernel
def decode_records(
    data: Bytes,
    start: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    extents: Int64s,
    deltas: Int64s,
) -> Any:
    """Decode and check the records of an uncompressed section.

    Parameters
    ----------
    data, start, end
        The section is `data[start:end]`.
    count : int
        Records to find, at least 0 and at most `len(extents)`.
    extents : (count, 7) int64, out
        Of each record: start and end of the whole record; key start and size; value start and
        size (size -1 for null, positions into `data`); start of the header count.
    deltas : (count, 2) int64, out
        Of each record: offset and timestamp, the bases added.

    Returns
    -------
    (int, int)
        Status and the index of the record it concerns (`count` when OK). O(bytes of headers and
        lengths), not of keys and values.
    """
    position = start
    for index in range(count):
        if position >= end:
            return PREMATURE_END, index
        extents[index, 0] = position
        size, position = read_varint(data, position, end, 5)
        if position < 0:
            return BAD_VARINT, index
        if size < 1 or size > end - position:
            return BAD_RECORD_SIZE, index
        record_end = position + size
        extents[index, 1] = record_end
        timestamp_delta, position = read_varint(data, position + 1, record_end, 10)
        if position < 0:
            return BAD_VARINT, index
        offset_delta, position = read_varint(data, position, record_end, 5)
        if position < 0:
            return BAD_VARINT, index
        if offset_delta < 0:
            return BAD_OFFSET_DELTA, index
        deltas[index, 0] = base_offset + offset_delta
        deltas[index, 1] = base_timestamp + timestamp_delta
        for field in (2, 4):
            size, position = read_varint(data, position, record_end, 5)
            if position < 0:
                return BAD_VARINT, index
            extents[index, field] = position
            extents[index, field + 1] = max(size, np.int64(-1))
            if size > 0:
                if size > record_end - position:
                    return FIELD_OVERRUN, index
                position += size
        extents[index, 6] = position
        if position + 1 == record_end and data[position] == 0:
            position += 1
            continue
        status, position = check_headers(data, position, record_end)
        if status != OK:
            return status, index
        if position != record_end:
            return RECORD_NOT_CONSUMED, index
    if position != end:
        return RECORDS_REMAINING, count
    return OK, count


@kernel
def encoded_records_size(
    first_delta: int,
    timestamp_deltas: Int64s,
    key_sizes: Int32s,
    value_sizes: Int32s,
    header_sizes: Int32s,
) -> int:
    """Return the bytes that `encode_records` will write for the same columns."""
    total = 0
    for index in range(len(timestamp_deltas)):
        body = (
            1
            + varint_size(timestamp_deltas[index])
            + varint_size(first_delta + index)
            + varint_size(np.int64(key_sizes[index]))
            + max(key_sizes[index], 0)
            + varint_size(np.int64(value_sizes[index]))
            + max(value_sizes[index], 0)
            + header_sizes[index]
        )
        total += varint_size(body) + body
    return total


@kernel
def encode_records(
    first_delta: int,
    timestamp_deltas: Int64s,
    key_data: Bytes,
    key_starts: Int64s,
    key_sizes: Int32s,
    value_data: Bytes,
    value_starts: Int64s,
    value_sizes: Int32s,
    header_data: Bytes,
    header_starts: Int64s,
    header_sizes: Int32s,
    out: Bytes,
) -> int:
    """Write the records section of a batch; offsets are dense from `first_delta` on.

    Sizes are -1 for null keys and values. A record's header bytes (count and headers) are
    `header_sizes[i]` bytes of `header_data`, always at least one. Returns the bytes written;
    `out` holds what `encoded_records_size` said. O(bytes).
    """
    position = 0
    for index in range(len(timestamp_deltas)):
        key_size = np.int64(key_sizes[index])
        value_size = np.int64(value_sizes[index])
        header_size = np.int64(header_sizes[index])
        body = (
            1
            + varint_size(timestamp_deltas[index])
            + varint_size(first_delta + index)
            + varint_size(key_size)
            + max(key_size, np.int64(0))
            + varint_size(value_size)
            + max(value_size, np.int64(0))
            + header_size
        )
        position = write_varint(out, position, body)
        out[position] = np.uint8(0)
        position = write_varint(out, position + 1, timestamp_deltas[index])
        position = write_varint(out, position, first_delta + index)
        position = write_varint(out, position, key_size)
        if key_size > 0:
            start = key_starts[index]
            position = copy_bytes(key_data, start, start + key_size, out, position)
        position = write_varint(out, position, value_size)
        if value_size > 0:
            start = value_starts[index]
            position = copy_bytes(value_data, start, start + value_size, out, position)
        start = header_starts[index]
        position = copy_bytes(header_data, start, start + header_size, out, position)
    return position
