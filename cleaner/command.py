"""Cleaning because a command asks for it: what is due, or whatever can be cleaned, or as if.

The cleanings themselves, and every rule about them, are `LogCleanerManager`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from logstore.cleaner.manager import PassResult
from logstore.cleaner.selection import Gate, selection_order
from logstore.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from logstore.cleaner.manager import LogCleanerManager
    from logstore.cleaner.passes.clean import PassProgress
    from logstore.cleaner.selection import CleanableState, CleaningDecision
    from logstore.cleaner.stats import CleanerStats
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

_unless_deleted = partial(suppress, UnknownTopicOrPartitionError)

ProgressListener = Callable[["TopicPartition", "PassProgress"], None]


@dataclass(slots=True)
class CleanOutcome:
    """The outcome of a `clean`: every pass, and the binding gate of partitions left alone.

    `passes_needed` counts, for each partition that was cleaned, the passes that it took, or in a
    dry run would take: then only the first of them is in `passes`.
    """

    passes: list[CleanerStats] = field(default_factory=list)
    not_cleaned: list[tuple[TopicPartition, Gate]] = field(default_factory=list)
    passes_needed: dict[TopicPartition, int] = field(default_factory=dict)


class CleanCommand:
    """One run over some logs; one that is deleted meanwhile is passed over.

    Parameters
    ----------
    force : bool
        Ignore dirty ratio and lags; see `Broker.clean`.
    roll : bool
        Roll non-empty active segments first.
    threads : int, optional
        How many clean side by side, sharing the memory; one with a share of the broker's
        `log.cleaner.threads` by default.
    progress : callable, optional
        Told before each chunk, by one thread at a time; what it raises ends the run.

    Raises
    ------
    InvalidConfigurationError
        So many threads would have too little memory each.
    """

    def __init__(
        self,
        manager: LogCleanerManager,
        *,
        force: bool = False,
        roll: bool = False,
        threads: int | None = None,
        progress: ProgressListener | None = None,
    ) -> None:
        self._manager = manager
        self._force = force
        self._roll = roll
        self._progress = progress
        self._outcome = CleanOutcome()
        self._threads = threads or 1
        self._config = manager.config_for(threads)
        self._lock = manager.runtime.lock()
        self._due: dict[Log, CleaningDecision] = {}
        self._passes: dict[Log, int] = {}
        self._busy: set[Log] = set()

    def run(self, logs: Sequence[Log]) -> CleanOutcome:
        """Clean logs, the most urgent first, until none is due.

        Raises
        ------
        InvalidConfigurationError
            The memory is too small for a topic's strategy.
        KafkaStorageError
            The disk failed.
        """
        for log in logs:
            with _unless_deleted():
                if self._is_to_be_rolled(log):
                    log.writer.roll()
        for log in logs:
            with _unless_deleted():
                self._consider(log)
        workers = [self._work] * min(self._threads, max(1, len(self._due)))
        for outcome in self._manager.runtime.scheduler.run_all(workers, threads=self._threads):
            if outcome is not None:
                raise outcome
        for log in logs:
            with _unless_deleted():
                log.delete_expired_files()
        return self._outcome

    def rehearse(self, logs: Sequence[Log]) -> CleanOutcome:
        """Run the first pass over each log that would be cleaned, writing nothing.

        Further passes are only counted: how often the map would fill up before the range ends.
        """
        due: list[tuple[Log, CleaningDecision]] = []
        for log in logs:
            with _unless_deleted():
                decision = self.foresee(log)
                if decision.binding is not None:
                    self._pass_over(log, decision.binding)
                else:
                    due.append((log, decision))
        if not self._force:
            exact = self._manager.chooser.kafka_exact
            due.sort(key=lambda each: selection_order(each[1], kafka_exact=exact))
        for log, decision in due:
            with _unless_deleted():
                stats = self._pass(log, decision.state, 1, dry_run=True).stats
                if stats is not None:
                    self._count_passes(log, decision.state, stats)
        return self._outcome

    def foresee(self, log: Log) -> CleaningDecision:
        """Decide about a log as if it had been rolled where `run` would roll it first."""
        rolled = self._is_to_be_rolled(log)
        return self._manager.chooser.decision_of(log, force=self._force, rolled=rolled)

    # -- parts ---------------------------------------------------------------------------

    def _is_to_be_rolled(self, log: Log) -> bool:
        return bool(
            log.active_segment.size_bytes
            and (self._roll or self._manager.chooser.is_idle(log))
            and self._manager.chooser.decision_of(log, force=self._force).is_candidate
        )

    def _consider(self, log: Log) -> None:
        """Decide whether a log is due, or still is; a checkpoint outside the log is corrected."""
        decision = self._manager.chooser.decision_of(log, force=self._force)
        self._manager.chooser.repair_checkpoint(log, decision.state)
        passes = self._passes.get(log, 0)
        state = decision.state
        self._due.pop(log, None)
        if decision.binding is not None:
            if not passes:
                self._pass_over(log, decision.binding)
        elif not passes or not self._force or state.first_dirty_offset < state.upper_bound_offset:
            # Forced, only what the map had no room for is gone through again.
            self._due[log] = decision

    def _work(self) -> None:
        """Clean what comes next until nothing is left, or in the hands of other threads."""
        while (log := self._take()) is not None:
            try:
                self._clean(log)
            except UnknownTopicOrPartitionError:  # deleted meanwhile
                with self._lock:
                    self._due.pop(log, None)
            finally:
                with self._lock:
                    self._busy.discard(log)

    def _take(self) -> Log | None:
        exact = self._manager.chooser.kafka_exact
        with self._lock:
            free = [log for log in self._due if log not in self._busy]
            if not free:
                return None
            log = free[0]
            if not self._force:
                log = min(free, key=lambda log: selection_order(self._due[log], kafka_exact=exact))
            self._busy.add(log)
            return log

    def _clean(self, log: Log) -> None:
        """Run one pass, and see whether more is to be done."""
        number = self._passes.get(log, 0) + 1
        result = self._pass(log, self._due[log].state, number)
        with self._lock:
            if result.obstacle is not None:
                del self._due[log]
                return
            if result.stats is not None:
                self._passes[log] = number
            self._consider(log)

    def _pass(
        self, log: Log, state: CleanableState, number: int, *, dry_run: bool = False
    ) -> PassResult:
        """Run one pass to its end, and take down what came of it."""
        tp = log.topic_partition
        steps = self._manager.run_pass(log, state, number, dry_run=dry_run, config=self._config)
        with self._manager.driving():
            try:
                while True:
                    step = next(steps)
                    if self._progress is not None:
                        with self._lock:
                            self._progress(tp, step)
            except StopIteration as done:
                result: PassResult = done.value
            finally:
                steps.close()  # what a progress listener raises ends the pass like an abort
        with self._lock:
            if result.obstacle is not None:
                self._pass_over(log, result.obstacle)
            if result.stats is not None:
                self._outcome.passes.append(result.stats)
                self._outcome.passes_needed[tp] = number
        return result

    def _count_passes(self, log: Log, state: CleanableState, stats: CleanerStats) -> None:
        """Count the passes after the first: how often the map fills up again."""
        from logstore.cleaner.passes.build import passes_after

        more = passes_after(
            log,
            self._config,
            stats.first_dirty_offset,
            stats.end_offset,
            state.upper_bound_offset,
        )
        self._outcome.passes_needed[log.topic_partition] += more

    def _pass_over(self, log: Log, obstacle: Gate) -> None:
        self._outcome.not_cleaned.append((log.topic_partition, obstacle))
