"""Records that wait in batches, one open batch a partition, and their way into the logs.

What Kafka's RecordAccumulator and Sender do, without requests: a batch is appended in the thread of
whoever fills it or asks for it; only one that lingers is sent by the scheduler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from logstore.broker.futures import FutureRecordMetadata, ProducedMetadata
from logstore.broker.open_batch import OpenBatch, estimated_size, limit_of
from logstore.broker.producer_batch import build_producer_batch
from logstore.errors import (
    InvalidRecordError,
    KafkaTimeoutError,
    LogStoreError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RequestError,
)
from logstore.faults.rules import is_injected, is_passing
from logstore.log.drafts import AppendInfo, NewRecord
from logstore.runtime import background_scheduler
from logstore.transactions.produce import check_for_clients
from logstore.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from logstore.broker.producer_config import ProducerConfig
    from logstore.broker.producer_metrics import ProducerMetrics
    from logstore.broker.session import ProducerSession
    from logstore.manager.manager import LogManager
    from logstore.runtime import Runtime, Scheduler

logger = logging.getLogger(__name__)


SENDER_TASK = "kafka-producer-network-thread"
"""Kafka's name of what sends a batch that has lingered."""


class _OpenBatch(OpenBatch[FutureRecordMetadata]):
    __slots__ = ("due_ns", "opened_ns", "send_now", "topic_partition")

    def __init__(
        self,
        topic_partition: TopicPartition,
        limit_bytes: int,
        opened_ns: int,
        linger_ms: float,
        send: Callable[[_OpenBatch], None],
    ) -> None:
        super().__init__(limit_bytes)
        self.topic_partition = topic_partition
        self.opened_ns = opened_ns
        self.due_ns = opened_ns + round(linger_ms * 1_000_000)
        self.send_now = partial(send, self)


class _Locked:
    """The lock of a producer; who gives it back tells those who wait for what was settled."""

    __slots__ = ("_lock", "settled")

    def __init__(self, lock: AbstractContextManager[bool]) -> None:
        self._lock = lock
        self.settled: list[FutureRecordMetadata] = []

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        settled = self.settled
        if settled:
            self.settled = []
        self._lock.__exit__(None, None, None)
        for future in settled:
            future.call_back()


