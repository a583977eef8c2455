"""The segments of a log, sorted by base offset.

The caller must hold the log's lock to change them. Readers need no lock. They use `view`, an
immutable tuple that is replaced by each change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from sortedcontainers import SortedDict

from logstore.storage.segment.segment import LogSegment


class LogSegments:
    """The segments by base offset. After the log has been loaded, there is at least one.

    Attributes
    ----------
    view : tuple of LogSegment
        All segments as of the last change, in offset order.
    active : LogSegment
        The segment with the highest base offset, the only one that is appended to. It is an
        attribute because each append reads it. It is not set until the first segment is added.
    """

    active: LogSegment

    def __init__(self) -> None:
        self._by_base: SortedDict = SortedDict()
        self.view: tuple[LogSegment, ...] = ()

    def add(self, segment: LogSegment) -> LogSegment | None:
        """Add a segment. Return the segment with the same base offset that it replaced. O(n)."""
        previous: LogSegment | None = self._by_base.get(segment.base_offset)
        self._by_base[segment.base_offset] = segment
        self._publish()
        return previous

    def remove(self, base_offset: int) -> None:
        """Remove the segment with the given base offset. O(n)."""
        del self._by_base[base_offset]
        self._publish()

    def discard(self, segments: Iterable[LogSegment]) -> None:
        """Remove segments, atomically for readers. O(n log n)."""
        for segment in segments:
            del self._by_base[segment.base_offset]
        self._publish()

    def replace(self, new: Iterable[LogSegment], old: Iterable[LogSegment]) -> None:
        """Replace segments, atomically for readers. O(n log n)."""
        by_base = {segment.base_offset: segment for segment in new}
        for segment in old:
            if segment.base_offset not in by_base:
                del self._by_base[segment.base_offset]
        self._by_base.update(by_base)
        self._publish()

    def _publish(self) -> None:
        # This runs whenever segments change. values() loops in Python and takes three times as
        # long.
        view = tuple(map(self._by_base.__getitem__, self._by_base))
        if view:
            self.active = view[-1]
        self.view = view

    def __len__(self) -> int:
        return len(self.view)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self.view)

    def __contains__(self, base_offset: int) -> bool:
        return base_offset in self._by_base

    @property
    def first(self) -> LogSegment:
        """The segment with the lowest base offset."""
        return self.view[0]

    def get(self, base_offset: int) -> LogSegment | None:
        """Return the segment with exactly this base offset, or None if there is none."""
        segment: LogSegment | None = self._by_base.get(base_offset)
        return segment

    def floor(self, offset: int) -> LogSegment | None:
        """Return the segment with the highest base offset at or below `offset`. O(log n)."""
        view = self.view
        slot = bisect_right(view, offset, key=lambda segment: segment.base_offset) - 1
        return view[slot] if slot >= 0 else None

    def higher(self, base_offset: int) -> LogSegment | None:
        """Return the segment with the lowest base offset above `base_offset`. O(log n)."""
        view = self.view
        slot = bisect_right(view, base_offset, key=lambda segment: segment.base_offset)
        return view[slot] if slot < len(view) else None

    def from_offset(self, offset: int) -> tuple[LogSegment, ...]:
        """Return the segment that contains `offset` and all later ones.

        If `offset` is below every base offset, this returns all segments.
        """
        view = self.view
        slot = bisect_right(view, offset, key=lambda segment: segment.base_offset) - 1
        return view[max(slot, 0) :]

    def between(self, start: int, end: int) -> tuple[LogSegment, ...]:
        """Return the segments that might contain offsets in [start, end).

        These are the segment that contains `start` and all later ones with a base offset below
        `end`.
        """
        if start >= end:
            return ()
        return tuple(s for s in self.from_offset(start) if s.base_offset < end)

    @property
    def size_bytes(self) -> int:
        """Size of all `.log` files in bytes, without preallocated space."""
        return sum(segment.size_bytes for segment in self.view)
