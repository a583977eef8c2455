"""The report of a run: one HTML file with its story and its curves, which fetches nothing."""

from __future__ import annotations

import html
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from logstore.simulate.outcome import COUNTS
from logstore.types import DAY_MS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from logstore.simulate.outcome import Column, Run
    from logstore.simulate.sweep import Sweep

Columns = Mapping[str, "Column"]

SECTION_LOOKS = {
    "clean": ("#0072b2", ""),
    "dirty": ("#e69f00", "/"),
    "uncleanable": ("#cc79a7", "x"),
    "active": ("#56b4e9", "."),
    "deleted": ("#999999", "\\"),
}
"""Colour and pattern of each kind of bytes: the colours differ without colour sight, too."""

LINES = (
    ("#0072b2", "solid"),
    ("#d55e00", "dash"),
    ("#009e73", "dot"),
    ("#cc79a7", "dashdot"),
    ("#000000", "longdash"),
)

AGE_PANEL = "Age of what no cleaning has seen (days)"
PANELS: Mapping[str, Sequence[tuple[str, str, float]]] = {
    "Bytes": (),
    "Records": (("live_records", "live", 1), ("dead_records", "dead", 1)),
    "Ratios": (("dirty_ratio", "dirty", 1), ("must_clean_ratio", "must clean", 1)),
    AGE_PANEL: (
        ("oldest_dirty_ms", "age", DAY_MS),
        ("compaction_delay_ms", "beyond the bound", DAY_MS),
    ),
    "Tombstones": (("tombstones", "tombstones", 1),),
    "Age of the oldest tombstone (days)": (("oldest_tombstone_ms", "age", DAY_MS),),
    "Bytes written per byte that arrived": (("write_amplification", "written", 1),),
    "Load of the cleaner": (("cleaner_load", "share of its throttle", 1),),
    "Segments": (("segments", "segments", 1),),
    "Offsets without a record": (("hole_offsets", "holes", 1),),
}
"""Panels of a topic: curves as (column, label, unit); the first has the bytes by section."""

TOPICS_MAX = 12
"""Topics that get curves of their own; the largest ones."""

_STYLE = """
:root { color-scheme: light }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 68rem; margin: 0 auto; padding: 1rem;
       color: #1d2733; background: #fff }
h1 { font-size: 1.6rem; line-height: 1.2 } h2 { margin-top: 2.2rem; font-size: 1.2rem }
.story { font-size: 1.05rem } .scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: .9rem; min-width: 18rem }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid #d5dbe1;
         vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
tr.front td { font-weight: 600 } code { font-size: .85em; overflow-wrap: anywhere }
.plot { margin: .5rem 0 1.5rem; break-inside: avoid } small { color: #4a5765 }
@media (max-width: 40rem) { body { padding: .6rem; font-size: 15px } }
@media print { body { max-width: none } .modebar { display: none !important } }
"""


def can_draw() -> bool:
    """Tell whether plotly is installed (the extra `report`)."""
    return importlib.util.find_spec("plotly") is not None


