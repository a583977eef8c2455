"""A producer of kafka-python's shape, in the broker's process.

It turns what users hand in into records, chooses their partitions, and begins and ends
transactions; `RecordAccumulator` sends. An answer is there as soon as a batch is sent, so that
nothing ever waits for one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from logstore.clients.accumulator import RecordAccumulator
from logstore.clients.arguments import topic_and_partition
from logstore.clients.open_batch import estimated_size
from logstore.clients.partitioner import Partitioner
from logstore.clients.producer_config import ProducerConfig
from logstore.clients.producer_metrics import GROUP, ProducerMetrics
from logstore.clients.session import ProducerSession
from logstore.coordinator.groups.offsets import checked_group, checked_offsets
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
    """Cluster metadata as kafka-python's partitioners ask for it."""

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
    """Sends records to topics; made by `Broker.producer(**configs)`.

    Idempotent unless configured otherwise, and transactional with a `transactional_id`. Configs
    are kafka-python's (`logstore.clients.producer_config`).

    Parameters
    ----------
    runtime : Runtime
    manager : LogManager
    coordinator : TransactionCoordinator
    configs : mapping
    on_close : callable, optional
        Told once it is closed.

    Raises
    ------
    InvalidConfigurationError
        A config is unknown, cannot be obeyed, or contradicts another.

    Notes
    -----
    Any thread may call. Callbacks of futures run without a lock held, in the thread that sent
    the batch. What differs from `KafkaProducer`: records without a key go round-robin, a batch to
    one partition; an unknown topic is an error at once; `close` aborts an open transaction, as the
    Java client does.
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
            ProducerSession(coordinator, config.transactional_id, config.transaction_timeout_ms)
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
        value: Any = None,  # noqa: ANN401  # what the serializer takes
        key: Any = None,  # noqa: ANN401  # see value
        headers: list[tuple[str, bytes]] | Mapping[str, bytes] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Send a record; with `linger_ms=0` it is stored on return, or refused.

        Parameters
        ----------
        topic : str or TopicPartition
        headers : list of pairs, or mapping
        value, key : any
            Bytes, or what the serializer turns into bytes; one of them may be None.
        partition : int, optional
            By the partitioner if not given.
        timestamp_ms : int, optional
            Unix ms; the broker's clock by default.

        Returns
        -------
        FutureRecordMetadata
            Where the record was stored, or why it was not.

        Raises
        ------
        TypeError
            The topic is no string, key or value are no bytes, or headers no list of pairs.
        ValueError
            Neither key nor value, no such partition, or an impossible timestamp.
        UnknownTopicOrPartitionError
            No such topic.
        MessageSizeTooLargeError
            The record is larger than `max_request_size`.
        IllegalStateError
            The producer is closed, or transactional and not in a transaction.
        """
        if self._closed:
            self._check_open()
        config = self.config
        headers = [] if headers is None else _checked_headers(headers)
        if type(topic) is not str:
            topic, partition = topic_and_partition(topic, partition)
            if not isinstance(topic, str):
                raise TypeError(f"a topic is a string, not {topic!r}")
        if key is None and value is None:
            raise ValueError("a record needs a key or a value")
        key_data, value_data = key, value
        if config.serialize_key is not None or type(key) is not bytes:
            key_data = _serialized("key", config.serialize_key, topic, headers, key)
        if config.serialize_value is not None or type(value) is not bytes:
            value_data = _serialized("value", config.serialize_value, topic, headers, value)
        timestamp = self._clock.now_ms() if timestamp_ms is None else _checked_time(timestamp_ms)
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
            # Once a record; see `logstore.storage.log.drafts`.
            tp: TopicPartition = tuple.__new__(TopicPartition, (topic, number))
            future = accumulator.add(tp, key_data, value_data, timestamp, pairs, size_bytes)
            settled = accumulator.take_settled() if accumulator.settled else ()
        for batch in settled:
            batch.call_back()
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Send what waits; every future given so far is done on return.

        Parameters
        ----------
        timeout : float, optional
            Accepted: there is nothing to wait for.
        """
        with self._accumulator.locked():
            self._accumulator.send_all()

    def partitions_for(self, topic: str) -> set[int]:
        """Return the partition numbers of a topic.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        return set(self._manager.catalog.topic(topic).partitions)

    def bootstrap_connected(self) -> bool:
        """Tell whether the broker can be reached: until this producer is closed."""
        return not self._closed

    def metrics(self, raw: bool = False) -> dict[str, Any] | None:
        """Return what was counted, by group and name; None with `metrics_enabled=False`.

        Parameters
        ----------
        raw : bool
            Without the level of the groups.
        """
        if not self.config.metrics_enabled:
            return None
        with self._accumulator.locked():
            values = self._metrics.values(self._clock.monotonic_ns())
        return values if raw else {GROUP: values}

    def close(self, timeout: float | None = None) -> None:
        """Send what waits and close; closing twice is allowed.

        An open transaction is aborted, and what waits of it is not sent.

        Parameters
        ----------
        timeout : float, optional
            Accepted: there is nothing to wait for.

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
        """End as if its process did: what waits is not sent, and an open transaction stays open.

        That one is aborted when its time is over, or when its `transactional_id` comes back.
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
            logger.warning("%r: its transaction was not aborted: %s", self, error)

    # -- transactions --------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Become the only producer of the transactional id; to be called before the others.

        What an earlier one left open is aborted, what it left prepared is completed. Further calls
        do nothing.

        Raises
        ------
        IllegalStateError
            There is no `transactional_id`.
        InvalidTransactionTimeoutError
            `transaction_timeout_ms` is above `transaction.max.timeout.ms`.
        KafkaStorageError
        """
        with self._accumulator.locked():
            self._transactional().init()

    def begin_transaction(self) -> None:
        """Begin a transaction; what is sent until its end is part of it.

        Raises
        ------
        IllegalStateError
            One is open, or `init_transactions` was not called.
        ProducerFencedError
            Another producer took over the id.
        """
        with self._accumulator.locked():
            self._transactional().begin()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: object
    ) -> None:
        """Commit the offsets of a consumer group with the transaction, or not at all.

        They go to `__consumer_offsets`, where a broker that takes the directory over finds them;
        here `broker.groups.committed(group_id)` tells them.

        Parameters
        ----------
        offsets : mapping of TopicPartition to OffsetAndMetadata
            Next offset to read of each partition, with whatever the group keeps beside it.
            kafka-python's are taken too. None at all changes nothing.
        group_metadata : ConsumerGroupMetadata or str
            The group, or its id. Nobody joins a group here, so that it has no generation.

        Raises
        ------
        TypeError, ValueError
            Arguments of another kind; nothing was changed.
        IllegalStateError
            No transaction was begun.
        InvalidGroupIdError, IllegalGenerationError, OffsetMetadataTooLargeError,
        UnknownTopicOrPartitionError, InvalidRecordError
            Nothing was written; abort the transaction.
        ProducerFencedError
            Another producer took over the id, or the transaction took too long.
        LogStoreError
            As `InvalidProducerEpochError`: nothing was written; abort the transaction.
        """
        group = checked_group(group_metadata)
        checked = checked_offsets(offsets)
        with self._accumulator.locked():
            session = self._transactional()
            session.check_can_send_offsets()
            if checked:
                session.send_offsets(group, checked)

    def commit_transaction(self) -> None:
        """Send what waits and commit: readers of committed data see all of it, or nothing yet.

        Raises
        ------
        IllegalStateError
            No transaction was begun.
        ProducerFencedError
            Another producer took over the id, or the transaction took too long.
        LogStoreError
            A record was refused, with what it was refused: abort the transaction. Or a disk
            failed and nothing is decided: commit again, or abort.
        """
        with self._accumulator.locked():
            session = self._transactional()
            session.check_can_commit()
            self._accumulator.send_all()
            session.commit()

    def abort_transaction(self) -> None:
        """Abort the transaction; what waits is not sent.

        Raises
        ------
        IllegalStateError
            No transaction was begun.
        ProducerFencedError
            Another producer took over the id, or the transaction took too long.
        KafkaStorageError
            Nothing is decided: abort again.
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

    # -- records into batches --------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the producer is closed")

    def _default_partition(self, topic: str, key: bytes | None, numbers: Sequence[int]) -> int:
        if key is not None:
            return self._partitioner.of_key(key, numbers)
        number = self._null_key_partitions.get(topic)
        if number is None or not self._accumulator.is_waiting(TopicPartition(topic, number)):
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
    ) -> Any:  # noqa: ANN401  # whatever it chose
        partitioner = self.config.partitioner
        key_data, value_data = data
        if not hasattr(partitioner, "partition"):
            numbers = sorted(self.partitions_for(topic))
            return partitioner(key_data, numbers, numbers)
        arguments = (topic, key, key_data, value, value_data, self._cluster)
        number = partitioner.partition(*arguments)
        # KIP-480: a partitioner that sticks to a partition is told that a new batch begins.
        on_new_batch = getattr(partitioner, "on_new_batch", None)
        if (
            on_new_batch is not None
            and key_data is None
            and not self._accumulator.has_room(TopicPartition(topic, number), size_bytes)
        ):
            on_new_batch(topic, self._cluster, number)
            number = partitioner.partition(*arguments)
        return number


def _checked_time(timestamp_ms: int) -> int:
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int):
        raise TypeError(f"a timestamp is an int in ms, not {timestamp_ms!r}")
    if not NO_TIMESTAMP <= timestamp_ms <= INT64_MAX:
        raise ValueError(f"no timestamp: {timestamp_ms}")
    return timestamp_ms


def _serialized(
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
    raise TypeError(f"a {name} is bytes or None once serialized, not {type(data).__name__}")


def _checked_headers(headers: object) -> list[tuple[str, bytes]]:
    if isinstance(headers, Mapping):
        headers = list(headers.items())
    if not isinstance(headers, list):
        raise TypeError(f"headers are a list or a mapping, not {headers!r}")
    for header in headers:
        if (
            not isinstance(header, tuple)
            or len(header) != 2
            or not isinstance(header[0], str)
            or not isinstance(header[1], bytes)
        ):
            raise TypeError(f"a header is a pair of str and bytes, not {header!r}")
        header[0].encode()  # a ValueError now, rather than in the middle of a batch
    return headers
