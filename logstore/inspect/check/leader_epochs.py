"""Check of the batches' leader epochs against `leader-epoch-checkpoint`.

The batch's CRC does not cover this field, so only the checkpoint and adjacent batches can reveal a
wrong epoch.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from logstore.inspect.check.findings import ERROR, INFO, WARNING, CheckFinding, finding
from logstore.inspect.check.small_files import EpochRow, read_epochs
from logstore.record.header import BatchHeader
from logstore.runtime.fs import FileSystem
from logstore.types import NO_PARTITION_LEADER_EPOCH


class LeaderEpochs:
    """Checks the leader epochs of a partition, batch by batch.

    Parameters
    ----------
    path : str
        Path of `leader-epoch-checkpoint`.
    log_start_offset : int
        The log start. The checkpoint need not contain epochs below it.
    is_start_known : bool
        Whether the log starts exactly at `log_start_offset`, and not above it.
    """

    def __init__(self, path: str, log_start_offset: int, *, is_start_known: bool) -> None:
        self._path = path
        self._is_start_known = is_start_known
        self._log_start_offset = log_start_offset
        self._rows: list[EpochRow] = []
        self._is_sound = True
        self._last_epoch = NO_PARTITION_LEADER_EPOCH
        self._fault: tuple[int, int] | None = None
        self._unknown: BatchHeader | None = None

    @property
    def start_offsets(self) -> list[int]:
        """First offset of each epoch in the checkpoint."""
        return [row.start_offset for row in self._rows]

    def read(self, fs: FileSystem, max_bytes: int) -> Iterator[CheckFinding]:
        """Read the checkpoint, up to `max_bytes`, and yield its faults."""
        for row in read_epochs(fs, self._path, max_bytes):
            if isinstance(row, EpochRow):
                self._rows.append(row)
            else:
                self._is_sound = False
                yield row

    def batch(
        self, header: BatchHeader, following: BatchHeader | None, path: str, position: int
    ) -> Iterator[CheckFinding]:
        """Check the leader epoch of the next batch.

        `following` is the next batch, if known. If consecutive batches have the same fault, only
        the first one is reported.
        """
        if not self._is_sound:
            return
        yield from self._inside(header)
        found = header.partition_leader_epoch
        expected = self._expected(header, following)
        if expected is None or found in (expected, NO_PARTITION_LEADER_EPOCH):
            self._fault = None
            return
        fault = (expected, found)
        if fault != self._fault:
            yield finding(
                "leader_epoch",
                path,
                position,
                offset=header.base_offset,
                expected=expected,
                found=found,
            )
        self._fault = fault

    def finish(self, end_offset: int | None, *, is_clean: bool) -> Iterator[CheckFinding]:
        """Yield the findings that require all batches. `end_offset` is the log end, if known.

        After an unclean shutdown, the first batches of an epoch may be lost because they were not
        flushed.
        """
        if not self._is_sound:
            return
        unknown, rows = self._unknown, self._rows
        if unknown is not None:
            # An epoch that starts between its own batches was moved up with the log start, before a
            # crash reverted the log start to its last checkpoint.
            was_moved = bool(rows) and rows[0].epoch == self._last_epoch
            yield finding(
                "epoch_missing",
                self._path,
                rows[0].position if rows else None,
                offset=unknown.base_offset,
                expected=unknown.partition_leader_epoch,
                found=f"none before offset {rows[0].start_offset}" if rows else "none",
                severity=INFO if was_moved else WARNING,
            )
        for row in rows:
            start = row.start_offset
            if end_offset is not None and start > end_offset:
                yield finding(
                    "epoch_beyond_end",
                    self._path,
                    row.position,
                    offset=start,
                    expected=end_offset,
                    found=start,
                    severity=ERROR if is_clean else WARNING,
                )

    def _expected(self, header: BatchHeader, following: BatchHeader | None) -> int | None:
        """Return the epoch that a batch should have, or None if its own epoch could be correct."""
        start = self._log_start_offset
        # The first entry starts at the log start, even if that is inside a batch.
        is_cut = header.base_offset < start <= header.last_offset
        known = self._known(start if is_cut else header.base_offset)
        if known is not None:
            return known
        found = header.partition_leader_epoch
        if found < NO_PARTITION_LEADER_EPOCH:
            return NO_PARTITION_LEADER_EPOCH
        if found == NO_PARTITION_LEADER_EPOCH:
            return None
        if found < self._last_epoch:
            return self._last_epoch
        # Epochs never decrease, so an epoch above a later epoch is wrong.
        if following is not None:
            later = following.partition_leader_epoch
            if 0 <= self._last_epoch <= later < found:
                return later
        if self._rows and found > self._rows[0].epoch:
            return self._rows[0].epoch
        self._last_epoch = found
        is_due = self._is_start_known or not self._rows
        if self._unknown is None and is_due and header.last_offset >= start:
            self._unknown = header
        return None

    def _known(self, offset: int) -> int | None:
        count = bisect.bisect_right(self._rows, offset, key=_start_offset)
        return self._rows[count - 1].epoch if count else None

    def _inside(self, header: BatchHeader) -> Iterator[CheckFinding]:
        """Check that no epoch starts inside a batch, because a batch has a single epoch.

        The first entry is exempt: it moves up with the log start, which may be anywhere.
        """
        slot = bisect.bisect_right(self._rows, header.base_offset, key=_start_offset)
        for row in self._rows[max(slot, 1) :]:
            if row.start_offset > header.last_offset:
                return
            yield finding(
                "epoch_inside_batch",
                self._path,
                row.position,
                offset=row.start_offset,
                expected=f"{header.base_offset} or {header.next_offset}",
                found=row.start_offset,
            )


def _start_offset(row: EpochRow) -> int:
    return row.start_offset
