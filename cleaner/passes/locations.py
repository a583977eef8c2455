"""Locations of mapped batches, so that a rewrite need not read all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logstore.cleaner.kernels.ranges import copy_locations
from logstore.cleaner.kernels.table import LOCATION_COLUMNS
from logstore.record.layout import CODEC_MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.cleaner.passes.chunks import Chunk
    from logstore.storage.segment.segment import LogSegment

LOCATIONS_MAX = 32 * 1024
"""Maximum number of locations in a pass: 3 MiB, regardless of log size."""

LEAST_BATCH_BYTES = 4 * 1024
"""Minimum mean batch size to store locations.

Skipping smaller batches is not faster.
"""


class _Span(NamedTuple):
    """The rows for a segment's batches, and their total size."""

    first_row: int
    end_row: int
    size_bytes: int


class BatchLocations:
    """Locations of batches in completely mapped segments, as far as space permits.

    Excludes segments with producers, because a rewrite tracks their last batches and transactions,
    and segments with compressed batches, because decompressed sections follow the chunk's bytes.
    """

    def __init__(self) -> None:
        self._rows = np.empty((LOCATIONS_MAX, LOCATION_COLUMNS), np.int64)
        self._filled = 0
        self._spans: dict[int, _Span] = {}

    def note(self, chunk: Chunk) -> None:
        """Add a mapped chunk's batches. The chunks of a segment must be added in order."""
        rows = len(chunk.table)
        if (
            rows * LEAST_BATCH_BYTES > chunk.size_bytes
            or rows > LOCATIONS_MAX - self._filled
            or chunk.has_producers
            or chunk.may_have(CODEC_MASK)
        ):
            return
        base_offset = chunk.segment.base_offset
        first_row, _, size_bytes = self._spans.get(base_offset) or _Span(self._filled, 0, 0)
        self._filled = copy_locations(chunk.table, chunk.position, self._rows, self._filled)
        self._spans[base_offset] = _Span(first_row, self._filled, size_bytes + chunk.size_bytes)

    def of(self, segment: LogSegment) -> NDArray[np.int64] | None:
        """Return the batch locations of a segment, or None if any are unknown."""
        span = self._spans.get(segment.base_offset)
        if span is None or span.size_bytes != segment.size_bytes:
            return None
        return self._rows[span.first_row : span.end_row]
