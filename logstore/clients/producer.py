"""A producer with kafka-python's API, in the broker's process.

The producer validates and serializes records, selects their partitions, and controls transactions.
A `RecordAccumulator` collects the records in batches and appends the batches synchronously.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from logstore.clients.accumulator import RecordAccumulator
from logstore.clients.arguments import topic_and_partition
from logstore.clients.coordinators import TransactionRequests
from logstore.clients.open_batch import estimated_size
from logstore.clients.partitioner import Partitioner
from logstore.clients.producer_config import ProducerConfig
from logstore.clients.producer_metrics import GROUP, ProducerMetrics
from logstore.clients.session import ProducerSession
from logstore.coordinator.groups.offsets import to_group_metadata, to_offsets
from logstore.errors import (
    IllegalStateError,
    LogStoreError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
from logstore.record.layout import HEADER_SIZE
from logstore.types import INT64_MAX, NO_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from logstore.clients.futures import FutureRecordMetadata
    from logstore.clients.producer_config import Serialize
    from logstore.coordinator.groups.offsets import OffsetAndMetadata
    from logstore.coordinator.transactions.coordinator import TransactionCoordinator
    from logstore.manager.manager import LogManager
    from logstore.runtime import Runtime

logger = logging.getLogger(__name__)


class _Cluster:
    """Cluster metadata as expected by kafka-python's partitioners."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager

    def topics(self) -> set[str]:
        return {topic.name for topic in self._manager.catalog.topics()}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        try:
            return set(self._manager.catalog.topic(topic).partitions)
        except UnknownTopicOrPartitionError:
            return None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        return self.partitions_for_topic(topic)


