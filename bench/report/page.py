"""Render a result as an HTML page with plots and a table of all lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logstore.bench.report.plots import figure_plot, ratio_plot
from logstore.bench.report.result import Line, Result
from logstore.bench.report.terminal import number
from logstore.simulate import pages

GROUPS = {
    "clean": "Cleaning, file to file",
    "codec": "Cleaning compressed batches",
    "mixed": "Cleaning mixed logs",
    "strategy": "Other strategies",
    "tmpfs": "Cleaning, files in memory",
    "kernels": "Cleaning kernels, memory to memory",
    "share": "Rewriting in memory, compared with copying",
    "axes": "Cleaning, axis by axis",
    "tail": "Cleaning with a large clean section",
    "size": "Cleaning by log size",
    "threads": "Several threads",
    "memory": "Memory",
    "defaults": "Calls as users make them",
    "api": "Append, produce, read: the best case",
    "coding": "Encoding and decoding batches",
    "map": "Offset map",
    "start": "Start-up",
    "idle": "Virtual time",
    "growth": "Costs as work grows",
    "simulate": "Simulation",
    "limits": "Limits of the machine",
    "crc": "Checksums",
}
"""Titles of groups in page order."""

_INTRODUCTION = (
    "Figures are medians of the CPU time of the whole process, on both sides, unless the title of "
    "a line says wall time. The spread is the distance between the extremes. The ratio is the "
    "speed relative to the peer in the same run; use ratios to compare machines. If a line has "
    "“identical bytes”, the results of both cleaners are byte-identical."
)


def page(result: Result) -> str:
    """Render the page of a result."""
    return pages.render(f"kafka-logstore, speed of {result.made_at[:10]}", _parts(result))


def _parts(result: Result) -> Iterator[pages.Part]:
    yield from _about(result)
    yield pages.paragraph(_INTRODUCTION)
    for group in sorted({line.group for line in result.lines}, key=_place):
        lines = [line for line in result.lines if line.group == group]
        title = GROUPS.get(group, group)
        yield pages.heading(title)
        yield from map(pages.svg, plots_of(group, lines))
        yield pages.table(
            title,
            ("line", *_FIGURES, "verdict"),
            [_cells(line) for line in lines],
            numbers=_FIGURES,
            ids=[line.name for line in lines],
            kind="lines",
        )


def _place(group: str) -> int:
    return list(GROUPS).index(group) if group in GROUPS else len(GROUPS)


def plots_of(group: str, lines: Sequence[Line]) -> Iterator[str]:
    """Yield the plots of a group: ratios to peers, and figures by unit."""
    title = GROUPS.get(group, group)
    if any(line.ratio is not None for line in lines):
        yield ratio_plot(lines, f"{title}, relative to the peer")
    for unit in dict.fromkeys(line.unit for line in lines):
        of_unit = [line for line in lines if line.unit == unit]
        yield figure_plot(of_unit, f"{title}, {unit}")


def _about(result: Result) -> Iterator[pages.Part]:
    machine = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    versions = ", ".join(f"{name} {value}" for name, value in result.versions.items())
    load = " to ".join(f"{each:.1f}" for each in result.load)
    yield pages.paragraph(
        f"{result.made_at}, {result.kind}, {result.seconds:.0f} s. {machine}, load {load}.",
        small=versions,
    )
    if is_busy(result):
        yield pages.paragraph(
            f"The machine was busy (load {load} on {result.machine['cores']} cores): ratios are "
            "more reliable than absolute figures.",
            kind="busy",
        )


def is_busy(result: Result) -> bool:
    """Return whether the machine had other load. The harness uses little more than one core."""
    return max(result.load) > 0.75 * result.machine["cores"]


_FIGURES = ("here", "spread", "peer", "ratio", "wall ratio", "goal", "stretch")


def _cells(line: Line) -> Iterator[object]:
    """Yield the cells of a line, as text or markup."""
    from markupsafe import Markup

    goal = line.goal
    times = "×" if goal is not None and goal.is_ratio else ""
    facts = ", ".join(
        f"{name.replace('_', ' ')} {_fact(value)}" for name, value in line.facts.items()
    )
    yield Markup("<b>{}</b><br>{}<br><small>{}</small>").format(line.name, line.title, facts)
    yield f"{number(line.here.median)} {line.unit}"
    yield f"{line.here.spread:.0%}"
    peer = number(line.peer.median) if line.peer is not None else "–"
    yield Markup("{}<br><small>{}</small>").format(peer, line.peer_name)
    yield "" if line.ratio is None else f"{line.ratio:.2f}×"
    yield "" if line.wall_ratio is None else f"{line.wall_ratio:.2f}×"
    yield "" if goal is None else f"{goal.least:g}{times}"
    yield "" if goal is None or goal.stretch is None else f"{goal.stretch:g}{times}"
    yield "" if goal is None else Markup('<span class="{0}">{0}</span>').format(line.verdict)


def _fact(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
