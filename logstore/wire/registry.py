"""Handlers of all APIs by name; each module of handlers registers its own on import."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

FAMILIES = (
    "cluster",
    "data",
    "fetch",
    "admin",
    "configs",
    "groups",
    "consumer_groups",
    "transactions",
    "security",
    "quotas",
    "quorum",
)


class Where(Enum):
    """The thread that a handler runs in.

    Attributes
    ----------
    LOOP
        The event loop: the handler never blocks. Coroutines run here too, and pass blocking calls
        to `Session.run`.
    DISK
        The event loop if the broker is in memory, else a worker thread.
    APART
        Always a worker thread: the handler waits for others, such as a cleaner that must stop, or
        takes long even for small requests.

    A large request (`Session.is_large`) is never handled on the event loop.
    """

    LOOP = "loop"
    DISK = "disk"
    APART = "apart"


class Handler(NamedTuple):
    """A function from (request, session) to a response, or to None to send none.

    Attributes
    ----------
    before_authentication : bool
        Whether unauthenticated connections may use the API.
    """

    function: Callable[..., Any]
    where: Where
    is_coroutine: bool
    before_authentication: bool


_HANDLERS: dict[str, Handler] = {}


def handles(
    api: str, where: Where = Where.DISK, *, before_authentication: bool = False
) -> Callable[[Function], Function]:
    """Register the handler of an API."""

    def register(function: Function) -> Function:
        assert api not in _HANDLERS, f"{api} has a handler"
        is_coroutine = inspect.iscoroutinefunction(function)
        _HANDLERS[api] = Handler(function, where, is_coroutine, before_authentication)
        return function

    return register


@cache
def handlers() -> dict[str, Handler]:
    """Return all handlers by API name."""
    for family in FAMILIES:
        importlib.import_module(f"logstore.wire.{family}")
    return _HANDLERS
