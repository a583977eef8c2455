"""The page for everyone: by keyboard, by ear, on a phone and a wall, in the dark."""

import pytest
from playwright.sync_api import expect

from tests.support.browser.chromium import breaches, overflow, small_texts
from tests.support.browser.page import go
from tests.support.browser.world import PARTS, PLACES, fill


@pytest.fixture
def page(open_page, logstore_broker):
    fill(logstore_broker)
    return open_page(logstore_broker.ui())


@pytest.mark.parametrize("scheme", ("light", "dark"))
def test_axe_finds_nothing_anywhere(page, scheme):
    page.emulate_media(color_scheme=scheme)
    found = {}
    for place in PLACES:
        go(page, place)
        found[place] = breaches(page)
    go(page, "#/t/users/0")
    for button in ("Roll …", "Clean …", "Apply retention …", "Delete records …"):
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        found[button] = breaches(page)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    assert {where: breach for where, breach in found.items() if breach} == {}


def test_every_page_is_readable_from_a_phone_to_a_wall(page):
    """The smallest of WCAG, the narrow ones, and 4K; one name is as long as German ones are."""
    found = {}
    for place in PLACES:
        go(page, place)
        for width in (320, 380, 1280, 2560, 3840):
            page.set_viewport_size({"width": width, "height": 900})
            found[place, width] = overflow(page) + small_texts(page)
    assert {where: what for where, what in found.items() if what} == {}


def test_every_page_has_a_title_and_respects_reduced_motion(page):
    page.emulate_media(reduced_motion="reduce")
    titles = []
    for place in PLACES:
        go(page, place)
        titles.append(page.title())
        moving = page.evaluate(
            """() => document.getAnimations().filter(it => it.playState === 'running').length"""
        )
        assert moving == 0, place
    assert len(set(titles)) == len(titles) - len(PARTS)


def focused(page):
    return page.evaluate(
        """() => { const e = document.activeElement;
        const name = e.getAttribute('aria-label') ?? e.labels?.[0]?.textContent ?? e.textContent;
        return name.trim().replace(/\\s+/g, ' '); }"""
    )


def tab_to(page, name, most=80):
    """Press Tab until something of that name has the focus; it must be seen to have it."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if focused(page) == name:
            shown = page.evaluate(
                """() => { const style = getComputedStyle(document.activeElement);
                return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1
                    || style.boxShadow !== 'none'; }"""
            )
            assert shown, f"nothing shows that {name} has the focus"
            return
    raise AssertionError(f"Tab does not lead to {name!r}, the last was {focused(page)!r}")


def test_from_the_list_to_a_cleaned_partition_without_a_mouse(page, logstore_broker):
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.keyboard.press("Enter")
    tab_to(page, "Filter")
    page.keyboard.type("users-0")
    expect(page.get_by_role("row")).to_have_count(2)
    tab_to(page, "users-0")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="users-0", level=1)).to_be_visible()

    # A segment of the segment map, opened and left again.
    strip = page.locator(".segment-map [tabindex='0']").first
    strip.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_contain_text("Batches")

    # An action: the focus moves into the dialog, stays there, and returns.
    go(page, "#/t/users/0")
    tab_to(page, "Clean …")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Clean users-0")
    expect(dialog).to_be_visible()
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body"  # the browser's own controls come between
            " || document.activeElement.closest('dialog') !== null"
        )
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)  # hidden at once, gone with its event
    assert focused(page) == "Clean …"
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    tab_to(page, "Clean")
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("main")).to_contain_text("clean: 1 segment")
    assert focused(page) != ""
    assert logstore_broker.explain("users", 0).partitions[0].will_clean is False


def test_times_are_shown_in_utc_and_in_local_time(open_page, logstore_broker):
    fill(logstore_broker)
    page = open_page(logstore_broker.ui(), "#/", timezone_id="Europe/Vienna")
    bar = page.get_by_role("region", name="Virtual clock")
    expect(bar).to_contain_text("2024-01-07 00:00:00.000Z")
    page.get_by_role("button", name="Times in UTC").click()
    expect(bar).to_contain_text("2024-01-07 01:00:00.000")
