"""A plot of costs by size as standalone SVG: a panel for each axis, both scales logarithmic."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from logstore.bench.report.result import Line
from logstore.simulate.pages import template

WIDTH, HEIGHT, COLUMNS = 400, 300, 2
LEFT, RIGHT, TOP, BOTTOM = 60, 330, 30, 260
COLOURS = ("#2f5d3a", "#c8553d", "#31688e", "#b8860b", "#6c4f7d")
LABEL_GAP = 13
"""Least distance between the labels of two curves, in pixels."""


class Curve(NamedTuple):
    """The costs of one task."""

    name: str
    points: list[tuple[int, float]]


def curves_by_axis(lines: Sequence[Line]) -> dict[str, list[Curve]]:
    """Group lines with the facts `axis`, `task` and `size` by axis, with costs in milliseconds."""
    axes: dict[str, dict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        facts = line.facts
        axes[facts["axis"]][facts["task"]].append((facts["size"], line.here.median))
    return {
        axis: [Curve(task, sorted(points)) for task, points in tasks.items()]
        for axis, tasks in axes.items()
    }


def growth_plot(lines: Sequence[Line]) -> str:
    """Draw the lines of the group `growth`. A grey line shows costs in proportion to the size."""
    panels = [
        _panel(index, axis, curves)
        for index, (axis, curves) in enumerate(curves_by_axis(lines).items())
    ]
    drawing = template(Path(__file__).with_name("templates") / "curves.svg")
    rows = math.ceil(len(panels) / COLUMNS)
    return drawing.render(
        panels=panels, width=WIDTH * COLUMNS, height=HEIGHT * rows,
        left=LEFT, right=RIGHT, top=TOP, bottom=BOTTOM,
    ).rstrip() + "\n"  # fmt: skip


def _panel(index: int, axis: str, curves: Sequence[Curve]) -> dict[str, object]:
    points = [point for curve in curves for point in curve.points]
    sizes = _decades([size for size, _ in points])
    costs = _decades([cost for _, cost in points])

    def x(size: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * _share(sizes, size), 1)

    def y(cost: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * _share(costs, cost), 1)

    drawn = [
        {
            "name": curve.name,
            "colour": colour,
            "points": [(x(size), y(cost)) for size, cost in curve.points],
        }
        for curve, colour in zip(curves, COLOURS, strict=False)
    ]
    below = math.inf  # labels from the bottom up, each above the last one
    for each in sorted(drawn, key=lambda each: -each["points"][-1][1]):
        below = each["label_y"] = min(each["points"][-1][1], below - LABEL_GAP)
    decades = min(len(sizes), len(costs)) - 1
    return {
        "x": WIDTH * (index % COLUMNS),
        "y": HEIGHT * (index // COLUMNS),
        "title": axis,
        "sizes": [(x(size), f"10{_superscript(size)}") for size in sizes],
        "costs": [(y(cost), _time(cost)) for cost in costs],
        "curves": drawn,
        "proportional": (
            *(x(sizes[-1 - decades]), y(costs[0])),
            *(x(sizes[-1]), y(costs[decades])),
        ),
    }


def _decades(values: Sequence[float]) -> list[float]:
    """Return the powers of ten around positive values."""
    first = math.floor(math.log10(min(values)))
    last = max(math.ceil(math.log10(max(values))), first + 1)
    return [10.0**power for power in range(first, last + 1)]


def _share(decades: Sequence[float], value: float) -> float:
    return math.log(value / decades[0]) / math.log(decades[-1] / decades[0])


def _superscript(value: float) -> str:
    return str(round(math.log10(value))).translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))


def _time(ms: float) -> str:
    """Return a power of ten of milliseconds in a readable unit."""
    for unit, factor in (("s", 1e3), ("ms", 1), ("µs", 1e-3)):
        if ms >= factor:
            return f"{ms / factor:g} {unit}"
    return f"{ms * 1e6:g} ns"
