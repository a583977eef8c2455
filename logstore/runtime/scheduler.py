"""Background work: tasks at moments of monotonic time, by threads or one after another.

How it is used
--------------
The owner of a `Runtime` starts its scheduler and shuts it down; whoever has background work
schedules it and cancels it again::

    runtime.scheduler.start()
    task = runtime.scheduler.schedule(
        "kafka-log-retention", manager.cleanup_logs, delay_ms=30_000, period_ms=300_000
    )
    ...
    task.cancel()
    runtime.scheduler.shutdown()

Before `start` and after `shutdown` a scheduler runs nothing: as in Kafka, a task given to it then
is ignored and comes back cancelled. `run_all` and `wait_until` work at any time. Names are Kafka's.

Who runs it
-----------
`ThreadScheduler` has threads of its own. `DeterministicScheduler` has none: on a `VirtualClock`
tasks run inside `clock.advance(...)` (and `sleep`, `set_ms`), at their moments; on other clocks
inside `run_due` and `wait_until` alone. Code that must wait for what a task does calls
`wait_until`, never a loop of its own: in one thread nobody else would run meanwhile. A program
that was crashed on purpose leaves its scheduler behind: shut that down, or its tasks go on in
the next one's time.

Tasks may schedule, cancel, wait and sleep. A period counts from due moment to due moment (as
`scheduleAtFixedRate` does in `KafkaScheduler`), but whatever moments a run missed, because it was
late or the one before it took long, are made up for by that one run.

A periodic task can say how long its runs will change nothing (`idle_ms`). In virtual time those
runs are left out, so that years pass as quickly as days; whoever changes what the task looks at
calls `ScheduledTask.wake`. It runs at the moments of its period alone, and among the tasks of one
moment in the order that it would have had without sleep (as long as no task takes time itself).

Errors
------
What a task raises is logged, counted and kept as its `last_error`, and neither its period nor
any other task stops. A broken invariant (`AssertionError`) or what is no `Exception` (a simulated
crash, an interrupt) is counted as well and then passed on: to the caller that made time pass, or
from a thread to `threading.excepthook`.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar
from weakref import WeakSet

from logstore.runtime.clock import Clock

T = TypeVar("T")

logger = logging.getLogger(__name__)

NEVER_NS = 2**63 - 1
"""Delays of 292 years and more never end: Kafka's "never" is 2⁶³ − 1 ms."""


_schedulers: WeakSet[QueueScheduler] = WeakSet()


class Deadlock(AssertionError):
    """The awaited event cannot come: nothing is left to run, or it runs for ever."""


_Key = tuple[int, float, int, int]
"""Due moment, what a seed draws, since when it waits, number: the order in which tasks run."""


class ScheduledTask:
    """A piece of background work; made by `Scheduler.schedule`.

    Attributes
    ----------
    name : str
        As given.
    cancelled : bool
        Whether it was cancelled, or ignored: no run begins any more.
    is_running : bool
        Whether a run is under way.
    runs, failures : int
        Runs that have ended, and how many of them by an error.
    last_error : BaseException or None
        That of the last failure.

    Notes
    -----
    Attributes are for reading, from any thread.
    """

    __slots__ = (
        "_action",
        "_due_ns",
        "_idle_ms",
        "_is_asleep",
        "_key",
        "_number",
        "_owner",
        "_period_ns",
        "_ran_ns",
        "_started_ns",
        "_was_woken",
        "cancelled",
        "failures",
        "is_running",
        "last_error",
        "name",
        "runs",
    )

    def __init__(
        self,
        name: str,
        action: Callable[[], None],
        period_ms: int | None,
        owner: QueueScheduler,
        *,
        number: int = 0,
        idle_ms: Callable[[], int | None] | None = None,
    ) -> None:
        self.name = name
        self._action = action
        self._period_ns = None if period_ms is None else period_ms * 1_000_000
        self._owner = owner
        self._number = number
        self._idle_ms = idle_ms
        self._due_ns = 0
        self._key: _Key = (0, 0.0, 0, 0)
        self._started_ns = 0
        self._ran_ns = 0
        self._is_asleep = False
        self._was_woken = False
        self.cancelled = False
        self.is_running = False
        self.runs = 0
        self.failures = 0
        self.last_error: BaseException | None = None

    def __repr__(self) -> str:
        state = "running" if self.is_running else "cancelled" if self.cancelled else "waiting"
        return f"<ScheduledTask {self.name}: {state}, {self.runs} runs, {self.failures} failed>"

    def wake(self) -> None:
        """Run again from the next moment of the period on: what the runs look at has changed.

        For a task with `idle_ms`; quick if it does not sleep. Any thread may call.
        """
        self._was_woken = True
        if self._is_asleep:
            self._owner.wake(self)

    def cancel(self) -> None:
        """Prevent further runs; one under way goes on (`is_running` tells).

        A second call does nothing. Any thread may call, the task itself included.
        """
        self._owner.cancel(self)


