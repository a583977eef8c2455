"""Leader epochs: the start offset of each leader's term.

The cache is a list of `(epoch, start_offset)`, strictly increasing in both, stored in the
partition's `leader-epoch-checkpoint`. An epoch is durable before its first record is appended.
Truncations may remain in memory, because loading repeats them from the bounds of the log (S-108).
Source: docs/spec/storage-format.md §15, and Kafka's LeaderEpochFileCache.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import CorruptCheckpointError
from logstore.names import LEADER_EPOCHS
from logstore.runtime.fs import FileSystem
from logstore.storage.checkpoint.atomic import write_all_atomically
from logstore.storage.checkpoint.rows import encode_rows, parse_number, read_rows, write_rows
from logstore.types import SMALL_FILE_MAX_BYTES

if TYPE_CHECKING:
    from logstore.runtime import Runtime

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

_logger = logging.getLogger(__name__)


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    """A leader epoch and the offset after its last record, or both -1 if unknown."""

    epoch: int
    end_offset: int


UNDEFINED_END_OFFSET = EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochCache:
    """The leader epochs of a partition, and the file that stores them.

    Parameters
    ----------
    fs : FileSystem
    directory : str
        The partition's directory.
    load : bool
        Whether to read the file. If false, the cache starts empty, and the next flush replaces the
        file (for use after `CorruptCheckpointError`).
    max_bytes : int
        Maximum size of the file.

    Attributes
    ----------
    entries : tuple of EpochEntry
        All entries as of the last change, oldest first.

    Raises
    ------
    CorruptCheckpointError
        The file is damaged, or its entries are not strictly increasing.

    Notes
    -----
    The caller must hold the log's lock for changes. Queries need no lock, because they use one
    immutable tuple.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        *,
        load: bool = True,
        max_bytes: int = SMALL_FILE_MAX_BYTES,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self.entries: tuple[EpochEntry, ...] = ()
        self._unwritten = not load
        if load:
            self.entries = _read(fs, self.path, max_bytes)

    @property
    def path(self) -> str:
        """Path of the file."""
        return f"{self._directory}/{LEADER_EPOCHS}"

    @property
    def latest(self) -> EpochEntry | None:
        """The newest entry, or None if there is none."""
        return self.entries[-1] if self.entries else None

    @property
    def earliest(self) -> EpochEntry | None:
        """The oldest entry, or None if there is none."""
        return self.entries[0] if self.entries else None

    def is_latest(self, epoch: int, offset: int) -> bool:
        """Return whether a record appended at `offset` continues the newest epoch."""
        entries = self.entries
        return bool(entries) and entries[-1][0] == epoch and entries[-1][1] <= offset

    def assign(self, epoch: int, start_offset: int, *, flush: bool = True) -> bool:
        """Record that `epoch` starts at `start_offset`.

        Removes contradicting entries (the same or a later epoch, or the same or a higher start
        offset) with a warning.

        Parameters
        ----------
        epoch : int
            At least 0.
        start_offset : int
            Offset of the epoch's first record, at least 0.
        flush : bool
            Whether to write the file durably if anything changed.

        Returns
        -------
        bool
            False if nothing changed, because `epoch` is already the newest one and starts no later.

        Raises
        ------
        ValueError
            `epoch` or `start_offset` is negative.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(
                f"a leader epoch and its start offset cannot be negative: {epoch} at {start_offset}"
            )
        if self.is_latest(epoch, start_offset):
            return False
        # Both columns increase, so contradicting entries are at the end.
        kept = self.entries
        while kept and (kept[-1].epoch >= epoch or kept[-1].start_offset >= start_offset):
            kept = kept[:-1]
        if len(kept) < len(self.entries):
            _logger.warning(
                "%s: epoch %d at offset %d replaces %s",
                self._directory,
                epoch,
                start_offset,
                [tuple(entry) for entry in self.entries[len(kept) :]],
            )
        self._replace((*kept, EpochEntry(epoch, start_offset)), flush=flush)
        return True

    def truncate_from_end(self, end_offset: int, *, flush: bool) -> None:
        """Drop the epochs that start at or above `end_offset`.

        Parameters
        ----------
        end_offset : int
            New end of the log (exclusive). A negative offset drops nothing.
        flush : bool
            Whether to write the file now instead of at a later `flush` or `assign`.
        """
        if end_offset < 0:
            return
        count = bisect.bisect_left(self.entries, end_offset, key=_start_offset)
        self._replace(self.entries[:count], flush=flush)

    def truncate_from_start(self, start_offset: int, *, flush: bool) -> None:
        """Drop the epochs that end below `start_offset`. Move the epoch that contains it up to it.

        Parameters
        ----------
        start_offset : int
            New start of the log, inclusive.
        flush : bool
            Whether to write the file now instead of at a later `flush` or `assign`.
        """
        count = bisect.bisect_right(self.entries, start_offset, key=_start_offset)
        if count == 0:
            return
        first = EpochEntry(self.entries[count - 1].epoch, start_offset)
        self._replace((first, *self.entries[count:]), flush=flush)

    def clear(self, *, flush: bool) -> None:
        """Drop all epochs. If `flush` is set, write the file now."""
        self._replace((), flush=flush)

    def flush(self) -> None:
        """Write the file durably if it is out of date."""
        if self._unwritten:
            write_rows(self._fs, self.path, self.entries)
            self._unwritten = False

    @staticmethod
    def flush_all(runtime: Runtime, caches: Iterable[LeaderEpochCache]) -> None:
        """Write the files of several partitions durably, with concurrent fsyncs."""
        stale = [cache for cache in caches if cache._unwritten]
        write_all_atomically(runtime, {cache.path: encode_rows(cache.entries) for cache in stale})
        for cache in stale:
            cache._unwritten = False

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return the end of `epoch`, or of the newest epoch before it.

        This answers Kafka's OffsetForLeaderEpoch, with which replicas and clients find the offset
        where their log diverges.

        Parameters
        ----------
        epoch : int
            The requested epoch, or -1 if unknown.
        log_end_offset : int
            End of the newest epoch (exclusive).

        Returns
        -------
        EpochEndOffset
            If `epoch` is older than all known epochs, `epoch` and the start of the oldest one. If
            it is newer, or no epochs are known, `(-1, -1)`.
        """
        entries = self.entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return UNDEFINED_END_OFFSET
        if epoch == entries[-1].epoch:
            return EpochEndOffset(epoch, log_end_offset)
        following = bisect.bisect_right(entries, epoch, key=_epoch)
        floor_epoch = entries[following - 1].epoch if following else epoch
        return EpochEndOffset(floor_epoch, entries[following].start_offset)

    def _replace(self, entries: tuple[EpochEntry, ...], *, flush: bool) -> None:
        if entries != self.entries:
            self.entries = entries
            self._unwritten = True
        if flush:
            self.flush()

    def _check(self) -> None:
        """Assert that epochs and start offsets are not negative and are strictly increasing."""
        for entry in self.entries:
            assert entry.epoch >= 0, entry
            assert entry.start_offset >= 0, entry
        assert not _first_fall(self.entries), self.entries


