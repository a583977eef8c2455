"""Headless Chromium: find, start and watch it, check pages with axe, take screenshots.

A watched page may send requests to its own origin only and may not report problems: any other
request, any error or warning on its console, and any script error is a finding.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

NAMES = ("chromium", "google-chrome", "chromium-browser")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTHS = (380, 1280, 2560)
"""Widths of a phone, a desktop window and a large screen, in CSS pixels."""

HEIGHTS = {380: 800, 1280: 900, 2560: 1440}
TIMEOUT_MS = 120_000
"""Timeout of a single step, generous for slow machines; only a hang exceeds it."""


class ChromiumMissingError(Exception):
    """Chromium or its driver is not installed; the message names the missing part."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the Chromium that is installed.

    While it runs, the driver's event loop counts as running in this thread: `asyncio.run` is
    refused there until it is closed.

    Raises
    ------
    ChromiumMissingError
    """
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        raise ChromiumMissingError(f"none of {', '.join(NAMES)} is on the PATH")
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError as error:
        raise ChromiumMissingError(f"the driver is missing: {error}") from error
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """Findings about the pages of one browser context since its creation.

    Attributes
    ----------
    findings : list of str
        A test that provokes one takes it out with `expect`.
    requests : list of str
        URLs asked for, in their order.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.findings: list[str] = []
        self.requests: list[str] = []
        self._origins: set[str] = set()
        context.on("request", lambda request: self._asked(request.url))
        context.on("console", self._said)
        context.on("weberror", lambda error: self.findings.append(f"script: {error.error}"))
        context.on("page", lambda page: page.on("websocket", lambda ws: self._asked(ws.url)))

    def allow(self, url: str) -> None:
        """Allow requests to the origin of `url`."""
        self._origins.add(_origin(url))

    def expect(self, *parts: str) -> None:
        """Take findings out that have one of these texts; each text must be in one of them."""
        for part in parts:
            if not any(part in finding for finding in self.findings):
                raise AssertionError(f"nothing about {part!r} in {self.findings}")
        self.forgive(*parts)

    def forgive(self, *parts: str) -> None:
        """Remove findings that have one of these texts."""
        self.findings = [it for it in self.findings if not any(part in it for part in parts)]

    def _asked(self, url: str) -> None:
        self.requests.append(url)
        # These two kinds are embedded in the page itself.
        if urlsplit(url).scheme not in ("data", "blob") and _origin(url) not in self._origins:
            self.findings.append(f"request to another origin: {url}")

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            place = message.location
            self.findings.append(f"console: {message.text} ({place['url']}:{place['lineNumber']})")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class Visitor:
    """Watched browser pages, each in its own context (cookies, storage).

    As a context manager it closes the pages, and raises an `AssertionError` with the findings.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[tuple[BrowserContext, Watch]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        findings = self.close()
        if kind is None:
            assert not findings, "\n".join(findings)

    def visit(
        self, url: str, *, width: int = 1280, origins: Sequence[str] = (), **context: Any
    ) -> Page:
        """Open `url` in a new context; other arguments are playwright's context options."""
        size = {"width": width, "height": HEIGHTS.get(width, 900)}
        made = self._browser.new_context(viewport=size, **context)
        made.set_default_timeout(TIMEOUT_MS)
        watch = Watch(made)
        self._contexts.append((made, watch))
        for each in (url, *origins):
            watch.allow(each)
        page = made.new_page()
        page.goto(url)
        return page

    def watch_of(self, page: Page) -> Watch:
        """Return the watch of a page's context."""
        return next(watch for context, watch in self._contexts if context == page.context)

    def close(self) -> list[str]:
        """Close all pages and return every finding."""
        for context, _ in self._contexts:
            context.close()
        return [finding for _, watch in self._contexts for finding in watch.findings]


def breaches(page: Page) -> list[str]:
    """Return the violations of axe's rules on a page."""
    from axe_playwright_python.sync_playwright import Axe

    result = Axe().run(page).response["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {rule['help']}: "
        + "; ".join(f"{node['target']} {node['failureSummary']}" for node in rule["nodes"][:5])
        for rule in result
    ]


def overflow(page: Page) -> list[str]:
    """Return the elements that overflow the page horizontally and force the reader to scroll."""
    result: list[str] = page.evaluate(
        """() => {
        const width = document.documentElement.clientWidth;
        if (document.documentElement.scrollWidth <= width) return [];
        return [...document.body.querySelectorAll('*')]
            .filter(e => e.getBoundingClientRect().right > width + 1)
            .map(e => `${e.tagName}.${e.className} to ${e.getBoundingClientRect().right}`)
            .slice(0, 10).concat([`the page is ${document.documentElement.scrollWidth} wide`]);
    }"""
    )
    return result


def small_texts(page: Page, least_px: float = 11) -> list[str]:
    """Return the texts that are shown in letters smaller than `least_px`."""
    result: list[str] = page.evaluate(
        r"""least => [...document.body.querySelectorAll('*')]
        .filter(e => [...e.childNodes].some(
            n => n.nodeType === Node.TEXT_NODE && /\p{L}|\p{N}/u.test(n.data)))
        .filter(e => e.getClientRects().length)
        .map(e => [e.tagName, parseFloat(getComputedStyle(e).fontSize), e.textContent.trim()])
        .filter(([, size]) => size < least)
        .map(([tag, size, text]) => `${tag} ${size} px: ${text.slice(0, 40)}`)""",
        least_px,
    )
    return result


def photograph(
    page: Page,
    directory: Path,
    name: str,
    *,
    widths: Sequence[int] = WIDTHS,
    full_page: bool = False,
    before: Callable[[Page], object] = lambda page: None,
) -> list[Path]:
    """Write `name-WIDTH.png` for each width, and leave the page as wide as the last.

    Parameters
    ----------
    before : callable
        Makes the page ready after each change of its width.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for width in widths:
        page.set_viewport_size({"width": width, "height": HEIGHTS.get(width, 900)})
        before(page)
        paths.append(directory / f"{name}-{width}.png")
        page.screenshot(path=paths[-1], full_page=full_page, animations="disabled")
    return paths
