"""Plots of a result as standalone SVG with text elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from logstore.bench.report.result import MISSED, REACHED, STRETCH, UNJUDGED, Line
from logstore.bench.report.terminal import number
from logstore.simulate.pages import template

COLOURS = {MISSED: "#c8553d", REACHED: "#588157", STRETCH: "#2f5d3a", UNJUDGED: "#6c7a89"}
PEER_COLOUR = "#b9c0c8"
WIDTH, LEFT, RIGHT, TOP, ROW = 800, 200, 720, 40, 26
WIDE = 30
"""Ratio of figures above which the axis is logarithmic."""


def ratio_plot(lines: Sequence[Line], title: str) -> str:
    """Draw the speed of each line relative to its peer, with marks for goals."""
    drawn = [line for line in lines if line.ratio is not None]
    values = [1.0, *(line.ratio for line in drawn)]
    values += [goal for line in drawn for goal, _ in _goals(line, is_ratio=True)]
    axis = _Axis(values, base=2)
    rows = [
        {
            "name": line.name,
            "bars": [axis.bar(1, line.ratio, COLOURS[line.verdict], dy=5, height=16)],
            "samples": [],
            "marks": axis.marks(_goals(line, is_ratio=True)),
            "text": f"{line.ratio:.2f}×",
        }
        for line in drawn
    ]
    legend = "speed relative to the peer, logarithmic; bar: goal, dots: stretch goal"
    return _draw(title, rows, legend, axis, lambda ratio: f"{ratio:g}×", start=1)


def figure_plot(lines: Sequence[Line], title: str) -> str:
    """Draw the figures with one unit, with samples, peers and goals."""
    values = [line.here.median for line in lines]
    values += [line.peer.median for line in lines if line.peer is not None]
    is_wide = max(values) > WIDE * max(min(values), 1e-9)
    values += [each for line in lines for each in line.here.judged]
    values += [goal for line in lines for goal, _ in _goals(line, is_ratio=False)]
    axis = _Axis(values, base=10 if is_wide else None)
    rows = []
    for line in lines:
        bars = [axis.bar(0, line.here.median, COLOURS[line.verdict], dy=3, height=9)]
        if line.peer is not None:
            bars.append(axis.bar(0, line.peer.median, PEER_COLOUR, dy=14, height=9))
        rows.append(
            {
                "name": line.name,
                "bars": bars,
                "samples": [axis.x(each) for each in line.here.judged],
                "marks": axis.marks(_goals(line, is_ratio=False)[:1]),
                "text": number(line.here.median),
            }
        )
    better = "more" if lines[0].higher_is_better else "less"
    legend = f"{lines[0].unit}, {better} is better; grey: the peer; bar: goal"
    return _draw(title, rows, legend, axis, number)


def _goals(line: Line, *, is_ratio: bool) -> list[tuple[float, bool]]:
    """Return (value, whether it is the stretch goal) for the goals of a line."""
    if line.goal is None or line.goal.is_ratio != is_ratio:
        return []
    both = ((line.goal.least, False), (line.goal.stretch, True))
    return [(value, is_stretch) for value, is_stretch in both if value is not None]


class _Axis:
    """A horizontal axis that maps values to pixels, linear or logarithmic, with ticks."""

    def __init__(self, values: Sequence[float], base: int | None) -> None:
        self._base = base
        if base is None:
            step = 10.0 ** math.floor(math.log10(max(values) or 1))
            step *= next(n for n in (0.2, 0.5, 1, 2) if max(values) / (n * step) <= 6)
            self.ticks = [step * n for n in range(math.ceil(max(values) / step) + 1)]
        else:
            positive = [value for value in values if value > 0] or [1.0]
            first = math.floor(math.log(min(positive), base))
            last = max(math.ceil(math.log(max(positive), base)), first + 1)
            self.ticks = [float(base) ** n for n in range(first, last + 1)]
        self._low, self._high = self._scale(self.ticks[0]), self._scale(self.ticks[-1])

    def _scale(self, value: float) -> float:
        return value if self._base is None else math.log(value, self._base)

    def x(self, value: float) -> float:
        """Return the pixel of a value."""
        position = self._scale(max(value, self.ticks[0]))
        return round(LEFT + (RIGHT - LEFT) * (position - self._low) / (self._high - self._low), 1)

    def bar(self, start: float, stop: float, colour: str, *, dy: int, height: int) -> dict:
        """Return a bar between two values, at least one pixel wide."""
        left, right = sorted((self.x(start), self.x(stop)))
        width = max(round(right - left, 1), 1)
        return {"x": left, "width": width, "colour": colour, "dy": dy, "height": height}

    def marks(self, goals: Sequence[tuple[float, bool]]) -> list[dict]:
        """Return the marks of goals."""
        return [{"x": self.x(value), "is_dotted": is_stretch} for value, is_stretch in goals]


def _draw(
    title: str,
    rows: Sequence[dict],
    legend: str,
    axis: _Axis,
    text_of: Callable[[float], str],
    start: float = 0,
) -> str:
    for index, row in enumerate(rows):
        row["y"] = TOP + ROW * index
    bottom = TOP + ROW * len(rows)
    drawing = template(Path(__file__).with_name("templates") / "bars.svg")
    ticks = [{"x": axis.x(value), "text": text_of(value)} for value in axis.ticks]
    return drawing.render(
        title=title, rows=rows, legend=legend, ticks=ticks, axis=axis.x(start), width=WIDTH,
        height=bottom + 48, left=LEFT, right=RIGHT, top=TOP, bottom=bottom,
    ).rstrip() + "\n"  # fmt: skip
