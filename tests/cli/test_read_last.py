"""`read --last N` reads from the end, whatever holes and filters precede it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logstore import Broker
from logstore.cli.commands.read_last import last_of


@given(st.sets(st.integers(0, 400)), st.integers(0, 400), st.integers(0, 500), st.integers(0, 30))
@example({0}, 0, 2, 1)
def test_the_last_records_of_a_read(offsets, start, end, count):
    log = sorted(offset for offset in offsets if offset < end)
    asked = []

    def read(offset):
        asked.append(offset)
        return (found for found in log if found >= offset)

    expected = [offset for offset in log if offset >= start][-count:] if count else []
    assert list(last_of(read, start, end, count)) == expected
    assert all(offset >= start for offset in asked)


def test_only_the_end_of_a_long_log_is_read():
    asked = []

    def read(offset):
        asked.append(offset)
        return range(offset, 10**9)

    assert list(last_of(read, 0, 10**9, 3)) == [10**9 - 3, 10**9 - 2, 10**9 - 1]
    assert asked == [10**9 - 3]


@pytest.fixture
def topic(data_dir):
    with Broker(data_dir) as broker:
        broker.create_topic("t", 2)
        for number in range(20):
            broker.append("t", key=b"%d" % (number % 3), value=b"v", partition=number % 2)


@pytest.mark.parametrize(
    ("options", "expected"),
    (
        (("--last", "2"), [(0, 8), (0, 9), (1, 8), (1, 9)]),
        (("--last", "2", "--partition", "1"), [(1, 8), (1, 9)]),
        (("--last", "1", "--until", "5"), [(0, 4), (1, 4)]),
        (("--last", "1", "--key", "0"), [(0, 9), (1, 7)]),
        (("--last", "99", "--partition", "0", "--from", "7"), [(0, 7), (0, 8), (0, 9)]),
        (("--last", "3", "--max-records", "1"), [(0, 7)]),
        (("--last", "0"), []),
    ),
)
def test_last_records_of_each_partition(run, topic, options, expected):
    found = run("read", "t", *options, "--format", "jsonl").jsonl
    assert [(item["partition"], item["offset"]) for item in found] == expected


def test_last_of_the_latest_is_refused(run, topic):
    assert (
        "are mutually exclusive" in run("read", "t", "--last", 1, "--latest-per-key", code=2).stderr
    )
