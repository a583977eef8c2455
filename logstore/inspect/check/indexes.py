"""Check of a segment's indexes against its batches, which are read in parallel."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from logstore.errors import CorruptRecordError, InvalidRecordError
from logstore.inspect.check.findings import ERROR, INFO, WARNING, CheckFinding, finding, unreadable
from logstore.record.batch import RecordBatch
from logstore.record.scan import ScannedBatch
from logstore.runtime.fs import File, FileSystem
from logstore.storage.index import OffsetIndex, TimeIndex, TransactionIndex
from logstore.storage.index.transaction_index import VERSION
from logstore.types import NO_TIMESTAMP, AbortedTxn

_CHUNK_ENTRIES = 2048


class IndexedSegment(NamedTuple):
    """Properties of a segment against which its indexes are checked.

    Attributes
    ----------
    log_size : int
        Size of the `.log` in bytes.
    end_offset : int or None
        Base offset of the next segment, or None for the last segment.
    may_be_padded : bool
        Whether zeros after the last entry are valid, as in the active segment after an unclean
        shutdown.
    """

    base_offset: int
    log_size: int
    end_offset: int | None
    may_be_padded: bool


class _Entry(NamedTuple):
    """An index entry, with its slot and its two stored numbers."""

    slot: int
    first: int
    second: int


class _IndexCheck:
    """Checks an index entry by entry. The caller collects the findings with `take`.

    An unreadable index counts as empty, and its segment is still checked.
    """

    KIND: str
    ENTRY: struct.Struct

    def __init__(self, fs: FileSystem, path: str, segment: IndexedSegment) -> None:
        self.path = path
        self.segment = segment
        self.findings: list[CheckFinding] = []
        self._rejected = False
        self._is_readable = True
        self._file: File | None = None
        try:
            self._file = fs.open(path)
        except OSError as error:
            self._report_unreadable(error)
        self._entries = self._sound_entries()
        self._pending = next(self._entries, None)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def take(self) -> list[CheckFinding]:
        """Return the findings since the last call."""
        found, self.findings = self.findings, []
        return found

    def skip(self, position: int, end_position: int) -> None:
        """Skip the entries of an unreadable range of the `.log`."""
        raise NotImplementedError

    def _next(self) -> None:
        self._pending = next(self._entries, None)

    def _sound_entries(self) -> Iterator[_Entry]:
        """Yield the entries that are within bounds and in order. Report the others.

        If two entries are out of order, the second one is at fault, unless the entry after it is
        also out of order with the first one. Entries are not compared with entries at fault.
        """
        last: _Entry | None = None
        window: list[_Entry] = []
        rows = self._bounded_rows()
        while True:
            window.extend(itertools.islice(rows, 3 - len(window)))
            if not window:
                return
            entry = window.pop(0)
            if last is not None and not self._rises(last, entry):
                self._report_order(entry, last)
            elif self._is_outlier(entry, window, last):
                self._report_order(entry, window[0])
            else:
                self._rejected = False
                yield entry
                if not self._rejected:
                    last = entry

    def _is_outlier(self, entry: _Entry, window: list[_Entry], last: _Entry | None) -> bool:
        return (
            len(window) == 2
            and self._rises(*window)
            and not any(self._rises(entry, earlier) for earlier in window)
            and (last is None or self._rises(last, window[0]))
        )

    def _bounded_rows(self) -> Iterator[_Entry]:
        """Yield the entries within bounds. Report the others."""
        raise NotImplementedError

    def _rises(self, entry: _Entry, following: _Entry) -> bool:
        raise NotImplementedError

    def _report_order(self, entry: _Entry, other: _Entry) -> None:
        """Report that an entry is out of order with the previous or next entry."""
        raise NotImplementedError

    def _rows(self) -> Iterator[_Entry]:
        """Yield the entries. Report an invalid size, and zeros after the last entry."""
        if self._file is not None:
            try:
                yield from self._read_rows(self._file)
            except OSError as error:
                self._report_unreadable(error)

    def _report_unreadable(self, error: OSError) -> None:
        self._is_readable = False
        self.findings.append(unreadable(self.path, error))

    def _read_rows(self, file: File) -> Iterator[_Entry]:
        size = file.size()
        count = size // self.ENTRY.size
        used = count * self.ENTRY.size
        if size != used:
            self.findings.append(
                finding(f"{self.KIND}_size", self.path, used, expected=used, found=size)
            )
        slot = 0
        while slot < count:
            data = file.read(
                slot * self.ENTRY.size, min(_CHUNK_ENTRIES, count - slot) * self.ENTRY.size
            )
            if not data:
                return
            whole = len(data) // self.ENTRY.size * self.ENTRY.size
            for first, second in self.ENTRY.iter_unpack(data[:whole]):
                if first == second == 0 and self._is_padding(file, slot, count):
                    return
                yield _Entry(slot, first, second)
                slot += 1

    def _is_padding(self, file: File, slot: int, count: int) -> bool:
        """Return whether a slot and all later slots are zero. A single zero entry is valid."""
        if slot == 0 and count == 1:
            return False
        position, end = slot * self.ENTRY.size, count * self.ENTRY.size
        start = position
        while position < end and (piece := file.read(position, min(1 << 20, end - position))):
            if piece.strip(b"\0"):
                return False
            position += len(piece)
        if not self.segment.may_be_padded:
            self.findings.append(
                finding(f"{self.KIND}_padding", self.path, start, expected=start, found=end)
            )
        return True

    def _wrong(
        self,
        check: str,
        entry: _Entry,
        offset: int,
        expected: object,
        found: object,
        severity: str = ERROR,
    ) -> None:
        self._rejected = self._rejected or severity == ERROR
        self.findings.append(
            finding(
                check,
                self.path,
                entry.slot * self.ENTRY.size,
                offset=offset,
                expected=expected,
                found=found,
                severity=severity,
            )
        )

    def _is_outside(self, relative_offset: int) -> bool:
        end = self.segment.end_offset
        return relative_offset < 0 or (
            end is not None and self.segment.base_offset + relative_offset >= end
        )


class _EntryBeyondBatch(NamedTuple):
    """An index entry whose offset is above the last offset of the batch it points to."""

    entry: _Entry
    offset: int
    last_offset: int
    ends_a_batch: bool = False


class OffsetIndexCheck(_IndexCheck):
    """Checks an offset index: entries increase, and have a batch's position and last offset."""

    KIND = "index"
    ENTRY = OffsetIndex.ENTRY

    def __init__(self, fs: FileSystem, path: str, segment: IndexedSegment) -> None:
        self._entry_beyond_batch: _EntryBeyondBatch | None = None
        self._first_chunk: _EntryBeyondBatch | None = None
        self._chunk_count = 0
        super().__init__(fs, path, segment)

    def batch(self, scanned: ScannedBatch) -> None:
        """Check the entries up to a batch."""
        self._measure(scanned)
        while (entry := self._pending) is not None and entry.second <= scanned.position:
            offset = self.segment.base_offset + entry.first
            if entry.second < scanned.position:
                self._wrong("index_position", entry, offset, "the start of a batch", entry.second)
            else:
                self._settle(scanned.header.base_offset)
                if scanned.batch is not None:
                    self._match(entry, offset, scanned)
            self._next()

    def skip(self, position: int, end_position: int) -> None:
        """Skip the entries that point into an unreadable range."""
        while (entry := self._pending) is not None and entry.second < end_position:
            offset = self.segment.base_offset + entry.first
            if entry.second < position:
                self._wrong("index_position", entry, offset, "the start of a batch", entry.second)
            self._next()

    def finish(self, end_position: int, next_offset: int, *, end_is_known: bool) -> None:
        """Check the remaining entries, given the end position and next offset of the last batch."""
        self._settle(next_offset if end_is_known else None)
        while (entry := self._pending) is not None:
            if end_is_known:
                offset = self.segment.base_offset + entry.first
                self._wrong("index_position", entry, offset, end_position, entry.second)
            self._next()
        if (first := self._first_chunk) is not None:
            more = self._chunk_count - 1
            found = f"{first.offset}, and {more} more such entries" if more else first.offset
            self._wrong("index_chunked", first.entry, first.offset, first.last_offset, found, INFO)

    def _match(self, entry: _Entry, offset: int, scanned: ScannedBatch) -> None:
        header = scanned.header
        if offset == header.last_offset:
            return
        if offset < header.base_offset:
            self._wrong("index_entry", entry, offset, header.last_offset, offset)
        else:
            self._entry_beyond_batch = _EntryBeyondBatch(entry, offset, header.last_offset)

    def _measure(self, scanned: ScannedBatch) -> None:
        """Note whether a batch is the last batch of the chunk that an entry may cover."""
        loose = self._entry_beyond_batch
        if loose is not None and scanned.header.last_offset == loose.offset:
            self._entry_beyond_batch = loose._replace(ends_a_batch=True)

    def _settle(self, next_offset: int | None) -> None:
        """Check the last loose entry, once the next entry is known.

        If Kafka wrote one entry per chunk of batches, the entry covers all batches up to the next
        entry and contains the last offset of the chunk.
        """
        loose = self._entry_beyond_batch
        if loose is None:
            return
        self._entry_beyond_batch = None
        entry, offset, last_offset, ends_a_batch = loose
        if next_offset is not None and offset >= next_offset:
            self._wrong("index_entry", entry, offset, last_offset, offset)
        elif ends_a_batch:
            self._first_chunk = self._first_chunk or loose
            self._chunk_count += 1
        elif next_offset is not None:
            self._wrong("index_chunked", entry, offset, last_offset, offset, WARNING)

    def _bounded_rows(self) -> Iterator[_Entry]:
        for entry in self._rows():
            offset = self.segment.base_offset + entry.first
            if self._is_outside(entry.first):
                self._wrong("index_range", entry, offset, self.segment.end_offset, offset)
            elif not 0 <= entry.second < self.segment.log_size:
                self._wrong("index_position", entry, offset, self.segment.log_size, entry.second)
            else:
                yield entry

    def _rises(self, entry: _Entry, following: _Entry) -> bool:
        return entry.first < following.first and entry.second < following.second

    def _report_order(self, entry: _Entry, other: _Entry) -> None:
        base_offset = self.segment.base_offset
        expected = f"in order with offset {base_offset + other.first} position {other.second}"
        found = f"offset {base_offset + entry.first} position {entry.second}"
        self._wrong("index_order", entry, base_offset + entry.first, expected, found)


