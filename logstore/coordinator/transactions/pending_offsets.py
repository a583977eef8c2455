"""Offsets in `__consumer_offsets` whose transaction was decided but never got its marker there.

Earlier versions wrote no markers to the `__consumer_offsets` of a cluster. The transaction log has
these transactions as complete, while their offsets stay pending: readers get older offsets, or
UNSTABLE_OFFSET_COMMIT. `settle` writes what the log of a partition lacks.

A marker ends everything that a producer has pending in a partition, which may be the offsets of
several transactions, some committed and some aborted. If all were committed, a COMMIT marker is
correct. Otherwise the newest committed offset of each key is written once more, outside any
transaction, and then an ABORT marker. An open transaction in such a partition has to be aborted
first: the later record of a key counts, so a copy would supersede an offset that is still pending.

Every step can be repeated: after a crash the next start finds what is still pending, and copies
that exist already supersede the offsets that they were made of.
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
    """How the transaction of a batch ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    """It is still open, or nothing is known about it."""


class _Ended(NamedTuple):
    """A transaction that was decided; a producer id has one at a time."""

    start_ms: int
    end_ms: int
    outcome: Outcome


_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class History:
    """The decided transactions of some producer ids, and the state that each id was left in.

    Parameters
    ----------
    states : iterable of TransactionMetadata
        Every state that the transaction log still has; those of one transactional id in order.
    """

    def __init__(self, states: Iterable[TransactionMetadata]) -> None:
        self._ended: dict[int, list[_Ended]] = {}
        self._newest: dict[int, TransactionMetadata] = {}
        for state in states:
            self.add(state)

    def add(self, metadata: TransactionMetadata) -> None:
        """Add a state that follows those that are known."""
        self._newest[metadata.producer_id] = metadata
        state, start_ms, end_ms = metadata.state, metadata.start_ms, metadata.last_update_ms
        outcome = Outcome.COMMITTED if state.is_commit else Outcome.ABORTED
        ended = self._ended.setdefault(metadata.producer_id, [])
        is_unknown = not ended or ended[-1].start_ms != start_ms
        # The decision of a complete transaction is unknown if a cleaning has removed its record.
        if state.is_prepared or (state in _COMPLETE and is_unknown):
            ended.append(_Ended(start_ms, end_ms, outcome))

    def newest(self, producer_id: int) -> TransactionMetadata | None:
        """Return the state that a producer id was left in, None if it is unknown."""
        return self._newest.get(producer_id)

    def prepared(self, producer_id: int, topic_partition: TopicPartition) -> Outcome | None:
        """Return the decision whose marker the coordinator has still to write to a partition."""
        newest = self._newest.get(producer_id)
        if newest is None or topic_partition not in newest.partitions:
            return None
        if not newest.state.is_prepared:
            return None
        return Outcome.COMMITTED if newest.state.is_commit else Outcome.ABORTED

    def outcome_of(
        self, producer_id: int, topic_partition: TopicPartition, timestamp_ms: int, marked_ms: int
    ) -> Outcome:
        """Return how the transaction of a pending batch ended.

        States and batches are dated by one clock. If several transactions may have written the
        batch, the newest one is assumed: a log that has all its markers has no other pending.

        Parameters
        ----------
        timestamp_ms : int
            When the batch was written.
        marked_ms : int
            When the last marker of the producer in this partition was written, -1 if there is
            none: it ended all transactions that had been decided by then.
        """
        newest = self._newest.get(producer_id)
        if newest is None:
            return Outcome.OPEN
        is_part = topic_partition in newest.partitions
        is_open = is_part and newest.state is TransactionState.ONGOING
        if is_open and newest.start_ms <= timestamp_ms:
            return Outcome.OPEN
        for each in reversed(self._ended[producer_id]):
            if each.end_ms > marked_ms and each.start_ms <= timestamp_ms <= each.end_ms:
                return each.outcome
        if is_open:
            return Outcome.OPEN
        return self.prepared(producer_id, topic_partition) or Outcome.ABORTED


