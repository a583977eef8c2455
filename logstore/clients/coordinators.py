"""Requests of in-process clients to their coordinators.

In a cluster, the coordinator of a group or transaction is the leader of its partition. It can move,
so it is looked up for each request, as the Java clients do after a NOT_COORDINATOR error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from logstore.coordinator.groups.requests import (
    ConsumerHeartbeatResult,
    JoinResult,
    LeaveResult,
    SyncResult,
)
from logstore.errors import (
    COORDINATOR_ERRORS,
    RETRIABLE_ERRORS,
    IllegalStateError,
    KafkaTimeoutError,
    LogStoreError,
    NotCoordinatorError,
)
from logstore.types import NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from logstore.coordinator.groups.coordinator import GroupCoordinator
    from logstore.coordinator.groups.offsets import OffsetAndMetadata
    from logstore.coordinator.groups.requests import (
        ConsumerHeartbeat,
        FetchedOffset,
        JoinRequest,
        LeavingMember,
        SyncRequest,
    )
    from logstore.coordinator.transactions.coordinator import TransactionCoordinator
    from logstore.runtime import Clock, Scheduler
    from logstore.types import TopicPartition

T = TypeVar("T")

LEAVE_TIMEOUT_MS = 10_000
"""How long to wait for the response when a member leaves its group."""


class GroupRequests:
    """Sends one client's requests to its group's coordinator.

    If the coordinator fails or moves in a cluster, a request either returns an error in
    `COORDINATOR_ERRORS` or gets no response; see `is_unanswered`.

    Parameters
    ----------
    home : GroupCoordinator
        The coordinator on the client's broker.
    group_id : str
    """

    def __init__(self, home: GroupCoordinator, group_id: str) -> None:
        self._home = home
        self._group_id = group_id
        self._is_replicated = home.is_replicated
        # The coordinators of the last request with a callback, and of the last request.
        self._asked: GroupCoordinator | None = None
        self._current: GroupCoordinator | None = None
        moved = home.moved
        self._unsubscribe = None if moved is None else moved.subscribe(self._notify)

    def close(self) -> None:
        """Stop following the coordinator."""
        if self._unsubscribe is not None:
            self._unsubscribe()

    def _notify(self) -> None:
        if not self._home.is_over:
            self.scheduler.notify()

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler of the client's broker, started if necessary."""
        return self._home.scheduler

    def may_pass(self, error: str) -> bool:
        """Return whether a join, heartbeat or commit that failed with this error may be retried.

        The errors of a moving coordinator in a cluster are temporary. Other errors are temporary
        only if a fault rule caused them.
        """
        if self._is_replicated and error in COORDINATOR_ERRORS:
            return True
        return error in RETRIABLE_ERRORS and self._home.faults.has_injected(error)

    def is_moving(self, error: LogStoreError) -> bool:
        """Return whether the coordinator is moving, so that any request may be retried."""
        return self._error_of(error) is not None

    def _error_of(self, error: LogStoreError) -> str | None:
        """Return the request's error name if the coordinator was moving, or None if it was not."""
        if not self._is_replicated:
            return None
        if error.kafka_error in COORDINATOR_ERRORS:
            return error.kafka_error
        has_ended = _has_ended(error, self._home, self._current)
        return NotCoordinatorError.kafka_error if has_ended else None

    def _find(self) -> GroupCoordinator:
        self._current = None
        self._current = self._home.of(self._group_id)
        return self._current

    @property
    def is_unanswered(self) -> bool:
        """Whether the group's coordinator has changed since the last join, sync or heartbeat."""
        if not self._is_replicated or self._asked is None:
            return False
        try:
            return self._home.of(self._group_id) is not self._asked
        except LogStoreError:
            return True

    def _send_request(
        self, request: Callable[[GroupCoordinator], T], refused: Callable[[str], T]
    ) -> T:
        """Send a request. If the coordinator is moving, convert the error with `refused`."""
        try:
            return request(self._find())
        except LogStoreError as error:
            name = self._error_of(error)
            if name is None:
                raise
            return refused(name)

    def _call(
        self, request: Callable[[GroupCoordinator], None], refused: Callable[[str], object]
    ) -> None:
        """Send a request whose response may arrive later.

        If the coordinator is moving, `refused` delivers the error.
        """

        def send(coordinator: GroupCoordinator) -> None:
            self._asked = coordinator
            request(coordinator)

        def refuse(error: str) -> None:
            refused(error)

        self._send_request(send, refuse)

    # -- members -----------------------------------------------------------------------------

    def join(self, request: JoinRequest, on_done: Callable[[JoinResult], object]) -> None:
        """Join the group; see `GroupCoordinator.join`."""
        self._call(
            lambda coordinator: coordinator.join(request, on_done),
            lambda error: on_done(JoinResult(request.member_id, error)),
        )

    def sync(self, request: SyncRequest, on_done: Callable[[SyncResult], object]) -> None:
        """Request this member's assignment; see `GroupCoordinator.sync`."""
        self._call(
            lambda coordinator: coordinator.sync(request, on_done),
            lambda error: on_done(SyncResult(error)),
        )

    def heartbeat(
        self, generation_id: int, member_id: str, group_instance_id: str | None
    ) -> str | None:
        """Send a heartbeat; see `GroupCoordinator.heartbeat`.

        While the coordinator is moving, also return None: the next heartbeat restarts the session.
        """

        def heartbeat(coordinator: GroupCoordinator) -> str | None:
            return coordinator.heartbeat(
                self._group_id, generation_id, member_id, group_instance_id
            )

        error = self._send_request(heartbeat, lambda name: name)
        return None if self._is_replicated and error in COORDINATOR_ERRORS else error

    def consumer_heartbeat(
        self, request: ConsumerHeartbeat, on_done: Callable[[ConsumerHeartbeatResult], object]
    ) -> None:
        """Send a heartbeat of the consumer protocol; see `GroupCoordinator.consumer_heartbeat`."""
        self._call(
            lambda coordinator: coordinator.consumer_heartbeat(request, on_done),
            lambda error: on_done(ConsumerHeartbeatResult(error=error)),
        )

    def leave(self, members: Sequence[LeavingMember], *, waits: bool = True) -> LeaveResult:
        """Leave the group; see `GroupCoordinator.leave`."""
        return self._send_request(
            lambda coordinator: coordinator.leave(self._group_id, members, waits=waits),
            LeaveResult,
        )

    def leave_consumer_group(self, request: ConsumerHeartbeat, *, waits: bool = True) -> None:
        """Leave a group of the consumer protocol. In a cluster, wait for the response."""
        answers: list[ConsumerHeartbeatResult] = []
        self.consumer_heartbeat(request, answers.append)
        if waits and self._is_replicated and not answers:
            self.scheduler.wait_until(
                lambda: bool(answers) or self.is_unanswered, timeout_ms=LEAVE_TIMEOUT_MS
            )

    def named_partitions(
        self, assignment: Mapping[str, Iterable[int]]
    ) -> tuple[TopicPartition, ...]:
        """Return an assignment by topic name; see `GroupCoordinator.named_partitions`."""
        return self._home.named_partitions(assignment)

    # -- offsets -----------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
    ) -> dict[TopicPartition, str | None]:
        """Commit offsets; see `GroupCoordinator.commit`."""
        return self._send_request(
            lambda coordinator: coordinator.commit(
                self._group_id, offsets, generation_id, member_id, group_instance_id
            ),
            lambda error: dict.fromkeys(offsets, error),
        )

    def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, FetchedOffset]:
        """Return committed offsets; see `GroupCoordinator.fetch`."""
        return self._find().fetch(self._group_id, partitions)


