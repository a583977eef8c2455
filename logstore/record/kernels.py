"""Compiled loops over the bytes of record batches: CRC-32C, varints, decode, encode.

Every array of bytes is `(n,) uint8, C-contiguous`; positions are bytes from its start, ends are
exclusive. The status that a kernel returns first says which check failed, and
`logstore.record.columns` turns it into an error. The oracles are `records.py` and `varint.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from logstore.jit import (
    Bytes,
    Int32s,
    Int64s,
    borrowed,
    copy_u8,
    inline_kernel,
    kernel,
    kernel_like,
    load_be_i32,
    load_be_i64,
    load_u64,
)
from logstore.jit.crc32c import CRC_BLOCK, crc32c_blocks, crc32c_u8, crc32c_u64
from logstore.record.varint import MAX_VARINT_BYTES, MAX_VARLONG_BYTES

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

EXTENT_START = 0
EXTENT_END = 1
EXTENT_KEY_START = 2
EXTENT_KEY_SIZE = 3  # -1 for null
EXTENT_VALUE_START = 4
EXTENT_VALUE_SIZE = 5  # -1 for null
EXTENT_HEADERS = 6  # where the header count is
EXTENT_COLUMNS = 7


class RecordFields(NamedTuple):
    """One record taken apart; its key, value and headers are extents of the bytes around it."""

    end: int
    timestamp_delta: int
    offset_delta: int
    key_length_position: int
    key_start: int
    key_size: int  # negative for null
    value_start: int
    value_size: int  # negative for null
    headers_start: int


_NO_FIELDS = RecordFields(0, 0, 0, 0, 0, 0, 0, 0, 0)
"""Beside the status of a record that cannot be read."""


def _crc32c_of_library(data: Bytes, start: int, end: int) -> int:
    return int(google_crc32c.value(data[start:end].tobytes()))


@kernel_like(_crc32c_of_library)
def crc32c(data: Bytes, start: int, end: int) -> int:
    """Return the CRC-32C of `data[start:end]`. O(n), at best 16 bytes a cycle."""
    data = borrowed(data)
    crc = np.uint64(0xFFFFFFFF)
    position = start
    whole = (end - start) // CRC_BLOCK * CRC_BLOCK
    if whole > 0:
        _ = data[end - 1]  # so that NUMBA_BOUNDSCHECK=1 sees it
        crc = crc32c_blocks(data, position, position + whole, crc)
        position += whole
    while position + 8 <= end:
        crc = crc32c_u64(crc, load_u64(data, position))
        position += 8
    while position < end:
        crc = crc32c_u8(crc, data[position])
        position += 1
    return np.int64(crc ^ np.uint64(0xFFFFFFFF))  # type: ignore[return-value]  # boxed as int


@kernel
def read_i16(data: Bytes, position: int) -> Any:
    """Read a big-endian signed 16-bit integer as an int64."""
    word = np.uint16(data[position]) << np.uint16(8) | np.uint16(data[position + 1])
    return np.int64(np.int16(word))


@kernel
def read_i32(data: Bytes, position: int) -> Any:
    """Read a big-endian signed 32-bit integer as an int64."""
    _ = data[position + 3]  # so that NUMBA_BOUNDSCHECK=1 sees it
    return load_be_i32(data, position)


@kernel
def read_i64(data: Bytes, position: int) -> Any:
    """Read a big-endian signed 64-bit integer."""
    _ = data[position + 7]  # so that NUMBA_BOUNDSCHECK=1 sees it
    return load_be_i64(data, position)


@kernel
def write_be(out: Bytes, position: int, value: Any, size: int) -> int:
    """Write the low `size` bytes of `value`, big-endian; return the position after them."""
    word = np.uint64(value)
    for index in range(size):
        shift = np.uint64(8 * (size - 1 - index))
        out[position + index] = np.uint8((word >> shift) & np.uint64(0xFF))
    return position + size


@kernel
def read_varint(data: Bytes, position: int, end: int, max_bytes: int) -> Any:
    """Read a zigzag varint of at most `max_bytes` at `position`.

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
            if max_bytes == MAX_VARINT_BYTES:
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
def copy_bytes(source: Bytes, start: Int, end: Int, out: Bytes, position: int) -> int:
    """Copy `source[start:end]` to `out`, which is another array, at `position`.

    Returns the position after it.
    """
    size = end - start
    if size > 0:
        # By index, so that NUMBA_BOUNDSCHECK=1 sees both ends.
        out[position] = source[start]
        out[position + size - 1] = source[end - 1]
        copy_u8(source, start, out, position, size)  # type: ignore[arg-type]  # numba's int is one
    return position + size  # type: ignore[return-value]


@kernel
def check_headers(data: Bytes, position: int, end: int) -> Any:
    """Walk the header count and headers at `position`.

    Returns (status, position after them); the status is OK or one of the `BAD_*` codes.
    """
    count, position = read_varint(data, position, end, MAX_VARINT_BYTES)
    if position < 0:
        return BAD_VARINT, position
    if count < 0 or count > end - position:
        return BAD_HEADER_COUNT, position
    for _ in range(count):
        size, position = read_varint(data, position, end, MAX_VARINT_BYTES)
        if position < 0:
            return BAD_VARINT, position
        if size < 0:
            return BAD_HEADER_KEY_SIZE, position
        if size > end - position:
            return FIELD_OVERRUN, position
        position += size
        size, position = read_varint(data, position, end, MAX_VARINT_BYTES)
        if position < 0:
            return BAD_VARINT, position
        if size > 0:
            if size > end - position:
                return FIELD_OVERRUN, position
            position += size
    return OK, position


