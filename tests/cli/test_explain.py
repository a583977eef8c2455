"""`logstore explain`, and `clean --dry-run`, on a topic of an hour."""

from __future__ import annotations

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


def test_every_gate_has_its_number_and_its_moment(run, users):
    report = run("explain", users, "--now", JAN_1 + 5, "--format", "json").json
    [item] = report["partitions"]
    assert (item["topic"], item["partition"], item["will_clean"]) == ("users", 0, False)
    assert item["binding"] == "min_compaction_lag"
    assert [gate["gate"] for gate in item["gates"]] == list(GATES)
    assert all(
        set(gate) == {"gate", "open", "value", "threshold", "opens_at_ms", "text"}
        for gate in item["gates"]
    )
    by_name = {gate["gate"]: gate for gate in item["gates"]}
    assert by_name["min_compaction_lag"]["opens_at_ms"] == JAN_1 + HOUR_MS
    assert by_name["max_compaction_lag"]["opens_at_ms"] is None, "it is not set"
    assert by_name["policy"]["open"]
    assert (item["passes_needed"], item["must_clean_ratio"]) == (0, 0)
    assert item["max_compaction_delay_ms"] == 0


def test_the_moment_is_exact(run, users):
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


def test_the_table_says_when_and_why(run, users):
    run("topic", "create", "events", "--now", JAN_1)
    text = run("explain", "--now", JAN_1).stdout
    assert "users-0 will not be cleaned: not old enough; by itself on 2024-01-01 01:00" in text
    assert "events-0 will not be cleaned: not compacted\n" in text
    assert "min.compaction.lag.ms 1h" in text
    text = run("explain", users, "--now", JAN_1 + HOUR_MS).stdout
    assert "users-0 will be cleaned: offsets 0.." in text


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
