"""Settings, operations and the clock of the page, by keyboard."""

import json
import re

import pytest
from playwright.sync_api import expect

from logstore import Broker, TopicPartition, VirtualClock
from tests.support.browser.chromium import breaches, overflow

REFUSED = "400 (Bad Request)"
ASKED = "409 (Conflict)"


@pytest.fixture
def users(logstore_broker):
    """A broker with a topic of several segments; its page is opened at the partition."""
    configs = {"cleanup.policy": "compact,delete", "retention.ms": "30d"}
    logstore_broker.create_topic("users", partitions=1, configs=configs)
    for name in (b"ann", b"anna", b"anne"):
        logstore_broker.append_many("users", [(b"%d" % key, name) for key in range(5)])
        logstore_broker.clock.advance(hours=1)
        logstore_broker.roll("users", 0)
    return logstore_broker


def field(page, key):
    return page.get_by_role("textbox", name=key, exact=True)


def changes(page):
    return page.get_by_role("region", name="Pending changes")


def previewed(page):
    """The panel, once it has an answer."""
    panel = page.get_by_role("region", name="Preview")
    expect(panel.locator("table").first).to_be_visible()
    expect(panel).to_have_attribute("aria-busy", "false")
    return panel


# -- settings ------------------------------------------------------------------------------


def test_a_setting_shows_its_exact_number_origin_and_default(open_page, users):
    page = open_page(users.ui(), "#/t/users/settings")
    retention = field(page, "retention.ms")

    expect(retention).to_have_value("30d")
    expect(retention).to_have_accessible_description(re.compile("= 2,592,000,000 ms"))
    expect(retention).to_have_accessible_description(
        re.compile("This is set for this topic. When unset: the default, 7d")
    )
    expect(field(page, "segment.bytes")).to_have_value("1GiB")


def test_an_invalid_value_is_reported_and_corrected_at_its_field(open_page, visitor, users):
    page = open_page(users.ui(), "#/t/users/settings")
    ratio = field(page, "min.cleanable.dirty.ratio")
    ratio.fill("2")

    expect(ratio).to_have_attribute("aria-invalid", "true")
    expect(ratio).to_have_accessible_description(re.compile("must be a number from 0 to 1"))
    ratio.fill("0.2")
    expect(ratio).not_to_have_attribute("aria-invalid", "true")
    expect(previewed(page)).to_contain_text("Not saved yet")
    visitor.watch_of(page).expect(REFUSED)


def test_an_unknown_name_is_met_with_the_nearest(open_page, visitor, users):
    page = open_page(users.ui(), "#/t/users/settings")
    page.get_by_role("textbox", name="Change a setting by its name").fill("retenton.ms=9d")
    page.get_by_role("button", name="Add to the changes").click()

    expect(changes(page)).to_contain_text("the nearest is 'retention.ms'")
    changes(page).get_by_role("button", name="Use retention.ms").click()
    expect(field(page, "retention.ms")).to_have_value("9d")
    page.get_by_role("searchbox", name="Search the settings").fill("retenshun.bytes")
    page.get_by_role("button", name="retention.bytes").click()
    expect(field(page, "retention.bytes")).to_be_visible()
    expect(field(page, "segment.ms")).to_have_count(0)
    visitor.watch_of(page).expect(REFUSED)


def test_restored_values_are_not_changes(open_page, users):
    page = open_page(users.ui(), "#/t/users/settings")
    retention = field(page, "retention.ms")
    retention.fill("9d")
    expect(changes(page)).to_contain_text("1 change.")
    retention.fill("30d")
    expect(changes(page)).to_contain_text("None.")
    page.get_by_role("button", name="Unset retention.ms").click()
    expect(retention).to_have_value("7d")
    page.get_by_role("button", name="Undo retention.ms", exact=True).click()
    expect(retention).to_have_value("30d")
    expect(changes(page)).to_contain_text("None.")


def test_retention_that_deletes_records_is_confirmed_once(open_page, visitor, users):
    page = open_page(users.ui(), "#/t/users/settings")
    field(page, "retention.ms").fill("90m")
    expect(previewed(page)).to_contain_text("The change would lose data.")

    changes(page).get_by_role("button", name="Set 1 change").click()
    dialog = page.get_by_role("dialog", name="Set 1 change?")
    expect(dialog.get_by_role("alert")).to_be_focused()
    expect(dialog).to_contain_text(re.compile(r"Records\s*10"))
    assert breaches(page) == []
    assert users.topic("users").configs["retention.ms"] == "2592000000"
    dialog.get_by_role("button", name="Set anyway").click()
    expect(dialog).to_have_count(0)
    expect(changes(page)).to_contain_text("None.")
    done = page.get_by_role("log", name="Completed operations on users")
    expect(done).to_contain_text("retention.ms set to 90m")
    expect(done).to_contain_text("logstore topic alter --set retention.ms=90m")
    assert users.topic("users").configs["retention.ms"] == "5400000"
    visitor.watch_of(page).expect(ASKED)