@inline_kernel
def read_record(data: Bytes, position: Any, end: int) -> tuple[int, RecordFields]:
    """Parse and check the record at `position`, below `end`.

    Returns
    -------
    (status, RecordFields)
        `OK`, or which check failed; the fields say nothing then. Key, value and headers fill the
        record. O(bytes of headers and lengths), not of keys and values.
    """
    data = borrowed(data)
    size, position = read_varint(data, position, end, MAX_VARINT_BYTES)
    if position < 0:
        return BAD_VARINT, _NO_FIELDS
    if size < 1 or size > end - position:
        return BAD_RECORD_SIZE, _NO_FIELDS
    record_end = position + size
    # The first byte of a record is its attributes, none of which is defined.
    timestamp_delta, position = read_varint(data, position + 1, record_end, MAX_VARLONG_BYTES)
    if position < 0:
        return BAD_VARINT, _NO_FIELDS
    offset_delta, position = read_varint(data, position, record_end, MAX_VARINT_BYTES)
    if position < 0:
        return BAD_VARINT, _NO_FIELDS
    if offset_delta < 0:
        return BAD_OFFSET_DELTA, _NO_FIELDS
    key_length_position = position
    key_size, key_start = read_varint(data, position, record_end, MAX_VARINT_BYTES)
    if key_start < 0:
        return BAD_VARINT, _NO_FIELDS
    if key_size > record_end - key_start:
        return FIELD_OVERRUN, _NO_FIELDS
    position = key_start + max(key_size, np.int64(0))
    value_size, value_start = read_varint(data, position, record_end, MAX_VARINT_BYTES)
    if value_start < 0:
        return BAD_VARINT, _NO_FIELDS
    if value_size > record_end - value_start:
        return FIELD_OVERRUN, _NO_FIELDS
    headers_start = value_start + max(value_size, np.int64(0))
    if headers_start + 1 != record_end or data[headers_start] != 0:
        status, headers_end = check_headers(data, headers_start, record_end)
        if status != OK:
            return status, _NO_FIELDS
        if headers_end != record_end:
            return RECORD_NOT_CONSUMED, _NO_FIELDS
    return OK, RecordFields(
        record_end,
        timestamp_delta,
        offset_delta,
        key_length_position,
        key_start,
        key_size,
        value_start,
        value_size,
        headers_start,
    )


@kernel
def decode_records(
    data: Bytes,
    start: int,
    end: int,
    base_offset: int,
    base_timestamp: int,
    offsets: Int64s,
    timestamps: Int64s,
    extents: Int64s,
) -> tuple[int, int]:
    """Decode and check the records of an uncompressed section.

    Parameters
    ----------
    data, start, end
        The section is `data[start:end]`.
    offsets, timestamps : (count,) int64, out
        Of each record, the bases added; as many records are looked for as there are rows.
    extents : (count, EXTENT_COLUMNS) int64, out
        The `EXTENT_*` of each record: positions and sizes in `data`.

    Returns
    -------
    (status, index)
        The record it concerns, the count when OK. O(bytes of headers and lengths), not of keys
        and values.
    """
    data = borrowed(data)
    position = start
    for index in range(len(offsets)):
        if position >= end:
            return PREMATURE_END, index
        status, record = read_record(data, position, end)
        if status != OK:
            return status, index
        offsets[index] = base_offset + record.offset_delta
        timestamps[index] = base_timestamp + record.timestamp_delta
        extent = extents[index]
        extent[EXTENT_START] = position
        extent[EXTENT_END] = record.end
        extent[EXTENT_KEY_START] = record.key_start
        extent[EXTENT_KEY_SIZE] = max(record.key_size, np.int64(-1))
        extent[EXTENT_VALUE_START] = record.value_start
        extent[EXTENT_VALUE_SIZE] = max(record.value_size, np.int64(-1))
        extent[EXTENT_HEADERS] = record.headers_start
        position = record.end
    if position != end:
        return RECORDS_REMAINING, len(offsets)
    return OK, len(offsets)


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


@kernel
def encode_sections(
    bounds: Int64s,
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
    ends: Int64s,
) -> None:
    """Write the records sections of several batches one behind the other.

    Parameters
    ----------
    bounds : (n + 1,) int64
        Batch i has the rows [bounds[i], bounds[i + 1]), at least one; see `encode_records`.
    ends : (n,) int64, out
        Where the section of each batch ends in `out`.
    """
    position = 0
    for batch in range(len(ends)):
        first = bounds[batch]
        last = bounds[batch + 1]
        position += encode_records(
            0,
            timestamp_deltas[first:last],
            key_data,
            key_starts[first:last],
            key_sizes[first:last],
            value_data,
            value_starts[first:last],
            value_sizes[first:last],
            header_data,
            header_starts[first:last],
            header_sizes[first:last],
            out[position:],
        )
        ends[batch] = position
