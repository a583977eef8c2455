"""A batch is found wherever it begins, without false positives."""

import pytest

from logstore.errors import CorruptRecordError
from logstore.record import search
from logstore.record.search import find_batch
from tests.support.world.builders import batch, memory_world
from tests.support.world.messages import exactly

SOUND = batch(5, 6)


def search_in(data, start=0, base_offset=0, **options):
    world = memory_world()
    world.write("x", data)
    return find_batch(world.fs.open(world.path("x")), start, len(data), base_offset, **options)


@pytest.mark.parametrize("block", (61, 64, 200, 1 << 20))
def test_a_batch_is_found_at_any_position(monkeypatch, block):
    """Also across the blocks that are read, and if it is longer than one."""
    monkeypatch.setattr(search, "_BLOCK", block)
    for before in range(140):
        found = search_in(bytes([2]) * before + SOUND + batch(7))
        assert found is not None
        assert (found.position, found.header.base_offset) == (before, 5)
    assert search_in(SOUND + batch(7), start=1).position == len(SOUND)


def test_invalid_batches_of_the_segment_are_skipped():
    damaged = bytearray(SOUND)
    damaged[-1] ^= 1
    for data in (b"", SOUND[:-1], SOUND[1:], bytes(damaged)):
        assert search_in(data) is None
    for base_offset in (6, -(2**31)):
        assert search_in(SOUND, base_offset=base_offset) is None
    assert search_in(SOUND, base_offset=5 - (2**31 - 1)) is not None


def test_the_search_is_given_up_once_it_costs_too_much():
    """Bytes that look like long batches, each beginning inside the one before."""
    damaged = bytearray(SOUND)
    damaged[-1] ^= 1
    data = bytes(damaged) * 4
    assert search_in(data, effort=len(data)) is None
    with pytest.raises(
        CorruptRecordError, match=exactly("too many byte sequences resemble a batch")
    ) as caught:
        search_in(data, effort=len(data) - 1)
    assert caught.value.position == 3 * len(SOUND)
