"""The report: words, plots, and nothing that is fetched."""

import re

import pytest

from logstore.simulate import library, parse, run
from logstore.simulate.report import PANELS, page, story
from logstore.simulate.sweep import sweep


@pytest.fixture(scope="module")
def outcome():
    return run(parse(library.text_of("kip-354")), samples=20)


def without_library(text):
    """Return a page without plotly's own script, the first one."""
    return re.sub(r"<script>.*?</script>", "", text, count=1, flags=re.DOTALL)


def test_the_story_has_the_numbers_of_the_run(outcome):
    told = story(outcome)
    assert "The cleaner made 1 pass," in told
    assert "60.0 minutes old" in told  # of the bound of an hour


def test_nothing_is_fetched(outcome):
    text = without_library(page(outcome))
    assert not re.findall(r"""(?:src|href|url\()\s*=?\s*["']?(?:https?:)?//""", text)
    assert "<link" not in text


def test_every_plot_has_points(outcome):
    text = without_library(page(outcome))
    assert text.count("Plotly.newPlot(") == len(PANELS) + 1  # and the strip of segments
    for name in ("Bytes", "Records", "Ratios", "Tombstones", "max.compaction.lag.ms"):
        assert name in text


def test_what_users_write_is_text_and_no_markup(outcome):
    hostile = library.text_of("kip-354").replace("KIP-354's bound", "<img src=x>")
    text = page(run(parse(hostile), samples=2))
    assert "<img" not in without_library(text)
    assert "&lt;img src=x&gt;" in text


def test_a_sweep_has_its_table_and_its_front(outcome):
    axes = {"max.compaction.lag.ms": ["30m", "1h"]}
    swept = sweep(outcome.scenario, axes, samples=5)
    text = without_library(page(outcome, swept))
    assert "What the settings cost" in text
    assert "not beaten" in text
    assert text.count("Plotly.newPlot(") == len(PANELS) + 2
