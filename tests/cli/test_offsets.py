"""`logstore offsets`: ListOffsets on the command line."""

from __future__ import annotations

import pytest

from tests.cli.conftest import lines, tree_hash


@pytest.fixture
def topic(run):
    """The timestamps of S-080 in `t`: 0, 50, 20, 60 in one segment, 10, 70 in the next."""
    run("topic", "create", "t")
    stamped = [{"value": "v", "timestamp": 1000 + each} for each in (0, 50, 20, 60)]
    run("append", "t", "--batch-records", 1, input=lines(*stamped))
    run("roll", "t")
    stamped = [{"value": "v", "timestamp": 1000 + each} for each in (10, 70)]
    run("append", "t", "--batch-records", 1, input=lines(*stamped))
    return "t"


@pytest.mark.parametrize(
    ("arguments", "time", "offset", "timestamp"),
    (
        ((), "latest", 6, -1),
        (("--time", "latest"), "latest", 6, -1),
        (("--time", "-1"), "latest", 6, -1),
        (("--time", "earliest"), "earliest", 0, -1),
        (("--time", "-2"), "earliest", 0, -1),
        (("--time", "max-timestamp"), "max-timestamp", 5, 1070),
        (("--time", "-3"), "max-timestamp", 5, 1070),
        (("--time", "0"), 0, 0, 1000),
        (("--time", "1001"), 1001, 1, 1050),
        (("--time", "@1001"), 1001, 1, 1050),
        (("--time", "1051"), 1051, 3, 1060),
        (("--time", "1061"), 1061, 5, 1070),
        (("--time", "1970-01-01T00:00:01.061Z"), 1061, 5, 1070),
        (("--time", "1071"), 1071, -1, -1),
    ),
)
def test_answers(run, topic, arguments, time, offset, timestamp):
    """S-080 as a command, and the ends of the log."""
    assert run("offsets", topic, *arguments, "--format", "json").json == {
        "offsets": [
            {"topic": "t", "partition": 0, "time": time, "offset": offset, "timestamp": timestamp}
        ]
    }


def test_no_offset_below_the_log_start_is_returned(run, topic):
    """S-080 and S-082: a segment whose newest records were deleted has no offset for them."""
    run("delete-records", topic, "--before-offset", 2)
    [found] = run("offsets", topic, "--time", 1000, "--format", "jsonl").jsonl
    assert (found["offset"], found["timestamp"]) == (2, 1020)
    [found] = run("offsets", topic, "--time", "earliest", "--format", "jsonl").jsonl
    assert found["offset"] == 2


def test_all_partitions_or_one(run):
    run("append", "t", "--create", input=lines(*({"value": "v", "partition": n} for n in (0, 2))))
    found = run("offsets", "t", "--format", "jsonl").jsonl
    assert [(each["partition"], each["offset"]) for each in found] == [(0, 1), (1, 0), (2, 1)]
    [found] = run("offsets", "t", "--partition", 1, "--time", -3, "--format", "jsonl").jsonl
    assert (found["offset"], found["timestamp"]) == (-1, -1)


def test_tables(run, topic):
    heading, _, row = run("offsets", topic).stdout.splitlines()
    assert heading.split() == ["partition", "latest", "offset"]
    assert row.split() == ["t-0", "6"]
    heading, _, row = run("offsets", topic, "--time", 1051).stdout.splitlines()
    assert heading == ("partition  first offset since 1970-01-01 00:00:01.051Z  timestamp")
    assert row.split() == ["t-0", "3", "1970-01-01", "00:00:01.060Z"]
    row = run("offsets", topic, "--time", 1071).stdout.splitlines()[2]
    assert row.split() == ["t-0", "none", "-"]
    assert "offset of max timestamp" in run("offsets", topic, "--time", "max-timestamp").stdout


def test_nothing_is_changed(run, data_dir, topic):
    (data_dir / ".kafka_cleanshutdown").unlink()
    before = tree_hash(data_dir)
    for time in ("latest", "earliest", "max-timestamp", "1051"):
        run("offsets", topic, "--time", time)
    assert tree_hash(data_dir) == before


def test_partition_that_is_damaged_does_not_hide_others(run, data_dir):
    run("append", "t", "--create", input=lines(*({"value": "v", "partition": n} for n in (0, 1))))
    path = data_dir / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[16] = 1
    path.write_bytes(data)
    found = run("offsets", "t", "--as-recovered", "--format", "json", code=1)
    damaged, sound = found.json["offsets"]
    assert damaged == {
        "topic": "t",
        "partition": 0,
        "time": "latest",
        "offset": -1,
        "timestamp": -1,
        "error": "CORRUPT_MESSAGE",
    }
    assert (sound["partition"], sound["offset"]) == (1, 1)
    assert found.stderr.startswith("error: ")
    assert "t-0" in found.stderr
    assert "CORRUPT_MESSAGE" in run("offsets", "t", "--as-recovered", code=1).stdout
    served = run("offsets", "t", "--format", "json", code=1)
    assert [each["offset"] for each in served.json["offsets"]] == [1, 1]
    assert served.stderr.startswith(f"damage: {path}: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("t", "--time", "-4"), "before 1970"),
        (("t", "--time", "1969-12-31T23:59:59.999Z"), "before 1970"),
        (("t", "--time", "soon"), "latest, earliest, max-timestamp or a time"),
        (("t", "--partition", "1"), "has no partition 1"),
        (("tt",), "did you mean t?"),
        ((), "Missing argument"),
    ),
)
def test_wrong_usage(run, topic, arguments, message):
    refused = run("offsets", *arguments, code=2)
    assert message in refused.stderr
    assert refused.stdout == ""
