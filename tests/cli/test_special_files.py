"""Commands over a data directory with a pipe or a huge file under a name that they open."""

from __future__ import annotations

import os

import pytest

from tests.cli.conftest import lines
from tests.support.world.special_files import no_hang

NAMES = (
    "logstore-topics.json",
    "logstore-moves.json",
    "recovery-point-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "u-0/leader-epoch-checkpoint",
    "u-0/partition.metadata",
    "u-0/00000000000000009999.log",
    "u-0/00000000000000009999.snapshot",
    "u-0/00000000000000000000.index",
    "u-0/00000000000000000000.timeindex",
    "u-0/00000000000000000000.txnindex",
)


@pytest.mark.parametrize("name", NAMES)
def test_no_command_waits_at_a_pipe(run, data_dir, name):
    run("append", "u", "--create", input=lines({"key": "a", "value": "b"}))
    path = data_dir / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with no_hang():
        checked = run("check", "--format", "json", code=1).json
        assert [f["path"] for f in checked["findings"] if f["path"] == str(path)]
        for command in (("inspect", "u"), ("explain",), ("read", "u")):
            told = run(*command, code=1 if name == "logstore-moves.json" else 0)
            assert name != "logstore-topics.json" or "is treated as empty" in told.stderr
        run("roll", "u", code=1 if name in NAMES[:2] else 0)


SMALL_FILES = (
    "logstore-topics.json",
    "cleaner-offset-checkpoint",
    "u-0/leader-epoch-checkpoint",
    "u-0/partition.metadata",
    "u-0/00000000000000000001.snapshot",
)


@pytest.mark.parametrize("name", SMALL_FILES)
def test_check_and_dump_use_the_limit_of_the_config_file(run, data_dir, tmp_path, name):
    """As commands that open logs do, instead of only the engine's default."""
    run("append", "u", "--create", input=lines({"key": "a", "value": "b"}))
    run("roll", "u")
    config = tmp_path / "server.properties"
    config.write_text("logstore.small.file.max.bytes=1000\n")
    path = data_dir / name
    path.touch()
    with path.open("r+b") as file:
        file.truncate(1001)
    told = f"{path}: its size of 1001 bytes exceeds logstore.small.file.max.bytes = 1000"
    checked = run("check", "--config-file", config, "--format", "json", code=1).json
    (found,) = [found for found in checked["findings"] if found["path"] == str(path)]
    assert "its size of 1001 bytes exceeds" in str(found["found"])
    alone = run("check", path, "--config-file", config, "--format", "json", code=1).json
    assert [each["path"] for each in alone["findings"]] == [str(path)]
    if name.endswith(".snapshot"):
        dumped = run("dump", path, "--config-file", config, code=1)
        assert told in dumped.stderr


@pytest.fixture
def beside(run, data_dir, tmp_path):
    """A data directory of two topics, and a directory whose only segment is a pipe."""
    for topic in ("u", "v"):
        run("append", topic, "--create", input=lines({"key": "a", "value": "b"}))
    (data_dir / "pipes-0").mkdir()
    os.mkfifo(data_dir / "pipes-0" / "00000000000000000000.log")


@pytest.mark.parametrize(
    "command",
    (
        ("inspect",),
        ("explain",),
        ("retain", "--dry-run"),
        ("retain",),
        ("stats",),
        ("offsets", "u"),
        ("simulate", "--print", "--from"),
        ("salvage", "--out"),
    ),
    ids=" ".join,
)
def test_a_pipe_in_one_partition_does_not_hide_others(run, data_dir, tmp_path, beside, command):
    where = {"--from": [data_dir], "--out": [tmp_path / "out"]}.get(command[-1], [])
    with no_hang():
        told = run(*command, *where, code=None)
    text = told.stdout + told.stderr
    assert told.code in (0, 1, 3), told
    assert "offline" not in text
    if command[0] in ("inspect", "explain", "retain", "stats"):
        assert "u-0" in told.stdout
        assert "v-0" in told.stdout
    if command[0] == "salvage":
        assert "2 records in 2 batches of 2 partitions saved" in told.stdout
    if command[0] == "simulate":
        assert 'name = "u"' in told.stdout
    if command != ("offsets", "u"):
        log = "pipes-0/00000000000000000000.log"
        assert f"pipes-0 cannot be opened: {data_dir}/{log} is not a regular file" in text


def test_a_topic_that_cannot_be_opened_is_not_simulated(run, data_dir, beside):
    told = run("simulate", "--print", "--from", data_dir, "--topic", "pipes", code=3)
    assert "pipes-0 cannot be opened" in told.stderr
    assert told.stdout == ""


HUGE = 64 << 30

READING = (
    "inspect",
    "inspect u --deep",
    "inspect u --records",
    "inspect u --batches",
    "inspect {log}",
    "inspect {folder} --fate",
    "check",
    "check {log}",
    "read u",
    "read u --last 2",
    "read u --as-recovered",
    "stats u",
    "explain",
    "retain --dry-run",
    "clean u --force --roll --dry-run",
    "clean u --out {out}/copy",
    "offsets u",
    "offsets u --time earliest",
    "offsets u --time max-timestamp",
    "erasure u --key a",
    "dump {log} --print-data-log",
    "diff {folder} {folder}",
    "export u --out {out}/u.csv",
    "simulate --from {data} --out {out}/simulated",
)
WRITING = ("roll u", "retain", "clean u --force", "append u")


@pytest.mark.parametrize("base", (0, 9000), ids=("records first", "nothing"))
def test_no_command_reads_a_sparse_log_to_its_end(run, data_dir, tmp_path, base):
    """No segment has more than 2^31-1 bytes; of this one only the valid beginning is read."""
    run("topic", "create", "u", "--config", "cleanup.policy=compact")
    for number in range(3):
        run("append", "u", input=lines({"key": "a", "value": str(number)}))
    log = data_dir / "u-0" / f"{base:020d}.log"
    with log.open("ab") as file:
        file.truncate(HUGE)
    (tmp_path / "out").mkdir()
    places = {"log": log, "folder": log.parent, "data": data_dir, "out": tmp_path / "out"}
    with no_hang():
        for command in (*READING, *WRITING):
            given = lines({"key": "a", "value": "b"}) if command == "append u" else None
            told = run(*command.format(**places).split(), code=1, input=given)
            named = "segment_size" in told.stdout + told.stderr or "larger than" in told.stderr
            assert named or command.startswith("dump"), (command, told)
        kept = run("read", "u", "--format", "jsonl", code=1).jsonl
        assert [record["value"] for record in kept] == ["0", "1", "2"]
        saved = run("salvage", data_dir, "--out", tmp_path / "saved")
        assert "segment_size" in saved.stdout
    assert log.stat().st_size == HUGE
