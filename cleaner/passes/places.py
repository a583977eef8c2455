"""Where the batches stand that were mapped, so that a rewrite need not read all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from logstore.cleaner import kernels
from logstore.record.layout import CODEC_MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.cleaner.passes.chunks import Chunk
    from logstore.segment.segment import LogSegment

PLACES_MAX = 32 * 1024
"""Batches whose place is noted in a pass: 3 MiB, whatever the size of the log."""

LEAST_BATCH_BYTES = 4 * 1024
"""Mean size of the batches that are noted; between smaller ones nothing worth a read is left."""


class BatchPlaces:
    """Where the batches stand of the segments that were mapped whole, as far as there is room.

    Not of segments with producers, whose last batches and transactions a rewrite follows, nor with
    compressed batches, which are unfolded behind what was read.
    """

    def __init__(self) -> None:
        self._rows: dict[int, list[NDArray[np.int64]]] = {}
        self._ends: dict[int, int] = {}
        self._room = PLACES_MAX

    def note(self, chunk: Chunk) -> None:
        """Note the batches of a chunk that was mapped."""
        base_offset = chunk.segment.base_offset
        if (
            chunk.position == self._ends.get(base_offset, 0)
            and chunk.rows <= self._room
            and chunk.rows * LEAST_BATCH_BYTES <= chunk.size_bytes
            and not chunk.has_producers
            and not chunk.may_have(CODEC_MASK)
        ):
            rows = chunk.table[:, : kernels.PLACE_COLUMNS].copy()
            rows[:, kernels.COL_POSITION] += chunk.position
            self._rows.setdefault(base_offset, []).append(rows)
            self._ends[base_offset] = chunk.position + chunk.size_bytes
            self._room -= len(rows)

    def of(self, segment: LogSegment) -> NDArray[np.int64] | None:
        """Return the places of a segment's batches; None unless all of them are known."""
        if self._ends.get(segment.base_offset) != segment.size_bytes:
            return None
        return np.concatenate(self._rows[segment.base_offset])
