"""Compare two copies of a partition and determine the fate of each record.

The fates are derived from the copies and the rules without the cleaner's code, which makes this an
independent verification of the cleaner. Requires about 200 bytes of memory per key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from logstore.analysis.committed import ABORTED, COMMITTED, OPEN_TRANSACTION, CommittedData
from logstore.analysis.fates import RecordFate
from logstore.cleaner.strategy import Strategy
from logstore.errors import InvalidRecordError
from logstore.record.control import ControlType, decode_control_key

if TYPE_CHECKING:
    from logstore.analysis.view import PartitionView, StoredBatch
    from logstore.cleaner.strategy import Order
    from logstore.record.header import BatchHeader
    from logstore.record.records import Record

EXPLAINED = (
    *("retained", "superseded", "tombstone_expired", "aborted", "control_expired", "null_key"),
    *("below_log_start", "added"),
)
"""Fates explained by cleaning, retention and appends."""

UNEXPLAINED = ("lost", "changed", "foreign")
"""Unexplained fates.

`lost`: missing although it is the survivor of its key or not committed yet. `changed`: different
content at its offset. `foreign`: only in the second copy, but below the end of the first one.
"""

DIFFERENCES = (*EXPLAINED, *UNEXPLAINED)

DiffProgress = Callable[[str, int, int], None]
"""Called with a task, the bytes done, and the total."""


class BatchRecord(NamedTuple):
    """A record and its batch."""

    stored: StoredBatch
    record: Record


class _CommitStates:
    """Commit states of data in the first copy, as known from the second copy.

    A transaction that is open in the first copy may have ended before the second copy. Its marker
    in the second copy shows the outcome, because the transaction indexes omit aborted transactions
    whose data was removed by cleaning.
    """

    def __init__(self, before: PartitionView, after: PartitionView) -> None:
        self._before = CommittedData(before.log)
        self._after = CommittedData(after.log)
        self._ends: dict[int, ControlType] = {}
        if before.log.producer_state.first_undecided_offset() is not None:
            self._ends = dict(_first_markers(after, before.log.log_end_offset))

    def state_before(self, header: BatchHeader) -> str:
        """Return the state of a batch in the first copy, or `open_transaction` if unknown."""
        state = self._before.state_of(header)
        if state in (COMMITTED, ABORTED):
            return state
        later = self._after.state_of(header)
        if state != OPEN_TRANSACTION or later != COMMITTED:
            return later
        end = self._ends.get(header.producer_id)
        if end is ControlType.COMMIT:
            return COMMITTED
        return ABORTED if end is ControlType.ABORT else OPEN_TRANSACTION

    def is_committed_after(self, header: BatchHeader) -> bool:
        """Return whether a batch in the second copy is committed."""
        return self._after.has(header)


def _first_markers(view: PartitionView, start_offset: int) -> Iterator[tuple[int, ControlType]]:
    """Yield the first transaction marker of each producer at or after an offset."""
    seen: set[int] = set()
    for stored, record in view.records(start_offset):
        header = stored.batch.header
        if not header.is_control or header.producer_id in seen:
            continue
        with suppress(InvalidRecordError):
            control_type = decode_control_key(record.key).control_type
            if control_type in (ControlType.ABORT, ControlType.COMMIT):
                seen.add(header.producer_id)
                yield header.producer_id, control_type


class PartitionDiff:
    """The fate of each record of a partition, determined from two copies.

    Parameters
    ----------
    before, after : PartitionView
        The copies. The topic in the first copy determines the strategy.
    cleaned_until : int, optional
        End of the clean section of the second copy. Later records supersede nothing. [default:
        offset in its cleaner checkpoint, or its log end offset]
    progress : callable, optional
        Called before each batch of the first copy.

    Attributes
    ----------
    counts : Counter of str
        Number of records by fate, counting the fates yielded so far.
    assumed : tuple of str
        Assumptions about missing files.
    """

    def __init__(
        self,
        before: PartitionView,
        after: PartitionView,
        *,
        cleaned_until: int | None = None,
        progress: DiffProgress | None = None,
    ) -> None:
        self._before = before
        self._after = after
        self._progress = progress
        self._strategy = Strategy.of(before.log.config)
        self.assumed: tuple[str, ...] = ()
        if cleaned_until is None:
            directory = after.broker.manager.registry.directory_of(after.topic_partition)
            cleaned_until = directory.cleaner_offset(after.topic_partition)
        if cleaned_until is None:
            cleaned_until = after.log.log_end_offset
            self.assumed = (
                "the second copy has no cleaner checkpoint: it is assumed to be cleaned up to its"
                f" end {cleaned_until}; copy cleaner-offset-checkpoint as well to avoid this",
            )
        self._cleaned_until = cleaned_until
        self.counts: Counter[str] = Counter()

    @property
    def is_explained(self) -> bool:
        """Whether cleaning, retention and appends explain all fates yielded so far."""
        return not any(self.counts[fate] for fate in UNEXPLAINED)

    def __iter__(self) -> Iterator[RecordFate]:
        """Yield a fate for each record in either copy, in offset order."""
        self.counts.clear()
        states = _CommitStates(self._before, self._after)
        winners = self._winners(states)
        for entry, other in _pair(self._records(self._before, "comparing"), self._records_after()):
            record_fate = self._fate(entry, other, winners, states)
            self.counts[record_fate.fate] += 1
            yield record_fate

    def _winners(self, states: _CommitStates) -> dict[bytes, Order]:
        """Return the highest order of each key below the end of the clean section."""
        winners: dict[bytes, Order] = {}
        for record in self._committed(states):
            if record.offset >= self._cleaned_until:
                break
            if record.key is None:
                continue
            hashed = xxhash.xxh3_128_digest(record.key)
            order = self._order(record)
            if hashed not in winners or order > winners[hashed]:
                winners[hashed] = order
        return winners

    def _committed(self, states: _CommitStates) -> Iterator[Record]:
        """Yield the committed records of the first copy, then those appended in the second copy."""
        for stored, record in self._records(self._before, "reading keys"):
            header = stored.batch.header
            if not header.is_control and states.state_before(header) == COMMITTED:
                yield record
        for stored, record in self._after.records(self._before.log.log_end_offset):
            if states.is_committed_after(stored.batch.header):
                yield record

    def _fate(
        self,
        entry: BatchRecord | None,
        other: BatchRecord | None,
        winners: dict[bytes, Order],
        states: _CommitStates,
    ) -> RecordFate:
        if entry is None:
            assert other is not None
            is_new = other.record.offset >= self._before.log.log_end_offset
            return _build_fate(other, "added" if is_new else "foreign")
        record, header = entry.record, entry.stored.batch.header
        if record.offset < max(self._before.log.log_start_offset, self._after.log.log_start_offset):
            return _build_fate(entry, "below_log_start")
        if other is not None:
            return _build_fate(entry, "retained" if other.record == record else "changed")
        if header.is_control:
            return _build_fate(entry, "control_expired")
        state = states.state_before(header)
        if state == ABORTED:
            return _build_fate(entry, "aborted")
        if state != COMMITTED:
            return _build_fate(entry, "lost")
        if record.key is None:
            return _build_fate(entry, "null_key")
        winner = winners.get(xxhash.xxh3_128_digest(record.key))
        if winner is None or record.offset >= self._cleaned_until:
            return _build_fate(entry, "lost")
        if winner > self._order(record):
            return _build_fate(entry, "superseded", winner.offset)
        return _build_fate(entry, "tombstone_expired" if record.value is None else "lost")

    def _order(self, record: Record) -> Order:
        return self._strategy.order_of(record.offset, record.timestamp, record.headers)

    def _records_after(self) -> Iterator[BatchRecord]:
        return self._records(self._after, "")

    def _records(self, view: PartitionView, task: str) -> Iterator[BatchRecord]:
        """Yield all records of a copy, including records below its log start."""
        log = view.log
        done, position = 0, -1
        for stored, record in view.records(log.segments.first.base_offset):
            if self._progress is not None and task and stored.position != position:
                self._progress(task, done, log.size_bytes)
                done += stored.size_bytes
                position = stored.position
            yield BatchRecord(stored, record)


def _pair(
    before: Iterator[BatchRecord], after: Iterator[BatchRecord]
) -> Iterator[tuple[BatchRecord | None, BatchRecord | None]]:
    """Join two record streams by offset."""
    left, right = next(before, None), next(after, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.record.offset < right.record.offset):
            yield left, None
            left = next(before, None)
        elif left is None or right.record.offset < left.record.offset:
            yield None, right
            right = next(after, None)
        else:
            yield left, right
            left, right = next(before, None), next(after, None)


def _build_fate(entry: BatchRecord, fate: str, superseded_by: int | None = None) -> RecordFate:
    record = entry.record
    if not entry.stored.batch.header.is_control:
        return RecordFate(record.offset, record.key, fate, superseded_by, None)
    kind = "other"
    try:
        control_type = decode_control_key(record.key).control_type
        if control_type in (ControlType.ABORT, ControlType.COMMIT):
            kind = control_type.name.lower()
    except InvalidRecordError:
        pass
    return RecordFate(record.offset, None, fate, superseded_by, kind)
