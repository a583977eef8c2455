"""Compiled loops over record batch bytes: CRC-32C, varints, decoding and encoding.

Byte arrays are `(n,) uint8, C-contiguous`. Positions are in bytes from the start, and ends are
exclusive. The first return value of a kernel is a status that identifies the failed check, for
which `logstore.record.columns` raises the error. The oracles are `records.py` and `varint.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from logstore.jit import (
    COPY_BLOCK,
    Bytes,
    Int32s,
    Int64s,
    UInt64s,
    borrowed,
    copy_block,
    copy_u8,
    inline_kernel,
    kernel,
    kernel_like,
    load_be_i32,
    load_be_i64,
    load_u64,
    popcount,
    store_be_i32,
    store_be_i64,
    store_u64,
)
from logstore.jit.crc32c import CRC_BEGINNINGS, CRC_BLOCK, crc32c_register
from logstore.record.layout import (
    ATTRIBUTES_POSITION,
    BASE_OFFSET_POSITION,
    BASE_SEQUENCE_POSITION,
    BASE_TIMESTAMP_POSITION,
    BATCH_LENGTH_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_POSITION,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    PARTITION_LEADER_EPOCH_POSITION,
    PRODUCER_EPOCH_POSITION,
    PRODUCER_ID_POSITION,
    RECORD_COUNT_POSITION,
)
from logstore.record.varint import MAX_VARINT_BYTES, MAX_VARLONG_BYTES
from logstore.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

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
EXTENT_HEADERS = 6  # position of the header count
EXTENT_COLUMNS = 7


class RecordFields(NamedTuple):
    """A parsed record. Key, value and headers are positions and sizes in the record's array."""

    end: Any
    timestamp_delta: Any
    offset_delta: Any
    key_length_position: Any
    key_start: Any
    key_size: Any  # negative for null
    value_start: Any
    value_size: Any  # negative for null
    headers_start: Any


_NO_FIELDS = RecordFields(0, 0, 0, 0, 0, 0, 0, 0, 0)
"""Returned with the status of a record that cannot be parsed."""


def _crc32c_of_library(data: Bytes, start: int, end: int) -> int:
    return int(google_crc32c.value(data[start:end].tobytes()))


@kernel_like(_crc32c_of_library)
def crc32c(data: Bytes, start: int, end: int) -> int:
    """Return the CRC-32C of `data[start:end]`. O(n), up to 16 bytes per cycle."""
    data = borrowed(data)
    if start >= end:
        return 0
    _ = data[start], data[end - 1]  # so that NUMBA_BOUNDSCHECK=1 sees it
    crc = crc32c_register(data, start, end, CRC_BEGINNINGS[(start - end) & (CRC_BLOCK - 1)])
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
    """Write the low `size` bytes of `value`, big-endian, and return the position after them."""
    word = np.uint64(value)
    for index in range(size):
        shift = np.uint64(8 * (size - 1 - index))
        out[position + index] = np.uint8((word >> shift) & np.uint64(0xFF))
    return position + size


def _read_varint_plain(data: Bytes, position: int, end: int, max_bytes: int) -> Any:
    zigzag = shift = 0
    for place in range(position, min(end, position + max_bytes)):
        byte = int(data[place])  # `data` may be bytes
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            zigzag &= 0xFFFFFFFF if max_bytes == MAX_VARINT_BYTES else 0xFFFFFFFFFFFFFFFF
            return (zigzag >> 1) ^ -(zigzag & 1), place + 1
        shift += 7
    return 0, -1


