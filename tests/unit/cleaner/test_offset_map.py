"""The map from key to offset: Kafka's capacity, other slots."""

from __future__ import annotations

import pytest

from logstore.cleaner.errors import OffsetMapFullError
from logstore.cleaner.kernels.slots import SLACK_SLOTS
from logstore.cleaner.passes.offset_map import OffsetMap
from logstore.errors import InvalidConfigurationError
from logstore.runtime import random_source
from tests.support.world.messages import exactly


def key(number: int) -> bytes:
    return str(number).encode()


def filled(first: int = 37) -> tuple[OffsetMap, int]:
    """Return a 4096-byte map with all of its 170 slots in use, and the last key."""
    a_map = OffsetMap(4096)
    number = first
    while len(a_map) < a_map.capacity:
        a_map.put(key(number), number)
        number += 1
    return a_map, number - 1


@pytest.mark.parametrize("count", (10, 100, 1000, 5000))
def test_s022_gives_back_every_offset(count: int) -> None:
    a_map = OffsetMap(count * 48)
    for number in range(count):
        a_map.put(key(number), number)
    assert [a_map.get(key(number)) for number in range(count)] == list(range(count))
    a_map._check()


def test_s023_clear_forgets_everything() -> None:
    a_map = OffsetMap(4096)
    assert a_map.capacity == 170
    for number in range(10):
        a_map.put(key(number), number)
    assert [a_map.get(key(number)) for number in range(10)] == list(range(10))
    a_map.clear()
    assert [a_map.get(key(number)) for number in range(10)] == [-1] * 10
    assert len(a_map) == 0
    assert a_map.latest_offset == -1
    a_map._check()


def test_s024_a_full_map_answers_and_refuses() -> None:
    a_map, last = filled()
    assert a_map.get(key(last + 1)) == -1
    assert a_map.get(key(last)) == last
    with pytest.raises(OffsetMapFullError, match=exactly("the map is full with 170 keys")):
        a_map.put(key(last + 1), last + 1)
    with pytest.raises(OffsetMapFullError, match=exactly("the map is full with 170 keys")):
        a_map.put(key(last), last + 1)
    assert a_map.get(key(last)) == last


def test_s025_latest_offset_follows_puts_and_can_be_moved_alone() -> None:
    a_map, last = filled()
    assert a_map.latest_offset == last
    a_map.latest_offset = 40
    assert a_map.latest_offset == 40
    assert a_map.get(b"40") == 40
    assert a_map.get(key(last)) == last


def test_s026_utilization_is_size_over_slots() -> None:
    a_map = OffsetMap(4096)
    for number in range(50):
        for offset in (number, 1000 + number):
            a_map.put(key(number), offset)
            assert len(a_map) == number + 1
            assert a_map.utilization == (number + 1) / 170


def test_s027_the_last_put_holds_whatever_its_offset() -> None:
    a_map = OffsetMap(4096)
    for offset in (3, 9, 7):
        a_map.put(b"k", offset)
    assert a_map.get(b"k") == 7
    assert a_map.latest_offset == 7


@pytest.mark.parametrize(
    ("memory_bytes", "load_factor", "capacity", "limit"),
    ((134_217_728, 0.9, 5_592_405, 5_033_164), (240, 0.9, 10, 9), (4 * 24, 0.75, 4, 3)),
)
def test_capacity_is_counted_as_kafka_counts_it(
    memory_bytes: int, load_factor: float, capacity: int, limit: int
) -> None:
    a_map = OffsetMap(memory_bytes, load_factor, max_entries=1)
    assert (a_map.capacity, a_map.limit) == (capacity, limit)


@pytest.mark.parametrize(
    ("memory_bytes", "load_factor", "message"),
    (
        (
            23,
            1.0,
            (
                "log.cleaner.dedupe.buffer.size: a cleaner thread's share of 23 bytes, "
                "filled to log.cleaner.io.buffer.load.factor 1.0, has no room for one "
                "key: no progress is possible"
            ),
        ),
        (
            24,
            1.0,
            (
                "log.cleaner.dedupe.buffer.size: a cleaner thread's share of 24 bytes, "
                "filled to log.cleaner.io.buffer.load.factor 1.0, has no room for one "
                "key: no progress is possible"
            ),
        ),
        (
            24,
            0.9,
            (
                "log.cleaner.dedupe.buffer.size: a cleaner thread's share of 24 bytes, "
                "filled to log.cleaner.io.buffer.load.factor 0.9, has no room for one "
                "key: no progress is possible"
            ),
        ),
    ),
)
def test_a_buffer_without_room_for_a_key_is_refused(
    memory_bytes: int, load_factor: float, message: str
) -> None:
    with pytest.raises(InvalidConfigurationError, match=exactly(message)):
        OffsetMap(memory_bytes, load_factor)


def test_slots_never_take_more_than_the_buffer_and_a_small_slack() -> None:
    memory_bytes = 1 << 20
    a_map = OffsetMap(memory_bytes)
    assert a_map.slots.nbytes <= memory_bytes + 16 * SLACK_SLOTS
    assert OffsetMap(1 << 30, max_entries=10).slots.nbytes < 100_000


def test_a_full_map_of_a_small_estimate_still_takes_keys_into_the_slack() -> None:
    """A damaged batch may repeat offsets, so that there are more keys than offsets."""
    a_map = OffsetMap(1 << 20, max_entries=0)
    taken = SLACK_SLOTS + 1
    for number in range(taken):
        a_map.put(key(number), 5)
    with pytest.raises(OffsetMapFullError, match=exactly("the map is full with 4097 keys")):
        a_map.put(key(taken), 5)
    assert len(a_map) == taken
    assert a_map.get(key(0)) == 5
    a_map._check()


def test_contents_do_not_depend_on_the_hash_key() -> None:
    maps = [OffsetMap(48_000, rng=random_source(seed)) for seed in (1, 2)]
    assert maps[0].arrays.k0 != maps[1].arrays.k0
    for a_map in maps:
        for number in range(500):
            a_map.put(key(number), number)
        assert [a_map.get(key(number)) for number in range(500)] == list(range(500))


def test_empty_and_long_keys_are_keys() -> None:
    a_map = OffsetMap(4096)
    keys = [b"", b"\0", b"\0\0", b"x" * 7, b"x" * 8, b"x" * 9, b"x" * 100_000]
    for offset, each in enumerate(keys):
        a_map.put(each, offset)
    assert [a_map.get(each) for each in keys] == list(range(len(keys)))
