"""Select the batches that a rewrite must read. All others have no survivors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logstore import jit
from logstore.cleaner.kernels.classify import PassRules
from logstore.cleaner.kernels.ranges import choose_ranges, scan_survivors
from logstore.cleaner.kernels.slots import MapArrays
from logstore.cleaner.kernels.table import COL_SIZE

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_GAP_BYTES = 16 * 1024
"""Minimum number of bytes to skip.

Below this, reading from the page cache is faster than another read.
"""

SPAN_BYTES = 8 * 1024 * 1024
"""Maximum range of a file covered by a chunk, including skipped parts.

A pass may end after each chunk.
"""


class Ranges(NamedTuple):
    """The parts of a file to read for a chunk.

    Attributes
    ----------
    ranges : list of (int, int)
        Start and exclusive end of each part.
    end_position : int
        Start of the next chunk.
    passed_over : int
        Number of (superseded) records in the skipped batches.
    """

    ranges: list[tuple[int, int]]
    end_position: int
    passed_over: int


class Skipping:
    """Selects the parts to read in a segment with known batch locations.

    Parameters
    ----------
    locations : (n, LOCATION_COLUMNS) int64
        See `BatchLocations.of`.
    key_map, rules
        The map and rules of the rewrite.
    upper_bound_offset : int
        The batch that ends just before this offset is always read.
    """

    def __init__(
        self,
        locations: NDArray[np.int64],
        key_map: MapArrays,
        rules: PassRules,
        upper_bound_offset: int,
    ) -> None:
        self._locations = locations
        self._row = 0
        self._ranges = np.empty((len(locations), 2), np.int64)
        self._choose = jit.Bound(
            choose_ranges,
            *(locations, self._ranges, key_map, rules),
            *(upper_bound_offset - 1, SPAN_BYTES, LEAST_GAP_BYTES),
        )

    def next_ranges(self, room: int) -> Ranges | None:
        """Return the next parts of at most `room` bytes, or None if a batch is larger."""
        if self._locations[self._row, COL_SIZE] > room:
            return None
        count, self._row, end_position, passed_over = self._choose(self._row, room)
        return Ranges(self._ranges[:count].tolist(), int(end_position), int(passed_over))


class Survivors:
    """Scans mapped batches, adding rows only for batches with survivors.

    Parameters
    ----------
    key_map, rules
        The map and rules of the rewrite.
    upper_bound_offset : int
        The batch that ends just before this offset always has a row.
    """

    def __init__(self, key_map: MapArrays, rules: PassRules, upper_bound_offset: int) -> None:
        self._kept_last_offset = upper_bound_offset - 1
        self._scan = jit.Bound(scan_survivors, key_map, rules)

    def scan(
        self,
        data: NDArray[np.uint8],
        end: int,
        least_offset: int,
        greatest_offset: int,
        table: NDArray[np.int64],
    ) -> tuple[int, ...]:
        """Tabulate the batches of `data[:end]`; see `scan_survivors`."""
        kept = self._kept_last_offset
        fields: tuple[int, ...] = self._scan(data, end, least_offset, greatest_offset, kept, table)
        return fields
