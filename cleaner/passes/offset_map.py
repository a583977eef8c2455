"""The map from key to latest offset, in a fixed buffer.

A buffer of B bytes contains as many keys as Kafka's map (24 bytes each), so that both stop at the
same record. The slots themselves have 16 bytes. The remaining memory lowers the load factor. Keys
are identified by 88 bits of a keyed hash. Source: docs/spec/cleaner.md §4.
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
"""Most offsets with a bit among the winners: 8 MiB of bits."""


class _Word:
    """One word of a map's state, as an attribute."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, state: MapState, owner: type[MapState]) -> int:
        return int(state.words[self._index])

    def __set__(self, state: MapState, value: int) -> None:
        state.words[self._index] = value


class MapState:
    """The state of a map in addition to its slots: limits and counters of the kernels.

    Attributes
    ----------
    words : (STATE_WORDS,) int64
        The array that kernels take.
    limit : int
        Entries at which the map is full.
    base_offset : int
        Offsets in slots are relative to it.
    entries : int
        Keys in the map.
    latest_offset : int
        The last offset that the map covers, or -1 for an empty map.
    messages : int
        Records mapped or skipped.
    unversioned, malformed : int
        Records put without a version, and how many have a malformed header.
    min_version : int
        The smallest version ever put.
    keyless, tombstones : int
        Records without a key, and records put without a value.
    unordered : int
        1 if offsets did not rise within a batch, else 0.
    winners_base : int
        Offset of the first bit of the winners.
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
        """Reset the counts of records. The entries remain."""
        self.messages = self.unversioned = self.malformed = 0
        self.keyless = self.tombstones = self.unordered = 0


class KeyMap:
    """A buffer of slots with a limit of keys, and the state of the kernels.

    Parameters
    ----------
    memory_bytes : int
        The buffer that determines the capacity.
    load_factor : float
        Part of the counted slots that a build may fill.
    base_offset : int
        The lowest offset that can be put; slots store offsets relative to it, in 40 bits.
    max_entries : int, optional
        An upper bound of the number of distinct keys, so that small jobs take little memory.
    winners_from, winners_end : int, optional
        Range of offsets with a bit for surviving records; see `kernels.winners`. At most the first
        `WINNERS_MAX` of them have one. [default: none]
    rng : Random, optional
        Source of the hash key. Without one every run hashes alike.

    Raises
    ------
    InvalidConfigurationError
        The buffer contains too few keys for any progress.
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
        """The last offset that the map covers, or -1 for an empty map."""
        return self.state.latest_offset

    @latest_offset.setter
    def latest_offset(self, offset: int) -> None:
        self.state.latest_offset = offset

    @property
    def utilization(self) -> float:
        """Entries over counted slots, 0 to the load factor."""
        return len(self) / self.capacity

    def clear(self) -> None:
        """Remove all entries."""
        self.slots.fill(0)
        self.arrays.winners.fill(0)
        self.state.clear()

    def _check(self) -> None:
        """Assert that the count of used slots is right, and that hashes are in order."""
        offset_bits = np.uint64(slots.MAX_OFFSET_SPAN + 1)
        used = (self.slots[:, -1] & offset_bits) != 0
        assert int(used.sum()) == len(self)
        hashes = self.slots[used, 0]
        assert bool(np.all(hashes[1:] >= hashes[:-1]))


class OffsetMap(KeyMap):
    """Key → offset of the key's latest record; see `KeyMap`.

    Notes
    -----
    put and get are O(1) expected, about 50 ns inside kernels. Not thread-safe.
    """

    def put(self, key: bytes, offset: int) -> None:
        """Map `key` to `offset`, replacing its entry, and update `latest_offset`.

        Raises
        ------
        OffsetMapFullError
            All counted slots are in use, even if the key is known.
        """
        fits = len(self) < self.capacity and offsets.map_put(
            self.arrays, as_array(key), 0, len(key), offset
        )
        if not fits:
            raise OffsetMapFullError(f"the map is full with {len(self)} keys")

    def get(self, key: bytes) -> int:
        """Return the offset mapped for `key`, -1 if there is none."""
        return int(offsets.map_get(self.arrays, as_array(key), 0, len(key)))


def as_array(data: bytes) -> NDArray[np.uint8]:
    """Return bytes as an array for kernels."""
    return np.frombuffer(bytearray(data), np.uint8)
