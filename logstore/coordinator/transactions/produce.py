"""Append the batches of clients, after verifying their transactions.

A `Log` by itself does not verify transactions. Here, the first batch of a transaction in a
partition is only written if the coordinator confirms that the transaction is open and that the
partition was added to it, as in brokers since 3.6. Otherwise, a delayed batch could open a
transaction that is never ended, and the last stable offset would never advance again.

Clients with `transaction.version` 2 do not add partitions themselves. A partition is added by its
first batch.

For later batches, it is verified that the client owns the producer id. Otherwise a client could
write to the transaction of another client by using its producer id. Kafka only verifies the first
batch.

Source: KIP-890; Kafka's ReplicaManager, VerificationGuard, UnifiedLog and ProducerAppendInfo.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from logstore.coordinator.transactions.state import ProducerIdAndEpoch, TransactionVersion
from logstore.errors import InvalidTopicError, LogStoreError, OutOfOrderSequenceNumberError
from logstore.names import INTERNAL_COMPACTED_TOPICS
from logstore.record import layout
from logstore.record.header import BatchHeader
from logstore.storage.producers.rules import check_epoch
from logstore.types import NO_SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from logstore.coordinator.transactions.coordinator import TransactionCoordinator
    from logstore.manager.manager import LogManager
    from logstore.storage.log.drafts import AppendInfo
    from logstore.storage.log.log import Log
    from logstore.storage.log.writer import LogWriter
    from logstore.types import TopicPartition


def append_as_client(
    manager: LogManager,
    coordinator: TransactionCoordinator,
    topic_partition: TopicPartition,
    data: bytes,
    transactional_id: str | None = None,
    *,
    adds: bool = False,
) -> AppendInfo:
    """Append one encoded batch, as in a Produce request.

    Parameters
    ----------
    transactional_id : str, optional
        The transactional id of the producer. Defaults to the id that has the producer id of the
        batch. Only use the default for callers that may write to every transaction. It is ignored
        if the batch is not transactional.
    adds : bool
        Add the partition to the producer's transaction; see `TransactionCoordinator.verified`.

    Raises
    ------
    InvalidTopicError
        The topic is internal.
    InvalidTxnStateError, InvalidProducerEpochError, InvalidProducerIdMappingError
        The batch is not part of an open transaction; see `TransactionCoordinator.verified`.
    ConcurrentTransactionsError
        The previous transaction of the producer cannot be completed yet.
    RequestError, CorruptRecordError, UnsupportedFormatError, KafkaStorageError
        See `LogWriter.append_batches`. The log was not changed.
    """
    header = _transactional_header(data)
    producer = None
    first_sequence = NO_SEQUENCE
    if header is not None:
        producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
        first_sequence = header.base_sequence if adds else NO_SEQUENCE
    return append_of_producer(
        manager,
        coordinator,
        topic_partition,
        producer,
        lambda writer: writer.append_batches(data),
        transactional_id,
        first_sequence,
    )


def add_to_transaction(
    manager: LogManager,
    coordinator: TransactionCoordinator,
    transactional_id: str,
    batches: Iterable[tuple[TopicPartition, bytes]],
) -> None:
    """Add the partitions in a request to its transaction with a single record.

    This is faster for several batches, because `append_as_client` would add the partitions one at a
    time. Errors are ignored here, because `append_as_client` raises them again.
    """
    new: dict[ProducerIdAndEpoch, list[TopicPartition]] = {}
    for tp, data in batches:
        header = _transactional_header(data)
        if header is None or tp.topic in INTERNAL_COMPACTED_TOPICS:
            continue
        with suppress(LogStoreError):
            entry = manager.log(tp).producer_state.entry(header.producer_id)
            if entry is None or not entry.is_in_transaction(header.producer_epoch):
                producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
                new.setdefault(producer, []).append(tp)
    for producer, partitions in new.items():
        with suppress(LogStoreError):
            coordinator.of(transactional_id, producer.producer_id).add_partitions(
                transactional_id, producer, partitions, TransactionVersion.V2
            )


def append_of_producer(
    manager: LogManager,
    coordinator: TransactionCoordinator,
    topic_partition: TopicPartition,
    producer: ProducerIdAndEpoch | None,
    append: Callable[[LogWriter], AppendInfo],
    transactional_id: str | None = None,
    first_sequence: int = NO_SEQUENCE,
) -> AppendInfo:
    """Append a batch of a client. Raises the errors of `append_as_client`.

    Parameters
    ----------
    producer : ProducerIdAndEpoch or None
        The producer of the batch, or None if the batch is not transactional.
    append : callable
        Appends one batch with the writer of the log.
    transactional_id : str, optional
        See `append_as_client`.
    first_sequence : int
        The first sequence of a batch that adds its partition to the transaction, otherwise -1.
    """
    check_for_clients(topic_partition.topic)
    return manager.faults.request(
        "append",
        (topic_partition,),
        lambda: _append(
            manager,
            coordinator,
            topic_partition,
            producer,
            append,
            transactional_id,
            first_sequence,
        ),
    )


def _append(
    manager: LogManager,
    coordinator: TransactionCoordinator,
    topic_partition: TopicPartition,
    producer: ProducerIdAndEpoch | None,
    append: Callable[[LogWriter], AppendInfo],
    transactional_id: str | None,
    first_sequence: int,
) -> AppendInfo:
    log = manager.log(topic_partition)
    if producer is None:
        return append(log.writer)
    coordinator = coordinator.of(transactional_id, producer.producer_id)
    adds = first_sequence != NO_SEQUENCE
    # Check and append while holding the lock, so that no marker can be written in between.
    with log.lock:
        entry = log.producer_state.entry(producer.producer_id)
        if entry is not None:
            check_epoch(topic_partition, entry, producer.producer_epoch)
        is_open = entry is not None and entry.is_in_transaction(producer.producer_epoch)
        if is_open and (transactional_id is None or coordinator.owns(transactional_id, producer)):
            return append(log.writer)
    with coordinator.verified(topic_partition, producer, transactional_id, adds=adds):
        if adds:
            _check_first_sequence(log, producer.producer_id, first_sequence)
        return append(log.writer)


def _check_first_sequence(log: Log, producer_id: int, first_sequence: int) -> None:
    """Refuse a first batch whose sequence is not 0, because earlier batches are missing."""
    entry = log.producer_state.entry(producer_id)
    if first_sequence and (entry is None or not entry.batches):
        raise OutOfOrderSequenceNumberError(
            f"{log.topic_partition}: the first batch of producer {producer_id} begins with sequence"
            f" {first_sequence}, not 0"
        )


def check_for_clients(topic: str) -> None:
    """Raise an error if a topic is internal, because clients must not produce to it."""
    if topic in INTERNAL_COMPACTED_TOPICS:
        raise InvalidTopicError(f"cannot produce to the internal topic '{topic}'")


def _transactional_header(data: bytes) -> BatchHeader | None:
    """Return the header of a transactional data batch, or None. The log validates the batch."""
    if len(data) < layout.HEADER_SIZE or data[layout.MAGIC_POSITION] != layout.MAGIC:
        return None
    header = BatchHeader.unpack_from(data)
    if header.is_control or not (header.is_transactional and header.has_producer_id):
        return None
    return header
