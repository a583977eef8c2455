"""Records of Kafka's own topics, decoded: offsets, transactions, cluster metadata, tiers, shares.

Plain functions from bytes to values, with the names of Kafka's JSON. Coordinators keep an i16
before each key and value: a key's tells the kind of record, a value's its version. Records of the
cluster's metadata and of tiered logs have no key, and a frame before the value: three varints, its
own version, the kind and the version. Source: Kafka's `CoordinatorRecordSerde`,
`AbstractApiMessageSerde`.
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
"""Of the frame before metadata; 0 was that of the preview in Kafka 2.8."""

_VERSION_SIZE = struct.calcsize(">h")
_CONSUMER_PROTOCOL = "consumer"


class CoordinatorRecord(NamedTuple):
    """A coordinator's record; the value is None where it says that something was forgotten.

    Attributes
    ----------
    kind : str
        `OffsetCommit`, `GroupMetadata` and the like: what the names of key and value begin with.
    key_version, value_version : int
        The i16 before each; -1 for the value that is not there.
    """

    kind: str
    key_version: int
    key: Message
    value_version: int
    value: Message | None

    def key_json(self) -> dict[str, Any]:
        """Return the key as Kafka's tools tell it."""
        return to_json(self.key, self.key_version)

    def value_json(self) -> dict[str, Any] | None:
        """Return the value as Kafka's tools tell it, what consumers told each other included."""
        if self.value is None:
            return None
        told = to_json(self.value, self.value_version)
        if isinstance(self.value, types.GroupMetadataValue):
            _unfold_members(told, self.value)
        return told


class UnknownKindError(UnsupportedFormatError):
    """A coordinator's record of a kind that is not known; `kind` is the number of its key."""

    def __init__(self, message: str, *, kind: int = -1) -> None:
        super().__init__(message)
        self.kind = kind


def coordinator_record(topic: str, key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Return what a coordinator's record says.

    Parameters
    ----------
    topic : str
        One of `COORDINATOR_TOPICS`.

    Raises
    ------
    UnknownKindError
    InvalidRecordError
        There is no key, or none that tells a kind.
    MessageError, UnsupportedFormatError
        Key or value is malformed, or the value of a version that is not known.
    """
    if key is None or len(key) < _VERSION_SIZE:
        raise InvalidRecordError(f"a record of {topic} has no key that tells its kind")
    number = version_of(key)
    kind = _kinds(topic).get(number)
    if kind is None:
        raise UnknownKindError(f"{topic} has no records of kind {number}", kind=number)
    found_key = decode_versioned(getattr(types, f"{kind}Key"), key)
    if value is None:
        return CoordinatorRecord(kind, number, found_key, -1, None)
    found_value = decode_versioned(getattr(types, f"{kind}Value"), value)
    return CoordinatorRecord(kind, number, found_key, version_of(value), found_value)


@cache
def _kinds(topic: str) -> Mapping[int, str]:
    """Return number of the key → what the names of key and value begin with."""
    found: dict[int, str] = {}
    for name in definitions():
        kind = name.removesuffix("Key")
        # The names beginning with Legacy are Kafka 4's for what OffsetCommit has as its version 0.
        if kind != name and not kind.startswith("Legacy") and _topic_of(kind) == topic:
            found |= dict.fromkeys(schema(name).versions, kind)
    return found


def _topic_of(kind: str) -> str:
    if kind == "TransactionLog":
        return TRANSACTION_STATE_TOPIC
    if kind in ("ShareSnapshot", "ShareUpdate"):
        return SHARE_GROUP_STATE_TOPIC
    return GROUP_OFFSETS_TOPIC


def _unfold_members(told: dict[str, Any], group: types.GroupMetadataValue) -> None:
    """Put what the consumers of a group told each other in the place of its bytes."""
    if group.protocol_type != _CONSUMER_PROTOCOL:
        return
    for member, stored in zip(told["members"], group.members, strict=True):
        for name, kind, data in (
            ("subscription", types.ConsumerProtocolSubscription, stored.subscription),
            ("assignment", types.ConsumerProtocolAssignment, stored.assignment),
        ):
            version = version_of(data)
            message, _ = decode_at(kind, version, bytes(data), _VERSION_SIZE)
            member[name] = to_json(message, version)


class FramedRecord(NamedTuple):
    """A record of the cluster's metadata, or of the metadata of tiered logs."""

    kind: str
    version: int
    message: Message

    @property
    def record_type(self) -> str:
        """The kind as Kafka's enumeration has it: `TOPIC_RECORD`."""
        letters = (f"_{each}" if each.isupper() else each for each in self.kind)
        return "".join(letters).removeprefix("_").upper()


def framed_record(topic: str, value: bytes | None) -> FramedRecord:
    """Return what a record of metadata says.

    Parameters
    ----------
    topic : str
        One of `FRAMED_TOPICS`.

    Raises
    ------
    InvalidRecordError
        There is no value, or no frame before it.
    MessageError
        The value is malformed.
    UnsupportedFormatError
        The frame, the kind or the version is not known.
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
            raise InvalidRecordError(f"no frame before a record of {topic}") from error
        numbers.append(number)
    frame_version, key, version = numbers
    if frame_version != FRAME_VERSION:
        raise UnsupportedFormatError(f"a frame of version {frame_version} in {topic}")
    kind = framed_kinds(topic).get(key)
    if kind is None:
        raise UnsupportedFormatError(f"{topic} has no records of kind {key}")
    return FramedRecord(
        kind, version, decode(getattr(types, kind), version, bytes(value), position)
    )


@cache
def framed_kinds(topic: str) -> Mapping[int, str]:
    """Return number → name of the records of one of `FRAMED_TOPICS`."""
    found: dict[int, str] = {}
    for name in definitions():
        kind = schema(name)
        of_tiers = name.startswith("Remote")
        if kind.kind == "metadata" and of_tiers == (topic == REMOTE_LOG_METADATA_TOPIC):
            assert kind.key is not None, name
            found[kind.key] = name
    return found


def decoded(topic: str, key: bytes | None, value: bytes | None) -> dict[str, Any] | None:
    """Return a record of one of Kafka's own topics as JSON; None for any other topic.

    Returns
    -------
    dict or None
        `type`, `version` (of the value), `key` and `value`; the last two are None where there is
        nothing. What cannot be decoded has an `error` instead of `type` and `version`.
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