class RecordAccumulator:
    """Collects a producer's records into batches and appends those.

    Parameters
    ----------
    runtime : Runtime
    manager : LogManager
    config : ProducerConfig
    session : ProducerSession or None
        Gives batches their producer fields; None if the producer is not idempotent.
    metrics : ProducerMetrics

    Notes
    -----
    Its lock is the producer's, taken by `locked`, and held wherever nothing else is said.
    """

    def __init__(
        self,
        runtime: Runtime,
        manager: LogManager,
        config: ProducerConfig,
        session: ProducerSession | None,
        metrics: ProducerMetrics,
    ) -> None:
        self._clock = runtime.clock
        self._manager = manager
        self._config = config
        self._session = session
        self._metrics = metrics
        self._lock = runtime.lock()
        self._open: dict[TopicPartition, _OpenBatch] = {}
        self._locked = _Locked(self._lock)
        self._scheduler: Scheduler = runtime.scheduler
        self._own_scheduler: Scheduler | None = None
        self._is_armed = False

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock; then, without it, tell those who wait for what was settled meanwhile."""
        return self._locked

    def is_waiting(self, topic_partition: TopicPartition) -> bool:
        """Tell whether the partition has an open batch."""
        return topic_partition in self._open

    def has_room(self, topic_partition: TopicPartition, record: NewRecord) -> bool:
        """Tell whether the partition has an open batch that would take a record."""
        batch = self._open.get(topic_partition)
        return batch is not None and batch.has_room(estimated_size(record))

    def add(
        self, topic_partition: TopicPartition, record: NewRecord, size_bytes: int
    ) -> FutureRecordMetadata:
        """Put a record into the partition's batch, and append the batches that this completes.

        `size_bytes` is its `estimated_size`.

        Returns
        -------
        FutureRecordMetadata
            Whatever happens to the record, nothing is raised.
        """
        batch = self._batch_with_room(topic_partition, size_bytes)
        future = FutureRecordMetadata(self._lock, batch.send_now, record, size_bytes)
        if batch.add(future, size_bytes) or self._config.linger_ms == 0:
            self._send([batch])
        return future

    def send_all(self) -> None:
        """Append every open batch, in the order in which they were opened."""
        self._send(list(self._open.values()))

    def refuse_all(self, error: LogStoreError) -> None:
        """Let no waiting record be sent; their futures fail with `error`."""
        batches = list(self._open.values())
        self._take(batches)
        self._refuse(batches, error)

    def close(self) -> None:
        """Give lingering up; nothing is open any more. Not to be called with the lock held."""
        assert not self._open, "what waits is sent or refused first"
        # Without the lock: a task that is running may be waiting for it.
        if self._own_scheduler is not None:
            self._own_scheduler.shutdown()

    def _batch_with_room(self, tp: TopicPartition, size_bytes: int) -> _OpenBatch:
        """Return the partition's open batch; one that has no room for the record is sent first."""
        batch = self._open.get(tp)
        if batch is not None and not batch.has_room(size_bytes):
            self._send([batch])
            batch = None
        if batch is None:
            now_ns = self._clock.monotonic_ns()
            batch = _OpenBatch(
                tp, self._limit_bytes(tp), now_ns, self._config.linger_ms, self._send_if_open
            )
            self._open[tp] = batch
            if self._config.linger_ms > 0:
                self._arm(now_ns)
        return batch

    def _limit_bytes(self, tp: TopicPartition) -> int:
        try:
            config = self._manager.log(tp).config
        except LogStoreError:
            return self._config.batch_size  # the batch will hear of it
        return limit_of(config, self._config.batch_size)

    def _send_if_open(self, batch: _OpenBatch) -> None:
        """Append a batch unless that was done; called without the lock."""
        with self.locked():
            if self._open.get(batch.topic_partition) is batch:
                self._send([batch])

    # -- lingering -------------------------------------------------------------------------

    def _arm(self, now_ns: int) -> None:
        """See that the batch that has lingered longest is sent when its time is over."""
        if self._is_armed or not self._open:
            return
        if not self._scheduler.is_started:
            # Nothing runs in the background of this broker; lingering was asked for all the same.
            self._own_scheduler = self._scheduler = background_scheduler(self._clock)
        due_ns = min(batch.due_ns for batch in self._open.values())
        delay_ms = -(-max(due_ns - now_ns, 0) // 1_000_000)
        self._is_armed = True
        self._scheduler.schedule(SENDER_TASK, self._send_lingered, delay_ms=delay_ms)

    def _send_lingered(self) -> None:
        with self.locked():
            self._is_armed = False
            now_ns = self._clock.monotonic_ns()
            self._send([batch for batch in self._open.values() if batch.due_ns <= now_ns])
            self._arm(now_ns)

    # -- batches into logs -----------------------------------------------------------------

    def _take(self, batches: Iterable[_OpenBatch]) -> None:
        now_ns = self._clock.monotonic_ns()
        for batch in batches:
            del self._open[batch.topic_partition]
            self._metrics.record_wait((now_ns - batch.opened_ns) / 1e6)

    def _send(self, batches: Sequence[_OpenBatch]) -> None:
        """Append open batches and settle their futures."""
        self._take(batches)
        if self._session is not None and batches:
            try:
                self._session.add_partitions(batch.topic_partition for batch in batches)
            except LogStoreError as error:
                self._refuse(batches, error)
                return
        for batch in batches:
            self._append(batch.topic_partition, batch.items)

    def _append(self, tp: TopicPartition, waiting: Sequence[FutureRecordMetadata]) -> None:
        try:
            if self._session is not None:
                self._session.raise_if_failed()
            info = self._write(tp, [each.waiting for each in waiting])
        except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
            if len(waiting) == 1:
                self._fail(tp, waiting, error)
                return
            # The topic's limit was lowered, or it stores with a codec that makes it larger.
            self._metrics.retries += len(waiting)
            half = len(waiting) // 2
            self._append(tp, waiting[:half])
            self._append(tp, waiting[half:])
        except LogStoreError as error:
            self._fail(tp, waiting, error)
        else:
            largest = max(each.size_bytes for each in waiting)
            self._metrics.record_batch(len(waiting), info.size_bytes, largest)
            is_told = self._config.acks != 0
            stamped = info.log_append_time if is_told else NO_TIMESTAMP
            for row, each in enumerate(waiting):
                offset = info.first_offset + row if is_told else NO_OFFSET
                each.settle(_stored(tp, each.waiting, offset, stamped))
            self._locked.settled += waiting

    def _write(self, tp: TopicPartition, records: Sequence[NewRecord]) -> AppendInfo:
        """Append a batch, again and again as long as it is refused with an error that passes.

        An idempotent producer sends the same sequences again, so that nothing is stored twice
        whose answer was lost; another one's records are.
        """
        config = self._config
        started_ns = self._clock.monotonic_ns()
        retries = 0
        while True:
            try:
                return self._write_once(tp, records)
            except LogStoreError as error:
                if not is_passing(error) or config.acks == 0 or retries >= config.retries:
                    raise
                passed_ms = (self._clock.monotonic_ns() - started_ns) / 1e6
                if passed_ms + config.retry_backoff_ms > config.delivery_timeout_ms:
                    raise KafkaTimeoutError(
                        f"{tp}: a batch of {len(records)} records was not delivered within"
                        f" {config.delivery_timeout_ms:g} ms: {error}"
                    ) from error
                logger.info("%s: sent again after: %s", tp, error)
            retries += 1
            self._metrics.retries += len(records)
            self._clock.sleep(config.retry_backoff_ms / 1000)

    def _write_once(self, tp: TopicPartition, records: Sequence[NewRecord]) -> AppendInfo:
        check_for_clients(tp.topic)
        session, codec = self._session, self._config.codec
        if session is None:
            writer = self._manager.log(tp).writer
            append = partial(writer.append_records, records, codec)
            return self._manager.faults.request("append", (tp,), append)
        is_retry = False
        while True:
            data = build_producer_batch(records, codec, session.stamp(tp))
            try:
                info = session.append(self._manager, tp, data)
            except RequestError as error:
                if is_retry or not session.recovers_from(error):
                    raise
                logger.warning("%s: sent again after: %s", tp, error)
                self._metrics.retries += len(records)
                is_retry = True
            else:
                session.sent(tp, len(records))
                return info

    def _fail(
        self, tp: TopicPartition, waiting: Sequence[FutureRecordMetadata], error: LogStoreError
    ) -> None:
        """Settle the futures of a batch that was refused, and draw the consequence."""
        logger.info("%s: a batch of %d records was refused: %s", tp, len(waiting), error)
        if self._session is not None:
            if is_injected(error) or isinstance(error, KafkaTimeoutError):
                self._session.lost_answer()
            self._session.failed(error)
        self._metrics.errors += len(waiting)
        faults = dict(error.record_errors) if isinstance(error, InvalidRecordError) else {}
        for row, each in enumerate(waiting):
            if self._config.acks == 0:
                self._settle(each, _stored(tp, each.waiting, NO_OFFSET, NO_TIMESTAMP))
            else:
                self._settle(each, _record_error(error, faults, row))

    def _refuse(self, batches: Iterable[_OpenBatch], error: LogStoreError) -> None:
        """Settle the futures of batches that were not sent."""
        for batch in batches:
            self._metrics.errors += len(batch.items)
            for each in batch.items:
                self._settle(each, error)

    def _settle(
        self, future: FutureRecordMetadata, outcome: ProducedMetadata | LogStoreError
    ) -> None:
        future.settle(outcome)
        self._locked.settled.append(future)


def _stored(tp: TopicPartition, record: NewRecord, offset: int, stamped: int) -> ProducedMetadata:
    """Return what is told of a record; `stamped` is the time that the log gave it, or -1."""
    key, value, timestamp, headers = record
    assert timestamp is not None, "set when the record was sent"
    header_size = -1
    if headers:
        header_size = sum(len(name.encode()) + len(each or b"") for name, each in headers)
    # Once a record; see `logstore.log.drafts`.
    metadata: ProducedMetadata = tuple.__new__(
        ProducedMetadata,
        (
            tp[0],
            tp[1],
            tp,
            offset,
            timestamp if stamped == NO_TIMESTAMP else stamped,
            None,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            header_size,
        ),
    )
    return metadata


def _record_error(error: LogStoreError, faults: Mapping[int, str], row: int) -> LogStoreError:
    """Return what a record of a refused batch is told: its own fault, or another one's."""
    if not faults:
        return error
    if row not in faults:
        return RequestError("the record was not stored: others of its batch are invalid")
    return (type(error) if len(faults) == 1 else InvalidRecordError)(faults[row])
