"""Merged and swapped segments: S-189, S-198 … S-201 of group Q of the scenarios."""

from __future__ import annotations

import pytest

from logstore.cleaner.passes.grouping import group_segments
from logstore.names import SNAPSHOT_SUFFIX
from logstore.storage.log import Log
from logstore.types import INT32_MAX
from tests.support.world.builders import World, bases_of, batch, memory_world
from tests.support.world.cleaning import (
    Producer,
    batches_in,
    compacted,
    contents,
    map_of,
    offsets_in,
    put,
    put_batches,
    put_each,
    run_pass,
)

HOUR_MS = 3_600_000
SPAN = INT32_MAX + 1
"""Offsets that one segment can hold."""


def sizes_of(log: Log) -> list[int]:
    return [segment.size_bytes for segment in log.segments]


def test_s189_segments_cleaned_to_nothing_merge_whatever_their_span() -> None:
    log = compacted(memory_world())
    for number in range(3):
        first, last = number * SPAN, (number + 1) * SPAN - 1
        put_batches(log, batch(first, key=b"key"))
        put_batches(log, batch(last, key=b"key"))
    put(log, (b"key", b"active"))
    assert bases_of(log) == [0, SPAN, 2 * SPAN, 3 * SPAN]
    end = log.active_segment.base_offset

    def groups() -> list[list[int]]:
        closed = log.segments.view[:-1]
        return [[s.base_offset for s in g] for g in group_segments(closed, log.config, end)]

    assert groups() == [[0], [SPAN], [2 * SPAN]], "no two fit together, although they are small"
    stats = run_pass(log)
    assert (stats.segments_before, stats.segments_after) == (3, 3)
    assert bases_of(log) == [0, SPAN, 2 * SPAN, 3 * SPAN]
    assert sizes_of(log)[:2] == [0, 0]
    assert offsets_in(log) == [3 * SPAN - 1, 3 * SPAN]
    assert groups() == [[0, SPAN], [2 * SPAN]]
    stats = run_pass(log, end)
    assert (stats.segments_before, stats.segments_after) == (3, 2)
    assert bases_of(log) == [0, 2 * SPAN, 3 * SPAN]
    assert offsets_in(log) == [3 * SPAN - 1, 3 * SPAN]


def dated(world: World, log: Log, *ages_ms: int) -> list[int]:
    """Set the modification times of the closed segments; return them."""
    now_ms = world.clock.now_ms()
    for segment, age_ms in zip(log.segments.view[:-1], ages_ms, strict=True):
        segment.set_last_modified_ms(now_ms - age_ms)
    return [now_ms - age_ms for age_ms in ages_ms]


def test_s198_a_cleaned_segment_has_the_date_of_its_last_source(world: World) -> None:
    log = compacted(world, segment_bytes=500)
    for _ in range(3):
        put_each(log, (b"a", b"v" * 40), (b"b", b"v" * 40))
        log.writer.roll()
    assert len(bases_of(log)) == 4
    _, second, third = dated(world, log, 9000, 8000, 7000)
    stats = run_pass(log)
    assert (stats.segments_before, stats.segments_after) == (3, 2), "the first two are merged"
    for segment, modified_ms in zip(log.segments.view, (second, third), strict=False):
        assert segment.last_modified_ms == modified_ms
        for path in (segment.log_path, segment.offset_index.path, segment.time_index.path):
            assert world.fs.stat(path).mtime_ms == modified_ms, path


@pytest.mark.parametrize("cleaned", (False, True))
def test_s198_retention_by_time_acts_as_before(cleaned: bool) -> None:
    """Records without a timestamp are as old as their file."""
    world = memory_world()
    log = compacted(
        world, cleanup_policy=("compact", "delete"), retention_ms=HOUR_MS, segment_bytes=500
    )
    for number in range(2):
        for at in range(4):
            put(log, (b"%d" % at, b"value %d" % number * 5, -1))
        log.writer.roll()
    first, second = dated(world, log, 60_000, 20_000)
    bases = bases_of(log)
    if cleaned:
        run_pass(log)
        assert bases_of(log) == bases
        assert contents(log)[0][0] == 4
    world.clock.advance(ms=first + HOUR_MS - world.clock.now_ms())
    assert not log.delete_old_segments().removed
    world.clock.advance(ms=1)
    assert [each.base_offset for each in log.delete_old_segments().removed] == [0]
    world.clock.advance(ms=second + HOUR_MS - world.clock.now_ms())
    assert not log.delete_old_segments().removed
    world.clock.advance(ms=1)
    assert [each.base_offset for each in log.delete_old_segments().removed] == [4]
    assert (log.log_start_offset, log.log_end_offset) == (8, 8)


