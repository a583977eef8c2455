"""An event loop in a thread of its own: for doors that wait for many at once, on sockets.

Its time is the machine's monotonic one, whatever clock the engine has: who is at the other end of
a socket lives in that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from logstore.runtime.clock import Clock, VirtualClock

logger = logging.getLogger(__name__)

T = TypeVar("T")

BLOCKING_THREADS = 8
"""Calls that block, of one loop, at the same time."""

_PAUSE_S = 1e-4


class LoopThread:
    """A daemon thread that runs an event loop, and a few more for what blocks.

    Parameters
    ----------
    name : str
        Of the threads: `logstore-<name>`.
    clock : Clock, optional
        The clock of the broker that is served. A virtual clock learns that other threads are at
        work while this loop runs.

    Notes
    -----
    `call`, `wake`, `beside` and `stop` are for other threads, `blocking` for coroutines of the
    loop. In a forked child the thread does not exist: there `stop` does nothing.
    """

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self._name = f"logstore-{name}"
        self._clock = clock if isinstance(clock, VirtualClock) else None
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._executor = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix=self._name)
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        if self._clock is not None:
            self._clock.add_server(self)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, for what runs in it."""
        return self._loop

    @property
    def is_usable(self) -> bool:
        """Whether the thread runs in this process."""
        return os.getpid() == self._pid and self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether it is the loop's thread that asks."""
        return threading.current_thread() is self._thread

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and wait for what it returns or raises."""
        assert not self.is_current, "the loop cannot wait for itself"
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def wake(self, action: Callable[[], object]) -> None:
        """Let the loop do something soon, and do not wait; nothing once it has stopped."""
        if self.is_current:
            self._loop.call_soon(action)
            return
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:  # it was closed meanwhile, and nobody is left to be woken
            if not self._loop.is_closed():
                raise

    async def blocking(self, call: Callable[[], T]) -> T:
        """Run a call in one of the other threads."""
        return await self._loop.run_in_executor(self._executor, call)

    async def to_its_end(self, call: Callable[[], T]) -> T:
        """Run a call in one of the other threads; whoever cancels this waits until it returned."""
        work = self._loop.run_in_executor(self._executor, call)
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            work.exception()  # nobody else asks for it, and it is not to be logged as lost
            raise cancelled
        return work.result()

    def beside(self, call: Callable[[], object]) -> None:
        """Run a call in one of the other threads, and do not wait; `stop` waits for its end."""
        self._executor.submit(_logged, call)

    def stop(self) -> None:
        """End the loop and its threads, once calls that block have returned."""
        if self._clock is not None:
            self._clock.remove_server(self)
        if not self.is_usable:
            return
        self._executor.shutdown()
        self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.is_current:
            self._thread.join()


def give_way() -> None:
    """Let the other threads of the process run, from a call that computes for long.

    The interpreter itself takes turns between threads every 5 ms only. A loop that needs several
    turns for an answer would be late by as many times that.
    """
    time.sleep(_PAUSE_S)


def _logged(call: Callable[[], object]) -> None:
    """Make a call whose outcome nobody looks at; what it raises is logged."""
    try:
        call()
    except Exception:
        logger.exception("work beside a loop failed")