class Scheduler(Protocol):
    """Runs background work; see the module."""

    @property
    def is_started(self) -> bool:
        """Whether tasks are accepted and run."""
        ...

    @property
    def is_concurrent(self) -> bool:
        """Whether tasks run beside each other; if not, long work gives way by ending its run."""
        ...

    def start(self) -> None:
        """Accept and run tasks, also again after a shutdown; if started, do nothing."""
        ...

    def shutdown(self) -> None:
        """Cancel all tasks and wait for those that are running; if not started, do nothing more.

        No task runs once it has returned. A task may call it: then it waits for none.
        """
        ...

    def schedule(
        self,
        name: str,
        action: Callable[[], None],
        *,
        delay_ms: int = 0,
        period_ms: int | None = None,
        idle_ms: Callable[[], int | None] | None = None,
    ) -> ScheduledTask:
        """Run `action` once after `delay_ms`, and then every `period_ms` if that is given.

        Parameters
        ----------
        name : str
            For logs and threads.
        action : callable
            Never runs twice at the same time.
        delay_ms : int
            Milliseconds of monotonic time until the first run, at least 0.
        period_ms : int, optional
            Milliseconds from one due moment to the next, at least 1.
        idle_ms : callable, optional
            Asked after a run in virtual time: for how many ms from now on runs change nothing,
            unless the task is woken; None: for ever. Not asked if it was woken during the run.

        Returns
        -------
        ScheduledTask
            Cancelled already if the scheduler is not started.

        Raises
        ------
        ValueError
            `delay_ms` or `period_ms` is out of range.
        """
        ...

    def run_all(self, tasks: Sequence[Callable[[], T]], *, threads: int) -> list[T | BaseException]:
        """Run independent jobs on up to `threads` threads of their own, and wait for them.

        Returns
        -------
        list
            What each job returned or raised, in the order of `tasks`.

        Raises
        ------
        AssertionError, BaseException
            The first of a broken invariant or of what is no `Exception`, once the jobs that
            were begun have ended; no other is begun then.
        """
        ...

    def wait_until(self, predicate: Callable[[], bool], *, timeout_ms: int | None = None) -> bool:
        """Wait until `predicate` is true, while other tasks run.

        Parameters
        ----------
        predicate : callable
            Asked again and again, without a lock held; it must not wait.
        timeout_ms : int, optional
            Milliseconds of monotonic time after which to give up; never by default.

        Returns
        -------
        bool
            False if it was still false at the end of the time.

        Raises
        ------
        Deadlock
            Nothing can make it true any more, as far as the scheduler can tell.
        """
        ...

    def notify(self) -> None:
        """Make waiters evaluate their predicates at once, as the end of a task does."""
        ...


