"""How long a deletion stays visible: group O of the scenarios, except S-174 and S-176."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logstore import Broker, VirtualClock
from logstore.storage.log import Log
from logstore.types import INT64_MAX
from tests.support.world.cleaning import (
    RETENTION_MS,
    batches_in,
    contents,
    ends_in,
    map_of,
    offsets_in,
    opened,
    put,
    put_each,
    run_pass,
)

YEAR_MS = 365 * 86_400_000


def key(number: int) -> bytes:
    return b"%d" % number


def horizons(log: Log) -> list[int | None]:
    return [batch.header.delete_horizon_ms for batch in batches_in(log)]


def roll_and_clean(log: Log, first_dirty: int = 0) -> int:
    """Roll and clean the whole log; return the next first dirty offset."""
    log.writer.roll()
    return run_pass(log, first_dirty).end_offset


def test_s166_values_go_at_once_and_their_tombstones_stay_with_a_horizon() -> None:
    world, log = opened(segment_bytes=1000)
    put_each(log, *((key(number), b"v%d" % number) for number in range(40)))
    put_each(log, *((key(number), None) for number in range(0, 40, 2)))
    put_each(log, *((b"padding %d" % number, b"x") for number in range(30)))
    cleaned_ms = world.clock.now_ms()
    stats = run_pass(log, upper_bound=log.active_segment.base_offset)
    assert log.active_segment.base_offset > 60, "all tombstones are in closed segments"
    found = contents(log)
    assert [k for _, k, v in found if v is None] == [key(number) for number in range(0, 40, 2)]
    assert [k for _, k, v in found if v and v.startswith(b"v")] == [key(n) for n in range(1, 40, 2)]
    assert (stats.fates["superseded"], stats.fates["tombstone_expired"]) == (20, 0)
    with_tombstone = [any(r.value is None for r in batch.records()) for batch in batches_in(log)]
    assert horizons(log) == [
        cleaned_ms + RETENTION_MS if deletes else None for deletes in with_tombstone
    ]


def test_s167_timestamps_of_records_play_no_role() -> None:
    world, log = opened()
    now_ms = world.clock.now_ms()
    put(log, (b"0", b"v", now_ms + 100 * YEAR_MS))
    assert roll_and_clean(log) == 1
    put(log, (b"0", None, now_ms - YEAR_MS))
    assert roll_and_clean(log, 1) == 2
    assert contents(log) == [(1, b"0", None)]
    world.clock.advance(ms=RETENTION_MS - 1)
    put(log, (b"1", b"v"))
    assert roll_and_clean(log, 2) == 3
    assert contents(log) == [(1, b"0", None), (2, b"1", b"v")]


@pytest.mark.parametrize(("late_ms", "stays"), ((-1, True), (0, False), (1, False)))
def test_s168_the_horizon_itself_is_the_first_time_without_the_tombstone(
    late_ms: int, stays: bool
) -> None:
    world, log = opened()
    put_each(log, (b"a", b"v"), (b"a", None), (b"b", b"v"))
    end = roll_and_clean(log)
    assert offsets_in(log) == [1, 2]
    (horizon, _) = horizons(log)
    assert horizon == world.clock.now_ms() + RETENTION_MS
    world.clock.advance(ms=RETENTION_MS + late_ms)
    stats = run_pass(log, end)
    assert offsets_in(log) == ([1, 2] if stays else [2])
    assert stats.fates["tombstone_expired"] == (0 if stays else 1)
    assert horizons(log)[:-1] == ([horizon] if stays else [])


def test_s169_a_stored_horizon_is_unaffected_by_later_configs() -> None:
    world, log = opened()
    put_each(log, (b"a", b"v"), (b"a", None), (b"b", b"v"))
    end = roll_and_clean(log)
    before = horizons(log)
    log.set_config(replace(log.config, delete_retention_ms=10))
    world.clock.advance(ms=RETENTION_MS - 1)
    run_pass(log, end)
    assert offsets_in(log) == [1, 2]
    assert horizons(log) == before
    world.clock.advance(ms=1)
    run_pass(log, end)
    assert offsets_in(log) == [2]


def test_s170_a_batch_that_lost_its_tombstone_keeps_its_horizon() -> None:
    world, log = opened()
    put(log, (b"a", None, 5000), (b"b", b"v", 6000))
    put(log, (b"c", b"v"))
    end = roll_and_clean(log)
    horizon = world.clock.now_ms() + RETENTION_MS
    assert horizons(log) == [horizon, None]
    world.clock.advance(ms=RETENTION_MS)
    run_pass(log, end)
    batch = batches_in(log)[0]
    header = batch.header
    batch.ensure_valid()
    assert (header.has_delete_horizon, header.delete_horizon_ms) == (True, horizon)
    assert header.attributes & 1 << 6
    assert (header.base_offset, header.last_offset) == (0, 1)
    assert [(r.offset, r.key, r.timestamp) for r in batch.records()] == [(1, b"b", 6000)]
    assert header.max_timestamp == 6000
    data = batch.data
    world.clock.advance(ms=RETENTION_MS)
    run_pass(log, end)
    assert batches_in(log)[0].data == data, "the horizon stays on the batch forever"


def test_s171_a_new_value_drops_the_tombstone_without_waiting_for_its_horizon() -> None:
    _, log = opened()
    put_each(log, (b"a", b"v"), (b"a", None), (b"b", b"v"))
    end = roll_and_clean(log)
    assert offsets_in(log) == [1, 2]
    put(log, (b"a", b"new"))
    stats = run_pass(log, end)
    assert stats.fates["superseded"] == 0, "the value is in the active segment and not mapped"
    assert offsets_in(log) == [1, 2, 3]
    log.writer.roll()
    stats = run_pass(log, end)
    assert (stats.fates["superseded"], stats.fates["tombstone_expired"]) == (1, 0)
    assert contents(log) == [(2, b"b", b"v"), (3, b"a", b"new")]


def test_s172_a_tombstone_beyond_the_map_ages_before_it_is_mapped() -> None:
    """It is removed in the pass that first reads the older value: both in one ascending swap."""
    world, log = opened()
    put_each(log, (b"a", b"v"), (b"b", b"v"), (b"c", b"v"), (b"a", None), (b"d", b"v"))
    log.writer.roll()
    small = map_of(4, 0.75)
    first = run_pass(log, config=small)
    assert first.end_offset == 3
    assert offsets_in(log) == [0, 1, 2, 3, 4]
    horizon = world.clock.now_ms() + RETENTION_MS
    assert horizons(log) == [None, None, None, horizon, None]
    world.clock.advance(ms=RETENTION_MS)
    second = run_pass(log, 3, config=small)
    assert second.end_offset == 5
    assert (second.fates["superseded"], second.fates["tombstone_expired"]) == (1, 1)
    assert offsets_in(log) == [1, 2, 4]


def test_s172_a_tombstone_beyond_the_map_stays_while_it_is_not_mapped() -> None:
    world, log = opened()
    pairs = [(b"a", b"v"), (b"b", b"v"), (b"c", b"v"), (b"d", b"v"), (b"a", None), (b"e", b"v")]
    put_each(log, *pairs)
    log.writer.roll()
    small = map_of(2, 0.75)
    assert run_pass(log, config=small).end_offset == 1
    world.clock.advance(ms=RETENTION_MS)
    for first_dirty in (1, 2, 3):
        assert run_pass(log, first_dirty, config=small).end_offset == first_dirty + 1
        assert offsets_in(log) == [0, 1, 2, 3, 4, 5], "expired, but it still supersedes a value"
    assert run_pass(log, 4, config=small).end_offset == 5
    assert offsets_in(log) == [1, 2, 3, 5]


def test_s173_a_retention_without_end_keeps_tombstones_forever() -> None:
    """Kafka's sum overflows: it sets no horizon, and rewrites such batches in every pass."""
    world, log = opened(delete_retention_ms=INT64_MAX)
    put(log, (b"a", b"v"))
    put(log, (b"a", None), (b"b", b"v"))
    put(log, (b"c", b"v"))
    end = roll_and_clean(log)
    assert horizons(log) == [INT64_MAX, None]
    appended_ms = world.clock.now_ms()
    assert [r.timestamp for r in batches_in(log)[0].records()] == [appended_ms] * 2
    assert [record.timestamp for _, record in log.reader.records(0)] == [appended_ms] * 3
    before = [batch.data for batch in batches_in(log)]
    for _ in range(3):
        world.clock.advance(ms=1000 * YEAR_MS)
        run_pass(log, end)
        assert offsets_in(log) == [1, 2, 3]
        assert [batch.data for batch in batches_in(log)] == before


