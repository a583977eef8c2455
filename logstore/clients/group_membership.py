"""The parts of a consumer's membership that both group protocols share.

These are the member's identity, its heartbeats, and the timer for `max_poll_interval_ms`.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from logstore.coordinator.groups.offsets import NO_MEMBER, ConsumerGroupMetadata
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.clients.consumer_config import ConsumerConfig
    from logstore.clients.coordinators import GroupRequests
    from logstore.runtime import Runtime, ScheduledTask

HEARTBEAT_TASK = "consumer-heartbeat"
RETRY_TASK = "consumer-retry"


class Phase(enum.Enum):
    """The current rebalance phase of a member."""

    OUTSIDE = "outside"
    JOINING = "joining"
    SYNCING = "syncing"
    MEMBER = "member"


class GroupMembership(ABC):
    """A consumer's membership in its group.

    Parameters
    ----------
    runtime : Runtime
    coordinator : GroupRequests
    config : ConsumerConfig
        A configuration with a group id.

    Attributes
    ----------
    phase : Phase
        The current rebalance phase.
    member_id : str
        The id of this member, or "" if the coordinator has not assigned an id yet.
    share : tuple of TopicPartition
        The last partitions assigned to this member.
    is_lost : bool
        Whether the group has removed this member, so that its partitions may already belong to
        other members.

    Notes
    -----
    The consumer's thread calls all methods, except that the scheduler's thread sends periodic
    heartbeats.
    """

    def __init__(
        self, runtime: Runtime, coordinator: GroupRequests, config: ConsumerConfig
    ) -> None:
        assert config.group_id is not None
        self.group_id = config.group_id
        self.phase = Phase.OUTSIDE
        self.member_id = NO_MEMBER
        self.share: tuple[TopicPartition, ...] = ()
        self.is_lost = False
        self._runtime = runtime
        self._coordinator = coordinator
        self._config = config
        self._topics: frozenset[str] = frozenset()
        self._round = 0
        self._retry_ns = 0
        self._heartbeats: ScheduledTask | None = None
        self._polled_ns = runtime.clock.monotonic_ns()

    # -- implemented by the protocols ---------------------------------------------------------

    @property
    @abstractmethod
    def generation_id(self) -> int:
        """The generation or member epoch, or -1 if this consumer is not in the group."""

    @property
    @abstractmethod
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions during a rebalance."""

    @property
    @abstractmethod
    def is_stale(self) -> bool:
        """Whether this member leads the group and a topic's number of partitions has changed."""

    @property
    @abstractmethod
    def has_news(self) -> bool:
        """Whether the next `advance` would make progress."""

    @property
    @abstractmethod
    def must_join(self) -> bool:
        """Whether the next `advance` will (re)join, for which the consumer must prepare."""

    @abstractmethod
    def request_rejoin(self) -> None:
        """Make the next `advance` rejoin, or report the full state of this member."""

    @abstractmethod
    def watch(self, topics: frozenset[str]) -> None:
        """Set the subscription, and detect whether it has changed."""

    @abstractmethod
    def advance(self) -> bool:
        """Make as much progress as possible without waiting. Return whether partitions changed.

        Raises
        ------
        RequestError
            The group rejected this member, or another member is using its instance id.
        """

    @abstractmethod
    def leave(self, *, waits: bool = True) -> None:
        """Leave the group. A static member remains in the group until its session expires.

        Parameters
        ----------
        waits : bool
            Whether to wait until the change is replicated.
        """

    @abstractmethod
    def mark_lost(self, error: str) -> None:
        """Handle an error that means that the coordinator does not know this member."""

    @abstractmethod
    def send_heartbeat(self) -> None:
        """Send a heartbeat and handle its response."""

    @property
    @abstractmethod
    def _needs_heartbeats(self) -> bool:
        """Whether the group expects heartbeats from this member."""

    @abstractmethod
    def _end_silent(self) -> None:
        """Leave the group because `max_poll_interval_ms` was exceeded."""

    @abstractmethod
    def _forget(self) -> None:
        """Reset the state, as if the consumer had never joined the group."""

    # -- shared -------------------------------------------------------------------------------

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """The group metadata of this member, for transactions."""
        return ConsumerGroupMetadata(
            self.group_id, self.generation_id, self.member_id, self._config.group_instance_id
        )

    def abandon(self) -> None:
        """Stop without leaving the group, as if the consumer had crashed."""
        self._stop_heartbeats()
        self._forget()

    def keep_polling(self) -> None:
        """Restart the `max_poll_interval_ms` timer. Waiting inside `poll` counts as polling."""
        self._polled_ns = self._runtime.clock.monotonic_ns()

    @property
    def _is_backing_off(self) -> bool:
        """Whether the coordinator was unavailable and it is too early to retry."""
        return self._runtime.clock.monotonic_ns() < self._retry_ns

    def _back_off(self) -> None:
        backoff_ms = self._config.retry_backoff_ms
        self._retry_ns = self._runtime.clock.monotonic_ns() + backoff_ms * 1_000_000
        scheduler = self._coordinator.scheduler
        scheduler.schedule(RETRY_TASK, scheduler.notify, delay_ms=backoff_ms)

    def _start_heartbeats(self, period_ms: int) -> None:
        if self._heartbeats is None or self._heartbeats.cancelled:
            self._heartbeats = self._coordinator.scheduler.schedule(
                HEARTBEAT_TASK, self._heartbeat, delay_ms=period_ms, period_ms=period_ms
            )

    def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            self._heartbeats = None

    def _heartbeat(self) -> None:
        """Send a heartbeat, or leave the group if `max_poll_interval_ms` was exceeded."""
        if not self._needs_heartbeats:
            return
        silent_ms = (self._runtime.clock.monotonic_ns() - self._polled_ns) // 1_000_000
        if silent_ms < self._config.max_poll_interval_ms:
            self.send_heartbeat()
        else:
            self._end_silent()
