"""`logstore simulate`: what it prints, and what it leaves in its directory."""

import csv
import json

import pyarrow.parquet
import pytest

from logstore.simulate.outcome import PARTITIONS


def test_scenarios_that_come_along_are_listed_and_printed(run):
    listed = run("simulate", "--list").stdout
    assert "kip-354 " in listed
    assert "KIP-354's bound" in listed
    assert run("simulate", "four-policies", "--print").stdout.startswith("# The operators' guide")
    names = json.loads(run("simulate", "--list", "--format", "jsonl").stdout.splitlines()[0])
    assert set(names) == {"scenario", "title"}


def test_a_run_leaves_series_and_a_report(run, tmp_path):
    out = tmp_path / "out"
    shown = run("simulate", "kip-354", "--out", str(out), "--samples", "20").stdout
    assert "KIP-354's bound: 0.1 days from 2024-01-01 00:00:00.000Z, seed 1" in shown
    assert "write amplification" in shown
    with (out / "partitions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(PARTITIONS)
    table = pyarrow.parquet.read_table(out / "partitions.parquet")
    assert table.num_rows == len(rows)
    assert table.column_names == list(PARTITIONS)
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert not (out / "data").exists()


def test_json_tells_costs_and_files(run, tmp_path):
    arguments = (
        "--samples",
        "9",
        "--out",
        str(tmp_path),
        "--seed",
        "3",
        "--config",
        "delete.retention.ms=1m",
    )
    told = json.loads(run("simulate", "kip-354", *arguments, "--format", "json").stdout)
    assert told["seed"] == 3
    assert told["costs"]["passes"] == 1
    assert str(tmp_path / "report.html") in told["files"]
    assert set(told["digests"]) == {"users-0"}


def test_logs_that_are_kept_are_a_data_directory(run, tmp_path):
    run("simulate", "four-policies", "--out", str(tmp_path), "--keep-logs", "--samples", "5")
    found = json.loads(
        run("inspect", "compact", "--data-dir", str(tmp_path / "data"), "--format", "json").stdout
    )
    assert found["log_end_offset"] == 7


def test_a_sweep_marks_what_nothing_beats(run, tmp_path):
    arguments = (
        "--sweep",
        "max.compaction.lag.ms=30m,1h",
        "--jobs",
        "1",
        "--out",
        str(tmp_path),
        "--samples",
        "5",
    )
    told = json.loads(run("simulate", "kip-354", *arguments, "--format", "json").stdout)
    assert [row["settings"] for row in told["sweep"]] == [
        {"max.compaction.lag.ms": "30m"},
        {"max.compaction.lag.ms": "1h"},
    ]
    assert any(row["front"] for row in told["sweep"])
    assert "not beaten" in run("simulate", "kip-354", *arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        ((), "name a SCENARIO, or --list them"),
        (("kip-354",), "--out DIR says where the results go"),
        (("kip-345", "--out", "x"), "nearest is 'kip-354'"),
        (("kip-354", "--out", "x", "--sweep", "segment.bytes"), "is not KEY=VALUE,VALUE"),
        (("kip-354", "--out", "x", "--config", "segment.byte=1"), "segment.byte"),
    ),
)
def test_wrong_usage_is_told_and_leaves_nothing(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = run("simulate", *arguments, code=2)
    assert message in result.stderr
    assert not (tmp_path / "x").exists()
