"""Slots of a map from keys to records: keyed hash, lookup and insertion.

`slots` is (home slots + SLACK_SLOTS, words) uint64. Word 0 of a slot contains 64 bits of the key's
hash. The last word contains, from the low bits: the offset relative to the map's base plus 1 in 40
bits, where 0 means a free slot; flags; and further bits of the hash, the tag. Entries are in hash
order from their home slot on, so the search for an absent key ends early. Source:
docs/spec/cleaner.md §4.
"""

from __future__ import annotations

from struct import unpack
from typing import Any, NamedTuple

import numpy as np

from logstore.jit import (
    Bytes,
    Int64s,
    UInt64s,
    borrowed,
    inline_kernel,
    kernel,
    kernel_like,
    load_u64,
)

STATE_ENTRIES = 0
STATE_LATEST_OFFSET = 1
STATE_LIMIT = 2
STATE_MESSAGES = 3
STATE_BASE = 4
STATE_MIN_VERSION = 5
STATE_UNVERSIONED = 6
STATE_MALFORMED = 7
STATE_KEYLESS = 8
STATE_TOMBSTONES = 9
STATE_UNORDERED = 10
STATE_WINNERS_BASE = 11
STATE_WORDS = 12

OFFSET_BITS = 40
MAX_OFFSET_SPAN = 2**OFFSET_BITS - 2
TAG_MASK = 2**64 - 2**OFFSET_BITS
SLACK_SLOTS = 4096


class MapArrays(NamedTuple):
    """The arrays of a map, for kernels. `MapState` names the words of `state`."""

    slots: UInt64s
    state: Int64s  # (STATE_WORDS,) int64
    winners: UInt64s  # (n,) uint64, one bit per offset from STATE_WINNERS_BASE on; see `winners`
    k0: np.uint64  # hash key
    k1: np.uint64


@inline_kernel
def borrowed_map(key_map: MapArrays) -> MapArrays:
    """Return a map of `borrowed` arrays."""
    return MapArrays(
        borrowed(key_map.slots),
        borrowed(key_map.state),
        borrowed(key_map.winners),
        key_map.k0,
        key_map.k1,
    )


@inline_kernel
def absolute_offset(key_map: MapArrays, slot: np.uint64, last: int) -> np.int64:
    """Return the offset in the last word of a used slot."""
    relative = np.int64(key_map.slots[slot, last] & np.uint64(MAX_OFFSET_SPAN + 1)) - 1
    return np.int64(relative + key_map.state[STATE_BASE])


@inline_kernel
def _rotate(word: np.uint64, bits: int) -> np.uint64:
    """Rotate a word to the left."""
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@inline_kernel
def sip_round(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Mix the four words of the state once."""
    v0 = v0 + v1
    v1 = _rotate(v1, 13) ^ v0
    v0 = _rotate(v0, 32)
    v2 = v2 + v3
    v3 = _rotate(v3, 16) ^ v2
    v0 = v0 + v3
    v3 = _rotate(v3, 21) ^ v0
    v2 = v2 + v1
    v1 = _rotate(v1, 17) ^ v2
    v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


@inline_kernel
def sip_words(k0: np.uint64, k1: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Return the state of SipHash-128 under a key before the first word."""
    return (
        k0 ^ np.uint64(0x736F6D6570736575),
        k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE),
        k0 ^ np.uint64(0x6C7967656E657261),
        k1 ^ np.uint64(0x7465646279746573),
    )


