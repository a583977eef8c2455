"""Messages about recovery, while directories are opened and afterwards."""

from __future__ import annotations

import pytest

from logstore.cli.show.messages import FINDINGS_SHOWN_MAX
from tests.cli.conftest import lines, tree_hash

READING = (
    ("topic", "list"),
    ("topic", "describe", "t"),
    ("read", "t", "--max-records", "1"),
    ("offsets", "t"),
    ("retain", "t", "--dry-run"),
)
WRITING = (
    ("roll", "t"),
    ("retain", "t"),
    ("clean", "t"),
    ("delete-records", "t", "--before-offset", "1"),
    ("topic", "alter", "t", "--set", "segment.ms=1d"),
)


@pytest.fixture
def torn(run, data_dir):
    """Two records in `t`, half a batch after them, and no sign of a clean stop."""
    run("append", "t", "--create", input=lines({"value": "a"}, {"value": "b"}))
    path = data_dir / "t-0" / f"{0:020}.log"
    with path.open("ab") as file:
        file.write(b"\1" * 20)
    (data_dir / ".kafka_cleanshutdown").unlink()
    return path


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_reading_counts_computed_repairs(run, data_dir, torn, command):
    before = tree_hash(data_dir)
    found = run(*command)
    opens_the_log = command[0] != "topic"
    assert found.stderr == opens_the_log * (
        "note: recovery: 1 finding, nothing was changed; see logstore inspect\n"
    )
    assert tree_hash(data_dir) == before


@pytest.mark.parametrize("command", WRITING, ids=" ".join)
def test_writing_reports_its_repairs_once(run, torn, command):
    size = torn.stat().st_size
    first, second = run(*command).stderr.splitlines()
    assert first == (
        f"warning: {torn}: truncated_tail: 20 bytes cut after position {size - 20}:"
        " the last batch is torn"
    )
    assert second == "note: recovery: 1 finding on opening"
    assert run(*command).stderr == ""


def test_an_unfinished_copy_of_a_cleanly_closed_log_loses_nothing_that_is_appended(run, data_dir):
    """Kafka trusts the clean shutdown file, and appends after the half batch."""
    for value in "ab":
        run("append", "t", "--create", input=lines({"value": value}))
    path = data_dir / "t-0" / f"{0:020}.log"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 5)
    before = tree_hash(data_dir)
    found = run("check", "--format", "json", code=1).json["findings"]
    assert [(each["check"], each["path"]) for each in found] == [("torn_tail", str(path))]
    assert [each["value"] for each in run("read", "t", "--format", "json").json["records"]] == ["a"]
    assert tree_hash(data_dir) == before
    told = run("append", "t", input=lines({"value": "c"})).stderr.splitlines()
    cut = size // 2 - 5
    assert told[0] == (
        f"warning: {path}: truncated_tail: {cut} bytes cut after position {size // 2}:"
        " the last batch is torn"
    )
    records = run("read", "t", "--format", "json").json["records"]
    assert [(each["offset"], each["value"]) for each in records] == [(0, "a"), (1, "c")]
    assert run("check").stderr == ""


def test_inspect_shows_findings_and_prints_no_other_message(run, torn):
    found = run("inspect", "t")
    assert "truncated_tail" in found.stdout
    assert found.stderr == ""
    [finding] = run("inspect", "t", "--format", "json").json["recovery"]
    assert (finding["action"], finding["path"]) == ("truncated_tail", str(torn))


def test_findings_are_printed_after_the_error_that_ended_the_command(run, torn):
    refused = run("read", "t", "--from", 9, code=1).stderr.splitlines()
    assert "[0, 2]" in refused[0]
    assert refused[1].startswith("note: recovery: 1 finding")


def test_many_findings_are_cut_short(run, data_dir):
    run("append", "t", "--create", input=lines({"value": "a"}))
    for offset in range(15):
        (data_dir / "t-0" / f"{offset:020}.log.deleted").write_bytes(b"")
    *told, last = run("roll", "t").stderr.splitlines()
    assert len(told) == FINDINGS_SHOWN_MAX
    assert all(line.startswith("warning: ") and "removed_leftover" in line for line in told)
    assert last == "note: recovery: 15 findings on opening; the first 10 are shown"
    assert run("roll", "t").stderr == ""


def test_a_cleanly_closed_directory_has_no_message(run):
    run("append", "t", "--create", input=lines({"value": "a"}))
    for command in (*READING, *WRITING):
        assert run(*command).stderr == ""


@pytest.mark.parametrize("clean", (True, False))
def test_a_log_start_beyond_the_end_hides_and_deletes_nothing(run, data_dir, clean):
    """Applying such an entry would empty the log; the first writing command removes it."""
    run("append", "t", "--create", input=lines(*({"key": "a", "value": str(n)} for n in range(3))))
    checkpoint = data_dir / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 0 1000000\n")
    if not clean:
        (data_dir / ".kafka_cleanshutdown").unlink()
    before = tree_hash(data_dir)
    for _ in range(2):
        found = run("inspect", "t", "--format", "json").json
        assert [f["action"] for f in found["recovery"]] == ["ignored_log_start"]
        assert (found["log_start_offset"], found["log_end_offset"]) == (0, 3)
        assert len(run("read", "t", "--format", "jsonl").jsonl) == 3
    assert tree_hash(data_dir) == before
    told = run("append", "t", input=lines({"key": "a", "value": "new"}))
    assert "ignored_log_start: the log start 1000000 is beyond the log end 3" in told.stderr
    assert checkpoint.read_text() == "0\n0\n"
    assert run("append", "t", input=lines({"key": "a", "value": "new"})).stderr == ""
    assert [r["offset"] for r in run("read", "t", "--format", "jsonl").jsonl] == [0, 1, 2, 3, 4]
