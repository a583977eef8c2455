"""The timers of sessions and rebalances.

A timer runs its action once, when the monotonic clock reaches its time, with the coordinator's lock
held. With a virtual clock, `advance` runs the action; with the system clock, a thread does. All
timers can be moved from a virtual clock to the system clock, for members in other processes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from logstore.runtime import SystemClock, VirtualClock
from logstore.runtime.environment import background_scheduler
from logstore.runtime.threads import PacedScheduler

if TYPE_CHECKING:
    from logstore.coordinator.groups.calls import ExclusiveCalls
    from logstore.runtime import Runtime, ScheduledTask, Scheduler
    from logstore.runtime.clock import Clock


class GroupTimers:
    """Runs actions of the group coordinator at given monotonic times.

    Parameters
    ----------
    runtime : Runtime
    calls : ExclusiveCalls
        Each action is run as an exclusive call.
    """

    def __init__(self, runtime: Runtime, calls: ExclusiveCalls) -> None:
        self._runtime = runtime
        self._clock: Clock = runtime.clock
        self._calls = calls
        self._scheduler: Scheduler | None = None
        self.own_scheduler: Scheduler | None = None
        # The time, name and action of each timer, and its task.
        self._timers: dict[int, tuple[int, str, Callable[[], None], ScheduledTask]] = {}
        self._numbers = count()

    @property
    def scheduler(self) -> Scheduler:
        """The runtime's scheduler if that is started, or a scheduler of the coordinator."""
        if self._scheduler is None:
            if self._runtime.scheduler.is_started:
                self._scheduler = self._runtime.scheduler
            else:
                self.own_scheduler = self._scheduler = background_scheduler(self._clock)
        if not self._scheduler.is_started:
            self._scheduler.start()
        return self._scheduler

    def now_ns(self) -> int:
        """Return the monotonic time."""
        return self._clock.monotonic_ns()

    def after(self, delay_ms: int, name: str, action: Callable[[], None]) -> None:
        """Run an action after a delay."""
        self.at(self.now_ns() + delay_ms * 1_000_000, name, action)

    def at(self, due_ns: int, name: str, action: Callable[[], None]) -> None:
        """Run an action at a monotonic time."""
        number = next(self._numbers)

        def run() -> None:
            with self._calls():
                # Another thread may have just moved all timers to a different clock.
                if self._timers.pop(number, None) is not None:
                    action()

        left_ms = -(-(due_ns - self.now_ns()) // 1_000_000)
        task = self.scheduler.schedule(name, run, delay_ms=max(0, left_ms))
        self._timers[number] = (due_ns, name, action, task)

    def use_system_clock(self) -> int | None:
        """Move all timers to the system clock, keeping their remaining times.

        Returns
        -------
        int or None
            The difference between the clocks in nanoseconds, which the caller must add to
            deadlines, or None if the timers already use the system clock.
        """
        if not isinstance(self._clock, VirtualClock):
            return None
        self.stop()
        system = SystemClock()
        shift_ns = system.monotonic_ns() - self._clock.monotonic_ns()
        timers, self._timers = self._timers, {}
        self.own_scheduler = self._scheduler = PacedScheduler(self._clock, threads=1)
        self._clock = system
        for due_ns, name, action, task in timers.values():
            task.cancel()
            self.at(due_ns + shift_ns, name, action)
        return shift_ns

    def stop(self) -> None:
        """Stop the scheduler if the coordinator started it."""
        if self.own_scheduler is not None:
            self.own_scheduler.shutdown()
