"""Compiled loops around the measured kernels, to exclude the overhead of Python calls."""

from __future__ import annotations

from logstore.cleaner.kernels.hashing import LANES, Keys, borrowed_keys, hash_keys
from logstore.cleaner.kernels.offsets import get_offset, put_offset
from logstore.cleaner.kernels.slots import MapArrays, borrowed_map
from logstore.jit import Bytes, Int64s, inline_kernel, kernel
from logstore.record.kernels import crc32c


@kernel
def crc_of_blocks(data: Bytes, size: int) -> int:
    """Return the exclusive or of the CRC-32Cs of all complete blocks of `size` bytes. O(bytes)."""
    combined = 0
    for start in range(0, len(data) - size + 1, size):
        combined ^= crc32c(data, start, start + size)
    return combined


@kernel
def follow_links(links: Int64s, steps: int) -> int:
    """Follow `links` from row 0 for a number of steps, and return the last row."""
    row = 0
    for _ in range(steps):
        row = links[row]
    return row


@inline_kernel
def _take_block(keys: Keys, data_size: int, first: int, size: int) -> int:
    """Set the positions of the next block of keys of `size` bytes, and return their number."""
    count = min(LANES, data_size // size - first)
    for index in range(count):
        keys.starts[index] = (first + index) * size
        keys.sizes[index] = size
    return count


@kernel
def put_keys(key_map: MapArrays, data: Bytes, size: int, keys: Keys) -> int:
    """Map adjacent keys of `size` bytes to 0, 1, …, and return how many fit into the map.

    Works in blocks, as the cleaner does. `keys` has space for `LANES` keys.
    """
    key_map = borrowed_map(key_map)
    keys = borrowed_keys(keys)
    mapped = 0
    for first in range(0, len(data) // size, LANES):
        count = _take_block(keys, len(data), first, size)
        hash_keys(data, keys, count, key_map)
        for index in range(count):
            low, high = keys.lows[index], keys.highs[index]
            fits, _ = put_offset(key_map, low, high, first + index)
            mapped += fits
    return mapped


@kernel
def get_keys(key_map: MapArrays, data: Bytes, size: int, keys: Keys) -> int:
    """Look up adjacent keys of `size` bytes, and return the number of hits.

    Works in blocks. `keys` is as in `put_keys`.
    """
    key_map = borrowed_map(key_map)
    keys = borrowed_keys(keys)
    hits = 0
    for first in range(0, len(data) // size, LANES):
        count = _take_block(keys, len(data), first, size)
        hash_keys(data, keys, count, key_map)
        for index in range(count):
            hits += get_offset(key_map, keys.lows[index], keys.highs[index]) >= 0
    return hits
