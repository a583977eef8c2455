"""Frame of Confluent's serializers: a zero byte, the number of the schema, the message.

A Protobuf message has, between the number and itself, its place in the schema's file: a count and
so many indexes as zigzag varints, down from the file to the nested message; a single zero stands
for the first message of the file. Source: Confluent's documentation of the wire format.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from logstore.errors import InvalidRecordError
from logstore.record.varint import decode_varint

MAGIC = 0
_FRAME = struct.Struct(">BI")
INDEXES_MAX = 64
"""Most indexes of one message; deeper nesting is damage."""


class Framed(NamedTuple):
    """The number of the schema, and what it describes."""

    schema_id: int
    payload: bytes


def unframe(data: bytes) -> Framed:
    """Take the frame off.

    Raises
    ------
    InvalidRecordError
        There is none.
    """
    if len(data) < _FRAME.size:
        raise InvalidRecordError(
            f"too short ({len(data)} B) for the frame of a schema registry's serializer"
        )
    magic, schema_id = _FRAME.unpack_from(data)
    if magic != MAGIC:
        raise InvalidRecordError(
            f"it begins with byte {magic}, not with the 0 of a schema registry's serializer"
        )
    return Framed(schema_id, data[_FRAME.size :])


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Split what follows a Protobuf schema's number into message indexes and message.

    Raises
    ------
    InvalidRecordError
    """
    end = len(payload)
    count, position = decode_varint(payload, 0, end)
    if count == 0:
        return (0,), payload[position:]
    if not 0 < count <= INDEXES_MAX:
        raise InvalidRecordError(f"{count} is no count of message indexes")
    indexes = []
    for _ in range(count):
        index, position = decode_varint(payload, position, end)
        indexes.append(index)
    return tuple(indexes), payload[position:]