class TimeIndexCheck(_IndexCheck):
    """Checks a time index: each entry is the largest timestamp so far and its first offset."""

    KIND = "time_index"
    ENTRY = TimeIndex.ENTRY

    def __init__(self, fs: FileSystem, path: str, segment: IndexedSegment) -> None:
        self._largest = NO_TIMESTAMP
        self._last_timestamp = NO_TIMESTAMP
        self._is_certain = True
        super().__init__(fs, path, segment)

    def batch(self, scanned: ScannedBatch) -> None:
        """Check the entries up to a batch."""
        header = scanned.header
        if scanned.batch is None:
            self._is_certain = False
            return
        while (entry := self._pending) is not None:
            offset = self.segment.base_offset + entry.second
            if offset > header.last_offset:
                break
            self._check(entry, offset, scanned)
            self._next()
        self._largest = max(self._largest, header.max_timestamp)

    def skip(self, position: int, end_position: int) -> None:
        """Record that batches could not be read."""
        self._is_certain = False

    def finish(self, next_offset: int, *, end_is_known: bool, is_closed: bool) -> None:
        """Check the remaining entries after the last batch."""
        while (entry := self._pending) is not None:
            if end_is_known and self._is_certain:
                offset = self.segment.base_offset + entry.second
                self._wrong("time_index_range", entry, offset, next_offset, offset)
            self._next()
        if not (is_closed and end_is_known and self._is_certain and self._is_readable):
            return
        if self._file is not None and self._last_timestamp < self._largest:
            self.findings.append(
                finding(
                    "time_index_last",
                    self.path,
                    self._file.size(),
                    expected=self._largest,
                    found=self._last_timestamp,
                    severity=WARNING,
                )
            )

    def _check(self, entry: _Entry, offset: int, scanned: ScannedBatch) -> None:
        header, timestamp = scanned.header, entry.first
        if offset < header.base_offset:
            if self._is_certain:
                self._wrong("time_index_entry", entry, offset, header.last_offset, offset)
        elif timestamp != header.max_timestamp:
            self._wrong("time_index_entry", entry, offset, header.max_timestamp, timestamp)
        elif self._largest > timestamp:
            self._wrong("time_index_entry", entry, offset, self._largest, timestamp)
        elif self._largest == timestamp or not _is_largest(scanned.batch, offset):
            self._wrong("time_index_offset", entry, offset, header.last_offset, offset, WARNING)

    def _bounded_rows(self) -> Iterator[_Entry]:
        for entry in self._rows():
            self._last_timestamp = entry.first
            offset = self.segment.base_offset + entry.second
            if self._is_outside(entry.second):
                self._wrong("time_index_range", entry, offset, self.segment.end_offset, offset)
            else:
                yield entry

    def _rises(self, entry: _Entry, following: _Entry) -> bool:
        return entry.first < following.first and entry.second <= following.second

    def _report_order(self, entry: _Entry, other: _Entry) -> None:
        base_offset = self.segment.base_offset
        expected = f"in order with timestamp {other.first} offset {base_offset + other.second}"
        found = f"timestamp {entry.first} offset {base_offset + entry.second}"
        self._wrong("time_index_order", entry, base_offset + entry.second, expected, found)


