"""Reports of the cleaner: statistics and gauges in JSON, and the uncleanable partitions."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from logstore.cleaner.pool.metrics import metrics_of
from logstore.cleaner.selection import Gate
from logstore.cleaner.stats import CleanerStats, CleanReport, NotCleaned
from logstore.cleaner.uncleanable import UncleanablePartition, UncleanablePartitions
from logstore.errors import CorruptRecordError, KafkaStorageError, UnknownTopicOrPartitionError
from logstore.runtime import VirtualClock
from logstore.types import TopicPartition

USERS, ORDERS = TopicPartition("users", 3), TopicPartition("orders", 1)
NUMBERS = (
    "first_dirty_offset",
    "end_offset",
    "segments_before",
    "segments_after",
    "bytes_read",
    "bytes_written",
    "messages_read",
    "messages_written",
    "invalid_messages_read",
    "map_bytes_read",
    "map_messages_read",
    "seed_bytes_read",
    "seed_messages_read",
    "unversioned_records",
    "malformed_versions",
    "map_entries",
    "index_ms",
    "clean_ms",
)


def stats(first: int = 100, **fields: object) -> CleanerStats:
    """Return statistics whose numbers all differ."""
    return CleanerStats(
        **{
            "topic_partition": USERS,
            "pass_number": 2,
            "strategy": "offset",
            "map_utilization": 0.25,
            "fates": {"kept": 5, "superseded": 7},
            **{name: first + at for at, name in enumerate(NUMBERS)},
            **fields,
        }
    )


def test_statistics_in_json_have_each_number_under_its_name() -> None:
    expected = {name: 100 + at for at, name in enumerate(NUMBERS)}
    del expected["invalid_messages_read"]  # a fate
    assert stats().to_json() == {
        "topic": "users",
        "partition": 3,
        "pass": 2,
        "strategy": "offset",
        "map_utilization": 0.25,
        "fates": {"kept": 5, "superseded": 7},
        **expected,
    }
    assert stats().fates_total == 12


@pytest.mark.parametrize(("dry_run", "done"), ((False, "cleaned"), (True, "would be cleaned")))
def test_a_report_has_passes_and_gates(dry_run: bool, done: str) -> None:
    gate = Gate.closed_by("paused", "in use")
    left = NotCleaned(*ORDERS, gate)
    assert (left.reason, left.text, left.detail) == ("paused", gate.text, gate.reason)
    report = CleanReport((stats(), stats()), (left,), {USERS: 2}, dry_run)
    assert repr(report) == f"<CleanReport: 2 passes {done}, 1 partitions not>"
    assert report.to_json() == {
        "dry_run": dry_run,
        "cleaned": [stats().to_json()] * 2,
        "not_cleaned": [
            {"topic": "orders", "partition": 1, "reason": "paused", **gate.reason.to_json()}
        ],
        "passes_needed": {"users-3": 2},
    }


def test_gauges_are_of_the_last_passes_of_all_workers() -> None:
    def worker(delay_ms: int, last_pass: CleanerStats | None) -> SimpleNamespace:
        return SimpleNamespace(max_compaction_delay_ms=delay_ms, last_pass=last_pass)

    manager = SimpleNamespace(
        chooser=SimpleNamespace(max_dirty_percent=41, ms_since_last_selection=1234),
        uncleanable_totals=lambda: ({"/a": 1}, {"/a": 77}),
    )
    one = stats(bytes_read=300, bytes_written=200, index_ms=900, clean_ms=1_150)
    two = stats(
        bytes_read=100, bytes_written=50, index_ms=1_999, clean_ms=0, map_utilization=0.5099
    )
    workers = [worker(1_999, one), worker(2_999, None), worker(0, two)]
    assert metrics_of(manager, workers, 4).to_json() == {
        "max-buffer-utilization-percent": 50,
        "cleaner-recopy-percent": 62,
        "max-clean-time-secs": 2,
        "max-compaction-delay-secs": 2,
        "DeadThreadCount": 4,
        "max-dirty-percent": 41,
        "time-since-last-run-ms": 1234,
        "uncleanable-partitions-count": {"/a": 1},
        "uncleanable-bytes": {"/a": 77},
    }
    nothing = metrics_of(manager).to_json()
    assert list(nothing.values()) == [0, 0, 0, 0, 0, 41, 1234, {"/a": 1}, {"/a": 77}]
    empty = stats(bytes_read=0, bytes_written=0)
    assert metrics_of(manager, [worker(0, empty)]).cleaner_recopy_percent == 0


# --- uncleanable partitions -------------------------------------------------------------------


def directory_of(topic_partition: TopicPartition) -> SimpleNamespace:
    if topic_partition.topic == "gone":
        raise UnknownTopicOrPartitionError("gone")
    return SimpleNamespace(path=f"/{topic_partition.topic}")


def log_of(topic_partition: TopicPartition, error: Exception | None = None) -> SimpleNamespace:
    def check_open() -> None:
        if error is not None:
            raise error

    return SimpleNamespace(topic_partition=topic_partition, check_open=check_open)


def test_partitions_are_uncleanable_until_they_are_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock(5_000)
    found = UncleanablePartitions(clock, directory_of)
    found.add(USERS, CorruptRecordError("damaged"))
    clock.advance(ms=7)
    found.mark_uncleanable(log_of(ORDERS), ValueError("a defect"))
    found.add(TopicPartition("gone", 0), ValueError("too late"))
    one = UncleanablePartition(ORDERS, "/orders", "ValueError: a defect", 5_007)
    two = UncleanablePartition(USERS, "/users", "damaged", 5_000)
    assert found.all() == (one, two)
    assert (found.get(USERS), found.get(TopicPartition("users", 0))) == (two, None)
    assert (USERS in found, TopicPartition("users", 0) in found) == (True, False)
    assert [
        (record.levelno, record.getMessage(), record.exc_info is not None)
        for record in caplog.records
    ] == [
        (logging.WARNING, "users-3 is no longer cleaned: damaged", False),
        (logging.WARNING, "orders-1 is no longer cleaned: ValueError: a defect", True),
    ]
    assert two.to_json() == {
        "topic": "users",
        "partition": 3,
        "log_dir": "/users",
        "reason": "damaged",
        "since_ms": 5_000,
    }
    found.move(USERS, "/new")
    found.move(TopicPartition("users", 0), "/new")
    assert found.all() == (one, two._replace(log_dir="/new"))
    assert [found.forget(USERS), found.forget(USERS)] == [True, False]
    assert found.all() == (one,)


def test_a_log_that_is_offline_or_closed_is_not_uncleanable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    found = UncleanablePartitions(VirtualClock(), directory_of)
    found.mark_uncleanable(
        log_of(USERS, KafkaStorageError("it is offline")), ValueError("a defect")
    )
    assert found.all() == ()
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (logging.INFO, "users-3 is passed over: it is offline")
    ]


def test_totals_are_by_directory() -> None:
    found = UncleanablePartitions(VirtualClock(), directory_of)
    third = TopicPartition("users", 4)
    failing = TopicPartition("users", 5)
    for each in (USERS, third, failing, TopicPartition("orders", 7)):
        found.add(each, OSError("failed"))

    def dirty_bytes(log: SimpleNamespace) -> int:
        if log.topic_partition == failing:
            raise CorruptRecordError("damaged")
        return 10**log.topic_partition.partition

    logs = [log_of(each) for each in (USERS, ORDERS, third, failing)]
    assert found.totals(["/users", "/orders", "/other"], logs, dirty_bytes) == (
        {"/users": 3, "/orders": 0, "/other": 0},
        {"/users": 11_000, "/orders": 0, "/other": 0},
    )
