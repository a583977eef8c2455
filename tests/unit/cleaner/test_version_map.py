"""The map from key to the record of the highest order: capacity, order, and later losers."""

from __future__ import annotations

import pytest

from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.errors import OffsetMapFullError
from logstore.cleaner.kernels.slots import SLACK_SLOTS
from logstore.cleaner.passes.offset_map import OffsetMap
from logstore.cleaner.passes.version_map import VersionMap
from logstore.cleaner.strategy import Order, Strategy
from logstore.config.broker_config import BrokerConfig
from logstore.errors import InvalidConfigurationError
from logstore.runtime import random_source
from tests.support.world.kernel_calls import lift
from tests.support.world.messages import exactly

LOWEST, HIGHEST = -(2**63), 2**63 - 1


def key(number: int) -> bytes:
    return str(number).encode()


def order(offset: int, version: int | None = None) -> Order:
    return Order(version is not None, version or 0, offset)


def mapped(*competitors: Order, clean: tuple[Order, ...] = ()) -> VersionMap:
    """Return a map with one key, for which these records competed in order."""
    a_map = VersionMap(3200)
    for each in competitors:
        a_map.put(b"k", each)
    for each in clean:
        lift(a_map, b"k", each)
    a_map._check()
    return a_map


# --- capacity ---------------------------------------------------------------------------------


def test_s256_an_entry_counts_as_32_bytes() -> None:
    default = CleanerConfig.from_broker(BrokerConfig())
    a_map = VersionMap(default.dedupe_buffer_bytes, default.load_factor, max_entries=1)
    assert (a_map.capacity, a_map.limit) == (4_194_304, 3_774_873)
    for name in ("timestamp", "header"):
        assert default.max_keys_of(Strategy(name, "v")) == 3_774_873
    assert default.max_keys_of(Strategy()) == 5_033_164


