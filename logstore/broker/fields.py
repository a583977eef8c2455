"""Fields of the records that Kafka's coordinators keep in their topics.

Integers are big-endian. A string is its length as i16 and UTF-8, an array its length as i32 (-1:
null) and its elements. In flexible versions lengths are unsigned varints of one more, and tagged
fields follow each structure. Source: Kafka's message generator (`ByteBufferAccessor`), KIP-482.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from logstore.errors import InvalidRecordError, MessageError
from logstore.messages import Message, decode_versioned, encode_versioned
from logstore.types import INT16_MAX

M = TypeVar("M", bound=Message)

_LENGTH = struct.Struct(">h")
_COUNT = struct.Struct(">i")


def java_hash(text: str) -> int:
    """Return `String.hashCode()` of Java: over UTF-16 code units, 32 bits, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(text: str, partitions: int) -> int:
    """Return which of a coordinator's partitions keeps an id: a transaction's or a group's."""
    hashed = java_hash(text)
    # Java's abs of the smallest number is negative; Kafka's own takes it as 0.
    return 0 if hashed == -(1 << 31) else abs(hashed) % partitions


def write_record(message: Message, version: int) -> bytes:
    """Return the key or value that keeps a message: its version and its fields.

    Raises
    ------
    InvalidRecordError
        A name is longer than 32767 bytes of UTF-8, or no Unicode text.
    """
    try:
        return encode_versioned(message, version)
    except MessageError as error:
        raise InvalidRecordError(str(error)) from error


def read_record(kind: type[M], data: bytes) -> M:
    """Return the message that a key or value keeps.

    Raises
    ------
    InvalidRecordError
        The bytes are malformed.
    UnsupportedFormatError
        They are of a version that is not known.
    """
    try:
        return decode_versioned(kind, data)
    except MessageError as error:
        raise InvalidRecordError(str(error)) from error


def encode_string(text: str) -> bytes:
    """Return a string with its length.

    Raises
    ------
    InvalidRecordError
        Longer than 32767 bytes of UTF-8, or no Unicode text.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRecordError(f"{text!r} is no Unicode text") from error
    if len(data) > INT16_MAX:
        raise InvalidRecordError(f"a name of {len(data)} bytes is longer than {INT16_MAX}")
    return _LENGTH.pack(len(data)) + data


class FieldReader:
    """Takes fields off the front of bytes; running past the end is `InvalidRecordError`.

    Parameters
    ----------
    data : bytes
    what : str
        What the bytes are, for messages.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._position = 0

    def unpack(self, fields: struct.Struct) -> tuple[int, ...]:
        """Take numbers."""
        return fields.unpack(self._take(fields.size))

    def string(self, *, flexible: bool = False) -> str:
        """Take a string that is not null."""
        size = self._unsigned() - 1 if flexible else self.unpack(_LENGTH)[0]
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise InvalidRecordError(f"a name in {self._what} is no UTF-8") from error

    def count(self, *, flexible: bool) -> int:
        """Take the length of an array; 0 for null."""
        count = self._unsigned() - 1 if flexible else self.unpack(_COUNT)[0]
        if count > len(self._data):
            raise InvalidRecordError(f"{count} elements do not fit {len(self._data)} bytes")
        return max(count, 0)

    def skip_tags(self) -> None:
        """Take the tagged fields of a structure, whatever they are."""
        for _ in range(self._unsigned()):
            self._unsigned()
            self._take(self._unsigned())

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise InvalidRecordError(f"a length in {self._what} has more than five bytes")

    def _take(self, size: int) -> bytes:
        start, self._position = self._position, self._position + size
        if size < 0 or self._position > len(self._data):
            raise InvalidRecordError(
                f"{size} bytes wanted at {start} of {self._what} of {len(self._data)}"
            )
        return self._data[start : self._position]
