"""The purgatory, in which operations wait for a condition or a timeout.

For example, a fetch waits for bytes, an append for its replication, and a deletion until no replica
has the records. Each operation has a condition (`is_done`) and signals when it should be checked
again. The thread that makes a change only wakes up the waiting thread, which checks the condition
itself. Nothing polls, and no lock is held during the check.

Source: Kafka's DelayedOperationPurgatory and DelayedOperation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from logstore.runtime.loops import LoopThread
    from logstore.runtime.scheduler import Scheduler
    from logstore.runtime.signals import Unsubscribe


class DelayedOperation(Protocol):
    """An operation that waits for a condition."""

    def is_done(self) -> bool:
        """Return whether the operation is complete. If it is, store its result.

        The waiting thread calls this method without holding a lock. It must not block.
        """

    def subscribe(self, listener: Callable[[], object]) -> Unsubscribe:
        """Call the listener when `is_done` may have changed.

        Any thread may call the listener, possibly while holding locks.
        """


class Purgatory:
    """The waiting operations of a broker or a cluster. The class is thread-safe.

    With a virtual clock, waiting advances the clock.
    """

    def __init__(self) -> None:
        self._waiting: dict[object, int] = {}

    def __repr__(self) -> str:
        return f"Purgatory({len(self)} wait)"

    def __len__(self) -> int:
        """Return the number of waiting operations (Kafka's PurgatorySize)."""
        return sum(list(self._waiting.values()))

    def wait(
        self,
        operations: Sequence[DelayedOperation],
        scheduler: Scheduler,
        *,
        timeout_ms: int | None = None,
    ) -> bool:
        """Wait until all operations are complete, while the scheduler's tasks run.

        Returns
        -------
        bool
            False if the timeout expired.

        Raises
        ------
        Deadlock
            No remaining task can complete an operation; see `Scheduler.wait_until`.
        """
        with self._subscribed(operations, scheduler.notify):
            return scheduler.wait_until(_all_done(operations), timeout_ms=timeout_ms)

    async def wait_in(
        self, loops: LoopThread, operations: Sequence[DelayedOperation], deadline: float
    ) -> bool:
        """Wait in a coroutine until all operations are complete.

        Parameters
        ----------
        deadline : float
            By the event loop's clock, which is real time even if the broker has a virtual clock.

        Returns
        -------
        bool
            False if the timeout expired.
        """
        woken = _Event(loops)
        are_done = _all_done(operations)
        with self._subscribed(operations, woken.set):
            # Check the conditions after subscribing, so that no change is missed.
            while not are_done():
                if not await woken.until(deadline):
                    return are_done()
        return True

    @contextmanager
    def _subscribed(
        self, operations: Sequence[DelayedOperation], listener: Callable[[], object]
    ) -> Iterator[None]:
        wait = object()
        self._waiting[wait] = len(operations)
        with ExitStack() as subscriptions:
            subscriptions.callback(self._waiting.pop, wait)
            for operation in operations:
                subscriptions.callback(operation.subscribe(listener))
            yield


def _all_done(operations: Sequence[DelayedOperation]) -> Callable[[], bool]:
    """Return a function that checks all operations, but completed operations only once."""
    left = list(operations)

    def are_done() -> bool:
        left[:] = [operation for operation in left if not operation.is_done()]
        return not left

    return are_done


class _Event:
    """An event that any thread can set. Repeated sets wake up the event loop only once."""

    def __init__(self, loops: LoopThread) -> None:
        self._loops = loops
        self._is_set = False
        self._sleeper: asyncio.Future[bool] | None = None

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            self._loops.wake(self._wake)

    def _wake(self) -> None:
        self._finish(True)

    def _finish(self, is_set: bool) -> None:  # the result of the future
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(is_set)

    async def until(self, deadline: float) -> bool:
        """Wait until the event is set, and clear it. Return False at the deadline."""
        loop = self._loops.loop
        if loop.time() >= deadline:
            return False
        self._sleeper = loop.create_future()
        timer = loop.call_at(deadline, self._finish, False)
        try:
            # If the event is already set, the event loop ends the wait immediately.
            if not await self._sleeper:
                return False
        finally:
            timer.cancel()
            self._sleeper = None
        # clear the event before the check, so that a concurrent change sets it again
        self._is_set = False
        return True
