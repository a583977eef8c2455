"""The map from key to latest offset, in a fixed buffer.

Kafka's count, our layout: a buffer of B bytes takes as many keys as Kafka's map would
(24 bytes each), so that both stop at the same record; the slots themselves take 16 bytes, and
what that saves goes into a lower load. Keys are known by 88 bits of a keyed hash.
Source: cleaner-semantics §4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleaner import map_kernels
from cleaner.config import keys_of
from cleaner.errors import OffsetMapFullError
from cleaner.strategy import OFFSET_ENTRY_BYTES
from logstore.runtime import Random
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PHYSICAL_LOAD = 0.6


class KeyMap:
    """A buffer of slots, how many keys it takes, and what the kernels keep beside it.

    Parameters
    ----------
    memory_bytes : int
        The buffer that capacity is counted by.
    load_factor : float
        Part of the counted slots that a build may fill.
    base_offset : int
        No offset below is ever put; offsets are stored relative to it, in 40 bits.
    max_entries : int, optional
        An upper bound of the distinct keys to come, so that small jobs take little memory.
    rng : Random, optional
        Source of the hash key; without one every run hashes alike.

    Raises
    ------
    InvalidConfigurationError
        The buffer holds too few keys for any progress.
    """

    ENTRY_BYTES = OFFSET_ENTRY_BYTES
    SLOT_WORDS = 2
    LEAST_KEYS = 1

    def __init__(
        self,
        memory_bytes: int,
        load_factor: float = 0.9,
        *,
        base_offset: int = 0,
        max_entries: int | None = None,
        rng: Random | None = None,
    ) -> None:
        self.capacity = memory_bytes // self.ENTRY_BYTES
        self.limit = keys_of(memory_bytes, load_factor, self.ENTRY_BYTES, self.LEAST_KEYS)
        expected = self.capacity if max_entries is None else min(self.capacity, max_entries)
        slot_bytes = 8 * self.SLOT_WORDS
        homes = min(memory_bytes // slot_bytes, int(expected / _PHYSICAL_LOAD) + 1)
        self.slots: NDArray[np.uint64] = np.zeros(
            (max(1, homes) + map_kernels.SLACK_SLOTS, self.SLOT_WORDS), np.uint64
        )
        self.state: NDArray[np.int64] = np.zeros(map_kernels.STATE_WORDS, np.int64)
        self.state[map_kernels.STATE_LIMIT] = self.limit
        self.state[map_kernels.STATE_BASE] = base_offset
        self._reset()
        key = 0 if rng is None else rng.getrandbits(128)
        self.k0 = np.uint64(key & 0xFFFFFFFFFFFFFFFF)
        self.k1 = np.uint64(key >> 64)

    def __len__(self) -> int:
        return int(self.state[map_kernels.STATE_ENTRIES])

    @property
    def latest_offset(self) -> int:
        """The last offset the map speaks for; -1 when nothing was put."""
        return int(self.state[map_kernels.STATE_LATEST_OFFSET])

    @latest_offset.setter
    def latest_offset(self, offset: int) -> None:
        self.state[map_kernels.STATE_LATEST_OFFSET] = offset

    @property
    def utilization(self) -> float:
        """Entries over counted slots, 0 to the load factor."""
        return len(self) / self.capacity

    def clear(self) -> None:
        """Forget everything."""
        self.slots.fill(0)
        self._reset()

    def _reset(self) -> None:
        for word in (
            map_kernels.STATE_ENTRIES,
            map_kernels.STATE_MESSAGES,
            map_kernels.STATE_UNVERSIONED,
            map_kernels.STATE_MALFORMED,
        ):
            self.state[word] = 0
        self.state[map_kernels.STATE_LATEST_OFFSET] = -1
        self.state[map_kernels.STATE_MIN_VERSION] = INT64_MAX

    def _check(self) -> None:
        """Assert that used slots are counted and lie in the order of their hashes."""
        offset_bits = np.uint64(map_kernels.MAX_OFFSET_SPAN + 1)
        used = (self.slots[:, -1] & offset_bits) != 0
        assert int(used.sum()) == len(self)
        hashes = self.slots[used, 0]
        assert bool(np.all(hashes[1:] >= hashes[:-1]))


class OffsetMap(KeyMap):
    """Key → offset of the key's latest record; see `KeyMap`.

    Notes
    -----
    put and get are O(1) expected, about 50 ns inside map_kernels. Not thread-safe.
    """

    def put(self, key: bytes, offset: int) -> None:
        """Map `key` to `offset`, whatever it was mapped to; `latest_offset` follows.

        Raises
        ------
        OffsetMapFullError
            All counted slots are in use, be the key known or not.
        """
        fits = len(self) < self.capacity and map_kernels.map_put(
            self.slots, self.state, as_array(key), 0, len(key), offset, self.k0, self.k1
        )
        if not fits:
            raise OffsetMapFullError(f"the map is full with {len(self)} keys")

    def get(self, key: bytes) -> int:
        """Return the offset mapped for `key`, -1 if there is none."""
        return int(
            map_kernels.map_get(
                self.slots, self.state, as_array(key), 0, len(key), self.k0, self.k1
            )
        )


def as_array(data: bytes) -> NDArray[np.uint8]:
    """Return bytes as kernels take them."""
    return np.frombuffer(bytearray(data), np.uint8)
