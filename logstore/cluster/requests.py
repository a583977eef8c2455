"""Requests that wait for replicas: appends with acks=all, and delete-records (KIP-107).

Each is begun at the leader, and is then a question that is asked again whenever replicas have made
progress, until it is answered or the time is over (`logstore.wire.purgatory`).
Source: Kafka's DelayedProduce and DelayedDeleteRecords.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from logstore.clients.results import DeleteRecordsResult
from logstore.errors import (
    LogStoreError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
)
from logstore.types import NO_OFFSET

if TYPE_CHECKING:
    from logstore.cluster.replicas import Replicas
    from logstore.runtime import Unsubscribe
    from logstore.types import TopicPartition


class DelayedProduce:
    """An append that waits until all in-sync replicas have it.

    Parameters
    ----------
    replicas : Replicas
        Of the broker that it was appended at.
    last_offset : int
        Its last record's.
    """

    def __init__(
        self, replicas: Replicas, topic_partition: TopicPartition, last_offset: int
    ) -> None:
        self._replicas = replicas
        self._topic_partition = topic_partition
        self._last_offset = last_offset
        # Of a later epoch of the same broker nothing follows: the record may be another's by then.
        self._role = replicas.role(topic_partition)
        self.error: LogStoreError | None = RequestTimedOutError(
            f"{topic_partition}: not all replicas in sync have offset {last_offset} yet"
        )

    def is_done(self) -> bool:
        """Tell whether there is an answer: `error`, None if all is well."""
        try:
            leadership = self._replicas.leadership(self._topic_partition)
            high_watermark = leadership.log.high_watermark
            if leadership is not self._role:
                raise NotLeaderForPartitionError(
                    f"{self._topic_partition} had another leader meanwhile"
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
        """Tell a listener whenever there may be an answer."""
        return _subscribed(self._replicas, self._topic_partition, listener)


class DelayedDeleteRecords:
    """A deletion that waits until no live replica has the records any more.

    Parameters
    ----------
    replicas : Replicas
        Of the leader.
    offset : int
        Up to which the leader has deleted, exclusive.

    Attributes
    ----------
    low_watermark : int
        -1 with an error.
    error : LogStoreError or None
        `REQUEST_TIMED_OUT` until there is an answer.
    """

    def __init__(self, replicas: Replicas, topic_partition: TopicPartition, offset: int) -> None:
        self._replicas = replicas
        self._topic_partition = topic_partition
        self._offset = offset
        self.low_watermark = NO_OFFSET
        self.error: LogStoreError | None = RequestTimedOutError(
            f"{topic_partition}: not all live replicas have deleted up to offset {offset} yet"
        )

    @property
    def result(self) -> DeleteRecordsResult:
        """The answer as it is now."""
        if self.error is None:
            return DeleteRecordsResult(self.low_watermark)
        return DeleteRecordsResult(NO_OFFSET, self.error.kafka_error, str(self.error))

    def is_done(self) -> bool:
        """Tell whether there is an answer: `low_watermark` or `error`."""
        try:
            low_watermark = self._replicas.leadership(self._topic_partition).low_watermark
        except LogStoreError as error:
            self.error = _not_leader(self._topic_partition, error)
            return True
        if low_watermark < self._offset:
            return False
        self.low_watermark, self.error = low_watermark, None
        return True

    def subscribe(self, listener: Callable[[], object]) -> Unsubscribe:
        """Tell a listener whenever there may be an answer."""
        return _subscribed(self._replicas, self._topic_partition, listener)


def _subscribed(
    replicas: Replicas, topic_partition: TopicPartition, listener: Callable[[], object]
) -> Unsubscribe:
    def on_progress(progressed: TopicPartition) -> None:
        if progressed == topic_partition:
            listener()

    with ExitStack() as subscriptions:
        subscriptions.callback(replicas.progress.subscribe(on_progress))
        with suppress(LogStoreError):  # it was closed just now, of which `is_done` tells
            subscriptions.callback(replicas.manager.log(topic_partition).subscribe(listener))
        return subscriptions.pop_all().close


def _not_leader(topic_partition: TopicPartition, error: LogStoreError) -> LogStoreError:
    if isinstance(error, NotLeaderForPartitionError):
        return error
    # The log was closed with its broker.
    return NotLeaderForPartitionError(f"the leader of {topic_partition} is gone: {error}")
