"""Compiled loops around the kernels that are measured, so that Python's calls are not."""

from __future__ import annotations

from logstore.cleaner.kernels.hashing import LANES, Keys, borrowed_keys, hash_keys
from logstore.cleaner.kernels.offsets import get_offset, put_offset
from logstore.cleaner.kernels.slots import MapArrays, borrowed_map
from logstore.jit import Bytes, inline_kernel, kernel
from logstore.record.kernels import crc32c


@kernel
def crc_of_blocks(data: Bytes, size: int) -> int:
    """Return the exclusive or of the CRC-32C of every whole block of `size` bytes. O(bytes)."""
    found = 0
    for start in range(0, len(data) - size + 1, size):
        found ^= crc32c(data, start, start + size)
    return found


@inline_kernel
def _take_block(keys: Keys, data_size: int, first: int, size: int) -> int:
    """Fill in the places of the next keys of `size` bytes, at most a block; return their number."""
    count = min(LANES, data_size // size - first)
    for index in range(count):
        keys.starts[index] = (first + index) * size
        keys.sizes[index] = size
    return count


@kernel
def put_keys(key_map: MapArrays, data: Bytes, size: int, keys: Keys) -> int:
    """Map adjacent keys of `size` bytes to 0, 1, …; return how many the map took.

    By blocks, as a chunk's records are mapped; `keys` is room for `LANES` of them.
    """
    key_map = borrowed_map(key_map)
    keys = borrowed_keys(keys)
    taken = 0
    for first in range(0, len(data) // size, LANES):
        count = _take_block(keys, len(data), first, size)
        hash_keys(data, keys, count, key_map)
        for index in range(count):
            low, high = keys.lows[index], keys.highs[index]
            fits, _ = put_offset(key_map, low, high, first + index)
            taken += fits
    return taken


@kernel
def get_keys(key_map: MapArrays, data: Bytes, size: int, keys: Keys) -> int:
    """Look up adjacent keys of `size` bytes; return how many the map has.

    By blocks, as the records of a clean section are looked up; `keys` as in `put_keys`.
    """
    key_map = borrowed_map(key_map)
    keys = borrowed_keys(keys)
    found = 0
    for first in range(0, len(data) // size, LANES):
        count = _take_block(keys, len(data), first, size)
        hash_keys(data, keys, count, key_map)
        for index in range(count):
            found += get_offset(key_map, keys.lows[index], keys.highs[index]) >= 0
    return found
