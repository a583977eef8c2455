"""Offset checkpoints: an offset for each partition of a data directory.

Source: docs/spec/storage-format.md §10.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from logstore.errors import CorruptCheckpointError
from logstore.runtime.fs import FileSystem
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.checkpoint.rows import parse_number, rows_of, write_rows
from logstore.types import SMALL_FILE_MAX_BYTES, TopicPartition

CLEANER_OFFSETS = "cleaner-offset-checkpoint"
"""First dirty offset of each compacted partition."""

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
"""Offset below which each partition is known to be flushed."""

LOG_START_OFFSETS = "log-start-offset-checkpoint"
"""Log start offset of each log that starts above the base of its first segment."""

REPLICATION_OFFSETS = "replication-offset-checkpoint"
"""High watermark of each partition."""

CHECKPOINTS = (RECOVERY_POINTS, REPLICATION_OFFSETS, LOG_START_OFFSETS, CLEANER_OFFSETS)
"""The four offset checkpoints of a data directory."""


class OffsetCheckpoint:
    """One offset for each partition of a log directory.

    Parameters
    ----------
    fs : FileSystem
    path : str
        Path of the file. Its name is one of the constants at the top of this module.
    lock : context manager, optional
        Held during reads and writes, so that no two threads use the same `.tmp` file. Pass
        `Runtime.lock()` if several threads share the object.
    max_bytes : int, optional
        See `read_bytes`.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        *,
        lock: AbstractContextManager[object] | None = None,
        max_bytes: int = SMALL_FILE_MAX_BYTES,
    ) -> None:
        self._fs = fs
        self.path = path
        self._max_bytes = max_bytes
        self._lock = nullcontext() if lock is None else lock
        self._parsed: tuple[bytes, dict[TopicPartition, int]] = (b"", {})

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets, or an empty dict if the file is missing or empty.

        The file is read on each call, but parsed only if it has changed. If a partition has several
        entries, the last one counts.

        Raises
        ------
        CorruptCheckpointError
            See `read_rows`. Negative numbers are accepted, as in Kafka; the caller clamps offsets.
        """
        with self._lock:
            try:
                data = read_bytes(self._fs, self.path, self._max_bytes)
            except FileNotFoundError:
                data = b""
        before, offsets = self._parsed
        if data != before:
            offsets = self._parse(data)
            self._parsed = (data, offsets)
        return offsets.copy()

    def _parse(self, data: bytes) -> dict[TopicPartition, int]:
        offsets = {}
        for row in rows_of(data, self.path, 3):
            if not _is_topic(row.fields[0]):
                raise CorruptCheckpointError(
                    f"line {row.line}: {row.fields[0]!r} is not a topic",
                    path=self.path,
                    check="topic",
                    found=row.fields[0],
                )
            partition = parse_number(self.path, row, 1, "partition", bits=32)
            offset = parse_number(self.path, row, 2, "offset", bits=64)
            offsets[TopicPartition(row.fields[0], partition)] = offset
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace all entries, sorted by topic and partition. They are durable when it returns."""
        for topic, _ in offsets:
            assert _is_topic(topic), f"{topic!r} cannot be stored on one line"
        rows = [(tp.topic, tp.partition, offsets[tp]) for tp in sorted(offsets)]
        with self._lock:
            self._parsed = (write_rows(self._fs, self.path, rows), dict(offsets))


def _is_topic(text: str) -> bool:
    """Return whether a name is not empty and has no whitespace."""
    return bool(text) and not any(map(str.isspace, text))
