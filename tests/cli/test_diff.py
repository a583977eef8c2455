"""`logstore diff`: fates of records between two copies of a partition."""

from __future__ import annotations

import shutil

import pytest

from logstore.record.crc32c import crc32c
from logstore.record.walk import walk_buffer
from tests.cli.conftest import lines

JAN_1 = 1_704_067_200_000


@pytest.fixture
def copies(run, data_dir, tmp_path):
    """A partition before and after a cleaning pass, and the cleaning pass's report."""
    run("topic", "create", "users", "--config", "cleanup.policy=compact", "--now", JAN_1)
    records = [{"key": f"k{number % 3}", "value": f"v{number}"} for number in range(10)]
    many = "".join(map(lines, records))
    run("append", "users", "--batch-records", 1, "--now", JAN_1, input=many)
    shutil.copytree(data_dir, tmp_path / "before")
    clean = ("clean", "users", "--force", "--roll", "--now", JAN_1, "--format", "json")
    return tmp_path / "before" / "users-0", data_dir / "users-0", run(*clean).json


def test_fates_match_the_report(run, copies):
    before, after, report = copies
    found = run("diff", before, after, "--format", "json").json
    [cleaned] = report["cleaned"]
    assert {fate: found["counts"][fate] for fate in cleaned["fates"]} == cleaned["fates"]
    assert found["explained"] is True
    assert found["assumed"] == []
    assert len(found["fates"]) == sum(found["counts"].values()) == 10
    assert found["fates"][0] == {
        "offset": 0,
        "key": "k0",
        "fate": "superseded",
        "superseded_by": 9,
        "control": None,
        "topic": "users",
        "partition": 0,
    }
    assert run("diff", before, after, "--format", "jsonl").jsonl == found["fates"]
    summary = run("diff", before, after, "--summary", "--format", "json").json
    assert summary == {name: value for name, value in found.items() if name != "fates"}


def test_the_table_lists_removed_records(run, copies):
    before, after, _ = copies
    text = run("diff", before, after).stdout
    assert "10 records: 3 retained, 7 superseded" in text
    assert text.count("superseded") == 7 + 1 + 1
    assert "v0" not in text
    assert run("diff", before, after, "--all").stdout.count("retained") == 3 + 1
    assert len(run("diff", before, after, "--summary").stdout.splitlines()) == 3


def test_the_same_is_retained(run, copies):
    before, _, _ = copies
    found = run("diff", before, before, "--format", "json").json
    assert found["counts"]["retained"] == 10
    assert "no cleaner checkpoint" in found["assumed"][0]


@pytest.mark.parametrize(
    ("number", "is_lost", "fate"),
    ((9, True, "lost"), (7, True, "lost"), (9, False, "added"), (7, False, "foreign")),
)
def test_a_missing_winner_is_lost(run, copies, tmp_path, number, is_lost, fate):
    """One of two copies lacks a record, the last or an earlier one."""
    before, _, _ = copies
    batches = [batch.data for batch in walk_buffer((before / f"{0:020}.log").read_bytes())]
    del batches[number]
    short = tmp_path / "short" / "users-0"
    short.mkdir(parents=True)
    (short / f"{0:020}.log").write_bytes(b"".join(batches))
    pair = (before, short) if is_lost else (short, before)
    code = int(fate != "added")
    found = run("diff", *pair, "--format", "json", code=code).json
    assert {f: count for f, count in found["counts"].items() if count} == {"retained": 9, fate: 1}


def test_another_content_is_changed(run, copies):
    before, after, _ = copies
    shutil.rmtree(after)
    shutil.copytree(before, after)
    path = after / "00000000000000000000.log"
    batches = [bytearray(batch.data) for batch in walk_buffer(path.read_bytes())]
    batches[4][-2] ^= 1  # the last byte of its value
    batches[4][17:21] = crc32c(bytes(batches[4][21:])).to_bytes(4, "big")
    path.write_bytes(b"".join(bytes(batch) for batch in batches))
    found = run("diff", before, after, "--format", "json", code=1).json
    assert found["counts"]["changed"] == 1
    assert found["fates"][4]["fate"] == "changed"
    assert not found["explained"]


def test_one_partition_is_compared_with_one(run, data_dir, copies):
    before, after, _ = copies
    run("topic", "create", "other")
    assert (
        "specify the directory of a single partition"
        in run("diff", before, f"{data_dir}/", code=2).stderr
    )
    run("diff", before, after, "--all", "--summary", code=2)
