"""Crash-safe replacement of segments with complete new ones.

Used for cleaned and for split segments (cleaner §9). The loader completes or undoes an interrupted
replacement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from logstore.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    file_name,
)
from logstore.storage.segment.segment import LogSegment

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.runtime import FileSystem, Runtime
    from logstore.storage.segment.segments import LogSegments


def create_cleaned(
    runtime: Runtime, directory: str, base_offset: int, config: LogConfig
) -> LogSegment:
    """Create an empty `.cleaned` segment, after removing the files of an earlier attempt."""
    remove_cleaned(runtime.fs, directory, base_offset)
    return LogSegment(runtime, directory, base_offset, config, suffix=CLEANED_SUFFIX, create=True)


def remove_cleaned(fs: FileSystem, directory: str, base_offset: int) -> None:
    """Remove the `.cleaned` files of a base offset, if any exist."""
    for kind in SEGMENT_SUFFIXES:
        path = f"{directory}/{file_name(base_offset, kind)}{CLEANED_SUFFIX}"
        if fs.exists(path):
            fs.remove(path)


def swap_segments(
    fs: FileSystem,
    directory: str,
    segments: LogSegments,
    new_segments: Sequence[LogSegment],
    old_segments: Sequence[LogSegment],
    *,
    apart: bool = False,
    before_rename: Callable[[], None] | None = None,
) -> list[LogSegment]:
    """Replace segments of a log with new ones.

    Parameters
    ----------
    segments : LogSegments
        The log's segments, which are changed.
    new_segments : sequence of LogSegment
        Complete, durable, and named `.cleaned`. On return, they have their final names.
    old_segments : sequence of LogSegment
        The segments to replace. Any that retention has already removed are skipped. If it has
        removed all of them, the files of the new segments are removed as well.
    apart : bool
        True if a crash may leave only the first few segments replaced, as in a cleaning pass. If
        False, as in a split, a crash leaves either all of them replaced or none.
    before_rename : callable, optional
        Called after the last check and before the first rename.

    Returns
    -------
    list of LogSegment
        The replaced segments, now named `.deleted`. The caller must delete them.

    Notes
    -----
    Every intermediate state can be recovered from names alone: `.cleaned` becomes `.swap` from the
    highest base offset down, the old files become `.deleted`, then `.swap` is removed. Each step is
    durable before the next one, because a disk may reorder renames. A comment at each fsync gives
    the reason. With `apart`, loading drops the new segments from the lowest one with a `.cleaned`
    file on, so only the first few remain replaced.
    """
    old = sorted(
        (segment for segment in old_segments if segment.base_offset in segments),
        key=lambda segment: segment.base_offset,
    )
    new = sorted(new_segments, key=lambda segment: segment.base_offset)
    if not old:
        for segment in new:
            segment.delete_if_exists()
        return []
    end_offset = max(segment.read_next_offset() for segment in new)  # first, because it may fail
    # Rename all files first. If a `.cleaned` file was lost, the `.swap` files would look complete.
    fs.sync_dir(directory)
    if before_rename is not None:
        before_rename()
    for segment in reversed(new):
        assert segment.suffix == CLEANED_SUFFIX
        segment.change_suffix(SWAP_SUFFIX)
        if not apart:
            # Otherwise the lowest segment of a split would look like the entire split.
            fs.sync_dir(directory)
    if apart:
        # Otherwise an old segment could be deleted and its replacement dropped as incomplete.
        fs.sync_dir(directory)
    segments.replace(new, old)
    by_base = {segment.base_offset: segment for segment in new}
    for segment in old:
        segment.change_suffix(DELETED_SUFFIX)
        if segment.base_offset >= end_offset and segment.base_offset not in by_base:
            # No record of the segment was retained, so loading cannot know that it was replaced. Do
            # this one by one, so that no value outlives its tombstone in a later segment.
            fs.sync_dir(directory)
    # Otherwise an old segment could exist together with its replacement.
    fs.sync_dir(directory)
    for bases in from_both_ends(by_base):
        for base in bases:
            by_base[base].change_suffix("")
        fs.sync_dir(directory)  # one step at a time; see `from_both_ends`
    return old


def from_both_ends(bases: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yield the base offsets of new segments in the order in which to remove `.swap`.

    Loading drops segments between two `.swap` segments as replaced. The suffix is therefore removed
    from both ends towards the middle, one durable step at a time. After a crash, there is then
    never a segment without the suffix between two segments that have it.
    """
    pending = deque(sorted(bases))
    while pending:
        lowest = pending.popleft()
        yield (lowest, pending.pop()) if pending else (lowest,)
