"""Exclusive calls of the group coordinator.

A call holds the coordinator's lock until it returns. It may complete the waiting requests of other
members. The callbacks run after the lock has been released, so that a callback can call the
coordinator, and after the call's records have been replicated to the in-sync replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from logstore.runtime.environment import VERIFY

if TYPE_CHECKING:
    from logstore.coordinator.host import CoordinatorHost
    from logstore.errors import LogStoreError
    from logstore.storage.log.log import Log


class Result(Protocol):
    """A result that a member is waiting for."""

    def refused(self, error: str) -> Self:
        """Return a copy of the result with an error."""


R = TypeVar("R", bound=Result)


class ExclusiveCalls:
    """The lock of the coordinator, and the callbacks to call when it is released.

    Parameters
    ----------
    lock : context manager
        A reentrant lock.
    host : CoordinatorHost
    take_written : callable
        Returns the last offset written to each log since it was last called.
    prepare : callable
        Called at the start of each call. Its argument states whether offsets may expire first.
    verify : callable
        Asserts invariants at the end of each call if LOGSTORE_VERIFY is set.
    """

    def __init__(
        self,
        lock: AbstractContextManager[object],
        host: CoordinatorHost,
        take_written: Callable[[], dict[Log, int]],
        prepare: Callable[[bool], None],
        verify: Callable[[], None],
    ) -> None:
        self._lock = lock
        self._host = host
        self._take_written = take_written
        self._prepare = prepare
        self._verify = verify
        self._depth = 0
        self._replies: list[Callable[[LogStoreError | None], object]] = []

    def reply(self, on_done: Callable[[R], object], result: R) -> None:
        """Call a callback with a result at the end of the current call."""

        def send(error: LogStoreError | None) -> None:
            on_done(result if error is None else result.refused(error.kafka_error))

        self._replies.append(send)

    @contextmanager
    def __call__(self, *, expires: bool = True, waits: bool = False) -> Iterator[None]:
        """Hold the lock. After it is released, call the callbacks.

        Parameters
        ----------
        waits : bool
            Whether to wait until the call's records are replicated. The callbacks run at that time
            in any case.

        Raises
        ------
        NotCoordinatorError, CoordinatorNotAvailableError
            See `CoordinatorHost.await_replicated`.
        """
        ready: list[Callable[[LogStoreError | None], object]] = []
        written: dict[Log, int] = {}
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
                        written = self._take_written()
                if VERIFY:
                    self._verify()
        finally:
            if ready:
                self._host.when_replicated(written, partial(_send, ready))
        if waits and written:
            self._host.await_replicated(written)


def _send(
    replies: list[Callable[[LogStoreError | None], object]], error: LogStoreError | None
) -> None:
    for reply in replies:
        reply(error)
