from __future__ import annotations

import pytest

from logstore import Broker, VirtualClock
from logstore.cli.times import parse_time
from logstore.reasons.formats import format_duration, format_span, format_time


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
    assert parse_time(text, unasked) == expected


def unasked():
    raise AssertionError("this time does not depend on the clock")


NOON = 1_704_110_400_000
"""2024-01-01T12:00Z."""


@pytest.mark.parametrize(
    ("text", "expected"),
    (
        ("now", NOON),
        ("-1h", NOON - 3_600_000),
        ("+1d12h", NOON + 36 * 3_600_000),
        ("-250ms", NOON - 250),
        ("today", NOON - 12 * 3_600_000),
        ("yesterday", NOON - 36 * 3_600_000),
        (" tomorrow ", NOON + 12 * 3_600_000),
    ),
)
def test_relative_times_count_from_now(text, expected):
    assert parse_time(text, lambda: NOON) == expected


@pytest.mark.parametrize("text", ("", "-", "-1y", "h", "1h", "2024-13-01", "1.5", "--1h", "-1 h"))
def test_invalid_times_are_refused(text):
    with pytest.raises(ValueError, match="is not a time"):
        parse_time(text, lambda: NOON)


@pytest.fixture
def hourly(data_dir):
    with Broker(data_dir, clock=VirtualClock(NOON)) as broker:
        broker.create_topic("t")
        for hours in (3, 2, 1, 0):
            broker.append("t", key=None, value=b"v", timestamp=NOON - hours * 3_600_000)


@pytest.mark.parametrize(
    ("order", "expected"),
    (
        (("--now", "2024-01-01T12:00Z", "read", "t", "--from", "@-2h"), [1, 2, 3]),
        (("read", "t", "--from", "@-2h", "--now", "2024-01-01T12:00Z"), [1, 2, 3]),
        (("read", "t", "--now", "2024-01-02", "--from", "@yesterday"), [0, 1, 2, 3]),
        (("read", "t", "--from", "@-90m", "--now", str(NOON)), [2, 3]),
    ),
)
def test_other_options_count_from_now_in_any_position(run, hourly, order, expected):
    found = run(*order, "--format", "jsonl").jsonl
    assert [item["offset"] for item in found] == expected


def test_offsets_and_delete_records_take_relative_times(run, hourly):
    now = ("--now", str(NOON), "--format", "json")
    assert run("offsets", "t", "--time", "-1h", *now).json["offsets"][0]["offset"] == 2
    assert run("offsets", "t", "--time", "-1", *now).json["offsets"][0]["offset"] == 4
    deleted = run("delete-records", "t", "--partition", 0, "--before-offset", "@-61m", *now).json
    assert deleted["partitions"][0]["low_watermark"] == 2


def test_now_itself_may_be_relative(run, hourly):
    said = run("explain", "t", "--now", "-1000h", "--format", "json").json
    assert said["partitions"]
    assert "is not a time" in run("explain", "t", "--now", "soon", code=2).stderr


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
