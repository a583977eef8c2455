"""`logstore check`: verify files and their relations."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.cli.options import Settings, command
from logstore.cli.output import display_text, emit, emit_lines, plural
from logstore.cli.progress import ProgressBar
from logstore.cli.tables import paint

if TYPE_CHECKING:
    from logstore.check import CheckCounts, CheckFinding

_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}
_EXIT_FINDINGS = 1


@command(
    "check",
    examples=[
        "logstore check",
        "logstore check ./kafka-logs",
        "logstore check ./kafka-logs/users-0 --format jsonl",
        "logstore check ./kafka-logs/users-0/00000000000000000000.index",
    ],
)
@click.argument("path", required=False)
def check(settings: Settings, path: str | None) -> int:
    """Verify a data directory, a partition's directory or a single file, offline.

    Every byte is read and nothing is changed. Without PATH all data directories are verified.

    \b
    error    data, or finding it, is wrong: the program exits with 1
    warning  sound but unusual, or what the next opening mends
    info     nothing is wrong: a foreign file, a file awaiting deletion

    docs/CHECKS.md lists the checks by name.
    """  # noqa: D301  # click's marker is the backspace itself
    from logstore.check import CheckCounts, Checker
    from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem

    counts = CheckCounts()
    checker = Checker(ReadOnlyFileSystem(DiskFileSystem()), counts)
    paths = [path] if path is not None else list(settings.directories(settings.broker_config()))
    for each in paths:
        if not Path(each).exists():
            raise click.UsageError(f"there is no file or directory {each}")
    if path is None:
        findings = checker.data_dirs(paths)
    else:
        # Made absolute, since what a directory is shows in its name and in the one above it.
        try:
            findings = checker.path(_absolute(path))
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        findings = (each._replace(path=_as_given(each.path, path)) for each in findings)
    with ProgressBar() as bar:
        if bar.visible:
            total = checker.log_bytes(paths)
            counts.progress = lambda name, done: bar.update(
                "checking", done, total, Path(name).parent.name
            )
        return _print(settings, findings, counts)


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100  # resolve() would lose a link's name


def _as_given(found: str, path: str) -> str:
    """Return an absolute path in the user's spelling, where it lies below what was asked for."""
    absolute = _absolute(path)
    if found == absolute or found.startswith(f"{absolute.rstrip('/')}/"):
        return f"{path.rstrip('/') or '/'}{found[len(absolute.rstrip('/')) :]}"
    return found


def _print(settings: Settings, findings: Iterator[CheckFinding], counts: CheckCounts) -> int:
    """Print findings as they come, and in the end what was looked at."""
    severities: Counter[str] = Counter()

    def counted() -> Iterator[CheckFinding]:
        for each in findings:
            severities[each.severity] += 1
            yield each

    if settings.as_table:
        emit_lines(_line(each) for each in counted())
        _summary(severities, counts)
    elif settings.output == "jsonl":
        emit_lines(json.dumps(each._asdict()) for each in counted())
    else:
        separator = '{"findings": ['
        for each in counted():
            sys.stdout.write(f"{separator}{json.dumps(each._asdict())}")
            separator = ", "
        opening = "" if severities else separator
        numbers = {name: getattr(counts, name) for name in ("segments", "batches", "records")}
        emit(f"{opening}], {json.dumps(numbers)[1:]}")
    return _EXIT_FINDINGS if severities["error"] else 0


def _line(found: CheckFinding) -> str:
    """Return a finding as `error crc PATH at position 70 (offset 1): expected 5, found 7`."""
    place = display_text(found.path)
    if found.position is not None:
        place += f" at position {found.position}"
    if found.offset is not None:
        place += f" (offset {found.offset})"
    told = [
        f"{name} {display_text(str(value))}"
        for name, value in (("expected", found.expected), ("found", found.found))
        if value is not None
    ]
    severity = paint(f"{found.severity:7}", _STYLES[found.severity])
    return f"{severity} {found.check}: {place}{': ' if told else ''}{', '.join(told)}"


def _summary(severities: Counter[str], counts: CheckCounts) -> None:
    looked_at = (
        f"{plural(counts.segments, 'segment')}, {plural(counts.batches, 'batch', 'batches')}, "
        f"{plural(counts.records, 'record')}"
    )
    if not severities:
        emit(f"{looked_at}: nothing found")
        return
    told = [
        plural(severities[name], name, names)
        for name, names in (("error", "errors"), ("warning", "warnings"), ("info", "infos"))
        if severities[name]
    ]
    emit(f"{looked_at}: {', '.join(told)}")
