"""Runs: the counts match the files, and the same seed gives the same run."""

import numpy as np
import pytest

from logstore import Broker
from logstore.simulate import library, parse, run
from logstore.simulate.outcome import Table
from logstore.types import DAY_MS

MIXED = """
days = 10
seed = 7
[[topics]]
name = "users"
records = 3_000
partitions = 2
keys.count = 1_000
deletes.share = 0.1
producers = { count = 2, transactional = 1, abort_share = 0.2, transaction_records = 50 }
time = { daily_swing = 0.5, arrival = "poisson" }
values.bytes = 30
batches = { min_records = 1, max_records = 40 }
[topics.configs]
"cleanup.policy" = "compact"
"segment.bytes" = 30_000
"delete.retention.ms" = 3_600_000
"min.cleanable.dirty.ratio" = 0.1
[[actions]]
at = "3d"
do = "crash"
[[actions]]
at = "5d"
do = "fill-disk"
[[actions]]
at = "6d"
do = "free-disk"
[[actions]]
at = "8d"
do = "clean"
topic = "users"
"""


def series(outcome):
    tables = (outcome.partitions, outcome.consumers, outcome.passes, outcome.segments)
    return [{name: column.tolist() for name, column in table.arrays().items()} for table in tables]


def told(outcome):
    return [note for note in outcome.notes if "refused" not in note]  # which names paths


def test_memory_and_disk_are_the_same_run(tmp_path):
    one, other = (
        run(parse(MIXED), samples=40),
        run(parse(MIXED), samples=40, data_dir=tmp_path / "data"),
    )
    assert one.digests == other.digests
    assert series(one) == series(other)
    assert told(one) == told(other)
    assert run(parse(MIXED).with_seed(8), samples=1).digests != one.digests


@pytest.mark.parametrize(
    ("strategy", "policy"),
    (("offset", "compact"), ("timestamp", "compact"), ("header", "compact,delete")),
)
def test_the_counts_match_the_log(tmp_path, strategy, policy):
    """At the end a table of the newest values determines the live records; the rest is dead."""
    scenario = parse(MIXED)
    for name, value in (
        ("cleanup.policy", policy),
        ("compaction.strategy", strategy),
        ("retention.ms", "4d"),
    ):
        scenario = scenario.with_config(name, value)
    if strategy == "header":
        tree = dict(scenario.tree)
        late = {"header": "v", "late_share": 0.3, "late_records": 500, "missing_share": 0.1}
        tree["topics"] = [{**tree["topics"][0], "versions": late}]
        scenario = parse_tree(tree).with_config("compaction.strategy.header", "v")
    outcome = run(scenario, samples=10, data_dir=tmp_path / "data")
    with Broker(tmp_path / "data", read_only=True) as broker:
        for partition in (0, 1):
            log = broker.log("users", partition)
            records = [record for _, record in log.reader.records(log.log_start_offset)]
            last = {name: column[-1] for name, column in outcome.partitions.where(
                topic="users", partition=partition).items()}  # fmt: skip
            assert last["records"] == len(records)
            assert last["log_end_offset"] == log.log_end_offset
            assert last["segments"] == len(log.segments.view)
        live = sum(
            outcome.partitions.where(partition=partition)["live_records"][-1]
            for partition in (0, 1)
        )
        assert live == len(broker.table("users"))


VERSIONS = """
days = 4
seed = 3
[[topics]]
name = "users"
records = 400
keys.count = 50
values.bytes = 10
versions = { header = "v", late_share = 0.5, late_records = 200 }
[topics.configs]
"cleanup.policy" = "compact,delete"
"compaction.strategy" = "header"
"compaction.strategy.header" = "v"
"min.cleanable.dirty.ratio" = 1
"retention.ms" = -1
[[actions]]
at = "3d"
do = "delete-records"
topic = "users"
before = 150
"""


