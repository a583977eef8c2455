"""Cleaning keeps the latest record of every key and makes no other change, for any appends."""

from __future__ import annotations

import copy
import random
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, note, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.passes.clean import clean_pass
from logstore.cleaner.strategy import Strategy
from logstore.record.codecs import Codec
from logstore.runtime import Runtime, VirtualClock
from logstore.storage.log import Log
from tests.support.oracles.oracle import Item, OracleLog, latest_values, survivors
from tests.support.world.builders import World, disk_world, memory_world
from tests.support.world.cleaning import (
    batches_in,
    compacted,
    contents,
    ends_in,
    map_of,
    put,
    run_pass,
    run_passes,
)

RETENTION_MS = 1000
SMALL = 600
"""Segment size in bytes that barely fits the largest batch drawn here."""

keys = st.sampled_from([b"", *(b"key-%d" % number for number in range(6)), b"long" * 8])
values = st.one_of(st.none(), st.binary(max_size=4), st.integers(30, 40).map(bytes))
pairs = st.tuples(keys, values)
codecs = st.sampled_from([Codec.NONE, Codec.NONE, *Codec])


@st.composite
def histories(draw):
    """Batches of pairs in order, and after which of them the log rolls."""
    batches = draw(st.lists(st.lists(pairs, min_size=1, max_size=6), min_size=1, max_size=12))
    rolls = draw(st.sets(st.integers(0, len(batches) - 1), max_size=4))
    return batches, rolls


def written(log: Log, history, codec: Codec = Codec.NONE, *, last_roll: bool = True) -> list[Item]:
    """Append a history; return its records."""
    batches, rolls = history
    items: list[Item] = []
    for number, batch in enumerate(batches):
        put(log, *batch, codec=codec)
        items += [Item(len(items) + at, *pair) for at, pair in enumerate(batch)]
        if number in rolls and (last_roll or number < len(batches) - 1):
            log.writer.roll()
    if last_roll and log.active_segment.size_bytes:
        log.writer.roll()
    return items


def physical(log: Log) -> list[Item]:
    return [Item(*record) for record in contents(log)]


def read(log: Log, start: int = 0) -> list[Item]:
    return [Item(r.offset, r.key, r.value) for _, r in log.reader.records(start)]


def raw(log: Log) -> bytes:
    return b"".join(batch.data for batch in batches_in(log))


# --- one pass ---------------------------------------------------------------------------------


@given(history=histories(), codec=codecs, segment_bytes=st.sampled_from([SMALL, 100_000]))
def test_a_cleaned_log_holds_the_last_value_of_each_key(history, codec, segment_bytes):
    log = compacted(memory_world(), segment_bytes=segment_bytes)
    items = written(log, history, codec)
    run_pass(log)
    expected = survivors(items, len(items))
    assert physical(log) == read(log) == expected
    for offset in range(len(items)):
        assert read(log, offset) == [item for item in expected if item.offset >= offset]


@given(history=histories(), codec=codecs)
def test_records_outside_the_cleaned_range_do_not_change(history, codec):
    log = compacted(memory_world())
    items = written(log, history, codec, last_roll=False)
    end = log.active_segment.base_offset
    before = log.active_segment.file.read(0, log.active_segment.size_bytes)
    if end:
        run_pass(log)
    assert read(log) == survivors(items, end)
    assert log.active_segment.file.read(0, log.active_segment.size_bytes) == before


@given(history=histories(), slots=st.integers(2, 5), io_buffer_bytes=st.integers(1, 300))
def test_a_tiny_map_has_the_same_result(history, slots, io_buffer_bytes):
    log = compacted(memory_world())
    items = written(log, history)
    run_passes(log, map_of(slots, 0.8, io_buffer_bytes=io_buffer_bytes))
    assert physical(log) == survivors(items, len(items))


@given(history=histories(), codec=codecs, segment_bytes=st.sampled_from([SMALL, 100_000]))
def test_cleaning_twice_at_the_same_time_changes_nothing(history, codec, segment_bytes):
    log = compacted(memory_world(), segment_bytes=segment_bytes)
    written(log, history, codec)
    end = run_pass(log).end_offset
    before = raw(log)
    for first_dirty in (end, 0):
        run_pass(log, first_dirty, end)
        assert raw(log) == before


