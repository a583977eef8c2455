"""Print a result as a table, each line with its peer and goals."""

from __future__ import annotations

from collections.abc import Iterator

from logstore.bench.report.result import MISSED, REACHED, STRETCH, Line, Result
from logstore.cli.show.tables import Cell, Styled, Table

_STYLES = {MISSED: "red", REACHED: "green", STRETCH: "bold green"}
COLUMNS = ("line", "here", "peer", "unit", "spread", "ratio", "wall", "goal", "stretch", "verdict")
_NUMBERS = ("here", "peer", "spread", "ratio", "wall", "goal", "stretch")


def table_lines(result: Result) -> Iterator[str]:
    """Yield the table, then the reasons for missing peers, and the machine."""
    table = Table(COLUMNS, right=_NUMBERS, whole=("line", "unit", "verdict"))
    yield from table.lines(row_of(line) for line in result.lines)
    reasons = {line.peer_name for line in result.lines if line.peer is None and line.peer_name}
    for reason in sorted(reasons):
        yield f"\nno peer: {reason}"
    load = " to ".join(f"{each:.1f}" for each in result.load)
    yield f"\n{result.machine['processor']}, {result.machine['cores']} cores, load {load}"


def row_of(line: Line) -> tuple[Cell, ...]:
    """Return the cells of a line."""
    goal = line.goal
    return (
        line.name,
        number(line.here.median),
        "–" if line.peer is None else number(line.peer.median),
        line.unit,
        f"{line.here.spread:.0%}",
        _times(line.ratio),
        _times(line.wall_ratio),
        "" if goal is None else _goal(goal.least, is_ratio=goal.is_ratio),
        "" if goal is None else _goal(goal.stretch, is_ratio=goal.is_ratio),
        Styled(line.verdict if goal else "", _STYLES.get(line.verdict, "")),
    )


def short(line: Line) -> str:
    """Return the progress message of a measured line."""
    text = f"{line.name}: {number(line.here.median)} {line.unit}"
    if line.peer is not None:
        text += f", {line.peer_name} {number(line.peer.median)}: {_times(line.ratio)}"
    return f"{text}, {line.verdict}" if line.goal else text


def number(value: float) -> str:
    """Format a figure with at least three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}×"


def _goal(value: float | None, *, is_ratio: bool) -> str:
    if value is None:
        return ""
    return f"{value:g}×" if is_ratio else number(value)
