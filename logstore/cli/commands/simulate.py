"""`logstore simulate`: simulate months of a topic, with time series and a report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import click

from logstore.cli.commands import simulate_from, simulate_show
from logstore.cli.options import Settings, command, config_option
from logstore.cli.show.output import emit, emit_json, emit_lines, emit_values, note
from logstore.cli.show.progress import ProgressBar
from logstore.cli.show.tables import Table
from logstore.reasons.formats import format_time
from logstore.types import DAY_MS

if TYPE_CHECKING:
    from logstore.simulate.fitting import Fit
    from logstore.simulate.goals import Goal
    from logstore.simulate.outcome import Run
    from logstore.simulate.quantities import Quantity
    from logstore.simulate.recording import Recording
    from logstore.simulate.scenario import Scenario
    from logstore.simulate.search import Candidate, Found
    from logstore.simulate.spread import Spread
    from logstore.simulate.sweep import Sweep

_AXIS = re.compile(r"(?P<name>[^=]+)=(?P<values>.+)")


class GoalOptions(TypedDict):
    """The options for a search."""

    goals: tuple[str, ...]
    minimize: str | None
    ranges: tuple[str, ...]


class Request(NamedTuple):
    """What to do with a scenario.

    Attributes
    ----------
    sweep : mapping
        Values by setting. All combinations are run.
    goal : tuple or None
        The goal, the quantity to minimize, and the values to search by setting. None without a
        search.
    seeds : int or None
        Number of seeds.
    jobs : int or None
        Number of processes. [default: as many as worthwhile]
    """

    sweep: Mapping[str, Sequence[str]]
    goal: tuple[Goal, Quantity, Mapping[str, Sequence[str]]] | None
    seeds: int | None
    jobs: int | None
    samples: int
    keep_logs: bool


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
        "logstore simulate erasure-promise --out goal --goal 'oldest <= 14d' --minimize written"
        " --search max.compaction.lag.ms=2d..30d --search min.cleanable.dirty.ratio=0.1..0.9",
        "logstore simulate --from ./kafka-logs --topic users --days 90 --out next",
        "logstore simulate --from ./kafka-logs/users-0 --print > users.toml",
    ],
)
@click.argument("scenario", required=False, metavar="[SCENARIO]")
@click.option("--out", metavar="DIR", help="Directory for the series and the report.")
@click.option(
    "--from",
    "origins",
    multiple=True,
    metavar="DIR",
    help="Start from the data in this data directory or partition directory, and continue with a "
    "workload fitted to it; nothing in it is changed. Can be repeated.",
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
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", help="Random seed.  [default: the scenario's]"
)
@config_option("Topic or broker configuration that overrides the scenario's. Can be repeated.")
@click.option(
    "--sweep",
    "axes",
    multiple=True,
    callback=to_axes,
    metavar="KEY=VALUE,VALUE",
    help="Run every combination of these values. Can be repeated.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Run N seeds and report the 5th, 50th and 95th percentile of every number and curve."
    "  [default: 1; with --goal: 5]",
)
@click.option(
    "--goal",
    "goals",
    multiple=True,
    metavar="EXPR",
    help="Search for the setting that meets this goal, such as 'oldest <= 30d'. Can be repeated.",
)
@click.option(
    "--minimize",
    metavar="QUANTITY",
    help="Quantity to minimize among the settings that meet the goal.  [default: bytes]",
)
@click.option(
    "--search",
    "ranges",
    multiple=True,
    metavar="KEY=LOW..HIGH",
    help="Range of a setting for --goal: KEY=0.1..0.9, in N values as KEY=1d..9d/N, or"
    " KEY=VALUE,VALUE. Can be repeated.",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, 1_000),
    metavar="N",
    help="Replicas of each partition, for the disk of a cluster.  [default: the scenario's]",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Processes for several runs.  [default: up to the CPU cores, if that is faster]",
)
@click.option(
    "--samples",
    type=click.IntRange(1, 2_000),
    default=2_000,
    show_default=True,
    metavar="N",
    help="Samples per partition, in addition to one per roll, cleaning and retention.",
)
@click.option("--keep-logs", is_flag=True, help="Write the logs to DIR/data instead of memory.")
@click.option("--list", "lists", is_flag=True, help="List the built-in scenarios.")
@click.option("--print", "prints", is_flag=True, help="Print the scenario as TOML and exit.")
def simulate(
    settings: Settings,
    scenario: str | None,
    out: str | None,
    origins: tuple[str, ...],
    topics: tuple[str, ...],
    days: float | None,
    seed: int | None,
    configs: tuple[tuple[str, str], ...],
    axes: dict[str, list[str]],
    seeds: int | None,
    replicas: int | None,
    jobs: int | None,
    samples: int,
    keep_logs: bool,
    lists: bool,
    prints: bool,
    **goal: Unpack[GoalOptions],
) -> int:
    """Simulate SCENARIO in virtual time on the real engine and report its costs.

    SCENARIO is a TOML file or the name of a built-in scenario. It describes topics, keys, values
    and deletes as in `logstore workload`. Records are appended, segments are rolled and deleted,
    and logs are cleaned as a broker would at that time. Time series are written to --out as CSV
    (and Parquet, with the export extra), and a self-contained HTML report (with the report extra).

    With --from, the simulation starts with the state of a copied data directory: segments,
    checkpoints, producers and configs. The workload is fitted to recent records: hourly rates,
    batches, values, deletes and key distribution. The output shows the fit, and how accurately it
    predicts the last third of the records from the rest. With --print, the fitted scenario is
    printed, to be edited and run. If SCENARIO is also given, its workload replaces the fitted one.

    With --sweep, the scenario is run with every combination of values. The table shows the costs of
    each, and marks the Pareto-optimal combinations.

    With --goal, searches the values of --search for the combination that meets the goal with every
    seed and minimizes a quantity. It is then tested with 20 other seeds. If no combination meets
    the goal, the nearest miss is shown, and the exit code is 1. Quantities: bytes, bytes.mean,
    headroom, disk, written, oldest, tombstone, late, passes, live, missed; and percentiles over
    time: oldest.p50, oldest.p95, oldest.p99, tombstone.p50 and so on.
    """
    from logstore.simulate import library
    from logstore.simulate import scenario as plans

    if lists:
        return _list(settings)
    if topics and (not origins or scenario is not None):
        raise click.UsageError("--topic selects topics to fit: it needs --from and no SCENARIO")
    request = Request(axes, _goal(**goal), seeds, jobs, samples, keep_logs)
    _refuse_combinations(request)
    if origins and scenario is None:
        return _simulate_from(
            settings, origins, topics, out, days, seed, configs, request, replicas, prints=prints
        )
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
    if origins:
        plan = plan.with_origins(origins)
    if days is not None:
        plan = plan.with_days(days)
    if seed is not None:
        plan = plan.with_seed(seed)
    for name, value in configs:
        plan = plan.with_config(name, value)
    if replicas is not None:
        plan = plan.with_replicas(replicas)
    recording = None
    if plan.origins:
        recording = simulate_from.read_directory(settings, plan.origins, plan.continued_topics)
    with _results(Path(out), keep_logs=keep_logs) as directory:
        return _Job(settings, plan, request, directory, recording).work()


def _goal(
    *, goals: Sequence[str], minimize: str | None, ranges: Sequence[str]
) -> tuple[Goal, Quantity, Mapping[str, Sequence[str]]] | None:
    """Return the goal, the quantity to minimize and the values to search, or None if not given."""
    from logstore.simulate.goals import parse_axis, parse_goal
    from logstore.simulate.quantities import quantity

    if not goals:
        if ranges or minimize is not None:
            raise click.UsageError("--search and --minimize need a --goal")
        return None
    if not ranges:
        raise click.UsageError("--goal needs the settings to search: --search KEY=LOW..HIGH")
    return parse_goal(goals), quantity(minimize or "bytes"), dict(map(parse_axis, ranges))


def _refuse_combinations(request: Request) -> None:
    """Reject contradictory options."""
    if request.sweep and request.keep_logs:
        raise click.UsageError("--keep-logs and --sweep are mutually exclusive")
    if request.goal is not None and request.sweep:
        raise click.UsageError("--goal and --sweep are mutually exclusive")
    if request.goal is not None and request.keep_logs:
        raise click.UsageError("--keep-logs and --goal are mutually exclusive")


def _simulate_from(
    settings: Settings,
    origins: Sequence[str],
    topics: Sequence[str],
    out: str | None,
    days: float | None,
    seed: int | None,
    configs: Sequence[tuple[str, str]],
    request: Request,
    replicas: int | None,
    *,
    prints: bool,
) -> int:
    """Fit a scenario to directories, then run or print it."""
    if out is None and not prints:
        raise click.UsageError("give --out DIR for the results, or --print to show the fit")
    fit = simulate_from.fit_directory(settings, origins, topics, configs, days, seed)
    code = simulate_from.report(fit)
    if prints or out is None:
        emit(fit.text.rstrip("\n"))
        return code
    if settings.as_table:
        simulate_from.show(fit)
    plan = fit.scenario if replicas is None else fit.scenario.with_replicas(replicas)
    with _results(Path(out), keep_logs=request.keep_logs) as directory:
        code = _Job(settings, plan, request, directory, fit.recording, fit).work()
        (directory / "scenario.toml").write_text(fit.text, encoding="utf-8")
        return code


@contextmanager
def _results(directory: Path, *, keep_logs: bool) -> Iterator[Path]:
    """Create the output directory. If it was new and is empty, remove it on failure."""
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


class _Job(NamedTuple):
    """A scenario to run, sweep or search, and the directory for the results."""

    settings: Settings
    plan: Scenario
    request: Request
    directory: Path
    recording: Recording | None
    fit: Fit | None = None

    def work(self) -> int:
        """Run, sweep or search the scenario, then write and show the results."""
        if self.request.sweep:
            return self._sweep()
        return self._run() if self.request.goal is None else self._search()

    def _run(self) -> int:
        from logstore.simulate.files import save

        plan, fit = self.plan, self.fit
        outcome, spread = self._run_scenario(self.directory)
        report = _report(outcome, spread=spread)
        files = save(self.directory, outcome, spread=spread, report=report)
        if self.settings.as_table:
            simulate_show.show_run(outcome, spread)
            emit(f"\n{_written(files, self.directory)}")
        else:
            emit_json(
                {
                    "scenario": plan.title,
                    "seed": plan.seed,
                    "days": plan.days,
                    "costs": outcome.costs(),
                    **({} if spread is None else {"seeds": spread.seeds, "spread": spread.costs()}),
                    "digests": outcome.digests,
                    "notes": outcome.notes,
                    **({} if fit is None else {"fit": simulate_from.to_json(fit)}),
                    "files": [str(path) for path in files],
                },
                self.settings.output,
            )
        return 0

    def _run_scenario(self, directory: Path | None = None) -> tuple[Run, Spread | None]:
        """Run the scenario with each seed. Progress bars show the virtual time and the seeds.

        The logs are only kept if there is a directory.
        """
        from logstore.simulate.engine import run
        from logstore.simulate.spread import run_seeds

        plan, request = self.plan, self.request
        data_dir = directory / "data" if request.keep_logs and directory is not None else None
        with ProgressBar("days") as bar, ProgressBar("runs") as runs:

            def progress(now_ms: int) -> None:
                elapsed = (now_ms - plan.start_ms) // DAY_MS
                bar.update("simulating", elapsed, round(plan.days), format_time(now_ms)[:16])

            if request.seeds is None or request.seeds == 1:
                return run(
                    plan, data_dir=data_dir, samples=request.samples, progress=progress,
                    recording=self.recording,
                ), None  # fmt: skip
            return run_seeds(
                plan, request.seeds, workers=request.jobs, samples=request.samples,
                data_dir=data_dir, recording=self.recording,
                finished=lambda done, total: runs.update("seeds", done, total),
            )  # fmt: skip

    def _sweep(self) -> int:
        from logstore.simulate.files import save
        from logstore.simulate.sweep import sweep

        request = self.request
        with ProgressBar("runs") as bar:
            swept = sweep(
                self.plan,
                request.sweep,
                workers=request.jobs,
                samples=request.samples,
                seeds=request.seeds or 1,
                recording=self.recording,
                progress=lambda done, total: bar.update("sweeping", done, total),
            )
        outcome, spread = self._run_scenario()
        report = _report(outcome, swept, spread=spread)
        files = save(self.directory, outcome, sweep=swept, spread=spread, report=report)
        front = swept.front()
        rows = [
            {
                "settings": dict(each.settings),
                "costs": dict(each.costs),
                **({"spread": each.spread} if each.spread else {}),
                "front": each in front,
            }
            for each in swept.variants
        ]
        if self.settings.as_table:
            simulate_show.show_sweep(swept)
            emit(f"\n{_written(files, self.directory)}")
        elif self.settings.as_items:
            emit_values(rows, output=self.settings.output)
        else:
            emit_json({"scenario": self.plan.title, "seed": self.plan.seed, "sweep": rows})
        return 0

    def _search(self) -> int:
        from logstore.simulate.files import save
        from logstore.simulate.search import SEEDS, search, with_settings

        assert self.request.goal is not None
        goal, minimize, axes = self.request.goal
        request = self.request._replace(seeds=self.request.seeds or SEEDS)
        with ProgressBar("runs") as bar:
            found = search(
                self.plan,
                axes,
                goal,
                minimize,
                seeds=request.seeds or SEEDS,
                workers=request.jobs,
                samples=request.samples,
                recording=self.recording,
                progress=lambda done: bar.update("searching", done, None),
            )
        best = with_settings(self.plan, found.best.settings)
        outcome, spread = self._replace(plan=best, request=request)._run_scenario()
        report = _report(outcome, spread=spread, found=found)
        files = save(self.directory, outcome, spread=spread, found=found, report=report)
        if self.settings.as_table:
            simulate_show.show_found(found)
            emit(f"\n{_written(files, self.directory)}")
        elif self.settings.as_items:
            candidates = (_candidate(each, found) for each in found.candidates)
            emit_values(candidates, output=self.settings.output)
        else:
            titles = {"scenario": self.plan.title, "seed": self.plan.seed}
            emit_json({**titles, **_found(found, files)})
        return 0 if found.is_met else 1


def _found(found: Found, files: Sequence[Path]) -> dict[str, Any]:
    """Return the JSON result of a search."""
    return {
        "goal": str(found.goal),
        "minimize": found.minimize.name,
        "met": found.is_met,
        "settings": dict(found.best.settings),
        "spread": found.best.spread(),
        "margins": [
            {
                "quantity": each.term.quantity.name,
                "operator": each.term.operator,
                "limit": each.term.limit,
                "worst": each.worst,
                "margin": each.margin,
                "met": each.term.is_met(each.worst),
            }
            for each in found.margins()
        ],
        "seeds": list(found.seeds),
        "held": {"seeds": found.best.held_seeds, "met": found.held_count()},
        "runs": found.runs,
        "held_runs": found.held_runs,
        "sweep_runs": found.sweep_runs,
        "candidates": [_candidate(each, found) for each in found.candidates],
        "files": [str(path) for path in files],
    }


def _candidate(candidate: Candidate, found: Found) -> dict[str, Any]:
    runs = [*candidate.runs.values(), *candidate.held]
    return {
        "settings": dict(candidate.settings),
        "spread": candidate.spread(),
        "seeds": len(runs),
        "met": not found.goal.excess(runs),
        "front": candidate in found.front,
    }


def _report(
    outcome: Run,
    swept: Sweep | None = None,
    *,
    spread: Spread | None = None,
    found: Found | None = None,
) -> str | None:
    """Return the report. Print a note for each missing package."""
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
    return page(outcome, swept, spread=spread, found=found)


def _written(files: Sequence[Path], directory: Path) -> str:
    """Return a line that lists the kinds of results and their directory."""
    from logstore.simulate.files import REPORT, SEARCH, SWEEP

    names = {path.name for path in files}
    kinds = [
        ("table", not names.isdisjoint((SWEEP, SEARCH))),
        ("series", True),
        ("report", REPORT in names),
    ]
    *others, last = (kind for kind, is_there in kinds if is_there)
    return f"{', '.join(others)} and {last}: {directory}" if others else f"{last}: {directory}"
