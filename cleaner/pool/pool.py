"""The pool of cleaner threads.

The pool starts and stops with the log manager. Workers are generators (`worker`) that the runtime's
scheduler runs. With threads, each worker runs until it must sleep. In virtual time, workers take
steps in an order that depends on the seed. Source: docs/spec/cleaner.md §11 and §12, KAFKA-631.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.cleaner.pool.metrics import CleanerMetrics, metrics_of
from logstore.cleaner.pool.throttle import Throttles
from logstore.cleaner.pool.worker import CleanerWorker
from logstore.runtime import Signal
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from logstore.cleaner.manager import LogCleanerManager
    from logstore.cleaner.stats import CleanerStats
    from logstore.config.broker_config import BrokerConfig
    from logstore.manager.services import LogEvents
    from logstore.runtime import Runtime, ScheduledTask, Unsubscribe


class _Thread:
    """A worker, its state, and the task for its next steps."""

    def __init__(self, worker: CleanerWorker) -> None:
        self.worker = worker
        self.rounds: Generator[int, None, None] = worker.rounds()
        self.task: ScheduledTask | None = None
        self.error: BaseException | None = None
        self.is_stopped = False
        self.rounds_missed: _Rounds | None = None
        self.sleeps = False  # until a log might become due without an append
        self.wakes_ms = 0  # monotonic ms


class _Rounds(NamedTuple):
    """Rounds without work, one per back-off period, from a given monotonic time (ms) on."""

    since_ms: int
    backoff_ms: int

    def passed_ms(self, now_ms: int) -> int:
        """Return the time since the last round."""
        return (now_ms - self.since_ms) % self.backoff_ms


class CleanerPool:
    """The cleaner threads of a log manager.

    Parameters
    ----------
    runtime : Runtime
        If its scheduler has threads, it must have one extra thread per worker.
    manager : LogCleanerManager
        Checkpoints, states and decisions, which are shared with other callers.
    config : BrokerConfig
        Number, memory and limits of the workers. If `log.cleaner.enable` is false, there are none.

    Attributes
    ----------
    pass_ended : Signal of CleanerStats
        Statistics of each completed pass. Emitted in the worker's thread, without holding a lock.

    Notes
    -----
    Thread-safe, except that `start`, `stop` and `reconfigure` must not run concurrently.
    """

    def __init__(
        self,
        runtime: Runtime,
        manager: LogCleanerManager,
        config: BrokerConfig,
    ) -> None:
        self._scheduler = runtime.scheduler
        self._clock = runtime.clock
        self._manager = manager
        self._config = config
        self.pass_ended: Signal[[CleanerStats]] = Signal("the end of a pass")
        self._lock = runtime.lock()
        self._threads: list[_Thread] = []
        self._sleeps = False
        manager.changed.subscribe(self._wake_sleepers)
        # Without threads, the clock does not advance during a step.
        manager.lifetime.add(self)
        self._throttles = Throttles(runtime, config, eager=not runtime.scheduler.is_concurrent)

    def __repr__(self) -> str:
        return f"CleanerPool({len(self._threads)} workers)"

    def follow(self, events: LogEvents) -> Iterable[Unsubscribe]:
        """After each change, examine the logs in the next round. Apply new settings."""
        return (
            events.partition_added.subscribe(self._wake_sleepers),
            events.config_changed.subscribe(self._wake_sleepers),
            events.log_changed.subscribe(self._wake_sleepers),
            events.reconfigured.subscribe(self.reconfigure),
        )

    def start(self) -> None:
        """Start the workers. The first round starts immediately."""
        if not self._config.log_cleaner_enable:
            return
        for number in range(self._config.log_cleaner_threads):
            worker = CleanerWorker(
                self._manager,
                self._throttles,
                number=number,
                backoff_ms=self._config.log_cleaner_backoff_ms,
                on_pass=self.pass_ended.emit,
            )
            thread = _Thread(worker)
            self._threads.append(thread)
            self._schedule(thread, 0)

    def stop(self) -> None:
        """Stop all workers and wait for them. Passes in progress are aborted."""
        with self._lock:
            threads, self._threads = self._threads, []
            for thread in threads:
                thread.is_stopped = True
        for thread in threads:
            task = thread.task
            if task is not None:
                task.cancel()
                self._scheduler.wait_until(partial(_is_over, task))
            thread.rounds.close()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply new settings.

        Limits change immediately, then all workers are restarted, which also replaces dead workers.
        Passes in progress are aborted and start again.
        """
        self._throttles.configure(config)
        self.stop()
        self._config = config
        self.start()

    @property
    def is_running(self) -> bool:
        """Whether any worker is alive."""
        return any(thread.error is None for thread in self._threads)

    @property
    def dead_thread_count(self) -> int:
        """Number of workers that died of an interrupt or simulated crash, not of an `Exception`."""
        return sum(thread.error is not None for thread in self._threads)

    def workers(self) -> list[tuple[CleanerWorker, bool]]:
        """Return the workers, and whether each is alive."""
        return [(thread.worker, thread.error is None) for thread in list(self._threads)]

    def metrics(self) -> CleanerMetrics:
        """Return Kafka's cleaner gauges."""
        workers = [thread.worker for thread in self._threads]
        metrics = metrics_of(self._manager, workers, self.dead_thread_count)
        now_ms = self._clock.monotonic_ms()
        rounds = [t.rounds_missed for t in self._threads if t.rounds_missed is not None]
        return replace(
            metrics,
            time_since_last_run_ms=min(
                (metrics.time_since_last_run_ms, *(missed.passed_ms(now_ms) for missed in rounds))
            ),
        )

    # -- driving -------------------------------------------------------------------------

    def _schedule(self, thread: _Thread, delay_ms: int) -> None:
        with self._lock:
            if not thread.is_stopped:
                thread.task = self._scheduler.schedule(
                    thread.worker.name, partial(self._advance, thread), delay_ms=delay_ms
                )

    def _advance(self, thread: _Thread) -> None:
        """Run the next steps of a worker until it sleeps or yields."""
        thread.rounds_missed, thread.sleeps = None, False
        while not thread.is_stopped:
            try:
                delay_ms = next(thread.rounds)
                if thread.worker.is_quiet and not self._scheduler.is_concurrent:
                    delay_ms = self._sleep_through(thread, delay_ms)
            except BaseException as error:
                thread.error = error
                raise
            if delay_ms or not self._scheduler.is_concurrent:
                self._schedule(thread, delay_ms)
                return

    def _sleep_through(self, thread: _Thread, backoff_ms: int) -> int:
        """Return the time in ms until the first round that might have work.

        Otherwise, several months of virtual time would include a million empty rounds. Periodic
        tasks of the scheduler use `idle_ms` for this, but a worker schedules each of its steps
        itself.
        """
        now_ms = self._clock.monotonic_ms()
        thread.rounds_missed = _Rounds(now_ms, backoff_ms)
        thread.sleeps = self._sleeps = True
        due_ms = self._manager.chooser.next_due_ms()
        delay_ms = INT64_MAX - now_ms
        if due_ms is not None:
            left_ms = max(1, due_ms - self._clock.now_ms())
            delay_ms = -(-left_ms // backoff_ms) * backoff_ms
        thread.wakes_ms = now_ms + delay_ms
        return delay_ms

    def _wake_sleepers(self, *_: object) -> None:
        """Wake the workers that skip rounds, starting with the next round."""
        if not self._sleeps:
            return
        with self._lock:
            self._sleeps = False
            now_ms = self._clock.monotonic_ms()
            for thread in self._threads:
                missed = thread.rounds_missed
                if thread.sleeps and missed is not None and thread.task is not None:
                    thread.sleeps = False
                    left_ms = missed.backoff_ms - missed.passed_ms(now_ms)
                    if now_ms + left_ms < thread.wakes_ms:
                        thread.task.cancel()
                        self._schedule(thread, left_ms)


def _is_over(task: ScheduledTask) -> bool:
    return not task.is_running
