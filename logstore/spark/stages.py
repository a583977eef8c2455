"""Durations of job stages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Record the duration of a stage in seconds, unless it raises an error."""
    began = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - began
