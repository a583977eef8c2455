"""Encode and decode messages, and convert them to Kafka's JSON."""

from __future__ import annotations

import base64
import struct
import sys
from typing import Any, TypeVar

from logstore.errors import MessageError, TooManyElementsError
from logstore.messages.compiler import (
    Buffer,
    Compiled,
    Malformed,
    Message,
    TooManyElements,
    classes,
    compile_decoder,
    compile_encoder,
    size_of,
)
from logstore.messages.schema import Field, Schema

_VERSION = struct.Struct(">h")


M = TypeVar("M", bound=Message)


_decoders: dict[tuple[type[Message], int], Compiled] = {}
_encoders: dict[tuple[type[Message], int], Compiled] = {}


def _decoder(kind: type[Message], version: int) -> Compiled:
    compiled = _decoders.get((kind, version))
    if compiled is None:
        kind.schema.check(version)
        compiled = _decoders[kind, version] = compile_decoder(kind.schema.name, version)
    return compiled


def _encoder(kind: type[Message], version: int) -> Compiled:
    compiled = _encoders.get((kind, version))
    if compiled is None:
        kind.schema.check(version)
        compiled = _encoders[kind, version] = compile_encoder(kind.schema.name, version)
    return compiled


def decode(kind: type[M], version: int, data: Buffer, position: int = 0) -> M:
    """Decode a message that extends from a position to the end of `data`.

    Blobs (records and zero-copy bytes) are views of `data`.

    Raises
    ------
    MessageError
        The bytes are malformed, or the message does not extend to the end.
    UnsupportedFormatError
        The version does not exist.
    """
    message, end = decode_at(kind, version, data, position)
    if end != len(data):
        reason = f"{len(data) - end} bytes after the message"
        raise _error(kind, version, reason, "", end)
    return message


def decode_at(kind: type[M], version: int, data: Buffer, position: int = 0) -> tuple[M, int]:
    """Decode the message at a position. Return the message and its end.

    Raises the same errors as `decode`.
    """
    message, end, _ = decode_bounded(kind, version, data, position, sys.maxsize)
    return message, end


def decode_bounded(
    kind: type[M], version: int, data: Buffer, position: int, elements_max: int
) -> tuple[M, int, int]:
    """Decode the message at a position. Return it, its end, and its number of array elements.

    The number includes elements of nested arrays and tagged fields.

    Raises
    ------
    TooManyElementsError
        The message has more than `elements_max` elements. The rest was not decoded.
    MessageError, UnsupportedFormatError
        See `decode`.
    """
    compiled = _decoder(kind, version)
    try:
        message, end, left = compiled.call(data, position, elements_max)
    except (struct.error, IndexError, ValueError) as error:
        field, at = compiled.locate(error)
        reason = _reason(error, len(data) - (at or 0))
        many = isinstance(error, TooManyElements)
        raise _error(kind, version, reason, field, at, many=many) from error
    return message, end, elements_max - left


def _error(
    kind: type[Message],
    version: int,
    reason: str,
    field: str,
    position: int | None,
    *,
    many: bool = False,
) -> MessageError:
    name = kind.schema.name
    error = TooManyElementsError if many else MessageError
    return error(reason, name=name, version=version, field=field, position=position)


def _reason(error: Exception, left: int) -> str:
    match error:
        case Malformed():
            return str(error)
        case UnicodeDecodeError():
            return "text is not valid UTF-8"
        case _:
            return f"unexpected end of data, {left} bytes left"


def encode(message: Message, version: int) -> list[Buffer]:
    """Encode a message as a list of buffers, without copying large blobs.

    Raises
    ------
    MessageError
        A value does not fit its field, or a field is set that is not ignorable and does not exist
        in this version.
    UnsupportedFormatError
        The version does not exist.
    """
    compiled = _encoder(type(message), version)
    try:
        buffers: list[Buffer] = compiled.call(message)
    except (struct.error, AttributeError, TypeError, ValueError, OverflowError) as error:
        field, _ = compiled.locate(error)
        unicode = isinstance(error, UnicodeEncodeError)
        reason = "text is not valid Unicode" if unicode else str(error)
        raise _error(type(message), version, reason, field, None) from error
    return buffers


def encode_bytes(message: Message, version: int) -> bytes:
    """Encode a message as a byte string. Raises the same errors as `encode`."""
    return b"".join(encode(message, version))


# -- coordinator records: a version, then the message ----------------------------------------------


def encode_versioned(message: Message, version: int) -> bytes:
    """Encode a message, preceded by its version as an int16. Raises the same errors as `encode`."""
    return _VERSION.pack(version) + encode_bytes(message, version)


def version_of(data: Buffer) -> int:
    """Return the version before a message, or -1 if `data` is too short."""
    if len(data) < _VERSION.size:
        return -1
    (version,) = _VERSION.unpack_from(data)
    return int(version)


def decode_versioned(kind: type[M], data: Buffer) -> M:
    """Decode a message preceded by its version. Raises the same errors as `decode`."""
    if len(data) < _VERSION.size:
        raise _error(kind, -1, f"{len(data)} bytes are too short for a version", "", 0)
    return decode(kind, version_of(data), data, _VERSION.size)


# -- Kafka's JSON --------------------------------------------------------------------------------


def to_json(message: Message, version: int) -> dict[str, Any]:
    """Convert a message to the JSON of Kafka's converters, with fields in schema order.

    Bytes are encoded in base64, and ids in Kafka's text format. Tagged fields with default values
    are omitted.

    Raises
    ------
    UnsupportedFormatError
        The version does not exist.
    """
    message.schema.check(version)
    return _struct_json(message.schema, message, version)


def _struct_json(schema: Schema, message: Message, version: int) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for field in schema.structs[message.struct_name]:
        if version not in field.versions:
            continue
        value = getattr(message, field.attribute)
        if version in field.tagged and _is_default(schema, field, value):
            continue
        if field.element == "records" and value is not None:
            members[f"{field.json_name}SizeInBytes"] = size_of(value)
        elif field.is_array and value is not None:
            members[field.json_name] = [_element_json(schema, field, one, version) for one in value]
        else:
            members[field.json_name] = _element_json(schema, field, value, version)
    return members


def _element_json(schema: Schema, field: Field, value: Any, version: int) -> Any:  # noqa: ANN401
    if value is None:
        return None
    if field.is_struct:
        return _struct_json(schema, value, version)
    if field.element == "bytes":
        return base64.b64encode(value).decode("ascii")
    return value


def _is_default(schema: Schema, field: Field, value: object) -> bool:
    if field.default_is_null:
        return value is None
    if field.is_array:
        return value == []
    if field.is_struct:
        default = classes(schema.name)[field.element]()
        return value == default or (value is None and not field.null)
    return value == field.default
