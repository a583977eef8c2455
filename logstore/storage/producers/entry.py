"""The state of a producer id, and values derived from it.

Source: storage-format §9.1; Kafka's ProducerStateEntry, BatchMetadata and CompletedTxn.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from logstore.storage.producers.snapshot import SnapshotEntry
from logstore.types import (
    INT32_MAX,
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    AbortedTxn,
)

BATCHES_REMEMBERED = 5
"""Number of batches that a producer may have in flight; limits duplicate detection."""

NO_COORDINATOR_EPOCH = -1


class BatchMetadata(NamedTuple):
    """A producer's batch. Offsets and sequences are inclusive; the timestamp is the largest one."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence of the batch's first record, or -1 if the batch has no sequences."""
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        if self.last_sequence >= self.offset_delta:
            return self.last_sequence - self.offset_delta
        return INT32_MAX - (self.offset_delta - self.last_sequence) + 1

    @property
    def first_offset(self) -> int:
        """Offset of the batch's first record."""
        return self.last_offset - self.offset_delta


class LastRecord(NamedTuple):
    """The last record of a producer. The offset is -1 if no data batch is known."""

    producer_epoch: int
    last_data_offset: int


class CompletedTxn(NamedTuple):
    """A completed transaction: the offsets of its first record and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool

    def to_aborted_txn(self, last_stable_offset: int) -> AbortedTxn:
        """Return the transaction index entry of an aborted transaction."""
        assert self.is_aborted, self
        return AbortedTxn(self.producer_id, self.first_offset, self.last_offset, last_stable_offset)


@dataclass(slots=True)
class ProducerEntry:
    """The state of a producer id.

    Attributes
    ----------
    last_timestamp : int
        Largest timestamp of the last batch or marker, in Unix milliseconds, or -1 if it had none.
    current_txn_first_offset : int or None
        First data offset of the open transaction, or None if there is none.
    batches : deque of BatchMetadata
        The last five data batches in this epoch, oldest first.
    """

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    current_txn_first_offset: int | None = None
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))

    @property
    def last_sequence(self) -> int:
        """Sequence of the last batch's last record, or -1 if no batch is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """Offset of the last batch's last record, or -1 if no batch is known."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def is_in_transaction(self, producer_epoch: int) -> bool:
        """Return whether the producer has an open transaction in this epoch."""
        return self.current_txn_first_offset is not None and self.producer_epoch == producer_epoch

    def is_followed_by(self, producer_epoch: int, sequence: int) -> bool:
        """Return whether a single-record batch outside a transaction is the producer's next batch.

        `check_data` accepts every such batch, and may accept others.
        """
        batches = self.batches
        if (
            producer_epoch != self.producer_epoch
            or self.current_txn_first_offset is not None
            or not batches
            or batches[-1][0] != sequence - 1
        ):
            return False
        for batch in batches:  # noqa: SIM110  # a generator takes longer
            if batch[0] == sequence:
                return False  # may be a duplicate
        return True

    def add_batch(self, sequence: int, offset: int, timestamp: int) -> None:
        """Apply a single-record batch that `is_followed_by` has accepted."""
        batch: BatchMetadata = tuple.__new__(BatchMetadata, (sequence, offset, 0, timestamp))
        self.batches.append(batch)
        self.last_timestamp = timestamp

    def enter_epoch(self, producer_epoch: int) -> None:
        """Set the epoch. If it changes, forget all batches."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()

    def to_snapshot(self) -> SnapshotEntry:
        """Return the snapshot entry, which only contains the last batch."""
        txn_first_offset = self.current_txn_first_offset
        return SnapshotEntry(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            last_sequence=self.last_sequence,
            last_offset=self.last_data_offset,
            offset_delta=self.batches[-1].offset_delta if self.batches else 0,
            timestamp=self.last_timestamp,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=NO_OFFSET if txn_first_offset is None else txn_first_offset,
        )

    @classmethod
    def from_snapshot(cls, stored: SnapshotEntry) -> ProducerEntry:
        """Return the producer state from a snapshot entry."""
        txn_first_offset = stored.current_txn_first_offset
        entry = cls(
            stored.producer_id,
            stored.producer_epoch,
            stored.coordinator_epoch,
            stored.timestamp,
            txn_first_offset if txn_first_offset >= 0 else None,
        )
        if stored.last_offset >= 0:
            entry.batches.append(
                BatchMetadata(
                    stored.last_sequence, stored.last_offset, stored.offset_delta, stored.timestamp
                )
            )
        return entry
