"""`logstore clean`: compact partitions by key."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.options import (
    Settings,
    accept_data_loss_option,
    choose,
    command,
    config_option,
    partition_option,
    topic_overrides,
)
from logstore.cli.show.damage import assumed_of, note_assumed_policy
from logstore.cli.show.output import (
    emit,
    emit_json,
    emit_lines,
    emit_values,
    format_count,
    plural,
)
from logstore.cli.show.progress import ProgressBar, watched
from logstore.cli.show.prose import words
from logstore.cli.show.tables import Table, can_print, paint
from logstore.cli.targets import open_target, refuse_path
from logstore.names import META_PROPERTIES
from logstore.reasons.formats import format_size
from logstore.storage.checkpoint.offsets import CHECKPOINTS

if TYPE_CHECKING:
    from logstore.analysis.copies import CopyProgress
    from logstore.cleaner.passes.clean import PassProgress
    from logstore.cleaner.stats import CleanReport
    from logstore.manager.directories.directory import LogDirectory
    from logstore.types import TopicPartition

PHASES = {"map": "mapping", "seed": "comparing", "rewrite": "rewriting"}

UNCLEANABLE = "uncleanable"


@command(
    "clean",
    examples=[
        "logstore clean",
        "logstore clean users --force --roll",
        "logstore clean --dry-run",
        "logstore clean ./kafka-logs/users-0 --config cleanup.policy=compact --dry-run",
        "logstore clean users --partition 0 --force --format json",
        "logstore clean users --config min.cleanable.dirty.ratio=0.1",
        "logstore clean users --force --roll --out ./users-cleaned",
    ],
)
@click.argument("target", required=False, metavar="[TOPIC_OR_PATH]")
@partition_option("Partition of the topic. [default: all]")
@click.option(
    "--force",
    is_flag=True,
    help="Also clean partitions that are not due: ignore dirty ratio and compaction lags, and "
    "rewrite the clean section once if nothing is dirty.",
)
@click.option(
    "--roll", is_flag=True, help="Roll the active segments first, so that they are cleaned too."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show the result of the first pass and the number of further passes, without changing "
    "anything.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Clean N partitions in parallel. The threads share log.cleaner.dedupe.buffer.size. "
    "[default: 1, with its share of the buffer among log.cleaner.threads]",
)
@click.option(
    "--out",
    metavar="DIR",
    help="Copy the partitions to DIR, a new or empty directory, and clean the copy, without "
    "changing the original.",
)
@config_option("Topic configuration for this run. Can be repeated.")
@accept_data_loss_option
def clean(
    settings: Settings,
    target: str | None,
    partition: int | None,
    force: bool,
    roll: bool,
    dry_run: bool,
    threads: int | None,
    out: str | None,
    configs: tuple[tuple[str, str], ...],
) -> int:
    """Compact a topic, or all topics: keep the latest record of each key.

    With --dry-run or --out, TOPIC_OR_PATH may be the path of a partition directory or a data
    directory, which is not changed.

    Without --force, cleans partitions that are due, most urgent first, until none is due. A
    cleaning pass does not include the active segment, or records at or after the last stable
    offset. Partitions that were not cleaned are listed with the reason.

    With --out, the copy is a separate data directory with the partitions, checkpoints and configs.
    If the original was not closed cleanly, only the copy is recovered. An interrupted run removes
    its copy. If a run is killed, the next run with the same --out removes the copy.
    """
    if partition is not None and target is None:
        raise click.UsageError("--partition needs a topic")
    if dry_run and out is not None:
        raise click.UsageError("--dry-run and --out are mutually exclusive")
    overrides = topic_overrides(configs)
    topic = target
    with ExitStack() as copying:
        if dry_run:
            found = copying.enter_context(open_target(settings, target, partition, dry_run=True))
            broker = found.opened()
            found.override(overrides)
            topic, partition = found.chosen
        else:
            directories = None
            if out is not None:
                copy, topic, partition = _copy(settings, target, partition, overrides, out, copying)
                directories = [copy]
            else:
                refuse_path(target, "--dry-run or --out")
            broker = copying.enter_context(settings.open_broker(directories=directories))
            choose(broker, topic, partition, overrides)
        chosen = broker.partitions(topic, partition)
        if settings.as_table and dry_run and len(chosen) > 1:
            emit(f"{plural(len(chosen), 'partition')}; a dry run changes nothing\n")
            sys.stdout.flush()  # the next line is printed after all partitions are examined
        for tp in watched(chosen, "opening"):
            broker.log(*tp)  # opening thousands of logs takes a long time
        with ProgressBar() as bar:
            report = broker.clean(
                topic,
                partition,
                force=force,
                roll=roll,
                dry_run=dry_run,
                threads=threads,
                progress=CleaningBars(bar) if bar.visible else None,
            )
        assumed = assumed_of(broker, chosen, cleaning=True)
        if settings.as_table:
            note_assumed_policy(broker, chosen)
    _print(settings, report, assumed)
    if settings.as_table and out is not None:
        kind = "cleaned" if report.cleaned else "uncleaned"
        emit(f"\nthe {kind} copy is in {out}. The original was not changed.")
    reasons = {obstacle.reason for obstacle in report.not_cleaned}
    return 1 if UNCLEANABLE in reasons else 0


def _copy(
    settings: Settings,
    target: str | None,
    partition: int | None,
    overrides: Mapping[str, str],
    out: str,
    copying: ExitStack,
) -> tuple[str, str | None, int | None]:
    """Check the arguments and copy the partitions to clean.

    Returns
    -------
    str, str or None, int or None
        The new data directory, which is marked as unfinished until `copying` ends, and the topic
        and partition of the target.
    """
    from logstore.analysis.copies import copy_into, unfinished
    from logstore.cli.show.messages import Recovery, show_messages
    from logstore.runtime import DiskFileSystem

    show_messages(Recovery.MENDED)  # the copy is recovered, not the original
    copy = os.path.abspath(out)  # noqa: PTH100  # the engine's paths are strings
    with open_target(settings, target, partition) as found:
        source = found.opened()
        for directory in source.manager.directories:
            if is_within(copy, directory.path) and not (
                found.is_folder and _is_next_to_folder(copy, directory, found.partitions[0])
            ):
                raise click.UsageError(f"--out {out} is inside the data directory {directory.path}")
        found.override(overrides)
        fs = DiskFileSystem(source.clock)
        copying.enter_context(unfinished(fs, copy))
        with ProgressBar() as bar:
            copy_into(
                source.manager,
                found.partitions,
                fs,
                copy,
                progress=partial(_show_copy, bar) if bar.visible else None,
            )
        return copy, *found.chosen


def _is_next_to_folder(path: str, directory: LogDirectory, tp: TopicPartition) -> bool:
    """Return whether a path is a sibling of a partition directory, outside any data directory."""
    fs = directory.runtime.fs
    is_of_broker = any(
        fs.exists(f"{directory.path}/{name}") for name in (META_PROPERTIES, *CHECKPOINTS)
    )
    return not is_of_broker and not is_within(path, directory.partition_path(tp))


def is_within(path: str, directory: str) -> bool:
    """Return whether a path is a directory or inside it, after resolving links."""
    resolved = os.path.realpath(path)
    above = os.path.realpath(directory)
    return os.path.commonpath([resolved, above]) == above


def _show_copy(bar: ProgressBar, step: CopyProgress) -> None:
    bar.update("copying", step.bytes_done, step.bytes_total, str(step.topic_partition))


class CleaningBars:
    """Shows the cleaner's progress as a bar per phase and partition."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar
        self._phases: dict[TopicPartition, str] = {}
        self._passes: Counter[TopicPartition] = Counter()

    def __call__(self, topic_partition: TopicPartition, step: PassProgress) -> None:
        """Show a step of a pass."""
        before = self._phases.get(topic_partition)
        if step.phase != before:
            if before is not None:
                self._bar.finish(f"{PHASES[before]} {topic_partition}")
            if step.phase == "map":
                self._passes[topic_partition] += 1
            self._phases[topic_partition] = step.phase
        number = self._passes[topic_partition]
        self._bar.update(
            f"{PHASES[step.phase]} {topic_partition}",
            step.bytes_done,
            step.bytes_total,
            f"pass {number}" if number > 1 else "",
        )


