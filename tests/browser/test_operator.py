"""The page of an operator's directory: readable in every view, and as truthful as `clean --out`."""

import json
from contextlib import suppress

import pytest
from click.testing import CliRunner
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import expect

from logstore import Broker
from logstore.cli.main import main
from logstore.reasons.formats import format_size
from logstore.runtime import FixedWallClock
from tests.support.browser.chromium import Visitor, breaches, overflow, small_texts
from tests.support.browser.page import go, settled
from tests.support.world import operator_directory
from tools.page_views import SIZES, VIEWS, prepare


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("copied") / "kafka-logs"
    operator_directory.build(path)
    return path


@pytest.fixture
def ui(directory):
    clock = FixedWallClock(operator_directory.NOW_MS)
    with Broker(directory, read_only=True, on_damage="pass_over", clock=clock) as broker:
        yield broker.ui()


# After the broker, so that pages are closed before their server.
@pytest.fixture
def page(browser, ui):
    with Visitor(browser) as visitor:
        yield settled(visitor.visit(ui.url))


def test_every_view_is_readable_in_both_themes(page):
    found = {}
    for name, place in VIEWS.items():
        go(page, place)
        prepare(page, name)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found[name, scheme] = breaches(page)
        for width, height in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            found[name, width] = overflow(page) + small_texts(page)
    assert {where: what for where, what in found.items() if what} == {}


def test_a_row_of_the_key_fits_a_phone(page):
    page.set_viewport_size({"width": 380, "height": 800})
    go(page, VIEWS["key"])
    rows = page.get_by_role("region", name="Locations of this key")
    expect(rows).to_contain_text("superseded")
    assert rows.evaluate("element => element.scrollWidth <= element.clientWidth")


def cleaned(directory, target, topic, *flags):
    """Clean a copy of a partition, and return the freed bytes; None if that is refused."""
    arguments = ["clean", topic, "--partition", "0", *flags, "--out", str(target)]
    arguments += ["--data-dir", str(directory), "--now", str(operator_directory.NOW_MS)]
    done = CliRunner().invoke(main, [*arguments, "--format", "json"])
    if done.exit_code:
        return None
    passes = json.loads(done.stdout)["cleaned"]
    return sum(each["bytes_read"] - each["bytes_written"] for each in passes)


def exact(page, verdict):
    """Return the text of a verdict on all records; the page may replace the button meanwhile."""
    button = verdict.get_by_role("button", name="Compute exact values")
    for _ in range(300):
        text = verdict.inner_text()
        if text.startswith("damaged") or "at most" not in text:
            return text
        with suppress(PlaywrightError):
            button.click(timeout=200)
        page.wait_for_timeout(100)
    pytest.fail(text)


@pytest.mark.parametrize("topic", ("users", "sessions", "orders", "payments", "audit", "both"))
def test_the_verdict_of_the_page_is_what_a_cleaned_copy_frees(page, directory, tmp_path, topic):
    go(page, f"#/t/{topic}/0")
    verdict = page.get_by_role("region", name="Verdict")
    text = exact(page, verdict)
    force = () if text.startswith("due") else ("--force",)
    freed = cleaned(directory, tmp_path / "now", topic, *force)
    if topic == "orders":
        assert text.startswith("damaged")
        assert freed is None
        return
    assert f"frees {format_size(freed)} of " in text
    rolled = cleaned(directory, tmp_path / "rolled", topic, *force, "--roll")
    if rolled != freed:
        assert f"{format_size(rolled)} if the active segment were rolled first" in text
