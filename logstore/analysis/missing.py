"""Missing offsets between two segments, where a segment might be missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.errors import CorruptionError, UnsupportedFormatError
from logstore.record.walk import batch_totals
from logstore.storage.loading.lost import lost_ranges, remaining_files

if TYPE_CHECKING:
    from logstore.runtime import FileSystem
    from logstore.storage.log.log import Log
    from logstore.storage.segment.segment import LogSegment


def missing_offsets(log: Log, files: FileSystem, first_dirty_offset: int | None) -> list[range]:
    """Return the offset ranges between two segments where a segment might be missing.

    Parameters
    ----------
    files : FileSystem
        The stored files, because an overlay may have removed the indexes of a lost segment.
    first_dirty_offset : int or None
        Entry in the cleaner checkpoint, or None if there is none.

    Notes
    -----
    Reads the last batch headers of each segment above the first dirty offset, and all headers of
    the segments adjacent to a range. Damaged segments are skipped.
    """
    try:
        witnesses = remaining_files(files, log.directory)
    except FileNotFoundError:
        witnesses = set()  # another process has deleted or moved the partition
    return log.reader.steady(lambda: _ranges(log, first_dirty_offset or 0, witnesses))


def _ranges(log: Log, first_dirty_offset: int, witnesses: set[int]) -> list[range]:
    damaged = {each.path for each in log.damages}
    segments = {each.base_offset: each for each in log.segments}

    def end_of(base: int) -> int | None:
        segment = segments[base]
        if not segment.size_bytes or segment.log_path in damaged:
            return None
        try:
            return segment.read_next_offset()
        except (CorruptionError, UnsupportedFormatError):
            return None

    def is_dense(base: int) -> bool:
        segment = segments[base]
        return segment.log_path not in damaged and _is_dense(segment)

    return list(lost_ranges([*segments], end_of, is_dense, first_dirty_offset, witnesses))


def _is_dense(segment: LogSegment) -> bool:
    """Return whether a segment has a record at each of its offsets, or is empty."""
    if not segment.size_bytes:
        return True
    try:
        totals = batch_totals(segment.file, segment.log_path, segment.size_bytes)
    except (CorruptionError, UnsupportedFormatError):
        return False
    return totals.records == totals.last_offset + 1 - segment.base_offset
