"""A lock that knows whether it is held, for tests of exclusive sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any


class HeldLock:
    """A lock around another one, with the number of times that it is held.

    Attributes
    ----------
    depth : int
        How often it is held at this time.
    entered : int
        How often it has been acquired.
    """

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self._lock = lock
        self.depth = self.entered = 0

    def __enter__(self) -> None:
        self._lock.__enter__()
        self.depth += 1
        self.entered += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        self._lock.__exit__(*error)


class GuardedDict(dict[Any, Any]):
    """A dict that may only be changed and iterated while a lock is held."""

    def __init__(self, lock: HeldLock, items: Mapping[Any, Any] | None = None) -> None:
        super().__init__(items or {})
        self._lock = lock

    def __getattribute__(self, name: str) -> Any:  # any method
        if name in ("pop", "update", "items", "values", "setdefault", "clear"):
            self._check()
        return super().__getattribute__(name)

    def __iter__(self) -> Iterator[Any]:
        self._check()
        return super().__iter__()

    def __setitem__(self, key: object, value: object) -> None:
        self._check()
        super().__setitem__(key, value)

    def __delitem__(self, key: object) -> None:
        self._check()
        super().__delitem__(key)

    def _check(self) -> None:
        assert self._lock.depth, "the lock is not held"
