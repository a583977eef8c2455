"""The records of `__consumer_offsets`: committed offsets and groups.

Encoders write the versions of Kafka 3.9: `OffsetCommitKey` 1, `OffsetCommitValue` 3,
`GroupMetadataKey` 2 and `GroupMetadataValue` 3 (their fields are in `logstore.messages`). Decoders
accept all versions. A null value deletes the offset or the group.
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
    """Contents of an offset record.

    Attributes
    ----------
    committed : OffsetAndMetadata
    commit_ms : int
        Time of the commit in Unix ms.
    expire_ms : int or None
        Expiry time in Unix ms; only set by old clients.
    """

    committed: OffsetAndMetadata
    commit_ms: int
    expire_ms: int | None = None


class StoredMember(NamedTuple):
    """A member in a group record. Timeouts are in ms."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """Contents of a group record; `state_ms` is the time of the last state change, or -1."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[StoredMember, ...]


def encode_group_key(group_id: str) -> bytes:
    """Encode the key of a group record.

    Raises
    ------
    InvalidRecordError
        The group id is longer than 32767 bytes of UTF-8, or cannot be encoded.
    """
    return write_record(GroupMetadataKey(group=group_id), GROUP_KEY_VERSION)


def encode_group(group: StoredGroup) -> bytes:
    """Encode the value of a group record. Raises the errors of `encode_group_key`."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=group.state_ms,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in group.members
        ],
    )
    return write_record(value, GROUP_VALUE_VERSION)


def decode_group(value: bytes) -> StoredGroup:
    """Decode the value of a group record.

    Raises
    ------
    InvalidRecordError
        The value is malformed.
    UnsupportedFormatError
        The version is unknown.
    """
    stored = read_record(GroupMetadataValue, value)
    return StoredGroup(
        stored.protocol_type,
        stored.generation,
        stored.protocol,
        stored.leader,
        stored.current_state_timestamp,
        tuple(
            StoredMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                # Version 0 has one timeout for both.
                member.session_timeout
                if member.rebalance_timeout == NO_TIMEOUT
                else member.rebalance_timeout,
                member.session_timeout,
                bytes(member.subscription),
                bytes(member.assignment),
            )
            for member in stored.members
        ),
    )


def decode_group_key(key: bytes | None) -> str | None:
    """Return the group id of a group record's key; None for keys of other kinds.

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
        A name is longer than 32767 bytes of UTF-8, or cannot be encoded.
    """
    topic, partition = topic_partition
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return write_record(key, KEY_VERSION)


def decode_key(key: bytes | None) -> tuple[str, TopicPartition] | None:
    """Return group id and partition of an offset record's key; None for keys of other kinds.

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
    """Encode the value of an offset record, committed at `now_ms` in Unix ms."""
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
