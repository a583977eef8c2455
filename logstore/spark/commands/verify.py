"""`logstore workload verify`: verify cleaned logs independently of the cleaner."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.options import TIME_HELP, Settings, command, partition_option, to_time
from logstore.cli.show.output import (
    emit,
    emit_json,
    emit_lines,
    format_count,
    note,
    plural,
)
from logstore.cli.show.tables import Table, paint
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.spark.commands.workload import SparkOptions, spark_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from logstore.spark.oracle.verify import Verdict

STRATEGIES = TOPIC_KEYS["compaction.strategy"].values
ENCODINGS = TOPIC_KEYS["logstore.compaction.strategy.header.encoding"].values


@command(
    "verify",
    examples=[
        "logstore workload verify --before before --after after",
        "logstore workload verify --before b --after a --strategy timestamp --forced",
        "logstore workload verify --before b --after a --now 2024-02-01 --since 2024-01-01",
    ],
)
@click.option(
    "--before", metavar="DIR", required=True,
    help="Data directory before cleaning. Can be repeated.",
    multiple=True,
)  # fmt: skip
@click.option(
    "--after", metavar="DIR", required=True,
    help="Data directory after cleaning. Can be repeated.",
    multiple=True,
)  # fmt: skip
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    help="Strategy that selects the survivors. [default: each topic's compaction.strategy]",
)
@click.option(
    "--header",
    metavar="NAME",
    help="Name of the version header. [default: each topic's compaction.strategy.header]",
)
@click.option(
    "--encoding",
    type=click.Choice(ENCODINGS),
    help="Encoding of the version header. [default: each topic's configuration]",
)
@click.option("--topic", metavar="TOPIC", help="Verify only this topic. [default: all topics]")
@partition_option("Verify only this partition of the topic. [default: all partitions]")
@click.option(
    "--since",
    "since_ms",
    callback=to_time,
    metavar="TIME",
    help=f"Start of the first cleaning pass: {TIME_HELP}. [default: --now, if given]",
)
@click.option(
    "--forced",
    is_flag=True,
    help="The cleaning pass used --force, so do not check compaction lags.",
)
@click.option(
    "--require-cleaned",
    is_flag=True,
    help="Report partitions of compacted topics that were never cleaned as violations.",
)
@click.option(
    "--examples",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Examples of each kind of violation.",
)
@spark_options
def verify(
    settings: Settings,
    before: tuple[str, ...],
    after: tuple[str, ...],
    master: str | None,
    driver_memory: str,
    **options: Any,
) -> int:
    """Verify a cleaned data directory against a copy made before cleaning.

    The oracle uses DataFrame operations and shares only the reader with the engine. It checks
    that the cleaned range contains exactly the surviving records, byte for byte and in offset
    order; that tombstones, lags and retention follow the rules; and that everything else is
    unchanged. It reads the end of each cleaned range from the cleaner checkpoint in --after, and
    the rules from the topic configs.

    --now is the time of the last cleaning pass, and --since of the first one if there were
    several. Without them, tombstones that may have expired are accepted either way, and the
    verdict lists such checks as unproven. Both directories are opened read-only. The exit code is
    1 if there are violations.
    """
    if options["partition"] is not None and options["topic"] is None:
        raise click.UsageError("--partition requires --topic")
    if options["since_ms"] is not None and settings.now_ms is None:
        raise click.UsageError("--since requires --now, the time of the last cleaning pass")
    with SparkOptions(master, driver_memory).session("verify") as spark:
        from logstore.spark.oracle.directories import verify_directories

        verdict = verify_directories(
            spark,
            before,
            after,
            now_ms=settings.now_ms,
            broker_config=settings.broker_config(),
            **options,
        )
    if settings.as_table:
        print_verdict(verdict)
    else:
        emit_json(verdict.as_json(), settings.output)
    return 0 if verdict.ok else 1


def print_verdict(verdict: Verdict) -> None:
    """Print a verdict as text."""
    for text in verdict.notes:
        note(text)
    records = (
        f"{plural(verdict.records_before, 'record')} before, "
        f"{format_count(verdict.records_after)} after"
    )
    if verdict.gone_from_front:
        records += f", {format_count(verdict.gone_from_front)} below the new log start"
    if verdict.unproven:
        records += f"; unproven: {', '.join(verdict.unproven)}"
    if verdict.ok:
        emit(f"{paint('correct', 'green')}: {records}")
        return
    total = sum(verdict.violations.values())
    emit(f"{paint(plural(total, 'violation'), 'red')}: {records}")
    table = Table(("violation", "count", "meaning"), right=("count",), wrap=True)
    emit_lines(table.lines(_kinds(verdict)))
    if verdict.examples:
        emit("")
        table = Table(("example", "partition", "offset", "key"), right=("offset",))
        emit_lines(table.lines(_examples(verdict)))


def _kinds(verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    from logstore.spark.oracle.violations import KINDS

    for kind, count in verdict.violations.items():
        yield kind, format_count(count), KINDS[kind]


def _examples(verdict: Verdict) -> Iterator[tuple[str, str, str, str]]:
    from logstore.cli.show.output import display_bytes

    for example in verdict.examples:
        yield (
            example["kind"],
            f"{example['topic']}-{example['partition']}",
            "" if example["offset"] is None else str(example["offset"]),
            display_bytes(_key_of(example)),
        )


def _key_of(example: Mapping[str, Any]) -> bytes | None:
    if "key_base64" in example:
        return b64decode(example["key_base64"])
    key: str | None = example["key"]
    return None if key is None else key.encode()
