"""`logstore inspect`: show the content of a data directory, topic, partition or file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.options import (
    Settings,
    all_option,
    as_recovered_option,
    command,
    config_option,
    partition_option,
    topic_overrides,
)
from logstore.cli.show.damage import SkippedDamage, note_assumed_policy
from logstore.cli.show.decoded import displayed, raw_option
from logstore.cli.show.output import (
    emit,
    emit_items,
    emit_json,
    emit_lines,
    one_line,
)
from logstore.cli.show.progress import dry_run_bars, watched
from logstore.cli.show.tables import Table
from logstore.cli.targets import Target, open_target
from logstore.inspect.records import decodable_topic, stored_record_json
from logstore.reasons.formats import format_time

if TYPE_CHECKING:
    from logstore.analysis.summary import PartitionSummary
    from logstore.analysis.verdict import Verdict
    from logstore.errors import LogStoreError
    from logstore.inspect.files import BatchSource, StoredRecord
    from logstore.types import TopicPartition

SORTS: Mapping[str, Callable[[PartitionSummary], float | tuple[int, int]]] = {
    "size": lambda summary: summary.size_bytes,
    "ratio": lambda summary: summary.cleanable_ratio,
    "lag": lambda summary: -1 if summary.lag_ms is None else summary.lag_ms,
    "frees": lambda summary: (0, 0) if summary.verdict is None else summary.verdict.removable_bytes,
}
"""Sort keys of `--sort`."""


@command(
    "inspect",
    examples=[
        "logstore inspect",
        "logstore inspect --summary --sort size",
        "logstore inspect users --partition 0 --deep",
        "logstore inspect ./kafka-logs/users-0 --format json",
        "logstore inspect users --partition 0 --batches --format jsonl",
        "logstore inspect users --partition 0 --fate",
        "logstore inspect users --partition 0 --fate --force --roll",
        "logstore inspect ./kafka-logs/users-0 --fate --config cleanup.policy=compact",
        "logstore inspect ./kafka-logs/users-0/00000000000000000000.log --records",
    ],
)
@click.argument("target", required=False, metavar="[TOPIC_OR_PATH]")
@partition_option("Partition of the topic. [default: all]")
@click.option(
    "--deep",
    is_flag=True,
    help="Decode and verify every record, and count live keys (latest committed record has a "
    "value) and tombstones (records without a value).",
)
@click.option("--summary", is_flag=True, help="One line per partition; in JSON without segments.")
@click.option(
    "--sort",
    type=click.Choice(tuple(SORTS)),
    help="Sort --summary in descending order of bytes, dirty ratio, age of the oldest uncleaned "
    "data or bytes that can be freed now.  [default: by name in JSON; else damage first, then by "
    "bytes that can be freed]",
)
@click.option(
    "--exact",
    is_flag=True,
    help="Dry-run the cleaner to show exactly how many bytes it would free, not an upper bound.",
)
@click.option(
    "--batches", is_flag=True, help="List the batches, with kafka-dump-log's field names."
)
@click.option("--records", is_flag=True, help="List the records, including control records.")
@click.option(
    "--fate",
    is_flag=True,
    help="List each record's fate in the next cleaning pass, and the record that supersedes it.",
)
@click.option("--force", is_flag=True, help="With --fate: show the effect of clean --force.")
@click.option(
    "--roll", is_flag=True, help="With --fate: as if the active segment were rolled first."
)
@all_option
@raw_option
@as_recovered_option
@config_option("Topic configuration to assume. Can be repeated.")
def inspect(
    settings: Settings,
    target: str | None,
    partition: int | None,
    deep: bool,
    exact: bool,
    summary: bool,
    sort: str | None,
    batches: bool,
    records: bool,
    fate: bool,
    force: bool,
    roll: bool,
    lists_all: bool,
    raw: bool,
    as_recovered: bool,
    configs: tuple[tuple[str, str], ...],
) -> int:
    """Show the content of a data directory, a topic, a partition directory or a .log file.

    TOPIC_OR_PATH is a topic of the data directory, or else a path; `./x` is always a path. Without
    it, the whole data directory is shown, including the log of a KRaft node (__cluster_metadata-0).
    Nothing is changed: repairs that a broker would make when it opens the directory are listed
    under recovery. Only batch headers are read, unless --deep is given.

    \b
    Sections: clean        below the first dirty offset
              dirty        compacted by the next cleaning pass
              uncleanable  at or above the first uncleanable offset
              active       the segment that receives appends

    --fate does a dry run of the cleaner, whether or not a cleaning pass is due. A directory copied
    from a broker does not contain topic configs; pass them with --config.

    \b
    Fates:    retained           kept
              superseded         another record of its key survives
              tombstone_expired  a tombstone removed after delete.retention.ms
              aborted            part of an aborted transaction
              control_expired    a marker whose transaction is removed
              null_key           removed, because it has no key
              below_log_start    below the log start offset
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
        raise click.UsageError(f"{chosen[0]} and {chosen[1]} are mutually exclusive")
    if (force or roll) and not fate:
        raise click.UsageError(f"{'--force' if force else '--roll'} needs --fate")
    overrides = topic_overrides(configs)
    show_messages(Recovery.PART_OF_RESULT)
    opened = open_target(settings, target, partition, as_recovered=as_recovered, metadata_log=True)
    with opened as found:
        found.override(overrides)
        if summary and found.file is not None:
            raise click.UsageError(
                f"--summary needs a topic or a directory, but {target} is a file"
            )
        if summary:
            found.opened()
        if fate:
            return _print_fates(settings, found, raw=raw, force=force, roll=roll)
        if records:
            return _print_records(settings, found, raw=raw)
        if batches or found.file is not None:
            return _print_batches(settings, found)
        return _print_partitions(
            settings,
            found,
            deep=deep,
            exact=exact,
            is_summary=summary,
            sort=sort,
            lists_all=lists_all,
        )


