"""Counts of work, so that a test can bound its growth."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from logstore.runtime import FileSystem


class CountedCalls:
    """A file system that counts its operations by name."""

    def __init__(self, base: FileSystem) -> None:
        self._base = base
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._base, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return operation(*arguments, **options)

        return counted


def lines_run(work: Callable[[], object]) -> int:
    """Return how many lines of Python a call executes, counting each iteration of a loop.

    Garbage collection is off during the call, since callbacks of other objects do not count.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    was_enabled = gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        if was_enabled:
            gc.enable()
    return count