def page(run: Run, sweep: Sweep | None = None) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    sweep : Sweep, optional
        Variants of the scenario; they get a table and a plot of their own.

    Raises
    ------
    ImportError
        plotly is missing.
    """
    from plotly.offline import get_plotlyjs

    plan = run.scenario
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(plan.title)}</title><style>{_STYLE}</style>",
        f"<script>{get_plotlyjs()}</script></head><body>",
        f"<h1>{html.escape(plan.title)}</h1>",
        *(f"<p class=story>{html.escape(text)}</p>" for text in (plan.about, story(run)) if text),
        *_sweep_parts(sweep),
        *_curves(run),
        "<h2>What it cost</h2>",
        _table(("cost", "value"), [(name, said) for name, said in _costs_said(run.costs())]),
        *_notes(run),
        *_settings(run),
        "</body></html>",
    ]
    return "\n".join(parts)


# -- words ---------------------------------------------------------------------------------


def story(run: Run) -> str:
    """Return a paragraph of plain words about a run."""
    plan, costs = run.scenario, run.costs()
    appended = sum(int(found["appended_bytes"][-1]) for found in _by_topic(run).values())
    times, total = run.total_bytes()
    peak_day = (times[int(total.argmax())] - plan.start_ms) / DAY_MS
    sentences = [
        f"In {plan.days:g} days {_size(appended)} arrived.",
        f"The files took {_size(costs['bytes_mean'])} on average and at most "
        f"{_size(costs['bytes_peak'])}, on day {peak_day:.1f}.",
    ]
    passes = int(costs["passes"])
    if passes:
        amplification = costs["write_amplification"]
        sentences.append(
            f"The cleaner made {passes} {'pass' if passes == 1 else 'passes'}, read "
            f"{_size(costs['cleaner_read_bytes'])} and wrote "
            f"{_size(costs['cleaner_written_bytes'])}: for each byte that arrived, "
            f"{amplification:.2f} were written in all."
        )
        sentences.append(
            f"The oldest record that no cleaning had been through was "
            f"{_span(costs['oldest_dirty_max_ms'])} old."
        )
    else:
        sentences.append("Nothing was cleaned.")
    delay = costs["compaction_delay_max_ms"]
    if delay:
        sentences.append(f"max.compaction.lag.ms was exceeded by up to {_span(delay)}.")
    missed = int(costs["missed_tombstones"])
    if missed:
        sentences.append(
            f"A consumer missed {missed} {'delete' if missed == 1 else 'deletes'}: the tombstones "
            "were cleaned away before it read them."
        )
    return " ".join(sentences)


def _costs_said(costs: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    for name, value in costs.items():
        words = name.removesuffix("_ms").replace("_", " ")
        if name.endswith("_ms"):
            yield words, _span(value)
        elif "bytes" in name:
            yield words, _size(value)
        elif name == "live_share":
            yield words, f"{value:.1%}"
        else:
            yield words, f"{value:,.0f}" if name in COUNTS else f"{value:.2f}"


def _size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def _span(duration_ms: float) -> str:
    for unit, unit_ms in (("days", DAY_MS), ("hours", 3_600_000), ("minutes", 60_000)):
        if duration_ms >= 2 * unit_ms:
            return f"{duration_ms / unit_ms:.1f} {unit}"
    return f"{duration_ms / 1000:.1f} seconds"


# -- tables --------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], front: Sequence[int] = ()) -> str:
    top = "".join(f"<th>{html.escape(head)}</th>" for head in heads)
    body = "".join(
        f"<tr{' class=front' if number in front else ''}>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        + "</tr>"
        for number, row in enumerate(rows)
    )
    return (
        f"<div class=scroll><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _notes(run: Run) -> Iterator[str]:
    if run.notes:
        yield "<h2>What happened</h2>"
        yield "<ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in run.notes) + "</ul>"


def _settings(run: Run) -> Iterator[str]:
    plan = run.scenario
    yield "<h2>Settings</h2>"
    rows = [("broker", name, value) for name, value in sorted(plan.broker.items())]
    rows += [
        (topic.name, name, value)
        for topic in plan.topics
        for name, value in sorted(topic.configs.items())
    ]
    if rows:
        yield _table(("of", "key", "value"), rows)
    yield f"<p><small>Everything else is Kafka's default. Seed {plan.seed}.</small></p>"


def _sweep_parts(sweep: Sweep | None) -> Iterator[str]:
    if sweep is None:
        return
    front = sweep.front()
    numbers = [number for number, each in enumerate(sweep.variants) if each in front]
    names = list(sweep.variants[0].settings)
    shown = [name for name, _ in _costs_said(sweep.variants[0].costs)]
    rows = [
        (*each.settings.values(), *(said for _, said in _costs_said(each.costs)), mark)
        for number, each in enumerate(sweep.variants)
        for mark in ["not beaten" if number in numbers else ""]
    ]
    yield "<h2>What the settings cost</h2>"
    yield "<p>No other variant is better in every respect than those that are not beaten.</p>"
    yield _table((*names, *shown, ""), rows, numbers)
    yield _plot(_front_figure(sweep, numbers), "front")


# -- plots ---------------------------------------------------------------------------------


def _by_topic(run: Run) -> dict[str, Columns]:
    """Return each topic's series over its partitions: sums, and the worst of ages and ratios."""
    found: dict[str, Columns] = {}
    arrays = run.partitions.arrays()
    is_regular = np.isin(arrays["event"], ("regular", "start", "end"))
    for topic in run.scenario.topics:
        here = is_regular & (arrays["topic"] == topic.name)
        times, at = np.unique(arrays["time_ms"][here], return_inverse=True)
        columns: dict[str, Any] = {"time_ms": times}
        for name, column in arrays.items():
            if column.dtype.kind not in "if" or name == "time_ms":
                continue
            is_worst = name.endswith(("_ms", "_ratio", "_load", "_amplification"))
            values = np.zeros(len(times))
            (np.maximum if is_worst else np.add).at(values, at, column[here])
            columns[name] = values
        found[topic.name] = columns
    return found


