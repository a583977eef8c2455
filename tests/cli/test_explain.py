"""`logstore explain`, and `clean --dry-run`, on a topic of an hour."""

from __future__ import annotations

import shutil

import pytest

from tests.cli.conftest import lines, tree_hash

JAN_1 = 1_704_067_200_000
HOUR_MS = 3_600_000
GATES = (
    *("policy", "cleaner_disabled", "uncleanable", "paused", "empty", "active_segment"),
    *("last_stable_offset", "min_compaction_lag", "dirty_ratio", "max_compaction_lag"),
)


@pytest.fixture
def users(run):
    """Ten records of three keys in closed segments and an active one, on 1 January."""
    configs = ("cleanup.policy=compact", "segment.bytes=200", "min.compaction.lag.ms=1h")
    given = [part for each in configs for part in ("--config", each)]
    run("topic", "create", "users", *given, "--now", JAN_1)
    records = [{"key": f"k{number % 3}", "value": f"v{number}"} for number in range(10)]
    arguments = ("--batch-records", 1, "--now", JAN_1)
    run("append", "users", *arguments, input="".join(lines(each) for each in records))
    return "users"


def test_every_gate_has_its_number_and_its_time(run, users):
    report = run("explain", users, "--now", JAN_1 + 5, "--format", "json").json
    [item] = report["partitions"]
    assert (item["topic"], item["partition"], item["will_clean"]) == ("users", 0, False)
    assert item["binding"] == "min_compaction_lag"
    assert [gate["gate"] for gate in item["gates"]] == list(GATES)
    assert all(
        set(gate) == {"gate", "open", "value", "threshold", "opens_at_ms", "code", "values", "text"}
        for gate in item["gates"]
    )
    by_name = {gate["gate"]: gate for gate in item["gates"]}
    assert by_name["min_compaction_lag"]["opens_at_ms"] == JAN_1 + HOUR_MS
    assert by_name["max_compaction_lag"]["opens_at_ms"] is None, "it is not set"
    assert by_name["policy"]["open"]
    assert (item["passes_needed"], item["must_clean_ratio"]) == (0, 0)
    assert item["max_compaction_delay_ms"] == 0


def test_the_time_is_exact(run, users):
    for moment, will in ((JAN_1 + HOUR_MS - 1, False), (JAN_1 + HOUR_MS, True)):
        [item] = run("explain", users, "--now", moment, "--format", "json").json["partitions"]
        assert item["will_clean"] is will
        report = run("clean", users, "--now", moment, "--dry-run", "--format", "json").json
        assert bool(report["cleaned"]) is will


def test_a_configuration_can_be_supposed(run, users):
    supposed = ("--config", "min.compaction.lag.ms=0")
    [item] = run("explain", users, *supposed, "--now", JAN_1, "--format", "json").json["partitions"]
    assert item["will_clean"] is True
    [item] = run("explain", users, "--now", JAN_1, "--format", "json").json["partitions"]
    assert item["will_clean"] is False


def test_the_table_shows_the_time_and_the_reason(run, users):
    run("topic", "create", "events", "--now", JAN_1)
    text = run("explain", "--now", JAN_1).stdout
    assert text.startswith("events-0 not compacted: never compacted; retention keeps all")
    assert "users-0 waiting: a forced pass frees at most " in text
    assert "not yet: its records are younger than min.compaction.lag.ms=1h" in text
    assert "  a running cleaner would clean it at 2024-01-01 01:00" in text
    assert text.endswith(": 1 waiting, 1 not compacted\n")
    assert text.count("all 4 of the following conditions must be met\n") == 1
    assert "min.compaction.lag.ms 1h" in text
    text = run("explain", users, "--now", JAN_1 + HOUR_MS).stdout
    assert "users-0 due: frees " in text
    assert "will be cleaned" in text
    assert "  offsets 0..7, 5 of 8 records removed" in text


def explained(run, *arguments, code=0):
    [item] = run("explain", *arguments, "--format", "json", code=code).json["partitions"]
    return item


def test_a_closed_gate_has_a_cause_and_a_cure(run, users):
    item = explained(run, users, "--now", JAN_1)
    assert item["headline"] == "not yet: its records are younger than min.compaction.lag.ms=1h"
    by_gate = {remedy["gate"]: remedy for remedy in item["remedies"]}
    assert set(by_gate) == {gate["gate"] for gate in item["gates"] if not gate["open"]}
    young = by_gate["min_compaction_lag"]
    [cause] = young["causes"]
    assert (cause["code"], cause["values"]) == ("gate.too_young", {"offset": 0, "lag_ms": HOUR_MS})
    assert "data at or above offset 0 is younger than min.compaction.lag.ms 1h" in young["cause"]
    codes = [cure["code"] for cure in young["cures"]]
    assert codes == ["cure.wait", "cure.lower_min_lag", "cure.force"]
    assert young["cures"][0]["values"] == {"at_ms": JAN_1 + HOUR_MS}
    assert young["cure"].startswith("wait until 2024-01-01 01:00:00.000Z; or lower")
    text = " ".join(run("explain", users, "--now", JAN_1).stdout.split())
    assert "or force a cleaning pass (logstore clean --force)" in text


