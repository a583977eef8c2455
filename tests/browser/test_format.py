"""The page's numbers, times and bytes beside the command line's, so that a person may compare."""

import pytest

from logstore import Broker, VirtualClock
from logstore.cli.show.output import format_count, format_size
from logstore.cli.show.prose import with_times
from logstore.cli.times import format_span, format_time
from tests.support.browser.chromium import Visitor

SIZES = (0, 1, 1023, 1024, 1536, 1 << 20, (1 << 20) - 1, 5 << 30, 3 << 40, 7 << 50)
SPANS = (0, 1, 999, 1000, 60_000, 90_000, 86_400_000, 86_400_001, 604_799_999, 31_536_000_000)
MOMENTS = (0, 1, 1_700_000_000_000, 1_767_225_600_001, 4_102_444_800_000)


@pytest.fixture(scope="module")
def module(browser):
    """Return a function that calls one of a module's for each of some values."""
    with Broker(clock=VirtualClock()) as broker, Visitor(browser) as visitor:
        page = visitor.visit(broker.ui().url, timezone_id="America/St_Johns")

        def call(name, function, values):
            return page.evaluate(
                """async ([name, called, values]) => {
                    const module = await import(new URL(name, document.baseURI));
                    return values.map(value => module[called](value));
                }""",
                [name, function, list(values)],
            )

        yield call


@pytest.mark.parametrize(
    ("function", "values", "expected"),
    (
        ("formatBytes", SIZES, format_size),
        ("formatCount", SIZES[:-1], format_count),
        ("formatDuration", SPANS, format_span),
        ("formatTime", MOMENTS, format_time),
    ),
)
def test_numbers_and_times_read_as_on_the_command_line(module, function, values, expected):
    shown = module("format.js", function, values)

    assert shown == [expected(value) for value in values]


def test_sentences_have_their_times_in_words_as_on_the_command_line(module):
    texts = [
        "a pass is due by itself at Unix ms 1768521600001",
        "segment.ms 604800000 after its first record, stamped Unix ms 1700605005775 or later",
        "a time after May 2033: Unix ms 2524608000000; offset 1700605005775",
        "min.compaction.lag.ms 0, max.compaction.lag.ms 90000, segment.ms 1500",
        "files go file.delete.delay.ms 60000 later; 123456 bytes",
    ]

    shown = module("format.js", "withTimes", texts)

    assert shown == [with_times(text) for text in texts]


def test_kafkas_largest_number_is_no_number_to_a_reader(module):
    assert module("format.js", "formatDuration", [2**63 - 1]) == ["none"]
    assert module("format.js", "formatCount", [2**63 - 1]) == ["none"]


def test_local_time_tells_its_distance_from_utc(module):
    """Of a place whose distance is no whole hour, in winter and in summer."""
    shown = module("format.js", "formatLocalTime", [1_768_478_400_000, 1_784_116_800_000])

    assert shown == ["2026-01-15 08:30:00.000-03:30", "2026-07-15 09:30:00.000-02:30"]


def test_shares_are_percents_and_small_ones_are_not_nothing(module):
    shown = module("format.js", "formatRatio", [0, 0.004, 0.5, 1])

    assert shown == ["0 %", "0.4 %", "50 %", "100 %"]


def test_text_that_a_page_would_obey_is_written_out(module):
    texts = ["plain é 漢", "\x00\x1b[31m\n\t", "\u202eevil\u2066", "\ufeffa\u200bb", "a\\n"]

    shown = module("bytes.js", "visible", texts)

    assert shown[0] == texts[0]
    assert shown[1] == r"\x00\x1b[31m\n\t"
    assert shown[2] == r"\u202eevil\u2066"
    assert shown[3] == r"\ufeffa\u200bb"
