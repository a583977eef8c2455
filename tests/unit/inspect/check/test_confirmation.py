"""Verification while another process writes: three passes in a row must agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logstore import VirtualClock
from logstore.inspect.check import ERROR, INFO, WARNING, CheckCounts, CheckFinding, confirm_findings
from logstore.inspect.check.confirmation import MAX_PASSES
from logstore.inspect.check.findings import finding, limit_findings


def damage(path: str, found: int) -> CheckFinding:
    return finding("crc", path, 70, expected=1, found=found, severity=ERROR)


STAYS = damage("stays.log", 5)
FOREIGN = finding("foreign_file", "x", severity=INFO)


def run(
    passes: Sequence[Sequence[CheckFinding]], *, is_written: bool = True
) -> tuple[list[CheckFinding], CheckCounts, int]:
    """Return the findings, counts and number of passes for the given results of passes."""
    counts, done = CheckCounts(), 0

    def run_pass() -> Iterator[CheckFinding]:
        nonlocal done
        done += 1
        counts.batches += done
        return limit_findings(iter(passes[min(done, len(passes)) - 1]), counts.findings)

    findings = list(confirm_findings(run_pass, counts, lambda: is_written, VirtualClock()))
    return findings, counts, done


def test_without_a_writer_there_is_one_pass():
    findings, _, passes = run([[STAYS, FOREIGN], []], is_written=False)
    assert (findings, passes) == ([STAYS, FOREIGN], 1)


def test_a_finding_of_one_pass_is_not_reported():
    findings, counts, passes = run([[damage("a.log", 1), FOREIGN], [FOREIGN]])
    assert (findings, passes) == ([FOREIGN], 2)
    assert counts.findings == {(INFO, "foreign_file"): 1}
    assert counts.batches == 2, "of the last pass"


def test_a_finding_of_two_passes_is_not_reported():
    """A process may stop for a while between the steps of a change."""
    findings, counts, passes = run([[STAYS], [STAYS], [FOREIGN]])
    assert (findings, passes) == ([FOREIGN], 3)
    assert not counts.total(ERROR)


def test_a_finding_of_three_passes_is_reported():
    findings, counts, passes = run([[STAYS, damage("a.log", 1)], [STAYS], [STAYS]])
    assert (findings, passes) == ([STAYS], 3)
    assert counts.total(ERROR) == 1


def test_a_finding_that_begins_later_is_reported_after_three_passes():
    findings, _, passes = run([[damage("a.log", 1)], [STAYS]])
    assert (findings, passes) == ([STAYS], 4)


def test_new_findings_in_every_pass_are_not_reported():
    findings, counts, passes = run([[STAYS, damage("a.log", number)] for number in range(9)])
    assert (findings, passes) == ([STAYS], MAX_PASSES)
    assert counts.findings == {(ERROR, "crc"): 1}


def test_temporary_files_of_a_running_process_are_not_warnings():
    left = finding("leftover_cleaned", "a.log.cleaned", severity=WARNING)
    findings, counts, passes = run([[left]])
    assert (findings, passes) == ([left._replace(severity=INFO)], 1)
    assert counts.findings == {(INFO, "leftover_cleaned"): 1}
