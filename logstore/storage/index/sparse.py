"""The sparse indexes (offset index and time index), which are preallocated to their maximum size.

While an index is open for writing, its file has room for the maximum number of entries, and unused
entries are zero. A trimmed file ends after its last entry. When a file is opened, it is assumed to
be full of entries, trimmed or not. After a crash, it must therefore be rebuilt with `reset` and new
appends. Source: docs/spec/storage-format.md §7.1.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from logstore.errors import CorruptIndexError, SegmentOverflowError
from logstore.runtime.fs import File, FileSystem
from logstore.storage.index.entry_file import Column, EntryFile
from logstore.types import INT32_MAX


class SparseIndex(EntryFile):
    """A preallocated index with one entry for many records.

    Parameters
    ----------
    fs : FileSystem
        File system that contains the file.
    path : str
        Path of the file. It is not opened before the first use.
    base_offset : int
        The segment's base offset; entries contain offsets relative to it.
    max_index_bytes : int
        `segment.index.bytes`; rounded down to whole entries.
    writable : bool
        Whether the file may be created and changed.
    """

    OFFSET: ClassVar[Column]

    def __init__(
        self, fs: FileSystem, path: str, base_offset: int, *, max_index_bytes: int, writable: bool
    ) -> None:
        super().__init__(fs, path, base_offset, writable=writable)
        self._max_index_bytes = max_index_bytes

    @property
    def entries(self) -> int:
        """Number of entries."""
        self._ready()
        return self._entries

    @property
    def max_entries(self) -> int:
        """Number of entries that fit into the file. After a trim, the number of entries in it."""
        self._ready()
        return self._length // self.ENTRY.size

    @property
    def max_index_bytes(self) -> int:
        """Size in bytes, before rounding, to which `reset` and `resize` expand the file."""
        return self._max_index_bytes

    @property
    def size_bytes(self) -> int:
        """Size of the entries in bytes, regardless of the file's length."""
        return self.entries * self.ENTRY.size

    @property
    @abstractmethod
    def is_full(self) -> bool:
        """Whether the segment must roll before another entry is added."""

    @property
    @abstractmethod
    def last_offset(self) -> int:
        """Offset of the last entry, or the base offset if the index is empty."""

    def can_append_offset(self, offset: int) -> bool:
        """Return whether `offset` is within 2^31-1 above the base offset."""
        return 0 <= offset - self._base_offset <= INT32_MAX

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`. The length of the file does not change.

        Notes
        -----
        O(log entries), plus a write of zeros over the dropped entries.
        """
        self._keep(self._search(self.OFFSET, offset - self._base_offset)[0])

    def truncate(self) -> None:
        """Drop all entries. The length of the file does not change."""
        self._keep(0)

    def resize(self, max_index_bytes: int) -> None:
        """Set the file's length to `max_index_bytes`, rounded down to a whole number of entries.

        Parameters
        ----------
        max_index_bytes : int
            The new maximum in bytes, also used by later calls of `reset`. A smaller size loses no
            entries: the file then ends after the last entry and is full.
        """
        self._max_index_bytes = max_index_bytes
        self._expand()

    def trim_to_valid_size(self) -> None:
        """Truncate the file after its last entry. `resize` makes room for new entries.

        Notes
        -----
        Creates the file if it is missing, because a rolled segment always has its indexes.
        """
        self._writing()
        self._set_length(self._entries * self.ENTRY.size)

    def reset(self) -> None:
        """Drop all entries and expand the file to its maximum size before a rebuild."""
        self._cut(0)
        self._set_length(0)
        self._expand()

    def flush(self) -> None:
        """Fsync the entries.

        Notes
        -----
        Creates the file if it is missing, as Kafka's flush of a segment does.
        """
        if self._writable:
            self._writing().sync()

    def close(self) -> None:
        """Trim the file if it was opened for writing, and close permanently."""
        used = self._entries * self.ENTRY.size
        if self._is_known and self._writable and not self._closed and self._length != used:
            self.trim_to_valid_size()
        self.close_handler()

    def sanity_check(self) -> None:
        """Check the index without reading the log or creating the file.

        Raises
        ------
        CorruptIndexError
            The length is not a multiple of the entry size, or the last offset is below the base.

        Notes
        -----
        O(1). Not called for sparse indexes when a log is loaded (storage-format §7.1).| for sparse
        indexes (storage-format §7.1).
        """
        if not self._is_known and not self.exists_on_disk:
            return
        self._ready()
        self._check_length()
        if self.last_offset < self._base_offset:
            raise CorruptIndexError(
                f"last offset {self.last_offset} is below the base offset {self._base_offset}",
                path=self._path,
                position=self._length - self.ENTRY.size,
                check="last offset is not below the base offset",
                expected=self._base_offset,
                found=self.last_offset,
            )

    def _ready(self) -> File | None:
        file = self._file
        return file if file is not None else self._open(create=self._writable)

    def _create(self) -> File:
        file = super()._create()
        file.truncate(self._rounded_max_bytes())
        return file

    def _rounded_max_bytes(self) -> int:
        return self._max_index_bytes - self._max_index_bytes % self.ENTRY.size

    def _expand(self) -> None:
        self._writing()
        used = self._entries * self.ENTRY.size
        if self._length % self.ENTRY.size:
            # A torn entry must not remain between the zeros.
            self._set_length(used)
        self._set_length(max(used, self._rounded_max_bytes()))

    def _keep(self, entries: int) -> None:
        file = self._writing()
        dropped = self._entries - entries
        if dropped > 0:
            self._cut(entries)
            # The file is overwritten in place and keeps its length, so concurrent readers see
            # zeros.
            file.write_at([bytes(dropped * self.ENTRY.size)], entries * self.ENTRY.size)

    def _relative_offset(self, offset: int) -> int:
        if not self.can_append_offset(offset):
            raise SegmentOverflowError(
                f"{self._path}: offset {offset} is not within 2^31-1 of base {self._base_offset}"
            )
        return offset - self._base_offset

    def _entry_row(self, slot: int) -> tuple[int, ...]:
        file = self._ready()
        if file is None or not 0 <= slot < self._entries:
            raise IndexError(f"{self._path}: no entry {slot} among {self._entries}")
        return self._row(file, slot)

    def _check(self) -> None:
        """Assert the invariants of the file, and that the unused entries are zero."""
        super()._check()
        if self._file is not None:
            used = self._entries * self.ENTRY.size
            assert not any(self._file.read(used, 4096)) or self._length % self.ENTRY.size
