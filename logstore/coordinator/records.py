"""Encode and decode the records that coordinators write to their internal topics."""

from __future__ import annotations

from typing import TypeVar

from logstore.errors import InvalidRecordError, MessageError
from logstore.messages import Message, decode_versioned, encode_versioned
from logstore.types import java_hash

M = TypeVar("M", bound=Message)


def partition_for(text: str, partitions: int) -> int:
    """Return the partition of an internal topic for a group id or a transactional id."""
    hashed = java_hash(text)
    # Kafka's Utils.abs maps Integer.MIN_VALUE to 0.
    return 0 if hashed == -(1 << 31) else abs(hashed) % partitions


def write_record(message: Message, version: int) -> bytes:
    """Encode a message, preceded by its version, as the key or value of a record.

    Raises
    ------
    InvalidRecordError
        A string is longer than 32767 bytes in UTF-8, or cannot be encoded.
    """
    try:
        return encode_versioned(message, version)
    except MessageError as error:
        raise InvalidRecordError(str(error)) from error


def read_record(kind: type[M], data: bytes) -> M:
    """Decode the message in the key or value of a record.

    Raises
    ------
    InvalidRecordError
        The data is malformed.
    UnsupportedFormatError
        The version is unknown.
    """
    try:
        return decode_versioned(kind, data)
    except MessageError as error:
        raise InvalidRecordError(str(error)) from error
