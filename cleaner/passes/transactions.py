"""Which batches belong to aborted transactions, and which markers are still needed (§8.1, §8.2).

Kernels decide about records and know nothing of producers: what they must know is put into the
`DISCARD` and `VERDICT` columns of a chunk's table here, for the batches of producers alone.
Source: cleaner-semantics §8.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from logstore.cleaner import kernels
from logstore.record.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from logstore.types import INT64_MAX, NO_OFFSET

if TYPE_CHECKING:
    from logstore.cleaner.passes.chunks import Chunk
    from logstore.log.log import Log
    from logstore.producers.entry import LastRecord
    from logstore.segment.segment import LogSegment
    from logstore.types import AbortedTxn


DISCARDED_MAX = 32 * 1024
"""Batches that a walk remembers as discarded: 3 MiB, whatever the size of the log."""


class TransactionState:
    """The transactions that a walk over a log has met; one a map build, one a rewrite.

    Parameters
    ----------
    discarded_before : collection of int, optional
        What the walk that mapped the log had `discarded`. Other batches of transactions were
        mapped, so that winners may tell of them; without it nobody knows. It need not be what
        this walk discards: an abort counts no more once the log starts above it.

    Attributes
    ----------
    discarded : set of int, optional
        Last offsets of the batches that were discarded since their transaction was aborted; None
        if they are more than `DISCARDED_MAX`.
    kept_aborts : list of AbortedTxn
        Aborted transactions whose markers stay because their data were met in this walk, since
        it was last emptied: they belong into the index of the segment that holds the markers.
    """

    def __init__(self, discarded_before: Collection[int] | None = None) -> None:
        self._discarded_before = discarded_before
        self.discarded: set[int] | None = set()
        # (first offset, producer id, transaction), lowest first offset first.
        self._known: list[tuple[int, int, AbortedTxn]] = []
        self._aborted: dict[int, AbortedTxn] = {}
        self._seen: set[int] = set()
        self._committed: set[int] = set()
        self.kept_aborts: list[AbortedTxn] = []
        self._found = np.empty((0, 4), np.int64)  # room for the batches that are looked at

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        """Learn of aborted transactions that begin at or after the walk's present batch.

        Also of those met already; they are known.
        """
        for transaction in transactions:
            entry = (transaction.first_offset, transaction.producer_id, transaction)
            heapq.heappush(self._known, entry)

    def judge(self, chunk: Chunk) -> None:
        """Mark the batches in a chunk's table that can be discarded.

        Data of aborted transactions go at once. A marker goes, a horizon later, once no data of
        its transaction was met.
        """
        if not chunk.may_have(TRANSACTIONAL_BIT | CONTROL_BIT):
            return
        table = chunk.table
        if len(self._found) < len(table):
            self._found = np.empty((2 * len(table), 4), np.int64)
        count = kernels.list_transactional(table, self._found)
        for row, last_offset, producer_id, control in self._found[:count].tolist():
            self._reach(last_offset)
            if control == kernels.CONTROL_NONE:
                if self._meet_data(producer_id):
                    table[row, kernels.COL_DISCARD] = kernels.DISCARD_ABORTED
                    self._note_discarded(last_offset)
                elif (
                    self._discarded_before is not None and last_offset not in self._discarded_before
                ):
                    table[row, kernels.COL_DISCARD] = kernels.DISCARD_NONE_MAPPED
            elif self._meet_marker(producer_id, control):
                table[row, kernels.COL_DISCARD] = kernels.DISCARD_EXPIRING

    def _reach(self, offset: int) -> None:
        while self._known and self._known[0][0] <= offset:
            _, producer_id, transaction = heapq.heappop(self._known)
            self._aborted.setdefault(producer_id, transaction)

    def _meet_data(self, producer_id: int) -> bool:
        """Record a transactional batch; tell whether it was aborted."""
        if producer_id in self._aborted:
            self._seen.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def _note_discarded(self, last_offset: int) -> None:
        if self.discarded is not None:
            self.discarded.add(last_offset)
            if len(self.discarded) > DISCARDED_MAX:
                self.discarded = None

    def _meet_marker(self, producer_id: int, control: int) -> bool:
        """Record a control batch; tell whether nothing needs it any more."""
        if control == kernels.CONTROL_ABORT:
            transaction = self._aborted.pop(producer_id, None)
            if transaction is None or producer_id not in self._seen:
                return True
            self._seen.discard(producer_id)
            self.kept_aborts.append(transaction)
            return False
        if control == kernels.CONTROL_COMMIT:
            if producer_id not in self._committed:
                return True
            self._committed.discard(producer_id)
            return False
        return control == kernels.CONTROL_EMPTY


class AbortedTransactions:
    """The aborted transactions of a log as it is now, by the segments' indexes.

    Which segments have any is found out once: most have no such index, and to look for it in all
    segments above each one would take the square of their number. What is aborted later lies
    above all that a pass may touch.
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
        """Return those that overlap [start, end), in the order of their markers.

        The markers may stand beyond the end. Those that ended below the log start are left out,
        as Kafka does: their batches then count as committed, and their markers as needless.
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
    """The last batch of each producer, which keeps its header whatever becomes of its records.

    Sequences and epochs are read from there after a restart.

    Parameters
    ----------
    producers : mapping
        Producers by id, as the log knew them when the group was begun.
    """

    def __init__(self, producers: Mapping[int, LastRecord]) -> None:
        self._producers = producers
        offsets = {known.last_data_offset for known in producers.values()}
        self._lack_data = NO_OFFSET in offsets
        self._offsets = np.array(sorted(offsets - {NO_OFFSET}), np.int64)

    def keep(self, chunk: Chunk) -> None:
        """Note in a chunk's table which batches are the last of their producers."""
        if not self._producers or not chunk.has_producers:
            return
        table = chunk.table
        last_offsets = table[:, kernels.COL_LAST_OFFSET]
        # Only a batch that ends where one of them does may be its last: rows rise by that.
        first = self._offsets.searchsorted(last_offsets[0])
        wanted = self._offsets[first : self._offsets.searchsorted(last_offsets[-1], side="right")]
        rows = last_offsets.searchsorted(wanted)
        rows = rows[last_offsets[rows] == wanted]
        if self._lack_data:  # or a control batch
            control = np.flatnonzero(table[:, kernels.COL_CONTROL] != kernels.CONTROL_NONE)
            rows = np.concatenate((rows, control))
        columns = [
            kernels.COL_PRODUCER_ID,
            kernels.COL_PRODUCER_EPOCH,
            kernels.COL_LAST_OFFSET,
            kernels.COL_CONTROL,
        ]
        for row, (producer_id, epoch, last_offset, control) in zip(
            rows.tolist(), table[rows][:, columns].tolist(), strict=True
        ):
            known = self._producers.get(producer_id)
            if known is None:
                continue
            is_last = known.last_data_offset == last_offset
            if known.last_data_offset == NO_OFFSET:
                is_last = control != kernels.CONTROL_NONE and epoch == known.producer_epoch
            if is_last:
                table[row, kernels.COL_VERDICT] = kernels.VERDICT_RETAIN_EMPTY
