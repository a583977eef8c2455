"""One partition: the command line's shapes, missing records, and waiting tombstones."""

import json

import pytest

from logstore import Acl, Authorizer, Broker
from logstore.analysis.summary import inspect_partition
from logstore.analysis.verdict import partition_verdict
from tests.support.world.page import Asked

AT = "/api/partitions/users/0"


def in_json(value):
    return json.loads(json.dumps(value))


def explained(broker, **options):
    return in_json(broker.explain("users", **options).to_json()["partitions"][0])


def test_a_partition_is_described_as_by_inspect_with_its_decision(page, broker):
    told = page.get(AT)
    summary = inspect_partition(broker, broker.partitions("users")[0]).to_line_json()
    assert told.items() >= summary.items()
    assert told["sections"] == {"clean": 0, "dirty": 707, "uncleanable": 0, "active": 74}
    assert told["decision"]["will_clean"] is True
    assert [gate["open"] for gate in told["decision"]["gates"]].count(False) == 1
    assert told["uncleanable"] is None
    assert told["in_progress"] is None


def test_the_verdict_is_exact_on_demand(page, broker):
    assert page.get(AT)["verdict"]["frees_bytes"] is None
    told = page.get(f"{AT}/verdict")
    exact = in_json(partition_verdict(broker, broker.partitions("users")[0], exact=True).to_json())
    assert told == {"topic": "users", "partition": 0, "verdict": exact}
    assert exact["exact"] is True
    assert explained(broker)["verdict"] == exact
    [passed] = broker.clean("users").cleaned
    assert exact["frees_bytes"] == passed.bytes_read - passed.bytes_written


def test_the_segment_map_shows_holes_horizons_and_deleted_files(page, broker):
    broker.clean("users", force=True)
    told = page.get(f"{AT}/segments")
    by_section = {each["section"]: each for each in told["segments"]}
    assert told["total"] == 3
    assert by_section["clean"]["holes"] == 7
    assert by_section["clean"]["delete_horizon_ms"] == broker.clock.now_ms() + 86_400_000
    assert by_section["active"]["holes"] == 0
    assert by_section["deleted"]["deleted"] is True
    assert by_section["deleted"]["size_bytes"] == 707
    assert page.get(AT)["holes"] == 7
    assert page.get(AT)["deleted_bytes"] == 707


def test_segments_are_paged(page):
    assert page.get(f"{AT}/segments?first=1&count=1")["segments"][0]["base_offset"] == 10
    assert page.get(f"{AT}/segments?first=9")["segments"] == []


def test_neighbours_of_one_section_are_drawn_as_one(page, broker):
    for _ in range(20):
        broker.append("users", key=b"a", value=b"b")
        broker.roll("users")
    told = page.get(f"{AT}/segment-map?buckets=4")
    assert told["total"] == told["count"] == 22
    assert [each["section"] for each in told["buckets"]].count("active") == 1
    assert len(told["buckets"]) == 5
    assert sum(each["segments"] for each in told["buckets"]) == 22
    assert sum(each["records"] for each in told["buckets"]) == 31
    singly = page.get(f"{AT}/segments")["segments"]
    assert sum(each["size_bytes"] for each in singly) == sum(
        each["size_bytes"] for each in told["buckets"]
    )


def test_a_segment_that_was_read_is_not_read_again_and_of_one_that_grew_what_is_new(page, broker):
    page.get(f"{AT}/segments")
    with broker.fail("read", times=None) as rule:
        assert page.get(f"{AT}/segments")["segments"][0]["records"] == 10
        assert rule.hits == 0
    broker.append("users", key=b"a", value=b"b")
    with broker.fail("read", delay=1) as rule:
        assert page.get(f"{AT}/segments")["segments"][1]["records"] == 2
        assert rule.hits == 1


def test_a_segment_that_was_cut_and_has_grown_again_is_read_again(page, broker):
    broker.append("users", key=b"a", value=None)
    assert page.get(f"{AT}/segments")["segments"][1]["records"] == 2
    broker.manager.truncate_to(broker.partitions("users")[0], 11)
    for _ in range(3):
        broker.append("users", key=b"longer", value=b"much longer")
    assert page.get(f"{AT}/segments")["segments"][1]["records"] == 4
    assert page.get(AT)["records"] == 14


