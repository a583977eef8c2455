from __future__ import annotations

import pytest

from logstore.cli.times import (
    format_duration,
    format_span,
    format_time,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    (
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("-1", -1),
        ("2024-01-01", 1_704_067_200_000),
        ("2024-01-01T00:00:00Z", 1_704_067_200_000),
        ("2024-01-01T00:00:00", 1_704_067_200_000),
        ("2024-01-01T01:30:00+01:30", 1_704_067_200_000),
        ("2024-01-01T00:00:00.123456Z", 1_704_067_200_123),
        ("1969-12-31T23:59:59.999Z", -1),
        (" 2024-01-01 00:00:00 ", 1_704_067_200_000),
    ),
)
def test_time_is_ms_or_iso_8601_without_zone_utc(text, expected):
    assert parse_time(text) == expected


@pytest.mark.parametrize("text", ("", "yesterday", "2024-13-01", "1.5", "2024-01-01T25:00Z"))
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="is no time"):
        parse_time(text)


def test_times_are_shown_in_utc_to_the_millisecond():
    assert format_time(1_700_000_000_007) == "2023-11-14 22:13:20.007Z"
    assert format_time(-1) == "-"
    assert format_time(2**63 - 1).startswith("292278994-08-17")


def test_durations_are_shown_in_the_largest_exact_unit():
    assert format_duration(604_800_000) == "7d"
    assert format_duration(90_000) == "90s"
    assert format_duration(1501) == "1501ms"
    assert format_duration(0) == "0ms"


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    (
        (0, "0ms"),
        (250, "250ms"),
        (61_000, "1m 1s"),
        (90_061_001, "1d 1h"),
        (7 * 86_400_000, "7d"),
        (7 * 86_400_000 + 1, "7d 1ms"),
    ),
)
def test_span_in_the_two_largest_units_it_has(duration_ms, text):
    assert format_span(duration_ms) == text
