"""The reason of a finding: a code, and the compared values under names with units."""

import pytest

from logstore.inspect.check import CHECKS
from logstore.inspect.check.findings import _UNIT_OF, finding
from logstore.reasons import Reason


@pytest.mark.parametrize(
    ("check", "expected", "found", "values"),
    (
        ("crc", 5, 7, {"expected": 5, "found": 7}),
        ("offset_gap", 5, 7, {"expected_offset": 5, "found_offset": 7}),
        ("offset_order", "below 5", 7, {"expected": "below 5", "found_offset": 7}),
        ("torn_tail", 100, 130, {"expected_bytes": 100, "found_bytes": 130}),
        ("max_timestamp", 0, None, {"expected_at_ms": 0}),
        ("snapshot_entry", None, (1, 2), {"found": "(1, 2)"}),
        ("missing_index", None, None, {}),
    ),
)
def test_a_finding_has_its_numbers_under_their_units(check, expected, found, values):
    reported = finding(check, "file", expected=expected, found=found)
    assert reported.reason == Reason(f"check.{check}", values)
    item = reported.to_json()
    assert (item["check"], item["expected"], item["found"]) == (check, expected, found)
    assert (item["code"], item["values"]) == (f"check.{check}", values)
    assert item["text"] == CHECKS[check]


def test_units_are_those_of_checks():
    assert set(_UNIT_OF) <= set(CHECKS)
