"""Costs, report and command line show one set of numbers, in which every row and pass counts."""

import re

import numpy as np
import pytest

from logstore.cli.commands.simulate_show import show_run
from logstore.simulate import parse, run
from logstore.simulate.outcome import (
    CONSUMERS,
    PARTITIONS,
    PASSES,
    SEGMENTS,
    Run,
    Table,
    bytes_of,
)
from logstore.simulate.report import page
from logstore.types import DAY_MS, HOUR_MS

TWO_TOPICS = """
days = 6
[[topics]]
name = "users"
configs = { "cleanup.policy" = "compact", "max.compaction.lag.ms" = "1h", "segment.ms" = "30m" }
messages = [
  { at = "0", key = "a", value = "1" }, { at = "45m", key = "a", value = "2" },
  { at = "5h", key = "a", value = "3" },
]
[[topics]]
name = "clicks"
configs = { "retention.ms" = "3d", "segment.ms" = "12h" }
messages = [ { at = "0", key = "a", value = "1" }, { at = "13h", key = "b", value = "2" } ]
"""
BACKOFF_MS = 15_000


@pytest.fixture(scope="module")
def outcome():
    return run(parse(TWO_TOPICS), samples=20)


def test_a_pass_that_is_late_counts_though_nothing_was_sampled_before_it(outcome):
    """Each comes up to log.cleaner.backoff.ms after the bound."""
    passes = outcome.passes
    assert passes["compaction_delay_ms"].tolist() == [0, BACKOFF_MS, BACKOFF_MS]
    late = passes["oldest_dirty_ms"] - HOUR_MS
    assert passes["compaction_delay_ms"].tolist() == np.maximum(late, 0).tolist()
    costs = outcome.costs()
    assert costs["compaction_delay_max_ms"] == BACKOFF_MS
    assert costs["oldest_dirty_max_ms"] == HOUR_MS + BACKOFF_MS


def test_a_topic_that_is_not_compacted_has_nothing_that_waits_for_a_cleaning(outcome):
    clicks = outcome.partitions.where(topic="clicks")
    for name in ("oldest_dirty_ms", "compaction_delay_ms", "cleanable_ratio", "must_clean_ratio"):
        assert not clicks[name].any(), name
    assert outcome.costs("clicks")["oldest_dirty_max_ms"] == 0
    assert clicks["dirty_bytes"].any()


def test_the_series_of_all_matches_the_rows_taken_one_by_one(outcome):
    for topic in (None, "users", "clicks"):
        series = outcome.over_time(topic)
        rows = list(zip(*(outcome.partitions[name].tolist() for name in PARTITIONS), strict=True))
        rows = [dict(zip(PARTITIONS, row, strict=True)) for row in rows]
        rows = [row for row in rows if topic in (None, row["topic"])]
        for at, time_ms in enumerate(series["time_ms"].tolist()):
            last = {}
            for row in rows:
                if row["time_ms"] <= time_ms:
                    last[row["topic"], row["partition"]] = row
            for name in ("live_records", "records", "segments", "deleted_bytes"):
                assert series[name][at] == sum(row[name] for row in last.values())
            for name in ("max_compaction_lag_ms", "oldest_tombstone_ms"):
                assert series[name][at] == max(row[name] for row in last.values())


def captions(text):
    """Return the words of each plot by the heading of its topic and its title."""
    found = {}
    heading = ""
    words = r"<h2>(.*?)</h2>|<figcaption[^>]*><b>(.*?)\.</b> (.*?)</figcaption>"
    for part in re.finditer(words, text):
        heading = part[1] or heading
        found[heading, part[2]] = part[3]
    return found


def test_the_plots_reach_what_the_table_counts(outcome):
    words = captions(page(outcome))
    for heading, topic in (("All topics", None), ("users", "users"), ("clicks", "clicks")):
        costs = outcome.costs(topic)
        assert words[heading, "Bytes"].endswith(f"at most {costs['bytes_peak']} B.")
    age = words["users", "Age of the oldest dirty data (days)"]
    assert "beyond max.compaction.lag.ms: 0ms at the end, at most 15s" in age


def test_the_command_line_shows_the_numbers_of_the_report(outcome, capsys):
    show_run(outcome)
    rows = [re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines()]
    shown = {row[0]: row[-2:] for row in rows if len(row) > 2}
    series = outcome.over_time()
    total = bytes_of(series)
    assert shown["bytes, all files"] == [f"{total.max():.0f} B", f"{total[-1]:.0f} B"]
    assert shown["live records"] == [f"{series['live_records'].max():.0f}", "1"]
    assert shown["oldest uncleaned record"] == ["1h 15s", "0ms"]
    words = captions(page(outcome))
    assert words["All topics", "Bytes"] == (
        f"all: {total[-1]:.0f} B at the end, at most {total.max():.0f} B."
    )


def table(columns, *rows):
    found = Table(tuple(columns))
    for row in rows:
        found.add(**dict.fromkeys(columns, 0) | row)
    return found


def test_partitions_whose_names_run_together_are_two():
    """Topic `a1`, partition 1, and topic `a`, partition 11."""
    row = {"event": "end", "time_ms": DAY_MS}
    rows = [
        {**row, "topic": topic, "partition": number, "active_bytes": size}
        for topic, number, size in (("a1", 1, 10), ("a", 11, 5))
    ]
    scenario = parse(TWO_TOPICS)
    empty = (table(CONSUMERS), table(PASSES), table(SEGMENTS))
    outcome = Run(scenario, table(PARTITIONS, *rows), *empty, {}, [])
    assert outcome.costs()["bytes_peak"] == 15
