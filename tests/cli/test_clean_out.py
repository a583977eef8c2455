"""`clean --out` cleans a copy and leaves the original unchanged."""

from __future__ import annotations

import shutil

import pytest

from logstore.analysis.copies import UNFINISHED
from tests.cli.conftest import lines, tree_hash

JAN_1 = 1_704_067_200_000


@pytest.fixture
def users(run):
    """A compacted topic of two partitions, 30 records of 10 keys in each, and another topic."""
    run("topic", "create", "users", "--partitions", 2, "--config", "cleanup.policy=compact")
    for number in (0, 1):
        records = ({"key": str(n % 10), "value": str(n)} for n in range(30))
        run("append", "users", "--partition", number, input=lines(*records))
        run("roll", "users", "--partition", number)
    run("append", "events", "--create", input=lines({"value": "x"}))
    return "users"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "some" / "where"


def plain(report):
    """A report without its times."""
    for stats in report["cleaned"]:
        stats["index_ms"] = stats["clean_ms"] = 0
    return report


def test_the_copy_is_cleaned_and_the_original_is_untouched(run, users, data_dir, out):
    before = tree_hash(data_dir)
    report = run("clean", "--out", out, "--format", "json").json
    assert tree_hash(data_dir) == before
    assert [stats["partition"] for stats in report["cleaned"]] == [0, 1]
    assert [item["topic"] for item in report["not_cleaned"]] == ["events"]
    copy = ("--data-dir", out, "--format", "jsonl")
    assert len(run("read", users, *copy).jsonl) == 20
    assert len(run("read", "events", *copy).jsonl) == 1
    assert len(run("read", users, "--format", "jsonl").jsonl) == 60
    assert run("topic", "describe", users, "--data-dir", out).stdout == (
        run("topic", "describe", users).stdout
    )
    assert plain(run("clean", "--format", "json").json) == plain(report)


def test_one_partition_alone(run, users, data_dir, out):
    run("clean", users, "--partition", 1, "--out", out)
    found = run("inspect", "--data-dir", out, "--format", "json").json
    assert [(each["topic"], each["partition"]) for each in found["partitions"]] == [("users", 1)]
    assert not (out / "events-0").exists()
    assert not (out / "users-0").exists()


def test_table_shows_the_copys_location(run, users, out):
    text = run("clean", users, "--force", "--out", out).stdout
    assert "30 → 10" in text
    assert text.endswith(f"\nthe cleaned copy is in {out}. The original was not changed.\n")


def test_table_does_not_call_an_uncleaned_copy_cleaned(run, users, out):
    text = run("clean", "events", "--out", out).stdout
    assert text.startswith("nothing was cleaned\n")
    assert text.endswith(f"\nthe uncleaned copy is in {out}. The original was not changed.\n")


def test_config_and_now_hold_for_the_copy(run, users, data_dir, out):
    before = tree_hash(data_dir)
    report = run(
        *("clean", users, "--out", out, "--format", "json"),
        *("--config", "min.cleanable.dirty.ratio=1.0"),
    ).json
    assert {item["reason"] for item in report["not_cleaned"]} == {"dirty_ratio"}
    again = run("clean", "--data-dir", out, "--now", "2030-01-01", "--format", "json").json
    assert len(again["cleaned"]) == 2
    assert tree_hash(data_dir) == before


def test_an_original_that_was_not_closed_is_recovered_in_the_copy(run, golden, out):
    directory = golden("segments")
    (directory / ".kafka_cleanshutdown").unlink()
    last = sorted((directory / "golden-0").glob("*.log"))[-1]
    with last.open("ab") as file:
        file.write(b"\0" * 30)
    before = tree_hash(directory)
    found = run("clean", "--out", out, "--data-dir", directory)
    assert tree_hash(directory) == before
    assert "truncated" in found.stderr
    assert "on opening" in found.stderr
    copied = out / "golden-0" / last.name
    assert copied.stat().st_size == last.stat().st_size - 30
    assert run("check", out).code == 0


def test_several_data_directories_are_cleaned_in_one(run, users, data_dir, golden, out):
    other = golden("segments")
    before = (tree_hash(data_dir), tree_hash(other))
    run("clean", "--out", out, "--data-dir", data_dir, "--data-dir", other)
    assert before == (tree_hash(data_dir), tree_hash(other))
    found = run("inspect", "--data-dir", out, "--format", "json").json["partitions"]
    assert [each["topic"] for each in found] == ["events", "golden", "users", "users"]


def test_a_partition_that_cannot_be_cleaned_exits_with_1(run, golden, out):
    directory = golden("clean-small/before")
    path = directory / "golden-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    before = tree_hash(directory)
    compact = ("--config", "cleanup.policy=compact")
    run("clean", "--force", "--out", out, *compact, "--data-dir", directory, code=1)
    assert tree_hash(directory) == before


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("--out", "{full}"), "is not empty; a copy needs a new or empty directory"),
        (("--out", "{file}"), "is not a directory"),
        (("--out", "{data}"), "is inside the data directory"),
        (("--out", "{data}/copy"), "is inside the data directory"),
        (("--out", "{link}/copy"), "is inside the data directory"),
        (("--out", "{out}", "--dry-run"), "--dry-run and --out are mutually exclusive"),
        (("userz", "--out", "{out}"), "did you mean users?"),
        (("users", "--partition", "7", "--out", "{out}"), "has no partition 7"),
        (("--out", "{out}", "--config", "segment.byte=1"), "nearest is 'segment.bytes'"),
        (("--out", "{out}", "--data-dir", "{out}"), "does not exist"),
    ),
)
def test_wrong_usage_leaves_no_files(run, users, data_dir, tmp_path, out, arguments, message):
    full, file, link = tmp_path / "full", tmp_path / "file", tmp_path / "link"
    full.mkdir()
    (full / "something").touch()
    file.touch()
    link.symlink_to(data_dir)
    before = tree_hash(tmp_path)
    places = {"full": full, "file": file, "data": data_dir, "link": link, "out": out}
    refused = run("clean", *(part.format(**places) for part in arguments), code=2)
    assert message in refused.stderr
    assert refused.stdout == ""
    assert tree_hash(tmp_path) == before


