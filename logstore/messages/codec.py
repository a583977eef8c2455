"""Messages to bytes, to Kafka's JSON, and back."""

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
    """Return the message that fills bytes from a position on.

    Fields of blobs (records, bytes that Kafka does not copy) are views of `data`.

    Raises
    ------
    MessageError
        The bytes are no such message, or go on behind it.
    UnsupportedFormatError
        There is no such version.
    """
    message, end = decode_at(kind, version, data, position)
    if end != len(data):
        reason = f"{len(data) - end} bytes behind the message"
        raise _error(kind, version, reason, "", end)
    return message


def decode_at(kind: type[M], version: int, data: Buffer, position: int = 0) -> tuple[M, int]:
    """Return the message that begins at a position, and where it ends; raises as `decode`."""
    message, end, _ = decode_bounded(kind, version, data, position, sys.maxsize)
    return message, end


def decode_bounded(
    kind: type[M], version: int, data: Buffer, position: int, elements_max: int
) -> tuple[M, int, int]:
    """Return the message that begins at a position, where it ends, and the elements of its arrays.

    Arrays of all depths count, and so does each tagged field that is there.

    Raises
    ------
    TooManyElementsError
        There are more than `elements_max`. Not more than these were decoded.
    MessageError, UnsupportedFormatError
        As `decode`.
    """
    compiled = _decoder(kind, version)
    try:
        message, end, left = compiled.call(data, position, elements_max)
    except (struct.error, IndexError, ValueError) as error:
        field, at = compiled.place(error)
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
            return "text that is no UTF-8"
        case _:
            return f"the bytes end here, {left} are left"


def encode(message: Message, version: int) -> list[Buffer]:
    """Return the buffers that hold a message one after another; blobs are handed on as they are.

    Raises
    ------
    MessageError
        A value does not fit its field, or the version has no field for a value that must not be
        lost.
    UnsupportedFormatError
        There is no such version.
    """
    compiled = _encoder(type(message), version)
    try:
        buffers: list[Buffer] = compiled.call(message)
    except (struct.error, AttributeError, TypeError, ValueError, OverflowError) as error:
        field, _ = compiled.place(error)
        unicode = isinstance(error, UnicodeEncodeError)
        reason = "text that is no Unicode" if unicode else str(error)
        raise _error(type(message), version, reason, field, None) from error
    return buffers


def encode_bytes(message: Message, version: int) -> bytes:
    """Return a message in one piece; raises as `encode`."""
    return b"".join(encode(message, version))


# -- what coordinators keep: a version, then the message -------------------------------------------


def encode_versioned(message: Message, version: int) -> bytes:
    """Return a message behind its version, an i16; raises as `encode`."""
    return _VERSION.pack(version) + encode_bytes(message, version)


def version_of(data: Buffer) -> int:
    """Return the version before a message; -1 where there are no two bytes for it."""
    if len(data) < _VERSION.size:
        return -1
    (version,) = _VERSION.unpack_from(data)
    return int(version)


def decode_versioned(kind: type[M], data: Buffer) -> M:
    """Return the message behind a version, an i16; raises as `decode`."""
    if len(data) < _VERSION.size:
        raise _error(kind, -1, f"{len(data)} bytes hold no version", "", 0)
    return decode(kind, version_of(data), data, _VERSION.size)


# -- Kafka's JSON --------------------------------------------------------------------------------


def to_json(message: Message, version: int) -> dict[str, Any]:
    """Return a message as Kafka's own converters tell it, in the order of its fields.

    Bytes are base64, ids Kafka's text form; tagged fields stand only where they are not the
    default.

    Raises
    ------
    UnsupportedFormatError
        There is no such version.
    """
    message.schema.check(version)
    return _struct_json(message.schema, message, version)


def _struct_json(found: Schema, message: Message, version: int) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for field in found.structs[message.struct_name]:
        if version not in field.versions:
            continue
        value = getattr(message, field.attribute)
        if version in field.tagged and _is_default(found, field, value):
            continue
        if field.element == "records" and value is not None:
            told[f"{field.json_name}SizeInBytes"] = size_of(value)
        elif field.is_array and value is not None:
            told[field.json_name] = [_element_json(found, field, one, version) for one in value]
        else:
            told[field.json_name] = _element_json(found, field, value, version)
    return told


def _element_json(found: Schema, field: Field, value: Any, version: int) -> Any:  # noqa: ANN401  # of whatever type the field has
    if value is None:
        return None
    if field.is_struct:
        return _struct_json(found, value, version)
    if field.element == "bytes":
        return base64.b64encode(value).decode("ascii")
    return value


def _is_default(found: Schema, field: Field, value: object) -> bool:
    if field.default_is_null:
        return value is None
    if field.is_array:
        return value == []
    if field.is_struct:
        default = classes(found.name)[field.element]()
        return value == default or (value is None and not field.null)
    return value == field.default
