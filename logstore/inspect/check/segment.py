"""Check of a segment, reading its `.log` and its indexes in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from logstore.config.overrides import ReadLimits
from logstore.inspect.check.batches import verify_batch
from logstore.inspect.check.findings import ERROR, INFO, WARNING, CheckFinding, finding
from logstore.inspect.check.indexes import (
    IndexedSegment,
    OffsetIndexCheck,
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
    """Properties of a partition from its data directory.

    Attributes
    ----------
    is_clean : bool
        Whether the directory was closed cleanly.
    first_dirty_offset : int or None
        The entry of the cleaner checkpoint, or None if there is none.
    is_compacted : bool or None
        Whether the topic's policy includes compact. None if unknown, as for a partition directory
        copied without its cleaner checkpoint.
    log_start_offset : int
        The entry of the log start checkpoint, or 0 if there is none.
    is_log_start_known : bool
        Whether `log_start_offset` is exact, because the checkpoint exists and is up to date.
    is_metadata : bool
        Whether the partition is the metadata log of a KRaft cluster.
    recovery_point : int or None
        Offset from which the next opening recovers the log, rebuilding indexes and producers,
        because a crash may have lost data there. None if the directory was closed cleanly, is open
        for writing, or was copied alone.
    """

    is_clean: bool = False
    first_dirty_offset: int | None = None
    is_compacted: bool | None = False
    log_start_offset: int = 0
    is_log_start_known: bool = False
    is_metadata: bool = False
    recovery_point: int | None = None

    def is_recovered(self, following: int | None) -> bool:
        """Return whether opening recovers the segment that ends at the base offset `following`."""
        point = self.recovery_point
        return point is not None and (following is None or following > point)


@dataclass(slots=True)
class CheckCounts:
    """Number of checked items, and of findings by severity and check.

    `progress` is called with a path and the total number of bytes read so far.
    """

    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes_read: int = 0
    findings: dict[tuple[str, str], int] = field(default_factory=dict)
    progress: Callable[[str, int], None] | None = None

    def total(self, severity: str) -> int:
        """Return the number of findings with a severity."""
        return sum(count for (each, _), count in self.findings.items() if each == severity)

    def restart(self) -> None:
        """Reset all counts."""
        self.segments = self.batches = self.records = self.bytes_read = 0
        self.findings.clear()

    def advance(self, path: str, size_bytes: int) -> None:
        """Count bytes read from a `.log`."""
        self.bytes_read += size_bytes
        if self.progress is not None:
            self.progress(path, self.bytes_read)


@dataclass(slots=True)
class PartitionState:
    """The state of a partition check, carried from segment to segment.

    Attributes
    ----------
    end_offset : int or None
        Offset after the batches read so far, or None before the first segment.
    end_is_known : bool
        Whether the end of the last segment is known, that is, not hidden by damage.
    has_holes : bool
        Whether offsets are missing anywhere, so that sequences may have gaps.
    gaps_end : int
        Missing offsets below this offset are explained by cleaning.
    missing_end : int
        Batches or records are missing below this offset. The cleaner may have removed records that
        would explain a contradiction.
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
        """Whether the log may have been cleaned."""
        return self.is_known_to_be_compacted or self.context.is_compacted is None

    @property
    def is_known_to_be_compacted(self) -> bool:
        """Whether the checkpoint or the topic shows that the log is compacted."""
        return self.context.first_dirty_offset is not None or self.context.is_compacted is True

    def explain_gaps(self, bases: Sequence[int]) -> None:
        """Set `gaps_end`. `bases` contains the base offsets of the segments.

        The segment in which a cleaning pass ended was rewritten completely. Without a checkpoint,
        as in a partition directory copied alone, every segment of a compacted topic except the
        active one may have been cleaned.
        """
        first_dirty = self.context.first_dirty_offset
        if first_dirty is not None:
            above = [base for base in bases if base >= first_dirty]
            self.gaps_end = min(above, default=first_dirty)
        elif self.context.is_compacted:
            self.gaps_end = max(bases, default=0)

    def mark_unreadable(self) -> None:
        """Record that batches could not be read."""
        self.end_is_known = False
        self.has_holes = True
        self.history.is_complete = False

    def path(self, base_offset: int, suffix: str) -> str:
        """Return the path of a segment file or a snapshot."""
        return f"{self.directory}/{file_name(base_offset, suffix)}"


