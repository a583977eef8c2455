"""Shared code of the sweep's Python programs: one line of JSON for each action.

A line has `action` and either `seen` with the client's result, or `failed`, or `absent` if the
client has no such call. `tests/support/interop/sweep.py` defines the data.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

WITHIN_S = 60
"""Timeout of a call or a condition, much longer than it takes."""


class Absent(Exception):
    """The client has no call for this."""


Action = Callable[[], Any]


def report(actions: Mapping[str, Action]) -> None:
    """Execute one action after another and print the result of each."""
    for name, action in actions.items():
        try:
            line: dict[str, Any] = {"seen": action()}
        except Absent as error:
            line = {"absent": str(error)}
        except Exception:
            line = {"failed": traceback.format_exc()[-1500:]}
        _print(name, line)


async def report_async(actions: Mapping[str, Callable[[], Awaitable[Any]]]) -> None:
    """Do as `report` does, with coroutines."""
    for name, action in actions.items():
        try:
            line: dict[str, Any] = {"seen": await action()}
        except Absent as error:
            line = {"absent": str(error)}
        except Exception:
            line = {"failed": traceback.format_exc()[-1500:]}
        _print(name, line)


def _print(name: str, line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"action": name, **line}) + "\n")
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
