"""`logstore simulate`: its output and the files it writes."""

import csv
import errno
import importlib.util
import json
import re

import pyarrow.parquet
import pytest

from logstore.simulate.outcome import PARTITIONS


def test_built_in_scenarios_are_listed_and_printed(run):
    listed = run("simulate", "--list").stdout
    assert "kip-354 " in listed
    assert "KIP-354's bound" in listed
    assert run("simulate", "four-policies", "--print").stdout.startswith(
        "# How each cleanup policy treats"
    )
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


RUN = ("simulate", "kip-354", "--samples", "5")


@pytest.mark.parametrize(
    ("missing", "kinds", "sweep_kinds", "not_written"),
    (
        ((), "series and report", "table, series and report", ()),
        (
            ("plotly",),
            "series",
            "table and series",
            ("no report is written: plotly or Jinja2 is missing",),
        ),
        (
            ("jinja2",),
            "series",
            "table and series",
            ("no report is written: plotly or Jinja2 is missing",),
        ),
        (
            ("plotly", "pyarrow"),
            "series",
            "table and series",
            (
                "no report is written: plotly or Jinja2 is missing",
                "no Parquet is written: pyarrow is missing",
            ),
        ),
    ),
)
def test_files_that_were_not_written_are_named_with_the_reason(
    run, tmp_path, monkeypatch, missing, kinds, sweep_kinds, not_written
):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else find_spec(name)
    )
    out = tmp_path / "out"
    found = run(*RUN, "--out", str(out))
    assert found.stdout.splitlines()[-1] == f"{kinds}: {out}"
    for text in not_written:
        assert text in found.stderr
    assert ("is written: " in found.stderr) == bool(not_written)
    assert (out / "report.html").exists() == {"plotly", "jinja2"}.isdisjoint(missing)
    assert (out / "partitions.parquet").exists() == ("pyarrow" not in missing)
    sweep = ("--sweep", "segment.bytes=1MiB", "--jobs", "1")
    last = run(*RUN, "--out", str(out), *sweep).stdout.splitlines()[-1]
    assert last == f"{sweep_kinds}: {out}"


def test_json_has_costs_and_files(run, tmp_path):
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


@pytest.mark.slow
def test_logs_that_are_kept_are_a_data_directory(run, tmp_path):
    run("simulate", "four-policies", "--out", str(tmp_path), "--keep-logs", "--samples", "5")
    found = json.loads(
        run("inspect", "compact", "--data-dir", str(tmp_path / "data"), "--format", "json").stdout
    )
    assert found["log_end_offset"] == 7


