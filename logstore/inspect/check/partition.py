"""Check of a partition directory: its segments in order, and its other files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from logstore.config.overrides import ReadLimits
from logstore.errors import CorruptCheckpointError, CorruptRecordError, UnsupportedFormatError
from logstore.inspect.check.findings import ERROR, INFO, WARNING, CheckFinding, finding, unreadable
from logstore.inspect.check.segment import (
    CheckCounts,
    PartitionContext,
    PartitionState,
    SegmentCheck,
)
from logstore.inspect.check.small_files import SnapshotRow, read_snapshot
from logstore.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCHS,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    file_name,
    parse_segment_file,
)
from logstore.runtime import FileSystem, OverlayFileSystem
from logstore.storage.checkpoint.atomic import TMP_SUFFIX, UNREADABLE
from logstore.storage.checkpoint.topic_id import PARTITION_METADATA, read_partition_metadata
from logstore.storage.loading.leftovers import PartitionFiles, finish_swaps, remove_leftovers
from logstore.storage.loading.lost import has_entries, lost_ranges, remaining_files
from logstore.storage.loading.surveyed import find_superseded, leftover_text
from logstore.types import INT64_MAX

LEFTOVER_CHECKS = {
    CLEANED_SUFFIX: "leftover_cleaned",
    SWAP_SUFFIX: "leftover_swap",
    DELETED_SUFFIX: "leftover_deleted",
}
"""Checks that report files which the next opening removes or swaps in (severity `info`)."""


class _PlannedFiles(PartitionFiles):
    """Partition files whose changes stay in memory and are therefore not logged."""

    def note(self, action: str, path: str, detail: str) -> None:
        """Log nothing."""


class PartitionBounds(NamedTuple):
    """Bounds of a partition, as found by reading it.

    Attributes
    ----------
    first_base_offset, end_offset : int or None
        First base offset and end of the log. The end is None if damage hides it. If there are no
        segments, the first base offset is None, and the end is the log start, where the next
        opening creates a segment.
    topic_id : bytes or None
    """

    first_base_offset: int | None
    end_offset: int | None
    topic_id: bytes | None


class _SegmentEnd(NamedTuple):
    """A segment's end offset (None if unknown), and whether it has a record at each offset."""

    end_offset: int | None
    is_dense: bool


@dataclass(slots=True)
class _Listing:
    """The files of a partition by kind. `pending` files will be swapped in or deleted."""

    logs: dict[int, str] = field(default_factory=dict)
    indexes: dict[int, dict[str, str]] = field(default_factory=dict)
    snapshots: list[int] = field(default_factory=list)
    pending: set[str] = field(default_factory=set)


