"""Requests to clean logs: those that are due, all that can be cleaned, or in a dry run.

`LogCleanerManager` runs the passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from logstore.cleaner.selection import Gate, selection_order
from logstore.cleaner.stats import CleanerStats, CleanReport, NotCleaned
from logstore.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from logstore.cleaner.manager import LogCleanerManager
    from logstore.cleaner.passes.clean import PassProgress
    from logstore.cleaner.selection import CleanableState, CleaningDecision
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

_unless_deleted = partial(suppress, UnknownTopicOrPartitionError)

ProgressListener = Callable[["TopicPartition", "PassProgress"], None]


class CleanCommand:
    """A request to clean logs. Logs that are deleted in the meantime are skipped.

    Parameters
    ----------
    force : bool
        Ignore the dirty ratio and the lags; see `Broker.clean`.
    roll : bool
        Roll non-empty active segments first.
    threads : int, optional
        Number of threads, which share the memory. [default: one thread with the share of one of
        `log.cleaner.threads`]
    progress : callable, optional
        Called before each chunk, by one thread at a time. An exception ends the run.

    Raises
    ------
    InvalidConfigurationError
        The memory per thread is too small.
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
        self._cleaned: list[CleanerStats] = []
        self._not_cleaned: list[NotCleaned] = []
        self._passes_needed: dict[TopicPartition, int] = {}
        self._threads = threads or 1
        self._config = manager.config_for(threads)
        self._lock = manager.runtime.lock()
        self._due: dict[Log, CleaningDecision] = {}
        self._passes: dict[Log, int] = {}
        self._busy: set[Log] = set()

    def run(self, logs: Sequence[Log]) -> CleanReport:
        """Clean logs, most urgent first, until none is due.

        Raises
        ------
        InvalidConfigurationError
            The memory is too small for the strategy of a topic.
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
        return self._report(dry_run=False)

    def dry_run(self, logs: Sequence[Log]) -> CleanReport:
        """Dry-run the first pass over each log that would be cleaned.

        Further passes are only counted, by how often the map fills up.
        """
        due: list[tuple[Log, CleaningDecision]] = []
        for log in logs:
            with _unless_deleted():
                decision = self.decision_of(log)
                if decision.binding is not None:
                    self._report_not_cleaned(log, decision.binding)
                else:
                    due.append((log, decision))
        if not self._force:
            exact = self._manager.chooser.kafka_exact
            due.sort(key=lambda each: selection_order(each[1], kafka_exact=exact))
        for log, decision in due:
            with _unless_deleted():
                stats = self._pass(log, decision.state, 1, dry_run=True)
                if isinstance(stats, CleanerStats):
                    self._count_passes(log, decision.state, stats)
        return self._report(dry_run=True)

    def decision_of(self, log: Log) -> CleaningDecision:
        """Decide about a log, assuming a roll if `run` would roll it first."""
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
        """Decide whether a log is still due. Repair a checkpoint outside the log."""
        decision = self._manager.chooser.decision_of(log, force=self._force)
        self._manager.chooser.repair_checkpoint(log, decision.state)
        passes = self._passes.get(log, 0)
        state = decision.state
        self._due.pop(log, None)
        if decision.binding is not None:
            if not passes:
                self._report_not_cleaned(log, decision.binding)
        elif not passes or not self._force or state.first_dirty_offset < state.upper_bound_offset:
            # Forced cleaning only repeats for keys that did not fit into the map.
            self._due[log] = decision

    def _work(self) -> None:
        """Clean logs until none is due or other threads are cleaning the remaining ones."""
        while (log := self._take()) is not None:
            try:
                self._clean(log)
            except UnknownTopicOrPartitionError:  # deleted in the meantime
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
        """Run a pass, then decide whether the log needs a further pass."""
        number = self._passes.get(log, 0) + 1
        result = self._pass(log, self._due[log].state, number)
        with self._lock:
            if isinstance(result, Gate):
                del self._due[log]
                return
            if result is not None:
                self._passes[log] = number
            self._consider(log)

    def _pass(
        self, log: Log, state: CleanableState, number: int, *, dry_run: bool = False
    ) -> CleanerStats | Gate | None:
        """Run a pass and record its result."""
        tp = log.topic_partition
        result = self._manager.clean(
            log,
            state,
            number,
            dry_run=dry_run,
            config=self._config,
            progress=None
            if self._progress is None
            else partial(self._report_progress, self._progress, tp),
        )
        with self._lock:
            if isinstance(result, Gate):
                self._report_not_cleaned(log, result)
            elif result is not None:
                self._cleaned.append(result)
                self._passes_needed[tp] = number
        return result

    def _report_progress(
        self, progress: ProgressListener, tp: TopicPartition, step: PassProgress
    ) -> None:
        with self._lock:
            progress(tp, step)

    def _count_passes(self, log: Log, state: CleanableState, stats: CleanerStats) -> None:
        """Count the passes after the first one, by how often the map fills up again."""
        from logstore.cleaner.passes.build import passes_after

        more = passes_after(
            log,
            self._config,
            stats.first_dirty_offset,
            stats.end_offset,
            state.upper_bound_offset,
        )
        self._passes_needed[log.topic_partition] += more

    def _report_not_cleaned(self, log: Log, obstacle: Gate) -> None:
        self._not_cleaned.append(NotCleaned(*log.topic_partition, obstacle))

    def _report(self, *, dry_run: bool) -> CleanReport:
        return CleanReport(
            tuple(self._cleaned), tuple(self._not_cleaned), self._passes_needed, dry_run
        )
