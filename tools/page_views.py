"""Screenshots of every view of the page: `python -m tools.page_views`.

For looking at, not for the documentation: each view at three widths, light and dark, in
build/page-views or the given directory. Violations of axe's rules and horizontal overflow are
printed, and the exit code is 1 if there are any. Needs Chromium.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from logstore import Broker
from logstore.runtime import FixedWallClock
from tests.support.browser.chromium import Visitor, breaches, chromium, overflow
from tests.support.browser.page import go, settled
from tests.support.world import operator_directory

if TYPE_CHECKING:
    from playwright.sync_api import Page

VIEWS = {
    "list": "#/",
    "partition": "#/t/users/0",
    "damaged": "#/t/orders/0",
    "gap": "#/t/payments/0",
    "unknown": "#/t/copied-from-another-cluster/0",
    "key": "#/t/users/0/key?key=bob",
    "records": "#/t/users/0/records",
    "stats": "#/t/users/0/stats",
    "settings": "#/t/users/settings",
}
SIZES = {380: 800, 1280: 850, 2560: 1440}


def prepare(page: Page, name: str) -> None:
    """Open the first record, or look up the first key."""
    if name == "records":
        page.get_by_role("button", name="Record 1", exact=True).first.click()
    if name == "key" and page.get_by_role("button", name="Find it").count():
        page.get_by_role("button", name="Find it").click()
    settled(page)


def main(target: Path) -> int:
    """Write the screenshots, and return the exit code."""
    target.mkdir(parents=True, exist_ok=True)
    found = []
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path = Path(folder) / "kafka-logs"
        operator_directory.build(path)
        clock = FixedWallClock(operator_directory.NOW_MS)
        with (
            Broker(path, read_only=True, on_damage="pass_over", clock=clock) as broker,
            Visitor(browser) as visitor,
        ):
            page = settled(visitor.visit(broker.ui().url))
            for name, place in VIEWS.items():
                go(page, "#/broker")  # closes the previous view
                go(page, place)
                prepare(page, name)
                for scheme in ("light", "dark"):
                    page.emulate_media(color_scheme=scheme)
                    for width, height in SIZES.items():
                        page.set_viewport_size({"width": width, "height": height})
                        settled(page)
                        shot = target / f"{name}-{width}-{scheme}.png"
                        page.screenshot(path=shot, animations="disabled")
                        found += [f"{shot.stem}: {text}" for text in overflow(page)]
                    found += [f"{name} {scheme}: {text}" for text in breaches(page)]
    print("\n".join(found) or "no violation, no overflow", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(*sys.argv[1:] or ("build/page-views",))))
