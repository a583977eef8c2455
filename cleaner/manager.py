"""The cleaner of a broker: it runs passes and retention, and gives way to who wants a partition.

Outcomes of passes are seen to here; passes are run elsewhere (`pool` for the background,
`command` for those who ask).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.cleaner.checkpoints import CleanerCheckpoints
from logstore.cleaner.choosing import LogChooser
from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.errors import OverflowedSegmentError
from logstore.cleaner.one_pass import FOR_GOOD, Ending, Outcome, closed, one_pass
from logstore.cleaner.selection import CleanableState, Gate
from logstore.cleaner.states import CleaningStates
from logstore.cleaner.strategy import Strategy
from logstore.cleaner.uncleanable import UncleanablePartition, UncleanablePartitions
from logstore.errors import IllegalStateError, KafkaStorageError
from logstore.runtime import Signal

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


_driving: ContextVar[tuple[LogCleanerManager, ...]] = ContextVar("_driving", default=())
"""The cleaners whose passes run in this thread."""


class PassResult(NamedTuple):
    """Outcome of a pass: its statistics, or what prevented it.

    With neither a segment was split first, or the log was cut since it was measured: it is as due
    as it was.
    """

    stats: CleanerStats | None
    obstacle: Gate | None


class LogCleanerManager:
    """The partitions of a `LogManager`, as cleaners see them.

    A `LogService` and a `PartitionHolder`: truncations, deletions of topics and changes of policy
    stop a cleaning first.

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
    checkpoints : CleanerCheckpoints
        Up to where each partition is clean.
    states : CleaningStates
        The state of each partition.
    marks : UncleanablePartitions
        Those that are left alone.
    chooser : LogChooser
        The choice of what is due, and why the rest is not.
    config : CleanerConfig
        Memory of a pass in a pool thread.
    under_way : mapping of TopicPartition to PassProgress
        How far each pass is that changes its log; any thread may look.
    pass_ended : Signal of CleanerStats
        The numbers of each such pass that came to its end, whoever asked for it; in the thread
        that ran it, under no lock.
    changed : Signal
        A pass has ended, or a partition that was held may be cleaned again. Under no lock, or the
        manager's of logs.
    """

    def __init__(self, runtime: Runtime, logs: LogManager, broker_config: BrokerConfig) -> None:
        self.runtime = runtime
        self._logs = logs
        self._broker_config = broker_config
        self.config = CleanerConfig.from_broker(broker_config)
        self.checkpoints = CleanerCheckpoints(logs.registry.directory_of)
        self.states = CleaningStates(runtime)
        self.marks = UncleanablePartitions(runtime.clock, logs.registry.directory_of)
        self.chooser = LogChooser(
            runtime, logs, self.checkpoints, self.states, self.marks, broker_config
        )
        self.lifetime = logs.lifetime
        for member in (self, self.checkpoints, self.chooser):
            self.lifetime.add(member)
        self.under_way: dict[TopicPartition, PassProgress] = {}
        self.pass_ended: Signal[[CleanerStats]] = Signal("the end of a pass")
        self.changed: Signal[[]] = Signal("a partition that may be cleaned again")

    def __repr__(self) -> str:
        return f"LogCleanerManager({self._logs!r})"

    def supposing(
        self, broker_config: BrokerConfig, checkpoints: CleanerCheckpoints
    ) -> LogCleanerManager:
        """Return this cleaner as if it was configured otherwise, for decisions and dry runs.

        Who has a partition, and which are left alone, is known to both. It hears of no event.
        """
        twin = copy(self)
        twin._broker_config = broker_config
        twin.config = CleanerConfig.from_broker(broker_config)
        twin.checkpoints = checkpoints
        twin.chooser = LogChooser(
            self.runtime, self._logs, checkpoints, self.states, self.marks, broker_config
        )
        return twin

    def config_for(self, threads: int | None) -> CleanerConfig:
        """Return the share of one of so many threads; of a pool thread if None.

        Raises
        ------
        InvalidConfigurationError
            That would be too little memory.
        """
        if threads in (None, self._broker_config.log_cleaner_threads):
            return self.config
        broker_config = replace(self._broker_config, log_cleaner_threads=threads)
        return CleanerConfig.from_broker(broker_config)

    def passes_bound(self, log: Log, state: CleanableState) -> int:
        """Return how many passes a range takes at most: if every dirty offset has another key."""
        dirty = max(0, state.upper_bound_offset - state.first_dirty_offset)
        strategy = Strategy.of(log.config)
        # With versions the record before the dirty ones takes an entry, too.
        keys = self.config.max_keys_of(strategy) - strategy.has_versions
        return -(-dirty // max(1, keys))

    # -- passes --------------------------------------------------------------------------

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
        """Run one pass over a log and store its checkpoint; see `one_pass`.

        Parameters
        ----------
        state : CleanableState
            The range to clean, as a decision has it.
        number : int
            Which pass over the log it is in this run, from 1.
        taken : bool
            The partition is in progress already, by `LogChooser.select`.
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
        tp = log.topic_partition
        if not taken and not self.states.begin(tp):
            return PassResult(None, Gate.closed_by("paused", f"its state is {self.states.of(tp)}"))
        outcome: Outcome | None = None  # none of a simulated crash, or of an interrupt
        try:
            outcome = yield from one_pass(
                log,
                state,
                config or self.config,
                checkpoint_of=partial(self.checkpoints.of, tp),
                check=partial(self._check_wanted, tp),
                tell=None if dry_run else partial(self.under_way.__setitem__, tp),
                number=number,
                dry_run=dry_run,
            )
            return self._conclude(log, outcome, dry_run=dry_run)
        except GeneratorExit:
            outcome = closed(state)
            raise
        finally:
            if not dry_run:
                self.under_way.pop(tp, None)
            if not self.lifetime.is_over:  # nobody waits then, and in a forked child nobody may
                self.states.done(tp, None if dry_run else self._storing(log, outcome))
                self.changed.emit()
                if not dry_run and outcome is not None and outcome.stats is not None:
                    self.pass_ended.emit(outcome.stats)

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Mark a pass that runs in this thread, together with its listeners."""
        token = _driving.set((*_driving.get(), self))
        try:
            yield
        finally:
            _driving.reset(token)

    def check_not_driving(self, what: str = "the broker cannot be closed") -> None:
        """Raise `IllegalStateError` inside `driving`, where a wait for the pass would never end.

        Passes of other threads may wait for this thread, too.

        Parameters
        ----------
        what : str
            The beginning of the message.
        """
        if any(manager is self for manager in _driving.get()):
            raise IllegalStateError(
                f"{what} by a listener of its own cleaning, or by a signal handler in the same"
                " thread, which would wait for itself: raise an exception to end the cleaning"
            )

    def _check_wanted(self, topic_partition: TopicPartition) -> None:
        """Raise what ends a pass over a partition: the broker's end, or somebody who wants it."""
        self.lifetime.check()
        self.states.check_not_aborted(topic_partition)

    def _conclude(self, log: Log, outcome: Outcome, *, dry_run: bool) -> PassResult:
        """Do what the outcome of a pass asks for, the checkpoint aside."""
        tp, error = log.topic_partition, outcome.error
        match outcome.ending:
            case Ending.ABORTED:
                return PassResult(None, Gate.closed_by("paused", str(error)))
            case Ending.MAP_FULL:
                return PassResult(None, Gate.closed_by("offset_map", str(error)))
            case Ending.OVERFLOWED:
                assert isinstance(error, OverflowedSegmentError)
                return self._split(log, error, dry_run=dry_run)
            case Ending.DAMAGED:
                assert error is not None
                return self._give_up(tp, error, dry_run=dry_run)
            case Ending.DISK_FAILED | Ending.REFUSED | Ending.FAILED:
                assert error is not None
                raise error
            case _:  # finished, or outdated
                return PassResult(outcome.stats, None)

    def _storing(self, log: Log, outcome: Outcome | None) -> Callable[[], None] | None:
        """Return what stores the checkpoint that a pass leaves; None if the stored one stays."""
        if outcome is None or outcome.checkpoint is None:
            return None
        store = partial(self.checkpoints.write, log, outcome.checkpoint)
        if outcome.ending is Ending.CLOSED:
            return partial(_unless_disk_fails, store)  # nobody is left to be told
        return store

    def _split(self, log: Log, error: OverflowedSegmentError, *, dry_run: bool) -> PassResult:
        """Split the segment that a pass stumbled over; the next one goes on."""
        if dry_run:
            return PassResult(
                None, Gate.closed_by("uncleanable", f"{error}; it would be split first")
            )
        segment = log.segments.get(error.base_offset)
        if segment is None:  # deleted meanwhile
            return PassResult(None, None)
        try:
            log.split_segment(segment)
        except FOR_GOOD as obstacle:
            return self._give_up(log.topic_partition, obstacle)
        return PassResult(None, None)

    def _give_up(
        self, topic_partition: TopicPartition, error: Exception, *, dry_run: bool = False
    ) -> PassResult:
        if not dry_run:
            self.marks.mark(topic_partition, error)
        return PassResult(None, Gate.closed_by("uncleanable", str(error)))

    def uncleanable(self) -> tuple[UncleanablePartition, ...]:
        """Return the partitions whose cleaning failed for good, by name."""
        return self.marks.all()

    def uncleanable_totals(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return, by data directory, how many partitions are left alone, and their dirty bytes."""
        return self.marks.totals(
            [directory.path for directory in self._logs.directories],
            self._logs.registry.open_logs(),
            lambda log: self.chooser.state_of(log).cleanable_bytes,
        )

    def retry(self, topic_partition: TopicPartition) -> bool:
        """Let a partition be cleaned again; False if nothing was wrong with it.

        Kafka does so at its next start only.
        """
        marked = self.marks.forget(topic_partition)
        self.changed.emit()
        return marked

    # -- retention of compacted logs -----------------------------------------------------

    def retain(self) -> list[RetentionDecision]:
        """Run retention over the compacted logs that nobody has (cleaner §7).

        Background retention leaves compacted logs to the cleaner, so that the two never meet in
        one. A log that cannot be worked on is left alone from then on, the others are not.

        Returns
        -------
        list of RetentionDecision
            Of the logs from which something was removed.
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
                self.marks.leave_alone(log, error)
            finally:
                self.states.done(tp)
        return removed

    # -- what happens to partitions ------------------------------------------------------

    def follow(self, events: LogEvents) -> Iterable[Unsubscribe]:
        """Keep marks and states true to the partitions, and take up other settings."""
        return (
            events.partition_removed.subscribe(self._forget),
            events.partition_moved.subscribe(self.marks.move),
            events.reconfigured.subscribe(self._reconfigure),
            events.config_changed.subscribe(self._stop_uncompacted),
        )

    def start(self) -> None:
        """Do nothing: passes are run by those who ask for them."""

    def stop(self) -> None:
        """Stop every cleaning that somebody asked for; none begins any more."""
        self.states.stop()

    def _forget(self, topic_partition: TopicPartition) -> None:
        self.states.forget(topic_partition)
        self.marks.forget(topic_partition)

    def pause(self, topic_partition: TopicPartition) -> None:
        """Stop a partition's cleaning, wait for its end, and keep it from being cleaned.

        In turn: two who want the same partition at once, which Kafka's partition lock keeps apart,
        both get it.

        Raises
        ------
        IllegalStateError
            See `check_pausable`.
        """
        self.check_pausable(topic_partition)
        self.states.pause_in_turn(topic_partition)

    def check_pausable(self, topic_partition: TopicPartition) -> None:
        """Raise `IllegalStateError` if the partition is being cleaned by a pass of this thread."""
        if self.states.is_claimed(topic_partition):
            self.check_not_driving(f"{topic_partition} cannot be changed")

    def resume(self, topic_partition: TopicPartition) -> None:
        """Undo one `pause`."""
        self.states.resume(topic_partition)
        self.changed.emit()

    def try_pause(self, topic_partition: TopicPartition) -> bool:
        """Keep a partition from being cleaned, unless somebody has it already: False then."""
        return bool(self.states.pause_idle([topic_partition]))

    def _reconfigure(self, config: BrokerConfig) -> None:
        """Apply other settings to the passes that begin from now on."""
        self._broker_config = self.chooser.broker_config = config
        self.config = CleanerConfig.from_broker(config)

    def _stop_uncompacted(self, topic: str) -> None:
        """Stop the cleaning of logs that are no longer compacted."""
        for log in self._logs.registry.open_logs():
            tp = log.topic_partition
            if tp.topic == topic and not log.config.compact and self.states.is_in_progress(tp):
                self.states.abort(tp)


def _unless_disk_fails(store: Callable[[], None]) -> None:
    with suppress(KafkaStorageError):  # the log is offline then
        store()
