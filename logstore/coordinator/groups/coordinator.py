"""The group coordinator: membership, assignments and committed offsets of consumer groups.

It implements the classic rebalance protocol, with the states, responses and timeouts of Kafka's
GroupCoordinator. Requests and responses are plain values (`logstore.coordinator.groups.requests`),
the same for members in this process and over the network. No call blocks. Joins and syncs, which
wait for other members, take a callback, which is called once, without a lock held, possibly before
the request returns. Sessions and rebalances time out by the clock's monotonic time: during
`advance` on a virtual clock, in a thread otherwise.

Persistent state is stored in `__consumer_offsets`: offsets when they are committed, a group when
its members get their assignments or it becomes empty. After a restart, members have one session
timeout to send a heartbeat.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.coordinator.groups.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from logstore.coordinator.groups.group import Group, GroupState, Member
from logstore.coordinator.groups.offsets import (
    NO_GENERATION,
    NO_MEMBER,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
)
from logstore.coordinator.groups.records import encode_group_key
from logstore.coordinator.groups.requests import (
    DeletedOffsets,
    FetchedOffset,
    GroupDescription,
    GroupListing,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    LeftMember,
    SyncRequest,
    SyncResult,
)
from logstore.coordinator.groups.store import GroupStore, try_decode_group
from logstore.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidGroupIdError,
    KafkaStorageError,
    LogStoreError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from logstore.faults.rules import Call, is_injected
from logstore.names import GROUP_OFFSETS_TOPIC
from logstore.runtime import SystemClock, VirtualClock
from logstore.runtime.environment import VERIFY, background_scheduler
from logstore.runtime.threads import PacedScheduler
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.coordinator.groups.records import StoredOffset
    from logstore.coordinator.groups.store import OffsetsPartition
    from logstore.faults.rules import Faults
    from logstore.manager.manager import LogManager
    from logstore.manager.services import LogEvents
    from logstore.runtime import Runtime, ScheduledTask, Scheduler, Unsubscribe
    from logstore.storage.log.log import Log

logger = logging.getLogger(__name__)

EMPTY, DEAD = GroupState.EMPTY, GroupState.DEAD
PREPARING, COMPLETING = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE

JoinCallback = Callable[[JoinResult], object]
SyncCallback = Callable[[SyncResult], object]

_STORE_ERRORS = {
    "UNKNOWN_TOPIC_OR_PARTITION": "COORDINATOR_NOT_AVAILABLE",
    "KAFKA_STORAGE_ERROR": "NOT_COORDINATOR",
}
"""Error for the client by the error of the coordinator's write, as in Kafka."""

_MEMBER_ERRORS: dict[str, type[LogStoreError]] = {
    "UNKNOWN_MEMBER_ID": UnknownMemberIdError,
    "FENCED_INSTANCE_ID": FencedInstanceIdError,
    "ILLEGAL_GENERATION": IllegalGenerationError,
}


class _Timer(NamedTuple):
    """A scheduled action of the coordinator, due at a monotonic time."""

    name: str
    due_ns: int
    action: Callable[[], None]
    task: ScheduledTask


