"""The HTML report of a run, a self-contained file with a summary and plots."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from logstore.reasons.formats import format_size, format_span
from logstore.simulate import pages
from logstore.simulate.outcome import REGULAR_EVENTS, SWAP, bytes_of
from logstore.simulate.pages import Part
from logstore.simulate.quantities import (
    QUANTITIES,
    SWEPT,
    Quantity,
    format_value,
)
from logstore.simulate.spread import ALL_BYTES
from logstore.types import DAY_MS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from logstore.simulate.outcome import Column, Run
    from logstore.simulate.search import Found
    from logstore.simulate.spread import Percentiles, Spread
    from logstore.simulate.sweep import Sweep, Variant

Columns = Mapping[str, "Column"]

SECTION_STYLES = {
    "clean": ("#0072b2", ""),
    "dirty": ("#e69f00", "/"),
    "uncleanable": ("#cc79a7", "x"),
    "active": ("#56b4e9", "."),
    "deleted": ("#999999", "\\"),
    "swap": ("#d55e00", "-"),
}
"""Colour and pattern of each kind of bytes. The colours are safe for colour blindness."""

HOLES_COLOUR = "#bbbbbb"

AGE_STYLES = {
    "tombstones_to_half": ("below ½ of delete.retention.ms", "#56b4e9", "."),
    "tombstones_to_1": ("below 1", "#0072b2", ""),
    "tombstones_to_2": ("below 2", "#e69f00", "/"),
    "tombstones_to_4": ("below 4", "#d55e00", "x"),
    "tombstones_beyond": ("beyond", "#767676", "\\"),
}
"""Label, colour and pattern of each age class of tombstones."""

LINES = (
    ("#0072b2", "solid"),
    ("#d55e00", "dash"),
    ("#009e73", "dot"),
    ("#cc79a7", "dashdot"),
    ("#767676", "longdash"),
)

STACKS: Mapping[str, Sequence[tuple[str, str, str, str]]] = {
    "Bytes": [(f"{kind}_bytes", kind, *style) for kind, style in SECTION_STYLES.items()],
    "Tombstones by age": [(column, *style) for column, style in AGE_STYLES.items()],
}
"""Panels with stacked curves: (column, label, colour, pattern)."""

PANELS: Mapping[str, Sequence[tuple[str, str, float]]] = {
    "Bytes": (),
    "Records": (("live_records", "live", 1), ("dead_records", "dead", 1)),
    "Ratios": (("cleanable_ratio", "dirty", 1), ("must_clean_ratio", "must clean", 1)),
    "Age of the oldest dirty data (days)": (
        ("oldest_dirty_ms", "age", DAY_MS),
        ("compaction_delay_ms", "beyond max.compaction.lag.ms", DAY_MS),
        ("max_compaction_lag_ms", "max.compaction.lag.ms", DAY_MS),
    ),
    "Tombstones by age": (),
    "Age of the oldest tombstone (days)": (("oldest_tombstone_ms", "age", DAY_MS),),
    "Bytes written per byte appended": (("write_amplification", "written", 1),),
    "Cleaner (bytes per second)": (
        ("cleaner_bytes_per_second", "read and written", 1),
        ("throttle_bytes_per_second", "throttle", 1),
    ),
    "Segments": (("segments", "segments", 1),),
    "Offsets without a record": (("hole_offsets", "holes", 1),),
}
"""Panels of a topic: curves (column, label, unit), or empty for panels in `STACKS`."""

LIMITS = ("max_compaction_lag_ms", "throttle_bytes_per_second")
"""Columns that are equal in all partitions, and drawn only while set."""

TOPICS_MAX = 12
"""Number of topics with separate plots, largest first."""


def can_draw() -> bool:
    """Return whether plotly and Jinja2 are installed (the `report` extra)."""
    return all(importlib.util.find_spec(name) is not None for name in ("plotly", "jinja2"))


def page(
    run: Run,
    sweep: Sweep | None = None,
    *,
    spread: Spread | None = None,
    found: Found | None = None,
) -> str:
    """Return the HTML report.

    Parameters
    ----------
    sweep : Sweep, optional
        Variants of the scenario, for a table and a plot.
    spread : Spread, optional
        Runs with different seeds, for bands and percentiles.
    found : Found, optional
        A search for a goal. The run must use its best settings.

    Raises
    ------
    ImportError
        plotly or Jinja2 is not installed.
    """
    from plotly.offline import get_plotlyjs

    plan = run.scenario
    parts = [
        *(pages.paragraph(text, "story") for text in (plan.about, story(run)) if text),
        *_found_parts(found),
        *_sweep_parts(sweep),
        *_curves(run, spread),
        pages.heading("Costs"),
        _costs(run, spread),
        *_notes(run),
        *_settings(run),
    ]
    return pages.render(plan.title, parts, get_plotlyjs())


# -- texts ---------------------------------------------------------------------------------


def story(run: Run) -> str:
    """Return a paragraph that summarizes a run."""
    plan, costs = run.scenario, run.costs()
    series = run.over_time()
    appended = series["appended_bytes"][-1]
    until_peak_ms = series["time_ms"][int(bytes_of(series).argmax())] - plan.start_ms
    sentences = [
        f"In {format_span(plan.span_ms)}, {format_size(appended)} were appended.",
        f"The files took {format_size(costs['bytes_mean'])} on average and at most "
        f"{format_size(costs['bytes_peak'])}, after {format_span(until_peak_ms)}.",
    ]
    passes = int(costs["passes"])
    if passes:
        amplification = costs["write_amplification"]
        sentences.append(
            f"The cleaner made {passes} {'pass' if passes == 1 else 'passes'}, read "
            f"{format_size(costs['cleaner_read_bytes'])} and wrote "
            f"{format_size(costs['cleaner_written_bytes'])}. In total, {amplification:.2f} bytes "
            "were written for each byte appended."
        )
        sentences.append(
            f"The oldest uncleaned record was {format_span(int(costs['oldest_dirty_max_ms']))} old."
        )
    else:
        sentences.append("The cleaner made no pass.")
    delay = costs["compaction_delay_max_ms"]
    if delay:
        sentences.append(f"max.compaction.lag.ms was exceeded by up to {format_span(int(delay))}.")
    missed = int(costs["missed_tombstones"])
    if missed:
        sentences.append(
            f"A consumer missed {missed} {'delete' if missed == 1 else 'deletes'}: the tombstones "
            "were removed before it read them."
        )
    return " ".join(sentences)


# -- tables --------------------------------------------------------------------------------


def _notes(run: Run) -> Iterator[Part]:
    if run.notes:
        yield pages.heading("Events")
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
        yield pages.table("Settings", ("scope", "key", "value"), rows)
    yield pages.paragraph("", small=f"All other settings are Kafka's defaults. Seed {plan.seed}.")


def _sweep_parts(sweep: Sweep | None) -> Iterator[Part]:
    if sweep is None:
        return
    front = sweep.front()
    numbers = [number for number, each in enumerate(sweep.variants) if each in front]
    names = list(sweep.variants[0].settings)
    shown = [QUANTITIES[name] for name in SWEPT]
    costs = [each.short for each in shown]
    rows = [
        (*each.settings.values(), *(_with_range(cost, each) for cost in shown), verdict)
        for number, each in enumerate(sweep.variants)
        for verdict in ["Pareto-optimal" if number in numbers else ""]
    ]
    yield pages.heading("Costs of the settings")
    yield pages.paragraph(
        "A variant is Pareto-optimal if no other is better in one cost and at least as good in all."
    )
    heads = (*names, *costs, "verdict")
    yield pages.table("Costs of the settings", heads, rows, front=numbers)
    words = f"{len(numbers)} of {len(sweep.variants)} variants are Pareto-optimal."
    yield _plot(_front_figure(sweep, numbers), "front", "Space and writes of each variant", words)


def _with_range(cost: Quantity, variant: Variant) -> str:
    """Format a cost, or its median with the 5th and 95th percentiles."""
    if not variant.spread:
        return cost.format(variant.costs[cost.cost])
    low, middle, high = (
        cost.format(variant.spread[cost.cost][name]) for name in ("p5", "p50", "p95")
    )
    return f"{middle} ({low} to {high})"


def _costs(run: Run, spread: Spread | None) -> Part:
    """Return the table of costs, as on the command line."""
    if spread is None:
        costs = run.costs()
        rows = [(each.label, each.format(costs[name])) for name, each in QUANTITIES.items()]
        return pages.table("Costs", ("cost", "value"), rows)
    ranges = spread.costs()
    heads = ("p5", "p50", "p95")
    numbers = [
        (each.label, *(each.format(ranges[name][head]) for head in heads))
        for name, each in QUANTITIES.items()
    ]
    return pages.table("Costs", ("cost", *heads), numbers, numbers=heads)


def _found_parts(found: Found | None) -> Iterator[Part]:
    """Yield the result of a search: settings, margins and Pareto front."""
    if found is None:
        return
    yield pages.heading(f"Goal: {found.goal}; minimize {found.minimize.name}")
    yield pages.paragraph(found.verdict(), "story", small=found.effort())
    yield pages.table("Setting", ("setting", "value"), list(found.best.settings.items()))
    ranges = found.best.spread()
    heads = ("p5", "p50", "p95", "worst", "margin")
    rows = []
    for title, quantity, *others in (
        (found.minimize.name, found.minimize, "", "minimized"),
        *(
            (str(each.term), each.term.quantity, each.term.quantity.format(each.worst),
             each.describe())
            for each in found.margins()
        ),
    ):  # fmt: skip
        percentiles = (quantity.format(ranges[quantity.cost][head]) for head in heads[:3])
        rows.append((title, *percentiles, *others))
    yield pages.table("Margins", ("quantity", *heads), rows, numbers=heads[:4])
    yield pages.paragraph(
        "p5, p50 and p95 are over the seeds of the search, the worst value is over all seeds. No "
        "other combination beats those below in each of the quantities, by the first seed."
    )
    bounded = {term.quantity.cost: term.quantity for term in found.goal.terms}
    shown = [found.minimize, *(each for each in bounded.values() if each != found.minimize)]
    first = found.seeds[0]
    front = [
        (
            *each.settings.values(),
            *(row.format(each.runs[first][row.cost]) for row in shown),
            str(len(each.runs) + len(each.held)),
            found.describe(each),
        )
        for each in found.front
    ]
    names = (*found.best.settings, *(each.name for each in shown), "seeds", "verdict")
    marked = [number for number, each in enumerate(found.front) if each is found.best]
    yield pages.table("Front", names, front, front=marked)
    words = f"{len(found.candidates)} combinations were run; {len(found.front)} are Pareto-optimal."
    title = f"{shown[-1].label.strip()} and {found.minimize.label.strip()} of each combination"
    yield _plot(_found_figure(found, shown), "found", title[0].upper() + title[1:], words)


# -- plots ---------------------------------------------------------------------------------


def _drawn_series(run: Run, topic: str | None = None) -> Columns:
    """Return the series of one or all topics, reduced to the times that are drawn.

    These are the times of regular rows, of each curve's maximum, and of passes.
    """
    series = run.over_time(topic)
    arrays = run.partitions.where(**({} if topic is None else {"topic": topic}))
    regular = arrays["time_ms"][np.isin(arrays["event"], REGULAR_EVENTS)]
    is_drawn = np.isin(series["time_ms"], regular)
    is_drawn |= series[SWAP] > 0
    for values in (*series.values(), bytes_of(series)):
        is_drawn[int(values.argmax())] = True
    return {name: values[is_drawn] for name, values in series.items()}


def _curves(run: Run, spread: Spread | None = None) -> Iterator[Part]:
    by_topic = {topic.name: _drawn_series(run, topic.name) for topic in run.scenario.topics}
    if len(by_topic) > 1:
        yield pages.heading("All topics")
        yield from _plots(run, "all", _drawn_series(run), ("Bytes",), spread)
    largest = sorted(by_topic, key=lambda name: -bytes_of(by_topic[name]).max())[:TOPICS_MAX]
    for name in largest:
        yield pages.heading(name)
        yield pages.group(name, _topic_plots(run, name, by_topic[name], spread))
    left = len(by_topic) - len(largest)
    if left:
        yield pages.paragraph(f"The series contain {left} more topics.")
    if len(run.consumers):
        yield pages.heading("Consumers")
        yield pages.group("consumers", _consumer_plots(run))


def _topic_plots(run: Run, name: str, columns: Columns, spread: Spread | None) -> Iterator[Part]:
    yield from _plots(run, f"topic-{name}", columns, PANELS, spread, name)
    if len(run.segments) and (run.segments["topic"] == name).any():
        number = int(run.segments.where(topic=name)["partition"].min())
        words = (
            f"The segments of {name}-{number} over time, the oldest at the bottom. Each bar shows "
            "the number of offsets with a record and, above it, of offsets without one."
        )
        drawing = _segments_figure(run, name, number)
        yield _plot(drawing, f"segments-{name}", "Segments (offsets)", words)


def _plots(
    run: Run,
    name: str,
    columns: Columns,
    panels: Iterable[str],
    spread: Spread | None = None,
    topic: str | None = None,
) -> Iterator[Part]:
    """Draw each panel as a separate plot, with its own caption and page breaks when printed.

    With several seeds, each curve has a band from the 5th to the 95th percentile and a dotted
    median. Stacked bytes have the band of their sum.
    """
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
            words.append(_describe(unit, "all", np.sum(stacked, axis=0)))
            if spread is not None and title == "Bytes":
                words += _add_band(figure, spread, ALL_BYTES, "all", 1, "#1d2733", topic)
            figure.update_layout(height=240)  # the legend takes three lines on a phone
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
            words.append(_describe(column, label, columns[column]))
            if spread is not None and column not in LIMITS:
                words += _add_band(figure, spread, column, label, unit_size, colour, topic)
        yield _plot(figure, f"{name}-{number}", title, "; ".join(words) + ".")


def _add_band(
    figure: Figure,
    spread: Spread,
    column: str,
    label: str,
    unit_size: float,
    colour: str,
    topic: str | None,
) -> Iterator[str]:
    """Draw the percentiles of a curve over the seeds, and describe its maxima."""
    from plotly.graph_objects import Scatter

    days, band = _dates(spread.time_ms), spread.curve(column, topic)
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    for name, values, style in (
        ("p5", band.p5, {}),
        ("p95", band.p95, {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.18)"}),
        ("p50", band.p50, {}),
    ):
        line = {"color": colour, "width": 1 if name == "p50" else 0, "dash": "dot"}
        figure.add_trace(
            Scatter(x=days, y=values / unit_size, name=f"{label}, {name} of the seeds",
                    mode="lines", line=line, showlegend=name == "p50", **style)
        )  # fmt: skip
    most: Percentiles = spread.most(column, topic)
    low, middle, high = (format_value(column, each) for each in most)
    yield f"over {len(spread.runs)} seeds at most {middle} ({low} to {high})"


def _describe(column: str, label: str, values: Column) -> str:
    last, most = format_value(column, values[-1]), format_value(column, values.max())
    if values.min() == values.max():
        return f"{label}: constant at {last}"
    return f"{label}: {last} at the end, at most {most}"


def _segments_figure(run: Run, name: str, number: int) -> Figure:
    """Draw the segments of a partition over time, with the oldest at the bottom."""
    from plotly.graph_objects import Bar

    columns = run.segments.where(topic=name, partition=number)
    times, at = np.unique(columns["time_ms"], return_inverse=True)
    step = int(np.diff(times).min()) if len(times) > 1 else DAY_MS
    ends = np.append(times[1:], times[-1] + step)
    # A segment is a single bar as long as it does not change.
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
        f"offsets {begin} to {begin + span - 1}, {count} records, {format_size(weight)}"
        for begin, span, count, weight in zip(begins, spans, records, size, strict=True)
    ])  # fmt: skip
    figure = _time_figure(run)

    def draw(name: str, mask: Column, base: Column, height: Column, style: dict[str, Any]) -> None:
        rows = firsts[mask]
        figure.add_trace(
            Bar(x=_dates(times[at[rows]]), y=height[rows], base=base[rows], offset=0, name=name,
                width=ends[at[lasts[mask]]] - times[at[rows]], hovertext=texts[rows],
                hoverinfo="x+name+text", marker={"line": {"color": "#fff", "width": 0.5}, **style}),
        )  # fmt: skip

    for section, (colour, pattern) in SECTION_STYLES.items():
        mask = columns["section"][firsts] == section
        if mask.any():
            filling = {"shape": pattern, "fgcolor": "#fff", "size": 6}
            draw(section, mask, begins, records, {"color": colour, "pattern": filling})
    holes = (spans > records)[firsts]
    if holes.any():
        lines = {"shape": "-", "fgcolor": "#fff", "size": 6}
        style = {"color": HOLES_COLOUR, "pattern": lines}
        draw("holes", holes, begins + records, spans - records, style)
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
            words.append(_describe(column, consumer.name, columns[column]))
        yield _plot(figure, f"consumers-{column}", title, "; ".join(words) + ".")


def _found_figure(found: Found, shown: Sequence[Quantity]) -> Figure:
    """Plot the candidates of a search by the minimized and the last bounded quantity."""
    from plotly.graph_objects import Figure, Scatter

    figure, first = Figure(), found.seeds[0]
    across, up = shown[-1], found.minimize
    for verdict, symbol, colour in (
        ("misses", "x-thin-open", "#777777"),
        ("meets", "circle-open", "#0072b2"),
        ("nearest miss", "star", "#d55e00"),
        ("best", "star", "#009e73"),
    ):
        group = [each for each in found.candidates if found.describe(each) == verdict]
        if group:
            figure.add_trace(
                Scatter(
                    x=[_in_unit(across, each.runs[first][across.cost]) for each in group],
                    y=[_in_unit(up, each.runs[first][up.cost]) for each in group],
                    text=["<br>".join(f"{k}={v}" for k, v in each.settings.items())
                          for each in group],
                    mode="markers", name=verdict,
                    marker={"symbol": symbol, "size": 11, "color": colour},
                )
            )  # fmt: skip
    for term in found.goal.terms:
        if term.quantity == across:
            figure.add_vline(x=_in_unit(across, term.limit), line={"dash": "dash", "width": 1})
    figure.update_layout(
        height=420,
        hovermode="closest",
        xaxis_title=_axis_title(across),
        yaxis_title=_axis_title(up),
    )
    figure.update_yaxes(automargin=True)
    return _finish(figure)


def _in_unit(quantity: Quantity, value: float) -> float:
    """Convert a value to the unit of its axis. Durations are in days."""
    return value / DAY_MS if quantity.unit == "ms" else value


def _axis_title(quantity: Quantity) -> str:
    return f"{quantity.label.strip()} (days)" if quantity.unit == "ms" else quantity.label.strip()


def _front_figure(sweep: Sweep, front: Sequence[int]) -> Figure:
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for label, symbol, colour, is_front in (
        ("dominated", "circle-open", "#777777", False),
        ("Pareto-optimal", "diamond", "#0072b2", True),
    ):
        numbers = [n for n in range(len(sweep.variants)) if (n in front) == is_front]
        group = [sweep.variants[number] for number in numbers]
        figure.add_trace(
            Scatter(
                x=[each.median_cost("write_amplification") for each in group],
                y=[each.median_cost("bytes_mean") for each in group],
                text=["<br>".join(f"{k}={v}" for k, v in each.settings.items()) for each in group],
                mode="markers", name=label,
                marker={"symbol": symbol, "size": 11, "color": colour},
            )
        )  # fmt: skip
    figure.update_layout(
        height=420,
        hovermode="closest",
        xaxis_title="bytes written per byte appended",
        yaxis_title="bytes on disk, on average",
    )
    figure.update_yaxes(automargin=True)
    return _finish(figure)


def _dates(times_ms: Column) -> Column:
    return np.asarray(times_ms, "datetime64[ms]")


def _time_figure(run: Run) -> Figure:
    """Return an empty figure with a time axis."""
    from plotly.graph_objects import Figure

    times_ms = run.partitions["time_ms"]
    figure = Figure(layout={"height": 190, "hovermode": "x unified"})
    figure.update_xaxes(range=_dates(np.array([times_ms.min(), times_ms.max()])), type="date")
    # A fixed margin for labels aligns the axes of all panels.
    figure.update_yaxes(nticks=5, automargin=False)
    return _finish(figure)


def _finish(figure: Figure) -> Figure:
    clear = "rgba(0,0,0,0)"  # lets the page's light or dark background show through
    figure.update_layout(
        template="plotly_white", margin={"l": 52, "r": 8, "t": 16, "b": 38}, font={"size": 12},
        paper_bgcolor=clear, plot_bgcolor=clear,
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )  # fmt: skip
    # Labels above their lines do not overlap the first date.
    figure.update_yaxes(rangemode="tozero", ticklabelposition="outside top")
    figure.update_xaxes(ticks="outside", ticklen=4)
    return figure


def _plot(figure: Figure, name: str, title: str, words: str) -> Part:
    """Return a figure with a caption for readers who cannot see it."""
    drawing: str = figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=name,
        config={"responsive": True, "displaylogo": False, "displayModeBar": False},
    )  # fmt: skip
    return pages.figure(name, title, words, drawing)
