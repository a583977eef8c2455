"""`logstore check`: verify files and their consistency."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.cli.options import Settings, command, note_writers, writers_of
from logstore.cli.show.output import (
    display_text,
    emit,
    emit_json,
    emit_lines,
    emit_values,
    format_count,
    plural,
)
from logstore.cli.show.progress import ProgressBar
from logstore.cli.show.tables import Styled, Table, paint

if TYPE_CHECKING:
    from logstore.inspect.check import CheckCounts, Checker, CheckFinding

_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}
_EXIT_FINDINGS = 1
_FOLDERS_MAX = 5


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
    """Verify the files of a data directory or partition, or a single file, and their consistency.

    Reads every byte and changes nothing. Without PATH, verifies all data directories. Prints the
    number of findings per check, then all findings, most severe first. The exit code is 2 if there
    is nothing to check.

    \b
    error    data is wrong or cannot be found: the exit code is 1
    warning  unusual, possibly a trace of damage
    info     harmless, or repaired on opening

    See docs/CHECKS.md for a list of checks.
    """  # noqa: D301  # click's marker is the backspace itself
    from logstore.config.overrides import ReadLimits
    from logstore.inspect.check import CheckCounts, Checker, confirm_findings
    from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem

    counts = CheckCounts()
    config = settings.broker_config()
    checker = Checker(ReadOnlyFileSystem(DiskFileSystem()), counts, ReadLimits.of(config))
    paths = [path] if path is not None else list(settings.directories(config))
    for each in paths:
        if not Path(each).exists():
            raise click.UsageError(f"{each}: no such file or directory")
    if not any(Path(each).is_file() or checker.has_anything(_absolute(each)) for each in paths):
        raise click.UsageError(_no_partitions_message(paths, checker))
    # The type of a directory depends on its name and its parent's name.
    absolute = None if path is None else _absolute(path)

    def check_again() -> Iterator[CheckFinding]:
        return checker.data_dirs(paths) if absolute is None else checker.path(absolute)

    try:
        check_again()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    around = paths if absolute is None else _directories_around(absolute)
    note_writers(around)
    findings = confirm_findings(
        check_again, counts, lambda: bool(writers_of(around)), settings.clock()
    )
    if path is not None:
        findings = (finding._replace(path=_as_given(finding.path, path)) for finding in findings)
    with ProgressBar() as bar:
        if bar.visible:
            total = checker.log_bytes(paths)
            counts.progress = lambda name, done: bar.update(
                "checking", done, total, Path(name).parent.name
            )
        found = list(findings)
    return _print(settings, found, counts)


def _no_partitions_message(paths: Sequence[str], checker: Checker) -> str:
    """Return the message for directories without partitions, which lists their contents."""
    text = f"nothing to check in {', '.join(paths)}: no partition folders and no log files"
    folders = [name for path in paths for name in checker.folders(_absolute(path))]
    if not folders:
        return text
    names = ", ".join(map(repr, folders[:_FOLDERS_MAX]))
    more = f" and {len(folders) - _FOLDERS_MAX} more" if len(folders) > _FOLDERS_MAX else ""
    return f"{text}. Partition folders are named TOPIC-NUMBER; the folders are {names}{more}"


def _directories_around(path: str) -> list[str]:
    """Return the possible data directories of a path: the path itself and its two parents."""
    above = [path, *map(str, Path(path).parents)]
    return above[:3]


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100  # resolve() would follow links


def _as_given(found: str, path: str) -> str:
    """Convert an absolute path to the form given by the user."""
    absolute = _absolute(path)
    if found == absolute or found.startswith(f"{absolute.rstrip('/')}/"):
        return f"{path.rstrip('/') or '/'}{found[len(absolute.rstrip('/')) :]}"
    return found


def _print(settings: Settings, findings: list[CheckFinding], counts: CheckCounts) -> int:
    """Print the number of findings per check, then the findings, most severe first."""
    from logstore.inspect.check.findings import SEVERITIES

    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    kinds = sorted(counts.findings, key=lambda kind: (SEVERITIES.index(kind[0]), kind[1]))
    if settings.as_table:
        if findings:
            _overview(kinds, counts)
        emit_lines(_line(finding) for finding in findings)
        _summary(counts)
    elif settings.as_items:
        emit_values((finding.to_json() for finding in findings), output=settings.output)
    else:
        checks = [
            {"check": check, "severity": severity, "count": counts.findings[severity, check]}
            for severity, check in kinds
        ]
        emit_json(
            {
                "checks": checks,
                "findings": [finding.to_json() for finding in findings],
                "segments": counts.segments,
                "batches": counts.batches,
                "records": counts.records,
            }
        )
    return _EXIT_FINDINGS if counts.total("error") else 0


def _overview(kinds: Sequence[tuple[str, str]], counts: CheckCounts) -> None:
    from logstore.inspect.check import CHECKS

    table = Table(("severity", "check", "found", "meaning"), right=("found",), wrap=True)
    rows = (
        (
            Styled(severity, _STYLES[severity]),
            check,
            format_count(counts.findings[severity, check]),
            CHECKS[check],
        )
        for severity, check in kinds
    )
    emit_lines(table.lines(rows))
    emit("")


def _line(found: CheckFinding) -> str:
    """Format a finding as `error crc PATH at position 70 (offset 1): expected 5, found 7`."""
    place = display_text(found.path)
    if found.position is not None:
        place += f" at position {found.position}"
    if found.offset is not None:
        place += f" (offset {found.offset})"
    compared = [
        f"{name} {display_text(str(value))}"
        for name, value in (("expected", found.expected), ("found", found.found))
        if value is not None
    ]
    severity = paint(f"{found.severity:7}", _STYLES[found.severity])
    return f"{severity} {found.check}: {place}{': ' if compared else ''}{', '.join(compared)}"


def _summary(counts: CheckCounts) -> None:
    scanned = (
        f"{plural(counts.segments, 'segment')}, {plural(counts.batches, 'batch', 'batches')}, "
        f"{plural(counts.records, 'record')}"
    )
    totals = [
        plural(total, name, names)
        for name, names in (("error", "errors"), ("warning", "warnings"), ("info", "infos"))
        if (total := counts.total(name))
    ]
    if not (counts.total("error") or counts.total("warning")):
        totals = ["nothing found", *(f"but {text}" for text in totals)]
        emit(f"{scanned}: {' '.join(totals)}")
        return
    emit(f"{scanned}: {', '.join(totals)}")
