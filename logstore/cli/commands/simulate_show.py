"""Output of `logstore simulate`: curves, costs, sweeps and searches as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from logstore.cli.show.curves import curve
from logstore.cli.show.output import emit, emit_lines, note, plural
from logstore.cli.show.tables import Table, output_width
from logstore.reasons.formats import format_time

if TYPE_CHECKING:
    from logstore.simulate.outcome import Column, Run
    from logstore.simulate.search import Found
    from logstore.simulate.spread import Spread
    from logstore.simulate.sweep import Sweep

CURVE_WIDTH = 48
"""Width of a curve in characters, if the terminal is wide enough."""

CURVE_WIDTH_MIN = 12
_OTHER_COLUMNS = 46
"""Width of a row without its curve."""

_SAMPLES = 8
"""Number of values per character of a curve."""

CURVES = (
    ("bytes", "bytes, all files"),
    ("live_records", "live records"),
    ("dead_records", "dead records"),
    ("cleanable_ratio", "dirty ratio"),
    ("oldest_dirty_ms", "oldest uncleaned record"),
    ("tombstones", "tombstones"),
)
"""Headings of curves by column of the combined series."""

FRONT_MAX = 12
"""Maximum number of rows of the front on a terminal."""


def show_run(outcome: Run, spread: Spread | None = None) -> None:
    """Print the curves and costs of a run, or percentiles over several seeds."""
    plan = outcome.scenario
    seeds = f"seed {plan.seed}" if spread is None else plural(len(spread.runs), "seed")
    days = f"{plan.days:g} day{'' if plan.days == 1 else 's'}"
    emit(f"{plan.title}: {days} from {format_time(plan.start_ms)}, {seeds}")
    emit("")
    if spread is None:
        _show_curves(outcome)
    else:
        _show_bands(spread)
    emit("")
    _show_costs(outcome, spread)
    for text in outcome.notes:
        note(text)


def _curve_width(others: int = _OTHER_COLUMNS) -> int:
    return max(CURVE_WIDTH_MIN, min(CURVE_WIDTH, output_width() - others))


def _show_curves(outcome: Run) -> None:
    from logstore.simulate.outcome import bytes_of, evenly
    from logstore.simulate.quantities import format_value

    series = outcome.over_time()
    series["bytes"] = bytes_of(series)
    width = _curve_width()
    rows = Table(("", "over time", "maximum", "at the end"), right=("maximum", "at the end"))
    emit_lines(
        rows.lines(
            (
                heading,
                curve(_sampled(evenly(series["time_ms"], values, width * _SAMPLES)), width),
                format_value(column, values.max()),
                format_value(column, values[-1]),
            )
            for column, heading in CURVES
            for values in [series[column]]
        )
    )


def _show_bands(spread: Spread) -> None:
    from logstore.simulate.quantities import format_value

    width = _curve_width(_OTHER_COLUMNS + 5)
    heads = ("", "seeds", "over time", "maximum", "at the end")
    rows = Table(heads, right=("maximum", "at the end"))

    def lines() -> Iterator[tuple[str, ...]]:
        for column, heading in CURVES:
            band, most, last = (
                part(column)._asdict() for part in (spread.curve, spread.most, spread.last)
            )
            top = max(band["p95"].max(), 1e-9)
            for name in ("p95", "p50", "p5"):
                yield (
                    heading if name == "p95" else "",
                    name,
                    curve(_sampled(band[name]), width, top),
                    format_value(column, most[name]),
                    format_value(column, last[name]),
                )

    emit_lines(rows.lines(lines()))


def _sampled(values: Column) -> list[float]:
    found: list[float] = values.tolist()
    return found


def _show_costs(outcome: Run, spread: Spread | None) -> None:
    from logstore.simulate.quantities import QUANTITIES

    if spread is None:
        costs = outcome.costs()
        lines = Table(("cost", "value"), right=("value",)).lines(
            (each.label, each.format(costs[each.cost])) for each in QUANTITIES.values()
        )
    else:
        ranges = spread.costs()
        heads = ("p5", "p50", "p95")
        lines = Table(("cost", *heads), right=heads).lines(
            (each.label, *(each.format(ranges[each.cost][head]) for head in heads))
            for each in QUANTITIES.values()
        )
    emit_lines(lines)


def show_sweep(swept: Sweep) -> None:
    """Print a row for each variant of a sweep, or for each percentile over its seeds."""
    from logstore.simulate.quantities import QUANTITIES, SWEPT

    front = swept.front()
    names = list(swept.variants[0].settings)
    shown = [QUANTITIES[name] for name in SWEPT]
    heads = [each.short for each in shown]
    has_seeds = bool(swept.variants[0].spread)
    rows = Table((*names, *(("seeds",) if has_seeds else ()), *heads, ""), right=heads)

    def lines() -> Iterator[Sequence[str]]:
        for each in swept.variants:
            verdict = "optimal" if each in front else ""
            settings = list(each.settings.values())
            if not has_seeds:
                yield [*settings, *(row.format(each.costs[row.cost]) for row in shown), verdict]
                continue
            for name in ("p95", "p50", "p5"):
                costs = [row.format(each.spread[row.cost][name]) for row in shown]
                is_first = name == "p95"
                own = settings if is_first else [""] * len(settings)
                yield [*own, name, *costs, verdict if is_first else ""]

    emit_lines(rows.lines(lines()))


def show_found(found: Found) -> None:
    """Print the result of a search: settings, margins and front."""
    from logstore.simulate.quantities import Quantity

    emit(f"goal: {found.goal}; minimize {found.minimize.name}")
    emit(found.verdict())
    emit(found.effort())
    emit("")
    emit_lines(Table(("setting", "value")).lines(found.best.settings.items()))
    emit("")
    spread = found.best.spread()
    heads = ("p5", "p50", "p95", "worst")
    rows = Table(("", *heads, "margin"), right=heads)
    margins = {each.term: each for each in found.margins()}

    def line(quantity: Quantity, *, title: str, worst: str, margin: str) -> Sequence[str]:
        values = (quantity.format(spread[quantity.cost][head]) for head in heads[:3])
        return (title, *values, worst, margin)

    emit_lines(
        rows.lines(
            [
                line(found.minimize, title=found.minimize.name, worst="", margin="minimized"),
                *(
                    line(
                        term.quantity,
                        title=str(term),
                        worst=term.quantity.format(margin.worst),
                        margin=margin.describe(),
                    )
                    for term, margin in margins.items()
                ),
            ]
        )
    )
    emit("")
    bounded = {term.quantity.cost: term.quantity for term in found.goal.terms}
    shown = [found.minimize, *(each for each in bounded.values() if each != found.minimize)]
    numbers = (*(each.name for each in shown), "seeds")
    front = Table(("setting", *numbers, ""), right=numbers)
    emit("Pareto-optimal combinations, by the first seed:")
    emit_lines(
        front.lines(
            [
                ", ".join(each.settings.values()),
                *(row.format(each.runs[found.seeds[0]][row.cost]) for row in shown),
                str(len(each.runs) + len(each.held)),
                found.describe(each),
            ]
            for each in found.nearest_of_front(FRONT_MAX)
        )
    )
    left = len(found.front) - FRONT_MAX
    if left > 0:
        emit(f"{left} more are in the report and in search.csv")
