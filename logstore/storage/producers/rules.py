"""Rules for the next batch of a producer, given its state (storage-format §9.1).

Pure functions of a producer's state and a batch header. They raise an error, or return a duplicate
or None. Epoch and sequence rules only apply to clients and coordinators, because the leader has
already checked a follower's batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from logstore.types import INT16_MAX, INT32_MAX, NO_PRODUCER_EPOCH, AppendOrigin

if TYPE_CHECKING:
    from logstore.record.control import EndTxnMarker
    from logstore.record.header import BatchHeader
    from logstore.storage.producers.entry import BatchMetadata, ProducerEntry
    from logstore.types import TopicPartition

BUMPED_EPOCH_VERSION = 2
"""First `transaction.version` in which a marker has the next epoch (KIP-890)."""


def check_data(
    where: TopicPartition, entry: ProducerEntry | None, header: BatchHeader, origin: AppendOrigin
) -> BatchMetadata | None:
    """Check a data batch of a producer.

    Parameters
    ----------
    where : TopicPartition
        The partition, for messages.
    entry : ProducerEntry or None
        The state of the producer, or None if the producer is unknown.

    Returns
    -------
    BatchMetadata or None
        The original batch if this one is a duplicate, which must not be written again.

    Raises
    ------
    InvalidProducerEpochError
        The epoch is older than the current one: the producer is fenced.
    OutOfOrderSequenceNumberError
        The first sequence does not follow the last one of this epoch, or is not 0 in a new epoch.
    InvalidTxnStateError
        The batch is not transactional, but the producer's transaction is open.
    """
    if entry is None:
        return None
    if origin is AppendOrigin.CLIENT:
        duplicate = find_duplicate(entry, header)
        if duplicate is not None:
            return duplicate
    if origin is not AppendOrigin.REPLICATION:
        check_epoch(where, entry, header.producer_epoch)
    if origin is AppendOrigin.CLIENT:
        _check_sequence(where, entry, header)
    if entry.current_txn_first_offset is not None and not header.is_transactional:
        raise InvalidTxnStateError(
            f"{where}: producer {header.producer_id} writes outside a transaction while its"
            f" transaction from offset {entry.current_txn_first_offset} is open"
        )
    return None


def check_marker(
    where: TopicPartition,
    entry: ProducerEntry | None,
    header: BatchHeader,
    marker: EndTxnMarker,
    origin: AppendOrigin,
) -> None:
    """Check a transaction marker.

    Raises
    ------
    InvalidProducerEpochError
        The epoch is older than the current one.
    TransactionCoordinatorFencedError
        The marker's coordinator epoch is older than the current one.
    """
    if entry is None or origin is AppendOrigin.REPLICATION:
        return
    check_epoch(where, entry, header.producer_epoch)
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise TransactionCoordinatorFencedError(
            f"{where}: coordinator epoch {marker.coordinator_epoch} of a marker of producer"
            f" {header.producer_id} is older than the known {entry.coordinator_epoch}"
        )


def check_bumped_epoch(
    where: TopicPartition, entry: ProducerEntry | None, header: BatchHeader
) -> None:
    """Check the epoch of a `transaction.version` 2 marker, in addition to `check_marker`.

    The coordinator bumps the epoch before each marker. If a transaction is open, a marker with its
    epoch is a late marker of the previous transaction. If no transaction is open, the marker is a
    retry.

    Raises
    ------
    InvalidProducerEpochError
    """
    if entry is None or entry.current_txn_first_offset is None:
        return
    # Clients never use epoch 32767. Kafka accepts such a marker, to recover from a fault.
    if header.producer_epoch == entry.producer_epoch != INT16_MAX:
        raise InvalidProducerEpochError(
            f"{where}: epoch {header.producer_epoch} of a marker of producer {header.producer_id}"
            " is that of the open transaction, which ends with a later epoch"
        )


def find_duplicate(entry: ProducerEntry, header: BatchHeader) -> BatchMetadata | None:
    """Return the cached batch with the same epoch and sequences, or None if there is none."""
    if header.producer_epoch != entry.producer_epoch:
        return None
    wanted = (header.base_sequence, header.last_sequence)
    for batch in entry.batches:
        if (batch.first_sequence, batch.last_sequence) == wanted:
            return batch
    return None


def check_epoch(where: TopicPartition, entry: ProducerEntry, producer_epoch: int) -> None:
    """Raise InvalidProducerEpochError if an epoch is older than the producer's current one."""
    if producer_epoch < entry.producer_epoch:
        raise InvalidProducerEpochError(
            f"{where}: epoch {producer_epoch} of producer {entry.producer_id} is older"
            f" than the known {entry.producer_epoch}"
        )


def _check_sequence(where: TopicPartition, entry: ProducerEntry, header: BatchHeader) -> None:
    known, sequence = entry.producer_epoch, header.base_sequence
    if known == NO_PRODUCER_EPOCH:
        return
    if header.producer_epoch != known:
        if sequence != 0:
            raise OutOfOrderSequenceNumberError(
                f"{where}: the new epoch {header.producer_epoch} of producer"
                f" {header.producer_id} begins with sequence {sequence}, not 0"
            )
        return
    last = entry.last_sequence
    if sequence != last + 1 and not (sequence == 0 and last == INT32_MAX):
        raise OutOfOrderSequenceNumberError(
            f"{where}: sequence {sequence} of producer {header.producer_id} in epoch {known} does"
            f" not follow {last}"
        )
