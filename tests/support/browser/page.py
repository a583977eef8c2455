"""The page of `logstore ui`, as tests and the scripts that photograph it go about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def go(page: Page, place: str) -> Page:
    """Go to a place of the page, as `#/t/users/0`, and wait until it shows what it asked for."""
    page.evaluate("place => { location.hash = place }", place)
    return settled(page)


def settled(page: Page) -> Page:
    """Wait until nothing of the page is being asked for."""
    page.wait_for_function(
        """() => document.querySelector('main h1')
        && !document.querySelector('main .loading, main [aria-busy=true]')"""
    )
    return page