def test_an_open_segment_lists_the_conditions_that_close_it(run, data_dir):
    configs = ("cleanup.policy=compact", "segment.ms=2h", "max.compaction.lag.ms=3h")
    given = [part for each in configs for part in ("--config", each)]
    run("topic", "create", "t", *given, "--now", JAN_1)
    run("append", "t", "--now", JAN_1, input=lines({"key": "k", "value": "v"}))
    item = explained(run, "t", "--now", JAN_1)
    assert item["headline"] == "not yet: its records are still in the active segment"
    active = item["active_segment"]
    assert (active["base_offset"], active["first_timestamp"]) == (0, JAN_1)
    found = [(c["setting"], c["at_ms"], c["needs_append"]) for c in active["closings"]]
    assert found == [
        ("segment.bytes", None, True),
        ("segment.ms", JAN_1 + 2 * HOUR_MS + 1, True),
        ("max.compaction.lag.ms", JAN_1 + 3 * HOUR_MS + 1, False),
    ]
    text = run("explain", "t", "--now", JAN_1).stdout
    assert "segment.ms 2h" in text
    assert "2024-01-01 02:00:00.001Z" in text


def test_tombstones_have_horizons_and_nothing_makes_their_pass_due(run, users):
    for value in ("x", None):
        run("append", users, "--now", JAN_1, input=lines({"key": "gone", "value": value}))
    found = explained(run, users, "--now", JAN_1)["tombstones"]
    assert (found["records"], found["unstamped"], found["expired"]) == (1, 1, 0)
    run("clean", users, "--force", "--roll", "--now", JAN_1)
    horizon = JAN_1 + 24 * HOUR_MS
    for moment, expired in ((horizon - 1, 0), (horizon, 1)):
        found = explained(run, users, "--now", moment)["tombstones"]
        assert (found["unstamped"], found["expired"]) == (0, expired)
        assert found["first_horizon_ms"] == found["last_horizon_ms"] == horizon
        codes = [reason["code"] for reason in found["reasons"]]
        waits = "tombstones.expired" if expired else "tombstones.waiting"
        assert codes == [waits, "pass.not_by_itself", "pass.forced"]
        assert found["text"] == "; ".join(reason["text"] for reason in found["reasons"])
        clean = ("clean", users, "--force", "--dry-run", "--now", moment, "--format", "json")
        [report] = run(*clean).json["cleaned"]
        assert report["fates"]["tombstone_expired"] == expired


