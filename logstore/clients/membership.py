"""A consumer's membership in its group: what a client's coordinator does, without a network.

Nothing here waits. `advance` does what can be done at once: ask to join, assign as the leader, ask
for the share. Answers that have to wait for other members come when they come; `has_news` tells
that the next `advance` will get further. Heartbeats are sent by a task, as long as the consumer
polls often enough; what they are answered is looked at in the next `advance`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from logstore.coordinator.groups.assignors import ASSIGNORS, Assignor, sticky_user_data
from logstore.coordinator.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from logstore.coordinator.groups.offsets import NO_GENERATION, NO_MEMBER, ConsumerGroupMetadata
from logstore.coordinator.groups.requests import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from logstore.errors import (
    RETRIABLE_ERRORS,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    RequestError,
)
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.clients.consumer_config import ConsumerConfig
    from logstore.coordinator.groups.coordinator import GroupCoordinator
    from logstore.runtime import Runtime, ScheduledTask

HEARTBEAT_TASK = "consumer-heartbeat"
RETRY_TASK = "consumer-retry"

_LOST = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
_FATAL: dict[str, type[RequestError]] = {
    kind.kafka_error: kind
    for kind in (
        FencedInstanceIdError,
        GroupMaxSizeReachedError,
        InconsistentGroupProtocolError,
        InvalidGroupIdError,
        InvalidSessionTimeoutError,
    )
}
"""Refusals that a member cannot mend by asking again."""


class Phase(enum.Enum):
    """Where a member is on its way to a share."""

    OUTSIDE = "outside"
    JOINING = "joining"
    SYNCING = "syncing"
    MEMBER = "member"


class Membership:
    """One consumer's place in its group.

    Parameters
    ----------
    runtime : Runtime
    coordinator : GroupCoordinator
    config : ConsumerConfig
        With a group.
    partition_counts : callable
        Gives the partition counts of topics, those that exist.

    Attributes
    ----------
    phase : Phase
        Where it is on its way to a share.
    member_id, generation_id : str, int
        As given by the coordinator; empty and -1 outside.
    share : tuple of TopicPartition
        What it was assigned last.
    is_lost : bool
        Whether the group went on without it, so that its share may be another's already.

    Notes
    -----
    The consumer's thread calls all but the heartbeats, which the scheduler's sends.
    """

    def __init__(
        self,
        runtime: Runtime,
        coordinator: GroupCoordinator,
        config: ConsumerConfig,
        partition_counts: Callable[[Iterable[str]], dict[str, int]],
    ) -> None:
        assert config.group_id is not None
        self.group_id = config.group_id
        self.phase = Phase.OUTSIDE
        self.member_id = NO_MEMBER
        self.generation_id = NO_GENERATION
        self.share: tuple[TopicPartition, ...] = ()
        self.is_lost = False
        self._runtime = runtime
        self._coordinator = coordinator
        self._config = config
        self._partition_counts = partition_counts
        self._topics: frozenset[str] = frozenset()
        self._protocol: Assignor = config.assignors[0]
        self._is_leader = False
        self._all_topics: set[str] = set()
        self._counts_assigned: dict[str, int] = {}
        self._wants_rejoin = False
        self._answer: JoinResult | SyncResult | None = None
        self._round = 0
        self._retry_ns = 0
        self._heartbeats: ScheduledTask | None = None
        self._polled_ns = runtime.clock.monotonic_ns()

    # -- what a consumer asks ----------------------------------------------------------------

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep what they have while they join."""
        return self._config.assignors[0].is_cooperative

    @property
    def has_news(self) -> bool:
        """Whether `advance` would get further."""
        if self._answer is not None:
            return True
        return (self._wants_rejoin or self.phase is Phase.OUTSIDE) and not self._is_backing_off

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """Identity of this member, for transactions."""
        return ConsumerGroupMetadata(
            self.group_id, self.generation_id, self.member_id, self._config.group_instance_id
        )

    @property
    def must_join(self) -> bool:
        """Whether the next `advance` joins (again), so that the consumer prepares for it."""
        wants = self.phase is Phase.OUTSIDE or (self.phase is Phase.MEMBER and self._wants_rejoin)
        return wants and not self._is_backing_off

    @property
    def _is_backing_off(self) -> bool:
        """Whether the coordinator was not available, and is not asked again yet."""
        return self._runtime.clock.monotonic_ns() < self._retry_ns

    def request_rejoin(self) -> None:
        """Join again at the next `advance`."""
        self._wants_rejoin = True

    @property
    def is_stale(self) -> bool:
        """Whether, for a leader, the partitions of the members' topics are others by now."""
        if self.phase is not Phase.MEMBER or not self._is_leader:
            return False
        return self._partition_counts(self._all_topics) != self._counts_assigned

    def watch(self, topics: frozenset[str]) -> None:
        """See whether the subscription, or for a leader its topics' partitions, changed."""
        if self.phase is not Phase.OUTSIDE and (topics != self._topics or self.is_stale):
            self._wants_rejoin = True
        self._topics = topics

    def advance(self) -> bool:
        """Get as far as is possible now; True if a share has come.

        Raises
        ------
        RequestError
            The group does not take this member, or another one has its instance id.
        """
        self.keep_polling()
        while True:
            if self.must_join:
                self._join()
            answer = self._take_answer()
            if answer is None:
                return False
            if isinstance(answer, JoinResult):
                self._joined(answer)
            elif self._synced(answer):
                return True

    def leave(self) -> None:
        """Leave the group; a static member stays one, until its session ends."""
        self._stop_heartbeats()
        if self.member_id != NO_MEMBER and self._config.group_instance_id is None:
            self._coordinator.leave(self.group_id, [LeavingMember(self.member_id)])
        self._forget()

    def abandon(self) -> None:
        """Fall silent, as if the process ended."""
        self._stop_heartbeats()
        self._forget()

    def lost(self, error: str) -> None:
        """Hear that the coordinator does not know this member, or this generation, any more."""
        self.is_lost = True
        if error == "UNKNOWN_MEMBER_ID":
            self.member_id = NO_MEMBER
        self.generation_id = NO_GENERATION
        self._wants_rejoin = True

    # -- inside -------------------------------------------------------------------------------

    def _join(self) -> None:
        self._round += 1
        self._wants_rejoin = False
        self._answer = None
        self.phase = Phase.JOINING
        config = self._config
        self._coordinator.join(
            JoinRequest(
                self.group_id,
                CONSUMER_PROTOCOL_TYPE,
                tuple((each.name, self._told(each)) for each in config.assignors),
                config.session_timeout_ms,
                config.max_poll_interval_ms,
                self.member_id,
                config.group_instance_id,
                config.client_id,
                "/127.0.0.1",
            ),
            self._callback(),
        )

    def _told(self, assignor: Assignor) -> bytes:
        """Return what a member tells of itself for an assignor."""
        owned = () if self.is_lost else self.share
        user_data = None
        if assignor.name == "sticky":
            user_data = sticky_user_data(owned, self.generation_id) if owned else None
        elif assignor.is_cooperative:
            user_data = struct.pack(">i", self.generation_id)
        return encode_subscription(
            Subscription(
                tuple(sorted(self._topics)),
                user_data,
                owned if assignor.is_cooperative else (),
                self.generation_id,
            )
        )

    def _callback(self) -> Callable[[JoinResult | SyncResult], None]:
        number = self._round

        def answered(result: JoinResult | SyncResult) -> None:
            if number == self._round:  # else of a request that was given up
                self._answer = result
                self._coordinator.scheduler.notify()

        return answered

    def _take_answer(self) -> JoinResult | SyncResult | None:
        answer, self._answer = self._answer, None
        return answer

    def _joined(self, answer: JoinResult) -> None:
        if answer.error is not None:
            self._refused(answer.error, answer.member_id)
            return
        self.member_id, self.generation_id = answer.member_id, answer.generation_id
        self.is_lost = False
        self._is_leader = answer.leader == answer.member_id
        self._protocol = ASSIGNORS[answer.protocol_name or ""]
        assignments: Mapping[str, bytes] = {}
        if self._is_leader:
            assignments = self._assign(answer)
        self._start_heartbeats()
        self.phase = Phase.SYNCING
        self._coordinator.sync(
            SyncRequest(
                self.group_id,
                self.generation_id,
                self.member_id,
                self._config.group_instance_id,
                CONSUMER_PROTOCOL_TYPE,
                answer.protocol_name,
                {} if answer.skip_assignment else assignments,
            ),
            self._callback(),
        )

    def _assign(self, answer: JoinResult) -> dict[str, bytes]:
        """Deal out, as the leader, what all members want."""
        members = {each.member_id: decode_subscription(each.metadata) for each in answer.members}
        self._all_topics = {topic for wants in members.values() for topic in wants.topics}
        self._counts_assigned = self._partition_counts(self._all_topics)
        shares = self._protocol.assign(self._counts_assigned, members)
        return {
            member_id: encode_assignment(Assignment(tuple(share)))
            for member_id, share in shares.items()
        }

    def _synced(self, answer: SyncResult) -> bool:
        if answer.error is not None:
            self._refused(answer.error, self.member_id)
            return False
        self.phase = Phase.MEMBER
        before, self.share = self.share, decode_assignment(answer.assignment).partitions
        if self.is_cooperative and not set(before) <= set(self.share):
            self._wants_rejoin = True  # what was given up is free for another now
        return True

    def _refused(self, error: str, member_id: str) -> None:
        self.phase = Phase.OUTSIDE
        if error == "MEMBER_ID_REQUIRED":
            self.member_id = member_id
        elif error in _LOST:
            self.lost(error)
        elif error in _FATAL:
            self._stop_heartbeats()
            raise _FATAL[error](f"group '{self.group_id}' refuses this consumer: {error}")
        elif error in RETRIABLE_ERRORS and self._coordinator.faults.has_answered(error):
            self._back_off()
        elif error != "REBALANCE_IN_PROGRESS":
            self._stop_heartbeats()
            raise RequestError(f"group '{self.group_id}' cannot be joined: {error}")

    def _back_off(self) -> None:
        backoff_ms = self._config.retry_backoff_ms
        self._retry_ns = self._runtime.clock.monotonic_ns() + backoff_ms * 1_000_000
        scheduler = self._coordinator.scheduler
        scheduler.schedule(RETRY_TASK, scheduler.notify, delay_ms=backoff_ms)

    def _forget(self) -> None:
        self._round += 1
        self._answer = None
        self._wants_rejoin = False
        self.phase = Phase.OUTSIDE
        self.member_id, self.generation_id = NO_MEMBER, NO_GENERATION
        self.share = ()
        self._is_leader = False

    # -- heartbeats ---------------------------------------------------------------------------

    def _start_heartbeats(self) -> None:
        if self._heartbeats is None or self._heartbeats.cancelled:
            period_ms = self._config.heartbeat_interval_ms
            self._heartbeats = self._coordinator.scheduler.schedule(
                HEARTBEAT_TASK, self._beat, delay_ms=period_ms, period_ms=period_ms
            )

    def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            self._heartbeats = None

    def keep_polling(self) -> None:
        """Count a wait inside `poll` as polling."""
        self._polled_ns = self._runtime.clock.monotonic_ns()

    def _beat(self) -> None:
        """Report, unless the consumer has not polled for too long: then it leaves."""
        if self.phase not in (Phase.MEMBER, Phase.SYNCING) or self.is_lost:
            return  # a member that joins need not report
        silent_ms = (self._runtime.clock.monotonic_ns() - self._polled_ns) // 1_000_000
        if silent_ms < self._config.max_poll_interval_ms:
            self.report()
            return
        self._stop_heartbeats()
        if self._config.group_instance_id is None:
            self._coordinator.leave(self.group_id, [LeavingMember(self.member_id)])
        self.lost("UNKNOWN_MEMBER_ID")

    def report(self) -> None:
        """Send a heartbeat, and note what it is answered."""
        error = self._coordinator.heartbeat(
            self.group_id, self.generation_id, self.member_id, self._config.group_instance_id
        )
        if error is None:
            return
        if error == "REBALANCE_IN_PROGRESS":
            self._wants_rejoin = True
        else:
            self._stop_heartbeats()
            if error == "FENCED_INSTANCE_ID":
                self._answer = JoinResult(self.member_id, error)
            else:
                self.lost(error)
        self._coordinator.scheduler.notify()
