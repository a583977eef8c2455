"""Records of the coordinators of transactions and groups: their common rules."""

from __future__ import annotations

from typing import TypeVar

from logstore.errors import InvalidRecordError, MessageError
from logstore.messages import Message, decode_versioned, encode_versioned
from logstore.types import java_hash

M = TypeVar("M", bound=Message)


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
