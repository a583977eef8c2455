"""Arrival rate profiles, once or periodic, using only NumPy."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from logstore.types import DAY_MS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.workload.spec import Time

    Floats = NDArray[np.float64]

MONDAY_MS = 4 * DAY_MS
"""Midnight UTC of a Monday. Periodic profiles start there."""


@lru_cache(maxsize=16)
def profile_curve(time: Time) -> tuple[Floats, Floats]:
    """Return times in ms after the start, and the amount that has arrived by each time.

    Amounts are in days at the mean rate. The times extend from start to end, and the rate is
    constant between two times. If the last period is incomplete, the total may differ from the
    number of days.
    """
    weights = np.asarray(time.profile, np.float64)
    weights = weights / weights.mean()
    span = time.days * DAY_MS
    if not time.profile_days:
        times = np.linspace(0.0, span, len(weights) + 1)
        return times, np.append(0.0, np.cumsum(weights)) * (time.days / len(weights))
    part = time.profile_days * DAY_MS / len(weights)
    first, phase = divmod((time.start_ms - MONDAY_MS) % (time.profile_days * DAY_MS), part)
    edges = np.arange(1, int(np.ceil((span + phase) / part))) * part - phase
    times = np.concatenate(([0.0], edges, [span]))
    rates = weights[(int(first) + np.arange(len(times) - 1)) % len(weights)]
    return times, np.append(0.0, np.cumsum(np.diff(times) * rates)) / DAY_MS


def even_days(time: Time) -> float:
    """Return the number of days at the mean rate that yields the same amount."""
    return float(profile_curve(time)[1][-1]) if time.profile else time.days
