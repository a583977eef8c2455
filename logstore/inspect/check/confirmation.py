"""Verification while another process is writing.

Files change during a pass: a swap may be incomplete, a batch partly written, or a checkpoint older
than its log. Such states rarely last until the next pass, but the other process may be waiting for
a CPU. A finding is therefore only reported if it occurs in three consecutive passes, the last two
of which are a second apart. Passes are repeated until one has no new findings, up to a limit,
because a busy process always causes new findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from logstore.inspect.check.findings import INFO, CheckFinding
from logstore.inspect.check.segment import CheckCounts
from logstore.runtime import Clock

MAX_PASSES = 5
"""Maximum number of passes. Without damage, two suffice unless files change during each."""

PAUSE_SECONDS = 0.05
"""Pause after the first pass. It is longer than the time between the steps of a swap."""

LONG_PAUSE_SECONDS = 1.0
"""Pause after later passes, for a process that waits between two steps."""

IN_PROGRESS = frozenset({"leftover_cleaned", "leftover_swap", "leftover_deleted", "leftover_tmp"})
"""Checks for files that exist temporarily while a process is running.

They are not reported as warnings.
"""


def confirm_findings(
    run_pass: Callable[[], Iterator[CheckFinding]],
    counts: CheckCounts,
    is_written: Callable[[], bool],
    clock: Clock,
) -> Iterator[CheckFinding]:
    """Yield the findings of `run_pass`, but only lasting ones while another process writes.

    Parameters
    ----------
    run_pass : callable
        Runs a complete pass.
    counts : CheckCounts
        Incremented by `run_pass`. On return, contains the numbers of the last pass.
    is_written : callable
        Returns whether another process has a directory open for writing.
    """
    if not is_written():
        yield from run_pass()
        return
    before: set[CheckFinding] = set()  # of the previous pass
    lasting: set[CheckFinding] = set()  # of the two previous passes
    for number in range(1, MAX_PASSES + 1):
        counts.restart()
        findings = [_downgrade(row, counts) for row in run_pass()]
        odd = {row for row in findings if row.severity != INFO}
        if number == MAX_PASSES or not odd or odd <= lasting:
            break
        lasting, before = odd & before, odd
        clock.sleep(PAUSE_SECONDS if number == 1 else LONG_PAUSE_SECONDS)
    for each in findings:
        if each.severity == INFO or each in lasting:
            yield each
        else:
            _count(each, counts, -1)


def _downgrade(row: CheckFinding, counts: CheckCounts) -> CheckFinding:
    if row.severity == INFO or row.check not in IN_PROGRESS:
        return row
    _count(row, counts, -1)
    downgraded = row._replace(severity=INFO)
    _count(downgraded, counts, 1)
    return downgraded


def _count(row: CheckFinding, counts: CheckCounts, change: int) -> None:
    kind = row.severity, row.check
    counts.findings[kind] = counts.findings.get(kind, 0) + change
    if not counts.findings[kind]:
        del counts.findings[kind]
