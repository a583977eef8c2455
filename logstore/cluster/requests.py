"""Requests awaiting replication: appends with acks=all, and DeleteRecords (KIP-107).

After the leader has performed a request, it is checked whenever replicas make progress, until it
completes or times out; see `Purgatory`.

Source: Kafka's DelayedProduce and DelayedDeleteRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Protocol

from logstore.clients.results import DeleteRecordsResult
from logstore.errors import (
    LogStoreError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
)
from logstore.types import NO_OFFSET

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from logstore.cluster.leadership import Leadership
    from logstore.manager.manager import LogManager
    from logstore.runtime import ScheduledTask, Scheduler, Signal, Unsubscribe
    from logstore.types import TopicPartition


class Leader(Protocol):
    """The replicas of a partition's leader broker; see `Replicas`."""

    manager: LogManager
    progress: Signal[[TopicPartition]]

    def leadership(self, topic_partition: TopicPartition) -> Leadership:
        """Return the leader role of a partition, or raise `NotLeaderForPartitionError`."""


class DelayedProduce:
    """An append awaiting replication (acks=all).

    Parameters
    ----------
    replicas : Leader
        The replicas of the broker that appended the records.
    last_offset : int
        Offset of the last appended record.
    role : object
        The leader role before the append. If the broker leads a later epoch, the offset may belong
        to a different record.
    """

    def __init__(
        self, replicas: Leader, topic_partition: TopicPartition, last_offset: int, role: object
    ) -> None:
        self._replicas = replicas
        self._topic_partition = topic_partition
        self._last_offset = last_offset
        self._role = role
        self.error: LogStoreError | None = RequestTimedOutError(
            f"{topic_partition}: not all in-sync replicas have offset {last_offset} yet"
        )

    def is_done(self) -> bool:
        """Return whether the append has completed, with an `error` or None on success."""
        try:
            leadership = self._replicas.leadership(self._topic_partition)
            high_watermark = leadership.log.high_watermark
            if leadership is not self._role:
                raise NotLeaderForPartitionError(
                    f"the leader of {self._topic_partition} changed during the append"
                )
        except LogStoreError as error:
            self.error = _not_leader(self._topic_partition, error)
            return True
        if high_watermark <= self._last_offset:
            return False
        self.error = None
        if len(leadership.state.isr) < leadership.min_isr:
            self.error = NotEnoughReplicasAfterAppendError(
                f"{self._topic_partition}: offset {self._last_offset} was appended, but fewer"
                f" replicas than min.insync.replicas = {leadership.min_isr} are in sync"
            )
        return True

    def subscribe(self, listener: Callable[[], object]) -> Unsubscribe:
        """Call the listener whenever the operation may have completed."""
        return _subscribed(self._replicas, self._topic_partition, listener)


class Completion:
    """Calls `then` once, when all of the given appends have completed or the timeout expires.

    Parameters
    ----------
    lock : context manager
        A lock for exclusive use by this object.
    delayed : sequence of DelayedProduce
        If it is empty, `then` is called immediately.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        lock: AbstractContextManager[object],
        delayed: Sequence[DelayedProduce],
        then: Callable[[], object],
        timeout_ms: int,
    ) -> None:
        self._delayed = delayed
        self._then = then
        self._lock = lock
        self._is_due = self._is_over = False
        self._scheduler = scheduler
        self._timer: ScheduledTask | None = None
        self._unsubscribe: list[Unsubscribe] = []
        if delayed:
            self._timer = scheduler.schedule("append-timeout", self._end, delay_ms=timeout_ms)
        for each in delayed:
            self._unsubscribe.append(each.subscribe(self._wake))
        self._check()
        if self._is_over:  # another thread may have called `then` during the subscriptions
            self._leave()

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._scheduler.schedule("append-completion", self._check)

    def _check(self) -> None:
        self._is_due = False
        if all(each.is_done() for each in self._delayed):
            self._end()

    def _end(self) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._leave()
        self._then()

    def _leave(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()


class DelayedDeleteRecords:
    """A DeleteRecords operation that waits until all live replicas have deleted the records.

    Parameters
    ----------
    replicas : Leader
        The replicas of the leader broker.
    offset : int
        The leader's new log start offset.

    Attributes
    ----------
    low_watermark : int
        The low watermark at the request, then at completion, or -1 if the leader has changed.
    error : LogStoreError or None
        `REQUEST_TIMED_OUT` until the operation has completed.
    """

    def __init__(self, replicas: Leader, topic_partition: TopicPartition, offset: int) -> None:
        self._replicas = replicas
        self._topic_partition = topic_partition
        self._offset = offset
        self.low_watermark = NO_OFFSET
        with suppress(LogStoreError):  # `is_done` reports the error
            self.low_watermark = replicas.leadership(topic_partition).low_watermark
        self.error: LogStoreError | None = RequestTimedOutError(
            f"{topic_partition}: not all live replicas have deleted the records up to offset"
            f" {offset} yet"
        )

    @property
    def result(self) -> DeleteRecordsResult:
        """The current result."""
        if self.error is None:
            return DeleteRecordsResult(self.low_watermark)
        return DeleteRecordsResult(NO_OFFSET, self.error.kafka_error, str(self.error))

    def is_done(self) -> bool:
        """Return whether the operation has completed, with a `low_watermark` or an `error`."""
        try:
            low_watermark = self._replicas.leadership(self._topic_partition).low_watermark
        except LogStoreError as error:
            self.low_watermark = NO_OFFSET
            self.error = _not_leader(self._topic_partition, error)
            return True
        if low_watermark < self._offset:
            return False
        self.low_watermark, self.error = low_watermark, None
        return True

    def subscribe(self, listener: Callable[[], object]) -> Unsubscribe:
        """Call the listener whenever the operation may have completed."""
        return _subscribed(self._replicas, self._topic_partition, listener)


def _subscribed(
    replicas: Leader, topic_partition: TopicPartition, listener: Callable[[], object]
) -> Unsubscribe:
    def on_progress(progressed: TopicPartition) -> None:
        if progressed == topic_partition:
            listener()

    with ExitStack() as subscriptions:
        subscriptions.callback(replicas.progress.subscribe(on_progress))
        with suppress(LogStoreError):  # the log was closed concurrently; `is_done` reports it
            subscriptions.callback(replicas.manager.log(topic_partition).subscribe(listener))
        return subscriptions.pop_all().close


def _not_leader(topic_partition: TopicPartition, error: LogStoreError) -> LogStoreError:
    if isinstance(error, NotLeaderForPartitionError):
        return error
    # The log was closed because its broker has stopped.
    return NotLeaderForPartitionError(f"the leader of {topic_partition} has stopped: {error}")
