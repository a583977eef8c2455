"""Kernels of the harness against plain Python."""

import google_crc32c
import numpy as np
import pytest

from logstore.bench.micro.kernels import crc_of_blocks, get_keys, put_keys
from logstore.bench.micro.key_map import KEY_BYTES, keys_of
from logstore.cleaner.kernels.hashing import LANES, Keys
from logstore.cleaner.passes.offset_map import OffsetMap


def test_crc_of_blocks_matches_each_whole_block():
    data = np.random.Generator(np.random.Philox(1)).integers(0, 256, 1000, np.uint8)
    expected = 0
    for start in range(0, 1000 - 64 + 1, 64):
        expected ^= google_crc32c.value(data[start : start + 64].tobytes())
    assert crc_of_blocks(data, 64) == expected != 0


@pytest.mark.slow
def test_keys_are_put_in_order_and_found():
    keys = np.frombuffer(b"aaaabbbbaaaacccc", np.uint8).copy()
    key_map = OffsetMap(1 << 10)
    room = Keys.room_for(LANES)
    assert put_keys(key_map.arrays, keys, 4, room) == 4
    assert [key_map.get(key) for key in (b"aaaa", b"bbbb", b"cccc", b"dddd")] == [2, 1, 3, -1]
    assert get_keys(key_map.arrays, np.frombuffer(b"bbbbxxxxcccc", np.uint8).copy(), 4, room) == 2


def test_more_keys_than_a_block_are_put_and_found():
    keys = keys_of(24 * 1000, 0.9)
    key_map = OffsetMap(24 * 1000)
    room = Keys.room_for(LANES)
    assert put_keys(key_map.arrays, keys.puts, KEY_BYTES, room) == keys.count > 2 * LANES
    assert get_keys(key_map.arrays, keys.puts, KEY_BYTES, room) == keys.count
    assert get_keys(key_map.arrays, keys.absent, KEY_BYTES, room) == 0


def test_keys_fill_the_map_to_its_load():
    keys = keys_of(24 * 1000, 0.9)
    puts = keys.puts.reshape(-1, KEY_BYTES)
    distinct = len(np.unique(puts, axis=0))
    assert len(puts) == keys.count == 998
    assert 0.5 < distinct / keys.count <= 1
    few = keys_of(24 * 1000, 0.1)
    assert len(np.unique(few.puts.reshape(-1, KEY_BYTES), axis=0)) == 899
    assert few.count == 8990
