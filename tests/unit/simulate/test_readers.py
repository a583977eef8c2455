"""Positions of consumers, and the deletes that they miss."""

import numpy as np

from logstore.simulate import parse
from logstore.simulate.readers import Readers
from logstore.types import TopicPartition

SCENARIO = parse(
    """
[[topics]]
name = "a"
partitions = 2
records = 0
[[topics]]
name = "b"
records = 0
[[consumers]]
name = "near"
topic = "a"
lag = "10ms"
[[consumers]]
name = "far"
topic = "a"
lag = "100ms"
[[consumers]]
name = "other"
topic = "b"
"""
)
START_MS = SCENARIO.start_ms
ONE, TWO, OTHER = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def rows(readers, now_ms):
    found = list(readers.rows(START_MS + now_ms))
    assert {row["time_ms"] for row in found} == {START_MS + now_ms}
    assert [row["consumer"] for row in found] == ["near", "far", "other"]
    return [(row["lag_records"], row["lag_ms"], row["missed_tombstones"]) for row in found]


def test_a_consumer_is_behind_in_every_partition_by_its_lag():
    readers = Readers(SCENARIO)
    assert rows(readers, 0) == [(0, 0, 0)] * 3
    readers.note(ONE, START_MS + 1, 5)
    readers.note(TWO, START_MS + 3, 7)
    assert rows(readers, 4) == [(12, 3, 0), (12, 3, 0), (0, 0, 0)]
    readers.note(ONE, START_MS + 10, 5)  # at 11 it has read up to 1
    assert rows(readers, 10) == [(12, 9, 0), (12, 9, 0), (0, 0, 0)]
    readers.note(ONE, START_MS + 11, 8)
    assert rows(readers, 11) == [(10, 8, 0), (15, 10, 0), (0, 0, 0)]
    readers.note(TWO, START_MS + 13, 7)
    assert rows(readers, 13) == [(3, 2, 0), (15, 12, 0), (0, 0, 0)]
    readers.note(OTHER, START_MS + 20, 3)
    assert rows(readers, 20)[2] == (0, 0, 0)


def test_tombstones_that_are_removed_before_they_are_read_are_missed():
    readers = Readers(SCENARIO)
    readers.begin(ONE, 4)
    readers.note(ONE, START_MS, 6)
    readers.note(ONE, START_MS + 20, 9)
    readers.note(TWO, START_MS, 9)
    assert rows(readers, 20) == [(12, 20, 0), (14, 20, 0), (0, 0, 0)]
    readers.note_removed(ONE, START_MS + 20, np.array([3, 4, 5, 6, 8]))
    assert [each[2] for each in rows(readers, 20)] == [2, 4, 0]
    readers.note_removed(ONE, START_MS + 30, np.array([6, 8]))  # it has read them just now
    assert [each[2] for each in rows(readers, 30)] == [2, 6, 0]
    readers.forget(ONE)
    assert [each[0] for each in rows(readers, 30)] == [9, 9, 0]
    readers.note(ONE, START_MS + 40, 2)
    assert [each[0] for each in rows(readers, 40)] == [11, 11, 0]
