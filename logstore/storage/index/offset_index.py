"""The offset index, which maps an offset to the file position where a scan for it can start.

Offset  Size  Field            Type
     0     4  relativeOffset   i32   last offset of a chunk, less the base offset
     4     4  filePosition     i32   first byte of that chunk in the .log file

All numbers are big-endian. Both fields are strictly increasing from entry to entry. Source:
docs/spec/storage-format.md §7.2, §8.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from logstore.errors import InvalidOffsetError, SegmentOverflowError
from logstore.storage.index.entry_file import Column
from logstore.storage.index.sparse import SparseIndex
from logstore.types import INT32_MAX, OffsetPosition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class OffsetIndex(SparseIndex):
    """Sparse map from offsets to positions; see `SparseIndex` for the parameters."""

    ENTRY = struct.Struct(">ii")
    OFFSET = Column(struct.Struct(">i"), 0)
    POSITION = Column(struct.Struct(">i"), 4)
    KEY = OFFSET
    assert ENTRY.size == 8

    @property
    def is_full(self) -> bool:
        """Whether the index has no room for another entry."""
        if self._file is None:  # checked at each append; opens the file once
            self._ready()
        return self._entries >= self._length // self.ENTRY.size

    @property
    def last_offset(self) -> int:
        """Offset of the last entry, or the base offset if the index is empty."""
        self._ready()
        last = self._last
        return self._base_offset if last is None else self._base_offset + last[0]

    def append(self, offset: int, position: int) -> None:
        """Add an entry.

        Parameters
        ----------
        offset : int
            Absolute offset, above the last entry's and at most 2^31-1 above the base offset.
        position : int
            Byte position in the .log file.

        Raises
        ------
        SegmentOverflowError
            The index is full, or the relative offset or the position does not fit into 31 bits.
        InvalidOffsetError
            The offset is not above the last entry's.
        """
        if self.is_full:
            raise SegmentOverflowError(f"{self._path}: full with {self._entries} entries")
        relative_offset = self._relative_offset(offset)
        if not 0 <= position <= INT32_MAX:
            raise SegmentOverflowError(f"{self._path}: position {position} is not within 2^31-1")
        if self._last is not None and relative_offset <= self._last[0]:
            raise InvalidOffsetError(
                f"{self._path}: offset {offset} is not above the last one, {self.last_offset}"
            )
        self._put((relative_offset, position))

    def append_rows(self, rows: NDArray[np.int64]) -> None:
        """Add entries in one write; see `append`.

        Parameters
        ----------
        rows : (n, 2) int64
            Offsets and positions.

        Raises
        ------
        SegmentOverflowError, InvalidOffsetError
            See `append`. If any entry is invalid, none is added.
        """
        if not len(rows):
            return
        if self.entries + len(rows) > self.max_entries:
            raise SegmentOverflowError(f"{self._path}: no room for {len(rows)} entries more")
        (first, position), (last, last_position) = rows[0].tolist(), rows[-1].tolist()
        self._relative_offset(first)
        self._relative_offset(last)
        if not 0 <= position <= last_position <= INT32_MAX:
            raise SegmentOverflowError(
                f"{self._path}: positions {position} to {last_position} are not within 2^31-1"
            )
        rise = bool((rows[1:, 0] > rows[:-1, 0]).all())
        if not rise or (self._last is not None and first <= self.last_offset):
            raise InvalidOffsetError(
                f"{self._path}: offsets from {first} on do not rise above {self.last_offset}"
            )
        self._put_rows((rows - (self._base_offset, 0)).astype(">i4").tobytes())

    def lookup(self, target_offset: int) -> OffsetPosition:
        """Find the greatest indexed offset not above `target_offset`.

        Parameters
        ----------
        target_offset : int
            Absolute offset. Any value is allowed.

        Returns
        -------
        OffsetPosition
            `position` is the byte position in the .log file where a scan should start. The result
            is `(base_offset, 0)` if the target is below the first entry or the index is empty.

        Notes
        -----
        O(log entries). Safe with one concurrent writer.
        """
        _, row, _ = self._search(self.OFFSET, target_offset - self._base_offset + 1)
        return OffsetPosition(self._base_offset, 0) if row is None else self._entry(row)

    def fetch_upper_bound_offset(self, start: OffsetPosition, size: int) -> OffsetPosition | None:
        """Find the first entry whose position is at or after the end of a read.

        Parameters
        ----------
        start : OffsetPosition
            Where the read starts. Only the position is used.
        size : int
            Number of bytes read.

        Returns
        -------
        OffsetPosition or None
            Its offset is an upper bound of the offsets read. None if there is none.

        Notes
        -----
        O(log entries). Safe with one concurrent writer.
        """
        _, _, row = self._search(self.POSITION, start.position + size)
        return None if row is None else self._entry(row)

    def entry(self, slot: int) -> OffsetPosition:
        """Return the entry in `slot`, counted from 0. Raises `IndexError` if it does not exist."""
        return self._entry(self._entry_row(slot))

    def __iter__(self) -> Iterator[OffsetPosition]:
        """Yield the entries in order, up to the last one when the iteration starts."""
        return map(self._entry, self._rows())

    def _entry(self, row: tuple[int, ...]) -> OffsetPosition:
        return OffsetPosition(self._base_offset + row[0], row[1])

    def _check(self) -> None:
        """Assert the invariants: offsets are strictly increasing, none negative."""
        super()._check()
        if self._file is not None:
            offsets = [row[0] for row in self._rows(self._loaded)]
            assert all(offset >= 0 for offset in offsets)
            assert offsets == sorted(set(offsets))
