"""A consumer's membership in its group: Java's ConsumerCoordinator, without a network.

`advance` makes as much progress as possible without waiting: it joins the group, assigns the
partitions if this member is the leader, and syncs. Responses that depend on other members arrive
later: `has_news` becomes True, and the next `advance` handles the response. A task sends heartbeats
as long as the consumer polls within `max_poll_interval_ms`. The next `advance` handles the
consequences of heartbeat errors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from logstore.clients.group_membership import GroupMembership, Phase
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
from logstore.coordinator.groups.offsets import NO_GENERATION, NO_MEMBER
from logstore.coordinator.groups.requests import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from logstore.errors import NotCoordinatorError, RequestError, error_class

if TYPE_CHECKING:
    from logstore.clients.consumer_config import ConsumerConfig
    from logstore.clients.coordinators import GroupRequests
    from logstore.runtime import Runtime

_LOST = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
_FATAL = (
    "FENCED_INSTANCE_ID",
    "GROUP_MAX_SIZE_REACHED",
    "INCONSISTENT_GROUP_PROTOCOL",
    "INVALID_GROUP_ID",
    "INVALID_SESSION_TIMEOUT",
)
"""Fatal errors, after which the member does not try to rejoin."""


class Membership(GroupMembership):
    """A consumer's membership in a group of the classic protocol; see `GroupMembership`.

    Parameters
    ----------
    partition_counts : callable
        Returns the partition counts of the given topics that exist.
    """

    def __init__(
        self,
        runtime: Runtime,
        coordinator: GroupRequests,
        config: ConsumerConfig,
        partition_counts: Callable[[Iterable[str]], dict[str, int]],
    ) -> None:
        super().__init__(runtime, coordinator, config)
        self._generation_id = NO_GENERATION
        self._partition_counts = partition_counts
        self._protocol: Assignor = config.assignors[0]
        self._is_leader = False
        self._all_topics: set[str] = set()
        self._counts_assigned: dict[str, int] = {}
        self._wants_rejoin = False
        self._answer: JoinResult | SyncResult | None = None

    # -- called by the consumer --------------------------------------------------------------

    @property
    def generation_id(self) -> int:
        """The generation of the last join, or -1 if this consumer is not in the group."""
        return self._generation_id

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions during a rebalance."""
        return self._config.assignors[0].is_cooperative

    @property
    def has_news(self) -> bool:
        """Whether `advance` would make progress."""
        return self._answer is not None or self._is_unanswered or self.must_join

    @property
    def _is_unanswered(self) -> bool:
        """Whether the coordinator has failed or moved since the last join or sync was sent."""
        is_waiting = self.phase in (Phase.JOINING, Phase.SYNCING)
        return is_waiting and self._coordinator.is_unanswered

    @property
    def must_join(self) -> bool:
        """Whether the next `advance` will (re)join, for which the consumer must prepare."""
        needs_join = self.phase is Phase.OUTSIDE or (
            self.phase is Phase.MEMBER and self._wants_rejoin
        )
        return needs_join and not self._is_backing_off

    def request_rejoin(self) -> None:
        """Make the next `advance` rejoin the group."""
        self._wants_rejoin = True

    @property
    def is_stale(self) -> bool:
        """Whether this member leads the group and a topic's number of partitions has changed."""
        if self.phase is not Phase.MEMBER or not self._is_leader:
            return False
        return self._partition_counts(self._all_topics) != self._counts_assigned

    def watch(self, topics: frozenset[str]) -> None:
        """Set the subscription. If it has changed, the next `advance` rejoins the group.

        The leader also rejoins if a subscribed topic's number of partitions has changed.
        """
        if self.phase is not Phase.OUTSIDE and (topics != self._topics or self.is_stale):
            self._wants_rejoin = True
        self._topics = topics

    def advance(self) -> bool:
        """Make as much progress as possible without waiting. Return True after an assignment.

        Raises
        ------
        RequestError
            The group rejected this member, or another member is using its instance id.
        """
        self.keep_polling()
        while True:
            if self.must_join:
                self._join()
            answer = self._take_answer()
            if answer is None:
                if self._is_unanswered:
                    self._round += 1
                    self._handle_error(NotCoordinatorError.kafka_error, self.member_id)
                return False
            if isinstance(answer, JoinResult):
                self._handle_join(answer)
            elif self._handle_sync(answer):
                return True

    def leave(self, *, waits: bool = True) -> None:
        """Leave the group. A static member remains in the group until its session expires."""
        self._stop_heartbeats()
        if self.member_id != NO_MEMBER and self._config.group_instance_id is None:
            self._coordinator.leave([LeavingMember(self.member_id)], waits=waits)
        self._forget()

    def mark_lost(self, error: str) -> None:
        """Handle an error that means that the coordinator does not know this member."""
        self.is_lost = True
        if error == "UNKNOWN_MEMBER_ID":
            self.member_id = NO_MEMBER
        self._generation_id = NO_GENERATION
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
                tuple((each.name, self._encode_subscription(each)) for each in config.assignors),
                config.session_timeout_ms,
                config.max_poll_interval_ms,
                self.member_id,
                config.group_instance_id,
                config.client_id,
                "/127.0.0.1",
            ),
            self._callback(),
        )

    def _encode_subscription(self, assignor: Assignor) -> bytes:
        """Encode the subscription in an assignor's format."""
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

        def deliver(result: JoinResult | SyncResult) -> None:
            # ignore responses to abandoned requests
            if number == self._round:
                self._answer = result
                self._coordinator.scheduler.notify()

        return deliver

    def _take_answer(self) -> JoinResult | SyncResult | None:
        answer, self._answer = self._answer, None
        return answer

    def _handle_join(self, answer: JoinResult) -> None:
        if answer.error is not None:
            self._handle_error(answer.error, answer.member_id)
            return
        self.member_id, self._generation_id = answer.member_id, answer.generation_id
        self.is_lost = False
        self._is_leader = answer.leader == answer.member_id
        self._protocol = ASSIGNORS[answer.protocol_name or ""]
        assignments: Mapping[str, bytes] = {}
        if self._is_leader:
            assignments = self._assign(answer)
        self._start_heartbeats(self._config.heartbeat_interval_ms)
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
        """As the group leader, assign the partitions of subscribed topics to all members."""
        members = {each.member_id: decode_subscription(each.metadata) for each in answer.members}
        self._all_topics = {
            topic for subscription in members.values() for topic in subscription.topics
        }
        self._counts_assigned = self._partition_counts(self._all_topics)
        shares = self._protocol.assign(self._counts_assigned, members)
        return {
            member_id: encode_assignment(Assignment(tuple(share)))
            for member_id, share in shares.items()
        }

    def _handle_sync(self, answer: SyncResult) -> bool:
        if answer.error is not None:
            self._handle_error(answer.error, self.member_id)
            return False
        self.phase = Phase.MEMBER
        before, self.share = self.share, decode_assignment(answer.assignment).partitions
        if self.is_cooperative and not set(before) <= set(self.share):
            self._wants_rejoin = True  # other members can now take over the revoked partitions
        return True

    def _handle_error(self, error: str, member_id: str) -> None:
        self.phase = Phase.OUTSIDE
        if error == "MEMBER_ID_REQUIRED":
            self.member_id = member_id
        elif error in _LOST:
            self.mark_lost(error)
        elif error in _FATAL:
            self._stop_heartbeats()
            raise error_class(error)(f"group '{self.group_id}' rejected this consumer: {error}")
        elif self._coordinator.may_pass(error):
            self._back_off()
        elif error != "REBALANCE_IN_PROGRESS":
            self._stop_heartbeats()
            raise RequestError(f"cannot join group '{self.group_id}': {error}")

    def _forget(self) -> None:
        self._round += 1
        self._answer = None
        self._wants_rejoin = False
        self.phase = Phase.OUTSIDE
        self.member_id, self._generation_id = NO_MEMBER, NO_GENERATION
        self.share = ()
        self._is_leader = False

    # -- heartbeats ---------------------------------------------------------------------------

    @property
    def _needs_heartbeats(self) -> bool:
        # A member that is joining does not need heartbeats.
        return self.phase in (Phase.MEMBER, Phase.SYNCING) and not self.is_lost

    def _end_silent(self) -> None:
        self._stop_heartbeats()
        if self._config.group_instance_id is None:
            self._coordinator.leave([LeavingMember(self.member_id)], waits=False)
        self.mark_lost("UNKNOWN_MEMBER_ID")

    def send_heartbeat(self) -> None:
        """Send a heartbeat, and handle an error in its response."""
        error = self._coordinator.heartbeat(
            self.generation_id, self.member_id, self._config.group_instance_id
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
                self.mark_lost(error)
        self._coordinator.scheduler.notify()
