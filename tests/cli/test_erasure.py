"""`logstore erasure`: every location of a key, its times, and the proof that it is erased."""

from __future__ import annotations

import base64
import shutil

import pytest

from logstore import Broker, VirtualClock
from tests.cli.conftest import lines

JAN_1 = 1_704_067_200_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MINUTE_MS = 60_000
NAMES = (
    *("path", "position", "offset", "state", "earliest_ms", "latest_ms"),
    *("rule", "code", "values", "reasons"),
)


@pytest.fixture
def create(run):
    def make(*configs):
        given = [part for each in configs for part in ("--config", each)]
        run("topic", "create", "t", *given, "--now", JAN_1)

    return make


@pytest.fixture
def put(run):
    def append(key, value, *arguments, at=JAN_1):
        run("append", "t", *arguments, "--now", at, input=lines({"key": key, "value": value}))

    return append


@pytest.fixture
def erasure(run):
    def find(*arguments, key="ann", at=JAN_1, code=1):
        given = ("erasure", "t", "--key", key, "--now", at, "--format", "json", *arguments)
        return run(*given, code=code).json

    return find


def test_an_unknown_key_is_erased(run, create, put, erasure):
    create()
    put("bob", "v")
    found = erasure(code=0)
    assert found["gone"] is True
    assert (found["key"], found["places"]) == ("ann", [])
    assert found["scanned"]["files"] == 1
    assert "ann gone" in run("erasure", "t", "--key", "ann").stdout


def test_retention_has_a_time_and_the_latest_adds_its_intervals(run, create, put, erasure):
    create("retention.ms=1h")
    put("ann", "v")
    [place] = erasure()["places"]
    assert tuple(place) == NAMES
    assert (place["offset"], place["position"], place["state"]) == (0, 0, "live")
    expires = JAN_1 + HOUR_MS + 1
    assert place["earliest_ms"] == expires
    assert place["latest_ms"] == expires + 5 * MINUTE_MS + MINUTE_MS
    assert (place["code"], place["values"]) == ("erasure.by_retention", {"retention_ms": HOUR_MS})
    assert "retention.ms 1h" in place["rule"]
    run("retain", "--now", expires - 1)
    assert erasure(at=expires - 1)["places"]
    run("retain", "--now", expires)
    assert erasure(at=expires, code=0)["gone"]


def test_a_tombstone_is_removed_a_horizon_after_its_first_pass(run, create, put, erasure):
    create("cleanup.policy=compact", "delete.retention.ms=1d")
    put("ann", "v")
    put("ann", None)
    first, second = erasure()["places"]
    assert (first["state"], second["state"]) == ("superseded", "tombstone")
    assert (first["earliest_ms"], second["earliest_ms"]) == (JAN_1, JAN_1 + DAY_MS)
    assert first["latest_ms"] is second["latest_ms"] is None, "nothing closes the segment"
    run("clean", "--force", "--roll", "--now", JAN_1)
    for moment, gone in ((JAN_1 + DAY_MS - 1, False), (JAN_1 + DAY_MS, True)):
        run("clean", "--force", "--now", moment)
        assert erasure(at=moment, code=None)["gone"] is gone


def test_the_live_record_stays_until_another_is_appended(create, put, erasure):
    create("cleanup.policy=compact", "max.compaction.lag.ms=1h")
    put("ann", "v")
    [place] = erasure()["places"]
    assert (place["earliest_ms"], place["latest_ms"]) == (None, None)
    assert "until a newer record of its key" in place["rule"]


def test_max_compaction_lag_bounds_the_latest_time(create, put, erasure):
    create("cleanup.policy=compact", "max.compaction.lag.ms=1h")
    put("ann", "v")
    put("ann", "w")
    first, _ = erasure()["places"]
    overdue = JAN_1 + HOUR_MS + 1
    assert (first["earliest_ms"], first["latest_ms"]) == (JAN_1, overdue + 15_000 + MINUTE_MS)