@given(
    history=histories(),
    codec=codecs,
    other_codec=codecs,
    split=st.integers(1, 4),
    small=st.booleans(),
    slots=st.sampled_from([3, 10_000]),
    on_disk=st.sampled_from([False, False, False, True]),
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_how_a_history_is_stored_does_not_matter(
    history, codec, other_codec, split, small, slots, on_disk
):
    """Segment size, batch size, codec, memory or disk, one pass or many: one table."""
    batches, _ = history
    log = compacted(memory_world(), segment_bytes=SMALL if small else 100_000)
    items = written(log, history, codec)
    run_passes(log, map_of(slots, 0.8))
    flat = [pair for batch in batches for pair in batch]
    regrouped = [flat[at : at + split] for at in range(0, len(flat), split)]
    with tempfile.TemporaryDirectory() as place:
        world = disk_world(Path(place)) if on_disk else memory_world()
        other = compacted(world, segment_bytes=SMALL)
        written(other, (regrouped, set()), other_codec)
        run_passes(other, map_of(10_000))
        assert physical(log) == physical(other)
        other.close()
    assert latest_values(physical(log)) == latest_values(items)


# --- many passes, with time, tombstones, small maps and crashes -------------------------------


class CleanedLog(RuleBasedStateMachine):
    """A log that is appended to, rolled and cleaned, and the list that it should equal."""

    @initialize(seed=st.integers(0, 3), small=st.booleans())
    def open(self, seed: int, small: bool) -> None:
        self.world = memory_world(seed)
        # Keyless records may be appended under policy delete and are cleaned later.
        self.settings = {
            "cleanup_policy": ("delete",),
            "delete_retention_ms": RETENTION_MS,
            "segment_bytes": SMALL if small else 100_000,
        }
        self.log = compacted(self.world, **self.settings)
        self.oracle = OracleLog()

    @rule(
        batch=st.lists(st.one_of(pairs, st.tuples(st.none(), values)), min_size=1, max_size=6),
        codec=codecs,
    )
    def append(self, batch, codec: Codec) -> None:
        put(self.log, *batch, codec=codec)
        self.oracle.append(batch)

    @precondition(lambda self: self.log.active_segment.size_bytes)
    @rule()
    def roll(self) -> None:
        self.log.writer.roll()

    @rule(ms=st.sampled_from([1, RETENTION_MS - 1, RETENTION_MS]))
    def wait(self, ms: int) -> None:
        self.world.clock.advance(ms=ms)

    def prepared(self, slots: int):
        """Upper bound, the oracle's map and its last offset, and the bases of the segments."""
        config = map_of(slots, 0.8, io_buffer_bytes=150)
        bases = [segment.base_offset for segment in self.log.segments]
        upper_bound = bases[-1]
        offsets, latest = self.oracle.plan(bases, upper_bound, config.max_keys_of(Strategy()))
        return config, upper_bound, offsets, latest, bases

    def rewritten(
        self, oracle: OracleLog, offsets, latest: int, below: int, upper_bound: int
    ) -> OracleLog:
        now_ms = self.world.clock.now_ms()
        oracle.rewrite(offsets, latest, below, upper_bound, now_ms, RETENTION_MS)
        return oracle

    @rule(slots=st.sampled_from([2, 4, 8, 1000]))
    def clean(self, slots: int) -> None:
        config, upper_bound, offsets, latest, bases = self.prepared(slots)
        stats = run_pass(self.log, self.oracle.first_dirty, upper_bound, config)
        assert stats.end_offset == latest + 1
        assert stats.map_entries == len(offsets)
        below = next(base for base in bases if base >= min(latest + 1, upper_bound))
        self.rewritten(self.oracle, offsets, latest, below, upper_bound)
        self.oracle.first_dirty = latest + 1

    @rule(slots=st.sampled_from([3, 1000]), steps=st.integers(1, 30))
    def crash(self, slots: int, steps: int) -> None:
        """Stop between two steps of a pass, forget everything in memory, and open again."""
        config, upper_bound, offsets, latest, bases = self.prepared(slots)
        cleaning = clean_pass(self.log, config, self.oracle.first_dirty, upper_bound)
        for _ in range(steps):
            if next(cleaning, None) is None:
                break
        fs = self.world.fs.fork()
        cleaning.close()
        self.world = World(
            Runtime(self.world.clock, fs, random.Random(1)), self.world.directory, self.world.clock
        )
        self.log = compacted(self.world, clean=False, **self.settings)
        assert not [n for n in self.world.files() if n.endswith((".cleaned", ".swap"))]
        result = physical(self.log)
        possible = [
            self.rewritten(copy.deepcopy(self.oracle), offsets, latest, below, upper_bound)
            for below in bases
        ]
        matching = [each for each in possible if each.items == result]
        note(f"{len(possible)} states of the pass, {len(matching)} match")
        assert matching, "whole groups were swapped, from the first one on"
        ends, horizons = ends_in(self.log), self.horizons()
        self.oracle = next(
            each
            for each in matching
            if horizons_in(each) == horizons and [b.last_offset for b in each.batches] == ends
        )

    def horizons(self) -> dict[int, int]:
        """The horizon of each physical batch with records, by its last offset."""
        return {
            batch.header.last_offset: batch.header.delete_horizon_ms
            for batch in batches_in(self.log)
            if batch.header.record_count and batch.header.has_delete_horizon
        }

    @invariant()
    def is_what_the_oracle_says(self) -> None:
        assert physical(self.log) == self.oracle.items
        assert self.horizons() == horizons_in(self.oracle)
        assert ends_in(self.log) == [batch.last_offset for batch in self.oracle.batches]

    @invariant()
    def reads_the_same(self) -> None:
        assert read(self.log) == self.oracle.items
        assert self.log.log_end_offset == self.oracle.next_offset


def horizons_in(oracle: OracleLog) -> dict[int, int]:
    return {
        batch.last_offset: batch.horizon_ms
        for batch in oracle.batches
        if batch.items and batch.horizon_ms is not None
    }


TestCleanedLog = CleanedLog.TestCase


# --- crashes of a whole broker ----------------------------------------------------------------


@given(history=histories(), stop=st.integers(0, 40), unclean=st.booleans())
def test_a_crash_between_two_steps_loses_nothing(history, stop, unclean):
    """Abandon the log without closing it, open the files again, and clean: no difference."""
    clock = VirtualClock()
    world = memory_world()
    log = compacted(world, segment_bytes=SMALL)
    items = written(log, history)
    config = CleanerConfig(dedupe_buffer_bytes=24 * 100, io_buffer_bytes=100)
    cleaning = clean_pass(log, config, 0, log.active_segment.base_offset)
    for _ in range(stop):
        if next(cleaning, None) is None:
            break
    fs = world.fs.fork()
    cleaning.close()
    again = World(Runtime(clock, fs, random.Random(0)), world.directory, clock)
    reopened = compacted(again, clean=not unclean, segment_bytes=SMALL)
    assert latest_values(read(reopened)) == latest_values(items)
    assert reopened.log_end_offset == len(items)
    run_pass(reopened)
    assert physical(reopened) == survivors(items, len(items))
