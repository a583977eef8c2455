"""The report of a simulation, opened as a file: it draws, reads, prints, and asks for nothing."""

import re

import pytest

from logstore.simulate import library, parse, run
from logstore.simulate.report import PANELS
from logstore.simulate.report import page as report
from logstore.simulate.sweep import sweep
from tests.support.browser.chromium import Visitor, breaches, overflow, small_texts

CURVES = ".plot .js-plotly-plot"
SHARED = "[data-shared=users] .js-plotly-plot"


def text_of(name):
    if name == "sweep":
        return library.text_of("kip-354")
    reader = '[[consumers]]\nname = "search index"\ntopic = "users"\nlag = "5m"\n'
    return library.text_of("kip-354") + reader


@pytest.fixture(scope="module", params=("run", "sweep"))
def opened(request, browser, tmp_path_factory):
    """Return a report in the browser, its watch and its URL: of a run with a reader, of a sweep.

    Plotly's five megabytes take seconds to load, so the tests share it.
    """
    outcome = run(parse(text_of(request.param)), samples=40)
    axes = {"max.compaction.lag.ms": ["30m", "1h"], "segment.ms": ["10m", "1h"]}
    swept = sweep(outcome.scenario, axes, samples=10) if request.param == "sweep" else None
    path = tmp_path_factory.mktemp(request.param) / "report.html"
    path.write_text(report(outcome, swept))
    with Visitor(browser) as visitor:
        page = visitor.visit(path.as_uri())
        page.wait_for_function(
            "all => [...document.querySelectorAll(all)].every(e => e.querySelector('.main-svg'))",
            arg=CURVES,
        )
        yield page, visitor.watch_of(page), path.as_uri()


@pytest.fixture
def page(opened):
    page = opened[0]
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(media="screen", color_scheme="light")
    return page


def resized(page, width):
    """Resize the page; the plots follow the browser's resize event."""
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_function(
        """all => [...document.querySelectorAll(all)].every(e => Math.abs(
            e.querySelector('.main-svg').getBoundingClientRect().width - e.clientWidth) <= 1)""",
        arg=CURVES,
    )


def test_it_sends_no_external_request_and_logs_no_error(opened):
    _, watch, url = opened
    assert watch.requests == [url]
    assert watch.findings == []


def test_every_plot_has_traces_with_drawn_points(page):
    plots = page.evaluate(
        """all => [...document.querySelectorAll(all)].map(plot => ({
            name: plot.id,
            points: plot.data.map(trace => trace.x.length),
            drawn: [...plot.querySelectorAll(
                '.scatterlayer .js-line, .scatterlayer .point, .barlayer .point path'
            )].filter(e => { const box = e.getBBox(); return box.width + box.height > 0; }).length,
            height: plot.getBoundingClientRect().height,
        }))""",
        CURVES,
    )
    assert len(plots) >= len(PANELS) + 1
    for plot in plots:
        # A sweep of which every variant is as good as the others has none that is beaten.
        assert max(plot["points"]) > 0, plot
        assert plot["drawn"] >= sum(points > 0 for points in plot["points"]), plot
        assert plot["height"] > 100, plot


@pytest.mark.parametrize("width", (320, 380, 1280, 2560))
def test_it_is_readable_at_every_width(page, width):
    """Nobody scrolls sideways, letters are large enough, and no text of a plot is on another."""
    resized(page, width)
    assert overflow(page) == []
    assert small_texts(page) == []
    covered = page.evaluate(
        """all => [...document.querySelectorAll(all)].flatMap(plot => {
            const texts = [...plot.querySelectorAll('text')]
                .filter(e => e.textContent.trim() && e.getClientRects().length)
                .map(e => [e.textContent, e.getBoundingClientRect()]);
            const found = [];
            texts.forEach(([one, a], at) => texts.slice(at + 1).forEach(([other, b]) => {
                const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                if (width > 2 && height > 4) found.push(`${plot.id}: ${one} on ${other}`);
            }));
            return found;
        })""",
        CURVES,
    )
    assert covered == []


