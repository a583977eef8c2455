"""The page: every line, its goal and verdict, plots; it fetches nothing and is repeatable."""

import re
from dataclasses import replace

import pytest

from logstore.bench.report.goals import GOALS
from logstore.bench.report.page import GROUPS, page
from logstore.bench.report.plots import figure_plot, ratio_plot
from logstore.bench.report.result import Figures, Line, Result
from logstore.bench.suite import all_jobs

NAMES = [name for job in all_jobs() for name in job.names]


def line(name, here=300.0):
    has_peer = name not in GOALS or GOALS[name].is_ratio
    return Line(
        name=name,
        title=f"<about> {name}",
        unit="MB/s" if has_peer else "ms",
        higher_is_better=has_peer,
        here=Figures([here, here * 1.1, here * 0.9]),
        peer=Figures([100.0]) if has_peer else None,
        peer_name="Kafka & co" if has_peer else "",
        facts={"log_bytes": 5_000},
    )


RESULT = Result(
    made_at="2026-01-02T03:04:05+00:00",
    kind="full",
    seconds=12.34,
    machine={"processor": "a <processor>", "cores": 2},
    versions={"python": "3.11"},
    load=[0.1, 0.2],
    lines=[line(name) for name in NAMES],
)


@pytest.fixture(scope="module")
def text():
    return page(RESULT)


def test_every_line_has_a_row_with_its_figures(text):
    for name in NAMES:
        (row,) = re.findall(rf'<tr id="{re.escape(name)}">.*?</tr>', text, re.DOTALL)
        assert f"<b>{name}</b>" in row
        assert "300" in row
        goal = GOALS.get(name)
        if goal is not None:
            assert f"{goal.least:g}" in row
            assert re.search(r'class="(missed|reached|stretch)"', row)


def test_a_narrow_screen_gets_figures_that_bear_their_names(text):
    heads = re.findall(r"<th[^>]*>(.*?)</th>", text)[:9]
    (row,) = re.findall(r'<tr id="clean/1KiB-2">.*?</tr>', text, re.DOTALL)
    assert re.findall(r'title="(.*?)"', row) == heads[1:]
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text


def test_every_line_is_in_a_plot(text):
    plotted = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert [name for name in NAMES if f">{name}</text>" not in plotted] == []


def test_facts_are_readable_numbers(text):
    assert "log bytes 5,000" in text


def test_every_group_has_a_title():
    assert {name.partition("/")[0] for name in NAMES} <= set(GROUPS)


def test_page_fetches_nothing_and_escapes_what_it_shows(text):
    fetched = re.findall(r"(?:src|href)=[\"'](?!#)[^\"']*", re.sub(r"xlink:href", "href", text))
    assert fetched == []
    assert "<script" not in text
    assert "a &lt;processor&gt;" in text
    assert "<about>" not in text
    assert "Kafka &amp; co" in text


def test_the_same_result_gives_the_same_page():
    few = replace(RESULT, lines=RESULT.lines[:3])
    assert page(few) == page(few)


def test_a_busy_machine_is_reported(text):
    assert "The machine was busy" not in text
    assert "The machine was busy (load 0.1 to 9.5 on 2 cores)" in page(
        replace(RESULT, lines=RESULT.lines[:3], load=[0.1, 9.5])
    )


def test_a_plot_of_wide_figures_and_one_without_peers():
    few = [line("start/help", here) for here in (1.0, 90.0)]
    assert "<svg" in figure_plot(few, "title")
    assert "title" in ratio_plot([line("clean/1KiB-2")], "title")
