"""The map from key to latest offset: two words a slot."""

from __future__ import annotations

import numpy as np

from logstore.cleaner.kernels.slots import (
    MAX_OFFSET_SPAN,
    OFFSET_BITS,
    STATE_BASE,
    STATE_ENTRIES,
    STATE_LATEST_OFFSET,
    TAG_MASK,
    MapArrays,
    absolute_offset,
    borrowed_map,
    find_slot,
    open_slot,
    siphash128,
)
from logstore.jit import Bytes, kernel

SLOT_WORDS = 2
_LAST = SLOT_WORDS - 1


@kernel
def map_get(key_map: MapArrays, data: Bytes, start: int, size: int) -> np.int64:
    """Return the offset mapped for a key, -1 if there is none. O(1) expected."""
    key_map = borrowed_map(key_map)
    low, high = siphash128(data, start, size, key_map.k0, key_map.k1)
    tag = (high >> np.uint64(OFFSET_BITS)) << np.uint64(OFFSET_BITS)
    slot, found = find_slot(key_map.slots, low, tag, _LAST, TAG_MASK)
    if not found:
        return np.int64(-1)
    return absolute_offset(key_map, slot, _LAST)


@kernel
def map_put(key_map: MapArrays, data: Bytes, start: int, size: int, offset: int) -> bool:
    """Map a key to `offset`, whatever was there; latest offset follows.

    An insertion shifts what lies above it up to the next free slot. False, and nothing changed,
    when the offset does not fit or no slot is free.
    """
    key_map = borrowed_map(key_map)
    slots = key_map.slots
    state = key_map.state
    relative = offset - state[STATE_BASE]
    if relative < 0 or relative > MAX_OFFSET_SPAN:
        return False
    low, high = siphash128(data, start, size, key_map.k0, key_map.k1)
    tag = (high >> np.uint64(OFFSET_BITS)) << np.uint64(OFFSET_BITS)
    slot, found = find_slot(slots, low, tag, _LAST, TAG_MASK)
    word = tag | np.uint64(relative + 1)
    if found:
        slots[slot, _LAST] = word
        state[STATE_LATEST_OFFSET] = offset
        return True
    if not open_slot(slots, slot, _LAST):
        return False
    slots[slot, 0] = low
    slots[slot, _LAST] = word
    state[STATE_ENTRIES] += 1
    state[STATE_LATEST_OFFSET] = offset
    return True