def _curves(run: Run) -> Iterator[str]:
    by_topic = _by_topic(run)
    largest = sorted(by_topic, key=lambda name: -_bytes(by_topic[name]).max())[:TOPICS_MAX]
    for name in largest:
        yield f"<h2>{html.escape(name)}</h2>"
        yield _plot(_topic_figure(run, name, by_topic[name]), f"topic-{name}")
        if (run.segments["topic"] == name).any() if len(run.segments) else False:
            yield f"<h3>Segments of {html.escape(name)}-0, oldest below (bytes)</h3>"
            yield _plot(_segments_figure(run, name), f"segments-{name}")
    left = len(by_topic) - len(largest)
    if left:
        yield f"<p>{left} more topics are in the series.</p>"
    if len(run.consumers):
        yield "<h2>Consumers</h2>"
        yield _plot(_consumers_figure(run), "consumers")


def _bytes(columns: Columns) -> Column:
    total: Column = np.sum([columns[f"{kind}_bytes"] for kind in SECTION_LOOKS], axis=0)
    return total


def _topic_figure(run: Run, name: str, columns: Columns) -> Figure:
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    days = _dates(columns["time_ms"])
    figure = make_subplots(len(PANELS), 1, shared_xaxes=True, vertical_spacing=0.05)
    for row, (title, curves) in enumerate(PANELS.items(), start=1):
        legend = "legend" if row == 1 else f"legend{row}"
        for kind, (colour, pattern) in SECTION_LOOKS.items() if not curves else ():
            figure.add_trace(
                Scatter(
                    x=days, y=columns[f"{kind}_bytes"], name=kind, stackgroup="bytes",
                    mode="lines", line={"width": 0.8, "color": colour}, fillcolor=colour,
                    fillpattern={"shape": pattern, "fgcolor": "#fff", "size": 6}, legend=legend,
                ), row, 1,
            )  # fmt: skip
        for number, (column, label, unit) in enumerate(curves):
            colour, dash = LINES[number]
            figure.add_trace(
                Scatter(x=days, y=columns[column] / unit, name=label, mode="lines", legend=legend,
                        line={"color": colour, "dash": dash, "width": 1.6}), row, 1,
            )  # fmt: skip
        top = figure.layout[f"yaxis{row if row > 1 else ''}"].domain[1]
        figure.add_annotation(
            text=f"<b>{title}</b>", x=0, y=top, xref="paper", yref="paper", xanchor="left",
            yanchor="bottom", showarrow=False, yshift=17,
        )  # fmt: skip
        figure.update_layout({legend: {"orientation": "h", "x": 0, "y": top, "yanchor": "bottom"}})
    bound = _bound_ms(run, name)
    if bound is not None:
        row = list(PANELS).index(AGE_PANEL) + 1
        figure.add_hline(bound / DAY_MS, row=row, line={"color": "#000", "dash": "dot", "width": 1},
                         annotation_text="max.compaction.lag.ms")  # fmt: skip
    figure.update_layout(height=190 * len(PANELS))
    return _finish(figure)


def _bound_ms(run: Run, name: str) -> int | None:
    """Return the topic's `max.compaction.lag.ms`, None if it has none."""
    from logstore.config.overrides import effective_config
    from logstore.types import INT64_MAX

    topic = next(topic for topic in run.scenario.topics if topic.name == name)
    bound = effective_config(topic.configs).max_compaction_lag_ms
    return None if bound == INT64_MAX else bound