class Producer:
    """A client that publishes records to topics.

    Use `Broker.producer(**configs)` to create a producer. It is idempotent by default, and
    transactional if `transactional_id` is set. The configs have kafka-python's names and defaults;
    see `logstore.clients.producer_config`.

    Parameters
    ----------
    runtime : Runtime
    manager : LogManager
    coordinator : TransactionCoordinator
    configs : mapping
    on_close : callable, optional
        Called with the producer when it has been closed.

    Raises
    ------
    InvalidConfigurationError
        A config is unknown or unsupported, or two configs conflict.

    Notes
    -----
    The producer is thread-safe. The thread that sends a batch calls the callbacks of its futures,
    without holding a lock. The producer differs from `KafkaProducer` in three ways: batches of
    records without a key are distributed over the partitions round-robin, sending to an unknown
    topic fails immediately, and `close` aborts an open transaction, as in the Java client.
    """

    def __init__(
        self,
        runtime: Runtime,
        manager: LogManager,
        coordinator: TransactionCoordinator,
        configs: Mapping[str, Any],
        on_close: Callable[[Producer], object] | None = None,
    ) -> None:
        self.config = config = ProducerConfig.of(configs)
        self._clock = runtime.clock
        self._manager = manager
        self._on_close = on_close
        self._session = session = (
            ProducerSession(
                TransactionRequests(
                    coordinator,
                    config.transactional_id,
                    self._clock,
                    config.max_block_ms,
                    config.retry_backoff_ms,
                ),
                config.transactional_id,
                config.transaction_timeout_ms,
            )
            if config.enable_idempotence
            else None
        )
        self._transactions = session if config.transactional_id is not None else None
        self._metrics = ProducerMetrics(self._clock.monotonic_ns())
        self._accumulator = RecordAccumulator(runtime, manager, config, session, self._metrics)
        self._cluster = _Cluster(manager)
        self._partitioner = Partitioner()
        self._null_key_partitions: dict[str, int] = {}
        self._closed = False
        manager.lifetime.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        transactional_id = self.config.transactional_id
        return f"Producer({self.config.client_id}, transactional_id={transactional_id!r})"

    # -- sending -------------------------------------------------------------------------

    def send(
        self,
        topic: str | TopicPartition,
        value: Any = None,  # noqa: ANN401  # any type that the serializer accepts
        key: Any = None,  # noqa: ANN401  # see value
        headers: list[tuple[str, bytes]] | Mapping[str, bytes] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Publish a record to a topic.

        Parameters
        ----------
        topic : str or TopicPartition
        headers : list of pairs, or mapping
        value, key : any
            Bytes, or objects that the serializer converts to bytes. At most one of them may be
            None.
        partition : int, optional
            Partition number. By default, the partitioner selects the partition.
        timestamp_ms : int, optional
            Timestamp in Unix milliseconds. Defaults to the current time of the broker's clock.

        Returns
        -------
        FutureRecordMetadata
            Resolves to the record's partition and offset, or to an error. With `linger_ms=0`, the
            future is done when this method returns.

        Raises
        ------
        TypeError
            `topic` is not a string, key or value are not bytes after serialization, or `headers`
            is not a list of pairs.
        ValueError
            Key and value are both None, the partition does not exist, or the timestamp is invalid.
        UnknownTopicOrPartitionError
            The topic does not exist.
        MessageSizeTooLargeError
            The record is larger than `max_request_size`.
        IllegalStateError
            The producer is closed, or it is transactional and no transaction is open.
        """
        if self._closed:
            self._check_open()
        config = self.config
        headers = [] if headers is None else _check_headers(headers)
        if type(topic) is not str:
            topic, partition = topic_and_partition(topic, partition)
            if not isinstance(topic, str):
                raise TypeError(f"a topic must be a string, not {topic!r}")
        if key is None and value is None:
            raise ValueError("a record needs a key or a value")
        key_data, value_data = key, value
        if config.serialize_key is not None or type(key) is not bytes:
            key_data = _serialize("key", config.serialize_key, topic, headers, key)
        if config.serialize_value is not None or type(value) is not bytes:
            value_data = _serialize("value", config.serialize_value, topic, headers, value)
        timestamp = self._clock.now_ms() if timestamp_ms is None else _check_timestamp(timestamp_ms)
        pairs = tuple(headers)
        size_bytes = estimated_size(key_data, value_data, pairs)
        if HEADER_SIZE + size_bytes > config.max_request_size:
            raise MessageSizeTooLargeError(
                f"a record of up to {HEADER_SIZE + size_bytes} bytes is larger than"
                f" max_request_size {config.max_request_size}"
            )
        accumulator = self._accumulator
        with accumulator.lock:
            if self._closed:
                self._check_open()
            if self._transactions is not None:
                self._transactions.check_can_send()
            numbers = self._manager.catalog.topic(topic).partitions
            if partition is None and config.partitioner is None:
                number = self._default_partition(topic, key_data, numbers)
            else:
                if partition is None:
                    data = key_data, value_data
                    partition = self._custom_partition(topic, key, value, data, size_bytes)
                if isinstance(partition, bool) or partition not in numbers:
                    raise ValueError(f"topic '{topic}' has no partition {partition!r}")
                number = partition
            # Runs once per record; see `logstore.storage.log.drafts`.
            tp: TopicPartition = tuple.__new__(TopicPartition, (topic, number))
            future = accumulator.add(tp, key_data, value_data, timestamp, pairs, size_bytes)
            settled = accumulator.take_settled() if accumulator.settled else ()
        for batch in settled:
            batch.run_callbacks()
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Send all buffered records, after which all futures returned so far are done.

        Parameters
        ----------
        timeout : float, optional
            Ignored.
        """
        with self._accumulator.locked():
            self._accumulator.send_all()

    def partitions_for(self, topic: str) -> set[int]:
        """Return a topic's partition numbers.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        return set(self._manager.catalog.topic(topic).partitions)

    def bootstrap_connected(self) -> bool:
        """Return True until the producer is closed, because the broker is in the same process."""
        return not self._closed

    def metrics(self, raw: bool = False) -> dict[str, Any] | None:
        """Return the metrics by group and name, or None if `metrics_enabled` is False.

        Parameters
        ----------
        raw : bool
            Whether to return metrics by name only, without groups.
        """
        if not self.config.metrics_enabled:
            return None
        with self._accumulator.locked():
            values = self._metrics.values(self._clock.monotonic_ns())
        return values if raw else {GROUP: values}

    def close(self, timeout: float | None = None) -> None:
        """Send all buffered records and close the producer. Repeated calls have no effect.

        An open transaction is aborted, and its buffered records are not sent.

        Parameters
        ----------
        timeout : float, optional
            Ignored.

        Raises
        ------
        ValueError
            `timeout` is negative.
        """
        if timeout is not None and timeout < 0:
            raise ValueError(f"invalid timeout: {timeout}")
        with self._accumulator.locked():
            if self._closed:
                return
            self._closed = True
            self._end_on_close()
        self._accumulator.close()
        for close_serializer in self.config.close_serializers:
            close_serializer()
        if self._on_close is not None:
            self._on_close(self)

    def crash(self) -> None:
        """Simulate a crash: drop all buffered records, without aborting an open transaction.

        The coordinator aborts the transaction when it times out, or when another producer with the
        same `transactional_id` is initialized.
        """
        with self._accumulator.locked():
            self._check_open()
            self._closed = True
            self._accumulator.refuse_all(IllegalStateError(f"{self!r} has crashed"))
        self._accumulator.close()
        if self._on_close is not None:
            self._on_close(self)

    def _end_on_close(self) -> None:
        session = self._session
        if session is None or not session.has_transaction:
            self._accumulator.send_all()
            return
        self._accumulator.refuse_all(session.abort_reason())
        try:
            session.abort()
        except LogStoreError as error:
            logger.warning("%r: the open transaction was not aborted: %s", self, error)

    # -- transactions --------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Initialize transactions. Call this method before any other transactional method.

        Earlier producers with the same `transactional_id` are fenced. A transaction that they left
        open is aborted, or completed if its outcome is already decided. Repeated calls have no
        effect.

        Raises
        ------
        IllegalStateError
            The producer has no `transactional_id`.
        InvalidTransactionTimeoutError
            `transaction_timeout_ms` exceeds the broker's `transaction.max.timeout.ms`.
        KafkaStorageError
        """
        with self._accumulator.locked():
            self._transactional().init()

    def begin_transaction(self) -> None:
        """Begin a transaction, which includes all records sent until it ends.

        Raises
        ------
        IllegalStateError
            A transaction is already open, or `init_transactions` was not called.
        ProducerFencedError
            Another producer took over the transactional id.
        """
        with self._accumulator.locked():
            self._transactional().begin()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: object
    ) -> None:
        """Add a consumer group's offsets to the transaction.

        The offsets are written to `__consumer_offsets` and take effect if and when the transaction
        is committed. After that, `broker.groups.committed(group_id)` returns them.

        Parameters
        ----------
        offsets : mapping of TopicPartition to OffsetAndMetadata
            The offset of the next record that the group will consume in each partition, with
            optional metadata. Instances of kafka-python's classes are accepted. An empty mapping
            has no effect.
        group_metadata : ConsumerGroupMetadata or str
            The result of `Consumer.group_metadata()`, or just the group id. With just the group id,
            the coordinator cannot check that the consumer is still a group member (KIP-447).

        Raises
        ------
        TypeError, ValueError
            An argument is invalid. Nothing was written.
        IllegalStateError
            No transaction is open.
        InvalidGroupIdError, IllegalGenerationError, OffsetMetadataTooLargeError,
        UnknownTopicOrPartitionError, InvalidRecordError
            Nothing was written. Abort the transaction.
        ProducerFencedError
            Another producer took over the transactional id, or the transaction timed out.
        LogStoreError
            Nothing was written, for example because of an `InvalidProducerEpochError`. Abort the
            transaction.
        """
        group = to_group_metadata(group_metadata)
        checked = to_offsets(offsets)
        with self._accumulator.locked():
            session = self._transactional()
            session.check_can_send_offsets()
            if checked:
                session.send_offsets(group, checked)

    def commit_transaction(self) -> None:
        """Send all buffered records and commit the transaction.

        Raises
        ------
        IllegalStateError
            No transaction is open.
        ProducerFencedError
            Another producer took over the transactional id, or the transaction timed out.
        LogStoreError
            A record was rejected with this error, and the transaction must be aborted. Or a disk
            failed before the outcome was decided: commit again or abort.
        """
        with self._accumulator.locked():
            session = self._transactional()
            session.check_can_commit()
            self._accumulator.send_all()
            session.commit()

    def abort_transaction(self) -> None:
        """Abort the transaction. Its buffered records are not sent.

        Raises
        ------
        IllegalStateError
            No transaction is open.
        ProducerFencedError
            Another producer took over the transactional id, or the transaction timed out.
        KafkaStorageError
            The outcome was not decided. Call this method again.
        """
        with self._accumulator.locked():
            session = self._transactional()
            session.check_can_abort()
            self._accumulator.refuse_all(session.abort_reason())
            session.abort()

    def _transactional(self) -> ProducerSession:
        self._check_open()
        if self._session is None:
            raise IllegalStateError("the producer has no transactional_id")
        return self._session

    # -- inside ----------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the producer is closed")

    def _default_partition(self, topic: str, key: bytes | None, numbers: Sequence[int]) -> int:
        if key is not None:
            return self._partitioner.of_key(key, numbers)
        number = self._null_key_partitions.get(topic)
        if number is None or not self._accumulator.has_batch(TopicPartition(topic, number)):
            number = self._partitioner.for_null_keys(numbers)
            self._null_key_partitions[topic] = number
        return number

    def _custom_partition(
        self,
        topic: str,
        key: Any,  # noqa: ANN401  # the user's
        value: Any,  # noqa: ANN401  # the user's
        data: tuple[bytes | None, bytes | None],
        size_bytes: int,
    ) -> Any:  # noqa: ANN401  # the partitioner's choice, not validated yet
        partitioner = self.config.partitioner
        key_data, value_data = data
        if not hasattr(partitioner, "partition"):
            numbers = sorted(self.partitions_for(topic))
            return partitioner(key_data, numbers, numbers)
        arguments = (topic, key, key_data, value, value_data, self._cluster)
        number = partitioner.partition(*arguments)
        # Notify a sticky partitioner of a new batch (KIP-480).
        on_new_batch = getattr(partitioner, "on_new_batch", None)
        if (
            on_new_batch is not None
            and key_data is None
            and not self._accumulator.has_room(TopicPartition(topic, number), size_bytes)
        ):
            on_new_batch(topic, self._cluster, number)
            number = partitioner.partition(*arguments)
        return number