@pytest.mark.parametrize("clean", (True, False))
def test_s199_look_ups_through_a_cleaned_index_and_a_rebuilt_one(clean: bool) -> None:
    world = memory_world()
    log = compacted(world, index_interval_bytes=100)
    for number in range(120):
        pairs = [(b"%d" % (number % 40), b"v" * 30), (b"only %d" % number, b"v")]
        put(log, *pairs[number % 3 == 0 :], (b"last" if number % 2 else b"lost", b"v"))
    log.writer.roll()
    run_pass(log, config=map_of(1000, io_buffer_bytes=2048))
    cleaned = log.segments.first
    entries = list(cleaned.offset_index)
    assert len(entries) > 5
    end = log.log_end_offset
    survivors = offsets_in(log)
    assert len(survivors) < end - 50

    def answers(log: Log) -> list[tuple[int, int]]:
        """Return for each offset the location of its batch or the next one, and the next record."""
        segment = log.segments.first
        places = [segment.translate_offset(offset) for offset in range(end)]
        records = [next(log.reader.records(offset))[1] for offset in range(end)]
        return [(p.position, r.offset) for p, r in zip(places, records, strict=True)]

    expected = []
    for offset in range(end):
        at = next(a for a in cleaned.batches() if a.header.last_offset >= offset)
        record = next(each for each in survivors if each >= offset)
        expected.append((at.position, record))
    assert answers(log) == expected
    log.close()
    world.fs.remove(cleaned.offset_index.path)
    log = compacted(world, clean=clean, index_interval_bytes=100)
    assert list(log.segments.first.offset_index) == entries, "it depends on the `.log` alone"
    assert answers(log) == expected


@pytest.mark.parametrize(
    ("interval_bytes", "entries"), ((4096, []), (0, [(3, 74), (7, 148), (9, 222)]))
)
def test_s200_a_small_cleaned_segment_has_one_time_entry_and_no_offset_entry(
    interval_bytes: int, entries: list[tuple[int, int]]
) -> None:
    """Smaller than `index.interval.bytes`, as in Kafka since 3.9.1; before, than one chunk."""
    log = compacted(memory_world(), index_interval_bytes=interval_bytes)
    for timestamp in (5000, 8000, 9000, 9000, 7000):
        put(log, (b"k%d" % timestamp, b"v", timestamp), (b"x", b"v", timestamp - 1))
    log.writer.roll()
    run_pass(log)
    cleaned = log.segments.first
    assert [tuple(entry) for entry in cleaned.offset_index] == entries
    times = [tuple(entry) for entry in cleaned.time_index]
    if not entries:
        assert times == [(9000, 7)]
    holder = next(each for each in batches_in(log) if each.header.max_timestamp == 9000)
    assert (holder.header.base_offset, holder.header.last_offset) == (6, 7)
    assert [record.offset for record in holder.records()] == [6]
    assert (times[-1], cleaned.largest_timestamp) == ((9000, 7), 9000)


def test_s201_the_snapshot_of_a_base_that_is_removed_is_deleted(world: World) -> None:
    log = compacted(world)
    producer = Producer(log, 1)
    for number in range(2):
        producer.send(number, transactional=False)
        log.writer.roll()
    assert bases_of(log) == [0, 1, 2]

    def snapshots() -> list[str]:
        return sorted(world.files(SNAPSHOT_SUFFIX))

    assert snapshots() == [f"{base:020}{SNAPSHOT_SUFFIX}" for base in (1, 2)]
    run_pass(log)
    assert bases_of(log) == [0, 2]
    assert snapshots() == [f"{2:020}{SNAPSHOT_SUFFIX}"]
    assert log.producer_state.snapshot_offsets == [2]
    assert not [name for name in world.files() if name.endswith(".deleted")]
