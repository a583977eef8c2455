"""`logstore check`: output, exit codes, and no changes on disk."""

from __future__ import annotations

import pytest

from tests.cli.conftest import GOLDEN, tree_hash

LAST = "golden-0/00000000000000000293.log"


def damaged(directory):
    """A bad CRC in the last segment, and an extra entry in a checkpoint."""
    path = directory / LAST
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))
    checkpoint = directory / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n2\ngolden 0 45\nnone 0 1\n")
    (directory / "golden-0" / "notes.txt").write_text("")
    return directory


def test_healthy_directory(run):
    shown = run("check", GOLDEN / "segments" / "data")
    assert shown.stdout == "8 segments, 120 batches, 300 records: nothing found\n"
    assert shown.stderr == ""


def test_json_of_a_healthy_directory(run):
    shown = run("check", GOLDEN / "segments" / "data", "--format", "json")
    assert shown.json == {
        "checks": [],
        "findings": [],
        "segments": 8,
        "batches": 120,
        "records": 300,
    }
    assert run("check", GOLDEN / "segments" / "data", "--format", "jsonl").stdout == ""


def test_findings_are_lines_and_errors_exit_with_1(run, golden):
    directory = damaged(golden("segments"))
    shown = run("check", directory, code=1)
    lines = shown.stdout.splitlines()
    assert [line.split()[:3] for line in lines[2:5]] == [
        ["error", "crc", "1"],
        ["warning", "checkpoint_unknown_partition", "1"],
        ["info", "foreign_file", "1"],
    ]
    assert lines[2].endswith("  the CRC of a batch does not match")
    assert lines[5] == ""
    assert lines[6].startswith(f"error   crc: {directory}/{LAST} at position 0 (offset 293): ")
    assert lines[7] == (
        f"warning checkpoint_unknown_partition: {directory}/log-start-offset-checkpoint"
        " at position 16 (offset 1): found none-0"
    )
    assert lines[8] == f"info    foreign_file: {directory}/golden-0/notes.txt"
    assert lines[9] == "8 segments, 120 batches, 297 records: 1 error, 1 warning, 1 info"


def test_harmless_files_are_not_findings(run, golden):
    directory = golden("segments")
    (directory / "golden-0" / "notes.txt").write_text("")
    last = run("check", directory).stdout.splitlines()[-1]
    assert last == "8 segments, 120 batches, 300 records: nothing found but 1 info"


def test_findings_beyond_the_limit_are_counted(run, golden):
    directory = golden("segments")
    (directory / "log-start-offset-checkpoint").write_text("0\n150\n" + "none 0 1\n" * 150)
    shown = run("check", directory)
    assert len(shown.stdout.splitlines()) == 3 + 3 + 100 + 100 + 1 + 2 + 1
    assert shown.stdout.splitlines()[2:4] == [
        "warning   checkpoint_duplicate            149  a checkpoint lists a partition twice",
        "warning   checkpoint_unknown_partition    150  a checkpoint lists a partition that does"
        " not exist",
    ]
    assert shown.stdout.splitlines()[-1].endswith(": 299 warnings, 1 info")


def test_findings_as_json(run, golden):
    directory = damaged(golden("segments"))
    found = run("check", directory, "--format", "json", code=1).json
    assert list(found) == ["checks", "findings", "segments", "batches", "records"]
    assert found["checks"] == [
        {"check": "crc", "severity": "error", "count": 1},
        {"check": "checkpoint_unknown_partition", "severity": "warning", "count": 1},
        {"check": "foreign_file", "severity": "info", "count": 1},
    ]
    assert [each["check"] for each in found["findings"]] == [
        "crc",
        "checkpoint_unknown_partition",
        "foreign_file",
    ]
    assert list(found["findings"][0]) == [
        "path",
        "position",
        "offset",
        "check",
        "expected",
        "found",
        "severity",
        "code",
        "values",
        "text",
    ]
    crc = found["findings"][0]
    assert (crc["code"], crc["text"]) == ("check.crc", "the CRC of a batch does not match")
    assert crc["values"] == {"expected": crc["expected"], "found": crc["found"]}
    assert run("check", directory, "--format", "jsonl", code=1).jsonl == found["findings"]


def test_warnings_alone_exit_with_0(run, golden):
    directory = golden("segments")
    (directory / "golden-0" / "00000000000000000041.index").unlink()
    assert run("check", directory).stdout.endswith(": 1 warning\n")


