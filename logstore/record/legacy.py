"""Read-only support for messages of magic 0 and 1, and conversion to batches of magic 2.

Offset  Size  Field        Type  Under the CRC
     0     8  offset       i64   no; last message's offset if compressed
     8     4  messageSize  i32   no; bytes after this field
    12     4  crc          u32   no; CRC-32 (zlib) of bytes 16 to the end
    16     1  magic        i8    yes; 0 or 1
    17     1  attributes   i8    yes; codec in bits 0-2, timestamp type in bit 3 (magic 1)
    18     8  timestamp    i64   yes; only magic 1
     -     4  keyLength    i32   yes; -1 is null
     -     -  key                yes
     -     4  valueLength  i32   yes; -1 is null
     -     -  value              yes; the inner messages if compressed

All numbers are big-endian. In a compressed message of magic 1, the inner offsets are relative, and
the outer offset is the last inner offset. In magic 0, inner offsets are absolute. Source: KIP-31,
KIP-32, and Kafka's RecordsIterator.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from logstore.errors import InvalidRecordError
from logstore.record import layout
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec, decompress
from logstore.record.records import Record
from logstore.types import NO_TIMESTAMP, TimestampType

MAGICS = (0, 1)

_HEAD = struct.Struct(">qiIbb")
_LENGTH = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
assert _HEAD.size == 18


class OldMessage(NamedTuple):
    """A log entry: a message, or a compressed set of messages.

    Attributes
    ----------
    timestamp : int
        In milliseconds, or -1 for magic 0.
    timestamp_type : TimestampType or None
        None for magic 0.
    """

    offset: int
    size_bytes: int
    crc: int
    magic: int
    codec_id: int
    timestamp: int
    timestamp_type: TimestampType | None
    key: bytes | None
    value: bytes | None

    def records(self, limit: int) -> list[Record]:
        """Return the record of the message, or the records of the set; see `entries`."""
        return [record for _, record in self.entries(limit)]

    def entries(self, limit: int) -> list[tuple[OldMessage, Record]]:
        """Return the message, or each message of the set, as stored and as a record.

        Parameters
        ----------
        limit : int
            Maximum decompressed size in bytes.

        Raises
        ------
        InvalidRecordError, CorruptRecordError
            The set is empty, nested or malformed.
        """
        if not self.codec_id:
            return [(self, Record(self.offset, self.timestamp, self.key, self.value))]
        if self.value is None:
            raise InvalidRecordError("a compressed message without a value")
        data = decompress(
            Codec(self.codec_id), memoryview(self.value), limit=limit, old_lz4=self.magic == 0
        )
        inner = list(_messages(bytes(data), self.magic))
        if not inner:
            raise InvalidRecordError("a compressed set without messages")
        shift = 0
        if self.magic == 1 and self.offset:  # some clients write 0 and absolute inner offsets
            shift = self.offset - inner[-1].offset
        appended = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        return [
            (
                each,
                Record(
                    each.offset + shift,
                    self.timestamp if appended else each.timestamp,
                    each.key,
                    each.value,
                ),
            )
            for each in inner
        ]

    def batch(
        self, limit: int, path: str | None = None, position: int | None = None
    ) -> RecordBatch:
        """Return an uncompressed batch of magic 2 with the same records.

        Raises
        ------
        InvalidRecordError, CorruptRecordError
            See `records`. Also raised if a batch cannot contain the offsets or timestamps.
        """
        records = self.records(limit)
        appended = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        try:
            data = build_batch(
                records,
                last_offset=max(self.offset, records[-1].offset),
                timestamp_type=self.timestamp_type or TimestampType.CREATE_TIME,
                append_time=self.timestamp if appended else None,
            )
        except (ValueError, struct.error) as error:
            raise InvalidRecordError(f"a message of magic {self.magic}: {error}") from error
        return RecordBatch(data, path, position)


def is_sound(data: bytes) -> bool:
    """Return whether the CRC-32 of an entry is valid."""
    stored = int.from_bytes(data[layout.LOG_OVERHEAD : layout.MAGIC_POSITION], "big")
    return zlib.crc32(data[layout.MAGIC_POSITION :]) == stored


def parse_message(data: bytes) -> OldMessage:
    """Parse a complete entry without checking its CRC.

    Raises
    ------
    InvalidRecordError
        The fields do not add up to the size of the entry.
    """
    if len(data) < _HEAD.size:
        raise InvalidRecordError(f"a message of {len(data)} bytes is too short for its fields")
    offset, length, crc, magic, attributes = _HEAD.unpack_from(data)
    position = _HEAD.size
    timestamp, timestamp_type = NO_TIMESTAMP, None
    if magic not in MAGICS or length + layout.LOG_OVERHEAD != len(data):
        raise InvalidRecordError(
            f"expected a message of magic 0 or 1 with {length + layout.LOG_OVERHEAD} bytes, found"
            f" magic {magic} and {len(data)} bytes"
        )
    if magic == 1:
        if len(data) < position + _TIMESTAMP.size:
            raise InvalidRecordError("a message that is too short for its timestamp")
        (timestamp,) = _TIMESTAMP.unpack_from(data, position)
        timestamp_type = TimestampType(bool(attributes & layout.TIMESTAMP_TYPE_BIT))
        position += _TIMESTAMP.size
    fields: list[bytes | None] = []
    for name in ("key", "value"):
        if len(data) < position + _LENGTH.size:
            raise InvalidRecordError(f"a message that is too short for the length of its {name}")
        (size,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not -1 <= size <= len(data) - position:
            raise InvalidRecordError(f"a {name} of {size} bytes in {len(data) - position}")
        fields.append(None if size < 0 else data[position : position + size])
        position += max(size, 0)
    if position != len(data):
        raise InvalidRecordError(f"{len(data) - position} bytes behind a message's value")
    return OldMessage(
        offset,
        len(data),
        crc,
        magic,
        attributes & layout.CODEC_MASK,
        timestamp,
        timestamp_type,
        *fields,
    )


def _messages(data: bytes, magic: int) -> Iterator[OldMessage]:
    """Yield the messages of a set. Each must be as valid as the set itself.

    Raises
    ------
    InvalidRecordError
    """
    position = 0
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data.ljust(position + 12), position + 8)
        end = position + layout.LOG_OVERHEAD + length
        if length < layout.MIN_BATCH_LENGTH or end > len(data):
            raise InvalidRecordError(f"a message of {length} bytes in a set, at byte {position}")
        message = parse_message(data[position:end])
        if message.magic != magic or message.codec_id:
            raise InvalidRecordError(
                f"a set of magic {magic} holds a message of magic {message.magic},"
                f" codec {message.codec_id}"
            )
        if not is_sound(data[position:end]):
            raise InvalidRecordError(f"a message in a set has a bad CRC, at byte {position}")
        yield message
        position = end
