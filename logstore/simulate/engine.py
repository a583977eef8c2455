"""Run a scenario in virtual time on a real broker, and sample its partitions."""

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
from logstore.simulate import actions as kinds
from logstore.simulate import scenario as plans
from logstore.simulate.actions import created_at_ms
from logstore.simulate.environment import ABSENT, Environment
from logstore.simulate.feed import Feed, Queue, Script, append_arrivals
from logstore.simulate.log_statistics import LogStatistics, Tombstones
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
from logstore.simulate.start_state import spec_for
from logstore.simulate.survivors import ScriptSurvivors, Survivors
from logstore.types import DAY_MS, INT64_MAX, TopicPartition

if TYPE_CHECKING:
    from logstore.broker.broker import Broker
    from logstore.cleaner.pool.pool import CleanerPool
    from logstore.cleaner.selection import CleanableState
    from logstore.cleaner.stats import CleanerStats
    from logstore.simulate.actions import Action
    from logstore.simulate.recording import Recording, TopicRecording
    from logstore.simulate.scenario import Scenario, Topic
    from logstore.storage.log.log import Log

Offsets = NDArray[np.int64]
Progress = Callable[[int], object]
"""Receives the virtual time in Unix ms at every sample."""

SEGMENT_SAMPLES_MAX = 160
"""Maximum number of times at which all segments are sampled."""

REGULAR, ROLL, CLEAN, RETAIN, START, END = "regular", "roll", "clean", "retain", "start", "end"
STATE = "state"

MEASUREMENTS = frozenset(PARTITIONS) - {"topic", "state", "event"}
"""Columns that are 0 for a partition that does not exist."""


def run(
    scenario: Scenario,
    *,
    data_dir: str | PathLike[str] | None = None,
    samples: int = plans.SAMPLES_MAX,
    progress: Progress | None = None,
    recording: Recording | None = None,
) -> Run:
    """Run a scenario.

    Parameters
    ----------
    data_dir : path, optional
        Directory for the logs, missing or empty. It does not affect the result. [default: in
        memory]
    samples : int
        Maximum number of regular rows per partition. Rolls, cleaning and retention add more rows.
    progress : callable, optional
        Called with the virtual time at every sample.
    recording : Recording, optional
        Recording of the continued directory, if already read.

    Raises
    ------
    InvalidConfigurationError
        An action is not possible, or the continued directory has no partitions.
    TopicAlreadyExistsError
        A topic already exists in `data_dir`.
    CorruptRecordError
        The continued directory is damaged.

    Notes
    -----
    A scenario with the same seed always produces the same series and bytes.
    """
    return _Simulation(scenario, data_dir, samples, progress, recording).run()


