"""`logstore erasure`: find all bytes of a key, and when they are deleted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from logstore.cli.options import (
    Settings,
    command,
    config_option,
    key_of,
    key_options,
    partition_option,
    topic_overrides,
)
from logstore.cli.show.output import (
    display_bytes,
    emit_json,
    emit_lines,
    plural,
)
from logstore.cli.show.progress import ProgressBar
from logstore.cli.show.prose import bullet_list, wrapped
from logstore.cli.show.tables import Cell, Styled, Table, paint
from logstore.cli.targets import open_target
from logstore.reasons.formats import format_size, format_span, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logstore.analysis.erasure import ErasurePlace, ErasureReport

_COLOURS = {"live": "bold red", "tombstone": "yellow", "unreadable": "bold red"}


@command(
    "erasure",
    examples=[
        "logstore erasure users --key ann",
        "logstore erasure users --key ann --now 2024-12-31 --format json",
        "logstore erasure ./kafka-logs/users-0 --key ann --config cleanup.policy=compact",
    ],
)
@click.argument("target", metavar="TOPIC_OR_PATH")
@key_options
@partition_option("Search only this partition. [default: all of the topic]")
@config_option("Topic configuration to assume. Can be repeated.")
def erasure(
    settings: Settings,
    target: str,
    key: str | None,
    key_base64: str | None,
    partition: int | None,
    configs: tuple[tuple[str, str], ...],
) -> int:
    """Find all records with a key, and when and by which rule they are deleted.

    Searches all files of the partitions: the log including records below the log start offset,
    files awaiting deletion (.deleted), files of an unfinished cleaning pass (.cleaned, .swap), torn
    batches at the end, and compressed batches. The exit code is 0 if the key is not found, and 1 if
    it is found.

    The earliest time is when a record can first be deleted, regardless of appends for other keys.
    By the latest time, a broker with this config that runs from now on has deleted it, even if
    nothing is appended. A record that is never deleted automatically has no latest time. An open
    transaction ends after its timeout if the directory has its state (__transaction_state),
    otherwise never. Both times are computed by simulating cleaning passes and retention in memory,
    which takes as much memory as the records that a cleaning pass retains in a partition with the
    key. Nothing is changed.
    """
    wanted = key_of(key, key_base64)
    if wanted is None:
        raise click.UsageError("give --key or --key-base64")
    overrides = topic_overrides(configs)
    with open_target(settings, target, partition) as found, ProgressBar() as bar:
        broker = found.opened()
        found.override(overrides)
        topics = {tp.topic for tp in found.partitions}
        if len(topics) != 1:
            raise click.UsageError(f"{target} has {plural(len(topics), 'topic')}: name one")
        from logstore.analysis.erasure import erasure as find

        number = found.partitions[0].partition if found.is_one else None
        progress = bar.update if bar.visible else None
        report = find(broker, topics.pop(), wanted, number, progress=progress)
    if settings.as_table:
        emit_lines(_lines(report))
    elif settings.output == "jsonl":
        emit_lines(json.dumps(place.to_json()) for place in report.places)
    else:
        emit_json(report.to_json())
    return int(not report.gone)


def _lines(report: ErasureReport) -> Iterator[str]:
    name = display_bytes(report.key)
    scanned = f"{plural(report.files, 'file')}, {format_size(report.bytes)}"
    if report.gone:
        verdict = paint("gone", "bold green")
        yield f"{name} {verdict}: no bytes in {scanned} of {report.topic}"
        yield from bullet_list("assumed", report.assumed, "dim")
        return
    verdict = paint("found", "bold yellow")
    count = plural(len(report.places), "location")
    yield f"{name} {verdict}: {count} in {scanned} of {report.topic}"
    yield from _outlook(report)
    yield ""
    rows = [_row(place) for place in report.places]
    table = Table(("state", "offset", "earliest", "latest", "where"), right=("offset",), wrap=True)
    yield from table.lines(rows)
    rules = dict.fromkeys(f"{_words(each.state)}: {each.rule}" for each in report.places)
    yield from bullet_list("rules", list(rules), "bold")
    yield from bullet_list("assumed", report.assumed, "dim")


def _outlook(report: ErasureReport) -> Iterator[str]:
    """Yield the earliest and latest time when all locations are deleted."""
    earliest = [place.earliest_ms for place in report.places]
    latest = [place.latest_ms for place in report.places]
    if None in earliest:
        yield from wrapped(
            "some of it cannot be deleted until another event happens: see the rules", "  "
        )
    else:
        moment = max(each for each in earliest if each is not None)
        yield f"  earliest deletion of all: {format_time(moment)}{_in(moment, report.now_ms)}"
    if None in latest:
        yield from wrapped("not all of it is deleted automatically", "  ")
    else:
        moment = max(each for each in latest if each is not None)
        yield f"  latest deletion of all: {format_time(moment)}{_in(moment, report.now_ms)}"


def _in(moment: int, now_ms: int) -> str:
    return f", in {format_span(moment - now_ms)}" if moment > now_ms else ""


def _row(place: ErasurePlace) -> tuple[Cell, ...]:
    return (
        Styled(_words(place.state), _COLOURS.get(place.state, "")),
        "" if place.offset is None else str(place.offset),
        "never" if place.earliest_ms is None else format_time(place.earliest_ms),
        "not by itself" if place.latest_ms is None else format_time(place.latest_ms),
        f"{place.path}:{place.position}",
    )


def _words(state: str) -> str:
    return state.replace("_", " ")