@kernel_like(_read_varint_plain)
def read_varint(data: Bytes, position: int, end: int, max_bytes: int) -> Any:
    """Read a zigzag varint of at most `max_bytes` bytes at `position`.

    Returns (value int64, position after it int64). The position is -1 if the encoding is too long
    or runs past `end`. For a varint of 5 bytes, bits above the 32nd are dropped.
    """
    if position + 1 < end:
        place = np.uint64(position)  # an unsigned index avoids a wraparound check
        first, second = np.uint64(data[place]), np.uint64(data[place + np.uint64(1)])
        if first & second < np.uint64(0x80):
            # The choice between one and two bytes is unpredictable. A misprediction costs more than
            # both.
            more = first >> np.uint64(7)
            zigzag = (first & np.uint64(0x7F)) | ((second * more) << np.uint64(7))
            value = np.int64(zigzag >> np.uint64(1)) ^ -np.int64(zigzag & np.uint64(1))
            return value, position + 1 + np.int64(more)
    zigzag = np.uint64(0)
    shift = np.uint64(0)
    limit = min(end, position + max_bytes)
    while position < limit:
        byte = np.uint64(data[np.uint64(position)])
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
    """Return the number of bytes (1 to 10) in the zigzag encoding of a signed 64-bit `value`."""
    signed = np.int64(value)
    zigzag = np.uint64(signed << np.int64(1)) ^ np.uint64(signed >> np.int64(63))
    if zigzag < np.uint64(0x80):
        return 1
    size = 2
    zigzag >>= np.uint64(7)
    while zigzag >= np.uint64(0x80):
        zigzag >>= np.uint64(7)
        size += 1
    return size


@kernel
def write_varint(out: Bytes, position: int, value: Int) -> int:
    """Write the zigzag encoding of `value` at `position`, and return the position after it."""
    signed = np.int64(value)
    zigzag = np.uint64(signed << np.int64(1)) ^ np.uint64(signed >> np.int64(63))
    if zigzag < np.uint64(0x80):
        out[position] = np.uint8(zigzag)
        return position + 1
    if zigzag < np.uint64(0x4000):
        out[position] = np.uint8((zigzag & np.uint64(0x7F)) | np.uint64(0x80))
        out[position + 1] = np.uint8(zigzag >> np.uint64(7))
        return position + 2
    while zigzag >= np.uint64(0x80):
        out[position] = np.uint8((zigzag & np.uint64(0x7F)) | np.uint64(0x80))
        zigzag >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(zigzag)
    return position + 1


