"""The purgatory: operations that are answered once others have done something, or time is over.

A fetch that waits for bytes, an append that waits for its replicas, a deletion that waits until no
replica has the records: each is an object with a question, `is_done`, and something that tells when
to ask it again. Nobody polls, and nobody is asked under a lock: whoever brings a change about wakes
the one who waits, and that one asks.
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
    """An operation that waits."""

    def is_done(self) -> bool:
        """Tell whether there is an answer, which the operation has from then on.

        Asked without a lock, by whoever waits; it does not wait itself.
        """

    def subscribe(self, listener: Callable[[], object]) -> Unsubscribe:
        """Tell a listener whenever there may be an answer, in any thread, maybe under a lock."""


class Purgatory:
    """The operations of one broker, or of one cluster, that wait.

    Notes
    -----
    Any thread may call. In virtual time the waiting lets time pass.
    """

    def __init__(self) -> None:
        self._waiting: dict[object, int] = {}

    def __repr__(self) -> str:
        return f"Purgatory({len(self)} wait)"

    def __len__(self) -> int:
        """Return how many operations wait (Kafka's PurgatorySize)."""
        return sum(list(self._waiting.values()))

    def wait(
        self,
        operations: Sequence[DelayedOperation],
        scheduler: Scheduler,
        *,
        timeout_ms: int | None = None,
    ) -> bool:
        """Wait until all operations have an answer, while the scheduler's tasks run.

        Returns
        -------
        bool
            False if the time was over first.

        Raises
        ------
        Deadlock
            Nothing is due any more that could bring an answer about; see `Scheduler.wait_until`.
        """
        with self._subscribed(operations, scheduler.notify):
            return scheduler.wait_until(_all_done(operations), timeout_ms=timeout_ms)

    async def wait_in(
        self, loops: LoopThread, operations: Sequence[DelayedOperation], deadline: float
    ) -> bool:
        """Wait until all operations have an answer, as a coroutine of a loop.

        Parameters
        ----------
        deadline : float
            In the loop's time, which is the machine's, whatever clock the engine has.

        Returns
        -------
        bool
            False if the time was over first.
        """
        woken = _Woken(loops)
        are_done = _all_done(operations)
        with self._subscribed(operations, woken.tell):
            # Asked after the subscription: nothing that came about meanwhile is missed.
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
    """Return a question about all of them; one that has its answer is not asked again."""
    left = list(operations)

    def are_done() -> bool:
        left[:] = [operation for operation in left if not operation.is_done()]
        return not left

    return are_done


class _Woken:
    """A sleep of a coroutine that any thread may end; told often, it wakes the loop once."""

    def __init__(self, loops: LoopThread) -> None:
        self._loops = loops
        self._is_told = False
        self._sleeper: asyncio.Future[bool] | None = None

    def tell(self) -> None:
        if not self._is_told:
            self._is_told = True
            self._loops.wake(self._wake)

    def _wake(self) -> None:
        self._finish(True)

    def _finish(self, is_told: bool) -> None:  # the result of the future
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(is_told)

    async def until(self, deadline: float) -> bool:
        """Sleep until told, if it was not yet; False if the loop's time came first."""
        loop = self._loops.loop
        if loop.time() >= deadline:
            return False
        self._sleeper = loop.create_future()
        timer = loop.call_at(deadline, self._finish, False)
        try:
            # Whoever told before has the loop wake the sleeper as soon as this coroutine waits.
            if not await self._sleeper:
                return False
        finally:
            timer.cancel()
            self._sleeper = None
        self._is_told = False  # before the question: what comes meanwhile wakes again
        return True