def test_a_record_superseded_by_a_deleted_one_is_live_again(tmp_path):
    """The newest version of a key may be below the new log start."""
    outcome = run(parse(VERSIONS), samples=8, data_dir=tmp_path / "data")
    with Broker(tmp_path / "data", read_only=True) as broker:
        assert broker.log("users").log_start_offset == 150
        live = len(broker.table("users"))
    assert outcome.partitions["live_records"][-1] == live


def parse_tree(tree):
    from logstore.simulate.scenario import from_mapping

    return from_mapping(tree)


def test_a_quiet_cluster_costs_no_events():
    scenario = parse('days = 365\n[[topics]]\nname = "idle"\nrecords = 0\npartitions = 3')
    outcome = run(scenario, samples=10)
    assert len(outcome.partitions) == 3 * (10 + 1)
    assert outcome.costs()["bytes_peak"] == 0


def test_rolls_cleanings_and_retention_add_rows():
    events = run(parse(library.text_of("four-policies")), samples=5).partitions["event"]
    assert {*np.unique(events)} == {"start", "regular", "roll", "clean", "retain", "end"}


def test_a_consumer_that_is_away_too_long_misses_deletes():
    text = """
    days = 4
    [broker]
    log.cleaner.backoff.ms = 1000
    [[topics]]
    name = "t"
    configs = {{ "cleanup.policy" = "compact", "segment.ms" = "1h", "delete.retention.ms" = "1d", \
"min.cleanable.dirty.ratio" = 0.01 }}
    messages = [
        {{ at = "1h", key = "a", value = "1" }}, {{ at = "2h", key = "a", delete = true }},
        {{ at = "4h", key = "b", value = "1" }}, {{ at = "40h", key = "b", value = "2" }},
        {{ at = "50h", key = "b", value = "3" }},
    ]
    [[consumers]]
    topic = "t"
    away_from = "90m"
    away = "{away}"
    """
    missed = {
        away: int(run(parse(text.format(away=away)), samples=50).consumers["missed_tombstones"][-1])
        for away in ("3d", "10h")
    }
    assert missed == {"3d": 1, "10h": 0}


@pytest.mark.slow
def test_a_stopped_cleaner_lets_a_topic_grow_until_it_is_started():
    scenario = parse(library.text_of("dead-cleaner"))
    outcome = run(small(scenario, records=60_000, segment_bytes=262_144), samples=20)
    days = (outcome.passes["time_ms"] - scenario.start_ms) / DAY_MS
    assert len(days)
    assert not ((days > 3) & (days < 7)).any()
    times, total = outcome.total_bytes()
    peak = (times[total.argmax()] - scenario.start_ms) / DAY_MS
    assert 6.9 < peak < 7.1


def small(scenario, *, records=2_000, segment_bytes=131_072):
    """Return a scenario with fewer records, in one partition."""
    topics = []
    for topic in scenario.tree["topics"]:
        if topic.get("records", 0) > records:
            configs = {**topic.get("configs", {}), "segment.bytes": segment_bytes}
            topic = {**topic, "records": records, "partitions": 1, "configs": configs}
            if records < 10_000:
                topic["keys"] = {**topic.get("keys", {}), "count": 200}
                few = {"min_records": 1, "max_records": 10}
                topic["batches"] = {**topic.get("batches", {}), **few}
        topics.append(topic)
    days = min(scenario.days, 14)
    return parse_tree({**scenario.tree, "topics": topics, "days": days})


@pytest.mark.parametrize("name", library.names())
def test_every_scenario_is_the_same_in_memory_and_on_disk(name, tmp_path):
    scenario = small(parse(library.text_of(name)))
    one, other = run(scenario, samples=12), run(scenario, samples=12, data_dir=tmp_path / "data")
    assert one.digests == other.digests
    assert series(one) == series(other)
    assert one.costs() == other.costs()
    assert len(one.digests) == sum(topic.partitions for topic in scenario.topics)


def test_tables_describe_their_columns():
    table = Table(("a", "b"))
    table.add(a=1, b="x")
    table.add(a=2, b="y")
    assert table["a"].tolist() == [1, 2]
    assert table.where(b="y")["a"].tolist() == [2]
    assert Table(("a",))["a"].tolist() == []
