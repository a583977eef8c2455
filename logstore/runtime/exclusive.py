"""Exclusive methods: other threads wait for the object's lock or get an error."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from logstore.errors import IllegalStateError


class _Locked(Protocol):
    @property
    def _lock(self) -> AbstractContextManager[object]: ...


S = TypeVar("S", bound=_Locked)
P = ParamSpec("P")
R = TypeVar("R")


def one_at_a_time(change: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method hold the re-entrant `_lock` of its object."""

    @wraps(change)
    def locked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return change(self, *args, **kwargs)

    return locked


class ThreadGuard:
    """Lets only one thread at a time use an object. Other threads get an error.

    Parameters
    ----------
    hint : str
        Advice for the error raised in another thread.
    """

    __slots__ = ("_hint", "_lock", "_user")

    def __init__(self, hint: str) -> None:
        self._hint = hint
        self._lock = threading.RLock()
        self._user = ""

    def enter(self, owner: object) -> None:
        """Enter from the calling thread, which may have entered before.

        Raises
        ------
        IllegalStateError
            Another thread has entered.
        """
        if not self._lock.acquire(blocking=False):
            raise IllegalStateError(
                f"{owner!r} can only be used by one thread at a time, and thread {self._user!r} is"
                f" using it now; {self._hint}"
            )
        self._user = threading.current_thread().name

    def leave(self) -> None:
        """Leave once. Must be called as often as `enter`."""
        self._lock.release()


C = TypeVar("C", bound=type)


def for_one_thread(*exempt: str) -> Callable[[C], C]:
    """Make the public methods of a class raise an error while another thread is in one of them.

    Instances must have a `ThreadGuard` named `_guard`.

    Parameters
    ----------
    *exempt : str
        Public methods that any thread may call at any time.
    """

    def guard(kind: C) -> C:
        for name, method in list(vars(kind).items()):
            is_use = name == "__next__" or not name.startswith("_")
            if is_use and name not in exempt and inspect.isfunction(method):
                setattr(kind, name, _guarded(method))
        return kind

    return guard


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def guarded(self: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # of any method
        guard: ThreadGuard = self._guard
        guard.enter(self)
        try:
            return method(self, *args, **kwargs)
        finally:
            guard.leave()

    return guarded