# -- output --------------------------------------------------------------------------------


def _print(settings: Settings, report: CleanReport, assumed: list[str]) -> None:
    if settings.output == "json":
        emit_json(report.to_json() | {"assumed": assumed})
    elif settings.as_items:
        document = report.to_json()
        emit_values(document["cleaned"] + document["not_cleaned"], output=settings.output)
    else:
        _show(report)


def _show(report: CleanReport) -> None:
    passes = report.to_json()["cleaned"]
    if passes:
        has_passes = any(item["pass"] > 1 for item in passes)
        numbers = ["pass"] if has_passes else []
        numbers += ["offsets", "segments", "size", "records"]
        table = Table(("partition", *numbers, "fates"), right=numbers, wrap=True)
        emit_lines(table.lines(_pass_row(item, has_passes=has_passes) for item in passes))
        emit(_total(passes) + (" (nothing was changed)" if report.dry_run else ""))
        emit_lines(_versions_missing(passes))
        for tp, count in report.passes_needed.items():
            if report.dry_run and count > 1:
                emit(
                    f"{tp} needs {count} passes: its keys do not fit in the map; showing the first"
                )
    else:
        emit("nothing would be cleaned" if report.dry_run else "nothing was cleaned")
    if report.not_cleaned:
        emit("")
        table = Table(("not cleaned", "reason", "detail"), wrap=True)
        emit_lines(
            table.lines(
                (
                    f"{obstacle.topic}-{obstacle.partition}",
                    words("refusal", obstacle.reason),
                    obstacle.text,
                )
                for obstacle in report.not_cleaned
            )
        )


