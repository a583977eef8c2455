"""Lifetimes: an object can be used until its owner is closed, and only in its own process.

An owner (a log manager, a log, a data directory) has one `Lifetime`. The owner and the objects that
work through it are its members. The end of the lifetime changes the class of each member to a class
whose public methods and properties raise an error, except `close`, which may be called again.
Methods therefore need no checks, and there is no overhead before the end. A method that is running
at the end gets the error when it calls another method, acquires a lock of the lifetime
(`Lifetime.lock`) or calls `check`. Attributes and `lasting` properties remain readable.

In a forked child, all lifetimes end immediately. The child has the memory of the parent, but not
its threads and file locks. It would write to files that the parent is still using, and a lock held
by another thread during the fork would never be released. The child therefore acquires no locks,
members cannot be used, and their `close` does not change the parent's files.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar
from weakref import WeakSet, WeakValueDictionary

from logstore.errors import IllegalStateError, LogStoreError

_USES = ("__call__", "__contains__", "__enter__", "__getitem__", "__iter__", "__len__", "__next__")
"""Special methods that use an object. All others only describe or exit it."""

_FORKED = (
    "was opened by the parent process, which continues to use it, and cannot be used in this forked"
    " process"
)

_lifetimes: WeakSet[Lifetime] = WeakSet()

Getter = TypeVar("Getter", bound=Callable[..., object])


def lasting(getter: Getter) -> Getter:
    """Keep a property readable after the end, like an attribute. Apply it below `@property`.

    For properties that describe the object and use no released resources.
    """
    getter.__lasts__ = True  # type: ignore[attr-defined]  # functions have attributes
    return getter


class Lifetime:
    """The period in which its members may be used.

    Parameters
    ----------
    name : str
        Name of the owner for messages, such as "the broker".

    Attributes
    ----------
    is_over : bool
        Whether the lifetime has ended.
    is_forked : bool
        Whether this process is a fork of the process in which the lifetime started.

    Notes
    -----
    Thread-safe. Members are weakly referenced. Each member has this object as its `_lifetime`.
    """

    __slots__ = ("__weakref__", "_members", "_reason", "is_forked", "is_over", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_forked = False
        self.is_over = False
        # Members by identity. Not a set, because iterating over a set fails if another thread adds
        # a member.
        self._members: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._reason: tuple[type[LogStoreError], str] | None = None
        _lifetimes.add(self)

    def add(self, member: Any) -> None:  # noqa: ANN401  # of any class
        """Add a member, which cannot be used after the end."""
        member._lifetime = self
        self._members[id(member)] = member
        if self._reason is not None:
            _refuse(member)

    def end(self, why: str = "is closed", kind: type[LogStoreError] = IllegalStateError) -> None:
        """Make all members unusable. Later calls have no effect.

        Parameters
        ----------
        why : str
            Appended to the name in the error message.
        kind : type
            Class of the error.
        """
        if self._reason is None:
            # Set the reason first, so that `add` handles members added in the meantime.
            self._reason = kind, f"{self.name} {why}"
            self.is_over = True
            for reference in self._members.valuerefs():
                if (member := reference()) is not None:
                    _refuse(member)

    def check(self) -> None:
        """Raise an error if the lifetime has ended."""
        if self._reason is not None:
            kind, message = self._reason
            raise kind(message)

    def lock(self, lock: AbstractContextManager[object]) -> AbstractContextManager[object]:
        """Return a lock that cannot be acquired after the end, even by a waiting thread."""
        return _GuardedLock(self, lock)


class _GuardedLock:
    __slots__ = ("_lifetime", "_lock")

    def __init__(self, lifetime: Lifetime, lock: AbstractContextManager[object]) -> None:
        self._lifetime = lifetime
        self._lock = lock

    def __enter__(self) -> None:
        self._lifetime.check()  # a forked child could wait forever
        self._lock.__enter__()
        try:
            self._lifetime.check()
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)


# --- classes of members after the end ----------------------------------------------------------


def _refuse(member: Any) -> None:  # noqa: ANN401  # see `add`
    if not isinstance(member, _Refused):
        member.__class__ = _refused_class(type(member))  # type: ignore[arg-type]  # it is hashable


class _Refused:
    """Common base of the classes of members after the end."""

    __slots__ = ()


@functools.cache
def _refused_class(kind: type) -> type:
    """Return the class of members of `kind` after the end."""
    namespace: dict[str, object] = {
        "__slots__": (),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    for name in dir(kind):
        if name in _USES or not name.startswith("_"):
            attribute = inspect.getattr_static(kind, name)
            if name == "close":
                namespace[name] = _closing(attribute)
            elif isinstance(attribute, property | functools.cached_property):
                if not is_lasting(attribute):
                    namespace[name] = property(_raise)
            elif inspect.isfunction(attribute):
                namespace[name] = _refusing(attribute)
    return type(kind.__name__, (kind, _Refused), namespace)


def is_lasting(attribute: object) -> bool:
    """Return whether a property is readable after the end."""
    return hasattr(getattr(attribute, "fget", None), "__lasts__")


def _refusing(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def refuse(self: Any, *_: object, **__: object) -> None:  # noqa: ANN401  # see `add`
        _raise(self)

    return refuse


def _raise(member: Any) -> None:  # noqa: ANN401  # see `add`
    lifetime: Lifetime = member._lifetime
    lifetime.check()


def _closing(close: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(close)
    def close_again(self: Any, *arguments: object, **options: object) -> Any:  # noqa: ANN401  # see `add`
        lifetime: Lifetime = self._lifetime
        # A forked child closes nothing and acquires no locks, because the parent still uses them.
        return None if lifetime.is_forked else close(self, *arguments, **options)

    return close_again


def _end_in_child() -> None:
    for lifetime in list(_lifetimes):
        lifetime.is_forked = True
        lifetime.end(_FORKED)


os.register_at_fork(after_in_child=_end_in_child)
