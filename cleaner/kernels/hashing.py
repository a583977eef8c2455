"""Hash many keys by computing the SipHash rounds of several keys at once.

The rounds of a single key depend on each other, but the rounds of different keys do not, so the
compiler can vectorize them. Short keys wait for longer ones. If some keys are much longer than
others, all keys are sorted first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from logstore.cleaner.kernels.slots import MapArrays, home_slot, sip_round, sip_words, siphash128
from logstore.jit import (
    Bytes,
    Int64s,
    UInt64s,
    borrowed,
    inline_kernel,
    kernel,
    kernel_like,
    load_u64,
    prefetch,
)
from logstore.record.kernels import Int

LANES = 256
"""Number of keys hashed at once. Their state fits into the L1 cache."""

LONGEST = 128
"""Maximum size in bytes of a key that is hashed together with others."""

WORD_BYTES = 8

SKIPPED_WORDS_MIN = 2
"""Keys are sorted if that saves at least this number of words per key on average."""


class Keys(NamedTuple):
    """Keys and their hashes."""

    starts: Int64s  # start of each key
    sizes: Int64s
    lows: UInt64s
    highs: UInt64s
    lanes: UInt64s  # (5, LANES): scratch
    ranks: Int64s  # (4, LANES): scratch

    @classmethod
    def room_for(cls, count: int) -> Keys:
        """Return arrays for `count` keys."""
        starts, sizes = np.empty((2, count), np.int64)
        lows, highs = np.empty((2, count), np.uint64)
        lanes, ranks = np.empty((5, LANES), np.uint64), np.empty((4, LANES), np.int64)
        return cls(starts, sizes, lows, highs, lanes, ranks)


@inline_kernel
def borrowed_keys(keys: Keys) -> Keys:
    """Return the same arrays `borrowed`."""
    return Keys(
        borrowed(keys.starts),
        borrowed(keys.sizes),
        borrowed(keys.lows),
        borrowed(keys.highs),
        borrowed(keys.lanes),
        borrowed(keys.ranks),
    )


@kernel
def _begin(
    v0: UInt64s, v1: UInt64s, v2: UInt64s, v3: UInt64s, k0: np.uint64, k1: np.uint64, count: int
) -> None:
    """Set the state of each lane to the state under key (k0, k1)."""
    w0, w1, w2, w3 = sip_words(k0, k1)
    for lane in range(count):
        v0[lane] = w0
        v1[lane] = w1
        v2[lane] = w2
        v3[lane] = w3


@kernel
def _load_words(
    data: Bytes, starts: Int64s, sizes: Int64s, at: Int, count: Int, words: UInt64s
) -> None:
    """Load 8 bytes from `at` on of the first `count` keys, as SipHash consumes them.

    The last word of a key includes the key's size. A word past the end of a key is ignored. Bytes
    after the key are read and masked.
    """
    for lane in range(count):
        _ = data[starts[lane] + at + 7]  # so that NUMBA_BOUNDSCHECK=1 sees it
        words[lane] = load_u64(data, starts[lane] + at)
    for lane in range(count):  # a separate loop that the compiler vectorizes
        known = np.uint64(min(max(sizes[lane] - at, np.int64(0)), np.int64(WORD_BYTES)))
        shift = np.uint64(4) * (np.uint64(WORD_BYTES) - known)
        mark = np.uint64(sizes[lane] & 0xFF) << np.uint64(56)
        mark = mark if known < np.uint64(WORD_BYTES) else np.uint64(0)
        words[lane] = (words[lane] & ((~np.uint64(0) >> shift) >> shift)) | mark


@kernel
def _absorb(
    v0: UInt64s,
    v1: UInt64s,
    v2: UInt64s,
    v3: UInt64s,
    words: UInt64s,
    sizes: Int64s,
    at: Int,
    count: Int,
) -> None:
    """Mix a word into each lane whose key is long enough."""
    for lane in range(count):
        word = words[lane]
        w0, w1, w2, w3 = sip_round(v0[lane], v1[lane], v2[lane], v3[lane] ^ word)
        is_open = sizes[lane] >= at
        v0[lane] = w0 ^ word if is_open else v0[lane]
        v1[lane] = w1 if is_open else v1[lane]
        v2[lane] = w2 if is_open else v2[lane]
        v3[lane] = w3 if is_open else v3[lane]


@kernel
def _finish(
    v0: UInt64s, v1: UInt64s, v2: UInt64s, v3: UInt64s, mark: np.uint64, out: UInt64s, count: int
) -> None:
    """XOR `mark` into v2, mix each lane three times, and return a word of its hash."""
    for lane in range(count):
        w0, w1, w2, w3 = v0[lane], v1[lane], v2[lane] ^ mark, v3[lane]
        for _ in range(3):
            w0, w1, w2, w3 = sip_round(w0, w1, w2, w3)
        out[lane] = w0 ^ w1 ^ w2 ^ w3
        v0[lane] = w0
        v1[lane] = w1 ^ np.uint64(0xDD)
        v2[lane] = w2
        v3[lane] = w3


def _hash_together_plain(
    data: Bytes,
    keys: Keys,
    first: int,
    end: int,
    shortest: Int,
    longest: Int,
    key_map: MapArrays,
) -> None:
    """Hash the keys by operations on whole arrays."""
    starts, sizes = keys.starts[first:end], keys.sizes[first:end]
    state: tuple[Any, ...] = tuple(
        np.full(end - first, word) for word in sip_words(key_map.k0, key_map.k1)
    )
    for at in range(0, int(longest) + 1, WORD_BYTES):
        places = (starts + at)[:, None] + np.arange(WORD_BYTES)
        words = data[places].view("<u8")[:, 0]
        known = np.clip(sizes - at, 0, WORD_BYTES)
        shifts = (4 * (WORD_BYTES - known)).astype(np.uint64)
        marks = ((sizes & 0xFF) << 56).astype(np.uint64)
        words = words & ((~np.uint64(0) >> shifts) >> shifts) | np.where(known < 8, marks, 0)
        v0, v1, v2, v3 = state
        w0, w1, w2, w3 = sip_round(v0, v1, v2, v3 ^ words)
        mixed = w0 ^ words, w1, w2, w3
        state = tuple(np.where(sizes >= at, *pair) for pair in zip(mixed, state, strict=True))
    v0, v1, v2, v3 = state
    v2 = v2 ^ np.uint64(0xEE)
    for out in (keys.lows, keys.highs):
        for _ in range(3):
            v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        out[first:end] = v0 ^ v1 ^ v2 ^ v3
        v1 = v1 ^ np.uint64(0xDD)


@kernel_like(_hash_together_plain)
def _hash_together(
    data: Bytes,
    keys: Keys,
    first: int,
    end: int,
    shortest: Int,
    longest: Int,
    key_map: MapArrays,
) -> None:
    """Hash up to `LANES` keys of the same size."""
    v0, v1, v2, v3, words = (
        keys.lanes[0],
        keys.lanes[1],
        keys.lanes[2],
        keys.lanes[3],
        keys.lanes[4],
    )
    count = end - first
    starts, sizes = keys.starts[first:end], keys.sizes[first:end]
    _begin(v0, v1, v2, v3, key_map.k0, key_map.k1, count)
    for at in range(0, longest + 1, 8):
        if at + 8 <= shortest:
            for lane in range(count):
                _ = data[starts[lane] + at + 7]  # so that NUMBA_BOUNDSCHECK=1 sees it
                words[lane] = load_u64(data, starts[lane] + at)
        else:
            _load_words(data, starts, sizes, at, count, words)
        _absorb(v0, v1, v2, v3, words, sizes, at, count)
    _finish(v0, v1, v2, v3, np.uint64(0xEE), keys.lows[first:end], count)
    _finish(v0, v1, v2, v3, np.uint64(0), keys.highs[first:end], count)


@kernel
def _rank(starts: Int64s, sizes: Int64s, words: Int, ranks: Int64s) -> None:
    """Sort keys of up to `words` words, longest first.

    `ranks` receives the index, start and size of each key, and the numbers of keys with 0, 1, 2 and
    more whole words.
    """
    order, sorted_starts, sorted_sizes, behind = ranks[0], ranks[1], ranks[2], ranks[3]
    for word in range(words + 2):
        behind[word] = 0
    for lane in range(len(sizes)):
        behind[sizes[lane] // WORD_BYTES] += 1
    before = np.int64(0)
    for word in range(words, -1, -1):
        count = behind[word]
        behind[word] = before
        before += count
    for lane in range(len(sizes)):
        word = sizes[lane] // WORD_BYTES
        place = behind[word]
        behind[word] = place + 1
        order[place] = lane
        sorted_starts[place] = starts[lane]
        sorted_sizes[place] = sizes[lane]


def _hash_ranked_plain(
    data: Bytes, keys: Keys, first: int, end: int, whole_words: Int, key_map: MapArrays
) -> None:
    _hash_together(data, keys, first, end, 0, whole_words * WORD_BYTES, key_map)


@kernel_like(_hash_ranked_plain)
def _hash_ranked(
    data: Bytes, keys: Keys, first: int, end: int, whole_words: Int, key_map: MapArrays
) -> None:
    """Hash up to `LANES` keys of up to `whole_words` whole words, sorted by `_rank`."""
    v0, v1, v2, v3, words = (
        keys.lanes[0],
        keys.lanes[1],
        keys.lanes[2],
        keys.lanes[3],
        keys.lanes[4],
    )
    count = end - first
    _rank(keys.starts[first:end], keys.sizes[first:end], whole_words, keys.ranks)
    order, starts, sizes, behind = keys.ranks[0], keys.ranks[1], keys.ranks[2], keys.ranks[3]
    _begin(v0, v1, v2, v3, key_map.k0, key_map.k1, count)
    going = np.int64(count)  # keys with this word, possibly partial
    for number in range(whole_words + 1):
        at = number * WORD_BYTES
        longer = behind[number + 1]
        for lane in range(longer):
            _ = data[starts[lane] + at + 7]  # so that NUMBA_BOUNDSCHECK=1 sees it
            words[lane] = load_u64(data, starts[lane] + at)
        _load_words(data, starts[longer:], sizes[longer:], at, going - longer, words[longer:])
        _absorb(v0, v1, v2, v3, words, sizes, at, going)
        going = longer
    _finish(v0, v1, v2, v3, np.uint64(0xEE), words, count)
    for lane in range(count):
        keys.lows[first + order[lane]] = words[lane]
    _finish(v0, v1, v2, v3, np.uint64(0), words, count)
    for lane in range(count):
        keys.highs[first + order[lane]] = words[lane]


@kernel
def hash_keys(data: Bytes, keys: Keys, count: int, key_map: MapArrays) -> None:
    """Hash the first `count` keys, and prefetch their slots.

    The results equal `siphash128` of each key. O(bytes).
    """
    data = borrowed(data)
    keys = borrowed_keys(keys)
    for first in range(0, count, LANES):
        end = min(first + LANES, count)
        shortest, longest, latest = keys.sizes[first], np.int64(0), np.int64(0)
        all_words = np.int64(0)
        for index in range(first, end):
            all_words += keys.sizes[index] // WORD_BYTES
            shortest = min(shortest, keys.sizes[index])
            longest = max(longest, keys.sizes[index])
            latest = max(latest, keys.starts[index])
        whole_words = longest // WORD_BYTES
        if longest > LONGEST or latest + longest + WORD_BYTES > len(data):
            for index in range(first, end):
                low, high = siphash128(
                    data, keys.starts[index], keys.sizes[index], key_map.k0, key_map.k1
                )
                keys.lows[index] = low
                keys.highs[index] = high
        elif (whole_words - SKIPPED_WORDS_MIN) * (end - first) > all_words:
            _hash_ranked(data, keys, first, end, whole_words, key_map)
        else:
            _hash_together(data, keys, first, end, shortest, longest, key_map)
        for index in range(first, end):
            prefetch(key_map.slots, home_slot(key_map.slots, keys.lows[index]))
