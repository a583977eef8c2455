"""Measure logs, decide which ones are due, and select the next log to clean."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.cleaner.selection import (
    CleanableState,
    CleaningConditions,
    CleaningDecision,
    decide,
    idle_roll_ms,
    next_change_ms,
    selection_order,
    steady_state,
)

if TYPE_CHECKING:
    from logstore.cleaner.checkpoints import CleanerCheckpoints
    from logstore.cleaner.states import CleaningStates
    from logstore.cleaner.uncleanable import UncleanablePartitions
    from logstore.config.broker_config import BrokerConfig
    from logstore.manager.manager import LogManager
    from logstore.runtime import Runtime
    from logstore.storage.log.log import Log


class Selected(NamedTuple):
    """A log selected for cleaning.

    Attributes
    ----------
    max_compaction_delay_ms : int
        Maximum time by which any examined log exceeds `max.compaction.lag.ms`.
    """

    log: Log
    state: CleanableState
    max_compaction_delay_ms: int


class LogChooser:
    """Decides which logs of a broker to clean.

    Parameters
    ----------
    runtime : Runtime
    logs : LogManager
        The logs.
    checkpoints, states, uncleanable
        First dirty offsets, cleaning states and uncleanable partitions.
    broker_config : BrokerConfig
        Determines whether the cleaner is enabled and whether Kafka's exact rules apply.

    Attributes
    ----------
    broker_config : BrokerConfig
        Can be replaced. Later decisions use the new value.
    """

    def __init__(
        self,
        runtime: Runtime,
        logs: LogManager,
        checkpoints: CleanerCheckpoints,
        states: CleaningStates,
        uncleanable: UncleanablePartitions,
        broker_config: BrokerConfig,
    ) -> None:
        self._runtime = runtime
        self._logs = logs
        self._checkpoints = checkpoints
        self._states = states
        self._uncleanable = uncleanable
        self.broker_config = broker_config
        self._selecting = runtime.lock()
        self._max_dirty_ratio = 0.0
        self._last_selection_ms = 0

    @property
    def kafka_exact(self) -> bool:
        """Whether Kafka's rules apply where Kafka deviates from a KIP (`logstore.kafka.exact`)."""
        return self.broker_config.logstore_kafka_exact

    # -- deciding ------------------------------------------------------------------------

    def state_of(self, log: Log) -> CleanableState:
        """Measure a log as `select` does, without changing the log.

        Raises
        ------
        UnknownTopicOrPartitionError, KafkaStorageError
            The log was deleted, or the disk failed.
        """
        checkpoint = self._checkpoints.of(log.topic_partition)
        return steady_state(log, checkpoint, self._runtime.clock.now_ms())

    def decision_of(
        self, log: Log, *, force: bool = False, rolled: bool = False, forecast: bool = False
    ) -> CleaningDecision:
        """Decide about a log without changing it; see `decide` and `state_of`."""
        tp = log.topic_partition
        state = self._states.of(tp)
        conditions = CleaningConditions(
            cleaner_enabled=self.broker_config.log_cleaner_enable,
            force=force,
            uncleanable=None if (found := self._uncleanable.get(tp)) is None else found.reason,
            paused=None if state is None else f"its cleaning state is {state}",
            kafka_exact=self.kafka_exact,
        )
        checkpoint = self._checkpoints.of(tp)
        now_ms = self._runtime.clock.now_ms()
        return log.reader.steady(
            lambda: decide(log, checkpoint, now_ms, conditions, rolled=rolled, forecast=forecast)
        )

    def explain(self, log: Log) -> CleaningDecision:
        """Return the next selection's decision, and when each closed gate opens."""
        return self.decision_of(log, rolled=self.is_idle(log), forecast=True)

    def is_idle(self, log: Log) -> bool:
        """Return whether KIP-354 requires a roll of the active segment without an append."""
        if self.kafka_exact:
            return False
        roll_ms = log.reader.steady(partial(idle_roll_ms, log))
        return roll_ms is not None and roll_ms <= self._runtime.clock.now_ms()

    def repair_checkpoint(self, log: Log, state: CleanableState) -> None:
        """Replace a checkpoint that is outside its log, unless the partition is in use."""
        tp = log.topic_partition
        if not (state.checkpoint_repaired and log.config.compact and self._states.begin(tp)):
            return
        try:
            log.check_open()  # the log may have been deleted or replaced
            # Measure again, because the log may have been truncated.
            again = self.state_of(log)
            if again.checkpoint_repaired:
                self._checkpoints.write(log, again.first_dirty_offset)
        finally:
            self._states.done(tp)

    # -- choosing ------------------------------------------------------------------------

    def select(self) -> Selected | None:
        """Select the most urgent log that is due and start cleaning it. Return None if none is due.

        Also rolls overdue idle active segments and replaces checkpoints outside their logs, even if
        no log is due. The caller must either run `run_pass` with `claimed`, or release the log with
        `states.done`.

        Notes
        -----
        O(logs × dirty segments). Only one thread at a time may call this. Adopted topics are
        skipped, because they are only cleaned by commands. Source: docs/spec/cleaner.md §2.
        """
        with self._selecting:
            self._last_selection_ms = self._runtime.clock.now_ms()
            decisions = {
                log: decision
                for log in self.logs_to_clean()
                if (decision := self._examine(log)) is not None
            }
            states = [decision.state for decision in decisions.values()]
            self._max_dirty_ratio = max((state.cleanable_ratio for state in states), default=0.0)
            due = [log for log, decision in decisions.items() if decision.will_clean]
            if not due:
                return None
            longest_ms = max(state.max_compaction_delay_ms for state in states)
            exact = self.kafka_exact
            due.sort(key=lambda log: selection_order(decisions[log], kafka_exact=exact))
            for log in due:
                if self._states.begin(log.topic_partition):
                    return Selected(log, decisions[log].state, longest_ms)
            return None

    def logs_to_clean(self) -> list[Log]:
        """Return the compacted logs that are neither in use nor uncleanable."""
        adopted = {topic.name for topic in self._logs.catalog.topics() if topic.adopted}
        return [
            log
            for log in self._logs.registry.open_logs()
            if log.config.compact
            and not log.is_offline
            and log.topic_partition.topic not in adopted
            and log.topic_partition not in self._uncleanable
            and self._states.of(log.topic_partition) is None
        ]

    def _examine(self, log: Log) -> CleaningDecision | None:
        """Return the decision about a log, after rolling the log if it is idle.

        Returns None on failure.
        """
        try:
            if self.is_idle(log):
                log.writer.roll()
            decision = self.decision_of(log)
            self.repair_checkpoint(log, decision.state)
        except Exception as error:
            self._uncleanable.mark_uncleanable(log, error)
            return None
        return decision if decision.state.total_bytes else None

    def next_due_ms(self) -> int | None:
        """Return the next time when a log may become due without an append, or None if none will.

        Until then, selections and retention of compacted logs have no effect, unless a log, its
        config or its partition's state changes. O(logs × dirty segments).
        """
        times: list[int | None] = []
        for log in self.logs_to_clean():
            try:
                times.append(self.next_cleaning_ms(log))
                times.append(log.reader.steady(log.next_expiry_ms))
            except Exception as error:
                self._uncleanable.mark_uncleanable(log, error)
        return min((each for each in times if each is not None), default=None)

    def next_cleaning_ms(self, log: Log) -> int | None:
        """Return the next time when cleaning may become due without an append, or None if never."""
        first_dirty = self.state_of(log).first_dirty_offset
        now_ms = self._runtime.clock.now_ms()
        exact = self.kafka_exact
        return log.reader.steady(
            lambda: next_change_ms(log, first_dirty, now_ms, kafka_exact=exact)
        )

    @property
    def max_dirty_percent(self) -> int:
        """Maximum dirty ratio of all logs examined by the last selection, in whole percent."""
        return int(100 * self._max_dirty_ratio)

    @property
    def ms_since_last_selection(self) -> int:
        """Time since the start of the last selection, or since 1970 as in Kafka."""
        return self._runtime.clock.now_ms() - self._last_selection_ms
