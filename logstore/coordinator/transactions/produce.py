"""Append the batches of clients, after verifying their transactions.

A `Log` does not verify transactions. This module only appends a transaction's first batch in a
partition after the coordinator has confirmed that the transaction is open and includes the
partition, as brokers do since 3.6. Without this check, a delayed batch could open a transaction
that never ends, and the last stable offset would never advance again.

Clients with `transaction.version` 2 do not add partitions themselves. A partition is added by its
first batch.

For each later batch, the client's ownership of the producer id is verified, so that a client cannot
write to the transaction of a different client. Kafka only verifies the first batch.

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
        The transactional id of the producer. Defaults to the id that owns the batch's producer id,
        which only suits callers that may write to every transaction. Ignored for batches that are
        not transactional.
    adds : bool
        Whether to add the partition to the transaction; see `TransactionCoordinator.verified`.

    Raises
    ------
    InvalidTopicError
        The topic is internal.
    InvalidTxnStateError, InvalidProducerEpochError, InvalidProducerIdMappingError
        The batch is not part of an open transaction; see `TransactionCoordinator.verified`.
    ConcurrentTransactionsError
        The producer's previous transaction cannot be completed yet.
    RequestError, CorruptRecordError, UnsupportedFormatError, KafkaStorageError
        The log is unchanged; see `LogWriter.append_batches`.
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
    """Add all partitions of a request to its transaction with a single record.

    This is faster than having `append_as_client` add them one at a time. Errors are ignored,
    because `append_as_client` raises them again.
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
    """Append a client's batch. Raises the same errors as `append_as_client`.

    Parameters
    ----------
    producer : ProducerIdAndEpoch or None
        The producer of the batch, or None if the batch is not transactional.
    append : callable
        Appends one batch with the log's writer.
    transactional_id : str, optional
        See `append_as_client`.
    first_sequence : int
        The first sequence of a batch that adds its partition to the transaction, or -1 for other
        batches.
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
    # Hold the lock for the check and the append, so that no marker can be written in between.
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
    """Raise an error if earlier batches are missing: a first batch must have sequence 0."""
    entry = log.producer_state.entry(producer_id)
    if first_sequence and (entry is None or not entry.batches):
        raise OutOfOrderSequenceNumberError(
            f"{log.topic_partition}: the first batch of producer {producer_id} begins with sequence"
            f" {first_sequence}, not 0"
        )


def check_for_clients(topic: str) -> None:
    """Raise an error if a topic is internal, because clients are not allowed to produce to it."""
    if topic in INTERNAL_COMPACTED_TOPICS:
        raise InvalidTopicError(f"cannot produce to the internal topic '{topic}'")


def _transactional_header(data: bytes) -> BatchHeader | None:
    """Return the header of a transactional data batch, or None for other data.

    The log validates the batch.
    """
    if len(data) < layout.HEADER_SIZE or data[layout.MAGIC_POSITION] != layout.MAGIC:
        return None
    header = BatchHeader.unpack_from(data)
    if header.is_control or not (header.is_transactional and header.has_producer_id):
        return None
    return header