def _pass_row(item: dict[str, Any], *, has_passes: bool) -> tuple[str, ...]:
    arrow = "→" if can_print("→") else "->"
    fates = {name: count for name, count in item["fates"].items() if count and name != "retained"}
    dropped = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in fates.items())
    return (
        f"{item['topic']}-{item['partition']}",
        *([str(item["pass"])] if has_passes else []),
        f"{item['first_dirty_offset']}..{item['end_offset']}",
        f"{item['segments_before']} {arrow} {item['segments_after']}",
        f"{format_size(item['bytes_read'])} {arrow} {format_size(item['bytes_written'])}",
        f"{format_count(item['messages_read'])} {arrow} {format_count(item['messages_written'])}",
        f"{dropped or 'all retained'}; map {item['map_utilization']:.1%} full, "
        f"{item['index_ms'] + item['clean_ms']:,} ms",
    )


def _versions_missing(passes: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the number of records without a version header if the strategy is `header`."""
    for item in passes:
        if item["unversioned_records"]:
            malformed = item["malformed_versions"]
            yield (
                f"{item['topic']}-{item['partition']}: "
                f"{plural(item['unversioned_records'], 'record')} without a version"
                + (f", {malformed:,} of them with a malformed header" if malformed else "")
            )


def _total(passes: list[dict[str, Any]]) -> str:
    before = sum(item["bytes_read"] for item in passes)
    after = sum(item["bytes_written"] for item in passes)
    share = f"{1 - after / before:.1%}" if before else "0%"
    freed = paint(f"{format_size(before - after)} freed", "bold green")
    return f"\n{plural(len(passes), 'pass', 'passes')}: {freed} ({share} of the bytes read)"
