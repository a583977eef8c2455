"""The groups in memory, by the partition of `__consumer_offsets` that stores them.

A partition is loaded on first use. After that, new records of its log are applied: a group's record
or first offset creates the group. If the log is deleted or replaced, or a different broker becomes
its leader, the partition's groups are unloaded. A replacement log is then loaded. A malformed group
record only fails requests for that group.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from logstore.coordinator.groups import consumer_records
from logstore.coordinator.groups.consumer_group import ConsumerGroup
from logstore.coordinator.groups.group import Group, GroupState
from logstore.coordinator.groups.records import decode_group, encode_group_key
from logstore.errors import (
    CoordinatorLoadInProgressError,
    InvalidRecordError,
    LogStoreError,
    NotCoordinatorError,
)
from logstore.names import GROUP_OFFSETS_TOPIC

if TYPE_CHECKING:
    from logstore.coordinator.groups.requests import GroupType
    from logstore.coordinator.groups.store import Entry, GroupStore, OffsetsPartition
    from logstore.runtime.clock import Clock

logger = logging.getLogger(__name__)

AnyGroup = Group | ConsumerGroup
"""A group of the classic protocol or of the consumer protocol."""


class Membership(Protocol):
    """The methods that the memberships of both protocols have in common."""

    def resume(self, group: Any) -> None:  # noqa: ANN401  # a group of its own type
        """Continue a group that has just been loaded."""

    def abandon(self, group: Any) -> None:  # noqa: ANN401
        """End a group whose partition was deleted or replaced."""

    def shift(self, group: Any, shift_ns: int) -> None:  # noqa: ANN401
        """Start new sessions after the timers were moved to a different clock."""


class _Partition:
    """The groups of a partition. `contents` is None if the partition does not exist."""

    def __init__(self) -> None:
        self.contents: OffsetsPartition | None = None
        self.groups: dict[str, AnyGroup] = {}
        self.damaged: set[str] = set()


class GroupRegistry:
    """All loaded groups. The caller must serialize calls.

    Parameters
    ----------
    store : GroupStore
    memberships : mapping of GroupType to Membership
    clock : Clock
        Provides the timestamps of deletions.
    """

    def __init__(
        self, store: GroupStore, memberships: Mapping[GroupType, Membership], clock: Clock
    ) -> None:
        self._store = store
        self._memberships = memberships
        self._clock = clock
        self._partitions: dict[int, _Partition] = {}

    def __iter__(self) -> Iterator[AnyGroup]:
        """Iterate over the loaded groups."""
        for partition in list(self._partitions.values()):
            yield from list(partition.groups.values())

    def find(self, group_id: str) -> tuple[AnyGroup | None, str | None]:
        """Return a group, or an error name if it cannot be read. Both are None if unknown."""
        try:
            partition = self._partition_of(group_id)
        except (NotCoordinatorError, CoordinatorLoadInProgressError) as error:
            return None, error.kafka_error
        except LogStoreError as error:
            logger.warning("group '%s' cannot be read: %s", group_id, error)
            return None, "NOT_COORDINATOR"
        if group_id in partition.damaged:
            return None, "NOT_COORDINATOR"
        return partition.groups.get(group_id), None

    def get_or_create(self, group_id: str) -> AnyGroup:
        """Return a group of a loaded partition, creating a classic group if it does not exist."""
        return self._siblings(group_id).setdefault(group_id, Group(group_id))

    def put(self, group: AnyGroup) -> None:
        """Add a group to a loaded partition, replacing any group with the same id."""
        self._siblings(group.group_id)[group.group_id] = group

    def contents_of(self, group_id: str) -> OffsetsPartition | None:
        """Return the current contents of a group's partition, or None if no partition exists.

        Raises
        ------
        LogStoreError
            The partition cannot be read.
        """
        return self._partition_of(group_id).contents

    def load_all(self) -> None:
        """Load all partitions of this broker. Raises the same errors as `contents_of`."""
        for number in self._numbers():
            with suppress(NotCoordinatorError, CoordinatorLoadInProgressError):
                self._load(number)

    def load_readable(self) -> list[tuple[AnyGroup, OffsetsPartition]]:
        """Load all readable partitions. Return their groups and contents."""
        loaded = []
        for number in self._numbers():
            try:
                partition = self._load(number)
            except (NotCoordinatorError, CoordinatorLoadInProgressError):
                continue
            except LogStoreError as error:
                logger.error("%s-%d cannot be read: %s", GROUP_OFFSETS_TOPIC, number, error)  # noqa: TRY400  # known, not a surprise
                continue
            if partition.contents is not None:
                loaded += [(group, partition.contents) for group in partition.groups.values()]
        return loaded

    def delete(self, group: AnyGroup) -> str | None:
        """Delete an empty group without offsets. Return an error name, or None on success."""
        entries = _deletion(group)
        error = self._store.try_write(lambda: self._store.write(group.group_id, entries))
        if error is not None:
            return error
        group.enter(GroupState.DEAD, self._clock.now_ms())
        del self._siblings(group.group_id)[group.group_id]
        return None

    def check(self) -> None:
        """Assert the invariants of all groups."""
        for group in self:
            group._check()

    # -- loading ---------------------------------------------------------------------------

    def _siblings(self, group_id: str) -> dict[str, AnyGroup]:
        """Return all groups of the partition to which a group belongs."""
        return self._loaded(self._store.partition_of(group_id).partition).groups

    def _numbers(self) -> list[int]:
        """Return this broker's partitions, including lost partitions that are still loaded."""
        return sorted({*self._store.numbers(), *self._partitions})

    def _loaded(self, number: int) -> _Partition:
        return self._partitions.setdefault(number, _Partition())

    def _partition_of(self, group_id: str) -> _Partition:
        return self._load(self._store.partition_of(group_id).partition)

    def _load(self, number: int) -> _Partition:
        """Read the new records of a partition, or reload its groups if the log was replaced."""
        partition = self._loaded(number)
        try:
            contents = self._store.partition(number)
        except (NotCoordinatorError, CoordinatorLoadInProgressError):
            self._drop(number)
            raise
        is_new = contents is not partition.contents
        if is_new and partition.contents is not None:
            self._drop(number)
            partition = self._loaded(number)
        partition.contents = contents
        if contents is None:
            return partition
        if is_new:
            for group_id in [*contents.groups, *contents.consumer_groups]:
                self._load_group(partition, contents, group_id)
        for group_id in contents.take_changed():
            # A group may have committed offsets without a group metadata record.
            if group_id not in partition.damaged and contents.has_offsets(group_id):
                partition.groups.setdefault(group_id, Group(group_id))
        return partition

    def _drop(self, number: int) -> None:
        for group in self._partitions.pop(number).groups.values():
            self._memberships[group.type].abandon(group)

    def _load_group(self, partition: _Partition, contents: OffsetsPartition, group_id: str) -> None:
        try:
            group = _group_in(contents, group_id)
        except LogStoreError as error:
            logger.warning("group '%s' cannot be read: %s", group_id, error)
            partition.damaged.add(group_id)
            partition.groups.pop(group_id, None)
            return
        partition.groups[group_id] = group
        if not self._store.read_only:
            self._memberships[group.type].resume(group)


def _deletion(group: AnyGroup) -> list[Entry]:
    """Return a group's tombstones."""
    if isinstance(group, ConsumerGroup):
        return [consumer_records.encode(record) for record in group.deletion()]
    # Generation 0 is never stored.
    return [(encode_group_key(group.group_id), None)] if group.generation_id > 0 else []


def _group_in(contents: OffsetsPartition, group_id: str) -> AnyGroup:
    """Create a group from its records.

    Raises
    ------
    InvalidRecordError, UnsupportedFormatError
        A record is malformed, or has an unknown version.
    """
    stored, records = contents.groups.get(group_id), contents.consumer_groups.get(group_id)
    if records is None:
        return Group.from_record(group_id, decode_group(stored or b""))
    if stored is not None:
        raise InvalidRecordError(f"group '{group_id}' has records of both protocols")
    group = ConsumerGroup(group_id)
    group.apply(consumer_records.decode(key, value) for key, value in records.items())
    return group
