"""The handlers of all APIs by name.

Each module with handlers registers them when it is imported.
"""

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
    """The thread that runs a handler.

    Attributes
    ----------
    LOOP
        The event loop. The handler must not block. A coroutine also runs on the event loop, and
        uses `Session.run` for calls that block.
    DISK
        The event loop if the broker is in memory, otherwise a worker thread.
    APART
        Always a worker thread. This is for a handler that waits, for example until the cleaner has
        stopped, or that takes long even for small requests.

    A large request (`Session.is_large`) is never handled on the event loop.
    """

    LOOP = "loop"
    DISK = "disk"
    APART = "apart"


class Handler(NamedTuple):
    """A function from (request, session) to a response. It returns None to send no response.

    Attributes
    ----------
    before_authentication : bool
        Whether connections that are not authenticated may use this API.
    """

    function: Callable[..., Any]
    where: Where
    is_coroutine: bool
    before_authentication: bool


_HANDLERS: dict[str, Handler] = {}


def handles(
    api: str, where: Where = Where.DISK, *, before_authentication: bool = False
) -> Callable[[Function], Function]:
    """Register the decorated function as the handler of an API."""

    def register(function: Function) -> Function:
        assert api not in _HANDLERS, f"{api} already has a handler"
        is_coroutine = inspect.iscoroutinefunction(function)
        _HANDLERS[api] = Handler(function, where, is_coroutine, before_authentication)
        return function

    return register


@cache
def handlers() -> dict[str, Handler]:
    """Return all handlers by the name of their API."""
    for family in FAMILIES:
        importlib.import_module(f"logstore.wire.{family}")
    return _HANDLERS
