"""Background work: tasks that run at monotonic times, in threads or one after another.

Usage
-----
The owner of a `Runtime` starts and shuts down its scheduler. Other code schedules and cancels
tasks::

    runtime.scheduler.start()
    task = runtime.scheduler.schedule(
        "kafka-log-retention", manager.cleanup_logs, delay_ms=30_000, period_ms=300_000
    )
    ...
    task.cancel()
    runtime.scheduler.shutdown()

Before `start` and after `shutdown`, a scheduler runs nothing. As in Kafka, it then ignores new
tasks and returns them cancelled. `run_all` and `wait_until` always work. Task names are Kafka's.

Execution
---------
`ThreadScheduler` has its own threads, `DeterministicScheduler` has none. On a `VirtualClock`, tasks
run inside `clock.advance(...)`, `sleep` and `set_ms` at their due times; on other clocks, only
inside `run_due` and `wait_until`. Code that waits for a task must call `wait_until`, because in a
single thread, no task would run during the code's own loop. After simulating a crash of a program,
shut down its scheduler. Otherwise its tasks continue to run during the next program.

Tasks may schedule, cancel, wait and sleep. A period is measured from due time to due time, like
`scheduleAtFixedRate` in `KafkaScheduler`. However, a single run makes up for all due times that
were missed because a run was late or took long.

A periodic task can report how long its runs would have no effect (`idle_ms`). In virtual time,
these runs are skipped, so that years pass as quickly as days. Code that changes the inputs of the
task must call `ScheduledTask.wake`. The task then runs at the due times of its period, in the same
order among other tasks as if it had not slept (unless tasks themselves take time).

Errors
------
An error in a task is logged, counted and stored as its `last_error`. It stops neither the period
nor other tasks. An `AssertionError`, or an error that is not an `Exception` (a simulated crash, an
interrupt), is counted and then raised: to the caller that let time pass, or from a thread to
`threading.excepthook`.
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
"""Delays of 292 years or more never end. In Kafka, 2⁶³ − 1 ms means never."""


_schedulers: WeakSet[QueueScheduler] = WeakSet()


class Deadlock(AssertionError):
    """A wait cannot end, because no tasks are left or tasks run endlessly."""


_Key = tuple[int, float, int, int]
"""The order of tasks: due time, random number of the seed, start of the wait, number."""


class ScheduledTask:
    """A task in a scheduler, created by `Scheduler.schedule`.

    Attributes
    ----------
    name : str
        Name for logs and threads.
    cancelled : bool
        Whether the task was cancelled or ignored, so that it is not run again.
    is_running : bool
        Whether the task is currently running.
    runs, failures : int
        Number of completed runs, and of failed runs.
    last_error : BaseException or None
        The error of the last failed run, or None if no run has failed.

    Notes
    -----
    Attributes are read-only and can be read by any thread.
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
        """Run the task at its next due time, because its inputs have changed.

        For tasks with `idle_ms`. Thread-safe, and cheap if the task is not asleep.
        """
        self._was_woken = True
        if self._is_asleep:
            self._owner.wake(self)

    def cancel(self) -> None:
        """Prevent further runs. A run in progress continues; see `is_running`.

        A second call has no effect. Thread-safe, and allowed in the task itself.
        """
        self._owner.cancel(self)


class Scheduler(Protocol):
    """Runs background work; see the module."""

    @property
    def is_started(self) -> bool:
        """Whether tasks are accepted and run."""

    @property
    def is_concurrent(self) -> bool:
        """Whether tasks run concurrently. If not, long tasks should return early to yield."""

    def start(self) -> None:
        """Accept and run tasks, even after a shutdown. Has no effect if already started."""

    def shutdown(self) -> None:
        """Cancel all tasks and wait for running tasks.

        After the return, no task runs. If a task calls this, it waits for no tasks.
        """

    def schedule(
        self,
        name: str,
        action: Callable[[], None],
        *,
        delay_ms: int = 0,
        period_ms: int | None = None,
        idle_ms: Callable[[], int | None] | None = None,
    ) -> ScheduledTask:
        """Run `action` once after `delay_ms` and then, if given, every `period_ms`.

        Parameters
        ----------
        name : str
            Name for logs and threads.
        action : callable
            Never runs concurrently with itself.
        delay_ms : int
            Monotonic time until the first run in milliseconds, at least 0.
        period_ms : int, optional
            Time between due times in milliseconds, at least 1.
        idle_ms : callable, optional
            Called after a run in virtual time, unless the task was woken during the run. Returns
            for how many milliseconds further runs have no effect unless the task is woken, or None
            for an unlimited time.

        Returns
        -------
        ScheduledTask
            Already cancelled if the scheduler is not started.

        Raises
        ------
        ValueError
            `delay_ms` or `period_ms` is out of range.
        """

    def run_all(self, tasks: Sequence[Callable[[], T]], *, threads: int) -> list[T | BaseException]:
        """Run independent jobs in up to `threads` new threads and wait for them.

        Returns
        -------
        list
            The result or error of each job, in the order of `tasks`.

        Raises
        ------
        AssertionError, BaseException
            The first `AssertionError` or error that is not an `Exception`, raised after the running
            jobs have ended. No further jobs are started.
        """

    def wait_until(self, predicate: Callable[[], bool], *, timeout_ms: int | None = None) -> bool:
        """Wait until `predicate` is true, while other tasks run.

        Parameters
        ----------
        predicate : callable
            Called repeatedly, without holding a lock. It must not wait.
        timeout_ms : int, optional
            Timeout in milliseconds of monotonic time. [default: no timeout]

        Returns
        -------
        bool
            False if the predicate was still false at the timeout.

        Raises
        ------
        Deadlock
            As far as the scheduler can determine, the predicate cannot become true.
        """

    def notify(self) -> None:
        """Make waiters evaluate their predicates immediately, as the end of a task does."""


