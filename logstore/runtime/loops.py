"""An event loop in its own thread, for servers that wait on many sockets.

The loop uses the system's monotonic time, even if the engine uses a different clock, because
clients use system time.
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
"""Maximum number of concurrent blocking calls of a loop."""

_PAUSE_S = 1e-4


class LoopThread:
    """A daemon thread that runs an event loop, with a few threads for blocking calls.

    Parameters
    ----------
    name : str
        Suffix of the thread names, `logstore-<name>`.
    clock : Clock, optional
        The broker's clock. A virtual clock is notified that other threads are active while this
        loop runs.

    Notes
    -----
    `call`, `wake`, `submit` and `stop` are for other threads, `blocking` is for coroutines in the
    loop. In a forked child, the thread does not exist, and `stop` has no effect.
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
        """The event loop, for code that runs in it."""
        return self._loop

    @property
    def is_usable(self) -> bool:
        """Whether the thread is running in this process."""
        return os.getpid() == self._pid and self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller is the thread of the loop."""
        return threading.current_thread() is self._thread

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result."""
        assert not self.is_current, "the loop cannot wait for itself"
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def wake(self, action: Callable[[], object]) -> None:
        """Schedule an action in the loop without waiting. Ignored if the loop has stopped."""
        if self.is_current:
            self._loop.call_soon(action)
            return
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:  # closed in the meantime
            if not self._loop.is_closed():
                raise

    async def blocking(self, call: Callable[[], T]) -> T:
        """Run a call in a thread for blocking calls."""
        return await self._loop.run_in_executor(self._executor, call)

    async def to_its_end(self, call: Callable[[], T]) -> T:
        """Run a blocking call. Cancellation is delayed until the call has returned."""
        work = self._loop.run_in_executor(self._executor, call)
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            work.exception()  # retrieve the exception, so that asyncio does not log it
            raise cancelled
        return work.result()

    def submit(self, call: Callable[[], object]) -> None:
        """Run a blocking call without waiting for it. `stop` waits until it has returned."""
        self._executor.submit(_logged, call)

    def stop(self) -> None:
        """Stop the loop and its threads after all blocking calls have returned."""
        if self._clock is not None:
            self._clock.remove_server(self)
        if not self.is_usable:
            return
        self._executor.shutdown()
        self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.is_current:
            self._thread.join()


def give_way() -> None:
    """Let other threads run during a long computation.

    The interpreter only switches threads every 5 ms. A loop that requires several switches per
    response would be delayed by a multiple of that.
    """
    time.sleep(_PAUSE_S)


def _logged(call: Callable[[], object]) -> None:
    """Make a call and log its error."""
    try:
        call()
    except Exception:
        logger.exception("background work of a loop failed")
