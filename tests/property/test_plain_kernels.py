"""Plain forms that have a source of their own, against the compiled forms.

Kernels: `read_varint`, `read_record`, `siphash128`, `hash_keys`, `find_slot` and `note_winners`.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from logstore.cleaner.kernels.hashing import LANES, LONGEST, Keys, hash_keys
from logstore.cleaner.kernels.offsets import map_get, map_put
from logstore.cleaner.kernels.slots import (
    SLACK_SLOTS,
    STATE_LIMIT,
    STATE_WINNERS_BASE,
    STATE_WORDS,
    MapArrays,
    siphash128,
)
from logstore.cleaner.kernels.winners import note_winners
from logstore.jit import kernel
from logstore.record.kernels import OK, read_record, read_varint
from logstore.record.records import encode_headers, encode_record
from logstore.record.varint import MAX_VARINT_BYTES, MAX_VARLONG_BYTES
from tests.support.world.kernel_calls import array
from tests.support.world.record_strategies import damaged

pytestmark = pytest.mark.skipif(
    not hasattr(siphash128, "signatures"), reason="kernels run only as plain Python"
)


@pytest.fixture(autouse=True, scope="module")
def wrapping():
    """Let integers wrap around, as a call of a kernel does."""
    with np.errstate(over="ignore"):
        yield


WORDS = st.integers(0, 2**64 - 1).map(np.uint64)
NUMBERS = st.one_of(st.integers(-200, 9000), st.integers(-(2**31), 2**31 - 1))
RECORDS = st.builds(
    lambda stamp, place, key, value, headers: encode_record(
        stamp, place, key, value, encode_headers(headers)
    ),
    st.one_of(NUMBERS, st.integers(-(2**63), 2**63 - 1)),
    NUMBERS,
    st.none() | st.binary(max_size=70),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
)


@kernel
def _parse(data, position, end):
    return read_record(data, position, end)


@kernel
def _note(key_map, winners, losers, count):
    note_winners(key_map, winners, losers, count)


def empty_map(k0=0, k1=0, homes=3, words=0):
    """Return a map whose few home slots share the slack."""
    state = np.zeros(STATE_WORDS, np.int64)
    state[STATE_LIMIT] = 2**40
    slots = np.zeros((homes + SLACK_SLOTS, 2), np.uint64)
    return MapArrays(slots, state, np.zeros(words, np.uint64), np.uint64(k0), np.uint64(k1))


@given(
    data=st.lists(st.one_of(st.integers(0x80, 0xFF), st.integers(0, 0xFF)), max_size=14).map(bytes),
    cut=st.integers(0, 3),
    max_bytes=st.sampled_from((MAX_VARINT_BYTES, MAX_VARLONG_BYTES)),
)
@settings(deadline=None)
def test_read_varint(data, cut, max_bytes):
    arguments = array(data), 0, max(len(data) - cut, 0), max_bytes
    assert read_varint.plain(*arguments) == read_varint(*arguments)


@given(data=RECORDS.flatmap(lambda data: st.just(data) | damaged(data)), tail=st.binary(max_size=9))
@settings(deadline=None)
def test_read_record(data, tail):
    arguments = array(data + tail), 0, len(data)
    status, fields = read_record.plain(*arguments)
    compiled_status, compiled_fields = _parse(*arguments)
    assert status == compiled_status
    if status == OK:
        assert fields == compiled_fields


@given(data=st.binary(max_size=60), lead=st.integers(0, 9), k0=WORDS, k1=WORDS)
@settings(deadline=None)
def test_siphash128(data, lead, k0, k1):
    arguments = array(bytes(lead) + data), lead, len(data), k0, k1
    assert siphash128.plain(*arguments) == siphash128(*arguments)


@given(
    sizes=st.lists(st.integers(0, 40) | st.integers(0, LONGEST + 9), min_size=1, max_size=20),
    repeats=st.sampled_from((1, LANES // 5)),
    seed=st.integers(0, 2**32 - 1),
    slack=st.sampled_from((0, 8)),
)
@settings(deadline=None)
def test_hash_keys(sizes, repeats, seed, slack):
    rng = np.random.default_rng(seed)
    sizes = np.repeat(np.array(sizes), repeats)
    data = rng.integers(0, 256, int(sizes.sum()) + slack, np.uint8)
    keys = Keys.room_for(len(sizes))
    keys.sizes[:] = sizes
    keys.starts[:] = np.cumsum(sizes) - sizes
    key_map = empty_map(*rng.integers(0, 2**64, 2, np.uint64))
    hash_keys(data, keys, len(sizes), key_map)
    expected = keys.lows.tolist(), keys.highs.tolist()
    hash_keys.plain(data, keys, len(sizes), key_map)
    assert (keys.lows.tolist(), keys.highs.tolist()) == expected


@given(puts=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 500)), max_size=40))
@settings(deadline=None)
def test_maps_are_equal(puts):
    maps = empty_map(words=4), empty_map(words=4)
    for number, offset in puts:
        key = array(b"%d" % number)
        results = [
            (put(key_map, key, 0, len(key), offset), get(key_map, key, 0, len(key)))
            for put, get, key_map in (
                (map_put, map_get, maps[0]),
                (map_put.plain, map_get.plain, maps[1]),
            )
        ]
        assert results[0] == results[1] == (True, offset)
    for first, second in zip(*maps, strict=True):
        assert np.array_equal(first, second)


@given(
    base=st.integers(-100, 100),
    words=st.integers(0, 3),
    winners=st.lists(st.integers(-100, 300), unique=True, max_size=40).map(sorted),
    data=st.data(),
)
@settings(deadline=None)
def test_note_winners(base, words, winners, data):
    losers = [data.draw(st.just(-1) | st.integers(-101, offset - 1)) for offset in winners]
    before = data.draw(st.lists(WORDS, min_size=words, max_size=words))
    maps = empty_map(words=words), empty_map(words=words)
    for note, key_map in zip((_note, note_winners.plain), maps, strict=True):
        key_map.state[STATE_WINNERS_BASE] = base
        key_map.winners[:] = before
        note(key_map, np.array(winners, np.int64), np.array(losers, np.int64), len(winners))
    assert maps[0].winners.tolist() == maps[1].winners.tolist()
