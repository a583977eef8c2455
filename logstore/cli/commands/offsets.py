"""`logstore offsets`: which offset answers to a time, or to an end of the log."""

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
from logstore.cli.show.damage import found_json, tell_damages
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
"""Kafka's targets of ListOffsets; as numbers they are what kafka-get-offsets takes as well."""

NONE = -1
"""Offset and timestamp of an answer where no record answers, as in Kafka's protocol."""


class Asked(NamedTuple):
    """The question: a number of ListOffsets, and how the user said it.

    `time` is one of `WORDS`, or Unix ms.
    """

    number: int
    time: str | int

    @property
    def heading(self) -> str:
        """The heading of the answer's column."""
        if isinstance(self.time, int):
            return f"first offset since {format_time(self.time)}"
        return "offset of max timestamp" if self.leads_to_a_record else f"{self.time} offset"

    @property
    def leads_to_a_record(self) -> bool:
        """Whether a record answers, so that there is a timestamp; else an end of the log does."""
        return self.time not in ("latest", "earliest")


class Answer(NamedTuple):
    """One partition's answer: an offset, none (both None), or why there is none to give."""

    topic_partition: TopicPartition
    listed: ListedOffset | None
    error: LogStoreError | None = None


def to_asked(ctx: click.Context, param: click.Parameter, value: str) -> Asked:
    """Understand `--time`."""
    for word, number in WORDS.items():
        if value in (word, str(number)):
            return Asked(number, word)
    try:
        time_ms = parse_time(value.removeprefix("@"), bound(now_of, ctx))
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is not {', '.join(WORDS)} or a time ({TIME_HELP})", ctx, param
        ) from error
    if time_ms < 0:
        raise click.BadParameter(f"{value!r} is before 1970, where no record is", ctx, param)
    return Asked(time_ms, time_ms)


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
@partition_option("Which one of the topic's. Default: all.")
@click.option(
    "--time",
    "asked",
    callback=to_asked,
    default="latest",
    metavar="WHEN",
    help="latest: what the next record gets. earliest: the log start. max-timestamp: the first "
    "record of the largest timestamp. A time: the first record of that time or later. Kafka's "
    "-1, -2 and -3 mean the same.  [default: latest]",
)
@as_recovered_option
def offsets(
    settings: Settings, target: str, partition: int | None, asked: Asked, as_recovered: bool
) -> int:
    """Find offsets in TOPIC_OR_PATH: the ends of the log, or the record that a time leads to.

    What ListOffsets answers: offset and timestamp are -1 in JSON where no record answers, and
    the timestamp is -1 of an end of the log. Nothing is changed.
    """
    with open_target(settings, target, partition, as_recovered=as_recovered) as found:
        failures: list[Answer] = []

        def answers() -> Iterator[Answer]:
            for view in found.views():
                answer = _answer(view, asked)
                if answer.error is not None:
                    failures.append(answer)
                yield answer

        if settings.as_table:
            columns = ("partition", asked.heading, *(["timestamp"] * asked.leads_to_a_record))
            table = Table(columns, right=(asked.heading,))
            emit_lines(table.lines(_row(each)[: len(columns)] for each in answers()))
        else:
            emit_items(
                (_item(asked, each) for each in answers()),
                output=settings.output,
                name="offsets",
                more=lambda: found_json(found.opened(), found.partitions),
            )
        code = tell_damages(found.opened(), found.partitions)
    for each in failures:
        assert each.error is not None
        emit_failure(each.topic_partition, str(each.error), each.error.kafka_error)
        code = max(code, each.error.exit_code)
    return code


def _answer(view: PartitionView, asked: Asked) -> Answer:
    """Ask one partition; one that cannot be read hides no other."""
    from logstore.errors import LogStoreError

    tp = view.topic_partition
    try:
        return Answer(tp, view.evaluate(lambda log: log.reader.offset_for_timestamp(asked.number)))
    except LogStoreError as error:
        return Answer(tp, None, error)


def _item(asked: Asked, answer: Answer) -> str:
    listed = answer.listed
    item = {
        "topic": answer.topic_partition.topic,
        "partition": answer.topic_partition.partition,
        "time": asked.time,
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
