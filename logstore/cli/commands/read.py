"""`logstore read`: read records in offset order."""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Iterator
from functools import partial as bound
from typing import TYPE_CHECKING, NamedTuple

import click

from logstore.cli.commands.read_last import last_of
from logstore.cli.options import (
    Settings,
    as_recovered_option,
    command,
    now_of,
    partition_option,
)
from logstore.cli.show.damage import found_json, report_damages
from logstore.cli.show.decoded import decoded_member, displayed, raw_option
from logstore.cli.show.output import (
    display_bytes,
    display_text,
    emit_items,
    emit_lines,
    note,
    record_json,
)
from logstore.cli.show.tables import Table
from logstore.cli.targets import Target, open_target
from logstore.cli.times import TIME_HELP, parse_time
from logstore.reasons.formats import format_time

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.clients.records import ConsumerRecord
    from logstore.record.records import Header
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

EARLIEST = "earliest"
LATEST = "latest"
_BASE64 = "base64:"


class Start(NamedTuple):
    """Where to start: an offset, a time in Unix milliseconds, or a bound of the log."""

    offset: int | None = None
    time_ms: int | None = None
    is_latest: bool = False


def to_start(ctx: click.Context, param: click.Parameter, value: str) -> Start:
    """Parse `--from`."""
    if value == EARLIEST:
        return Start()
    if value == LATEST:
        return Start(is_latest=True)
    try:
        if value.startswith("@"):
            return Start(time_ms=parse_time(value[1:], bound(now_of, ctx)))
        return Start(offset=int(value))
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is not {EARLIEST}, {LATEST}, an offset or @TIME ({TIME_HELP})", ctx, param
        ) from error


def to_key(ctx: click.Context, param: click.Parameter, value: str | None) -> bytes | None:
    """Parse `--key`: text, or `base64:…`."""
    if value is None:
        return None
    if not value.startswith(_BASE64):
        return value.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(value.removeprefix(_BASE64), validate=True)
    except binascii.Error as error:
        raise click.BadParameter(f"{value!r}: {error}", ctx, param) from error


@command(
    "read",
    examples=[
        "logstore read users --from 100 --until 200",
        "logstore read users --partition 0 --from @2024-01-31T12:00:00Z --max-records 10",
        "logstore read users --last 5",
        "logstore read users --key 42 --format jsonl",
        "logstore read ./kafka-logs/users-0 --as-recovered",
        "logstore read users --latest-per-key --format jsonl",
    ],
)
@click.argument("target", metavar="TOPIC_OR_PATH")
@partition_option("Partition of the topic. [default: all, one after another]")
@click.option(
    "--from",
    "start",
    callback=to_start,
    default=EARLIEST,
    metavar="WHERE",
    help="Start at earliest, latest, an offset, or @TIME (the first record at or after a time)."
    "  [default: earliest]",
)
@click.option("--until", type=int, metavar="OFFSET", help="Stop before this offset.")
@click.option("--max-records", type=click.IntRange(0), metavar="N", help="Stop after N records.")
@click.option(
    "--last",
    type=click.IntRange(0),
    metavar="N",
    help="Show only the last N matching records of each partition.",
)
@click.option(
    "--isolation",
    type=click.Choice(("read_uncommitted", "read_committed")),
    help="Include (read_uncommitted) or exclude (read_committed) records of aborted and open "
    "transactions.  [default: read_uncommitted; with --latest-per-key read_committed]",
)
@click.option(
    "--key", callback=to_key, metavar="K", help="Show only records with this key: text, or base64:…"
)
@click.option(
    "--latest-per-key",
    is_flag=True,
    help="Show only the record of each key that compaction keeps, among committed records; deleted "
    "keys and records without a key are omitted. Keeps one record per key in memory.",
)
@raw_option
@as_recovered_option
def read(
    settings: Settings,
    target: str,
    partition: int | None,
    start: Start,
    until: int | None,
    max_records: int | None,
    last: int | None,
    isolation: str | None,
    key: bytes | None,
    latest_per_key: bool,
    raw: bool,
    as_recovered: bool,
) -> int:
    """Read records of TOPIC_OR_PATH in offset order.

    TOPIC_OR_PATH is a topic, a partition directory, a data directory, or a .log file. Damaged
    batches are skipped and reported on standard error, and the exit code is then 1. A torn batch at
    the end of the log, left by a crash, does not count as damage. Offsets removed by compaction are
    skipped. An offset outside the log is an error. Control records are not shown (see inspect
    --records). Records of Kafka's internal topics are decoded. Tables show them instead of the
    bytes, and JSON has both. Nothing is changed.
    """
    if last is not None and latest_per_key:
        raise click.UsageError("--last and --latest-per-key are mutually exclusive")
    if isolation is None:
        isolation = "read_committed" if latest_per_key else "read_uncommitted"
    with open_target(settings, target, partition, as_recovered=as_recovered) as found:
        broker = found.opened()

        def records() -> Iterator[ConsumerRecord]:
            for view in found.views():
                tp = view.topic_partition

                def read_from(offset: int, tp: TopicPartition = tp) -> Iterator[ConsumerRecord]:
                    return broker.read(tp, offset=offset, until=until, isolation=isolation, key=key)

                first = view.evaluate(lambda log: _first_offset(log, start))
                if latest_per_key:
                    yield from _latest(broker, tp.topic, read_from(first))
                elif last is not None:
                    end = view.log.log_end_offset
                    end = end if until is None else min(end, until)
                    yield from last_of(read_from, first, end, last)
                else:
                    yield from read_from(first)

        chosen = records() if max_records is None else itertools.islice(records(), max_records)
        _print(settings, found, chosen, raw=raw)
        return report_damages(broker, found.partitions)


def _latest(
    broker: Broker, topic: str, records: Iterator[ConsumerRecord]
) -> Iterator[ConsumerRecord]:
    from logstore.analysis.broker_state import topic_config
    from logstore.clients.table import latest_per_key

    return latest_per_key(records, topic_config(broker, topic))


def _first_offset(log: Log, start: Start) -> int:
    if start.offset is not None:
        return start.offset
    if start.time_ms is not None:
        found = log.reader.offset_for_timestamp(max(start.time_ms, 0))
        return log.log_end_offset if found is None else found.offset
    return log.log_end_offset if start.is_latest else log.log_start_offset


def _print(
    settings: Settings, target: Target, records: Iterator[ConsumerRecord], *, raw: bool
) -> None:
    if not settings.as_table:
        emit_items(
            (
                record_json(
                    record.topic,
                    record.partition,
                    record.timestamp_type,
                    record,
                    **decoded_member(record.topic, record, raw=raw),
                )
                for record in records
            ),
            output=settings.output,
            name="records",
            more=lambda: found_json(target.opened(), target.partitions),
        )
        return
    first = next(records, None)
    if first is None:
        note("no records")
        return
    table = Table(
        ("partition", "offset", "timestamp", "key", "value", "headers"),
        right=("offset",),
        whole=("timestamp",),
    )
    emit_lines(table.lines(_row(record, raw=raw) for record in itertools.chain((first,), records)))


def _row(record: ConsumerRecord, *, raw: bool) -> tuple[str, ...]:
    return (
        f"{record.topic}-{record.partition}",
        str(record.offset),
        format_time(record.timestamp),
        *displayed(record.topic, record, raw=raw),
        ", ".join(_header_text(header) for header in record.headers),
    )


def _header_text(header: Header) -> str:
    name, value = header
    return f"{display_text(name)}={display_bytes(value)}"
