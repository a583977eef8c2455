"""The engine in virtual time: a scenario is lived through, and looked at on the way."""

from __future__ import annotations

import hashlib
import heapq
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from logstore.analysis.broker_state import cleanable_state, cleaner_offset
from logstore.cleaner.pool.throttle import UNLIMITED
from logstore.cleaner.selection import SECTIONS, section_of
from logstore.errors import CorruptRecordError, LogStoreError
from logstore.runtime import VirtualClock
from logstore.simulate import deeds
from logstore.simulate import scenario as plans
from logstore.simulate.census import Census, Tombstones
from logstore.simulate.deeds import created_at_ms
from logstore.simulate.feed import Feed, Queue, Script, bring
from logstore.simulate.outcome import (
    AGE_CLASSES,
    CONSUMERS,
    PARTITIONS,
    PASSES,
    SEGMENTS,
    Run,
    Table,
)
from logstore.simulate.population import KnownPopulation, SpecKeys
from logstore.simulate.readers import Readers
from logstore.simulate.recording import record
from logstore.simulate.site import ABSENT, Site
from logstore.simulate.starting import spec_for
from logstore.simulate.winners import ScriptWinners, Winners
from logstore.types import DAY_MS, INT64_MAX, TopicPartition

if TYPE_CHECKING:
    from logstore.broker.broker import Broker
    from logstore.cleaner.pool.pool import CleanerPool
    from logstore.cleaner.selection import CleanableState
    from logstore.cleaner.stats import CleanerStats
    from logstore.simulate.deeds import Action
    from logstore.simulate.recording import Recording, TopicRecording
    from logstore.simulate.scenario import Scenario, Topic
    from logstore.storage.log.log import Log

Offsets = NDArray[np.int64]
Progress = Callable[[int], object]
"""Told the virtual time, in Unix ms, now and then."""

STRIPS_MAX = 160
"""How often at most all segments are written down."""

REGULAR, ROLL, CLEAN, RETAIN, START, END = "regular", "roll", "clean", "retain", "start", "end"
STATE = "state"

NOTHING = frozenset(PARTITIONS) - {"topic", "state", "event"}
"""Columns that are 0 of a partition that is not there."""


def run(
    scenario: Scenario,
    *,
    data_dir: str | PathLike[str] | None = None,
    samples: int = plans.SAMPLES_MAX,
    progress: Progress | None = None,
    recording: Recording | None = None,
) -> Run:
    """Live through a scenario.

    Parameters
    ----------
    data_dir : path, optional
        Where the logs lie, new or empty; in memory by default. The series and the bytes are the
        same.
    samples : int
        Rows of each partition besides those of rolls, cleanings and retention, at most.
    progress : callable, optional
        Told the virtual time now and then.
    recording : Recording, optional
        Of the directory that the scenario is from, if it was read already.

    Raises
    ------
    InvalidConfigurationError
        An action cannot be done as it is configured, or there is nothing where the scenario is
        from.
    TopicAlreadyExistsError
        The directory has such a topic.
    CorruptRecordError
        The directory that the scenario is from is damaged.

    Notes
    -----
    The same scenario and seed give the same series and the same bytes, in memory and on disk.
    """
    return _Simulation(scenario, data_dir, samples, progress, recording).run()


class _Partition:
    """A partition that is looked at."""

    def __init__(
        self, topic: str, number: int, winners: Winners | ScriptWinners, looked_ms: int
    ) -> None:
        self.tp = TopicPartition(topic, number)
        self.winners = winners
        self.census = Census()
        self.view: tuple[int, int, int] = (0, 1, 0)
        self.read_bytes = self.written_bytes = 0
        self.spent_bytes = self.pass_ms = 0
        self.looked_ms = looked_ms
        self.waits_until_ms = -1
        self.directory = ""
        self.state = ABSENT
        self.row: dict[str, Any] = {}
        self.start_offset = self.end_offset = 0
        self.dirty_since_ms: int | None = None
        self.appended_bytes = 0


