"""The directory of a broker: many empty partitions, topics with both policies, lost segments."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from logstore import Broker, VirtualClock
from logstore.cli.main import main
from logstore.reasons.formats import format_size

NOW = ("--now", "2024-01-05T00:00:00Z")
COMPACT = {"cleanup.policy": "compact"}
HEADERS_ONLY = "only batch headers were read; --deep also finds damage inside batches"


def fill(broker: Broker, segments: int, *topics: str) -> None:
    """Append 30 records of five keys a day, each day in a segment of its own."""
    for _ in range(segments):
        for topic in topics:
            for number in range(30):
                broker.append(topic, key=b"%d" % (number % 5), value=b"x" * 40, partition=0)
            broker.roll(topic, 0)
        broker.clock.advance(days=1)


@pytest.fixture
def directory(data_dir: Path) -> Path:
    with Broker(data_dir, clock=VirtualClock()) as broker:
        broker.create_topic("__consumer_offsets", partitions=50, configs=COMPACT)
        broker.create_topic("__transaction_state", partitions=50, configs=COMPACT)
        for partition in (3, 7):
            broker.append("__consumer_offsets", key=b"k", value=b"v", partition=partition)
        broker.create_topic("users", configs=COMPACT)
        fill(broker, 2, "users")
        broker.create_topic("orders", partitions=2, configs=COMPACT)
    return data_dir


FOLDED = (
    "100 empty partitions with nothing to do: 48 of __consumer_offsets, 50 of"
    " __transaction_state, 2 of orders; --all lists them"
)


@pytest.mark.parametrize("command", (("inspect",), ("explain",), ("inspect", "--sort", "size")))
def test_empty_partitions_are_one_line(run, directory, command):
    out = run(*command, *NOW).stdout
    assert " ".join(out.split()).count(FOLDED) == 1
    for name in ("__consumer_offsets-3", "__consumer_offsets-7", "users-0"):
        assert name in out
    for name in ("__consumer_offsets-0 ", "__transaction_state-0", "orders-1"):
        assert name not in out
    assert "103 partitions" in out
    everything = run(*command, "--all", *NOW).stdout
    assert "--all" not in everything
    for name in ("__consumer_offsets-49", "__transaction_state-0", "orders-1"):
        assert name in everything


@pytest.mark.parametrize("command", ("inspect", "explain"))
@pytest.mark.parametrize("output", ("json", "jsonl", "csv"))
def test_other_formats_are_complete(run, directory, command, output):
    done = run(command, *NOW, "--format", output).stdout
    assert done.count("__transaction_state") >= 50


def test_few_empty_partitions_are_listed(run, data_dir):
    with Broker(data_dir, clock=VirtualClock()) as broker:
        broker.create_topic("orders", partitions=3, configs=COMPACT)
    for command in ("inspect", "explain"):
        out = run(command, "orders", *NOW).stdout
        assert "orders-2" in out
        assert "--all" not in out


def test_a_damaged_empty_partition_is_listed(run, directory):
    for name in ("users-0", "__transaction_state-9"):
        path = min((directory / name).glob("*.log"))
        data = bytearray(path.read_bytes() or bytes(60))
        data[-1] ^= 0xFF
        path.write_bytes(data)
    out = run("inspect", *NOW, code=None).stdout
    assert "__transaction_state-9" in out


def test_bytes_of_a_topic_with_both_policies_are_not_added_twice(run, data_dir):
    with Broker(data_dir, clock=VirtualClock()) as broker:
        both = {"cleanup.policy": "compact,delete", "retention.ms": "1d"}
        broker.create_topic("both", configs=both)
        broker.create_topic("old", configs={"cleanup.policy": "delete", "retention.ms": "1d"})
        fill(broker, 3, "both", "old")
    found = run("inspect", *NOW, "--format", "json").json
    due, old = (item["verdict"]["retention"]["bytes"] for item in found["partitions"])
    summary = found["summary"]
    assert due == old > 0
    assert summary["retention_bytes"] == due + old
    assert summary["retention_bytes_of_due"] == due
    expected = f"; retention removes {format_size(due + old)}, {format_size(due)} of it in"
    for command in ("inspect", "explain", "stats"):
        out = " ".join(run(command, *NOW).stdout.split())
        assert expected in out


# -- damage inside batches ---------------------------------------------------------------------


def test_inspect_notes_once_that_only_headers_were_read(run, directory):
    assert run("inspect", *NOW).stdout.count(HEADERS_ONLY) == 1
    assert run("inspect", "users", *NOW).stdout.count(HEADERS_ONLY) == 1
    for arguments in (
        ("users", "--deep"),
        ("__transaction_state", "--partition", 0),  # it is empty
        ("users", "--batches"),
    ):
        assert HEADERS_ONLY not in run("inspect", *arguments, *NOW).stdout


# -- missing segments --------------------------------------------------------------------------


@pytest.fixture
def gap(data_dir: Path) -> Path:
    """A log of five segments without the third."""
    with Broker(data_dir, clock=VirtualClock()) as broker:
        broker.create_topic("users", configs=COMPACT)
        fill(broker, 5, "users")
    (data_dir / "users-0" / f"{60:020}.log").unlink()
    return data_dir


def test_a_missing_segment_is_reported_as_kafka_treats_it(run, gap):
    text = (
        "offsets 60..89 are missing between two segments; a segment may be lost. A broker starts"
        " without an error, and consumers continue at offset 90"
    )
    for command in ("inspect", "explain", "stats"):
        done = run(command, "users", *NOW, code=None)
        assert text in " ".join(done.stdout.split()), command
        item = run(command, "users", *NOW, "--format", "json", code=None).json["partitions"][0]
        (note,) = item["verdict"]["notes"]
        assert note["code"] == "note.missing_offsets"
        assert note["values"] == {"first_offset": 60, "last_offset": 89, "next_offset": 90}
        assert item["verdict"]["state"] == "due"
    read = run("read", "users", "--from", "59", "--max-records", 2, "--format", "jsonl").jsonl
    assert [record["offset"] for record in read] == [59, 90]


def test_offsets_removed_by_cleaning_are_not_missing(run, data_dir):
    with Broker(data_dir, clock=VirtualClock()) as broker:
        broker.create_topic("users", configs=COMPACT)
        fill(broker, 2, "users")
        broker.clean("users", force=True)
        fill(broker, 2, "users")
    item = run("inspect", "users", *NOW, "--format", "json").json
    assert item["verdict"]["notes"] == []
    (data_dir / "cleaner-offset-checkpoint").unlink()
    (data_dir / "logstore-topics.json").unlink()
    for policy in ("compact", "delete"):
        found = run(
            "inspect", "users", *NOW, "--config", f"cleanup.policy={policy}", "--format", "json"
        ).json
        assert found["verdict"]["notes"] == []


@pytest.mark.parametrize("has_checkpoints", (True, False))
def test_a_copied_folder_reports_a_missing_segment(run, gap, has_checkpoints):
    (gap / "logstore-topics.json").unlink()
    if not has_checkpoints:
        (gap / "cleaner-offset-checkpoint").unlink(missing_ok=True)
    for options in ((), ("--config", "cleanup.policy=compact")):
        found = run("inspect", f"{gap}/users-0", *options, *NOW, "--format", "json").json
        assert [note["code"] for note in found["verdict"]["notes"]] == ["note.missing_offsets"]


# -- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    (
        (("serve", "--port", "9092"), "Did you mean '--listen HOST:PORT'?"),
        (("serve", "--host", "127.0.0.1"), "Did you mean '--listen HOST:PORT'?"),
        (("ui", "--port", "9092"), "Did you mean '--listen HOST:PORT'?"),
        (("serve", "--lisen", "127.0.0.1:0"), "Did you mean '--listen'?"),
        (("inspect", "--patition", "1"), "Did you mean '--partition'?"),
    ),
)
def test_an_unknown_option_suggests_the_one_that_was_meant(arguments, expected):
    done = CliRunner().invoke(main, [*arguments])
    assert done.exit_code == 2
    assert expected in done.stderr
    assert "--format" not in done.stderr
