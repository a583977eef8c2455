"""One segment: its `.log` and its indexes in one walk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from logstore.config.overrides import ReadLimits
from logstore.inspect.check.batches import verify_batch
from logstore.inspect.check.findings import ERROR, INFO, WARNING, CheckFinding, finding
from logstore.inspect.check.indexes import (
    OffsetIndexCheck,
    SegmentPlace,
    TimeIndexCheck,
    TxnIndexCheck,
)
from logstore.inspect.check.leader_epochs import LeaderEpochs
from logstore.inspect.check.producers import ProducerHistory
from logstore.names import (
    INDEX_SUFFIX,
    LEADER_EPOCHS,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from logstore.record import layout
from logstore.record.control import EndTxnMarker
from logstore.record.header import BatchHeader
from logstore.record.scan import Fault, ScannedBatch, SegmentScan, Unreadable, misplaced
from logstore.runtime.fs import FileSystem
from logstore.types import AbortedTxn

_PROGRESS_BYTES = 1 << 20


class PartitionContext(NamedTuple):
    """A partition, as the data directory tells of it.

    Attributes
    ----------
    is_clean : bool
        Whether the directory was closed cleanly.
    first_dirty_offset : int or None
        Of the cleaner checkpoint; None if it does not name the partition.
    is_compacted : bool or None
        Whether its topic has the policy compact; None if nobody can tell, as of a folder that was
        copied without the cleaner checkpoint that stood beside it.
    log_start_offset : int
        Of the checkpoint; 0 if that does not name the partition.
    is_log_start_known : bool
        Whether it is that: not where it may have moved on since, nor without a checkpoint, as
        beside a folder that was copied alone.
    is_metadata : bool
        Whether it is the metadata log of a KRaft cluster.
    recovery_point : int or None
        Offset from which on the next opening recovers the log, rebuilding indexes and producers,
        since a crash may have lost what lies there. None if the directory was closed cleanly or a
        process has it for writing, and in a folder that was copied alone.
    """

    is_clean: bool = False
    first_dirty_offset: int | None = None
    is_compacted: bool | None = False
    log_start_offset: int = 0
    is_log_start_known: bool = False
    is_metadata: bool = False
    recovery_point: int | None = None

    def is_recovered(self, following: int | None) -> bool:
        """Return whether opening recovers the segment before the one of that base offset."""
        point = self.recovery_point
        return point is not None and (following is None or following > point)


@dataclass(slots=True)
class CheckCounts:
    """Counts of what was looked at, and how many findings there are by severity and check.

    `progress` is told a path and all bytes read so far.
    """

    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes_read: int = 0
    findings: dict[tuple[str, str], int] = field(default_factory=dict)
    progress: Callable[[str, int], None] | None = None

    def total(self, severity: str) -> int:
        """Return how many findings have a severity."""
        return sum(count for (each, _), count in self.findings.items() if each == severity)

    def restart(self) -> None:
        """Count from nothing again."""
        self.segments = self.batches = self.records = self.bytes_read = 0
        self.findings.clear()

    def advance(self, path: str, size_bytes: int) -> None:
        """Note bytes of a `.log` that were read."""
        self.bytes_read += size_bytes
        if self.progress is not None:
            self.progress(path, self.bytes_read)


@dataclass(slots=True)
class PartitionState:
    """State carried from segment to segment of one partition.

    Attributes
    ----------
    end_offset : int or None
        First offset after what was walked; None before the first segment.
    end_is_known : bool
        Whether no damage hides where the last segment walked ends.
    has_holes : bool
        Whether offsets were missing somewhere, so that sequences may jump.
    gaps_end : int
        Below it a cleaning explains that offsets are missing.
    missing_end : int
        Below it offsets are missing, of whole batches or of records in one: a cleaner may have
        removed what would explain a contradiction.
    """

    fs: FileSystem
    directory: str
    context: PartitionContext
    counts: CheckCounts
    limits: ReadLimits
    history: ProducerHistory = field(default_factory=ProducerHistory)
    end_offset: int | None = None
    end_is_known: bool = True
    has_holes: bool = False
    gaps_end: int = 0
    missing_end: int = 0
    epochs: LeaderEpochs = field(init=False)

    def __post_init__(self) -> None:
        self.epochs = LeaderEpochs(
            f"{self.directory}/{LEADER_EPOCHS}",
            self.context.log_start_offset,
            is_start_known=self.context.is_log_start_known,
        )

    @property
    def may_be_compacted(self) -> bool:
        """Whether a cleaner may have been at work here."""
        return self.is_known_to_be_compacted or self.context.is_compacted is None

    @property
    def is_known_to_be_compacted(self) -> bool:
        """Whether the checkpoint or the topic says that a cleaner is at work here."""
        return self.context.first_dirty_offset is not None or self.context.is_compacted is True

    def explain_gaps(self, bases: Sequence[int]) -> None:
        """Find out up to where a cleaning explains missing offsets; `bases` are the segments'.

        The segment in which a cleaning ended was rewritten as a whole. Without a checkpoint, as
        in a folder that was copied alone, any segment of a compacted topic may have been
        cleaned but the active one.
        """
        first_dirty = self.context.first_dirty_offset
        if first_dirty is not None:
            above = [base for base in bases if base >= first_dirty]
            self.gaps_end = min(above, default=first_dirty)
        elif self.context.is_compacted:
            self.gaps_end = max(bases, default=0)

    def lose_track(self) -> None:
        """Note that there are batches of which nothing is known."""
        self.end_is_known = False
        self.has_holes = True
        self.history.is_complete = False

    def path(self, base_offset: int, suffix: str) -> str:
        """Return the path of a file of a segment, or of a snapshot."""
        return f"{self.directory}/{file_name(base_offset, suffix)}"


class SegmentCheck:
    """The check of one segment.

    Parameters
    ----------
    state : PartitionState
        As the segments before left it.
    name : str
        Of the `.log`.
    base_offset, following : int, int or None
        Its base, and that of the next segment.
    snapshots : list of int
        Offsets of the snapshots to judge on the way, rising.
    judge_snapshot : callable
        Yields what is wrong with one of them; called when the walk has reached its offset.
    """

    def __init__(
        self,
        state: PartitionState,
        name: str,
        base_offset: int,
        following: int | None,
        snapshots: list[int],
        judge_snapshot: Callable[[int], Iterator[CheckFinding]],
    ) -> None:
        self._state = state
        self._path = f"{state.directory}/{name}"
        self._base_offset = base_offset
        self._following = following
        self._snapshots = snapshots
        self._judge_snapshot = judge_snapshot
        self._is_open = following is None and not state.context.is_clean
        self._is_recovered = state.context.is_recovered(following)
        self._is_certain = True
        self._has_old = False
        self._unread = 0
        self._index: OffsetIndexCheck | None = None
        self._time_index: TimeIndexCheck | None = None
        self._txn_index = TxnIndexCheck(state.path(base_offset, TXN_INDEX_SUFFIX))

    def run(self) -> Iterator[CheckFinding]:
        """Yield everything that is wrong with the segment."""
        state = self._state
        state.counts.segments += 1
        yield from self._missing_indexes()
        yield from self._gap(self._base_offset, 0)
        # Damage in a segment says nothing of the next one.
        state.end_is_known = True
        file = state.fs.open(self._path)
        try:
            scan = SegmentScan(file, self._path, self._base_offset, state.limits.batch_bytes)
            place = SegmentPlace(
                self._base_offset,
                scan.size,
                self._following,
                may_be_padded=self._is_open,
            )
            self._open_indexes(place)
            yield from self._walk(scan)
            yield from self._finish(scan, place)
        finally:
            file.close()
            for index in (self._index, self._time_index):
                if index is not None:
                    index.close()

    # -- indexes -----------------------------------------------------------------------------

    def _missing_indexes(self) -> Iterator[CheckFinding]:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = self._state.path(self._base_offset, suffix)
            if not self._state.fs.exists(path):
                # The active segment gets its indexes when something needs them.
                is_made = self._following is None or self._is_recovered
                severity = INFO if is_made else WARNING
                yield finding("missing_index", path, offset=self._base_offset, severity=severity)

    def _open_indexes(self, place: SegmentPlace) -> None:
        fs = self._state.fs
        path = self._state.path(self._base_offset, INDEX_SUFFIX)
        if fs.exists(path):
            self._index = OffsetIndexCheck(fs, path, place)
        path = self._state.path(self._base_offset, TIME_INDEX_SUFFIX)
        if fs.exists(path):
            self._time_index = TimeIndexCheck(fs, path, place)

    def _taken(self) -> Iterator[CheckFinding]:
        for index in (self._index, self._time_index):
            if index is not None and index.found:
                yield from map(self._of_index, index.take())

    def _of_index(self, found: CheckFinding) -> CheckFinding:
        """Return a finding in an index; recovery builds the indexes of its segments anew."""
        return found._replace(severity=INFO) if self._is_recovered else found

    # -- the walk ----------------------------------------------------------------------------

    def _walk(self, scan: SegmentScan) -> Iterator[CheckFinding]:
        state = self._state
        for each, following in scan.pairs():
            if isinstance(each, Fault):
                yield self._told(each)
            elif isinstance(each, Unreadable):
                self._lose_track()
                for index in (self._index, self._time_index):
                    if index is not None:
                        index.skip(each.position, each.end_position)
            else:
                state.counts.batches += 1
                if each.magic != layout.MAGIC and not self._has_old:
                    self._has_old = True
                    yield self._old_format(each)
                yield from self._batch(each, following)
                self._unread += each.end_position - each.position
                if self._unread >= _PROGRESS_BYTES:
                    state.counts.advance(self._path, self._unread)
                    self._unread = 0
            yield from self._taken()
        state.counts.advance(self._path, self._unread)
        if not scan.end_is_known:
            state.end_is_known = False

    def _old_format(self, scanned: ScannedBatch) -> CheckFinding:
        """Return the finding of the first message of magic 0 or 1: read, and never written."""
        return finding(
            "unsupported_format",
            self._path,
            scanned.position,
            offset=scanned.header.base_offset,
            expected=layout.MAGIC,
            found=scanned.magic,
            severity=INFO,
        )

    def _told(self, fault: Fault) -> CheckFinding:
        """Return the finding of a fault; a crash leaves some where the log was not flushed."""
        is_excused = fault.is_last and self._is_open
        end, point = self._state.end_offset, self._state.context.recovery_point
        is_excused |= end is not None and point is not None and end >= point
        is_excused &= fault.check != "segment_size"
        return finding(
            fault.check,
            self._path,
            fault.position,
            offset=fault.offset,
            expected=fault.expected,
            found=fault.found,
            severity=WARNING if is_excused else ERROR,
        )

    def _lose_track(self) -> None:
        self._is_certain = False
        self._state.lose_track()

    def _batch(
        self, scanned: ScannedBatch, following: ScannedBatch | None
    ) -> Iterator[CheckFinding]:
        state = self._state
        header, batch = scanned.header, scanned.batch
        if batch is not None and (fault := self._misplaced(scanned, following)):
            yield fault
            batch = None
            scanned = scanned._replace(batch=None)
        if self._index is not None:
            self._index.batch(scanned)
        if self._time_index is not None:
            self._time_index.batch(scanned)
        if batch is None:
            self._lose_track()  # what is wrong in it was told by now
            return
        while self._snapshots and header.base_offset >= self._snapshots[0]:
            yield from self._judge_snapshot(self._snapshots.pop(0))
        yield from self._gap(header.base_offset, scanned.position)
        state.end_offset = header.next_offset
        if header.record_count <= header.last_offset_delta:
            state.missing_end = header.next_offset
        after = None if following is None else following.header
        yield from state.epochs.batch(header, after, self._path, scanned.position)
        state.counts.records += header.possible_record_count
        marker: EndTxnMarker | None = None
        is_sound = True
        is_metadata = state.context.is_metadata
        for row in verify_batch(batch, state.limits.batch_bytes, is_metadata=is_metadata):
            if isinstance(row, CheckFinding):
                is_sound = False
                yield row
            else:
                marker = row
        if header.is_control and marker is None and not is_sound:
            # It may have ended a transaction.
            self._is_certain = state.history.is_complete = False
        if header.has_producer_id:
            yield from self._producer(header, marker, scanned.position)
        state.end_is_known = True

    def _misplaced(
        self, scanned: ScannedBatch, following: ScannedBatch | None
    ) -> CheckFinding | None:
        """Judge a batch's offsets; see `logstore.record.scan.misplaced`."""
        header, after = scanned.header, None if following is None else following.header.base_offset
        wrong = misplaced(header, self._base_offset, self._state.end_offset, after, self._following)
        if wrong is None:
            return None
        check, expected, found = wrong
        return finding(
            check,
            self._path,
            scanned.position,
            offset=header.base_offset,
            expected=expected,
            found=found,
        )

    def _gap(self, base_offset: int, position: int) -> Iterator[CheckFinding]:
        """Judge that the next batch or segment begins where the last one ended."""
        state = self._state
        end = state.end_offset
        state.end_offset = base_offset if end is None else max(end, base_offset)
        if end is None:
            if state.is_known_to_be_compacted:
                state.missing_end = base_offset  # what lay below may have been cleaned away first
            return
        if base_offset <= end:
            return
        state.has_holes = True
        state.missing_end = base_offset
        if max(end, state.gaps_end) < base_offset and state.end_is_known:
            # A cut-short pass leaves gaps that no checkpoint explains, and followers keep those
            # of the leader's cleaner; elsewhere something was lost.
            severity = INFO if state.may_be_compacted else WARNING
            yield finding(
                "offset_gap",
                self._path,
                position,
                offset=base_offset,
                expected=end,
                found=base_offset,
                severity=severity,
            )

    def _producer(
        self, header: BatchHeader, marker: EndTxnMarker | None, position: int
    ) -> Iterator[CheckFinding]:
        state = self._state
        if not header.is_control:
            yield from state.history.data(
                header, self._path, position, gaps_explained=state.has_holes
            )
            return
        if marker is None:
            return
        if marker.is_abort:
            self._txn_index.abort(header.producer_id, header.last_offset)
        for row in state.history.marker(header, marker, self._path, position):
            if isinstance(row, AbortedTxn):
                self._txn_index.expect(row)
            else:
                yield row

    # -- the end -----------------------------------------------------------------------------

    def _finish(self, scan: SegmentScan, place: SegmentPlace) -> Iterator[CheckFinding]:
        state = self._state
        end_offset = self._base_offset if state.end_offset is None else state.end_offset
        is_known = state.end_is_known
        if self._index is not None:
            self._index.finish(scan.end_position, end_offset, end_is_known=is_known)
        if self._time_index is not None:
            self._time_index.finish(end_offset, end_is_known=is_known, is_closed=not self._is_open)
        yield from self._taken()
        # Of a compacted log that starts who knows where a cleaner may have dropped the entry.
        start_is_known = state.context.is_log_start_known or not state.may_be_compacted
        of_txn_index = self._txn_index.finish(
            state.fs,
            place,
            missing_end=state.missing_end,
            log_start_offset=state.context.log_start_offset,
            missing_severity=ERROR if start_is_known else WARNING,
            is_certain=self._is_certain,
            is_complete=state.history.is_complete,
        )
        yield from map(self._of_index, of_txn_index)
