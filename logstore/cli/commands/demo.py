"""`logstore demo`: KIP-354's story at a real size, told, checked and left to explore."""

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
    help="Where the data directories are left; an earlier demo's are replaced.",
)
@click.option(
    "--records",
    type=click.IntRange(10_000, 10_000_000),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="Updates of user accounts to write.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=354,
    show_default=True,
    metavar="N",
    help="The same seed on the same day (or with the same --now) gives the same bytes.",
)
def demo(settings: Settings, out: Path, records: int, seed: int) -> int:
    """Run the main job on a small real story, and check the result record by record.

    A topic of user accounts is written, inspected and cleaned while days pass on a clock of
    the story's own. Accounts are closed, and max.compaction.lag.ms (KIP-354) sees to it that
    their data are gone in time. Then a directory that Apache Kafka wrote is cleaned and
    compared with what Kafka's own cleaner made of it. Exit code 1 if anything disagrees.

    The story ends where today begins (UTC), or at --now. --data-dir and --config-file have no
    part in it.
    """
    from logstore.cli.demo.accounts import DAYS
    from logstore.cli.demo.tell import DIRECTORIES, Teller
    from logstore.types import DAY_MS

    end_ms = settings.clock().now_ms()
    if settings.now_ms is None:
        end_ms -= end_ms % DAY_MS
    start_ms = end_ms - DAYS * DAY_MS
    if start_ms < 0:
        raise click.UsageError(f"--now leaves no room for the {DAYS} days of the story since 1970")
    _take(out, DIRECTORIES)
    teller = Teller(out, records, seed, start_ms, quiet=not settings.as_table)
    summary = teller.tell()
    _mark(out, summary)
    if not settings.as_table:
        emit_json(summary, settings.output)
    if summary["ok"]:
        return 0
    print(f"error: {'; '.join(teller.problems)}", file=sys.stderr)
    return 1


def _take(out: Path, names: tuple[str, ...]) -> None:
    """Make an empty place, or empty the one that an earlier demo left.

    Raises
    ------
    click.UsageError
        It is not ours to empty.
    """
    if out.exists():
        if not out.is_dir():
            raise click.UsageError(f"{out} is no directory")
        if any(out.iterdir()) and not _is_ours(out):
            raise click.UsageError(
                f"{out} is not empty and no earlier demo made it: choose another --out"
            )
    out.mkdir(parents=True, exist_ok=True)
    # Marked first: what an interrupted run leaves is replaced by the next one.
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
