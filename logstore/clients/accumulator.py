"""Batch a producer's records and append the batches to the logs.

This module combines Kafka's RecordAccumulator and Sender, but sends no requests. The thread that
fills or flushes a batch appends it. The scheduler only sends batches whose linger time has elapsed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from logstore.clients.futures import (
    FutureRecordMetadata,
    ProducedMetadata,
    ProducerBatch,
    StoredRecord,
    size_of_headers,
)
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
from logstore.faults.rules import is_injected, is_retriable_injection
from logstore.names import INTERNAL_COMPACTED_TOPICS
from logstore.record.codecs import Codec
from logstore.record.records import NewRecord
from logstore.runtime import background_scheduler
from logstore.types import NO_OFFSET, NO_TIMESTAMP

if TYPE_CHECKING:
    from logstore.clients.producer_config import ProducerConfig
    from logstore.clients.producer_metrics import ProducerMetrics
    from logstore.clients.session import ProducerSession
    from logstore.manager.manager import LogManager
    from logstore.record.records import Header
    from logstore.runtime import Runtime, Scheduler
    from logstore.storage.log.drafts import AppendInfo, ProducerFields, RecordLists
    from logstore.storage.log.writer import LogWriter
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)


SENDER_TASK = "kafka-producer-network-thread"
"""Name of the task that sends lingering batches, as for Kafka's sender thread."""