class SegmentCheck:
    """Checks a segment.

    Parameters
    ----------
    state : PartitionState
        State after the previous segments.
    name : str
        File name of the `.log`.
    base_offset, following : int, int or None
        Base offsets of this segment and the next one.
    snapshots : list of int
        Offsets of the snapshots to check, ascending.
    check_snapshot : callable
        Yields the findings of a snapshot. Called when the check reaches its offset.
    """

    def __init__(
        self,
        state: PartitionState,
        name: str,
        base_offset: int,
        following: int | None,
        snapshots: list[int],
        check_snapshot: Callable[[int], Iterator[CheckFinding]],
    ) -> None:
        self._state = state
        self._path = f"{state.directory}/{name}"
        self._base_offset = base_offset
        self._following = following
        self._snapshots = snapshots
        self._check_snapshot = check_snapshot
        self._is_open = following is None and not state.context.is_clean
        self._is_recovered = state.context.is_recovered(following)
        self._is_certain = True
        self._has_old = False
        self._unread = 0
        self._index: OffsetIndexCheck | None = None
        self._time_index: TimeIndexCheck | None = None
        self._txn_index = TxnIndexCheck(state.path(base_offset, TXN_INDEX_SUFFIX))

    def run(self) -> Iterator[CheckFinding]:
        """Yield the findings of the segment."""
        state = self._state
        state.counts.segments += 1
        yield from self._missing_indexes()
        yield from self._gap(self._base_offset, 0)
        # Damage in one segment does not affect the next one.
        state.end_is_known = True
        file = state.fs.open(self._path)
        try:
            scan = SegmentScan(file, self._path, self._base_offset, state.limits.batch_bytes)
            segment = IndexedSegment(
                self._base_offset,
                scan.size,
                self._following,
                may_be_padded=self._is_open,
            )
            self._open_indexes(segment)
            yield from self._walk(scan)
            yield from self._finish(scan, segment)
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
                # Indexes of the active segment are not created before their first use.
                is_made = self._following is None or self._is_recovered
                severity = INFO if is_made else WARNING
                yield finding("missing_index", path, offset=self._base_offset, severity=severity)

    def _open_indexes(self, segment: IndexedSegment) -> None:
        fs = self._state.fs
        path = self._state.path(self._base_offset, INDEX_SUFFIX)
        if fs.exists(path):
            self._index = OffsetIndexCheck(fs, path, segment)
        path = self._state.path(self._base_offset, TIME_INDEX_SUFFIX)
        if fs.exists(path):
            self._time_index = TimeIndexCheck(fs, path, segment)

    def _index_findings(self) -> Iterator[CheckFinding]:
        for index in (self._index, self._time_index):
            if index is not None and index.findings:
                yield from map(self._adjust_severity, index.take())

    def _adjust_severity(self, row: CheckFinding) -> CheckFinding:
        """Lower the severity of an index finding if recovery rebuilds the index."""
        return row._replace(severity=INFO) if self._is_recovered else row

    # -- the walk ----------------------------------------------------------------------------

    def _walk(self, scan: SegmentScan) -> Iterator[CheckFinding]:
        state = self._state
        for each, following in scan.pairs():
            if isinstance(each, Fault):
                yield self._fault_finding(each)
            elif isinstance(each, Unreadable):
                self._mark_unreadable()
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
            yield from self._index_findings()
        state.counts.advance(self._path, self._unread)
        if not scan.end_is_known:
            state.end_is_known = False

    def _old_format(self, scanned: ScannedBatch) -> CheckFinding:
        """Return the finding for the first magic 0 or 1 message, which can only be read."""
        return finding(
            "unsupported_format",
            self._path,
            scanned.position,
            offset=scanned.header.base_offset,
            expected=layout.MAGIC,
            found=scanned.magic,
            severity=INFO,
        )

    def _fault_finding(self, fault: Fault) -> CheckFinding:
        """Return the finding of a fault, as a warning if a crash may have caused the fault."""
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

    def _mark_unreadable(self) -> None:
        self._is_certain = False
        self._state.mark_unreadable()

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
            self._mark_unreadable()  # already reported
            return
        while self._snapshots and header.base_offset >= self._snapshots[0]:
            yield from self._check_snapshot(self._snapshots.pop(0))
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
            # The batch may have ended a transaction.
            self._is_certain = state.history.is_complete = False
        if header.has_producer_id:
            yield from self._producer(header, marker, scanned.position)
        state.end_is_known = True

    def _misplaced(
        self, scanned: ScannedBatch, following: ScannedBatch | None
    ) -> CheckFinding | None:
        """Check a batch's offsets; see `logstore.record.scan.misplaced`."""
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
        """Check that the next batch or segment starts where the previous one ended."""
        state = self._state
        end = state.end_offset
        state.end_offset = base_offset if end is None else max(end, base_offset)
        if end is None:
            if state.is_known_to_be_compacted:
                state.missing_end = base_offset  # the cleaner may have removed earlier batches
            return
        if base_offset <= end:
            return
        state.has_holes = True
        state.missing_end = base_offset
        if max(end, state.gaps_end) < base_offset and state.end_is_known:
            # An interrupted pass leaves gaps that no checkpoint explains, and followers replicate
            # the gaps of their leader's cleaner. Any other gap means lost data.
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

    def _finish(self, scan: SegmentScan, segment: IndexedSegment) -> Iterator[CheckFinding]:
        state = self._state
        end_offset = self._base_offset if state.end_offset is None else state.end_offset
        is_known = state.end_is_known
        if self._index is not None:
            self._index.finish(scan.end_position, end_offset, end_is_known=is_known)
        if self._time_index is not None:
            self._time_index.finish(end_offset, end_is_known=is_known, is_closed=not self._is_open)
        yield from self._index_findings()
        # If the log start is unknown, the cleaner may have dropped the entry.
        start_is_known = state.context.is_log_start_known or not state.may_be_compacted
        of_txn_index = self._txn_index.finish(
            state.fs,
            segment,
            missing_end=state.missing_end,
            log_start_offset=state.context.log_start_offset,
            missing_severity=ERROR if start_is_known else WARNING,
            is_certain=self._is_certain,
            is_complete=state.history.is_complete,
        )
        yield from map(self._adjust_severity, of_txn_index)
