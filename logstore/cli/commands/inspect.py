"""`logstore inspect`: what is in a data directory, a topic, a partition or a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.options import (
    Settings,
    as_recovered_option,
    command,
    config_option,
    partition_option,
    topic_overrides,
)
from logstore.cli.show.damage import MetDamages
from logstore.cli.show.decoded import displayed, raw_option
from logstore.cli.show.output import (
    emit,
    emit_items,
    emit_json,
    emit_lines,
    one_line,
)
from logstore.cli.show.progress import watched
from logstore.cli.show.tables import Table
from logstore.cli.targets import Target, open_target
from logstore.inspect.records import decodable_topic, stored_record_json
from logstore.reasons.formats import format_time

if TYPE_CHECKING:
    from logstore.analysis.summary import PartitionSummary
    from logstore.errors import LogStoreError
    from logstore.inspect.files import BatchSource, StoredRecord
    from logstore.types import TopicPartition

SORTS: Mapping[str, Callable[[PartitionSummary], float]] = {
    "size": lambda summary: summary.size_bytes,
    "ratio": lambda summary: summary.cleanable_ratio,
    "lag": lambda summary: -1 if summary.lag_ms is None else summary.lag_ms,
}
"""What `--sort` goes by."""


@command(
    "inspect",
    examples=[
        "logstore inspect",
        "logstore inspect --summary --sort size",
        "logstore inspect users --partition 0 --deep",
        "logstore inspect ./kafka-logs/users-0 --format json",
        "logstore inspect users --partition 0 --batches --format jsonl",
        "logstore inspect users --partition 0 --fate",
        "logstore inspect ./kafka-logs/users-0 --fate --config cleanup.policy=compact",
        "logstore inspect ./kafka-logs/users-0/00000000000000000000.log --records",
    ],
)
@click.argument("target", required=False, metavar="[TOPIC_OR_PATH]")
@partition_option("Which one of the topic's. Default: all.")
@click.option(
    "--deep",
    is_flag=True,
    help="Decode and verify every record: live keys (whose latest record has a value), "
    "tombstones (records without a value); of the committed records.",
)
@click.option(
    "--summary", is_flag=True, help="A line a partition, even of one; in JSON without segments."
)
@click.option(
    "--sort",
    type=click.Choice(tuple(SORTS)),
    help="Order of --summary, the largest first: bytes, dirty ratio, or how long the oldest "
    "data that is not clean has waited.  [default: by name]",
)
@click.option("--batches", is_flag=True, help="List the batches, with kafka-dump-log's names.")
@click.option("--records", is_flag=True, help="List the records, control records included.")
@click.option(
    "--fate",
    is_flag=True,
    help="List what the next cleaning does to each record, and which one supersedes it.",
)
@raw_option
@as_recovered_option
@config_option("A topic configuration to look with; repeatable.")
def inspect(
    settings: Settings,
    target: str | None,
    partition: int | None,
    deep: bool,
    summary: bool,
    sort: str | None,
    batches: bool,
    records: bool,
    fate: bool,
    raw: bool,
    as_recovered: bool,
    configs: tuple[tuple[str, str], ...],
) -> int:
    """Show what is in a data directory, a topic, a partition directory or a .log file.

    TOPIC_OR_PATH is a topic of the data directory, else a path; `./x` is always a path.
    Without it the whole data directory is shown, with the log of a KRaft node
    (__cluster_metadata-0) if it has one. Nothing is changed: what opening for writing
    would mend is reported under recovery. Only batch headers are read, unless --deep.

    \b
    Sections: clean        below the first dirty offset
              dirty        what the next cleaning compacts
              uncleanable  at or above the first uncleanable offset
              active       the segment that takes appends

    --fate runs the cleaner over the partition without letting it write, whether a cleaning is
    due or not. A folder copied from a broker does not tell its topic's configuration; --config
    can.

    \b
    Fates:    retained           stays
              superseded         another record of its key wins
              tombstone_expired  a tombstone that was kept for delete.retention.ms
              aborted            of an aborted transaction
              control_expired    a marker whose transaction is gone
              null_key           without a key
              below_log_start    deleted for readers already
              active             in the active segment
              not_yet_cleanable  at or above the first uncleanable offset
    """  # noqa: D301  # click's marker is the backspace itself
    from logstore.cli.show.messages import Recovery, show_messages

    summary = summary or sort is not None
    listings = {
        "--batches": batches,
        "--records": records,
        "--fate": fate,
        "--summary": summary,
    }
    chosen = [name for name, is_chosen in listings.items() if is_chosen]
    if len(chosen) > 1:
        raise click.UsageError(f"{chosen[0]} and {chosen[1]} exclude each other")
    overrides = topic_overrides(configs)
    show_messages(Recovery.PART_OF_RESULT)
    opened = open_target(settings, target, partition, as_recovered=as_recovered, metadata_log=True)
    with opened as found:
        found.override(overrides)
        if summary and found.file is not None:
            raise click.UsageError(f"--summary is of partitions, and {target} is not a directory")
        if summary:
            found.opened()
        if fate:
            return _print_fates(settings, found, raw=raw)
        if records:
            return _print_records(settings, found, raw=raw)
        if batches or found.file is not None:
            return _print_batches(settings, found)
        return _print_partitions(settings, found, deep=deep, is_summary=summary, sort=sort)


# -- partitions ----------------------------------------------------------------------------


def _print_partitions(
    settings: Settings, target: Target, *, deep: bool, is_summary: bool, sort: str | None
) -> int:
    """Print summaries; a partition that cannot be opened hides no other."""
    from logstore.analysis.summary import inspect_partition
    from logstore.errors import LogStoreError

    broker = target.broker
    assert broker is not None
    failures: list[tuple[TopicPartition, LogStoreError]] = []
    is_damaged = False

    def summaries() -> Iterator[PartitionSummary]:
        nonlocal is_damaged
        # Nothing is shown before the last was looked at, if they are sorted: then there is a bar.
        for tp in watched(target.partitions, "inspecting", beside_output=sort is None):
            try:
                summary = inspect_partition(broker, tp, deep=deep)
            except LogStoreError as error:
                if target.is_one:
                    raise
                failures.append((tp, error))
            else:
                is_damaged = is_damaged or summary.is_damaged
                yield summary

    found = summaries()
    if sort is not None:
        found = iter(sorted(found, key=SORTS[sort], reverse=True))
    if settings.as_table:
        from logstore.cli.show.inspect import show_many, show_one

        is_one = len(target.partitions) == 1 and not is_summary
        if is_one and (summary := next(found, None)) is not None:
            show_one(summary)
        else:
            width = max((len(str(tp)) for tp in target.partitions), default=0)
            show_many(found, has_counts=deep, name_width=width)
    elif is_summary:
        texts = map(json.dumps, _items(found, failures, is_summary=True))
        emit_items(texts, output=settings.output, name="partitions")
    else:
        _print_json(settings, target, _items(found, failures))
    for tp, failure in failures:
        click.echo(f"error: {tp}: {one_line(str(failure))} ({failure.kafka_error})", err=True)
    return max([failure.exit_code for _, failure in failures] + [int(is_damaged)])


def _items(
    summaries: Iterable[PartitionSummary],
    failures: Iterable[tuple[TopicPartition, LogStoreError]],
    *,
    is_summary: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the partitions, then those that could not be opened, which are known by then."""
    for summary in summaries:
        yield summary.to_line_json() if is_summary else summary.to_json()
    for tp, error in failures:
        yield {**tp._asdict(), "error": error.kafka_error}


