"""What clients name as they like, keys, values, headers, groups, is text, whatever it says."""

import pytest
from playwright.sync_api import expect

from tests.support.browser.page import go, settled

MARKUP = "<img src=x onerror=window.struck=1><script>window.struck=1</script>"
ADDRESS = "javascript:window.struck=1//"
AROUND = "\u202egnp.exe\u202c\"'`${1}{{1}}\\ &lt;b&gt; </td></table> \x00\x1b[31m"
"""Reverses the writing direction, and closes any context that may surround it."""


@pytest.fixture
def page(open_page, logstore_broker):
    broker = logstore_broker
    broker.create_topic("users", configs={"cleanup.policy": "compact", "segment.ms": "1000"})
    for name in (MARKUP, ADDRESS, AROUND):
        text = name.encode()
        broker.append("users", key=text, value=text, headers=[(name, text)])
        broker.clock.advance(seconds=2)
        consumer = broker.consumer("users", group_id=name, client_id=name)
        consumer.poll()
        consumer.commit()
    broker.append("users", key=MARKUP.encode(), value=None)
    producer = broker.producer(transactional_id=MARKUP, client_id=MARKUP)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("users", MARKUP.encode(), key=ADDRESS.encode())
    producer.flush()
    return open_page(broker.ui())


def nothing_struck(page):
    assert page.evaluate("window.struck") is None
    assert page.locator("main img").count() == 0
    assert page.locator("main a[href^='javascript:']").count() == 0


def test_groups_and_members_are_called_as_they_are(page):
    go(page, "#/groups")
    for name in (MARKUP, ADDRESS):
        expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    for summary in page.locator("summary").all():
        summary.click()
        settled(page)
        summary.click()
        settled(page)
    nothing_struck(page)
    page.get_by_role("link", name="users-0").first.click()
    expect(page.get_by_role("heading", name="users-0", level=1)).to_be_visible()


def test_records_are_shown_as_they_were_written(page):
    go(page, "#/t/users/0/records")
    main = page.get_by_role("main")
    expect(main).to_contain_text(MARKUP)
    for row in page.locator("main tbody tr").all():
        row.click()
        settled(page)
    for button in page.locator("main tbody button").all():
        button.click()
        settled(page)
    nothing_struck(page)


@pytest.mark.parametrize("name", (MARKUP, ADDRESS, AROUND))
def test_any_key_text_can_be_searched(page, name):
    go(page, "#/t/users/0/key")
    page.get_by_role("main").get_by_role("textbox").first.fill(name)
    page.keyboard.press("Enter")
    expect(page.get_by_role("main").get_by_role("status")).to_contain_text("of this key")
    locations = page.get_by_role("region", name="Locations of this key")
    locations.get_by_role("button").first.click()
    expect(locations).to_contain_text(".log")
    nothing_struck(page)
