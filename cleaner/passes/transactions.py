"""Determine which batches belong to aborted transactions, and which markers are needed.

Kernels have no access to producers, so this module sets the `DISCARD` and `VERDICT` columns of a
chunk's table, but only for batches with a producer. Source: docs/spec/cleaner.md §8.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from logstore.cleaner.kernels.table import (
    COL_CONTROL,
    COL_DISCARD,
    COL_LAST_OFFSET,
    COL_PRODUCER_EPOCH,
    COL_PRODUCER_ID,
    COL_VERDICT,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_EMPTY,
    CONTROL_NONE,
    DISCARD_ABORTED,
    DISCARD_EXPIRING,
    VERDICT_RETAIN_EMPTY,
    keep_last_batches,
    list_transactional,
)
from logstore.record.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from logstore.types import INT64_MAX, NO_OFFSET

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.cleaner.passes.chunks import Chunk
    from logstore.storage.log.log import Log
    from logstore.storage.producers.entry import LastRecord
    from logstore.storage.segment.segment import LogSegment
    from logstore.types import AbortedTxn


DISCARDED_MAX = 32 * 1024
"""Maximum number of discarded batches to remember: 3 MiB, regardless of log size."""


class TransactionState:
    """Transactions found while scanning a log in order to build the map or rewrite the log.

    Parameters
    ----------
    discarded_before : collection of int, optional
        The `discarded` attribute of the scan that mapped the log. All other transactional batches
        were mapped, so their records may have winner bits. None if unknown. It may differ from the
        batches that this scan discards, because aborts below a new log start do not count.

    Attributes
    ----------
    discarded : set of int, optional
        Last offsets of the batches discarded because of an aborted transaction, or None if there
        are more than `DISCARDED_MAX`.
    kept_aborts : list of AbortedTxn
        Aborted transactions whose markers are retained because their data was found. They belong in
        the index of the segment that contains the markers. The caller must clear the list.
    """

    def __init__(self, discarded_before: Collection[int] | None = None) -> None:
        self._is_mapped_known = discarded_before is not None
        self._discarded_before = np.array(sorted(discarded_before or ()), np.int64)
        self.discarded: set[int] | None = set()
        # (first offset, producer id, transaction), lowest first offset first.
        self._upcoming: list[tuple[int, int, AbortedTxn]] = []
        self._aborted: dict[int, AbortedTxn] = {}
        self._aborted_with_data: set[int] = set()
        self._with_data: set[int] = set()
        self.kept_aborts: list[AbortedTxn] = []
        self._found = np.empty((0, 6), np.int64)  # space for the runs to examine

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        """Add aborted transactions that start at or after the current batch of the scan.

        Known transactions may be added again.
        """
        for transaction in transactions:
            entry = (transaction.first_offset, transaction.producer_id, transaction)
            heapq.heappush(self._upcoming, entry)

    def mark_discardable(self, chunk: Chunk) -> None:
        """Mark the batches in a chunk's table that can be discarded.

        Data of aborted transactions is discarded immediately. A marker is discarded after its
        delete horizon, once no data of its transaction remains.
        """
        if not chunk.may_have(TRANSACTIONAL_BIT | CONTROL_BIT):
            return
        table = chunk.table
        if len(self._found) < len(table):
            self._found = np.empty((2 * len(table), 6), np.int64)
        count = list_transactional(
            table, self._is_mapped_known, self._discarded_before, self._found
        )
        known = self._upcoming
        for start, end, first, last, producer_id, control in self._found[:count].tolist():
            self._start_aborted(first)
            if known and known[0][0] <= last:
                self._mark_individually(table, start, end, producer_id)
            elif control == CONTROL_NONE:
                self._on_batches_read(table, start, end, producer_id)
            elif self._on_control_batch_read(producer_id, control):
                table[start, COL_DISCARD] = DISCARD_EXPIRING

    def _start_aborted(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            _, producer_id, transaction = heapq.heappop(self._upcoming)
            self._aborted.setdefault(producer_id, transaction)

    def _mark_individually(
        self, table: NDArray[np.int64], start: int, end: int, producer_id: int
    ) -> None:
        """Judge a run's batches individually, because an aborted transaction starts in it."""
        for row in range(start, end):
            self._start_aborted(int(table[row, COL_LAST_OFFSET]))
            self._on_batches_read(table, row, row + 1, producer_id)

    def _on_batches_read(
        self, table: NDArray[np.int64], start: int, end: int, producer_id: int
    ) -> None:
        """Record a run of transactional batches. Mark them if they are aborted."""
        if producer_id not in self._aborted:
            self._with_data.add(producer_id)
            return
        self._aborted_with_data.add(producer_id)
        table[start:end, COL_DISCARD] = DISCARD_ABORTED
        if self.discarded is not None:
            self.discarded.update(table[start:end, COL_LAST_OFFSET].tolist())
            if len(self.discarded) > DISCARDED_MAX:
                self.discarded = None

    def _on_control_batch_read(self, producer_id: int, control: int) -> bool:
        """Record a control batch and return whether it is no longer needed."""
        if control == CONTROL_ABORT:
            transaction = self._aborted.pop(producer_id, None)
            if transaction is None or producer_id not in self._aborted_with_data:
                return True
            self._aborted_with_data.discard(producer_id)
            self.kept_aborts.append(transaction)
            return False
        if control == CONTROL_COMMIT:
            if producer_id not in self._with_data:
                return True
            self._with_data.discard(producer_id)
            return False
        return control == CONTROL_EMPTY