def test_a_broker_setting_is_changed_for_one_or_for_all(open_page, users):
    page = open_page(users.ui(), "#/broker")
    field(page, "log.cleaner.threads").fill("2")
    changes(page).get_by_role("radio", name="all brokers of the cluster").check()
    changes(page).get_by_role("button", name="Set 1 change").click()

    expect(changes(page)).to_contain_text("None.")
    expect(field(page, "log.cleaner.threads")).to_have_accessible_description(
        re.compile("set for all brokers of the cluster")
    )
    found = users.describe_broker_configs()["log.cleaner.threads"]
    assert (found.value, found.origin) == ("2", "dynamic default")
    # A setting of the configuration file is not a field.
    expect(field(page, "log.cleaner.enable")).to_have_count(0)


# -- operations ----------------------------------------------------------------------------

DIALOGS = {
    "Roll …": "Roll users-0",
    "Clean …": "Clean users-0",
    "Apply retention …": "Apply retention to users-0",
    "Delete records …": "Delete records of users-0",
}


def test_dialogs_open_on_their_form_and_give_the_focus_back(open_page, users):
    page = open_page(users.ui(), "#/t/users/0", width=320)
    for label, title in DIALOGS.items():
        button = page.get_by_role("button", name=label)
        button.focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name=title)
        expect(dialog.locator("form :focus")).to_have_count(1)
        if label != "Delete records …":
            expect(dialog).to_contain_text("logstore ")
        assert breaches(page) == []
        assert overflow(page) == []
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(button).to_be_focused()


def test_cleaning_is_dry_run_when_options_are_ticked(open_page, users):
    users.append("users", key=b"1", value=b"last")
    page = open_page(users.ui(), "#/t/users/0")
    page.get_by_role("button", name="Clean …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("row", name=re.compile("Records"))).to_have_text(
        re.compile(r"Records\s*15\s*5")
    )
    dialog.get_by_role("checkbox", name="Roll the active segment first").check()
    expect(dialog.get_by_role("row", name=re.compile("Records"))).to_have_text(
        re.compile(r"Records\s*16\s*5")
    )
    expect(dialog).to_contain_text("--roll")
    dialog.get_by_role("button", name="Clean", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("log")).to_contain_text("11 records removed")
    expect(page.get_by_role("button", name="Clean …")).to_be_focused()
    values = [record.value for record in users.read("users", 0, offset=0)]
    assert values == [b"anne", b"anne", b"anne", b"anne", b"last"]


