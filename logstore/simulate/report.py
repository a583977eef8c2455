"""The report of a run: one HTML file with its story and its curves, which fetches nothing."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from logstore.simulate import pages
from logstore.simulate.outcome import REGULAR_EVENTS, bytes_of
from logstore.simulate.pages import Part
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

HOLES_LOOK = "#bbbbbb"

AGE_LOOKS = {
    "tombstones_to_half": ("below ½ of delete.retention.ms", "#56b4e9", "."),
    "tombstones_to_1": ("below 1", "#0072b2", ""),
    "tombstones_to_2": ("below 2", "#e69f00", "/"),
    "tombstones_to_4": ("below 4", "#d55e00", "x"),
    "tombstones_beyond": ("beyond", "#767676", "\\"),
}
"""Label, colour and pattern of each class of tombstones by age."""

LINES = (
    ("#0072b2", "solid"),
    ("#d55e00", "dash"),
    ("#009e73", "dot"),
    ("#cc79a7", "dashdot"),
    ("#767676", "longdash"),
)

STACKS: Mapping[str, Sequence[tuple[str, str, str, str]]] = {
    "Bytes": [(f"{kind}_bytes", kind, *look) for kind, look in SECTION_LOOKS.items()],
    "Tombstones by age": [(column, *look) for column, look in AGE_LOOKS.items()],
}
"""Panels whose curves lie on one another, as (column, label, colour, pattern)."""

PANELS: Mapping[str, Sequence[tuple[str, str, float]]] = {
    "Bytes": (),
    "Records": (("live_records", "live", 1), ("dead_records", "dead", 1)),
    "Ratios": (("cleanable_ratio", "dirty", 1), ("must_clean_ratio", "must clean", 1)),
    "Age of what no cleaning has seen (days)": (
        ("oldest_dirty_ms", "age", DAY_MS),
        ("compaction_delay_ms", "beyond the bound", DAY_MS),
        ("max_compaction_lag_ms", "max.compaction.lag.ms", DAY_MS),
    ),
    "Tombstones by age": (),
    "Age of the oldest tombstone (days)": (("oldest_tombstone_ms", "age", DAY_MS),),
    "Bytes written per byte that arrived": (("write_amplification", "written", 1),),
    "Cleaner (bytes a second)": (
        ("cleaner_bytes_per_second", "read and written", 1),
        ("throttle_bytes_per_second", "its throttle", 1),
    ),
    "Segments": (("segments", "segments", 1),),
    "Offsets without a record": (("hole_offsets", "holes", 1),),
}
"""Panels of a topic: curves as (column, label, unit), or else one of `STACKS`."""

LIMITS = ("max_compaction_lag_ms", "throttle_bytes_per_second")
"""Columns that are the same in all partitions, and drawn only where they are set."""

RATIOS = ("_ratio", "_load", "_amplification")
"""Endings of the names of what is no count, and has no unit."""

TOPICS_MAX = 12
"""Topics that get curves of their own; the largest ones."""


def can_draw() -> bool:
    """Return whether plotly and Jinja2 are installed (the extra `report`)."""
    return all(importlib.util.find_spec(name) is not None for name in ("plotly", "jinja2"))


def page(run: Run, sweep: Sweep | None = None) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    sweep : Sweep, optional
        Variants of the scenario; they get a table and a plot of their own.

    Raises
    ------
    ImportError
        plotly or Jinja2 is missing.
    """
    from plotly.offline import get_plotlyjs

    plan = run.scenario
    parts = [
        *(pages.paragraph(text, "story") for text in (plan.about, story(run)) if text),
        *_sweep_parts(sweep),
        *_curves(run),
        pages.heading("What it cost"),
        pages.table("Costs", ("cost", "value"), list(_costs_said(run.costs()))),
        *_notes(run),
        *_settings(run),
    ]
    return pages.render(plan.title, parts, get_plotlyjs())


# -- words ---------------------------------------------------------------------------------