class QueueScheduler:
    """Tasks by due moment, and what running one means; when and by whom is for subclasses.

    Holds: the queue has every task that waits for a run, once; none of those is cancelled or
    running. What runs is in `_running`, what sleeps until it is woken in `_asleep`. Nothing is
    queued while not started.
    """

    def __init__(self, clock: Clock, rng: random.Random | None = None) -> None:
        self._clock = clock
        self._rng = rng
        self._lock = threading.RLock()
        self._queue: list[tuple[_Key, ScheduledTask]] = []
        self._numbers = itertools.count()
        self._running: dict[ScheduledTask, None] = {}  # a set in the order of its members
        self._asleep: set[ScheduledTask] = set()  # without a due moment
        self._started = False
        _schedulers.add(self)

    @property
    def is_started(self) -> bool:
        """Whether tasks are accepted and run."""
        return self._started

    def schedule(
        self,
        name: str,
        action: Callable[[], None],
        *,
        delay_ms: int = 0,
        period_ms: int | None = None,
        idle_ms: Callable[[], int | None] | None = None,
    ) -> ScheduledTask:
        """Run `action` after a delay, once or periodically; see `Scheduler.schedule`."""
        if delay_ms < 0:
            raise ValueError(f"task {name}: delay of {delay_ms} ms")
        if period_ms is not None and period_ms < 1:
            raise ValueError(f"task {name}: period of {period_ms} ms")
        number = next(self._numbers)
        task = ScheduledTask(name, action, period_ms, self, number=number, idle_ms=idle_ms)
        with self._lock:
            if self._started:
                now_ns = self._clock.monotonic_ns()
                if delay_ms * 1_000_000 < NEVER_NS:
                    self._push(task, now_ns + delay_ms * 1_000_000, now_ns)
                self._on_scheduled()
            else:
                task.cancelled = True
                logger.info("task %s is ignored: the scheduler is not running", name)
        return task

    def cancel(self, task: ScheduledTask) -> None:
        """Prevent further runs of a task."""
        with self._lock:
            task.cancelled = True
            self._take_back(task)
        self.notify()

    def wake(self, task: ScheduledTask) -> None:
        """Run a sleeping task at the next moment of its period."""
        with self._lock:
            if not task._is_asleep or task.cancelled:
                return
            self._take_back(task)
            period_ns = task._period_ns
            assert period_ns is not None, "only periodic tasks sleep"
            if self._running:
                # Tasks after that one at its moment are still to come.
                current = next(reversed(self._running))
                due_ns = _moment_from(task._ran_ns, period_ns, current._due_ns)
                if self._key_of(task, due_ns, due_ns - period_ns) < current._key:
                    due_ns += period_ns
            else:
                due_ns = _moment_from(task._ran_ns, period_ns, self._clock.monotonic_ns() + 1)
            due_ns = max(due_ns, task._ran_ns + period_ns)
            self._push(task, due_ns, due_ns - period_ns)

    def _take_back(self, task: ScheduledTask) -> None:
        """Remove a task from the queue. The lock is held."""
        task._is_asleep = False
        self._asleep.discard(task)
        self._queue = [entry for entry in self._queue if entry[-1] is not task]
        heapq.heapify(self._queue)

    def notify(self) -> None:
        """Do nothing: nobody waits in another thread."""

    def next_due_ns(self) -> int | None:
        """Return the monotonic moment at which the next task is due, maybe past."""
        with self._lock:
            return self._queue[0][0][0] if self._queue else None

    def next_due_name(self) -> str | None:
        """Return the name of the next task."""
        with self._lock:
            return self._queue[0][-1].name if self._queue else None

    def _on_scheduled(self) -> None:
        """Make sure that what was just queued is run. The lock is held."""

    def _in_task(self) -> AbstractContextManager[None]:
        """Return what surrounds the action of a task."""
        return nullcontext()

    def _push(self, task: ScheduledTask, due_ns: int, since_ns: int) -> None:
        """Queue a task that waits since a moment."""
        task._due_ns = due_ns
        task._key = self._key_of(task, due_ns, since_ns)
        heapq.heappush(self._queue, (task._key, task))

    def _key_of(self, task: ScheduledTask, due_ns: int, since_ns: int) -> _Key:
        """Return the place of a task in the order: of one moment, who waits longest is first."""
        tie = 0.0 if self._rng is None else self._rng.random()
        return due_ns, tie, since_ns, task._number

    def _idle_ns(self, task: ScheduledTask) -> int | None:
        """Return for how long runs of a task are left out; None for ever."""
        return 0

    def _pop(self, now_ns: int, due_ns: int) -> ScheduledTask | None:
        """Begin the run of the first task that is due at `due_ns`."""
        with self._lock:
            if not self._queue or self._queue[0][0][0] > due_ns:
                return None
            task = heapq.heappop(self._queue)[-1]
            task._started_ns = now_ns
            task._ran_ns = task._due_ns
            task._is_asleep = task._was_woken = False
            task.is_running = True
            self._running[task] = None
            return task

    def _run(self, task: ScheduledTask) -> None:
        try:
            with self._in_task():
                task._action()
        except BaseException as error:
            task.failures += 1
            task.last_error = error
            task._was_woken = True  # the next run tries again
            if not is_contained(error):
                raise
            logger.exception("scheduled task %s failed", task.name)
        finally:
            self._finish(task)

    def _finish(self, task: ScheduledTask) -> None:
        # Without the lock: who wakes a task may hold a lock that is asked for here.
        idle_ns = self._idle_ns(task)
        with self._lock:
            task.runs += 1
            task.is_running = False
            self._running.pop(task, None)  # in a forked child it is not there
            period_ns = task._period_ns
            if period_ns is not None and not task.cancelled and self._started:
                missed = max(0, task._started_ns - task._due_ns) // period_ns
                due_ns = task._due_ns + (missed + 1) * period_ns
                task._is_asleep = idle_ns != 0
                if task._was_woken:  # asked last: who wakes it asks the other way round
                    idle_ns, task._is_asleep = 0, False
                if idle_ns is None:
                    self._asleep.add(task)
                else:
                    if idle_ns:
                        awake_ns = self._clock.monotonic_ns() + idle_ns
                        due_ns = max(due_ns, _moment_from(due_ns, period_ns, awake_ns))
                    self._push(task, due_ns, due_ns - period_ns)
        self.notify()

    def _forget_in_child(self) -> None:
        """Run nothing in a forked child: its tasks are the parent's, and so are its threads.

        Nor may anybody wait there for the lock, which another thread may have held.
        """
        self._lock = threading.RLock()
        self._started = False
        self._queue = []
        self._running = {}
        self._asleep = set()

    def _check(self) -> None:
        with self._lock:
            queued = [entry[-1] for entry in self._queue]
            assert self._started or not queued
            assert len(set(queued)) == len(queued)
            assert not self._running.keys() & set(queued)
            assert not self._asleep & (self._running.keys() | set(queued))
            assert all(task._is_asleep and not task.cancelled for task in self._asleep)
            assert not any(task.cancelled or task.is_running for task in queued)
            assert all(task.is_running for task in self._running)
            assert all(entry[0] == entry[-1]._key for entry in self._queue)
            assert all(entry[0][0] == entry[-1]._due_ns for entry in self._queue)
            for number, entry in enumerate(self._queue[1:], 1):
                assert self._queue[(number - 1) // 2] <= entry

    def _stop(self) -> None:
        with self._lock:
            self._started = False
            waiting = [entry[-1] for entry in self._queue]
            for task in (*self._running, *self._asleep, *waiting):
                task.cancelled = True
            self._queue.clear()
            self._asleep.clear()


def _moment_from(anchor_ns: int, period_ns: int, earliest_ns: int) -> int:
    """Return the first moment of a period at or after another one; `anchor_ns` is one of them."""
    return anchor_ns + -(-(earliest_ns - anchor_ns) // period_ns) * period_ns


def _forget_in_child() -> None:
    for scheduler in list(_schedulers):
        scheduler._forget_in_child()


os.register_at_fork(after_in_child=_forget_in_child)


def is_contained(error: BaseException) -> bool:
    """Tell whether an error stays with the work that raised it; see the module."""
    return isinstance(error, Exception) and not isinstance(error, AssertionError)


def outcome(task: Callable[[], T]) -> T | BaseException:
    """Return what a job returns, or the error that it raises if that stays with it."""
    try:
        return task()
    except BaseException as error:
        if not is_contained(error):
            raise
        return error


def check_threads(threads: int) -> None:
    """Refuse a number of threads below 1."""
    if threads < 1:
        raise ValueError(f"{threads} threads")
