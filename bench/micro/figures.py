"""Computes figures from samples: speeds and costs."""

from __future__ import annotations

from collections.abc import Sequence

from logstore.bench.measuring import Sample
from logstore.bench.report.result import Figures

MEGA, GIGA = 1e6, 1e9
NS, US, MS = 1e9, 1e6, 1e3


def speeds(amount: float, samples: Sequence[Sample], scale: float = MEGA) -> Figures:
    """Return work per second, in units of `scale`."""
    return Figures(
        [amount / scale / max(each.cpu_s, 1e-9) for each in samples],
        [amount / scale / max(each.wall_s, 1e-9) for each in samples],
    )


def costs(count: float, samples: Sequence[Sample], scale: float) -> Figures:
    """Return the time per item of `count` items, in 1/`scale` seconds."""
    return Figures(
        [each.cpu_s / count * scale for each in samples],
        [each.wall_s / count * scale for each in samples],
    )


def wall_only(figures: Figures) -> Figures:
    """Return figures of wall time instead of CPU time."""
    return Figures(figures.wall, figures.wall)
