"""`logstore bench`: the short benchmark, on a generated log and on a copy of a directory."""

from __future__ import annotations

import re

import pytest

from tests.cli.conftest import tree_hash

TINY = ("--size", "64KiB")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Kernels as they are: compiling always is for good in a process; and small limits.

    Before each of its many steps the garbage of a whole suite would be collected.
    """
    monkeypatch.setattr("logstore.bench.measuring.gc.collect", lambda: 0)
    monkeypatch.setattr("logstore.bench.commands.short.compile_always", lambda: None)
    monkeypatch.setattr("logstore.bench.commands.short.WARM_UP_BYTES", 1 << 16)
    monkeypatch.setattr("logstore.bench.commands.short.LIMIT_BYTES", 1 << 20)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Directory of temporary files, which must be empty in the end."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("where", ((), ("--in-memory",)))
def test_a_log_is_appended_cleaned_and_read(run, temporary, data_dir, where):
    said = run("bench", *TINY, *where, "--partitions", 2, "--threads", 2, "--format", "json").json
    assert [step["name"] for step in said["steps"]] == ["append", "clean", "read"]
    append, clean, read = said["steps"]
    assert append["bytes"] == clean["bytes"] > 100_000
    assert append["records"] == clean["records"]
    cleaned = said["cleaned"]
    assert {each["partition"] for each in cleaned} == {0, 1}
    assert read["records"] == sum(each["messages_written"] for each in cleaned)
    assert read["records"] / append["records"] == pytest.approx(0.12, abs=0.05)
    assert all(step["records_per_s"] > 0 for step in said["steps"])
    assert set(said["limits_gb_per_s"]) == {"memcpy", "write_fsync"}
    assert said["machine"]["cores"] > 0
    assert said["in_memory"] is bool(where)
    assert not data_dir.exists()


def test_a_chart_has_a_bar_for_each_step_and_the_longest_is_the_fastest(run, temporary):
    shown = run("bench", *TINY).stdout
    bars = re.findall(r"^(append|clean|read) +([█#]+) +([\d,]+)  ", shown, re.MULTILINE)
    assert [name for name, _, _ in bars] == ["append", "clean", "read"]
    assert max(len(bar) for _, bar, _ in bars) == 40
    speeds = [int(speed.replace(",", "")) for _, _, speed in bars]
    longest = max(range(3), key=lambda place: len(bars[place][1]))
    assert speeds[longest] == max(speeds)
    assert re.search(r"copies memory at [\d.]+ GB/s, writes and syncs at [\d.]+ GB/s", shown)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ("timestamp", "header"))
def test_strategy_and_codec_match_the_log(run, temporary, strategy):
    said = run(*("bench", *TINY, "--strategy", strategy, "--codec", "lz4", "--format", "json")).json
    (done,) = said["cleaned"]
    assert done["strategy"] == strategy
    assert said["codec"] == "lz4"


def test_jsonl_has_a_line_a_step(run, temporary):
    lines = run("bench", *TINY, "--format", "jsonl").jsonl
    assert [line["name"] for line in lines] == ["append", "clean", "read"]


@pytest.fixture
def filled(run, data_dir):
    run("topic", "create", "users", "--partitions", 2)  # not compacted of itself
    rows = "".join(f'{{"key":"{number % 50}","value":"{number}"}}\n' for number in range(1000))
    run("append", "users", input=rows)
    return data_dir


def test_a_copy_of_a_directory_is_cleaned_and_the_directory_is_not_touched(run, temporary, filled):
    before = tree_hash(filled)
    done = run("bench", filled, "--format", "json")
    assert tree_hash(filled) == before
    said = done.json
    assert said["directory"] == str(filled)
    assert sum(each["messages_read"] for each in said["cleaned"]) == 1000
    assert sum(each["messages_written"] for each in said["cleaned"]) == 50
    assert "note: cleaning a temporary copy of" in done.stderr


def test_partitions_of_a_directory_have_a_bar_each(run, temporary, filled):
    shown = run("bench", filled, "--threads", 2, "--strategy", "timestamp").stdout
    assert re.findall(r"^  (users-\d) +[█#]+", shown, re.MULTILINE) == ["users-0", "users-1"]


def test_a_missing_directory_is_wrong_usage(run, temporary, tmp_path):
    refused = run("bench", tmp_path / "none", code=2)
    assert "does not exist" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("--size", "12"), "12 is below the minimum, 64KiB"),
        (("--size", "big"), "'big' is not a size such as 4096, 64MiB or 1g"),
        (("--survivors", "0"), "0 is not in the range"),
        (("--strategy", "newest"), "'newest' is not one of"),
        (("--threads", "0"), "0 is not in the range"),
        ((".", "--size", "1g"), "--size applies to a generated log, not to DIR"),
        ((".", "--in-memory"), "--in-memory applies to a generated log, not to DIR"),
    ),
)
def test_wrong_usage(run, arguments, message):
    refused = run("bench", *arguments, code=2)
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_partition_s_own_folder_is_refused(run, temporary, filled):
    refused = run("bench", filled / "users-0", code=2)
    assert "contains no partition: give the directory that contains TOPIC-0" in refused.stderr


def test_too_little_space_for_a_copy_is_reported_before_copying(
    run, temporary, filled, monkeypatch
):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10})())
    refused = run("bench", filled, code=2)
    assert "has only 10 free: set TMPDIR to another directory" in refused.stderr