def test_a_disk_that_cannot_be_written_exits_with_3(run, users, tmp_path):
    (tmp_path / "file").touch()
    refused = run("clean", "--out", tmp_path / "file" / "copy", code=3)
    assert "cannot create" in refused.stderr


def test_an_interrupt_while_the_copy_is_cleaned_removes_it(run, users, data_dir, out, monkeypatch):
    before = tree_hash(data_dir)

    def interrupted(*_, **__):
        assert (out / "users-0").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("logstore.broker.broker.Broker.clean", interrupted)
    run("clean", users, "--out", out, code=130)
    assert not out.exists()
    assert tree_hash(data_dir) == before


def test_an_interrupt_in_an_empty_directory_leaves_it_empty(run, users, out, monkeypatch):
    out.mkdir(parents=True)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("logstore.analysis.copies._Copy._copy_file", interrupted)
    run("clean", users, "--out", out, code=130)
    assert list(out.iterdir()) == []


def test_leftovers_of_a_killed_run_are_removed_by_the_next(run, users, out):
    run("clean", users, "--out", out)
    (out / UNFINISHED).touch()
    (out / "users-1" / "half").touch()
    done = run("clean", users, "--out", out, "--format", "json")
    assert "removing an unfinished copy in" in done.stderr
    assert len(done.json["cleaned"]) == 2
    assert not (out / "users-1" / "half").exists()
    assert not (out / UNFINISHED).exists()
    assert "is not empty" in run("clean", users, "--out", out, code=2).stderr


# -- paths -------------------------------------------------------------------------------------


@pytest.fixture
def copied(run, data_dir, tmp_path):
    """A directory that is not the command's data directory, with two copies of a partition."""
    run("topic", "create", "users", "--config", "cleanup.policy=compact", "--now", JAN_1)
    items = [{"key": f"k{number % 3}", "value": "v"} for number in range(9)]
    run("append", "users", "--now", JAN_1, "--batch-records", 1, input=lines(*items))
    path = tmp_path / "copies"
    shutil.copytree(data_dir, path)
    shutil.rmtree(data_dir)
    shutil.copytree(path / "users-0", tmp_path / "users-0.bak")
    return path


FORCED = ("--force", "--roll", "--now", JAN_1)


@pytest.mark.parametrize("name", ("copies", "copies/users-0", "users-0.bak"))
def test_a_dry_run_takes_the_paths_that_explain_takes(run, copied, tmp_path, name):
    path = tmp_path / name
    compact = ("--config", "cleanup.policy=compact")
    before = tree_hash(tmp_path)
    assert run("explain", f"{path}", *compact, "--format", "json").json["partitions"]
    options = (*compact, *FORCED, "--dry-run", "--format", "json")
    [found] = run("clean", f"{path}", *options).json["cleaned"]
    assert (found["topic"], found["partition"], found["fates"]["superseded"]) == ("users", 0, 6)
    retention = ("--config", "cleanup.policy=delete", "--config", "retention.ms=1h")
    asked = ("retain", f"{path}", *retention, "--now", JAN_1 + 7_200_000, "--dry-run")
    assert len(run(*asked, "--format", "json").json["removed"]) == 1
    assert tree_hash(tmp_path) == before


@pytest.mark.parametrize("name", ("copies", "copies/users-0", "users-0.bak"))
def test_out_takes_the_paths_that_explain_takes(run, copied, tmp_path, name):
    path, out = tmp_path / name, tmp_path / "out"
    before = tree_hash(path)
    run("clean", f"{path}", "--config", "cleanup.policy=compact", *FORCED, "--out", out)
    assert tree_hash(path) == before
    read = run("read", "users", "--data-dir", out, "--format", "jsonl").jsonl
    assert [record["offset"] for record in read] == [6, 7, 8]


def test_writing_commands_refuse_a_path_and_name_the_option(run, copied):
    before = tree_hash(copied)
    for command, remedy in (("clean", "--dry-run or --out"), ("retain", "--dry-run")):
        error = run(command, f"{copied}/users-0", code=2).stderr
        assert (
            "is a path, but this command changes topics of the data directory (--data-dir)" in error
        )
        assert f"a path is accepted with {remedy}" in " ".join(error.split())
    assert tree_hash(copied) == before


def test_a_dry_run_takes_a_partition_by_its_name(run, data_dir):
    run("topic", "create", "t", "--partitions", 2, "--config", "cleanup.policy=compact")
    found = run("clean", "t-1", "--dry-run", "--format", "json").json
    assert [each["partition"] for each in found["not_cleaned"]] == [1]


def test_out_may_not_be_inside_a_data_or_partition_directory(run, copied, tmp_path):
    for path, out in ((copied / "users-0", copied / "out"), (tmp_path / "users-0.bak",) * 2):
        run("clean", f"{path}", *FORCED, "--out", out, code=2)
        assert "data directory" in run("clean", f"{path}", "--out", out, code=2).stderr
