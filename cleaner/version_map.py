"""The map from key to the record of the highest order, for strategies with versions (KIP-280).

Counted as 32 bytes a key, so that a pass takes three quarters of the keys that offsets alone
would allow; the slots themselves take 24. Source: cleaner-semantics §13.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cleaner import build_kernels, kernels, version_kernels
from cleaner.errors import OffsetMapFullError
from cleaner.offset_map import KeyMap, as_array
from cleaner.strategy import (
    HEADER,
    LONG,
    OFFSET,
    TIMESTAMP,
    VARLONG,
    VERSION_ENTRY_BYTES,
    Order,
    Strategy,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cleaner.chunks import Chunk


_NUMBERS = {
    (OFFSET, LONG): version_kernels.OFFSET,
    (TIMESTAMP, LONG): version_kernels.TIMESTAMP,
    (HEADER, LONG): version_kernels.HEADER_LONG,
    (HEADER, VARLONG): version_kernels.HEADER_VARLONG,
}


def is_through(chunk: Chunk, status: int, row: int) -> bool:
    """Return whether a kernel put all of a chunk into its map, or the map was full before.

    Raises
    ------
    CorruptRecordError, UnsupportedFormatError
        It stopped at a damaged batch.
    """
    if status == kernels.DAMAGED:
        chunk.refuse(row)
    return status != kernels.MAP_FULL


class KernelStrategy(NamedTuple):
    """A strategy as kernels take it: its number, and the header's name."""

    number: int
    header: NDArray[np.uint8]

    @classmethod
    def of(cls, strategy: Strategy) -> KernelStrategy:
        """Translate a strategy."""
        number = _NUMBERS[strategy.name, strategy.encoding]
        return cls(number, as_array(strategy.header.encode()))

    @property
    def has_versions(self) -> bool:
        """Whether anything but the offset counts."""
        return self.number != version_kernels.OFFSET

    def compete(
        self, key_map: KeyMap, chunk: Chunk, start_offset: int, end_offset: int, *, insert: bool
    ) -> bool:
        """Let a chunk's records in [start, end) compete; see `build_kernels.map_versions`.

        Returns
        -------
        bool
            False if the map was full before the chunk ended.

        Raises
        ------
        CorruptRecordError, UnsupportedFormatError
            A batch is damaged.
        """
        status, row = build_kernels.map_versions(
            chunk.data,
            chunk.table,
            0,
            chunk.rows,
            start_offset,
            end_offset,
            key_map.slots,
            key_map.state,
            self.number,
            self.header,
            insert,
            key_map.k0,
            key_map.k1,
        )
        return is_through(chunk, status, row)


class VersionEntry(NamedTuple):
    """What is known of a key: its winner, and whether a record of a higher offset lost to it."""

    order: Order
    later_loser: bool


class VersionMap(KeyMap):
    """Key → order of the record that wins so far; see `KeyMap`.

    It takes two keys at least: the one before the first dirty offset, and one to make progress.

    Notes
    -----
    O(1) expected. Records are put in offset order; those that are lifted come after them. Not
    thread-safe.
    """

    ENTRY_BYTES = VERSION_ENTRY_BYTES
    SLOT_WORDS = 3
    LEAST_KEYS = 2

    def put(self, key: bytes, order: Order) -> None:
        """Let a record compete for its key; `latest_offset` follows, also if it loses.

        Raises
        ------
        OffsetMapFullError
            All counted slots are in use, be the key known or not.
        """
        if len(self) >= self.capacity or not version_kernels.version_put(
            self.slots,
            self.state,
            as_array(key),
            0,
            len(key),
            order.offset,
            order.present,
            np.int64(order.version),
            True,
            self.k0,
            self.k1,
        ):
            raise OffsetMapFullError(f"the map is full with {len(self)} keys")

    def get(self, key: bytes) -> VersionEntry | None:
        """Return what is known of `key`, None if nothing is."""
        offset, present, version, later_loser = version_kernels.version_get(
            self.slots, self.state, as_array(key), 0, len(key), self.k0, self.k1
        )
        if offset < 0:
            return None
        order = Order(bool(present), int(version), int(offset))
        return VersionEntry(order, bool(later_loser))
