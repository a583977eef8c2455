"""docs/PERFORMANCE.md shows the newest result; its plot has each line."""

from logstore.bench.__main__ import RESULTS
from logstore.bench.report.page import page
from logstore.bench.report.result import read_result
from tools import performance_docs


def test_the_page_matches_the_newest_result():
    old = performance_docs.TARGET.read_text(encoding="utf-8")
    assert performance_docs.page(old) == old, "run: make docs"


def test_the_plot_names_each_line_that_has_a_peer():
    drawn = performance_docs.PLOT.read_text(encoding="utf-8")
    _, result = performance_docs.newest()
    named = [
        line.name
        for line in result.lines
        if line.group in performance_docs.PLOTTED and line.ratio is not None
    ]
    assert named
    assert [name for name in named if f">{name}</text>" not in drawn] == []


def test_every_kept_result_has_a_page_of_every_line():
    kept = sorted(RESULTS.glob("*.json"))
    assert kept
    for path in kept:
        result = read_result(path)
        shown = page(result)
        assert [line.name for line in result.lines if f'<tr id="{line.name}">' not in shown] == []
