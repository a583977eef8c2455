"""Kafka's requests, responses and records in all versions, generated from schema tables."""

from logstore.messages.codec import (
    decode,
    decode_at,
    decode_bounded,
    decode_versioned,
    encode,
    encode_bytes,
    encode_versioned,
    to_json,
    version_of,
)
from logstore.messages.compiler import Buffer, Message, size_of
from logstore.messages.schema import Schema, schema

__all__ = [
    "Buffer",
    "Message",
    "Schema",
    "decode",
    "decode_at",
    "decode_bounded",
    "decode_versioned",
    "encode",
    "encode_bytes",
    "encode_versioned",
    "schema",
    "size_of",
    "to_json",
    "version_of",
]
