"""The pool of cleaner threads: started and stopped with the log manager, resized while it runs.

Workers are generators (`cleaner.worker`); the runtime's scheduler drives them: in threads, each
until it has to sleep, or in virtual time one step after another, in the order of a seed.
Source: cleaner-semantics §11 and §12, KAFKA-631.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cleaner.metrics import CleanerMetrics, metrics_of
from cleaner.throttle import Throttles
from cleaner.worker import CleanerWorker, PassListener
from logstore.services import LogService

if TYPE_CHECKING:
    from collections.abc import Generator

    from cleaner.manager import LogCleanerManager
    from cleaner.stats import CleanerStats
    from logstore.config import BrokerConfig
    from logstore.runtime import Runtime, ScheduledTask


class _Thread:
    """A worker, how far it is, and the task that takes its next steps."""

    def __init__(self, worker: CleanerWorker) -> None:
        self.worker = worker
        self.rounds: Generator[int, None, None] = worker.rounds()
        self.task: ScheduledTask | None = None
        self.error: BaseException | None = None
        self.is_stopped = False


class CleanerPool(LogService):
    """Cleaner threads over the logs of a log manager.

    Parameters
    ----------
    runtime : Runtime
        Its scheduler, if it has threads, must have one for each worker besides those that other
        tasks need.
    manager : LogCleanerManager
        Checkpoints, states and decisions, shared with whoever else cleans.
    config : BrokerConfig
        How many workers, their memory and limits. With `log.cleaner.enable` false there are none.

    Attributes
    ----------
    on_pass : callable or None
        Told the numbers of each pass that came to its end, in the thread of its worker.

    Notes
    -----
    Any thread may call; `start`, `stop` and `reconfigure` one at a time.
    """

    def __init__(
        self,
        runtime: Runtime,
        manager: LogCleanerManager,
        config: BrokerConfig,
    ) -> None:
        self._scheduler = runtime.scheduler
        self._manager = manager
        self._config = config
        self.on_pass: PassListener | None = None
        self._lock = runtime.lock()
        self._threads: list[_Thread] = []
        # Without threads time stands still while a step is taken.
        self._throttles = Throttles(runtime, config, eager=not runtime.scheduler.is_concurrent)

    def start(self) -> None:
        """Begin to clean, at once."""
        if not self._config.log_cleaner_enable:
            return
        for number in range(self._config.log_cleaner_threads):
            worker = CleanerWorker(
                self._manager,
                self._throttles,
                number=number,
                backoff_ms=self._config.log_cleaner_backoff_ms,
                on_pass=self._tell,
            )
            thread = _Thread(worker)
            self._threads.append(thread)
            self._schedule(thread, 0)

    def stop(self) -> None:
        """Stop every worker and wait for it; a pass under way ends like an aborted one."""
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
        """Take up other settings: new limits at once, then all workers anew.

        A worker that died is replaced. A pass under way is given up; it begins again.
        """
        self._throttles.configure(config)
        self.stop()
        self._config = config
        self.start()

    @property
    def is_running(self) -> bool:
        """Whether there is a worker alive."""
        return any(thread.error is None for thread in self._threads)

    @property
    def dead_thread_count(self) -> int:
        """Workers that ended by an error which is no fault of a log."""
        return sum(thread.error is not None for thread in self._threads)

    def metrics(self) -> CleanerMetrics:
        """Return Kafka's gauges of the cleaner as they are now."""
        workers = [thread.worker for thread in self._threads]
        return metrics_of(self._manager, workers, self.dead_thread_count)

    def _tell(self, stats: CleanerStats) -> None:
        if self.on_pass is not None:
            self.on_pass(stats)

    # -- driving -------------------------------------------------------------------------

    def _schedule(self, thread: _Thread, delay_ms: int) -> None:
        with self._lock:
            if not thread.is_stopped:
                thread.task = self._scheduler.schedule(
                    thread.worker.name, partial(self._advance, thread), delay_ms=delay_ms
                )

    def _advance(self, thread: _Thread) -> None:
        """Take a worker's next step, and the ones after it until it sleeps or gives way."""
        delay_ms = 0
        while not thread.is_stopped:
            try:
                delay_ms = next(thread.rounds)
            except BaseException as error:
                thread.error = error
                raise
            if delay_ms > 0 or not self._scheduler.is_concurrent:
                self._schedule(thread, delay_ms)
                return


def _is_over(task: ScheduledTask) -> bool:
    return not task.is_running
