"""The map from each key to its record with the highest order, for version strategies (KIP-280).

Each key counts as 32 bytes, so a pass maps three quarters as many keys as with an offset map. The
slots actually take 24 bytes. Source: docs/spec/cleaner.md §13.3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from logstore.cleaner.errors import OffsetMapFullError
from logstore.cleaner.kernels import versions
from logstore.cleaner.kernels.versions import KernelStrategy
from logstore.cleaner.passes.offset_map import KeyMap, as_array
from logstore.cleaner.strategy import (
    HEADER,
    LONG,
    OFFSET,
    TIMESTAMP,
    VARLONG,
    VERSION_ENTRY_BYTES,
    Order,
    Strategy,
)

_NUMBERS = {
    (OFFSET, LONG): versions.OFFSET,
    (TIMESTAMP, LONG): versions.TIMESTAMP,
    (HEADER, LONG): versions.HEADER_LONG,
    (HEADER, VARLONG): versions.HEADER_VARLONG,
}


def kernel_strategy(strategy: Strategy) -> KernelStrategy:
    """Convert a strategy for kernels."""
    number = _NUMBERS[strategy.name, strategy.encoding]
    return KernelStrategy(number, as_array(strategy.header.encode()))


def kernel_order(order: Order) -> versions.Order:
    """Convert an order for kernels."""
    return versions.Order(order.present, np.int64(order.version), np.int64(order.offset))


class VersionEntry(NamedTuple):
    """The state of a key: its survivor, and whether the survivor supersedes a later offset."""

    order: Order
    later_loser: bool


class VersionMap(KeyMap):
    """Maps each key to the order of its current survivor; see `KeyMap`.

    There must be room for at least two keys: one for the record before the first dirty offset, and
    one to make progress.

    Notes
    -----
    O(1) expected. The caller must put records in offset order, before comparing records of the
    clean section. Not thread-safe.
    """

    ENTRY_BYTES = VERSION_ENTRY_BYTES
    SLOT_WORDS = versions.SLOT_WORDS
    LEAST_KEYS = 2

    def put(self, key: bytes, order: Order) -> None:
        """Put a record, and update `latest_offset` even if the record is superseded.

        Raises
        ------
        OffsetMapFullError
            The map is full. Raised even if the key is already in the map.
        """
        fits = len(self) < self.capacity and versions.version_put(
            self.arrays, as_array(key), 0, len(key), kernel_order(order), True
        )
        if not fits:
            raise OffsetMapFullError(f"the map is full with {len(self)} keys")

    def get(self, key: bytes) -> VersionEntry | None:
        """Return the state of `key`, or None if it is not in the map."""
        order, later_loser = versions.version_get(self.arrays, as_array(key), 0, len(key))
        if order.offset < 0:
            return None
        return VersionEntry(
            Order(bool(order.present), int(order.version), int(order.offset)), bool(later_loser)
        )
