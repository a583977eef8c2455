"""Chromium for the tests here: one of it a module, a context of its own for every page opened.

A test fails if its pages send requests to other origins, log an error or a warning to the console,
or raise in their scripts; `watch_of(page).expect(...)` exempts findings that a test provokes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import unavailable
from tests.support.browser.chromium import ChromiumMissingError, Visitor, chromium
from tests.support.browser.page import go
from tests.support.interop.judge import Unavailable


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is here needs Chromium: `make interop` runs it."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)


# Not one for the session: while it lives its event loop counts as running in this thread, and the
# tests of other folders run loops of their own.
@pytest.fixture(scope="module")
def browser() -> Iterator:
    try:
        with chromium() as running:
            yield running
    except ChromiumMissingError as error:
        unavailable(Unavailable(str(error)))


# After the broker, so that pages are closed before their server.
@pytest.fixture
def visitor(browser, logstore_broker) -> Iterator[Visitor]:
    with Visitor(browser) as visitor:
        yield visitor


@pytest.fixture
def open_page(visitor):
    """Return a function that opens the page of a `Ui`, or one of its places, in a new context."""

    def opened(ui, place="#/", **options):
        page = visitor.visit(ui.url, **options)
        return go(page, place)

    return opened
