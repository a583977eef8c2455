"""`logstore simulate`: simulate months of a topic, with time series and a report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.cli.commands import simulate_from
from logstore.cli.options import Settings, command, config_option
from logstore.cli.show.curves import curve
from logstore.cli.show.output import (
    emit,
    emit_json,
    emit_lines,
    emit_values,
    format_count,
    format_size,
    note,
)
from logstore.cli.show.progress import ProgressBar
from logstore.cli.show.tables import Table
from logstore.reasons.formats import format_span, format_time
from logstore.types import DAY_MS

if TYPE_CHECKING:
    from logstore.simulate.fitting import Fit
    from logstore.simulate.outcome import Column, Run
    from logstore.simulate.recording import Recording
    from logstore.simulate.scenario import Scenario
    from logstore.simulate.sweep import Sweep

CURVE_WIDTH = 48
_SAMPLES = 8
"""Values per character of a curve."""

_AXIS = re.compile(r"(?P<name>[^=]+)=(?P<values>.+)")

COSTS = {
    "bytes_peak": "space, at most",
    "bytes_mean": "space, on average",
    "write_amplification": "write amplification",
    "oldest_dirty_max_ms": "oldest not cleaned",
    "compaction_delay_max_ms": "beyond the bound",
    "tombstone_age_max_ms": "oldest tombstone",
    "passes": "passes",
    "live_share": "live records",
}
"""The costs shown, with their headings."""


SHORT_HEADINGS = {
    "bytes_peak": "peak",
    "bytes_mean": "mean",
    "write_amplification": "written",
    "oldest_dirty_max_ms": "not cleaned",
    "compaction_delay_max_ms": "late by",
    "tombstone_age_max_ms": "tombstone",
    "passes": "passes",
    "live_share": "live",
}
"""Shorter headings for the columns of a sweep."""


def to_axes(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> dict[str, list[str]]:
    """Parse a repeated KEY=VALUE,VALUE."""
    axes: dict[str, list[str]] = {}
    for text in values:
        found = _AXIS.fullmatch(text)
        if found is None:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE,VALUE", ctx, param)
        axes[found["name"].strip()] = [each.strip() for each in found["values"].split(",")]
    return axes


@command(
    "simulate",
    examples=[
        "logstore simulate --list",
        "logstore simulate erasure-promise --out promise",
        "logstore simulate kip-354 --print > mine.toml",
        "logstore simulate mine.toml --out mine --seed 7 --config segment.ms=1h",
        "logstore simulate dead-cleaner --out runs --sweep min.cleanable.dirty.ratio=0.1,0.5"
        " --sweep segment.bytes=1MiB,8MiB",
        "logstore simulate --from ./kafka-logs --topic users --days 90 --out next",
        "logstore simulate --from ./kafka-logs/users-0 --print > users.toml",
    ],
)
@click.argument("scenario", required=False, metavar="[SCENARIO]")
@click.option("--out", metavar="DIR", help="Directory for the series and the report.")
@click.option(
    "--from",
    "origin",
    metavar="DIR",
    help="Start from the data in this data directory or partition's folder, and continue with a "
    "workload fitted to it; nothing in it is changed.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help="Topic of --from to simulate. Can be repeated. [default: all but Kafka's internal topics]",
)
@click.option(
    "--days",
    type=click.FloatRange(0, 36_500),
    metavar="N",
    help="Days to simulate.  [default: the scenario's; with --from: 30]",
)
@click.option("--seed", type=click.IntRange(0), help="Random seed.  [default: the scenario's]")
@config_option("Topic or broker configuration that overrides the scenario's. Can be repeated.")
@click.option(
    "--sweep",
    "axes",
    multiple=True,
    callback=to_axes,
    metavar="KEY=VALUE,VALUE",
    help="Run every combination of these values. Can be repeated.",
)
@click.option("--jobs", type=click.IntRange(1), help="Processes for a sweep.  [default: CPU cores]")
@click.option(
    "--samples",
    type=click.IntRange(1, 2_000),
    default=2_000,
    show_default=True,
    help="Samples per partition, in addition to one per roll, cleaning and retention.",
)
@click.option("--keep-logs", is_flag=True, help="Write the logs to DIR/data instead of memory.")
@click.option("--list", "lists", is_flag=True, help="List the built-in scenarios.")
@click.option("--print", "prints", is_flag=True, help="Print the scenario as TOML and exit.")
def simulate(
    settings: Settings,
    scenario: str | None,
    out: str | None,
    origin: str | None,
    topics: tuple[str, ...],
    days: float | None,
    seed: int | None,
    configs: tuple[tuple[str, str], ...],
    axes: dict[str, list[str]],
    jobs: int | None,
    samples: int,
    keep_logs: bool,
    lists: bool,
    prints: bool,
) -> int:
    """Simulate SCENARIO in virtual time on the real engine and report its costs.

    SCENARIO is a TOML file or the name of a built-in scenario. It describes topics, keys, values
    and deletes as in `logstore workload`. Records are appended, rolled, retained and cleaned as a
    broker would do it at that time. The directory of --out receives the time series as CSV (and
    Parquet, with the extra export) and a self-contained HTML report (with the extra report).

    With --from, the simulation starts with the state of a copied data directory: segments,
    checkpoints, producers and configurations. The workload is fitted to its recent records: rate by
    hour, batches, values, deletes and choice of keys. The fit is shown, with the accuracy of
    predicting its last third from the rest. With --print, the fitted scenario is printed, to be
    edited and run. A SCENARIO given with --from is run from that state instead.

    With --sweep, the scenario is run with every combination of values. The table shows the costs of
    each, and marks combinations that no other one beats in all respects.
    """
    from logstore.simulate import library
    from logstore.simulate import scenario as plans

    if lists:
        return _list(settings)
    if topics and (origin is None or scenario is not None):
        raise click.UsageError("--topic selects topics to fit: it needs --from and no SCENARIO")
    if origin is not None and scenario is None:
        return _simulate_from(
            settings, origin, topics, out, days, seed, configs, axes, jobs, samples,
            keep_logs=keep_logs, prints=prints,
        )  # fmt: skip
    if scenario is None:
        raise click.UsageError("give a SCENARIO (see --list), or --from DIR")
    file = Path(scenario)
    text = file.read_text("utf-8") if file.is_file() else library.text_of(scenario)
    if prints:
        emit(text.rstrip("\n"))
        return 0
    if out is None:
        raise click.UsageError("give --out DIR for the results")
    plan = plans.parse(text, file.parent)
    if origin is not None:
        plan = plan.with_origin(origin)
    if days is not None:
        plan = plan.with_days(days)
    if seed is not None:
        plan = plan.with_seed(seed)
    for name, value in configs:
        plan = plan.with_config(name, value)
    _refuse_many_logs(axes, keep_logs=keep_logs)
    recording = None
    if plan.origin:
        recording = simulate_from.read_directory(settings, plan.origin, plan.continued_topics)
    with _results(Path(out), keep_logs=keep_logs) as directory:
        if axes:
            return _sweep(settings, plan, axes, directory, jobs, samples, recording)
        return _run(settings, plan, directory, samples, recording, keep_logs=keep_logs)


def _simulate_from(
    settings: Settings,
    origin: str,
    topics: Sequence[str],
    out: str | None,
    days: float | None,
    seed: int | None,
    configs: Sequence[tuple[str, str]],
    axes: dict[str, list[str]],
    jobs: int | None,
    samples: int,
    *,
    keep_logs: bool,
    prints: bool,
) -> int:
    """Fit a scenario to a directory, and run it or print it."""
    if out is None and not prints:
        raise click.UsageError("give --out DIR for the results, or --print to show the fit")
    fit = simulate_from.fit_directory(settings, origin, topics, configs, days, seed)
    code = simulate_from.report(fit)
    if prints or out is None:
        emit(fit.text.rstrip("\n"))
        return code
    if settings.as_table:
        simulate_from.show(fit)
    _refuse_many_logs(axes, keep_logs=keep_logs)
    plan, recording = fit.scenario, fit.recording
    with _results(Path(out), keep_logs=keep_logs) as directory:
        if axes:
            code = _sweep(settings, plan, axes, directory, jobs, samples, recording)
        else:
            code = _run(settings, plan, directory, samples, recording, fit=fit, keep_logs=keep_logs)
        (directory / "scenario.toml").write_text(fit.text, encoding="utf-8")
        return code


def _refuse_many_logs(axes: Mapping[str, Sequence[str]], *, keep_logs: bool) -> None:
    if axes and keep_logs:
        raise click.UsageError("--keep-logs and --sweep are mutually exclusive")


@contextmanager
def _results(directory: Path, *, keep_logs: bool) -> Iterator[Path]:
    """Create the directory for the results; remove it on failure if it was new and is empty."""
    if directory.exists() and not directory.is_dir():
        raise click.UsageError(f"--out {directory} is not a directory")
    data = directory / "data"
    if keep_logs and data.exists() and any(data.iterdir()):
        raise click.UsageError(f"{data} already has logs: choose another --out, or remove it")
    is_new = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        yield directory
    except BaseException as error:
        if is_new:
            with suppress(OSError):
                directory.rmdir()  # fails unless empty
        if isinstance(error, KeyboardInterrupt):
            left = f"{directory} is unchanged" if directory.exists() else "nothing was written"
            note(f"interrupted: {f'incomplete logs are in {data}' if keep_logs else left}")
        raise


def _list(settings: Settings) -> int:
    from logstore.simulate import library

    titles = library.titles()
    if settings.as_table:
        rows = Table(("scenario", "title"))
        emit_lines(rows.lines(titles.items()))
    else:
        emit_values(
            [{"scenario": name, "title": title} for name, title in titles.items()],
            output=settings.output,
        )
    return 0


def _run(
    settings: Settings,
    plan: Scenario,
    directory: Path,
    samples: int,
    recording: Recording | None = None,
    *,
    fit: Fit | None = None,
    keep_logs: bool,
) -> int:
    from logstore.simulate.files import save

    data_dir = directory / "data" if keep_logs else None
    outcome = _lived(plan, samples, data_dir, recording)
    files = save(directory, outcome, report=_report(outcome, None))
    if settings.as_table:
        _show(outcome)
        emit("")
        emit(_written(files, directory))
    else:
        emit_json(
            {
                "scenario": plan.title,
                "seed": plan.seed,
                "days": plan.days,
                "costs": outcome.costs(),
                "digests": outcome.digests,
                "notes": outcome.notes,
                **({} if fit is None else {"fit": simulate_from.to_json(fit)}),
                "files": [str(path) for path in files],
            },
            settings.output,
        )
    return 0


def _lived(plan: Scenario, samples: int, data_dir: Path | None, recording: Recording | None) -> Run:
    """Run a scenario, with a progress bar of the virtual time."""
    from logstore.simulate.engine import run

    with ProgressBar("days") as bar:
        return run(
            plan,
            data_dir=data_dir,
            samples=samples,
            recording=recording,
            progress=lambda now_ms: bar.update(
                "simulating",
                (now_ms - plan.start_ms) // DAY_MS,
                round(plan.days),
                format_time(now_ms)[:16],
            ),
        )


def _sweep(
    settings: Settings,
    plan: Scenario,
    axes: dict[str, list[str]],
    directory: Path,
    jobs: int | None,
    samples: int,
    recording: Recording | None = None,
) -> int:
    from logstore.runtime.environment import usable_cores
    from logstore.simulate.files import save
    from logstore.simulate.sweep import sweep

    with ProgressBar("runs") as bar:
        swept = sweep(
            plan,
            axes,
            workers=jobs or usable_cores(),
            samples=samples,
            recording=recording,
            progress=lambda done, total: bar.update("sweeping", done, total),
        )
    outcome = _lived(plan, samples, None, recording)
    files = save(directory, outcome, sweep=swept, report=_report(outcome, swept))
    front = swept.front()
    rows = [
        {"settings": dict(each.settings), "costs": dict(each.costs), "front": each in front}
        for each in swept.variants
    ]
    if settings.as_table:
        _show_sweep(swept)
        emit("")
        emit(_written(files, directory))
    elif settings.as_items:
        emit_values(rows, output=settings.output)
    else:
        emit_json({"scenario": plan.title, "seed": plan.seed, "sweep": rows})
    return 0


def _report(outcome: Run, swept: Sweep | None) -> str | None:
    """Return the report; print a note for each missing package."""
    from logstore.simulate.files import can_write_parquet
    from logstore.simulate.report import can_draw, page

    if not can_write_parquet():
        note("no Parquet is written: pyarrow is missing; pip install 'kafka-logstore[export]'")
    if not can_draw():
        note(
            "no report is written: plotly or Jinja2 is missing;"
            " pip install 'kafka-logstore[report]'"
        )
        return None
    return page(outcome, swept)


def _written(files: Sequence[Path], directory: Path) -> str:
    """Return a line that names the kinds of results and their directory."""
    from logstore.simulate.files import REPORT, SWEEP

    names = {path.name for path in files}
    kinds = [("table", SWEEP in names), ("series", True), ("report", REPORT in names)]
    *others, last = (kind for kind, is_there in kinds if is_there)
    return f"{', '.join(others)} and {last}: {directory}" if others else f"{last}: {directory}"


# -- output --------------------------------------------------------------------------------


def _show(outcome: Run) -> None:
    plan = outcome.scenario
    emit(f"{plan.title}: {plan.days:g} days from {format_time(plan.start_ms)}, seed {plan.seed}")
    emit("")
    from logstore.simulate.outcome import bytes_of, evenly

    series = outcome.over_time()
    rows = Table(("", "over time", "at most", "at the end"), right=("at most", "at the end"))
    curves: list[tuple[str, Column, Callable[[float], str]]] = [
        ("bytes, all files", bytes_of(series), lambda value: format_size(int(value))),
        ("live records", series["live_records"], _count),
        ("dead records", series["dead_records"], _count),
        ("dirty ratio", series["cleanable_ratio"], lambda value: f"{value:.2f}"),
        ("oldest not cleaned", series["oldest_dirty_ms"], _span),
        ("tombstones", series["tombstones"], _count),
    ]
    count = CURVE_WIDTH * _SAMPLES
    emit_lines(
        rows.lines(
            (
                heading,
                curve(evenly(series["time_ms"], values, count).tolist(), CURVE_WIDTH),
                show(values.max()),
                show(values[-1]),
            )
            for heading, values, show in curves
        )
    )
    emit("")
    costs = outcome.costs()
    emit_lines(
        Table(("cost", "value"), right=("value",)).lines(
            (heading, _cost(name, costs[name])) for name, heading in COSTS.items()
        )
    )
    for text in outcome.notes:
        note(text)


def _show_sweep(swept: Sweep) -> None:
    front = swept.front()
    names = list(swept.variants[0].settings)
    heads = [*names, *SHORT_HEADINGS.values(), ""]
    rows = Table(tuple(heads), right=tuple(SHORT_HEADINGS.values()))
    emit_lines(
        rows.lines(
            [
                *each.settings.values(),
                *(_cost(name, each.costs[name]) for name in SHORT_HEADINGS),
                "not beaten" if each in front else "",
            ]
            for each in swept.variants
        )
    )


def _count(count: float) -> str:
    return format_count(int(count))


def _span(duration_ms: float) -> str:
    return format_span(int(duration_ms))


def _cost(name: str, value: float) -> str:
    from logstore.simulate.outcome import COUNTS

    if name.startswith("bytes"):
        return format_size(int(value))
    if name.endswith("_ms"):
        return _span(value)
    if name == "live_share":
        return f"{value:.0%}"
    return format_count(int(value)) if name in COUNTS else f"{value:.2f}"
