"""`logstore diff`: explain the fate of each record between two copies of a partition."""

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
@click.option("--all", "show_all", is_flag=True, help="Also list retained records.")
@click.option("--summary", is_flag=True, help="Show only the number of records of each fate.")
@config_option("Topic configuration to assume, such as compaction.strategy. Can be repeated.")
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
    """Explain the fate of each record of partition directory BEFORE in AFTER, a later copy.

    The fates are the same as in inspect --fate, but are computed from the two copies by the rules
    of compaction, without the cleaner. Records are lost, changed or foreign if no cleaning pass,
    retention or append explains the difference, and the exit code is then 1. Nothing is changed.
    Uses about 200 bytes of memory per key.

    \b
    Fates:    retained           in both copies
              superseded         removed; a later record of its key survives
              tombstone_expired  removed; the surviving tombstone of its key
              aborted            removed; part of an aborted transaction
              control_expired    removed; a transaction marker
              null_key           removed; it has no key
              below_log_start    below the log start offset
              added              beyond the end of BEFORE
              lost               removed, but should survive
              changed            different content
              foreign            only in AFTER, below the end of BEFORE
    """  # noqa: D301  # click's marker is the backspace itself
    if show_all and summary:
        raise click.UsageError("--all and --summary are mutually exclusive")
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
    """Return the single partition of a target."""
    target.opened()
    if len(target.partitions) != 1:
        raise click.UsageError(
            f"{name} holds {plural(len(target.partitions), 'partition')}: specify the directory of"
            " a single partition"
        )
    return target.partitions[0]


def _emit_document(tp: TopicPartition, found: PartitionDiff, *, summary: bool) -> None:
    """Stream `{"fates": [...], "counts": {...}, …}`."""
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