def test_records_are_deleted_up_to_the_first_of_a_time(open_page, visitor, users):
    page = open_page(users.ui(), "#/t/users/0")
    page.get_by_role("button", name="Delete records …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("radio", name="the first record at or after a time").check()
    expect(dialog.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
    dialog.get_by_label("Time (UTC)").fill("2024-01-01T01:00:00")

    expect(dialog).to_contain_text("The first remaining record has offset 5")
    expect(dialog).to_contain_text("anna")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("5 records")
    dialog.get_by_role("button", name="Delete permanently").click()
    expect(dialog).to_have_count(0)
    assert users.log("users", 0).log_start_offset == 5
    visitor.watch_of(page).expect(ASKED)


def test_a_loss_that_is_another_one_meanwhile_is_asked_about_again(open_page, visitor, users):
    page = open_page(users.ui(), "#/t/users/0")
    page.get_by_role("button", name="Delete records …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Offset").fill("10")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("10 records")
    users.delete_records({TopicPartition("users", 0): 4})
    dialog.get_by_role("button", name="Delete permanently").click()

    expect(dialog.get_by_role("alert")).to_contain_text("6 records")
    assert users.log("users", 0).log_start_offset == 4
    dialog.get_by_role("button", name="Delete permanently").click()
    expect(dialog).to_have_count(0)
    assert users.log("users", 0).log_start_offset == 10
    visitor.watch_of(page).expect(ASKED)


def test_a_topic_goes_once_its_name_is_typed_and_its_loss_confirmed(open_page, visitor, users):
    page = open_page(users.ui(), "#/t/users")
    page.get_by_role("button", name="Delete the topic …").click()
    dialog = page.get_by_role("dialog", name="Delete topic users")
    delete = dialog.get_by_role("button", name="Delete", exact=True)
    expect(delete).to_be_disabled()
    dialog.get_by_role("textbox").fill("users")
    delete.click()
    expect(dialog.get_by_role("alert")).to_contain_text("15 records")
    dialog.get_by_role("button", name="Delete permanently").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Partitions")
    expect(page.get_by_role("log", name="Completed operations")).to_contain_text(
        "Deleted topic users"
    )
    assert users.topics() == []
    visitor.watch_of(page).expect(ASKED)


def test_a_copied_directory_offers_previews_and_no_deed(open_page, visitor, users, tmp_path):
    copied = tmp_path / "copied"
    with Broker(copied, clock=VirtualClock()) as written:
        written.create_topic("users", configs={"cleanup.policy": "compact"})
        written.append_many("users", [(b"1", b"ann"), (b"1", b"anna")])
        written.roll("users")
    with Broker(copied, read_only=True) as broker:
        page = open_page(broker.ui(), "#/t/users/settings")
        expect(page.get_by_role("main")).to_contain_text("Read-only:")
        field(page, "min.cleanable.dirty.ratio").fill("0.1")
        expect(previewed(page)).to_contain_text("users-0")
        expect(page.get_by_role("button", name=re.compile("^Set"))).to_have_count(0)
        for place in ("#/", "#/t/users", "#/t/users/0", "#/cleaner", "#/broker", "#/groups"):
            page.evaluate("place => { location.hash = place }", place)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.locator("button[aria-haspopup=dialog]")).to_have_count(0)
        visitor.close()


# -- time ----------------------------------------------------------------------------------


@pytest.mark.logstore(background=True)
def test_the_clock_goes_to_the_next_event_and_names_it(open_page, logstore_broker):
    calls = []
    logstore_broker.clock.advance(seconds=1)
    logstore_broker.runtime.scheduler.schedule("tea-time", lambda: calls.append(1), delay_ms=1500)
    page = open_page(logstore_broker.ui())
    clock = page.get_by_role("region", name="Virtual clock")
    expect(clock).to_contain_text("Next: tea-time, in 1s 500ms")
    clock.get_by_role("button", name="To the next event").click()

    expect(clock).to_contain_text("2024-01-01 00:00:02.500Z")
    assert calls == [1]


def test_a_long_move_shows_how_far_it_is_and_can_be_stopped(open_page, logstore_broker):
    start = logstore_broker.clock.now_ms()
    page = open_page(logstore_broker.ui())
    asked = []

    def halfway(route):
        asked.append(route.request.post_data_json)
        stands = {"kind": "virtual", "now_ms": start + 1000, "to_ms": start + 2000}
        body = json.dumps({**stands, "is_done": False, "next_event_ms": None, "steps": 1})
        route.fulfill(body=body, content_type="application/json")

    page.route("**/api/clock", halfway)
    clock = page.get_by_role("region", name="Virtual clock")
    clock.get_by_text("Advance the clock").click()
    clock.get_by_role("textbox", name="Duration").fill("2s")
    clock.get_by_role("button", name="Move forward").click()
    expect(clock.get_by_role("progressbar", name="Advancing the clock")).to_have_attribute(
        "value", "0.5"
    )
    clock.get_by_role("button", name="Stop").click()
    expect(clock.get_by_role("progressbar")).to_have_count(0)
    expect(clock.get_by_role("button", name="Move forward")).to_be_enabled()
    assert asked[0] == {"by_ms": 2000}
    assert asked[1] == {"to_ms": start + 2000}


def test_the_slider_speaks_in_durations(open_page, logstore_broker):
    page = open_page(logstore_broker.ui())
    clock = page.get_by_role("region", name="Virtual clock")
    clock.get_by_text("Advance the clock").click()
    slider = clock.get_by_role("slider", name="Forward by")
    slider.focus()
    page.keyboard.press("End")

    expect(slider).to_have_attribute("aria-valuetext", "365d")
    expect(clock.get_by_role("textbox", name="Duration")).to_have_value("365d")
    clock.get_by_role("textbox", name="Duration").fill("soon")
    expect(clock.get_by_role("button", name="Move forward")).to_be_disabled()
    assert breaches(page) == []
