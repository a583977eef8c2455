"""Ranges of offsets between two segments that a lost segment may explain.

The records of a compacted log have gaps, so a missing range alone proves nothing. The verdict on a
partition and the verifier share this rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from logstore.names import DELETED_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, parse_segment_file

if TYPE_CHECKING:
    from logstore.runtime import FileSystem

_INDEX_BYTES_READ = 4096

STRAYS_OF_A_SHUTDOWN = 1
"""Snapshots below the last segment that may be at no base offset.

A clean shutdown writes a snapshot at the end of the log. The next start of a broker deletes it,
unless it is above every base offset.
"""


def lost_ranges(
    bases: Sequence[int],
    end_of: Callable[[int], int | None],
    is_dense: Callable[[int], bool],
    first_dirty_offset: int,
    witnesses: Collection[int],
) -> Iterator[range]:
    """Yield the ranges of offsets between two segments in which a segment may be lost.

    A cleaning pass removes records below the first dirty offset, and usually from several segments.
    So a range counts if files of a segment in it remain, or if it is above the first dirty offset
    and both neighbours have a record at each offset. Leader epochs prove nothing: a cleaning pass
    keeps the epochs of records that it removes.

    Parameters
    ----------
    bases : sequence of int
        Base offsets of the segments, ascending.
    end_of : callable
        Returns the end offset of a segment; None if it is empty, or damage hides the end.
    is_dense : callable
        Returns whether a segment has a record at each of its offsets. Called for neighbours of a
        missing range only.
    first_dirty_offset : int
        As stored in the cleaner checkpoint, or 0 without an entry.
    witnesses : collection of int
        See `remaining_files`.
    """
    # The segment that contains the first dirty offset was rewritten as a whole.
    above = [base for base in bases if base >= first_dirty_offset]
    explained_end = min(above, default=first_dirty_offset)
    for base, following in pairwise(bases):
        is_explained = following <= explained_end
        if is_explained and not witnesses:
            continue
        end = end_of(base)
        if end is None or end >= following:
            continue
        is_witnessed = any(end <= offset < following for offset in witnesses)
        if is_witnessed or (not is_explained and is_dense(base) and is_dense(following)):
            yield range(end, following)


def remaining_files(fs: FileSystem, directory: str) -> set[int]:
    """Return the base offsets of segments of which files remain, but not the `.log`.

    Parameters
    ----------
    directory : str
        Folder of the partition. Indexes in it that cannot be read count as empty.

    Raises
    ------
    OSError
        The folder cannot be listed.
    """
    logs: set[int] = set()
    snapshots: set[int] = set()
    indexes: list[tuple[int, str]] = []
    for name in fs.list_dir(directory):
        parsed = parse_segment_file(name)
        if parsed is None or parsed.state not in ("", DELETED_SUFFIX):
            continue
        if parsed.kind == LOG_SUFFIX:
            logs.add(parsed.base_offset)  # the indexes of a deleted segment are deleted after it
        elif not parsed.state and parsed.kind == SNAPSHOT_SUFFIX:
            snapshots.add(parsed.base_offset)
        elif not parsed.state:
            indexes.append((parsed.base_offset, f"{directory}/{name}"))
    last = max(logs, default=0)
    strays = {offset for offset in snapshots - logs if offset < last}
    found = strays if len(strays) > STRAYS_OF_A_SHUTDOWN else set()
    for base, path in indexes:
        if base not in logs:
            with suppress(OSError):
                if has_entries(fs, path):
                    found.add(base)
    return found


def has_entries(fs: FileSystem, path: str) -> bool:
    """Return whether an index starts with anything but zeros.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    with closing(fs.open(path)) as file:
        return any(file.read(0, _INDEX_BYTES_READ))
