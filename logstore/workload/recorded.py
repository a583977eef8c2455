"""Recorded arrival times and keys to replay, using only NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logstore.workload.draws import Bools, Ints


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Recorded:
    """Recorded events (at least one) in arrival order.

    Attributes
    ----------
    at_ms : (n,) int64
        Arrival times after the start. Never decrease.
    lag_ms : (n,) int64
        By how much timestamps lag behind arrivals.
    key : (n,) int64, optional
        Key numbers. [default: drawn at random]
    tombstone : (n,) bool, optional
        Whether each event deletes its key. [default: drawn at random]
    period_ms : int
        Period after which the events repeat, or 0 if they do not.
    """

    at_ms: Ints
    lag_ms: Ints
    key: Ints | None = None
    tombstone: Bools | None = None
    period_ms: int = 0

    def rows(self, events: Ints) -> Ints:
        """Return the recorded row that each event replays."""
        rows: Ints = events % len(self.at_ms)
        return rows

    def arrivals(self, events: Ints) -> Ints:
        """Return the arrival time of each event, in ms after the start."""
        cycles: Ints = events // len(self.at_ms) * self.period_ms
        return self.at_ms[self.rows(events)] + cycles

    def events_before(self, end_ms: int) -> int:
        """Return the number of events that arrive before `end_ms`, in ms after the start."""
        if not self.period_ms:
            return int(np.searchsorted(self.at_ms, end_ms))
        cycles, rest_ms = divmod(end_ms, self.period_ms)
        return cycles * len(self.at_ms) + int(np.searchsorted(self.at_ms, rest_ms))