def test_a_sweep_marks_the_pareto_optimal_settings(run, tmp_path):
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
    assert "optimal" in run("simulate", "kip-354", *arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        ((), "give a SCENARIO (see --list), or --from DIR"),
        (("kip-354",), "give --out DIR for the results"),
        (("kip-345", "--out", "x"), "nearest is 'kip-354'"),
        (("kip-354", "--out", "x", "--sweep", "segment.bytes"), "is not KEY=VALUE,VALUE"),
        (("kip-354", "--out", "x", "--config", "segment.byte=1"), "segment.byte"),
    ),
)
def test_wrong_usage_is_reported_and_writes_no_files(
    run, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    result = run("simulate", *arguments, code=2)
    assert message in result.stderr
    assert not (tmp_path / "x").exists()


SHORT = ("kip-354", "--samples", "3")


def test_a_second_run_replaces_the_first_and_keeps_other_files(run, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    arguments = ("--sweep", "max.compaction.lag.ms=1h", "--out", str(tmp_path))
    run("simulate", *SHORT, *arguments)
    assert (tmp_path / "sweep.csv").read_text().startswith("max.compaction.lag.ms,bytes_peak,")
    (tmp_path / "consumers.csv").write_text("of an earlier run")
    run("simulate", *SHORT, "--out", str(tmp_path))
    names = {path.name for path in tmp_path.iterdir()}
    assert {"mine.txt", "partitions.csv", "report.html"} < names
    assert not names & {"sweep.csv", "consumers.csv", ".simulate-draft"}


@pytest.fixture
def earlier(run, tmp_path):
    """A directory with the results of an earlier run, and its hash."""
    run("simulate", *SHORT, "--out", str(tmp_path / "out"))

    def look():
        return {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    return tmp_path / "out", look


def test_an_interrupted_run_retains_existing_files_and_reports_it(
    run, earlier, monkeypatch, tmp_path
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("logstore.simulate.engine.run", interrupted)
    directory, look = earlier
    before = look()
    stopped = run("simulate", *SHORT, "--out", str(directory), code=130)
    assert f"interrupted: {directory} is unchanged" in stopped.stderr
    assert look() == before
    new = tmp_path / "new"
    assert "interrupted: nothing was written" in run(
        "simulate", *SHORT, "--out", str(new), code=130
    ).stderr  # fmt: skip
    assert not new.exists()


def test_a_full_disk_keeps_existing_files(run, earlier, monkeypatch):
    from logstore.simulate import files

    directory, look = earlier
    before = look()

    def full(table, path):
        path.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_write_parquet", full)
    failed = run("simulate", *SHORT, "--out", str(directory), code=3)
    assert f"cannot write the results: No space left on device: '{directory}'" in failed.stderr
    assert look() == before


@pytest.mark.slow
def test_jobs_change_nothing_but_the_time(run, tmp_path):
    tables = []
    for jobs in ("1", "2"):
        out = tmp_path / jobs
        axes = ("--sweep", "max.compaction.lag.ms=30m,1h", "--jobs", jobs)
        run("simulate", *SHORT, *axes, "--out", str(out))
        tables.append((out / "sweep.csv").read_text())
    assert tables[0] == tables[1]


def test_unusable_output_directories_are_reported_before_the_run(run, tmp_path):
    (tmp_path / "file").write_text("")
    text = run("simulate", *SHORT, "--out", str(tmp_path / "file"), code=2).stderr
    assert "file is not a directory" in text
    (tmp_path / "data" / "t-0").mkdir(parents=True)
    kept = ("--keep-logs", "--out", str(tmp_path))
    assert "already has logs" in run("simulate", *SHORT, *kept, code=2).stderr
    sweep = ("--sweep", "segment.ms=1h")
    assert (
        "--keep-logs and --sweep are mutually exclusive"
        in run("simulate", *SHORT, *kept, *sweep, code=2).stderr
    )


def test_a_recording_is_found_next_to_its_scenario(run, tmp_path):
    (tmp_path / "times.csv").write_text("time,records\n0,3\n1h,2\n")
    scenario = tmp_path / "mine.toml"
    scenario.write_text('days = 1\n[[topics]]\nname = "t"\nreplay = { file = "times.csv" }\n')
    arguments = ("--samples", "2", "--out", str(tmp_path / "out"), "--format", "json")
    told = json.loads(run("simulate", str(scenario), *arguments).stdout)
    assert told["costs"]["live_share"] == 1.0
    (tmp_path / "times.csv").write_text("time,records\n0,3\n1h,x\n")
    failed = run("simulate", str(scenario), *arguments, code=2)
    assert "times.csv, line 3: records 'x' is not an integer" in failed.stderr


SEEDED = """
days = 4
[[topics]]
name = "users"
records = 200
keys.count = 30
values.bytes = 100
time.arrival = "poisson"
batches = { min_records = 2, max_records = 8 }
configs = { "cleanup.policy" = "compact", "segment.bytes" = "10KiB" }
"""


@pytest.fixture
def seeded(tmp_path):
    (tmp_path / "seeded.toml").write_text(SEEDED)
    return ("simulate", tmp_path / "seeded.toml", "--samples", 5, "--jobs", 1)


@pytest.mark.slow
def test_several_seeds_show_their_spread_everywhere(run, seeded, tmp_path):
    out = tmp_path / "out"
    options = (*seeded, "--seeds", 4, "--replicas", 3, "--out", out)
    told = run(*options, "--format", "json").json
    assert told["seeds"] == [1, 2, 3, 4]
    assert told["costs"].keys() == told["spread"].keys()
    ranges = told["spread"]["disk_bytes"]
    assert ranges["min"] <= ranges["p5"] <= ranges["p50"] <= ranges["p95"] <= ranges["max"]
    assert ranges["max"] == 3 * told["spread"]["bytes_peak"]["max"]
    with (out / "seeds.csv").open() as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["1", "2", "3", "4"]
    with (out / "spread.csv").open() as file:
        assert {"live_records", "bytes"} < {row["column"] for row in csv.DictReader(file)}
    shown = run(*options).stdout
    assert "users: 4 days from 2024-01-01 00:00:00.000Z, 4 seeds" in shown
    ranges = told["spread"]["passes"]
    texts = [f"{ranges[share]:,.0f}" for share in ("p5", "p50", "p95")]
    assert re.search(rf"^passes +{' +'.join(texts)}$", shown, re.MULTILINE)
    assert f'<td>passes</td><td class="n">{texts[0]}</td>' in (out / "report.html").read_text()
    sweep = ("--sweep", "min.cleanable.dirty.ratio=0.1,0.9", "--seeds", 2, "--out", out)
    rows = run(*seeded, *sweep, "--format", "json").json["sweep"]
    assert all(row["costs"].keys() == row["spread"].keys() for row in rows)


GOAL = (
    "--search", "min.cleanable.dirty.ratio=0.1..0.9/3", "--minimize", "written", "--seeds", 2,
)  # fmt: skip


@pytest.mark.slow
def test_a_goal_that_is_met_names_the_setting_and_its_margin(run, seeded, tmp_path):
    options = (*seeded, *GOAL, "--goal", "oldest <= 20d", "--out", tmp_path / "out")
    told = run(*options, "--format", "json").json
    assert told["met"]
    assert told["goal"] == "oldest <= 20d"
    assert told["settings"].keys() == {"min.cleanable.dirty.ratio"}
    (margin,) = told["margins"]
    assert margin["margin"] == margin["limit"] - margin["worst"] > 0
    assert len(told["held"]["seeds"]) == told["held"]["met"] == told["held_runs"] == 20
    assert {*told["seeds"]}.isdisjoint(told["held"]["seeds"])
    assert told["sweep_runs"] == 6
    with (tmp_path / "out" / "search.csv").open() as file:
        assert len(list(csv.DictReader(file))) == told["runs"] + told["held_runs"]
    shown = run(*options).stdout
    assert "This setting meets the goal, also with 20 of 20 other seeds." in shown
    assert re.search(r"^oldest <= 20d .* within$", shown, re.MULTILINE)
    assert "This setting meets the goal" in (tmp_path / "out" / "report.html").read_text()


def test_an_unreachable_goal_shows_the_nearest_miss_with_exit_code_1(run, seeded, tmp_path):
    options = (*seeded, *GOAL, "--goal", "oldest <= 1m", "--out", tmp_path / "out")
    told = run(*options, "--format", "json", code=1).json
    assert not told["met"]
    assert told["margins"][0]["margin"] < 0
    worst = [each["spread"]["oldest_dirty_max_ms"]["max"] for each in told["candidates"]]
    assert told["spread"]["oldest_dirty_max_ms"]["max"] == min(worst)
    shown = run(*options, code=1).stdout
    assert "No combination that was run meets the goal. This setting comes closest." in shown
    assert "nearest miss" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("--goal", "oldest <= 1d"), "--goal needs the settings to search"),
        (("--minimize", "bytes"), "--search and --minimize need a --goal"),
        ((*GOAL, "--goal", "old <= 1d"), "unknown quantity 'old'"),
        ((*GOAL, "--goal", "oldest <= 1d", "--keep-logs"), "--keep-logs and --goal are mutually"),
        (
            (*GOAL, "--goal", "oldest <= 1d", "--sweep", "segment.ms=1d"),
            "--goal and --sweep are mutually exclusive",
        ),
        (("--goal", "oldest <= 1d", "--search", "segment.m=1d..2d"), "segment.m"),
    ),
)
def test_impossible_searches_are_refused(run, seeded, tmp_path, arguments, message):
    assert message in run(*seeded, *arguments, "--out", tmp_path / "x", code=2).stderr
    assert not (tmp_path / "x").exists()
