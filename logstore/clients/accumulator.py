"""Records that wait in batches, one open batch a partition, and their way into the logs.

What Kafka's RecordAccumulator and Sender do, without requests: a batch is appended in the thread of
whoever fills it or asks for it; only one that lingers is sent by the scheduler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from logstore.clients.futures import FutureRecordMetadata, ProducerBatch
from logstore.clients.open_batch import limit_of
from logstore.clients.producer_batch import build_producer_batch
from logstore.coordinator.transactions.produce import check_for_clients
from logstore.errors import (
    IllegalStateError,
    InvalidRecordError,
    KafkaTimeoutError,
    LogStoreError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RequestError,
)
from logstore.faults.rules import is_injected, is_passing
from logstore.record.codecs import Codec
from logstore.runtime import background_scheduler
from logstore.types import NO_OFFSET

if TYPE_CHECKING:
    from logstore.clients.producer_config import ProducerConfig
    from logstore.clients.producer_metrics import ProducerMetrics
    from logstore.clients.session import ProducerSession
    from logstore.manager.manager import LogManager
    from logstore.record.records import Header
    from logstore.runtime import Runtime, Scheduler
    from logstore.storage.log.drafts import AppendInfo, RecordLists, Stamp
    from logstore.storage.log.writer import LogWriter
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)


SENDER_TASK = "kafka-producer-network-thread"
"""Kafka's name of what sends a batch that has lingered."""


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
    Its lock is the producer's, taken by `locked`, and held wherever nothing else is said. Who takes
    the lock itself, as `Producer.send` does for a record, tells those who wait: `take_settled`.

    Attributes
    ----------
    lock : context manager
    settled : list of ProducerBatch
        Batches whose listeners are to be told once the lock is given back.
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
        self.lock = runtime.lock()
        self.settled: list[ProducerBatch] = []
        self._open: dict[TopicPartition, ProducerBatch] = {}
        self._scheduler: Scheduler = runtime.scheduler
        self._own_scheduler: Scheduler | None = None
        self._is_armed = False
        self._is_adding = False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; then, without it, tell those who wait for what was settled meanwhile."""
        settled: Sequence[ProducerBatch] = ()
        try:
            with self.lock:
                try:
                    yield
                finally:
                    settled = self.take_settled()
        finally:
            for batch in settled:
                batch.call_back()

    def take_settled(self) -> list[ProducerBatch]:
        """Return the batches whose listeners are to be told once the lock was given back."""
        settled, self.settled = self.settled, []
        return settled

    def is_waiting(self, topic_partition: TopicPartition) -> bool:
        """Tell whether the partition has an open batch."""
        return topic_partition in self._open

    def has_room(self, topic_partition: TopicPartition, size_bytes: int) -> bool:
        """Tell whether the partition has an open batch that would take a record of that size."""
        batch = self._open.get(topic_partition)
        return batch is not None and batch.has_room(size_bytes)

    def add(
        self,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: tuple[Header, ...],
        size_bytes: int,
    ) -> FutureRecordMetadata:
        """Put a record into the partition's batch, and append the batches that this completes.

        `size_bytes` is its `estimated_size`.

        Returns
        -------
        FutureRecordMetadata
            Whatever happens to the record, nothing is raised.

        Raises
        ------
        IllegalStateError
            A signal handler runs while this thread adds a record.
        """
        if self._is_adding:
            self._refuse_inside(topic_partition)
        try:  # see `LocalLog.change`
            self._is_adding = True
            batch = self._open.get(topic_partition)
            while batch is None or not batch.has_room(size_bytes):
                self._is_adding = False  # while a batch is sent, other tasks may add records
                if batch is None:
                    self._open_batch(topic_partition)
                else:
                    self._send([batch])
                self._is_adding = True
                batch = self._open.get(topic_partition)
            row = len(batch.keys)
            try:
                future = FutureRecordMetadata(batch, row)
                batch.sizes.append(size_bytes)
                is_full = batch.add(key, value, timestamp, headers, size_bytes)
            except BaseException:
                batch.cut(row)  # else an interrupt could pair a key with another record's value
                raise
        finally:
            self._is_adding = False
        if is_full or self._config.linger_ms == 0:
            self._send([batch])
        return future

    def _refuse_inside(self, topic_partition: TopicPartition) -> NoReturn:
        raise IllegalStateError(
            f"a signal handler cannot send with a producer while the same thread adds a record for"
            f" {topic_partition}: send after that call has returned"
        )

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

    def _open_batch(self, tp: TopicPartition) -> None:
        """Open a batch for the partition, which has none."""
        now_ns, linger_ms = self._clock.monotonic_ns(), self._config.linger_ms
        self._open[tp] = ProducerBatch(
            tp, self._limit_bytes(tp), now_ns, linger_ms, self.lock, self._send_if_open
        )
        if linger_ms > 0:
            self._arm(now_ns)

    def _limit_bytes(self, tp: TopicPartition) -> int:
        try:
            config = self._manager.log(tp).config
        except LogStoreError:
            return self._config.batch_size  # the batch will hear of it
        return limit_of(config, self._config.batch_size)

    def _send_if_open(self, batch: ProducerBatch) -> None:
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

    def _take(self, batches: Iterable[ProducerBatch]) -> None:
        now_ns = self._clock.monotonic_ns()
        for batch in batches:
            if self._is_adding:
                self._refuse_inside(batch.topic_partition)
            del self._open[batch.topic_partition]
            self._metrics.record_wait((now_ns - batch.opened_ns) / 1e6)

    def _send(self, batches: Sequence[ProducerBatch]) -> None:
        """Append open batches and settle their futures."""
        self._take(batches)
        try:
            if self._session is not None and batches:
                try:
                    self._session.add_partitions(batch.topic_partition for batch in batches)
                except LogStoreError as error:
                    self._refuse(batches, error)
                    return
            for batch in batches:
                self.settled.append(batch)
                self._append(batch, 0, len(batch))
        except BaseException:
            unknown = KafkaTimeoutError("the send was interrupted: the record may have been stored")
            for batch in batches:
                rows = len(batch.timestamps)
                if batch.settled_rows < rows:
                    self.settled.append(batch)
                    self._fail(batch, rows, unknown)
            raise

    def _append(self, batch: ProducerBatch, start: int, stop: int) -> None:
        """Append the records [start, stop) of a batch, and settle them."""
        tp, count = batch.topic_partition, stop - start
        try:
            if self._session is not None:
                self._session.raise_if_failed()
            info = self._write(tp, batch if count == len(batch) else batch.part(start, stop))
        except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
            if count == 1:
                self._fail(batch, stop, error)
                return
            # The topic's limit was lowered, or it stores with a codec that makes it larger.
            self._metrics.retries += count
            middle = start + count // 2
            self._append(batch, start, middle)
            self._append(batch, middle, stop)
        except LogStoreError as error:
            self._fail(batch, stop, error)
        else:
            self._metrics.record_batch(count, info.size_bytes, max(batch.sizes[start:stop]))
            if self._config.acks == 0:
                batch.settle(stop, NO_OFFSET)
            else:
                batch.settle(stop, info.first_offset, info.log_append_time)

    def _write(self, tp: TopicPartition, records: RecordLists) -> AppendInfo:
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

    def _write_once(self, tp: TopicPartition, records: RecordLists) -> AppendInfo:
        check_for_clients(tp.topic)
        session, codec = self._session, self._config.codec
        if session is None:
            writer = self._manager.log(tp).writer
            append = partial(writer.append_records, records, codec)
            return self._manager.faults.request("append", (tp,), append)
        is_retry = False
        while True:
            stamp = session.stamp(tp)
            try:
                info = session.append(self._manager, tp, _appending(records, codec, stamp))
            except RequestError as error:
                if is_retry or not session.recovers_from(error):
                    raise
                logger.warning("%s: sent again after: %s", tp, error)
                self._metrics.retries += len(records)
                is_retry = True
            else:
                session.sent(tp, len(records))
                return info

    def _fail(self, batch: ProducerBatch, stop: int, error: LogStoreError) -> None:
        """Settle the records up to `stop`, which were refused, and draw the consequence."""
        count = stop - batch.settled_rows
        tp = batch.topic_partition
        logger.info("%s: a batch of %d records was refused: %s", tp, count, error)
        if self._session is not None:
            if is_injected(error) or isinstance(error, KafkaTimeoutError):
                self._session.lost_answer()
            self._session.failed(error)
        self._metrics.errors += count
        if self._config.acks == 0:
            batch.settle(stop, NO_OFFSET)
            return
        faults = dict(error.record_errors) if isinstance(error, InvalidRecordError) else {}
        errors = [_record_error(error, faults, row) for row in range(count)]
        batch.settle(stop, NO_OFFSET, errors=errors)

    def _refuse(self, batches: Iterable[ProducerBatch], error: LogStoreError) -> None:
        """Settle the records of batches that were not sent."""
        for batch in batches:
            self.settled.append(batch)
            self._metrics.errors += len(batch)
            batch.settle(len(batch), NO_OFFSET, errors=[error] * len(batch))


def _appending(
    records: RecordLists, codec: Codec, stamp: Stamp
) -> Callable[[LogWriter], AppendInfo]:
    """Return what appends records as the batch of a producer."""
    if codec is Codec.NONE:
        return lambda writer: writer.append_records(records, stamp=stamp)
    data = build_producer_batch(records, codec, stamp)
    return lambda writer: writer.append_batches(data)


def _record_error(error: LogStoreError, faults: Mapping[int, str], row: int) -> LogStoreError:
    """Return what a record of a refused batch is told: its own fault, or another one's."""
    if not faults:
        return error
    if row not in faults:
        return RequestError("the record was not stored: others of its batch are invalid")
    return (type(error) if len(faults) == 1 else InvalidRecordError)(faults[row])
