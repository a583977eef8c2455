"""A census of a log: the records and tombstones of its segments, read once as they come."""

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
"""Of a byte where the kernel runs as Python, about."""


class Tombstones(NamedTuple):
    """Tombstones of a log, in the order of their offsets."""

    offsets: Ints
    timestamps: Ints


class _Counted:
    """What was found in a segment so far."""

    def __init__(self, segment: LogSegment) -> None:
        self.segment = segment
        self.position = self.records = 0
        self.tombstones: list[Tombstones] = []

    def note(self, offsets: Ints, timestamps: Ints) -> None:
        """Keep a copy of some tombstones."""
        if len(offsets):
            self.tombstones.append(Tombstones(offsets.copy(), timestamps.copy()))


class Census:
    """What lies in one partition's log, whatever its log start.

    Attributes
    ----------
    records : int
        Data records in all segments.
    tombstones : Tombstones
        Those among them.

    Notes
    -----
    A segment is read again only where a cleaning wrote it anew; the active one as it grows.
    """

    def __init__(self) -> None:
        self._counted: dict[int, _Counted] = {}
        self.records = 0
        self.tombstones = Tombstones(_NONE, _NONE)

    def records_in(self, base_offset: int) -> int:
        """Return how many records the segment of a base offset had at the last look."""
        counted = self._counted.get(base_offset)
        return 0 if counted is None else counted.records

    def take(self, log: Log, fs: FileSystem) -> None:
        """Look at what is new."""
        counted: dict[int, _Counted] = {}
        is_new = False
        for segment in log.segments.view:
            known = self._counted.get(segment.base_offset)
            if known is None or known.segment is not segment:
                known = _Counted(segment)
            counted[segment.base_offset] = known
            if known.position < segment.size_bytes:
                self._read(fs, known, log.config.logstore_decompression_max_bytes)
                is_new = True
        if not is_new and counted.keys() == self._counted.keys():
            return
        self._counted = counted
        self.records = sum(each.records for each in counted.values())
        found = [tombstones for each in counted.values() for tombstones in each.tombstones]
        if found:
            self.tombstones = Tombstones._make(map(np.concatenate, zip(*found, strict=True)))
        else:
            self.tombstones = Tombstones(_NONE, _NONE)

    def _read(self, fs: FileSystem, counted: _Counted, limit: int) -> None:
        size = counted.segment.size_bytes
        room = READ_BYTES
        with closing(fs.open(counted.segment.log_path)) as file:
            while counted.position < size:
                data = file.read(counted.position, min(room, size - counted.position))
                taken = self._survey(counted, data, limit)
                if not taken and len(data) < room:
                    break  # a batch that is cut off
                room = READ_BYTES if taken else 2 * room
                counted.position += taken

    def _survey(self, counted: _Counted, data: bytes, limit: int) -> int:
        """Count whole batches; return the bytes of them."""
        jit.pays(kernels.survey, len(data) * _SURVEY_SECONDS)
        buffer = np.frombuffer(data, np.uint8)
        offsets, timestamps = np.empty((2, 1 << 16), np.int64)
        position = found = 0
        while True:
            status, position, records, found = kernels.survey(
                buffer, position, offsets, timestamps, found
            )
            counted.records += records
            if status == kernels.WHOLE:
                break
            if status == kernels.FULL:
                offsets, timestamps = (
                    np.resize(each, 2 * len(each)) for each in (offsets, timestamps)
                )
                continue
            # A slice of one batch: one of all that follows would copy it again for every batch.
            batch = next(walk_buffer(data[position : _batch_end(data, position)]))
            columns = batch.columns(limit)
            rows = np.flatnonzero(columns.values.sizes < 0)
            counted.note(offsets[:found], timestamps[:found])
            found = 0
            counted.note(columns.offsets[rows], columns.timestamps[rows])
            counted.records += len(columns)
            position += len(batch.data)
        counted.note(offsets[:found], timestamps[:found])
        return position


def _batch_end(data: bytes, position: int) -> int:
    """Return where the batch at a position ends."""
    at = position + BATCH_LENGTH_POSITION
    return position + LOG_OVERHEAD + int.from_bytes(data[at : at + 4], "big")
