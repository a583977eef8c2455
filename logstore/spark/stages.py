"""Stages of a job and how long each took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Note the seconds that a stage took, if it comes to its end."""
    began = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - began