def _siphash128_plain(
    data: Bytes, start: int, size: int, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64]:
    v0, v1, v2, v3 = map(int, sip_words(k0, k1))
    key = data[start : start + size].tobytes()
    last = bytes(7 - size % 8) + bytes([size & 0xFF])
    for word in unpack(f"<{size // 8 + 1}Q", key + last):
        v0, v1, v2, v3 = _sip_rounds(1, v0, v1, v2, v3 ^ word)
        v0 ^= word
    v0, v1, v2, v3 = _sip_rounds(3, v0, v1, v2 ^ 0xEE, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v0, v1, v2, v3 = _sip_rounds(3, v0, v1 ^ 0xDD, v2, v3)
    return np.uint64(low), np.uint64(v0 ^ v1 ^ v2 ^ v3)


def _sip_rounds(count: int, v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    """Mix four integers `count` times, as `sip_round` does."""
    mask = 0xFFFFFFFFFFFFFFFF
    for _ in range(count):
        v0 = v0 + v1 & mask
        v1 = (v1 << 13 & mask | v1 >> 51) ^ v0
        v0 = v0 << 32 & mask | v0 >> 32
        v2 = v2 + v3 & mask
        v3 = (v3 << 16 & mask | v3 >> 48) ^ v2
        v0 = v0 + v3 & mask
        v3 = (v3 << 21 & mask | v3 >> 43) ^ v0
        v2 = v2 + v1 & mask
        v1 = (v1 << 17 & mask | v1 >> 47) ^ v2
        v2 = v2 << 32 & mask | v2 >> 32
    return v0, v1, v2, v3


@kernel_like(_siphash128_plain)
def siphash128(
    data: Bytes, start: int, size: int, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Return SipHash-1-3-128 of `data[start:start+size]` under the key (k0, k1).

    Returns (low, high), both uint64. O(size), 8 bytes per round.
    """
    v0, v1, v2, v3 = sip_words(k0, k1)
    position = start
    end = start + size
    while position + 8 <= end:
        word = load_u64(data, position)
        v3 ^= word
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0 ^= word
        position += 8
    word = np.uint64(size & 0xFF) << np.uint64(56)
    shift = np.uint64(0)
    while position < end:
        word |= np.uint64(data[position]) << shift
        shift += np.uint64(8)
        position += 1
    v3 ^= word
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(0xEE)
    for _ in range(3):
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(3):
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@inline_kernel
def home_slot(slots: UInt64s, low: np.uint64) -> np.int64:
    """Return the home slot of a hash."""
    home_slots = np.uint64(len(slots) - SLACK_SLOTS)
    return np.int64(((low >> np.uint64(32)) * home_slots) >> np.uint64(32))


def _find_slot_plain(
    slots: UInt64s, low: np.uint64, tag: np.uint64, last: int, tag_mask: int
) -> tuple[Any, bool]:
    wanted, wanted_tag, item = int(low), int(tag), slots.item
    end = len(slots)
    slot = (wanted >> 32) * (end - SLACK_SLOTS) >> 32
    while slot < end:
        word = item(slot, last)
        found = item(slot, 0)
        if word & MAX_OFFSET_SPAN + 1 == 0 or found > wanted:
            return slot, False
        if found == wanted and word & tag_mask == wanted_tag:
            return slot, True
        slot += 1
    return slot, False


@kernel_like(_find_slot_plain)
def find_slot(
    slots: UInt64s, low: np.uint64, tag: np.uint64, last: int, tag_mask: int
) -> tuple[Any, bool]:
    """Return (slot, found): the slot of a hash, or the slot where it would be inserted.

    `last` is the column of the word that contains the offset and, under `tag_mask`, the tag.
    """
    slot = np.uint64(home_slot(slots, low))
    end = np.uint64(len(slots))
    offset_mask = np.uint64(MAX_OFFSET_SPAN + 1)
    while slot < end:
        word = slots[slot, last]
        if word & offset_mask == np.uint64(0) or slots[slot, 0] > low:
            return slot, False
        if slots[slot, 0] == low and word & np.uint64(tag_mask) == tag:
            return slot, True
        slot += np.uint64(1)
    return slot, False


@kernel
def open_slot(slots: UInt64s, slot: np.uint64, last: int) -> bool:
    """Shift the entries from a slot on to the next free slot. Return False if there is none."""
    offset_mask = np.uint64(MAX_OFFSET_SPAN + 1)
    one, end = np.uint64(1), np.uint64(len(slots))
    free = slot
    while free < end and slots[free, last] & offset_mask != np.uint64(0):
        free += one
    if free >= end:
        return False
    while free > slot:
        for column in range(last + 1):
            slots[free, column] = slots[free - one, column]
        free -= one
    return True
