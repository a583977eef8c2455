"""Waiting for logs: a coroutine sleeps until one of them has something new, or its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from logstore.errors import LogStoreError

if TYPE_CHECKING:
    from logstore.log.log import Log
    from logstore.runtime.loops import LoopThread


class Watch:
    """Some logs, watched while it is entered.

    Notes
    -----
    A log tells of a change in whatever thread made it, under the log's lock: there only the loop is
    woken, and that once for all changes until the coroutine has looked.
    """

    def __init__(self, loops: LoopThread, logs: Iterable[Log]) -> None:
        self._loops = loops
        self._logs = list(logs)
        self._subscriptions = ExitStack()
        self._has_changed = False
        self._waiter: asyncio.Future[bool] | None = None

    def __enter__(self) -> Self:
        for log in self._logs:
            try:
                self._subscriptions.callback(log.subscribe(self._on_change))
            except LogStoreError:  # it was deleted, or its broker closed, just now
                self._has_changed = True
        return self

    def __exit__(self, *_: object) -> None:
        self._subscriptions.close()

    def _on_change(self) -> None:
        if not self._has_changed:
            self._has_changed = True
            self._loops.wake(self._wake)

    def _wake(self) -> None:
        self._finish(True)

    def _finish(self, has_come: bool) -> None:  # the result of the future
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(has_come)

    async def until(self, deadline: float, is_enough: Callable[[], bool]) -> bool:
        """Wait until changes bring about what is asked for; False if the loop's time came first."""
        loop = self._loops.loop
        while True:
            if self._has_changed:
                self._has_changed = False  # before the look: what comes meanwhile wakes again
                if is_enough():
                    return True
            if loop.time() >= deadline:
                return False
            self._waiter = loop.create_future()
            timer = loop.call_at(deadline, self._finish, False)
            try:
                if not self._has_changed:
                    await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