def story(run: Run) -> str:
    """Return a paragraph of plain words about a run."""
    plan, costs = run.scenario, run.costs()
    series = run.over_time()
    appended = series["appended_bytes"][-1]
    until_peak_ms = series["time_ms"][int(bytes_of(series).argmax())] - plan.start_ms
    sentences = [
        f"In {_span(plan.days * DAY_MS)} {_size(appended)} arrived.",
        f"The files took {_size(costs['bytes_mean'])} on average and at most "
        f"{_size(costs['bytes_peak'])}, after {_span(until_peak_ms)}.",
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
        yield name.removesuffix("_ms").replace("_", " "), _said(name, value)


def _said(name: str, value: float) -> str:
    """Return a cost, or a number of a series, with the unit that its name tells."""
    if name.endswith("_ms"):
        return _span(value)
    if "bytes" in name:
        return _size(value)
    if name == "live_share":
        return f"{value:.1%}"
    return f"{value:.2f}" if name.endswith(RATIOS) else f"{value:,.0f}"


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


def _notes(run: Run) -> Iterator[Part]:
    if run.notes:
        yield pages.heading("What happened")
        yield pages.items(run.notes)


def _settings(run: Run) -> Iterator[Part]:
    plan = run.scenario
    yield pages.heading("Settings")
    rows = [("broker", name, value) for name, value in sorted(plan.broker.items())]
    rows += [
        (topic.name, name, value)
        for topic in plan.topics
        for name, value in sorted(topic.configs.items())
    ]
    if rows:
        yield pages.table("Settings", ("of", "key", "value"), rows)
    yield pages.paragraph("", small=f"Everything else is Kafka's default. Seed {plan.seed}.")


def _sweep_parts(sweep: Sweep | None) -> Iterator[Part]:
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
    yield pages.heading("What the settings cost")
    yield pages.paragraph(
        "No other variant is better in every respect than those that are not beaten."
    )
    heads = (*names, *shown, "verdict")
    yield pages.table("Costs of the settings", heads, rows, front=numbers)
    words = f"{len(numbers)} of {len(sweep.variants)} variants are not beaten."
    yield _plot(_front_figure(sweep, numbers), "front", "Space and writes of each variant", words)


# -- plots ---------------------------------------------------------------------------------


def _shown(run: Run, topic: str | None = None) -> Columns:
    """Return the series of a topic, or of all, at the moments that are drawn.

    These are the regular ones, and those at which a curve is at its largest.
    """
    series = run.over_time(topic)
    arrays = run.partitions.where(**({} if topic is None else {"topic": topic}))
    regular = arrays["time_ms"][np.isin(arrays["event"], REGULAR_EVENTS)]
    is_drawn = np.isin(series["time_ms"], regular)
    for values in (*series.values(), bytes_of(series)):
        is_drawn[int(values.argmax())] = True
    return {name: values[is_drawn] for name, values in series.items()}


def _curves(run: Run) -> Iterator[Part]:
    by_topic = {topic.name: _shown(run, topic.name) for topic in run.scenario.topics}
    if len(by_topic) > 1:
        yield pages.heading("All topics")
        yield from _plots(run, "all", _shown(run), ("Bytes",))
    largest = sorted(by_topic, key=lambda name: -bytes_of(by_topic[name]).max())[:TOPICS_MAX]
    for name in largest:
        yield pages.heading(name)
        yield pages.group(name, _topic_plots(run, name, by_topic[name]))
    left = len(by_topic) - len(largest)
    if left:
        yield pages.paragraph(f"{left} more topics are in the series.")
    if len(run.consumers):
        yield pages.heading("Consumers")
        yield pages.group("consumers", _consumer_plots(run))


def _topic_plots(run: Run, name: str, columns: Columns) -> Iterator[Part]:
    yield from _plots(run, f"topic-{name}", columns, PANELS)
    if len(run.segments) and (run.segments["topic"] == name).any():
        number = int(run.segments.where(topic=name)["partition"].min())
        words = (
            f"The segments of {name}-{number} over time, the oldest at the bottom: for each, "
            "its offsets with a record, and on top of them as many as have none."
        )
        drawing = _segments_figure(run, name, number)
        yield _plot(drawing, f"segments-{name}", "Segments (offsets)", words)


def _plots(run: Run, name: str, columns: Columns, panels: Iterable[str]) -> Iterator[Part]:
    """Draw one panel after another, so that each has its words, and print breaks between them."""
    from plotly.graph_objects import Scatter

    days = _dates(columns["time_ms"])
    for number, title in enumerate(panels):
        figure = _time_figure(run)
        words = []
        for column, label, colour, pattern in STACKS.get(title, ()):
            figure.add_trace(
                Scatter(
                    x=days, y=columns[column], name=label, stackgroup="all", mode="lines",
                    line={"width": 0.8, "color": colour}, fillcolor=colour,
                    fillpattern={"shape": pattern, "fgcolor": "#fff", "size": 6},
                )
            )  # fmt: skip
        if title in STACKS:
            stacked = [columns[column] for column, *_ in STACKS[title]]
            unit = STACKS[title][0][0].rpartition("_")[2]
            words.append(_in_words(unit, "all", np.sum(stacked, axis=0)))
            figure.update_layout(height=240)  # its legend takes three lines on a phone
        for (column, label, unit_size), (colour, dash) in zip(PANELS[title], LINES, strict=False):
            values = columns[column] / unit_size
            if column in LIMITS:
                if not values.any():
                    continue
                values = np.where(values > 0, values, np.nan)
            figure.add_trace(
                Scatter(x=days, y=values, name=label, mode="lines",
                        line={"color": colour, "dash": dash, "width": 1.6})
            )  # fmt: skip
            words.append(_in_words(column, label, columns[column]))
        yield _plot(figure, f"{name}-{number}", title, "; ".join(words) + ".")


def _in_words(column: str, label: str, values: Column) -> str:
    last, most = _said(column, values[-1]), _said(column, values.max())
    if values.min() == values.max():
        return f"{label}: {last} all the time"
    return f"{label}: {last} at the end, at most {most}"


def _segments_figure(run: Run, name: str, number: int) -> Figure:
    """Draw the segments of a partition over time, the oldest at the bottom."""
    from plotly.graph_objects import Bar

    found = run.segments.where(topic=name)
    here = found["partition"] == number
    columns = {key: column[here] for key, column in found.items()}
    times, at = np.unique(columns["time_ms"], return_inverse=True)
    step = int(np.diff(times).min()) if len(times) > 1 else DAY_MS
    ends = np.append(times[1:], times[-1] + step)
    # A segment is one bar for as long as nothing about it changes.
    order = np.lexsort((at, columns["base_offset"]))
    changes = np.diff(at[order]) != 1
    for key in ("base_offset", "end_offset", "records", "bytes", "section"):
        column = columns[key][order]
        changes |= column[1:] != column[:-1]
    firsts = order[np.concatenate(([True], changes))]
    lasts = order[np.concatenate((changes, [True]))]
    begins, records, size = columns["base_offset"], columns["records"], columns["bytes"]
    spans = columns["end_offset"] - begins
    texts = np.array([
        f"offsets {begin} to {begin + span - 1}, {count} records, {_size(weight)}"
        for begin, span, count, weight in zip(begins, spans, records, size, strict=True)
    ])  # fmt: skip
    figure = _time_figure(run)

    def draw(name: str, chosen: Column, base: Column, height: Column, look: dict[str, Any]) -> None:
        rows = firsts[chosen]
        figure.add_trace(
            Bar(x=_dates(times[at[rows]]), y=height[rows], base=base[rows], offset=0, name=name,
                width=ends[at[lasts[chosen]]] - times[at[rows]], hovertext=texts[rows],
                hoverinfo="x+name+text", marker={"line": {"color": "#fff", "width": 0.5}, **look}),
        )  # fmt: skip

    for section, (colour, pattern) in SECTION_LOOKS.items():
        chosen = columns["section"][firsts] == section
        if chosen.any():
            filling = {"shape": pattern, "fgcolor": "#fff", "size": 6}
            draw(section, chosen, begins, records, {"color": colour, "pattern": filling})
    holes = (spans > records)[firsts]
    if holes.any():
        lines = {"shape": "-", "fgcolor": "#fff", "size": 6}
        look = {"color": HOLES_LOOK, "pattern": lines}
        draw("holes", holes, begins + records, spans - records, look)
    figure.update_layout(height=380, barmode="overlay", hovermode="closest")
    return figure


def _consumer_plots(run: Run) -> Iterator[Part]:
    from plotly.graph_objects import Scatter

    for column, title in (
        ("lag_records", "Lag (records)"),
        ("missed_tombstones", "Deletes missed"),
    ):
        figure, words = _time_figure(run), []
        for number, consumer in enumerate(run.scenario.consumers):
            columns = run.consumers.where(consumer=consumer.name)
            colour, dash = LINES[number % len(LINES)]
            figure.add_trace(
                Scatter(x=_dates(columns["time_ms"]), y=columns[column], name=consumer.name,
                        mode="lines", line={"color": colour, "dash": dash})
            )  # fmt: skip
            words.append(_in_words(column, consumer.name, columns[column]))
        yield _plot(figure, f"consumers-{column}", title, "; ".join(words) + ".")


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
        hovermode="closest",
        xaxis_title="bytes written for each that arrived",
        yaxis_title="bytes on the disk, on average",
    )
    figure.update_yaxes(automargin=True)
    return _finish(figure)


