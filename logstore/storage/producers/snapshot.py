"""Byte table of a producer snapshot, `<20-digit offset>.snapshot`.

Offset  Size  Field
     0     2  version i16, 1
     2     4  crc u32, CRC-32C of bytes 6 to the end
     6     4  entry count i32
    10    46  entries, each:
               0   8  producerId i64
               8   2  producerEpoch i16
              10   4  lastSequence i32, -1 without a batch
              14   8  lastOffset i64, -1 without a batch
              22   4  offsetDelta i32, 0 without a batch
              26   8  timestamp i64, of the last activity
              34   4  coordinatorEpoch i32
              38   8  currentTxnFirstOffset i64, -1 outside a transaction

All numbers are big-endian. A snapshot contains the state after every batch below its offset. It is
derived data: a damaged snapshot is deleted and an older one used. Source: storage-format §9.2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import NamedTuple

from logstore.errors import CorruptSnapshotError
from logstore.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, file_name, parse_segment_file
from logstore.record.crc32c import crc32c
from logstore.runtime.fs import FileSystem, open_anew
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.types import SMALL_FILE_MAX_BYTES

SNAPSHOT_VERSION = 1

_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
CRC_POSITION = 2
CRC_START = CRC_POSITION + 4
HEADER_SIZE = CRC_START + 4
ENTRY_SIZE = _ENTRY.size
assert HEADER_SIZE == _HEADER.size == 10
assert ENTRY_SIZE == 46


class SnapshotEntry(NamedTuple):
    """A producer as stored in a snapshot. -1 means "none", as in the table above."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """Return the bytes of a snapshot. The order of the entries is not significant."""
    body = b"".join(_ENTRY.pack(*entry) for entry in entries)
    counted = struct.pack(">i", len(body) // ENTRY_SIZE) + body
    return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(counted)) + counted


def decode_snapshot(
    data: bytes, path: str | None = None, end_offset: int | None = None
) -> list[SnapshotEntry]:
    """Decode a snapshot.

    Parameters
    ----------
    data : bytes
        The whole file.
    path : str, optional
        Path of the snapshot, for error messages.
    end_offset : int, optional
        The snapshot's offset. All batches in the snapshot must be below it.

    Raises
    ------
    CorruptSnapshotError
        The data is too short, has an unknown version, a wrong CRC or an entry count that does not
        match the length, or contains producers that cannot result from a log.
    """
    if len(data) < HEADER_SIZE:
        raise CorruptSnapshotError(
            f"{len(data)} bytes are too few for a snapshot",
            path=path,
            check="length",
            expected=HEADER_SIZE,
            found=len(data),
        )
    version, crc, count = _HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshotError(
            f"unknown snapshot version {version}",
            path=path,
            position=0,
            check="version",
            expected=SNAPSHOT_VERSION,
            found=version,
        )
    computed = crc32c(data[CRC_START:])
    if computed != crc:
        raise CorruptSnapshotError(
            f"stored CRC {crc} differs from computed {computed}",
            path=path,
            position=CRC_POSITION,
            check="crc",
            expected=crc,
            found=computed,
        )
    if len(data) != HEADER_SIZE + count * ENTRY_SIZE:
        raise CorruptSnapshotError(
            f"{count} entries do not occupy exactly {len(data)} bytes",
            path=path,
            position=CRC_START,
            check="entry count",
            expected=(len(data) - HEADER_SIZE) / ENTRY_SIZE,
            found=count,
        )
    entries = [SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(data[HEADER_SIZE:])]
    _check_entries(entries, end_offset, path)
    return entries


def _check_entries(
    entries: Sequence[SnapshotEntry], end_offset: int | None, path: str | None
) -> None:
    """Refuse producers that cannot result from a log, even if the CRC is valid."""
    producers: set[int] = set()
    transactions: set[int] = set()
    for slot, entry in enumerate(entries):
        txn_offset = entry.current_txn_first_offset
        reach = max(entry.last_offset, txn_offset)
        reason = None
        if entry.producer_id < 0 or entry.producer_id in producers:
            reason = f"producer {entry.producer_id} is negative or occurs twice"
        elif txn_offset >= 0 and txn_offset in transactions:
            reason = f"two transactions begin at offset {txn_offset}"
        elif end_offset is not None and reach >= end_offset:
            reason = f"it contains offset {reach}, which is not below its end {end_offset}"
        if reason is not None:
            raise CorruptSnapshotError(
                reason,
                path=path,
                position=HEADER_SIZE + slot * ENTRY_SIZE,
                check="entry",
                found=tuple(entry),
            )
        producers.add(entry.producer_id)
        transactions.add(txn_offset)


class SnapshotFiles:
    """The snapshot files of a partition.

    Parameters
    ----------
    fs : FileSystem
    directory : str
        The partition's directory, which must exist. It is listed once, by the constructor.
    """

    def __init__(
        self, fs: FileSystem, directory: str, max_bytes: int = SMALL_FILE_MAX_BYTES
    ) -> None:
        self._fs = fs
        self._max_bytes = max_bytes
        self._directory = directory
        self._offsets: set[int] = set()
        self.reload()

    @property
    def offsets(self) -> list[int]:
        """Offsets of the snapshot files, ascending."""
        return sorted(self._offsets)

    @property
    def latest_offset(self) -> int | None:
        """Offset of the newest snapshot file, or None if there is none."""
        return max(self._offsets, default=None)

    def reload(self) -> None:
        """List the directory again."""
        self._offsets.clear()
        for name in self._fs.list_dir(self._directory):
            parsed = parse_segment_file(name)
            if parsed is not None and name == file_name(parsed.base_offset, SNAPSHOT_SUFFIX):
                self._offsets.add(parsed.base_offset)

    def path(self, offset: int) -> str:
        """Return the path of the snapshot with all batches below `offset` applied."""
        return f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def read(self, offset: int) -> list[SnapshotEntry]:
        """Return the entries of a snapshot. Raises the same errors as `decode_snapshot`."""
        path = self.path(offset)
        data = read_bytes(self._fs, path, self._max_bytes, error=CorruptSnapshotError)
        return decode_snapshot(data, path, offset)

    def write(self, offset: int, entries: Iterable[SnapshotEntry], *, sync: bool) -> str:
        """Write a snapshot and return its path.

        An existing snapshot with the same offset is replaced. The write is not atomic, because a
        torn file has a wrong CRC and is therefore ignored.
        """
        path = self.path(offset)
        with closing(open_anew(self._fs, path)) as file:
            file.append([encode_snapshot(entries)])
            if sync:
                file.sync()
        self._offsets.add(offset)
        return path

    def delete(self, offset: int) -> None:
        """Remove the snapshot of `offset`, if there is one."""
        self._offsets.discard(offset)
        if self._fs.exists(self.path(offset)):
            self._fs.remove(self.path(offset))

    def mark_deleted(self, offset: int) -> str | None:
        """Rename a snapshot to `.snapshot.deleted`. Return the new path, or None if missing."""
        self._offsets.discard(offset)
        path = self.path(offset)
        if not self._fs.exists(path):
            return None
        self._fs.rename(path, path + DELETED_SUFFIX)
        return path + DELETED_SUFFIX
