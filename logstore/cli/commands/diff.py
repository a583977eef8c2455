"""`logstore diff`: what became of each record between two copies of a partition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from logstore.analysis.fates import fate_json
from logstore.cli.options import (
    Settings,
    as_recovered_option,
    command,
    config_option,
    topic_overrides,
)
from logstore.cli.show.fates import fate_row, fate_words
from logstore.cli.show.output import emit, emit_json, emit_lines, note, plural
from logstore.cli.show.progress import ProgressBar
from logstore.cli.show.tables import Cell, Table, paint
from logstore.cli.targets import Target, open_target

if TYPE_CHECKING:
    from logstore.analysis.diff import PartitionDiff
    from logstore.analysis.fates import RecordFate
    from logstore.types import TopicPartition

_COLUMNS = ("offset", "fate", "superseded by", "key")
_NUMBERS = ("offset", "superseded by")


@command(
    "diff",
    examples=[
        "logstore diff ./before/users-0 ./after/users-0",
        "logstore diff ./before/users-0 ./after/users-0 --all",
        "logstore diff ./before/users-0 ./after/users-0 --config compaction.strategy=timestamp",
        "logstore diff ./before/users-0 ./after/users-0 --format jsonl",
    ],
)
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option("--all", "show_all", is_flag=True, help="List the retained records, too.")
@click.option("--summary", is_flag=True, help="List no record, only how many there are of each.")
@config_option("A topic configuration to judge by, such as a strategy; repeatable.")
@as_recovered_option
def diff(
    settings: Settings,
    before: str,
    after: str,
    show_all: bool,
    summary: bool,
    configs: tuple[tuple[str, str], ...],
    as_recovered: bool,
) -> int:
    """Tell what became of each record of a partition directory in another copy of it.

    The fates are those of inspect --fate and of a cleaning's report, told from the two copies
    alone, by the rules and without the cleaner. What neither cleaning nor retention nor an append
    explains is lost, changed or foreign, and the exit code is 1. Nothing is changed. Memory: about
    200 bytes a key.

    \b
    Fates:    retained           in both
              superseded         gone; another record of its key wins
              tombstone_expired  gone; it had no value and won its key
              aborted            gone; of an aborted transaction
              control_expired    gone; a marker
              null_key           gone; without a key
              below_log_start    deleted for readers
              added              beyond the end of BEFORE
              lost               gone, though it wins its key
              changed            of another content
              foreign            only in AFTER, below the end of BEFORE
    """  # noqa: D301  # click's marker is the backspace itself
    if show_all and summary:
        raise click.UsageError("--all and --summary exclude each other")
    overrides = topic_overrides(configs)
    with (
        open_target(settings, before, as_recovered=as_recovered) as first,
        open_target(settings, after, as_recovered=as_recovered) as second,
        ProgressBar() as bar,
    ):
        first.override(overrides)
        tp = _only(first, before)
        _only(second, after)
        from logstore.analysis.diff import PartitionDiff

        (left,), (right,) = first.views(), second.views()
        found = PartitionDiff(left, right, progress=bar.update if bar.visible else None)
        for text in found.assumed:
            note(f"assumed: {text}")
        if settings.as_table:
            _show(tp, found, show_all=show_all, summary=summary)
        elif settings.output == "jsonl":
            emit_lines(fate_json(tp, each) for each in found)
        else:
            _emit_document(tp, found, summary=summary)
        is_damaged = bool(left.damages or right.damages)
        for damage in (*left.damages, *right.damages):
            note(f"damaged: {damage}")
    return int(is_damaged or not found.is_explained)


def _only(target: Target, name: str) -> TopicPartition:
    """Return the one partition that a target is."""
    target.opened()
    if len(target.partitions) != 1:
        raise click.UsageError(
            f"{name} holds {plural(len(target.partitions), 'partition')}, and one is compared:"
            " give its directory"
        )
    return target.partitions[0]


def _emit_document(tp: TopicPartition, found: PartitionDiff, *, summary: bool) -> None:
    """Write `{"fates": [...], "counts": {...}, …}`, the fates as they come."""
    if summary:
        for _ in found:
            pass
        emit_json(_sums(tp, found))
        return

    def lines() -> Iterator[str]:
        before = '{"fates": ['
        for each in found:
            yield before + fate_json(tp, each)
            before = ", "
        yield f"{before if before != ', ' else ''}], {json.dumps(_sums(tp, found))[1:]}"

    emit_lines(lines())


def _sums(tp: TopicPartition, found: PartitionDiff) -> dict[str, object]:
    from logstore.analysis.diff import DIFFERENCES

    return {
        **tp._asdict(),
        "counts": {fate: found.counts[fate] for fate in DIFFERENCES},
        "explained": found.is_explained,
        "assumed": list(found.assumed),
    }


def _show(tp: TopicPartition, found: PartitionDiff, *, show_all: bool, summary: bool) -> None:
    from logstore.analysis.diff import DIFFERENCES, UNEXPLAINED

    emit(paint(str(tp), "bold"))
    emit("")

    def listed() -> Iterator[RecordFate]:
        for each in found:
            if (show_all or each.fate != "retained") and not summary:
                yield each

    def rows() -> Iterator[tuple[Cell, ...]]:
        for each in listed():
            yield fate_row(tp.topic, each)

    lines = Table(_COLUMNS, right=_NUMBERS).lines(rows())
    if summary:
        for _ in found:
            pass
    else:
        emit_lines(lines)
        emit("")
    shown = ", ".join(
        paint(
            f"{found.counts[fate]:,} {fate_words(fate)}",
            "bold red" if fate in UNEXPLAINED else "",
        )
        for fate in DIFFERENCES
        if found.counts[fate]
    )
    emit(f"{plural(found.counts.total(), 'record')}: {shown or 'none'}")
