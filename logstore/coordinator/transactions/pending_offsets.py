"""Repair `__consumer_offsets` where decided transactions lack a marker.

Earlier versions wrote no markers to `__consumer_offsets` in a cluster. The transaction log marks
these transactions as complete, but their offsets are still pending: readers get older offsets, or
UNSTABLE_OFFSET_COMMIT. `write_missing_markers` writes the missing markers.

A marker ends all pending transactions of a producer in a partition. If all of them were committed,
a COMMIT marker is correct. If only some of them were committed, the newest committed offset of each
key is written again outside of any transaction, followed by an ABORT marker. Open transactions in
such a partition are aborted first: a copy would supersede their pending offsets, because the last
record of a key counts.

All steps are idempotent. After a crash, the next start handles the remaining pending offsets, and
copies that were already written supersede their originals.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from logstore.coordinator.transactions.state import TransactionState
from logstore.record.batch import build_batch
from logstore.record.control import end_txn_marker_of
from logstore.record.records import Record
from logstore.types import NO_OFFSET, NO_TIMESTAMP, AppendOrigin, TopicPartition

if TYPE_CHECKING:
    from logstore.coordinator.transactions.state import TransactionMetadata
    from logstore.record.batch import RecordBatch
    from logstore.storage.log.log import Log

logger = logging.getLogger(__name__)


class Outcome(enum.Enum):
    """The outcome of the transaction to which a batch belongs."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    """The transaction is open or unknown."""


class _Ended(NamedTuple):
    """A decided transaction. The transactions of a producer id do not overlap."""

    start_ms: int
    end_ms: int
    outcome: Outcome


_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class History:
    """The decided transactions of producer ids, and the newest state of each id.

    Parameters
    ----------
    states : iterable of TransactionMetadata
        States in the transaction log. The states of each transactional id must be in order.
    """

    def __init__(self, states: Iterable[TransactionMetadata]) -> None:
        self._ended: dict[int, list[_Ended]] = {}
        self._newest: dict[int, TransactionMetadata] = {}
        for state in states:
            self.add(state)

    def add(self, metadata: TransactionMetadata) -> None:
        """Add the next state."""
        self._newest[metadata.producer_id] = metadata
        state, start_ms, end_ms = metadata.state, metadata.start_ms, metadata.last_update_ms
        outcome = Outcome.COMMITTED if state.is_commit else Outcome.ABORTED
        ended = self._ended.setdefault(metadata.producer_id, [])
        is_unknown = not ended or ended[-1].start_ms != start_ms
        # The cleaner may have removed the record with the decision of a complete transaction.
        if state.is_prepared or (state in _COMPLETE and is_unknown):
            ended.append(_Ended(start_ms, end_ms, outcome))

    def newest(self, producer_id: int) -> TransactionMetadata | None:
        """Return the newest state of a producer id, or None if it is unknown."""
        return self._newest.get(producer_id)

    def prepared(self, producer_id: int, topic_partition: TopicPartition) -> Outcome | None:
        """Return the outcome of a prepared transaction in a partition, or None if none exists."""
        newest = self._newest.get(producer_id)
        if newest is None or topic_partition not in newest.partitions:
            return None
        if not newest.state.is_prepared:
            return None
        return Outcome.COMMITTED if newest.state.is_commit else Outcome.ABORTED

    def outcome_of(
        self, producer_id: int, topic_partition: TopicPartition, timestamp_ms: int, marker_ms: int
    ) -> Outcome:
        """Return the outcome of the transaction to which a pending batch belongs.

        The timestamps of states and batches are from the same clock. A batch that could belong to
        several transactions is assigned to the newest, because the others have their markers.

        Parameters
        ----------
        timestamp_ms : int
            The timestamp of the batch.
        marker_ms : int
            The timestamp of the producer's last marker in this partition, or -1 if there is none.
            The marker ended all transactions that were decided before it.
        """
        newest = self._newest.get(producer_id)
        if newest is None:
            return Outcome.OPEN
        is_part = topic_partition in newest.partitions
        is_open = is_part and newest.state is TransactionState.ONGOING
        if is_open and newest.start_ms <= timestamp_ms:
            return Outcome.OPEN
        for each in reversed(self._ended[producer_id]):
            if each.end_ms > marker_ms and each.start_ms <= timestamp_ms <= each.end_ms:
                return each.outcome
        if is_open:
            return Outcome.OPEN
        return self.prepared(producer_id, topic_partition) or Outcome.ABORTED


class _Partition:
    """The contents of a partition of `__consumer_offsets`, for `write_missing_markers`.

    Attributes
    ----------
    pending : dict of int to list of RecordBatch
        The batches without a subsequent marker of their producer, by producer id.
    marker_ms : dict of int to int
        The timestamp of the last marker, by producer id.
    newest : dict of bytes to int
        The offset of each key's newest record outside of open and aborted transactions.
    """

    def __init__(self, log: Log) -> None:
        self.pending: dict[int, list[RecordBatch]] = {}
        self.marker_ms: dict[int, int] = {}
        self.newest: dict[bytes | None, int] = {}
        self._topic_partition = log.topic_partition
        for batch in log.reader.batches(log.log_start_offset):
            self._read(batch)

    def _read(self, batch: RecordBatch) -> None:
        header = batch.header
        producer_id = header.producer_id
        if not header.is_transactional:
            self.count(batch)
        elif not header.is_control:
            self.pending.setdefault(producer_id, []).append(batch)
        elif (marker := end_txn_marker_of(batch)) is not None:
            self.marker_ms[producer_id] = header.max_timestamp
            for ended in self.pending.pop(producer_id, ()):
                if not marker.is_abort:
                    self.count(ended)

    def count(self, batch: RecordBatch) -> None:
        """Add the records of a batch to `newest`."""
        for record in batch.records():
            known = self.newest.get(record.key, NO_OFFSET)
            self.newest[record.key] = max(known, record.offset)

    def outcomes(self, history: History) -> dict[int, list[Outcome]]:
        """Return the outcomes of the pending batches by producer id."""
        return {
            producer_id: [
                history.outcome_of(
                    producer_id,
                    self._topic_partition,
                    batch.header.max_timestamp,
                    self.marker_ms.get(producer_id, NO_TIMESTAMP),
                )
                for batch in batches
            ]
            for producer_id, batches in self.pending.items()
        }


def write_missing_markers(
    log: Log, history: History, abort: Callable[[TransactionMetadata], TransactionMetadata]
) -> None:
    """Write the missing markers of decided transactions to a partition of `__consumer_offsets`.

    The coordinator writes the markers of prepared transactions later. The caller must prevent
    concurrent writes to the partition.

    Parameters
    ----------
    history : History
        The history of the producers with open transactions in the log.
    abort : callable
        Durably stores the decision to abort an open transaction, and returns the new state.

    Raises
    ------
    LogStoreError
        The partition cannot be read or written. `write_missing_markers` can be called again.
    """
    tp = log.topic_partition
    partition = _Partition(log)
    outcomes = partition.outcomes(history)
    has_copies = any(_needs_copies(each) for each in outcomes.values())
    for producer_id, each in outcomes.items():
        newest = history.newest(producer_id)
        if newest is None:
            logger.warning(
                "%s: offsets of producer %d remain pending because it has no transactional id",
                tp,
                producer_id,
            )
        elif Outcome.OPEN in each and (has_copies or len(set(each)) > 1):
            logger.warning(
                "%s: aborting the open transaction of '%s' because earlier ones have no marker",
                tp,
                newest.transactional_id,
            )
            history.add(abort(newest))
    # The coordinator writes the markers of the transactions aborted above.
    _write_copies(log, partition, outcomes)
    for producer_id, each in outcomes.items():
        outcome = Outcome.COMMITTED if set(each) == {Outcome.COMMITTED} else Outcome.ABORTED
        if Outcome.OPEN not in each and outcome is not history.prepared(producer_id, tp):
            _write_marker(log, producer_id, commit=outcome is Outcome.COMMITTED)
    log.flush()


def _needs_copies(outcomes: list[Outcome]) -> bool:
    """Return whether a COMMIT marker would also commit aborted or open transactions."""
    return Outcome.COMMITTED in outcomes and len(set(outcomes)) > 1


def _write_copies(log: Log, partition: _Partition, outcomes: dict[int, list[Outcome]]) -> None:
    """Rewrite the latest committed offsets of producers that get an ABORT marker."""
    committed: list[RecordBatch] = []
    for producer_id, batches in partition.pending.items():
        of_producer = outcomes[producer_id]
        for batch, outcome in zip(batches, of_producer, strict=True):
            if outcome is Outcome.COMMITTED:
                partition.count(batch)
                if _needs_copies(of_producer):
                    committed.append(batch)
    for batch in committed:
        kept = [each for each in batch.records() if partition.newest[each.key] == each.offset]
        if kept:
            now_ms = log.runtime.clock.now_ms()
            copies = [
                Record(number, now_ms, each.key, each.value) for number, each in enumerate(kept)
            ]
            log.writer.append_batches(build_batch(copies), AppendOrigin.COORDINATOR)
            logger.warning(
                "%s: wrote the offsets committed by producer %d again, outside a transaction: %d",
                log.topic_partition,
                batch.header.producer_id,
                len(kept),
            )


def _write_marker(log: Log, producer_id: int, *, commit: bool) -> None:
    entry = log.producer_state.entry(producer_id)
    assert entry is not None, "the producer has an open transaction"
    coordinator_epoch = max(0, entry.coordinator_epoch)
    log.writer.append_end_txn_marker(
        producer_id, entry.producer_epoch, coordinator_epoch, commit=commit
    )
    logger.warning(
        "%s: wrote the missing %s marker of producer %d with epoch %d",
        log.topic_partition,
        "COMMIT" if commit else "ABORT",
        producer_id,
        entry.producer_epoch,
    )
