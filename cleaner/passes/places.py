"""Where the batches stand that were mapped, so that a rewrite need not read all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logstore.cleaner.kernels.ranges import note_places
from logstore.cleaner.kernels.table import PLACE_COLUMNS
from logstore.record.layout import CODEC_MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.cleaner.passes.chunks import Chunk
    from logstore.storage.segment.segment import LogSegment

PLACES_MAX = 32 * 1024
"""Batches whose place is noted in a pass: 3 MiB, whatever the size of the log."""

LEAST_BATCH_BYTES = 4 * 1024
"""Mean size of the batches that are noted; between smaller ones nothing worth a read is left."""


class _Span(NamedTuple):
    """The rows of those of a segment's batches that were noted, and their bytes."""

    first_row: int
    end_row: int
    size_bytes: int


class BatchPlaces:
    """Where the batches stand of the segments that were mapped whole, as far as there is room.

    Not of segments with producers, whose last batches and transactions a rewrite follows, nor with
    compressed batches, which are unfolded behind what was read.
    """

    def __init__(self) -> None:
        self._rows = np.empty((PLACES_MAX, PLACE_COLUMNS), np.int64)
        self._filled = 0
        self._spans: dict[int, _Span] = {}

    def note(self, chunk: Chunk) -> None:
        """Note the batches of a chunk that was mapped; those of a segment follow one another."""
        rows = len(chunk.table)
        if (
            rows * LEAST_BATCH_BYTES > chunk.size_bytes
            or rows > PLACES_MAX - self._filled
            or chunk.has_producers
            or chunk.may_have(CODEC_MASK)
        ):
            return
        base_offset = chunk.segment.base_offset
        first_row, _, size_bytes = self._spans.get(base_offset) or _Span(self._filled, 0, 0)
        self._filled = note_places(chunk.table, chunk.position, self._rows, self._filled)
        self._spans[base_offset] = _Span(first_row, self._filled, size_bytes + chunk.size_bytes)

    def of(self, segment: LogSegment) -> NDArray[np.int64] | None:
        """Return the places of a segment's batches; None unless all of them are known."""
        span = self._spans.get(segment.base_offset)
        if span is None or span.size_bytes != segment.size_bytes:
            return None
        return self._rows[span.first_row : span.end_row]
