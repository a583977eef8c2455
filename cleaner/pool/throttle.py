"""Cleaner throttles: Kafka's limit on reads plus writes, and the two limits of KAFKA-631.

A throttle measures windows of 300 ms. If the bytes in a window exceed its share, cleaners sleep
until the rate is within the limit. All cleaner threads share a throttle. Source:
docs/spec/cleaner.md §11, KAFKA-631.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.runtime import Runtime

WINDOW_MS = 300
UNLIMITED = sys.float_info.max
"""Kafka's default for `log.cleaner.io.max.bytes.per.second`."""


class Throttle:
    """A limit in bytes per second.

    Parameters
    ----------
    bytes_per_second : float
        Can be changed at any time. A change applies from the end of the current window.
    eager : bool
        Also end a window once its bytes exceed its share. Required in virtual time, where work
        takes no time and windows would otherwise never end.

    Notes
    -----
    Thread-safe. `observe` returns how long to sleep. As in Kafka, all threads sleep at the same
    time, and windows exclude that time.
    """

    def __init__(
        self, runtime: Runtime, bytes_per_second: float = UNLIMITED, *, eager: bool = False
    ) -> None:
        self._clock = runtime.clock
        self._lock = runtime.lock()
        self._eager = eager
        self.bytes_per_second = bytes_per_second
        self._window_start_ns = self._clock.monotonic_ns()
        self._observed_bytes = 0

    def observe(self, size_bytes: int) -> int:
        """Count bytes read or written, and return for how many ms to sleep."""
        with self._lock:
            self._observed_bytes += size_bytes
            now_ns = self._clock.monotonic_ns()
            elapsed_ms = (now_ns - self._window_start_ns) / 1e6
            if elapsed_ms < 0:
                return -int(elapsed_ms // 1)
            wanted_ms = self._observed_bytes * 1000 / self.bytes_per_second
            is_over = elapsed_ms > WINDOW_MS or (self._eager and wanted_ms > WINDOW_MS)
            if not is_over or self._observed_bytes == 0:
                return 0
            sleep_ms = max(0, round(wanted_ms - elapsed_ms))
            self._window_start_ns = now_ns + sleep_ms * 1_000_000
            self._observed_bytes = 0
            return sleep_ms


class Throttles:
    """The limits of a pool on reads, on writes, and on both."""

    def __init__(self, runtime: Runtime, config: BrokerConfig, *, eager: bool = False) -> None:
        self.both = Throttle(runtime, eager=eager)
        self.reads = Throttle(runtime, eager=eager)
        self.writes = Throttle(runtime, eager=eager)
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        """Apply a broker's limits immediately."""
        self.both.bytes_per_second = config.log_cleaner_io_max_bytes_per_second
        self.reads.bytes_per_second = config.logstore_cleaner_max_read_bytes_per_second
        self.writes.bytes_per_second = config.logstore_cleaner_max_write_bytes_per_second

    def observe(self, read_bytes: int, written_bytes: int) -> int:
        """Count bytes, and return for how many ms the strictest limit requires a sleep."""
        return max(
            self.both.observe(read_bytes + written_bytes),
            self.reads.observe(read_bytes),
            self.writes.observe(written_bytes),
        )
