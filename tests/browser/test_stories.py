"""What operators come for, from the first click to the last: seen and done in the page alone."""

import re

import pytest
from playwright.sync_api import expect

from logstore import TopicPartition
from tests.support.browser.page import go

USERS = TopicPartition("users", 0)

running = pytest.mark.logstore(background=True)


def deed(page, button, title):
    """Open the dialog of an operation."""
    page.get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog", name=title)
    expect(dialog).to_be_visible()
    return dialog


def move(page, duration):
    """Move the virtual clock forward."""
    clock = page.get_by_role("region", name="Virtual clock")
    if not clock.get_by_role("textbox", name="Duration").is_visible():
        clock.get_by_text("Advance the clock").click()
    clock.get_by_role("textbox", name="Duration").fill(duration)
    clock.get_by_role("button", name="Move forward").click()
    expect(clock.get_by_role("progressbar")).to_have_count(0)
    expect(clock.get_by_role("button", name="Move forward")).to_be_enabled()


def show(page, title):
    """Show one of the parts of a partition's page."""
    parts = page.get_by_role("navigation", name="Details of this partition")
    parts.get_by_role("link", name=title).click()


@running
def test_the_operators_guide_from_a_new_topic_to_the_end_of_a_tombstone(open_page, logstore_broker):
    page = open_page(logstore_broker.ui())

    # A topic with its defaults.
    dialog = deed(page, "Create a topic …", "Create a topic")
    dialog.get_by_role("textbox", name="Name").fill("users")
    dialog.get_by_role("button", name="Create").click()
    row = page.get_by_role("row", name=re.compile("users-0"))
    expect(row).to_contain_text("delete")

    # Its settings; the effect of each is shown before it is set.
    go(page, "#/t/users/settings")
    page.get_by_role("group", name="cleanup.policy").get_by_label("compact").check()
    for key, value in (("segment.ms", "1h"), ("delete.retention.ms", "2h")):
        page.get_by_role("textbox", name=key, exact=True).fill(value)
    changes = page.get_by_role("region", name="Pending changes")
    preview = page.get_by_role("region", name="Preview")
    expect(preview).to_contain_text("logstore topic alter --set cleanup.policy=compact,delete")
    expect(preview).to_contain_text("users-0")
    changes.get_by_role("button", name="Set 3 changes").click()
    expect(changes.get_by_role("button", name=re.compile("^Set"))).to_be_disabled()
    stored = next(topic for topic in logstore_broker.topics() if topic.name == "users")
    assert stored.configs["cleanup.policy"] in ("delete,compact", "compact,delete")
    assert stored.configs["segment.ms"] == "3600000"

    # Updates, and a delete; the page sees them as they come.
    go(page, "#/t/users/0")
    for value in (b"ann", b"anna", b"anne"):
        logstore_broker.append("users", key=b"1", value=value)
    logstore_broker.append("users", key=b"2", value=b"bob")
    logstore_broker.append("users", key=b"2", value=None)
    main = page.get_by_role("main")
    expect(main).to_contain_text(re.compile(r"Log end offset\s*5"))
    expect(main).to_contain_text("active")

    # Time; the next append closes the segment, and it is dirty.
    move(page, "61m")
    logstore_broker.append("users", key=b"3", value=b"eve")
    expect(main).to_contain_text(re.compile(r"dirty: 1 segment|dirty 1 segment"))
    # Time again, and the cleaner comes by.
    move(page, "1m")
    expect(main).to_contain_text(re.compile(r"First dirty offset\s*5"))
    records = logstore_broker.read("users", 0, offset=0)
    assert [(it.key, it.value) for it in records] == [(b"1", b"anne"), (b"2", None), (b"3", b"eve")]
    show(page, "Records")
    expect(main.get_by_text("anne")).to_be_visible()
    expect(main.get_by_text("anna", exact=True)).to_have_count(0)
    show(page, "Tombstones")
    expect(main).to_contain_text(re.compile(r"Tombstones\s*1"))

    # delete.retention.ms later, in the pass after, the tombstone goes as well.
    move(page, "2h")
    logstore_broker.append("users", key=b"1", value=b"ann again")
    move(page, "61m")
    logstore_broker.append("users", key=b"4", value=b"joe")
    move(page, "1m")
    expect(main).to_contain_text("No tombstone in this partition")
    keys = [it.key for it in logstore_broker.read("users", 0, offset=0)]
    assert b"2" not in keys