def _check_timestamp(timestamp_ms: int) -> int:
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int):
        raise TypeError(f"a timestamp must be an int in ms, not {timestamp_ms!r}")
    if not NO_TIMESTAMP <= timestamp_ms <= INT64_MAX:
        raise ValueError(f"timestamp out of range: {timestamp_ms}")
    return timestamp_ms


def _serialize(
    name: str,
    serialize: Serialize | None,
    topic: str,
    headers: list[tuple[str, bytes]],
    data: Any,  # noqa: ANN401  # the user's
) -> bytes | None:
    if serialize is not None:
        data = serialize(topic, headers, data)
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"a serialized {name} must be bytes or None, not {type(data).__name__}")


def _check_headers(headers: object) -> list[tuple[str, bytes]]:
    if isinstance(headers, Mapping):
        headers = list(headers.items())
    if not isinstance(headers, list):
        raise TypeError(f"headers must be a list or a mapping, not {headers!r}")
    for header in headers:
        if (
            not isinstance(header, tuple)
            or len(header) != 2
            or not isinstance(header[0], str)
            or not isinstance(header[1], bytes)
        ):
            raise TypeError(f"a header must be a pair of str and bytes, not {header!r}")
        header[0].encode()  # raise a ValueError here instead of while a batch is encoded
    return headers
