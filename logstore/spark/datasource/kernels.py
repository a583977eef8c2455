"""Compiled XXH64 with Spark's seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from logstore.jit import kernel, load_u64

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = np.uint64(42)
"""Seed of Spark's `xxhash64`."""

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_BITS = np.uint64(64)


@kernel
def _rotated(word: np.uint64, count: int) -> np.uint64:
    """Rotate left by `count` bits, from 1 to 63."""
    bits = np.uint64(count)
    return (word << bits) | (word >> (_BITS - bits))


@kernel
def _round(lane: np.uint64, word: np.uint64) -> np.uint64:
    """Mix 8 bytes into a lane."""
    return _rotated(lane + word * _P2, 31) * _P1


@kernel
def digest_strings(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    digests: NDArray[np.int64],
) -> None:
    """Compute the XXH64 digest of each byte string.

    Parameters
    ----------
    data : (n,) uint8
        Bytes of all strings.
    starts, sizes : (m,) int64
        Positions and lengths in bytes, within `data`. A negative length means 0.
    digests : (m,) int64, out
        Digests.

    Notes
    -----
    O(bytes). Source: the XXH64 specification, 0.1.1.
    """
    for row in range(len(starts)):
        at, size = starts[row], max(sizes[row], 0)
        end = at + size
        if size >= 32:
            lane1, lane2, lane3, lane4 = SEED + _P1 + _P2, SEED + _P2, SEED, SEED - _P1
            while at + 32 <= end:
                lane1 = _round(lane1, load_u64(data, at))
                lane2 = _round(lane2, load_u64(data, at + 8))
                lane3 = _round(lane3, load_u64(data, at + 16))
                lane4 = _round(lane4, load_u64(data, at + 24))
                at += 32
            total = _rotated(lane1, 1) + _rotated(lane2, 7)
            total += _rotated(lane3, 12) + _rotated(lane4, 18)
            for lane in (lane1, lane2, lane3, lane4):
                total = (total ^ _round(np.uint64(0), lane)) * _P1 + _P4
        else:
            total = SEED + _P5
        total += np.uint64(size)
        while at + 8 <= end:
            total = _rotated(total ^ _round(np.uint64(0), load_u64(data, at)), 27) * _P1 + _P4
            at += 8
        if at + 4 <= end:
            word = np.uint64(0)
            for byte in range(4):
                word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
            total = _rotated(total ^ (word * _P1), 23) * _P2 + _P3
            at += 4
        while at < end:
            total = _rotated(total ^ (np.uint64(data[at]) * _P5), 11) * _P1
            at += 1
        total = (total ^ (total >> np.uint64(33))) * _P2
        total = (total ^ (total >> np.uint64(29))) * _P3
        digests[row] = np.int64(total ^ (total >> np.uint64(32)))
