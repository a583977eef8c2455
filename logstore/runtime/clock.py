"""Clocks: wall time in Unix milliseconds and monotonic time in nanoseconds.

Wall time dates records, horizons and files; monotonic time measures and waits. The two advance
together in virtual time and move apart under `FixedWallClock` (the command line's `--now`).
"""

from __future__ import annotations

import time
from typing import Protocol

VIRTUAL_EPOCH_MS = 1_704_067_200_000
"""2024-01-01T00:00:00Z, where every `VirtualClock` starts unless told otherwise."""


class Clock(Protocol):
    """What the engine knows of time."""

    @property
    def follows_system(self) -> bool:
        """Whether wall time is the machine's, so that files need no mtime of ours."""
        ...

    def now_ms(self) -> int:
        """Return wall time in Unix milliseconds."""
        ...

    def monotonic_ns(self) -> int:
        """Return a time in nanoseconds that never goes back; its origin means nothing."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass on both scales."""
        ...


class SystemClock:
    """The machine's clock."""

    follows_system = True

    def now_ms(self) -> int:
        """Return the machine's wall time in Unix milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Return the machine's monotonic time in nanoseconds."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for `seconds`."""
        time.sleep(seconds)


class FixedWallClock(SystemClock):
    """Wall time stands still at one moment; monotonic time runs."""

    follows_system = False

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def now_ms(self) -> int:
        """Return the fixed moment in Unix milliseconds."""
        return self._wall_ms


class VirtualClock:
    """Time that moves only when told to; wall and monotonic time move together.

    Parameters
    ----------
    start_ms : int
        First wall time in Unix milliseconds; 2024-01-01T00:00:00Z by default.

    Notes
    -----
    `sleep` advances the clock and returns at once. A wall clock that is stepped back leaves
    monotonic time where it is. Not synchronised: one thread owns it.
    """

    follows_system = False

    def __init__(self, start_ms: int = VIRTUAL_EPOCH_MS) -> None:
        self._wall_ns = start_ms * 1_000_000
        self._monotonic_ns = self._wall_ns

    def now_ms(self) -> int:
        """Return virtual wall time in Unix milliseconds."""
        return self._wall_ns // 1_000_000

    def monotonic_ns(self) -> int:
        """Return virtual time in nanoseconds; it moves forward with the wall time."""
        return self._monotonic_ns

    def sleep(self, seconds: float) -> None:
        """Advance by `seconds` without blocking."""
        self.advance(seconds=seconds)

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        ms: float = 0,
    ) -> int:
        """Move time forward by the sum of the arguments.

        Returns
        -------
        int
            The new wall time in Unix milliseconds.

        Raises
        ------
        ValueError
            The sum is negative; use `set_ms` to step a wall clock back.
        """
        total_ms = ms + 1000 * (seconds + 60 * (minutes + 60 * (hours + 24 * days)))
        if total_ms < 0:
            raise ValueError(f"cannot advance by {total_ms} ms; set_ms() steps the clock back")
        step_ns = round(total_ms * 1_000_000)
        self._wall_ns += step_ns
        self._monotonic_ns += step_ns
        return self.now_ms()

    def set_ms(self, wall_ms: int) -> None:
        """Put the clock at `wall_ms`, forward or back; monotonic time only follows forward."""
        step_ns = wall_ms * 1_000_000 - self._wall_ns
        self._wall_ns += step_ns
        self._monotonic_ns += max(0, step_ns)