def _segments_figure(run: Run, name: str) -> Figure:
    """Draw the segments of the topic's first partition as strips over time, oldest below."""
    from plotly.graph_objects import Bar, Figure

    found = run.segments.where(topic=name)
    here = found["partition"] == 0
    columns = {key: column[here] for key, column in found.items()}
    times = np.unique(columns["time_ms"])
    width = float(np.diff(times).min()) if len(times) > 1 else float(DAY_MS)
    base = np.zeros(len(columns["time_ms"]))
    for moment in times:
        rows = np.flatnonzero(columns["time_ms"] == moment)
        base[rows] = np.concatenate(([0], np.cumsum(columns["bytes"][rows])[:-1]))
    figure = Figure()
    for section, (colour, pattern) in SECTION_LOOKS.items():
        rows = np.flatnonzero(columns["section"] == section)
        if len(rows):
            texts = [
                f"offsets {columns['base_offset'][row]} to {columns['end_offset'][row] - 1}, "
                f"{_size(columns['bytes'][row])}"
                for row in rows
            ]
            figure.add_trace(
                Bar(x=_dates(columns["time_ms"][rows]), y=columns["bytes"][rows], base=base[rows],
                    width=width, name=section, hovertext=texts, hoverinfo="x+name+text",
                    marker={"color": colour, "line": {"color": "#fff", "width": 0.5},
                            "pattern": {"shape": pattern, "fgcolor": "#fff", "size": 6}}),
            )  # fmt: skip
    figure.update_layout(
        height=380, barmode="overlay", legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    )
    return _finish(figure)


def _consumers_figure(run: Run) -> Figure:
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    titles = ("Lag (records)", "Deletes missed")
    figure = make_subplots(2, 1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.12)
    for number, consumer in enumerate(run.scenario.consumers):
        columns = run.consumers.where(consumer=consumer.name)
        colour, dash = LINES[number % len(LINES)]
        for row, column in ((1, "lag_records"), (2, "missed_tombstones")):
            figure.add_trace(
                Scatter(x=_dates(columns["time_ms"]), y=columns[column], name=consumer.name,
                        mode="lines", line={"color": colour, "dash": dash}, showlegend=row == 1),
                row, 1,
            )  # fmt: skip
    figure.update_layout(height=480, legend={"orientation": "h", "y": 1.06, "yanchor": "bottom"})
    return _finish(figure)


def _front_figure(sweep: Sweep, front: Sequence[int]) -> Figure:
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for label, symbol, colour, is_front in (
        ("beaten by another", "circle-open", "#777777", False),
        ("not beaten", "diamond", "#0072b2", True),
    ):
        numbers = [n for n in range(len(sweep.variants)) if (n in front) == is_front]
        chosen = [sweep.variants[number] for number in numbers]
        figure.add_trace(
            Scatter(
                x=[each.costs["write_amplification"] for each in chosen],
                y=[each.costs["bytes_mean"] for each in chosen],
                text=["<br>".join(f"{k}={v}" for k, v in each.settings.items()) for each in chosen],
                mode="markers", name=label,
                marker={"symbol": symbol, "size": 11, "color": colour},
            )
        )  # fmt: skip
    figure.update_layout(
        height=420,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        xaxis_title="bytes written for each that arrived",
        yaxis_title="bytes on the disk, on average",
    )
    return _finish(figure, is_time=False)


def _dates(times_ms: Column) -> Column:
    return np.asarray(times_ms, "datetime64[ms]")


def _finish(figure: Figure, *, is_time: bool = True) -> Figure:
    figure.update_layout(
        template="plotly_white", margin={"l": 48, "r": 8, "t": 44, "b": 36},
        font={"size": 12}, modebar={"orientation": "v"},
        hovermode="x unified" if is_time else "closest",
    )  # fmt: skip
    figure.update_yaxes(rangemode="tozero", automargin=True)
    return figure


def _plot(figure: Figure, name: str) -> str:
    drawn: str = figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=name,
        config={"responsive": True, "displaylogo": False, "displayModeBar": False},
    )  # fmt: skip
    return f"<div class=plot>{drawn}</div>"
