"""What is known of the partitions of a broker that cleaners work on, and one pass over one.

Checkpoints, states, partitions that cannot be cleaned; decisions about them, and a pass with all
that surrounds it. Who runs passes, and in which order, is said elsewhere (`cleaner.command`).
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from cleaner.config import CleanerConfig
from cleaner.errors import CleaningAbortedError
from cleaner.selection import (
    Circumstances,
    CleanableState,
    CleaningDecision,
    Gate,
    cleanable_state,
    decide,
    idle_roll_ms,
)
from cleaner.states import CleaningStates
from logstore.errors import (
    CorruptionError,
    InvalidConfigurationError,
    InvalidOffsetError,
    KafkaStorageError,
    SegmentOverflowError,
    UnsupportedFormatError,
)
from logstore.services import LogService

if TYPE_CHECKING:
    from cleaner.clean import PassProgress
    from cleaner.stats import CleanerStats
    from logstore.config import BrokerConfig
    from logstore.log import Log
    from logstore.manager import LogManager
    from logstore.runtime import Runtime
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

OFFSET_STRATEGY = "offset"

_FOR_GOOD = (CorruptionError, UnsupportedFormatError, SegmentOverflowError, InvalidOffsetError)
"""What a further attempt would meet again; the log serves on, but is not cleaned any more."""


class PassResult(NamedTuple):
    """How a pass ended: with its numbers, or with what was in the way."""

    stats: CleanerStats | None
    obstacle: Gate | None


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
    """

    def __init__(self, runtime: Runtime, logs: LogManager, broker_config: BrokerConfig) -> None:
        self._runtime = runtime
        self._logs = logs
        self._broker_config = broker_config
        self.config = CleanerConfig.from_broker(broker_config)
        self.states = CleaningStates(runtime)
        self._uncleanable: dict[TopicPartition, str] = {}

    @property
    def kafka_exact(self) -> bool:
        """Whether Kafka's rules hold where a KIP says otherwise (`logstore.kafka.exact`)."""
        return self._broker_config.logstore_kafka_exact

    # -- checkpoint ----------------------------------------------------------------------

    def checkpoint_of(self, topic_partition: TopicPartition) -> int | None:
        """Return the stored first dirty offset of a partition; None if there is none."""
        return self._logs.directory_of(topic_partition).cleaner_offset(topic_partition)

    def _write_checkpoint(self, topic_partition: TopicPartition, first_dirty_offset: int) -> None:
        directory = self._logs.directory_of(topic_partition)
        directory.write_cleaner_offset(topic_partition, first_dirty_offset)

    def repair_checkpoint(self, log: Log, state: CleanableState) -> None:
        """Replace a stored checkpoint that lies outside its log."""
        if state.checkpoint_repaired and log.config.compact:
            self._write_checkpoint(log.topic_partition, state.first_dirty_offset)

    # -- deciding ------------------------------------------------------------------------

    def state_of(self, log: Log) -> CleanableState:
        """Measure a log as selection does; changes nothing."""
        return cleanable_state(
            log, self.checkpoint_of(log.topic_partition), self._runtime.clock.now_ms()
        )

    def decision_of(
        self, log: Log, *, force: bool = False, rolled: bool = False, foresee: bool = False
    ) -> CleaningDecision:
        """Decide about a log; changes nothing. See `cleaner.selection.decide`."""
        tp = log.topic_partition
        state = self.states.of(tp)
        circumstances = Circumstances(
            cleaner_enabled=self._broker_config.log_cleaner_enable,
            force=force,
            uncleanable=self._uncleanable.get(tp),
            paused=None if state is None else f"its cleaning state is {state}",
            kafka_exact=self.kafka_exact,
        )
        return decide(
            log,
            self.checkpoint_of(tp),
            self._runtime.clock.now_ms(),
            circumstances,
            rolled=rolled,
            foresee=foresee,
        )

    def explain(self, log: Log) -> CleaningDecision:
        """Decide as the next selection would, and when each closed gate opens by itself."""
        return self.decision_of(log, rolled=self.is_idle(log), foresee=True)

    def passes_bound(self, state: CleanableState) -> int:
        """Return how many passes a range takes at most: if every dirty offset has another key."""
        dirty = max(0, state.upper_bound_offset - state.first_dirty_offset)
        return -(-dirty // self.config.max_keys)

    def is_idle(self, log: Log) -> bool:
        """Tell whether KIP-354 wants the active segment rolled though nothing is appended."""
        if self.kafka_exact:
            return False
        moment = idle_roll_ms(log)
        return moment is not None and moment <= self._runtime.clock.now_ms()

    # -- one pass ------------------------------------------------------------------------

    def run_pass(
        self, log: Log, state: CleanableState, number: int = 1, *, dry_run: bool = False
    ) -> Generator[PassProgress, None, PassResult]:
        """Run one pass over a log and store its checkpoint.

        Parameters
        ----------
        state : CleanableState
            What to clean, as a decision has it.
        number : int
            Which pass over the log it is in this run, from 1.

        Returns
        -------
        PassResult
            Without numbers if somebody wanted the partition, or a batch was damaged: then it is
            not cleaned again before a restart.

        Raises
        ------
        KafkaStorageError
            The disk failed.

        Notes
        -----
        Yields before each chunk and holds no lock then; closing it ends the pass like an abort.
        """
        from cleaner.clean import clean_pass

        tp = log.topic_partition
        if not self.states.begin(tp):
            return PassResult(None, _closed("paused", f"its state is {self.states.of(tp)}"))
        first_dirty, upper_bound = state.first_dirty_offset, state.upper_bound_offset
        steps = clean_pass(
            log, self.config, first_dirty, upper_bound, pass_number=number, dry_run=dry_run
        )
        checkpoint: int | None = None  # what was stored holds, unless the pass comes to an end
        try:
            while True:
                step = next(steps)
                self.states.check_not_aborted(tp)
                yield step
        except StopIteration as done:
            stats: CleanerStats = done.value
            checkpoint = stats.end_offset
            return PassResult(stats, None)
        except CleaningAbortedError as error:
            return PassResult(None, _closed("paused", str(error)))
        except _FOR_GOOD as error:
            logger.warning("cleaning of %s failed: %s", tp, error)
            checkpoint = first_dirty
            if not dry_run:
                self._uncleanable[tp] = str(error)
            return PassResult(None, _closed("uncleanable", str(error)))
        except OSError as error:
            raise KafkaStorageError(f"{tp}: cannot clean: {error}") from error
        finally:
            steps.close()
            # Who aborted it goes on now, and decides about the checkpoint.
            if self.states.done(tp) and checkpoint is not None and not dry_run:
                self._write_checkpoint(tp, checkpoint)

    # -- what happens to partitions ------------------------------------------------------

    def partition_removed(self, topic_partition: TopicPartition) -> None:
        """Forget a partition."""
        self.states.forget(topic_partition)
        self._uncleanable.pop(topic_partition, None)

    def pause(self, topic_partition: TopicPartition) -> None:
        """Stop a partition's cleaning, wait for its end, and keep it from being cleaned."""
        self.states.abort_and_pause(topic_partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        """Take back one `pause`."""
        self.states.resume(topic_partition)

    def config_changed(self, topic: str) -> None:
        """Stop the cleaning of logs that are no longer compacted."""
        for log in self._logs.open_logs():
            tp = log.topic_partition
            if tp.topic == topic and not log.config.compact and self.states.is_in_progress(tp):
                self.states.abort(tp)


def refuse_other_strategies(log: Log) -> None:
    """Raise `InvalidConfigurationError` for a compaction strategy that is not there yet."""
    config = log.config
    strategy = config.compaction_strategy or OFFSET_STRATEGY
    if strategy == "header" and not config.compaction_strategy_header.strip():
        strategy = OFFSET_STRATEGY
    if config.compact and strategy != OFFSET_STRATEGY:
        raise InvalidConfigurationError(
            f"topic '{log.topic_partition.topic}': compaction.strategy {strategy} "
            "is not supported yet; nothing was cleaned"
        )


def _closed(gate: str, text: str) -> Gate:
    return Gate(gate, False, None, None, text)