class PartitionCheck:
    """Checks a partition directory.

    Parameters
    ----------
    fs : FileSystem
        Only read.
    directory : str
    context : PartitionContext
    counts : CheckCounts
        Incremented during the check.
    limits : ReadLimits
        Limits above which files and batches are not read but reported as findings.
    only_base_offset : int, optional
        Only check this segment, and no small files.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        context: PartitionContext,
        counts: CheckCounts,
        limits: ReadLimits,
        only_base_offset: int | None = None,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._only = only_base_offset
        self._listing = _Listing()
        self._state = PartitionState(fs, directory, context, counts, limits)
        self._topic_id: bytes | None = None
        self._has_ended = False
        self._swapped: set[str] = set()
        self._ends: dict[int, _SegmentEnd] = {}

    @property
    def bounds(self) -> PartitionBounds:
        """Bounds of the partition. Only valid after `run` has ended."""
        state = self._state
        end = state.end_offset if self._listing.logs else state.context.log_start_offset
        if not (state.end_is_known and self._has_ended):
            end = None
        return PartitionBounds(min(self._listing.logs, default=None), end, self._topic_id)

    def run(self) -> Iterator[CheckFinding]:
        """Yield all findings."""
        for row in self._run():
            is_swapped = row.path in self._swapped
            yield row._replace(path=f"{row.path}{SWAP_SUFFIX}") if is_swapped else row

    def _run(self) -> Iterator[CheckFinding]:
        names = list(self._list())
        if self._only is None:
            names.extend(self._finish_swaps())
        epochs = list(self._state.epochs.read(self._fs, self._state.limits.small_file_bytes))
        logs = self._listing.logs
        self._state.explain_gaps(sorted(logs))
        self._begin_history(min(logs, default=0) if self._only is None else self._only)
        if self._only is not None:
            following = min((base for base in logs if base > self._only), default=None)
            yield from self._segment(self._only, following, [])
            return
        yield from names
        yield from self._leftover_segments()
        yield from self._missing_logs()
        yield from self._metadata()
        yield from epochs
        snapshots = sorted(self._listing.snapshots)
        for base, following in pairwise([*sorted(logs), None]):
            assert base is not None
            due = [offset for offset in snapshots if following is None or offset < following]
            snapshots = snapshots[len(due) :]
            yield from self._segment(base, following, due)
        for offset in snapshots:
            yield from self._check_snapshot(offset)
        yield from self._lost_ranges()
        self._has_ended = True
        yield from self._beyond_end()

    # -- names -------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _list(self) -> Iterator[CheckFinding]:
        for name in self._fs.list_dir(self._directory):
            if name in (LEADER_EPOCHS, PARTITION_METADATA):
                continue
            path = self._path(name)
            parsed = parse_segment_file(name)
            if name.endswith(TMP_SUFFIX):
                yield finding("leftover_tmp", path, severity=INFO)
            elif parsed is None or (parsed.state and parsed.state not in LEFTOVER_CHECKS):
                yield finding("foreign_file", path, severity=INFO)
            elif parsed.state:
                self._listing.pending.add(name)
                check = LEFTOVER_CHECKS[parsed.state]
                yield finding(check, path, offset=parsed.base_offset, severity=INFO)
            else:
                yield from self._register(name, parsed.base_offset, parsed.kind)

    def _finish_swaps(self) -> Iterator[CheckFinding]:
        """Finish interrupted swaps in memory, so that the directory is seen as by the next opening.

        After an interrupted swap, a segment may have its `.log` but not its indexes.
        """
        if not any(name.endswith(SWAP_SUFFIX) for name in self._listing.pending):
            return
        overlay = OverlayFileSystem(self._fs)
        files = _PlannedFiles(overlay, self._directory)
        try:
            remove_leftovers(files)
            complete = [path for path, _ in files.listed(state=SWAP_SUFFIX)]
            finish_swaps(files)
        except (CorruptRecordError, UnsupportedFormatError) as error:
            path = error.path or self._directory
            yield finding("leftover_swap", path, error.position, found=str(error.args[0]))
            return
        self._fs = self._state.fs = overlay
        self._listing = _Listing()
        for _ in self._list():
            pass  # reported under the original file names
        self._swapped = {path.removesuffix(SWAP_SUFFIX) for path in complete}

    def _register(self, name: str, base_offset: int, kind: str) -> Iterator[CheckFinding]:
        path = self._path(name)
        if base_offset > INT64_MAX:
            yield finding("file_name", path, expected="an offset of 63 bits", found=name)
            return
        proper = file_name(base_offset, kind)
        if name != proper:
            yield finding("file_name", path, offset=base_offset, expected=proper, found=name)
        if kind == LOG_SUFFIX:
            other = self._listing.logs.setdefault(base_offset, name)
            if other != name:
                # Check the file that the engine would find by its name.
                if name == proper:
                    self._listing.logs[base_offset] = name
                    name, other = other, name
                path = self._path(name)
                yield finding("duplicate_base", path, offset=base_offset, found=other)
        elif name == proper:
            if kind == SNAPSHOT_SUFFIX:
                self._listing.snapshots.append(base_offset)
            else:
                self._listing.indexes.setdefault(base_offset, {})[kind] = name

    def _leftover_segments(self) -> Iterator[CheckFinding]:
        """Skip segments whose records a finished swap moved to another segment.

        A copy taken while the cleaner was running can contain both. Commands that write remove such
        segments.
        """
        paths = {base: self._path(name) for base, name in self._listing.logs.items()}
        try:
            superseded = find_superseded(self._fs, paths, self._state.limits.batch_bytes)
        except OSError:
            return  # reported when the segment is checked
        for base, leftover in superseded.items():
            if leftover.is_whole:
                text = leftover_text(leftover.path, leftover.first_offset)
                yield finding(
                    "leftover_segment", paths[base], offset=base, found=text, severity=WARNING
                )
                del self._listing.logs[base]
                self._listing.indexes.pop(base, None)
                self._listing.snapshots = [at for at in self._listing.snapshots if at != base]

    def _missing_logs(self) -> Iterator[CheckFinding]:
        for base_offset, files in sorted(self._listing.indexes.items()):
            if base_offset in self._listing.logs:
                continue
            is_filled = False
            orphans = []
            for name in files.values():
                path = self._path(name)
                try:
                    is_filled = has_entries(self._fs, path) or is_filled
                except OSError as error:
                    yield unreadable(path, error)
                    continue
                orphans.append(finding("orphan_index", path, offset=base_offset, severity=INFO))
            log_name = file_name(base_offset, LOG_SUFFIX)
            # The `.log` is deleted first; its indexes are deleted after that or at the next
            # opening.
            is_going = f"{log_name}{DELETED_SUFFIX}" in self._listing.pending
            if is_filled and not is_going:
                path = self._path(log_name)
                severity = WARNING if self._is_above_recovery_point(base_offset) else ERROR
                yield finding("missing_log", path, offset=base_offset, severity=severity)
            else:
                yield from orphans

    def _lost_ranges(self) -> Iterator[CheckFinding]:
        """Find offset ranges of a compacted log in which a segment might be missing.

        Without compaction, every gap is reported as a separate finding.
        """
        context = self._state.context
        if not self._state.may_be_compacted:
            return
        ends = self._ends
        for lost in lost_ranges(
            [*ends],
            lambda base: ends[base].end_offset,
            lambda base: ends[base].is_dense,
            context.first_dirty_offset or 0,
            remaining_files(self._fs, self._directory),
        ):
            yield finding(
                "lost_segment",
                self._path(self._listing.logs[lost.stop]),
                0,
                offset=lost.stop,
                expected=lost.start,
                found=lost.stop,
                severity=WARNING,
            )

    # -- small files -------------------------------------------------------------------------

    def _metadata(self) -> Iterator[CheckFinding]:
        path = self._path(PARTITION_METADATA)
        try:
            self._topic_id = read_partition_metadata(
                self._fs, self._directory, self._state.limits.small_file_bytes
            )
        except CorruptCheckpointError as error:
            if error.check == UNREADABLE:
                yield unreadable(path, error)
                return
            yield finding("partition_metadata", path, found=error.found or error.message)
        except OSError as error:
            yield unreadable(path, error)

    def _beyond_end(self) -> Iterator[CheckFinding]:
        """Check that epochs and snapshots are not beyond the end of the log."""
        state = self._state
        end = self.bounds.end_offset
        if end is not None and not self._listing.logs:
            yield from self._lost_segments(end)
            return
        is_clean = state.context.is_clean
        yield from state.epochs.finish(end, is_clean=is_clean)
        if end is None:
            return
        for offset in self._listing.snapshots:
            if offset > end:
                path = state.path(offset, SNAPSHOT_SUFFIX)
                yield finding(
                    "snapshot_offset",
                    path,
                    offset=offset,
                    expected=end,
                    found=offset,
                    severity=ERROR if is_clean else WARNING,
                )

    def _lost_segments(self, start: int) -> Iterator[CheckFinding]:
        """Check a directory without segments for evidence of former segments.

        Snapshots and epochs above the log start are such evidence. A new partition has neither.
        """
        reached = max([start, *self._listing.snapshots, *self._state.epochs.start_offsets])
        if reached > start:
            is_excused = self._is_above_recovery_point(reached - 1)
            yield finding(
                "missing_log",
                self._directory,
                offset=reached,
                expected=f"segments up to offset {reached}",
                found="no .log file",
                severity=WARNING if is_excused else ERROR,
            )

    # -- producers ---------------------------------------------------------------------------

    def _begin_history(self, first_base_offset: int) -> None:
        """Load the producers from the snapshot at the first base offset, if it exists."""
        if first_base_offset == 0:
            return
        history = self._state.history
        history.is_complete = False
        if first_base_offset in self._listing.snapshots:
            path = self._state.path(first_base_offset, SNAPSHOT_SUFFIX)
            rows = list(
                read_snapshot(
                    self._fs, path, first_base_offset, self._state.limits.small_file_bytes
                )
            )
            history.start_from(row.entry for row in rows if isinstance(row, SnapshotRow))
            history.is_complete = not any(isinstance(row, CheckFinding) for row in rows)

    def _check_snapshot(self, offset: int) -> Iterator[CheckFinding]:
        """Check the snapshot at the offset that the producer history has reached."""
        state = self._state
        path = state.path(offset, SNAPSHOT_SUFFIX)
        for row in read_snapshot(self._fs, path, offset, state.limits.small_file_bytes):
            if isinstance(row, CheckFinding):
                yield self._adjust_severity(row)
                continue
            # Producers before the first remaining batch are unknown.
            if not state.end_is_known or offset < min(self._listing.logs, default=offset):
                continue
            entry, start = row.entry, state.context.log_start_offset
            reached = state.end_offset is not None and state.end_offset >= offset
            missing_end = state.missing_end if reached else offset
            for name, expected, found in state.history.contradictions(entry, missing_end, start):
                yield finding(
                    "snapshot_state",
                    path,
                    row.position,
                    offset=offset,
                    expected=f"producer {entry.producer_id} {name} {expected}",
                    found=found,
                )

    def _adjust_severity(self, row: CheckFinding) -> CheckFinding:
        """Lower the severity for a snapshot that a crash may have damaged before it was flushed.

        Opening removes such a snapshot and rebuilds the producers from an older one.
        """
        is_rebuilt = row.offset is not None and self._is_above_recovery_point(row.offset)
        return row._replace(severity=INFO) if is_rebuilt else row

    def _is_above_recovery_point(self, offset: int) -> bool:
        """Return whether a crash may have lost data at or above an offset."""
        point = self._state.context.recovery_point
        return point is not None and offset >= point

    def _segment(
        self, base_offset: int, following: int | None, snapshots: list[int]
    ) -> Iterator[CheckFinding]:
        name = self._listing.logs[base_offset]
        counts = self._state.counts
        batches, records = counts.batches, counts.records
        check = SegmentCheck(
            self._state, name, base_offset, following, snapshots, self._check_snapshot
        )
        try:
            yield from check.run()
        except OSError as error:
            self._state.mark_unreadable()
            yield unreadable(self._path(name), error)
        end = self._state.end_offset if self._state.end_is_known else None
        is_dense = end is not None and counts.records - records == end - base_offset
        is_empty = counts.batches == batches
        self._ends[base_offset] = _SegmentEnd(None if is_empty else end, is_dense)
        # Snapshots at the end of the segment.
        for offset in snapshots:
            yield from self._check_snapshot(offset)