def _dates(times_ms: Column) -> Column:
    return np.asarray(times_ms, "datetime64[ms]")


def _time_figure(run: Run) -> Figure:
    """Return an empty figure over the time of a run, the same for all."""
    from plotly.graph_objects import Figure

    times_ms = run.partitions["time_ms"]
    figure = Figure(layout={"height": 190, "hovermode": "x unified"})
    figure.update_xaxes(range=_dates(np.array([times_ms.min(), times_ms.max()])), type="date")
    # No more room than this for the numbers: the axes of all panels begin at one place.
    figure.update_yaxes(nticks=5, automargin=False)
    return _finish(figure)


def _finish(figure: Figure) -> Figure:
    clear = "rgba(0,0,0,0)"  # the colours of the page show through, light or dark
    figure.update_layout(
        template="plotly_white", margin={"l": 52, "r": 8, "t": 16, "b": 38}, font={"size": 12},
        paper_bgcolor=clear, plot_bgcolor=clear,
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )  # fmt: skip
    # The numbers stand above their lines, so that the lowest one does not meet the first date.
    figure.update_yaxes(rangemode="tozero", ticklabelposition="outside top")
    figure.update_xaxes(ticks="outside", ticklen=4)
    return figure


def _plot(figure: Figure, name: str, title: str, words: str) -> Part:
    """Return a figure of the page, with words for those who do not see it."""
    drawn: str = figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=name,
        config={"responsive": True, "displaylogo": False, "displayModeBar": False},
    )  # fmt: skip
    return pages.figure(name, title, words, drawn)
