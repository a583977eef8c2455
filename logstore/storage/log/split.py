"""Split a segment with offset overflow: offsets more than 2^31-1 above its base offset.

An index cannot contain such offsets. Brokers before 1.1 could write them (KAFKA-6264). The loader
and the cleaner split such segments when they find them. Source: docs/spec/cleaner.md §9.2.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from logstore.errors import CorruptRecordError, SegmentOverflowError
from logstore.record.walk import check_place
from logstore.runtime.environment import VERIFY
from logstore.storage.segment.segment import LogSegment
from logstore.storage.segment.swap import create_cleaned, remove_cleaned, swap_segments
from logstore.types import INT32_MAX

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.runtime import Runtime
    from logstore.storage.log.recovery import SegmentRecovery
    from logstore.storage.segment.segments import LogSegments
    from logstore.types import AbortedTxn

logger = logging.getLogger(__name__)


def split_segment(
    runtime: Runtime,
    directory: str,
    segments: LogSegments,
    segment: LogSegment,
    config: LogConfig,
    *,
    recovery: SegmentRecovery | None = None,
    before_cut: Callable[[SegmentRecovery], None] | None = None,
    before_rename: Callable[[], None] | None = None,
) -> list[LogSegment]:
    """Replace a segment with offset overflow with several segments.

    Each new segment is named after its first batch and contains as many batches as fit, so the
    first base offset may be above the old one. Batches are copied byte for byte, indexes are built
    as for appends, and the files get the old `.log`'s modification time.

    Parameters
    ----------
    segments : LogSegments
        Segments of the log, which are changed. If the log is in use, the caller must hold its lock.
    segment : LogSegment
        The segment to split.
    recovery : SegmentRecovery, optional
        Result of recovering the segment, to copy only its valid bytes and aborted transactions. By
        default, the whole file and its transaction index are copied.
    before_cut : callable, optional
        Called before the swap if recovery dropped bytes.
    before_rename : callable, optional
        See `swap_segments`.

    Returns
    -------
    list of LogSegment
        The new segments in offset order, open and durable. The old files are renamed to `.deleted`.
        The caller must delete them, and also the producer snapshot of the old base offset if no new
        segment has that base offset.

    Raises
    ------
    SegmentOverflowError
        The offsets overlap the next segment. No file was changed.
    CorruptRecordError, CorruptIndexError, UnsupportedFormatError
        The batches cannot be walked to the end, their offsets do not increase, or the transaction
        index is damaged. No file was changed.
    ValueError
        The segment has no offset overflow.

    Notes
    -----
    Reads headers twice and copies the data once, 1 MiB at a time; fsyncs every new file. After a
    crash, the next load finds the old segment or all new segments. With an overlay, the copies are
    in memory.
    """
    end = segment.size_bytes if recovery is None else recovery.valid_bytes
    aborted = segment.txn_index.entries() if recovery is None else recovery.aborted
    following = segments.higher(segment.base_offset)
    _check_offsets(segment, end, None if following is None else following.base_offset)
    mtime_ms = segment.last_modified_ms
    new: list[LogSegment] = []
    position = base_offset = 0
    try:
        while position < end:
            base_offset = next(segment.batches(position, end)).header.base_offset
            new.append(create_cleaned(runtime, directory, base_offset, config))
            position += new[-1].append_from_file(segment.file, segment.log_path, position, end)
        _hand_over(aborted, new)
        for each in new:
            each.on_become_inactive()
            each.flush()
            each.set_last_modified_ms(mtime_ms)
    except Exception:
        with suppress(OSError):  # the next load or attempt removes the remaining files
            for each in new:
                each.close_handlers()
                remove_cleaned(runtime.fs, directory, each.base_offset)
            remove_cleaned(runtime.fs, directory, base_offset)
        raise
    assert sum(part.size_bytes for part in new) == end, "a split keeps every byte"
    if recovery is not None and before_cut is not None and end < segment.size_bytes:
        before_cut(recovery)
    bases = [part.base_offset for part in new]
    logger.info("%s: split into segments %s", segment.log_path, bases)
    swap_segments(runtime.fs, directory, segments, new, [segment], before_rename=before_rename)
    if VERIFY:
        for each in new:
            each._check()
    return new


def _check_offsets(segment: LogSegment, end: int, bound: int | None) -> None:
    """Check that the batches in the first `end` bytes require a split and permit it.

    Parameters
    ----------
    bound : int or None
        Base offset of the next segment, or None. All offsets must be below it; otherwise a new
        segment could replace an existing one.
    """
    path = segment.log_path
    previous = segment.base_offset - 1
    position = 0
    for at in segment.batches(0, end):
        check_place(at.header, previous, path, at.position)
        previous = at.header.last_offset
        position = at.end_position
    if position != end:
        raise CorruptRecordError(
            f"the last {end - position} bytes are not a complete batch",
            path=path,
            position=position,
            check="torn_batch",
            expected=end,
            found=position,
        )
    if bound is not None and previous >= bound:
        raise SegmentOverflowError(
            f"{path}: offset {previous} is more than 2^31-1 above the segment's base, and not below"
            f" the base {bound} of the next one; the file is not changed"
        )
    if previous - segment.base_offset <= INT32_MAX:
        raise ValueError(f"{path}: offset {previous} fits the segment, which needs no split")


def _hand_over(aborted: Iterable[AbortedTxn], segments: Sequence[LogSegment]) -> None:
    """Add each aborted transaction to the segment that contains its marker, if any."""
    bases = [segment.base_offset for segment in segments]
    for transaction in aborted:
        slot = bisect_right(bases, transaction.last_offset)
        if slot:
            segments[slot - 1].txn_index.append(transaction)
