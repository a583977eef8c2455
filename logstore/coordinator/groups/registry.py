"""The groups in memory, by the partition of `__consumer_offsets` that stores them.

A partition is loaded on first use, and follows its log from then on: a group appears with its
record or its first offset. If the log is deleted or replaced, or another broker leads it, the
groups of the partition are dropped; those in a new log are loaded. A group whose record is
malformed is refused, while the others are served.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from logstore.coordinator.groups.group import Group, GroupState
from logstore.coordinator.groups.records import decode_group
from logstore.errors import (
    CoordinatorLoadInProgressError,
    LogStoreError,
    NotCoordinatorError,
)
from logstore.names import GROUP_OFFSETS_TOPIC

if TYPE_CHECKING:
    from logstore.coordinator.groups.store import GroupStore, OffsetsPartition
    from logstore.runtime.clock import Clock

logger = logging.getLogger(__name__)


class StateMachine(Protocol):
    """The part of a membership protocol that the registry calls."""

    def resume(self, group: Group) -> None:
        """Continue a group that was just loaded."""

    def abandon(self, group: Group) -> None:
        """End a group whose partition was deleted or replaced."""


class _Partition:
    """The groups of a partition; `contents` is None if the partition does not exist."""

    def __init__(self) -> None:
        self.contents: OffsetsPartition | None = None
        self.groups: dict[str, Group] = {}
        self.damaged: set[str] = set()


class GroupRegistry:
    """All loaded groups. Calls must be serialized by the caller.

    Parameters
    ----------
    store : GroupStore
    membership : StateMachine
    clock : Clock
        Dates the deletion of groups.
    """

    def __init__(self, store: GroupStore, membership: StateMachine, clock: Clock) -> None:
        self._store = store
        self._membership = membership
        self._clock = clock
        self._partitions: dict[int, _Partition] = {}

    def __iter__(self) -> Iterator[Group]:
        """Iterate over the loaded groups."""
        for partition in list(self._partitions.values()):
            yield from list(partition.groups.values())

    def find(self, group_id: str) -> tuple[Group | None, str | None]:
        """Return a group, or None if it does not exist, and the error of reading it."""
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

    def get_or_create(self, group_id: str) -> Group:
        """Return a group of a loaded partition, created if necessary."""
        partition = self._loaded(self._store.partition_of(group_id).partition)
        return partition.groups.setdefault(group_id, Group(group_id))

    def contents_of(self, group_id: str) -> OffsetsPartition | None:
        """Return the current contents of a group's partition; None if it does not exist.

        Raises
        ------
        LogStoreError
            The partition cannot be read.
        """
        return self._partition_of(group_id).contents

    def load_all(self) -> None:
        """Load all partitions of this broker. Raises the errors of `contents_of`."""
        for number in self._numbers():
            with suppress(NotCoordinatorError, CoordinatorLoadInProgressError):
                self._load(number)

    def load_readable(self) -> list[tuple[Group, OffsetsPartition]]:
        """Load all partitions that can be read; return their groups and contents."""
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

    def delete(self, group: Group) -> str | None:
        """Delete a group without members and offsets; return an error if that fails."""
        group_id = group.group_id
        if group.generation_id > 0:  # generation 0 was never stored
            error = self._store.try_write(lambda: self._store.delete_group(group_id))
            if error is not None:
                return error
        group.enter(GroupState.DEAD, self._clock.now_ms())
        del self._loaded(self._store.partition_of(group_id).partition).groups[group_id]
        return None

    def check(self) -> None:
        """Assert the invariants of all groups."""
        for group in self:
            group._check()

    # -- loading ---------------------------------------------------------------------------

    def _numbers(self) -> list[int]:
        """Return this broker's partitions, including lost ones that are still loaded."""
        return sorted({*self._store.numbers(), *self._partitions})

    def _loaded(self, number: int) -> _Partition:
        return self._partitions.setdefault(number, _Partition())

    def _partition_of(self, group_id: str) -> _Partition:
        return self._load(self._store.partition_of(group_id).partition)

    def _load(self, number: int) -> _Partition:
        """Read new records of a partition; if its log was replaced, reload all its groups."""
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
        for group_id, value in list(contents.groups.items()) if is_new else ():
            self._load_group(partition, group_id, value)
        for group_id in contents.take_changed():
            # Groups with offsets need not have a group record.
            if group_id not in partition.damaged and contents.has_offsets(group_id):
                partition.groups.setdefault(group_id, Group(group_id))
        return partition

    def _drop(self, number: int) -> None:
        for group in self._partitions.pop(number).groups.values():
            self._membership.abandon(group)

    def _load_group(self, partition: _Partition, group_id: str, value: bytes) -> None:
        try:
            group = Group.from_record(group_id, decode_group(value))
        except LogStoreError as error:
            logger.warning("group '%s' cannot be read: %s", group_id, error)
            partition.damaged.add(group_id)
            return
        partition.groups[group_id] = group
        if not self._store.read_only:
            self._membership.resume(group)
