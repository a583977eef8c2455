"""Lifetimes: objects may be used until their owner is closed, and in their own process.

An owner (a log manager, a log, a data directory) has one `Lifetime`; it and all that works through
it are members. The end of the lifetime changes the class of every member into one whose public
methods and properties raise, all but `close`, which may be called again. So there is no check
that a method could forget, and one that is in use pays nothing for it. A method that is running
at that moment meets the end at the next method it calls, at the next lock of the lifetime it takes
(`Lifetime.lock`), or where it asks (`check`). Attributes answer on, and so do properties that are
`lasting`.

In a forked child every lifetime ends at once. The child has the memory of the parent, but none of
its threads or file locks: what it wrote would go into files that the parent goes on writing, and
a lock that another thread held at the fork is never released. Hence nothing is taken or asked on
the way: the members are refused, and their `close` leaves the parent's files alone.
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
"""Special methods by which an object is used; the others say what it is, or leave it."""

_FORKED = (
    "belongs to the process that opened it, of which this one is a fork: it goes on there, and"
    " cannot be used here"
)

_lifetimes: WeakSet[Lifetime] = WeakSet()

Getter = TypeVar("Getter", bound=Callable[..., object])


def lasting(getter: Getter) -> Getter:
    """Make a property answer after the end too, as an attribute does: below `@property`.

    For what tells of what an object is made of, and looks at nothing that was given up.
    """
    getter.__lasts__ = True  # type: ignore[attr-defined]  # of functions, which can bear it
    return getter


class Lifetime:
    """The time in which its members may be used.

    Parameters
    ----------
    name : str
        What ends, for messages: "the broker".

    Attributes
    ----------
    is_over : bool
        Whether it has ended.
    is_forked : bool
        Whether this process is a fork of the one in which it began.

    Notes
    -----
    Any thread may call. Members are held weakly; each gets this object as its `_lifetime`.
    """

    __slots__ = ("__weakref__", "_members", "_reason", "is_forked", "is_over", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_forked = False
        self.is_over = False
        # By identity. Not a set: iterating over one fails if another thread adds to it meanwhile.
        self._members: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._reason: tuple[type[LogStoreError], str] | None = None
        _lifetimes.add(self)

    def add(self, member: Any) -> None:  # noqa: ANN401  # of any class
        """Add an object that is refused from the end on."""
        member._lifetime = self
        self._members[id(member)] = member
        if self._reason is not None:
            _refuse(member)

    def end(self, why: str = "is closed", kind: type[LogStoreError] = IllegalStateError) -> None:
        """Refuse all members from now on; a second end changes nothing.

        Parameters
        ----------
        why : str
            Follows the name in the message.
        kind : type
            Of the error.
        """
        if self._reason is None:
            # First, so that one who is added meanwhile is refused by `add`.
            self._reason = kind, f"{self.name} {why}"
            self.is_over = True
            for reference in self._members.valuerefs():
                if (member := reference()) is not None:
                    _refuse(member)

    def check(self) -> None:
        """Raise the reason if it has ended."""
        if self._reason is not None:
            kind, message = self._reason
            raise kind(message)

    def lock(self, lock: AbstractContextManager[object]) -> AbstractContextManager[object]:
        """Return a lock that nobody gets after the end, nor who waited for it then."""
        return _GuardedLock(self, lock)


class _GuardedLock:
    __slots__ = ("_lifetime", "_lock")

    def __init__(self, lifetime: Lifetime, lock: AbstractContextManager[object]) -> None:
        self._lifetime = lifetime
        self._lock = lock

    def __enter__(self) -> None:
        self._lifetime.check()  # before it waits: in a forked child that might be for ever
        self._lock.__enter__()
        try:
            self._lifetime.check()
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)


# --- the class of those that are refused -------------------------------------------------------


def _refuse(member: Any) -> None:  # noqa: ANN401  # see `add`
    if not isinstance(member, _Refused):
        member.__class__ = _refused_class(type(member))  # type: ignore[arg-type]  # it is hashable


class _Refused:
    """Common part of all classes of refused members."""

    __slots__ = ()


@functools.cache
def _refused_class(kind: type) -> type:
    """Return the class that members of a class have after the end."""
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
    """Tell whether a property answers after the end."""
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
        # In a child nothing is closed, and no lock taken: all of it is the parent's.
        return None if lifetime.is_forked else close(self, *arguments, **options)

    return close_again


def _end_in_child() -> None:
    for lifetime in list(_lifetimes):
        lifetime.is_forked = True
        lifetime.end(_FORKED)


os.register_at_fork(after_in_child=_end_in_child)
