"""A file of fixed-size entries, the common base of all three indexes.

One thread at a time writes, under the log's lock. Any number of threads read without a lock. An
entry is written before the count is raised, and the count is lowered before the file is truncated,
so a concurrent reader might see too few entries but never wrong ones.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from logstore.errors import CorruptIndexError
from logstore.runtime.fs import File, FileSystem
from logstore.runtime.open_files import OPEN_FILES

FENCE_ENTRIES = 64
"""One key per this many entries is cached in memory, so a search needs one small read."""

PAGE_ENTRIES = 128
"""Maximum number of entries in the last read of a search. A wider range is halved first."""

CHUNK_ENTRIES = 2048
"""Number of entries that an iteration reads at a time."""

Row = tuple[int, ...]
"""The numbers of an entry, as stored (with relative offsets)."""


class Column(NamedTuple):
    """A number in each entry: its encoding and its position within the entry."""

    number: struct.Struct
    start: int


class EntryFile:
    """A file of fixed-size entries.

    Parameters
    ----------
    fs : FileSystem
        File system that contains the file.
    path : str
        Path of the file, which need not exist. It is not opened before the first use.
    base_offset : int
        The segment's base offset.
    writable : bool
        Whether the file may be created and changed. If not, a missing file reads as empty.

    Notes
    -----
    Once closed or deleted, an index cannot be reopened, and using it raises `ValueError`. Otherwise
    a late reader could re-create the file of a removed segment.
    """

    ENTRY: ClassVar[struct.Struct]
    KEY: ClassVar[Column]

    def __init__(self, fs: FileSystem, path: str, base_offset: int, *, writable: bool) -> None:
        self._fs = fs
        self._path = path
        self._base_offset = base_offset
        self._writable = writable
        # Guards opening, renaming and the fences. Searches do not take it otherwise.
        self._lock = threading.Lock()
        self._file: File | None = None
        # True once the file has been opened, even after it is closed.
        self._is_known = False
        self._closed = False
        self._length = 0
        self._entries = 0
        self._loaded = 0
        self._last: Row | None = None
        self._fences = array("q")

    @property
    def path(self) -> str:
        """Path of the file. Assign the new path after a directory move, or use `rename_to`."""
        return self._path

    @path.setter
    def path(self, path: str) -> None:
        with self._lock:
            self._path = path

    @property
    def base_offset(self) -> int:
        """The segment's base offset."""
        return self._base_offset

    @property
    def exists_on_disk(self) -> bool:
        """Whether the file exists. This neither opens nor creates it."""
        return self._fs.exists(self._path)

    @property
    def is_file_open(self) -> bool:
        """Whether the file is currently open."""
        return self._file is not None

    @property
    def loaded_entries(self) -> int:
        """Number of entries in the file when it was opened."""
        self._ready()
        return self._loaded

    def flush(self) -> None:
        """Fsync the entries. If the index was never opened, this has no effect."""
        if self._is_known and self._writable:
            self._writing().sync()

    def release_file(self) -> bool:
        """Close the file until it is next used. Reads in progress can continue.

        Unlike a `.log`, an index can be closed before it is flushed, because a flush opens it
        again.
        """
        self._file = None
        return True

    def close(self) -> None:
        """Close the file permanently.

        Closing twice, or before the file was opened, is allowed.
        """
        self.close_handler()

    def close_handler(self) -> None:
        """Close the file permanently without trimming it (after a disk failure or deletion)."""
        with self._lock:
            file, self._file = self._file, None
            self._closed = True
            if file is not None:
                file.close()

    def retire(self) -> None:
        """Stop creating or changing the file, because its segment is being removed.

        Readers of an open file continue. A missing file reads as empty from now on.
        """
        with self._lock:
            self._writable = False

    def delete_if_exists(self) -> bool:
        """Close permanently, delete the file, and return whether it existed."""
        self.close_handler()
        if not self.exists_on_disk:
            return False
        self._fs.remove(self._path)
        return True

    def rename_to(self, path: str) -> None:
        """Move the file, if it exists, and use `path` from now on. An open file remains open."""
        with self._lock:
            if self._fs.exists(self._path):
                self._fs.rename(self._path, path)
            self._path = path

    def _ready(self) -> File | None:
        """Return the open file, or None if the file is missing and reads as empty."""
        file = self._file
        return file if file is not None else self._open(create=False)

    def _check_length(self) -> None:
        """Raise `CorruptIndexError` if the file ends inside an entry. `_ready` must come first."""
        if torn := self._length % self.ENTRY.size:
            raise CorruptIndexError(
                f"length {self._length} is not a multiple of the entry size {self.ENTRY.size}",
                path=self._path,
                position=self._length - torn,
                check="length is a multiple of the entry size",
                expected=self._length - torn,
                found=self._length,
            )

    def _open(self, *, create: bool) -> File | None:
        with self._lock:
            if self._closed:
                raise ValueError(f"{self._path}: index is closed")
            if self._file is not None:
                return self._file
            known = self._is_known
            file, is_new = self._open_or_create(create=create and self._writable and not known)
            if file is None:
                if known:  # removed with its segment; the file was not empty
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._path)
                return None
            if not known:
                self._length = file.size()
                self._entries = self._loaded = 0 if is_new else self._length // self.ENTRY.size
                self._last = self._row(file, self._entries - 1) if self._entries else None
                self._is_known = True
            # Set this last, so that readers that see the file also see its count.
            self._file = file
        OPEN_FILES.opened(self)
        return file

    def _open_or_create(self, *, create: bool) -> tuple[File | None, bool]:
        try:
            return self._fs.open(self._path, write=self._writable), False
        except FileNotFoundError:
            return (self._create(), True) if create else (None, False)

    def _create(self) -> File:
        return self._fs.open(self._path, create=True)

    def _writing(self) -> File:
        """Return the file for writing. Create it if it is missing."""
        if not self._writable:
            raise ValueError(f"{self._path}: index is read-only")
        file = self._file
        if file is None:
            file = self._open(create=True)
        assert file is not None
        return file

    def _put(self, row: Row) -> None:
        """Append `row` as the last entry."""
        file = self._writing()
        end = self._entries * self.ENTRY.size
        file.write_at([self.ENTRY.pack(*row)], end)
        self._length = max(self._length, end + self.ENTRY.size)
        self._last = row
        self._entries += 1

    def _put_rows(self, data: bytes) -> None:
        """Append encoded entries in one write."""
        if not data:
            return
        file = self._writing()
        size = self.ENTRY.size
        end = self._entries * size
        file.write_at([data], end)
        self._length = max(self._length, end + len(data))
        self._last = self.ENTRY.unpack_from(data, len(data) - size)
        self._entries += len(data) // size

    def _cut(self, entries: int) -> None:
        """Keep only the first `entries` entries. The caller must remove the bytes of the rest."""
        file = self._writing()
        self._last = self._row(file, entries - 1) if entries else None
        with self._lock:
            # A new array, because readers may be searching the old one.
            self._fences = self._fences[: -(-entries // FENCE_ENTRIES)]
            self._entries = entries
        self._loaded = min(self._loaded, entries)

    def _set_length(self, length: int) -> None:
        file = self._writing()
        if length != self._length:
            file.truncate(length)
            self._length = length

    def _row(self, file: File, slot: int) -> Row:
        return self.ENTRY.unpack(file.read(slot * self.ENTRY.size, self.ENTRY.size))

    def _rows(self, first: int = 0) -> Iterator[Row]:
        """Yield the entries from slot `first` to the last entry when the iteration starts."""
        file = self._ready()
        end = self._entries
        size = self.ENTRY.size
        while file is not None and first < end:
            count = min(CHUNK_ENTRIES, end - first)
            data = file.read(first * size, count * size)
            yield from self.ENTRY.iter_unpack(data[: len(data) - len(data) % size])
            if len(data) < count * size:
                return
            first += count

    def _search(self, column: Column, bound: int) -> tuple[int, Row | None, Row | None]:
        """Find the first entry whose number in `column` is not below `bound`.

        Returns
        -------
        slot : int
            Slot of the entry found, or the number of entries if there is none.
        before, at : Row or None
            The entries in slots `slot - 1` and `slot`, or None if missing.

        Notes
        -----
        The column must not decrease. If it does (zeros after a crash), any slot might be returned.
        A search in the key column takes one read; a search in any other column takes up to
        log2(entries / page) more. If a concurrent truncation makes a read short, missing entries
        count as not below the bound.
        """
        file = self._ready()
        if file is None:
            return 0, None, None
        size = self.ENTRY.size
        (number, start), end = column, self._entries
        low, high = 0, end
        if column is self.KEY:
            fences = self._fences_for(file, end)
            block = bisect_left(fences, bound)
            high = min(end, block * FENCE_ENTRIES)
            low = min(high, max(0, (block - 1) * FENCE_ENTRIES + 1))
        while high - low > PAGE_ENTRIES:
            middle = (low + high) // 2
            data = file.read(middle * size + start, number.size)
            if len(data) == number.size and number.unpack(data)[0] < bound:
                low = middle + 1
            else:
                high = middle
        # One read returns both neighbours, so they are the entries that were compared.
        first = max(0, low - 1)
        page = file.read(first * size, (min(high + 1, end) - first) * size)
        # A truncation lowers the count first. Entries beyond the count might be zeros.
        count = min(len(page) // size, self._entries - first)
        rows = range(start, count * size, size)
        row = bisect_left(rows, bound, key=lambda at: number.unpack_from(page, at)[0])
        before = self.ENTRY.unpack_from(page, (row - 1) * size) if row else None
        at = self.ENTRY.unpack_from(page, row * size) if row < len(rows) else None
        return first + row, before, at

    def _fences_for(self, file: File, entries: int) -> array[int]:
        """Return the keys of slots 0, 64, 128, ... that precede slot `entries`."""
        fences = self._fences
        if len(fences) * FENCE_ENTRIES >= entries:
            return fences
        with self._lock:
            fences = self._fences
            first = len(fences) * FENCE_ENTRIES
            size = self.ENTRY.size
            # Use the current count, because the index may have been truncated since the caller read
            # it.
            data = file.read(first * size, max(0, self._entries - first) * size)
            number, start = self.KEY
            for at in range(start, len(data) // size * size, FENCE_ENTRIES * size):
                fences.append(number.unpack_from(data, at)[0])
            return fences

    def _check(self) -> None:
        """Assert the invariants. Loaded entries are not checked (storage-format §7.1)."""
        assert not (self._closed and self._file is not None)
        if self._file is None:
            return
        assert 0 <= self._loaded <= self._entries
        assert self._length == self._file.size()
        assert self._entries * self.ENTRY.size <= self._length
        assert (self._last is None) == (self._entries == 0)
        assert self._last is None or self._last == self._row(self._file, self._entries - 1)
        assert len(self._fences) <= -(-self._entries // FENCE_ENTRIES)
        for block, key in enumerate(self._fences):
            at = block * FENCE_ENTRIES * self.ENTRY.size + self.KEY.start
            assert self.KEY.number.unpack(self._file.read(at, self.KEY.number.size)) == (key,)
