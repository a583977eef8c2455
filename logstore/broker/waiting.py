"""Wait on the clock of a broker until a condition is true."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from logstore.runtime import wall_ms_of

if TYPE_CHECKING:
    from logstore.runtime import Runtime


def run_until(
    runtime: Runtime,
    condition: Callable[[], bool] | datetime | int,
    timeout: timedelta | float | None,
) -> bool:
    """Let time pass until a condition is true or a wall-clock time; see `Broker.run_until`."""
    clock = runtime.clock
    timeout_ms = None if timeout is None else _to_ms(timeout)
    if callable(condition):
        return runtime.scheduler.wait_until(condition, timeout_ms=timeout_ms)
    end_ms = wall_ms_of(condition) if isinstance(condition, datetime) else condition
    left_ms = max(0, end_ms - clock.now_ms())
    wait_ms = left_ms if timeout_ms is None else min(left_ms, timeout_ms)
    runtime.scheduler.wait_until(lambda: clock.now_ms() >= end_ms, timeout_ms=wait_ms)
    return clock.now_ms() >= end_ms


def _to_ms(timeout: timedelta | float) -> int:
    ms = timeout / timedelta(milliseconds=1) if isinstance(timeout, timedelta) else timeout
    if ms < 0:
        raise ValueError(f"a timeout must not be negative: {timeout!r}")
    return -int(-ms // 1)
