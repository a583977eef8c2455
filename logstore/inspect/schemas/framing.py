"""Wire format of Confluent's serializers: a zero byte, the schema id, the message.

For Protobuf, message indexes precede the message: a count and as many indexes, zigzag varints that
lead from the file to a nested message. A single zero means the first message in the file. Source:
Confluent's documentation of the wire format.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from logstore.errors import InvalidRecordError
from logstore.record.varint import decode_varint

MAGIC = 0
_FRAME = struct.Struct(">BI")
FRAME_BYTES = _FRAME.size
INDEXES_MAX = 64
"""Maximum number of message indexes. Deeper nesting is treated as damage."""


class Framed(NamedTuple):
    """A schema id and the payload that the schema describes."""

    schema_id: int
    payload: bytes


def unframe(data: bytes) -> Framed:
    """Split a value into schema id and payload.

    Raises
    ------
    InvalidRecordError
        The value has no frame.
    """
    if len(data) < _FRAME.size:
        raise InvalidRecordError(
            f"too short ({len(data)} B) for Confluent's wire format, which needs a schema id"
        )
    magic, schema_id = _FRAME.unpack_from(data)
    if magic != MAGIC:
        raise InvalidRecordError(
            f"starts with byte {magic}, not with the 0 of Confluent's wire format"
        )
    return Framed(schema_id, data[_FRAME.size :])


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Split the payload of a Protobuf value into message indexes and message.

    Raises
    ------
    InvalidRecordError
    """
    end = len(payload)
    count, position = decode_varint(payload, 0, end)
    if count == 0:
        return (0,), payload[position:]
    if not 0 < count <= INDEXES_MAX:
        raise InvalidRecordError(f"invalid number of message indexes: {count}")
    indexes = []
    for _ in range(count):
        index, position = decode_varint(payload, position, end)
        indexes.append(index)
    return tuple(indexes), payload[position:]
