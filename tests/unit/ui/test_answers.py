"""Whole answers of the page's addresses, over one broker and over copied directories.

To accept a change, delete a file of `answers/`, run the test, and review its new contents.
"""

import json
import re
from pathlib import Path

import pytest

from logstore import Broker
from logstore.runtime.clock import FixedWallClock
from tests.support.world.everything import NOW_MS, build
from tests.support.world.page import Asked

STORED = Path(__file__).with_name("answers")

USERS, EVENTS = "/api/partitions/users/0", "/api/partitions/events/1"
GET = (
    "/api/about",
    "/api/partitions",
    "/api/partitions?sort=bytes&descending=1&first=1&count=1",
    "/api/partitions?topic=users",
    "/api/partitions?filter=vent&empty=0",
    USERS,
    EVENTS,
    f"{USERS}/verdict",
    f"{EVENTS}/verdict",
    f"{USERS}/segments",
    f"{USERS}/segments?first=1&count=1",
    f"{USERS}/segment-map?buckets=6",
    f"{USERS}/explain",
    f"{USERS}/explain?quick=1",
    f"{USERS}/explain?key=k1",
    f"{USERS}/tombstones",
    f"{USERS}/stats?top=2",
    f"{USERS}/segments/0/batches?first=2&count=3",
    f"{USERS}/batches/4/records",
    f"{USERS}/records?count=3",
    f"{USERS}/records?key=k0",
    f"{USERS}/records?from_offset=3&until_offset=5&field_bytes=1",
    f"{EVENTS}/records?text=long&field_bytes=9",
    f"{USERS}/fates?count=4",
    f"{USERS}/fates?first=9&roll=1",
    f"{USERS}/erasure?key=k0&places=2",
    "/api/cleaner",
    "/api/history?topic=users",
    "/api/groups",
    "/api/groups/readers",
    "/api/clock",
)
POST = (
    ("/api/preview", {"topic": "users", "set": {"min.cleanable.dirty.ratio": 0.9}}),
    ("/api/preview", {"topic": "events", "partition": 1, "set": {"retention.bytes": 100}}),
    ("/api/preview", {"set": {"log.cleaner.threads": 2}, "cluster_wide": True, "quick": True}),
    ("/api/topics", {"name": "new", "partitions": 2, "configs": {"retention.ms": "1h"}}),
    ("/api/topics", {"name": "other", "dry_run": True}),
    ("/api/topics/users/configs", {"set": {"segment.ms": "2d"}, "unset": ["cleanup.policy"]}),
    ("/api/topics/users/configs", {"set": {"cleanup.policy": "compact"}}),
    ("/api/topics/events/configs", {"set": {"retention.bytes": 1}}),
    (f"{USERS}/clean", {"dry_run": True, "force": True, "roll": True}),
    (f"{USERS}/clean", {"force": True}),
    (f"{USERS}/clean", {"force": True, "confirm": "wrong"}),
    (f"{EVENTS}/roll", {"dry_run": True}),
    (f"{EVENTS}/roll", {}),
    (f"{EVENTS}/delete-records", {"before_offset": 1, "dry_run": True}),
    (f"{EVENTS}/delete-records", {"before_offset": 1}),
    (f"{EVENTS}/delete-records", {"before_offset": 1, "confirm": "wrong"}),
    (f"{EVENTS}/retain", {"dry_run": True}),
    (f"{EVENTS}/retain", {"confirm": "wrong"}),
    (f"{USERS}/retry", {"dry_run": True}),
    (f"{USERS}/retry", {}),
    ("/api/broker/configs", {"set": {"log.cleaner.threads": 2}}),
    ("/api/clock", {"by_ms": 70_000}),
    ("/api/clock", {"next_event": True}),
)


OF_COPIES = (
    "/api/partitions?sort=damage",
    "/api/partitions?empty=0",
    *(
        f"/api/partitions/{name}{target}"
        for name in ("users/2", "events/1")
        for target in (
            *("", "/segments", "/segment-map?buckets=5", "/tombstones", "/fates?count=4&first=2"),
            *("/explain", "/verdict", "/stats?top=2", "/records?from_offset=4&count=2"),
        )
    ),
    "/api/partitions/users/2/segments/0/batches?count=2",
    "/api/partitions/users/2/batches/40/records?first=1&count=2",
    "/api/partitions/users/2/records?isolation=read_committed&from_offset=70",
    "/api/partitions/users/2/records?header=trace&until_timestamp=1704080000000",
    "/api/partitions/users/2/erasure?key=k1",
    "/api/partitions/users/0",
    "/api/partitions?sort=damage",
    "/api/cleaner",
    "/api/history",
    "/api/about",
)


@pytest.fixture
def page(page, broker):
    consumer = broker.consumer("users", group_id="readers", enable_auto_commit=False)
    consumer.poll(0)
    consumer.commit()
    consumer.close()
    return page


def compare(name, answers, home="/nowhere"):
    text = json.dumps(answers, indent=1, ensure_ascii=False).replace(f"{home}/", "")
    text = re.sub('"confirm": "[0-9a-f]{64}"', '"confirm": "…"', text)  # of a random secret
    text = re.sub('("(?:index|clean)_ms": )[0-9]+', r"\g<1>0", text)  # measured
    path = STORED / f"{name}.json"
    if not path.exists():
        STORED.mkdir(exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
        pytest.fail(f"{path} was missing: review the new file")
    assert f"{text}\n".splitlines() == path.read_text(encoding="utf-8").splitlines()


def test_what_is_read(page):
    compare("read", {target: page.get(target) for target in GET})


def test_what_is_done(page):
    answers = {}
    for number, (target, body) in enumerate(POST, 1):
        answer = page.post(target, body)
        answers[f"{number} {target} {json.dumps(body)}"] = [answer.status, answer.json]
        if token := answer.json.get("confirm"):
            answer = page.post(target, {**body, "confirm": token})
            answers[f"{number} confirmed"] = [answer.status, answer.json]
    asked = page.post("/api/topics/events", method="DELETE").json
    answers["DELETE"] = asked
    for target in ("/api/cleaner", "/api/history?topic=users", USERS):
        answers[target] = page.get(target)
    compare("done", answers)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("answers")
    build(home)
    return home


@pytest.mark.parametrize("name", ("before", "broken"))
def test_what_is_read_of_a_copied_directory(home, name):
    """Rows are measured at once here, so that the first answer has them."""
    answers = {}
    with (
        Broker(
            home / name, read_only=True, on_damage="pass_over", clock=FixedWallClock(NOW_MS)
        ) as broker,
        Asked(broker) as page,
    ):
        page.context.partitions._run_in_background = lambda measure: measure()
        for number, target in enumerate(OF_COPIES):
            answer = page.ask("GET", target)
            answers[f"{number} {target}"] = [answer.status, answer.json]
    compare(name, answers, home)
