"""Rules for the next batch of a producer, given its state (storage-format §9.1).

Pure functions of a producer's state and a batch's header. The result is an error, a duplicate or
None. The leader has checked the batches of a follower, so the rules of epochs and sequences apply
only to clients and coordinators.
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
        For messages.
    entry : ProducerEntry or None
        The state of the producer, or None if it is not known.

    Returns
    -------
    BatchMetadata or None
        The batch that a client sends again: to be answered with its offsets, not written.

    Raises
    ------
    InvalidProducerEpochError
        The epoch is older than the one known: the producer is fenced.
    OutOfOrderSequenceNumberError
        The first sequence does not follow the last one of this epoch, or is not 0 in a new one.
    InvalidTxnStateError
        Not transactional, while the producer's transaction is open.
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
        The epoch is older than the one known.
    TransactionCoordinatorFencedError
        Another coordinator has taken over since this one was elected.
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
    """Check the epoch of a marker of `transaction.version` 2, in addition to `check_marker`.

    The coordinator bumps the epoch before each marker. A marker with the epoch of an open
    transaction belongs to the previous one, and is late. Without an open transaction it is a retry.

    Raises
    ------
    InvalidProducerEpochError
    """
    if entry is None or entry.current_txn_first_offset is None:
        return
    # Clients never use epoch 32767. Kafka accepts such a marker to recover from a fault.
    if header.producer_epoch == entry.producer_epoch != INT16_MAX:
        raise InvalidProducerEpochError(
            f"{where}: epoch {header.producer_epoch} of a marker of producer {header.producer_id}"
            " is that of the open transaction, which ends with a later epoch"
        )


def find_duplicate(entry: ProducerEntry, header: BatchHeader) -> BatchMetadata | None:
    """Return the remembered batch of the same epoch and sequences, or None if there is none."""
    if header.producer_epoch != entry.producer_epoch:
        return None
    wanted = (header.base_sequence, header.last_sequence)
    for batch in entry.batches:
        if (batch.first_sequence, batch.last_sequence) == wanted:
            return batch
    return None


def check_epoch(where: TopicPartition, entry: ProducerEntry, producer_epoch: int) -> None:
    """Raise InvalidProducerEpochError if an epoch of a producer is older than the known one."""
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
