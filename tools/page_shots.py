"""Photographs of the page, for docs/PAGE.md: `python -m tools.page_shots`.

Needs Chromium. The broker behind it is in memory and its time virtual, so nothing but the fonts of
the machine makes one run differ from another.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

from logstore import Broker, VirtualClock
from tests.support.browser.chromium import Visitor, chromium, photograph
from tests.support.browser.page import go, settled
from tests.support.browser.world import fill

DIRECTORY = Path(__file__).parents[1] / "docs" / "page"
COLOURS = 64
"""Enough for a page of few colours; a third of the bytes."""


def main() -> None:
    with Broker(clock=VirtualClock(), seed=1) as broker, chromium() as browser:
        fill(broker)
        broker.clean("users", partition=1, roll=True, force=True)
        with Visitor(browser) as visitor:
            page = visitor.visit(broker.ui().url)
            settled(page)
            written = photograph(page, DIRECTORY, "partitions", widths=(1280,))
            go(page, "#/t/users/0")
            written += photograph(page, DIRECTORY, "partition", before=settled)
            page.set_viewport_size({"width": 1280, "height": 900})
            go(page, "#/t/users/settings")
            page.get_by_role("textbox", name="min.cleanable.dirty.ratio").fill("0.9")
            page.get_by_role("region", name="Preview").get_by_text("users-0").first.wait_for()
            settled(page)
            page.emulate_media(color_scheme="dark")
            written += photograph(page, DIRECTORY, "settings", widths=(1280,))
    for path in written:
        with Image.open(path) as image:
            image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB", file=sys.stderr)


if __name__ == "__main__":
    main()
