"""The list of partitions and the segment map, with more of them than a screen holds."""

import re

import pytest
from playwright.sync_api import expect

from logstore import Broker, VirtualClock
from tests.support.browser.chromium import Visitor
from tests.support.browser.page import go

PARTITIONS = 2_000
SEGMENTS = 600
DRAWN_MAX = 80
"""Rows of a screen and a half on either side; of thousands, nearly nothing."""


@pytest.fixture(scope="module")
def ui():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("many", partitions=PARTITIONS)
        broker.create_topic("small", configs={"cleanup.policy": "compact", "segment.bytes": "200"})
        for number in range(SEGMENTS):
            broker.append("small", key=b"%d" % number, value=b"x" * 100)
        yield broker.ui()


@pytest.fixture
def page(browser, ui):
    with Visitor(browser) as visitor:
        yield go(visitor.visit(ui.url), "#/?sort=name&empty=1")


def test_of_thousands_of_rows_only_those_in_view_are_drawn(page):
    grid = page.get_by_role("grid", name="Partitions")
    expect(grid).to_have_attribute("aria-rowcount", str(PARTITIONS + 2))
    rows = grid.locator(".table-body .row")
    assert rows.count() < DRAWN_MAX
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    last = grid.get_by_role("link", name="small-0")
    expect(last).to_be_in_viewport()
    assert rows.count() < DRAWN_MAX


def test_keys_move_through_the_list_and_the_position_is_restored(page):
    page.get_by_role("link", name="many-0", exact=True).focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("link", name="many-1", exact=True)).to_be_focused()
    page.keyboard.press("Control+End")
    page.keyboard.press("Home")
    expect(page.get_by_role("link", name="small-0")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("link", name="many-1999", exact=True)).to_be_focused()
    scrolled = page.evaluate("scrollY")
    assert scrolled > 10_000

    # Away by the wheel: the row that has the focus stays, whatever is drawn.
    page.evaluate("scrollTo(0, 0)")
    expect(page.get_by_role("link", name="many-0", exact=True)).to_be_in_viewport()
    expect(page.get_by_role("link", name="many-1999", exact=True)).to_be_focused()
    page.evaluate("y => scrollTo(0, y)", scrolled)

    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("many-1999")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    expect(page).to_have_title("many-1999 – logstore")
    page.go_back()
    expect(page.get_by_role("link", name="many-1999", exact=True)).to_be_focused()
    expect(page).to_have_title("Partitions – logstore")
    expect(page.get_by_role("link", name="many-1999", exact=True)).to_be_in_viewport()


def test_a_filter_and_an_order_are_part_of_the_address(page):
    page.get_by_label("Filter").fill("small")
    grid = page.get_by_role("grid", name="Partitions")
    expect(grid).to_have_attribute("aria-rowcount", "2")
    page.get_by_role("button", name="Size").click()
    expect(page.get_by_role("columnheader", name="Size")).to_have_attribute(
        "aria-sort", "descending"
    )
    assert "filter=small" in page.url
    assert "sort=bytes" in page.url
    page.reload()
    expect(page.get_by_label("Filter")).to_have_value("small")
    expect(grid).to_have_attribute("aria-rowcount", "2")
    page.get_by_label("Filter").fill("nothing is called so")
    expect(page.get_by_text("No partition name contains")).to_be_visible()


def test_a_strip_of_many_segments_is_summed_up_and_opens_down_to_records(page):
    go(page, "#/t/small/0")
    strip = page.get_by_role("toolbar", name="Segments")
    bars = strip.get_by_role("button")
    expect(page.get_by_text("All 600 segments")).to_be_visible()
    assert bars.count() < SEGMENTS / 2
    bars.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expect(bars.first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("of 600", exact=False).first).to_contain_text("Segments 1 to")
    expect(bars.first).to_have_accessible_name(re.compile(r"^Segment 0, dirty, \d+ B, 1 record$"))
    expect(bars.first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Segment 0", exact=True)).to_be_focused()
    page.get_by_role("button", name="Records of the batch at 0").click()
    records = page.get_by_role("region", name="Records of the batch at 0")
    expect(records).to_contain_text("x" * 100)
    page.get_by_role("button", name="Close", exact=True).first.click()
    expect(bars.first).to_be_focused()
    page.keyboard.press("0")
    expect(page.get_by_text("All 600 segments")).to_be_visible()
