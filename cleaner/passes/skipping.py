"""Batches that a rewrite need not read, or look at, since nothing of them stays."""

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
"""What is passed over. To copy less from the page cache costs no more than another read does."""

SPAN_BYTES = 8 * 1024 * 1024
"""Bytes of a file that a chunk stands for, read or not: a pass may end after each chunk."""


class Ranges(NamedTuple):
    """What is read for a chunk, and what that stands for.

    Attributes
    ----------
    ranges : list of (int, int)
        Positions where each begins and ends, exclusive.
    end_position : int
        Where the next chunk begins.
    passed_over : int
        Records of the batches between them and behind the last one, all superseded.
    """

    ranges: list[tuple[int, int]]
    end_position: int
    passed_over: int


class Skipping:
    """Chooses what to read of a segment whose batches have known places.

    Parameters
    ----------
    places : (n, PLACE_COLUMNS) int64
        As `places.BatchPlaces.of` gives them.
    key_map, rules
        By which the segment is rewritten.
    upper_bound_offset : int
        The batch that ends right before it is always read.
    """

    def __init__(
        self,
        places: NDArray[np.int64],
        key_map: MapArrays,
        rules: PassRules,
        upper_bound_offset: int,
    ) -> None:
        self._places = places
        self._row = 0
        self._ranges = np.empty((len(places), 2), np.int64)
        self._choose = jit.Bound(
            choose_ranges,
            *(places, self._ranges, key_map, rules),
            *(upper_bound_offset - 1, SPAN_BYTES, LEAST_GAP_BYTES),
        )

    def next_ranges(self, room: int) -> Ranges | None:
        """Return what to read next, of so many bytes at the most; None if a batch is larger."""
        if self._places[self._row, COL_SIZE] > room:
            return None
        count, self._row, end_position, passed_over = self._choose(self._row, room)
        return Ranges(self._ranges[:count].tolist(), int(end_position), int(passed_over))


class Survivors:
    """Scans batches that were mapped, without a row for those of which nothing stays.

    Parameters
    ----------
    key_map, rules
        By which they are rewritten.
    upper_bound_offset : int
        The batch that ends right before it always has a row.
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
