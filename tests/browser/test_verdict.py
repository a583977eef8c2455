"""Questions of an operator about a copied directory, and the answers at the top of the page."""

import json
import re
import shutil

import pytest
from playwright.sync_api import expect

from logstore import Broker, VirtualClock
from logstore.runtime import FixedWallClock
from tests.support.browser.chromium import Visitor
from tests.support.browser.page import go, settled

BINARY = bytes([0, 255, 1])
NAMES = ("due", "waiting", "damaged")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Logs that were never cleaned: one is due, one has no closed segment, one is damaged."""
    path = tmp_path_factory.mktemp("copied") / "logs"
    clock = VirtualClock()
    with Broker(path, clock=clock) as broker:
        for name in NAMES:
            broker.create_topic(name, configs={"cleanup.policy": "compact"})
            for number in range(120):
                value = json.dumps({"id": 9007199254740993 + number, "name": f"ann {number}"})
                headers = [("trace", b"t-%d" % number)] if number % 10 == 0 else []
                broker.append(
                    name, key=b"user-%d" % (number % 3), value=value.encode(), headers=headers
                )
            broker.append(name, key=BINARY, value=b"\xfe" * 8)
            clock.advance(minutes=1)
        for name in ("due", "damaged"):
            broker.roll(name)
            broker.append(name, key=b"user-1", value=b"last")
    segment = min((path / "damaged-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)
    return path


@pytest.fixture
def ui(directory):
    clock = FixedWallClock(1_704_153_600_000)
    with Broker(directory, read_only=True, on_damage="pass_over", clock=clock) as broker:
        yield broker.ui()


# After the broker, so that pages are closed before their server.
@pytest.fixture
def visitor(browser, ui):
    with Visitor(browser) as visitor:
        yield visitor


@pytest.fixture
def page(visitor, ui):
    return settled(visitor.visit(ui.url, accept_downloads=True))


def row(page, name):
    return page.get_by_role("row", name=re.compile(f"^{name}-0"))


def test_the_list_shows_damage_and_reclaimable_bytes(page):
    """Headers give upper bounds only, until exact values are computed."""
    summary = page.get_by_role("main").get_by_role("status")
    expect(summary).to_contain_text("3 partitions: 2 due (free at most")
    expect(summary).to_contain_text("1 waiting")
    expect(row(page, "due")).to_contain_text("≤")
    expect(row(page, "due")).to_contain_text("headers read")
    expect(row(page, "damaged")).to_contain_text("due")  # its damage is inside a batch
    expect(row(page, "waiting")).to_contain_text("0 B")
    assert page.locator("main .badge.is-good").count() == 0
    headers_only = page.get_by_text("which also finds damage")
    expect(headers_only).to_be_visible()
    page.get_by_role("button", name="Compute exact values").click()
    expect(row(page, "damaged")).to_contain_text("damaged")
    expect(row(page, "due")).not_to_contain_text("≤")
    expect(row(page, "due")).to_contain_text("records read")
    expect(summary).to_contain_text("3 partitions: 1 damaged, 1 due (free")
    expect(summary).not_to_contain_text("at most")
    expect(headers_only).to_have_count(0)
    page.get_by_role("combobox", name="Order").select_option("damage")
    expect(page.get_by_role("row").nth(1)).to_contain_text("damaged-0")


def test_a_partition_shows_its_verdict_first(page):
    go(page, "#/t/waiting/0")
    verdict = page.get_by_role("region", name="Verdict")
    expect(verdict).to_contain_text("No cleaning pass is due. A forced pass frees 0 B")
    expect(verdict).to_contain_text("logstore clean waiting --partition 0 --roll --data-dir")
    verdict.get_by_role("button", name="Compute exact values").click()
    expect(verdict).not_to_contain_text("at most")
    assert verdict.bounding_box()["y"] < 150
    go(page, "#/t/damaged/0")
    expect(verdict).to_contain_text("1 damaged range")
    expect(verdict).to_contain_text("logstore salvage")


def test_records_are_found_opened_and_saved(page, visitor):
    go(page, "#/t/due/0/records")
    form = page.get_by_role("search", name="Search of records")
    form.get_by_text("More conditions").click()
    form.get_by_label("Regular expression").fill("ann 1?7\\b")
    form.get_by_role("button", name="Search").click()
    found = page.get_by_role("main").get_by_role("status")
    expect(found).to_contain_text("2 records found, offsets 7 to 17; searched to the end")
    page.get_by_role("button", name="Record 17").click()
    opened = page.get_by_role("region", name="Records", exact=True)
    expect(opened).to_contain_text('"id": 9007199254741010')  # not rounded
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "due-0.jsonl"
    lines = download.value.path().read_text().splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [7, 17]
    opened.get_by_role("link", name="Records of this key").click()
    expect(found).to_contain_text("40 records found")
    form.get_by_text("More conditions").click()
    form.get_by_label("Name of a header").fill("trace")
    form.get_by_role("button", name="Search").click()
    expect(found).to_contain_text("4 records found")
    form.get_by_label("Regular expression").fill("(")
    form.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert")).to_contain_text("missing )")
    visitor.watch_of(page).expect("400 (Bad Request)")


def test_one_key_fits_on_one_screen(page):
    page.set_viewport_size({"width": 1280, "height": 850})
    go(page, "#/t/due/0/key")
    page.get_by_role("textbox", name="Key").fill("user-1")
    page.get_by_role("button", name="Find it").click()
    expect(page.get_by_role("main").get_by_role("status")).to_contain_text("41 records of this key")
    assert page.evaluate("document.documentElement.scrollHeight") <= 850
    rules = page.get_by_role("region", name="Locations of this key").get_by_role("row")
    assert rules.count() <= 4
    page.get_by_role("button", name="Show locations of live").click()
    expect(page.locator(".places")).to_contain_text(".log")


def test_a_binary_key_is_picked_from_the_top_keys(page):
    go(page, "#/t/due/0/stats")
    page.get_by_role("link", name="\\x00\\xff\\x01").click()
    expect(page.get_by_role("textbox", name="Key")).to_have_value("00ff01")
    expect(page.get_by_role("combobox", name="Format of the key")).to_have_value("hex")
    expect(page.get_by_role("main").get_by_role("status")).to_contain_text("1 record of this key")


def test_a_partial_copy_says_that_it_does_not_know(browser, directory, tmp_path):
    shutil.copytree(directory / "due-0", tmp_path / "due-0")
    with Broker(tmp_path, read_only=True) as broker, Visitor(browser) as visitor:
        page = settled(visitor.visit(broker.ui().url))
        expect(row(page, "due")).to_contain_text("unknown")
        expect(row(page, "due")).to_contain_text("(assumed)")
        expect(page.get_by_role("main")).to_contain_text("Assumed: no configuration of topic due")
        go(page, "#/cleaner")
        assert page.locator("main svg").count() == 0  # curves of a cleaner that does not run


def test_empty_partitions_are_one_line_until_they_are_wanted(browser, tmp_path):
    with Broker(tmp_path / "logs", clock=VirtualClock()) as broker:
        broker.create_topic("__consumer_offsets", partitions=50)
        broker.create_topic("users", configs={"cleanup.policy": "compact"})
        broker.append("users", key=b"k", value=b"v")
    with Broker(tmp_path / "logs", read_only=True) as broker, Visitor(browser) as visitor:
        page = settled(visitor.visit(broker.ui().url))
        grid = page.get_by_role("grid", name="Partitions")
        expect(grid).to_have_attribute("aria-rowcount", "2")
        main = page.get_by_role("main")
        expect(main).to_contain_text("50 empty partitions with nothing to do")
        expect(main.get_by_role("status")).to_contain_text("51 partitions")
        page.get_by_role("button", name="List them too").click()
        expect(grid).to_have_attribute("aria-rowcount", "52")
        page.reload()
        expect(grid).to_have_attribute("aria-rowcount", "52")
        page.get_by_role("button", name="Hide empty partitions").click()
        expect(grid).to_have_attribute("aria-rowcount", "2")
        page.get_by_label("Filter").fill("consumer")
        expect(grid).to_have_attribute("aria-rowcount", "51")


def test_missing_offsets_are_noted(browser, tmp_path):
    with Broker(tmp_path, clock=VirtualClock()) as broker:
        broker.create_topic("users", configs={"cleanup.policy": "compact"})
        for number in range(3):
            broker.append("users", key=b"k", value=b"%d" % number)
            broker.roll("users")
    (tmp_path / "users-0" / f"{1:020}.log").unlink()
    with Broker(tmp_path, read_only=True) as broker, Visitor(browser) as visitor:
        page = go(visitor.visit(broker.ui().url), "#/t/users/0")
        verdict = page.get_by_role("region", name="Verdict")
        expect(verdict).to_contain_text("Note: offsets 1..1 are missing between two segments")


def test_an_empty_directory_is_an_empty_page(browser, tmp_path):
    with Broker(tmp_path, read_only=True) as broker, Visitor(browser) as visitor:
        page = settled(visitor.visit(broker.ui().url))
        expect(page.get_by_role("main")).to_contain_text("no partitions in this directory")