# -- partitions ----------------------------------------------------------------------------


def _print_partitions(
    settings: Settings,
    target: Target,
    *,
    deep: bool,
    exact: bool,
    is_summary: bool,
    sort: str | None,
    lists_all: bool,
) -> int:
    """Print summaries. Partitions that cannot be opened are reported last."""
    from logstore.analysis.summary import inspect_partition
    from logstore.cli.show.verdict import EmptyPartitions, summarize, summary_json
    from logstore.errors import LogStoreError

    broker = target.broker
    assert broker is not None
    failures: list[tuple[TopicPartition, LogStoreError]] = []
    verdicts: list[Verdict] = []
    is_damaged = False
    is_streamed = sort is None and not settings.as_table

    def summaries() -> Iterator[PartitionSummary]:
        nonlocal is_damaged
        # Sorting delays the output, so show a progress bar.
        for tp in watched(target.partitions, "inspecting", with_output=is_streamed):
            try:
                with dry_run_bars(deep or exact, with_output=is_streamed) as progress:
                    summary = inspect_partition(
                        broker, tp, deep=deep, exact=exact, progress=progress
                    )
            except LogStoreError as error:
                if target.is_one:
                    raise
                failures.append((tp, error))
            else:
                is_damaged = is_damaged or summary.is_damaged
                if summary.verdict is not None:
                    verdicts.append(summary.verdict)
                yield summary

    more = partial(summary_json, broker, verdicts, failures)
    found = summaries()
    if sort is not None:
        found = iter(sorted(found, key=SORTS[sort], reverse=True))
    if settings.as_table:
        from logstore.cli.show.inspect import show_many, show_one

        note_assumed_policy(broker, target.partitions)
        is_one = len(target.partitions) == 1 and not is_summary
        if is_one and (summary := next(found, None)) is not None:
            show_one(summary, is_deep=deep)
        else:
            width = max((len(str(tp)) for tp in target.partitions), default=0)
            ordered = list(found)
            if sort is None:
                ordered.sort(key=_by_verdict)
            empty = EmptyPartitions(broker, target.partitions, lists_all=lists_all)
            show_many(
                summarize(broker, verdicts, failures),
                ordered,
                empty,
                is_deep=deep,
                name_width=width,
            )
    elif is_summary:
        texts = map(json.dumps, _items(found, failures, is_summary=True))
        emit_items(texts, output=settings.output, name="partitions", more=more)
    else:
        _print_json(settings, target, _items(found, failures), more)
    for tp, failure in failures:
        click.echo(f"error: {tp}: {one_line(str(failure))} ({failure.kafka_error})", err=True)
    return max([failure.exit_code for _, failure in failures] + [int(is_damaged)])