@pytest.mark.parametrize("codec", ("none", "gzip", "snappy", "lz4", "zstd"))
def test_a_key_inside_of_a_compressed_batch_is_found(run, create, erasure, codec):
    create()
    records = [{"key": f"k{number}", "value": "v" * 50} for number in range(20)]
    records.insert(7, {"key": "ann", "value": "v"})
    text = "".join(map(lines, records))
    run("append", "t", "--compression", codec, "--now", JAN_1, input=text)
    [place] = erasure()["places"]
    assert (place["offset"], place["position"]) == (7, 0)
    assert erasure(key="an", code=0)["gone"], "part of a key is none"


def test_every_leftover_is_a_location(run, create, put, erasure, data_dir):
    create()
    put("ann", "v")
    put("bob", "w")
    log = data_dir / "t-0" / f"{0:020}.log"
    for number, suffix in enumerate(("deleted", "cleaned", "swap"), 10):
        shutil.copy(log, log.with_name(f"{number:020}.log.{suffix}"))
    deleted = data_dir / f"t-0.{0:032x}-delete"
    deleted.mkdir()
    shutil.copy(log, deleted)
    with log.open("ab") as file:
        file.write(log.read_bytes()[:70])
    places = erasure()["places"]
    by_state = {place["state"]: place for place in places}
    states = {"live", "deleted", "cleaned", "swap", "deleted_partition", "torn_tail"}
    assert set(by_state) == states
    assert len(places) == len(states)
    assert by_state["torn_tail"]["offset"] is None
    torn = by_state["torn_tail"]
    assert log.read_bytes()[torn["position"] :].startswith(b"ann")
    for state in ("deleted", "cleaned"):
        assert by_state[state]["earliest_ms"] == by_state[state]["latest_ms"] == JAN_1
    assert by_state["deleted_partition"]["latest_ms"] == JAN_1 + MINUTE_MS


def test_a_copy_under_another_name_of_the_cleaner_is_removed_with_its_file(
    run, create, put, erasure, data_dir
):
    """The next start removes it too; then the log's own record is the only copy."""
    create()
    put("ann", "v")
    log = data_dir / "t-0" / f"{0:020}.log"
    shutil.copy(log, log.with_name(f"{7:020}.log.deleted"))
    assert {place["state"] for place in erasure()["places"]} == {"live", "deleted"}
    put("bob", "v")
    assert {place["state"] for place in erasure()["places"]} == {"live"}


@pytest.mark.parametrize("is_clean", (True, False))
def test_damage_hides_nothing(create, put, erasure, data_dir, is_clean):
    """After an unclean stop a broker truncates the log there, including all later records."""
    create()
    put("ann", "v")
    put("ann", "w")
    if not is_clean:
        (data_dir / ".kafka_cleanshutdown").unlink()
        (data_dir / "recovery-point-offset-checkpoint").unlink()
    log = data_dir / "t-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    place, behind = erasure()["places"]
    assert (place["state"], place["offset"]) == ("damaged", None)
    assert data[place["position"] :].startswith(b"ann")
    assert (behind["state"], behind["offset"]) == ("live", 1)
    assert place["earliest_ms"] == (None if is_clean else JAN_1)
    for each in (place, behind):
        assert (each["latest_ms"] == JAN_1) is not is_clean


def test_compressed_bytes_that_cannot_be_unfolded_prove_nothing(run, create, erasure, data_dir):
    create()
    text = "".join(lines({"key": f"k{number}", "value": "v" * 50}) for number in range(20))
    run("append", "t", "--compression", "zstd", "--now", JAN_1, input=text)
    log = data_dir / "t-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[90] ^= 1
    log.write_bytes(data)
    found = erasure()
    assert [place["state"] for place in found["places"]] == ["unreadable"]
    assert not found["gone"]


def test_records_below_the_log_start_are_still_on_disk(run, create, put, erasure):
    create()
    put("ann", "v")
    put("bob", "w")
    run("delete-records", "t", "--partition", 0, "--before-offset", 1, "--now", JAN_1)
    [place] = erasure()["places"]
    assert place["state"] == "below_log_start"


def test_all_partitions_are_searched(run, erasure):
    run("topic", "create", "t", "--partitions", 3, "--now", JAN_1)
    item = {"key": "ann", "value": "v", "partition": 2}
    run("append", "t", "--now", JAN_1, input=lines(item))
    [place] = erasure()["places"]
    assert "/t-2/" in place["path"]
    assert erasure("--partition", 1, code=0)["gone"]
    assert run("erasure", "t-2", "--key", "ann", code=1).stdout.startswith("ann found: 1 location")


