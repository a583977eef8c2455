"""The map from keys to latest offsets, in a fixed-size buffer.

A buffer of B bytes holds the same number of keys as Kafka's map (24 bytes each), so that both stop
at the same record. The slots actually take 16 bytes, and the remaining memory lowers the load
factor. Keys are identified by 88 bits of a keyed hash. Source: docs/spec/cleaner.md §4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from logstore.cleaner.config import keys_of
from logstore.cleaner.errors import OffsetMapFullError
from logstore.cleaner.kernels import offsets, slots
from logstore.cleaner.kernels.slots import MapArrays
from logstore.cleaner.kernels.winners import WORD_BITS
from logstore.cleaner.strategy import OFFSET_ENTRY_BYTES
from logstore.runtime import Random
from logstore.types import INT64_MAX, NO_OFFSET

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PHYSICAL_LOAD = 0.6

WINNERS_MAX = 8 * 8 * 1024 * 1024
"""Maximum number of offsets with a winner bit: 8 MiB of bits."""


class _Word:
    """A word of a map's state, accessed as an attribute."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, state: MapState, owner: type[MapState]) -> int:
        return int(state.words[self._index])

    def __set__(self, state: MapState, value: int) -> None:
        state.words[self._index] = value


class MapState:
    """Limits and counters of a map, shared with the kernels.

    Attributes
    ----------
    words : (STATE_WORDS,) int64
        The array that is passed to kernels.
    limit : int
        Maximum number of entries.
    base_offset : int
        Base of the relative offsets in the slots.
    entries : int
        Number of keys in the map.
    latest_offset : int
        Last offset that the map covers, or -1 for an empty map.
    messages : int
        Number of records mapped or skipped.
    unversioned, malformed : int
        Number of mapped records without a version, and with a malformed version header.
    min_version : int
        Minimum version of the mapped records.
    keyless, tombstones : int
        Number of records without a key, and of mapped tombstones.
    unordered : int
        1 if the offsets in any batch were not ascending, 0 otherwise.
    winners_base : int
        Offset of the first winner bit.
    """

    __slots__ = ("words",)

    limit = _Word(slots.STATE_LIMIT)
    base_offset = _Word(slots.STATE_BASE)
    entries = _Word(slots.STATE_ENTRIES)
    latest_offset = _Word(slots.STATE_LATEST_OFFSET)
    messages = _Word(slots.STATE_MESSAGES)
    unversioned = _Word(slots.STATE_UNVERSIONED)
    malformed = _Word(slots.STATE_MALFORMED)
    min_version = _Word(slots.STATE_MIN_VERSION)
    keyless = _Word(slots.STATE_KEYLESS)
    tombstones = _Word(slots.STATE_TOMBSTONES)
    unordered = _Word(slots.STATE_UNORDERED)
    winners_base = _Word(slots.STATE_WINNERS_BASE)

    def __init__(self, limit: int = 0, base_offset: int = 0) -> None:
        self.words: NDArray[np.int64] = np.zeros(slots.STATE_WORDS, np.int64)
        self.limit = limit
        self.base_offset = base_offset
        self.clear()

    def clear(self) -> None:
        """Reset all counters."""
        self.entries = 0
        self.latest_offset = NO_OFFSET
        self.min_version = INT64_MAX
        self.forget_counts()

    def forget_counts(self) -> None:
        """Reset the record counts but not the entries."""
        self.messages = self.unversioned = self.malformed = 0
        self.keyless = self.tombstones = self.unordered = 0