@kernel
def copy_bytes(source: Bytes, start: Int, end: Int, out: Bytes, position: int) -> int:
    """Copy `source[start:end]` to `out`, a different array, at `position`.

    Returns the position after the copied bytes.
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

    Returns (status, position after them). The status is OK or a `BAD_*` code.
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
def _short_varint(word: np.uint64) -> tuple[np.int64, np.int64, np.uint64]:
    """Decode a varint of one or two bytes at the low end of a word.

    Returns (value, bytes, other), where `other` is not 0 if the varint is longer or negative. There
    is no branch on the length, because a misprediction costs more than decoding two bytes.
    """
    more = (word >> np.uint64(7)) & np.uint64(1)
    second = (word >> np.uint64(2)) & np.uint64(0x1FC0) & (~more + np.uint64(1))
    value = np.int64(((word >> np.uint64(1)) & np.uint64(0x3F)) | second)
    other = (word & np.uint64(1)) | (more & (word >> np.uint64(15)))
    return value, np.int64(more) + np.int64(1), other


def _read_no_fields(data: Bytes, position: Any, end: Any) -> tuple[bool, RecordFields]:
    return False, _NO_FIELDS  # in plain Python, one way of parsing records is fastest


@kernel_like(_read_no_fields, inline=True)
def _read_short_fields(data: Bytes, position: Any, end: Any) -> tuple[bool, RecordFields]:
    """Parse a common record: key not null, timestamp of up to 3 bytes, other numbers of up to 2.

    Returns (found, RecordFields). If found, key, value and the start of the headers are within the
    record. All other records are left to `_read_any_fields`, which also detects errors.
    """
    if position + 10 > len(data):
        return False, _NO_FIELDS
    size, length, other = _short_varint(load_u64(data, position))
    start = position + length
    record_end = start + size
    word = load_u64(data, start) >> np.uint64(8)  # without the attributes
    lasts = ~word & np.uint64(0x808080)  # one of these bytes ends the timestamp
    last = lasts & (~lasts + np.uint64(1))
    bits = np.uint64(popcount(last - np.uint64(1)) + 1) & np.uint64(31)
    taken = word & (last + last - np.uint64(1))
    zigzag = (
        (taken & np.uint64(0x7F))
        | ((taken >> np.uint64(1)) & np.uint64(0x3F80))
        | ((taken >> np.uint64(2)) & np.uint64(0x1FC000))
    )
    timestamp_delta = np.int64(zigzag >> np.uint64(1)) ^ -np.int64(zigzag & np.uint64(1))
    word >>= bits
    offset_delta, length, wrong = _short_varint(word)
    other |= wrong
    key_length_position = start + 1 + np.int64(bits >> np.uint64(3)) + length
    key_size, key_length, wrong = _short_varint(word >> np.uint64(8 * length))
    other |= wrong
    key_start = key_length_position + key_length
    value_at = key_start + key_size
    if (
        (other != np.uint64(0))
        or lasts == np.uint64(0)
        or record_end > end
        or value_at + 2 > record_end
    ):
        return False, _NO_FIELDS
    place = np.uint64(value_at)
    word = np.uint64(data[place]) | (np.uint64(data[place + np.uint64(1)]) << np.uint64(8))
    value_size, length, other = _short_varint(word)
    is_null = word & np.uint64(0xFF) == np.uint64(1)
    value_start = value_at + length
    headers_start = value_start + value_size
    if (other != np.uint64(0) and not is_null) or headers_start >= record_end:
        return False, _NO_FIELDS
    return True, RecordFields(
        record_end,
        timestamp_delta,
        offset_delta,
        key_length_position,
        key_start,
        key_size,
        value_start,
        value_size - np.int64(is_null),
        headers_start,
    )


@kernel
def _read_any_fields(data: Bytes, position: Any, end: Any) -> tuple[int, RecordFields]:
    """Parse and check the record at `position` up to its headers."""
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
    return OK, RecordFields(
        record_end,
        timestamp_delta,
        offset_delta,
        key_length_position,
        key_start,
        key_size,
        value_start,
        value_size,
        value_start + max(value_size, np.int64(0)),
    )


@inline_kernel
def read_record(data: Bytes, position: Any, end: int) -> tuple[int, RecordFields]:
    """Parse and check the record at `position`, below `end`.

    Returns
    -------
    (status, RecordFields)
        `OK`, or the failed check, in which case the fields are undefined. Key, value and headers
        fill the record. O(bytes of headers and lengths), independent of keys and values.
    """
    data = borrowed(data)
    is_short, record = _read_short_fields(data, position, end)
    if not is_short:
        status, record = _read_any_fields(data, position, end)
        if status != OK:
            return status, record
    headers_start = record.headers_start
    if headers_start + 1 != record.end or data[np.uint64(headers_start)] != 0:
        status, headers_end = check_headers(data, headers_start, record.end)
        if status != OK:
            return status, record
        if headers_end != record.end:
            return RECORD_NOT_CONSUMED, record
    return OK, record


DECODED_COLUMNS = 2 + EXTENT_COLUMNS
"""Numbers per decoded record: offset, timestamp and extents."""

VERIFIED_ROWS = 64
"""Maximum number of records to decode before `_decode_plain` is tried again."""


@inline_kernel
def _signed(zigzag: np.uint64) -> np.int64:
    """Return the value of a zigzag number."""
    return np.int64(zigzag >> np.uint64(1)) ^ -np.int64(zigzag & np.uint64(1))


@kernel
def _decode_plain(
    data: Bytes,
    position: Any,
    end: int,
    row: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    table: Int64s,
) -> tuple[int, int]:
    """Decode records from `row` on as long as they are plain; see `decode_records`.

    A plain record has no headers, numbers of one or two bytes, and a key of up to 63 bytes. Few
    checks are needed: each step moves forward, so every step was within the record if the last one
    ends at its end. All other records, and damaged ones, are left to `read_record`.

    Returns (row, position) of the first record that was not decoded.
    """
    data, table = borrowed(data), borrowed(table)
    extent = 2 * count + EXTENT_COLUMNS * row
    while row < count and position + 8 <= end:
        _ = data[position], data[position + 7]  # so that NUMBA_BOUNDSCHECK=1 sees it
        word = load_u64(data, position)
        size, length, other = _short_varint(word)
        start = position + length
        record_end = start + size
        # The first byte of a record is its attributes, none of which is defined.
        word >>= np.uint64(8 * length + 8)
        key_start = start + 4
        stamp = word & np.uint64(0xFF)
        word >>= np.uint64(8)
        if stamp >= np.uint64(0x80):
            stamp = (stamp & np.uint64(0x7F)) | (word & np.uint64(0xFF)) << np.uint64(7)
            word >>= np.uint64(8)
            key_start += 1
        place = word & np.uint64(0xFF)
        word >>= np.uint64(8)
        if place >= np.uint64(0x80):
            place = (place & np.uint64(0x7F)) | (word & np.uint64(0xFF)) << np.uint64(7)
            word >>= np.uint64(8)
            key_start += 1
        key = word & np.uint64(0xFF)
        key_size = _signed(key)
        at = key_start + max(key_size, np.int64(0))
        if (
            other != np.uint64(0)
            or (stamp | place) >= np.uint64(0x4000)
            or place & np.uint64(1)  # negative
            or key >= np.uint64(0x80)
            or record_end > end
            or at + 2 > record_end
        ):
            break
        word = np.uint64(data[np.uint64(at)]) | np.uint64(data[np.uint64(at + 1)]) << np.uint64(8)
        value_size, length, other = _short_varint(word)
        is_null = word & np.uint64(0xFF) == np.uint64(1)
        value_start = at + length
        headers_start = value_start + value_size
        if (
            headers_start + 1 != record_end
            or data[np.uint64(headers_start)] != np.uint8(0)
            or (other != np.uint64(0) and not is_null)
            or key_size < -1
        ):
            break
        table[np.uint64(row)] = base_offset + np.int64(place >> np.uint64(1))
        table[np.uint64(count + row)] = base_timestamp + _signed(stamp)
        table[np.uint64(extent + EXTENT_START)] = position
        table[np.uint64(extent + EXTENT_END)] = record_end
        table[np.uint64(extent + EXTENT_KEY_START)] = key_start
        table[np.uint64(extent + EXTENT_KEY_SIZE)] = key_size
        table[np.uint64(extent + EXTENT_VALUE_START)] = value_start
        table[np.uint64(extent + EXTENT_VALUE_SIZE)] = value_size - np.int64(is_null)
        table[np.uint64(extent + EXTENT_HEADERS)] = headers_start
        extent += EXTENT_COLUMNS
        row += 1
        position = record_end
    return row, position


@kernel
def decode_records(
    data: Any,
    start: int,
    end: int,
    base_offset: int,
    base_timestamp: int,
    table: Int64s,
) -> tuple[int, int]:
    """Decode and check the records of an uncompressed section.

    Parameters
    ----------
    data : bytes
        Not an array, unlike in other kernels: batches are bytes, and wrapping bytes in an array
        takes as long as decoding a few dozen records.
    start, end
        The section is `data[start:end]`.
    base_offset, base_timestamp
        Added to the deltas of each record.
    table : (DECODED_COLUMNS * count,) int64, out
        The offsets of all records, then their timestamps, then the `EXTENT_*` of each record:
        positions and sizes in `data`. Its length determines the number of records.

    Returns
    -------
    (status, index)
        The index of the invalid record, or the number of records if OK. O(bytes of headers and
        lengths), independent of keys and values.
    """
    data, table = borrowed(data), borrowed(table)
    count = len(table) // DECODED_COLUMNS
    # In plain Python, sums wrap as in Java only if both terms are numpy's.
    first_offset: Any = np.int64(base_offset)
    first_timestamp: Any = np.int64(base_timestamp)
    position: Any = start
    row = 0
    careful = 1
    while row < count:
        tried = row
        row, position = _decode_plain(
            data, position, end, row, count, first_offset, first_timestamp, table
        )
        # Adjacent records are similar, so try plain decoding less often after each failure.
        careful = min(2 * careful, VERIFIED_ROWS) if row == tried else 1
        stop = min(row + careful, count)
        while row < stop:
            if position >= end:
                return PREMATURE_END, row
            status, record = read_record(data, position, end)
            if status != OK:
                return status, row
            table[row] = first_offset + record.offset_delta
            table[count + row] = first_timestamp + record.timestamp_delta
            extent = table[2 * count + EXTENT_COLUMNS * row :]
            extent[EXTENT_START] = position
            extent[EXTENT_END] = record.end
            extent[EXTENT_KEY_START] = record.key_start
            extent[EXTENT_KEY_SIZE] = max(record.key_size, -1)
            extent[EXTENT_VALUE_START] = record.value_start
            extent[EXTENT_VALUE_SIZE] = max(record.value_size, -1)
            extent[EXTENT_HEADERS] = record.headers_start
            position = record.end
            row += 1
    if position != end:
        return RECORDS_REMAINING, count
    return OK, count


@inline_kernel
def _put_record(
    out: Bytes,
    position: int,
    timestamp_delta: Int,
    offset_delta: Int,
    key_data: Bytes,
    key_start: Int,
    key_size: Int,
    value_data: Bytes,
    value_start: Int,
    value_size: Int,
    header_data: Bytes,
    header_start: Int,
    header_size: Int,
) -> int:
    """Write one record at `position` and return the position after it; see `encode_batches`."""
    body = (
        1
        + varint_size(timestamp_delta)
        + varint_size(offset_delta)
        + varint_size(key_size)
        + max(key_size, np.int64(0))
        + varint_size(value_size)
        + max(value_size, np.int64(0))
        + header_size
    )
    position = write_varint(out, position, np.int64(body))
    out[position] = np.uint8(0)
    position = write_varint(out, position + 1, timestamp_delta)
    position = write_varint(out, position, offset_delta)
    position = write_varint(out, position, key_size)
    if key_size > 0:
        position = copy_bytes(key_data, key_start, key_start + key_size, out, position)
    position = write_varint(out, position, value_size)
    if value_size > 0:
        position = copy_bytes(value_data, value_start, value_start + value_size, out, position)
    if header_size == 1:  # no headers; a call to copy one byte takes as long as copying a key
        out[position] = np.uint8(0)
        return position + 1
    return copy_bytes(header_data, header_start, header_start + header_size, out, position)


PLANNED_ROWS = 64
"""Number of records planned at once."""

PLANNED_VARINT = np.uint64(1 << 28)
"""Zigzag values below this take at most four bytes. A planned record only has such values."""

OUT_SLACK = 128
"""Bytes needed after the key and value of a planned record, for its lengths and for whole-block
copies, whose excess is overwritten by the next record."""


@inline_kernel
def _zigzag(value: Int) -> np.uint64:
    """Return the zigzag encoding of `value`, with the sign in the lowest bit."""
    signed = np.int64(value)
    return np.uint64(signed << np.int64(1)) ^ np.uint64(signed >> np.int64(63))


@inline_kernel
def _planned_size(zigzag: np.uint64) -> np.uint64:
    """Return the size of a varint below `PLANNED_VARINT`."""
    return (
        np.uint64(1)
        + np.uint64(zigzag > np.uint64(0x7F))
        + np.uint64(zigzag > np.uint64(0x3FFF))
        + np.uint64(zigzag > np.uint64(0x1FFFFF))
    )


@inline_kernel
def _planned_word(zigzag: np.uint64) -> np.uint64:
    """Return the bytes of a varint below `PLANNED_VARINT`, first byte lowest."""
    return (
        (zigzag & np.uint64(0x7F))
        | (zigzag & np.uint64(0x3F80)) << np.uint64(1)
        | (zigzag & np.uint64(0x1FC000)) << np.uint64(2)
        | (zigzag & np.uint64(0xFE00000)) << np.uint64(3)
        | np.uint64(zigzag > np.uint64(0x7F)) << np.uint64(7)
        | np.uint64(zigzag > np.uint64(0x3FFF)) << np.uint64(15)
        | np.uint64(zigzag > np.uint64(0x1FFFFF)) << np.uint64(23)
    )


@kernel
def _plan_records(
    first: int,
    start: int,
    stop: int,
    base_timestamp: int,
    timestamps: Int64s,
    key_sizes: Int32s,
    value_sizes: Int32s,
    fronts: UInt64s,
    middles: UInt64s,
) -> int:
    """Encode lengths and deltas of rows [start, stop) in a batch that starts at row `first`.

    The loop treats records independently and has no branches, so the compiler vectorizes it.

    Parameters
    ----------
    fronts : (stop - start,) uint64, out
        Up to 8 bytes before each key, first byte lowest.
    middles : (stop - start,) uint64, out
        Up to 4 bytes between key and value; their number in the fifth byte and the size of the
        front in the sixth. 0 for a record whose numbers take more bytes.

    Returns
    -------
    int
        The largest timestamp.
    """
    largest = base_timestamp
    for index in range(stop - start):
        row = np.uint64(start + index)  # unsigned, which avoids wraparound
        timestamp = timestamps[row]
        largest = max(largest, timestamp)
        key_size = np.int64(key_sizes[row])
        value_size = np.int64(value_sizes[row])
        stamp = _zigzag(timestamp - base_timestamp)
        place = np.uint64(start + index - first) << np.uint64(1)
        key = _zigzag(key_size)
        value = _zigzag(value_size)
        stamp_size = _planned_size(stamp)
        place_size = _planned_size(place)
        key_length_size = _planned_size(key)
        value_length_size = _planned_size(value)
        sizes = stamp_size + place_size + key_length_size + value_length_size
        # One byte each for the attributes and the header count.
        contents = max(key_size, np.int64(0)) + max(value_size, np.int64(0)) + np.int64(2)
        body = (sizes + np.uint64(contents)) << np.uint64(1)
        body_size = _planned_size(body)
        shift = (body_size + np.uint64(1)) << np.uint64(3)
        front = _planned_word(body) | _planned_word(stamp) << shift
        shift += stamp_size << np.uint64(3)
        front |= _planned_word(place) << shift
        shift += place_size << np.uint64(3)
        front |= _planned_word(key) << shift
        front_size = body_size + np.uint64(1) + stamp_size + place_size + key_length_size
        middle = (
            _planned_word(value) | value_length_size << np.uint64(32) | front_size << np.uint64(40)
        )
        largest_number = stamp | place | key | value | body
        is_planned = (largest_number < PLANNED_VARINT) & (front_size <= np.uint64(8))
        fronts[np.uint64(index)] = front
        middles[np.uint64(index)] = middle if is_planned else np.uint64(0)
    return largest


@inline_kernel
def _put_bytes(source: Bytes, start: Int, size: Int, out: Bytes, position: int) -> int:
    """Copy bytes and return the position after them. May overwrite up to a block after them."""
    if size > 2 * COPY_BLOCK or start + size + COPY_BLOCK > len(source):
        return copy_bytes(source, start, start + size, out, position)
    _ = source[start], out[position + size]  # so that NUMBA_BOUNDSCHECK=1 sees it
    copy_block(source, start, out, position)  # type: ignore[arg-type]  # numba's int is one
    if size > COPY_BLOCK:
        copy_block(source, start + COPY_BLOCK, out, position + COPY_BLOCK)  # type: ignore[arg-type]
    return position + size  # type: ignore[return-value]


@kernel
def _put_planned(
    start: int,
    row: int,
    stop: int,
    fronts: UInt64s,
    middles: UInt64s,
    key_data: Bytes,
    key_starts: Int64s,
    key_sizes: Int32s,
    value_data: Bytes,
    value_starts: Int64s,
    value_sizes: Int32s,
    out: Bytes,
    position: Any,
) -> tuple[int, int]:
    """Write the planned records of rows [row, stop), up to the first one that is not planned.

    Returns (row, position) after them.
    """
    key_data, value_data, out = borrowed(key_data), borrowed(value_data), borrowed(out)
    room = len(out) - OUT_SLACK
    while row < stop:
        at = np.uint64(row)
        key_size = max(np.int64(key_sizes[at]), np.int64(0))
        value_size = max(np.int64(value_sizes[at]), np.int64(0))
        middle = middles[np.uint64(row - start)]
        if middle == np.uint64(0) or position + key_size + value_size > room:
            break
        # The start of a null or empty string is undefined, and no bytes are copied.
        key_start = key_starts[at] if key_size > 0 else np.int64(0)
        value_start = value_starts[at] if value_size > 0 else np.int64(0)
        store_u64(out, position, fronts[np.uint64(row - start)])
        position += np.int64(middle >> np.uint64(40))
        position = _put_bytes(key_data, key_start, key_size, out, position)
        store_u64(out, position, middle)
        position += np.int64((middle >> np.uint64(32)) & np.uint64(0xFF))
        position = _put_bytes(value_data, value_start, value_size, out, position)
        out[np.uint64(position)] = np.uint8(0)  # no headers
        position += 1
        row += 1
    return row, position


@inline_kernel
def _put_header(
    out: Bytes,
    start: int,
    end: int,
    base_offset: Int,
    leader_epoch: int,
    attributes: int,
    count: Int,
    base_timestamp: Int,
    max_timestamp: Int,
) -> None:
    """Write the header of the batch `out[start:end]` before its records. See `layout`."""
    _ = out[start], out[start + HEADER_SIZE - 1]  # so that NUMBA_BOUNDSCHECK=1 sees it
    store_be_i64(out, start + BASE_OFFSET_POSITION, base_offset)
    store_be_i32(out, start + BATCH_LENGTH_POSITION, end - start - LOG_OVERHEAD)
    store_be_i32(out, start + PARTITION_LEADER_EPOCH_POSITION, leader_epoch)
    out[start + MAGIC_POSITION] = np.uint8(MAGIC)
    write_be(out, start + ATTRIBUTES_POSITION, attributes, 2)
    store_be_i32(out, start + LAST_OFFSET_DELTA_POSITION, count - 1)
    store_be_i64(out, start + BASE_TIMESTAMP_POSITION, base_timestamp)
    store_be_i64(out, start + MAX_TIMESTAMP_POSITION, max_timestamp)
    store_be_i64(out, start + PRODUCER_ID_POSITION, np.int64(NO_PRODUCER_ID))
    write_be(out, start + PRODUCER_EPOCH_POSITION, np.int64(NO_PRODUCER_EPOCH), 2)
    store_be_i32(out, start + BASE_SEQUENCE_POSITION, np.int64(NO_SEQUENCE))
    store_be_i32(out, start + RECORD_COUNT_POSITION, count)
    checksum = crc32c(out, start + ATTRIBUTES_POSITION, end)
    store_be_i32(out, start + CRC_POSITION, checksum)


@kernel
def find_bounds(
    key_sizes: Int32s, value_sizes: Int32s, overhead: int, room: int, most: int, bounds: Int64s
) -> int:
    """Divide records into batches and return the number of batches.

    Parameters
    ----------
    key_sizes, value_sizes : (n,) int32
        -1 for null.
    overhead : int
        Maximum size of a record excluding key and value.
    room, most : int
        Maximum bytes and records per batch. A larger record gets its own batch.
    bounds : (n + 1,) int64, out
        Batch i has the rows [bounds[i], bounds[i + 1]). The last batch might have room for more.
    """
    count = 0
    bounds[0] = 0
    size = 0
    for index in range(len(key_sizes)):
        record = overhead + np.int64(max(key_sizes[index], 0)) + max(value_sizes[index], 0)
        held = index - bounds[count]
        if held > 0 and (size + record > room or held == most):
            count += 1
            bounds[count] = index
            size = 0
        size += record
    bounds[count + 1] = len(key_sizes)
    return count + 1


@kernel
def encode_batches(
    first_offset: int,
    leader_epoch: int,
    attributes: int,
    bounds: Int64s,
    timestamps: Int64s,
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
    extents: Int64s,
) -> Any:
    """Write consecutive uncompressed batches without a producer, including the CRC.

    Parameters
    ----------
    first_offset, leader_epoch, attributes
        Offset of the first record; epoch and attributes of all batches. Offsets are consecutive.
    bounds : (n + 1,) int64
        Batch i has the rows [bounds[i], bounds[i + 1]), which must not be empty.
    timestamps, key_sizes, value_sizes
        One row per record; size -1 means null.
    header_data, header_starts, header_sizes
        The header count and headers of each record, at least one byte. Empty if no record has
        headers.
    out
        Must have room for all batches.
    extents : (n, 3) int64, out
        Last offset, maximum timestamp and size in bytes of each batch.

    Returns
    -------
    int
        The number of bytes written. O(bytes).
    """
    key_data, value_data, header_data = (
        borrowed(key_data),
        borrowed(value_data),
        borrowed(header_data),
    )
    timestamps, key_starts, key_sizes, value_starts, value_sizes = (
        borrowed(timestamps),
        borrowed(key_starts),
        borrowed(key_sizes),
        borrowed(value_starts),
        borrowed(value_sizes),
    )
    header_starts, header_sizes = borrowed(header_starts), borrowed(header_sizes)
    out = borrowed(out)
    plan = np.empty(2 * PLANNED_ROWS, np.uint64)
    fronts, middles = borrowed(plan[:PLANNED_ROWS]), borrowed(plan[PLANNED_ROWS:])
    has_headers = len(header_sizes) > 0
    end: Any = 0  # end of the bytes written
    for batch in range(len(bounds) - 1):
        first = bounds[batch]
        last = bounds[batch + 1]
        start = end
        base_offset = first_offset + first - bounds[0]
        base_timestamp = timestamps[first]
        largest = base_timestamp
        end = start + HEADER_SIZE
        for block in range(first, last, PLANNED_ROWS):
            stop = min(last, block + PLANNED_ROWS)
            planned = _plan_records(
                first,
                block,
                stop,
                base_timestamp,
                timestamps,
                key_sizes,
                value_sizes,
                fronts,
                middles,
            )
            largest = max(largest, planned)
            row = block
            while row < stop:
                header_start = np.int64(0)
                header_size = np.int64(1)
                if has_headers:
                    header_start = header_starts[row]
                    header_size = np.int64(header_sizes[row])
                else:
                    row, end = _put_planned(
                        block,
                        row,
                        stop,
                        fronts,
                        middles,
                        key_data,
                        key_starts,
                        key_sizes,
                        value_data,
                        value_starts,
                        value_sizes,
                        out,
                        end,
                    )
                if row < stop:
                    end = _put_record(
                        out,
                        end,
                        timestamps[row] - base_timestamp,
                        row - first,
                        key_data,
                        key_starts[row],
                        np.int64(key_sizes[row]),
                        value_data,
                        value_starts[row],
                        np.int64(value_sizes[row]),
                        header_data,
                        header_start,
                        header_size,
                    )
                    row += 1
        _put_header(
            out,
            start,
            end,
            base_offset,
            leader_epoch,
            attributes,
            last - first,
            base_timestamp,
            largest,
        )
        extents[batch, 0] = base_offset + last - first - 1
        extents[batch, 1] = largest
        extents[batch, 2] = end - start
    return end
