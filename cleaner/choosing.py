"""The choice of the log that is cleaned next: each is measured and decided about."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.cleaner.selection import (
    Circumstances,
    CleanableState,
    CleaningDecision,
    decide,
    idle_roll_ms,
    next_moment_ms,
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
    """A log that was taken to be cleaned.

    Attributes
    ----------
    max_compaction_delay_ms : int
        The longest by which any log that was looked at exceeds its `max.compaction.lag.ms`.
    """

    log: Log
    state: CleanableState
    max_compaction_delay_ms: int


class LogChooser:
    """The decisions about a broker's logs.

    Parameters
    ----------
    runtime : Runtime
    logs : LogManager
        Whose logs are chosen from.
    checkpoints, states, marks
        Up to where each partition is clean, who has it, and whether it cannot be cleaned.
    broker_config : BrokerConfig
        Whether the cleaner is enabled, and Kafka's rules hold exactly.

    Attributes
    ----------
    broker_config : BrokerConfig
        May be replaced; the decisions from then on obey it.
    """

    def __init__(
        self,
        runtime: Runtime,
        logs: LogManager,
        checkpoints: CleanerCheckpoints,
        states: CleaningStates,
        marks: UncleanablePartitions,
        broker_config: BrokerConfig,
    ) -> None:
        self._runtime = runtime
        self._logs = logs
        self._checkpoints = checkpoints
        self._states = states
        self._marks = marks
        self.broker_config = broker_config
        self._selecting = runtime.lock()
        self._max_dirty_ratio = 0.0
        self._last_selection_ms = 0

    @property
    def kafka_exact(self) -> bool:
        """Whether Kafka's rules hold where a KIP says otherwise (`logstore.kafka.exact`)."""
        return self.broker_config.logstore_kafka_exact

    # -- deciding ------------------------------------------------------------------------

    def state_of(self, log: Log) -> CleanableState:
        """Measure a log as selection does; changes nothing.

        Raises
        ------
        UnknownTopicOrPartitionError, KafkaStorageError
            It was deleted, or the disk failed.
        """
        checkpoint = self._checkpoints.of(log.topic_partition)
        return steady_state(log, checkpoint, self._runtime.clock.now_ms())

    def decision_of(
        self, log: Log, *, force: bool = False, rolled: bool = False, foresee: bool = False
    ) -> CleaningDecision:
        """Decide about a log; changes nothing. See `decide`, `state_of`."""
        tp = log.topic_partition
        state = self._states.of(tp)
        circumstances = Circumstances(
            cleaner_enabled=self.broker_config.log_cleaner_enable,
            force=force,
            uncleanable=None if (mark := self._marks.get(tp)) is None else mark.reason,
            paused=None if state is None else f"its cleaning state is {state}",
            kafka_exact=self.kafka_exact,
        )
        checkpoint = self._checkpoints.of(tp)
        now_ms = self._runtime.clock.now_ms()
        return log.reader.steady(
            lambda: decide(log, checkpoint, now_ms, circumstances, rolled=rolled, foresee=foresee)
        )

    def explain(self, log: Log) -> CleaningDecision:
        """Decide as the next selection would, and when each closed gate opens by itself."""
        return self.decision_of(log, rolled=self.is_idle(log), foresee=True)

    def is_idle(self, log: Log) -> bool:
        """Tell whether KIP-354 wants the active segment rolled though nothing is appended."""
        if self.kafka_exact:
            return False
        moment = log.reader.steady(partial(idle_roll_ms, log))
        return moment is not None and moment <= self._runtime.clock.now_ms()

    def repair_checkpoint(self, log: Log, state: CleanableState) -> None:
        """Replace a stored checkpoint that lies outside its log, unless somebody has it."""
        tp = log.topic_partition
        if not (state.checkpoint_repaired and log.config.compact and self._states.begin(tp)):
            return
        try:
            log.check_open()  # one of the same name may be in its place
            # Measured again: until now it could have been cut.
            again = self.state_of(log)
            if again.checkpoint_repaired:
                self._checkpoints.write(log, again.first_dirty_offset)
        finally:
            self._states.done(tp)

    # -- choosing ------------------------------------------------------------------------

    def select(self) -> Selected | None:
        """Choose the most urgent log that is due, and begin its cleaning; None if none is due.

        Idle active segments that are overdue are rolled, and checkpoints outside their logs
        replaced, also where nothing is cleaned. Whoever gets a log runs `run_pass` on it with
        `taken`, or gives it back with `states.done`.

        Notes
        -----
        O(logs × dirty segments). One thread at a time. What an adopted topic holds is left alone:
        only a command cleans it. Source: docs/spec/cleaner.md §2.
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
        """Return the compacted logs that nobody has and nothing is wrong with."""
        adopted = {topic.name for topic in self._logs.catalog.topics() if topic.adopted}
        return [
            log
            for log in self._logs.registry.open_logs()
            if log.config.compact
            and not log.is_offline
            and log.topic_partition.topic not in adopted
            and log.topic_partition not in self._marks
            and self._states.of(log.topic_partition) is None
        ]

    def _examine(self, log: Log) -> CleaningDecision | None:
        """Decide about a log as it will be: rolled if idle for too long; None if that fails."""
        try:
            if self.is_idle(log):
                log.writer.roll()
            decision = self.decision_of(log)
            self.repair_checkpoint(log, decision.state)
        except Exception as error:
            self._marks.leave_alone(log, error)
            return None
        return decision if decision.state.total_bytes else None

    def next_due_ms(self) -> int | None:
        """Return the first moment at which time alone may give a cleaner something to do.

        Until then selections and retention of compacted logs come to nothing, unless a log, its
        configuration or the state of its partition changes. None if that moment never comes.
        O(logs × dirty segments).
        """
        moments: list[int | None] = []
        for log in self.logs_to_clean():
            try:
                moments.append(self._next_moment_ms(log))
                moments.append(log.reader.steady(log.next_expiry_ms))
            except Exception as error:
                self._marks.leave_alone(log, error)
        return min((moment for moment in moments if moment is not None), default=None)

    def _next_moment_ms(self, log: Log) -> int | None:
        first_dirty = self.state_of(log).first_dirty_offset
        now_ms = self._runtime.clock.now_ms()
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
        """Time since the last selection began; since 1970 if there was none, as in Kafka."""
        return self._runtime.clock.now_ms() - self._last_selection_ms
