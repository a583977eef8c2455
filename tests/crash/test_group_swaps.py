"""Crashes in a pass over several groups, which are swapped one after the other.

At every file operation of the pass, in every mode: what a reader had seen gone stays gone, no key
has another value than before, and cleaning again comes to the end of a run without a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest

from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.passes.clean import clean_pass
from logstore.names import DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX
from logstore.runtime import Runtime
from logstore.storage.log import Log
from logstore.testing import (
    Contents,
    CrashMode,
    FaultyFileSystem,
    Kind,
    Names,
    SimulatedCrash,
)
from tests.crash.harness import CORNERS, OF_RECOVERIES, Tally, fingerprint
from tests.crash.journal import check_log
from tests.support.world.builders import World, bases_of, memory_world
from tests.support.world.cleaning import (
    ALL_KEYS,
    Producer,
    batches_in,
    committed,
    compacted,
    contents,
    ends_in,
    map_of,
    offsets_in,
    put,
    put_each,
    run_pass,
    txn_entries,
)
from tests.support.world.crashes import Profile, modes

RETENTION_MS = 1000
APART_BYTES = 100
"""`segment.bytes` of cleanings that merge nothing: less than two batches."""

SUBSETS = 12
"""How many subsets of names are tried where it is their order that counts."""

BOUNDED = Profile(cuts=1)
FULL = Profile(cuts=12, seeds=4, recoveries=True)


# -- what is cleaned -------------------------------------------------------------------------------


def values(text: str) -> list[tuple[bytes, bytes | None]]:
    """Take `a1 b- c2` apart: key and value, - for a tombstone."""
    return [
        (word[:1].encode(), None if word[1:] == "-" else word[1:].encode() * 9)
        for word in text.split()
    ]


def segments(log: Log, *texts: str) -> None:
    """Write a segment a text, a batch a record."""
    for text in texts:
        put_each(log, *values(text))
        log.writer.roll()


def clean_apart(log: Log, first_dirty: int = 0, end: int | None = None, **options) -> int:
    """Run a pass that merges no segments; return the next first dirty offset."""
    config = log.config
    log.set_config(replace(config, segment_bytes=APART_BYTES))
    stats = run_pass(log, first_dirty, end, **options)
    log.set_config(config)
    return stats.end_offset


def superseded_and_expired(log: Log, clock) -> int:
    """Old values in every group, tombstones past their horizon, others that get theirs."""
    segments(log, "a1 b1 c1 d1", "a- b2 e1 f1", "c2 e- g1 h1")
    end = clean_apart(log)
    clock.advance(ms=RETENTION_MS)
    segments(log, "b3 d2 i1", "f- h- g2", "j1 i- a9", "k1")
    return end


def tombstones_with_their_values(log: Log, clock) -> int:
    """Tombstones that aged beyond a full map go in the pass that takes what they shadow (S-172)."""
    segments(log, "a1 b1 c1 d1", "e1 f1 g1", "h1 a- b- c-", "d- e- f-", "i1 j1")
    end = clean_apart(log, config=map_of(9, 0.9))
    assert (end, offsets_in(log)) == (8, list(range(16)))
    clock.advance(ms=RETENTION_MS)
    return end


def transactions(log: Log, clock) -> int:
    """Aborted data and markers in different groups, markers past their horizon, open ends."""
    one, two, three = (Producer(log, number) for number in (1, 2, 3))
    one.send((b"a", b"aborted" * 4), (b"b", b"aborted" * 4))
    two.send((b"a", b"1" * 9), (b"b", None))
    log.writer.roll()
    one.abort()
    two.commit()
    three.send((b"c", b"1" * 9), (b"d", b"1" * 9))
    three.commit()
    log.writer.roll()
    one.send((b"c", b"2" * 9))
    one.commit()
    two.send((b"d", None), (b"e", b"1" * 9))
    two.commit()
    log.writer.roll()
    end = clean_apart(log)
    clean_apart(log, end)
    clock.advance(ms=RETENTION_MS)
    three.send((b"e", b"aborted" * 4), (b"a", None))
    two.send((b"e", b"2" * 9))
    put(log, (b"f", b"1" * 9))
    log.writer.roll()
    two.commit()
    three.abort()
    one.send((b"f", None), (b"g", b"1" * 9))
    log.writer.roll()
    one.commit()
    three.send((b"g", b"aborted" * 4))
    three.abort()
    log.writer.roll()
    return end


def pairs_of_segments(log: Log, clock) -> int:
    """Each group has several sources, so that bases go and snapshots with them."""
    producer = Producer(log, 1)
    segments(log, "a1 b1 c1", "a- d1 e1")
    producer.send(1, 2, transactional=False)
    log.writer.roll()
    segments(log, "b- c2 f1", "d2 g1")
    end = clean_apart(log)
    clock.advance(ms=RETENTION_MS)
    segments(log, "c- e- h1", "i1 g- f-", "h2 j1", "k1 l1 m1")
    return end


def few_keys_a_pass(log: Log, clock) -> int:
    """Three passes of a map that is full after two keys; a restart begins with the first."""
    segments(log, "a1 b1 c1", "b- a2", "c2 d1 a-")
    end = clean_apart(log)
    clock.advance(ms=RETENTION_MS)
    segments(log, "b3 d- e1", "a3 e- f1")
    return end


def nothing_left_behind_the_first(log: Log, clock) -> int:
    """Of a group's last sources nothing stays: values in one, their expired tombstones in the next.

    The new segment ends before them, so that only their names tell that they were replaced.
    """
    segments(log, "x1 y1", "a1 b1", "h1 a- b-")
    end = clean_apart(log, config=map_of(6, 0.9))
    assert (end, offsets_in(log)) == (5, list(range(7)))
    clock.advance(ms=RETENTION_MS)
    segments(log, "h2 z1")
    return end


class Story(NamedTuple):
    """How a log is made, and how it is cleaned.

    `prepare` returns the first dirty offset; `segment_bytes` is of the cleaned segments; `stride`
    is the bounded profile's.
    """

    prepare: Callable[[Log, object], int]
    groups: int
    segment_bytes: int = APART_BYTES
    config: CleanerConfig = ALL_KEYS
    stride: int = 27


STORIES = (
    Story(superseded_and_expired, groups=5, segment_bytes=310),
    Story(tombstones_with_their_values, groups=5),
    Story(transactions, groups=6),
    Story(pairs_of_segments, groups=5, segment_bytes=400),
    Story(nothing_left_behind_the_first, groups=2, segment_bytes=550, stride=4),
    Story(few_keys_a_pass, groups=3, config=map_of(3, 0.9), stride=47),
)


# -- one log, cleaned to its end, or to a crash ----------------------------------------------------


@dataclass(frozen=True)
class View:
    """What readers are shown, and what is known of producers."""

    live: dict[bytes | None, bytes]
    last_stable_offset: int
    producers: list[tuple[int, int, int]]

    @classmethod
    def of(cls, log: Log) -> View:
        latest = {key: value for _, key, value in committed(log)}
        known = [
            (entry.producer_id, entry.producer_epoch, entry.last_sequence)
            for entry in log.producer_state.entries()
        ]
        return cls(
            {key: value for key, value in latest.items() if value is not None},
            log.last_stable_offset,
            sorted(known),
        )


class End(NamedTuple):
    """What a log comes to, whatever segments it has."""

    records: list[tuple[int, bytes | None, bytes | None]]
    batch_ends: list[int]
    transactions: list[tuple[int, int, int, int]]

    @classmethod
    def of(cls, log: Log) -> End:
        return cls(contents(log), ends_in(log), txn_entries(log))

    @classmethod
    def recovered(cls, log: Log) -> End:
        """Leave out transactions without data: an index that is built anew does not have them."""
        data = [each.header for each in batches_in(log) if each.header.record_count]
        needed = [
            (producer_id, first, last, stable)
            for producer_id, first, last, stable in txn_entries(log)
            if any(h.producer_id == producer_id and first <= h.last_offset < last for h in data)
        ]
        return cls(contents(log), ends_in(log), needed)


class Trial:
    """A story's directory before its pass, and the pass as it goes without a crash."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.origin = memory_world()
        log = compacted(self.origin, delete_retention_ms=RETENTION_MS)
        self.first_dirty = story.prepare(log, self.origin.clock)
        put(log, (b"active", b"segment"))
        self.upper_bound = log.active_segment.base_offset
        self.end_offset = log.log_end_offset
        self.now_ms = self.origin.clock.now_ms()
        log.close()
        log = self.opened(self.origin.fs, clean=True)
        self.before = {offset: (key, value) for offset, key, value in contents(log)}
        self.bases = bases_of(log)
        self.view = View.of(log)
        log.close()
        whole = FaultyFileSystem(self.origin.clock, self.origin.fs)
        log = self.opened(whole, clean=True)
        self.first_operation = whole.operation_count + 1
        self.states = [list(self.before), *self.clean(log)]
        self.operations = whole.operation_count
        assert len(bases_of(log)) == story.groups + 1
        self.data = self.data_in(log)
        self.end = self.end_of(log)
        assert self.view == View.of(log)

    def opened(self, fs, *, clean: bool = False) -> Log:
        """Open the log on some disk; after a crash it is recovered from the active segment on."""
        runtime = Runtime(self.origin.clock, fs, Random(0))
        return compacted(
            World(runtime, self.origin.directory, self.origin.clock),
            clean=clean,
            recovery_point=self.upper_bound,
            delete_retention_ms=RETENTION_MS,
            segment_bytes=self.story.segment_bytes,
        )

    def clean(self, log: Log, seen: set[int] | None = None) -> list[list[int]]:
        """Clean the dirty section in the passes that it takes; return what each of them left.

        `seen` follows what readers find between two steps.
        """
        states = []
        first_dirty = self.first_dirty
        while first_dirty < self.upper_bound:
            steps = clean_pass(log, self.story.config, first_dirty, self.upper_bound)
            try:
                while True:
                    next(steps)
                    if seen is not None:
                        seen.intersection_update(offsets_in(log))
            except StopIteration as done:
                first_dirty = done.value.end_offset
            states.append(offsets_in(log))
            if seen is not None:
                seen.intersection_update(states[-1])
            log.delete_expired_files()
        return states

    @staticmethod
    def data_in(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
        """Return all records but markers, which may go a pass earlier after a crash."""
        return [
            (record.offset, record.key, record.value)
            for batch in batches_in(log)
            if not batch.header.is_control
            for record in batch.records()
        ]

    def end_of(self, log: Log) -> End:
        """Go on, retention after retention, until nothing changes any more."""
        found = [End.of(log)]
        while len(found) < 4 or found[-1] != found[-2]:
            self.origin.clock.advance(ms=RETENTION_MS)
            run_pass(log, self.upper_bound, self.upper_bound)
            found.append(End.of(log))
        self.origin.clock.set_ms(self.now_ms)
        return found[-1]


# -- crashes ---------------------------------------------------------------------------------------


class Crashes:
    """Every crash of one story, and what is found after it."""

    def __init__(self, trial: Trial, profile: Profile) -> None:
        self.trial = trial
        self.profile = profile
        self.tally = Tally()

    def enumerate(self) -> Tally:
        trial = self.trial
        for number in range(trial.first_operation, trial.operations + 1, self.profile.stride):
            fs = FaultyFileSystem(trial.origin.clock, trial.origin.fs)
            log = trial.opened(fs, clean=True)
            fs.crash_at(number)
            seen = set(trial.before)
            with pytest.raises(SimulatedCrash):
                trial.clean(log, seen)
            self.tally.points += 1
            gone = trial.before.keys() - seen
            for mode in modes(fs, self.profile):
                self.tally.states += 1
                image = fs.crash(mode)
                if self._is_new(fingerprint(image), len(gone)):
                    self.tally.distinct += 1
                    try:
                        self._judge(image, mode, gone)
                    except Exception as error:
                        what = f"crash at {fs.operations[-1]}, {mode}"
                        raise AssertionError(f"{what}: {error!r}") from error
        return self.tally

    def _is_new(self, *key: object) -> bool:
        is_new = key not in self.tally.seen
        self.tally.seen.add(key)
        return is_new

    def _judge(self, image, mode: CrashMode, gone: set[int]) -> None:
        trial = self.trial
        at_corner = (mode.contents, mode.names) in CORNERS
        log = trial.opened(FaultyFileSystem(trial.origin.clock, image))
        self._check(log, gone)
        if self.profile.recoveries and at_corner:
            self._crash_in_recovery(image, End.recovered(log), gone)
        if self.profile.all_deep or at_corner:
            self._clean_again(log)

    def _check(self, log: Log, gone: set[int]) -> None:
        trial = self.trial
        check_log(log)
        assert View.of(log) == trial.view
        assert log.log_end_offset == trial.end_offset
        found = {offset: (key, value) for offset, key, value in contents(log)}
        assert all(trial.before[offset] == record for offset, record in found.items())
        back = gone & found.keys()
        assert not back, f"a reader had seen {sorted(back)} gone"
        for start, stop in pairwise(trial.bases):

            def within(offsets, start=start, stop=stop) -> list[int]:
                return [offset for offset in offsets if start <= offset < stop]

            allowed = [within(state) for state in trial.states]
            assert within(found) in allowed, f"segment {start} is neither as before nor as after"

    def _clean_again(self, log: Log) -> None:
        trial = self.trial
        trial.clean(log)
        assert trial.data_in(log) == trial.data
        assert View.of(log) == trial.view
        check_log(log)
        assert trial.end_of(log) == trial.end

    def _crash_in_recovery(self, image, found: End, gone: set[int]) -> None:
        """Crash at each operation of the load; the next one comes to the same end."""
        trial = self.trial
        number = 1
        while True:
            fs = FaultyFileSystem(trial.origin.clock, image)
            fs.crash_at(number)
            try:
                trial.opened(fs)
            except SimulatedCrash:
                self.tally.recovery_points += 1
            else:
                return
            for mode in modes(fs, OF_RECOVERIES):
                self.tally.recovery_states += 1
                left = fs.crash(mode)
                if self._is_new(fingerprint(left), len(gone), "recovery"):
                    log = trial.opened(FaultyFileSystem(trial.origin.clock, left))
                    self._check(log, gone)
                    assert End.recovered(log) == found, f"recovery that crashed, {mode}"
            number += 1


every_story = pytest.mark.parametrize("story", STORIES, ids=lambda each: each.prepare.__name__)


@every_story
def test_a_crash_between_groups_brings_nothing_back(story, record_property):
    tally = Crashes(Trial(story), replace(BOUNDED, stride=story.stride)).enumerate()
    record_property("crashes", str(tally))
    assert tally.points > 5
    assert tally.distinct > 5 * tally.points


def crashed_at(number: int, clock, image, work) -> FaultyFileSystem:
    """Work on a disk until the machine stops at an operation."""
    fs = FaultyFileSystem(clock, image)
    fs.crash_at(number)
    with pytest.raises(SimulatedCrash):
        work(fs)
    return fs


def test_no_segment_that_has_its_name_lies_between_two_swaps():
    """Neither the swap of five groups at once nor a start that finishes it may leave that.

    What lies between two `.swap` is dropped as replaced. At each sync of the directory, in the pass
    and in the start after it, many subsets of the renames are tried.
    """
    trial = Trial(STORIES[0])
    crashes = Crashes(trial, BOUNDED)
    clock = trial.origin.clock

    def clean(fs) -> None:
        trial.clean(trial.opened(fs, clean=True))

    def crash_at_syncs(image, work) -> FaultyFileSystem:
        whole = FaultyFileSystem(clock, image)
        work(whole)
        for operation in whole.operations:
            if operation.kind is Kind.SYNC_DIR:
                fs = crashed_at(operation.number, clock, image, work)
                for seed in range(SUBSETS):
                    left = fs.crash(CrashMode(Contents.KEPT, Names.SUBSET, seed=seed))
                    log = trial.opened(FaultyFileSystem(clock, left))
                    crashes._check(log, set())
        return whole

    whole = crash_at_syncs(trial.origin.fs, clean)
    deletion = next(each for each in whole.operations if each.target.endswith(DELETED_SUFFIX))
    swapped = crashed_at(deletion.number, clock, trial.origin.fs, clean)
    image = swapped.crash(CrashMode(Contents.KEPT, Names.KEPT))
    names = image.list_dir(trial.origin.directory)
    assert sum(name.endswith(LOG_SUFFIX + SWAP_SUFFIX) for name in names) == trial.story.groups
    crash_at_syncs(image, trial.opened)


@pytest.mark.parametrize(
    "story", (pairs_of_segments, few_keys_a_pass), ids=lambda prepare: prepare.__name__
)
def test_no_file_of_a_segment_is_missing_once_another_is_named_swap(story):
    """A disk may keep the rename of a `.log.cleaned` and not that there was a `.timeindex.cleaned`.

    The `.swap` alone would pass for a complete segment, and the old ones would go. At the first
    sync after the renames to `.swap` many subsets of what is not durable are tried.
    """
    trial = Trial(next(each for each in STORIES if each.prepare is story))
    crashes = Crashes(trial, BOUNDED)
    clock, origin = trial.origin.clock, trial.origin.fs

    def clean(fs) -> None:
        trial.clean(trial.opened(fs, clean=True))

    whole = FaultyFileSystem(clock, origin)
    clean(whole)
    syncs = [
        after.number
        for before, after in pairwise(whole.operations)
        if after.kind is Kind.SYNC_DIR and before.target.endswith(SWAP_SUFFIX)
    ]
    assert syncs
    for number in syncs:
        fs = crashed_at(number, clock, origin, clean)
        for seed in range(4 * SUBSETS):
            left = fs.crash(CrashMode(Contents.KEPT, Names.SUBSET, seed=seed))
            crashes._check(trial.opened(FaultyFileSystem(clock, left)), set())


@pytest.mark.long
@pytest.mark.timeout(7200)
@every_story
def test_a_crash_anywhere_brings_nothing_back(story, record_property):
    trial = Trial(story)
    tally = Crashes(trial, FULL).enumerate()
    record_property("crashes", str(tally))
    assert tally.points == trial.operations - trial.first_operation + 1
    assert tally.recovery_states > tally.points
