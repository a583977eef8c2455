"""`logstore workload run`: generate, clean and verify in one go, with the speed of each stage."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.cli.options import Settings, command
from logstore.cli.show.output import emit, emit_json, format_count, format_size, plural
from logstore.spark.commands.generate import print_stages, spec_of, spec_options
from logstore.spark.commands.verify import STRATEGIES, print_verdict
from logstore.spark.commands.workload import SparkOptions, spark_options

if TYPE_CHECKING:
    from logstore.spark.commands.pipeline import Run


@command(
    "run",
    examples=[
        "logstore workload run user-accounts --set records=1000000",
        "logstore workload run accounts.toml --strategy timestamp --out ./accounts",
    ],
)
@spec_options
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    help="compaction.strategy of the topic. Default: the workload's own.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Partitions that are cleaned side by side. Default: as many as there are cores.",
)
@click.option(
    "--out",
    metavar="DIR",
    help="Keep what was made, in DIR/before, DIR/before.parquet/TOPIC and DIR/after. "
    "Default: a temporary directory, removed in the end.",
)
@spark_options
def run(
    settings: Settings,
    spec: str,
    values: tuple[str, ...],
    strategy: str | None,
    threads: int | None,
    out: str | None,
    master: str | None,
    driver_memory: str,
) -> int:
    """Generate the workload SPEC, clean a copy of it, and verify the cleaning.

    SPEC is a TOML file, or the name of a preset. Exit code 1 if the oracle finds anything wrong.
    """
    chosen = spec_of(spec, values)
    options = SparkOptions(master, driver_memory)
    with _directory(out) as directory, options.session(f"run {chosen.topic}") as spark:
        from logstore.spark.commands.pipeline import run_pipeline

        done = run_pipeline(spark, chosen, directory, strategy=strategy, threads=threads)
    if settings.as_table:
        _print(done)
    else:
        emit_json(done.as_json(), settings.output)
    return 0 if done.verdict.ok else 1


@contextmanager
def _directory(out: str | None) -> Iterator[str]:
    if out is not None:
        path = Path(out)
        for name in ("before", "before.parquet", "after"):
            if (path / name).exists():
                raise click.UsageError(f"{path / name} is there already")
        path.mkdir(parents=True, exist_ok=True)
        yield str(path)
        return
    with tempfile.TemporaryDirectory(prefix="logstore-workload-") as path:
        yield path


def _print(done: Run) -> None:
    made = done.generated
    passes = done.cleaned.to_json()["cleaned"]
    emit(
        f"{made.topic}: {format_count(made.records)} records in "
        f"{plural(made.partitions, 'partition')}, {format_size(made.bytes)}; cleaned "
        f"{format_size(sum(stats['bytes_read'] for stats in passes))} to "
        f"{format_size(sum(stats['bytes_written'] for stats in passes))}"
    )
    emit("")
    print_stages(done.seconds, made.records)
    emit("")
    print_verdict(done.verdict)
