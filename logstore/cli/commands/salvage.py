"""`logstore salvage`: a new data directory with all that is valid."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import click

from logstore.cli.commands.clean import is_within
from logstore.cli.options import Settings, command, partition_option
from logstore.cli.show.output import emit, emit_json, emit_lines, emit_values, format_size, plural
from logstore.cli.show.progress import ProgressBar
from logstore.cli.show.tables import Table
from logstore.cli.targets import open_target

if TYPE_CHECKING:
    from logstore.analysis.salvage import Lost, SalvageReport
    from logstore.types import TopicPartition


@command(
    "salvage",
    examples=[
        "logstore salvage ./kafka-logs --out ./saved",
        "logstore salvage ./kafka-logs/users-0 --out ./saved",
        "logstore salvage users --partition 0 --out ./saved --format json",
    ],
)
@click.argument("target", required=False, metavar="[DIR_OR_TOPIC]")
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    help="The new data directory; missing or empty. It is not there, or as it was, until all is"
    " saved.",
)
@partition_option("Which one of the topic's. Default: all.")
def salvage(settings: Settings, target: str | None, out: str, partition: int | None) -> int:
    """Save every valid batch of DIR_OR_TOPIC in a new data directory, and say what is lost.

    Partitions keep the names of their folders, segments their bases, and records their offsets.
    What no checksum covers and the batches around tell (a length, a magic, a base offset, a leader
    epoch) is put right. Indexes, snapshots, leader epochs and checkpoints are made anew, topics and
    `meta.properties` taken along. The original is not touched.

    \b
    The result is closed in good order: check accepts it, and a broker that is stopped takes the
    folders in the place of its own. The program exits with 0 if something was lost, too: the list
    says so.
    """  # noqa: D301  # click's marker is the backspace itself
    from logstore.analysis.broker_state import data_dirs
    from logstore.analysis.salvage import salvage as save
    from logstore.runtime import DiskFileSystem

    path = os.path.abspath(out)  # noqa: PTH100  # strings are the paths of the engine
    with open_target(settings, target, partition) as found:
        broker = found.opened()
        for data_dir in data_dirs(broker):
            if is_within(path, data_dir):
                raise click.UsageError(f"--out {out} lies in the data directory {data_dir} itself")
        with ProgressBar("partitions") as bar:
            report = save(
                broker,
                found.partitions,
                DiskFileSystem(broker.clock),
                path,
                progress=partial(_show, bar) if bar.visible else None,
            )
    _print(settings, report, out)
    return 0


def _show(bar: ProgressBar, topic_partition: TopicPartition, done: int, total: int) -> None:
    bar.update("saving", done, total, str(topic_partition))


def _print(settings: Settings, report: SalvageReport, out: str) -> None:
    if settings.output == "json":
        emit_json(report.to_json())
        return
    if not settings.as_table:
        emit_values([lost._asdict() for lost in report.lost], output=settings.output)
        return
    saved = f"{plural(report.records, 'record')} in {plural(report.batches, 'batch', 'batches')}"
    emit(f"{out}: {saved} of {plural(len(report.partitions), 'partition')} saved")
    if report.mended:
        emit(f"{plural(report.mended, 'batch', 'batches')} put right, as the bytes around tell")
    if not report.lost:
        emit("nothing was lost")
        return
    emit("")
    table = Table(("file", "position", "size", "reason"), right=("position", "size"), wrap=True)
    emit_lines(
        table.lines(
            (
                "/".join(lost.path.rsplit("/", 2)[-2:]),
                str(lost.position),
                format_size(lost.size_bytes),
                lost.reason,
            )
            for lost in report.lost
        )
    )
    emit(f"\n{plural(len(report.lost), 'stretch', 'stretches')} could not be saved")


def _row(lost: Lost) -> tuple[str, ...]:
    name = "/".join(lost.path.rsplit("/", 2)[-2:])
    return name, str(lost.position), format_size(lost.size_bytes), lost.reason
