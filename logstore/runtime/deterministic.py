"""Background work in a single thread, in the order of due times, as virtual time passes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from logstore.runtime.clock import Clock, SystemClock, VirtualClock
from logstore.runtime.scheduler import (
    Deadlock,
    QueueScheduler,
    ScheduledTask,
    check_threads,
    outcome,
)

T = TypeVar("T")

RUNS_MAX = 100_000
"""Maximum number of due times in one wait, and of additional runs at one due time."""

POLL_S = 0.01
"""Interval at which a wait that only a different thread can end evaluates its predicate."""


class DeterministicScheduler(QueueScheduler):
    """Runs tasks in the caller's thread. Their order only depends on the calls.

    Tasks run in the order of their due times. Tasks due at the same time run in the order in which
    they started to wait (a periodic task: at its previous due time), then in the order in which
    they were scheduled. With a seed, their order is random.

    Parameters
    ----------
    clock : Clock
        A `VirtualClock` runs the tasks as it advances, from `start` to `shutdown`.
    seed : int, optional
        Each seed gives a different order of tasks that are due at the same time.
    runs_max : int
        Number of due times after which a wait counts as endless, and of runs after which a due time
        does.

    Notes
    -----
    If a running task lets time pass, tasks that become due run after it, late. However,
    `wait_until` inside a task runs other tasks, nested in the first. They must not wait for that
    task: this works with threads, but raises `Deadlock` here.

    Any thread may schedule and cancel tasks. Only one thread at a time may let time pass or wait.
    Other threads cannot end its wait: on a real clock, it sleeps until the next task is due.
    """

    is_concurrent = False

    def __init__(self, clock: Clock, seed: int | None = None, *, runs_max: int = RUNS_MAX) -> None:
        super().__init__(clock, None if seed is None else random.Random(seed))
        self._virtual_clock = clock if isinstance(clock, VirtualClock) else None
        self._runs_max = runs_max

    def start(self) -> None:
        """Accept and run tasks. Has no effect if already started."""
        with self._lock:
            if not self._started:
                self._started = True
                if self._virtual_clock is not None:
                    self._virtual_clock.subscribe(self)

    def shutdown(self) -> None:
        """Cancel all tasks. The only task that can be running is the caller."""
        self._stop()
        if self._virtual_clock is not None:
            self._virtual_clock.unsubscribe(self)

    def _forget_in_child(self) -> None:
        super()._forget_in_child()
        if self._virtual_clock is not None:
            self._virtual_clock.unsubscribe(self)

    def next_due_ms(self) -> int | None:
        """Return the wall-clock time at which the next task is due, in Unix milliseconds.

        The time is rounded up, so that the task is due by then. It is the current time if the task
        is late, and None if there are no tasks.
        """
        due_ns = self.next_due_ns()
        if due_ns is None:
            return None
        left_ns = max(0, due_ns - self._clock.monotonic_ns())
        return self._clock.now_ms() - (-left_ns // 1_000_000)

    def run_due(self, due_ns: int | None = None) -> int:
        """Run all due tasks, including the tasks that they schedule.

        Parameters
        ----------
        due_ns : int, optional
            Latest due time in monotonic time (inclusive). [default: the current time]

        Returns
        -------
        int
            Number of runs.

        Raises
        ------
        Deadlock
            The runs do not end, because tasks keep scheduling each other without a delay.
        """
        if due_ns is None:
            due_ns = self._clock.monotonic_ns()
        runs_max = self._runs_max + len(self._queue)
        runs = 0
        while (task := self._pop(self._clock.monotonic_ns(), due_ns)) is not None:
            self._run(task)
            runs += 1
            if runs >= runs_max:
                raise Deadlock(f"{runs} tasks ran at the same time, the last one is {task.name}")
        return runs

    def run_all(self, tasks: Sequence[Callable[[], T]], *, threads: int) -> list[T | BaseException]:
        """Run jobs one after another in the calling thread; see `Scheduler.run_all`."""
        check_threads(threads)
        return [outcome(task) for task in tasks]

    def wait_until(self, predicate: Callable[[], bool], *, timeout_ms: int | None = None) -> bool:
        """Run due tasks and advance time until `predicate` is true.

        See `Scheduler.wait_until`. The predicate is evaluated after each due time. If no tasks are
        due and clients of a server on the virtual clock could end the wait, the call blocks.
        """
        limit_ns = None
        if timeout_ms is not None:
            limit_ns = self._clock.monotonic_ns() + timeout_ms * 1_000_000
        steps = 0
        while not predicate():
            if limit_ns is not None and self._clock.monotonic_ns() >= limit_ns:
                return False
            if not self._step(limit_ns) and limit_ns is None:
                if self._virtual_clock is not None and self._virtual_clock.has_clients:
                    SystemClock().sleep(POLL_S)
                    continue
                raise Deadlock(f"no due task could end the wait; {self._describe_running()}")
            steps += 1
            if steps >= self._runs_max:
                raise Deadlock(
                    f"{steps} due times did not end the wait; {self._describe_running()}"
                )
        return True

    def _step(self, limit_ns: int | None) -> bool:
        if self._virtual_clock is not None:
            return self._virtual_clock.step(limit_ns)
        due_ns = self.next_due_ns()
        if due_ns is None or (limit_ns is not None and due_ns > limit_ns):
            self._sleep_until(limit_ns)
            return False
        self._sleep_until(due_ns)
        self.run_due()
        return True

    def _sleep_until(self, until_ns: int | None) -> None:
        if until_ns is not None:
            self._clock.sleep(max(0, until_ns - self._clock.monotonic_ns()) / 1e9)

    def _idle_ns(self, task: ScheduledTask) -> int | None:
        # On other clocks, no run would notice a change at the skipped due times.
        if self._virtual_clock is None or task._idle_ms is None or task._was_woken:
            return 0
        if task.cancelled:  # cancelled during its run; `idle_ms` might use a closed broker
            return 0
        idle_ms = task._idle_ms()
        return None if idle_ms is None else max(0, idle_ms) * 1_000_000

    def _in_task(self) -> AbstractContextManager[None]:
        return nullcontext() if self._virtual_clock is None else self._virtual_clock.held()

    def _describe_running(self) -> str:
        running = ", ".join(sorted(task.name for task in self._running))
        return f"inside {running}" if running else "inside no task"
