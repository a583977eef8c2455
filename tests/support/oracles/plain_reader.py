"""A reader of `.log` files that shares no code with the engine: `struct` and codec libraries.

It reads batches of format 2 only, as specified, and checks no CRC.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import cramjam
import zstandard

# base offset, size, epoch, magic, CRC, attributes, last delta, base and largest timestamp,
# producer id, epoch and sequence, count
HEADER = struct.Struct(">qiibIhiqqqhii")
SIZE_STARTS_AT = 12
CODEC_BITS, BY_LOG_BIT, CONTROL_BIT = 0x07, 0x08, 0x20
XERIAL = b"\x82SNAPPY\x00"


class PlainRecord(NamedTuple):
    """A record as stored in a file."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def plain_records(folder: Path) -> Iterator[PlainRecord]:
    """Yield the data records of a partition's folder, segment by segment."""
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        position = 0
        while position + HEADER.size <= len(data):
            fields = HEADER.unpack_from(data, position)
            base, size, attributes, first_ms, largest_ms, count = (
                fields[at] for at in (0, 1, 5, 7, 8, 12)
            )
            end = position + SIZE_STARTS_AT + size
            section = _unpacked(attributes & CODEC_BITS, data[position + HEADER.size : end])
            position = end
            if attributes & CONTROL_BIT:
                continue
            at = 0
            for _ in range(count):
                length, at = _varint(section, at)
                record = section[at : at + length]
                at += length
                by_log = largest_ms if attributes & BY_LOG_BIT else None
                yield _record(record, base, first_ms, by_log)


def _record(data: bytes, base: int, first_ms: int, by_log: int | None) -> PlainRecord:
    ms, at = _varint(data, 1)
    delta, at = _varint(data, at)
    key, at = _bytes(data, at)
    value, at = _bytes(data, at)
    count, at = _varint(data, at)
    headers = []
    for _ in range(count):
        name, at = _bytes(data, at)
        content, at = _bytes(data, at)
        headers.append(((name or b"").decode(), content))
    timestamp = first_ms + ms if by_log is None else by_log
    return PlainRecord(base + delta, timestamp, int(by_log is not None), key, value, headers)


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


def _unpacked(codec: int, data: bytes) -> bytes:
    if not data or codec == 0:
        return data
    if codec == 1:
        return gzip.decompress(data)
    if codec == 2:
        return _snappy(data)
    if codec == 3:
        return bytes(cramjam.lz4.decompress(data))
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def _snappy(data: bytes) -> bytes:
    if not data.startswith(XERIAL):
        return bytes(cramjam.snappy.decompress_raw(data))
    at, blocks = 16, []
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        blocks.append(bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size])))
        at += 4 + size
    return b"".join(blocks)
