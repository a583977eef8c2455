"""Checks of single checkpoints and snapshots, entry by entry."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from logstore.errors import CorruptCheckpointError, CorruptSnapshotError
from logstore.inspect.check.findings import WARNING, CheckFinding, finding, unreadable
from logstore.runtime.fs import FileSystem
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.checkpoint.rows import CHECKPOINT_VERSION
from logstore.storage.producers.snapshot import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SnapshotEntry,
    decode_snapshot,
)
from logstore.types import TopicPartition

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_GAP = re.compile(r"[ \t\v\f]+")

_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
assert _SNAPSHOT_ENTRY.size == ENTRY_SIZE
_SNAPSHOT_CHECKS = {"version": "snapshot_version", "crc": "snapshot_crc"}


class TableRow(NamedTuple):
    """An entry in a text checkpoint and the position of its line."""

    position: int
    fields: list[str]


class OffsetRow(NamedTuple):
    """An entry of an offset checkpoint."""

    position: int
    topic_partition: TopicPartition
    offset: int


class SnapshotRow(NamedTuple):
    """An entry of a snapshot."""

    position: int
    entry: SnapshotEntry


class EpochRow(NamedTuple):
    """An entry of `leader-epoch-checkpoint`."""

    position: int
    epoch: int
    start_offset: int


def read_table(
    fs: FileSystem, path: str, field_count: int, numbers: tuple[int, ...], max_bytes: int
) -> Iterator[TableRow | CheckFinding]:
    """Yield the entries of a text checkpoint, and findings. Yield nothing if it is missing.

    Parameters
    ----------
    fs : FileSystem
    path : str
    field_count : int
        Number of fields of an entry.
    numbers : tuple of int
        Indexes of the fields that must be non-negative numbers.
    max_bytes : int
        Maximum size of the file, here and below.
    """
    if not fs.exists(path):
        return
    try:
        lines = _lines(read_bytes(fs, path, max_bytes))
    except (OSError, CorruptCheckpointError) as error:
        yield unreadable(path, error)
        return
    if not lines:
        return
    position, text = lines[0]
    if not (_NUMBER.fullmatch(text) and int(text) == CHECKPOINT_VERSION):
        yield finding("checkpoint_version", path, position, expected=0, found=text)
        return
    if len(lines) < 2:
        return
    position, text = lines[1]
    announced = int(text) if _NUMBER.fullmatch(text) else None
    if announced != len(lines) - 2:
        yield finding("checkpoint_count", path, position, expected=len(lines) - 2, found=text)
    for position, text in lines[2:]:
        fields = _GAP.split(text.rstrip(" \t\v\f"))
        if len(fields) == field_count and all(_is_natural(fields[number]) for number in numbers):
            yield TableRow(position, fields)
        else:
            expected = f"{field_count} fields"
            yield finding("checkpoint_entry", path, position, expected=expected, found=text)


def read_offsets(fs: FileSystem, path: str, max_bytes: int) -> Iterator[OffsetRow | CheckFinding]:
    """Yield the entries of an offset checkpoint, and findings."""
    seen: set[TopicPartition] = set()
    for row in read_table(fs, path, 3, (1, 2), max_bytes):
        if isinstance(row, CheckFinding):
            yield row
            continue
        tp = TopicPartition(row.fields[0], int(row.fields[1]))
        if tp in seen:
            yield finding(
                "checkpoint_duplicate", path, row.position, found=str(tp), severity=WARNING
            )
        seen.add(tp)
        yield OffsetRow(row.position, tp, int(row.fields[2]))


def read_epochs(fs: FileSystem, path: str, max_bytes: int) -> Iterator[EpochRow | CheckFinding]:
    """Yield the increasing entries of a leader epoch checkpoint, and findings."""
    last: EpochRow | None = None
    for row in read_table(fs, path, 2, (0, 1), max_bytes):
        if isinstance(row, CheckFinding):
            yield row
            continue
        epoch = EpochRow(row.position, int(row.fields[0]), int(row.fields[1]))
        if last is not None and (
            epoch.epoch <= last.epoch or epoch.start_offset <= last.start_offset
        ):
            yield finding(
                "epoch_order",
                path,
                epoch.position,
                offset=epoch.start_offset,
                expected=f"above {last.epoch} {last.start_offset}",
                found=f"{epoch.epoch} {epoch.start_offset}",
            )
            continue
        last = epoch
        yield epoch


def read_snapshot(
    fs: FileSystem, path: str, offset: int, max_bytes: int
) -> Iterator[SnapshotRow | CheckFinding]:
    """Yield the entries of the snapshot of `offset`, and findings."""
    try:
        data = read_bytes(fs, path, max_bytes)
    except (OSError, CorruptCheckpointError) as error:
        yield unreadable(path, error)
        return
    try:
        decode_snapshot(data, path)
    except CorruptSnapshotError as error:
        if error.check != "entry":  # entries are checked individually below
            yield finding(
                _SNAPSHOT_CHECKS.get(error.check or "", "snapshot_size"),
                path,
                error.position or 0,
                offset=offset,
                expected=error.expected,
                found=error.found,
            )
            return
    producers: set[int] = set()
    transactions: set[int] = set()
    for slot, row in enumerate(_SNAPSHOT_ENTRY.iter_unpack(data[HEADER_SIZE:])):
        entry = SnapshotEntry._make(row)
        position = HEADER_SIZE + slot * ENTRY_SIZE
        fault = _impossible(entry, offset, producers, transactions)
        producers.add(entry.producer_id)
        transactions.add(entry.current_txn_first_offset)
        if fault is None:
            yield SnapshotRow(position, entry)
        else:
            yield finding(
                "snapshot_entry",
                path,
                position,
                offset=offset,
                expected=fault[0],
                found=fault[1],
            )


def _impossible(
    entry: SnapshotEntry, offset: int, producers: set[int], transactions: set[int]
) -> tuple[str, object] | None:
    """Return the expected and actual value of an impossible entry, or None if it is valid."""
    opened_at = entry.current_txn_first_offset
    if entry.producer_id < 0:
        return "a producer id", entry.producer_id
    if entry.producer_id in producers:
        return "each producer once", entry.producer_id
    if entry.last_offset >= offset:
        return f"a last offset below {offset}", entry.last_offset
    if opened_at >= offset:
        return f"a first offset below {offset}", opened_at
    if opened_at >= 0 and opened_at in transactions:
        return "one transaction an offset", opened_at
    if entry.last_offset >= 0 and not 0 <= entry.offset_delta <= entry.last_offset:
        return f"an offset delta up to {entry.last_offset}", entry.offset_delta
    return None


def _lines(data: bytes) -> list[tuple[int, str]]:
    """Return the lines and their positions."""
    lines = []
    position = 0
    for line in data.splitlines(keepends=True):
        lines.append((position, line.rstrip(b"\r\n").decode("utf-8", "replace")))
        position += len(line)
    return lines


def _is_natural(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and int(text) >= 0