class _Partition:
    """The contents of a partition of `__consumer_offsets`, as far as `settle` needs them.

    Attributes
    ----------
    pending : dict of int to list of RecordBatch
        By producer id, the batches without a later marker of their producer.
    marked_ms : dict of int to int
        By producer id, when its last marker was written.
    newest : dict of bytes to int
        By key, the offset of the newest record that is not part of an open or aborted transaction.
    """

    def __init__(self, log: Log) -> None:
        self.pending: dict[int, list[RecordBatch]] = {}
        self.marked_ms: dict[int, int] = {}
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
            self.marked_ms[producer_id] = header.max_timestamp
            for ended in self.pending.pop(producer_id, ()):
                if not marker.is_abort:
                    self.count(ended)

    def count(self, batch: RecordBatch) -> None:
        """Take the records of a batch into `newest`."""
        for record in batch.records():
            known = self.newest.get(record.key, NO_OFFSET)
            self.newest[record.key] = max(known, record.offset)

    def outcomes(self, history: History) -> dict[int, list[Outcome]]:
        """Return, by producer id, the outcome of each of its pending batches."""
        return {
            producer_id: [
                history.outcome_of(
                    producer_id,
                    self._topic_partition,
                    batch.header.max_timestamp,
                    self.marked_ms.get(producer_id, NO_TIMESTAMP),
                )
                for batch in batches
            ]
            for producer_id, batches in self.pending.items()
        }


def settle(
    log: Log, history: History, abort: Callable[[TransactionMetadata], TransactionMetadata]
) -> None:
    """Write the markers that decided transactions lack in a partition of `__consumer_offsets`.

    The coordinator writes those of prepared transactions afterwards. Nobody else may write to the
    partition meanwhile.

    Parameters
    ----------
    history : History
        Of the producers that have a transaction open in the log.
    abort : callable
        Stores durably the decision to abort an open transaction, and returns its new state.

    Raises
    ------
    LogStoreError
        The partition cannot be read or written. Nothing is lost; `settle` can be repeated.
    """
    tp = log.topic_partition
    partition = _Partition(log)
    outcomes = partition.outcomes(history)
    has_copies = any(_needs_copies(each) for each in outcomes.values())
    for producer_id, each in outcomes.items():
        newest = history.newest(producer_id)
        if newest is None:
            logger.warning(
                "%s: offsets of producer %d stay pending, since no transactional id has it",
                tp,
                producer_id,
            )
        elif Outcome.OPEN in each and (has_copies or len(set(each)) > 1):
            logger.warning(
                "%s: the open transaction of '%s' is aborted, since earlier ones have no marker",
                tp,
                newest.transactional_id,
            )
            history.add(abort(newest))
    outcomes = partition.outcomes(history)
    _write_copies(log, partition, outcomes)
    for producer_id, each in outcomes.items():
        outcome = Outcome.COMMITTED if set(each) == {Outcome.COMMITTED} else Outcome.ABORTED
        if Outcome.OPEN not in each and outcome is not history.prepared(producer_id, tp):
            _write_marker(log, producer_id, commit=outcome is Outcome.COMMITTED)
    log.flush()


def _needs_copies(outcomes: list[Outcome]) -> bool:
    """Return whether a COMMIT marker would commit more than was committed."""
    return Outcome.COMMITTED in outcomes and len(set(outcomes)) > 1


def _write_copies(log: Log, partition: _Partition, outcomes: dict[int, list[Outcome]]) -> None:
    """Write committed offsets once more if an ABORT marker will follow and none supersedes them."""
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
                "%s: offsets that producer %d committed are written once more, without a"
                " transaction: %d",
                log.topic_partition,
                batch.header.producer_id,
                len(kept),
            )


def _write_marker(log: Log, producer_id: int, *, commit: bool) -> None:
    entry = log.producer_state.entry(producer_id)
    assert entry is not None, "its transaction is open"
    coordinator_epoch = max(0, entry.coordinator_epoch)
    log.writer.append_end_txn_marker(
        producer_id, entry.producer_epoch, coordinator_epoch, commit=commit
    )
    logger.warning(
        "%s: the missing %s marker of producer %d with epoch %d is written",
        log.topic_partition,
        "COMMIT" if commit else "ABORT",
        producer_id,
        entry.producer_epoch,
    )
