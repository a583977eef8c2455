"""A bit for each mapped offset, set if the record survives for its key.

Mapping sets the bit of the record entered for a key and clears the bit of the record it replaces.
The rewrite therefore need not hash or look up mapped records. Bits start at `STATE_WINNERS_BASE`.
Lower offsets, and offsets after the last bit, have no bit.
"""

from __future__ import annotations

import numpy as np

from logstore.cleaner.kernels.slots import STATE_WINNERS_BASE, MapArrays
from logstore.jit import Int64s, UInt64s, inline_kernel, kernel, kernel_like, popcount

WORD_BITS = 64


@inline_kernel
def has_bit(key_map: MapArrays, offset: np.int64) -> bool:
    """Return whether an offset has a bit."""
    bit = offset - key_map.state[STATE_WINNERS_BASE]
    return 0 <= bit < WORD_BITS * len(key_map.winners)  # type: ignore[no-any-return]


@inline_kernel
def note_winner(key_map: MapArrays, offset: np.int64) -> None:
    """Set the bit of a record that is now the winner, if it has a bit."""
    if has_bit(key_map, offset):
        bit = np.uint64(offset - key_map.state[STATE_WINNERS_BASE])
        mask = np.uint64(1) << (bit & np.uint64(63))
        key_map.winners[np.int64(bit >> np.uint64(6))] |= mask


@inline_kernel
def note_loser(key_map: MapArrays, offset: np.int64) -> None:
    """Clear the bit of a record that is no longer the winner, if it has a bit."""
    if has_bit(key_map, offset):
        bit = np.uint64(offset - key_map.state[STATE_WINNERS_BASE])
        mask = np.uint64(1) << (bit & np.uint64(63))
        key_map.winners[np.int64(bit >> np.uint64(6))] &= ~mask


def _note_winners_plain(key_map: MapArrays, winners: Int64s, losers: Int64s, count: int) -> None:
    words = key_map.winners
    for offsets, is_won in ((winners, True), (losers, False)):
        bits = offsets[:count] - key_map.state[STATE_WINNERS_BASE]
        bits = bits[(bits >= 0) & (bits < WORD_BITS * len(words))]
        masks = np.uint64(1) << (bits & 63).astype(np.uint64)
        if is_won:
            np.bitwise_or.at(words, bits >> 6, masks)
        else:
            np.bitwise_and.at(words, bits >> 6, ~masks)


@kernel_like(_note_winners_plain, inline=True)
def note_winners(key_map: MapArrays, winners: Int64s, losers: Int64s, count: int) -> None:
    """Set the bits of successive winners, and clear the bits of displaced records.

    If a winner is displaced immediately, its bit is not set, because the offsets of winners are
    increasing.
    """
    words = key_map.winners
    bits = np.uint64(WORD_BITS * len(words))
    if bits == np.uint64(0):
        return
    base = key_map.state[STATE_WINNERS_BASE]
    place = mask = np.uint64(0)
    for number in range(count):
        bit = np.uint64(winners[number] - base)
        if bit < bits:
            # Adjacent bits share a word, which is written once.
            if bit >> np.uint64(6) != place:
                words[place] |= mask
                place, mask = bit >> np.uint64(6), np.uint64(0)
            mask |= np.uint64(1) << (bit & np.uint64(63))
    words[place] |= mask
    for number in range(count):
        bit = np.uint64(losers[number] - base)
        # Branch-free, because a branch would be unpredictable. If an offset has no bit, the word
        # does not change.
        has_one = np.uint64(bit < bits)
        words[(bit >> np.uint64(6)) * has_one] &= ~(has_one << (bit & np.uint64(63)))


@inline_kernel
def is_winner(winners: UInt64s, bit: np.int64) -> bool:
    """Return whether a bit is set."""
    position = np.uint64(bit)
    word = winners[np.int64(position >> np.uint64(6))]
    return (word >> (position & np.uint64(63))) & np.uint64(1) != np.uint64(0)  # type: ignore[no-any-return]


@kernel
def count_winners(winners: UInt64s, first: np.int64, end: np.int64) -> np.int64:
    """Count the set bits in [first, end). O(bits / 64)."""
    found = np.int64(0)
    all_bits = ~np.uint64(0)
    word = first >> 6
    last = (end - 1) >> 6
    mask = all_bits << np.uint64(first & 63)
    while word <= last:
        if word == last:
            mask &= all_bits >> np.uint64(63 - ((end - 1) & 63))
        found += popcount(winners[word] & mask)
        mask = all_bits
        word += 1
    return found
