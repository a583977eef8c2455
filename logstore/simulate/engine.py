"""The engine in virtual time: a scenario is lived through, and looked at on the way."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator
from contextlib import closing
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from logstore.broker.broker import Broker
from logstore.cleaner.selection import SECTIONS, section_of
from logstore.names import DELETED_SUFFIX
from logstore.runtime import VirtualClock
from logstore.runtime.deterministic import DeterministicScheduler
from logstore.simulate import scenario as plans
from logstore.simulate.census import Census
from logstore.simulate.feed import Feed, Script, bring
from logstore.simulate.outcome import CONSUMERS, PARTITIONS, PASSES, SEGMENTS, Run, Table
from logstore.simulate.readers import Readers
from logstore.simulate.winners import ScriptWinners, Winners
from logstore.types import DAY_MS, INT64_MAX, TopicPartition

if TYPE_CHECKING:
    from logstore.cleaner.selection import CleanableState
    from logstore.cleaner.stats import CleanerStats
    from logstore.faults.rules import FaultRule
    from logstore.log.log import Log
    from logstore.simulate.scenario import Action, Scenario

Offsets = NDArray[np.int64]
Progress = Callable[[int], object]
"""Told the virtual time, in Unix ms, now and then."""

STRIPS_MAX = 160
"""How often at most all segments are written down."""

REGULAR, ROLL, CLEAN, RETAIN, START, END = "regular", "roll", "clean", "retain", "start", "end"


def run(
    scenario: Scenario,
    *,
    data_dir: str | PathLike[str] | None = None,
    samples: int = plans.SAMPLES_MAX,
    progress: Progress | None = None,
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

    Raises
    ------
    InvalidConfigurationError
        An action cannot be done as it is configured.
    TopicAlreadyExistsError
        The directory has such a topic.

    Notes
    -----
    The same scenario and seed give the same series and the same bytes, in memory and on disk.
    """
    return _Simulation(scenario, data_dir, samples, progress).run()


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
        self.spent_bytes = 0
        self.looked_ms = looked_ms
        self.waits_until_ms = -1
        self.start_offset = self.end_offset = 0
        self.dirty_since_ms: int | None = None


