"""Records and tombstones in the segments of a log, counted incrementally."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore import jit
from logstore.record.layout import BATCH_LENGTH_POSITION, LOG_OVERHEAD
from logstore.record.walk import walk_buffer
from logstore.simulate import kernels

if TYPE_CHECKING:
    from logstore.runtime import FileSystem
    from logstore.storage.log.log import Log
    from logstore.storage.segment.segment import LogSegment

Ints = NDArray[np.int64]

_NONE: Ints = np.zeros(0, np.int64)
_NONE.flags.writeable = False

READ_BYTES = 8 << 20
_SURVEY_SECONDS = 60e-9
"""Approximate time per byte in plain Python."""


class Tombstones(NamedTuple):
    """Tombstones of a log in offset order."""

    offsets: Ints
    timestamps: Ints


class _SegmentCounts:
    """Records and tombstones counted so far in a segment."""

    def __init__(self, segment: LogSegment) -> None:
        self.segment = segment
        self.position = self.records = 0
        self.tombstones: list[Tombstones] = []

    def add_tombstones(self, offsets: Ints, timestamps: Ints) -> None:
        """Add copies of tombstones."""
        if len(offsets):
            self.tombstones.append(Tombstones(offsets.copy(), timestamps.copy()))


class LogStatistics:
    """Records and tombstones in the segments of a log, including those below the log start.

    Attributes
    ----------
    records : int
        Data records in all segments.
    tombstones : Tombstones
        Tombstones among the records.

    Notes
    -----
    A segment is only read again after the cleaner replaced it. Otherwise, only new batches are
    read.
    """

    def __init__(self) -> None:
        self._segments: dict[int, _SegmentCounts] = {}
        self.records = 0
        self.tombstones = Tombstones(_NONE, _NONE)

    def records_in(self, base_offset: int) -> int:
        """Return the number of records in the segment at the last update."""
        counts = self._segments.get(base_offset)
        return 0 if counts is None else counts.records

    def update(self, log: Log, fs: FileSystem) -> None:
        """Count the batches added since the last update."""
        segments: dict[int, _SegmentCounts] = {}
        has_changed = False
        for segment in log.segments.view:
            counts = self._segments.get(segment.base_offset)
            if counts is None or counts.segment is not segment:
                counts = _SegmentCounts(segment)
            segments[segment.base_offset] = counts
            if counts.position < segment.size_bytes:
                self._read(fs, counts, log.config.logstore_decompression_max_bytes)
                has_changed = True
        if not has_changed and segments.keys() == self._segments.keys():
            return
        self._segments = segments
        self.records = sum(each.records for each in segments.values())
        parts = [part for each in segments.values() for part in each.tombstones]
        if parts:
            self.tombstones = Tombstones._make(map(np.concatenate, zip(*parts, strict=True)))
        else:
            self.tombstones = Tombstones(_NONE, _NONE)

    def _read(self, fs: FileSystem, counts: _SegmentCounts, limit: int) -> None:
        size = counts.segment.size_bytes
        room = READ_BYTES
        with closing(fs.open(counts.segment.log_path)) as file:
            while counts.position < size:
                data = file.read(counts.position, min(room, size - counts.position))
                counted_bytes = self._count(counts, data, limit)
                if not counted_bytes and len(data) < room:
                    break  # the last batch is incomplete
                room = READ_BYTES if counted_bytes else 2 * room
                counts.position += counted_bytes

    def _count(self, counts: _SegmentCounts, data: bytes, limit: int) -> int:
        """Count complete batches and return their size in bytes."""
        jit.compile_if_worthwhile(kernels.survey, len(data) * _SURVEY_SECONDS)
        buffer = np.frombuffer(data, np.uint8)
        offsets, timestamps = np.empty((2, 1 << 16), np.int64)
        position = tombstones = 0
        while True:
            status, position, records, tombstones = kernels.survey(
                buffer, position, offsets, timestamps, tombstones
            )
            counts.records += records
            if status == kernels.WHOLE:
                break
            if status == kernels.FULL:
                offsets, timestamps = (
                    np.resize(each, 2 * len(each)) for each in (offsets, timestamps)
                )
                continue
            # Slice a single batch. Slicing all remaining data would copy that data for each batch.
            batch = next(walk_buffer(data[position : _batch_end(data, position)]))
            columns = batch.columns(limit)
            rows = np.flatnonzero(columns.values.sizes < 0)
            counts.add_tombstones(offsets[:tombstones], timestamps[:tombstones])
            tombstones = 0
            counts.add_tombstones(columns.offsets[rows], columns.timestamps[rows])
            counts.records += len(columns)
            position += len(batch.data)
        counts.add_tombstones(offsets[:tombstones], timestamps[:tombstones])
        return position


def _batch_end(data: bytes, position: int) -> int:
    at = position + BATCH_LENGTH_POSITION
    return position + LOG_OVERHEAD + int.from_bytes(data[at : at + 4], "big")
