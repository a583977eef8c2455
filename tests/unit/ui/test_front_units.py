"""The page parses durations and sizes as the engine does."""

import pytest

from logstore.config.units import parse_duration, parse_size

DURATIONS = [
    "0",
    "1500",
    "+7",
    "-1",
    "7d",
    "12h",
    "5m",
    "30s",
    "250ms",
    "1d12h",
    "2w",
    "1h1h",
    "9223372036854775807",
    "d",
    "1.5h",
    "3y",
    "s30",
    "7D",
    "1d-1h",
    "1_000",
]
SIZES = [
    "0",
    "1024",
    "100B",
    "512KiB",
    "10MiB",
    "1GiB",
    "1TiB",
    "1PiB",
    "5KB",
    "5",
    "KiB5",
    "1.5MiB",
    "-1",
    "1kib",
]
NUMBERS = (0, 1, 999, 1000, 1024, 60_000, 90_000, 86_400_000, 604_800_000, 1 << 30, 5 << 40, -1)


def or_none(parse, text):
    try:
        return parse(text)
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("name", "parse", "texts"),
    (
        ("parseDuration", parse_duration, [*DURATIONS, "", " 7d ", "7 d"]),
        ("parseSize", parse_size, [*SIZES, "", " 1KiB ", "2 MiB", "2  MiB"]),
    ),
)
def test_page_reads_a_unit_as_the_engine_does(front, name, parse, texts):
    read = front.call("units.js", name, *((text,) for text in texts))

    # JavaScript rounds whole numbers above 2^53, and Kafka's largest is one.
    expected = [None if (n := or_none(parse, text)) is None else float(n) for text in texts]
    assert [None if n is None else float(n) for n in read] == expected


@pytest.mark.parametrize(("unit", "parse"), (("ms", parse_duration), ("bytes", parse_size)))
def test_a_field_shows_the_number_that_was_set(front, unit, parse):
    shown = front.call("units.js", "typed", *((str(number), unit) for number in NUMBERS))

    assert [parse(text) for text in shown] == list(NUMBERS)


@pytest.mark.parametrize(
    ("text", "unit", "shown"),
    (
        ("604800000", "ms", "7d"),
        ("5400000", "ms", "90m"),
        ("1500", "ms", "1500"),
        ("0", "ms", "0"),
        ("-1", "ms", "-1"),
        ("1073741824", "bytes", "1GiB"),
        ("1024", "bytes", "1KiB"),
        ("1500", "bytes", "1500"),
        ("1048577", "bytes", "1048577"),
        ("0", "bytes", "0"),
        ("9223372036854775807", "bytes", "9223372036854775807"),
        ("0.5", None, "0.5"),
        ("compact", None, "compact"),
        (None, "ms", ""),
    ),
)
def test_a_field_shows_the_largest_unit_that_divides_a_number(front, text, unit, shown):
    assert front.call("units.js", "typed", (text, unit)) == [shown]


def test_the_exact_number_is_shown_next_to_a_unit(front):
    told = front.call(
        "units.js",
        "exactly",
        ("7d", "ms"),
        ("1GiB", "bytes"),
        ("-1", "bytes"),
        ("9223372036854775807", "ms"),
        ("1.7976931348623157E308", None),
        ("seven", "ms"),
        ("0.5", None),
    )

    assert told == [
        "= 604,800,000 ms",
        "= 1,073,741,824 bytes",
        "no limit",
        "no limit",
        "no limit",
        "",
        "",
    ]
