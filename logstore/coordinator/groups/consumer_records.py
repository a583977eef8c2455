"""The records of consumer groups in `__consumer_offsets` (KIP-848).

A record consists of two messages: a key of type 3 to 8 or 16, and a value of version 0, or None
for a tombstone. Only records change a group's state. The same function applies them after a
write and when a coordinator loads its partition. Kafka 4.1 replaced the partition metadata
(type 4) with a hash in the group's record, so such records are deleted but never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from logstore.coordinator.groups.records import GROUP_KEY_VERSION, GROUP_VALUE_VERSION
from logstore.coordinator.records import read_record, write_record
from logstore.errors import InvalidRecordError
from logstore.messages import Message, version_of
from logstore.messages.types import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
)

if TYPE_CHECKING:
    from logstore.coordinator.groups.consumer_member import (
        ConsumerMember,
        OwnedPartitions,
        ResolvedRegex,
        Target,
    )

Record = tuple[Message, Message | None]
"""A key and a value. The value of a tombstone is None."""

_KINDS: Mapping[int, tuple[type[Message], type[Message]]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""The classes of key and value, by the type number at the start of the key."""

_VERSIONS: Mapping[type[Message], tuple[int, int]] = {
    GroupMetadataKey: (GROUP_KEY_VERSION, GROUP_VALUE_VERSION),
    **{key: (number, 0) for number, (key, _) in _KINDS.items()},
}
"""The versions of key and value, by the class of the key, for both protocols."""


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Encode the key and the value of a record.

    Raises
    ------
    InvalidRecordError
        A string is too long for a Kafka record, or cannot be encoded.
    """
    key, value = record
    key_version, value_version = _VERSIONS[type(key)]
    encoded = None if value is None else write_record(value, value_version)
    return write_record(key, key_version), encoded


def decode_consumer_key(key: bytes) -> tuple[str, Message] | None:
    """Return the group id and the key of a consumer group's record, or None for other records.

    Raises
    ------
    InvalidRecordError
        The key is malformed.
    """
    kinds = _KINDS.get(version_of(key))
    if kinds is None:
        return None
    message = read_record(kinds[0], key)
    group_id: str = message.group_id  # type: ignore[attr-defined]  # all of them have it
    return group_id, message


def decode(key: bytes, value: bytes) -> Record:
    """Decode a record of a consumer group.

    Raises
    ------
    InvalidRecordError, UnsupportedFormatError
        The key or the value is malformed, or has an unknown version.
    """
    kinds = _KINDS.get(version_of(key))
    if kinds is None:
        raise InvalidRecordError(f"not a record of a consumer group: {key!r}")
    return read_record(kinds[0], key), read_record(kinds[1], value)


# -- the group -------------------------------------------------------------------------------------


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """Return the record that contains a group's epoch."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return ConsumerGroupMetadataKey(group_id=group_id), value


def group_tombstone(group_id: str) -> Record:
    """Return a group's tombstone."""
    return ConsumerGroupMetadataKey(group_id=group_id), None


def partition_metadata_tombstone(group_id: str) -> Record:
    """Return the tombstone of partition metadata, which Kafka 4.0 wrote."""
    return ConsumerGroupPartitionMetadataKey(group_id=group_id), None


def resolved_regex(group_id: str, pattern: str, resolved: ResolvedRegex) -> Record:
    """Return the record that contains the topics that match a pattern."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.resolved_ms
    )
    return _regex_key(group_id, pattern), value


def regex_tombstone(group_id: str, pattern: str) -> Record:
    """Return the tombstone of a pattern."""
    return _regex_key(group_id, pattern), None


def _regex_key(group_id: str, pattern: str) -> ConsumerGroupRegularExpressionKey:
    return ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)


# -- members ---------------------------------------------------------------------------------------


def member(group_id: str, member: ConsumerMember) -> Record:
    """Return the record that contains a member's subscription."""
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in classic.protocols
            ],
        ),
    )
    return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value


def current_assignment(group_id: str, member: ConsumerMember) -> Record:
    """Return the record that contains the epoch and the partitions of a member."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state.value,
        assigned_partitions=_current(member.assigned),
        partitions_pending_revocation=_current(member.revoking),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return key, value


def _current(
    partitions: OwnedPartitions,
) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    return [
        ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[number] for number in sorted(epochs)],
        )
        for topic_id, epochs in sorted(partitions.items())
    ]


def target_assignment(group_id: str, member_id: str, target: Target) -> Record:
    """Return the record that contains a member's target assignment.

    The order of topics is preserved, because the uniform assignor depends on it.
    """
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            ConsumerGroupTargetAssignmentMemberValue.TopicPartition(
                topic_id=topic_id, partitions=sorted(numbers)
            )
            for topic_id, numbers in target.items()
        ]
    )
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return key, value


def target_epoch(group_id: str, epoch: int, now_ms: int) -> Record:
    """Return the record that contains the epoch of the target assignment."""
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=now_ms
    )
    return ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value


def target_epoch_tombstone(group_id: str) -> Record:
    """Return the tombstone of the target assignment's epoch."""
    return ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """Return a member's tombstones, in the order that Kafka requires."""
    return [
        (ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]
