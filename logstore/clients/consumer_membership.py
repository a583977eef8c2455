"""A consumer's membership in a consumer group of KIP-848, without a network.

The broker computes the assignment and returns it in heartbeat responses. As in `Membership`,
`advance` does not wait: it sends a heartbeat if necessary, and handles a response that has arrived.
When the assignment changes, the consumer first stops using the revoked partitions. The next
`advance` reports the remaining partitions to the broker.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from logstore.clients.group_membership import GroupMembership, Phase
from logstore.coordinator.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
)
from logstore.coordinator.groups.offsets import NO_GENERATION
from logstore.coordinator.groups.requests import ConsumerHeartbeat, ConsumerHeartbeatResult
from logstore.errors import NotCoordinatorError, RequestError, error_class
from logstore.types import encode_topic_id

if TYPE_CHECKING:
    from logstore.clients.consumer_config import ConsumerConfig
    from logstore.clients.coordinators import GroupRequests
    from logstore.runtime import Runtime

_LOST = ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID")
_FATAL = (
    "FENCED_INSTANCE_ID",
    "GROUP_ID_NOT_FOUND",
    "GROUP_MAX_SIZE_REACHED",
    "INVALID_GROUP_ID",
)
"""Fatal errors, after which the member does not try to rejoin."""


class ConsumerProtocolMembership(GroupMembership):
    """A consumer's membership in a group of the consumer protocol; see `GroupMembership`.

    This protocol has no SYNCING phase. The member generates its id and never changes it.
    """

    def __init__(
        self, runtime: Runtime, coordinator: GroupRequests, config: ConsumerConfig
    ) -> None:
        super().__init__(runtime, coordinator, config)
        number = uuid.UUID(int=runtime.rng.getrandbits(128), version=4)
        self.member_id = encode_topic_id(number.bytes)
        self._epoch = JOIN_EPOCH
        self._owned: Mapping[str, tuple[int, ...]] = {}
        self._reports_topics = False
        self._reports_owned = False
        self._answer: ConsumerHeartbeatResult | None = None
        self._is_waiting = False

    # -- called by the consumer --------------------------------------------------------------

    @property
    def generation_id(self) -> int:
        """The member epoch, or -1 if this consumer is not in the group."""
        return self._epoch if self.phase is Phase.MEMBER else NO_GENERATION

    @property
    def is_cooperative(self) -> bool:
        """Always True: a member only revokes partitions that move to other members."""
        return True

    @property
    def is_stale(self) -> bool:
        """Always False: the broker detects changes in partition counts."""
        return False

    @property
    def has_news(self) -> bool:
        """Whether `advance` would make progress."""
        return (
            self._answer is not None or self.must_join or self._must_report or self._is_unanswered
        )

    @property
    def _is_unanswered(self) -> bool:
        """Whether the coordinator has failed or moved since the last heartbeat was sent."""
        return self._is_waiting and self._coordinator.is_unanswered

    @property
    def must_join(self) -> bool:
        """Whether the next `advance` will join the group, for which the consumer must prepare."""
        return self.phase is Phase.OUTSIDE and not self._is_backing_off

    @property
    def _must_report(self) -> bool:
        """Whether the next `advance` must report the subscription or the owned partitions."""
        is_due = self.phase is Phase.MEMBER and (self._reports_topics or self._reports_owned)
        return is_due and not self._is_waiting and not self._is_backing_off

    def request_rejoin(self) -> None:
        """Report the full state of this member in the next `advance`."""
        self._reports_topics = self._reports_owned = True

    def watch(self, topics: frozenset[str]) -> None:
        """Set the subscription. If it has changed, the next heartbeat reports it."""
        if topics != self._topics:
            self._reports_topics = True
        self._topics = topics

    def advance(self) -> bool:
        """Make as much progress as possible without waiting. Return whether partitions changed.

        Raises
        ------
        RequestError
            The group rejected this member, or another member is using its instance id.
        """
        self.keep_polling()
        while True:
            if self.must_join:
                self._join()
            elif self._must_report:
                self.send_heartbeat()
            answer, self._answer = self._answer, None
            if answer is None and self._is_unanswered:
                self._round += 1
                self._is_waiting = False
                answer = ConsumerHeartbeatResult(error=NotCoordinatorError.kafka_error)
            if answer is None:
                return False
            if self._handle(answer):
                return True

    def leave(self, *, waits: bool = True) -> None:
        """Leave the group. A static member keeps its partitions until its session expires."""
        self._stop_heartbeats()
        if self.phase is not Phase.OUTSIDE:
            instance_id = self._config.group_instance_id
            epoch = LEAVE_EPOCH if instance_id is None else LEAVE_STATIC_EPOCH
            self._round += 1  # ignore the responses to earlier heartbeats
            request = ConsumerHeartbeat(self.group_id, self.member_id, epoch, instance_id)
            self._coordinator.leave_consumer_group(request, waits=waits)
        self._forget()

    def mark_lost(self, error: str) -> None:
        """Handle an error that means that the group does not know this member or its epoch."""
        del error
        self._stop_heartbeats()
        self._forget()
        self.is_lost = True

    def send_heartbeat(self) -> None:
        """Send a heartbeat, unless an earlier heartbeat awaits its response or its handling."""
        if not self._is_waiting and self._answer is None:
            self._send(ConsumerHeartbeat(self.group_id, self.member_id, self._epoch))

    # -- inside -------------------------------------------------------------------------------

    def _join(self) -> None:
        self.phase = Phase.JOINING
        self.is_lost = False
        self._reports_topics = self._reports_owned = True
        self._send(ConsumerHeartbeat(self.group_id, self.member_id, JOIN_EPOCH))

    def _send(self, request: ConsumerHeartbeat) -> None:
        config = self._config
        if self._reports_topics:
            request = request._replace(
                rebalance_timeout_ms=config.max_poll_interval_ms,
                topics=tuple(sorted(self._topics)),
                assignor=config.group_remote_assignor,
            )
        if self._reports_owned:
            request = request._replace(owned=self._owned)
        self._reports_topics = self._reports_owned = False
        self._is_waiting = True
        self._round += 1
        number = self._round

        def deliver(result: ConsumerHeartbeatResult) -> None:
            # ignore responses to abandoned requests
            if number == self._round:
                self._is_waiting = False
                self._answer = result
                self._coordinator.scheduler.notify()

        self._coordinator.consumer_heartbeat(
            request._replace(
                instance_id=config.group_instance_id,
                client_id=config.client_id,
                client_host="/127.0.0.1",
            ),
            deliver,
        )

    def _handle(self, answer: ConsumerHeartbeatResult) -> bool:
        """Handle a heartbeat response. Return whether the assignment has changed."""
        if answer.error is not None:
            self._handle_error(answer.error, answer.message)
            return False
        self.phase = Phase.MEMBER
        self._epoch = answer.member_epoch
        self._start_heartbeats(answer.heartbeat_interval_ms)
        if answer.assignment is None or answer.assignment == self._owned:
            return False
        self._owned = answer.assignment
        self.share = self._coordinator.named_partitions(answer.assignment)
        self._reports_owned = True
        return True

    def _handle_error(self, error: str, message: str | None) -> None:
        if error in _LOST or (error == "GROUP_ID_NOT_FOUND" and self.phase is Phase.MEMBER):
            self.mark_lost(error)
            return
        if self.phase is Phase.JOINING:
            self.phase = Phase.OUTSIDE
        if self._coordinator.may_pass(error):
            self.request_rejoin()
            self._back_off()
            return
        self._stop_heartbeats()
        kind = error_class(error) if error in _FATAL else RequestError
        raise kind(f"group '{self.group_id}' rejected this consumer: {message or error}")

    def _forget(self) -> None:
        self._round += 1
        self._answer = None
        self._is_waiting = False
        self.phase = Phase.OUTSIDE
        self._epoch = JOIN_EPOCH
        self._owned = {}
        self.share = ()

    @property
    def _needs_heartbeats(self) -> bool:
        return self.phase is Phase.MEMBER

    def _end_silent(self) -> None:
        self.leave(waits=False)
        self.is_lost = True
        self._coordinator.scheduler.notify()