def _is_largest(batch: RecordBatch | None, offset: int) -> bool:
    """Return whether an offset is valid for the largest timestamp of a batch.

    The offset is the batch's last offset or, often before Kafka 3.8 (KAFKA-16310), the offset of a
    record with that timestamp.
    """
    if batch is None or offset == batch.header.last_offset:
        return True
    try:
        return any(
            record.offset == offset and record.timestamp == batch.header.max_timestamp
            for record in batch.iter_records()
        )
    except (CorruptRecordError, InvalidRecordError):
        return True  # reported for the batch itself


class TxnIndexCheck:
    """Checks a transaction index, which may be missing, against its segment's abort markers.

    The markers are collected while the segment is read, so memory grows with their number.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._aborts: dict[int, int] = {}
        self._expected: dict[int, AbortedTxn] = {}

    def abort(self, producer_id: int, offset: int) -> None:
        """Record an abort marker."""
        self._aborts[offset] = producer_id

    def expect(self, txn: AbortedTxn) -> None:
        """Record the expected index entry for an abort marker."""
        self._expected[txn.last_offset] = txn

    def finish(
        self,
        fs: FileSystem,
        segment: IndexedSegment,
        *,
        missing_end: int,
        log_start_offset: int,
        missing_severity: str,
        is_certain: bool,
        is_complete: bool,
    ) -> Iterator[CheckFinding]:
        """Yield the findings of the index.

        Parameters
        ----------
        missing_end : int
            End of the offsets in which batches, possibly of transactions, are missing.
        log_start_offset : int
            The cleaner drops the entries of transactions that ended below the log start, although
            it retains their batches (docs/spec/cleaner.md §8.1). Consumers do not read there.
        missing_severity : str
            Severity of a missing entry.
        is_certain : bool
            Whether every batch of the segment could be read.
        is_complete : bool
            Whether transactions that started before the first batch read are known.
        """
        try:
            yield from self._present(fs, segment, missing_end, is_certain, is_complete)
        except OSError as error:
            yield unreadable(self.path, error)
            return
        if not (is_certain and is_complete):
            return
        for missing in self._expected.values():
            if missing.first_offset >= missing_end and missing.last_offset >= log_start_offset:
                yield finding(
                    "txn_index_missing",
                    self.path,
                    offset=missing.last_offset,
                    expected=_shown(missing),
                    severity=missing_severity,
                )

    def _present(
        self,
        fs: FileSystem,
        segment: IndexedSegment,
        missing_end: int,
        is_certain: bool,
        is_complete: bool,
    ) -> Iterator[CheckFinding]:
        """Yield the findings of the existing entries."""
        if not fs.exists(self.path):
            return
        last_offset: int | None = None
        with closing(fs.open(self.path)) as file:
            for position, version, txn in self._entries(file):
                if version is None:
                    size = file.size()
                    yield finding(
                        "txn_index_size", self.path, position, expected=position, found=size
                    )
                    continue
                yield from self._check(
                    position,
                    version,
                    txn,
                    last_offset,
                    segment,
                    missing_end,
                    is_certain,
                    is_complete,
                )
                last_offset = txn.last_offset

    def _entries(self, file: File) -> Iterator[tuple[int, int | None, AbortedTxn]]:
        entry = TransactionIndex.ENTRY
        size = file.size()
        count = size // entry.size
        for start in range(0, count, _CHUNK_ENTRIES):
            data = file.read(start * entry.size, min(_CHUNK_ENTRIES, count - start) * entry.size)
            for slot, row in enumerate(entry.iter_unpack(data), start):
                yield slot * entry.size, row[0], AbortedTxn(*row[1:])
        if size % entry.size:
            yield count * entry.size, None, AbortedTxn(-1, -1, -1, -1)

    def _check(
        self,
        position: int,
        version: int,
        txn: AbortedTxn,
        last_offset: int | None,
        segment: IndexedSegment,
        missing_end: int,
        is_certain: bool,
        is_complete: bool,
    ) -> Iterator[CheckFinding]:
        offset = txn.last_offset

        def wrong(check: str, expected: object, found: object) -> CheckFinding:
            return finding(
                check, self.path, position, offset=offset, expected=expected, found=found
            )

        expected = self._expected.pop(offset, None)
        if version != VERSION:
            yield wrong("txn_index_version", VERSION, version)
        elif last_offset is not None and offset <= last_offset:
            yield wrong("txn_index_order", last_offset + 1, offset)
        elif offset < segment.base_offset or (
            segment.end_offset is not None and offset >= segment.end_offset
        ):
            yield wrong("txn_index_entry", segment.base_offset, offset)
        elif not is_certain:
            return
        elif self._aborts.get(offset) != txn.producer_id:
            yield wrong("txn_index_entry", self._aborts.get(offset), txn.producer_id)
        elif not (0 <= txn.first_offset <= offset and 0 <= txn.last_stable_offset <= offset + 1):
            yield wrong("txn_index_entry", None, _shown(txn))
        elif (
            expected is not None
            and not _agree(expected, txn, missing_end)
            and is_complete
            and txn.first_offset >= missing_end
        ):
            yield wrong("txn_index_entry", _shown(expected), _shown(txn))


def _agree(expected: AbortedTxn, found: AbortedTxn, missing_end: int) -> bool:
    """Return whether an entry could be correct if offsets below `missing_end` are missing.

    They may include batches of another transaction that held back the last stable offset.
    """
    stable = found.last_stable_offset
    if stable < min(expected.last_stable_offset, missing_end):
        expected = expected._replace(last_stable_offset=stable)
    return expected == found


def _shown(txn: AbortedTxn) -> str:
    return (
        f"producer {txn.producer_id} offsets {txn.first_offset}..{txn.last_offset}"
        f" last stable {txn.last_stable_offset}"
    )
