"""Whole pages as elements, with the server's answers: each is compared with a file of `pages/`.

To accept a change, delete the file, run the test, and review its new contents.
"""

import itertools
import json
import re
from pathlib import Path

import pytest

from logstore import Broker, VirtualClock
from logstore.reasons.formats import format_time
from tests.support.browser.front import Front
from tests.support.browser.pages import Story
from tests.support.world.page import Asked

PAGES = Path(__file__).with_name("pages")


@pytest.fixture
def rich():
    """A broker with what pages show: keys of all kinds, transactions, passes, retention, damage."""
    clock = VirtualClock()
    with Broker(clock=clock, seed=1) as broker:
        compact = {"cleanup.policy": "compact", "delete.retention.ms": "1h"}
        broker.create_topic("users", 1, compact)
        for number in range(12):
            clock.advance(seconds=1)
            value = b"x" * number if number % 4 else None
            broker.append("users", key=b"k%d" % (number % 3), value=value)
        broker.roll("users")
        broker.clean("users", force=True)
        clock.advance(minutes=5)
        broker.append("users", key=b'{"id":1}', value=b'{"name": "Ann", "n": [1, 2]}')
        broker.append("users", key=b"\xff\x00", value=b"\x00binary")
        broker.append(
            "users", key=b"", value=b"empty key", headers=[("trace", b"1"), ("none", None)]
        )
        broker.append("users", key=b"k1", value=None)
        with broker.producer(transactional_id="t") as producer:
            producer.init_transactions()
            for ends in (producer.commit_transaction, producer.abort_transaction):
                producer.begin_transaction()
                producer.send("users", b"in a transaction", b"tx")
                ends()
        broker.roll("users")
        broker.append("users", key=b"k0", value=b"last")
        broker.create_topic("events", 2, {"retention.ms": "1h", "segment.bytes": "2000"})
        for number in range(6):
            broker.append("events", value=b"long" * 300 + b"%d" % number, partition=1)
        clock.advance(hours=3)
        broker.append("events", value=b"new", partition=1)
        yield broker


def kept(name, lines):
    """Compare lines with a file."""
    path = PAGES / f"{name}.txt"
    found = [re.sub(r"(dialog|field)-\d+", r"\1-N", line) for line in lines]
    if not path.exists():
        path.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        pytest.fail(f"{path} was missing: review the new file")
    assert found == path.read_text(encoding="utf-8").splitlines()


def below(lines, head):
    """Return the last element that begins with a text, with its content."""
    first = max(at for at, line in enumerate(lines) if f"{line.strip()} ".startswith(f"{head} "))
    indent = len(lines[first]) - len(lines[first].lstrip())
    inner = itertools.takewhile(
        lambda line: line.startswith(" " * (indent + 1)), lines[first + 1 :]
    )
    return [line[indent:] for line in (lines[first], *inner)]


USERS = "#/t/users/0"
EVENTS = "#/t/events/1"
STORIES = {
    "list": ("#/", []),
    "list-of-no-partition": ("#/?filter=other", []),
    "topic": ("#/t/users", []),
    "overview": (USERS, []),
    "overview-of-retention": (EVENTS, []),
    "overview-of-an-empty-log": ("#/t/events/0", []),
    "cleaner": ("#/cleaner", []),
}
SECTIONS = {
    "records": (f"{USERS}/records", []),
    "records-opened": (f"{USERS}/records?from=12", ["Record 12", "Record 14", "as bytes"]),
    "records-as-text": (f"{USERS}/records?from=12&until=13", ["Record 12", "as text"]),
    "records-found": (f"{USERS}/records?key=k1", []),
    "records-found-by-hex": (f"{USERS}/records?key=ff00&as=hex", ["Record 13"]),
    "records-found-by-header": (f"{USERS}/records?header=trace&header_text=1&until=15", []),
    "records-not-found": (f"{USERS}/records?text=nowhere", []),
    "records-after-the-end": (f"{USERS}/records?from=900", []),
    "records-of-a-wrong-key": (f"{USERS}/records?key=f&as=hex", []),
    "records-of-a-wrong-time": (f"{USERS}/records?until=soon", []),
    "records-of-an-empty-log": ("#/t/events/0/records", []),
    "stats": (f"{USERS}/stats", []),
    "stats-by-bytes": (f"{USERS}/stats", ["by bytes"]),
    "stats-without-keys": (f"{EVENTS}/stats", []),
    "stats-of-an-empty-log": ("#/t/events/0/stats", []),
    "key": (f"{USERS}/key", []),
    "key-found": (f"{USERS}/key?key=k1", ["Show locations of superseded"]),
    "key-gone": (f"{USERS}/key?key=other", []),
    "key-of-hex": (f"{USERS}/key?key=ff00&as=hex", []),
    "key-wrong": (f"{USERS}/key?key=x&as=json", []),
    "tombstones": (f"{USERS}/tombstones", []),
    "history": (f"{USERS}/history", []),
    "fates": (f"{USERS}/fates", []),
}
DIALOGS = {
    "dialog-roll": (USERS, ["Roll …"]),
    "dialog-clean": (USERS, ["Clean …"]),
    "dialog-retain": (EVENTS, ["Apply retention …"]),
    "dialog-delete-records": (EVENTS, ["Delete records …"]),
    "dialog-delete-topic": ("#/t/events", ["Delete the topic …"]),
}


