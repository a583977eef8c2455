"""`logstore delete-records`: KIP-107 by arguments and by kafka-delete-records' file."""

from __future__ import annotations

import json

import pytest

from logstore.cli.commands.delete_request import DeleteRequestError, parse_request
from logstore.types import TopicPartition
from tests.cli.conftest import lines, tree_hash
from tests.support.world.messages import exactly

MEMBERS = {"topic", "partition", "low_watermark", "error"}


@pytest.fixture
def events(run):
    """Ten records in `events`, at 1000, 2000 … ms, in segments 0, 4 and 8."""
    run("topic", "create", "events", "--config", "retention.ms=-1")
    for start, end in ((0, 4), (4, 8), (8, 10)):
        items = [{"value": "v" * 50, "timestamp": 1000 * (n + 1)} for n in range(start, end)]
        run("append", "events", "--batch-records", 1, input=lines(*items))
        if end < 10:
            run("roll", "events")
    return "events"


def bases(data_dir, name="events-0"):
    return sorted(int(path.stem) for path in (data_dir / name).glob("*.log"))


def first_offset(run, topic="events"):
    [found] = run("offsets", topic, "--time", "earliest", "--format", "jsonl").jsonl
    return found["offset"]


def request(*partitions, **more):
    """Return kafka-delete-records' JSON; each partition is (topic, partition, offset)."""
    names = ("topic", "partition", "offset")
    items = [dict(zip(names, each, strict=True)) for each in partitions]
    return json.dumps({"partitions": items, **more})


# -- by arguments --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "low_watermark", "left"),
    (
        (0, 0, [0, 4, 8]),
        (3, 3, [0, 4, 8]),
        (4, 4, [4, 8]),
        (9, 9, [8]),
        (10, 10, [8]),
        (-1, 10, [8]),
        ("@1000", 0, [0, 4, 8]),
        ("@4001", 4, [4, 8]),
        ("@1970-01-01T00:00:06Z", 5, [4, 8]),
        ("@99999", 10, [8]),
    ),
)
def test_the_log_start_afterwards(run, data_dir, events, before, low_watermark, left):
    """S-092 and S-093 as a command; whole segments below go at once."""
    done = run("delete-records", events, "--partition", 0, "--before-offset", before)
    assert done.stderr == ""
    assert bases(data_dir) == left
    assert first_offset(run) == low_watermark
    again = run("delete-records", events, "--before-offset", before, "--format", "json")
    item = {"topic": events, "partition": 0, "low_watermark": low_watermark, "error": None}
    assert again.json == {"partitions": [item]}


def test_deleted_records_stay_deleted_and_are_not_read(run, events):
    run("delete-records", events, "--before-offset", 6)
    assert "[6, 10]" in run("read", events, "--from", 5, code=1).stderr
    found = run("read", events, "--format", "jsonl").jsonl
    assert [each["offset"] for each in found] == [6, 7, 8, 9]
    assert run("inspect", events, "--format", "json").json["log_start_offset"] == 6


@pytest.mark.parametrize("before", (-5, 11))
def test_offset_outside_the_log_is_refused(run, data_dir, events, before):
    refused = run("delete-records", events, "--before-offset", before, "--format", "json", code=1)
    assert refused.json == {
        "partitions": [
            {
                "topic": events,
                "partition": 0,
                "low_watermark": -1,
                "error": "OFFSET_OUT_OF_RANGE",
            }
        ]
    }
    assert "[0, 10]" in refused.stderr
    assert bases(data_dir) == [0, 4, 8]


def test_policy_must_delete(run):
    """S-092: refused on a compacted topic, allowed on compact,delete."""
    for name, policy in (("c", "compact"), ("cd", "compact,delete")):
        run("topic", "create", name, "--config", f"cleanup.policy={policy}")
        run("append", name, input=lines({"key": "k", "value": "v"}))
    refused = run("delete-records", "c", "--before-offset", -1, "--format", "jsonl", code=1)
    [item] = refused.jsonl
    assert (item["low_watermark"], item["error"]) == (-1, "POLICY_VIOLATION")
    assert "cleanup.policy is compact" in refused.stderr
    [item] = run("delete-records", "cd", "--before-offset", -1, "--format", "jsonl").jsonl
    assert (item["low_watermark"], item["error"]) == (1, None)


def test_table_shows_removed_segments_and_records_still_on_disk(run, events):
    heading, _, row = run("delete-records", events, "--before-offset", 6).stdout.splitlines()
    assert heading.split() == ["partition", "low", "watermark", "freed", "result"]
    assert row.split(maxsplit=6) == [
        *("events-0", "0", "→", "6", "472", "B"),
        "1 segment deleted; 4..5 are invisible, but on disk until segment 4 is deleted",
    ]
    row = run("delete-records", events, "--before-offset", 7).stdout.splitlines()[2]
    assert row.split(maxsplit=5)[:5] == ["events-0", "6", "→", "7", "-"]
    assert "no segment is entirely below; 4..6 are invisible" in row
    row = run("delete-records", events, "--before-offset", 9).stdout.splitlines()[2]
    assert row.endswith("1 segment deleted; 8 is invisible, but on disk until segment 8 is deleted")
    row = run("delete-records", events, "--before-offset", 2).stdout.splitlines()[2]
    assert row.split(maxsplit=3)[1:3] == ["9", "-"]
    assert "nothing to delete; 8 is invisible" in row


def test_one_of_several_partitions_must_be_named(run):
    run("topic", "create", "t", "--partitions", 2)
    refused = run("delete-records", "t", "--before-offset", -1, code=2)
    assert "choose one with --partition" in refused.stderr
    run("append", "t", "--partition", 1, input=lines({"value": "v"}))
    [item] = run(
        *("delete-records", "t", "--partition", 1, "--before-offset", -1, "--format", "jsonl")
    ).jsonl
    assert (item["partition"], item["low_watermark"]) == (1, 1)


