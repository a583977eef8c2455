"""A verification beside a process that writes: two looks in a row must agree."""

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
    looks: Sequence[Sequence[CheckFinding]], *, is_written: bool = True
) -> tuple[list[CheckFinding], CheckCounts, int]:
    """Return what is told of looks that find such things, one after another."""
    counts, done = CheckCounts(), 0

    def look() -> Iterator[CheckFinding]:
        nonlocal done
        done += 1
        counts.batches += done
        return limit_findings(iter(looks[min(done, len(looks)) - 1]), counts.findings)

    told = list(confirm_findings(look, counts, lambda: is_written, VirtualClock()))
    return told, counts, done


def test_without_a_writer_one_look_counts():
    told, _, looks = run([[STAYS, FOREIGN], []], is_written=False)
    assert (told, looks) == ([STAYS, FOREIGN], 1)


def test_what_the_next_look_does_not_find_was_no_damage():
    told, counts, looks = run([[damage("a.log", 1), FOREIGN], [FOREIGN]])
    assert (told, looks) == ([FOREIGN], 2)
    assert counts.findings == {(INFO, "foreign_file"): 1}
    assert counts.batches == 2, "of the last look"


def test_what_two_looks_find_is_told():
    told, counts, looks = run([[STAYS, damage("a.log", 1)], [STAYS]])
    assert (told, looks) == ([STAYS], 2)
    assert counts.total(ERROR) == 1


def test_a_process_that_never_rests_is_not_called_damage():
    told, counts, looks = run([[STAYS, damage("a.log", number)] for number in range(9)])
    assert (told, looks) == ([STAYS], MAX_PASSES)
    assert counts.findings == {(ERROR, "crc"): 1}


def test_unfinished_files_of_a_process_at_work_are_no_warning():
    left = finding("leftover_cleaned", "a.log.cleaned", severity=WARNING)
    told, counts, looks = run([[left]])
    assert (told, looks) == ([left._replace(severity=INFO)], 1)
    assert counts.findings == {(INFO, "leftover_cleaned"): 1}
