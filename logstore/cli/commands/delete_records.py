"""`logstore delete-records`: delete records before an offset (KIP-107)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial as bound
from typing import IO, TYPE_CHECKING, NamedTuple

import click

from logstore.cli.options import (
    Settings,
    accept_data_loss_option,
    checked_partition,
    command,
    now_of,
    partition_option,
)
from logstore.cli.show.output import (
    emit,
    emit_failure,
    emit_json,
    emit_lines,
    emit_values,
    plural,
)
from logstore.cli.show.tables import Cell, Styled, Table, can_print
from logstore.cli.times import TIME_HELP, parse_time
from logstore.reasons.formats import format_size

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.clients.results import DeleteRecordsResult
    from logstore.types import TopicPartition


class DeletionEnd(NamedTuple):
    """The exclusive end of the deletion: an offset (-1: high watermark) or a Unix time in ms."""

    offset: int = -1
    time_ms: int | None = None


class State(NamedTuple):
    """The bounds of a partition's log.

    Attributes
    ----------
    log_start_offset : int
        First offset that is visible to consumers.
    first_base_offset, first_end_offset : int
        Bounds of the first segment, inclusive and exclusive.
    """

    log_start_offset: int
    segments: int
    size_bytes: int
    first_base_offset: int
    first_end_offset: int


class Outcome(NamedTuple):
    """The result for a partition, and its states, or None if it cannot be opened."""

    topic_partition: TopicPartition
    result: DeleteRecordsResult
    before: State | None
    after: State | None


def to_before(ctx: click.Context, param: click.Parameter, value: str | None) -> DeletionEnd | None:
    """Parse `--before-offset`."""
    if value is None:
        return None
    try:
        if value.startswith("@"):
            return DeletionEnd(time_ms=parse_time(value[1:], bound(now_of, ctx)))
        return DeletionEnd(int(value))
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is not an offset, -1 or @TIME ({TIME_HELP})", ctx, param
        ) from error


@command(
    "delete-records",
    examples=[
        "logstore delete-records users --partition 0 --before-offset 1000",
        "logstore delete-records users --partition 0 --before-offset @2024-01-31",
        "logstore delete-records --offset-json-file offsets.json",
        """echo '{"partitions": [{"topic": "users", "partition": 0, "offset": -1}]}' | """
        "logstore delete-records --offset-json-file -",
    ],
)
@click.argument("topic", required=False)
@partition_option("Partition number; required if the topic has several.")
@click.option(
    "--before-offset",
    "before",
    callback=to_before,
    metavar="WHERE",
    help="Delete records below this offset; -1 means the high watermark, which deletes all; @TIME "
    "means the first record at or after a time (the high watermark if there is none).",
)
@click.option(
    "--offset-json-file",
    "--delete-offset-json-file",
    "file",
    type=click.File("rb"),
    metavar="FILE",
    help="Read partitions and offsets from a JSON file as for kafka-delete-records; - is standard "
    "input.",
)
@accept_data_loss_option
def delete_records(
    settings: Settings,
    topic: str | None,
    partition: int | None,
    before: DeletionEnd | None,
    file: IO[bytes] | None,
) -> int:
    """Delete records before an offset, in one partition or in the partitions listed in a file.

    \b
    The file:  {"partitions": [{"topic": "users", "partition": 0, "offset": 1000}],
                "version": 1}

    The log start offset is advanced durably, and segments entirely below it are deleted
    immediately. Records below it in the first remaining segment are invisible to consumers, but
    remain on disk until that segment is deleted. The cleanup.policy of the topic must include
    delete.

    An error in one partition (exit code 1) does not affect the others. A file that is malformed or
    lists a partition twice is rejected as a whole.
    """  # noqa: D301  # click's marker is the backspace itself
    if file is not None and (topic is not None or partition is not None or before is not None):
        raise click.UsageError("--offset-json-file excludes TOPIC, --partition and --before-offset")
    offsets = None if file is None else _read_request(file)
    if offsets is None and (topic is None or before is None):
        raise click.UsageError("give TOPIC and --before-offset, or --offset-json-file")
    with settings.open_broker() as broker:
        if offsets is None:
            assert topic is not None
            assert before is not None
            offsets = _offset_of(broker, topic, partition, before)
        outcomes = _delete(broker, offsets)
        _print(settings, outcomes)
    return 1 if any(outcome.result.error is not None for outcome in outcomes) else 0


def _read_request(file: IO[bytes]) -> Mapping[TopicPartition, int]:
    from logstore.cli.commands.delete_request import DeleteRequestError, parse_request

    try:
        return parse_request(file.read())
    except DeleteRequestError as error:
        name = getattr(file, "name", "<stdin>")
        raise click.UsageError(f"{name}: {error}; nothing was deleted") from error


def _offset_of(
    broker: Broker, topic: str, partition: int | None, before: DeletionEnd
) -> Mapping[TopicPartition, int]:
    """Return the selected partition and its offset."""
    from logstore.types import TopicPartition

    numbers = checked_partition(broker, topic, partition)
    if len(numbers) > 1:
        raise click.UsageError(
            f"topic '{topic}' has the partitions {', '.join(map(str, numbers))}: "
            "choose one with --partition"
        )
    offset = before.offset
    if before.time_ms is not None:
        offset = broker.log(topic, numbers[0]).reader.first_offset_at(before.time_ms)
    return {TopicPartition(topic, numbers[0]): offset}


def _delete(broker: Broker, offsets: Mapping[TopicPartition, int]) -> list[Outcome]:
    before = {tp: _state(broker, tp) for tp in offsets}
    results = broker.delete_records(offsets)
    return [
        Outcome(tp, result, before[tp], None if before[tp] is None else _state(broker, tp))
        for tp, result in results.items()
    ]


def _state(broker: Broker, tp: TopicPartition) -> State | None:
    from logstore.errors import LogStoreError

    try:
        log = broker.log(tp.topic, tp.partition)
    except LogStoreError:
        return None  # the request reports the reason
    first, following = log.segments.first, log.segments.higher(log.segments.first.base_offset)
    return State(
        log.log_start_offset,
        len(log.segments),
        log.size_bytes,
        first.base_offset,
        log.log_end_offset if following is None else following.base_offset,
    )


# -- output --------------------------------------------------------------------------------


def _print(settings: Settings, outcomes: Sequence[Outcome]) -> None:
    if settings.output == "json":
        emit_json({"partitions": [each.result.to_json(each.topic_partition) for each in outcomes]})
    elif settings.as_items:
        emit_values(
            (each.result.to_json(each.topic_partition) for each in outcomes), output=settings.output
        )
    else:
        _show(outcomes)
    for each in outcomes:
        if each.result.error is not None:
            emit_failure(each.topic_partition, each.result.message or "", each.result.error)


def _show(outcomes: Iterable[Outcome]) -> None:
    rows = [_row(outcome) for outcome in outcomes]
    if not rows:
        emit("the request lists no partitions")
        return
    table = Table(
        ("partition", "low watermark", "freed", "result"),
        right=("low watermark", "freed"),
        wrap=True,
    )
    emit_lines(table.lines(rows))


def _row(outcome: Outcome) -> Sequence[Cell]:
    name = str(outcome.topic_partition)
    before, after = outcome.before, outcome.after
    if outcome.result.error is not None or before is None or after is None:
        return (name, "-", "-", Styled(outcome.result.error or "", "bold red"))
    if after.log_start_offset == before.log_start_offset:
        return (name, str(after.log_start_offset), "-", f"nothing to delete{_unseen(after)}")
    arrow = "→" if can_print("→") else "->"
    removed = before.segments - after.segments
    summary = f"{plural(removed, 'segment')} deleted" if removed else "no segment is entirely below"
    return (
        name,
        f"{before.log_start_offset} {arrow} {after.log_start_offset}",
        format_size(before.size_bytes - after.size_bytes) if removed else "-",
        f"{summary}{_unseen(after)}",
    )


def _unseen(state: State) -> str:
    """Return the offsets that are invisible to consumers but still on disk, as text."""
    base, end = state.first_base_offset, min(state.log_start_offset, state.first_end_offset)
    if end <= base:
        return ""
    offsets = f"{base} is" if end == base + 1 else f"{base}..{end - 1} are"
    return f"; {offsets} invisible, but on disk until segment {base} is deleted"
