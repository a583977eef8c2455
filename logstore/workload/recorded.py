"""Recorded events: when each arrived, and about which key, to be made again. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logstore.workload.draws import Bools, Ints


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Recorded:
    """Events in the order of their arrival, at least one.

    Attributes
    ----------
    at_ms : (n,) int64
        Arrivals, after the start; never falling.
    lag_ms : (n,) int64
        By how much the timestamp of each lies behind.
    key : (n,) int64, optional
        Numbers of their keys; else they are drawn.
    tombstone : (n,) bool, optional
        Whether each deletes its key; else it is drawn.
    period_ms : int
        After which they come again; 0: they come once.
    """

    at_ms: Ints
    lag_ms: Ints
    key: Ints | None = None
    tombstone: Bools | None = None
    period_ms: int = 0

    def rows(self, events: Ints) -> Ints:
        """Return which row each event of a workload is."""
        rows: Ints = events % len(self.at_ms)
        return rows

    def arrivals(self, events: Ints) -> Ints:
        """Return when each event of a workload arrives, in ms after the start."""
        cycles: Ints = events // len(self.at_ms) * self.period_ms
        return self.at_ms[self.rows(events)] + cycles

    def events_before(self, end_ms: int) -> int:
        """Return how many events arrive before a moment, in ms after the start."""
        if not self.period_ms:
            return int(np.searchsorted(self.at_ms, end_ms))
        cycles, rest_ms = divmod(end_ms, self.period_ms)
        return cycles * len(self.at_ms) + int(np.searchsorted(self.at_ms, rest_ms))
