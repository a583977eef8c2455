"""The time index, which maps a timestamp to an offset. All records before it are older.

Offset  Size  Field            Type
     0     8  timestamp        i64   largest timestamp of the segment so far, Unix ms
     8     4  relativeOffset   i32   offset that bears it, less the base offset

All numbers are big-endian. Timestamps are strictly increasing, and offsets never decrease. The last
slot is reserved for the entry written when the segment is closed. Source:
docs/spec/storage-format.md §7.3, KIP-33.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from logstore.errors import CorruptIndexError, InvalidOffsetError, SegmentOverflowError
from logstore.storage.index.entry_file import Column
from logstore.storage.index.sparse import SparseIndex
from logstore.types import NO_TIMESTAMP, TimestampOffset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class TimeIndex(SparseIndex):
    """Sparse map from timestamps to offsets; see `SparseIndex` for the parameters."""

    ENTRY = struct.Struct(">qi")
    TIMESTAMP = Column(struct.Struct(">q"), 0)
    OFFSET = Column(struct.Struct(">i"), 8)
    KEY = TIMESTAMP
    assert ENTRY.size == 12

    @property
    def is_full(self) -> bool:
        """Whether at most the slot reserved for closing the segment is left."""
        if self._file is None:  # checked at each append; opens the file once
            self._ready()
        return self._entries >= self._length // self.ENTRY.size - 1

    @property
    def last_offset(self) -> int:
        """Offset of the last entry, or the base offset if the index is empty."""
        return self.last_entry.offset

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry, or `(-1, base_offset)` if the index is empty."""
        self._ready()
        last = self._last
        if last is None:
            return TimestampOffset(NO_TIMESTAMP, self._base_offset)
        return self._entry(last)

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add an entry if `timestamp` is above the last one.

        Parameters
        ----------
        timestamp : int
            Largest timestamp of the segment so far, in Unix milliseconds. If it equals the last one
            (-1 in an empty index), no entry is added.
        offset : int
            Absolute offset of its record, not below the last entry's offset.
        skip_full_check : bool, optional
            Whether the reserved last slot may be used, because the segment is being closed.

        Raises
        ------
        SegmentOverflowError
            The index is full, or the offset is not within 2^31-1 above the base offset.
        InvalidOffsetError
            The timestamp or the offset is below the last entry's.
        """
        if self.is_full and not skip_full_check:
            raise SegmentOverflowError(f"{self._path}: full with {self._entries} entries")
        last = self.last_entry
        if self._last is not None and offset < last.offset:
            raise InvalidOffsetError(
                f"{self._path}: offset {offset} is below the last one, {last.offset}"
            )
        if self._last is not None and timestamp < last.timestamp:
            raise InvalidOffsetError(
                f"{self._path}: timestamp {timestamp} is below the last one, {last.timestamp}"
            )
        if timestamp <= last.timestamp:
            return
        relative_offset = self._relative_offset(offset)
        if self._entries >= self.max_entries:
            raise SegmentOverflowError(f"{self._path}: no slot left after {self._entries}")
        self._put((timestamp, relative_offset))

    def append_rows(self, rows: NDArray[np.int64]) -> None:
        """Add entries in one write.

        Parameters
        ----------
        rows : (n, 2) int64
            Strictly increasing timestamps, and offsets as for `maybe_append`.

        Raises
        ------
        SegmentOverflowError, InvalidOffsetError
            See `maybe_append`. If any entry is invalid, none is added.
        """
        import numpy as np

        if not len(rows):
            return
        if self.entries + len(rows) > self.max_entries - 1:
            raise SegmentOverflowError(f"{self._path}: no room for {len(rows)} entries more")
        self._relative_offset(int(rows[0, 1]))
        self._relative_offset(int(rows[-1, 1]))
        last = self.last_entry
        rises = bool((rows[1:, 0] > rows[:-1, 0]).all() and (rows[1:, 1] >= rows[:-1, 1]).all())
        falls = self._last is not None and rows[0, 1] < last.offset
        if not rises or falls or rows[0, 0] <= last.timestamp:
            raise InvalidOffsetError(
                f"{self._path}: timestamps or offsets from {tuple(rows[0].tolist())} on do not rise"
                f" above {tuple(last)}"
            )
        entries = np.empty(len(rows), [("timestamp", ">i8"), ("offset", ">i4")])
        entries["timestamp"] = rows[:, 0]
        entries["offset"] = rows[:, 1] - self._base_offset
        self._put_rows(entries.tobytes())

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Find the entry of the greatest timestamp not above `timestamp`.

        Parameters
        ----------
        timestamp : int
            In Unix milliseconds. Any value is allowed.

        Returns
        -------
        TimestampOffset
            No record before the entry's offset is later than `timestamp`. The result is `(-1,
            base_offset)` if the target is below the first entry or the index is empty.

        Notes
        -----
        O(log entries). Safe with one concurrent writer.
        """
        _, row, _ = self._search(self.TIMESTAMP, timestamp + 1)
        if row is None:
            return TimestampOffset(NO_TIMESTAMP, self._base_offset)
        return self._entry(row)

    def entry(self, slot: int) -> TimestampOffset:
        """Return the entry in `slot`, counted from 0. Raises `IndexError` if it does not exist."""
        return self._entry(self._entry_row(slot))

    def __iter__(self) -> Iterator[TimestampOffset]:
        """Yield the entries in order, up to the last one when the iteration starts."""
        return map(self._entry, self._rows())

    def sanity_check(self) -> None:
        """Check the index without reading the log or creating the file.

        Raises
        ------
        CorruptIndexError
            See `SparseIndex.sanity_check`. Also raised if the last timestamp is below the first
            one, as in an index that was not trimmed because of a crash.
        """
        super().sanity_check()
        if self._last is not None and self._last[0] < (first := self.entry(0).timestamp):
            raise CorruptIndexError(
                f"last timestamp {self._last[0]} is below the first one, {first}",
                path=self._path,
                position=(self._entries - 1) * self.ENTRY.size,
                check="last timestamp is not below the first",
                expected=first,
                found=self._last[0],
            )

    def _entry(self, row: tuple[int, ...]) -> TimestampOffset:
        return TimestampOffset(row[0], self._base_offset + row[1])

    def _check(self) -> None:
        """Assert the invariants: timestamps are strictly increasing, offsets never decrease."""
        super()._check()
        if self._file is not None:
            rows = list(self._rows(self._loaded))
            timestamps = [timestamp for timestamp, _ in rows]
            offsets = [offset for _, offset in rows]
            assert timestamps == sorted(set(timestamps))
            assert offsets == sorted(offsets)
            assert all(offset >= 0 for offset in offsets)