def _by_verdict(summary: PartitionSummary) -> tuple[bool, int, int]:
    """Return the sort key of the table: damage first, then the most bytes that can be freed."""
    verdict = summary.verdict
    assert verdict is not None
    now, if_rolled = verdict.removable_bytes
    return verdict.state != "damaged", -now, -if_rolled


def _items(
    summaries: Iterable[PartitionSummary],
    failures: Iterable[tuple[TopicPartition, LogStoreError]],
    *,
    is_summary: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the partitions, then the failures, which are complete by then."""
    for summary in summaries:
        yield summary.to_line_json() if is_summary else summary.to_json()
    for tp, error in failures:
        yield {**tp._asdict(), "error": error.kafka_error}


def _print_json(
    settings: Settings,
    target: Target,
    items: Iterator[dict[str, Any]],
    more: Callable[[], Mapping[str, Any]],
) -> None:
    if settings.output == "json" and target.is_one:
        emit_json(next(items))
    elif settings.output == "json" and target.is_topic and len(target.partitions) == 1:
        # If a topic has a single partition, the JSON has it both as an object and in the list.
        item = next(items)
        emit_json({**item, "partitions": [item], **more()})
    else:
        texts = (json.dumps(item) for item in items)
        emit_items(texts, output=settings.output, name="partitions", more=more)


# -- batches and records -------------------------------------------------------------------


def _print_batches(settings: Settings, target: Target) -> int:
    from logstore.inspect.files import describe_batches

    met = SkippedDamage()

    def items() -> Iterator[dict[str, Any]]:
        for source, _ in target.sources():
            for item in describe_batches(source, met.of_next_file()):
                yield item | _place(source)

    if settings.as_table:
        _emit_table(_BATCH_COLUMNS, _BATCH_NUMBERS, (_batch_row(item) for item in items()))
    else:
        texts = (json.dumps(item) for item in items())
        emit_items(texts, output=settings.output, name="batches", more=met.to_json)
    return met.report()


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

    met = SkippedDamage()

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
        return met.report()
    emit_items(
        (
            stored_record_json(source.topic_partition, *stored, raw=raw)
            for source, stored in found()
        ),
        output=settings.output,
        name="records",
        more=met.to_json,
    )
    return met.report()


def _displayed(source: BatchSource, stored: StoredRecord, *, raw: bool) -> tuple[str, str]:
    topic = decodable_topic(source.topic_partition, stored.batch)
    return displayed(topic, stored.record, raw=raw)


def _print_fates(settings: Settings, target: Target, *, raw: bool, force: bool, roll: bool) -> int:
    from logstore.cli.show.fates import print_fates

    if target.broker is None:
        raise click.UsageError("--fate needs a topic or a partition directory, not a file")
    return print_fates(
        target.broker,
        target.partitions,
        output=settings.output,
        is_one=target.is_one,
        raw=raw,
        force=force,
        roll=roll,
    )


def _emit_table(
    columns: tuple[str, ...], numbers: tuple[str, ...], rows: Iterable[tuple[str, ...]]
) -> None:
    import itertools

    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        emit("nothing to show")
        return
    table = Table(columns, right=numbers, whole=("offsets", "timestamp", "max timestamp"))
    emit_lines(table.lines(itertools.chain((first,), rows)))
