"""Navigation of the page of `logstore ui`, for tests and screenshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

POLL_MS = 50


def go(page: Page, place: str) -> Page:
    """Go to a location of the page, such as `#/t/users/0`, and wait until it has loaded."""
    page.evaluate("place => { location.hash = place }", place)
    return settled(page)


def settled(page: Page) -> Page:
    """Wait until the page has no request in progress.

    Polled by a timer, which does not depend on the frames that Chromium draws. A timeout's
    traceback ends with the page's content.
    """
    try:
        page.wait_for_function(
            """() => document.querySelector('main h1')
            && !document.querySelector('main .loading, main [aria-busy=true]')""",
            polling=POLL_MS,
        )
    except Exception as error:
        error.add_note(page.content())
        raise
    return page