@pytest.mark.parametrize("scheme", ("light", "dark"))
def test_axe_finds_no_violation_and_lines_have_contrast(page, scheme):
    """Contrasts of what axe does not look at: WCAG's 4.5 for text, nearly 3 for lines of a plot."""
    page.emulate_media(color_scheme=scheme)
    assert breaches(page) == []
    weak = page.evaluate(
        """all => {
            const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
            const light = colour => numbers(colour).slice(0, 3).map(v => v / 255)
                .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
            const contrast = (one, other) => {
                const [a, b] = [light(one), light(other)].sort((x, y) => y - x);
                return (a + 0.05) / (b + 0.05);
            };
            const paper = getComputedStyle(document.body).backgroundColor;
            const weak = [];
            const parts = ['text', '.legendlines path', '.lines > .js-line'];
            for (const e of document.querySelectorAll(parts.map(p => `${all} ${p}`).join())) {
                const style = getComputedStyle(e);
                const isText = e.tagName === 'text';
                const colour = isText ? style.fill : style.stroke;
                if (isText && !e.textContent.trim() || colour === 'none') continue;
                // The edges of stacked areas, which are distinguished by the area's pattern.
                if (!isText && parseFloat(style.strokeWidth) < 1) continue;
                if (contrast(colour, paper) < (isText ? 4.5 : 2.9))
                    weak.push(`${e.tagName} ${e.textContent} ${colour} on ${paper}`);
            }
            return [...new Set(weak)];
        }""",
        CURVES,
    )
    assert weak == []


def test_no_colour_carries_meaning_alone(page):
    plots = page.evaluate(
        """all => [...document.querySelectorAll(all)].map(plot => {
            const shown = plot.data.filter(t => t.x.length && t.showlegend !== false);
            return {
                plot: plot.id,
                looks: shown.map(t => [t.line?.dash, t.fillpattern?.shape,
                                       t.marker?.pattern?.shape, t.marker?.symbol].join('|')),
                names: shown.map(t => t.name),
                legend: [...plot.querySelectorAll('.legendtext')].map(e => e.textContent),
            };
        })""",
        CURVES,
    )
    for plot in plots:
        assert len(set(plot["looks"])) == len(plot["looks"]), plot
        if len(plot["names"]) > 1:
            assert set(plot["names"]) <= set(plot["legend"]), plot


def test_drawings_have_text_alternatives(page):
    names = page.evaluate(
        """all => [...document.querySelectorAll(all)].map(
            e => document.getElementById(
                e.closest('[role=img]').getAttribute('aria-labelledby')).textContent)""",
        CURVES,
    )
    assert len(names) == len(set(names))
    assert all(re.search(r"\d", name) for name in names), names


def test_hovering_shows_the_values_of_one_time_in_all_curves_of_a_topic(page):
    curves = page.locator(SHARED)
    curves.first.scroll_into_view_if_needed()
    box = curves.first.bounding_box()
    for x in (0.6, 0.61):
        page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * 0.6)
    # The other plots follow the one under the pointer a frame later.
    page.wait_for_function(
        """([all, count]) => {
            const times = [...document.querySelectorAll(all)].slice(0, count)
                .map(plot => plot.querySelector('.hoverlayer').textContent)
                .map(text => text.match(/Jan 1, 2024, \\d\\d:\\d\\d/)?.[0]);
            return times[0] && new Set(times).size === 1;
        }""",
        arg=[SHARED, len(PANELS)],
    )
    assert "clean" in curves.first.evaluate("e => e.querySelector('.hoverlayer').textContent")
    page.mouse.move(0, 0)


def test_a_stretch_of_time_that_is_chosen_is_chosen_in_all_plots_of_a_topic(page):
    same = """([all, start]) => [...document.querySelectorAll(all)]
        .every(e => String(e.layout.xaxis.range[0]).startsWith(start))"""
    before = page.locator(SHARED).first.evaluate("e => e.layout.xaxis.range.map(String)")
    for first, last in (("2024-01-01 00:30", "2024-01-01 00:50"), before):
        page.locator(SHARED).nth(1).evaluate(
            "(e, range) => Plotly.relayout(e, {'xaxis.range': range})", [first, last]
        )
        page.wait_for_function(same, arg=[SHARED, first])


def test_in_print_every_plot_is_black_on_white_on_one_page_and_not_wider(page):
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 700, "height": 1000})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    boxes = page.evaluate(
        """all => [...document.querySelectorAll(all)].map(e => ({
            name: e.id, inside: getComputedStyle(e.closest('.plot')).breakInside,
            height: e.closest('.plot').getBoundingClientRect().height,
            right: e.querySelector('.main-svg').getBoundingClientRect().right,
        }))""",
        CURVES,
    )
    for box in boxes:
        assert box["inside"] == "avoid", box
        assert box["height"] < 900, box
        assert box["right"] <= 700, box
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(media="screen")
    resized(page, 1280)
