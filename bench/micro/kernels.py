"""Compiled loop that seals many batches of columns at once, to make large logs quickly."""

from __future__ import annotations

import numpy as np

from logstore.cleaner.kernels import MapArrays
from logstore.cleaner.kernels.hashing import LANES, Keys, hash_keys
from logstore.cleaner.kernels.offsets import get_offset, put_offset
from logstore.jit import Bytes, Int32s, Int64s, inline_kernel, kernel
from logstore.record import layout
from logstore.record.kernels import crc32c, encode_records, encoded_records_size, write_be

_LENGTH_AFTER = layout.LOG_OVERHEAD


@kernel
def seal_batches(
    first_offset: int,
    firsts: Int64s,
    timestamps: Int64s,
    key_data: Bytes,
    key_starts: Int64s,
    key_sizes: Int32s,
    value_data: Bytes,
    value_starts: Int64s,
    value_sizes: Int32s,
    header_data: Bytes,
    header_starts: Int64s,
    header_sizes: Int32s,
    out: Bytes,
) -> int:
    """Write uncompressed batches of no producer, one after another; return the bytes written.

    Batch i holds the records [firsts[i], firsts[i + 1]) of the columns, which are those of
    `logstore.record.kernels.encode_records`. Offsets are dense from `first_offset` on, the leader
    epoch is 0. `out` has room for all of them. O(bytes).
    """
    end = 0
    for batch in range(len(firsts) - 1):
        first, last = firsts[batch], firsts[batch + 1]
        deltas = timestamps[first:last] - timestamps[first]
        size = encoded_records_size(
            0,
            deltas,
            key_sizes[first:last],
            value_sizes[first:last],
            header_sizes[first:last],
        )
        start = end
        end = start + layout.HEADER_SIZE + size
        position = write_be(out, start, first_offset + first - firsts[0], 8)
        position = write_be(out, position, end - start - _LENGTH_AFTER, 4)
        position = write_be(out, position, 0, 4)  # leader epoch
        write_be(out, position, layout.MAGIC, 1)
        position = write_be(out, start + layout.ATTRIBUTES_POSITION, 0, 2)
        position = write_be(out, position, last - first - 1, 4)
        position = write_be(out, position, timestamps[first], 8)
        position = write_be(out, position, timestamps[first:last].max(), 8)
        position = write_be(out, position, np.int64(-1), 8)  # producer id
        position = write_be(out, position, np.int64(-1), 2)  # its epoch
        position = write_be(out, position, np.int64(-1), 4)  # its sequence
        position = write_be(out, position, last - first, 4)
        encode_records(
            0,
            deltas,
            key_data,
            key_starts[first:last],
            key_sizes[first:last],
            value_data,
            value_starts[first:last],
            value_sizes[first:last],
            header_data,
            header_starts[first:last],
            header_sizes[first:last],
            out[position:end],
        )
        checksum = crc32c(out, start + layout.ATTRIBUTES_POSITION, end)
        write_be(out, start + layout.CRC_POSITION, checksum, 4)
    return end


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
    taken = 0
    for first in range(0, len(data) // size, LANES):
        count = _take_block(keys, len(data), first, size)
        hash_keys(data, keys, count, key_map)
        for index in range(count):
            taken += put_offset(key_map, keys.lows[index], keys.highs[index], first + index)
    return taken


@kernel
def get_keys(key_map: MapArrays, data: Bytes, size: int, keys: Keys) -> int:
    """Look up adjacent keys of `size` bytes; return how many the map has.

    By blocks, as the records of a clean section are looked up; `keys` as in `put_keys`.
    """
    found = 0
    for first in range(0, len(data) // size, LANES):
        count = _take_block(keys, len(data), first, size)
        hash_keys(data, keys, count, key_map)
        for index in range(count):
            found += get_offset(key_map, keys.lows[index], keys.highs[index]) >= 0
    return found
