"""The page's reading of durations and sizes beside the engine's, which is the one that counts."""

import base64
from importlib.resources import files

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


@pytest.fixture
def page(visitor):
    source = files("logstore.ui").joinpath("front", "units.js").read_bytes()
    page = visitor.visit("about:blank")
    page.evaluate(
        "async source => { window.units = await import(source); }",
        f"data:text/javascript;base64,{base64.b64encode(source).decode()}",
    )
    return page


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
def test_page_reads_a_unit_as_the_engine_does(page, name, parse, texts):
    read = page.evaluate(f"texts => texts.map(units.{name})", texts)

    # JavaScript rounds whole numbers above 2^53, and Kafka's largest is one.
    expected = [None if (n := or_none(parse, text)) is None else float(n) for text in texts]
    assert [None if n is None else float(n) for n in read] == expected


@pytest.mark.parametrize(("unit", "parse"), (("ms", parse_duration), ("bytes", parse_size)))
def test_what_a_field_shows_is_the_number_that_was_set(page, unit, parse):
    shown = page.evaluate(
        "([texts, unit]) => texts.map(text => units.typed(text, unit))",
        [[str(number) for number in NUMBERS], unit],
    )

    assert [parse(text) for text in shown] == list(NUMBERS)


def test_exact_number_stands_beside_a_unit(page):
    told = page.evaluate(
        """pairs => pairs.map(([text, unit]) => units.exactly(text, unit))""",
        [
            ["7d", "ms"],
            ["1GiB", "bytes"],
            ["-1", "bytes"],
            ["9223372036854775807", "ms"],
            ["1.7976931348623157E308", None],
            ["seven", "ms"],
            ["0.5", None],
        ],
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
