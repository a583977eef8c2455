"""Performance goals by line name: a goal and a stretch goal.

Ratios compare with a peer in the same run, so they are valid on any machine. Goals for costs assume
an idle machine from 2024 or later.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """The goal of a line.

    Attributes
    ----------
    least : float
        Minimum value that reaches the goal, or maximum if lower is better.
    stretch : float, optional
        A value near the limit of the machine.
    is_ratio : bool
        Whether the goal is for the ratio to the peer instead of the figure.
    """

    least: float
    stretch: float | None = None
    is_ratio: bool = True


def _figure(least: float, stretch: float | None = None) -> Goal:
    return Goal(least, stretch, is_ratio=False)


GOALS = {
    "clean/100B-12": Goal(8, 10),
    "clean/100B-12-one": Goal(10, 13),
    "clean/1KiB-15": Goal(3.5, 5),
    "clean/1KiB-2": Goal(2.5, 4),
    "clean/10KiB-18": Goal(2, 3),
    **{
        f"codec/{codec}-{value}": Goal(1, 1.5)
        for codec in ("gzip", "snappy", "lz4", "zstd")
        for value in ("100B", "1KiB")
    },
    "mixed/100B": Goal(8, 12),
    "mixed/1KiB": Goal(3, 5),
    **{
        f"tmpfs/{name}": Goal(12, 15)
        for name in ("100B-10-16KiB", "100B-90-16KiB", "100B-10-one", "100B-90-one")
    },
    **{f"tmpfs/{name}": Goal(4, 6) for name in ("1KiB-10-16KiB", "1KiB-90-16KiB")},
    **{f"kernels/{name}": Goal(12, 15) for name in ("100B-10", "100B-90", "100B-10-one")},
    **{f"kernels/{name}": Goal(4, 6) for name in ("1KiB-10", "1KiB-90")},
    "share/100B-10": Goal(0.35, 0.5),
    "share/1KiB-10": Goal(0.55, 0.8),
    "threads/2": Goal(1.6, 1.9),
    "threads/cold-2": Goal(1),
    "memory/64MiB": _figure(16),
    "memory/256MiB": _figure(16),
    "memory/1GiB": _figure(16),
    "memory/4GiB": _figure(16),
    "memory/8GiB": _figure(16),
    "defaults/send": _figure(8),
    "defaults/append_many": _figure(400),
    "defaults/create-topic": _figure(1000),
    "defaults/create-cluster-topic": _figure(1000),
    "defaults/stats": _figure(20),
    "defaults/explain": _figure(3),
    "defaults/inspect": _figure(2),
    "defaults/dry-run": _figure(2.5),
    "defaults/check": Goal(0.7),
    "defaults/export": Goal(0.7),
    "defaults/pytest-first": _figure(2),
    "defaults/pytest-again": _figure(1),
    "defaults/first-cleaning": _figure(6),
    "api/append": _figure(8, 4),
    "api/append-disk": _figure(12, 8),
    "api/append_many": _figure(300, 100),
    "api/send": _figure(4, 2),
    "api/send-accumulator": _figure(4, 2),
    "api/read": _figure(800, 300),
    "coding/encode-aiokafka": Goal(10),
    "coding/encode-many": Goal(10),
    "coding/decode-aiokafka": Goal(10),
    "coding/decode-large": Goal(10),
    "map/put-10": Goal(7, 10),
    "map/put-90": Goal(7, 10),
    "map/hit-10": Goal(7, 10),
    "map/hit-90": Goal(7, 10),
    "map/miss-10": Goal(12, 15),
    "map/miss-90": Goal(12, 15),
    "start/help": _figure(100, 60),
    "start/topic": _figure(100, 60),
    "start/inspect": _figure(100, 60),
    "start/serve": _figure(200),
    "start/broker": _figure(150, 80),
    "start/first-cleaning": _figure(1),
    "idle/day": _figure(10),
    "simulate/updates": _figure(60),
    "simulate/idle": _figure(10),
    "crc/16KiB": Goal(0.9, 1),
}
