"""Random histories, cleaned and crashed: readers of committed data never see another state.

With small maps, early horizons, transactions and merged segments: the last pass of a history is
crashed at several operations, with names and contents in part, then loaded and cleaned again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

from hypothesis import given, note
from hypothesis import strategies as st

from logstore.cleaner.passes.clean import clean_pass
from logstore.cleaner.selection import cleanable_state
from logstore.runtime import Runtime
from logstore.storage.log import Log
from logstore.testing import (
    Contents,
    CrashMode,
    FaultyFileSystem,
    Kind,
    Names,
    Operation,
    SimulatedCrash,
)
from tests.support.world.builders import World, memory_world
from tests.support.world.cleaning import (
    ALL_KEYS,
    Producer,
    committed,
    compacted,
    contents,
    drive,
    map_of,
    put,
)

RETENTION_MS = 1000
POINTS = 3
"""Crashes tried of each history."""

keys = st.sampled_from([b"a", b"b", b"c", b"d"])
steps = st.one_of(
    st.tuples(st.just("put"), keys, st.booleans()),
    st.tuples(st.just("put"), keys, st.booleans()),
    st.tuples(st.just("send"), st.integers(1, 2), keys, st.booleans()),
    st.tuples(st.just("end"), st.integers(1, 2), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("wait"), st.sampled_from([1, RETENTION_MS])),
    st.tuples(st.just("clean"), st.integers(2, 6), st.sampled_from([100, 400])),
)
histories = st.lists(steps, min_size=6, max_size=40)
modes = st.builds(
    CrashMode,
    st.sampled_from([Contents.DROPPED, Contents.KEPT, Contents.SCATTERED]),
    st.sampled_from([Names.UNDONE, Names.KEPT, Names.SUBSET, Names.SUBSET]),
    seed=st.integers(0, 50),
)


class History:
    """A log that is written, cleaned and crashed step by step; `dirty` is its checkpoint."""

    def __init__(self) -> None:
        self.world = memory_world()
        self.log = self.opened(self.world.fs, clean=True)
        self.dirty = 0
        self.producers = {number: Producer(self.log, number) for number in (1, 2)}

    def opened(self, fs, *, clean: bool, recovery_point: int = 0) -> Log:
        runtime = Runtime(self.world.clock, fs, Random(0))
        world = World(runtime, self.world.directory, self.world.clock)
        return compacted(
            world, clean=clean, recovery_point=recovery_point, delete_retention_ms=RETENTION_MS
        )

    def do(self, step: tuple) -> None:
        kind, *details = step
        value = b"%d" % self.log.log_end_offset
        if kind == "put":
            key, is_tombstone = details
            put(self.log, (key, None if is_tombstone else value))
        elif kind == "send":
            number, key, is_tombstone = details
            self.producers[number].send((key, None if is_tombstone else value))
        elif kind == "end":
            number, commits = details
            producer = self.producers[number]
            producer.commit() if commits else producer.abort()
        elif kind == "roll":
            self.log.writer.roll()
        elif kind == "wait":
            self.world.clock.advance(ms=details[0])
        else:
            self.dirty = clean(self.log, self.dirty, *details)

    def cleaned(
        self, slots: int, segment_bytes: int, crash_at: int = 0
    ) -> tuple[FaultyFileSystem, list[Operation]]:
        """Clean on a disk that stops at an operation of the pass, counted from 1; 0 for none.

        Returns the disk and the result of the pass.
        """
        fs = FaultyFileSystem(self.world.clock, self.world.fs)
        log = self.opened(fs, clean=True)
        before = fs.operation_count
        if crash_at:
            fs.crash_at(before + crash_at)
        with suppress(SimulatedCrash):
            clean(log, self.dirty, slots, segment_bytes)
        assert fs.crashed is bool(crash_at)
        return fs, fs.operations[before:]


def clean(log: Log, first_dirty: int, slots: int, segment_bytes: int) -> int:
    """Run a pass with a map of a few keys; return the next first dirty offset."""
    log.set_config(replace(log.config, segment_bytes=segment_bytes))
    state = cleanable_state(log, first_dirty, log.runtime.clock.now_ms())
    config = map_of(slots, 0.9) if slots else ALL_KEYS
    first_dirty = state.first_dirty_offset
    stats = drive(clean_pass(log, config, first_dirty, state.upper_bound_offset))
    log.set_config(replace(log.config, segment_bytes=1 << 20))
    return stats.end_offset


def seen(log: Log) -> tuple[dict, int, list]:
    """Return the committed records of a log, its last stable offset, and its producers.

    Of a producer without data, an empty marker may be all that is left (S-181).
    """
    latest = {key: value for _, key, value in committed(log)}
    sequences = [(e.producer_id, e.last_sequence) for e in log.producer_state.entries()]
    known = [each for each in sequences if each[1] >= 0]
    live = {key: value for key, value in latest.items() if value is not None}
    return live, log.last_stable_offset, sorted(known)


@given(
    histories,
    st.integers(0, 8).filter(lambda slots: slots != 1),
    st.sampled_from([100, 400, 1000]),
    st.lists(st.tuples(st.integers(1, 10_000), modes), min_size=POINTS, max_size=POINTS),
)
def test_a_reader_sees_the_same_after_any_crash_of_a_cleaning(history, slots, size, crashes):
    story = History()
    for step in history:
        story.do(step)
    story.log.writer.roll()
    before, records = seen(story.log), set(contents(story.log))
    base = story.log.active_segment.base_offset
    story.log.close()
    _, operations = story.cleaned(slots, size)
    start_ms = story.world.clock.now_ms()
    # Half of the crashes are during renames, which are fewer operations but the critical ones.
    numbers = range(1, len(operations) + 1)
    swaps = [n for n in numbers if operations[n - 1].kind in (Kind.RENAME, Kind.SYNC_DIR)]
    for at, mode in crashes if operations else ():
        among = swaps if at % 2 else numbers
        fs, _ = story.cleaned(slots, size, among[at % len(among)])
        note(f"crash at {fs.operations[-1]}, {mode}")
        log = story.opened(fs.crash(mode), clean=False, recovery_point=base)
        log._check()
        assert seen(log) == before
        assert set(contents(log)) <= records
        for others in ((slots, size), (0, 400), (0, 1000)):
            dirty = story.dirty
            for _ in range(2):
                dirty = clean(log, dirty, *others)
                assert seen(log) == before, others
            story.world.clock.advance(ms=RETENTION_MS)
        story.world.clock.set_ms(start_ms)