def test_s175_an_expired_tombstone_is_only_removed_with_the_next_segment() -> None:
    broker = Broker(clock=VirtualClock(), seed=1)
    broker.create_topic(
        "t",
        configs={
            "cleanup.policy": "compact",
            "delete.retention.ms": RETENTION_MS,
            "min.cleanable.dirty.ratio": 0.01,
        },
    )
    log = broker.log("t")
    for value, k in ((b"v", b"a"), (None, b"a"), (b"v", b"b")):
        broker.append("t", value=value, key=k)
    broker.roll("t")
    assert len(broker.clean("t").cleaned) == 1
    assert offsets_in(log) == [1, 2]
    for _ in range(3):
        broker.clock.advance(ms=1000 * RETENTION_MS)
        report = broker.clean("t")
        assert not report.cleaned
        assert [each.reason for each in report.not_cleaned] == ["active_segment"]
        (explained,) = broker.explain("t").partitions
        assert explained.decision.opens_at_ms is None, "time alone does not open it"
        assert offsets_in(log) == [1, 2]
    broker.append("t", value=b"v", key=b"c")
    assert not broker.clean("t").cleaned
    broker.roll("t")
    (stats,) = broker.clean("t").cleaned
    assert (stats.first_dirty_offset, stats.end_offset) == (3, 4)
    assert stats.fates["tombstone_expired"] == 1
    assert (offsets_in(log), ends_in(log)) == ([2, 3], [2, 3])
