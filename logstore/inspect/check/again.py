"""A verification beside a process that writes: what only one of two looks found was its doing.

Names and bytes change under the look: half of a swap, a batch that is half written, a checkpoint
read before its log. None of that lasts until the next look, so a finding counts when two looks
in a row have it, word for word. Looking ends when the last look has nothing that the one before
had not, or after some looks: a process that never rests always leaves something new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from logstore.inspect.check.findings import INFO, CheckFinding
from logstore.inspect.check.segment import CheckCounts
from logstore.runtime import Clock

LOOKS_MAX = 5
"""Looks at everything; two are enough unless something moves in each."""

PAUSE_SECONDS = 0.05
"""Between two looks; more than the steps of a swap are apart."""

IN_PROGRESS = frozenset({"leftover_cleaned", "leftover_swap", "leftover_deleted", "leftover_tmp"})
"""Files that a process at work has lying about: told, but no warning."""


def confirmed(
    look: Callable[[], Iterator[CheckFinding]],
    counts: CheckCounts,
    is_written: Callable[[], bool],
    clock: Clock,
) -> Iterator[CheckFinding]:
    """Yield what `look` yields, or beside a process that writes what two looks agree on.

    Parameters
    ----------
    look : callable
        Verifies from the start.
    counts : CheckCounts
        Raised by `look`; in the end it has the numbers of the last one.
    is_written : callable
        Tells whether another process has a directory for writing now.
    """
    if not is_written():
        yield from look()
        return
    before: set[CheckFinding] = set()
    for number in range(1, LOOKS_MAX + 1):
        counts.restart()
        found = [_calmed(row, counts) for row in look()]
        odd = {row for row in found if row.severity != INFO}
        if number == LOOKS_MAX or not odd or (number > 1 and odd <= before):
            break
        before = odd
        clock.sleep(PAUSE_SECONDS)
    for each in found:
        if each.severity == INFO or each in before:
            yield each
        else:
            _count(each, counts, -1)


def _calmed(found: CheckFinding, counts: CheckCounts) -> CheckFinding:
    if found.severity == INFO or found.check not in IN_PROGRESS:
        return found
    _count(found, counts, -1)
    calmed = found._replace(severity=INFO)
    _count(calmed, counts, 1)
    return calmed


def _count(found: CheckFinding, counts: CheckCounts, change: int) -> None:
    kind = found.severity, found.check
    counts.findings[kind] = counts.findings.get(kind, 0) + change
    if not counts.findings[kind]:
        del counts.findings[kind]
