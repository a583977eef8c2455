"""Locations of the mapped batches, so a rewrite need not read all of them."""

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
"""Most batches with a location in a pass: 3 MiB, whatever the size of the log."""

LEAST_BATCH_BYTES = 4 * 1024
"""Locations are only stored for batches with at least this mean size.

Skipping smaller batches would not be faster.
"""


class _Span(NamedTuple):
    """The rows of a segment's batches, and their bytes."""

    first_row: int
    end_row: int
    size_bytes: int


class BatchLocations:
    """Locations of the batches in segments that were mapped whole, while there is room.

    Excludes segments with producers, because a rewrite follows their last batches and transactions,
    and segments with compressed batches, which are decompressed behind the chunk's bytes.
    """

    def __init__(self) -> None:
        self._rows = np.empty((LOCATIONS_MAX, LOCATION_COLUMNS), np.int64)
        self._filled = 0
        self._spans: dict[int, _Span] = {}

    def note(self, chunk: Chunk) -> None:
        """Add the batches of a mapped chunk. The chunks of a segment must be added in order."""
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
        """Return the locations of a segment's batches, or None if some are not known."""
        span = self._spans.get(segment.base_offset)
        if span is None or span.size_bytes != segment.size_bytes:
            return None
        return self._rows[span.first_row : span.end_row]