def _read(fs: FileSystem, path: str, max_bytes: int) -> tuple[EpochEntry, ...]:
    rows = read_rows(fs, path, 2, max_bytes)
    entries = tuple(
        EpochEntry(
            parse_number(path, row, 0, "epoch", bits=32),
            parse_number(path, row, 1, "start offset", bits=64),
        )
        for row in rows
    )
    for row, entry in zip(rows, entries, strict=True):
        if entry.epoch < 0 or entry.start_offset < 0:
            raise CorruptCheckpointError(
                f"line {row.line}: negative number in {tuple(entry)}", path=path, check="sign"
            )
    if fall := _first_fall(entries):
        raise CorruptCheckpointError(
            f"line {rows[fall].line}: {tuple(entries[fall])} does not rise above"
            f" {tuple(entries[fall - 1])} in both epoch and start offset",
            path=path,
            check="order",
            found=tuple(entries[fall]),
        )
    return entries


def _first_fall(entries: tuple[EpochEntry, ...]) -> int:
    """Return the index of the first entry not above the previous one, or 0 if there is none."""
    for slot in range(1, len(entries)):
        before, entry = entries[slot - 1], entries[slot]
        if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
            return slot
    return 0


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch


def _start_offset(entry: EpochEntry) -> int:
    return entry.start_offset
