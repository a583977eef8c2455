"""The records of `__consumer_offsets`: committed offsets and groups.

Records are written in Kafka 3.9's versions: `OffsetCommitKey` 1, `OffsetCommitValue` 3,
`GroupMetadataKey` 2 and `GroupMetadataValue` 3. Their fields are in `logstore.messages`. All
versions can be read. A null value deletes the offset or the group.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.coordinator.groups.offsets import OffsetAndMetadata
from logstore.coordinator.records import read_record, write_record
from logstore.errors import InvalidRecordError
from logstore.messages import version_of
from logstore.messages.types import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from logstore.types import NO_TIMESTAMP, TopicPartition

KEY_VERSION = 1
VALUE_VERSION = 3
GROUP_KEY_VERSION = 2
GROUP_VALUE_VERSION = 3
NO_TIMEOUT = -1


class StoredOffset(NamedTuple):
    """The contents of an offset record.

    Attributes
    ----------
    committed : OffsetAndMetadata
    commit_ms : int
        Commit time in Unix milliseconds.
    expire_ms : int or None
        Expiry time in Unix milliseconds. Only old clients set it.
    """

    committed: OffsetAndMetadata
    commit_ms: int
    expire_ms: int | None = None


def encode_group_key(group_id: str) -> bytes:
    """Encode the key of a group record.

    Raises
    ------
    InvalidRecordError
        The group id is longer than 32767 bytes in UTF-8, or cannot be encoded.
    """
    return write_record(GroupMetadataKey(group=group_id), GROUP_KEY_VERSION)


def encode_group(group: GroupMetadataValue) -> bytes:
    """Encode the value of a group record. Raises the same errors as `encode_group_key`."""
    return write_record(group, GROUP_VALUE_VERSION)


def decode_group(value: bytes) -> GroupMetadataValue:
    """Decode the value of a group record.

    Raises
    ------
    InvalidRecordError
        The value is malformed.
    UnsupportedFormatError
        The version is unknown.
    """
    return read_record(GroupMetadataValue, value)


def decode_group_key(key: bytes | None) -> str | None:
    """Return the group id in the key of a group record, or None for other keys.

    Raises
    ------
    InvalidRecordError
        The key is null or malformed.
    """
    if _key_version(key) != GROUP_KEY_VERSION:
        return None
    return read_record(GroupMetadataKey, key or b"").group


def encode_key(group_id: str, topic_partition: TopicPartition) -> bytes:
    """Encode the key of an offset record.

    Raises
    ------
    InvalidRecordError
        A name is longer than 32767 bytes in UTF-8, or cannot be encoded.
    """
    topic, partition = topic_partition
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return write_record(key, KEY_VERSION)


def decode_key(key: bytes | None) -> tuple[str, TopicPartition] | None:
    """Return the group id and partition in the key of an offset record, or None for other keys.

    Raises
    ------
    InvalidRecordError
        The key is null or malformed.
    """
    if _key_version(key) > KEY_VERSION:
        return None
    stored = read_record(OffsetCommitKey, key or b"")
    return stored.group, TopicPartition(stored.topic, stored.partition)


def _key_version(key: bytes | None) -> int:
    if key is None:
        raise InvalidRecordError("a record in __consumer_offsets has no key")
    return version_of(key)


def encode_value(committed: OffsetAndMetadata, now_ms: int) -> bytes:
    """Encode the value of an offset record. `now_ms` is the commit time in Unix milliseconds."""
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=now_ms,
    )
    return write_record(value, VALUE_VERSION)


def decode_value(value: bytes) -> StoredOffset:
    """Decode the value of an offset record.

    Raises
    ------
    InvalidRecordError
        The value is malformed.
    UnsupportedFormatError
        The version is unknown.
    """
    stored = read_record(OffsetCommitValue, value)
    expire_ms = stored.expire_timestamp
    return StoredOffset(
        OffsetAndMetadata(stored.offset, stored.metadata, stored.leader_epoch),
        stored.commit_timestamp,
        None if expire_ms == NO_TIMESTAMP else expire_ms,
    )