@pytest.mark.parametrize("force", (False, True))
def test_damage_that_prevents_cleaning_is_reported(run, users, data_dir, force):
    """A partition that is reported as cleanable must be cleaned."""
    path = sorted((data_dir / "users-0").glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    later = ("--now", JAN_1 + HOUR_MS)
    item = explained(run, users, *later, code=1)
    assert (item["will_clean"], item["binding"]) == (False, "uncleanable")
    assert item["opens_at_ms"] is None
    assert path.name in item["damages"][0]
    assert "salvage" in item["remedies"][0]["cure"]
    assert explained(run, users, "--now", JAN_1, code=1)["binding"] == "uncleanable"
    item = explained(run, users, *later, "--quick")
    assert item["will_clean"]
    assert any("--quick" in text for text in item["assumed"])


def test_a_key_has_its_records_and_what_must_happen_first(run, users):
    for value in ("x", None):
        run("append", users, "--now", JAN_1, input=lines({"key": "gone", "value": value}))
    story = explained(run, users, "--key", "gone", "--now", JAN_1)["key"]
    first, second = story["records"]
    assert (first["state"], second["state"]) == ("superseded", "tombstone")
    assert second["section"] == "active"
    assert second["delete_horizon_ms"] is None
    assert second["earliest_ms"] == JAN_1 + HOUR_MS + 24 * HOUR_MS
    due, stamped, _ = story["reasons"]
    assert (due["code"], due["values"]) == ("pass.due_later", {"at_ms": JAN_1 + HOUR_MS})
    assert stamped["code"] == "key.stamped_later"
    assert story["steps"] == [reason["text"] for reason in story["reasons"]]
    assert second["code"] == "erasure.by_horizon"
    run("clean", users, "--force", "--roll", "--now", JAN_1)
    found = explained(run, users, "--key", "gone", "--now", JAN_1 + 5)["key"]
    [left] = found["records"]
    assert left["delete_horizon_ms"] == JAN_1 + 24 * HOUR_MS
    codes = [reason["code"] for reason in found["reasons"]]
    assert codes == ["key.no_pass", "cause.all_clean", "key.horizon"]
    offset = left["offset"]
    assert found["reasons"][-1]["values"] == {"offset": offset, "at_ms": JAN_1 + 24 * HOUR_MS}
    text = run("explain", users, "--key", "gone", "--now", JAN_1 + 5).stdout
    assert "key gone: 1 record in the log" in text
    assert "in 23h 59m" in text
    live = explained(run, users, "--key", "k0", "--now", JAN_1)["key"]["reasons"][0]
    assert (live["code"], live["values"]) == ("key.live", {"offset": 9})
    missing = explained(run, users, "--key", "nobody", "--now", JAN_1)["key"]
    assert missing["records"] == []
    assert missing["steps"] == ["the log contains no record with this key"]


def test_damage_that_no_cleaning_reaches_hinders_none(run, users, data_dir):
    path = sorted((data_dir / "users-0").glob("*.log"))[-1]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    item = explained(run, users, "--now", JAN_1 + HOUR_MS, code=None)
    assert item["will_clean"]
    report = run("clean", users, "--now", JAN_1 + HOUR_MS, "--format", "json", code=None).json
    assert report["cleaned"]


def test_facts_missing_from_a_copied_folder_are_assumed(run, users, data_dir, tmp_path):
    import shutil

    shutil.copytree(data_dir / "users-0", tmp_path / "copy" / "users-0")
    path = f"{tmp_path}/copy/users-0"
    item = explained(run, path, "--now", JAN_1)
    assert item["headline"] == "never: its cleanup.policy does not include compact"
    [policy, *others] = item["assumed"]
    assert "cleanup.policy delete" in policy
    assert "--config KEY=VALUE" in policy
    assert len(others) == 2, "log start and high watermark"
    item = explained(run, path, "--config", "cleanup.policy=compact")
    assert item["will_clean"]
    assert any("cleaner-offset-checkpoint has no entry" in text for text in item["assumed"])
    assert any("--now TIME" in text for text in item["assumed"])
    assert not any("cleanup.policy" in text for text in item["assumed"])
    assert explained(run, users, "--now", JAN_1)["assumed"] == []


def test_explain_changes_nothing(run, data_dir, users):
    before = tree_hash(data_dir)
    for output in ("table", "json", "jsonl"):
        run("explain", "--format", output, "--now", JAN_1 + 400 * 24 * HOUR_MS)
        run("clean", "--dry-run", "--force", "--roll", "--format", output)
    assert tree_hash(data_dir) == before


def test_a_dry_run_shows_what_the_real_run_does(run, users):
    arguments = ("clean", users, "--force", "--roll", "--now", JAN_1, "--format", "json")
    dry = run(*arguments, "--dry-run").json
    real = run(*arguments).json
    assert (dry.pop("dry_run"), real.pop("dry_run")) == (True, False)
    for report in (dry, real):
        for item in report["cleaned"]:
            del item["index_ms"], item["clean_ms"]
    assert dry == real
    [item] = real["cleaned"]
    assert item["fates"]["superseded"] == 7
    assert "nothing was changed" in run("clean", users, "--force", "--dry-run").stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    ((("nothing",), 2), (("users", "--partition", 7), 2), (("--partition", 0), 2)),
)
def test_wrong_usage(run, users, arguments, code):
    run("explain", *arguments, code=code)


def test_each_assumption_is_listed_once(run, data_dir):
    """Also the clock, and assumptions shared by several partitions."""
    run("topic", "create", "t", "--partitions", 2, "--config", "cleanup.policy=compact")
    for number in (0, 1):
        run("append", "t", "--partition", number, input=lines({"key": "k", "value": "v"}))
    (data_dir / "logstore-topics.json").unlink()
    text = run("explain", "t", "--partition", 0).stdout
    assert text.count("assumed:") == 1
    assert text.count("(system clock)") == 1
    text = " ".join(run("explain", "t").stdout.split())
    assert text.count("no configuration of topic t is stored here") == 1
    assert text.count("(system clock)") == 1
    items = run("explain", "t", "--format", "jsonl").jsonl
    assert all("no configuration" in item["assumed"][0] for item in items)
    assert all("(system clock)" in item["assumed"][-1] for item in items)


@pytest.mark.parametrize(
    "command", (("inspect",), ("explain", "--key", "k"), ("erasure", "t", "--key", "k"))
)
def test_a_warning_of_a_folder_is_printed_once(run, data_dir, command):
    """However often the directory is read, including dry runs."""
    run("topic", "create", "t", "--partitions", 2, "--config", "cleanup.policy=compact")
    for number in (0, 1):
        run("append", "t", "--partition", number, input=lines({"key": "k", "value": "v"}))
    (data_dir / "logstore-topics.json").unlink()
    (data_dir / "t-0" / "partition.metadata").write_text("garbage")
    other = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n"
    (data_dir / "t-1" / "partition.metadata").write_text(other)
    error = run(*command, code=None).stderr
    assert error.count("t-0/partition.metadata: line 1") == 1
    shutil.copytree(data_dir / "t-1", data_dir / "t-2")
    text = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAw\n"
    (data_dir / "t-2" / "partition.metadata").write_text(text)
    assert run(*command, code=None).stderr.count("belongs to another topic") == 1
