"""Records in plain Python: used for small batches, and as the oracle of the kernels.

A record has a length, attributes, timestamp and offset deltas, key, value and headers. All except
the attributes are varints (storage-format §2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from logstore.errors import InvalidRecordError
from logstore.record.varint import decode_varint, decode_varlong, encode_varint, wrap_int64
from logstore.types import INT64_MAX, INT64_MIN

Header = tuple[str, bytes | None]
"""Name and value of a record header. Order is significant and names may repeat."""


class Record(NamedTuple):
    """A record as stored. `key` and `value` may be null.

    Header names that are not UTF-8 are decoded with `surrogateescape`.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


RecordRow = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]
"""Fields of a `Record`, as a plain tuple."""


class NewRecord(NamedTuple):
    """A record to append. The timestamp defaults to the log's clock."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: tuple[Header, ...] = ()


NO_HEADERS = b"\x00"
"""Encoded headers of a record without headers: a count of 0."""


def encode_headers(headers: Sequence[Header]) -> bytes:
    """Encode the header count and headers."""
    if not headers:
        return NO_HEADERS
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        name_bytes = name.encode("utf-8", "surrogateescape")
        parts.append(encode_varint(len(name_bytes)))
        parts.append(name_bytes)
        if value is None:
            parts.append(b"\x01")
        else:
            parts.append(encode_varint(len(value)))
            parts.append(value)
    return b"".join(parts)


Row = tuple[int, int, bytes | None, bytes | None, Sequence[Header]]
"""A record relative to its batch: timestamp delta, offset delta, key, value, headers."""

_SIZES = tuple(encode_varint(size) for size in range(1024))
"""Encodings of small sizes and deltas. Few keys, values and batches are larger."""


def encode_record(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: bytes = NO_HEADERS,
) -> bytes:
    """Encode a record, including its length. `headers` must be encoded with `encode_headers`."""
    return b"".join(record_parts(timestamp_delta, offset_delta, key, value, headers))


def record_parts(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: bytes,
) -> tuple[bytes, ...]:
    """Return the parts of `encode_record`, for callers that join several records."""
    stamp = b"\x00" if timestamp_delta == 0 else encode_varint(timestamp_delta)
    place = _SIZES[offset_delta] if 0 <= offset_delta < 1024 else encode_varint(offset_delta)
    if key is None:
        key_size, key = b"\x01", b""
    else:
        size = len(key)
        key_size = _SIZES[size] if size < 1024 else encode_varint(size)
    if value is None:
        value_size, value = b"\x01", b""
    else:
        size = len(value)
        value_size = _SIZES[size] if size < 1024 else encode_varint(size)
    size = 1 + len(stamp) + len(place) + len(key_size) + len(key) + len(value_size) + len(value)
    size += len(headers)
    return (
        _SIZES[size] if size < 1024 else encode_varint(size),
        b"\x00",
        stamp,
        place,
        key_size,
        key,
        value_size,
        value,
        headers,
    )


def encode_rows(rows: Iterable[Row]) -> bytes:
    """Encode an uncompressed records section.

    The caller must ensure that offset deltas fit into 31 bits and timestamp deltas into 64 bits.
    """
    parts: list[bytes] = []
    for timestamp_delta, offset_delta, key, value, headers in rows:
        encoded = encode_headers(headers) if headers else NO_HEADERS
        parts += record_parts(timestamp_delta, offset_delta, key, value, encoded)
    return b"".join(parts)


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    """Encode an uncompressed records section.

    The caller must ensure that offsets are within 31 bits above the base. Timestamp deltas wrap at
    64 bits.
    """
    return encode_rows(
        (
            wrap_int64(record.timestamp - base_timestamp),
            record.offset - base_offset,
            record.key,
            record.value,
            record.headers,
        )
        for record in records
    )


def decode_headers(
    section: bytes | memoryview, position: int, end: int
) -> tuple[tuple[Header, ...], int]:
    """Decode the header count and headers at `position`. Return the headers and their end."""
    count, position = decode_varint(section, position, end)
    if count < 0:
        raise InvalidRecordError(f"negative header count {count}")
    if count > end - position:
        raise InvalidRecordError(f"{count} headers cannot fit the {end - position} bytes left")
    headers: list[Header] = []
    for _ in range(count):
        size, position = decode_varint(section, position, end)
        if size < 0:
            raise InvalidRecordError(f"negative header key length {size}")
        name, position = _take(section, position, size, end, "header key")
        size, position = decode_varint(section, position, end)
        value = None
        if size >= 0:
            value, position = _take(section, position, size, end, "header value")
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def decode_records(
    section: bytes | memoryview,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None = None,
) -> list[Record]:
    """Decode the `count` records of an uncompressed section.

    Parameters
    ----------
    section : bytes-like
        All bytes after the batch header, decompressed.
    count, base_offset, base_timestamp : int
        Fields of the batch header.
    append_time : int, optional
        maxTimestamp of a LogAppendTime batch, which is the timestamp of all its records. If None,
        timestamps are base plus delta, wrapping at 64 bits as in Java.

    Raises
    ------
    InvalidRecordError
        A read rule of storage-format §2 is violated.
    """
    if count < 0:
        raise InvalidRecordError(f"negative record count {count}")
    data = section if isinstance(section, bytes) else bytes(section)
    records, position = _decode_rows(
        data, 0, range(count), count, base_offset, base_timestamp, append_time
    )
    _check_end(data, position, count)
    return records


def decode_windows(
    section: bytes | memoryview,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None = None,
    *,
    rows_max: int,
) -> Iterator[list[Record]]:
    """Decode the records of a section into one or more lists of at most `rows_max` records.

    Parameters and errors are as in `decode_records`. An error is raised when the list with the
    invalid record is decoded.
    """
    if count < 0:
        raise InvalidRecordError(f"negative record count {count}")
    data = section if isinstance(section, bytes) else bytes(section)
    position = 0
    for first in range(0, max(count, 1), rows_max):
        rows = range(first, min(first + rows_max, count))
        records, position = _decode_rows(
            data, position, rows, count, base_offset, base_timestamp, append_time
        )
        if rows.stop == count:
            _check_end(data, position, count)
        yield records


def _check_end(data: bytes, position: int, count: int) -> None:
    if position != len(data):
        raise InvalidRecordError(
            f"records remaining: {len(data) - position} bytes after {count} records"
        )


def _decode_rows(
    data: bytes,
    position: int,
    rows: range,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
) -> tuple[list[Record], int]:
    """Decode records of a section from a position on. Return the records and their end."""
    records: list[Record] = []
    end = len(data)
    for row in rows:
        if position >= end:
            raise InvalidRecordError(f"premature end: {row} of {count} records in {end} bytes")
        plain = _decode_plain(data, position, end)
        if plain is None:
            timestamp_delta, offset_delta, key, value, headers, position = _decode_record(
                data, position, end
            )
        else:
            timestamp_delta, offset_delta, key, value, position = plain
            headers = ()
        if append_time is not None:
            timestamp = append_time
        else:
            timestamp = base_timestamp + timestamp_delta
            if not INT64_MIN <= timestamp <= INT64_MAX:
                timestamp = wrap_int64(timestamp)
        offset = base_offset + offset_delta
        if offset > INT64_MAX:
            offset = wrap_int64(offset)
        records.append(Record(offset, timestamp, key, value, headers))
    return records, position


_Plain = tuple[int, int, bytes | None, bytes | None, int]
_Decoded = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...], int]


def _decode_plain(data: bytes, position: int, end: int) -> _Plain | None:
    """Parse a record without headers, all of whose numbers have one or two bytes.

    Returns the deltas, key, value and end of the record, or None if the record has a different form
    or is damaged (`_decode_record` finds out). Intermediate steps need no checks: each step moves
    forward, so every step was within the record if the last one ends at its end.
    """
    try:
        number = data[position]
        position += 1
        if number >= 0x80:
            number += (data[position] << 7) - 0x80
            position += 1
            if number >= 0x4000:
                return None
        record_end = position + (number >> 1)
        if number & 1 or record_end > end:
            return None
        position += 1  # skip the attributes, which are all undefined
        stamp = data[position]
        position += 1
        if stamp >= 0x80:
            stamp += (data[position] << 7) - 0x80
            position += 1
            if stamp >= 0x4000:
                return None
        place = data[position]
        position += 1
        if place >= 0x80:
            place += (data[position] << 7) - 0x80
            position += 1
            if place >= 0x4000:
                return None
        if place & 1:
            return None
        key = value = None
        number = data[position]
        position += 1
        if number != 1:
            if number >= 0x80:
                number += (data[position] << 7) - 0x80
                position += 1
            if number & 1 or number >= 0x4000:
                return None
            start, position = position, position + (number >> 1)
            key = data[start:position]
        number = data[position]
        position += 1
        if number != 1:
            if number >= 0x80:
                number += (data[position] << 7) - 0x80
                position += 1
            if number & 1 or number >= 0x4000:
                return None
            start, position = position, position + (number >> 1)
            value = data[start:position]
        if data[position] != 0 or position + 1 != record_end:
            return None
    except IndexError:
        return None
    return stamp >> 1 ^ -(stamp & 1), place >> 1, key, value, record_end


def _decode_record(data: bytes, position: int, end: int) -> _Decoded:
    """Parse any record, with all checks.

    Returns the deltas, key, value, headers and end of the record.
    """
    size, position = decode_varint(data, position, end)
    record_end = position + size
    if size < 1 or record_end > end:
        raise InvalidRecordError(f"record of {size} bytes in a section with {end - position} left")
    timestamp_delta, position = decode_varlong(data, position + 1, record_end)
    offset_delta, position = decode_varint(data, position, record_end)
    if offset_delta < 0:
        raise InvalidRecordError(f"negative offset delta {offset_delta}")
    key_size, position = decode_varint(data, position, record_end)
    key = value = None
    if key_size >= 0:
        key, position = _take(data, position, key_size, record_end, "key")
    value_size, position = decode_varint(data, position, record_end)
    if value_size >= 0:
        value, position = _take(data, position, value_size, record_end, "value")
    headers, position = decode_headers(data, position, record_end)
    if position != record_end:
        raise InvalidRecordError(
            f"record of {size} bytes has {record_end - position} bytes left unread"
        )
    return timestamp_delta, offset_delta, key, value, headers, position


def _take(
    section: bytes | memoryview, position: int, size: int, end: int, what: str
) -> tuple[bytes, int]:
    if size > end - position:
        raise InvalidRecordError(f"{what} of {size} bytes in a record with {end - position} left")
    return bytes(section[position : position + size]), position + size