@pytest.mark.parametrize(
    ("memory_bytes", "load_factor", "limit"),
    ((32 * 10, 0.9, 9), (32 * 4, 0.75, 3), (32 * 2, 1.0, 2), (32 * 3, 0.75, 2)),
)
def test_limits(memory_bytes: int, load_factor: float, limit: int) -> None:
    a_map = VersionMap(memory_bytes, load_factor)
    assert (a_map.capacity, a_map.limit) == (memory_bytes // 32, limit)


@pytest.mark.parametrize(
    ("memory_bytes", "load_factor", "message"),
    (
        (
            31,
            1.0,
            (
                "log.cleaner.dedupe.buffer.size: a cleaner thread's share of 31 bytes, "
                "filled to log.cleaner.io.buffer.load.factor 1.0, has no room for two "
                "keys, which compaction by version needs: no progress is possible"
            ),
        ),
        (
            32,
            1.0,
            (
                "log.cleaner.dedupe.buffer.size: a cleaner thread's share of 32 bytes, "
                "filled to log.cleaner.io.buffer.load.factor 1.0, has no room for two "
                "keys, which compaction by version needs: no progress is possible"
            ),
        ),
        (
            64,
            0.9,
            (
                "log.cleaner.dedupe.buffer.size: a cleaner thread's share of 64 bytes, "
                "filled to log.cleaner.io.buffer.load.factor 0.9, has no room for two "
                "keys, which compaction by version needs: no progress is possible"
            ),
        ),
        (
            96,
            0.5,
            (
                "log.cleaner.dedupe.buffer.size: a cleaner thread's share of 96 bytes, "
                "filled to log.cleaner.io.buffer.load.factor 0.5, has no room for two "
                "keys, which compaction by version needs: no progress is possible"
            ),
        ),
    ),
)
def test_a_buffer_for_less_than_two_keys_is_refused(
    memory_bytes: int, load_factor: float, message: str
) -> None:
    """The record before the first dirty offset may take one entry (cleaner §13.5.1)."""
    with pytest.raises(InvalidConfigurationError, match=exactly(message)) as caught:
        VersionMap(memory_bytes, load_factor)
    text = str(caught.value)
    assert text.startswith("log.cleaner.dedupe.buffer.size: ")
    assert f"share of {memory_bytes} bytes" in text
    assert f"log.cleaner.io.buffer.load.factor {load_factor}" in text
    assert "two keys, which compaction by version needs" in text


def test_slots_take_24_bytes_and_never_more_than_the_buffer_and_a_small_slack() -> None:
    memory_bytes = 1 << 20
    a_map = VersionMap(memory_bytes)
    assert a_map.slots.nbytes <= memory_bytes + 24 * SLACK_SLOTS
    assert VersionMap(1 << 30, max_entries=10).slots.nbytes < 150_000


def test_a_full_map_answers_and_refuses_also_keys_that_it_knows() -> None:
    a_map = VersionMap(32 * 20)
    for number in range(20):
        a_map.put(key(number), order(number, number))
    for number in (3, 99):
        with pytest.raises(OffsetMapFullError, match="full with 20 keys"):
            a_map.put(key(number), order(50, 50))
    assert a_map.latest_offset == 19
    assert a_map.utilization == 1.0
    lift(a_map, key(3), order(1, 60))
    assert a_map.get(key(3)) == (order(1, 60), True), "the seed pass adds no entry"
    lift(a_map, key(99), order(1, 60))
    assert a_map.get(key(99)) is None


# --- entries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", (LOWEST, -1, 0, 1, HIGHEST, None))
@pytest.mark.parametrize("relative", (0, 1, 2**40 - 2))
def test_every_version_is_a_legal_one(version: int | None, relative: int) -> None:
    """A missing version is not a special value, and its lowest offset not a free slot."""
    a_map = VersionMap(3200, base_offset=1000)
    a_map.put(b"", order(1000 + relative, version))
    assert a_map.get(b"") == (order(1000 + relative, version), False)
    assert a_map.get(b"other") is None
    assert (len(a_map), a_map.latest_offset) == (1, 1000 + relative)
    a_map._check()


@pytest.mark.parametrize("offset", (999, 1000 + 2**40 - 1))
def test_an_offset_too_far_from_the_base_does_not_fit(offset: int) -> None:
    a_map = VersionMap(3200, base_offset=1000)
    with pytest.raises(OffsetMapFullError):
        a_map.put(b"k", order(offset, 1))
    assert (len(a_map), a_map.latest_offset) == (0, -1)


def test_latest_offset_follows_every_put_and_no_lift() -> None:
    a_map = mapped(order(5, 9), order(6, 1))
    assert a_map.latest_offset == 6, "even if it is superseded"
    lift(a_map, b"k", order(2, 99))
    lift(a_map, b"unknown", order(3, 99))
    assert (a_map.latest_offset, len(a_map)) == (6, 1)


def test_clear_forgets_everything() -> None:
    a_map = mapped(order(5, 9), order(6, 1))
    a_map.clear()
    assert (a_map.get(b"k"), len(a_map), a_map.latest_offset) == (None, 0, -1)
    a_map._check()


def test_many_keys_keep_their_versions_whatever_the_hash_key() -> None:
    for seed in (1, 2):
        a_map = VersionMap(64_000, rng=random_source(seed))
        for number in range(1500):
            a_map.put(key(number), order(number, -number if number % 3 else None))
        for number in range(1500):
            lift(a_map, key(number), order(0, -number + 1) if number % 2 else order(0))
        for number in range(1500):
            raised = number % 2
            best = order(0, -number + 1) if raised else order(number, -number)
            if not raised and number % 3 == 0:
                best = order(number)
            assert a_map.get(key(number)) == (best, bool(raised)), number
        a_map._check()


def test_an_offset_map_of_the_same_memory_takes_a_third_more() -> None:
    assert (OffsetMap(9600).limit, VersionMap(9600).limit) == (360, 270)


# --- survivors and later losers ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("competitors", "winner", "later_loser"),
    (
        ([order(4, 5)], order(4, 5), False),
        ([order(4, 5), order(6, 9)], order(6, 9), False),
        ([order(4, 9), order(6, 5)], order(4, 9), True),
        ([order(4, 9), order(6, 5), order(7, 9)], order(7, 9), False),
        ([order(4, 9), order(6, 5), order(7, 8)], order(4, 9), True),
        ([order(4, 5), order(6, 5)], order(6, 5), False),
        ([order(4, LOWEST), order(6)], order(4, LOWEST), True),
        ([order(4), order(6, LOWEST)], order(6, LOWEST), False),
        ([order(4), order(6)], order(6), False),
    ),
)
def test_a_loser_of_a_higher_offset_is_remembered_until_a_higher_one_wins(
    competitors: list[Order], winner: Order, later_loser: bool
) -> None:
    assert mapped(*competitors).get(b"k") == (winner, later_loser)


@pytest.mark.parametrize(
    ("clean", "winner", "later_loser"),
    (
        ([order(1, 4)], order(5, 5), False),
        ([order(1)], order(5, 5), False),
        ([order(1, 5)], order(5, 5), False),
        ([order(1, 9)], order(1, 9), True),
        ([order(1, 4), order(2, 9), order(3, 6)], order(2, 9), True),
        ([order(1, 9), order(2, 10)], order(2, 10), True),
        ([order(1, 9), order(2, 9)], order(2, 9), True),
        ([order(5, 5)], order(5, 5), False),
    ),
)
def test_a_clean_record_that_wins_leaves_a_later_loser_behind(
    clean: list[Order], winner: Order, later_loser: bool
) -> None:
    """Also if several do, one after another: the mapped records are above all of them."""
    assert mapped(order(5, 5), clean=tuple(clean)).get(b"k") == (winner, later_loser)


def test_a_clean_record_above_a_mapped_loser_and_winner() -> None:
    a_map = mapped(order(5, 8), order(6, 3), clean=(order(1, 7),))
    assert a_map.get(b"k") == (order(5, 8), True)
    lift(a_map, b"k", order(2, 9))
    assert a_map.get(b"k") == (order(2, 9), True)
