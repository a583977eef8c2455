"""Plots of a result, as SVG that stands by itself: text stays text, nothing is fetched."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from logstore.bench.report.result import MISSED, REACHED, STRETCH, UNJUDGED, Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {MISSED: "#c8553d", REACHED: "#588157", STRETCH: "#2f5d3a", UNJUDGED: "#6c7a89"}
PEER_COLOUR = "#b9c0c8"
ROW_INCHES = 0.42
STYLE = {
    "svg.fonttype": "none",  # text can be read, found and copied
    "svg.hashsalt": "logstore",  # the same ids, and so the same file, for the same result
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def ratio_plot(lines: Sequence[Line], title: str) -> str:
    """Draw how many times as fast as its peer each line is, with its goals as marks."""
    drawn = [line for line in lines if line.ratio is not None]
    figure, axes = _figure(len(drawn), title)
    axes.set_xscale("log", base=2)
    at_the_right = axes.get_yaxis_transform()  # x as a share of the width, y by rows
    for row, line in enumerate(drawn):
        ratio, goal = line.ratio, line.goal
        axes.barh(row, ratio - 1, left=1, color=COLOURS[line.verdict], height=0.6)
        axes.text(1.01, row, f"{ratio:.2f}×", va="center", transform=at_the_right)
        if goal is not None and goal.is_ratio:
            axes.plot([goal.least] * 2, [row - 0.4, row + 0.4], color="black", linewidth=1.5)
            if goal.stretch is not None:
                marks = {"color": "black", "linewidth": 1, "linestyle": ":"}
                axes.plot([goal.stretch] * 2, [row - 0.4, row + 0.4], **marks)
    axes.axvline(1, color="black", linewidth=1)
    axes.xaxis.set_major_formatter(lambda ratio, _: f"{ratio:g}×")
    axes.set_xlabel("times as fast as the peer, on a scale that doubles; bar: goal, dots: stretch")
    return _finish(figure, axes, [line.name for line in drawn])


def figure_plot(lines: Sequence[Line], title: str) -> str:
    """Draw figures of one unit, each with its samples, its peer and its goals."""
    figure, axes = _figure(len(lines), title)
    for row, line in enumerate(lines):
        axes.barh(row - 0.17, line.here.median, color=COLOURS[line.verdict], height=0.34)
        judged = line.here.judged
        axes.plot(judged, [row - 0.17] * len(judged), "|", color="black", markersize=5)
        if line.peer is not None:
            axes.barh(row + 0.2, line.peer.median, color=PEER_COLOUR, height=0.34)
        goal = line.goal
        if goal is not None and not goal.is_ratio:
            axes.plot([goal.least] * 2, [row - 0.4, row + 0.4], color="black", linewidth=1.5)
    better = "more" if lines[0].higher_is_better else "less"
    axes.set_xlabel(f"{lines[0].unit}, {better} is better; grey: the peer; bar: goal")
    if _is_wide(lines):
        axes.set_xscale("log")
    return _finish(figure, axes, [line.name for line in lines])


def _is_wide(lines: Sequence[Line]) -> bool:
    figures = [line.here.median for line in lines]
    figures += [line.peer.median for line in lines if line.peer is not None]
    return max(figures) > 30 * max(min(figures), 1e-9)


def _figure(rows: int, title: str) -> tuple[Figure, Axes]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.1 + ROW_INCHES * rows), layout="constrained")
        axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontweight="bold")
    return figure, axes


def _finish(figure: Figure, axes: Axes, names: Sequence[str]) -> str:
    import matplotlib as mpl

    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.12, y=0.01)
    file = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()