class _Simulation:
    def __init__(
        self,
        scenario: Scenario,
        data_dir: str | PathLike[str] | None,
        samples: int,
        progress: Progress | None,
    ) -> None:
        self.scenario = scenario
        self.progress = progress
        self.samples = samples
        self.clock = VirtualClock(scenario.start_ms)
        self.broker: Broker[VirtualClock] = Broker(
            data_dir,
            clock=self.clock,
            broker_config=scenario.broker,
            seed=scenario.seed,
            background=True,
            disk_faults=True,
        )
        self.feeds: list[Feed | Script] = []
        self.winners: dict[str, Winners | ScriptWinners] = {}
        for topic in scenario.topics:
            if topic.workload is not None:
                winners = Winners(topic.workload)
                self.winners[topic.name] = winners
                self.feeds.append(Feed(winners))
            else:
                scripted = ScriptWinners(topic)
                self.winners[topic.name] = scripted
                self.feeds.append(Script(topic, scenario.start_ms, scripted))
        self.feed_of = {feed.topic: feed for feed in self.feeds}
        self.watched = [
            _Partition(topic.name, number, self.winners[topic.name], scenario.start_ms)
            for topic in scenario.topics
            for number in range(topic.partitions)
        ]
        self.by_name = {each.tp: each for each in self.watched}
        self.readers = Readers(scenario)
        self.partitions, self.passes = Table(tuple(PARTITIONS)), Table(tuple(PASSES))
        self.consumers, self.segments = Table(tuple(CONSUMERS)), Table(tuple(SEGMENTS))
        self.notes: list[str] = []
        self.refused: str | None = None
        self.disk_full: FaultRule | None = None
        self.cleaned: set[TopicPartition] = set()

    def run(self) -> Run:
        try:
            for topic in self.scenario.topics:
                self.broker.create_topic(
                    topic.name, partitions=topic.partitions, configs=topic.configs
                )
            self._follow()
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
            digests = {str(each.tp): self._digest(each.tp) for each in self.watched}
        finally:
            self.broker.close()
        return Run(
            self.scenario,
            self.partitions,
            self.consumers,
            self.passes,
            self.segments,
            digests,
            self.notes,
        )

    # -- time ----------------------------------------------------------------------------

    @property
    def _end_ms(self) -> int:
        return self.scenario.start_ms + self.scenario.span_ms

    def _stops(self) -> Iterator[tuple[int, Action | None]]:
        """Yield the moments at which something is looked at or done, in order."""
        start, span = self.scenario.start_ms, self.scenario.span_ms
        count = max(1, min(self.samples, span))
        looks = ((start + span * (number + 1) // count, None) for number in range(count))
        deeds = ((start + action.at_ms, action) for action in self.scenario.actions)
        deeds_in_time = (each for each in deeds if each[0] <= start + span)
        yield from heapq.merge(looks, deeds_in_time, key=lambda stop: stop[0])

    def _pass_time(self, until_ms: int) -> None:
        """Let time pass, with what arrives and what falls due, up to a moment."""
        while (now_ms := self.clock.now_ms()) < until_ms:
            scheduler = self.broker.runtime.scheduler
            assert isinstance(scheduler, DeterministicScheduler)
            due_ms = scheduler.next_due_ms()
            window_ms = until_ms if due_ms is None else max(now_ms + 1, min(due_ms, until_ms))
            refused = bring(self.feeds, self.broker, window_ms)
            if refused is not None and refused != self.refused:
                self._note(f"an append was refused: {refused}")
            self.refused = refused
            self.clock.set_ms(max(window_ms, self.clock.now_ms()))
            self._look()

    # -- looking -------------------------------------------------------------------------

    def _follow(self) -> None:
        pool = self.broker.pool
        pool.pass_ended.subscribe(self._note_pass)

    def _note_pass(self, stats: CleanerStats) -> None:
        tp = stats.topic_partition
        read = stats.bytes_read + stats.map_bytes_read
        self.by_name[tp].read_bytes += read
        self.by_name[tp].written_bytes += stats.bytes_written
        self.cleaned.add(tp)
        self.passes.add(
            time_ms=self.clock.now_ms(),
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
            oldest_dirty_ms=_age_ms(self.by_name[tp].dirty_since_ms, self.clock.now_ms()),
        )

    def _look(self) -> None:
        """Add a row for each partition to which something has just happened."""
        for each in self.watched:
            log = self.broker.log(each.tp)
            view = log.segments.view
            now = (log.log_start_offset, len(view), view[-1].base_offset)
            if each.tp in self.cleaned:
                self._sample(each, log, CLEAN)
            elif now != each.view:
                self._sample(each, log, ROLL if now[2] != each.view[2] else RETAIN)
            each.view, each.end_offset = now, log.log_end_offset
            self.readers.note(each.tp, self.clock.now_ms(), log.log_end_offset)
        self.cleaned.clear()

    def _sample_all(self, event: str) -> None:
        for each in self.watched:
            self._sample(each, self.broker.log(each.tp), event)
        for row in self.readers.rows(self.clock.now_ms()):
            self.consumers.add(**row)

    def _sample_segments(self) -> None:
        for each in self.watched:
            log = self.broker.log(each.tp)
            state = self.broker.cleaner.chooser.state_of(log)
            ends = [segment.base_offset for segment in log.segments.view[1:]]
            for segment, end in zip(log.segments.view, [*ends, log.log_end_offset], strict=True):
                if segment.size_bytes:
                    self.segments.add(
                        time_ms=self.clock.now_ms(),
                        topic=each.tp.topic,
                        partition=each.tp.partition,
                        base_offset=segment.base_offset,
                        end_offset=end,
                        bytes=segment.size_bytes,
                        section=section_of(log, segment, state),
                    )

    def _sample(self, each: _Partition, log: Log, event: str) -> None:
        now_ms = self.clock.now_ms()
        state = self.broker.cleaner.chooser.state_of(log)
        appended = self.feed_of[each.tp.topic].bytes[each.tp.partition]
        each.dirty_since_ms = _dirty_since_ms(log, state.first_dirty_offset)
        spent = each.read_bytes + each.written_bytes
        self.partitions.add(
            time_ms=now_ms,
            topic=each.tp.topic,
            partition=each.tp.partition,
            event=event,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            first_dirty_offset=state.first_dirty_offset,
            segments=len(log.segments.view),
            **_sizes(log, state),
            deleted_bytes=self._deleted_bytes(each, log, event),
            **self._counts(each, log),
            dirty_ratio=state.cleanable_ratio,
            must_clean_ratio=state.must_clean_ratio,
            oldest_dirty_ms=_age_ms(each.dirty_since_ms, now_ms),
            compaction_delay_ms=state.max_compaction_delay_ms,
            appended_bytes=appended,
            cleaner_read_bytes=each.read_bytes,
            cleaner_written_bytes=each.written_bytes,
            write_amplification=(appended + each.written_bytes) / appended if appended else 1.0,
            cleaner_load=self._load(spent - each.spent_bytes, now_ms - each.looked_ms),
        )
        each.looked_ms, each.spent_bytes = now_ms, spent

    def _counts(self, each: _Partition, log: Log) -> dict[str, int]:
        """Count records, live and dead, tombstones and keys, and tell readers what they missed."""
        now_ms = self.clock.now_ms()
        before = each.census.tombstones.offsets
        each.census.take(log, self.broker.runtime.fs)
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
        oldest_ms = 0
        if len(last):
            stamps = tombstones.timestamps[np.searchsorted(tombstones.offsets, last)]
            oldest_ms = max(0, now_ms - int(stamps.min()))
        return {
            "records": records,
            "live_records": live,
            "dead_records": records - live - len(last),
            "tombstones": len(last),
            "keys": live + len(last),
            "hole_offsets": max(0, log.log_end_offset - log.log_start_offset - records),
            "oldest_tombstone_ms": oldest_ms,
        }

    def _deleted_bytes(self, each: _Partition, log: Log, event: str) -> int:
        """Return the bytes of files that wait for their removal; seldom any, so seldom looked."""
        now_ms = self.clock.now_ms()
        if event in (CLEAN, RETAIN):
            each.waits_until_ms = now_ms + log.config.file_delete_delay_ms
        if now_ms > each.waits_until_ms:
            return 0
        fs = self.broker.runtime.fs
        names = (name for name in fs.list_dir(log.directory) if name.endswith(DELETED_SUFFIX))
        return sum(fs.stat(f"{log.directory}/{name}").size for name in names)

    def _load(self, size_bytes: int, span_ms: int) -> float:
        limit = self.broker.broker_config.log_cleaner_io_max_bytes_per_second
        return size_bytes * 1000 / span_ms / limit if span_ms else 0.0

    # -- doing ---------------------------------------------------------------------------

    def _note(self, text: str) -> None:
        moment = self.clock.now_ms() - self.scenario.start_ms
        self.notes.append(f"day {moment / DAY_MS:.3f}: {text}")

    def _do(self, action: Action) -> None:
        """Do what an operator does."""
        self._note(f"{action.do} {action.topic}".rstrip())
        topics = [each.tp for each in self.watched if each.tp.topic == action.topic]
        match action.do:
            case plans.ALTER if action.topic:
                self.broker.alter_configs(action.topic, action.configs)
            case plans.ALTER:
                self.broker.alter_broker_configs(action.configs)
            case plans.ROLL:
                for tp in topics:
                    self.broker.roll(tp)
            case plans.CLEAN:
                self._clean(action.topic)
            case plans.DELETE_RECORDS:
                results = self.broker.delete_records(dict.fromkeys(topics, action.before))
                for tp, result in results.items():
                    if result.error is not None:
                        self._note(f"{tp}: {result.error}")
            case plans.STOP_CLEANER:
                self.broker.pool.stop()
            case plans.START_CLEANER:
                self.broker.pool.start()
            case plans.FILL_DISK:
                self.disk_full = self.broker.fail("write", error="ENOSPC")
            case plans.FREE_DISK:
                if self.disk_full is not None:
                    self.disk_full.remove()
                    self.disk_full = None
                self._crash()
            case plans.CRASH:
                self._crash()
        self._look()

    def _clean(self, topic: str) -> None:
        for stats in self.broker.clean(topic, force=True).cleaned:
            self._note_pass(stats)

    def _crash(self) -> None:
        """Lose power and start again; what was not flushed is gone, and producers go on."""
        self.broker = self.broker.crash()
        self._follow()
        for each in self.watched:
            log = self.broker.log(each.tp)
            lost = each.end_offset - log.log_end_offset
            each.census = Census()
            each.winners.settle()
            each.winners.read(each.tp.partition, log)
            if lost > 0:
                self._note(f"{each.tp}: {lost} offsets were not flushed and are gone")

    def _digest(self, tp: TopicPartition) -> str:
        """Hash the log as a reader of the files would see it."""
        log = self.broker.log(tp)
        fs = self.broker.runtime.fs
        hashed = hashlib.sha256()
        for segment in log.segments.view:
            path = segment.log_path
            hashed.update(f"{segment.base_offset}:{segment.size_bytes};".encode())
            with closing(fs.open(path)) as file:
                hashed.update(file.read(0, segment.size_bytes))
        return hashed.hexdigest()


def _common(one: Offsets, other: Offsets) -> Offsets:
    """Return the offsets that two rising arrays share."""
    if not len(other):
        return other
    places = np.minimum(np.searchsorted(other, one), len(other) - 1)
    common: Offsets = one[other[places] == one]
    return common


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
