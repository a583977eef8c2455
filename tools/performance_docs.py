"""Write the newest results into docs/PERFORMANCE.md, with their plots; `make docs` runs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from logstore.bench.__main__ import RESULTS
from logstore.bench.report.curves import curves_by_axis, growth_plot
from logstore.bench.report.page import GROUPS, is_busy
from logstore.bench.report.plots import ratio_plot
from logstore.bench.report.result import Line, Result, read_result
from logstore.bench.report.terminal import number
from tools.pages import replaced

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "PERFORMANCE.md"
PLOT = ROOT / "docs" / "performance.svg"
GROWTH_PLOT = ROOT / "docs" / "growth.svg"
GROWTH = RESULTS / "growth.json"
"""The result of `python -m logstore.bench --only 'growth/*' --out bench/results/growth.json`."""

PLOTTED = ("clean", "codec", "mixed", "threads", "map")
"""Groups of the plot: the parts of a cleaning pass."""


def newest() -> tuple[Path, Result]:
    """Return the file of the newest whole result, and the result."""
    found = [(path, read_result(path)) for path in RESULTS.glob("*.json")]
    return max((each for each in found if each[1].kind != "part"), key=lambda each: each[1].made_at)


def text(path: Path, result: Result) -> str:
    """Return the table of a result."""
    lines = [
        f"Measured {result.made_at[:10]} on {result.machine['processor']}, "
        f"{result.machine['cores']} cores, {result.machine['memory_gib']} GiB, Python "
        f"{result.versions['python']}, {_kafka(result)}, logs of {_log_mib(result)} MiB: "
        f"[every sample](../bench/results/{path.name}), which "
        f"`python -m logstore.bench --page bench/results/{path.name}` shows as a page.",
    ]
    lines += _busy(result)
    for group in sorted({line.group for line in result.lines}, key=list(GROUPS).index):
        lines += ["", f"**{GROUPS[group]}**", "", *_table(result, group)]
    return "\n".join([*lines, ""])


def _busy(result: Result) -> Iterator[str]:
    if is_busy(result):
        load = " to ".join(f"{each:.0f}" for each in result.load)
        yield f"The machine was busy (load {load}): ratios are more reliable than absolute figures."


def _log_mib(result: Result) -> int:
    """Return the size of the first log that was cleaned."""
    return round(next(line.facts["log_bytes"] for line in result.lines) / 2**20)


def _kafka(result: Result) -> str:
    kafka = result.versions.get("kafka")
    return "without Kafka" if kafka is None else f"Kafka {kafka} on Java {result.versions['java']}"


def _table(result: Result, group: str) -> Iterator[str]:
    yield "| line | what | here | peer | ratio | goal | stretch | result |"
    yield "|---|---|--:|--:|--:|--:|--:|---|"
    for line in result.lines:
        if line.group == group:
            yield _row(line)


def _row(line: Line) -> str:
    goal = line.goal
    times = "×" if goal is not None and goal.is_ratio else ""
    cells = (
        f"`{line.name}`",
        line.title,
        f"{number(line.here.median)} {line.unit}",
        "" if line.peer is None else number(line.peer.median),
        "" if line.ratio is None else f"{line.ratio:.2f}×",
        "" if goal is None else f"{goal.least:g}{times}",
        "" if goal is None or goal.stretch is None else f"{goal.stretch:g}{times}",
        "" if goal is None else line.verdict,
    )
    return f"| {' | '.join(cells)} |"


def growth_text(result: Result) -> str:
    """Return a table of costs by size for each axis."""
    lines = [
        f"Milliseconds, medians, measured {result.made_at[:10]} on {result.machine['processor']}, "
        f"{result.machine['cores']} cores, Python {result.versions['python']}.",
        *_busy(result),
    ]
    for axis, curves in curves_by_axis(result.lines).items():
        sizes = [size for size, _ in max((each.points for each in curves), key=len)]
        lines += [
            "",
            f"| {axis} | {' | '.join(f'{size:,}' for size in sizes)} |",
            f"|---|{'--:|' * len(sizes)}",
        ]
        for curve in curves:
            costs = dict(curve.points)
            cells = (number(costs[size]) if size in costs else "" for size in sizes)
            lines.append(f"| {curve.name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def page(old: str) -> str:
    """Return the page with the newest results."""
    return replaced(
        replaced(old, "result", text(*newest())), "growth", growth_text(read_result(GROWTH))
    )


def plot() -> str:
    """Return the plot: every line that has a peer, in the groups that are worth remembering."""
    lines = [line for line in newest()[1].lines if line.group in PLOTTED]
    return ratio_plot(lines, "Times as fast as the peer, in the same run")


if __name__ == "__main__":
    TARGET.write_text(page(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    PLOT.write_text(plot(), encoding="utf-8")
    GROWTH_PLOT.write_text(growth_plot(read_result(GROWTH).lines), encoding="utf-8")
    written = ", ".join(str(path.relative_to(ROOT)) for path in (TARGET, PLOT, GROWTH_PLOT))
    sys.stdout.write(f"written: {written}\n")
