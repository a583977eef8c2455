"""`inspect --fate`: the fate of every record."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from logstore.cli.show.fates import _Listing
from logstore.cli.show.progress import ProgressBar
from logstore.storage.loading.views import TRANSIENT
from tests.cli.conftest import GOLDEN, lines

NAMES = ["offset", "key", "fate", "superseded_by"]
COMPACT = ("--config", "cleanup.policy=compact")


@pytest.fixture
def users(run):
    """Two closed segments of 4 keys, and one record in the active one."""
    run("topic", "create", "users", "--config", "cleanup.policy=compact")
    for first in (0, 6):
        numbers = range(first, first + 6)
        run("append", "users", input=lines(*({"key": f"k{n % 4}", "value": "v"} for n in numbers)))
        run("roll", "users")
    run("append", "users", input=lines({"key": "k0", "value": "again"}))
    return "users"


def test_jsonl_has_the_fate_of_each_record(run, users):
    found = run("inspect", users, "--fate", "--format", "jsonl")
    assert found.stderr == ""
    assert [list(item)[:4] for item in found.jsonl] == [NAMES] * 13
    assert found.jsonl[0] == {
        "offset": 0,
        "key": "k0",
        "fate": "superseded",
        "superseded_by": 8,
        "control": None,
        "topic": "users",
        "partition": 0,
    }
    assert [item["superseded_by"] for item in found.jsonl] == [
        *(8, 9, 10, 11, 8, 9, 10, 11),
        *(None, None, None, None, None),
    ]
    fates = Counter(item["fate"] for item in found.jsonl)
    assert fates == {"superseded": 8, "retained": 4, "active": 1}


def test_with_versions_the_winner_may_precede_the_superseded_record(run):
    by_time = ("--config", "compaction.strategy=timestamp")
    run("topic", "create", "t", *COMPACT, *by_time)
    records = [{"key": "k", "value": "v", "timestamp": time} for time in (5, 9, 7)]
    run("append", "t", input=lines(*records, {"key": "z", "value": "v"}))
    run("roll", "t")
    found = run("inspect", "t", "--fate", "--format", "jsonl").jsonl
    assert [(item["fate"], item["superseded_by"]) for item in found] == [
        *(("superseded", 1), ("retained", None), ("superseded", 1), ("retained", None)),
    ]
    text = run("inspect", "t", "--fate").stdout
    assert "     2  superseded              1  k\n" in text
    [dry] = run("clean", "t", "--dry-run", "--format", "json").json["cleaned"]
    [done] = run("clean", "t", "--format", "json").json["cleaned"]
    assert {**dry, "index_ms": 0, "clean_ms": 0} == {**done, "index_ms": 0, "clean_ms": 0}
    assert (done["strategy"], done["fates"]["superseded"]) == ("timestamp", 2)
    assert [item["offset"] for item in run("read", "t", "--format", "jsonl").jsonl] == [1, 3]


def test_json_is_one_object(run, users):
    listed = run("inspect", users, "--fate", "--format", "jsonl").jsonl
    assert run("inspect", users, "--fate", "--format", "json").json == {"fates": listed}


def test_the_fates_are_those_of_the_dry_run_and_of_the_cleaning(run, users):
    fates = Counter(i["fate"] for i in run("inspect", users, "--fate", "--format", "jsonl").jsonl)
    for dry_run in (("--dry-run",), ()):
        [stats] = run("clean", users, *dry_run, "--format", "json").json["cleaned"]
        counted = {name: count for name, count in stats["fates"].items() if count}
        assert counted == {name: fates[name] for name in ("retained", "superseded")}
    left = run("inspect", users, "--fate", "--format", "jsonl").jsonl
    assert Counter(item["fate"] for item in left) == {"retained": 4, "active": 1}


def test_forced_and_rolled_fates_match_such_a_dry_run(run, users):
    run("clean", users)
    options = ("--force", "--roll")
    [stats] = run("clean", users, *options, "--dry-run", "--format", "json").json["cleaned"]
    listed = run("inspect", users, "--fate", *options, "--format", "jsonl").jsonl
    fates = Counter(item["fate"] for item in listed)
    assert fates == Counter({name: count for name, count in stats["fates"].items() if count})
    assert fates == {"superseded": 1, "retained": 4}
    forced = run("inspect", users, "--fate", "--force", "--format", "jsonl").jsonl
    assert [item["fate"] for item in forced].count("active") == 1


def test_table_names_the_range_the_records_and_the_sums(run, users):
    text = run("inspect", users, "--fate").stdout
    assert text.splitlines()[0] == "users-0  the next cleaning pass compacts offsets 0..12"
    assert "     0  superseded              8  k0\n" in text
    assert "    12  active                     k0\n" in text
    assert text.endswith("\n13 records: 4 retained, 8 superseded, 1 active\n")


def test_table_names_the_gate_that_delays_the_cleaning(run, users):
    run("topic", "alter", users, "--set", "min.cleanable.dirty.ratio=1.0")
    text = run("inspect", users, "--fate").stdout
    assert "not due now: the dirty ratio 1 must exceed" in text
    assert "8 superseded" in text
    run("topic", "alter", users, "--set", "min.cleanable.dirty.ratio=0.5")
    run("clean", users)
    assert "no cleanable dirty records from offset 12 on" in (
        run("inspect", users, "--fate").stdout
    )


def test_several_partitions_and_topics(run, users):
    run("topic", "create", "events", "--partitions", 2)
    run("append", "events", "--partition", 1, input=lines({"key": None, "value": "x"}))
    found = run("inspect", "--fate", "--format", "jsonl")
    assert Counter((item["topic"], item["partition"]) for item in found.jsonl) == {
        ("events", 1): 1,
        ("users", 0): 13,
    }
    assert found.stderr.splitlines() == [
        f"note: events-{number}: never cleaned: cleanup.policy is delete" for number in (0, 1)
    ]
    text = run("inspect", "--fate").stdout
    assert text.startswith("events-0  never cleaned: cleanup.policy is delete\n\nno records\n\n")
    assert "\nusers-0  the next cleaning pass compacts" in text


def test_path_of_a_partition_and_config(run):
    path = GOLDEN / "transactions" / "data" / "golden-0"
    found = run("inspect", path, "--fate", *COMPACT, "--format", "jsonl").jsonl
    assert [item["offset"] for item in found] == list(range(53))
    by_control = Counter(item["control"] for item in found)
    assert (by_control["abort"], by_control["commit"]) == (7, 7)
    assert all(item["key"] is None for item in found if item["control"])
    counts = Counter(item["fate"] for item in found)
    assert counts == {"retained": 15, "superseded": 20, "aborted": 10, "active": 8}
    text = run("inspect", path, "--fate", *COMPACT).stdout
    assert "  abort marker\n" in text
    # Without its configuration a topic is not known to be compacted.
    found = run("inspect", path, "--fate", "--format", "jsonl").jsonl
    assert {item["fate"] for item in found} == {"retained", "active"}


def test_keys_that_are_not_text_and_null_keys(run, data_dir):
    from logstore import Broker

    with Broker(data_dir) as broker:
        broker.create_topic("t")
        broker.append_many("t", [(b"\xff\x00", b"v"), (None, b"v"), (b"a\nb", b"v")])
        broker.roll("t")
    run("topic", "alter", "t", "--set", "cleanup.policy=compact")
    one, two, three = run("inspect", "t", "--fate", "--format", "jsonl").jsonl
    assert (one["key_base64"], "key" in one) == ("/wA=", False)
    assert (two["key"], two["fate"]) == (None, "null_key")
    assert three["key"] == "a\nb"
    text = run("inspect", "t", "--fate").stdout
    assert "     1  null key                 ∅\n" in text
    assert "a\\nb\n" in text


def test_config_changes_the_sections_in_inspect(run, users):
    young = ("--config", "min.compaction.lag.ms=1d")
    assert run("inspect", users, *young, "--format", "json").json["first_uncleanable_offset"] == 0
    assert run("inspect", users, "--format", "json").json["first_uncleanable_offset"] == 12
    found = run("inspect", users, "--fate", *young, "--format", "jsonl").jsonl
    assert {item["fate"] for item in found} == {"not_yet_cleanable", "active"}


def test_damage_hides_no_record_that_is_intact_and_no_other_partition(run, golden):
    directory = golden("clean-small/before")
    path = directory / "golden-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    run("append", "other", "--create", "--data-dir", directory, input=lines({"value": "x"}))
    arguments = ("--fate", *COMPACT, "--data-dir", directory)
    alone = run("inspect", "golden-0", *arguments, code=1)
    assert alone.stderr.startswith(f"damage: {path}: 88 bytes at position 0 ")
    for output in ("table", "jsonl"):
        found = run("inspect", *arguments, "--format", output, code=1)
        assert found.stderr.count("damage: ") == 1
    assert Counter(item["topic"] for item in found.jsonl) == {"golden": 18, "other": 1}
    recovered = run("inspect", *arguments, "--as-recovered", "--format", "jsonl", code=1)
    assert recovered.stderr.count("CORRUPT_MESSAGE") == 1
    assert [item["topic"] for item in recovered.jsonl] == ["other"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("users", "--fate", "--records"), "--records and --fate are mutually exclusive"),
        (("users", "--fate", "--batches"), "--batches and --fate are mutually exclusive"),
        (("users", "--fate", "--config", "segment.byte=1"), "nearest is 'segment.bytes'"),
        (("users", "--roll"), "--roll needs --fate"),
        (("users", "--records", "--force"), "--force needs --fate"),
        (("{file}", "--fate"), "--fate needs a topic or a partition directory"),
        (("{file}", *COMPACT), "--config needs a topic or a directory"),
    ),
)
def test_wrong_usage(run, users, data_dir, arguments, message):
    path = data_dir / "users-0" / f"{0:020}.log"
    refused = run("inspect", *(part.format(file=path) for part in arguments), code=2)
    assert message in refused.stderr
    assert refused.stdout == ""


def test_a_failed_listing_resumes_after_the_last_record_and_resets_the_failure_count():
    """A failure right after another one is the second; one after a record is the first again."""
    failed = []
    error = TRANSIENT[0]("moved")

    def fates(*offsets):
        for offset in offsets:
            if offset is None:
                raise error
            yield SimpleNamespace(offset=offset)

    attempts = iter(
        [fates(0, 1, None), fates(None), fates(0, 1, None), fates(0, 1, 2, None), fates(1, 2, 3)]
    )
    view = SimpleNamespace(
        log="log",
        reopen=lambda log, failures, cause: failed.append((log, failures, cause)),
        evaluate=lambda _: next(attempts),
    )
    listing = object.__new__(_Listing)
    listing._view, listing._bar, listing.fates = view, ProgressBar(), next(attempts)
    assert [record.offset for record in listing] == [0, 1, 2, 3]
    assert failed == [("log", number, error) for number in (1, 2, 3, 1)]
