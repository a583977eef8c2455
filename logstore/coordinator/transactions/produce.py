"""The entry point of clients: ready-made batches, whose transaction the coordinator must know of.

A bare `Log` does not verify transactions. Here the first batch of a transaction in a partition is
written only if the coordinator knows that the transaction is open and the partition part of it, as
brokers do since 3.6. Otherwise a late batch, or one of a transaction that nobody began, would open
a transaction that nobody ends, and the last stable offset would never move again.
Source: KIP-890 part 1; Kafka's ReplicaManager, VerificationGuard and UnifiedLog.

Later batches are held to the owner of the producer id as well: a client that may write to a topic
must not write to the transaction of another client by naming its producer id. Kafka verifies the
first batch only.
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
    """Append one batch as a client sends it: what a Produce request has for a partition.

    Parameters
    ----------
    transactional_id : str, optional
        Of the producer; by default the one that has the batch's producer id, which is only for
        callers that may write to every transaction. Ignored for a batch outside a transaction.

    Raises
    ------
    InvalidTopicError
        The topic is the broker's own.
    InvalidTxnStateError, InvalidProducerEpochError, InvalidProducerIdMappingError
        The batch is not part of an open transaction; see `TransactionCoordinator.verified`.
    RequestError, CorruptRecordError, UnsupportedFormatError, KafkaStorageError
        As `LogWriter.append_batches`. The log is unchanged.
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
    """Append what a client sends; errors as `append_as_client`.

    Parameters
    ----------
    producer : ProducerIdAndEpoch or None
        Whose transaction it is part of, None if of none.
    append : callable
        Appends one batch, through the writer of the log.
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
    # Answer and append under one lock, which a marker needs: none comes between them.
    with log.lock:
        is_open = log.producer_state.has_open_transaction(producer.producer_id)
        if is_open and (transactional_id is None or coordinator.owns(transactional_id, producer)):
            return append(log.writer)
    with coordinator.verified(topic_partition, producer, transactional_id):
        return append(log.writer)


def check_for_clients(topic: str) -> None:
    """Refuse the topics that are the broker's own."""
    if topic in INTERNAL_COMPACTED_TOPICS:
        raise InvalidTopicError(f"'{topic}' is not for producers")


def _in_transaction(data: bytes) -> ProducerIdAndEpoch | None:
    """Return whose transaction a batch is part of, None if of none; the log judges the rest."""
    if len(data) < layout.HEADER_SIZE or data[layout.MAGIC_POSITION] != layout.MAGIC:
        return None
    header = BatchHeader.unpack_from(data)
    if header.is_control or not (header.is_transactional and header.has_producer_id):
        return None
    return ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