# -- by a file -----------------------------------------------------------------------------


@pytest.mark.parametrize("option", ("--offset-json-file", "--delete-offset-json-file"))
def test_partitions_of_a_file_have_results_of_their_own(run, data_dir, tmp_path, events, option):
    run("topic", "create", "users", "--config", "cleanup.policy=compact")
    path = tmp_path / "offsets.json"
    path.write_text(
        request(
            ("nope", 3, 1), ("events", 0, 8), ("users", 0, 0), ("events", 1, 0), version=1, note=""
        )
    )
    done = run("delete-records", option, path, "--format", "json", code=1)
    found = done.json["partitions"]
    assert all(each.keys() == MEMBERS for each in found)
    assert [tuple(each.values()) for each in found] == [
        ("nope", 3, -1, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("events", 0, 8, None),
        ("users", 0, -1, "POLICY_VIOLATION"),
        ("events", 1, -1, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert bases(data_dir) == [8]
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["error"] * 3
    assert "nope-3: unknown topic 'nope'" in done.stderr

    table = run("delete-records", option, path, code=1).stdout
    assert [line.split()[0] for line in table.splitlines()[2:]] == [
        *("nope-3", "events-0", "users-0", "events-1"),
    ]
    assert "POLICY_VIOLATION" in table


def test_file_from_standard_input(run, events):
    done = run(
        *("delete-records", "--offset-json-file", "-", "--format", "jsonl"),
        input=request(("events", 0, -1)),
    )
    [item] = done.jsonl
    assert (item["low_watermark"], item["error"]) == (10, None)


def test_file_that_names_nothing(run, events):
    done = run("delete-records", "--offset-json-file", "-", input=request())
    assert done.stdout == "the request lists no partitions\n"


BAD_FILES = (
    ("", "not JSON"),
    ("[" * 100_000, "not JSON"),
    (b"\xff\xff\xff", "not JSON"),
    ("[]", "expected an object, not []"),
    ("{}", "partitions is missing"),
    (request(version=2), "version: expected 1, not 2"),
    (request(version="1"), 'version: expected 1, not "1"'),
    (request(version=True), "version: expected 1, not true"),
    ('{"partitions": {}}', "partitions: expected a list, not {}"),
    ('{"partitions": [3]}', "partitions[0]: expected an object, not 3"),
    ('{"partitions": [{"partition": 0, "offset": 1}]}', "partitions[0].topic is missing"),
    ('{"partitions": [{"topic": "events", "offset": 1}]}', "partitions[0].partition is missing"),
    (request(("events", 0, 4), (7, 0, 4)), "partitions[1].topic: expected a name, not 7"),
    (
        request(("events", 0, 4), ("events", "0", 4)),
        'partitions[1].partition: expected an integer, not "0"',
    ),
    (
        request(("events", 0, 4.0)),
        "partitions[0].offset: expected an integer, not 4.0",
    ),
    (request(("events", 0, None)), "partitions[0].offset: expected an integer, not null"),
    (request(("events", 0, 1 << 63)), f"partitions[0].offset: {1 << 63} does not fit in 64 bits"),
    (
        request(("events", -(1 << 31) - 1, 4)),
        "partitions[0].partition: -2147483649 does not fit in 32 bits",
    ),
    (
        request(("events", 0, 4), ("other", 0, 4), ("events", 0, 5)),
        "partitions[2]: events-0 is already listed as partitions[0]",
    ),
)


@pytest.mark.parametrize(("data", "message"), BAD_FILES)
def test_bad_file_deletes_nothing(run, data_dir, events, data, message):
    before = tree_hash(data_dir)
    refused = run("delete-records", "--offset-json-file", "-", code=2, input=data)
    assert refused.stderr.startswith("error: <stdin>: ")
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert refused.stdout == ""
    assert tree_hash(data_dir) == before


def test_order_and_extremes_of_a_file_are_kept():
    found = parse_request(request(("b", 1, -1), ("a", 0, (1 << 63) - 1), version=1).encode())
    assert list(found.items()) == [
        (TopicPartition("b", 1), -1),
        (TopicPartition("a", 0), (1 << 63) - 1),
    ]
    with pytest.raises(
        DeleteRequestError,
        match=exactly(
            "partitions[0].offset: expected an integer, not "
            '"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...'
        ),
    ):
        parse_request(request(("a", 0, "x" * 999)).encode())


# -- wrong usage ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        ((), "give TOPIC and --before-offset, or --offset-json-file"),
        (("events",), "give TOPIC and --before-offset"),
        (("--before-offset", "3"), "give TOPIC and --before-offset"),
        (("events", "--offset-json-file", "-"), "--offset-json-file excludes TOPIC"),
        (("--partition", "0", "--offset-json-file", "-"), "--offset-json-file excludes TOPIC"),
        (("--before-offset", "0", "--offset-json-file", "-"), "--offset-json-file excludes TOPIC"),
        (("--offset-json-file", "none.json"), "none.json"),
        (("events", "--before-offset", "all"), "is not an offset, -1 or @TIME"),
        (("events", "--before-offset", "@soon"), "is not an offset, -1 or @TIME"),
        (("evnts", "--before-offset", "3"), "did you mean events?"),
        (("events", "--partition", "1", "--before-offset", "3"), "has no partition 1"),
    ),
)
def test_wrong_usage(run, data_dir, events, arguments, message):
    refused = run("delete-records", *arguments, code=2, input=request(("events", 0, 8)))
    assert message in refused.stderr
    assert refused.stdout == ""
    assert bases(data_dir) == [0, 4, 8]
