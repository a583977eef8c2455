"""Offset ranges between two segments where a segment might be missing.

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

SHUTDOWN_STRAYS_MAX = 1
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
    """Yield the offset ranges between two segments where a segment might be missing.

    A cleaning pass removes records below the first dirty offset, usually from several segments. A
    range therefore only counts if other files of a missing segment remain, or if the range is above
    the first dirty offset and both neighbours are dense. Leader epochs prove nothing: a cleaning
    pass keeps the epochs of records that it removes.

    Parameters
    ----------
    bases : sequence of int
        Base offsets of the segments, ascending.
    end_of : callable
        Returns a segment's end offset, or None if the segment is empty or damage hides its end.
    is_dense : callable
        Returns whether a segment has a record at each of its offsets. Only called for the
        neighbours of a missing range.
    first_dirty_offset : int
        The entry of the cleaner checkpoint, or 0 if there is none.
    witnesses : collection of int
        See `remaining_files`.
    """
    # The segment that contains the first dirty offset was rewritten completely.
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
    """Return the base offsets of segments that have other files but no `.log`.

    Parameters
    ----------
    directory : str
        The partition directory. Unreadable indexes in it count as empty.

    Raises
    ------
    OSError
        The directory cannot be listed.
    """
    logs: set[int] = set()
    snapshots: set[int] = set()
    indexes: list[tuple[int, str]] = []
    for name in fs.list_dir(directory):
        parsed = parse_segment_file(name)
        if parsed is None or parsed.state not in ("", DELETED_SUFFIX):
            continue
        if parsed.kind == LOG_SUFFIX:
            logs.add(parsed.base_offset)  # a deleted segment's indexes are removed after its log
        elif not parsed.state and parsed.kind == SNAPSHOT_SUFFIX:
            snapshots.add(parsed.base_offset)
        elif not parsed.state:
            indexes.append((parsed.base_offset, f"{directory}/{name}"))
    last = max(logs, default=0)
    strays = {offset for offset in snapshots - logs if offset < last}
    found = strays if len(strays) > SHUTDOWN_STRAYS_MAX else set()
    for base, path in indexes:
        if base not in logs:
            with suppress(OSError):
                if has_entries(fs, path):
                    found.add(base)
    return found


def has_entries(fs: FileSystem, path: str) -> bool:
    """Return whether an index contains entries, that is, does not start with zeros.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    with closing(fs.open(path)) as file:
        return any(file.read(0, _INDEX_BYTES_READ))
