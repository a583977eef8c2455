"""Exclusive calls of the group coordinator.

A call holds one lock throughout. Results for members that wait, possibly in other calls, are
collected during the call and passed to their callbacks after the lock is released, so a callback
may call the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from logstore.runtime.environment import VERIFY


class ExclusiveCalls:
    """The coordinator's lock, and the replies to send after its release.

    Parameters
    ----------
    lock : context manager
        A reentrant lock.
    prepare : callable
        Called at the start of a call with its argument `expires`: whether offsets may expire first.
    verify : callable
        Asserts invariants at the end of a call, if LOGSTORE_VERIFY is set.
    """

    def __init__(
        self,
        lock: AbstractContextManager[object],
        prepare: Callable[[bool], None],
        verify: Callable[[], None],
    ) -> None:
        self._lock = lock
        self._prepare = prepare
        self._verify = verify
        self._depth = 0
        self._replies: list[Callable[[], object]] = []

    def reply(self, on_done: Callable[[Any], object], result: object) -> None:
        """Call a callback with a result at the end of the current call."""
        self._replies.append(partial(on_done, result))

    @contextmanager
    def __call__(self, *, expires: bool = True) -> Iterator[None]:
        """Hold the lock; after its release, send the replies."""
        ready: list[Callable[[], object]] = []
        try:
            with self._lock:
                self._depth += 1
                try:
                    if self._depth == 1:
                        self._prepare(expires)
                    yield
                finally:
                    self._depth -= 1
                    if self._depth == 0:
                        ready, self._replies = self._replies, []
                if VERIFY:
                    self._verify()
        finally:
            for reply in ready:
                reply()
