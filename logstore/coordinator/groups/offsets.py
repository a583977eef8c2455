"""Committed offsets and their senders, as values of kafka-python's shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeGuard

from logstore.types import INT32_MAX, INT64_MAX, TopicPartition

NO_LEADER_EPOCH = -1
NO_GENERATION = -1
NO_MEMBER = ""


class OffsetAndMetadata(NamedTuple):
    """A group's position in a partition, of kafka-python's shape.

    Attributes
    ----------
    offset : int
        Of the next record to read.
    metadata : str
        Free text of the client.
    leader_epoch : int
        Of the last record read; -1 if not known.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


class ConsumerGroupMetadata(NamedTuple):
    """Sender of offsets, of kafka-python's shape; a group's id is enough."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


def checked_group(group: object) -> ConsumerGroupMetadata:
    """Return the sender of offsets, from a group's id or from kafka-python's group metadata.

    Raises
    ------
    TypeError
        It is neither.
    ValueError
        A generation without a member.
    """
    if isinstance(group, str):
        return ConsumerGroupMetadata(group)
    fields = [getattr(group, name, None) for name in ConsumerGroupMetadata._fields]
    group_id, generation_id, member_id, _ = fields
    if not isinstance(group_id, str) or not _is_int(generation_id):
        raise TypeError(f"a ConsumerGroupMetadata or the id of a group is wanted, not {group!r}")
    found = ConsumerGroupMetadata._make(fields)
    if found.generation_id > 0 and not member_id:
        raise ValueError(f"generation {generation_id} implies a member, but there is none: {group}")
    return found


def checked_offsets(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets in the engine's types; those of kafka-python are accepted.

    Raises
    ------
    TypeError
        The argument is no mapping of TopicPartition to OffsetAndMetadata.
    ValueError
        A number does not fit its field, or a text is no Unicode.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets are a mapping of TopicPartition, not {offsets!r}")
    found = {}
    for key, value in offsets.items():
        topic, partition = getattr(key, "topic", None), getattr(key, "partition", None)
        if not isinstance(topic, str) or not _is_int(partition):
            raise TypeError(f"offsets are of a TopicPartition, not of {key!r}")
        found[TopicPartition(topic, partition)] = _checked_offset(value)
    return found


def _checked_offset(value: object) -> OffsetAndMetadata:
    offset, metadata = getattr(value, "offset", None), getattr(value, "metadata", None)
    leader_epoch = getattr(value, "leader_epoch", None)
    if metadata is None:
        metadata = ""
    if leader_epoch is None:
        leader_epoch = NO_LEADER_EPOCH
    if not (_is_int(offset) and isinstance(metadata, str) and _is_int(leader_epoch)):
        raise TypeError(f"an OffsetAndMetadata is wanted, not {value!r}")
    if not (0 <= offset <= INT64_MAX and NO_LEADER_EPOCH <= leader_epoch <= INT32_MAX):
        raise ValueError(f"no offset to commit: {value!r}")
    metadata.encode()  # raises ValueError here, rather than in the middle of a batch
    return OffsetAndMetadata(offset, metadata, leader_epoch)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
