"""The log manager's background tasks, at Kafka's intervals."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from logstore.errors import LogStoreError, UnknownTopicOrPartitionError
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from logstore.manager.manager import LogManager
    from logstore.manager.services import LogEvents
    from logstore.runtime import ScheduledTask, Unsubscribe
    from logstore.storage.log.log import Log
    from logstore.storage.log.retention import RetentionDecision
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)


def log_removals(decision: RetentionDecision) -> None:
    """Log the segments that retention deleted."""
    for verdict in decision.removed:
        logger.info(
            "%s: segment %d deleted by %s: %s",
            decision.topic_partition,
            verdict.base_offset,
            verdict.rule,
            verdict.reason,
        )


@contextmanager
def _log_and_continue(topic_partition: TopicPartition, what: str) -> Iterator[None]:
    """Log an error of one log, which might just have been deleted, and continue with the others."""
    try:
        yield
    except LogStoreError as error:
        logger.warning("%s: %s failed: %s", topic_partition, what, error)


class Housekeeping:
    """The log manager's background tasks, with Kafka's names and intervals.

    These are retention of topics that are not compacted, flushing by `flush.ms`, checkpoints,
    removal of deleted files, and expiry of producer ids. Adopted topics are excluded from
    background retention, because records of a copied log are only removed by a command. The cleaner
    runs the retention of compacted topics, as in Kafka.
    """

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._tasks: list[ScheduledTask] = []
        self._watermarks_moved = False
        self._must_retry = False  # whether retention must retry a log that was being cleaned

    def start(self) -> None:
        """Open all logs and schedule the tasks."""
        manager = self._manager
        config = manager.broker_config
        for tp in manager.catalog.partitions():
            try:
                manager.log(tp)
            except LogStoreError as error:
                logger.warning("%s is skipped by background tasks: %s", tp, error)
        first = config.log_initial_task_delay_ms
        for name, action, period_ms, idle_ms in (
            (
                "kafka-log-retention",
                self.retain,
                config.log_retention_check_interval_ms,
                self._retention_idle_ms,
            ),
            (
                "kafka-log-flusher",
                self.flush,
                config.log_flush_scheduler_interval_ms,
                self._flush_idle_ms,
            ),
            (
                "kafka-recovery-point-checkpoint",
                manager.checkpoint_recovery_points,
                config.log_flush_offset_checkpoint_interval_ms,
                _never_due,
            ),
            (
                "kafka-log-start-offset-checkpoint",
                manager.checkpoint_log_starts,
                config.log_flush_start_offset_checkpoint_interval_ms,
                _never_due,
            ),
        ):
            self._schedule(name, action, first, period_ms, idle_ms)
        watermarks_ms = max(config.replica_high_watermark_checkpoint_interval_ms, 1)
        self._schedule(
            "highwatermark-checkpoint",
            self.checkpoint_high_watermarks,
            watermarks_ms,
            watermarks_ms,
            _never_due,
        )
        self._schedule(
            "PeriodicProducerExpirationCheck",
            self.expire_producers,
            0,
            config.producer_id_expiration_check_interval_ms,
            self._expiration_idle_ms,
        )

    def _schedule(
        self,
        name: str,
        action: Callable[[], None],
        delay_ms: int,
        period_ms: int,
        idle_ms: Callable[[], int | None],
    ) -> None:
        if period_ms < INT64_MAX:
            task = self._manager.runtime.scheduler.schedule(
                # Kafka runs a task whose interval is not positive only once.
                name,
                action,
                delay_ms=delay_ms,
                period_ms=period_ms if period_ms > 0 else None,
                idle_ms=idle_ms,
            )
            self._tasks.append(task)

    def stop(self) -> None:
        """Cancel the tasks."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def follow(self, events: LogEvents) -> Iterable[Unsubscribe]:
        """Wake the tasks after a change, so that their next run checks the logs."""
        return (
            events.log_changed.subscribe(self._on_log_changed),
            events.partition_added.subscribe(self._wake),
            events.partition_removed.subscribe(self._wake),
            events.partition_moved.subscribe(self._wake),
            events.config_changed.subscribe(self._wake),
        )

    def _on_log_changed(self) -> None:
        self._watermarks_moved = True
        self._wake()

    def _wake(self, *_: object) -> None:
        for task in self._tasks:
            task.wake()

    # -- tasks ---------------------------------------------------------------------------

    def retain(self) -> None:
        """Run retention over the topics that are not compacted."""
        self._must_retry = False
        for log in self._retained_logs():
            tp = log.topic_partition
            is_done = False
            # The topic may have been compacted until now, and a cleaning pass might still be
            # running.
            with (
                _log_and_continue(tp, "retention"),
                self._manager.services.paused_if_idle(tp) as is_idle,
            ):
                if is_idle:
                    log_removals(log.delete_old_segments())
                    is_done = True
            self._must_retry |= not is_done

    def _retained_logs(self) -> list[Log]:
        adopted = {topic.name for topic in self._manager.catalog.topics() if topic.adopted}
        return [
            log
            for log in self._manager.registry.open_logs()
            if not (log.is_offline or log.topic_partition.topic in adopted or log.config.compact)
        ]

    def _retention_idle_ms(self) -> int | None:
        """Return the time until a segment expires, ignoring expired segments that remain."""
        return 0 if self._must_retry else self._ms_until_next(self._retained_logs(), _expiry_ms)

    def flush(self) -> None:
        """Flush the logs whose last flush was at least `flush.ms` ago."""
        now_ms = self._manager.runtime.clock.now_ms()
        for log in self._manager.registry.open_logs():
            if not log.is_offline and now_ms - log.last_flush_ms >= log.config.flush_ms:
                with _log_and_continue(log.topic_partition, "flush"):
                    log.flush()

    def _flush_idle_ms(self) -> int | None:
        return self._ms_until_next(self._manager.registry.open_logs(), _flush_due_ms)

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks if any may have changed."""
        if self._watermarks_moved:
            self._watermarks_moved = False
            self._manager.checkpoint_high_watermarks()

    def expire_producers(self) -> None:
        """Forget producer ids that have been idle for `producer.id.expiration.ms`."""
        now_ms = self._manager.runtime.clock.now_ms()
        for log in self._manager.registry.open_logs():
            with log.lock:
                log.producer_state.remove_expired(now_ms)

    def _expiration_idle_ms(self) -> int | None:
        now_ms = self._manager.runtime.clock.now_ms()
        return self._ms_until_next(
            self._manager.registry.open_logs(),
            lambda log: log.producer_state.next_expiry_ms(now_ms),
        )

    def _ms_until_next(
        self, logs: Iterable[Log], time_of: Callable[[Log], int | None]
    ) -> int | None:
        """Return the ms until the earliest future time of any log, or None if no log has one."""
        now_ms = self._manager.runtime.clock.now_ms()
        times = []
        for log in logs:
            with suppress(UnknownTopicOrPartitionError), log.lock:  # just deleted
                times.append(time_of(log))
        left_ms = (
            time_ms - now_ms for time_ms in times if time_ms is not None and time_ms > now_ms
        )
        return min(left_ms, default=None)


def _never_due() -> None:
    """Return None, because the task is only due after a change."""


def _expiry_ms(log: Log) -> int | None:
    return log.next_expiry_ms()


def _flush_due_ms(log: Log) -> int | None:
    if log.is_offline or log.log_end_offset <= log.recovery_point:
        return None
    return log.last_flush_ms + log.config.flush_ms