class KeyMap:
    """A buffer of slots with a maximum number of keys, and the state of the kernels.

    Parameters
    ----------
    memory_bytes : int
        Size of the buffer, which determines the capacity.
    load_factor : float
        Fraction of the counted slots (`ENTRY_BYTES` each) that may be used.
    base_offset : int
        Lowest offset that can be mapped. Slots store offsets relative to it in 40 bits.
    max_entries : int, optional
        Upper bound of the number of distinct keys, so that small jobs take little memory.
    winners_from, winners_end : int, optional
        Range of offsets with winner bits, up to `WINNERS_MAX`; see `kernels.winners`. [default:
        none]
    rng : Random, optional
        Random source of the hash key. [default: a fixed key]

    Raises
    ------
    InvalidConfigurationError
        The buffer is too small to make progress.
    """

    ENTRY_BYTES = OFFSET_ENTRY_BYTES
    SLOT_WORDS = offsets.SLOT_WORDS
    LEAST_KEYS = 1

    def __init__(
        self,
        memory_bytes: int,
        load_factor: float = 0.9,
        *,
        base_offset: int = 0,
        max_entries: int | None = None,
        winners_from: int = 0,
        winners_end: int = 0,
        rng: Random | None = None,
    ) -> None:
        self.capacity = memory_bytes // self.ENTRY_BYTES
        self.limit = keys_of(memory_bytes, load_factor, self.ENTRY_BYTES, self.LEAST_KEYS)
        expected = self.capacity if max_entries is None else min(self.capacity, max_entries)
        slot_bytes = 8 * self.SLOT_WORDS
        homes = min(memory_bytes // slot_bytes, int(expected / _PHYSICAL_LOAD) + 1)
        self.slots: NDArray[np.uint64] = np.zeros(
            (max(1, homes) + slots.SLACK_SLOTS, self.SLOT_WORDS), np.uint64
        )
        self.state = MapState(self.limit, base_offset)
        self.state.winners_base = winners_from
        winner_words = -(-min(max(0, winners_end - winners_from), WINNERS_MAX) // WORD_BITS)
        key = 0 if rng is None else rng.getrandbits(128)
        self.arrays = MapArrays(
            self.slots,
            self.state.words,
            np.zeros(winner_words, np.uint64),
            np.uint64(key & 0xFFFFFFFFFFFFFFFF),
            np.uint64(key >> 64),
        )

    def __len__(self) -> int:
        return self.state.entries

    @property
    def latest_offset(self) -> int:
        """Last offset that the map covers, or -1 for an empty map."""
        return self.state.latest_offset

    @latest_offset.setter
    def latest_offset(self, offset: int) -> None:
        self.state.latest_offset = offset

    @property
    def utilization(self) -> float:
        """Entries divided by counted slots, from 0 to the load factor."""
        return len(self) / self.capacity

    def clear(self) -> None:
        """Remove all entries."""
        self.slots.fill(0)
        self.arrays.winners.fill(0)
        self.state.clear()

    def _check(self) -> None:
        """Assert that the number of used slots is correct and that hashes are in order."""
        offset_bits = np.uint64(slots.MAX_OFFSET_SPAN + 1)
        used = (self.slots[:, -1] & offset_bits) != 0
        assert int(used.sum()) == len(self)
        hashes = self.slots[used, 0]
        assert bool(np.all(hashes[1:] >= hashes[:-1]))


class OffsetMap(KeyMap):
    """A map from keys to the offsets of their latest records; see `KeyMap`.

    Notes
    -----
    `put` and `get` take O(1) expected time, about 50 ns in kernels. Not thread-safe.
    """

    def put(self, key: bytes, offset: int) -> None:
        """Map `key` to `offset`, replacing any existing entry, and update `latest_offset`.

        Raises
        ------
        OffsetMapFullError
            The map is full. Raised even if the key is already in the map.
        """
        fits = len(self) < self.capacity and offsets.map_put(
            self.arrays, as_array(key), 0, len(key), offset
        )
        if not fits:
            raise OffsetMapFullError(f"the map is full with {len(self)} keys")

    def get(self, key: bytes) -> int:
        """Return the offset mapped for `key`, or -1 if there is none."""
        return int(offsets.map_get(self.arrays, as_array(key), 0, len(key)))


def as_array(data: bytes) -> NDArray[np.uint8]:
    """Return bytes as an array for kernels."""
    return np.frombuffer(bytearray(data), np.uint8)
