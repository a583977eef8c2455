"""The group coordinator: membership, assignments and committed offsets of consumer groups.

`GroupCoordinator` acquires its lock, looks up the group of a request, and passes the request on.
The classic rebalance protocol is in `membership`, offsets are handled by `committed` and `expiry`,
`registry` contains the groups in memory, and `store` saves groups and offsets in
`__consumer_offsets`. Requests and responses are plain values (`requests`), the same for members in
this process and over the network. Joins and syncs do not block while they wait for other members.
They take a callback, which is called once, without holding a lock, and possibly before the request
returns. States, responses and timeouts are the same as in Kafka's GroupCoordinator.

Offsets are stored when they are committed. A group is stored when its members get their
assignments, or when it becomes empty. After a restart, members have one session timeout to send a
heartbeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from logstore.coordinator.groups.calls import ExclusiveCalls
from logstore.coordinator.groups.cluster_topics import TopicsFollower
from logstore.coordinator.groups.committed import CommittedOffsets
from logstore.coordinator.groups.consumer_group import ConsumerGroup
from logstore.coordinator.groups.consumer_member import JOIN_EPOCH
from logstore.coordinator.groups.consumer_membership import ConsumerMembership
from logstore.coordinator.groups.consumer_rules import GroupSettings, MigrationPolicy
from logstore.coordinator.groups.expiry import OffsetExpiry
from logstore.coordinator.groups.group import Group, GroupState
from logstore.coordinator.groups.membership import ClassicMembership
from logstore.coordinator.groups.offsets import (
    NO_GENERATION,
    NO_MEMBER,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
)
from logstore.coordinator.groups.records import encode_group_key
from logstore.coordinator.groups.registry import GroupRegistry, Membership
from logstore.coordinator.groups.requests import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatCallback,
    ConsumerHeartbeatResult,
    DeletedOffsets,
    FetchedOffset,
    GroupDescription,
    GroupListing,
    GroupType,
    JoinCallback,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    LeftMember,
    SyncCallback,
    SyncRequest,
    SyncResult,
)
from logstore.coordinator.groups.store import GroupStore
from logstore.coordinator.groups.timers import GroupTimers
from logstore.coordinator.host import CoordinatorHost
from logstore.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    LogStoreError,
    NotCoordinatorError,
    error_class,
)
from logstore.faults.rules import Call, is_injected
from logstore.runtime.lifetime import lasting
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.coordinator.groups.registry import AnyGroup
    from logstore.faults.rules import Faults
    from logstore.manager.manager import LogManager
    from logstore.manager.services import LogEvents
    from logstore.runtime import Runtime, Scheduler, Signal, Unsubscribe
    from logstore.storage.log.log import Log

logger = logging.getLogger(__name__)

_REPORTS_UNKNOWN_GROUPS_FROM = 9
"""The first version of OffsetCommit with the error GROUP_ID_NOT_FOUND."""


class GroupCoordinator:
    """Handles the joins, syncs, heartbeats and commits of all groups.

    If the log manager starts the coordinator as a service, it immediately loads all groups, and
    periodically checks for expired offsets in the background. If not, it loads a partition of the
    topic on first use and checks for expired offsets during calls, at the same interval.

    Parameters
    ----------
    runtime : Runtime
    manager : LogManager
    host : CoordinatorHost, optional
        The default is a single broker.

    Notes
    -----
    The coordinator is thread-safe. A call holds the coordinator's lock. This lock is acquired after
    the transaction coordinator's lock and before the log manager's lock.
    """

    def __init__(
        self,
        runtime: Runtime,
        manager: LogManager,
        host: CoordinatorHost | None = None,
    ) -> None:
        self.config = config = manager.broker_config
        self._runtime = runtime
        self._manager = manager
        self._host = host = CoordinatorHost(manager) if host is None else host
        self._calls = ExclusiveCalls(
            manager.lifetime.lock(runtime.lock()),
            host,
            lambda: self._store.take_written(),
            lambda expires: self._expiry.catch_up(expires=expires),
            lambda: self._groups.check(),
        )
        self._timers = GroupTimers(runtime, self._calls)
        clock = runtime.clock
        store = self._store = GroupStore(host, clock, config, read_only=manager.read_only)
        self._membership = ClassicMembership(
            config, self._timers, clock, runtime.rng, self._calls.reply, store.save_group
        )
        self._topics = TopicsFollower(host)
        self._consumers = ConsumerMembership(
            self._timers,
            clock,
            runtime.rng,
            self._topics,
            store,
            self._membership,
            lambda group: self._groups.put(group),
            self._settings_of,
            self._calls.reply,
        )
        self._memberships: Mapping[GroupType, Membership] = {
            GroupType.CLASSIC: self._membership,
            GroupType.CONSUMER: self._consumers,
        }
        self._groups = GroupRegistry(store, self._memberships, clock)
        self._offsets = CommittedOffsets(self._groups, store, config, host.partitions_of)
        self._expiry = OffsetExpiry(
            self._groups, self._offsets, store, host, config, clock, self._calls
        )
        manager.lifetime.add(self)

    def __repr__(self) -> str:
        return f"GroupCoordinator({len(list(self._groups))} groups in use)"

    @property
    def is_replicated(self) -> bool:
        """Whether a group's coordinator can move to another broker."""
        return self._host.is_replicated

    @property
    def moved(self) -> Signal[[]] | None:
        """See `CoordinatorHost.moved`."""
        return self._host.moved

    @property
    @lasting
    def is_over(self) -> bool:
        """Whether the broker has been closed."""
        return self._manager.lifetime.is_over

    @property
    def faults(self) -> Faults:
        """The fault rules that apply to joins and commits."""
        return self._manager.faults

    def _settings_of(self, group_id: str) -> GroupSettings:
        """Return the settings of a consumer group."""
        config, group = self.config, self._host.group_config(group_id)
        return GroupSettings(
            group.session_timeout_ms,
            group.heartbeat_interval_ms,
            config.group_consumer_max_size,
            config.group_max_size,
            config.group_consumer_assignors,
            MigrationPolicy(config.group_consumer_migration_policy),
            group.assignment_interval_ms,
            config.group_consumer_regex_refresh_interval_ms,
        )

    # -- members ---------------------------------------------------------------------------

    def consumer_heartbeat(
        self,
        request: ConsumerHeartbeat,
        on_done: ConsumerHeartbeatCallback,
        may_describe: Callable[[str], bool] | None = None,
    ) -> None:
        """Handle a ConsumerGroupHeartbeat, with which a member can also join or leave.

        Errors: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID,
        FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED,
        INVALID_REGULAR_EXPRESSION, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.

        Parameters
        ----------
        may_describe : callable, optional
            Returns whether the member may describe a topic. By default, it may describe all topics.
        """
        with self._calls():
            error = None
            group = None
            if request.group_id:
                if request.member_epoch == JOIN_EPOCH:
                    self._store.ensure_stored()
                group, error = self._groups.find(request.group_id)
            if error is not None:
                self._calls.reply(on_done, ConsumerHeartbeatResult(error=error))
            else:
                self._consumers.heartbeat(group, request, on_done, may_describe)

    def join(self, request: JoinRequest, on_done: JoinCallback) -> None:
        """Join or rejoin a group.

        The callback is called when all members have joined, or at a timeout.

        Errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED
        (with the id that the member must use), INCONSISTENT_GROUP_PROTOCOL, FENCED_INSTANCE_ID,
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
                faults.apply(matched, call, after=after)
            except LogStoreError as error:
                result = JoinResult(request.member_id, error.kafka_error)
            if after or result.error is not None:
                on_done(result)
            return result.error is None

        if answer(JoinResult(request.member_id), after=False):
            self._request_join(request, answer)

    def _request_join(self, request: JoinRequest, on_done: JoinCallback) -> None:
        with self._calls():
            error = self._join(request, on_done)
            if error is not None:
                self._calls.reply(on_done, JoinResult(request.member_id, error))

    def _join(self, request: JoinRequest, on_done: JoinCallback) -> str | None:
        config = self.config
        if not request.group_id:
            return "INVALID_GROUP_ID"
        encode_group_key(request.group_id)
        timeout_ms = request.session_timeout_ms
        if (
            not config.group_min_session_timeout_ms
            <= timeout_ms
            <= config.group_max_session_timeout_ms
        ):
            return "INVALID_SESSION_TIMEOUT"
        self._store.ensure_stored()
        group, error = self._groups.find(request.group_id)
        if error is not None:
            return error
        if group is None:
            if request.member_id != NO_MEMBER:
                return "UNKNOWN_MEMBER_ID"
            group = self._groups.get_or_create(request.group_id)
        if isinstance(group, ConsumerGroup):
            if group.members:
                return self._consumers.join(group, request, on_done)
            # an empty group is deleted before it becomes a classic group
            error = self._groups.delete(group)
            if error is not None:
                return error
            group = self._groups.get_or_create(request.group_id)
        assert isinstance(group, Group)
        return self._membership.join(group, request, on_done)

    def sync(self, request: SyncRequest, on_done: SyncCallback) -> None:
        """Request a member's assignment. The leader's request contains all assignments.

        The callback is called once the leader has sent its request. Errors: UNKNOWN_MEMBER_ID,
        FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, INCONSISTENT_GROUP_PROTOCOL,
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        with self._calls():
            group, error = self._groups.find(request.group_id)
            if isinstance(group, ConsumerGroup):
                error = self._consumers.sync(group, request, on_done)
            elif group is None:
                error = error or "UNKNOWN_MEMBER_ID"
            else:
                error = self._membership.sync(group, request, on_done)
            if error is not None:
                self._calls.reply(on_done, SyncResult(error))

    def heartbeat(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None = None,
    ) -> str | None:
        """Restart a member's session. Return an error name, or None on success.

        After REBALANCE_IN_PROGRESS, the member must rejoin. After UNKNOWN_MEMBER_ID or
        ILLEGAL_GENERATION, it must join as a new member. FENCED_INSTANCE_ID is fatal.
        """
        with self._calls():
            group, error = self._groups.find(group_id)
            if isinstance(group, ConsumerGroup):
                return self._consumers.classic_heartbeat(
                    group, generation_id, member_id, group_instance_id
                )
            if group is None:
                return error or "UNKNOWN_MEMBER_ID"
            return self._membership.heartbeat(group, generation_id, member_id, group_instance_id)

    def leave(
        self, group_id: str, members: Sequence[LeavingMember], *, waits: bool = False
    ) -> LeaveResult:
        """Remove members from a group and start a rebalance.

        Parameters
        ----------
        waits : bool
            Whether to wait until the change is replicated.
        """
        try:
            with self._calls(waits=waits):
                return self._leave(group_id, members)
        except (NotCoordinatorError, CoordinatorNotAvailableError) as error:
            return LeaveResult(error.kafka_error)

    def _leave(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveResult:
        group, error = self._groups.find(group_id)
        if error is not None:
            return LeaveResult(error)
        if isinstance(group, ConsumerGroup):
            errors = self._consumers.leave(group, members)
            pairs = zip(members, errors, strict=True)
            return LeaveResult(None, tuple(LeftMember(*each, error) for each, error in pairs))
        left = []
        for each in members:
            error = "UNKNOWN_MEMBER_ID"
            if group is not None:
                error = self._membership.leave(group, each)
            left.append(LeftMember(*each, error))
        return LeaveResult(None, tuple(left))

    def named_partitions(
        self, assignment: Mapping[str, Iterable[int]]
    ) -> tuple[TopicPartition, ...]:
        """Return the sorted partitions of an assignment by topic id, without deleted topics."""
        topics = self._topics.current
        named = ((topics.of_id(topic_id), numbers) for topic_id, numbers in assignment.items())
        return tuple(
            sorted(
                TopicPartition(topic.name, number)
                for topic, numbers in named
                if topic is not None
                for number in numbers
            )
        )

    # -- offsets ---------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        generation_id: int = NO_GENERATION,
        member_id: str = NO_MEMBER,
        group_instance_id: str | None = None,
        *,
        version: int | None = None,
    ) -> dict[TopicPartition, str | None]:
        """Commit offsets. Return the error name of each partition, or None on success.

        A commit without a generation and a member id is only accepted if the group is empty. An
        invalid partition does not prevent the others from being committed.

        Parameters
        ----------
        generation_id : int
            The generation, or the member epoch in a group of the consumer protocol.
        version : int, optional
            Version of the OffsetCommit request. Since version 9, the error for a member of an
            unknown group is GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION.
        """
        sender = ConsumerGroupMetadata(group_id, generation_id, member_id, group_instance_id)
        commit = partial(self._commit, sender, offsets, version)
        try:
            return self.faults.request("commit", offsets, commit, group_id=group_id)
        except (NotCoordinatorError, CoordinatorNotAvailableError) as error:
            return dict.fromkeys(offsets, error.kafka_error)
        except LogStoreError as error:
            if not is_injected(error):
                raise
            return dict.fromkeys(offsets, error.kafka_error)

    def _commit(
        self,
        sender: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        version: int | None,
    ) -> dict[TopicPartition, str | None]:
        with self._calls(waits=True):
            group, error = self._groups.find(sender.group_id)
            if isinstance(group, ConsumerGroup):
                errors = self._check_partitions(group, sender, offsets, version=version)
                good = {tp: offset for tp, offset in offsets.items() if errors[tp] is None}
                return errors | self._offsets.commit(sender.group_id, good)
            if group is not None:
                error = self._membership.check_commit(group, sender)
            elif error is None and sender.generation_id >= 0:
                knows_groups = version is not None and version >= _REPORTS_UNKNOWN_GROUPS_FROM
                error = "GROUP_ID_NOT_FOUND" if knows_groups else "ILLEGAL_GENERATION"
            if error is not None:
                return dict.fromkeys(offsets, error)
            return self._offsets.commit(sender.group_id, offsets)

    def _check_partitions(
        self,
        group: ConsumerGroup,
        sender: ConsumerGroupMetadata,
        partitions: Iterable[TopicPartition],
        *,
        is_transactional: bool = False,
        version: int | None = None,
    ) -> dict[TopicPartition, str | None]:
        """Return the error of each partition in a commit to a consumer group, or None if valid."""
        error = group.check_commit(sender, is_transactional=is_transactional, version=version)
        if error is not None:
            return dict.fromkeys(partitions, error)
        topics = self._topics.current
        errors = {}
        for tp in partitions:
            topic = topics.named(tp.topic)
            topic_id = None if topic is None else topic.topic_id
            errors[tp] = group.check_partition(sender, topic_id, tp.partition)
        return errors

    def check_transactional(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Check the offsets of a transaction before they are written.

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
        NotCoordinatorError, CoordinatorLoadInProgressError
            Another broker coordinates the group, or the group's partition is still being loaded or
            cannot be read.
        """
        if not group.group_id:
            raise InvalidGroupIdError("the group id is empty")
        encode_group_key(group.group_id)
        with self._calls():
            error = self._transactional_error(group, offsets)
            if error is not None:
                raise error_class(error)(
                    f"group '{group.group_id}' rejected offsets of member '{group.member_id}' in"
                    f" generation {group.generation_id}: {error}"
                )
            for tp, committed in offsets.items():
                self._offsets.check(tp, committed)

    def check_epoch(self, group_id: str, producer: tuple[int, int]) -> None:
        """Check a producer's epoch against the log, before asking its coordinator.

        Raises
        ------
        InvalidProducerEpochError
            The group's partition contains records of a newer epoch.
        LogStoreError
            The partition cannot be read on this broker.
        """
        with self._calls():
            self._store.check_epoch(group_id, producer)

    def _transactional_error(
        self, sender: ConsumerGroupMetadata, partitions: Iterable[TopicPartition]
    ) -> str | None:
        group, error = self._groups.find(sender.group_id)
        if error == "COORDINATOR_LOAD_IN_PROGRESS":
            raise CoordinatorLoadInProgressError(f"group '{sender.group_id}' is being loaded")
        if error is not None:
            raise NotCoordinatorError(f"group '{sender.group_id}' cannot be read here")
        if not sender.is_member:
            return None
        if group is None:
            return "ILLEGAL_GENERATION" if sender.generation_id >= 0 else None
        if isinstance(group, ConsumerGroup):
            errors = self._check_partitions(group, sender, partitions, is_transactional=True)
            error = next(filter(None, errors.values()), None)
            # TxnOffsetCommit has no error for a stale member epoch.
            return "ILLEGAL_GENERATION" if error == "STALE_MEMBER_EPOCH" else error
        if sender.generation_id < 0 and group.state is GroupState.EMPTY:
            return None
        return group.check_member(sender.member_id, sender.group_instance_id, sender.generation_id)

    def append_transactional(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        producer: tuple[int, int],
    ) -> Callable[[], None]:
        """Write checked offsets as part of the transaction of (producer id, epoch).

        Returns
        -------
        callable
            Waits until the offsets are replicated, and raises the same errors as
            `CoordinatorHost.await_replicated`. The caller must not hold a lock.

        Raises
        ------
        InvalidProducerEpochError
            The producer was fenced by a newer epoch, or the transaction timed out.
        RequestError, KafkaStorageError
            Nothing was written.
        """
        with self._calls():
            self._store.write_offsets(group_id, offsets, producer)
            return partial(self._host.await_replicated, self._store.written)

    def fetch(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return the committed offsets of the given partitions, or all committed offsets.

        Parameters
        ----------
        require_stable : bool
            Return UNSTABLE_OFFSET_COMMIT for a partition that has a pending offset in an open
            transaction (KIP-447).

        Raises
        ------
        LogStoreError
            The stored offsets cannot be read.
        """
        with self._calls(waits=True):
            return self._offsets.fetch(group_id, partitions, require_stable=require_stable)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> str | None:
        """Return the error for an OffsetFetch with a member epoch, or None if it is valid.

        In a consumer group, the errors are UNKNOWN_MEMBER_ID and STALE_MEMBER_EPOCH, or
        ILLEGAL_GENERATION for classic members. Other groups accept every fetch.
        """
        with self._calls():
            group, _ = self._groups.find(group_id)
            if isinstance(group, ConsumerGroup):
                return group.check_fetch(member_id, member_epoch)
            return None

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets, including offsets of committed transactions.

        A transaction's offsets are committed when its marker is written, even if an older
        transaction of a different group is still open.

        Raises
        ------
        InvalidRecordError, UnsupportedFormatError
            A record is malformed, or has an unknown version.
        LogStoreError
            The partition cannot be read.
        """
        fetched = self.fetch(group_id)
        return {tp: each.committed for tp, each in fetched.items() if each.committed is not None}

    def of(self, group_id: str, *, creates: bool = False) -> GroupCoordinator:
        """Return a group's coordinator. On a single broker, this is always this object.

        Parameters
        ----------
        creates : bool
            In a cluster, whether to create the topic first for a subsequent write.

        Raises
        ------
        CoordinatorNotAvailableError
            No broker is currently the group's coordinator.
        """
        if creates and self._host.is_replicated:
            self.ensure_stored()
        return self._host.groups_of(self, group_id)

    def all_coordinators(self) -> list[GroupCoordinator]:
        """Return the coordinators of all brokers. On a single broker, this is only this object."""
        return self._host.all_groups(self)

    def partition_of(self, group_id: str) -> TopicPartition:
        """Return the partition of `__consumer_offsets` that stores a group."""
        return self._store.partition_of(group_id)

    def ensure_stored(self) -> None:
        """Create the topic, or take over a topic that was copied from a broker.

        Raises
        ------
        InvalidConfigurationError
            The broker is read-only.
        CoordinatorNotAvailableError
            No broker of the cluster is running.
        KafkaStorageError
        """
        with self._calls():
            self._store.ensure_stored()

    def partition_for(self, group_id: str) -> TopicPartition:
        """Return the partition that stores a group. Create the topic if necessary.

        Raises the same errors as `ensure_stored`.
        """
        self.ensure_stored()
        return self._store.partition_of(group_id)

    def logs_with_open_transactions(self) -> list[Log]:
        """Return the logs of `__consumer_offsets` that contain an open transaction.

        Logs that cannot be opened are skipped. The result is empty if the topic was copied from a
        broker.
        """
        with self._calls():
            return self._store.logs_with_open_transactions()

    # -- administration --------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupDescription:
        """Describe a group. The state of a group that does not exist is `Dead`."""
        with self._calls():
            group, error = self._groups.find(group_id)
            if not isinstance(group, Group):
                message = None if error is not None else _absence(group_id, group, "classic")
                return GroupDescription(
                    group_id, GroupState.DEAD.value, error=error, message=message
                )
            return group.describe()

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription:
        """Describe a consumer group. Errors: GROUP_ID_NOT_FOUND, NOT_COORDINATOR."""
        with self._calls():
            group, error = self._groups.find(group_id)
            if isinstance(group, ConsumerGroup):
                return group.describe_consumer_group(
                    self._topics.current, self._settings_of(group_id).assignors[0]
                )
            if error is not None:
                return ConsumerGroupDescription(group_id, error=error)
            message = _absence(group_id, group, "consumer")
            return ConsumerGroupDescription(group_id, error="GROUP_ID_NOT_FOUND", message=message)

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """List groups in the order of their ids, filtered by state and type (classic, consumer).

        Raises
        ------
        LogStoreError
            A partition of the topic cannot be read.
        """
        wanted = {each.lower().strip() for each in states}
        wanted_types = {each.lower() for each in types}
        with self._calls():
            self._groups.load_all()
            return [
                GroupListing(
                    group.group_id,
                    group.protocol_type or "",
                    group.state.value,
                    group.type.value,
                )
                for group in sorted(self._groups, key=lambda each: each.group_id)
                if (not wanted or group.state.value.lower() in wanted)
                and (not wanted_types or group.type.value in wanted_types)
            ]

    def delete(self, group_ids: Iterable[str]) -> dict[str, str | None]:
        """Delete empty groups and their offsets.

        Return the error name of each group, or None on success.

        Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE.
        """
        group_ids = list(group_ids)
        try:
            with self._calls(waits=True):
                return {group_id: self._delete(group_id) for group_id in group_ids}
        except (NotCoordinatorError, CoordinatorNotAvailableError) as error:
            return dict.fromkeys(group_ids, error.kafka_error)

    def _delete(self, group_id: str) -> str | None:
        group, error = self._groups.find(group_id)
        if group is None:
            return error or "GROUP_ID_NOT_FOUND"
        if group.state is not GroupState.EMPTY:
            return "NON_EMPTY_GROUP"
        return self._offsets.delete_group(group)

    def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> DeletedOffsets:
        """Delete committed offsets, except for topics to which a member is subscribed.

        Errors of the group: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (if it is not a consumer group),
        NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE. Errors of a partition:
        UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC.
        """
        try:
            with self._calls(waits=True):
                group, error = self._groups.find(group_id)
                if group is None:
                    return DeletedOffsets(error or "GROUP_ID_NOT_FOUND")
                if group.state is not GroupState.EMPTY and not group.is_consumer_group:
                    return DeletedOffsets("NON_EMPTY_GROUP")
                return self._offsets.delete(group, partitions)
        except (NotCoordinatorError, CoordinatorNotAvailableError) as refusal:
            return DeletedOffsets(refusal.kafka_error)

    def delete_offsets_of(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete the offsets of deleted partitions in all groups that this broker coordinates.

        When a topic is deleted, a cluster calls this method on each running broker. It returns
        after the deletions have been replicated. If that fails, it logs the error.
        """
        self._expiry.note_removed(partitions)
        try:
            with self._calls(waits=True):
                pass
        except LogStoreError as error:
            logger.warning("offsets of a deleted topic may not have been deleted: %s", error)

    # -- background tasks ------------------------------------------------------------------

    def take_over(self) -> None:
        """Load the partitions that this broker now coordinates, and unload all others."""
        with self._calls():
            self._groups.load_readable()

    def remove_expired(self) -> list[str]:
        """Delete expired offsets, and empty groups without offsets.

        Returns
        -------
        list of str
            The ids of the deleted groups.
        """
        with self._calls(expires=False):
            return self._expiry.delete_expired()

    def start(self) -> None:
        """Load all groups, and start the periodic check for expired offsets."""
        with self._calls():
            self._expiry.start(self._runtime.scheduler)
            if self._store.is_stored:
                self._groups.load_readable()

    def stop(self) -> None:
        """Delete the offsets of deleted partitions, and stop all tasks and timers."""
        with self._calls():
            self._expiry.stop()
        self._timers.stop()

    def follow(self, events: LogEvents) -> Iterable[Unsubscribe]:
        """Reschedule the check for expired offsets when logs or configs change.

        On a single broker, also delete the offsets of deleted partitions once their topic has been
        deleted. In a cluster, `delete_offsets_of` does this.
        """
        if self._host.is_replicated:
            return self._expiry.follow(events)
        return *self._expiry.follow(events), *self._expiry.follow_deletions(events)

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler of the timers, started on first use."""
        return self._timers.scheduler

    @property
    def own_scheduler(self) -> Scheduler | None:
        """The scheduler created by the coordinator for its timers, or None."""
        return self._timers.own_scheduler

    def use_system_clock(self) -> None:
        """Use the system clock for sessions and rebalances, even if the broker has a virtual clock.

        Members in other processes require this. Advancing a virtual clock far would expire their
        sessions, and without advancing it, their requests would wait forever. The sessions of the
        current members restart. Rebalances in progress and pending member ids keep their remaining
        time.
        """
        with self._calls(expires=False):
            shift_ns = self._timers.use_system_clock()
            if shift_ns is not None:
                for group in self._groups:
                    self._memberships[group.type].shift(group, shift_ns)


def _absence(group_id: str, group: AnyGroup | None, wanted: str) -> str:
    """Return Kafka's message for a group that does not exist or has the wrong type."""
    reason = "not found" if group is None else f"is not a {wanted} group"
    return f"Group {group_id} {reason}."