def _print_json(settings: Settings, target: Target, items: Iterator[dict[str, Any]]) -> None:
    if settings.output == "json" and target.is_one:
        emit_json(next(items))
    elif settings.output == "json" and target.is_topic and len(target.partitions) == 1:
        # The only partition of a topic can be meant either way, so both ways lead to it.
        item = next(items)
        emit_json({**item, "partitions": [item]})
    else:
        texts = (json.dumps(item) for item in items)
        emit_items(texts, output=settings.output, name="partitions")


# -- batches and records -------------------------------------------------------------------


def _print_batches(settings: Settings, target: Target) -> int:
    from logstore.inspect.files import describe_batches

    met = MetDamages()

    def items() -> Iterator[dict[str, Any]]:
        for source, _ in target.sources():
            for item in describe_batches(source, met.of_next_file()):
                yield item | _place(source)

    if settings.as_table:
        _emit_table(_BATCH_COLUMNS, _BATCH_NUMBERS, (_batch_row(item) for item in items()))
    else:
        texts = (json.dumps(item) for item in items())
        emit_items(texts, output=settings.output, name="batches", more=met.to_json)
    return met.tell()


def _place(source: BatchSource) -> dict[str, Any]:
    tp = source.topic_partition
    return {} if tp is None else tp._asdict()


