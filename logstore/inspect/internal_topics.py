"""Decoding of Kafka's internal topics: offsets, transactions, metadata, tiered logs, share groups.

Field names follow Kafka's JSON. Coordinators write an int16 before each key (the record type) and
each value (its version). Cluster metadata and tiered-log metadata records have no key. Their values
start with a frame of three varints: frame version, record type and record version. Source: Kafka's
`CoordinatorRecordSerde`, `AbstractApiMessageSerde`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from logstore.errors import InvalidRecordError, LogStoreError, UnsupportedFormatError
from logstore.messages import (
    Message,
    decode,
    decode_at,
    decode_versioned,
    schema,
    to_json,
    types,
    version_of,
)
from logstore.messages.compiler import Malformed, read_uvarint
from logstore.messages.schema import definitions
from logstore.names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"

COORDINATOR_TOPICS = (GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC)
FRAMED_TOPICS = (CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC)

FRAME_VERSION = 1
"""Version of the frame before metadata records; 0 was the preview in Kafka 2.8."""

_VERSION_SIZE = struct.calcsize(">h")
_CONSUMER_PROTOCOL = "consumer"


class CoordinatorRecord(NamedTuple):
    """A coordinator record. The value is None for a tombstone.

    Attributes
    ----------
    kind : str
        Common prefix of the schema names of key and value, such as `OffsetCommit`.
    key_version, value_version : int
        The int16 before the key and before the value, or -1 if there is none.
    """

    kind: str
    key_version: int
    key: Message
    value_version: int
    value: Message | None

    def key_json(self) -> dict[str, Any]:
        """Return the key as Kafka's tools print it."""
        return to_json(self.key, self.key_version)

    def value_json(self) -> dict[str, Any] | None:
        """Return the value as Kafka's tools print it, with decoded subscriptions."""
        if self.value is None:
            return None
        value = to_json(self.value, self.value_version)
        if isinstance(self.value, types.GroupMetadataValue):
            _decode_members(value, self.value)
        return value


class UnknownKindError(UnsupportedFormatError):
    """A coordinator record has an unknown type. `kind` is the number in its key."""

    def __init__(self, message: str, *, kind: int = -1) -> None:
        super().__init__(message)
        self.kind = kind


def coordinator_record(topic: str, key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Decode a coordinator record.

    Parameters
    ----------
    topic : str
        One of `COORDINATOR_TOPICS`.

    Raises
    ------
    UnknownKindError
    InvalidRecordError
        The key is missing or too short for a record type.
    MessageError, UnsupportedFormatError
        The key or value is malformed, or the version of the value is unknown.
    """
    if key is None or len(key) < _VERSION_SIZE:
        raise InvalidRecordError(f"a record of {topic} has no key with a record type")
    number = version_of(key)
    kind = _kinds(topic).get(number)
    if kind is None:
        raise UnknownKindError(f"unknown record type {number} in {topic}", kind=number)
    found_key = decode_versioned(getattr(types, f"{kind}Key"), key)
    if value is None:
        return CoordinatorRecord(kind, number, found_key, -1, None)
    found_value = decode_versioned(getattr(types, f"{kind}Value"), value)
    return CoordinatorRecord(kind, number, found_key, version_of(value), found_value)


@cache
def _kinds(topic: str) -> Mapping[int, str]:
    """Return the record types of a topic by their number in the key."""
    kinds: dict[int, str] = {}
    for name in definitions():
        kind = name.removesuffix("Key")
        # Kafka 4 calls version 0 of OffsetCommit LegacyOffsetCommit.
        if kind != name and not kind.startswith("Legacy") and _topic_of(kind) == topic:
            kinds |= dict.fromkeys(schema(name).versions, kind)
    return kinds


def _topic_of(kind: str) -> str:
    if kind == "TransactionLog":
        return TRANSACTION_STATE_TOPIC
    if kind in ("ShareSnapshot", "ShareUpdate"):
        return SHARE_GROUP_STATE_TOPIC
    return GROUP_OFFSETS_TOPIC


def _decode_members(value: dict[str, Any], group: types.GroupMetadataValue) -> None:
    """Replace the bytes of a group's subscriptions and assignments with their decoded form."""
    if group.protocol_type != _CONSUMER_PROTOCOL:
        return
    for member, stored in zip(value["members"], group.members, strict=True):
        for name, kind, data in (
            ("subscription", types.ConsumerProtocolSubscription, stored.subscription),
            ("assignment", types.ConsumerProtocolAssignment, stored.assignment),
        ):
            version = version_of(data)
            message, _ = decode_at(kind, version, bytes(data), _VERSION_SIZE)
            member[name] = to_json(message, version)


class FramedRecord(NamedTuple):
    """A cluster metadata or tiered-log metadata record."""

    kind: str
    version: int
    message: Message

    @property
    def record_type(self) -> str:
        """Kafka's enum constant for the record type, such as `TOPIC_RECORD`."""
        letters = (f"_{each}" if each.isupper() else each for each in self.kind)
        return "".join(letters).removeprefix("_").upper()


def framed_record(topic: str, value: bytes | None) -> FramedRecord:
    """Decode a metadata record.

    Parameters
    ----------
    topic : str
        One of `FRAMED_TOPICS`.

    Raises
    ------
    InvalidRecordError
        The value or its frame is missing.
    MessageError
        The value is malformed.
    UnsupportedFormatError
        The frame version, record type or record version is unknown.
    """
    if value is None:
        raise InvalidRecordError(f"a record of {topic} has no value")
    position = 0
    numbers = []
    for _ in range(3):
        try:
            number = value[position]
            position += 1
            if number > 127:
                number, position = read_uvarint(value, position, number)
        except (IndexError, Malformed) as error:
            raise InvalidRecordError(f"a record of {topic} has no valid frame") from error
        numbers.append(number)
    frame_version, key, version = numbers
    if frame_version != FRAME_VERSION:
        raise UnsupportedFormatError(f"unknown frame version {frame_version} in {topic}")
    kind = framed_kinds(topic).get(key)
    if kind is None:
        raise UnsupportedFormatError(f"unknown record type {key} in {topic}")
    return FramedRecord(
        kind, version, decode(getattr(types, kind), version, bytes(value), position)
    )


@cache
def framed_kinds(topic: str) -> Mapping[int, str]:
    """Return the record types of a topic in `FRAMED_TOPICS` by number."""
    kinds: dict[int, str] = {}
    for name in definitions():
        kind = schema(name)
        of_tiers = name.startswith("Remote")
        if kind.kind == "metadata" and of_tiers == (topic == REMOTE_LOG_METADATA_TOPIC):
            assert kind.key is not None, name
            kinds[kind.key] = name
    return kinds


def decode_internal_record(
    topic: str, key: bytes | None, value: bytes | None
) -> dict[str, Any] | None:
    """Return a record of an internal topic as JSON, or None for any other topic.

    Returns
    -------
    dict or None
        `type`, `version` (of the value), `key` and `value` (None if absent). If the record cannot
        be decoded, `error` replaces `type` and `version`.
    """
    if topic not in COORDINATOR_TOPICS and topic not in FRAMED_TOPICS:
        return None
    try:
        if topic in FRAMED_TOPICS:
            framed = framed_record(topic, value)
            return {
                "type": framed.kind,
                "version": framed.version,
                "key": None,
                "value": to_json(framed.message, framed.version),
            }
        record = coordinator_record(topic, key, value)
        return {
            "type": record.kind,
            "version": None if record.value is None else record.value_version,
            "key": record.key_json(),
            "value": record.value_json(),
        }
    except LogStoreError as error:
        return {"key": None, "value": None, "error": str(error)}
