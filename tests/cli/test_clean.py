from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from logstore.cleaner.passes.clean import PassProgress
from logstore.cli.commands.clean import CleaningBars
from logstore.types import TopicPartition
from tests.cli.conftest import GOLDEN, lines

STATS = {
    "topic",
    "partition",
    "pass",
    "strategy",
    "first_dirty_offset",
    "end_offset",
    "segments_before",
    "segments_after",
    "bytes_read",
    "bytes_written",
    "messages_read",
    "messages_written",
    "map_entries",
    "map_utilization",
    "fates",
    "index_ms",
    "clean_ms",
    # appended to the contract's fields
    "map_bytes_read",
    "map_messages_read",
    "seed_bytes_read",
    "seed_messages_read",
    "unversioned_records",
    "malformed_versions",
}


@pytest.fixture
def users(run):
    """A compacted topic of 30 records of 10 keys, all in the active segment."""
    run("topic", "create", "users", "--config", "cleanup.policy=compact")
    run("append", "users", input=lines(*({"key": str(n % 10), "value": str(n)} for n in range(30))))
    return "users"


def test_numbers_of_a_strategy_with_versions(run):
    """Bytes read from the clean section, and records without a version."""
    configs = {
        "cleanup.policy": "compact",
        "compaction.strategy": "header",
        "compaction.strategy.header": "v",
    }
    run("topic", "create", "t", *(f"--config={key}={value}" for key, value in configs.items()))
    good, bad = [["v", {"base64": "AAAAAAAAAAk="}]], [["v", "9"]]
    records = [{"key": "a", "value": "1", "headers": each} for each in (good, bad, [])]
    for expected_seed in (0, 1):
        run("append", "t", input=lines(*records, {"key": "z", "value": "1", "headers": good}))
        report = run("clean", "t", "--force", "--roll", "--format", "json").json
        [done] = report["cleaned"]
        assert done["strategy"] == "header"
        assert (done["unversioned_records"], done["malformed_versions"]) == (2, 1)
        assert done["map_messages_read"] == 4
        assert (done["seed_messages_read"] > 0) == (done["seed_bytes_read"] > 0)
        assert done["seed_messages_read"] == 2 * expected_seed
    found = run("read", "t", "--format", "jsonl").jsonl
    assert [record["offset"] for record in found] == [4, 7], "the later of equal versions"


def test_roll_starts_a_segment_at_the_log_end(run, users):
    rolled = run("roll", users, "--format", "json")
    assert rolled.json == {"topic": users, "partition": 0, "base_offset": 30}
    assert "starts at offset 30" in run("roll", users).stdout


def test_roll_needs_a_partition_where_there_are_several(run):
    run("topic", "create", "t", "--partitions", 2)
    assert "choose one with --partition" in run("roll", "t", code=2).stderr
    assert run("roll", "t", "--partition", 1, "--format", "json").json["partition"] == 1
    assert "has no partition 2" in run("roll", "t", "--partition", 2, code=2).stderr


def test_forced_clean_of_a_rolled_log(run, users):
    report = run("clean", users, "--force", "--roll", "--format", "json").json
    [done] = report["cleaned"]
    assert done.keys() == STATS
    assert (done["messages_read"], done["messages_written"]) == (30, 10)
    assert sum(done["fates"].values()) == 30
    assert (report["dry_run"], report["not_cleaned"]) == (False, [])
    assert report["passes_needed"] == {"users-0": 1}
    found = run("read", users, "--format", "jsonl").jsonl
    assert [record["offset"] for record in found] == list(range(20, 30))


def test_table_of_a_clean(run, users):
    text = run("clean", users, "--force", "--roll").stdout
    assert "users-0" in text
    assert "30 → 10" in text
    assert "superseded 20" in text
    assert "1 pass: " in text


