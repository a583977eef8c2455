"""`logstore demo`: run KIP-354's use case on generated data and verify the result."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import click

from logstore.cli.options import Settings, command
from logstore.cli.show.output import emit_json

MARKER = "logstore-demo.json"
MADE_BY = "logstore demo"


@command(
    "demo",
    examples=["logstore demo", "logstore demo --records 100000 --seed 7 --out other-demo"],
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="logstore-demo",
    show_default=True,
    metavar="DIR",
    help="Directory for the data directories; an earlier demo is replaced.",
)
@click.option(
    "--records",
    type=click.IntRange(10_000, 10_000_000),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="Number of account updates to write.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=354,
    show_default=True,
    metavar="N",
    help="Seed of the generated data; the same seed and day (or --now) give the same bytes.",
)
def demo(settings: Settings, out: Path, records: int, seed: int) -> int:
    """Compact a small topic and verify the result record by record.

    Writes, inspects and cleans a topic of user accounts over several days of virtual time.
    Accounts are closed, and max.compaction.lag.ms (KIP-354) bounds the time until their data is
    deleted. Then cleans a directory written by Apache Kafka and compares the result with the
    output of Kafka's cleaner. The exit code is 1 if anything differs.

    The virtual time ends at midnight UTC today, or at --now. --data-dir and --config-file have no
    effect.
    """
    from logstore.cli.demo.accounts import DAYS
    from logstore.cli.demo.presenter import DIRECTORIES, Presenter
    from logstore.types import DAY_MS

    end_ms = settings.clock().now_ms()
    if settings.now_ms is None:
        end_ms -= end_ms % DAY_MS
    start_ms = end_ms - DAYS * DAY_MS
    if start_ms < 0:
        raise click.UsageError(f"--now must be at least {DAYS} days after 1970-01-01")
    _prepare_output(out, DIRECTORIES)
    presenter = Presenter(out, records, seed, start_ms, quiet=not settings.as_table)
    summary = presenter.present()
    _mark(out, summary)
    if not settings.as_table:
        emit_json(summary, settings.output)
    if summary["ok"]:
        return 0
    print(f"error: {'; '.join(presenter.problems)}", file=sys.stderr)
    return 1


def _prepare_output(out: Path, names: tuple[str, ...]) -> None:
    """Create the output directory, or clear the directory of an earlier demo.

    Raises
    ------
    click.UsageError
        The directory was not created by an earlier demo and is not empty.
    """
    if out.exists():
        if not out.is_dir():
            raise click.UsageError(f"{out} is not a directory")
        if any(out.iterdir()) and not _is_ours(out):
            raise click.UsageError(
                f"{out} is not empty and not from an earlier demo: choose another --out"
            )
    out.mkdir(parents=True, exist_ok=True)
    # Mark it first, so that the next run can replace the files of an interrupted run.
    _mark(out, {"ok": None})
    for name in names:
        if (out / name).exists():
            shutil.rmtree(out / name)


def _is_ours(out: Path) -> bool:
    try:
        found = json.loads((out / MARKER).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("made_by") == MADE_BY


def _mark(out: Path, summary: dict[str, object]) -> None:
    text = json.dumps({"made_by": MADE_BY, **summary}, indent=2)
    (out / MARKER).write_text(f"{text}\n", "utf-8")