@running
def test_kip_354s_bound_comes_nearer_and_is_kept(open_page, logstore_broker):
    """Nothing is appended any more, the ratio is never reached: the bound alone has it cleaned."""
    bounded = {"cleanup.policy": "compact", "max.compaction.lag.ms": "1h"}
    bounded["min.cleanable.dirty.ratio"] = "1"
    logstore_broker.create_topic("users", partitions=1, configs=bounded)
    for value in (b"ann", b"anna"):
        logstore_broker.append("users", key=b"1", value=value)
    page = open_page(logstore_broker.ui())
    row = page.get_by_role("row", name=re.compile("users-0"))
    expect(row).to_contain_text("1h")
    move(page, "40m")
    expect(row).to_contain_text(re.compile(r"40m\s*max\.compaction\.lag\.ms = 1h"))
    row.get_by_role("link", name="users-0").click()
    main = page.get_by_role("main")
    expect(main).to_contain_text(
        "A running logstore broker would clean it at 2024-01-01 01:00:00.001Z, in 20m 1ms."
    )
    expect(main).to_contain_text(re.compile(r"40m\s*max\.compaction\.lag\.ms = 1h"))
    move(page, "21m")
    expect(main).to_contain_text(re.compile(r"First dirty offset\s*2"))
    expect(main).not_to_contain_text(" past 1h")
    assert [it.value for it in logstore_broker.read("users", 0, offset=0)] == [b"anna"]
    show(page, "History")
    expect(main).to_contain_text("2024-01-01 01:00:15.000Z")  # log.cleaner.backoff.ms after


@running
def test_a_partition_that_cannot_be_cleaned_is_found_and_tried_again(
    open_page, logstore_broker, logstore_data_dir
):
    configs = {"cleanup.policy": "compact", "segment.ms": "1h", "min.cleanable.dirty.ratio": "0.1"}
    for name in ("sound", "users"):
        logstore_broker.create_topic(name, partitions=1, configs=configs)
        for value in (b"ann", b"anna"):
            logstore_broker.append(name, key=b"1", value=value)
    segment = logstore_data_dir / "users-0" / f"{0:020}.log"
    sound = segment.read_bytes()
    segment.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    page = open_page(logstore_broker.ui())
    move(page, "61m")
    for name in ("sound", "users"):
        logstore_broker.append(name, key=b"2", value=b"bob")
    move(page, "1m")

    # It is marked in the list, and the cleaner's page gives the reason.
    page.get_by_role("combobox", name="Order").select_option("damage")
    first = page.get_by_role("row", name=re.compile(r"(users|sound)-0")).first
    expect(first).to_contain_text("users-0")
    expect(first).to_contain_text("uncleanable")
    page.get_by_role("link", name="Cleaner").click()
    marked = page.get_by_role("region", name="Uncleanable partitions")
    expect(marked.get_by_role("listitem")).to_contain_text("CRC")

    # Tried again as it is, it fails again; with its bytes mended it is cleaned.
    def retry():
        marked.get_by_role("button", name=re.compile("Retry users-0")).click()
        dialog = page.get_by_role("dialog", name="Retry cleaning users-0")
        expect(dialog).to_contain_text("logstore clean")
        dialog.get_by_role("button", name="Retry", exact=True).click()
        expect(dialog).to_have_count(0)

    retry()
    expect(marked).to_contain_text("None.")
    move(page, "1m")
    expect(marked.get_by_role("listitem")).to_contain_text("CRC")
    segment.write_bytes(sound)
    retry()
    expect(marked).to_contain_text("None.")
    move(page, "1m")
    assert [it.value for it in logstore_broker.read("users", 0, offset=0)] == [b"anna", b"bob"]


@running
def test_data_loss_is_described_and_confirmed_once(open_page, visitor, logstore_broker):
    logstore_broker.create_topic("users", partitions=1)
    for number in range(10):
        logstore_broker.append("users", key=b"%d" % number, value=b"x")
    page = open_page(logstore_broker.ui(), "#/t/users/0")
    dialog = deed(page, "Delete records …", "Delete records of users-0")
    dialog.get_by_role("radio", name="an offset").check()
    dialog.get_by_role("textbox", name="Offset").fill("4")
    expect(dialog).to_contain_text("logstore delete-records")
    expect(dialog).to_contain_text("Offsets 0 to 3 would be deleted")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    dialog.get_by_role("button", name="Delete permanently").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("main")).to_contain_text(re.compile(r"Log start offset\s*4"))
    assert logstore_broker.log(USERS).log_start_offset == 4
    visitor.watch_of(page).expect("409 (Conflict)")