def test_partitions_that_are_not_due_are_listed_with_the_reason(run, users):
    run("topic", "create", "events")
    report = run("clean", "--format", "json").json
    assert report["cleaned"] == []
    assert {(n["topic"], n["reason"]) for n in report["not_cleaned"]} == {
        ("events", "policy"),
        ("users", "active_segment"),
    }
    text = run("clean").stdout
    assert text.startswith("nothing was cleaned\n")
    assert "its cleanup.policy does not include compact" in text
    assert [item["topic"] for item in run("clean", "--format", "jsonl").jsonl] == [
        "events",
        "users",
    ]


def test_config_holds_for_this_run(run, users):
    run("roll", users)
    report = run("clean", "--config", "min.cleanable.dirty.ratio=1.0", "--format", "json").json
    assert [item["reason"] for item in report["not_cleaned"]] == ["dirty_ratio"]
    report = run("clean", "--config", "min.cleanable.dirty.ratio=0.1", "--format", "json").json
    assert [item["topic"] for item in report["cleaned"]] == ["users"]


def test_now_decides_whether_tombstones_expire(run):
    run("topic", "create", "t", "--config", "cleanup.policy=compact")
    run("append", "t", "--now", "2024-01-01", input=lines({"key": "k", "value": None}))
    run("clean", "t", "--force", "--roll", "--now", "2024-01-01T01:00:00Z")
    assert len(run("read", "t", "--format", "jsonl").jsonl) == 1
    run("clean", "t", "--force", "--now", "2024-01-02T00:59:59Z")
    assert len(run("read", "t", "--format", "jsonl").jsonl) == 1
    report = run("clean", "t", "--force", "--now", "2024-01-02T01:00:01Z", "--format", "json").json
    assert report["cleaned"][0]["fates"]["tombstone_expired"] == 1
    assert run("read", "t", "--format", "jsonl").jsonl == []


@pytest.mark.parametrize("case", ("clean-small", "clean-transactions-1"))
def test_clean_gives_kafka_s_bytes(run, golden, case):
    """The result of this cleaner equals the result of Kafka's cleaner on `before`."""
    directory = golden(f"{case}/before")
    manifest = json.loads((GOLDEN / case / "manifest.json").read_text())
    report = run(
        "clean",
        "golden",
        "--force",
        *("--data-dir", directory),
        *("--now", manifest["cleaning_time_ms"]),
        *(part for pair in manifest["config"].items() for part in ("--config", "=".join(pair))),
        *("--format", "json"),
    ).json
    assert report["not_cleaned"] == []
    assert report["cleaned"][0]["messages_written"] == manifest["stats"]["messagesWritten"]
    after = GOLDEN / case / "after" / "data" / "golden-0"
    expected = [path for path in sorted(after.iterdir()) if path.suffix in (".log", ".txnindex")]
    for path in expected:
        assert (directory / "golden-0" / path.name).read_bytes() == path.read_bytes()
    assert sorted(path.name for path in expected) == sorted(
        path.name
        for path in (directory / "golden-0").iterdir()
        if path.suffix in (".log", ".txnindex")
    )


def test_transactions_are_cleaned_and_their_fates_shown(run, golden):
    arguments = ("--data-dir", golden("transactions"), "--config", "cleanup.policy=compact")
    committed = run("read", "golden", *arguments[:2], "--format", "jsonl").jsonl
    text = run("clean", "golden", "--force", "--roll", *arguments).stdout
    assert "aborted" in text
    left = run("read", "golden", *arguments[:2], "--format", "jsonl").jsonl
    latest = {record["key"]: record for record in committed if record["key"] is not None}
    assert {record["key"]: record for record in left} == latest
    assert len(left) < len(committed)


def test_damage_makes_a_partition_uncleanable(run, golden):
    directory = golden("clean-small/before")
    path = directory / "golden-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    arguments = ("--data-dir", directory, "--config", "cleanup.policy=compact")
    failed = run("clean", "golden", "--force", *arguments, "--format", "json", code=1)
    assert [item["reason"] for item in failed.json["not_cleaned"]] == ["uncleanable"]
    assert failed.stderr.startswith("warning: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("--partition", "0"), "--partition needs a topic"),
        (("userz",), "did you mean users?"),
        (("users", "--partition", "7"), "has no partition 7"),
        (("users", "--config", "segment.byte=1"), "nearest is 'segment.bytes'"),
        (("users", "--config", "compaction.strategy=newest"), "one of offset, timestamp, header"),
    ),
)
def test_wrong_usage(run, users, arguments, message):
    assert message in run("clean", *arguments, code=2).stderr


