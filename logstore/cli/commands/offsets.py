"""`logstore offsets`: find offsets by timestamp, or the bounds of a log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial as bound
from typing import TYPE_CHECKING, NamedTuple

import click

from logstore.cli.options import (
    Settings,
    as_recovered_option,
    command,
    now_of,
    partition_option,
)
from logstore.cli.show.damage import found_json, report_damages
from logstore.cli.show.output import emit_failure, emit_items, emit_lines
from logstore.cli.show.tables import Cell, Styled, Table
from logstore.cli.targets import open_target
from logstore.cli.times import TIME_HELP, parse_time
from logstore.reasons.formats import format_time

if TYPE_CHECKING:
    from logstore.analysis.view import PartitionView
    from logstore.errors import LogStoreError
    from logstore.storage.log.reader import ListedOffset
    from logstore.types import TopicPartition

WORDS = {"latest": -1, "earliest": -2, "max-timestamp": -3}
"""Special timestamps of ListOffsets by name. kafka-get-offsets also accepts the numbers."""

NONE = -1
"""Offset and timestamp in JSON if no record matches, as in Kafka's protocol."""


class TimeQuery(NamedTuple):
    """The value of `--time`: a ListOffsets timestamp, and `time`, one of `WORDS` or Unix ms."""

    number: int
    time: str | int

    @property
    def heading(self) -> str:
        """Heading of the offset column."""
        if isinstance(self.time, int):
            return f"first offset since {format_time(self.time)}"
        return "offset of max timestamp" if self.leads_to_a_record else f"{self.time} offset"

    @property
    def leads_to_a_record(self) -> bool:
        """Whether the result is a record, which has a timestamp, and not a bound of the log."""
        return self.time not in ("latest", "earliest")


class Answer(NamedTuple):
    """The result for a partition: an offset, no offset (None), or an error."""

    topic_partition: TopicPartition
    listed: ListedOffset | None
    error: LogStoreError | None = None


def to_time_query(ctx: click.Context, param: click.Parameter, value: str) -> TimeQuery:
    """Parse `--time`."""
    for word, number in WORDS.items():
        if value in (word, str(number)):
            return TimeQuery(number, word)
    try:
        time_ms = parse_time(value.removeprefix("@"), bound(now_of, ctx))
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is not {', '.join(WORDS)} or a time ({TIME_HELP})", ctx, param
        ) from error
    if time_ms < 0:
        raise click.BadParameter(f"{value!r} is before 1970", ctx, param)
    return TimeQuery(time_ms, time_ms)


@command(
    "offsets",
    examples=[
        "logstore offsets users",
        "logstore offsets users --partition 0 --time earliest",
        "logstore offsets users --time 2024-01-31T12:00:00Z --format json",
        "logstore offsets users --time max-timestamp",
    ],
)
@click.argument("target", metavar="TOPIC_OR_PATH")
@partition_option("Partition of the topic. [default: all]")
@click.option(
    "--time",
    "query",
    callback=to_time_query,
    default="latest",
    metavar="WHEN",
    help="latest: the log end offset. earliest: the log start offset. max-timestamp: the first "
    "record with the largest timestamp. TIME: the first record at or after TIME. Kafka's -1, -2 "
    "and -3 mean the first three.  [default: latest]",
)
@as_recovered_option
def offsets(
    settings: Settings, target: str, partition: int | None, query: TimeQuery, as_recovered: bool
) -> int:
    """Find offsets in TOPIC_OR_PATH by timestamp, or the bounds of the log.

    The results match ListOffsets: in JSON, offset and timestamp are -1 if no record matches,
    and bounds of the log have timestamp -1. Nothing is changed.
    """
    with open_target(settings, target, partition, as_recovered=as_recovered) as found:
        failures: list[Answer] = []

        def answers() -> Iterator[Answer]:
            for view in found.views():
                answer = _answer(view, query)
                if answer.error is not None:
                    failures.append(answer)
                yield answer

        if settings.as_table:
            columns = ("partition", query.heading, *(["timestamp"] * query.leads_to_a_record))
            table = Table(columns, right=(query.heading,))
            emit_lines(table.lines(_row(each)[: len(columns)] for each in answers()))
        else:
            emit_items(
                (_item(query, each) for each in answers()),
                output=settings.output,
                name="offsets",
                more=lambda: found_json(found.opened(), found.partitions),
            )
        code = report_damages(found.opened(), found.partitions)
    for each in failures:
        assert each.error is not None
        emit_failure(each.topic_partition, str(each.error), each.error.kafka_error)
        code = max(code, each.error.exit_code)
    return code


def _answer(view: PartitionView, query: TimeQuery) -> Answer:
    """Return the offset of a partition, or an error if it cannot be read."""
    from logstore.errors import LogStoreError

    tp = view.topic_partition
    try:
        return Answer(tp, view.evaluate(lambda log: log.reader.offset_for_timestamp(query.number)))
    except LogStoreError as error:
        return Answer(tp, None, error)


def _item(query: TimeQuery, answer: Answer) -> str:
    listed = answer.listed
    item = {
        "topic": answer.topic_partition.topic,
        "partition": answer.topic_partition.partition,
        "time": query.time,
        "offset": NONE if listed is None else listed.offset,
        "timestamp": NONE if listed is None else listed.timestamp,
    }
    if answer.error is not None:
        item["error"] = answer.error.kafka_error
    return json.dumps(item)


def _row(answer: Answer) -> Sequence[Cell]:
    name = str(answer.topic_partition)
    if answer.error is not None:
        return (name, Styled(answer.error.kafka_error, "bold red"), "")
    if answer.listed is None:
        return (name, Styled("none", "dim"), Styled("-", "dim"))
    return (name, str(answer.listed.offset), format_time(answer.listed.timestamp))
