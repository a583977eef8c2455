"""The series of a run: every one that is promised, with the numbers that follow from the log."""

import numpy as np
import pytest

from logstore.simulate import parse, run
from logstore.simulate.outcome import (
    AGE_CLASSES,
    CONSUMERS,
    PARTITIONS,
    PASSES,
    REGULAR_EVENTS,
    SEGMENTS,
)

HOUR_MS = 3_600_000

PROMISED = {
    "bytes": ("clean_bytes", "dirty_bytes", "active_bytes", "deleted_bytes"),
    "records": ("live_records", "dead_records", "keys"),
    "ratios": ("cleanable_ratio", "must_clean_ratio"),
    "compaction delay and the bound": ("compaction_delay_ms", "max_compaction_lag_ms"),
    "tombstones by age": tuple(AGE_CLASSES),
    "write amplification": ("write_amplification",),
    "cleaner": ("cleaner_read_bytes", "cleaner_written_bytes"),
    "load against its throttle": ("cleaner_load", "throttle_bytes_per_second"),
    "segments and holes": ("segments", "hole_offsets"),
}

DELETES = """
days = 2
[broker]
log.cleaner.backoff.ms = 60000
[[topics]]
name = "t"
configs = { "cleanup.policy" = "compact", "segment.ms" = "30m", "delete.retention.ms" = "4h", \
"min.cleanable.dirty.ratio" = 0.01, "max.compaction.lag.ms" = "2h" }
messages = [
    { at = "0", key = "a", value = "1" }, { at = "1h", key = "a", delete = true },
    { at = "3h", key = "b", delete = true }, { at = "5h", key = "c", delete = true },
    { at = "5h", key = "d", value = "1" }, { at = "30h", key = "d", value = "2" },
]
[[consumers]]
name = "reader"
topic = "t"
lag = "1h"
"""


@pytest.fixture(scope="module")
def deletes():
    return run(parse(DELETES), samples=48)


def at_hour(outcome, hour):
    """Return the regular row of an hour."""
    start = outcome.scenario.start_ms
    found = outcome.partitions.where(time_ms=start + hour * HOUR_MS, event="regular")
    return {name: column[0] for name, column in found.items()}


@pytest.mark.parametrize("what", PROMISED)
def test_promised_properties_have_columns(deletes, what):
    for name in PROMISED[what]:
        assert name in PARTITIONS
        assert deletes.partitions[name].dtype.kind in "if"


def test_every_table_has_its_columns(deletes):
    for table, columns in (
        (deletes.partitions, PARTITIONS),
        (deletes.consumers, CONSUMERS),
        (deletes.passes, PASSES),
        (deletes.segments, SEGMENTS),
    ):
        assert list(table.arrays()) == list(columns)
        assert len(table)


@pytest.mark.parametrize(
    ("hour", "counts"),
    (
        (2, (1, 0, 0, 0, 0)),  # a's is 1 h old, of 4
        (3, (1, 1, 0, 0, 0)),  # a's is as old as half of that, b's is new
        (4, (1, 1, 0, 0, 0)),  # a's 3 h, b's 1 h
        (6, (1, 1, 1, 0, 0)),  # a's 5 h, b's 3 h, c's 1 h
        (8, (0, 1, 1, 0, 0)),  # a's, first cleaned before the 4th hour, is gone
    ),
)
def test_tombstones_are_counted_by_their_age(deletes, hour, counts):
    row = at_hour(deletes, hour)
    found = tuple(int(row[name]) for name in AGE_CLASSES)
    assert found[:2] == counts[:2]
    assert sum(found) == row["tombstones"]
    if hour < 8:
        assert found == counts


def test_the_classes_add_up_to_the_tombstones(deletes):
    classes = [deletes.partitions[name] for name in AGE_CLASSES]
    assert (np.sum(classes, axis=0) == deletes.partitions["tombstones"]).all()
    oldest = deletes.partitions["oldest_tombstone_ms"]
    assert (oldest[deletes.partitions["tombstones_beyond"] > 0] >= 16 * HOUR_MS).all()


def test_the_bound_is_shown_next_to_the_delay(deletes):
    assert {*deletes.partitions["max_compaction_lag_ms"].tolist()} == {2 * HOUR_MS}
    unbounded = DELETES.replace(', "max.compaction.lag.ms" = "2h"', "")
    assert {*run(parse(unbounded), samples=2).partitions["max_compaction_lag_ms"].tolist()} == {0}


def test_holes_of_segments_match_the_partition(deletes):
    segments = deletes.segments.arrays()
    last = segments["time_ms"] == segments["time_ms"].max()
    row = {name: column[-1] for name, column in deletes.partitions.arrays().items()}
    assert segments["records"][last].sum() == row["records"]
    spans = segments["end_offset"] - segments["base_offset"]
    assert (segments["hole_offsets"] == spans - segments["records"]).all()
    assert segments["hole_offsets"][last].sum() > 0


def test_amplification_and_bytes_of_the_cleaner_match_its_passes(deletes):
    row = {name: column[-1] for name, column in deletes.partitions.arrays().items()}
    assert row["cleaner_written_bytes"] == deletes.passes["bytes_written"].sum()
    assert row["cleaner_read_bytes"] == deletes.passes["bytes_read"].sum()
    expected = 1 + row["cleaner_written_bytes"] / row["appended_bytes"]
    assert row["write_amplification"] == pytest.approx(expected)


def test_rates_match_the_last_regular_row(deletes):
    """A row in between has a rate over no more than the time since the last look."""
    name = "cleaner_bytes_per_second"
    found, series = deletes.partitions.arrays(), deletes.over_time()
    is_regular = np.isin(found["event"], REGULAR_EVENTS)
    assert found[name][~is_regular].any()
    regular_ms, rates = found["time_ms"][is_regular], found[name][is_regular]
    at = np.searchsorted(regular_ms, series["time_ms"], side="right") - 1
    assert (series[name] == rates[at]).all()


def test_a_consumer_is_behind_by_its_lag(deletes):
    found = deletes.consumers.arrays()
    since = (found["time_ms"] - deletes.scenario.start_ms) // HOUR_MS
    lag = dict(zip(since.tolist(), found["lag_records"].tolist(), strict=True))
    assert [lag[hour] for hour in (2, 5, 6, 30, 31)] == [0, 2, 0, 1, 0]


def test_deleting_the_surviving_version_revives_the_one_that_it_superseded():
    text = """
    days = 1
    [[topics]]
    name = "t"
    configs = { "cleanup.policy" = "compact,delete", "compaction.strategy" = "timestamp" }
    messages = [
        { at = "0", key = "a", value = "new" },
        { at = "1h", key = "a", value = "late", late = "2h" },
        { at = "2h", key = "b", value = "1" },
    ]
    [[actions]]
    at = "4h"
    do = "delete-records"
    topic = "t"
    before = 1
    """
    outcome = run(parse(text), samples=24)
    assert [at_hour(outcome, hour)["log_start_offset"] for hour in (3, 5)] == [0, 1]
    assert [at_hour(outcome, hour)["live_records"] for hour in (3, 5)] == [2, 2]
