"""Many rows, and a broken connection: only visible rows are drawn, and the page catches up."""

import re

import pytest
from playwright.sync_api import expect

from tests.support.browser.page import go

DRAWN_MAX = 2_000
"""Elements of a page, however much there is to show."""


@pytest.fixture
def many(logstore_broker):
    for number in range(20):
        logstore_broker.create_topic(f"topic-{number:02}", partitions=100)
    return logstore_broker


def drawn(page):
    return page.locator("main *").count()


def test_only_visible_partitions_are_requested_and_drawn(open_page, visitor, many):
    page = open_page(many.ui())
    expect(page.get_by_role("main")).to_contain_text(re.compile("2[, ]?000 partitions"))
    page.get_by_role("button", name="List them too").click()
    grid = page.get_by_role("grid", name="Partitions")
    assert grid.get_attribute("aria-rowcount") == "2001"
    assert 10 < page.get_by_role("row").count() < 100
    assert drawn(page) < DRAWN_MAX
    asked = [url for url in visitor.watch_of(page).requests if "/api/partitions?" in url]
    assert all(int(re.search(r"count=(\d+)", url)[1]) <= 200 for url in asked)

    # The last ones, by the scrollbar.
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    page.evaluate(
        "document.querySelectorAll('main *').forEach(e => { e.scrollTop = e.scrollHeight; })"
    )
    expect(page.get_by_role("link", name="topic-19-99", exact=True)).to_be_visible()
    assert page.get_by_role("row").count() < 100
    assert page.get_by_role("link", name="topic-10-0", exact=True).count() == 0

    # One of them, by its name.
    page.get_by_role("searchbox", name="Filter").fill("topic-07-42")
    expect(page.get_by_role("row")).to_have_count(2)


def test_a_strip_of_a_thousand_segments_is_drawn_in_bounds(open_page, logstore_broker):
    config = {"segment.bytes": "200", "cleanup.policy": "compact"}
    logstore_broker.create_topic("users", partitions=1, configs=config)
    for number in range(1_000):
        logstore_broker.append("users", key=b"%d" % (number % 9), value=b"v" * 100)
    page = open_page(logstore_broker.ui(), "#/t/users/0")
    expect(page.get_by_role("main")).to_contain_text(re.compile("dirty:? 999 segments"))
    assert drawn(page) < DRAWN_MAX
    assert page.locator(".segment-map *").count() < 1_000
    go(page, "#/t/users/0/records")
    expect(page.get_by_role("main").get_by_text("v" * 20).first).to_be_visible()
    assert drawn(page) < DRAWN_MAX


def test_a_disconnected_page_shows_it_and_catches_up(open_page, visitor, logstore_broker):
    broker = logstore_broker
    broker.create_topic("users", partitions=1)
    ui = broker.ui()
    page = open_page(ui, "#/t/users/0")
    state = page.get_by_role("banner").get_by_role("status").first
    expect(state).to_contain_text("Live")
    host, port = ui.address
    ui.close()
    expect(state).to_contain_text("Connection lost")
    broker.append("users", key=b"1", value=b"ann")
    broker.ui(host, port, token=ui.token)
    page.get_by_role("button", name="Reconnect now").click()
    expect(state).to_contain_text("Live")
    expect(page.get_by_role("main")).to_contain_text(re.compile(r"Log end offset\s*1"))
    # Whether Chromium reports it depends on the time of its next request.
    visitor.watch_of(page).forgive("net::ERR_")
