"""Background work in threads, like Kafka's `KafkaScheduler`."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from logstore.runtime.clock import Clock, SystemClock, VirtualClock
from logstore.runtime.scheduler import QueueScheduler, ScheduledTask, check_threads, outcome

T = TypeVar("T")

logger = logging.getLogger(__name__)

BACKGROUND_THREADS = 10
"""Kafka's default of `background.threads`."""

POLL_MS = 50
"""Interval at which a waiting thread evaluates its predicate without a `notify`."""


class ThreadScheduler(QueueScheduler):
    """Runs tasks in daemon threads. Threads are started on demand, and at most one is idle.

    While a thread runs a task, it is named `logstore-<name>`.

    Parameters
    ----------
    clock : Clock
        Must not be a virtual clock. Waits use its monotonic time.
    threads : int
        Maximum number of concurrent tasks. Further due tasks run late.

    Attributes
    ----------
    threads : int
        The parameter. A change applies to tasks that become due later.

    Raises
    ------
    ValueError
        `threads` is below 1, or the clock is virtual.

    Notes
    -----
    Thread-safe. A waiting task occupies its thread. If it waits for other tasks, it needs a
    timeout, because a full pool or a shutdown delays these tasks.
    """

    is_concurrent = True

    def __init__(self, clock: Clock, threads: int = BACKGROUND_THREADS) -> None:
        if isinstance(clock, VirtualClock):
            raise ValueError(  # noqa: TRY004  # any other clock of the same type would do
                "virtual time requires a single thread: use a DeterministicScheduler"
            )
        check_threads(threads)
        super().__init__(clock)
        self.threads = threads
        self._wakeup = threading.Condition(self._lock)
        self._workers: set[threading.Thread] = set()
        self._worker_numbers = itertools.count()
        self._changed = threading.Condition()
        self._changes = 0

    def _forget_in_child(self) -> None:
        super()._forget_in_child()
        self._wakeup = threading.Condition(self._lock)
        self._workers = set()
        self._changed = threading.Condition()

    def start(self) -> None:
        """Accept and run tasks. The first thread is started for the first task."""
        with self._lock:
            self._started = True

    def shutdown(self) -> None:
        """Cancel all tasks and wait for running tasks; see `Scheduler.shutdown`."""
        self._stop()
        with self._lock:
            self._wakeup.notify_all()
            workers = set(self._workers)
        self.notify()
        if threading.current_thread() not in workers:
            for worker in workers:
                worker.join()

    def run_all(self, tasks: Sequence[Callable[[], T]], *, threads: int) -> list[T | BaseException]:
        """Run jobs in parallel; see `Scheduler.run_all`. With one thread, use the caller's."""
        check_threads(threads)
        if threads == 1 or len(tasks) < 2:
            return [outcome(task) for task in tasks]
        results: dict[int, T | BaseException] = {}
        errors: dict[int, BaseException] = {}
        pending = deque(enumerate(tasks))

        def work() -> None:
            while pending:
                try:
                    number, task = pending.popleft()
                except IndexError:  # another thread was faster
                    return
                try:
                    results[number] = outcome(task)
                except BaseException as error:
                    errors[number] = error
                    pending.clear()

        helpers = [
            threading.Thread(target=work, name=f"logstore-job-{number}", daemon=True)
            for number in range(min(threads, len(tasks)))
        ]
        try:
            for helper in helpers:
                helper.start()
            for helper in helpers:
                helper.join()
        finally:
            pending.clear()
        if errors:
            raise errors[min(errors)]
        return [results[number] for number in range(len(tasks))]

    def wait_until(self, predicate: Callable[[], bool], *, timeout_ms: int | None = None) -> bool:
        """Block until `predicate` is true; see `Scheduler.wait_until`."""
        limit_ns = None
        if timeout_ms is not None:
            limit_ns = self._clock.monotonic_ns() + timeout_ms * 1_000_000
        while True:
            # Read this before the predicate, so that no notification in between is missed.
            changes = self._changes
            if predicate():
                return True
            seconds = POLL_MS / 1000
            if limit_ns is not None:
                left_ns = limit_ns - self._clock.monotonic_ns()
                if left_ns <= 0:
                    return False
                seconds = min(seconds, left_ns / 1e9)
            self._pause(changes, seconds)

    def _pause(self, changes: int, seconds: float) -> None:
        """Block for `seconds`, or until a notification after `changes`."""
        with self._changed:
            if self._changes == changes:
                self._changed.wait(seconds)

    def notify(self) -> None:
        """Make waiting threads evaluate their predicates immediately."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def _on_scheduled(self) -> None:
        if self._has_idle():
            self._wakeup.notify()
        elif len(self._workers) < self.threads:
            name = f"logstore-scheduler-{next(self._worker_numbers)}"
            worker = threading.Thread(target=self._work, name=name, daemon=True)
            try:
                worker.start()
            except RuntimeError as error:  # no more threads are available
                if not self._workers:
                    raise
                logger.warning(
                    "tasks are waiting because all %d threads are busy: %s",
                    len(self._workers),
                    error,
                )
            else:
                self._workers.add(worker)

    def _has_idle(self, *, more_than: int = 0) -> bool:
        """Return whether more than `more_than` threads are idle and waiting for the queue."""
        return len(self._workers) - len(self._running) > more_than

    def _work(self) -> None:
        try:
            while self._work_once():
                pass
        finally:  # if a hook fails, the thread must not count as idle forever
            with self._lock:
                self._workers.discard(threading.current_thread())

    def _work_once(self) -> bool:
        task = self._take()
        if task is None:
            return False
        thread = threading.current_thread()
        own_name, thread.name = thread.name, f"logstore-{task.name}"
        try:
            self._run(task)
        except BaseException as error:
            arguments = (type(error), error, error.__traceback__, thread)
            threading.excepthook(threading.ExceptHookArgs(arguments))
        finally:
            thread.name = own_name
        return True

    def _take(self) -> ScheduledTask | None:
        """Wait for a due task. Return None if the thread is no longer needed."""
        with self._lock:
            while self._started:
                now_ns = self._clock.monotonic_ns()
                task = self._pop(now_ns, now_ns)
                if task is not None:
                    if self._queue:
                        self._on_scheduled()  # another thread must wait for the remaining tasks
                    return task
                if self._has_idle(more_than=1):
                    self._wakeup.notify()  # the next due time might have changed
                    break
                self._wakeup.wait(self._seconds_to_next(now_ns))
            # Immediately, so that this thread no longer counts as idle.
            self._workers.discard(threading.current_thread())
            return None

    def _seconds_to_next(self, now_ns: int) -> float | None:
        due_ns = self.next_due_ns()
        if due_ns is None:
            return None
        return min((due_ns - now_ns) / 1e9, threading.TIMEOUT_MAX)


class PacedScheduler(ThreadScheduler):
    """Runs tasks in threads on the system clock, and moves a virtual clock along during waits.

    For a broker with a virtual clock and clients in other programs. These clients use the system
    clock, so a caller that waits for them must block. While the caller blocks, the virtual clock
    advances as far as the system clock does, but never beyond the timeout.

    Parameters
    ----------
    clock : VirtualClock
    threads : int
        See `ThreadScheduler`.
    """

    def __init__(self, clock: VirtualClock, threads: int = BACKGROUND_THREADS) -> None:
        super().__init__(SystemClock(), threads)
        self._virtual_clock = clock

    def wait_until(self, predicate: Callable[[], bool], *, timeout_ms: int | None = None) -> bool:
        """Block until `predicate` is true; see `Scheduler.wait_until`.

        The timeout is in virtual time, which others may advance as well. After a wait that timed
        out, the virtual clock is at the end of the timeout or later. Tasks on the virtual clock run
        in the calling thread. The predicate is evaluated after each due time.
        """
        virtual = self._virtual_clock
        started_ns, real_started_ns = virtual.monotonic_ns(), self._clock.monotonic_ns()
        limit_ns = None if timeout_ms is None else started_ns + timeout_ms * 1_000_000
        while True:
            changes = self._changes
            if predicate():
                return True
            seconds = POLL_MS / 1000
            if limit_ns is not None:
                left_ns = limit_ns - virtual.monotonic_ns()
                if left_ns <= 0:
                    return False
                seconds = min(seconds, left_ns / 1e9)
            due_ms = virtual.next_event_ms()
            if due_ms is not None:
                seconds = min(seconds, max(0, due_ms - virtual.now_ms()) / 1000)
            self._pause(changes, seconds)
            until_ns = started_ns + self._clock.monotonic_ns() - real_started_ns
            until_ns = until_ns if limit_ns is None else min(until_ns, limit_ns)
            while virtual.step(until_ns):
                if predicate():
                    return True
