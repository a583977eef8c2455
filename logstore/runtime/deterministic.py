"""Background work in one thread: in the order of due moments, as time is made to pass."""

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
"""Moments of one wait, and runs at one moment beyond those that were due from the start."""

POLL_S = 0.01
"""How often a wait that only another thread can end evaluates its predicate."""


class DeterministicScheduler(QueueScheduler):
    """One thread, which is the caller's; the same calls always give the same order.

    Tasks run in the order of their due moments; those of one moment in the order in which they
    began to wait for it (a periodic one: at the moment before) and then in that in which they were
    scheduled or, with a seed, in one drawn from it.

    Parameters
    ----------
    clock : Clock
        A `VirtualClock` runs the tasks as it advances, from `start` to `shutdown`.
    seed : int, optional
        Another order of tasks due at one moment for each seed.
    runs_max : int
        Moments after which a wait, and runs after which a moment, is taken to last for ever.

    Notes
    -----
    While a task runs, time that it lets pass only moves; what comes due then runs after it, late.
    In a `wait_until` inside a task others do run, on top of it: what such a task in turn waits for
    must not be something that the one beneath has yet to do (threads could; here it is a
    `Deadlock`).

    Any thread may schedule and cancel; one at a time may let time pass or wait, and what others do
    meanwhile ends no wait: on a clock that is not virtual that sleeps until the next task is due.
    """

    is_concurrent = False

    def __init__(self, clock: Clock, seed: int | None = None, *, runs_max: int = RUNS_MAX) -> None:
        super().__init__(clock, None if seed is None else random.Random(seed))
        self._virtual_clock = clock if isinstance(clock, VirtualClock) else None
        self._runs_max = runs_max

    def start(self) -> None:
        """Accept and run tasks; if started, do nothing."""
        with self._lock:
            if not self._started:
                self._started = True
                if self._virtual_clock is not None:
                    self._virtual_clock.subscribe(self)

    def shutdown(self) -> None:
        """Cancel all tasks; one that is running can only be the caller."""
        self._stop()
        if self._virtual_clock is not None:
            self._virtual_clock.unsubscribe(self)

    def _forget_in_child(self) -> None:
        super()._forget_in_child()
        if self._virtual_clock is not None:
            self._virtual_clock.unsubscribe(self)

    def next_due_ms(self) -> int | None:
        """Return when the next task is due, in Unix ms, if wall time runs on as monotonic time.

        Rounded up, so that it is due at that time; the current time if it is late; None if there
        is no task.
        """
        due_ns = self.next_due_ns()
        if due_ns is None:
            return None
        left_ns = max(0, due_ns - self._clock.monotonic_ns())
        return self._clock.now_ms() - (-left_ns // 1_000_000)

    def run_due(self, due_ns: int | None = None) -> int:
        """Run every task that is due, also those that these schedule.

        Parameters
        ----------
        due_ns : int, optional
            Latest due moment, inclusive, of monotonic time; the current one by default.

        Returns
        -------
        int
            How many runs there were.

        Raises
        ------
        Deadlock
            They never end: tasks schedule each other again and again without a delay.
        """
        if due_ns is None:
            due_ns = self._clock.monotonic_ns()
        runs_max = self._runs_max + len(self._queue)
        runs = 0
        while (task := self._pop(self._clock.monotonic_ns(), due_ns)) is not None:
            self._run(task)
            runs += 1
            if runs >= runs_max:
                raise Deadlock(f"{runs} tasks run at one moment, the last of them {task.name}")
        return runs

    def run_all(self, tasks: Sequence[Callable[[], T]], *, threads: int) -> list[T | BaseException]:
        """Run jobs one after another in the calling thread; see `Scheduler.run_all`."""
        check_threads(threads)
        return [outcome(task) for task in tasks]

    def wait_until(self, predicate: Callable[[], bool], *, timeout_ms: int | None = None) -> bool:
        """Run what comes due, moving time along, until `predicate` is true.

        See `Scheduler.wait_until`. It is asked after each moment at which something ran. If nothing
        is due, but a server on the virtual clock has clients that may end the wait, it blocks.
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
                raise Deadlock(f"nothing is due that could end the wait; {self._whereabouts()}")
            steps += 1
            if steps >= self._runs_max:
                raise Deadlock(f"{steps} moments did not end the wait; {self._whereabouts()}")
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

    def _sleep_until(self, moment_ns: int | None) -> None:
        if moment_ns is not None:
            self._clock.sleep(max(0, moment_ns - self._clock.monotonic_ns()) / 1e9)

    def _idle_ns(self, task: ScheduledTask) -> int | None:
        # On other clocks nobody is there at the moments that a change would have to be seen at.
        if self._virtual_clock is None or task._idle_ms is None or task._was_woken:
            return 0
        idle_ms = task._idle_ms()
        return None if idle_ms is None else max(0, idle_ms) * 1_000_000

    def _in_task(self) -> AbstractContextManager[None]:
        return nullcontext() if self._virtual_clock is None else self._virtual_clock.held()

    def _whereabouts(self) -> str:
        running = ", ".join(sorted(task.name for task in self._running))
        return f"inside {running}" if running else "inside no task"