class GroupCoordinator:
    """Handles joins, syncs, heartbeats and commits of all groups.

    Started as a service of the log manager, it loads all groups at once and checks for expired
    offsets in the background, at Kafka's interval. Otherwise it loads each partition of the topic
    on first use, and checks for expired offsets during calls, at the same interval.

    Parameters
    ----------
    runtime : Runtime
    manager : LogManager
    config : GroupConfig, optional
        By default, from the broker's configuration.
    scheduler : Scheduler, optional
        Scheduler of session and rebalance timers. By default, the runtime's if it is started, else
        a scheduler of the coordinator's own on the runtime's clock.
    partitions_of : callable, optional
        Returns the partition numbers of a topic, or raises `UnknownTopicOrPartitionError`. By
        default, those in the manager's catalog.

    Notes
    -----
    The coordinator is thread-safe. Calls hold one lock throughout. It is acquired after the
    transaction coordinator's lock and before the manager's.
    """

    def __init__(
        self,
        runtime: Runtime,
        manager: LogManager,
        config: GroupConfig | None = None,
        scheduler: Scheduler | None = None,
        partitions_of: Callable[[str], Collection[int]] | None = None,
    ) -> None:
        self.config = GroupConfig.of(manager.broker_config) if config is None else config
        self._runtime = runtime
        self._clock = runtime.clock
        self._ticks = runtime.clock  # times sessions and rebalances; `_clock` dates offsets
        self._manager = manager
        self._partitions_of = partitions_of or (lambda name: manager.catalog.topic(name).partitions)
        self._lock = manager.lifetime.lock(runtime.lock())
        self._depth = 0
        self._outbox: list[Callable[[], object]] = []
        self._store = GroupStore(manager, runtime.clock, self.config)
        self._groups: dict[str, Group] = {}
        self._damaged: dict[str, LogStoreError] = {}
        self._sources: dict[int, OffsetsPartition] = {}
        self._removed: deque[TopicPartition] = deque()
        self._scheduler = scheduler
        self.own_scheduler: Scheduler | None = None
        self._timers: dict[int, _Timer] = {}
        self._timer_numbers = count()
        self._expiry_task: ScheduledTask | None = None
        self._next_expiry_ms = runtime.clock.now_ms() + self.config.retention_check_interval_ms
        manager.lifetime.add(self)

    def __repr__(self) -> str:
        return f"GroupCoordinator({len(self._groups)} groups in use)"

    @property
    def faults(self) -> Faults:
        """Fault rules that apply to joins and commits."""
        return self._manager.faults

    # -- members ---------------------------------------------------------------------------

    def join(self, request: JoinRequest, on_done: JoinCallback) -> None:
        """Join or rejoin a group. The result arrives once all members joined, or on timeout.

        Errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED
        (with the id to join with), INCONSISTENT_GROUP_PROTOCOL, FENCED_INSTANCE_ID,
        GROUP_MAX_SIZE_REACHED, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        faults = self.faults
        if not faults:
            self._request_join(request, on_done)
            return
        call = Call("join", (), request.group_id, request.client_id)
        matched = faults.apply_to(call)

        def answer(result: JoinResult, *, after: bool = True) -> bool:
            try:
                faults.obey(matched, call, after=after)
            except LogStoreError as error:
                result = JoinResult(request.member_id, error.kafka_error)
            if after or result.error is not None:
                on_done(result)
            return result.error is None

        if answer(JoinResult(request.member_id), after=False):
            self._request_join(request, answer)

    def _request_join(self, request: JoinRequest, on_done: JoinCallback) -> None:
        with self._exclusive():
            error = self._join(request, on_done)
            if error is not None:
                self._reply(on_done, JoinResult(request.member_id, error))

    def sync(self, request: SyncRequest, on_done: SyncCallback) -> None:
        """Request the assignment. The leader's request carries all assignments and ends the wait.

        Errors: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS,
        INCONSISTENT_GROUP_PROTOCOL, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        with self._exclusive():
            error = self._sync(request, on_done)
            if error is not None:
                self._reply(on_done, SyncResult(error))

    def heartbeat(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None = None,
    ) -> str | None:
        """Keep a member's session alive; return an error that the member must handle, or None.

        REBALANCE_IN_PROGRESS: rejoin. UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION: join as a new member.
        FENCED_INSTANCE_ID: fatal.
        """
        with self._exclusive():
            group, error = self._find_group(group_id)
            if group is None:
                return error or "UNKNOWN_MEMBER_ID"
            error = self._check_member(group, member_id, group_instance_id, generation_id)
            if error is not None:
                return error
            if group.state is EMPTY:
                return "UNKNOWN_MEMBER_ID"
            self._touch(group, group.members[member_id])
            return "REBALANCE_IN_PROGRESS" if group.state is PREPARING else None

    def leave(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveResult:
        """Remove members from a group, and rebalance it."""
        with self._exclusive():
            group, error = self._find_group(group_id)
            if error is not None:
                return LeaveResult(error)
            return LeaveResult(
                None,
                tuple(
                    LeftMember(
                        each.member_id,
                        each.group_instance_id,
                        "UNKNOWN_MEMBER_ID" if group is None else self._leave(group, each),
                    )
                    for each in members
                ),
            )

    # -- offsets ---------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        generation_id: int = NO_GENERATION,
        member_id: str = NO_MEMBER,
        group_instance_id: str | None = None,
    ) -> dict[TopicPartition, str | None]:
        """Commit offsets; return each partition's error, or None.

        Commits without generation and member id are only accepted for groups without members. An
        invalid partition does not prevent the commit of the others.
        """
        try:
            return self.faults.request(
                "commit",
                offsets,
                partial(
                    self._commit, group_id, offsets, generation_id, member_id, group_instance_id
                ),
                group_id=group_id,
            )
        except LogStoreError as error:
            if not is_injected(error):
                raise
            return dict.fromkeys(offsets, error.kafka_error)

    def _commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
    ) -> dict[TopicPartition, str | None]:
        with self._exclusive():
            error = self._commit_error(group_id, generation_id, member_id, group_instance_id)
            if error is not None:
                return dict.fromkeys(offsets, error)
            errors: dict[TopicPartition, str | None] = {}
            for tp, committed in offsets.items():
                try:
                    self._check_offset(tp, committed)
                except LogStoreError as refusal:
                    errors[tp] = refusal.kafka_error
            good = {tp: committed for tp, committed in offsets.items() if tp not in errors}
            outcome = self._try_write(partial(self._store.write_offsets, group_id, good))
            if outcome in ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"):
                outcome = "INVALID_COMMIT_OFFSET_SIZE"
            self._get_or_create_group(group_id)
            return {tp: errors.get(tp, outcome) for tp in offsets}

    def check_transactional(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Check the offsets of a transaction before anything is written.

        Raises
        ------
        InvalidGroupIdError
            The group id is empty.
        IllegalGenerationError, UnknownMemberIdError, FencedInstanceIdError
            The sender is not a member of the current generation (KIP-447).
        UnknownTopicOrPartitionError
        OffsetMetadataTooLargeError
        InvalidRecordError
            The group id is too long, or cannot be encoded.
        """
        if not group.group_id:
            raise InvalidGroupIdError("the group id is empty")
        encode_group_key(group.group_id)
        with self._exclusive():
            error = self._transactional_error(group)
            if error is not None:
                raise _MEMBER_ERRORS[error](
                    f"group '{group.group_id}' rejected offsets of member '{group.member_id}' in"
                    f" generation {group.generation_id}: {error}"
                )
            for tp, committed in offsets.items():
                self._check_offset(tp, committed)

    def append_transactional(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        producer: tuple[int, int],
    ) -> None:
        """Write checked offsets as part of the transaction of (producer id, epoch).

        Raises
        ------
        InvalidProducerEpochError
            There is a newer producer, or the transaction timed out.
        RequestError, KafkaStorageError
            Nothing was written.
        """
        with self._exclusive():
            self._store.write_offsets(group_id, offsets, producer)

    def fetch(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return committed offsets, by default of all partitions with one.

        Parameters
        ----------
        require_stable : bool
            Return UNSTABLE_OFFSET_COMMIT for partitions with offsets in an open transaction
            (KIP-447).

        Raises
        ------
        LogStoreError
            The stored offsets cannot be read.
        """
        with self._exclusive():
            source = self._source_of(group_id)
            if source is None:
                return {tp: FetchedOffset(None) for tp in partitions or ()}
            stored = source.offsets_of(group_id)
            pending = source.pending_of(group_id) if require_stable else set()
            return {
                tp: FetchedOffset(None, "UNSTABLE_OFFSET_COMMIT")
                if tp in pending
                else FetchedOffset(stored[tp].committed if tp in stored else None)
                for tp in (sorted({*stored, *pending}) if partitions is None else partitions)
            }

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets, including those from committed transactions.

        Offsets of a transaction take effect with its marker, even if an older transaction of
        another group is open.

        Raises
        ------
        InvalidRecordError, UnsupportedFormatError
            A record is malformed, or has an unknown version.
        LogStoreError
            The partition cannot be read.
        """
        fetched = self.fetch(group_id)
        return {tp: each.committed for tp, each in fetched.items() if each.committed is not None}

    def partition_of(self, group_id: str) -> TopicPartition:
        """Return the partition of `__consumer_offsets` for a group."""
        return self._store.partition_of(group_id)

    def ensure_stored(self) -> None:
        """Create the topic, or take over a copied one.

        Raises
        ------
        KafkaStorageError
        """
        with self._exclusive():
            self._store.ensure_stored()

    def logs_with_open_transactions(self) -> list[Log]:
        """Return the logs of `__consumer_offsets` in which a transaction is open.

        Logs that cannot be opened are omitted, as is a topic copied from a broker.
        """
        with self._exclusive():
            return self._store.logs_with_open_transactions()

    # -- administration --------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupDescription:
        """Describe a group. The state is `Dead` if the group does not exist."""
        with self._exclusive():
            group, error = self._find_group(group_id)
            if group is None:
                return GroupDescription(group_id, DEAD.value, error=error)
            return group.describe()

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """List groups by id, optionally filtered by states and types (classic, consumer).

        Raises
        ------
        LogStoreError
            A partition of the topic cannot be read.
        """
        wanted = {each.lower() for each in states}
        if types and "classic" not in {each.lower() for each in types}:
            return []
        with self._exclusive():
            self._load_all()
            return [
                GroupListing(group_id, group.protocol_type or "", group.state.value)
                for group_id, group in sorted(self._groups.items())
                if not wanted or group.state.value.lower() in wanted
            ]

    def delete(self, group_ids: Iterable[str]) -> dict[str, str | None]:
        """Delete groups without members, and their offsets; return each group's error, or None.

        Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, NOT_COORDINATOR.
        """
        with self._exclusive():
            return {group_id: self._delete(group_id) for group_id in group_ids}

    def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> DeletedOffsets:
        """Delete offsets of partitions to which no member of the group is subscribed.

        Errors of the group: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (if it is not a consumer group).
        Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC.
        """
        with self._exclusive():
            group, error = self._find_group(group_id)
            if group is None:
                return DeletedOffsets(error or "GROUP_ID_NOT_FOUND")
            if group.state is not EMPTY and not group.is_consumer_group:
                return DeletedOffsets("NON_EMPTY_GROUP")
            return self._delete_offsets(group, partitions)

    # -- background tasks ------------------------------------------------------------------

    def remove_expired(self) -> list[str]:
        """Delete expired offsets, and groups without members and offsets.

        Returns
        -------
        list of str
            Ids of the deleted groups.
        """
        with self._exclusive(expires=False):
            return self._remove_expired()

    def start(self) -> None:
        """Load all groups, and start the periodic check for expired offsets."""
        with self._exclusive():
            period_ms = self.config.retention_check_interval_ms
            self._expiry_task = self._runtime.scheduler.schedule(
                "delete-expired-group-metadata",
                self._expire_in_background,
                delay_ms=period_ms,
                period_ms=period_ms,
                idle_ms=self._expiry_idle_ms,
            )
            if self._store.is_stored:
                self._load_readable()

    def stop(self) -> None:
        """Delete the offsets of deleted partitions, and stop all tasks."""
        with self._exclusive():
            if self._expiry_task is not None:
                self._expiry_task.cancel()
            self._expiry_task = None
        if self.own_scheduler is not None:
            self.own_scheduler.shutdown()

    def follow(self, events: LogEvents) -> Iterable[Unsubscribe]:
        """Check for expired offsets again after changes of logs and configs.

        Offsets of a deleted partition are deleted at the next call, because the manager holds its
        lock when it publishes the event.
        """
        return (
            events.log_changed.subscribe(self._wake),
            events.config_changed.subscribe(self._wake),  # a copied topic may have been taken over
            events.partition_removed.subscribe(self._removed.append),
            events.partition_removed.subscribe(self._wake),
        )

    def _wake(self, *_: object) -> None:
        if (task := self._expiry_task) is not None:
            task.wake()

    @property
    def scheduler(self) -> Scheduler:
        """The started scheduler of the timers."""
        if self._scheduler is None:
            if self._runtime.scheduler.is_started:
                self._scheduler = self._runtime.scheduler
            else:
                self.own_scheduler = self._scheduler = background_scheduler(self._clock)
        if not self._scheduler.is_started:
            self._scheduler.start()
        return self._scheduler

    def use_system_clock(self) -> None:
        """Time sessions and rebalances by the system clock, even if the broker's clock is virtual.

        Members in other programs need this: a jump of a virtual clock would expire their sessions,
        and their waits between jumps would never end. Current members start a new session.
        Rebalances in progress and pending member ids keep their remaining time.
        """
        with self._exclusive(expires=False):
            if not isinstance(self._ticks, VirtualClock):
                return
            if self.own_scheduler is not None:
                self.own_scheduler.shutdown()
            system = SystemClock()
            shift_ns = system.monotonic_ns() - self._ticks.monotonic_ns()
            timers, self._timers = self._timers, {}
            self.own_scheduler = self._scheduler = PacedScheduler(self._ticks, threads=1)
            self._scheduler.start()
            self._ticks = system
            for group in self._groups.values():
                for member_id in group.pending_members:
                    group.pending_members[member_id] += shift_ns
                for member in group.members.values():
                    member.armed_ns = None
                    self._touch(group, member)
            for timer in timers.values():
                timer.task.cancel()
                self._at(timer.due_ns + shift_ns, timer.name, timer.action)

    # -- inside: locking and timers; the lock is held from here on ----------------------------

    @contextmanager
    def _exclusive(self, *, expires: bool = True) -> Iterator[None]:
        """Hold the lock; after its release, call the callbacks of completed joins and syncs.

        Without a background task, check for expired offsets first, if the check is due and
        `expires`.
        """
        ready: list[Callable[[], object]] = []
        try:
            with self._lock:
                self._depth += 1
                try:
                    if self._depth == 1 and not self._manager.read_only:
                        self._delete_offsets_of_removed()
                        if expires:
                            self._expire_if_due()
                    yield
                finally:
                    self._depth -= 1
                    if self._depth == 0:
                        ready, self._outbox = self._outbox, []
                if VERIFY:
                    for group in self._groups.values():
                        group._check()
        finally:
            for reply in ready:
                reply()

    def _reply(self, on_done: Callable[[Any], object], result: object) -> None:
        self._outbox.append(partial(on_done, result))

    def _expire_if_due(self) -> None:
        now_ms = self._clock.now_ms()
        if self._expiry_task is None and now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + self.config.retention_check_interval_ms
            self._remove_expired()

    def _after(self, delay_ms: int, name: str, action: Callable[[], None]) -> None:
        self._at(self._ticks.monotonic_ns() + delay_ms * 1_000_000, name, action)

    def _at(self, due_ns: int, name: str, action: Callable[[], None]) -> None:
        number = next(self._timer_numbers)

        def run() -> None:
            with self._exclusive():
                # Another thread may just have moved all timers to another clock.
                if self._timers.pop(number, None) is not None:
                    action()

        left_ms = -(-(due_ns - self._ticks.monotonic_ns()) // 1_000_000)
        task = self.scheduler.schedule(name, run, delay_ms=max(0, left_ms))
        self._timers[number] = _Timer(name, due_ns, action, task)

    def _touch(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """Restart a member's session."""
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.deadline_ns = self._ticks.monotonic_ns() + timeout_ms * 1_000_000
        self._arm(group, member)

    def _arm(self, group: Group, member: Member) -> None:
        """Set the session timer, unless it is due earlier; it is then renewed when it is due."""
        if member.armed_ns is None or member.deadline_ns < member.armed_ns:
            member.armed_ns = member.deadline_ns
            due_ns = member.deadline_ns
            self._at(due_ns, "group-session", lambda: self._session_is_over(group, member, due_ns))

    def _session_is_over(self, group: Group, member: Member, due_ns: int) -> None:
        if member.armed_ns != due_ns:
            return  # superseded by a timer that was due earlier
        member.armed_ns = None
        if group.members.get(member.member_id) is not member or not self._is_known(group):
            return
        if self._ticks.monotonic_ns() < member.deadline_ns:
            self._arm(group, member)
        elif member.is_new or (member.on_join is None and member.on_sync is None):
            logger.info("group '%s': session of %s expired", group.group_id, member.member_id)
            self._remove_member(group, member)

    def _is_known(self, group: Group) -> bool:
        return self._groups.get(group.group_id) is group

    # -- inside: joining ---------------------------------------------------------------------

    def _join(self, request: JoinRequest, on_done: JoinCallback) -> str | None:
        """Add a member, or return the error that prevents it."""
        config = self.config
        if not request.group_id:
            return "INVALID_GROUP_ID"
        encode_group_key(request.group_id)
        timeout_ms = request.session_timeout_ms
        if not config.min_session_timeout_ms <= timeout_ms <= config.max_session_timeout_ms:
            return "INVALID_SESSION_TIMEOUT"
        self._store.ensure_stored()
        group, error = self._find_group(request.group_id)
        if error is not None:
            return error
        if group is None:
            if request.member_id != NO_MEMBER:
                return "UNKNOWN_MEMBER_ID"
            group = self._get_or_create_group(request.group_id)
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            self._try_complete_join(group)
            return "GROUP_MAX_SIZE_REACHED"
        if not group.supports(request.protocol_type, request.protocols):
            return "INCONSISTENT_GROUP_PROTOCOL"
        if request.member_id == NO_MEMBER:
            error = self._join_new(group, request, on_done)
        else:
            error = self._join_again(group, request, on_done)
        self._try_complete_join(group)
        return error

    def _has_room(self, group: Group, member_id: str) -> bool:
        """Return whether a group of limited size may admit a member (KIP-389)."""
        known = group.members.get(member_id)
        if group.state is PREPARING:
            # Only joined members count: if the group is too large, the last to join are rejected.
            has_joined = known is not None and known.on_join is not None
            return has_joined or group.awaiting_join < self.config.max_size
        return (
            group.state is EMPTY or known is not None or len(group.members) < self.config.max_size
        )

    def _join_new(self, group: Group, request: JoinRequest, on_done: JoinCallback) -> str | None:
        instance_id = request.group_instance_id
        member_id = self._new_member_id(group, request)
        if instance_id is not None:
            known = group.static_members.get(instance_id)
            if known is not None:
                self._replace_static(group, known, member_id, request, on_done)
                return None
        elif request.requires_member_id:
            due_ms = request.session_timeout_ms
            group.pending_members[member_id] = self._ticks.monotonic_ns() + due_ms * 1_000_000
            self._after(
                due_ms, "group-pending-member", lambda: self._forget_pending(group, member_id)
            )
            self._reply(on_done, JoinResult(member_id, "MEMBER_ID_REQUIRED"))
            return None
        self._add_member(group, member_id, request, on_done)
        return None

    def _new_member_id(self, group: Group, request: JoinRequest) -> str:
        """Return an unused member id. A broker with the same seed may have issued the first one."""
        instance_id = request.group_instance_id
        name = request.client_id if instance_id is None else instance_id
        while True:
            number = uuid.UUID(int=self._runtime.rng.getrandbits(128), version=4)
            member_id = f"{name}-{number}"
            if member_id not in group.members and member_id not in group.pending_members:
                return member_id

    def _join_again(self, group: Group, request: JoinRequest, on_done: JoinCallback) -> str | None:
        member_id = request.member_id
        if member_id in group.pending_members and request.group_instance_id is None:
            self._add_member(group, member_id, request, on_done)
            return None
        error = group.check_member(member_id, request.group_instance_id)
        if error is not None:
            return error
        member = group.members[member_id]
        is_same = member.protocols == request.protocols
        # A joined member that repeats its request did not receive the response.
        if (group.state is COMPLETING and is_same) or (
            group.state is STABLE and is_same and member_id != group.leader
        ):
            self._touch(group, member)
            self._reply(on_done, group.join_result(member))
            return None
        self._update(member, request, on_done)
        self._maybe_prepare_rebalance(group)
        return None

    def _add_member(
        self, group: Group, member_id: str, request: JoinRequest, on_done: JoinCallback
    ) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
        )
        member.is_new = True
        member.on_join = on_done
        if group.state is PREPARING and group.generation_id == 0:
            group.has_new_member = True
        group.add(member, request.protocol_type)
        # A client sends no heartbeats before it has its id, so the wait may exceed a session.
        self._touch(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._maybe_prepare_rebalance(group)

    def _update(self, member: Member, request: JoinRequest, on_done: JoinCallback) -> None:
        if member.on_join is not None:
            self._reply(member.on_join, JoinResult(member.member_id, "REBALANCE_IN_PROGRESS"))
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.on_join = on_done

    def _replace_static(
        self,
        group: Group,
        old_member_id: str,
        member_id: str,
        request: JoinRequest,
        on_done: JoinCallback,
    ) -> None:
        """Readmit a static member under a new id, if possible without a rebalance."""
        leader_before = group.leader
        member = group.members[old_member_id]
        self._fence(member)
        group.replace_static(old_member_id, member_id)
        self._touch(group, member)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self._update(member, request, on_done)
        if group.state is STABLE and group.select_protocol() == group.protocol_name:
            assignments = {each.member_id: each.assignment for each in group.members.values()}
            error = self._store_group(group, assignments)
            member.on_join = None
            if error is not None:
                member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
                group.replace_static(member_id, old_member_id)
                self._reply(on_done, JoinResult(NO_MEMBER, error))
                return
            result = group.join_result(member)
            if request.can_skip_assignment:
                result = result._replace(skip_assignment=group.leader == member_id)
            else:
                # The leader of an older client would assign again, which a stable group ignores.
                # Return its previous id as the leader's, so that it does not consider itself one.
                result = result._replace(leader=leader_before or NO_MEMBER, members=())
            self._reply(on_done, result)
        elif group.state in (STABLE, COMPLETING):
            # The leader may be assigning partitions to the old id.
            self._prepare_rebalance(group)

    def _fence(self, member: Member) -> None:
        if member.on_join is not None:
            self._reply(member.on_join, JoinResult(member.member_id, "FENCED_INSTANCE_ID"))
        if member.on_sync is not None:
            self._reply(member.on_sync, SyncResult("FENCED_INSTANCE_ID"))
        member.on_join = member.on_sync = None

    # -- inside: rebalances ------------------------------------------------------------------

    def _maybe_prepare_rebalance(self, group: Group) -> None:
        if group.can_rebalance:
            self._prepare_rebalance(group)

    def _prepare_rebalance(self, group: Group) -> None:
        """Start a rebalance: wait for all members to rejoin."""
        if group.state is COMPLETING:
            self._propagate(group, error="REBALANCE_IN_PROGRESS")
        was_empty = group.state is EMPTY
        group.enter(PREPARING, self._clock.now_ms())
        group.round += 1
        round_number = group.round
        delay_ms = self.config.initial_rebalance_delay_ms
        if was_empty and delay_ms > 0:
            group.has_new_member = False
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_first(group, round_number, delay_ms, left_ms)
        elif was_empty:
            self._complete_join(group)
        else:
            self._wait_for_joins(group, round_number)
            self._try_complete_join(group)

    def _wait_for_first(self, group: Group, round_number: int, delay_ms: int, left_ms: int) -> None:
        """Delay a group's first rebalance; each member that joins extends the delay."""

        def over() -> None:
            if not self._is_waiting(group, round_number, PREPARING):
                return
            if group.has_new_member and left_ms > 0:
                group.has_new_member = False
                step_ms = min(self.config.initial_rebalance_delay_ms, left_ms)
                self._wait_for_first(group, round_number, step_ms, left_ms - step_ms)
            else:
                self._complete_join(group)

        group.is_delayed = True
        self._after(delay_ms, "group-initial-rebalance", over)

    def _wait_for_joins(self, group: Group, round_number: int) -> None:
        def over() -> None:
            if self._is_waiting(group, round_number, PREPARING):
                self._complete_join(group)

        group.is_delayed = False
        self._after(group.rebalance_timeout_ms, "group-rebalance", over)

    def _is_waiting(self, group: Group, round_number: int, *states: GroupState) -> bool:
        is_current = group.round == round_number and group.state in states
        return is_current and self._is_known(group)

    def _try_complete_join(self, group: Group) -> None:
        if group.state is PREPARING and not group.is_delayed and group.has_all_joined:
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        """End the wait for joins: remove missing members, and start the next generation."""
        for member in list(group.members.values()):
            if member.on_join is None and not member.is_static:
                group.remove(member.member_id)
        if group.members and not group.elect_joined_leader():
            # All members are static and have not rejoined: wait for them or their session timeouts.
            group.round += 1
            self._wait_for_joins(group, group.round)
            return
        now_ms = self._clock.now_ms()
        group.round += 1
        group.next_generation(now_ms)
        if group.state is EMPTY:
            error = self._store_group(group, {})
            if error is not None:
                logger.warning("%s: cannot store that the group is empty: %s", group, error)
            return
        for member in group.members.values():
            if member.on_join is not None:
                self._reply(member.on_join, group.join_result(member))
            member.on_join = None
            self._touch(group, member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        self._wait_for_syncs(group, group.round)

    def _wait_for_syncs(self, group: Group, round_number: int) -> None:
        def over() -> None:
            if not self._is_waiting(group, round_number, COMPLETING, STABLE):
                return
            silent = [each for each in group.members if each in group.pending_sync]
            if silent:
                for member_id in silent:
                    group.remove(member_id)
                self._prepare_rebalance(group)

        self._after(group.rebalance_timeout_ms, "group-sync", over)

    def _sync(self, request: SyncRequest, on_done: SyncCallback) -> str | None:
        """Reply to a sync or keep it waiting; return an error instead, if any."""
        group, error = self._find_group(request.group_id)
        if group is None:
            return error or "UNKNOWN_MEMBER_ID"
        member_id = request.member_id
        error = self._check_member(
            group, member_id, request.group_instance_id, request.generation_id
        )
        if error is not None:
            return error
        for requested, known in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if requested is not None and requested != known:
                return "INCONSISTENT_GROUP_PROTOCOL"
        if group.state is EMPTY:
            return "UNKNOWN_MEMBER_ID"
        if group.state is PREPARING:
            return "REBALANCE_IN_PROGRESS"
        member = group.members[member_id]
        group.pending_sync.discard(member_id)
        if group.state is STABLE:
            self._touch(group, member)
            self._reply(on_done, self._sync_result(group, member))
            return None
        if member.on_sync is not None:
            self._reply(member.on_sync, SyncResult("REBALANCE_IN_PROGRESS"))
        member.on_sync = on_done
        if member_id == group.leader:
            self._take_assignments(group, request.assignments)
        return None

    def _take_assignments(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        by_member = {each: assignments.get(each, b"") for each in group.members}
        error = self._store_group(group, by_member)
        if error is not None:
            self._propagate(group, error=error)
            self._maybe_prepare_rebalance(group)
            return
        for member_id, assignment in by_member.items():
            group.members[member_id].assignment = assignment
        group.enter(STABLE, self._clock.now_ms())
        self._propagate(group)

    def _propagate(self, group: Group, *, error: str | None = None) -> None:
        """Reply to waiting members with their assignments, or with an error."""
        for member in group.members.values():
            if error is not None:
                member.assignment = b""
            if member.on_sync is not None:
                result = self._sync_result(group, member) if error is None else SyncResult(error)
                self._reply(member.on_sync, result)
                member.on_sync = None
                self._touch(group, member)

    def _sync_result(self, group: Group, member: Member) -> SyncResult:
        return SyncResult(None, group.protocol_type, group.protocol_name, member.assignment)

    # -- inside: leaving ---------------------------------------------------------------------

    def _leave(self, group: Group, leaving: LeavingMember) -> str | None:
        member_id, instance_id = leaving
        if member_id == NO_MEMBER:
            known = group.static_members.get(instance_id) if instance_id is not None else None
            if known is None:
                return "UNKNOWN_MEMBER_ID"
            member_id = known
        elif member_id in group.pending_members and instance_id is None:
            self._remove_pending(group, member_id)
            return None
        error = group.check_member(member_id, instance_id)
        if error is None:
            self._remove_member(group, group.members[member_id])
        return error

    def _remove_member(self, group: Group, member: Member) -> None:
        if member.on_join is not None:
            self._reply(member.on_join, JoinResult(NO_MEMBER, "UNKNOWN_MEMBER_ID"))
            member.on_join = None
        if member.on_sync is not None:
            self._reply(member.on_sync, SyncResult("UNKNOWN_MEMBER_ID"))
            member.on_sync = None
        group.remove(member.member_id)
        if group.state is PREPARING:
            self._try_complete_join(group)
        elif group.state in (STABLE, COMPLETING):
            self._maybe_prepare_rebalance(group)

    def _forget_pending(self, group: Group, member_id: str) -> None:
        due_ns = group.pending_members.get(member_id)
        if due_ns is not None and due_ns <= self._ticks.monotonic_ns() and self._is_known(group):
            self._remove_pending(group, member_id)

    def _remove_pending(self, group: Group, member_id: str) -> None:
        group.remove(member_id)
        self._try_complete_join(group)

    # -- inside: checks ----------------------------------------------------------------------

    def _check_member(
        self, group: Group, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> str | None:
        error = group.check_member(member_id, group_instance_id)
        if error is None and generation_id != group.generation_id:
            error = "ILLEGAL_GENERATION"
        return error

    def _commit_error(
        self, group_id: str, generation_id: int, member_id: str, group_instance_id: str | None
    ) -> str | None:
        group, error = self._find_group(group_id)
        if error is not None:
            return error
        if group is None:
            return "ILLEGAL_GENERATION" if generation_id >= 0 else None
        if generation_id < 0 and member_id == NO_MEMBER and group_instance_id is None:
            # From an admin client, or a consumer with assigned partitions.
            return None if group.state is EMPTY else "UNKNOWN_MEMBER_ID"
        error = self._check_member(group, member_id, group_instance_id, generation_id)
        if error is not None:
            return error
        if group.state is COMPLETING:
            return "REBALANCE_IN_PROGRESS"
        self._touch(group, group.members[member_id])
        return None

    def _transactional_error(self, metadata: ConsumerGroupMetadata) -> str | None:
        group, error = self._find_group(metadata.group_id)
        if error is not None:
            raise KafkaStorageError(f"group '{metadata.group_id}' cannot be read")
        is_member = metadata.member_id != NO_MEMBER or metadata.group_instance_id is not None
        if metadata.generation_id < 0 and not is_member:
            return None
        if group is None:
            return "ILLEGAL_GENERATION"
        return self._check_member(
            group, metadata.member_id, metadata.group_instance_id, metadata.generation_id
        )

    def _check_offset(self, tp: TopicPartition, committed: OffsetAndMetadata) -> None:
        if tp.partition not in self._partitions_of(tp.topic):
            raise UnknownTopicOrPartitionError(f"{tp} does not exist")
        size = len(committed.metadata.encode("utf-16-le", "surrogatepass")) // 2
        if size > self.config.metadata_max_bytes:
            raise OffsetMetadataTooLargeError(
                f"metadata of {size} UTF-16 units for {tp} is longer than"
                f" offset.metadata.max.bytes {self.config.metadata_max_bytes}"
            )

    # -- inside: storage ---------------------------------------------------------------------

    def _find_group(self, group_id: str) -> tuple[Group | None, str | None]:
        """Return a group, or None if it does not exist, and the error of reading it."""
        try:
            self._source_of(group_id)
        except LogStoreError as error:
            logger.warning("group '%s' cannot be read: %s", group_id, error)
            return None, "NOT_COORDINATOR"
        if group_id in self._damaged:
            return None, "NOT_COORDINATOR"
        return self._groups.get(group_id), None

    def _get_or_create_group(self, group_id: str) -> Group:
        return self._groups.setdefault(group_id, Group(group_id))

    def _source_of(self, group_id: str) -> OffsetsPartition | None:
        """Return the contents of a group's partition, with its groups loaded."""
        return self._load(self._store.partition_of(group_id).partition)

    def _load(self, number: int) -> OffsetsPartition | None:
        """Read new records of a partition; if its log was replaced, reload all its groups."""
        before = self._sources.get(number)
        source = self._store.partition(number)
        if source is before:
            if source is not None:
                self._create_groups_with_offsets(source)
            return source
        for group_id in [*self._groups, *self._damaged]:
            if before is not None and self._store.partition_of(group_id).partition == number:
                self._drop(group_id)
        if source is None:
            del self._sources[number]
            return None
        self._sources[number] = source
        for group_id, value in list(source.groups.items()):
            self._load_group(group_id, value)
        self._create_groups_with_offsets(source)
        return source

    def _create_groups_with_offsets(self, source: OffsetsPartition) -> None:
        """Create groups that have offsets but no group record."""
        for group_id in source.take_changed():
            if group_id not in self._damaged and source.has_offsets(group_id):
                self._get_or_create_group(group_id)

    def _load_group(self, group_id: str, value: bytes) -> None:
        stored = try_decode_group(group_id, value)
        if isinstance(stored, LogStoreError):
            self._damaged[group_id] = stored
            return
        group = self._groups[group_id] = Group.from_record(group_id, stored)
        if group.members and group.leader is None:
            group.leader = next(iter(group.members))
        if self._manager.read_only:
            return
        for member in group.members.values():
            self._touch(group, member)
        if len(group.members) > self.config.max_size:
            self._prepare_rebalance(group)

    def _drop(self, group_id: str) -> None:
        """Drop a group whose partition was deleted or replaced, and fail waiting requests."""
        self._damaged.pop(group_id, None)
        group = self._groups.pop(group_id, None)
        if group is None:
            return
        for member in group.members.values():
            if member.on_join is not None:
                self._reply(member.on_join, JoinResult(member.member_id, "NOT_COORDINATOR"))
            if member.on_sync is not None:
                self._reply(member.on_sync, SyncResult("NOT_COORDINATOR"))

    def _numbers(self) -> Sequence[int]:
        """Return the topic's partitions, including deleted ones that are still loaded."""
        return sorted({*self._store.numbers(), *self._sources})

    def _load_all(self) -> None:
        for number in self._numbers():
            self._load(number)

    def _load_readable(self) -> None:
        for number in self._numbers():
            try:
                self._load(number)
            except LogStoreError as error:
                logger.error("%s-%d cannot be read: %s", GROUP_OFFSETS_TOPIC, number, error)  # noqa: TRY400  # known, not a surprise

    def _store_group(self, group: Group, assignments: Mapping[str, bytes]) -> str | None:
        stored = group.to_record(assignments)
        error = self._try_write(partial(self._store.write_group, group.group_id, stored))
        refused = ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD")
        return "UNKNOWN_SERVER_ERROR" if error in refused else error

    def _try_write(self, write: Callable[[], None]) -> str | None:
        """Write records; return the error for the client on failure."""
        try:
            write()
        except LogStoreError as error:
            logger.warning("cannot write to %s: %s", GROUP_OFFSETS_TOPIC, error)
            return _STORE_ERRORS.get(error.kafka_error, error.kafka_error)
        return None

    # -- inside: deletion and expiration -----------------------------------------------------

    def _delete(self, group_id: str) -> str | None:
        group, error = self._find_group(group_id)
        if error is not None:
            return error
        if group is None:
            return "GROUP_ID_NOT_FOUND"
        if group.state is not EMPTY:
            return "NON_EMPTY_GROUP"
        source = self._source_of(group_id)
        partitions = () if source is None else source.offsets_of(group_id)
        error = self._try_write(partial(self._store.delete_offsets, group_id, partitions))
        if error is None:
            error = self._forget(group)
        return error

    def _forget(self, group: Group) -> str | None:
        """Delete a group without members and offsets."""
        if group.generation_id > 0:  # generation 0 was never stored
            error = self._try_write(partial(self._store.delete_group, group.group_id))
            if error is not None:
                return error
        group.enter(DEAD, self._clock.now_ms())
        del self._groups[group.group_id]
        return None

    def _delete_offsets(
        self, group: Group, partitions: Collection[TopicPartition]
    ) -> DeletedOffsets:
        errors: dict[TopicPartition, str | None] = {}
        for tp in partitions:
            errors[tp] = None
            try:
                if tp.partition not in self._partitions_of(tp.topic):
                    errors[tp] = "UNKNOWN_TOPIC_OR_PARTITION"
            except UnknownTopicOrPartitionError:
                errors[tp] = "UNKNOWN_TOPIC_OR_PARTITION"
            subscribed = group.subscribed_topics
            if group.state is not EMPTY and (subscribed is None or tp.topic in subscribed):
                errors[tp] = errors[tp] or "GROUP_SUBSCRIBED_TO_TOPIC"
        source = self._source_of(group.group_id)
        stored = {} if source is None else source.offsets_of(group.group_id)
        deleted = [tp for tp, error in errors.items() if error is None and tp in stored]
        error = None if source is None else self._remove_offsets(group, source, deleted)
        return DeletedOffsets(None, errors) if error is None else DeletedOffsets(error)

    def _delete_offsets_of_removed(self) -> None:
        """Delete the offsets of deleted partitions, and groups without members and offsets."""
        removed = set()
        while self._removed:
            removed.add(self._removed.popleft())
        if not removed or not self._is_in_use():
            return
        self._load_readable()
        for group_id, group in list(self._groups.items()):
            try:
                source = self._source_of(group_id)
            except LogStoreError:
                continue  # reported when its partition was loaded
            if source is not None:
                deleted = [tp for tp in source.offsets_of(group_id) if tp in removed]
                self._remove_offsets(group, source, deleted)

    def _is_in_use(self) -> bool:
        """Return whether offsets may expire: not in a topic copied from a broker."""
        return self._store.is_stored and not self._manager.read_only

    def _expire_in_background(self) -> None:
        self.remove_expired()

    def _remove_expired(self) -> list[str]:
        if not self._is_in_use():
            return []
        self._load_readable()
        deleted = []
        for group_id, group in list(self._groups.items()):
            try:
                source = self._source_of(group_id)
                if source is None:
                    continue
                now_ms = self._clock.now_ms()
                expired = [tp for tp, end in self._expiries(group, source) if end <= now_ms]
            except LogStoreError as error:
                logger.warning("offsets of group '%s' cannot be read: %s", group_id, error)
                continue
            self._remove_offsets(group, source, expired)
            if group.state is DEAD:
                deleted.append(group_id)
        return deleted

    def _remove_offsets(
        self, group: Group, source: OffsetsPartition, partitions: Collection[TopicPartition]
    ) -> str | None:
        """Delete offsets, and the group if it has no members or offsets left; return an error."""
        left = len(source.offsets_of(group.group_id)) - len(partitions)
        error = self._try_write(partial(self._store.delete_offsets, group.group_id, partitions))
        if error is not None:
            return error
        is_left = left or source.pending_of(group.group_id)
        is_over = group.state is EMPTY and not is_left and not group.pending_members
        return self._forget(group) if is_over else None

    def _expiries(
        self, group: Group, source: OffsetsPartition
    ) -> Iterator[tuple[TopicPartition, int]]:
        """Yield the partitions whose offsets will expire, with the expiry time in Unix ms.

        The retention period starts when the last member left the group, or at the commit if the
        group never had members. In a group with members, only offsets of topics without a
        subscribed member expire, and the period starts at the commit. An expiry time stored by an
        old client takes precedence.
        """
        pending = source.pending_of(group.group_id)
        for tp, stored in source.offsets_of(group.group_id).items():
            if tp in pending:
                continue
            begin_ms = self._expiry_begins(group, tp, stored)
            if begin_ms is None:
                continue
            retained_ms = begin_ms + self.config.retention_ms
            yield tp, retained_ms if stored.expire_ms is None else stored.expire_ms

    def _expiry_begins(self, group: Group, tp: TopicPartition, stored: StoredOffset) -> int | None:
        if group.protocol_type is None:
            return stored.commit_ms
        if group.state is EMPTY:
            return stored.commit_ms if group.state_ms < 0 else group.state_ms
        subscribed = group.subscribed_topics
        if group.is_consumer_group and group.state is STABLE and subscribed is not None:
            return None if tp.topic in subscribed else stored.commit_ms
        return None

    def _expiry_idle_ms(self) -> int | None:
        """Return the time in ms until an offset may expire; None if none will without a change."""
        with self._exclusive():
            if not self._is_in_use():
                return None
            expiry_times = []
            for group_id, group in self._groups.items():
                try:
                    source = self._source_of(group_id)
                    if source is None:
                        continue
                    expiry_times += [expiry_ms for _, expiry_ms in self._expiries(group, source)]
                    if group.state is EMPTY and not source.has_offsets(group_id):
                        return 0
                except LogStoreError:
                    continue  # reported by `remove_expired`
            now_ms = self._clock.now_ms()
            return max(0, min(expiry_times) - now_ms) if expiry_times else None