def test_explain_tombstones_and_stats_match_the_broker(page, broker):
    assert page.get(f"{AT}/explain") == explained(broker)
    assert page.get(f"{AT}/explain?quick=1") == explained(broker, quick=True)
    assert page.get(f"{AT}/explain?key=k1")["key"]["key"] == "k1"
    assert page.get(f"{AT}/tombstones")["tombstones"]["records"] == 1
    assert page.get(f"{AT}/stats?top=1") == in_json(broker.stats("users", top=1).to_json())


def test_tombstones_are_counted_by_segment(page, broker):
    told = page.get(f"{AT}/tombstones")
    assert told["tombstones"] == explained(broker)["tombstones"]
    assert [(each["base_offset"], each["unstamped"]) for each in told["segments"]] == [(0, 1)]
    broker.clean("users", force=True)
    broker.append("users", key=b"z", value=None)
    told = page.get(f"{AT}/tombstones")
    horizon_ms = broker.clock.now_ms() + 86_400_000
    assert [(each["base_offset"], each["first_horizon_ms"]) for each in told["segments"]] == [
        (0, horizon_ms),
        (10, None),
    ]


def test_a_page_without_a_record_continues_at_the_end(page, broker):
    """A hole at the end of the log, and a key without a record."""
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("users", b"v", key=b"k").get()
    producer.abort_transaction()
    end = broker.log("users").log_end_offset
    told = page.get(f"{AT}/records?from_offset=11&isolation=read_committed")
    assert (told["records"], told["next_offset"]) == ([], end)
    told = page.get(f"{AT}/records?key=nobody")
    assert (told["records"], told["next_offset"]) == ([], end)
    told = page.get(f"{AT}/records?from_offset={end}")
    assert (told["records"], told["next_offset"]) == ([], end)


def test_superseded_tombstones_are_not_counted(page, broker):
    """In the tab, in the explanation and in the preview alike."""
    for value in (None, None, b"3"):
        broker.append("users", key=b"new", value=value)
    told = page.get(f"{AT}/tombstones")
    assert told["tombstones"] == explained(broker)["tombstones"]
    assert told["tombstones"]["records"] == 1
    assert [each["base_offset"] for each in told["segments"]] == [0]
    asked = {"topic": "users", "partition": 0, "set": {"segment.ms": "1h"}}
    [previewed] = page.post("/api/preview", asked).json["partitions"]
    assert previewed["before"]["tombstones"]["records"] == 1
    assert previewed["after"]["tombstones"]["records"] == 1


def test_records_are_paged_as_read_prints_them(page):
    told = page.get(f"{AT}/records?count=2")
    assert [each["offset"] for each in told["records"]] == [0, 1]
    assert told["records"][1] == {
        "topic": "users",
        "partition": 0,
        "offset": 1,
        "timestamp": 1704067200000,
        "timestamp_type": 0,
        "key": "k1",
        "value": "x",
        "headers": [],
    }
    rest = page.get(f"{AT}/records?from_offset={told['next_offset']}")
    assert [each["offset"] for each in rest["records"]] == list(range(2, 11))
    assert page.get(f"{AT}/records?from_offset={rest['next_offset']}")["records"] == []
    late = page.get(f"{AT}/records?from_timestamp=1704067200001")
    assert (late["records"], late["next_offset"]) == ([], 11)


def test_an_answer_with_large_records_ends_early(page, broker):
    for _ in range(6):
        broker.append("users", key=b"a", value=b"v" * 1_000_000)
    told = page.get(f"{AT}/records?from_offset=11")
    assert [each["offset"] for each in told["records"]] == [11, 12, 13, 14, 15]
    assert told["next_offset"] == 16


def test_an_offset_outside_the_log_is_refused_with_its_bounds(page):
    refused = page.ask("GET", f"{AT}/records?from_offset=99")
    assert refused.status == 400
    assert refused.json["error"]["type"] == "OffsetOutOfRangeError"


def test_fates_of_a_page_with_the_numbers_of_all(page):
    told = page.get(f"{AT}/fates?first=9&count=5")
    assert (told["total"], told["counts"]) == (11, {"retained": 3, "superseded": 7, "active": 1})
    assert [each["fate"] for each in told["fates"]] == ["retained", "active"]
    assert told["fates"][0]["key"] == "k0"