@pytest.fixture
def page(rich):
    with Asked(rich) as page:
        yield page


def told(front, page, address, clicks):
    """Return the last address, the requests and the elements of a page after some clicks."""
    story = Story(front, page, address)
    for text in clicks:
        story.click(text)
    lines = story.lines
    return [story.end(), *(json.dumps(each) for each in story.requests)], lines


@pytest.mark.parametrize("name", STORIES)
def test_a_page_has_these_elements(front, page, name):
    requests, lines = told(front, page, *STORIES[name])
    kept(name, requests + lines)


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_of_a_partition_has_these_elements(front, page, name):
    requests, lines = told(front, page, *SECTIONS[name])
    assert lines.count("div") == 1
    kept(name, requests + lines[lines.index("div") :])


@pytest.mark.parametrize("name", DIALOGS)
def test_a_dialog_has_these_elements(front, page, name):
    requests, lines = told(front, page, *DIALOGS[name])
    kept(name, requests + below(lines, "dialog"))


def changes(story):
    return [each for each in story.requests if each[0] != "GET"]


def test_a_search_updates_the_address(front, page):
    story = Story(front, page, f"{USERS}/records")
    story.event("Input", "e.g. user-17", value=" k1 ")
    story.event("Change", "Format of the key", value="json")
    story.event("Input", "e.g. 0", value=" 3 ")
    story.event("Submit", "Search of records")
    assert story.end() == "#/t/users/0/records?as=json&key=+k1+&from=3"


@pytest.mark.parametrize(
    ("address", "button", "end"),
    (
        ("from=5", "First", "from=0"),
        ("from=12", "Earlier", "from=0"),
        ("", "Later", "from=61"),
        ("", "Last", "from=16"),
        ("key=k0&from=1", "Clear", ""),
    ),
)
def test_buttons_move_through_the_records(front, page, rich, address, button, end):
    for number in range(45):
        rich.append("users", key=b"k%d" % number, value=b"more")
    story = Story(front, page, f"{USERS}/records?{address}")
    story.click(button)
    assert story.end() == f"{USERS}/records" + (f"?{end}" if end else "")


@pytest.fixture
def own_front(node, tmp_path):
    """Modules without the results of operations in other tests."""
    with Front(node, tmp_path) as front:
        yield front


def test_an_operation_is_dry_run_then_performed_and_listed(own_front, page):
    story = Story(own_front, page, USERS)
    story.click("Roll …")
    assert changes(story) == [["POST", "api/partitions/users/0/roll", {"dry_run": True}]]
    story.event("Submit", "action")
    assert changes(story)[1:] == [["POST", "api/partitions/users/0/roll", {}]]
    kept("done-roll", below(story.lines, "article"))
    story.click("Clean …")
    story.event("Submit", "action")
    body = {"force": True, "roll": False}
    assert changes(story)[2:] == [
        ["POST", "api/partitions/users/0/clean", {**body, "dry_run": True}],
        ["POST", "api/partitions/users/0/clean", body],
    ]
    kept("done-clean", below(story.lines, 'div class="done"'))
    story.end()


