"""The expiry of committed offsets.

An offset expires after `offsets.retention.minutes`. Deleting a topic also deletes the offsets of
its partitions. Deleting the last offset of an empty group also deletes the group.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from logstore.coordinator.groups.group import GroupState
from logstore.coordinator.groups.requests import GroupType
from logstore.errors import LogStoreError
from logstore.names import GROUP_OFFSETS_TOPIC
from logstore.types import MINUTE_MS

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.coordinator.groups.calls import ExclusiveCalls
    from logstore.coordinator.groups.committed import CommittedOffsets
    from logstore.coordinator.groups.records import StoredOffset
    from logstore.coordinator.groups.registry import AnyGroup, GroupRegistry
    from logstore.coordinator.groups.store import GroupStore, OffsetsPartition
    from logstore.coordinator.host import CoordinatorHost
    from logstore.manager.services import LogEvents
    from logstore.runtime import ScheduledTask, Scheduler, Unsubscribe
    from logstore.runtime.clock import Clock
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)


class OffsetExpiry:
    """Deletes expired offsets. The caller must serialize calls.

    If `__consumer_offsets` was copied from a broker, it is not changed.

    Parameters
    ----------
    groups : GroupRegistry
    offsets : CommittedOffsets
    store : GroupStore
    host : CoordinatorHost
    config : BrokerConfig
    clock : Clock
        Determines whether an offset has expired.
    calls : ExclusiveCalls
        Each periodic check is an exclusive call.
    """

    def __init__(
        self,
        groups: GroupRegistry,
        offsets: CommittedOffsets,
        store: GroupStore,
        host: CoordinatorHost,
        config: BrokerConfig,
        clock: Clock,
        calls: ExclusiveCalls,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._store = store
        self._host = host
        self._config = config
        self._clock = clock
        self._next_check_ms = clock.now_ms() + config.offsets_retention_check_interval_ms
        self._calls = calls
        self._task: ScheduledTask | None = None
        self._removed: deque[tuple[TopicPartition, int]] = deque()
        # Deleted partitions whose offsets must still be deleted in groups that had no coordinator,
        # with the newest commit time to delete, in Unix milliseconds.
        self._missed: dict[TopicPartition, int] = {}
        self._applied_to: object = None

    def start(self, scheduler: Scheduler) -> None:
        """Start the periodic check for expired offsets."""

        def run() -> None:
            with self._calls(expires=False):
                self.delete_expired()

        def idle_ms() -> int | None:
            with self._calls():
                return self._idle_ms()

        period_ms = self._config.offsets_retention_check_interval_ms
        self._task = scheduler.schedule(
            "delete-expired-group-metadata",
            run,
            delay_ms=period_ms,
            period_ms=period_ms,
            idle_ms=idle_ms,
        )

    def stop(self) -> None:
        """Stop the periodic check."""
        if self._task is not None:
            self._task.cancel()
        self._task = None

    def follow(self, events: LogEvents) -> Iterable[Unsubscribe]:
        """Reschedule the next check when a log or a config changes."""
        return (
            events.log_changed.subscribe(self._wake),
            events.config_changed.subscribe(self._wake),  # a copied topic may have been taken over
            events.partition_removed.subscribe(self._wake),
        )

    def follow_deletions(self, events: LogEvents) -> Iterable[Unsubscribe]:
        """Delete the offsets of this broker's partitions when they are deleted."""

        def delete() -> None:
            with self._calls(expires=False):
                pass

        return (
            # The manager's lock is held here. The coordinator's lock must be acquired before it.
            events.partition_removed.subscribe(lambda tp: self.note_removed([tp])),
            events.topic_deleted.subscribe(delete),
        )

    def note_removed(self, partitions: Iterable[TopicPartition]) -> None:
        """Note deleted partitions. The next call deletes their offsets."""
        now_ms = self._clock.now_ms()
        self._removed.extend((tp, now_ms) for tp in partitions)

    def _wake(self, *_: object) -> None:
        if (task := self._task) is not None:
            task.wake()

    def catch_up(self, *, expires: bool) -> None:
        """Delete the offsets of deleted partitions.

        If no periodic check is running and `expires` is set, also delete expired offsets once the
        check interval has passed.
        """
        if self._store.read_only:
            return
        self._delete_removed()
        now_ms = self._clock.now_ms()
        if expires and self._task is None and now_ms >= self._next_check_ms:
            self._next_check_ms = now_ms + self._config.offsets_retention_check_interval_ms
            self.delete_expired()

    def _delete_removed(self) -> None:
        """Delete the offsets of deleted partitions, and empty groups without offsets.

        If a group had no coordinator when the partition was deleted, the deletion is repeated when
        this broker takes over the group. Commits since then are valid, because they are for a topic
        that was created again.
        """
        is_new = bool(self._removed)
        while self._removed:
            tp, removed_ms = self._removed.popleft()
            self._missed[tp] = removed_ms
        owned = self._store.numbers()
        if not self._missed or not (is_new or owned is not self._applied_to):
            return
        self._applied_to = owned
        for group, contents in self._groups.load_readable() if self._store.is_writable else ():
            try:
                stored = contents.offsets_of(group.group_id)
            except LogStoreError as error:
                logger.warning("offsets of group '%s' cannot be read: %s", group.group_id, error)
                continue
            deleted = [
                tp
                for tp, each in stored.items()
                if tp in self._missed and each.commit_ms <= self._missed[tp]
            ]
            self._offsets.remove(group, contents, deleted)
        if self._host.is_coordinated(GROUP_OFFSETS_TOPIC):
            self._missed.clear()
        elif is_new:  # a commit in the same millisecond may be for a new topic of the same name
            self._missed = {tp: removed_ms - 1 for tp, removed_ms in self._missed.items()}

    def delete_expired(self) -> list[str]:
        """Delete expired offsets, and empty groups without offsets. Return the deleted groups."""
        deleted = []
        for group, contents in self._groups.load_readable() if self._store.is_writable else ():
            try:
                now_ms = self._clock.now_ms()
                expired = [tp for tp, end in self._expiries(group, contents) if end <= now_ms]
            except LogStoreError as error:
                logger.warning("offsets of group '%s' cannot be read: %s", group.group_id, error)
                continue
            self._offsets.remove(group, contents, expired, is_expiry=True)
            if group.state is GroupState.DEAD:
                deleted.append(group.group_id)
        return deleted

    def _idle_ms(self) -> int | None:
        """Return the milliseconds until an offset may expire, or None if no offset will."""
        expiry_times = []
        for group in self._groups if self._store.is_writable else ():
            try:
                contents = self._groups.contents_of(group.group_id)
                if contents is None:
                    continue
                expiry_times += [expiry_ms for _, expiry_ms in self._expiries(group, contents)]
                if group.state is GroupState.EMPTY and not contents.has_offsets(group.group_id):
                    return 0
            except LogStoreError:
                continue  # `delete_expired` reports this error
        now_ms = self._clock.now_ms()
        return max(0, min(expiry_times) - now_ms) if expiry_times else None

    def _expiries(
        self, group: AnyGroup, contents: OffsetsPartition
    ) -> Iterator[tuple[TopicPartition, int]]:
        """Yield the partitions whose offsets will expire, with the expiry in Unix milliseconds.

        The retention period starts when the last member leaves the group, or at the commit if the
        group has never had a member. While the group has members, only the offsets of topics to
        which no member is subscribed expire, and the period starts at the commit. An expiry time
        stored by an old client takes precedence.
        """
        pending = contents.pending_of(group.group_id)
        for tp, stored in contents.offsets_of(group.group_id).items():
            if tp in pending:
                continue
            begin_ms = self._expiry_begins(group, tp, stored)
            if begin_ms is None:
                continue
            retained_ms = begin_ms + self._config.offsets_retention_minutes * MINUTE_MS
            yield tp, retained_ms if stored.expire_ms is None else stored.expire_ms

    def _expiry_begins(
        self, group: AnyGroup, tp: TopicPartition, stored: StoredOffset
    ) -> int | None:
        if group.protocol_type is None:
            return stored.commit_ms
        if group.state is GroupState.EMPTY:
            return stored.commit_ms if group.state_ms < 0 else group.state_ms
        subscribed = group.subscribed_topics
        if subscribed is None or not group.is_consumer_group:
            return None
        if group.type is GroupType.CLASSIC and group.state is not GroupState.STABLE:
            return None
        return None if tp.topic in subscribed else stored.commit_ms