class _Partition:
    """A sampled partition."""

    def __init__(
        self, topic: str, number: int, survivors: Survivors | ScriptSurvivors, sampled_ms: int
    ) -> None:
        self.tp = TopicPartition(topic, number)
        self.survivors = survivors
        self.statistics = LogStatistics()
        self.view: tuple[int, int, int] = (0, 1, 0)
        self.read_bytes = self.written_bytes = 0
        self.spent_bytes = self.pass_ms = 0
        self.sampled_ms = sampled_ms
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
        if scenario.origins:
            recording = recording or record(scenario.origins, scenario.continued_topics)
            _refuse_damage(recording)
            self.recordings = {name: recording.topics[name] for name in scenario.continued_topics}
        self.environment = Environment(scenario, data_dir, self.clock)
        self.feeds: list[Queue] = []
        self.survivors: dict[str, Survivors | ScriptSurvivors] = {}
        for topic in scenario.topics:
            self._expect(topic)
        self.feed_of = {feed.topic: feed for feed in self.feeds}
        self.watched_partitions = [
            _Partition(topic.name, number, self.survivors[topic.name], scenario.start_ms)
            for topic in scenario.topics
            for number in self._partition_numbers(topic)
        ]
        self.by_name = {each.tp: each for each in self.watched_partitions}
        self.readers = Readers(scenario)
        self.partitions, self.passes = Table(tuple(PARTITIONS)), Table(tuple(PASSES))
        self.consumers, self.segments = Table(tuple(CONSUMERS)), Table(tuple(SEGMENTS))
        self.notes: list[str] = []
        self.refused: str | None = None
        self.cleaned: set[TopicPartition] = set()

    def _expect(self, topic: Topic) -> None:
        """Create a topic's feed and the tracker of its survivors."""
        feed: Queue
        survivors: Survivors | ScriptSurvivors
        spec, start_ms = topic.workload, self.scenario.start_ms
        if topic.continued:
            recording = self.recordings[topic.name]
            spec = None if spec is None else spec_for(spec, recording)
            population = KnownPopulation(recording, topic.known, topic.shares, spec)
            count = 1 + max(recording.partitions)
            survivors = Survivors(topic.configs, population, count)
            if spec is None:
                silent = replace(topic, partitions=count)
                feed = Script(silent, start_ms, ScriptSurvivors(silent))
            else:
                feed = Feed(spec, survivors, None, population, recording.next_producer_id)
        elif spec is not None:
            survivors = Survivors(topic.configs, SpecKeys(spec), spec.partitions)
            feed = Feed(spec, survivors, topic.recorded)
        else:
            survivors = ScriptSurvivors(topic)
            feed = Script(topic, start_ms, survivors)
        self.survivors[topic.name] = survivors
        self.feeds.append(feed)

    def _partition_numbers(self, topic: Topic) -> Iterable[int]:
        if topic.continued:
            return self.recordings[topic.name].partitions
        return range(self.scenario.partitions_of(topic.name))

    def _create_topics(self) -> None:
        """Create new topics and read the logs of continued ones."""
        for topic in self.scenario.topics:
            if not topic.continued and created_at_ms(self.scenario.actions, topic.name) is None:
                self._create(topic)
        for each in self.watched_partitions:
            if each.tp.topic in self.recordings:
                log = self.broker.log(each.tp)
                view = log.segments.view
                each.view = (log.log_start_offset, len(view), view[-1].base_offset)
                each.start_offset, each.end_offset = log.log_start_offset, log.log_end_offset
                self.readers.begin(each.tp, log.log_end_offset)
                if log.config.compact:
                    each.survivors.read(each.tp.partition, log)

    def run(self) -> Run:
        try:
            self._subscribe()
            self._create_topics()
            self._sample_all(START)
            sample_interval_ms = self.scenario.span_ms // SEGMENT_SAMPLES_MAX
            next_sample_ms = self.scenario.start_ms
            for time_ms, action in self._events():
                self._advance_to(time_ms)
                if action is not None:
                    self._run_action(action)
                elif time_ms < self._end_ms:
                    self._sample_all(REGULAR)
                if time_ms >= next_sample_ms:
                    self._sample_segments()
                    next_sample_ms += sample_interval_ms
                if self.progress is not None:
                    self.progress(self.clock.now_ms())
            self._sample_all(END)
            digests = {
                str(each.tp): self._digest(each)
                for each in self.watched_partitions
                if each.directory
            }
        finally:
            self.environment.close()
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
        """The running broker."""
        return self.environment.broker

    # -- time ----------------------------------------------------------------------------

    @property
    def _end_ms(self) -> int:
        return self.scenario.start_ms + self.scenario.span_ms

    def _events(self) -> Iterator[tuple[int, Action | None]]:
        """Yield the times of samples (action None) and actions, in order."""
        start, span = self.scenario.start_ms, self.scenario.span_ms
        count = max(1, min(self.samples, span))
        samples = ((start + span * (number + 1) // count, None) for number in range(count))
        actions = ((start + action.at_ms, action) for action in self.scenario.actions)
        due_actions = (each for each in actions if each[0] <= start + span)
        yield from heapq.merge(samples, due_actions, key=lambda event: event[0])

    def _advance_to(self, until_ms: int) -> None:
        """Advance time to `until_ms`, appending arrivals and running due tasks."""
        while (now_ms := self.clock.now_ms()) < until_ms:
            due_ms = self.environment.next_due_ms()
            window_ms = until_ms if due_ms is None else max(now_ms + 1, min(due_ms, until_ms))
            refused = None
            if self.environment.running_broker is not None:
                refused = append_arrivals(self.feeds, self.broker, self.clock, window_ms)
            if refused is not None and refused != self.refused:
                self._note(f"an append was refused: {refused}")
            self.refused = refused
            self._note_dirty()  # before a pass that might be due at the end of the window
            self.clock.set_ms(max(window_ms, self.clock.now_ms()))
            self._sample_changes()

    def _note_dirty(self) -> None:
        """Set the dirty time of partitions that have new dirty data."""
        for each in self.watched_partitions:
            appended = self.feed_of[each.tp.topic].bytes[each.tp.partition]
            if each.dirty_since_ms is not None or appended == each.appended_bytes:
                continue
            each.appended_bytes = appended
            log = self._log(each)
            if log is not None and log.config.compact:
                checkpoint = cleaner_offset(self.broker, each.tp) or 0
                first_dirty = max(checkpoint, log.log_start_offset)
                each.dirty_since_ms = _dirty_since_ms(log, first_dirty)

    # -- samples -------------------------------------------------------------------------

    def _subscribe(self) -> None:
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
        delay_ms = peak_bytes = headroom_bytes = 0
        if log is not None:
            # The original files are on disk until they are swapped and removed.
            waiting_bytes = self.environment.waiting_bytes(tp, log.directory)
            peak_bytes = log.size_bytes + max(waiting_bytes, stats.bytes_read)
            before_bytes = log.size_bytes - stats.bytes_written + stats.bytes_read
            headroom_bytes = peak_bytes - before_bytes
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
            peak_bytes=peak_bytes,
            headroom_bytes=headroom_bytes,
        )

    def _sample_changes(self) -> None:
        """Add a row for each partition that has just been rolled, cleaned or retained."""
        for each in self.watched_partitions:
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
        """Return the log of a partition, or None if it is not usable."""
        return self._state_and_log(each)[1]

    def _state_and_log(self, each: _Partition) -> tuple[str, Log | None]:
        state, log = self.environment.partition_state(each.tp)
        if log is not None:
            each.directory = log.directory
        return state, log

    def _sample_states(self) -> None:
        """Add a row for each partition whose state changed."""
        for each in self.watched_partitions:
            if self.environment.partition_state(each.tp)[0] != each.state:
                self._sample(each, STATE)

    def _sample_all(self, event: str) -> None:
        for each in self.watched_partitions:
            self._sample(each, event)
        for row in self.readers.rows(self.clock.now_ms()):
            self.consumers.add(**row)

    def _sample_segments(self) -> None:
        for each in self.watched_partitions:
            log = self._log(each)
            if log is None or not log.size_bytes:
                continue
            each.statistics.update(log, self.environment.fs)
            state = cleanable_state(self.broker, log)
            ends = [segment.base_offset for segment in log.segments.view[1:]]
            for segment, end in zip(log.segments.view, [*ends, log.log_end_offset], strict=True):
                if segment.size_bytes:
                    records = each.statistics.records_in(segment.base_offset)
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
        """Add a row. If the log is not usable, repeat the last measurements."""
        each.state, log = self._state_and_log(each)
        measurements: dict[str, Any] = {}
        if log is not None:
            measurements = self._measure(each, log, event)
        elif each.state == ABSENT:
            measurements = dict.fromkeys(MEASUREMENTS, 0)
            measurements["deleted_bytes"] = self.environment.waiting_bytes(each.tp, None)
        now_ms = self.clock.now_ms()
        spent = each.read_bytes + each.written_bytes
        span_ms = max(now_ms - each.sampled_ms, each.pass_ms)  # a pass may have started earlier
        rate = (spent - each.spent_bytes) * 1000 / span_ms if span_ms else 0.0
        appended = self.feed_of[each.tp.topic].bytes[each.tp.partition]
        throttle = self.environment.config.log_cleaner_io_max_bytes_per_second
        throttle = throttle if throttle < UNLIMITED else 0.0
        each.row |= measurements | {
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
            each.sampled_ms, each.spent_bytes, each.pass_ms = now_ms, spent, 0

    def _measure(self, each: _Partition, log: Log, event: str) -> dict[str, Any]:
        """Measure a log."""
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
        """Count records, tombstones and keys. Report removed tombstones to the consumers."""
        now_ms = self.clock.now_ms()
        before = each.statistics.tombstones.offsets
        each.statistics.update(log, self.environment.fs)
        records, tombstones = each.statistics.records, each.statistics.tombstones
        live, last = records, tombstones.offsets[:0]
        if log.config.compact:
            each.survivors.update_survivors()
            start = log.log_start_offset
            if start > each.start_offset and each.survivors.strategy.has_versions:
                # Records superseded by a deleted record survive again.
                each.survivors.read(each.tp.partition, log)
            each.start_offset = start
            live, deletes = each.survivors.live_keys_and_deletes(each.tp.partition, start)
            last = _common(tombstones.offsets, deletes)
            previous = _common(before, deletes)
            if len(previous) != len(_common(previous, last)):
                self.readers.note_removed(each.tp, now_ms, np.setdiff1d(previous, last))
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
        """Return the total size of a partition's files that await removal.

        The directory is not read if no files can be waiting.
        """
        now_ms = self.clock.now_ms()
        if event in (CLEAN, RETAIN):
            each.waits_until_ms = now_ms + log.config.file_delete_delay_ms
        if now_ms > each.waits_until_ms:
            return 0
        return self.environment.waiting_bytes(each.tp, log.directory)

    # -- actions -------------------------------------------------------------------------

    def _note(self, text: str) -> None:
        elapsed_ms = self.clock.now_ms() - self.scenario.start_ms
        self.notes.append(f"day {elapsed_ms / DAY_MS:.3f}: {text}")

    def _run_action(self, action: Action) -> None:
        """Run an action. If it fails, add a note."""
        self._note(str(action))
        targets = [
            each
            for each in self.watched_partitions
            if each.tp.topic == action.topic and action.partition in (-1, each.tp.partition)
        ]
        try:
            self._apply(action, targets)
        except LogStoreError as error:
            self._note(f"{action.do} was refused: {error}")
        self._sample_changes()
        self._sample_states()

    def _apply(self, action: Action, targets: list[_Partition]) -> None:
        topic = action.topic
        match action.do:
            case kinds.ALTER if topic:
                self.broker.alter_configs(topic, action.configs)
            case kinds.ALTER:
                self.broker.alter_broker_configs(action.configs)
            case kinds.CREATE_TOPIC:
                self._create(next(each for each in self.scenario.topics if each.name == topic))
            case kinds.DELETE_TOPIC:
                self._delete(topic)
            case kinds.ADD_PARTITIONS:
                self.broker.create_partitions(topic, action.partitions)
                self.feed_of[topic].add_partitions(action.partitions, self.clock.now_ms())
            case kinds.ROLL | kinds.CLEAN | kinds.DELETE_RECORDS | kinds.RETRY | kinds.CORRUPT:
                for each in targets:
                    self._apply_to(action, each)
            case kinds.STOP_CLEANER:
                self._pool.stop()
            case kinds.START_CLEANER:
                self._pool.start()
            case kinds.STOP_BROKER:
                self.environment.stop(action.do)
            case kinds.START_BROKER:
                self._start_broker()
            case kinds.KILL | kinds.CRASH:
                self.environment.stop(action.do)
                if action.inverse() is None:
                    self._start_broker()
            case kinds.FILL_DISK | kinds.FAIL_DISK:
                self.environment.add_fault(action)
            case kinds.FREE_DISK:
                self.environment.repair(lambda fault: fault.do == kinds.FILL_DISK)
                if self.environment.running_broker is not None:
                    self.environment.stop(kinds.KILL)
                self._start_broker()
            case kinds.MEND_DISK:
                self.environment.repair(action.repairs)
            case kinds.JUMP_CLOCK:
                self.environment.clock.skew_ms += action.by_ms

    def _apply_to(self, action: Action, each: _Partition) -> None:
        """Apply an action to a partition."""
        match action.do:
            case kinds.ROLL:
                self.broker.roll(each.tp)
            case kinds.CLEAN:
                for stats in self.broker.clean(each.tp, force=True).cleaned:
                    self._note_pass(stats)
            case kinds.DELETE_RECORDS:
                for result in self.broker.delete_records({each.tp: action.before}).values():
                    if result.error is not None:
                        self._note(f"{each.tp}: {result.error}")
            case kinds.RETRY:
                if not self.broker.cleaner.retry(each.tp):
                    self._note(f"{each.tp}: not marked as uncleanable, nothing to retry")
            case kinds.CORRUPT:
                offset = each.row["first_dirty_offset"] if action.offset < 0 else action.offset
                if not self.environment.corrupt(each.directory, offset):
                    self._note(f"{each.tp}: no batch contains offset {offset}")

    def _create(self, topic: Topic) -> None:
        count = self.feed_of[topic.name].partitions
        self.broker.create_topic(topic.name, partitions=count, configs=topic.configs)

    def _delete(self, topic: str) -> None:
        """Delete a topic and reset its state. A new topic with the same name starts at offset 0."""
        self.broker.delete_topic(topic)
        for each in self.watched_partitions:
            if each.tp.topic == topic:
                each.survivors.update_survivors()
                each.survivors.forget(each.tp.partition)
                each.statistics, each.view, each.directory = LogStatistics(), (0, 1, 0), ""
                each.start_offset = each.end_offset = 0
                each.dirty_since_ms = None
                self.readers.forget(each.tp)

    def _start_broker(self) -> None:
        """Start the broker and read its logs. A crash may have lost unflushed records."""
        self.environment.start()
        self._subscribe()
        for each in self.watched_partitions:
            log = self._log(each)
            if log is None:
                continue
            lost = each.end_offset - log.log_end_offset
            each.survivors.update_survivors()
            each.survivors.read(each.tp.partition, log)
            if lost > 0:
                self._note(f"{each.tp}: {lost} unflushed offsets were lost")

    def _digest(self, each: _Partition) -> str:
        """Hash the `.log` files of a partition."""
        hashed = hashlib.sha256()
        for path in self.environment.log_files(each.directory):
            with closing(self.environment.fs.open(path)) as file:
                size = file.size()
                hashed.update(f"{posixpath.basename(path)}:{size};".encode())
                hashed.update(file.read(0, size))
        return hashed.hexdigest()


def _refuse_damage(recording: Recording) -> None:
    """Raise an error if the recorded directory is damaged."""
    if recording.damages:
        more = len(recording.damages) - 1
        raise CorruptRecordError(
            f"{recording.damages[0]}{f' (and {more} more)' if more else ''}: a simulation cannot "
            "start from a damaged log. Use logstore salvage to copy the valid batches"
        )


def _common(one: Offsets, other: Offsets) -> Offsets:
    """Return the offsets in both of two ascending arrays."""
    if not len(other):
        return other
    indices = np.minimum(np.searchsorted(other, one), len(other) - 1)
    common: Offsets = one[other[indices] == one]
    return common


def _ages(tombstones: Tombstones, last: Offsets, now_ms: int, retention_ms: int) -> dict[str, int]:
    """Return the number of surviving tombstones by age, and the age of the oldest."""
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
    """Return the segment bytes of a log by section."""
    sizes = {f"{section}_bytes": 0 for section in SECTIONS}
    for segment in log.segments.view:
        sizes[f"{section_of(log, segment, state)}_bytes"] += segment.size_bytes
    return sizes


def _dirty_since_ms(log: Log, first_dirty: int) -> int | None:
    """Return the timestamp of the first batch in the first dirty segment, or None if unknown."""
    first = log.segments.floor(first_dirty)
    if first is None or first_dirty >= log.log_end_offset:
        return None
    stamp = first.first_batch_timestamp()
    return stamp if 0 < stamp < INT64_MAX else None


def _age_ms(since_ms: int | None, now_ms: int) -> int:
    return 0 if since_ms is None else max(0, now_ms - since_ms)
