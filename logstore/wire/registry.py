"""The handlers of all APIs, by name; each family registers its own when it is imported."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

FAMILIES = ("cluster", "data", "admin", "configs", "groups", "transactions", "security")


class Where(Enum):
    """The thread that a handler runs in.

    Attributes
    ----------
    LOOP
        The loop's: it never waits, neither for a disk nor for others. So do coroutines, which give
        what blocks to `Session.run`.
    DISK
        The loop's if the broker is in memory, else one in which it may block.
    APART
        Always one in which it may block: it waits for others, as for a cleaner to stop, or works
        for long, however small its request.

    A large request (`Session.is_large`) is never handled in the loop's thread.
    """

    LOOP = "loop"
    DISK = "disk"
    APART = "apart"


class Handler(NamedTuple):
    """A function from (request, session) to a response, or None for no response at all.

    Attributes
    ----------
    before_authentication : bool
        Whether a connection that has not authenticated itself may ask.
    """

    function: Callable[..., Any]
    where: Where
    is_coroutine: bool
    before_authentication: bool


_HANDLERS: dict[str, Handler] = {}


def handles(
    api: str, where: Where = Where.DISK, *, before_authentication: bool = False
) -> Callable[[Function], Function]:
    """Register the function that answers an API's requests."""

    def register(function: Function) -> Function:
        assert api not in _HANDLERS, f"{api} has a handler"
        is_coroutine = inspect.iscoroutinefunction(function)
        _HANDLERS[api] = Handler(function, where, is_coroutine, before_authentication)
        return function

    return register


@cache
def handlers() -> dict[str, Handler]:
    """Return the handlers of all families by API name."""
    for family in FAMILIES:
        importlib.import_module(f"logstore.wire.{family}")
    return _HANDLERS