def test_warmup_compiles(run):
    assert run("warmup", "--format", "json").json["elapsed_ms"] >= 0
    assert "kernels ready" in run("warmup").stdout


CALLED_FROM_PYTHON = (
    "table.scan_batches",
    "mapping.map_batches",
    "classify.classify_batches",
    "assemble.assemble_batches",
    "assemble.write_kept_records",
    "facts.list_records",
)


@pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="nothing is compiled")
def test_warmup_leaves_no_kernel_of_a_cleaning_for_later(data_dir):
    """In a separate process: in this one, other tests have compiled kernels."""
    program = (
        "from pkgutil import resolve_name\n"
        "from logstore.cli.main import main\n"
        "main(['warmup'], standalone_mode=False)\n"
        f"for name in {CALLED_FROM_PYTHON!r}:\n"
        "    assert resolve_name(f'logstore.cleaner.kernels.{name}').signatures, name\n"
    )
    environment = {**os.environ, "LOGSTORE_DATA_DIR": str(data_dir)}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr


def test_records_without_a_version_are_counted(run):
    by_header = ("--config=compaction.strategy=header", "--config=compaction.strategy.header=v")
    run("topic", "create", "v", "--config", "cleanup.policy=compact", *by_header)
    records = [
        {"key": "a", "value": "1", "headers": [["v", {"base64": "AAAAAAAAAAk="}]]},
        {"key": "a", "value": "2"},
        {"key": "b", "value": "3", "headers": [["v", "short"]]},
        {"key": "c", "value": "4", "headers": [["v", {"base64": "AAAAAAAAAAk="}]]},
    ]
    run("append", "v", input=lines(*records))
    result = run("clean", "v", "--force", "--roll")
    assert "v-0: 2 records without a version, 1 of them with a malformed header" in result.stdout


def test_bars_count_the_passes_of_each_partition_and_end_full():
    told = []

    class Bar:
        def update(self, task, done, total, detail=""):
            told.append((task, done, detail))

        def finish(self, task):
            told.append((task, "done"))

    bars = CleaningBars(Bar())
    for partition in (0, 1):
        tp = TopicPartition("t", partition)
        for phase in ("map", "rewrite") * (2 if partition else 1):
            bars(tp, PassProgress(phase, 3, 5, 0, 0))
    assert told == [
        ("mapping t-0", 3, ""),
        ("mapping t-0", "done"),
        ("rewriting t-0", 3, ""),
        ("mapping t-1", 3, ""),
        ("mapping t-1", "done"),
        ("rewriting t-1", 3, ""),
        ("rewriting t-1", "done"),
        ("mapping t-1", 3, "pass 2"),
        ("mapping t-1", "done"),
        ("rewriting t-1", 3, "pass 2"),
    ]


def test_an_assumed_policy_is_noted(run, users, data_dir, tmp_path):
    shutil.copytree(data_dir / "users-0", tmp_path / "copy" / "users-0")
    path = f"{tmp_path}/copy/users-0"
    found = run("clean", path, "--dry-run")
    assert found.stdout.startswith("nothing would be cleaned\n")
    assert found.stderr.startswith(
        "note: assumed: no configuration of topic users is stored here: cleanup.policy delete"
    )
    [policy, *_] = run("clean", path, "--dry-run", "--format", "json").json["assumed"]
    assert "cleanup.policy delete" in policy
    given = ("clean", path, "--dry-run", "--config", "cleanup.policy=compact")
    assert "assumed" not in run(*given).stderr
    assumed = run(*given, "--format", "json").json["assumed"]
    assert not any("cleanup.policy" in text for text in assumed)
    assert any("cleaner-offset-checkpoint" in text for text in assumed)
    assert run("clean", users, "--dry-run", "--format", "json").json["assumed"] == []
    assert run("clean", users, "--dry-run").stderr == ""
