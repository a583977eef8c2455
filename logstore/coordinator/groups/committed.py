"""Check, commit, fetch and delete committed offsets.

This module uses only a group's state and subscriptions, so it works with both membership
protocols. The protocol decides whether a member is allowed to commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from logstore.coordinator.groups.group import GroupState
from logstore.coordinator.groups.requests import DeletedOffsets, FetchedOffset, GroupType
from logstore.errors import (
    LogStoreError,
    OffsetMetadataTooLargeError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.coordinator.groups.offsets import OffsetAndMetadata
    from logstore.coordinator.groups.registry import AnyGroup, GroupRegistry
    from logstore.coordinator.groups.store import GroupStore, OffsetsPartition
    from logstore.types import TopicPartition


class CommittedOffsets:
    """The committed offsets of all groups. The caller must serialize calls.

    Parameters
    ----------
    groups : GroupRegistry
    store : GroupStore
    config : BrokerConfig
    partitions_of : callable
        Returns a topic's partition numbers, or raises `UnknownTopicOrPartitionError`.
    """

    def __init__(
        self,
        groups: GroupRegistry,
        store: GroupStore,
        config: BrokerConfig,
        partitions_of: Callable[[str], Collection[int]],
    ) -> None:
        self._groups = groups
        self._store = store
        self._config = config
        self._partitions_of = partitions_of

    def check(self, tp: TopicPartition, committed: OffsetAndMetadata) -> None:
        """Check an offset before it is committed.

        Raises
        ------
        UnknownTopicOrPartitionError
        OffsetMetadataTooLargeError
        """
        self._check_exists(tp)
        size = len(committed.metadata.encode("utf-16-le", "surrogatepass")) // 2
        if size > self._config.offset_metadata_max_bytes:
            raise OffsetMetadataTooLargeError(
                f"metadata of {size} UTF-16 units for {tp} is longer than"
                f" offset.metadata.max.bytes {self._config.offset_metadata_max_bytes}"
            )

    def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, str | None]:
        """Commit the valid offsets. Return the error name of each partition, or None on success."""
        errors: dict[TopicPartition, str | None] = {}
        for tp, committed in offsets.items():
            try:
                self.check(tp, committed)
            except LogStoreError as refusal:
                errors[tp] = refusal.kafka_error
        good = {tp: committed for tp, committed in offsets.items() if tp not in errors}
        outcome = self._store.try_write(lambda: self._store.write_offsets(group_id, good))
        if outcome in ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"):
            outcome = "INVALID_COMMIT_OFFSET_SIZE"
        if outcome is None:
            self._groups.get_or_create(group_id)
        return {tp: errors.get(tp, outcome) for tp in offsets}

    def fetch(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None,
        *,
        require_stable: bool,
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return the committed offsets of the given partitions, or all committed offsets.

        Raises
        ------
        LogStoreError
            The stored offsets cannot be read.
        """
        contents = self._groups.contents_of(group_id)
        if contents is None:
            return {tp: FetchedOffset(None) for tp in partitions or ()}
        self._store.await_read(contents)
        stored = contents.offsets_of(group_id)
        pending = contents.pending_of(group_id) if require_stable else set()
        return {
            tp: FetchedOffset(None, "UNSTABLE_OFFSET_COMMIT")
            if tp in pending
            else FetchedOffset(stored[tp].committed if tp in stored else None)
            for tp in (sorted({*stored, *pending}) if partitions is None else partitions)
        }

    def delete(self, group: AnyGroup, partitions: Collection[TopicPartition]) -> DeletedOffsets:
        """Delete committed offsets, except for topics to which a member is subscribed."""
        errors: dict[TopicPartition, str | None] = {}
        for tp in partitions:
            errors[tp] = None
            try:
                self._check_exists(tp)
            except UnknownTopicOrPartitionError as refusal:
                errors[tp] = refusal.kafka_error
            subscribed = group.subscribed_topics
            if group.state is not GroupState.EMPTY and (
                subscribed is None or tp.topic in subscribed
            ):
                errors[tp] = errors[tp] or "GROUP_SUBSCRIBED_TO_TOPIC"
        contents = self._groups.contents_of(group.group_id)
        stored = {} if contents is None else contents.offsets_of(group.group_id)
        deleted = [tp for tp, error in errors.items() if error is None and tp in stored]
        error = None if contents is None else self.remove(group, contents, deleted)
        return DeletedOffsets(None, errors) if error is None else DeletedOffsets(error)

    def delete_group(self, group: AnyGroup) -> str | None:
        """Delete an empty group and its offsets. Return an error name, or None on success."""
        contents = self._groups.contents_of(group.group_id)
        stored = () if contents is None else contents.offsets_of(group.group_id)
        return self._write_deletions(group, stored) or self._groups.delete(group)

    def remove(
        self,
        group: AnyGroup,
        contents: OffsetsPartition,
        partitions: Collection[TopicPartition],
        *,
        is_expiry: bool = False,
    ) -> str | None:
        """Delete offsets, and also the group if it is empty and has no offsets left.

        Return an error name, or None on success. As in Kafka 4, only the check for expired offsets
        deletes a group of the consumer protocol.
        """
        left = len(contents.offsets_of(group.group_id)) - len(partitions)
        error = self._write_deletions(group, partitions)
        if error is not None:
            return error
        is_left = left or contents.pending_of(group.group_id)
        is_over = group.state is GroupState.EMPTY and not is_left and not group.pending_members
        is_over = is_over and (is_expiry or group.type is GroupType.CLASSIC)
        return self._groups.delete(group) if is_over else None

    def _write_deletions(
        self, group: AnyGroup, partitions: Collection[TopicPartition]
    ) -> str | None:
        return self._store.try_write(lambda: self._store.delete_offsets(group.group_id, partitions))

    def _check_exists(self, tp: TopicPartition) -> None:
        if tp.partition not in self._partitions_of(tp.topic):
            raise UnknownTopicOrPartitionError(f"{tp} does not exist")
