"""`logstore stats`: count records, keys and bytes, live and dead."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import click

from logstore.cli.options import (
    Settings,
    as_recovered_option,
    command,
    config_option,
    partition_option,
    topic_overrides,
)
from logstore.cli.show.bars import bar
from logstore.cli.show.decoded import displayed_key
from logstore.cli.show.output import (
    emit,
    emit_failure,
    emit_items,
    emit_json,
    emit_lines,
    format_count,
    plural,
)
from logstore.cli.show.progress import ProgressBar, dry_run_bars
from logstore.cli.show.prose import wrapped
from logstore.cli.show.tables import Cell, Table, output_width, paint
from logstore.cli.targets import Target, open_target
from logstore.reasons.formats import format_size, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from logstore.analysis.stats import KeyStats, PartitionStats, Sizes, Tally
    from logstore.analysis.verdict import Verdict
    from logstore.errors import LogStoreError
    from logstore.types import TopicPartition

    Failures = list[tuple[TopicPartition, LogStoreError]]

_BAR_WIDTH = 20
_ROWS_MAX = 20
"""Maximum number of rows of a table."""


@command(
    "stats",
    examples=[
        "logstore stats users",
        "logstore stats users --partition 0 --top 20",
        "logstore stats ./kafka-logs/users-0 --format json",
    ],
)
@click.argument("target", required=False, metavar="[TOPIC_OR_PATH]")
@partition_option("Partition of the topic. [default: all]")
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of top keys to list, by records and by bytes.",
)
@config_option("Topic configuration to assume, such as compaction.strategy. Can be repeated.")
@as_recovered_option
def stats(
    settings: Settings,
    target: str | None,
    partition: int | None,
    top: int,
    configs: tuple[tuple[str, str], ...],
    as_recovered: bool,
) -> int:
    """Count records, keys and bytes of a topic, a partition directory or a data directory.

    All numbers are exact. A record is live if a table built from the topic would contain it: it is
    committed, and it either has no key, or it has a value and is the surviving record of its key.
    Other records are dead: superseded, tombstones, aborted, in or after an open transaction
    (unstable), control records, or below the log start offset. Record sizes are uncompressed; file
    sizes are on disk. Nothing is changed.

    Keys are counted in rounds of one million, using about 250 MB of memory. Each round reads the
    records again.
    """
    from logstore.cli.show.verdict import summarize, summary_json, summary_lines

    overrides = topic_overrides(configs)
    with open_target(settings, target, partition, as_recovered=as_recovered) as found:
        broker = found.opened()
        found.override(overrides)
        failures: Failures = []
        verdicts: list[Verdict] = []
        is_damaged = False

        def counted() -> Iterator[PartitionStats]:
            nonlocal is_damaged
            for each in _counted(found, failures, top=top):
                is_damaged = is_damaged or bool(each.damages)
                verdicts.append(each.verdict)
                yield each

        if settings.as_table:
            is_first = True
            for each in counted():
                emit_lines(_lines(each, broker.clock.now_ms(), is_first=is_first))
                is_first = False
            if is_first and not failures:
                emit("no partitions")
            elif len(found.partitions) > 1:
                emit("")
                emit_lines(summary_lines(summarize(broker, verdicts, failures)))
        elif settings.output == "json" and len(found.partitions) == 1:
            for each in counted():
                item = each.to_json()
                # If a topic has a single partition, the JSON has it both as an object and in the
                # list.
                if not found.is_one:
                    item = {
                        **item,
                        "partitions": [item],
                        "summary": summarize(broker, verdicts, failures).to_json(),
                    }
                emit_json(item)
        else:
            texts = (json.dumps(each.to_json()) for each in counted())
            emit_items(
                texts,
                output=settings.output,
                name="partitions",
                more=partial(summary_json, broker, verdicts, failures),
            )
    for tp, error in failures:
        emit_failure(tp, str(error), error.kafka_error)
    return max([int(is_damaged), *(error.exit_code for _, error in failures)])


def _counted(target: Target, failures: Failures, *, top: int) -> Iterator[PartitionStats]:
    """Yield the statistics of each partition. Add errors to `failures`."""
    from logstore.analysis.stats import partition_stats
    from logstore.errors import LogStoreError

    for tp in target.partitions:
        with ProgressBar() as progress, dry_run_bars(True) as on_dry_run:
            on_progress = partial(progress.update, f"counting {tp}") if progress.visible else None
            try:
                found = partition_stats(
                    target.opened(),
                    tp,
                    top=top,
                    progress=on_progress,
                    dry_run_progress=on_dry_run,
                )
            except LogStoreError as error:
                if target.is_one:
                    raise
                failures.append((tp, error))
                continue
        yield found


# -- the table -----------------------------------------------------------------------------


def _lines(found: PartitionStats, now_ms: int, *, is_first: bool) -> Iterator[str]:
    """Yield the statistics of a partition, one block at a time."""
    from logstore.cli.show.verdict import verdict_lines

    if not is_first:
        yield ""
    yield from verdict_lines(f"{found.topic}-{found.partition}", found.verdict, now_ms)
    yield (
        f"{plural(found.records, 'record')} in {plural(found.batches, 'batch', 'batches')},"
        f" {format_size(found.bytes)}, cleanup.policy {found.cleanup_policy or '(empty)'}"
    )
    if found.first_timestamp is not None and found.last_timestamp is not None:
        first, last = format_time(found.first_timestamp), format_time(found.last_timestamp)
        yield f"  {first} to {last}"
    for damage in found.damages:
        yield from wrapped(f"damaged: {damage}", "  ", "red")
    for assumed in found.assumed:
        yield from wrapped(f"assumed: {assumed}", "  ", "dim")
    yield from _shares("records", _counts_by_state(found), found.records)
    yield from _segments(found)
    yield from _keys("keys with the most records", found.top_keys, found, by_bytes=False)
    yield from _keys("keys with the most bytes", found.top_keys_by_bytes, found, by_bytes=True)
    yield from wrapped(
        f"{plural(found.distinct_keys, 'key')}, of which {format_count(found.live_keys)} live;"
        f" {plural(found.tombstones, 'tombstone')}{_surviving_tombstones(found)};"
        f" {plural(found.keyless_records, 'record')} without a key"
    )
    yield from _sizes("key sizes", found.key_sizes)
    yield from _sizes("value sizes", found.value_sizes)
    if found.records_with_headers:
        yield from _shares(
            f"headers, of {plural(found.records_with_headers, 'record')}",
            found.headers,
            found.records,
        )
    yield from _tallies("codec", found.codecs)
    if set(found.producers) != {-1}:
        named = {"(none)" if n == -1 else str(n): each for n, each in found.producers.items()}
        yield from _tallies("producer", named)
    yield from _shares("day", {day: each.records for day, each in found.days.items()}, None)


def _surviving_tombstones(found: PartitionStats) -> str:
    """Return the number of tombstones that are not superseded, or "" if none is superseded."""
    winning = found.dead["tombstone"]
    return (
        "" if winning == found.tombstones else f", of which {format_count(winning)} not superseded"
    )


def _counts_by_state(found: PartitionStats) -> dict[str, int]:
    dead = {name.replace("_", " "): count for name, count in found.dead.items() if count}
    return {"live": found.live_records, **dead}


def _shares(title: str, counts: Mapping[str, int], whole: int | None) -> Iterator[str]:
    """Yield a table of counts, with bars relative to the total or to the largest count."""
    if not counts:
        return
    total = max(counts.values()) if whole is None else whole
    rows: list[tuple[Cell, ...]] = []
    for name, count in list(counts.items())[-_ROWS_MAX:]:
        share = "" if whole is None else f"{count / max(whole, 1):.1%}"
        rows.append((name, format_count(count), share, bar(count, total, _BAR_WIDTH)))
    yield ""
    yield from Table((title, "count", "share", ""), right=("count", "share")).lines(rows)
    if len(counts) > _ROWS_MAX:
        yield paint(f"… and {len(counts) - _ROWS_MAX} earlier rows: --format json lists all", "dim")


def _segments(found: PartitionStats) -> Iterator[str]:
    rows: Iterable[tuple[Cell, ...]] = (
        (
            str(segment.base_offset),
            format_size(segment.bytes),
            format_count(segment.records),
            format_count(segment.live_records),
            format_count(segment.dead_records),
            bar(segment.live_records, max(segment.records, 1), _BAR_WIDTH // 2),
        )
        for segment in found.segments[-_ROWS_MAX:]
    )
    yield ""
    table = Table(
        ("segment", "bytes", "records", "live", "dead", "live share"),
        right=("segment", "bytes", "records", "live", "dead"),
    )
    yield from table.lines(rows)
    if len(found.segments) > _ROWS_MAX:
        more = len(found.segments) - _ROWS_MAX
        yield paint(f"… and {more} earlier segments: --format json lists all", "dim")


def _keys(
    title: str, keys: Sequence[KeyStats], found: PartitionStats, *, by_bytes: bool
) -> Iterator[str]:
    if keys:
        whole = found.record_bytes if by_bytes else found.records
        width = max(12, output_width() - 56)
        rows: Iterable[tuple[Cell, ...]] = (
            (
                _cut(displayed_key(found.topic, key.key), width),
                format_count(key.records),
                format_size(key.bytes),
                f"{(key.bytes if by_bytes else key.records) / max(whole, 1):.1%}",
                bar(key.bytes if by_bytes else key.records, whole, _BAR_WIDTH // 2),
            )
            for key in keys
        )
        yield ""
        columns = (title, "records", "bytes", "share", "")
        yield from Table(columns, right=("records", "bytes", "share")).lines(rows)
    if by_bytes:
        yield ""


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _sizes(title: str, sizes: Sizes) -> Iterator[str]:
    ranges = list(sizes.histogram())
    if not ranges:
        return
    most = max(count for _, _, count in ranges)
    assert sizes.least is not None
    assert sizes.most is not None
    mean = sizes.total / sizes.count
    yield ""
    yield (
        f"{title}: {format_size(sizes.least)} to {format_size(sizes.most)},"
        f" {format_size(round(mean))} on average"
    )
    rows: Iterable[tuple[Cell, ...]] = (
        (
            format_size(least) if least == upper else f"{format_size(least)} to {upper + 1}",
            format_count(count),
            bar(count, most, _BAR_WIDTH),
        )
        for least, upper, count in ranges
    )
    yield from Table(("bytes", "records", ""), right=("bytes", "records")).lines(rows)


def _tallies(title: str, tallies: Mapping[str, Tally]) -> Iterator[str]:
    rows: Iterable[tuple[Cell, ...]] = (
        (
            name,
            format_count(tally.batches),
            format_count(tally.records),
            format_size(tally.bytes),
            format_size(tally.record_bytes),
        )
        for name, tally in list(tallies.items())[:_ROWS_MAX]
    )
    yield ""
    columns = (title, "batches", "records", "bytes", "uncompressed")
    yield from Table(columns, right=columns[1:]).lines(rows)
