"""`logstore salvage`: save all valid data to a new data directory."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import click

from logstore.cli.commands.clean import is_within
from logstore.cli.options import Settings, command, partition_option
from logstore.cli.show.output import emit, emit_json, emit_lines, emit_values, plural
from logstore.cli.show.progress import ProgressBar
from logstore.cli.show.tables import Table
from logstore.cli.targets import open_target
from logstore.reasons.formats import format_size

if TYPE_CHECKING:
    from logstore.analysis.salvage import SalvageReport
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
    help="New or empty directory for the result. Created only after everything has been saved.",
)
@partition_option("Partition of the topic. [default: all]")
def salvage(settings: Settings, target: str | None, out: str, partition: int | None) -> int:
    """Save every valid batch of DIR_OR_TOPIC to a new data directory, and list the losses.

    Directory names, segment base offsets and record offsets are retained. Damaged header fields
    without a checksum (length, magic, base offset, leader epoch) are restored from adjacent
    batches. Indexes, snapshots, leader epochs and checkpoints are rebuilt. Topics and
    `meta.properties` are copied. The original is not changed.

    The result is a cleanly closed data directory. It passes `check`, and its partition directories
    can replace the ones of a stopped broker. The exit code is 0 even if data was lost; see the
    output.
    """
    from logstore.analysis.broker_state import data_dirs
    from logstore.analysis.salvage import salvage as save
    from logstore.runtime import DiskFileSystem

    path = os.path.abspath(out)  # noqa: PTH100  # the engine's paths are strings
    with open_target(settings, target, partition) as found:
        broker = found.opened()
        for data_dir in data_dirs(broker):
            if is_within(path, data_dir):
                raise click.UsageError(f"--out {out} is inside the data directory {data_dir}")
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
        emit(f"{plural(report.mended, 'batch', 'batches')} repaired from adjacent batches")
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
    emit(f"\n{plural(len(report.lost), 'range')} could not be saved")
