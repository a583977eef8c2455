"""Committed offsets and group metadata, with the fields of kafka-python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeGuard

from logstore.types import INT32_MAX, INT64_MAX, TopicPartition

NO_LEADER_EPOCH = -1
NO_GENERATION = -1
NO_MEMBER = ""


class OffsetAndMetadata(NamedTuple):
    """The committed offset of a group in a partition, with the fields of kafka-python.

    Attributes
    ----------
    offset : int
        Offset of the next record to consume.
    metadata : str
        Arbitrary text stored by the client.
    leader_epoch : int
        Leader epoch of the last consumed record, or -1 if unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


class ConsumerGroupMetadata(NamedTuple):
    """The metadata of a consumer in its group, with the fields of kafka-python.

    Only the group id is required.
    """

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def is_member(self) -> bool:
        """Whether a generation, a member id or an instance id is set."""
        is_named = self.member_id != NO_MEMBER or self.group_instance_id is not None
        return is_named or self.generation_id >= 0


def to_group_metadata(group: object) -> ConsumerGroupMetadata:
    """Convert a group id, or group metadata such as kafka-python's, to `ConsumerGroupMetadata`.

    Raises
    ------
    TypeError
        The argument is neither a group id nor group metadata.
    ValueError
        The generation is set without a member id.
    """
    if isinstance(group, str):
        return ConsumerGroupMetadata(group)
    fields = [getattr(group, name, None) for name in ConsumerGroupMetadata._fields]
    group_id, generation_id, member_id, _ = fields
    if not isinstance(group_id, str) or not _is_int(generation_id):
        raise TypeError(f"expected a ConsumerGroupMetadata or a group id, not {group!r}")
    metadata = ConsumerGroupMetadata._make(fields)
    if metadata.generation_id > 0 and not member_id:
        raise ValueError(f"generation {generation_id} requires a member id: {group}")
    return metadata


def to_offsets(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Convert offsets, possibly of kafka-python's classes, to `OffsetAndMetadata`.

    Raises
    ------
    TypeError
        The argument is not a mapping of TopicPartition to OffsetAndMetadata.
    ValueError
        A number is out of range, or metadata cannot be encoded as UTF-8.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be a mapping by TopicPartition, not {offsets!r}")
    converted = {}
    for key, value in offsets.items():
        topic, partition = getattr(key, "topic", None), getattr(key, "partition", None)
        if not isinstance(topic, str) or not _is_int(partition):
            raise TypeError(f"keys of offsets must be TopicPartitions, not {key!r}")
        converted[TopicPartition(topic, partition)] = _to_offset(value)
    return converted


def _to_offset(value: object) -> OffsetAndMetadata:
    offset, metadata = getattr(value, "offset", None), getattr(value, "metadata", None)
    leader_epoch = getattr(value, "leader_epoch", None)
    if metadata is None:
        metadata = ""
    if leader_epoch is None:
        leader_epoch = NO_LEADER_EPOCH
    if not (_is_int(offset) and isinstance(metadata, str) and _is_int(leader_epoch)):
        raise TypeError(f"expected an OffsetAndMetadata, not {value!r}")
    if not (0 <= offset <= INT64_MAX and NO_LEADER_EPOCH <= leader_epoch <= INT32_MAX):
        raise ValueError(f"offset or leader epoch out of range: {value!r}")
    metadata.encode()  # raise a ValueError here instead of while a batch is encoded
    return OffsetAndMetadata(offset, metadata, leader_epoch)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
