"""The log cleaner of a broker: runs passes and retention, and releases partitions on request.

`pool` runs passes in the background; `command` runs them on request.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from logstore.cleaner.checkpoints import CleanerCheckpoints
from logstore.cleaner.choosing import LogChooser
from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.errors import CleaningAbortedError, OffsetMapFullError, OverflowedSegmentError
from logstore.cleaner.selection import CleanableState, Gate, still_fits
from logstore.cleaner.states import CleaningStates
from logstore.cleaner.strategy import Strategy
from logstore.cleaner.uncleanable import UncleanablePartition, UncleanablePartitions
from logstore.errors import (
    CorruptionError,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidOffsetError,
    KafkaStorageError,
    SegmentOverflowError,
    UnsupportedFormatError,
)
from logstore.runtime import Signal
from logstore.runtime.guard import StorageGuard

if TYPE_CHECKING:
    from logstore.cleaner.passes.clean import PassProgress
    from logstore.cleaner.stats import CleanerStats
    from logstore.config.broker_config import BrokerConfig
    from logstore.manager.manager import LogManager
    from logstore.manager.services import LogEvents
    from logstore.runtime import Runtime, Unsubscribe
    from logstore.storage.log.log import Log
    from logstore.storage.log.retention import RetentionDecision
    from logstore.types import TopicPartition


_active: ContextVar[tuple[LogCleanerManager, ...]] = ContextVar("_active", default=())
"""Cleaners that are running passes in this thread."""


UNCLEANABLE = (CorruptionError, UnsupportedFormatError, SegmentOverflowError, InvalidOffsetError)
"""Errors that would recur in every pass.