class QueueScheduler:
    """A queue of tasks by due time. Subclasses decide when and in which thread tasks run.

    Invariants: the queue contains each waiting task once, and no cancelled or running tasks.
    Running tasks are in `_running`, tasks that sleep until they are woken in `_asleep`. The queue
    is empty while the scheduler is not started.
    """

    def __init__(self, clock: Clock, rng: random.Random | None = None) -> None:
        self._clock = clock
        self._rng = rng
        self._lock = threading.RLock()
        self._queue: list[tuple[_Key, ScheduledTask]] = []
        self._numbers = itertools.count()
        self._running: dict[ScheduledTask, None] = {}  # used as an ordered set
        self._asleep: set[ScheduledTask] = set()  # without a due time
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
        """Run a sleeping task at the next due time of its period."""
        with self._lock:
            if not task._is_asleep or task.cancelled:
                return
            self._take_back(task)
            period_ns = task._period_ns
            assert period_ns is not None, "only periodic tasks sleep"
            if self._running:
                # Later tasks with the same due time have not run yet.
                current = next(reversed(self._running))
                due_ns = _due_from(task._ran_ns, period_ns, current._due_ns)
                if self._key_of(task, due_ns, due_ns - period_ns) < current._key:
                    due_ns += period_ns
            else:
                due_ns = _due_from(task._ran_ns, period_ns, self._clock.monotonic_ns() + 1)
            due_ns = max(due_ns, task._ran_ns + period_ns)
            self._push(task, due_ns, due_ns - period_ns)

    def _take_back(self, task: ScheduledTask) -> None:
        """Remove a task from the queue. The caller must hold the lock."""
        task._is_asleep = False
        self._asleep.discard(task)
        self._queue = [entry for entry in self._queue if entry[-1] is not task]
        heapq.heapify(self._queue)

    def notify(self) -> None:
        """Do nothing, because no other thread can be waiting."""

    def next_due_ns(self) -> int | None:
        """Return when the next task is due, in monotonic time, or None if there is none."""
        with self._lock:
            return self._queue[0][0][0] if self._queue else None

    def next_due_name(self) -> str | None:
        """Return the name of the next task, or None if there is none."""
        with self._lock:
            return self._queue[0][-1].name if self._queue else None

    def _on_scheduled(self) -> None:
        """Make sure that a newly queued task is run. The caller must hold the lock."""

    def _in_task(self) -> AbstractContextManager[None]:
        """Return a context for the action of a task."""
        return nullcontext()

    def _push(self, task: ScheduledTask, due_ns: int, since_ns: int) -> None:
        """Queue a task that has been waiting since a given time."""
        task._due_ns = due_ns
        task._key = self._key_of(task, due_ns, since_ns)
        heapq.heappush(self._queue, (task._key, task))

    def _key_of(self, task: ScheduledTask, due_ns: int, since_ns: int) -> _Key:
        """Return the sort key of a task.

        Among tasks with the same due time, the one that has waited longest is first.
        """
        tie = 0.0 if self._rng is None else self._rng.random()
        return due_ns, tie, since_ns, task._number

    def _idle_ns(self, task: ScheduledTask) -> int | None:
        """Return how long the runs of a task are skipped. None means forever."""
        return 0

    def _pop(self, now_ns: int, due_ns: int) -> ScheduledTask | None:
        """Start the run of the first task due at or before `due_ns`, or return None."""
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
            task._was_woken = True  # the next run retries
            if not is_contained(error):
                raise
            logger.exception("scheduled task %s failed", task.name)
        finally:
            self._finish(task)

    def _finish(self, task: ScheduledTask) -> None:
        # Do not hold the lock, because a thread that wakes a task may hold a lock that `idle_ms`
        # acquires.
        idle_ns = self._idle_ns(task)
        with self._lock:
            task.runs += 1
            task.is_running = False
            self._running.pop(task, None)  # missing in a forked child
            period_ns = task._period_ns
            if period_ns is not None and not task.cancelled and self._started:
                missed = max(0, task._started_ns - task._due_ns) // period_ns
                due_ns = task._due_ns + (missed + 1) * period_ns
                task._is_asleep = idle_ns != 0
                if task._was_woken:  # read last, because `wake` uses the opposite order
                    idle_ns, task._is_asleep = 0, False
                if idle_ns is None:
                    self._asleep.add(task)
                else:
                    if idle_ns:
                        awake_ns = self._clock.monotonic_ns() + idle_ns
                        due_ns = max(due_ns, _due_from(due_ns, period_ns, awake_ns))
                    self._push(task, due_ns, due_ns - period_ns)
        self.notify()

    def _forget_in_child(self) -> None:
        """Run nothing in a forked child, because tasks and threads belong to the parent.

        The lock is replaced, because another thread may have held it during the fork.
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


def _due_from(anchor_ns: int, period_ns: int, earliest_ns: int) -> int:
    """Return the first due time at or after `earliest_ns`. `anchor_ns` is any due time."""
    return anchor_ns + -(-(earliest_ns - anchor_ns) // period_ns) * period_ns


def _forget_in_child() -> None:
    for scheduler in list(_schedulers):
        scheduler._forget_in_child()


os.register_at_fork(after_in_child=_forget_in_child)


def is_contained(error: BaseException) -> bool:
    """Return whether an error is stored in its task instead of raised; see the module."""
    return isinstance(error, Exception) and not isinstance(error, AssertionError)


def outcome(task: Callable[[], T]) -> T | BaseException:
    """Run a job. Return its result, or its error if `is_contained`."""
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
