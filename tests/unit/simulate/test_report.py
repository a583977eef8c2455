"""The report: words, plots, and nothing that is fetched."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from logstore.simulate import library, parse, report, run
from logstore.simulate.outcome import KINDS, bytes_of
from logstore.simulate.report import PANELS, page, story


@pytest.fixture(scope="module")
def outcome():
    return run(parse(library.text_of("kip-354")), samples=20)


def without_library(text):
    """Return a page without plotly's own script, the first one."""
    return re.sub(r"<script>.*?</script>", "", text, count=1, flags=re.DOTALL)


def test_the_story_has_the_numbers_of_the_run(outcome):
    told = story(outcome)
    assert "The cleaner made 1 pass," in told
    assert "The oldest uncleaned record was 1h 1s old." in told  # the bound is an hour


def test_nothing_is_fetched(outcome):
    text = without_library(page(outcome))
    assert not re.findall(r"""(?:src|href|url\()\s*=?\s*["']?(?:https?:)?//""", text)
    assert "<link" not in text


def test_every_plot_has_points(outcome):
    text = without_library(page(outcome))
    assert text.count("Plotly.newPlot(") == len(PANELS) + 1  # and the segment map
    for name in ("Bytes", "Records", "Ratios", "Tombstones", "max.compaction.lag.ms"):
        assert name in text


def test_input_of_users_is_shown_as_text_not_as_markup(outcome):
    hostile = library.text_of("kip-354").replace("KIP-354's bound", "<img src=x>")
    text = page(run(parse(hostile), samples=2))
    assert "<img" not in without_library(text)
    assert "&lt;img src=x&gt;" in text


THROTTLED = """
days = 6
[[topics]]
name = "t"
records = 4_000
keys.count = 400
deletes.share = 0.1
[topics.configs]
"cleanup.policy" = "compact"
"segment.bytes" = 20_000
"delete.retention.ms" = "12h"
[[actions]]
at = "2d"
do = "alter"
configs = { "log.cleaner.io.max.bytes.per.second" = 5_000 }
[[actions]]
at = "3d"
do = "alter"
topic = "t"
configs = { "max.compaction.lag.ms" = "10h" }
"""


def plot_of(text, name):
    """Return the data of a plot as JSON."""
    return text.partition(f'Plotly.newPlot(                        "{name}"')[2].partition(
        "</script>"
    )[0]


def test_bounds_are_drawn_from_when_they_are_set_and_tombstones_by_their_age():
    text = without_library(page(run(parse(THROTTLED), samples=60)))
    numbers = {title: number for number, title in enumerate(PANELS)}
    age = plot_of(text, f"topic-t-{numbers['Age of the oldest dirty data (days)']}")
    assert '"name":"max.compaction.lag.ms"' in age
    assert '"name":"throttle"' in plot_of(text, f"topic-t-{numbers['Cleaner (bytes per second)']}")
    tombstones = plot_of(text, f"topic-t-{numbers['Tombstones by age']}")
    assert tombstones.count('"stackgroup":"all"') == 5
    assert '"name":"holes"' in plot_of(text, "segments-t")


def test_a_bound_that_is_not_set_is_not_drawn():
    text = without_library(page(run(parse(THROTTLED.partition("[[actions]]")[0]), samples=9)))
    assert '"name":"max.compaction.lag.ms"' not in text
    assert '"name":"throttle"' not in text


def test_the_peak_of_all_bytes_is_drawn_even_if_no_part_of_them_is_at_its_peak():
    columns = {f"{kind}_bytes": np.zeros(4) for kind in KINDS}
    columns["clean_bytes"] = np.array([10, 6, 0, 0])
    columns["dirty_bytes"] = np.array([0, 6, 10, 0])
    series = {"time_ms": np.arange(4), **columns}
    rows = {"time_ms": np.array([0, 2, 3]), "event": np.array(["start", "regular", "end"])}
    outcome = SimpleNamespace(
        over_time=lambda topic: series, partitions=SimpleNamespace(where=lambda: rows)
    )
    drawn = report._drawn_series(outcome)
    assert drawn["time_ms"].tolist() == [0, 1, 2, 3]
    assert bytes_of(drawn).tolist() == [10, 12, 10, 0]
