"""`logstore workload run`: generate, clean and verify, with the throughput of each stage."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.cli.options import Settings, command
from logstore.cli.show.output import emit, emit_json, format_count, plural
from logstore.reasons.formats import format_size
from logstore.spark.commands.generate import load_spec, print_stages, spec_options
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
    help="Compaction strategy of the topic. [default: the workload's]",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Partitions to clean concurrently. [default: the number of cores]",
)
@click.option(
    "--out",
    metavar="DIR",
    help="Keep the output in DIR/before, DIR/before.parquet/TOPIC and DIR/after. "
    "[default: a temporary directory that is removed afterwards]",
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
    """Generate a workload, clean a copy of it, and verify the result.

    SPEC is a TOML file or the name of a preset. The exit code is 1 if there are violations.
    """
    chosen = load_spec(spec, values)
    options = SparkOptions(master, driver_memory)
    with _directory(out) as directory, options.session(f"run {chosen.topic}") as spark:
        from logstore.spark.commands.pipeline import run_pipeline

        outcome = run_pipeline(spark, chosen, directory, strategy=strategy, threads=threads)
    if settings.as_table:
        _print(outcome)
    else:
        emit_json(outcome.as_json(), settings.output)
    return 0 if outcome.verdict.ok else 1


@contextmanager
def _directory(out: str | None) -> Iterator[str]:
    if out is not None:
        path = Path(out)
        for name in ("before", "before.parquet", "after"):
            if (path / name).exists():
                raise click.UsageError(f"{path / name} already exists")
        path.mkdir(parents=True, exist_ok=True)
        yield str(path)
        return
    with tempfile.TemporaryDirectory(prefix="logstore-workload-") as path:
        yield path


def _print(outcome: Run) -> None:
    topic = outcome.generated
    passes = outcome.cleaned.cleaned
    emit(
        f"{topic.topic}: {format_count(topic.records)} records in "
        f"{plural(topic.partitions, 'partition')}, {format_size(topic.bytes)}; cleaned "
        f"{format_size(sum(stats.bytes_read for stats in passes))} to "
        f"{format_size(sum(stats.bytes_written for stats in passes))}"
    )
    emit("")
    print_stages(outcome.seconds, topic.records)
    emit("")
    print_verdict(outcome.verdict)
