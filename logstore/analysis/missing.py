"""Offsets that are missing between two segments although no cleaning pass removed them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from logstore.errors import CorruptionError, UnsupportedFormatError
from logstore.record.walk import batch_totals

if TYPE_CHECKING:
    from logstore.storage.log.log import Log
    from logstore.storage.segment.segment import LogSegment


def missing_offsets(log: Log, first_dirty_offset: int | None) -> list[range]:
    """Return the offset ranges between segments that no cleaning pass can have removed.

    A cleaner removes records from whole segments, below the first dirty offset. So a range counts
    only above that offset, and between segments that have no gaps themselves.

    Parameters
    ----------
    first_dirty_offset : int or None
        Entry in the cleaner checkpoint, or None.

    Notes
    -----
    Reads the last batch headers of each segment above the first dirty offset, and all headers of
    the segments adjacent to a range. Damaged segments are skipped.
    """
    return log.reader.steady(lambda: list(_ranges(log, first_dirty_offset or 0)))


def _ranges(log: Log, first_dirty_offset: int) -> Iterator[range]:
    damaged = {each.path for each in log.damages}
    segments = [*log.segments]
    # The segment that contains the first dirty offset was rewritten as a whole.
    above = [each.base_offset for each in segments if each.base_offset >= first_dirty_offset]
    explained_end = min(above, default=first_dirty_offset)
    for segment, following in pairwise(segments):
        if following.base_offset <= explained_end or not segment.size_bytes:
            continue
        neighbours = [each for each in (segment, following) if each.size_bytes]
        if any(each.log_path in damaged for each in neighbours):
            continue
        with suppress(CorruptionError, UnsupportedFormatError):
            end = segment.read_next_offset()
            if end < following.base_offset and all(map(_is_dense, neighbours)):
                yield range(end, following.base_offset)


def _is_dense(segment: LogSegment) -> bool:
    """Return whether a segment has a record at every offset."""
    totals = batch_totals(segment.file, segment.log_path, segment.size_bytes)
    return totals.records == totals.last_offset + 1 - segment.base_offset
