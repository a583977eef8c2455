"""The handlers of all APIs by name. Importing a module registers its handlers."""

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


class HandlerThread(Enum):
    """The thread that runs a handler.

    Attributes
    ----------
    LOOP
        The event loop. The handler must not block. A coroutine also runs on the event loop, and
        uses `Session.run` for blocking calls.
    DISK
        The event loop if the broker is in memory, or a worker thread if it is on disk.
    APART
        Always a worker thread, for handlers that wait, for example until the cleaner has stopped,
        or that take long even for small requests.

    Large requests (`Session.is_large`) are never handled on the event loop.
    """

    LOOP = "loop"
    DISK = "disk"
    WORKER = "apart"


class Handler(NamedTuple):
    """A function from (request, session) to a response, or to None to send no response.

    Attributes
    ----------
    before_authentication : bool
        Whether unauthenticated connections may use this API.
    """

    function: Callable[..., Any]
    thread: HandlerThread
    is_coroutine: bool
    before_authentication: bool


_HANDLERS: dict[str, Handler] = {}


def handles(
    api: str, thread: HandlerThread = HandlerThread.DISK, *, before_authentication: bool = False
) -> Callable[[Function], Function]:
    """Register the decorated function as the handler of an API."""

    def register(function: Function) -> Function:
        assert api not in _HANDLERS, f"{api} already has a handler"
        is_coroutine = inspect.iscoroutinefunction(function)
        _HANDLERS[api] = Handler(function, thread, is_coroutine, before_authentication)
        return function

    return register


@cache
def handlers() -> dict[str, Handler]:
    """Return all handlers by API name."""
    for family in FAMILIES:
        importlib.import_module(f"logstore.wire.{family}")
    return _HANDLERS
