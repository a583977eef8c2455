"""What is known of the partitions of a broker that cleaners work on, and one pass over one.

Checkpoints, states, partitions that cannot be cleaned; decisions about them, which one comes next,
and a pass with all that surrounds it. Who runs passes is said elsewhere (`pool` for the
background, `command` for those who ask).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.errors import CleaningAbortedError, OffsetMapFullError, OverflowedSegmentError
from logstore.cleaner.selection import (
    Circumstances,
    CleanableState,
    CleaningDecision,
    Gate,
    cleanable_state,
    decide,
    idle_roll_ms,
    next_moment_ms,
    selection_order,
    still_fits,
)
from logstore.cleaner.states import CleaningStates
from logstore.cleaner.strategy import Strategy
from logstore.cleaner.uncleanable import UncleanablePartition
from logstore.errors import (
    CorruptionError,
    InvalidConfigurationError,
    InvalidOffsetError,
    KafkaStorageError,
    LogStoreError,
    SegmentOverflowError,
    UnknownTopicOrPartitionError,
    UnsupportedFormatError,
)
from logstore.manager.services import LogService

if TYPE_CHECKING:
    from logstore.cleaner.passes.clean import PassProgress
    from logstore.cleaner.stats import CleanerStats
    from logstore.config.broker_config import BrokerConfig
    from logstore.log.log import Log
    from logstore.log.retention import RetentionDecision
    from logstore.manager.manager import LogManager
    from logstore.runtime import Runtime
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

_FOR_GOOD = (CorruptionError, UnsupportedFormatError, SegmentOverflowError, InvalidOffsetError)
"""What a further attempt would meet again; the log serves on, but is not cleaned any more."""


class PassResult(NamedTuple):
    """How a pass ended: with its numbers, or with what was in the way.

    With neither a segment was split first, or the log was cut since it was measured: it is as due
    as it was.
    """

    stats: CleanerStats | None
    obstacle: Gate | None


class Survey(NamedTuple):
    """What one selection saw of all logs that it looked at.

    Attributes
    ----------
    max_compaction_delay_ms : int
        The longest by which any of them exceeds its `max.compaction.lag.ms`.
    delayed, cleanable : int
        How many exceed it, and how many were due.
    """

    max_compaction_delay_ms: int = 0
    delayed: int = 0
    cleanable: int = 0


class Selected(NamedTuple):
    """A log that was taken to be cleaned, and what was seen on the way."""

    log: Log
    state: CleanableState
    survey: Survey


class LogCleanerManager(LogService):
    """The partitions of a `LogManager`, as cleaners see them.

    A `LogService`: truncations, deletions of topics and changes of policy stop a cleaning first.

    Parameters
    ----------
    runtime : Runtime
        Clock and files.
    logs : LogManager
        Whose logs are cleaned.
    broker_config : BrokerConfig
        Cleaner settings.

    Attributes
    ----------
    on_change : callable
        Told when a pass has ended, or a partition that was held may be cleaned again.
    """

    def __init__(self, runtime: Runtime, logs: LogManager, broker_config: BrokerConfig) -> None:
        self.runtime = runtime
        self._logs = logs
        self._broker_config = broker_config
        self.config = CleanerConfig.from_broker(broker_config)
        self.states = CleaningStates(runtime)
        self._uncleanable: dict[TopicPartition, UncleanablePartition] = {}
        self._selecting = runtime.lock()
        self.lifetime = logs.lifetime
        self.lifetime.add(self)
        self.on_change: Callable[[], None] = _nothing
        self._max_dirty_ratio = 0.0
        self._last_selection_ms = 0

    @property
    def kafka_exact(self) -> bool:
        """Whether Kafka's rules hold where a KIP says otherwise (`logstore.kafka.exact`)."""
        return self._broker_config.logstore_kafka_exact

    def config_for(self, threads: int | None) -> CleanerConfig:
        """Return the share of one of so many threads; of a pool thread if None.

        Raises
        ------
        InvalidConfigurationError
            That would be too little memory.
        """
        if threads is None:
            return self.config
        broker_config = replace(self._broker_config, log_cleaner_threads=threads)
        return CleanerConfig.from_broker(broker_config)

    # -- checkpoint ----------------------------------------------------------------------

    def checkpoint_of(self, topic_partition: TopicPartition) -> int | None:
        """Return the stored first dirty offset of a partition; None if there is none.

        Raises
        ------
        UnknownTopicOrPartitionError
        KafkaStorageError
            The disk failed.
        """
        directory = self._logs.registry.directory_of(topic_partition)
        try:
            return directory.cleaner_offset(topic_partition)
        except OSError as error:
            raise KafkaStorageError(
                f"{directory.path}: cannot read checkpoints: {error}"
            ) from error

    def _write_checkpoint(self, log: Log, first_dirty_offset: int) -> None:
        """Store where a log's clean section ends; whoever calls has the partition."""
        directory = self._logs.registry.directory_of(log.topic_partition)
        try:
            directory.write_cleaner_offset(log.topic_partition, first_dirty_offset)
        except OSError as error:
            log.local.go_offline(f"cannot write the cleaner checkpoint: {error}")
            raise KafkaStorageError(
                f"{log.topic_partition}: cannot write the cleaner checkpoint: {error}"
            ) from error

    def repair_checkpoint(self, log: Log, state: CleanableState) -> None:
        """Replace a stored checkpoint that lies outside its log, unless somebody has it."""
        tp = log.topic_partition
        if not (state.checkpoint_repaired and log.config.compact and self.states.begin(tp)):
            return
        try:
            log.local.check_open()  # one of the same name may be in its place
            # Measured again: until now it could have been cut.
            again = self.state_of(log)
            if again.checkpoint_repaired:
                self._write_checkpoint(log, again.first_dirty_offset)
        finally:
            self.states.done(tp)

    # -- deciding ------------------------------------------------------------------------

    def state_of(self, log: Log) -> CleanableState:
        """Measure a log as selection does; changes nothing.

        Raises
        ------
        UnknownTopicOrPartitionError, KafkaStorageError
            It was deleted, or the disk failed.
        """
        checkpoint = self.checkpoint_of(log.topic_partition)
        now_ms = self.runtime.clock.now_ms()
        return log.reader.steady(lambda: cleanable_state(log, checkpoint, now_ms))

    def decision_of(
        self, log: Log, *, force: bool = False, rolled: bool = False, foresee: bool = False
    ) -> CleaningDecision:
        """Decide about a log; changes nothing. See `decide`, `state_of`."""
        tp = log.topic_partition
        state = self.states.of(tp)
        circumstances = Circumstances(
            cleaner_enabled=self._broker_config.log_cleaner_enable,
            force=force,
            uncleanable=None if (mark := self._uncleanable.get(tp)) is None else mark.reason,
            paused=None if state is None else f"its cleaning state is {state}",
            kafka_exact=self.kafka_exact,
        )
        checkpoint = self.checkpoint_of(tp)
        now_ms = self.runtime.clock.now_ms()
        return log.reader.steady(
            lambda: decide(log, checkpoint, now_ms, circumstances, rolled=rolled, foresee=foresee)
        )

    def explain(self, log: Log) -> CleaningDecision:
        """Decide as the next selection would, and when each closed gate opens by itself."""
        return self.decision_of(log, rolled=self.is_idle(log), foresee=True)

    def passes_bound(self, log: Log, state: CleanableState) -> int:
        """Return how many passes a range takes at most: if every dirty offset has another key."""
        dirty = max(0, state.upper_bound_offset - state.first_dirty_offset)
        strategy = Strategy.of(log.config)
        # With versions the record before the dirty ones takes an entry, too.
        keys = self.config.max_keys_of(strategy) - strategy.has_versions
        return -(-dirty // max(1, keys))

    def is_idle(self, log: Log) -> bool:
        """Tell whether KIP-354 wants the active segment rolled though nothing is appended."""
        if self.kafka_exact:
            return False
        moment = log.reader.steady(partial(idle_roll_ms, log))
        return moment is not None and moment <= self.runtime.clock.now_ms()

    # -- choosing ------------------------------------------------------------------------

    def select(self) -> Selected | None:
        """Take the most urgent of the logs that are due, for a cleaning; None if none is.

        Idle active segments that are overdue are rolled, and checkpoints outside their logs
        replaced, also where nothing is cleaned. Whoever gets a log runs `run_pass` on it with
        `taken`, or gives it back with `states.done`.

        Notes
        -----
        O(logs × dirty segments). One thread at a time. What an adopted topic holds is left alone:
        only a command cleans it. Source: cleaner-semantics §2.
        """
        with self._selecting:
            self._last_selection_ms = self.runtime.clock.now_ms()
            decisions = {
                log: decision
                for log in self._logs_to_clean()
                if (decision := self._examine(log)) is not None
            }
            states = [decision.state for decision in decisions.values()]
            self._max_dirty_ratio = max((each.cleanable_ratio for each in states), default=0.0)
            due = [log for log, decision in decisions.items() if decision.will_clean]
            if not due:
                return None
            delays = [each.max_compaction_delay_ms for each in states]
            survey = Survey(max(delays), sum(delay > 0 for delay in delays), len(due))
            exact = self.kafka_exact
            due.sort(key=lambda log: selection_order(decisions[log], kafka_exact=exact))
            for log in due:
                if self.states.begin(log.topic_partition):
                    return Selected(log, decisions[log].state, survey)
            return None

    def _logs_to_clean(self) -> list[Log]:
        """Return the compacted logs that nobody has and nothing is wrong with."""
        adopted = {topic.name for topic in self._logs.catalog.topics() if topic.adopted}
        return [
            log
            for log in self._logs.registry.open_logs()
            if log.config.compact
            and not log.is_offline
            and log.topic_partition.topic not in adopted
            and log.topic_partition not in self._uncleanable
            and self.states.of(log.topic_partition) is None
        ]

    def _examine(self, log: Log) -> CleaningDecision | None:
        """Decide about a log as it will be: rolled if idle for too long; None if that fails."""
        try:
            if self.is_idle(log):
                log.writer.roll()
            decision = self.decision_of(log)
            self.repair_checkpoint(log, decision.state)
        except Exception as error:
            self.leave_alone(log, error)
            return None
        return decision if decision.state.total_bytes else None

    def next_due_ms(self) -> int | None:
        """Return the first moment at which time alone may give a cleaner something to do.

        Until then selections and retention of compacted logs come to nothing, unless a log, its
        configuration or the state of its partition changes. None if that moment never comes.
        O(logs × dirty segments).
        """
        moments: list[int | None] = []
        for log in self._logs_to_clean():
            try:
                moments.append(self._next_moment_ms(log))
                moments.append(log.reader.steady(log.next_expiry_ms))
            except Exception as error:
                self.leave_alone(log, error)
        return min((each for each in moments if each is not None), default=None)

    def _next_moment_ms(self, log: Log) -> int | None:
        first_dirty = self.state_of(log).first_dirty_offset
        now_ms = self.runtime.clock.now_ms()
        exact = self.kafka_exact
        return log.reader.steady(
            lambda: next_moment_ms(log, first_dirty, now_ms, kafka_exact=exact)
        )

    @property
    def max_dirty_percent(self) -> int:
        """Largest dirty ratio that the last selection saw, due or not, as a whole percentage."""
        return int(100 * self._max_dirty_ratio)

    @property
    def ms_since_last_selection(self) -> int:
        """How long ago the last selection began; since 1970 if there was none, as in Kafka."""
        return self.runtime.clock.now_ms() - self._last_selection_ms

    # -- one pass ------------------------------------------------------------------------

    def run_pass(
        self,
        log: Log,
        state: CleanableState,
        number: int = 1,
        *,
        dry_run: bool = False,
        taken: bool = False,
        config: CleanerConfig | None = None,
    ) -> Generator[PassProgress, None, PassResult]:
        """Run one pass over a log and store its checkpoint.

        Parameters
        ----------
        state : CleanableState
            What to clean, as a decision has it.
        number : int
            Which pass over the log it is in this run, from 1.
        taken : bool
            The partition is in progress already, by `select`.
        config : CleanerConfig, optional
            Memory of the pass, if not a pool thread's share.

        Returns
        -------
        PassResult
            Without numbers if somebody wanted the partition, or a batch was damaged: then it is
            not cleaned again before `retry` or a restart.

        Raises
        ------
        KafkaStorageError
            The disk failed; the data directory is offline.
        InvalidConfigurationError
            The memory is too small for the topic's strategy.

        Notes
        -----
        Yields before each chunk and holds no lock then; closing it ends the pass like an abort.
        A pass that fails or is closed stores its first dirty offset again, as Kafka's does: a
        partition without a checkpoint has one from then on.
        """
        from logstore.cleaner.passes.clean import clean_pass

        tp = log.topic_partition
        if not taken and not self.states.begin(tp):
            return PassResult(None, _closed("paused", f"its state is {self.states.of(tp)}"))
        first_dirty, upper_bound = state.first_dirty_offset, state.upper_bound_offset
        store = unchanged = None  # what was stored holds, unless it comes to an end
        steps = clean_pass(
            log,
            config or self.config,
            first_dirty,
            upper_bound,
            pass_number=number,
            dry_run=dry_run,
        )
        try:
            with log.lock:
                log.local.check_open()  # one of the same name may be in its place, or none
                if not still_fits(log, state, self.checkpoint_of(tp)):
                    return PassResult(None, None)
                unchanged = partial(self._write_checkpoint, log, first_dirty)
                log.reader.open_files(upper_bound)
                step = next(steps)  # knows its segments now, which may be removed from here on
            while True:
                yield step
                self.lifetime.check()
                self.states.check_not_aborted(tp)
                step = next(steps)
        except StopIteration as done:
            stats: CleanerStats = done.value
            store = partial(self._write_checkpoint, log, stats.end_offset)
            return PassResult(stats, None)
        except CleaningAbortedError as error:
            return PassResult(None, _closed("paused", str(error)))
        except OffsetMapFullError as error:
            return PassResult(None, _closed("offset_map", str(error)))
        except OverflowedSegmentError as error:
            store = unchanged
            return self._split(log, error, dry_run=dry_run)
        except _FOR_GOOD as error:
            store = unchanged
            return self._give_up(tp, error, dry_run=dry_run)
        except (KafkaStorageError, InvalidConfigurationError):
            raise
        except OSError as error:
            if not dry_run:
                log.local.go_offline(f"cannot clean: {error}")
            raise KafkaStorageError(f"{tp}: cannot clean: {error}") from error
        except GeneratorExit:
            assert unchanged is not None
            store = partial(_unless_disk_fails, unchanged)  # nobody is left to be told
            raise
        except Exception:
            store = unchanged
            raise
        finally:
            steps.close()
            if not self.lifetime.is_over:  # nobody waits then, and in a forked child nobody may
                self.states.done(tp, None if dry_run else store)
                self.on_change()

    def _split(self, log: Log, error: OverflowedSegmentError, *, dry_run: bool) -> PassResult:
        """Split the segment that a pass stumbled over; the next one goes on."""
        if dry_run:
            return PassResult(None, _closed("uncleanable", f"{error}; it would be split first"))
        segment = log.segments.get(error.base_offset)
        if segment is None:  # deleted meanwhile
            return PassResult(None, None)
        try:
            log.split_segment(segment)
        except _FOR_GOOD as obstacle:
            return self._give_up(log.topic_partition, obstacle)
        return PassResult(None, None)

    def _give_up(
        self, topic_partition: TopicPartition, error: Exception, *, dry_run: bool = False
    ) -> PassResult:
        if not dry_run:
            self._mark_uncleanable(topic_partition, error)
        return PassResult(None, _closed("uncleanable", str(error)))

    # -- partitions that cannot be cleaned -----------------------------------------------

    def leave_alone(self, log: Log, error: Exception) -> None:
        """Do not clean a log any more, since work on it failed, be it by a defect of this engine.

        The others go on. Unless it was closed or deleted meanwhile, or is offline: that explains
        the failure.
        """
        try:
            log.local.check_open()
        except LogStoreError as reason:
            logger.info("%s is passed over: %s", log.topic_partition, reason)
        else:
            self._mark_uncleanable(log.topic_partition, error)

    def _mark_uncleanable(self, topic_partition: TopicPartition, error: Exception) -> None:
        try:
            directory = self._logs.registry.directory_of(topic_partition)
        except UnknownTopicOrPartitionError:  # deleted meanwhile
            return
        now_ms = self.runtime.clock.now_ms()
        self._uncleanable[topic_partition] = UncleanablePartition.because_of(
            error, topic_partition, directory.path, now_ms
        )

    def uncleanable(self) -> tuple[UncleanablePartition, ...]:
        """Return the partitions whose cleaning failed for good, by name."""
        return tuple(mark for _, mark in sorted(self._uncleanable.items()))

    def uncleanable_totals(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return, by data directory, how many partitions are left alone, and their dirty bytes."""
        counts = {directory.path: 0 for directory in self._logs.directories}
        sizes = dict(counts)
        for log in self._logs.registry.open_logs():
            mark = self._uncleanable.get(log.topic_partition)
            if mark is not None:
                counts[mark.log_dir] += 1
                # It was just deleted, or what it is marked for is in the way here, too.
                with suppress(Exception):
                    sizes[mark.log_dir] += self.state_of(log).cleanable_bytes
        return counts, sizes

    def retry(self, topic_partition: TopicPartition) -> bool:
        """Let a partition be cleaned again; False if nothing was wrong with it.

        Kafka does so at its next start only.
        """
        marked = self._uncleanable.pop(topic_partition, None) is not None
        self.on_change()
        return marked

    # -- retention of compacted logs -----------------------------------------------------

    def retain(self) -> list[RetentionDecision]:
        """Run retention over the compacted logs that nobody has (cleaner-semantics §7).

        Background retention leaves compacted logs to the cleaner, so that the two never meet in
        one. A log that cannot be worked on is left alone from then on, the others are not.

        Returns
        -------
        list of RetentionDecision
            Of the logs from which something was removed.
        """
        removed: list[RetentionDecision] = []
        for log in self._logs_to_clean():
            tp = log.topic_partition
            if not self.states.begin(tp):
                continue
            try:
                checkpoint = self.checkpoint_of(tp) or 0
                decision = log.delete_old_segments(first_dirty_offset=checkpoint)
                if decision.removed:
                    removed.append(decision)
            except Exception as error:
                self.leave_alone(log, error)
            finally:
                self.states.done(tp)
        return removed

    # -- what happens to partitions ------------------------------------------------------

    def stop(self) -> None:
        """Stop every cleaning that somebody asked for; none begins any more."""
        self.states.stop()

    def partition_removed(self, topic_partition: TopicPartition) -> None:
        """Forget a partition."""
        self.states.forget(topic_partition)
        self._uncleanable.pop(topic_partition, None)

    def partition_moved(self, topic_partition: TopicPartition, log_dir: str) -> None:
        """Take the mark of a partition along that is left alone."""
        mark = self._uncleanable.get(topic_partition)
        if mark is not None:
            self._uncleanable[topic_partition] = mark._replace(log_dir=log_dir)

    def pause(self, topic_partition: TopicPartition) -> None:
        """Stop a partition's cleaning, wait for its end, and keep it from being cleaned.

        In turn: two who want the same partition at once, which Kafka's partition lock keeps apart,
        both get it.
        """
        self.states.pause_in_turn(topic_partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        """Take back one `pause`."""
        self.states.resume(topic_partition)
        self.on_change()

    def try_pause(self, topic_partition: TopicPartition) -> bool:
        """Keep a partition from being cleaned, unless somebody has it already: False then."""
        return bool(self.states.pause_idle([topic_partition]))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Take up other settings: for the passes that begin from now on."""
        self._broker_config = config
        self.config = CleanerConfig.from_broker(config)

    def config_changed(self, topic: str) -> None:
        """Stop the cleaning of logs that are no longer compacted."""
        for log in self._logs.registry.open_logs():
            tp = log.topic_partition
            if tp.topic == topic and not log.config.compact and self.states.is_in_progress(tp):
                self.states.abort(tp)


def _nothing() -> None:
    pass


def _unless_disk_fails(store: Callable[[], None]) -> None:
    with suppress(KafkaStorageError):  # the log is offline then
        store()


def _closed(gate: str, text: str) -> Gate:
    return Gate(gate, False, None, None, text)