class AbortedTransactions:
    """The aborted transactions of a log, from the indexes of its segments.

    Segments with a transaction index are only determined once. Most segments have none, and
    searching all later segments for each segment would take quadratic time. Later aborts are above
    the range of the pass.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._segments: list[LogSegment] = []
        self._ends: list[int] = []
        view = log.segments.view
        for slot, segment in enumerate(view):
            if not segment.txn_index.is_empty:
                self._segments.append(segment)
                self._ends.append(view[slot + 1].base_offset if slot + 1 < len(view) else INT64_MAX)

    def between(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the transactions that overlap [start, end), in marker order.

        Markers may be beyond the end. As in Kafka, transactions that ended below the log start are
        omitted: their batches are treated as committed, and their markers as not needed.
        """
        found: list[AbortedTxn] = []
        if start_offset >= end_offset:
            return found
        log_start_offset = self._log.log_start_offset
        for segment in self._segments[bisect_right(self._ends, start_offset) :]:
            transactions, is_complete = segment.collect_aborted_txns(start_offset, end_offset)
            found += (each for each in transactions if each.last_offset >= log_start_offset)
            if is_complete:
                break
        return found


class LastBatches:
    """The last batch of each producer, whose header is retained even if it has no records.

    After a restart, sequences and epochs are read from this header.

    Parameters
    ----------
    producers : mapping
        Producers by id when the group was started. Producers whose last data is in a different
        group may be omitted.
    """

    def __init__(self, producers: Mapping[int, LastRecord]) -> None:
        ends = sorted(
            (known.last_data_offset, producer_id)
            for producer_id, known in producers.items()
            if known.last_data_offset != NO_OFFSET
        )
        self._ends = [last_data_offset for last_data_offset, _ in ends]
        self._end_offsets = np.array(self._ends, np.int64)
        self._producer_ids = np.array([producer_id for _, producer_id in ends], np.int64)
        self._epochs_without_data = {
            producer_id: known.producer_epoch
            for producer_id, known in producers.items()
            if known.last_data_offset == NO_OFFSET
        }

    def keep(self, chunk: Chunk) -> None:
        """Mark the last batches of producers in a chunk's table."""
        if not chunk.has_producers:
            return
        # Only a batch that ends at a producer's last offset can be the producer's last batch.
        start = bisect_left(self._ends, chunk.first_offset)
        end = bisect_right(self._ends, chunk.last_offset, start)
        if start < end:
            keep_last_batches(
                chunk.table, self._end_offsets[start:end], self._producer_ids[start:end]
            )
        if self._epochs_without_data and chunk.may_have(CONTROL_BIT):
            self._keep_markers(chunk.table)

    def _keep_markers(self, table: NDArray[np.int64]) -> None:
        """Mark control batches, in the current epoch, of producers without data."""
        columns = [COL_PRODUCER_ID, COL_PRODUCER_EPOCH]
        rows = np.flatnonzero(table[:, COL_CONTROL] != CONTROL_NONE)
        for row, (producer_id, epoch) in zip(
            rows.tolist(), table[rows][:, columns].tolist(), strict=True
        ):
            if self._epochs_without_data.get(producer_id) == epoch:
                table[row, COL_VERDICT] = VERDICT_RETAIN_EMPTY