The log remains usable but is no longer cleaned.
"""

_KEEPS_CHECKPOINT = (
    CleaningAbortedError,
    OffsetMapFullError,
    KafkaStorageError,
    InvalidConfigurationError,
)
"""Errors of a pass that leave the stored checkpoint unchanged."""


class LogCleanerManager:
    """Cleans the partitions of a `LogManager`.

    It is a `LogService` and a `PartitionHolder`, so that cleaning stops before a log is truncated,
    its topic is deleted, or its policy changes.

    Parameters
    ----------
    runtime : Runtime
        Clock and file system.
    logs : LogManager
        The logs.
    broker_config : BrokerConfig
        Cleaner settings.

    Attributes
    ----------
    logs : LogManager
    checkpoints : CleanerCheckpoints
        First dirty offset of each partition.
    states : CleaningStates
        Cleaning state of each partition.
    uncleanable_partitions : UncleanablePartitions
        Partitions that are no longer cleaned.
    chooser : LogChooser
        Decides which logs are due.
    config : CleanerConfig
        Memory of a pass in a pool thread.
    under_way : mapping of TopicPartition to PassProgress
        Progress of each pass that changes its log. Any thread may read it.
    pass_ended : Signal of CleanerStats
        Statistics of each completed pass that changed its log. Emitted in the thread that ran the
        pass, without holding a lock.
    changed : Signal
        A pass has ended, or a paused partition was resumed. Emitted without holding any lock other
        than the log manager's.
    """

    def __init__(self, runtime: Runtime, logs: LogManager, broker_config: BrokerConfig) -> None:
        self.runtime = runtime
        self.logs = logs
        self._broker_config = broker_config
        self.config = CleanerConfig.from_broker(broker_config)
        self.checkpoints = CleanerCheckpoints(logs.registry.directory_of)
        self.states = CleaningStates(runtime)
        self.uncleanable_partitions = UncleanablePartitions(
            runtime.clock, logs.registry.directory_of
        )
        self.chooser = LogChooser(
            runtime, logs, self.checkpoints, self.states, self.uncleanable_partitions, broker_config
        )
        self.lifetime = logs.lifetime
        for member in (self, self.checkpoints, self.chooser):
            self.lifetime.add(member)
        self.under_way: dict[TopicPartition, PassProgress] = {}
        self.pass_ended: Signal[[CleanerStats]] = Signal("the end of a pass")
        self.changed: Signal[[]] = Signal("a partition that may be cleaned again")

    def __repr__(self) -> str:
        return f"LogCleanerManager({self.logs!r})"

    def with_hypothetical_configs(
        self, broker_config: BrokerConfig, checkpoints: CleanerCheckpoints
    ) -> LogCleanerManager:
        """Return this cleaner with hypothetical settings, for decisions and dry runs.

        It shares states and uncleanable partitions with this cleaner, but does not follow events.
        """
        twin = copy(self)
        twin._broker_config = broker_config
        twin.config = CleanerConfig.from_broker(broker_config)
        twin.checkpoints = checkpoints
        twin.chooser = LogChooser(
            self.runtime,
            self.logs,
            checkpoints,
            self.states,
            self.uncleanable_partitions,
            broker_config,
        )
        return twin

    def config_for(self, threads: int | None) -> CleanerConfig:
        """Return the memory of one of `threads` threads, or of a pool thread if `threads` is None.

        Raises
        ------
        InvalidConfigurationError
            The memory is too small.
        """
        if threads in (None, self._broker_config.log_cleaner_threads):
            return self.config
        broker_config = replace(self._broker_config, log_cleaner_threads=threads)
        return CleanerConfig.from_broker(broker_config)

    def passes_bound(self, log: Log, state: CleanableState) -> int:
        """Return an upper bound for the number of passes over a range, assuming distinct keys."""
        dirty = max(0, state.upper_bound_offset - state.first_dirty_offset)
        strategy = Strategy.of(log.config)
        # With versions, the record before the first dirty offset also takes an entry.
        keys = self.config.max_keys_of(strategy) - strategy.has_versions
        return -(-dirty // max(1, keys))

    # -- passes --------------------------------------------------------------------------

    def clean(
        self,
        log: Log,
        state: CleanableState,
        number: int = 1,
        *,
        dry_run: bool = False,
        config: CleanerConfig | None = None,
        progress: Callable[[PassProgress], object] | None = None,
    ) -> CleanerStats | Gate | None:
        """Run a pass in this thread; see `run_pass`.

        Parameters
        ----------
        progress : callable, optional
            Called before each chunk. An exception aborts the pass.
        """
        steps = self.run_pass(log, state, number, dry_run=dry_run, config=config)
        with self._driving(), closing(steps):
            while True:
                try:
                    step = next(steps)
                except StopIteration as done:
                    result: CleanerStats | Gate | None = done.value
                    return result
                if progress is not None:
                    progress(step)

    def run_pass(
        self,
        log: Log,
        state: CleanableState,
        number: int = 1,
        *,
        dry_run: bool = False,
        claimed: bool = False,
        config: CleanerConfig | None = None,
    ) -> Generator[PassProgress, None, CleanerStats | Gate | None]:
        """Run a pass over a log and store its checkpoint.

        Parameters
        ----------
        state : CleanableState
            The range to clean, as measured for the decision.
        number : int
            Number of the pass over the log in this run, starting at 1.
        dry_run : bool
            Do not write, and do not take directories offline.
        claimed : bool
            Whether `LogChooser.select` has already marked the partition as in progress.
        config : CleanerConfig, optional
            Memory of the pass. [default: the share of a pool thread]

        Returns
        -------
        CleanerStats or Gate or None
            The statistics of a completed pass, or the gate that stopped it, because another caller
            needs the partition or a batch is damaged (the partition is then not cleaned until
            `retry` or a restart). None if the log changed since it was measured or a segment was
            split; the log is then due as before.

        Raises
        ------
        KafkaStorageError
            The disk failed. The data directory is now offline.
        InvalidConfigurationError
            The memory is too small for the strategy of the topic.

        Notes
        -----
        Yields before each chunk, without holding a lock. Closing the generator aborts the pass.
        Like Kafka's `doneCleaning`, a pass that fails or is closed stores its first dirty offset
        again, so a partition without a checkpoint gets one.
        """
        from logstore.cleaner.passes.clean import clean_pass

        tp = log.topic_partition
        if not claimed and not self.states.begin(tp):
            return Gate.closed_by("paused", f"its state is {self.states.of(tp)}")
        first_dirty, upper_bound = state.first_dirty_offset, state.upper_bound_offset
        has_begun = False
        stats: CleanerStats | None = None
        store: Callable[[], None] | None = None  # None leaves the checkpoint unchanged
        config = config or self.config
        steps = clean_pass(
            log, config, first_dirty, upper_bound, pass_number=number, dry_run=dry_run
        )
        try:
            with closing(steps), StorageGuard(None if dry_run else log, tp, "cannot clean"):
                with log.lock:
                    log.check_open()  # the log may have been deleted or replaced
                    if not still_fits(log, state, self.checkpoints.of(tp)):
                        return None
                    has_begun = True
                    log.reader.open_files(upper_bound)
                    step = next(steps)  # lists the segments, which may be removed afterwards
                while True:
                    if not dry_run:
                        self.under_way[tp] = step
                    yield step
                    self._check_wanted(tp)
                    step = next(steps)
        except StopIteration as done:
            stats = done.value
            store = partial(self.checkpoints.write, log, done.value.end_offset)
            return stats
        except GeneratorExit:
            store = partial(self._restore_checkpoint, log, first_dirty)
            raise
        except Exception as error:
            if has_begun and not isinstance(error, _KEEPS_CHECKPOINT):
                store = partial(self.checkpoints.write, log, first_dirty)
            return self._obstacle(log, error, dry_run=dry_run)
        finally:
            if not dry_run:
                self.under_way.pop(tp, None)
            # Not in a forked child, and not after the broker was closed, when no caller waits for
            # the pass.
            if not self.lifetime.is_over:
                self.states.done(tp, None if dry_run else store)
                self.changed.emit()
                if not dry_run and stats is not None:
                    self.pass_ended.emit(stats)

    @contextmanager
    def _driving(self) -> Iterator[None]:
        """Mark this thread, including its listeners, as running a pass."""
        token = _active.set((*_active.get(), self))
        try:
            yield
        finally:
            _active.reset(token)

    def check_not_driving(self, what: str = "the broker cannot be closed") -> None:
        """Raise `IllegalStateError` inside `clean`, where waiting for the pass would deadlock.

        Passes in other threads may also be waiting for this thread.

        Parameters
        ----------
        what : str
            Start of the error message.
        """
        if any(manager is self for manager in _active.get()):
            raise IllegalStateError(
                f"{what} by a listener of its own cleaning, or by a signal handler in the same"
                " thread, which would wait for itself: raise an exception to end the cleaning pass"
            )

    def _check_wanted(self, topic_partition: TopicPartition) -> None:
        """Raise an error if the broker is closed or another caller needs the partition."""
        self.lifetime.check()
        self.states.check_not_aborted(topic_partition)

    def _restore_checkpoint(self, log: Log, first_dirty_offset: int) -> None:
        """Store the checkpoint of a closed pass. If the disk fails, the log goes offline."""
        with suppress(KafkaStorageError):
            self.checkpoints.write(log, first_dirty_offset)

    def _obstacle(self, log: Log, error: Exception, *, dry_run: bool) -> Gate | None:
        """Return the gate that an error in a pass closes, or raise the error."""
        match error:
            case CleaningAbortedError():
                return Gate.closed_by("paused", str(error))
            case OffsetMapFullError():
                return Gate.closed_by("offset_map", str(error))
            case OverflowedSegmentError():
                return self._split(log, error, dry_run=dry_run)
            case _ if isinstance(error, UNCLEANABLE):
                return self._give_up(log.topic_partition, error, dry_run=dry_run)
            case _:
                raise error

    def _split(self, log: Log, error: OverflowedSegmentError, *, dry_run: bool) -> Gate | None:
        """Split the segment that stopped a pass, so that the next pass can continue."""
        if dry_run:
            return Gate.closed_by("uncleanable", f"{error}; it would be split first")
        segment = log.segments.get(error.base_offset)
        if segment is None:  # deleted in the meantime
            return None
        try:
            log.split_segment(segment)
        except UNCLEANABLE as obstacle:
            return self._give_up(log.topic_partition, obstacle)
        return None

    def _give_up(
        self, topic_partition: TopicPartition, error: Exception, *, dry_run: bool = False
    ) -> Gate:
        if not dry_run:
            self.uncleanable_partitions.add(topic_partition, error)
        return Gate.closed_by("uncleanable", str(error))

    def uncleanable(self) -> tuple[UncleanablePartition, ...]:
        """Return the uncleanable partitions, sorted by name."""
        return self.uncleanable_partitions.all()

    def uncleanable_totals(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the number of uncleanable partitions and their dirty bytes, by data directory."""
        return self.uncleanable_partitions.totals(
            [directory.path for directory in self.logs.directories],
            self.logs.registry.open_logs(),
            lambda log: self.chooser.state_of(log).cleanable_bytes,
        )

    def retry(self, topic_partition: TopicPartition) -> bool:
        """Allow a partition to be cleaned again. Return whether it was uncleanable.

        In Kafka, only a restart does this.
        """
        was_uncleanable = self.uncleanable_partitions.forget(topic_partition)
        self.changed.emit()
        return was_uncleanable

    # -- retention of compacted logs -----------------------------------------------------

    def retain(self) -> list[RetentionDecision]:
        """Run retention over compacted logs that are not in use (docs/spec/cleaner.md §7).

        Background retention leaves compacted logs to the cleaner, so that the two never use a log
        at the same time. If retention of a log fails, the log becomes uncleanable, and the
        remaining logs are still processed.

        Returns
        -------
        list of RetentionDecision
            Decisions about logs from which segments were deleted.
        """
        removed: list[RetentionDecision] = []
        for log in self.chooser.logs_to_clean():
            tp = log.topic_partition
            if not self.states.begin(tp):
                continue
            try:
                checkpoint = self.checkpoints.of(tp) or 0
                decision = log.delete_old_segments(first_dirty_offset=checkpoint)
                if decision.removed:
                    removed.append(decision)
            except Exception as error:
                self.uncleanable_partitions.mark_uncleanable(log, error)
            finally:
                self.states.done(tp)
        return removed

    # -- changes of partitions -----------------------------------------------------------

    def follow(self, events: LogEvents) -> Iterable[Unsubscribe]:
        """Keep states and uncleanable partitions up to date, and apply new settings."""
        return (
            events.partition_removed.subscribe(self._forget),
            events.partition_moved.subscribe(self.uncleanable_partitions.move),
            events.reconfigured.subscribe(self._reconfigure),
            events.config_changed.subscribe(self._stop_uncompacted),
        )

    def start(self) -> None:
        """Do nothing, because `pool` and `command` run the passes."""

    def stop(self) -> None:
        """Stop all passes, and prevent new ones."""
        self.states.stop()

    def _forget(self, topic_partition: TopicPartition) -> None:
        self.states.forget(topic_partition)
        self.uncleanable_partitions.forget(topic_partition)

    def pause(self, topic_partition: TopicPartition) -> None:
        """Stop cleaning a partition, wait for the pass to end, and prevent new passes.

        If two callers pause a partition concurrently, both succeed, one after the other. In Kafka,
        the partition lock serializes them.

        Raises
        ------
        IllegalStateError
            See `check_pausable`.
        """
        self.check_pausable(topic_partition)
        self.states.pause_in_turn(topic_partition)

    def check_pausable(self, topic_partition: TopicPartition) -> None:
        """Raise `IllegalStateError` if this thread is cleaning the partition."""
        if self.states.is_claimed(topic_partition):
            self.check_not_driving(f"{topic_partition} cannot be changed")

    def resume(self, topic_partition: TopicPartition) -> None:
        """Undo a `pause`."""
        self.states.resume(topic_partition)
        self.changed.emit()

    def try_pause(self, topic_partition: TopicPartition) -> bool:
        """Pause a partition, or return False if it is in use."""
        return bool(self.states.pause_idle([topic_partition]))

    def _reconfigure(self, config: BrokerConfig) -> None:
        """Apply new settings to later passes."""
        self._broker_config = self.chooser.broker_config = config
        self.config = CleanerConfig.from_broker(config)

    def _stop_uncompacted(self, topic: str) -> None:
        """Stop cleaning logs that are no longer compacted."""
        for log in self.logs.registry.open_logs():
            tp = log.topic_partition
            if tp.topic == topic and not log.config.compact and self.states.is_in_progress(tp):
                self.states.abort(tp)
