"""Cleaning because a command asks for it: what is due, or whatever can be cleaned, or as if.

The cleanings themselves, and every rule about them, are `LogCleanerManager`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cleaner.manager import PassResult, refuse_other_strategies
from cleaner.selection import Gate, selection_order

if TYPE_CHECKING:
    from cleaner.clean import PassProgress
    from cleaner.manager import LogCleanerManager
    from cleaner.selection import CleanableState, CleaningDecision
    from cleaner.stats import CleanerStats
    from logstore.log import Log
    from logstore.types import TopicPartition

ProgressListener = Callable[["TopicPartition", "PassProgress"], None]


@dataclass(slots=True)
class CleanOutcome:
    """What a `clean` did: every pass, and the binding gate of partitions left alone.

    `passes_needed` counts, for each partition that was cleaned, the passes that it took, or in a
    dry run would take: then only the first of them is in `passes`.
    """

    passes: list[CleanerStats] = field(default_factory=list)
    not_cleaned: list[tuple[TopicPartition, Gate]] = field(default_factory=list)
    passes_needed: dict[TopicPartition, int] = field(default_factory=dict)


class CleanCommand:
    """One run over some logs.

    Parameters
    ----------
    force : bool
        Ignore dirty ratio and lags; see `Broker.clean`.
    roll : bool
        Roll non-empty active segments first.
    progress : callable, optional
        Told before each chunk; what it raises ends the run.
    """

    def __init__(
        self,
        manager: LogCleanerManager,
        *,
        force: bool = False,
        roll: bool = False,
        progress: ProgressListener | None = None,
    ) -> None:
        self._manager = manager
        self._force = force
        self._roll = roll
        self._progress = progress
        self._outcome = CleanOutcome()

    def run(self, logs: Sequence[Log]) -> CleanOutcome:
        """Clean logs, the most urgent first, until none is due.

        Raises
        ------
        InvalidConfigurationError
            A topic asks for a compaction strategy that is not supported yet.
        KafkaStorageError
            The disk failed.
        """
        for log in logs:
            refuse_other_strategies(log)
        for log in logs:
            if self._is_to_be_rolled(log):
                log.roll()
        if self._force:
            for log in logs:
                self._clean_whole(log)
        else:
            self._clean_due(logs)
        for log in logs:
            log.delete_expired_files()
        return self._outcome

    def rehearse(self, logs: Sequence[Log]) -> CleanOutcome:
        """Run the first pass over each log that would be cleaned, writing nothing.

        Further passes are only counted: how often the map would fill up before the range ends.
        """
        for log in logs:
            refuse_other_strategies(log)
        due: list[tuple[Log, CleaningDecision]] = []
        for log in logs:
            decision = self.foresee(log)
            if decision.binding is not None:
                self._pass_over(log, decision.binding)
            else:
                due.append((log, decision))
        if not self._force:
            exact = self._manager.kafka_exact
            due.sort(key=lambda each: selection_order(each[1], kafka_exact=exact))
        for log, decision in due:
            stats = self._pass(log, decision.state, 1, dry_run=True)
            if stats is not None:
                self._count_passes(log, decision.state, stats)
        return self._outcome

    def foresee(self, log: Log) -> CleaningDecision:
        """Decide about a log as if it had been rolled where `run` would roll it first."""
        rolled = self._is_to_be_rolled(log)
        return self._manager.decision_of(log, force=self._force, rolled=rolled)

    # -- parts ---------------------------------------------------------------------------

    def _is_to_be_rolled(self, log: Log) -> bool:
        return bool(
            log.active_segment.size_bytes
            and (self._roll or self._manager.is_idle(log))
            and self._manager.decision_of(log, force=self._force).is_candidate
        )

    def _decide(self, log: Log) -> CleaningDecision:
        """Decide about a log, and replace its stored checkpoint if that lies outside the log."""
        decision = self._manager.decision_of(log, force=self._force)
        self._manager.repair_checkpoint(log, decision.state)
        return decision

    def _clean_due(self, logs: Sequence[Log]) -> None:
        exact = self._manager.kafka_exact
        decisions = {log: self._decide(log) for log in logs}
        passes = dict.fromkeys(logs, 0)
        while decisions:
            for log, decision in list(decisions.items()):
                if decision.binding is not None:
                    del decisions[log]
                    if not passes[log]:
                        self._pass_over(log, decision.binding)
            if not decisions:
                return
            log = min(decisions, key=lambda log: selection_order(decisions[log], kafka_exact=exact))
            passes[log] += 1
            if self._pass(log, decisions[log].state, passes[log]) is None:
                del decisions[log]
            else:
                decisions[log] = self._decide(log)

    def _clean_whole(self, log: Log) -> None:
        """Clean one log as far as it goes, in as many passes as the map needs."""
        decision = self._decide(log)
        if decision.binding is not None:
            self._pass_over(log, decision.binding)
            return
        number = 1
        while self._pass(log, decision.state, number) is not None:
            decision = self._decide(log)
            if decision.state.first_dirty_offset >= decision.state.upper_bound_offset:
                return
            number += 1

    def _pass(
        self, log: Log, state: CleanableState, number: int, *, dry_run: bool = False
    ) -> CleanerStats | None:
        """Run one pass to its end; None if it did not come to it."""
        tp = log.topic_partition
        steps = self._manager.run_pass(log, state, number, dry_run=dry_run)
        try:
            while True:
                step = next(steps)
                if self._progress is not None:
                    self._progress(tp, step)
        except StopIteration as done:
            result: PassResult = done.value
        finally:
            steps.close()  # what a progress listener raises ends the pass like an abort
        if result.obstacle is not None:
            self._pass_over(log, result.obstacle)
        if result.stats is not None:
            self._outcome.passes.append(result.stats)
            self._outcome.passes_needed[tp] = number
        return result.stats

    def _count_passes(self, log: Log, state: CleanableState, stats: CleanerStats) -> None:
        """Count the passes after the first: how often the map fills up again."""
        from cleaner.build import passes_after

        more = passes_after(log, self._manager.config, stats.end_offset, state.upper_bound_offset)
        self._outcome.passes_needed[log.topic_partition] += more

    def _pass_over(self, log: Log, obstacle: Gate) -> None:
        self._outcome.not_cleaned.append((log.topic_partition, obstacle))