class RecordAccumulator:
    """Collects a producer's records into one open batch per partition, and appends the batches.

    Parameters
    ----------
    runtime : Runtime
    manager : LogManager
    config : ProducerConfig
    session : ProducerSession or None
        Provides the batches' producer fields, or None if the producer is not idempotent.
    metrics : ProducerMetrics

    Notes
    -----
    The caller must hold the producer's lock, unless documented otherwise. `locked` acquires it and
    runs callbacks after release. Callers that acquire `lock` directly, as `Producer.send` does for
    speed, must run the callbacks of `take_settled`.

    Attributes
    ----------
    lock : context manager
    settled : list of ProducerBatch
        Batches whose callbacks must run after the lock is released.
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
        # With a virtual clock, tasks run while a batch waits for its retry, in the thread that
        # holds the lock.
        self._is_sending = False
        self._has_postponed = False
        self._sends_alone = (
            config.linger_ms == 0
            and config.codec is Codec.NONE
            and config.acks != 0
            and (session is None or not session.is_transactional)
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock. After its release, run the callbacks of batches settled meanwhile."""
        settled: Sequence[ProducerBatch] = ()
        try:
            with self.lock:
                try:
                    yield
                finally:
                    settled = self.take_settled()
        finally:
            for batch in settled:
                batch.run_callbacks()

    def take_settled(self) -> list[ProducerBatch]:
        """Return the batches whose callbacks must run after the release, and clear the list."""
        settled, self.settled = self.settled, []
        return settled

    def has_batch(self, topic_partition: TopicPartition) -> bool:
        """Return whether the partition has an open batch."""
        return topic_partition in self._open

    def has_room(self, topic_partition: TopicPartition, size_bytes: int) -> bool:
        """Return whether the partition's open batch has room for a record of the given size."""
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
        """Add a record to its partition's batch, and append complete batches.

        `size_bytes` is the record's `estimated_size`.

        Returns
        -------
        FutureRecordMetadata
            The future of the record. An append error is set on the future, not raised.

        Raises
        ------
        IllegalStateError
            A signal handler interrupted this method and called it again.
        """
        if self._is_adding:
            self._refuse_reentry(topic_partition)
        if self._sends_alone and not (self._open or self._is_sending or self._manager.faults.rules):
            stored = self._send_alone(topic_partition, key, value, timestamp, headers, size_bytes)
            if self._has_postponed:
                self._has_postponed = False
                self.send_all()
            if stored is not None:
                return stored
        try:  # `LocalLog.change` explains why this `try` starts here
            self._is_adding = True
            batch = self._open.get(topic_partition)
            while batch is None or not batch.has_room(size_bytes):
                self._is_adding = False  # other tasks may add records while a batch is sent
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
                batch.cut(row)  # an interrupt must not pair a key with the wrong value
                raise
        finally:
            self._is_adding = False
        if is_full or self._config.linger_ms == 0:
            self._send_or_postpone([batch])
        return future

    def _send_alone(
        self,
        tp: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: tuple[Header, ...],
        size_bytes: int,
    ) -> FutureRecordMetadata | None:
        """Append a single record without building a batch, with the same result as `_send`.

        If the record needs a batch, do nothing and return None; see `append_next`.
        """
        session = self._session
        producer_fields = None if session is None else session.next_producer_fields(tp)
        if (producer_fields is None and session is not None) or tp[0] in INTERNAL_COMPACTED_TOPICS:
            return None
        try:
            writer = self._manager.registry.log(tp).writer
        except LogStoreError:
            return None  # the same error is raised again when the batch is appended
        record: NewRecord = tuple.__new__(NewRecord, (key, value, timestamp, headers))
        try:
            self._is_sending = True
            info = writer.append_next(record, producer_fields)
            if info is not None and session is not None:
                session.advance(tp, 1)
        except LogStoreError as error:
            return FutureRecordMetadata(self._failed(tp, record, size_bytes, error), 0)
        except BaseException:
            self._failed(tp, record, size_bytes, _interrupted())
            raise
        finally:
            self._is_sending = False
        if info is None:
            return None
        self._metrics.record_batch(1, info[5], size_bytes)
        metadata: ProducedMetadata = tuple.__new__(
            ProducedMetadata,
            (
                tp[0],
                tp[1],
                tp,
                info[0],
                timestamp if info[3] == NO_TIMESTAMP else info[3],
                None,
                -1 if key is None else len(key),
                -1 if value is None else len(value),
                size_of_headers(headers) if headers else -1,
            ),
        )
        future: StoredRecord = object.__new__(StoredRecord)
        future.metadata = metadata
        return future

    def _failed(
        self, tp: TopicPartition, record: NewRecord, size_bytes: int, error: LogStoreError
    ) -> ProducerBatch:
        """Return a settled batch for a record that was rejected without a batch."""
        batch = self._new_batch(tp)
        batch.sizes.append(size_bytes)
        batch.add(*record, size_bytes)
        self.settled.append(batch)
        self._fail(batch, 1, error)
        return batch

    def _refuse_reentry(self, topic_partition: TopicPartition) -> NoReturn:
        raise IllegalStateError(
            f"a signal handler cannot send with a producer while the same thread adds a record for"
            f" {topic_partition}: send after that call has returned"
        )

    def send_all(self) -> None:
        """Append all open batches in the order in which they were opened."""
        self._send(list(self._open.values()))

    def refuse_all(self, error: LogStoreError) -> None:
        """Drop all lingering records and fail their futures with `error`."""
        batches = list(self._open.values())
        self._take(batches)
        self._refuse(batches, error)

    def close(self) -> None:
        """Stop the linger task. The caller must not hold the lock or leave batches open."""
        assert not self._open, "open batches must be sent or refused first"
        # Do not hold the lock, because a running task may be waiting for it.
        if self._own_scheduler is not None:
            self._own_scheduler.shutdown()

    def _open_batch(self, tp: TopicPartition) -> None:
        """Open a batch for a partition that has no open batch."""
        batch = self._open[tp] = self._new_batch(tp)
        if self._config.linger_ms > 0:
            self._arm(batch.opened_ns)

    def _new_batch(self, tp: TopicPartition) -> ProducerBatch:
        now_ns, linger_ms = self._clock.monotonic_ns(), self._config.linger_ms
        return ProducerBatch(
            tp, self._limit_bytes(tp), now_ns, linger_ms, self.lock, self._send_if_open
        )

    def _limit_bytes(self, tp: TopicPartition) -> int:
        try:
            config = self._manager.log(tp).config
        except LogStoreError:
            return self._config.batch_size  # the append raises the error again
        return limit_of(config, self._config.batch_size)

    def _send_if_open(self, batch: ProducerBatch) -> None:
        """Append a batch unless it was already sent. The caller must not hold the lock."""
        with self.locked():
            if self._open.get(batch.topic_partition) is batch:
                self._send([batch])

    # -- lingering -------------------------------------------------------------------------

    def _arm(self, now_ns: int) -> None:
        """Schedule the task that sends the next batch whose linger time elapses."""
        if self._is_armed or not self._open:
            return
        if not self._scheduler.is_started:
            # The broker runs no background tasks, but `linger_ms` requires them.
            self._own_scheduler = self._scheduler = background_scheduler(self._clock)
        due_ns = min(batch.due_ns for batch in self._open.values())
        delay_ms = -(-max(due_ns - now_ns, 0) // 1_000_000)
        self._is_armed = True
        self._scheduler.schedule(SENDER_TASK, self._send_lingered, delay_ms=delay_ms)

    def _send_lingered(self) -> None:
        with self.locked():
            self._is_armed = False
            now_ns = self._clock.monotonic_ns()
            self._send_or_postpone(
                [batch for batch in self._open.values() if batch.due_ns <= now_ns]
            )
            self._arm(now_ns)

    # -- appending -------------------------------------------------------------------------

    def _take(self, batches: Iterable[ProducerBatch]) -> None:
        now_ns = self._clock.monotonic_ns()
        for batch in batches:
            if self._is_adding:
                self._refuse_reentry(batch.topic_partition)
            del self._open[batch.topic_partition]
            self._metrics.record_wait((now_ns - batch.opened_ns) / 1e6)

    def _send_or_postpone(self, batches: Sequence[ProducerBatch]) -> None:
        """Append open batches, or leave them open while another batch is being sent."""
        if self._is_sending:
            self._has_postponed = True
        else:
            self._send(batches)

    def _send(self, batches: Sequence[ProducerBatch]) -> None:
        """Append open batches and settle their futures.

        Raises
        ------
        IllegalStateError
            With a virtual clock, a task called this while another batch waited for its retry. The
            new batch would overtake that batch and use its sequences.
        """
        if not batches:
            return
        if self._is_sending:
            raise IllegalStateError(
                "a producer cannot send a batch in a task that runs while its last batch is being"
                " retried"
            )
        self._is_sending = True
        try:
            self._send_now(batches)
        finally:
            self._is_sending = False
        if self._has_postponed:
            self._has_postponed = False
            self._send(list(self._open.values()))

    def _send_now(self, batches: Sequence[ProducerBatch]) -> None:
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
            unknown = _interrupted()
            for batch in batches:
                rows = len(batch.timestamps)
                if batch.settled_rows < rows:
                    self.settled.append(batch)
                    self._fail(batch, rows, unknown)
            raise

    def _append(self, batch: ProducerBatch, start: int, stop: int) -> None:
        """Append the records in [start, stop) of a batch and settle them."""
        tp, count = batch.topic_partition, stop - start
        try:
            if self._session is not None:
                self._session.raise_if_failed()
            info = self._write(tp, batch if count == len(batch) else batch.part(start, stop))
        except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
            if count == 1:
                self._fail(batch, stop, error)
                return
            # The topic's limit was lowered, or recompression with the topic's codec enlarged the
            # batch.
            self._metrics.retries += count
            middle = start + count // 2
            self._append(batch, start, middle)
            self._append(batch, middle, stop)
        except LogStoreError as error:
            self._fail(batch, stop, error)
        else:
            self._metrics.record_batch(count, info.size_bytes, max(batch.sizes[start:stop]))
            if self._config.acks == 0:
                batch.complete_rows(stop, NO_OFFSET)
            else:
                batch.complete_rows(stop, info.first_offset, info.log_append_time)

    def _write(self, tp: TopicPartition, records: RecordLists) -> AppendInfo:
        """Append a batch, and retry after retriable errors.

        An idempotent producer retries with the same sequences, so a lost response does not cause
        duplicates. Without idempotence, it does.
        """
        config = self._config
        started_ns = self._clock.monotonic_ns()
        retries = 0
        while True:
            try:
                return self._write_once(tp, records)
            except LogStoreError as error:
                if not self._may_pass(error) or config.acks == 0 or retries >= config.retries:
                    raise
                passed_ms = (self._clock.monotonic_ns() - started_ns) / 1e6
                if passed_ms + config.retry_backoff_ms > config.delivery_timeout_ms:
                    raise KafkaTimeoutError(
                        f"{tp}: a batch of {len(records)} records was not delivered within"
                        f" {config.delivery_timeout_ms:g} ms: {error}"
                    ) from error
                logger.info("%s: retrying a batch after: %s", tp, error)
            retries += 1
            self._metrics.retries += len(records)
            self._clock.sleep(config.retry_backoff_ms / 1000)

    def _may_pass(self, error: LogStoreError) -> bool:
        """Return whether an append may be retried after an error."""
        return is_retriable_injection(error) or (
            self._session is not None and self._session.is_moving(error)
        )

    def _write_once(self, tp: TopicPartition, records: RecordLists) -> AppendInfo:
        check_for_clients(tp.topic)
        session, codec = self._session, self._config.codec
        if session is None:
            writer = self._manager.log(tp).writer
            append = partial(writer.append_records, records, codec)
            return self._manager.faults.request("append", (tp,), append)
        is_retry = False
        while True:
            producer_fields = session.producer_fields(tp)
            try:
                info = session.append(
                    self._manager, tp, _appending(records, codec, producer_fields)
                )
            except RequestError as error:
                if is_retry or not session.recovers_from(error):
                    raise
                logger.warning("%s: retrying a batch after: %s", tp, error)
                self._metrics.retries += len(records)
                is_retry = True
            else:
                session.advance(tp, len(records))
                return info

    def _fail(self, batch: ProducerBatch, stop: int, error: LogStoreError) -> None:
        """Fail the unsettled records before `stop`, and update the state of the session."""
        count = stop - batch.settled_rows
        tp = batch.topic_partition
        logger.info("%s: a batch of %d records was rejected: %s", tp, count, error)
        if self._session is not None:
            if is_injected(error) or isinstance(error, KafkaTimeoutError):
                self._session.handle_lost_response()
            self._session.fail(error)
        self._metrics.errors += count
        if self._config.acks == 0:
            batch.complete_rows(stop, NO_OFFSET)
            return
        faults = dict(error.record_errors) if isinstance(error, InvalidRecordError) else {}
        errors = [_record_error(error, faults, row) for row in range(count)]
        batch.complete_rows(stop, NO_OFFSET, errors=errors)

    def _refuse(self, batches: Iterable[ProducerBatch], error: LogStoreError) -> None:
        """Fail the records of unsent batches."""
        for batch in batches:
            self.settled.append(batch)
            self._metrics.errors += len(batch)
            batch.complete_rows(len(batch), NO_OFFSET, errors=[error] * len(batch))


def _appending(
    records: RecordLists, codec: Codec, producer_fields: ProducerFields
) -> Callable[[LogWriter], AppendInfo]:
    """Return a function that appends records as one batch with the given producer fields."""
    if codec is Codec.NONE:
        return lambda writer: writer.append_records(records, producer_fields=producer_fields)
    data = build_producer_batch(records, codec, producer_fields)
    return lambda writer: writer.append_batches(data)


def _interrupted() -> KafkaTimeoutError:
    return KafkaTimeoutError("the send was interrupted: the record may have been stored")


def _record_error(error: LogStoreError, faults: Mapping[int, str], row: int) -> LogStoreError:
    """Return the error of one record in a rejected batch.

    Either the record is invalid, or it was rejected because other records are invalid.
    """
    if not faults:
        return error
    if row not in faults:
        return RequestError("the record was not stored: other records in its batch are invalid")
    return (type(error) if len(faults) == 1 else InvalidRecordError)(faults[row])
