"""How fast cleaners may read and write: Kafka's one limit for both, and KAFKA-631's two.

A throttle looks at windows of 300 ms: when one is over and more bytes went by than its share, the
cleaners sleep until the rate is right again. One throttle serves all cleaner threads.
Source: cleaner-semantics §11, KAFKA-631.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore.runtime import Runtime

WINDOW_MS = 300
UNLIMITED = sys.float_info.max
"""Kafka's default of `log.cleaner.io.max.bytes.per.second`."""


class Throttle:
    """A limit in bytes a second.

    Parameters
    ----------
    bytes_per_second : float
        May be changed at any time; it holds from the next window's end on.

    Notes
    -----
    Any thread may call. The time between two calls of one that sleeps is the sleeper's own
    affair: `observe` only says for how long.
    """

    def __init__(self, runtime: Runtime, bytes_per_second: float = UNLIMITED) -> None:
        self._clock = runtime.clock
        self._lock = runtime.lock()
        self.bytes_per_second = bytes_per_second
        self._window_start_ns = self._clock.monotonic_ns()
        self._observed_bytes = 0

    def observe(self, size_bytes: int) -> int:
        """Count bytes that were read or written; return the ms to sleep now.

        The caller calls `restart` when it has slept.
        """
        with self._lock:
            self._observed_bytes += size_bytes
            elapsed_ms = (self._clock.monotonic_ns() - self._window_start_ns) / 1e6
            if elapsed_ms <= WINDOW_MS or self._observed_bytes == 0:
                return 0
            wanted_ms = self._observed_bytes * 1000 / self.bytes_per_second
            sleep_ms = max(0, round(wanted_ms - elapsed_ms))
            self._begin_window()
            return sleep_ms

    def restart(self) -> None:
        """Begin a new window: the time slept does not count."""
        with self._lock:
            self._begin_window()

    def _begin_window(self) -> None:
        self._window_start_ns = self._clock.monotonic_ns()
        self._observed_bytes = 0
