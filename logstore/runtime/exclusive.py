"""Methods of which one runs at a time, under the lock of their object."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class _Locked(Protocol):
    @property
    def _lock(self) -> AbstractContextManager[object]: ...


S = TypeVar("S", bound=_Locked)
P = ParamSpec("P")
R = TypeVar("R")


def one_at_a_time(change: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method hold its object's re-entrant `_lock` from begin to end."""

    @wraps(change)
    def locked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return change(self, *args, **kwargs)

    return locked
