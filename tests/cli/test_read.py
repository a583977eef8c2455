from __future__ import annotations

import base64
import json

import pytest

from tests.cli.conftest import GOLDEN, lines

READABLE = ("codec-none", "codec-zstd", "segments", "log-append-time", "idempotent", "holes")


@pytest.fixture
def topic(run):
    """Ten records in `t`, one a batch, at offsets 0 to 9 and times 1000, 2000 …"""
    items = [
        {"key": f"k{n % 3}", "value": None if n == 8 else f"v{n}", "timestamp": 1000 * (n + 1)}
        for n in range(10)
    ]
    run("append", "t", "--create", "--batch-records", 1, input=lines(*items))
    return "t"


def offsets(run, *arguments):
    return [r["offset"] for r in run("read", "t", "--format", "jsonl", *arguments).jsonl]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    (
        ((), list(range(10))),
        (("--from", "earliest"), list(range(10))),
        (("--from", "latest"), []),
        (("--from", "7"), [7, 8, 9]),
        (("--from", "10"), []),
        (("--from", "@3000"), list(range(2, 10))),
        (("--from", "@3001"), list(range(3, 10))),
        (("--from", "@1970-01-01T00:00:09Z"), [8, 9]),
        (("--from", "@99999"), []),
        (("--from", "@-5"), list(range(10))),
        (("--until", "3"), [0, 1, 2]),
        (("--from", "3", "--until", "3"), []),
        (("--from", "5", "--until", "100"), [5, 6, 7, 8, 9]),
        (("--max-records", "2"), [0, 1]),
        (("--max-records", "0"), []),
        (("--key", "k1"), [1, 4, 7]),
        (("--key", "base64:azE="), [1, 4, 7]),
        (("--key", "k1", "--max-records", "2"), [1, 4]),
        (("--key", "none"), []),
        (("--latest-per-key",), [7, 9]),
        (("--latest-per-key", "--until", "8"), [5, 6, 7]),
        (("--latest-per-key", "--max-records", "1"), [7]),
    ),
)
def test_which_records_are_read(run, topic, arguments, expected):
    assert offsets(run, *arguments) == expected


@pytest.mark.parametrize("offset", ("11", "-1"))
def test_offset_outside_the_log_is_refused_with_both_bounds(run, topic, offset):
    for output in ("table", "json", "jsonl"):
        refused = run("read", topic, f"--from={offset}", "--format", output, code=1)
        assert refused.stdout == ""
        assert "[0, 10]" in refused.stderr
        assert "OFFSET_OUT_OF_RANGE" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("t", "--from", "yesterday"), "earliest, latest, an offset or @TIME"),
        (("t", "--from", "@soon"), "earliest, latest, an offset or @TIME"),
        (("t", "--key", "base64:?"), "base64"),
        (("t", "--isolation", "committed"), "--isolation"),
        (("t", "--partition", "1"), "has no partition 1"),
        (("tt",), "did you mean t?"),
        ((), "Missing argument"),
    ),
)
def test_wrong_usage(run, topic, arguments, message):
    refused = run("read", *arguments, code=2)
    assert message in refused.stderr
    assert refused.stdout == ""


def test_json_is_one_object(run, topic):
    document = run("read", topic, "--format", "json").json
    assert [record["offset"] for record in document["records"]] == list(range(10))
    assert run("read", topic, "--from", "latest", "--format", "json").json == {"records": []}


def test_table_escapes_terminal_control_sequences(run):
    item = {"key": "\x1b[31m", "value": "a\nb", "headers": [["h\x07", None]], "timestamp": 0}
    run("append", "t", "--create", input=lines(item))
    text = run("read", "t").stdout
    assert "\x1b" not in text
    assert text.splitlines()[2].split() == [
        "t-0",
        "0",
        "1970-01-01",
        "00:00:00.000Z",
        "\\x1b[31m",
        "a\\nb",
        "h\\x07=∅",
    ]


def test_an_empty_read_is_reported(run, topic):
    found = run("read", topic, "--from", "latest")
    assert (found.stdout, found.stderr) == ("", "note: no records\n")


def test_partitions_are_read_one_after_another(run):
    items = [{"value": str(n), "partition": n % 3} for n in range(9)]
    run("append", "t", "--create", input=lines(*items))
    found = run("read", "t", "--format", "jsonl").jsonl
    assert [r["partition"] for r in found] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert offsets(run, "--max-records", "4") == [0, 1, 2, 0]
    assert offsets(run, "--partition", "2") == [0, 1, 2]


def version(number):
    """A header with a version, as `append` accepts it."""
    value = base64.b64encode(number.to_bytes(8, "big", signed=True)).decode()
    return [["v", {"base64": value}]]


VERSIONED = (
    {"key": "a", "value": "a5", "timestamp": 5},
    {"key": "b", "value": "b9", "timestamp": 9},
    {"key": "b", "value": "b2", "timestamp": 2},
    {"key": "a", "timestamp": 7},
    {"key": "a", "value": "late", "timestamp": 6},
    {"key": "c", "value": "c1", "timestamp": 1},
    {"key": "c", "value": "c1 again", "timestamp": 1},
)
"""A key whose tombstone wins over a later value, and a key whose first value is the newest."""

MATERIALISED = {
    "offset": {"a": "late", "b": "b2", "c": "c1 again"},
    "timestamp": {"b": "b9", "c": "c1 again"},
    "header": {"b": "b9", "c": "c1 again"},
}


