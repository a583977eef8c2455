"""Runs cleanings over the logs of a log manager: select, pass, checkpoint.

The checkpoint of each data directory, `cleaner-offset-checkpoint`, holds the first dirty offset
of its compacted partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cleaner.config import CleanerConfig
from cleaner.errors import UnsupportedTransactionsError
from cleaner.selection import (
    CleanableState,
    CleaningDecision,
    Gate,
    cleanable_state,
    decide,
    selection_order,
)
from logstore.checkpoint import CLEANER_OFFSETS
from logstore.errors import (
    CorruptCheckpointError,
    CorruptionError,
    InvalidConfigurationError,
    InvalidOffsetError,
    KafkaStorageError,
    SegmentOverflowError,
    UnsupportedFormatError,
)
from logstore.types import INT64_MAX, TopicPartition

if TYPE_CHECKING:
    from cleaner.clean import PassProgress
    from cleaner.stats import CleanerStats
    from logstore.config import BrokerConfig
    from logstore.log import Log
    from logstore.manager import LogManager
    from logstore.runtime import Runtime

logger = logging.getLogger(__name__)

OFFSET_STRATEGY = "offset"

_FOR_GOOD = (CorruptionError, UnsupportedFormatError, SegmentOverflowError, InvalidOffsetError)
"""What a further attempt would meet again; the log serves on, but is not cleaned any more."""

ProgressListener = Callable[[TopicPartition, "PassProgress"], None]


@dataclass(slots=True)
class CleanOutcome:
    """What a `clean` did: every pass, and the binding gate of partitions left alone."""

    passes: list[CleanerStats] = field(default_factory=list)
    not_cleaned: list[tuple[TopicPartition, Gate]] = field(default_factory=list)


class LogCleanerManager:
    """Cleans the logs of a `LogManager`.

    Parameters
    ----------
    runtime : Runtime
        Clock and files.
    logs : LogManager
        Whose logs are cleaned.
    broker_config : BrokerConfig
        Cleaner settings.
    """

    def __init__(self, runtime: Runtime, logs: LogManager, broker_config: BrokerConfig) -> None:
        self._runtime = runtime
        self._logs = logs
        self._broker_config = broker_config
        self.config = CleanerConfig.from_broker(broker_config)
        self._uncleanable: dict[TopicPartition, str] = {}

    # -- checkpoint ----------------------------------------------------------------------

    def checkpoint_of(self, topic_partition: TopicPartition) -> int | None:
        """Return the stored first dirty offset of a partition; None if there is none."""
        checkpoint = self._logs.directory_of(topic_partition).checkpoint(CLEANER_OFFSETS)
        try:
            return checkpoint.read().get(topic_partition)
        except CorruptCheckpointError as error:
            logger.warning("%s; cleaning starts from the log start", error)
            return None

    def _write_checkpoint(self, topic_partition: TopicPartition, first_dirty_offset: int) -> None:
        directory = self._logs.directory_of(topic_partition)
        checkpoint = directory.checkpoint(CLEANER_OFFSETS)
        try:
            stored = checkpoint.read()
        except CorruptCheckpointError:
            stored = {}
        known = {tp: offset for tp, offset in stored.items() if tp in directory.partitions}
        checkpoint.write(known | {topic_partition: first_dirty_offset})

    # -- deciding ------------------------------------------------------------------------

    def state_of(self, log: Log) -> CleanableState:
        """Measure a log as selection does; changes nothing."""
        return cleanable_state(
            log, self.checkpoint_of(log.topic_partition), self._runtime.clock.now_ms()
        )

    def decision_of(self, log: Log, *, force: bool = False) -> CleaningDecision:
        """Decide about a log; changes nothing."""
        return decide(
            log,
            self.checkpoint_of(log.topic_partition),
            self._runtime.clock.now_ms(),
            cleaner_enabled=self._broker_config.log_cleaner_enable,
            force=force,
            uncleanable=self._uncleanable.get(log.topic_partition),
        )

    def _decide(self, log: Log, *, force: bool = False) -> CleaningDecision:
        """Decide about a log, and replace its stored checkpoint if that lies outside the log."""
        decision = self.decision_of(log, force=force)
        if decision.state.checkpoint_repaired and log.config.compact:
            self._write_checkpoint(log.topic_partition, decision.state.first_dirty_offset)
        return decision

    # -- cleaning ------------------------------------------------------------------------

    def clean(
        self,
        partitions: Sequence[TopicPartition],
        *,
        force: bool = False,
        roll: bool = False,
        progress: ProgressListener | None = None,
    ) -> CleanOutcome:
        """Clean partitions; see `Broker.clean`.

        Raises
        ------
        InvalidConfigurationError
            A topic asks for a compaction strategy that is not supported yet.
        KafkaStorageError
            The disk failed.
        """
        outcome = CleanOutcome()
        logs = [self._logs.log(tp) for tp in partitions]
        for log in logs:
            _refuse_other_strategies(log)
        for log in logs:
            if (
                log.active_segment.size_bytes
                and (roll or self._is_idle(log))
                and self.decision_of(log, force=force).is_candidate
            ):
                log.roll()
        if force:
            for log in logs:
                self._force(log, outcome, progress)
        else:
            self._clean_due(logs, outcome, progress)
        for log in logs:
            log.delete_expired_files()
        return outcome

    def _is_idle(self, log: Log) -> bool:
        """Tell whether KIP-354 wants the active segment rolled though nothing is appended."""
        if self._broker_config.logstore_kafka_exact:
            return False
        limit = self._runtime.clock.now_ms() - log.config.max_compaction_lag_ms
        first = log.active_segment.first_batch_timestamp()
        return first < INT64_MAX and first < limit

    def _clean_due(
        self, logs: Sequence[Log], outcome: CleanOutcome, progress: ProgressListener | None
    ) -> None:
        """Clean the most urgent log, again and again, until none is due."""
        exact = self._broker_config.logstore_kafka_exact
        decisions = {log: self._decide(log) for log in logs}
        passes = dict.fromkeys(logs, 0)
        while decisions:
            for log, decision in list(decisions.items()):
                if decision.binding is not None:
                    del decisions[log]
                    if not passes[log]:
                        outcome.not_cleaned.append((log.topic_partition, decision.binding))
            if not decisions:
                return
            log = min(decisions, key=lambda log: selection_order(decisions[log], kafka_exact=exact))
            passes[log] += 1
            if self._pass(log, decisions[log].state, passes[log], outcome, progress):
                decisions[log] = self._decide(log)
            else:
                del decisions[log]

    def _force(self, log: Log, outcome: CleanOutcome, progress: ProgressListener | None) -> None:
        """Clean one log as far as it goes, in as many passes as the map needs."""
        decision = self._decide(log, force=True)
        if decision.binding is not None:
            outcome.not_cleaned.append((log.topic_partition, decision.binding))
            return
        number = 1
        while self._pass(log, decision.state, number, outcome, progress):
            decision = self._decide(log, force=True)
            if decision.state.first_dirty_offset >= decision.state.upper_bound_offset:
                return
            number += 1

    def _pass(
        self,
        log: Log,
        state: CleanableState,
        number: int,
        outcome: CleanOutcome,
        progress: ProgressListener | None,
    ) -> bool:
        """Run one pass and store its checkpoint; tell whether it came to its end."""
        from cleaner.clean import clean_pass

        tp = log.topic_partition
        steps = clean_pass(
            log,
            self.config,
            state.first_dirty_offset,
            state.upper_bound_offset,
            pass_number=number,
        )
        try:
            while True:
                step = next(steps)
                if progress is not None:
                    progress(tp, step)
        except StopIteration as done:
            stats: CleanerStats = done.value
        except UnsupportedTransactionsError as error:
            outcome.not_cleaned.append(
                (tp, Gate("unsupported_transactions", False, None, None, str(error)))
            )
            return False
        except _FOR_GOOD as error:
            logger.warning("cleaning of %s failed: %s", tp, error)
            self._uncleanable[tp] = str(error)
            self._write_checkpoint(tp, state.first_dirty_offset)
            outcome.not_cleaned.append((tp, Gate("uncleanable", False, None, None, str(error))))
            return False
        except OSError as error:
            raise KafkaStorageError(f"{tp}: cannot clean: {error}") from error
        finally:
            steps.close()  # what a progress listener raises ends the pass like an abort
        self._write_checkpoint(tp, stats.end_offset)
        outcome.passes.append(stats)
        return True


def _refuse_other_strategies(log: Log) -> None:
    config = log.config
    strategy = config.compaction_strategy or OFFSET_STRATEGY
    if strategy == "header" and not config.compaction_strategy_header.strip():
        strategy = OFFSET_STRATEGY
    if config.compact and strategy != OFFSET_STRATEGY:
        raise InvalidConfigurationError(
            f"topic '{log.topic_partition.topic}': compaction.strategy {strategy} "
            "is not supported yet; nothing was cleaned"
        )
