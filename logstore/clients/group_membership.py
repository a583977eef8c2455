"""What consumers of both group protocols share: identity, heartbeats and the poll timer."""

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
    """State of a member in a rebalance."""

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
        Configuration with a group id.

    Attributes
    ----------
    phase : Phase
        State in the rebalance.
    member_id : str
        Identity in the group; empty if the coordinator has not assigned one.
    share : tuple of TopicPartition
        The last assignment.
    is_lost : bool
        Whether the group removed this member, so that others may own its partitions already.

    Notes
    -----
    The consumer's thread makes all calls, except heartbeats, which the scheduler's thread sends.
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

    # -- what the protocols decide ------------------------------------------------------------

    @property
    @abstractmethod
    def generation_id(self) -> int:
        """The generation or member epoch, or -1 outside the group."""

    @property
    @abstractmethod
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions while they join."""

    @property
    @abstractmethod
    def is_stale(self) -> bool:
        """Whether this member is the leader and partition counts changed since the assignment."""

    @property
    @abstractmethod
    def has_news(self) -> bool:
        """Whether `advance` would make progress."""

    @property
    @abstractmethod
    def must_join(self) -> bool:
        """Whether the next `advance` joins or rejoins, so the consumer must prepare for it."""

    @abstractmethod
    def request_rejoin(self) -> None:
        """Rejoin or report everything at the next `advance`."""

    @abstractmethod
    def watch(self, topics: frozenset[str]) -> None:
        """Notice a changed subscription."""

    @abstractmethod
    def advance(self) -> bool:
        """Go as far as possible without waiting, and return True after a new assignment.

        Raises
        ------
        RequestError
            The group rejected this member, or another member uses its instance id.
        """

    @abstractmethod
    def leave(self, *, waits: bool = True) -> None:
        """Leave the group. A static member remains a member until its session expires.

        Parameters
        ----------
        waits : bool
            Whether to return only when the in-sync replicas have the change.
        """

    @abstractmethod
    def mark_lost(self, error: str) -> None:
        """Handle the error that the coordinator no longer knows this member or generation."""

    @abstractmethod
    def send_heartbeat(self) -> None:
        """Send a heartbeat and handle its answer."""

    @property
    @abstractmethod
    def _needs_heartbeats(self) -> bool:
        """Whether the group expects heartbeats from this member."""

    @abstractmethod
    def _end_silent(self) -> None:
        """Leave the group, because the consumer exceeded `max_poll_interval_ms`."""

    @abstractmethod
    def _forget(self) -> None:
        """Reset to the state outside the group."""

    # -- shared -------------------------------------------------------------------------------

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """The member's identity, for transactions."""
        return ConsumerGroupMetadata(
            self.group_id, self.generation_id, self.member_id, self._config.group_instance_id
        )

    def abandon(self) -> None:
        """Stop without leaving the group, as in a crash."""
        self._stop_heartbeats()
        self._forget()

    def keep_polling(self) -> None:
        """Restart the `max_poll_interval_ms` timer: a wait inside `poll` counts as polling."""
        self._polled_ns = self._runtime.clock.monotonic_ns()

    @property
    def _is_backing_off(self) -> bool:
        """Whether the coordinator was unavailable and the retry is not due yet."""
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
        """Send a heartbeat, or leave if the consumer exceeded `max_poll_interval_ms`."""
        if not self._needs_heartbeats:
            return
        silent_ms = (self._runtime.clock.monotonic_ns() - self._polled_ns) // 1_000_000
        if silent_ms < self._config.max_poll_interval_ms:
            self.send_heartbeat()
        else:
            self._end_silent()