@pytest.mark.parametrize("strategy", MATERIALISED)
def test_latest_per_key_follows_the_topics_strategy_as_cleaning_does(run, strategy):
    config = ("--config", f"compaction.strategy={strategy}", "--config", "cleanup.policy=compact")
    run("topic", "create", "t", *config, "--config", "compaction.strategy.header=v")
    run("append", "t", input=lines(*(as_versioned(each) for each in VERSIONED)))

    def materialised():
        found = run("read", "t", "--latest-per-key", "--format", "jsonl").jsonl
        assert [record["offset"] for record in found] == sorted(r["offset"] for r in found)
        return {record["key"]: record["value"] for record in found}

    assert materialised() == MATERIALISED[strategy]
    run("append", "t", input=lines({"key": "z", "value": "z"}))
    run("clean", "t", "--force", "--roll")
    assert materialised() == MATERIALISED[strategy] | {"z": "z"}
    found = run("read", "t", "--format", "jsonl").jsonl
    assert len({record["key"] for record in found}) == len(found), "one record a key is left"


def as_versioned(record):
    """The record with its timestamp also as a version header."""
    return {"value": None, **record, "headers": version(record["timestamp"])}


def as_golden(record):
    """Return a record of ours as the golden files write it."""

    def field(name):
        if name in record:
            return None if record[name] is None else encoded(record[name].encode())
        return encoded(base64.b64decode(record[f"{name}_base64"]))

    return {
        **{name: record[name] for name in ("offset", "timestamp", "timestamp_type")},
        "key": field("key"),
        "value": field("value"),
    }


def encoded(data):
    import hashlib

    if len(data) > 4096:
        return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("case", READABLE)
def test_golden_directory_reads_as_kafka_wrote_it(run, case):
    found = run("read", "golden", "--data-dir", GOLDEN / case / "data", "--format", "jsonl").jsonl
    wanted = [json.loads(line) for line in (GOLDEN / case / "records.jsonl").open()]
    for record in wanted:
        del record["headers"], record["batch_base_offset"], record["is_control"]
    assert [as_golden(record) for record in found] == wanted


def test_read_committed_equals_a_kafka_consumer(run):
    case = GOLDEN / "transactions"
    found = run(
        "read",
        "golden",
        *("--data-dir", case / "data"),
        *("--isolation", "read_committed"),
        *("--format", "jsonl"),
    ).jsonl
    wanted = [json.loads(line)["offset"] for line in (case / "committed.jsonl").open()]
    assert [record["offset"] for record in found] == wanted


def test_a_corrupt_batch_is_skipped_and_named(run, golden):
    directory = golden("segments")
    path = directory / "golden-0" / f"{83:020}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = run("read", "golden", "--data-dir", directory, "--format", "json", code=1)
    offsets = [record["offset"] for record in found.json["records"]]
    assert offsets == [*range(45, 123), *range(126, 300)]
    [damage] = found.json["damages"]
    assert (damage["path"], damage["check"]) == (str(path), "crc")
    assert (damage["last_offset_before"], damage["first_offset_after"]) == (122, 126)
    assert found.stderr.startswith(f"damage: {path}: ")
    assert "174 later records are valid" in found.stderr


@pytest.fixture
def damaged(run, data_dir):
    """Append 650 batches of one record; return a function that damages the batch of an offset."""
    values = ({"key": str(n % 7), "value": f"v{n:04}"} for n in range(650))
    run("append", "t", "--create", "--batch-records", 1, input=lines(*values))
    path = data_dir / "t-0" / f"{0:020}.log"
    size = path.stat().st_size // 650

    def damage(offset):
        with path.open("r+b") as file:
            file.seek(offset * size + size - 2)
            file.write(b"\xff")
        return f"damage: {path}: {size} bytes at position {offset * size} after offset {offset - 1}"

    return damage


@pytest.mark.parametrize("offset", (600, 150, 1))
@pytest.mark.parametrize("command", (("read", "t"), ("inspect", "t", "--records")))
def test_every_record_but_those_of_a_damaged_batch_is_shown(run, damaged, command, offset):
    told = damaged(offset)
    rest = [n for n in range(650) if n != offset]
    shown = run(*command, "--format", "jsonl", code=1)
    assert [record["offset"] for record in shown.jsonl] == rest
    assert shown.stderr.startswith(told)
    document = run(*command, "--format", "json", code=1)
    assert [record["offset"] for record in document.json["records"]] == rest
    assert [damage["last_offset_before"] for damage in document.json["damages"]] == [offset - 1]
    assert document.stderr == shown.stderr
    table = run(*command, code=1)
    assert table.stdout.count("v0") == 649
    assert f"v{offset:04}" not in table.stdout
    assert table.stderr == shown.stderr


def test_a_broker_keeps_unchecked_damage_and_stops_there_when_it_reads(run, damaged):
    damaged(600)
    shown = run("read", "t", "--as-recovered", "--format", "jsonl", code=1)
    assert [record["offset"] for record in shown.jsonl] == list(range(600))
    assert "batch at offset 600 has a bad CRC" in shown.stderr
    listed = run("inspect", "t", "--fate", "--as-recovered", "--format", "jsonl", code=1)
    assert [record["offset"] for record in listed.jsonl] == list(range(600))


def test_the_latest_of_each_key_matches_the_records_that_are_intact(run, damaged):
    told = damaged(649)  # of key 5
    read = run("read", "t", "--latest-per-key", "--format", "jsonl", code=1)
    assert [record["offset"] for record in read.jsonl] == list(range(642, 649))
    assert read.stderr.startswith(told)


def test_the_fates_of_all_intact_records_are_shown(run, damaged):
    told = damaged(600)
    fates = run("inspect", "t", "--fate", "--format", "jsonl", code=1)
    assert [record["offset"] for record in fates.jsonl] == [n for n in range(650) if n != 600]
    assert told in fates.stderr
    assert run("inspect", "t", "--fate", code=1).stdout.count("active") == 650  # and the sum