def test_a_key_that_is_not_text(run, create, erasure):
    create()
    key = base64.b64encode(b"\xff\x00").decode()
    run("append", "t", input=lines({"key_base64": key, "value": "v"}))
    given = ("erasure", "t", "--key-base64", key, "--format", "json")
    found = run(*given, code=1).json
    assert found["key_base64"] == key
    assert (
        run("erasure", "t", "--key-base64", key, "--format", "jsonl", code=1).jsonl
        == (found["places"])
    )


@pytest.mark.parametrize(
    "arguments", (("t",), ("t", "--key", "a", "--key-base64", "YQ=="), ("t", "--key-base64", "?"))
)
def test_wrong_usage(run, create, arguments):
    create()
    run("erasure", *arguments, code=2)


def test_an_unknown_topic_is_named(run, create):
    create()
    assert "unknown topic 'x'" in run("erasure", "x", "--key", "k", code=2).stderr


def test_the_table_has_verdict_places_and_rules(run, create, put):
    create("cleanup.policy=compact")
    put("ann", "v")
    put("ann", None)
    text = run("erasure", "t", "--key", "ann", "--now", JAN_1, code=1).stdout
    assert text.startswith("ann found: 2 locations in 1 file")
    assert "earliest deletion of all: 2024-01-02 00:00:00.000Z, in 1d" in text
    assert "not all of it is deleted automatically" in text
    assert "delete.retention.ms 1d after the first pass" in " ".join(text.split())


def test_an_open_transaction_does_not_reopen_an_earlier_one_of_its_producer():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        producer = broker.producer(transactional_id="p", linger_ms=0)
        producer.init_transactions()
        for value in (b"1", b"2", b"3"):
            producer.begin_transaction()
            producer.send("t", value, key=b"ann").get()
            if value != b"3":
                producer.commit_transaction()
        states = [place.state for place in broker.erasure("t", b"ann").places]
        producer.abort_transaction()
    assert states == ["superseded", "live", "open_transaction"]


def test_the_last_record_of_a_log_can_go_once_another_is_appended(run, create, put, erasure):
    """With versions a cleaning pass keeps it, although it is superseded."""
    create("cleanup.policy=compact", "compaction.strategy=timestamp")
    put("ann", "new", at=JAN_1 + HOUR_MS)
    put("ann", "late", at=JAN_1)
    now = JAN_1 + HOUR_MS
    first, last = erasure(at=now)["places"]
    assert (first["state"], first["earliest_ms"]) == ("live", None)
    assert (last["state"], last["earliest_ms"], last["latest_ms"]) == ("superseded", now, None)
    codes = [reason["code"] for reason in last["reasons"]]
    assert codes == [
        "location.superseded",
        "erasure.by_superseding",
        "erasure.last_record",
        "erasure.not_due",
    ]
    assert last["rule"] == "; ".join(reason["text"] for reason in last["reasons"])
    explain = ("explain", "t", "--key", "ann", "--now", now, "--format", "json")
    [item] = run(*explain).json["partitions"]
    assert [each["earliest_ms"] for each in item["key"]["records"]] == [None, now]
    run("clean", "--force", "--roll", "--now", now)
    assert len(erasure(at=now)["places"]) == 2
    put("bob", "v", at=now)
    run("clean", "--force", "--roll", "--now", now)
    [left] = erasure(at=now)["places"]
    assert left["offset"] == first["offset"]


@pytest.mark.parametrize(("policy", "earliest"), (("compact", None), ("compact,delete", JAN_1)))
def test_a_bound_of_bytes_removes_nothing_unless_the_policy_deletes(
    create, put, erasure, policy, earliest
):
    create(f"cleanup.policy={policy}", "retention.bytes=1", "retention.ms=-1")
    put("ann", "v")
    [place] = erasure()["places"]
    assert (place["state"], place["earliest_ms"]) == ("live", earliest)
    assert ("retention.bytes" in place["rule"]) is (earliest is not None)
