"""The map from keys to latest offsets, with two words per slot."""

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
from logstore.cleaner.kernels.winners import note_loser, note_winner
from logstore.jit import Bytes, inline_kernel, kernel

SLOT_WORDS = 2
_LAST = SLOT_WORDS - 1


@inline_kernel
def get_offset(key_map: MapArrays, low: np.uint64, high: np.uint64) -> np.int64:
    """Return the offset mapped for a key's hash, or -1 if there is none."""
    tag = (high >> np.uint64(OFFSET_BITS)) << np.uint64(OFFSET_BITS)
    slot, found = find_slot(key_map.slots, low, tag, _LAST, TAG_MASK)
    if not found:
        return np.int64(-1)
    return absolute_offset(key_map, slot, _LAST)


@inline_kernel
def put_offset(
    key_map: MapArrays, low: np.uint64, high: np.uint64, offset: np.int64
) -> tuple[bool, np.int64]:
    """Map a key's hash to `offset`, without updating the latest offset and the winners.

    An insertion shifts the entries up to the next free slot.

    Returns
    -------
    (fits, displaced)
        `fits` is False, without any change, if the offset does not fit or no slot is free.
        `displaced` is the previously mapped offset, or -1 if there was none.
    """
    slots = key_map.slots
    state = key_map.state
    relative = offset - state[STATE_BASE]
    if relative < 0 or relative > MAX_OFFSET_SPAN:
        return False, np.int64(-1)
    tag = (high >> np.uint64(OFFSET_BITS)) << np.uint64(OFFSET_BITS)
    slot, found = find_slot(slots, low, tag, _LAST, TAG_MASK)
    displaced = np.int64(-1)
    if found:
        displaced = absolute_offset(key_map, slot, _LAST)
    else:
        if not open_slot(slots, slot, _LAST):
            return False, displaced
        slots[slot, 0] = low
        state[STATE_ENTRIES] += 1
    slots[slot, _LAST] = tag | np.uint64(relative + 1)
    return True, displaced


@kernel
def map_get(key_map: MapArrays, data: Bytes, start: int, size: int) -> np.int64:
    """Return the offset mapped for a key, or -1 if there is none. O(1) expected."""
    key_map = borrowed_map(key_map)
    low, high = siphash128(data, start, size, key_map.k0, key_map.k1)
    return get_offset(key_map, low, high)


@kernel
def map_put(key_map: MapArrays, data: Bytes, start: int, size: int, offset: int) -> bool:
    """Map a key to `offset` and update the latest offset; see `put_offset`."""
    key_map = borrowed_map(key_map)
    low, high = siphash128(data, start, size, key_map.k0, key_map.k1)
    fits, displaced = put_offset(key_map, low, high, np.int64(offset))
    if not fits:
        return False
    note_loser(key_map, displaced)
    note_winner(key_map, np.int64(offset))
    key_map.state[STATE_LATEST_OFFSET] = offset
    return True