_BATCH_COLUMNS = (
    "segment",
    "position",
    "offsets",
    "count",
    "size",
    "codec",
    "max timestamp",
    "producer",
    "epoch",
    "flags",
)
_BATCH_NUMBERS = ("segment", "position", "count", "size", "epoch")


def _batch_row(item: dict[str, Any]) -> tuple[str, ...]:
    flags = [
        text
        for text, is_set in (
            ("BAD CRC", not item["isvalid"]),
            ("transactional", item["isTransactional"]),
            ("control", item["isControl"]),
            ("append time", item["timestampType"] == "LogAppendTime"),
        )
        if is_set
    ]
    if item["deleteHorizonMs"] is not None:
        flags.append(f"horizon {format_time(item['deleteHorizonMs'])}")
    producer = (
        f"{item['producerId']}/{item['producerEpoch']} seq {item['baseSequence']}"
        if item["producerId"] >= 0
        else "-"
    )
    return (
        "-" if item["segment"] is None else str(item["segment"]),
        str(item["position"]),
        f"{item['baseOffset']}..{item['lastOffset']}",
        str(item["count"]),
        str(item["size"]),
        item["compresscodec"],
        format_time(item["maxTimestamp"]),
        producer,
        str(item["partitionLeaderEpoch"]),
        ", ".join(flags),
    )


def _print_records(settings: Settings, target: Target, *, raw: bool) -> int:
    from logstore.inspect.files import stored_records

    met = MetDamages()

    def found() -> Iterator[tuple[BatchSource, StoredRecord]]:
        for source, start in target.sources():
            for stored in stored_records(source, start, met.of_next_file()):
                yield source, stored

    if settings.as_table:
        rows = (
            (
                str(stored.record.offset),
                format_time(stored.record.timestamp),
                str(stored.batch.header.base_offset),
                str(stored.position),
                "control" if stored.batch.header.is_control else "",
                *_displayed(source, stored, raw=raw),
            )
            for source, stored in found()
        )
        _emit_table(
            ("offset", "timestamp", "batch", "position", "kind", "key", "value"),
            ("offset", "batch", "position"),
            rows,
        )
        return met.tell()
    emit_items(
        (
            stored_record_json(source.topic_partition, *stored, raw=raw)
            for source, stored in found()
        ),
        output=settings.output,
        name="records",
        more=met.to_json,
    )
    return met.tell()


def _displayed(source: BatchSource, stored: StoredRecord, *, raw: bool) -> tuple[str, str]:
    topic = decodable_topic(source.topic_partition, stored.batch)
    return displayed(topic, stored.record, raw=raw)


def _print_fates(settings: Settings, target: Target, *, raw: bool) -> int:
    from logstore.cli.show.fates import print_fates

    if target.broker is None:
        raise click.UsageError("--fate needs a topic or a partition directory, not a file")
    return print_fates(
        target.broker, target.partitions, output=settings.output, is_one=target.is_one, raw=raw
    )


def _emit_table(
    columns: tuple[str, ...], numbers: tuple[str, ...], rows: Iterable[tuple[str, ...]]
) -> None:
    import itertools

    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        emit("nothing there")
        return
    table = Table(columns, right=numbers, whole=("offsets", "timestamp", "max timestamp"))
    emit_lines(table.lines(itertools.chain((first,), rows)))
