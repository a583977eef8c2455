"""Putting complete new segments in the place of old ones, so that a crash anywhere is harmless.

Used for cleaned segments and for split ones (cleaner §9); the loader finishes or undoes
what a crash interrupts.
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
    """Create an empty `.cleaned` segment; what an earlier attempt left there is removed."""
    remove_cleaned(runtime.fs, directory, base_offset)
    return LogSegment(runtime, directory, base_offset, config, suffix=CLEANED_SUFFIX, create=True)


def remove_cleaned(fs: FileSystem, directory: str, base_offset: int) -> None:
    """Remove the `.cleaned` files of a base, if there are any."""
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
    """Replace segments of a log by others.

    Parameters
    ----------
    segments : LogSegments
        Changed in place.
    new_segments : sequence of LogSegment
        Complete, durable, named `.cleaned`; on return they bear their final names.
    old_segments : sequence of LogSegment
        Those that are gone already (retention) are passed over. If all are, so is what the new
        ones hold: their files are removed instead.
    apart : bool
        Whether the first few of the new segments may replace theirs without the others, as a
        cleaning's may; otherwise (a split) a crash leaves all of them or none.
    before_rename : callable, optional
        Called after the last check, before the first file is renamed.

    Returns
    -------
    list of LogSegment
        The old segments that were replaced, now named `.deleted`, for the caller to remove.

    Notes
    -----
    The order of renames makes every intermediate state recoverable from names alone: `.cleaned`
    becomes `.swap` from the highest base down, the old files become `.deleted`, then `.swap` is
    stripped. Each step waits until the one before is durable, since a disk may reorder names;
    what could happen else stands beside each sync. Of several that are replaced `apart` a start
    drops all from the lowest on of which a `.cleaned` is left, so that a crash leaves the first few
    whatever names it keeps.
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
    end_offset = max(segment.read_next_offset() for segment in new)  # may fail, so before all else
    # All names of the new files: a `.swap` would pass for complete if a `.cleaned` beside it went.
    fs.sync_dir(directory)
    if before_rename is not None:
        before_rename()
    for segment in reversed(new):
        assert segment.suffix == CLEANED_SUFFIX
        segment.change_suffix(SWAP_SUFFIX)
        if not apart:
            # Else the lowest segment of a split, alone, would pass for all of them.
            fs.sync_dir(directory)
    if apart:
        # Else an old segment could be gone, and the new one dropped for want of some of its files.
        fs.sync_dir(directory)
    segments.replace(new, old)
    by_base = {segment.base_offset: segment for segment in new}
    for segment in old:
        segment.change_suffix(DELETED_SUFFIX)
        if segment.base_offset >= end_offset and segment.base_offset not in by_base:
            # Nothing stayed of it, so that no start finds it replaced. One by one: a value must not
            # be left of which the tombstone, in a later one, is gone.
            fs.sync_dir(directory)
    # Else an old segment could stand beside the one that replaced it.
    fs.sync_dir(directory)
    for bases in from_both_ends(by_base):
        for base in bases:
            by_base[base].change_suffix("")
        fs.sync_dir(directory)  # of each step, as it says there
    return old


def from_both_ends(bases: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yield the bases of new segments in the order in which they lose their `.swap`.

    What lies between two `.swap` is dropped by a start as replaced. So it goes from both ends
    inwards, and each step is made durable before the next: whichever of its two names a crash
    keeps, no segment that lost the suffix lies between two that did not.
    """
    pending = deque(sorted(bases))
    while pending:
        lowest = pending.popleft()
        yield (lowest, pending.pop()) if pending else (lowest,)
