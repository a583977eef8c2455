"""A result as one HTML page: plots, and every line with its samples; nothing is fetched."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from logstore.bench.report.plots import figure_plot, ratio_plot
from logstore.bench.report.result import Line, Result
from logstore.bench.report.terminal import number

GROUPS = {
    "clean": "Cleaning, file to file",
    "codec": "Cleaning compressed batches",
    "mixed": "Cleaning mixed logs",
    "strategy": "Other strategies",
    "tmpfs": "Cleaning, files in memory",
    "kernels": "Kernels of a cleaning, from memory to memory",
    "share": "Rewriting in memory beside copying it",
    "axes": "Cleaning, axis by axis",
    "tail": "Cleaning beside a clean tail",
    "size": "Cleaning by size of the log",
    "threads": "Several threads",
    "memory": "Memory",
    "doors": "Doors of a broker",
    "coding": "Encoding and decoding batches",
    "map": "The map from key to offset",
    "start": "The first second",
    "idle": "Virtual time",
    "simulate": "The time machine",
    "limits": "Limits of the machine",
    "crc": "Checksums",
}
"""Titles of groups, in the order of the page."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
       color: #1d2733; background: #fff }
table { border-collapse: collapse; width: 100%; font-size: 13px }
th, td { text-align: left; padding: .25rem .5rem; border-bottom: 1px solid #dde2e7;
         vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.missed { color: #c8553d } .reached { color: #588157 } .stretch { color: #2f5d3a;
font-weight: bold } .busy { background: #fdf1e7; padding: .5rem 1rem } small { color: #6c7a89 }
svg { max-width: 100%; height: auto }
/* Where eight columns have no room, a line is a paragraph, and each figure bears its name. */
@media (max-width: 48rem) {
  tr { display: flex; flex-wrap: wrap; gap: 0 1.25rem; padding: .5rem 0;
       border-bottom: 1px solid #dde2e7 }
  th, td:empty { display: none } td, td.n { border: 0; padding: .1rem 0; text-align: left }
  td:first-child { flex-basis: 100%; overflow-wrap: anywhere }
  td[title]::before { content: attr(title); display: block; font-size: 11px; color: #6c7a89 } }
"""

_INTRODUCTION = """
<p>Figures are medians of CPU time, of the whole process on both sides, unless a line says that it
goes by the wall; the spread is the distance of the extremes. A ratio
tells how many times as fast as its peer a line was in the same run: it is what to compare between
machines. Outputs of both cleaners were compared to the byte wherever “identical” gives a size.</p>
"""


def page(result: Result) -> str:
    """Return the page of a result."""
    title = f"kafka-logstore, speed of {result.made_at[:10]}"
    body = "\n".join(_sections(result))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n{body}\n</body></html>\n"
    )


def _sections(result: Result) -> Iterator[str]:
    yield _about(result)
    yield _INTRODUCTION
    for group in sorted({line.group for line in result.lines}, key=_place):
        lines = [line for line in result.lines if line.group == group]
        yield f"<h2>{GROUPS.get(group, group)}</h2>"
        for svg in plots_of(group, lines):
            yield svg[svg.index("<svg") :]
        yield _table(lines)


def _place(group: str) -> int:
    return list(GROUPS).index(group) if group in GROUPS else len(GROUPS)


def plots_of(group: str, lines: Sequence[Line]) -> Iterator[str]:
    """Yield the plots of a group: ratios where there are peers, and figures unit by unit."""
    title = GROUPS.get(group, group)
    if any(line.ratio is not None for line in lines):
        yield ratio_plot(lines, f"{title}, beside the peer")
    for unit in dict.fromkeys(line.unit for line in lines):
        of_unit = [line for line in lines if line.unit == unit]
        yield figure_plot(of_unit, f"{title}, {unit}")


def _about(result: Result) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    versions = ", ".join(f"{name} {value}" for name, value in result.versions.items())
    load = " to ".join(f"{each:.1f}" for each in result.load)
    busy = ""
    if is_busy(result):
        busy = (
            '<p class="busy">The machine did other work meanwhile: '
            f"load {load} on {result.machine['cores']} cores. Ratios suffer less than figures.</p>"
        )
    return (
        f"<p>{html.escape(result.made_at)}, {result.kind}, {result.seconds:.0f} s. "
        f"{html.escape(machine)}, load {load}.<br><small>{html.escape(versions)}</small></p>{busy}"
    )


def is_busy(result: Result) -> bool:
    """Tell whether others worked on the machine: this harness keeps little more than one core."""
    return max(result.load) > 0.75 * result.machine["cores"]


_FIGURES = ("here", "spread", "peer", "ratio", "by the wall", "goal", "stretch")


def _table(lines: Sequence[Line]) -> str:
    heads = ("line", *_FIGURES, "verdict")
    head = "".join(
        f"<th{'' if name in ('line', 'verdict') else ' class=n'}>{name}</th>" for name in heads
    )
    rows = "\n".join(_row(line) for line in lines)
    return f"<table><tr>{head}</tr>\n{rows}\n</table>"


def _row(line: Line) -> str:
    goal = line.goal
    times = "×" if goal is not None and goal.is_ratio else ""
    peer = number(line.peer.median) if line.peer is not None else "–"
    cells = (
        f"{number(line.here.median)} {html.escape(line.unit)}",
        f"{line.here.spread:.0%}",
        f"{peer}<br><small>{html.escape(line.peer_name)}</small>",
        "" if line.ratio is None else f"{line.ratio:.2f}×",
        "" if line.wall_ratio is None else f"{line.wall_ratio:.2f}×",
        "" if goal is None else f"{goal.least:g}{times}",
        "" if goal is None or goal.stretch is None else f"{goal.stretch:g}{times}",
    )
    facts = ", ".join(f"{_words(name)} {_fact(value)}" for name, value in line.facts.items())
    about = f"{html.escape(line.title)}<br><small>{html.escape(facts)}</small>"
    numbers = "".join(
        f'<td class=n title="{name}">{cell}</td>'
        for name, cell in zip(_FIGURES, cells, strict=True)
    )
    verdict = line.verdict if goal is not None else ""
    return (
        f'<tr id="{line.name}"><td><b>{line.name}</b><br>{about}</td>{numbers}'
        f'<td class="{verdict}" title="verdict">{verdict}</td></tr>'
    )


def _fact(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _words(name: str) -> str:
    return re.sub("_", " ", name)