def test_batches_of_a_segment_and_records_of_a_batch(page):
    told = page.get(f"{AT}/segments/0/batches?first=3&count=2")
    assert [each["baseOffset"] for each in told["batches"]] == [3, 4]
    inside = page.get(f"{AT}/batches/3/records")["records"]
    assert [(each["offset"], each["position"]) for each in inside] == [(3, 212)]


@pytest.mark.parametrize(
    ("target", "status", "kind"),
    (
        ("/api/partitions/user/0", 404, "UnknownTopicOrPartitionError"),
        ("/api/partitions/users/7", 404, "UnknownTopicOrPartitionError"),
        ("/api/partitions/users/first", 400, "InvalidRequestError"),
        (f"{AT}/segments/3/batches", 404, "UnknownPlaceError"),
        (f"{AT}/batches/99/records", 404, "UnknownPlaceError"),
    ),
)
def test_missing_names_are_reported(page, target, status, kind):
    answer = page.ask("GET", target)
    assert (answer.status, answer.json["error"]["type"]) == (status, kind)


def test_the_nearest_topic_is_offered(page):
    assert page.ask("GET", "/api/partitions/user/0").json["error"]["suggestion"] == "users"


def test_damage_is_reported_in_its_segment_and_does_not_hide_others(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("users", 1, {"cleanup.policy": "compact"})
        for _ in range(3):
            broker.append_many("users", [(b"a", b"b")] * 3)
            broker.roll("users")
    path = tmp_path / "users-0" / f"{3:020d}.log"
    data = bytearray(path.read_bytes())
    data[16] = 9  # no magic that there is
    path.write_bytes(data)
    with Broker(tmp_path, read_only=True) as broker, Asked(broker) as page:
        items = page.get(f"{AT}/segments")["segments"]
    assert [each["records"] for each in items] == [3, 0, 3, 0]
    assert "magic 9 is not 2" in items[1]["error"]


@pytest.mark.parametrize("target", ("segments/0/batches", "batches/0/records"))
def test_a_page_beyond_all_is_empty(page, target):
    told = page.get(f"{AT}/{target}?first={2**63 - 1}")
    assert told.get("batches", told.get("records")) == []


@pytest.mark.parametrize(
    "target",
    (
        "stats",
        "explain?key=k1",
        "records",
        "fates",
        "segments/0/batches",
        "batches/0/records",
        "erasure?key=k1",
    ),
)
def test_keys_and_records_require_read_permission(broker, target):
    authorizer = Authorizer([Acl("User:ann", "describe", "topic", "users")])
    with Asked(broker, authorizer, "User:ann") as page:
        assert page.ask("GET", f"{AT}/explain").status == 200
        assert page.ask("GET", f"{AT}/{target}").status == 403
        authorizer.add(Acl("User:ann", "read", "topic", "users"))
        assert page.ask("GET", f"{AT}/{target}").status == 200


def test_the_locations_of_a_key_are_grouped_by_state_and_rule(page):
    for _ in range(3):
        page.context.broker.append("users", key=b"k9", value=b"x")
    answer = page.get("/api/partitions/users/0/erasure?key=k9&places=1")
    assert answer["total"] == 3
    assert {each["state"]: each["count"] for each in answer["groups"]} == {
        "superseded": 2,
        "live": 1,
    }
    superseded, live = answer["groups"]
    assert [each["offset"] for each in answer["places"]] == [11, 13]
    assert live["earliest_ms"] is answer["earliest_ms"] is None
    assert superseded["reasons"][0]["code"] == "location.superseded"
    assert (superseded["first_offset"], superseded["last_offset"]) == (11, 12)
    assert (live["first_offset"], live["last_offset"]) == (13, 13)
    now_ms = page.context.broker.clock.now_ms()
    assert (superseded["timestamp"], live["timestamp"]) == (None, now_ms)
    whole = page.get("/api/partitions/users/0/erasure?key=k9")
    assert [each["offset"] for each in whole["places"]] == [11, 12, 13]
    assert superseded["earliest_ms"] == max(each["earliest_ms"] for each in whole["places"][:2])
    gone = page.get("/api/partitions/users/0/erasure?key=none")
    assert (gone["gone"], gone["groups"], gone["latest_ms"]) == (True, [], None)


def test_an_exact_verdict_is_kept_until_the_log_changes(page):
    broker = page.context.broker
    assert page.get(AT)["verdict"]["exact"] is False
    exact = page.get(f"{AT}/verdict")["verdict"]
    assert exact["exact"] is True
    assert page.get(AT)["verdict"] == exact
    (row,) = page.get("/api/partitions?filter=users-0")["partitions"]
    assert row["verdict"] == exact
    assert (
        page.get("/api/partitions?filter=users-0")["summary"]["frees_bytes"]
        == (exact["frees_bytes"])
    )
    broker.append("users", key=b"k1", value=b"later")
    assert page.get(AT)["verdict"]["exact"] is False


def test_an_explanation_of_what_is_due_makes_the_verdict_exact(page):
    explained = page.get(f"{AT}/explain")
    assert explained["verdict"]["exact"] is True
    assert page.get(AT)["verdict"] == explained["verdict"]


def test_fates_as_if_the_active_segment_were_rolled(page):
    now = page.get(f"{AT}/fates")
    rolled = page.get(f"{AT}/fates?roll=1")
    assert now["total"] == rolled["total"]
    assert now["counts"]["active"] == 1
    assert "active" not in rolled["counts"]
    assert rolled["counts"]["superseded"] > now["counts"]["superseded"]


def test_tombstones_have_no_effect_without_compaction(page):
    assert page.get(f"{AT}/tombstones")["is_compacted"] is True
    assert page.get("/api/partitions/events/0/tombstones")["is_compacted"] is False


# -- damage that only a full read finds ---------------------------------------------------------


def damage_record(broker, topic, partition=0):
    """Change a byte of the records in the first batch, whose header stays valid."""
    segment = broker.log(topic, partition).segments.first
    broker.runtime.fs.open(segment.log_path, create=True).write_at([b"\xff"], 66)


def states(page, sort="name"):
    found = page.get(f"/api/partitions?sort={sort}")
    assert (
        sum(row["verdict"]["state"] == "damaged" for row in found["partitions"])
        == (found["summary"]["damaged"])
    )
    return {
        f"{row['topic']}-{row['partition']}": row["verdict"]["state"] for row in found["partitions"]
    }


@pytest.mark.parametrize(
    "request_of",
    (
        lambda page: page.get(f"{AT}/verdict"),
        lambda page: page.get(f"{AT}/explain"),
        lambda page: page.ask("GET", f"{AT}/tombstones"),
        lambda page: page.ask("GET", f"{AT}/stats"),
        lambda page: page.ask("GET", f"{AT}/fates"),
        lambda page: page.ask("GET", f"{AT}/records"),
        lambda page: page.post(f"{AT}/clean", {"dry_run": True}),
    ),
    ids=("verdict", "explain", "tombstones", "stats", "fates", "records", "dry_run"),
)
def test_the_list_shows_damage_found_by_a_request(page, broker, request_of):
    damage_record(broker, "users")
    assert states(page)["users-0"] == "due"
    request_of(page)
    assert states(page)["users-0"] == "damaged"
    assert page.get(AT)["verdict"]["state"] == "damaged"
    assert page.get(AT)["verdict"]["examined"] == "records"
    assert page.get("/api/partitions?sort=damage")["partitions"][0]["topic"] == "users"


def test_damage_outlasts_a_change_of_the_decision(page, broker):
    damage_record(broker, "users")
    page.get(f"{AT}/verdict")
    broker.clock.advance(days=30)
    assert states(page)["users-0"] == "damaged"
    broker.append("users", key=b"k", value=b"v")
    assert states(page)["users-0"] == "due"  # the log has changed: read it again


def test_damage_in_a_topic_that_is_not_compacted_is_shown_too(page, broker):
    damage_record(broker, "events", 1)
    page.get("/api/partitions/events/1/verdict")  # reads headers only
    assert states(page)["events-1"] == "not_compacted"
    page.ask("GET", "/api/partitions/events/1/stats")
    assert states(page)["events-1"] == "damaged"
