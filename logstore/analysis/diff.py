"""Differences between two copies of a partition: what became of each record between them.

Told from the two copies alone, by the rules and without the cleaner: an independent judge of what
it did. Memory: the hash and the order of each key, about 200 bytes.
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
"""Fates that cleaning, retention and appends explain."""

UNEXPLAINED = ("lost", "changed", "foreign")
"""Fates that nothing explains.

`lost`: gone though it wins its key, or though it is not committed yet. `changed`: another content
at its offset. `foreign`: in the second copy, below the end of the first, which does not have it.
"""

DIFFERENCES = (*EXPLAINED, *UNEXPLAINED)

DiffProgress = Callable[[str, int, int], None]
"""Told of the task, and of bytes done and all."""


class Place(NamedTuple):
    """A record and the batch that it lies in."""

    stored: StoredBatch
    record: Record


class _CommitStates:
    """The commit state of the first copy's data, as of the second copy.

    A transaction that is open in the first copy may have ended when the second was made. Then its
    marker in the second copy says how: the transaction indexes do not, once a cleaning has removed
    all data of an aborted one.
    """

    def __init__(self, before: PartitionView, after: PartitionView) -> None:
        self._before = CommittedData(before.log)
        self._after = CommittedData(after.log)
        self._ends: dict[int, ControlType] = {}
        if before.log.producer_state.first_undecided_offset() is not None:
            self._ends = dict(_first_markers(after, before.log.log_end_offset))

    def of_before(self, header: BatchHeader) -> str:
        """Return the state of a batch of the first copy; `open_transaction` if unknown."""
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
        """Return whether a batch of the second copy is committed there."""
        return self._after.has(header)


def _first_markers(view: PartitionView, start_offset: int) -> Iterator[tuple[int, ControlType]]:
    """Yield each producer's first transaction marker at or after an offset."""
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
    """The fates of the records of one copy of a partition in another one.

    Parameters
    ----------
    before, after : PartitionView
        The copies; the strategy is that of the first one's topic.
    cleaned_until : int, optional
        Up to where the second copy is clean: no record from there on supersedes any. By default
        what its cleaner checkpoint says, else the end of its log.
    progress : callable, optional
        Told before each batch of the first copy.

    Attributes
    ----------
    counts : Counter of str
        Records by fate, of what was yielded so far.
    assumed : tuple of str
        What was taken for granted.
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
                "the second copy has no cleaner checkpoint: all of it is assumed to be compared,"
                f" up to {cleaned_until}; copying cleaner-offset-checkpoint along says otherwise",
            )
        self._cleaned_until = cleaned_until
        self.counts: Counter[str] = Counter()

    @property
    def is_explained(self) -> bool:
        """Whether cleaning, retention and appends explain all that was yielded so far."""
        return not any(self.counts[fate] for fate in UNEXPLAINED)

    def __iter__(self) -> Iterator[RecordFate]:
        """Yield a fate for each record of either copy, in offset order."""
        self.counts.clear()
        states = _CommitStates(self._before, self._after)
        winners = self._winners(states)
        for place, other in _paired(self._places(self._before, "comparing"), self._after_places()):
            found = self._fate(place, other, winners, states)
            self.counts[found.fate] += 1
            yield found

    def _winners(self, states: _CommitStates) -> dict[bytes, Order]:
        """Return the highest order of each key below the end of what was cleaned."""
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
        """Yield the committed records of the first copy, and what was appended to the second."""
        for stored, record in self._places(self._before, "reading keys"):
            header = stored.batch.header
            if not header.is_control and states.of_before(header) == COMMITTED:
                yield record
        for stored, record in self._after.records(self._before.log.log_end_offset):
            if states.is_committed_after(stored.batch.header):
                yield record

    def _fate(
        self,
        place: Place | None,
        other: Place | None,
        winners: dict[bytes, Order],
        states: _CommitStates,
    ) -> RecordFate:
        if place is None:
            assert other is not None
            is_new = other.record.offset >= self._before.log.log_end_offset
            return _told(other, "added" if is_new else "foreign")
        record, header = place.record, place.stored.batch.header
        if record.offset < max(self._before.log.log_start_offset, self._after.log.log_start_offset):
            return _told(place, "below_log_start")
        if other is not None:
            return _told(place, "retained" if other.record == record else "changed")
        if header.is_control:
            return _told(place, "control_expired")
        state = states.of_before(header)
        if state == ABORTED:
            return _told(place, "aborted")
        if state != COMMITTED:
            return _told(place, "lost")
        if record.key is None:
            return _told(place, "null_key")
        winner = winners.get(xxhash.xxh3_128_digest(record.key))
        if winner is None or record.offset >= self._cleaned_until:
            return _told(place, "lost")
        if winner > self._order(record):
            return _told(place, "superseded", winner.offset)
        return _told(place, "tombstone_expired" if record.value is None else "lost")

    def _order(self, record: Record) -> Order:
        return self._strategy.order_of(record.offset, record.timestamp, record.headers)

    def _after_places(self) -> Iterator[Place]:
        return self._places(self._after, "")

    def _places(self, view: PartitionView, task: str) -> Iterator[Place]:
        """Yield all records of a copy, those below its log start too."""
        log = view.log
        done, position = 0, -1
        for stored, record in view.records(log.segments.first.base_offset):
            if self._progress is not None and task and stored.position != position:
                self._progress(task, done, log.size_bytes)
                done += stored.size_bytes
                position = stored.position
            yield Place(stored, record)


def _paired(
    before: Iterator[Place], after: Iterator[Place]
) -> Iterator[tuple[Place | None, Place | None]]:
    """Join two streams of records by their offsets."""
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


def _told(place: Place, fate: str, superseded_by: int | None = None) -> RecordFate:
    record = place.record
    if not place.stored.batch.header.is_control:
        return RecordFate(record.offset, record.key, fate, superseded_by, None)
    kind = "other"
    try:
        control_type = decode_control_key(record.key).control_type
        if control_type in (ControlType.ABORT, ControlType.COMMIT):
            kind = control_type.name.lower()
    except InvalidRecordError:
        pass
    return RecordFate(record.offset, None, fate, superseded_by, kind)
