"""The state and the history of the cleaner."""

from types import SimpleNamespace

from logstore import Acl, Authorizer, Broker, VirtualClock
from logstore.cleaner.passes.clean import PassProgress
from tests.support.world.page import Asked


def test_a_broker_without_background_has_no_threads_and_its_gauges(page, broker):
    told = page.get("/api/cleaner")
    assert (told["enabled"], told["threads"], told["under_way"]) == (False, [], [])
    assert told["throttle"] == {"both": None, "reads": None, "writes": None}
    assert told["gauges"] == broker.metrics().to_json()


def test_threads_limits_and_cleanings_of_a_running_broker():
    config = {"log.cleaner.threads": 2, "log.cleaner.io.max.bytes.per.second": "1000000"}
    with (
        Broker(clock=VirtualClock(), broker_config=config, background=True) as broker,
        Asked(broker) as page,
    ):
        broker.create_topic("users", 1, {"cleanup.policy": "compact", "segment.bytes": "1KiB"})
        broker.append_many("users", [(b"a", b"v" * 50)] * 50, batch_records=5)
        broker.clock.advance(minutes=1)
        page.call(page.context.live.poll_once())
        told = page.get("/api/cleaner")
        assert [each["alive"] for each in told["threads"]] == [True, True]
        assert sum(each["passes"] for each in told["threads"]) == len(told["history"]) > 0
        assert told["throttle"]["both"] == 1_000_000
        assert told["history"][0]["topic"] == "users"


def test_an_uncleanable_partition_is_listed_with_its_dirty_bytes(page, broker):
    tp = broker.partitions("users")[0]
    broker.cleaner.uncleanable_partitions.add(tp, OSError("the disk is on fire"))
    (mark,) = page.get("/api/cleaner")["uncleanable"]
    assert (mark["topic"], mark["reason"], mark["bytes"]) == ("users", "the disk is on fire", 707)
    (row,) = page.get("/api/partitions?sort=uncleanable&count=1")["partitions"]
    assert row["uncleanable"]["reason"] == "the disk is on fire"
    assert page.get("/api/partitions")["uncleanable"] == 1


def test_cleanings_of_a_hidden_topic_are_not_reported(broker):
    broker.cleaner.uncleanable_partitions.add(broker.partitions("users")[0], OSError("x"))
    with Asked(
        broker, Authorizer([Acl("User:ann", "describe", "topic", "events")]), "User:ann"
    ) as page:
        broker.clean("users", force=True)
        told = page.get("/api/cleaner")
        assert (told["uncleanable"], told["history"]) == ([], [])
        assert page.get("/api/history")["cleanings"] == []
        refused = page.ask("GET", "/api/history?topic=users")
        assert (refused.status, refused.json["error"]["type"]) == (
            403,
            "TopicAuthorizationFailedError",
        )


def test_curves_have_units_and_those_of_a_partition_name_it(page):
    series = page.get("/api/history")["series"]
    assert {name: each["unit"] for name, each in series.items()} == {
        "size": "bytes",
        "max-dirty-percent": "percent",
        "max-compaction-delay": "ms",
        "cleaner-recopy-percent": "percent",
        "uncleanable-partitions": "count",
        "cleaner-bytes-read": "bytes",
        "cleaner-bytes-written": "bytes",
    }
    of_one = page.get("/api/history?topic=users&partition=0")["series"]
    assert of_one["dirty-ratio"]["points"][-1][1] == 1.0
    assert page.ask("GET", "/api/history?partition=0").json["error"]["field"] == "topic"


def test_a_thread_names_the_pass_that_it_runs(broker, monkeypatch):
    users, events = broker.partitions("users")[0], broker.partitions("events")[0]
    workers = [
        (SimpleNamespace(name="one", at=users, pause_ms=7, passes=2), True),
        (SimpleNamespace(name="two", at=None, pause_ms=0, passes=0), False),
        (SimpleNamespace(name="three", at=events, pause_ms=0, passes=1), True),
    ]
    limits = {
        "log.cleaner.io.max.bytes.per.second": "5",
        "logstore.cleaner.max.read.bytes.per.second": "10",
        "logstore.cleaner.max.write.bytes.per.second": "20",
    }
    broker.alter_broker_configs(limits)
    monkeypatch.setattr(type(broker), "pool", SimpleNamespace(workers=lambda: workers))
    broker.cleaner.under_way[users] = PassProgress("map", 3, 9, 3, 0)
    broker.cleaner.under_way[events] = PassProgress("rewrite", 4, 5, 9, 2)
    nothing = {"topic": None, "partition": None, "phase": None, "bytes_done": 0, "bytes_total": 0}
    acls = [Acl("User:ann", "describe", "topic", "users")]
    try:
        with Asked(broker, Authorizer(acls), "User:ann") as page:
            told = page.get("/api/cleaner")
    finally:
        broker.cleaner.under_way.clear()
    assert told["enabled"] is True
    step = {"topic": "users", "partition": 0, "phase": "map", "bytes_done": 3, "bytes_total": 9}
    assert told["under_way"] == [step | {"bytes_read": 3, "bytes_written": 0}]
    assert told["threads"] == [
        {"name": "one", "alive": True, **step, "throttled_ms": 7, "passes": 2},
        {"name": "two", "alive": False, **nothing, "throttled_ms": 0, "passes": 0},
        {"name": "three", "alive": True, **nothing, "throttled_ms": 0, "passes": 1},
    ]
    assert told["throttle"] == {"both": 5.0, "reads": 10.0, "writes": 20.0}


def test_the_history_of_a_partition_has_its_own_cleanings(page, broker):
    broker.alter_configs("events", {"cleanup.policy": "compact"})
    for topic in ("users", "events"):
        broker.clean(topic, force=True)
    page.call(page.context.live.poll_once())
    all_of_them = page.get("/api/history")["cleanings"]
    assert [each["topic"] for each in all_of_them][-1] == "users"
    assert [each["topic"] for each in page.get("/api/history?topic=users")["cleanings"]] == [
        "users"
    ]
    refused = page.ask("GET", "/api/history?partition=0")
    assert refused.json["error"]["message"] == "partition requires topic"
    of_one = page.get("/api/history?topic=users")["series"]
    assert {name: (each["unit"], each["points"][-1][1]) for name, each in of_one.items()} == {
        "size": ("bytes", broker.log("users").size_bytes),
        "segments": ("count", len(broker.log("users").segments)),
        "dirty-ratio": ("ratio", 0.0),
        "max-compaction-delay": ("ms", 0),
    }
