"""The transaction index, which lists the aborted transactions whose markers are in a segment.

Offset  Size  Field              Type
     0     2  version            i16   0
     2     8  producerId         i64
    10     8  firstOffset        i64   first data offset of the transaction
    18     8  lastOffset         i64   offset of its ABORT marker
    26     8  lastStableOffset   i64   the partition's last stable offset after the abort

All numbers are big-endian. `lastOffset` is strictly increasing. The file is created when the first
entry is appended, and never preallocated. Source: docs/spec/storage-format.md §7.4.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from logstore.errors import CorruptIndexError, InvalidOffsetError
from logstore.runtime.fs import FileSystem
from logstore.storage.index.entry_file import Column, EntryFile
from logstore.types import INT64_MAX, NO_OFFSET, AbortedTxn

VERSION = 0


class TransactionIndex(EntryFile):
    """List of aborted transactions, in the order of their markers.

    Parameters
    ----------
    fs : FileSystem
        File system that contains the file.
    path : str
        Path of the file, which the first append creates.
    base_offset : int
        The segment's base offset, a lower bound of the markers' offsets.
    writable : bool, optional
        Whether the file may be created and changed (default: True).
    """

    ENTRY = struct.Struct(">hqqqq")
    LAST_OFFSET = Column(struct.Struct(">q"), 18)
    KEY = LAST_OFFSET
    assert ENTRY.size == 34

    def __init__(
        self, fs: FileSystem, path: str, base_offset: int, *, writable: bool = True
    ) -> None:
        super().__init__(fs, path, base_offset, writable=writable)

    @property
    def is_empty(self) -> bool:
        """Whether the index has no entries. Does not create the file."""
        self._ready()
        return self._entries == 0

    @property
    def last_txn(self) -> AbortedTxn | None:
        """The last entry, or None if the index is empty."""
        self._ready()
        return None if self._last is None else self._txn(self._entries - 1, self._last)

    def append(self, txn: AbortedTxn) -> None:
        """Add an entry. The first one creates the file.

        Raises
        ------
        InvalidOffsetError
            `txn.last_offset` is not above the last offset of the previous entry.
        """
        self.extend([txn])

    def extend(self, txns: Sequence[AbortedTxn]) -> None:
        """Add several entries in one write, or none if any of them is invalid; see `append`."""
        if not txns:
            return
        self._writing()
        last_offset = NO_OFFSET if self._last is None else self._last[3]
        for txn in txns:
            if txn.last_offset <= last_offset:
                raise InvalidOffsetError(
                    f"{self._path}: last offset {txn.last_offset} of a transaction is not above"
                    f" the previous one, {last_offset}"
                )
            last_offset = txn.last_offset
        self._put_rows(b"".join(self.ENTRY.pack(VERSION, *txn) for txn in txns))

    def entries(self) -> list[AbortedTxn]:
        """Return all entries in order.

        Raises
        ------
        CorruptIndexError
            An entry has an unsupported version.
        """
        return [self._txn(slot, row) for slot, row in enumerate(self._rows())]

    def collect_aborted_txns(
        self, fetch_offset: int, upper_bound_offset: int
    ) -> tuple[list[AbortedTxn], bool]:
        """Find the aborted transactions that overlap a range of offsets.

        Parameters
        ----------
        fetch_offset : int
            First offset of the range, inclusive.
        upper_bound_offset : int
            End of the range, exclusive.

        Returns
        -------
        txns : list of AbortedTxn
            The transactions, in the order of their markers.
        is_complete : bool
            True if no later segment can add transactions, because an entry shows that everything
            below the end of the range was stable.

        Raises
        ------
        CorruptIndexError
            An entry has an unsupported version.

        Notes
        -----
        O(log entries + entries read).
        """
        first = 0
        if fetch_offset < upper_bound_offset:
            # A transaction that ended before the range does not overlap it. Nor does it complete
            # the search, because an abort only makes offsets up to its marker stable.
            first, _, _ = self._search(self.LAST_OFFSET, fetch_offset)
        txns: list[AbortedTxn] = []
        for slot, row in enumerate(self._rows(first), first):
            txn = self._txn(slot, row)
            if txn.last_offset >= fetch_offset and txn.first_offset < upper_bound_offset:
                txns.append(txn)
            if txn.last_stable_offset >= upper_bound_offset:
                return txns, True
        return txns, False

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose last offset is at or above `offset`. Does not create the file."""
        if self._ready() is None:
            return
        entries, _, _ = self._search(self.LAST_OFFSET, offset)
        if entries < self._entries:
            self._cut(entries)
            self._set_length(entries * self.ENTRY.size)

    def reset(self) -> None:
        """Drop all entries. An existing file is truncated to length 0."""
        if self._ready() is not None:
            self._cut(0)
            self._set_length(0)

    def sanity_check(self, end_offset: int | None = None) -> None:
        """Verify each entry. Does not create the file.

        Parameters
        ----------
        end_offset : int, optional
            End of the segment (exclusive), if known.

        Raises
        ------
        CorruptIndexError
            The length is not a multiple of the entry size, or an entry has an unknown version, a
            negative producer id or offset, an end outside the segment or not above the previous
            end, an end before its start, or a last stable offset above its marker.

        Notes
        -----
        O(entries). Run when a log is loaded.
        """
        self._ready()
        self._check_length()
        previous = self._base_offset - 1
        end_offset = INT64_MAX if end_offset is None else end_offset
        for slot, txn in enumerate(self.entries()):
            for check, found, least, most in (
                ("producer id", txn.producer_id, 0, INT64_MAX),
                ("last offset", txn.last_offset, previous + 1, end_offset - 1),
                ("first offset", txn.first_offset, 0, txn.last_offset - 1),
                ("last stable offset", txn.last_stable_offset, 0, txn.last_offset + 1),
            ):
                if not least <= found <= most:
                    raise CorruptIndexError(
                        f"{check} {found} of an aborted transaction is not within {least} and"
                        f" {most}",
                        path=self._path,
                        position=slot * self.ENTRY.size,
                        check=check,
                        expected=least if found < least else most,
                        found=found,
                    )
            previous = txn.last_offset

    def _txn(self, slot: int, row: tuple[int, ...]) -> AbortedTxn:
        version, *numbers = row
        if version > VERSION:
            raise CorruptIndexError(
                f"aborted transaction of version {version}, newest known is {VERSION}",
                path=self._path,
                position=slot * self.ENTRY.size,
                check="version is known",
                expected=VERSION,
                found=version,
            )
        return AbortedTxn(*numbers)

    def _check(self) -> None:
        """Assert that last offsets are strictly increasing and the file ends after its entries."""
        super()._check()
        if self._file is not None:
            last_offsets = [row[3] for row in self._rows(self._loaded)]
            assert last_offsets == sorted(set(last_offsets))
            assert self._length - self._entries * self.ENTRY.size < self.ENTRY.size