def test_without_a_path_all_data_directories(run, golden):
    one, two = golden("segments"), golden("holes")
    shown = run("check", "--data-dir", one, "--data-dir", two, "--format", "json", code=1).json
    twice = [each for each in shown["findings"] if each["check"] == "duplicate_partition"]
    assert [(each["path"], each["expected"]) for each in twice] == [
        (f"{two}/golden-0", f"{one}/golden-0")
    ]


@pytest.mark.parametrize("prefix", ("", "./"))
def test_paths_are_shown_as_they_were_given(run, golden, monkeypatch, prefix):
    directory = damaged(golden("segments"))
    monkeypatch.chdir(directory)
    found = run("check", f"{prefix}golden-0", "--format", "jsonl", code=1).jsonl
    assert [each["path"] for each in found] == [f"{prefix}{LAST}", f"{prefix}golden-0/notes.txt"]
    found = run("check", f"{prefix}{LAST}", "--format", "jsonl", code=1).jsonl
    assert [each["path"] for each in found] == [f"{prefix}{LAST}"]
    found = run("check", ".", "--format", "jsonl", code=1).jsonl
    assert found[0]["path"] == f"./{LAST}"


def test_own_directory_is_healthy_while_it_is_filled_cleaned_and_closed(run):
    run("topic", "create", "t", "--config", "cleanup.policy=compact", "--partitions", "2")
    text = "".join(f"k{number % 7}\tv{number}\n" for number in range(500))
    for _ in range(3):
        run("append", "t", "--input-format", "tsv", "--batch-records", "20", input=text)
        run("roll", "t", "--partition", "0")
        run("clean", "t", "--force")
        assert "error" not in run("check").stdout


@pytest.mark.parametrize("target", ("", "golden-0", LAST))
def test_check_changes_nothing(run, golden, target):
    directory = damaged(golden("segments"))
    (directory / ".kafka_cleanshutdown").unlink()
    before = tree_hash(directory)
    run("check", directory / target, code=1)
    assert tree_hash(directory) == before


@pytest.mark.parametrize("names", ((), ("kafka-logs/t-0/",), ("notes.txt", "t/")))
def test_nothing_to_check_is_wrong_usage(run, tmp_path, names):
    """A parent of a data directory, or files of other kinds, are not a log."""
    directory = tmp_path / "place"
    directory.mkdir()
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).mkdir() if name.endswith("/") else (directory / name).touch()
    message = f"nothing to check in {directory}"
    assert message in run("check", directory, code=2).stderr
    assert message in run("check", "--data-dir", directory, code=2).stderr


@pytest.mark.parametrize("with_option", (True, False))
def test_folders_of_segments_are_named_whatever_they_are_called(run, tmp_path, with_option):
    names = ["users", "users-007", "users.0", "a b-1"]
    for name in names:
        (tmp_path / "place" / name).mkdir(parents=True)
        (tmp_path / "place" / name / f"{0:020d}.log").touch()
    where = ("--data-dir", tmp_path / "place") if with_option else (tmp_path / "place",)
    rows = run("check", *where, "--format", "json", code=1).json["findings"]
    assert {(row["check"], row["found"]) for row in rows} == {("folder_name", n) for n in names}


def test_folders_without_segments_are_named_in_the_refusal(run, tmp_path):
    for number in range(5):
        (tmp_path / "place" / f"users{number}").mkdir(parents=True)
    expected = (
        "Partition folders are named TOPIC-NUMBER; the folders are 'users0', 'users1', 'users2',"
        " 'users3', 'users4'"
    )
    assert f"{expected} (see: " in run("check", tmp_path / "place", code=2).stderr
    for number in range(5, 7):
        (tmp_path / "place" / f"users{number}").mkdir()
    expected += " and 2 more"
    assert expected in run("check", tmp_path / "place", code=2).stderr
    assert expected in run("check", "--data-dir", tmp_path / "place", code=2).stderr


@pytest.mark.parametrize("name", ("t-0/", ".kafka_cleanshutdown"))
def test_a_directory_without_a_segment_may_be_one_of_a_log(run, tmp_path, name):
    directory = tmp_path / "place"
    directory.mkdir()
    (directory / name).mkdir() if name.endswith("/") else (directory / name).touch()
    assert run("check", directory).stdout.startswith("0 segments, 0 batches, 0 records: nothing")


@pytest.mark.parametrize(
    ("target", "message"),
    (
        ("none", "no such file or directory"),
        ("golden-0/notes.txt", "is not a log file that can be verified"),
    ),
)
def test_wrong_usage(run, golden, target, message):
    directory = damaged(golden("segments"))
    assert message in run("check", directory / target, code=2).stderr
