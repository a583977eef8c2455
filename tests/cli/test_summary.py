"""`inspect --summary`: one line for each partition, sorted by a column."""

from __future__ import annotations

import shutil

import pytest
from click.testing import CliRunner

from logstore import Broker, VirtualClock
from logstore.analysis import summary
from logstore.cli.main import main
from logstore.errors import UnknownTopicOrPartitionError

HOUR_MS = 3_600_000
START_MS = 1_704_067_200_000
TITLES = 4
"""Lines before the first partition: the summary, and the table's head."""

FOOT = 2
"""Lines after the last partition: batch headers only were read."""

NOW = ("--now", str(START_MS + 10 * HOUR_MS))


@pytest.fixture
def partitions(data_dir):
    """Sorted by size b, c, a; by dirty ratio c, b, a; by age of the dirty part a, c, b."""
    with Broker(data_dir, clock=VirtualClock(START_MS)) as broker:
        for name, count, size in (("a", 1, 10), ("b", 3, 3000), ("c", 2, 500)):
            broker.create_topic(name, 1, {"cleanup.policy": "compact"})
            hours = {"a": 1, "b": 5, "c": 2}[name]
            for number in range(count):
                broker.append(
                    name,
                    key=b"%d" % number,
                    value=b"v" * size,
                    timestamp=START_MS + hours * HOUR_MS,
                )
        broker.create_topic("d")
        broker.append("d", key=None, value=b"v" * 9000)
        broker.roll("b", 0)
        broker.clean("b", force=True)
        broker.append("b", key=b"1", value=b"v", timestamp=START_MS + 5 * HOUR_MS)
        broker.roll("b", 0)
        broker.roll("c", 0)


@pytest.mark.parametrize(
    ("sort", "order"),
    ((None, "abcd"), ("size", "bdca"), ("ratio", "cbad"), ("lag", "acbd")),
)
def test_order(run, partitions, sort, order):
    options = ("--sort", sort) if sort else ("--summary",)
    items = run("inspect", *options, *NOW, "--format", "jsonl").jsonl
    found = "".join(item["topic"] for item in items)
    if sort == "ratio":  # a partition that is not compacted has none
        found, order = found[:2], order[:2]
    assert found == order
    lines = run("inspect", *options, *NOW).stdout.splitlines()[TITLES:-FOOT]
    if sort is None:  # the table begins with the partition that frees most
        items = run("inspect", "--sort", "frees", *NOW, "--format", "jsonl").jsonl
    assert [line.split("-")[0] for line in lines] == [item["topic"] for item in items]


def test_lag_matches_the_oldest_segment_that_is_not_clean(run, partitions):
    items = run("inspect", "--summary", *NOW, "--format", "json").json["partitions"]
    hours = {item["topic"]: item["lag_ms"] and item["lag_ms"] / HOUR_MS for item in items}
    assert hours == {"a": 9, "b": 5, "c": 8, "d": None}
    assert items[0]["dirty_since_ms"] == START_MS + HOUR_MS
    assert [item["segments"] for item in items] == [1, 3, 2, 1]
    lines = run("inspect", *NOW).stdout.splitlines()[TITLES:-FOOT]
    lags = {
        line[0]: {" 9h ", " 5h ", " 8h "} & {f" {word} " for word in line.split()} for line in lines
    }
    assert lags == {"a": {" 9h "}, "b": {" 5h "}, "c": {" 8h "}, "d": set()}


def test_a_line_even_of_one(run, partitions):
    lines = run("inspect", "a", "--summary").stdout.splitlines()
    assert lines[0].startswith("1 partition, ")
    assert lines[TITLES - 2].startswith("partition")
    assert lines[TITLES].startswith("a-0")


@pytest.mark.parametrize("output", ("table", "json"))
def test_a_topic_that_is_deleted_during_the_listing(run, partitions, data_dir, monkeypatch, output):
    inspect_partition = summary.inspect_partition

    def inspect_or_delete(broker, tp, **options):
        if tp.topic == "b":
            shutil.rmtree(f"{data_dir}/{tp}")
            raise UnknownTopicOrPartitionError(f"{tp} was deleted or moved")
        return inspect_partition(broker, tp, **options)

    monkeypatch.setattr(summary, "inspect_partition", inspect_or_delete)
    result = run("inspect", *NOW, "--format", output, code=2)
    assert "error: b-0: b-0 was deleted or moved" in result.stderr


@pytest.mark.parametrize("columns", (70, 80, 100, 120, 200))
def test_lines_fit_the_terminal(partitions, data_dir, columns):
    runner = CliRunner(env={"LOGSTORE_DATA_DIR": str(data_dir), "COLUMNS": str(columns)})
    lines = runner.invoke(main, ["inspect", "--summary", *NOW]).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert ("sections" in lines[TITLES - 2]) == (columns >= 120)


def test_a_file_has_no_summary(run, partitions, data_dir):
    path = data_dir / "a-0" / f"{0:020}.log"
    assert (
        "--summary needs a topic or a directory" in run("inspect", path, "--summary", code=2).stderr
    )
    assert "are mutually exclusive" in run("inspect", "--summary", "--fate", code=2).stderr
