"""Shared code of the sweep's Python programs: one line of JSON for each action.

A line has `action` and either `seen` with the client's result, or `failed`, or `absent` if the
client has no such call. `tests/support/interop/sweep.py` defines the data.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

WITHIN_S = 60
"""Timeout of a call or a condition, much longer than it takes."""


class Absent(Exception):
    """The client has no call for this."""


def report(*actions: Callable[[], Any]) -> None:
    """Execute functions or coroutines one after another and print the result of each."""
    with asyncio.Runner() as runner:
        for action in actions:
            try:
                seen = action()
                line: dict[str, Any] = {
                    "seen": runner.run(seen) if inspect.iscoroutine(seen) else seen
                }
            except Absent as error:
                line = {"absent": str(error)}
            except Exception:
                line = {"failed": traceback.format_exc()[-1500:]}
            sys.stdout.write(json.dumps({"action": action.__name__, **line}) + "\n")
            sys.stdout.flush()


def until(is_so: Callable[[], bool], step: Callable[[], Any]) -> None:
    """Step until it is so."""
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(inspect.getsource(is_so).strip())
        step()


async def until_async(is_so: Callable[[], bool], step: Callable[[], Awaitable[Any]]) -> None:
    """Do as `until` does, with coroutines."""
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(inspect.getsource(is_so).strip())
        await step()


def long_values() -> list[str]:
    """Return the values of the first action: each alone is worth to be compressed."""
    return [f"{number:<100}" for number in range(100)]


def address() -> str:
    """Return the address that the program was given."""
    return sys.argv[1]
