"""A second decoder of a log's bytes: plain Python, written from the documents only.

Nothing here shares code with the engine but the value types, so that both being wrong alike takes
the same mistake twice.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import google_crc32c

from logstore.record.records import Record

HEADER = struct.Struct(">qiibIhiqqqhii")
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Batch(NamedTuple):
    """A batch found by a walk: its position, and its header if it has 61 bytes."""

    position: int
    data: bytes
    base_offset: int
    epoch: int
    crc: int
    attributes: int
    delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.delta

    @property
    def is_sound(self) -> bool:
        """61 bytes at least, and the CRC is right."""
        return len(self.data) >= 61 and google_crc32c.value(self.data[21:]) == self.crc

    @property
    def codec(self) -> int:
        return self.attributes & 7

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def append_time(self) -> int | None:
        return self.max_timestamp if self.attributes & 8 else None


class Walk(NamedTuple):
    """The whole batches, and how it ended: `end`, `corrupt` or `unsupported`, and where."""

    batches: list[Batch]
    ending: str
    position: int


def walk(data: bytes, *, is_file: bool) -> Walk:
    """Walk a buffer or a file by the table of storage-format §4.2."""
    batches: list[Batch] = []
    at = 0
    while True:
        left = len(data) - at
        if left < 12 or (is_file and left <= 17):
            return Walk(batches, "end", at)
        (length,) = struct.unpack_from(">i", data, at + 8)
        if length < 14:
            return Walk(batches, "corrupt", at)
        size = length + 12
        if left < 17 or (is_file and size > left):
            return Walk(batches, "end", at)
        magic = data[at + 16]
        if magic > 2:
            return Walk(batches, "corrupt", at)
        if size > left:
            return Walk(batches, "end", at)
        entry = data[at : at + size]
        if magic < 2:
            (stored,) = struct.unpack_from(">I", entry, 12)
            ending = "unsupported" if zlib.crc32(entry[16:]) == stored else "corrupt"
            return Walk(batches, ending, at)
        batches.append(_batch(at, entry))
        at += size


def is_torn(data: bytes, walked: Walk) -> bool:
    """Return whether the rest of a walk is a torn batch with no valid batch after it."""
    left = data[walked.position :]
    last = walked.batches[-1].last_offset if walked.batches else -1
    if walked.ending != "end" or not left:
        return False

    def is_sound(entry: bytes) -> bool:
        taken = _batch(0, entry)
        return (
            taken.is_sound
            and taken.codec <= 4
            and taken.delta >= 0
            and taken.record_count >= 0
            and last < taken.base_offset <= INT32_MAX
        )

    if len(left) >= 17:
        (base_offset,) = struct.unpack_from(">q", left, 0)
        if left[16] != 2 or not last < base_offset <= INT32_MAX or is_sound(left):
            return False
    for at in range(1, len(left) - 60):
        (length,) = struct.unpack_from(">i", left, at + 8)
        is_whole = 49 <= length <= len(left) - at - 12
        if left[at + 16] == 2 and is_whole and is_sound(left[at : at + 12 + length]):
            return False
    return True


def one_batch(data: bytes) -> Batch:
    """Take all of `data` for one batch, whatever its length says."""
    return _batch(0, data)


def _batch(position: int, entry: bytes) -> Batch:
    fields = HEADER.unpack_from(entry.ljust(61, b"\0"))
    base, _, epoch, _, crc, attributes, delta, base_time, max_time, pid, _, _, count = fields
    return Batch(
        position, entry, base, epoch, crc, attributes, delta, base_time, max_time, pid, count
    )


class BadRecordError(Exception):
    """The section breaks a read rule of storage-format §2."""


def decode(
    section: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> list[Record]:
    """Decode an uncompressed section; `BadRecordError` if it breaks a rule."""
    reader = _Reader(section)
    if count < 0:
        raise BadRecordError
    records = []
    for _ in range(count):
        size = reader.number(5)
        body = _Reader(reader.take(size))
        body.take(1)
        timestamp = _signed(base_timestamp + body.number(10), 64)
        delta = body.number(5)
        if delta < 0:
            raise BadRecordError
        key, value = body.field(), body.field()
        header_count = body.number(5)
        if not 0 <= header_count <= body.left:
            raise BadRecordError
        headers = []
        for _ in range(header_count):
            name = body.take(body.number(5))
            headers.append((name.decode("utf-8", "surrogateescape"), body.field()))
        if body.left:
            raise BadRecordError
        if append_time is not None:
            timestamp = append_time
        offset = _signed(base_offset + delta, 64)
        records.append(Record(offset, timestamp, key, value, tuple(headers)))
    if reader.left:
        raise BadRecordError
    return records


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise BadRecordError
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, bytes_max: int) -> int:
        zigzag = 0
        for index in range(bytes_max):
            (byte,) = self.take(1)
            zigzag |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                bits = 32 if bytes_max == 5 else 64
                zigzag &= (1 << bits) - 1
                return zigzag >> 1 if zigzag % 2 == 0 else -(zigzag >> 1) - 1
        raise BadRecordError

    def field(self) -> bytes | None:
        size = self.number(5)
        return None if size < 0 else self.take(size)


def rises(
    batches: list[Batch],
    base_offset: int = 0,
    end_offset: int = INT64_MAX,
    *,
    wide: bool = False,
) -> int:
    """Return how many batches, from the first on, are within their segment's offsets.

    With `wide` an offset may lie more than 2^31-1 above the base.
    """
    previous = base_offset - 1
    for index, batch in enumerate(batches):
        fits = previous < batch.base_offset <= batch.last_offset < end_offset
        if not fits or (not wide and batch.last_offset > base_offset + INT32_MAX):
            return index
        previous = batch.last_offset
    return len(batches)