def test_a_loss_is_confirmed(own_front, page, rich):
    story = Story(own_front, page, EVENTS)
    story.click("Delete records …")
    story.event("Input", "numeric", value="5")
    kept("loss-dry-run", below(story.lines, "dialog"))
    story.event("Submit", "action")
    kept("loss", below(story.lines, 'div class="loss" role="alert" tabindex="-1"'))
    assert rich.log("events", 1).log_start_offset == 0
    story.event("Submit", "action")
    path = "api/partitions/events/1/delete-records"
    *dry_runs, refused, confirmed = changes(story)
    assert dry_runs == [["POST", path, {"before_offset": 5, "dry_run": True}]]
    assert refused == ["POST", path, {"before_offset": 5}]
    assert confirmed[2].keys() == {"before_offset", "confirm"}
    assert rich.log("events", 1).log_start_offset == 5
    kept("loss-done", below(story.lines, "article"))
    story.end()


def test_a_refused_operation_is_shown_in_its_dialog(front, page):
    story = Story(front, page, EVENTS)
    story.click("Delete records …")
    story.event("Input", "numeric", value="900")
    story.event("Submit", "action")
    refusal = below(story.lines, 'div class="notice is-bad" role="alert"')
    assert refusal[2:] == [
        '    strong: "OffsetOutOfRangeError"',
        '    " offset 900 of events-1 is above the high watermark: the log is [0, 7]."',
    ]
    story.end()


def test_more_keys_are_shown_on_request(front, page, rich):
    for number in range(30):
        rich.append("users", key=b"key %d" % number, value=b"x" * number)
    story = Story(front, page, f"{USERS}/stats")
    assert [line.strip() for line in story.lines if "Show 200 keys" in line]
    story.click("Show 200 keys")
    assert not [line for line in story.lines if "Show 200 keys" in line]
    rows = [line for line in story.lines if 'class="top-key"' in line]
    targets = [target for _, target, _ in story.requests if "stats" in target]
    assert (len(rows), targets) == (
        37,
        [f"api/partitions/users/0/stats?top={n}" for n in (20, 200)],
    )
    story.end()


def test_a_waiting_partition_shows_when_it_will_be_cleaned(front, page, rich):
    rich.create_topic("waiting", 1, {"cleanup.policy": "compact", "min.compaction.lag.ms": "10d"})
    for _ in range(3):
        rich.append("waiting", key=b"k", value=b"v")
    rich.roll("waiting")
    story = Story(front, page, "#/t/waiting/0")
    lines = below(story.lines, 'section aria-label="Verdict"')
    story.end()
    opens_at_ms = rich.explain("waiting").partitions[0].opens_at_ms
    assert opens_at_ms == rich.clock.now_ms() + 10 * 86_400_000
    assert [line.strip() for line in lines if "running" in line or "in 10d" in line] == [
        '". A running cleaner would clean it at "',
        '", in 10d."',
    ]
    day, time = format_time(opens_at_ms).split()
    assert [line.strip() for line in lines if "span: " in line][-2:] == [
        f'span: "{day}"',
        f'span: "{time}"',
    ]


def test_exact_values_of_all_listed_partitions_are_computed(front, page):
    story = Story(front, page, "#/?filter=events")
    head = 'div class="result-line summary-line"'
    before = below(story.lines, head)
    story.click("Compute exact values")
    targets = [target for _, target, _ in story.requests if target.endswith("/verdict")]
    assert targets == [f"api/partitions/events/{number}/verdict" for number in (0, 1)]
    after = below(story.lines, head)
    kept("list-summary", before + after)
    story.end()


@pytest.mark.parametrize(
    ("address", "expected"),
    (
        (USERS, ["logstore clean users --partition 0 --data-dir '/a b'"]),
        ("#/t/events/0/records", [
            "echo '{\"key\": \"1\", \"value\": \"ann\"}' | logstore append events --partition 0",
        ]),
        (f"{USERS}/key?key=k1", [
            "logstore erasure users --partition 0 --key k1 --data-dir '/a b'",
        ]),
    ),
)  # fmt: skip
def test_pages_of_a_copy_offer_command_lines(front, page, address, expected):
    about = {"read_only": True, "read_only_because": "it is a copy", "data_dirs": ["/a b"]}
    story = Story(front, page, address, **about)
    codes = [line.strip() for line in story.lines if line.strip().startswith("code: ")]
    lines = [json.loads(code.removeprefix("code: ")) for code in codes]
    assert [line for line in lines if "logstore" in line] == expected
    assert [line for line in story.lines if 'aria-haspopup="dialog"' in line] == []
    story.end()
