"""Appends of clients' batches, with verification of their transactions.

A bare `Log` does not verify transactions. Here, the first batch of a transaction in a partition is
only written if the coordinator confirms that the transaction is open and includes the partition, as
in brokers since 3.6. Otherwise, a late batch could open a transaction that is never ended, and the
last stable offset would not advance again.
Source: KIP-890 part 1; Kafka's ReplicaManager, VerificationGuard and UnifiedLog.

For later batches, the owner of the producer id is verified: a client must not write to the
transaction of another client by using its producer id. Kafka only verifies the first batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.coordinator.transactions.state import ProducerIdAndEpoch
from logstore.errors import InvalidTopicError
from logstore.names import INTERNAL_COMPACTED_TOPICS
from logstore.record import layout
from logstore.record.header import BatchHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from logstore.coordinator.transactions.coordinator import TransactionCoordinator
    from logstore.manager.manager import LogManager
    from logstore.storage.log.drafts import AppendInfo
    from logstore.storage.log.writer import LogWriter
    from logstore.types import TopicPartition


def append_as_client(
    manager: LogManager,
    coordinator: TransactionCoordinator,
    topic_partition: TopicPartition,
    data: bytes,
    transactional_id: str | None = None,
) -> AppendInfo:
    """Append one encoded batch, as in a Produce request.

    Parameters
    ----------
    transactional_id : str, optional
        The producer's transactional id. By default, the id with the batch's producer id; only use
        the default for callers that may write to all transactions. Ignored for a batch outside a
        transaction.

    Raises
    ------
    InvalidTopicError
        The topic is internal.
    InvalidTxnStateError, InvalidProducerEpochError, InvalidProducerIdMappingError
        The batch is not part of an open transaction; see `TransactionCoordinator.verified`.
    RequestError, CorruptRecordError, UnsupportedFormatError, KafkaStorageError
        See `LogWriter.append_batches`. The log is unchanged.
    """
    return append_of_producer(
        manager,
        coordinator,
        topic_partition,
        _in_transaction(data),
        lambda writer: writer.append_batches(data),
        transactional_id,
    )


def append_of_producer(
    manager: LogManager,
    coordinator: TransactionCoordinator,
    topic_partition: TopicPartition,
    producer: ProducerIdAndEpoch | None,
    append: Callable[[LogWriter], AppendInfo],
    transactional_id: str | None = None,
) -> AppendInfo:
    """Append a batch of a client. Raises the errors of `append_as_client`.

    Parameters
    ----------
    producer : ProducerIdAndEpoch or None
        Producer of the batch's transaction, or None outside a transaction.
    append : callable
        Appends one batch with the writer of the log.
    transactional_id : str, optional
        See `append_as_client`.
    """
    check_for_clients(topic_partition.topic)
    return manager.faults.request(
        "append",
        (topic_partition,),
        lambda: _append(manager, coordinator, topic_partition, producer, append, transactional_id),
    )


def _append(
    manager: LogManager,
    coordinator: TransactionCoordinator,
    topic_partition: TopicPartition,
    producer: ProducerIdAndEpoch | None,
    append: Callable[[LogWriter], AppendInfo],
    transactional_id: str | None,
) -> AppendInfo:
    log = manager.log(topic_partition)
    if producer is None:
        return append(log.writer)
    coordinator = coordinator.of(transactional_id, producer.producer_id)
    # Check and append under one lock, so that no marker is written in between.
    with log.lock:
        is_open = log.producer_state.has_open_transaction(producer.producer_id)
        if is_open and (transactional_id is None or coordinator.owns(transactional_id, producer)):
            return append(log.writer)
    with coordinator.verified(topic_partition, producer, transactional_id):
        return append(log.writer)


def check_for_clients(topic: str) -> None:
    """Raise an error for internal topics, to which clients must not produce."""
    if topic in INTERNAL_COMPACTED_TOPICS:
        raise InvalidTopicError(f"cannot produce to the internal topic '{topic}'")


def _in_transaction(data: bytes) -> ProducerIdAndEpoch | None:
    """Return the producer of a transactional data batch, else None. The log validates the batch."""
    if len(data) < layout.HEADER_SIZE or data[layout.MAGIC_POSITION] != layout.MAGIC:
        return None
    header = BatchHeader.unpack_from(data)
    if header.is_control or not (header.is_transactional and header.has_producer_id):
        return None
    return ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
