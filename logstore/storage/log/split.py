"""Splitting a segment whose offsets go beyond the 2^31-1 above its base that an index can hold.

Brokers before 1.1 could write such segments (KAFKA-6264). The loader splits those that it finds,
the cleaner those that it meets. Source: docs/spec/cleaner.md §9.2.
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
    """Put several segments in the place of one whose offsets do not fit it.

    Each new segment is named by the first batch that goes there, and takes as many as fit; the
    first one's base may therefore lie above that of the old segment. Batches are copied byte for
    byte, indexes built as appends build them, and the files dated as the old `.log`.

    Parameters
    ----------
    segments : LogSegments
        Of the log; changed in place, under its lock if it is in use.
    segment : LogSegment
        One of them, to be split.
    recovery : SegmentRecovery, optional
        What recovering the segment found: only its valid bytes are taken, and its aborted
        transactions. By default the whole file is, with the transactions of its own index.
    before_cut : callable, optional
        Called before the swap if the recovery leaves bytes behind.
    before_rename : callable, optional
        See `swap_segments`.

    Returns
    -------
    list of LogSegment
        The new segments, lowest base first, open and durable. The old one's files are named
        `.deleted`; the caller removes them, and its producer snapshot if no new segment has its
        base.

    Raises
    ------
    SegmentOverflowError
        The offsets reach into the next segment. No file was changed.
    CorruptRecordError, CorruptIndexError, UnsupportedFormatError
        The batches cannot be walked to the end, their offsets do not rise, or the transaction
        index is damaged. No file was changed.
    ValueError
        All offsets fit the segment.

    Notes
    -----
    Reads headers twice and copies the data once, 1 MiB at a time; syncs every new file. A crash
    leaves the old segment or all new ones to the next load. Over an overlay the copies are held in
    memory.
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
        with suppress(OSError):  # what stays, the next load or attempt removes
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
    """Assert that the offsets of the batches in the first `end` bytes call for a split.

    Parameters
    ----------
    bound : int or None
        Base of the next segment, below which they must stay: else a new segment could take the
        place of another one.
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
            f"the last {end - position} bytes are no whole batch",
            path=path,
            position=position,
            check="torn_batch",
            expected=end,
            found=position,
        )
    if bound is not None and previous >= bound:
        raise SegmentOverflowError(
            f"{path}: offset {previous} is more than 2^31-1 above the segment's base, and not below"
            f" the base {bound} of the next one; the file is left as it is"
        )
    if previous - segment.base_offset <= INT32_MAX:
        raise ValueError(f"{path}: offset {previous} fits the segment, which needs no split")


def _hand_over(aborted: Iterable[AbortedTxn], segments: Sequence[LogSegment]) -> None:
    """Enter each aborted transaction where its marker stands; of none below the first base."""
    bases = [segment.base_offset for segment in segments]
    for transaction in aborted:
        slot = bisect_right(bases, transaction.last_offset)
        if slot:
            segments[slot - 1].txn_index.append(transaction)
