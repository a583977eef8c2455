"""`logstore bench`: measure this engine on a generated log, or on a copy of a data directory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from logstore.cli.options import Settings, command
from logstore.cli.show.output import (
    emit,
    emit_json,
    emit_lines,
    emit_values,
    format_count,
    note,
    plural,
)
from logstore.cli.show.progress import ProgressBar
from logstore.cli.show.tables import Cell, Styled, Table, can_print
from logstore.reasons.formats import format_size

if TYPE_CHECKING:
    from logstore.bench.commands.short import Measurement

SIZE_MIN = 1 << 16
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STRATEGIES = ("offset", "timestamp", "header")
BAR_WIDTH = 40
PARTITIONS_SHOWN = 20
BATCH_BYTES = 16 << 10

_GENERATED_ONLY = ("size", "value_size", "survivors", "partitions", "codec", "in_memory")


def to_size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Return the bytes of a SIZE option."""
    from logstore.config.units import parse_loose_size

    try:
        return parse_loose_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _log_size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    size = to_size(ctx, param, value)
    if size < SIZE_MIN:
        raise click.BadParameter(f"{value} is below the minimum, {SIZE_MIN >> 10}KiB", ctx, param)
    return size


@command(
    "bench",
    examples=[
        "logstore bench",
        "logstore bench --size 1GiB --value-size 1024 --partitions 2 --threads 2",
        "logstore bench --codec zstd --in-memory",
        "logstore bench ./copied-logs --strategy timestamp",
    ],
)
@click.argument("directory", required=False, metavar="[DIR]")
@click.option(
    "--size",
    default="128MiB",
    callback=_log_size,
    metavar="SIZE",
    help="Size of the generated log, over all partitions, such as 64MiB or 1g.  [default: 128MiB]",
)
@click.option(
    "--value-size",
    default="100",
    callback=to_size,
    metavar="SIZE",
    help="Average size of a value in bytes.  [default: 100]",
)
@click.option(
    "--survivors",
    type=click.IntRange(1, 99),
    default=12,
    metavar="PERCENT",
    help="Percentage of records that survive the cleaning pass.  [default: 12]",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Number of partitions in the generated log.  [default: 1]",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Number of cleaner threads.  [default: 1]",
)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    help="compaction.strategy. Default: offset, or each topic's own.",
)
@click.option(
    "--codec",
    type=click.Choice(CODECS),
    default="none",
    help="Compression codec of the generated log.  [default: none]",
)
@click.option("--in-memory", is_flag=True, help="Keep the generated log in memory, not in files.")
@click.pass_context
def bench(
    ctx: click.Context,
    settings: Settings,
    directory: str | None,
    size: int,
    value_size: int,
    survivors: int,
    partitions: int,
    threads: int,
    strategy: str | None,
    codec: str,
    in_memory: bool,
) -> int:
    """Measure how fast this machine appends, cleans and reads a log.

    Without DIR, a log is generated in temporary files or in memory. With DIR, a temporary copy of
    this data directory is cleaned from start to end, as if all topics were compacted. DIR itself
    is not changed. Times are wall-clock times. To compare with Kafka, use make bench in a checkout.
    """
    config = settings.broker_config()
    with ProgressBar() as bar:
        cleaning = _cleaning_bars(bar)
        if directory is not None:
            _refuse_with_directory(ctx)
            measurement, about = _copied(
                settings, directory, threads, strategy, bar, cleaning, config
            )
        else:
            from logstore.bench.commands.short import measure_generated
            from logstore.bench.micro.logs import LogShape

            shape = LogShape(
                value_size,
                survivors / 100,
                max(1, BATCH_BYTES // (value_size + 20)),
                total_bytes=max(SIZE_MIN, size // partitions),
                partitions=partitions,
                codec=codec,
                strategy=strategy or "offset",
            )
            measurement = measure_generated(
                shape,
                in_memory=in_memory,
                threads=threads,
                broker_config=config,
                progress=bar.update,
                cleaning=cleaning,
            )
            about = {
                "directory": None,
                "in_memory": in_memory,
                "value_bytes": value_size,
                "survivors": survivors / 100,
                "partitions": partitions,
                "threads": threads,
                "strategy": shape.strategy,
                "codec": codec,
            }
    _print(settings, measurement, about)
    return 1 if any(each.reason == "uncleanable" for each in measurement.report.not_cleaned) else 0


def _refuse_with_directory(ctx: click.Context) -> None:
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if given and param.name in _GENERATED_ONLY:
            raise click.UsageError(f"{param.opts[0]} applies to a generated log, not to DIR")


def _copied(
    settings: Settings,
    directory: str,
    threads: int,
    strategy: str | None,
    bar: ProgressBar,
    cleaning: Any,
    config: Any,
) -> tuple[Measurement, dict[str, Any]]:
    from logstore.bench.commands.short import measure_copy
    from logstore.cli.show.messages import Recovery, show_messages

    show_messages(Recovery.MENDED)  # only the copy is recovered
    note(f"cleaning a temporary copy of {directory} as if every topic were compacted")
    measurement = measure_copy(
        directory,
        threads=threads,
        strategy=strategy,
        clock=settings.clock(),
        broker_config=config,
        copying=partial(_show_copy, bar) if bar.visible else None,
        cleaning=cleaning,
    )
    about = {"directory": directory, "threads": threads, "strategy": strategy}
    return measurement, about


def _show_copy(bar: ProgressBar, step: Any) -> None:
    bar.update("copying", step.bytes_done, step.bytes_total, str(step.topic_partition))


def _cleaning_bars(bar: ProgressBar) -> Any:
    if not bar.visible:
        return None
    from logstore.cli.commands.clean import CleaningBars

    return CleaningBars(bar)


# -- output --------------------------------------------------------------------------------------


def _print(settings: Settings, measurement: Measurement, about: dict[str, Any]) -> None:
    from logstore.bench.commands.short import limits

    if settings.as_items:
        emit_values((step.as_json() for step in measurement.steps), output=settings.output)
        return
    bounds = limits()
    if settings.output == "json":
        emit_json({**about, **measurement.as_json(), "limits_gb_per_s": bounds})
        return
    _show(measurement, about)
    machine = measurement.as_json()["machine"]
    emit(
        f"\n{machine['processor']}, {plural(machine['cores'], 'core')}: copies memory at "
        f"{bounds['memcpy']:.1f} GB/s, writes and syncs at {bounds['write_fsync']:.2f} GB/s"
    )


def _show(measurement: Measurement, about: dict[str, Any]) -> None:
    rows = [
        (step.name, step.mb_per_s, f"{format_count(step.records)} records, {_seconds(step)}")
        for step in measurement.steps
    ]
    # With several threads, passes complete in any order.
    passes = sorted(
        measurement.report.to_json()["cleaned"],
        key=lambda each: (each["topic"], each["partition"], each["pass"]),
    )
    if about["directory"] is not None or about["partitions"] > 1:
        rows += [_partition_row(each) for each in passes[:PARTITIONS_SHOWN]]
    emit_lines(bar_chart(rows))
    hidden = len(passes) - PARTITIONS_SHOWN
    if hidden > 0 and (about["directory"] is not None or about["partitions"] > 1):
        emit(f"{plural(hidden, 'pass', 'passes')} more")
    before = sum(each["bytes_read"] for each in passes)
    after = sum(each["bytes_written"] for each in passes)
    arrow = "→" if can_print("→") else "->"
    emit(f"\ncleaned {format_size(before)} {arrow} {format_size(after)}")
    for each in measurement.report.not_cleaned:
        emit(f"not cleaned: {each.topic}-{each.partition}: {each.text}")


def _seconds(step: Any) -> str:
    return f"{step.sample.wall_s:.2f} s, {step.sample.cpu_s:.2f} s of CPU"


def _partition_row(item: dict[str, Any]) -> tuple[str, float, str]:
    milliseconds = max(1, item["index_ms"] + item["clean_ms"])
    detail = (
        f"{format_count(item['messages_read'])} records, {item['index_ms']:,} ms mapping, "
        f"{item['clean_ms']:,} ms rewriting"
    )
    name = f"  {item['topic']}-{item['partition']}"
    return name, item["bytes_read"] / 1e3 / milliseconds, detail


def bar_chart(rows: list[tuple[str, float, str]]) -> list[str]:
    """Return a line with a bar for each (name, MB/s, detail), all to the same scale."""
    glyph = "█" if can_print("█") else "#"
    longest = max((speed for _, speed, _ in rows), default=0.0) or 1.0
    table = Table(("", "", "MB/s", ""), right=("MB/s",))

    def row(name: str, speed: float, detail: str) -> tuple[Cell, ...]:
        cells = max(1, round(BAR_WIDTH * speed / longest))
        return name, Styled(glyph * cells, "green"), f"{speed:,.0f}", Styled(detail, "dim")

    return list(table.lines(row(*each) for each in rows))