class _Coordinator(Protocol):
    """A group or transaction coordinator."""

    @property
    def is_over(self) -> bool:
        """Whether the coordinator's broker has stopped."""


def _has_ended(error: LogStoreError, home: _Coordinator, current: _Coordinator | None) -> bool:
    """Return whether a request failed because the coordinator's broker has stopped.

    Incorrect calls also raise `IllegalStateError`, but must not be retried.

    Parameters
    ----------
    home : _Coordinator
        The coordinator on the client's broker.
    current : _Coordinator or None
        The coordinator that got the request, or None if it was not found.
    """
    return (
        isinstance(error, IllegalStateError)
        and not home.is_over
        and (current is None or current.is_over)
    )


class TransactionRequests:
    """Sends one producer's requests to its transaction coordinator.

    Parameters
    ----------
    home : TransactionCoordinator
        The coordinator on the producer's broker.
    transactional_id : str or None
        The transactional id, or None for a producer without transactions, whose requests are never
        retried.
    clock : Clock
    timeout_ms : float
        How long requests are retried in a cluster.
    backoff_ms : float
        Time between attempts.
    """

    def __init__(
        self,
        home: TransactionCoordinator,
        transactional_id: str | None,
        clock: Clock,
        timeout_ms: float,
        backoff_ms: float,
    ) -> None:
        self.home = home
        self._transactional_id = transactional_id
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._is_replicated = home.is_replicated
        self._current: TransactionCoordinator | None = None  # receives the current request

    def current(self) -> TransactionCoordinator:
        """Return the current coordinator.

        Raises
        ------
        NotEnoughReplicasError
            No broker is currently the coordinator of this transactional id.
        """
        self._current = None
        self._current = self.home.of(self._transactional_id, NO_PRODUCER_ID)
        return self._current

    def is_moving(self, error: LogStoreError) -> bool:
        """Return whether the coordinator is moving, so that the request may be retried."""
        if not self._is_replicated or self._transactional_id is None or self.home.is_over:
            return False
        has_ended = _has_ended(error, self.home, self._current)
        return has_ended or error.kafka_error in _TRANSACTION_ERRORS

    def send(self, request: Callable[[TransactionCoordinator], T]) -> T:
        """Send a request to the coordinator, and retry while the coordinator is moving.

        Raises
        ------
        KafkaTimeoutError
            The coordinator did not become available in time. The request might have been executed.
        LogStoreError
            The request failed.
        """
        if not self._is_replicated:
            return request(self.home)
        until_ns = self._clock.monotonic_ns() + int(self._timeout_ms * 1_000_000)
        while True:
            try:
                return request(self.current())
            except LogStoreError as error:
                if not self.is_moving(error):
                    raise
                if self._clock.monotonic_ns() + int(self._backoff_ms * 1_000_000) > until_ns:
                    raise KafkaTimeoutError(
                        f"the coordinator of '{self._transactional_id}' was not available within"
                        f" {self._timeout_ms:g} ms: {error}"
                    ) from error
            self._clock.sleep(self._backoff_ms / 1000)


_TRANSACTION_ERRORS = COORDINATOR_ERRORS | {"CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS"}
"""Errors of a coordinator that is moving or still handling an earlier request."""