class _Simulation:
    def __init__(
        self,
        scenario: Scenario,
        data_dir: str | PathLike[str] | None,
        samples: int,
        progress: Progress | None,
        recording: Recording | None,
    ) -> None:
        self.scenario = scenario
        self.progress = progress
        self.samples = samples
        self.clock = VirtualClock(scenario.start_ms)
        self.recordings: Mapping[str, TopicRecording] = {}
        if scenario.origin:
            recording = recording or record(scenario.origin, scenario.continued_topics)
            _refuse_damage(recording)
            self.recordings = {name: recording.topics[name] for name in scenario.continued_topics}
        self.site = Site(scenario, data_dir, self.clock)
        self.feeds: list[Queue] = []
        self.winners: dict[str, Winners | ScriptWinners] = {}
        for topic in scenario.topics:
            self._expect(topic)
        self.feed_of = {feed.topic: feed for feed in self.feeds}
        self.watched = [
            _Partition(topic.name, number, self.winners[topic.name], scenario.start_ms)
            for topic in scenario.topics
            for number in self._numbers(topic)
        ]
        self.by_name = {each.tp: each for each in self.watched}
        self.readers = Readers(scenario)
        self.partitions, self.passes = Table(tuple(PARTITIONS)), Table(tuple(PASSES))
        self.consumers, self.segments = Table(tuple(CONSUMERS)), Table(tuple(SEGMENTS))
        self.notes: list[str] = []
        self.refused: str | None = None
        self.cleaned: set[TopicPartition] = set()

    def _expect(self, topic: Topic) -> None:
        """Make what brings a topic's records, and what knows which of them stay."""
        feed: Queue
        winners: Winners | ScriptWinners
        spec, start_ms = topic.workload, self.scenario.start_ms
        if topic.continued:
            recording = self.recordings[topic.name]
            spec = None if spec is None else spec_for(spec, recording)
            population = KnownPopulation(recording, topic.known, topic.shares, spec)
            count = 1 + max(recording.partitions)
            winners = Winners(topic.configs, population, count)
            if spec is None:
                silent = replace(topic, partitions=count)
                feed = Script(silent, start_ms, ScriptWinners(silent))
            else:
                feed = Feed(spec, winners, None, population, recording.next_producer_id)
        elif spec is not None:
            winners = Winners(topic.configs, SpecKeys(spec), spec.partitions)
            feed = Feed(spec, winners, topic.recorded)
        else:
            winners = ScriptWinners(topic)
            feed = Script(topic, start_ms, winners)
        self.winners[topic.name] = winners
        self.feeds.append(feed)

    def _numbers(self, topic: Topic) -> Iterable[int]:
        """Return the numbers of a topic's partitions."""
        if topic.continued:
            return self.recordings[topic.name].partitions
        return range(self.scenario.partitions_of(topic.name))

    def _begin(self) -> None:
        """Make the topics, and take note of what lies in those that go on."""
        for topic in self.scenario.topics:
            if not topic.continued and created_at_ms(self.scenario.actions, topic.name) is None:
                self._create(topic)
        for each in self.watched:
            if each.tp.topic in self.recordings:
                log = self.broker.log(each.tp)
                view = log.segments.view
                each.view = (log.log_start_offset, len(view), view[-1].base_offset)
                each.start_offset, each.end_offset = log.log_start_offset, log.log_end_offset
                self.readers.begin(each.tp, log.log_end_offset)
                if log.config.compact:
                    each.winners.read(each.tp.partition, log)

    def run(self) -> Run:
        try:
            self._follow()
            self._begin()
            self._sample_all(START)
            strip_every_ms = self.scenario.span_ms // STRIPS_MAX
            next_strip_ms = self.scenario.start_ms
            for moment_ms, action in self._stops():
                self._pass_time(moment_ms)
                if action is not None:
                    self._do(action)
                elif moment_ms < self._end_ms:
                    self._sample_all(REGULAR)
                if moment_ms >= next_strip_ms:
                    self._sample_segments()
                    next_strip_ms += strip_every_ms
                if self.progress is not None:
                    self.progress(self.clock.now_ms())
            self._sample_all(END)
            digests = {str(each.tp): self._digest(each) for each in self.watched if each.directory}
        finally:
            self.site.close()
        return Run(
            self.scenario,
            self.partitions,
            self.consumers,
            self.passes,
            self.segments,
            digests,
            self.notes,
        )

    @property
    def broker(self) -> Broker[VirtualClock]:
        """The broker, which runs."""
        return self.site.broker

    # -- time ----------------------------------------------------------------------------

    @property
    def _end_ms(self) -> int:
        return self.scenario.start_ms + self.scenario.span_ms

    def _stops(self) -> Iterator[tuple[int, Action | None]]:
        """Yield the moments at which something is looked at or done, in order."""
        start, span = self.scenario.start_ms, self.scenario.span_ms
        count = max(1, min(self.samples, span))
        looks = ((start + span * (number + 1) // count, None) for number in range(count))
        acts = ((start + action.at_ms, action) for action in self.scenario.actions)
        acts_in_time = (each for each in acts if each[0] <= start + span)
        yield from heapq.merge(looks, acts_in_time, key=lambda stop: stop[0])

    def _pass_time(self, until_ms: int) -> None:
        """Let time pass, with what arrives and what falls due, up to a moment."""
        while (now_ms := self.clock.now_ms()) < until_ms:
            due_ms = self.site.next_due_ms()
            window_ms = until_ms if due_ms is None else max(now_ms + 1, min(due_ms, until_ms))
            refused = None
            if self.site.running is not None:
                refused = bring(self.feeds, self.broker, self.clock, window_ms)
            if refused is not None and refused != self.refused:
                self._note(f"an append was refused: {refused}")
            self.refused = refused
            self._note_dirty()  # before a pass, which may be due at the end of the window
            self.clock.set_ms(max(window_ms, self.clock.now_ms()))
            self._look()

    def _note_dirty(self) -> None:
        """Note since when there is data that no cleaning has seen, where there was none."""
        for each in self.watched:
            appended = self.feed_of[each.tp.topic].bytes[each.tp.partition]
            if each.dirty_since_ms is not None or appended == each.appended_bytes:
                continue
            each.appended_bytes = appended
            log = self._log(each)
            if log is not None and log.config.compact:
                checkpoint = cleaner_offset(self.broker, each.tp) or 0
                first_dirty = max(checkpoint, log.log_start_offset)
                each.dirty_since_ms = _dirty_since_ms(log, first_dirty)

    # -- looking -------------------------------------------------------------------------

    def _follow(self) -> None:
        self._pool.pass_ended.subscribe(self._note_pass)

    @property
    def _pool(self) -> CleanerPool:
        pool = self.broker.pool
        assert pool is not None, "a simulated broker has background work"
        return pool

    def _note_pass(self, stats: CleanerStats) -> None:
        tp = stats.topic_partition
        read = stats.bytes_read + stats.map_bytes_read + stats.seed_bytes_read
        self.by_name[tp].read_bytes += read
        self.by_name[tp].written_bytes += stats.bytes_written
        self.by_name[tp].pass_ms += stats.index_ms + stats.clean_ms
        self.cleaned.add(tp)
        now_ms, log = self.clock.now_ms(), self._log(self.by_name[tp])
        oldest_ms = _age_ms(self.by_name[tp].dirty_since_ms, now_ms)
        delay_ms = 0
        if log is not None:
            delay_ms = max(0, oldest_ms - log.config.max_compaction_lag_ms)
            self.by_name[tp].dirty_since_ms = _dirty_since_ms(log, stats.end_offset)
        self.passes.add(
            time_ms=now_ms,
            topic=tp.topic,
            partition=tp.partition,
            first_dirty_offset=stats.first_dirty_offset,
            end_offset=stats.end_offset,
            segments_before=stats.segments_before,
            segments_after=stats.segments_after,
            bytes_read=read,
            bytes_written=stats.bytes_written,
            messages_read=stats.messages_read,
            messages_written=stats.messages_written,
            map_utilization=stats.map_utilization,
            duration_ms=stats.index_ms + stats.clean_ms,
            oldest_dirty_ms=oldest_ms,
            compaction_delay_ms=delay_ms,
        )

    def _look(self) -> None:
        """Add a row for each partition to which something has just happened."""
        for each in self.watched:
            log = self._log(each)
            if log is None:
                continue
            view = log.segments.view
            now = (log.log_start_offset, len(view), view[-1].base_offset)
            if each.tp in self.cleaned:
                self._sample(each, CLEAN)
            elif now != each.view:
                self._sample(each, ROLL if now[2] != each.view[2] else RETAIN)
            each.view, each.end_offset = now, log.log_end_offset
            self.readers.note(each.tp, self.clock.now_ms(), log.log_end_offset)
        self.cleaned.clear()

    def _log(self, each: _Partition) -> Log | None:
        """Return a partition's log, if it can be used, and note where it lies."""
        return self._found(each)[1]

    def _found(self, each: _Partition) -> tuple[str, Log | None]:
        state, log = self.site.look(each.tp)
        if log is not None:
            each.directory = log.directory
        return state, log

    def _look_at_states(self) -> None:
        """Add a row for each partition with which it no longer stands as it did."""
        for each in self.watched:
            if self.site.look(each.tp)[0] != each.state:
                self._sample(each, STATE)

    def _sample_all(self, event: str) -> None:
        for each in self.watched:
            self._sample(each, event)
        for row in self.readers.rows(self.clock.now_ms()):
            self.consumers.add(**row)

    def _sample_segments(self) -> None:
        for each in self.watched:
            log = self._log(each)
            if log is None or not log.size_bytes:
                continue
            each.census.take(log, self.site.fs)
            state = cleanable_state(self.broker, log)
            ends = [segment.base_offset for segment in log.segments.view[1:]]
            for segment, end in zip(log.segments.view, [*ends, log.log_end_offset], strict=True):
                if segment.size_bytes:
                    records = each.census.records_in(segment.base_offset)
                    self.segments.add(
                        time_ms=self.clock.now_ms(),
                        topic=each.tp.topic,
                        partition=each.tp.partition,
                        base_offset=segment.base_offset,
                        end_offset=end,
                        records=records,
                        hole_offsets=max(0, end - segment.base_offset - records),
                        bytes=segment.size_bytes,
                        section=section_of(log, segment, state),
                    )

    def _sample(self, each: _Partition, event: str) -> None:
        """Add a row; of a log that cannot be used with what was known of it last."""
        each.state, log = self._found(each)
        measured: dict[str, Any] = {}
        if log is not None:
            measured = self._measured(each, log, event)
        elif each.state == ABSENT:
            measured = dict.fromkeys(NOTHING, 0)
            measured["deleted_bytes"] = self.site.waiting_bytes(each.tp, None)
        now_ms = self.clock.now_ms()
        spent = each.read_bytes + each.written_bytes
        span_ms = max(now_ms - each.looked_ms, each.pass_ms)  # a pass may have begun before
        rate = (spent - each.spent_bytes) * 1000 / span_ms if span_ms else 0.0
        appended = self.feed_of[each.tp.topic].bytes[each.tp.partition]
        throttle = self.site.config.log_cleaner_io_max_bytes_per_second
        throttle = throttle if throttle < UNLIMITED else 0.0
        each.row |= measured | {
            "time_ms": now_ms,
            "topic": each.tp.topic,
            "partition": each.tp.partition,
            "event": event,
            "state": each.state,
            "appended_bytes": appended,
            "cleaner_read_bytes": each.read_bytes,
            "cleaner_written_bytes": each.written_bytes,
            "write_amplification": (appended + each.written_bytes) / appended if appended else 1.0,
            "cleaner_bytes_per_second": rate,
            "cleaner_load": rate / throttle if throttle else 0.0,
            "throttle_bytes_per_second": throttle,
        }
        self.partitions.add(**each.row)
        if event in (START, REGULAR, END):
            each.looked_ms, each.spent_bytes, each.pass_ms = now_ms, spent, 0

    def _measured(self, each: _Partition, log: Log, event: str) -> dict[str, Any]:
        """Return what is seen in a log."""
        now_ms = self.clock.now_ms()
        state = cleanable_state(self.broker, log)
        is_compacted = log.config.compact
        each.dirty_since_ms = None
        if is_compacted:
            each.dirty_since_ms = _dirty_since_ms(log, state.first_dirty_offset)
        bound_ms = log.config.max_compaction_lag_ms
        return {
            "log_start_offset": log.log_start_offset,
            "log_end_offset": log.log_end_offset,
            "first_dirty_offset": state.first_dirty_offset,
            "segments": len(log.segments.view),
            **_sizes(log, state),
            "deleted_bytes": self._deleted_bytes(each, log, event),
            **self._counts(each, log),
            "cleanable_ratio": state.cleanable_ratio if is_compacted else 0.0,
            "must_clean_ratio": state.must_clean_ratio if is_compacted else 0.0,
            "oldest_dirty_ms": _age_ms(each.dirty_since_ms, now_ms),
            "max_compaction_lag_ms": bound_ms if bound_ms < INT64_MAX else 0,
            "compaction_delay_ms": state.max_compaction_delay_ms if is_compacted else 0,
        }

    def _counts(self, each: _Partition, log: Log) -> dict[str, int]:
        """Count records, live and dead, tombstones and keys, and tell readers what they missed."""
        now_ms = self.clock.now_ms()
        before = each.census.tombstones.offsets
        each.census.take(log, self.site.fs)
        records, tombstones = each.census.records, each.census.tombstones
        live, last = records, tombstones.offsets[:0]
        if log.config.compact:
            each.winners.settle()
            start = log.log_start_offset
            if start > each.start_offset and each.winners.strategy.has_versions:
                each.winners.read(each.tp.partition, log)  # what lost to a deleted one is back
            each.start_offset = start
            live, deleting = each.winners.standing(each.tp.partition, start)
            last = _common(tombstones.offsets, deleting)
            known = _common(before, deleting)
            if len(known) != len(_common(known, last)):
                self.readers.note_gone(each.tp, now_ms, np.setdiff1d(known, last))
        return {
            "records": records,
            "live_records": live,
            "dead_records": records - live - len(last),
            "tombstones": len(last),
            "keys": live + len(last),
            "hole_offsets": max(0, log.log_end_offset - log.log_start_offset - records),
            **_ages(tombstones, last, now_ms, log.config.delete_retention_ms),
        }

    def _deleted_bytes(self, each: _Partition, log: Log, event: str) -> int:
        """Return the bytes of files that wait for their removal; seldom any, so seldom looked."""
        now_ms = self.clock.now_ms()
        if event in (CLEAN, RETAIN):
            each.waits_until_ms = now_ms + log.config.file_delete_delay_ms
        if now_ms > each.waits_until_ms:
            return 0
        return self.site.waiting_bytes(each.tp, log.directory)

    # -- doing ---------------------------------------------------------------------------

    def _note(self, text: str) -> None:
        moment = self.clock.now_ms() - self.scenario.start_ms
        self.notes.append(f"day {moment / DAY_MS:.3f}: {text}")

    def _do(self, action: Action) -> None:
        """Do what an operator does, or let happen what befalls a broker."""
        self._note(str(action))
        here = [
            each
            for each in self.watched
            if each.tp.topic == action.topic and action.partition in (-1, each.tp.partition)
        ]
        try:
            self._obey(action, here)
        except LogStoreError as error:
            self._note(f"{action.do} was refused: {error}")
        self._look()
        self._look_at_states()

    def _obey(self, action: Action, here: list[_Partition]) -> None:
        topic = action.topic
        match action.do:
            case deeds.ALTER if topic:
                self.broker.alter_configs(topic, action.configs)
            case deeds.ALTER:
                self.broker.alter_broker_configs(action.configs)
            case deeds.CREATE_TOPIC:
                self._create(next(each for each in self.scenario.topics if each.name == topic))
            case deeds.DELETE_TOPIC:
                self._delete(topic)
            case deeds.ADD_PARTITIONS:
                self.broker.create_partitions(topic, action.partitions)
                self.feed_of[topic].add_partitions(action.partitions, self.clock.now_ms())
            case deeds.ROLL | deeds.CLEAN | deeds.DELETE_RECORDS | deeds.RETRY | deeds.CORRUPT:
                for each in here:
                    self._obey_in(action, each)
            case deeds.STOP_CLEANER:
                self._pool.stop()
            case deeds.START_CLEANER:
                self._pool.start()
            case deeds.STOP_BROKER:
                self.site.end(action.do)
            case deeds.START_BROKER:
                self._start()
            case deeds.KILL | deeds.CRASH:
                self.site.end(action.do)
                if action.undone() is None:
                    self._start()
            case deeds.FILL_DISK | deeds.FAIL_DISK:
                self.site.fail(action)
            case deeds.FREE_DISK:
                self.site.mend(lambda fault: fault.do == deeds.FILL_DISK)
                if self.site.running is not None:
                    self.site.end(deeds.KILL)
                self._start()
            case deeds.MEND_DISK:
                self.site.mend(action.is_about)
            case deeds.JUMP_CLOCK:
                self.site.clock.skew_ms += action.by_ms

    def _obey_in(self, action: Action, each: _Partition) -> None:
        """Do something with one partition."""
        match action.do:
            case deeds.ROLL:
                self.broker.roll(each.tp)
            case deeds.CLEAN:
                for stats in self.broker.clean(each.tp, force=True).cleaned:
                    self._note_pass(stats)
            case deeds.DELETE_RECORDS:
                for result in self.broker.delete_records({each.tp: action.before}).values():
                    if result.error is not None:
                        self._note(f"{each.tp}: {result.error}")
            case deeds.RETRY:
                if not self.broker.cleaner.retry(each.tp):
                    self._note(f"{each.tp}: nothing was wrong with it")
            case deeds.CORRUPT:
                offset = each.row["first_dirty_offset"] if action.offset < 0 else action.offset
                if not self.site.corrupt(each.directory, offset):
                    self._note(f"{each.tp}: no batch holds offset {offset}")

    def _create(self, topic: Topic) -> None:
        count = self.feed_of[topic.name].partitions
        self.broker.create_topic(topic.name, partitions=count, configs=topic.configs)

    def _delete(self, topic: str) -> None:
        """Delete a topic; one of its name that is created again begins at offset 0."""
        self.broker.delete_topic(topic)
        for each in self.watched:
            if each.tp.topic == topic:
                each.winners.settle()
                each.winners.forget(each.tp.partition)
                each.census, each.view, each.directory = Census(), (0, 1, 0), ""
                each.start_offset = each.end_offset = 0
                each.dirty_since_ms = None
                self.readers.forget(each.tp)

    def _start(self) -> None:
        """Start the broker; what was not flushed before a crash is gone, and producers go on."""
        self.site.open()
        self._follow()
        for each in self.watched:
            log = self._log(each)
            if log is None:
                continue
            lost = each.end_offset - log.log_end_offset
            each.census = Census()
            each.winners.settle()
            each.winners.read(each.tp.partition, log)
            if lost > 0:
                self._note(f"{each.tp}: {lost} offsets were not flushed and are gone")

    def _digest(self, each: _Partition) -> str:
        """Hash the log's files."""
        hashed = hashlib.sha256()
        for path in self.site.log_files(each.directory):
            with closing(self.site.fs.open(path)) as file:
                size = file.size()
                hashed.update(f"{posixpath.basename(path)}:{size};".encode())
                hashed.update(file.read(0, size))
        return hashed.hexdigest()


def _refuse_damage(recording: Recording) -> None:
    """Refuse to begin with a log that no broker could go on with."""
    if recording.damages:
        more = len(recording.damages) - 1
        raise CorruptRecordError(
            f"{recording.damages[0]}{f' (and {more} more)' if more else ''}: a simulation cannot "
            "begin with damage; logstore salvage copies what is valid"
        )


def _common(one: Offsets, other: Offsets) -> Offsets:
    """Return the offsets that two rising arrays share."""
    if not len(other):
        return other
    places = np.minimum(np.searchsorted(other, one), len(other) - 1)
    common: Offsets = one[other[places] == one]
    return common


def _ages(tombstones: Tombstones, last: Offsets, now_ms: int, retention_ms: int) -> dict[str, int]:
    """Return how many of the tombstones that are the last words are how old."""
    counts, oldest_ms = [0] * len(AGE_CLASSES), 0
    if len(last):
        stamps = tombstones.timestamps[np.searchsorted(tombstones.offsets, last)]
        ages = np.maximum(0, now_ms - stamps)
        edges = [share * retention_ms for share in AGE_CLASSES.values()][:-1]
        classes = np.searchsorted(edges, ages, side="right")
        counts = np.bincount(classes, minlength=len(AGE_CLASSES)).tolist()
        oldest_ms = int(ages.max())
    return {"oldest_tombstone_ms": oldest_ms, **dict(zip(AGE_CLASSES, counts, strict=True))}


def _sizes(log: Log, state: CleanableState) -> dict[str, int]:
    """Return the bytes of a log's segments by where they stand."""
    sizes = {f"{section}_bytes": 0 for section in SECTIONS}
    for segment in log.segments.view:
        sizes[f"{section_of(log, segment, state)}_bytes"] += segment.size_bytes
    return sizes


def _dirty_since_ms(log: Log, first_dirty: int) -> int | None:
    """Return the timestamp of the first batch of what no cleaning has seen; None without one."""
    first = log.segments.floor(first_dirty)
    if first is None or first_dirty >= log.log_end_offset:
        return None
    stamp = first.first_batch_timestamp()
    return stamp if 0 < stamp < INT64_MAX else None


def _age_ms(since_ms: int | None, now_ms: int) -> int:
    return 0 if since_ms is None else max(0, now_ms - since_ms)
