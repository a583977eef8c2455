"""The oracle's rules for a cleaning pass of a log that was cleaned before."""

import pytest

pytest.importorskip("pyspark")

from logstore.spark.oracle.verify import Cleaned, Rules, StartState, verify
from tests.support.world.frames import frame_of

NOW = 1_700_000_000_000
SINCE = NOW - 1_000
LOG_END = 20
OLD = NOW - 10_000_000
SCHEMA = (
    "topic string, partition int, offset bigint, key binary, value binary, ms bigint,"
    " timestampType int, headers array<struct<key:string,value:binary>>, aborted boolean,"
    " deleteHorizonMs bigint"
)


def record(offset, version, value=b"v", *, aborted=False, horizon=None, key=b"k"):
    """Return a record whose timestamp is its version."""
    ms = version if version > OLD else OLD + version
    return (offset, key, value, ms, 0, [], aborted, horizon)


def frame(spark, by_partition):
    rows = [("t", number, *each) for number, rows in enumerate(by_partition) for each in rows]
    made = frame_of(spark, rows, SCHEMA).coalesce(1)
    return made.selectExpr("*", "timestamp_millis(ms) AS timestamp").drop("ms")


CASES = {
    "the winner left by the front after it had beaten the others": (
        [record(0, 9), record(1, 5), record(2, 4)],
        [], Cleaned(1, 10, LOG_END), StartState(0, 0), [],
    ),
    "the winner left by the front before anything was cleaned": (
        [record(0, 9), record(1, 5), record(2, 4)],
        [1], Cleaned(1, 10, LOG_END), StartState(0, 0), [],
    ),
    "a winner that is still there must be": (
        [record(0, 3), record(1, 5), record(2, 4)], [2], Cleaned(1, 10, LOG_END), StartState(0, 0),
        [("survivor_lost", 1), ("wrong_winner", 2)],
    ),
    "the clean section may keep superseded records, and must keep survivors": (
        [record(0, 3), record(1, 5), record(2, 1, key=b"l"), record(3, 2, key=b"l")], [0, 1, 2],
        Cleaned(0, 10, LOG_END), StartState(0, 10), [("survivor_lost", 3)],
    ),
    "late for a tombstone that had expired": (
        [record(0, 9, None, horizon=SINCE), record(5, 3)], [5],
        Cleaned(0, 10, LOG_END), StartState(0, 3), [],
    ),
    "late, but the tombstone is there": (
        [record(0, 9, None, horizon=SINCE), record(5, 3)], [0, 5],
        Cleaned(0, 10, LOG_END), StartState(0, 3), [("loser_kept", 5)],
    ),
    "not late for a tombstone that had not expired when it all began": (
        [record(0, 9, None, horizon=SINCE + 1), record(5, 3)], [5],
        Cleaned(0, 10, LOG_END), StartState(0, 3), [("tombstone_resurrected", 5)],
    ),
    "not late: it had been compared": (
        [record(0, 9, None, horizon=SINCE), record(2, 3)], [2],
        Cleaned(0, 10, LOG_END), StartState(0, 3), [("tombstone_resurrected", 2)],
    ),
    "nobody knows how a transaction will end": (
        [record(0, 3), record(12, 3, aborted=None), record(13, 3, aborted=True)], [0],
        Cleaned(0, 10, LOG_END), StartState(0, 0), [("tail_lost", 12)],
    ),
    "without a rewrite, aborted records are kept": (
        [record(0, 3), record(13, 3, aborted=True)], [0],
        Cleaned(0, 0, LOG_END), StartState(0, 0), [("tail_lost", 13)],
    ),
    "the lag applies to the dirty section": (
        [record(0, NOW - 5), record(2, NOW - 4), record(3, NOW - 3)], [3],
        Cleaned(0, 10, LOG_END), StartState(0, 2), [("min_lag_broken", 2)],
    ),
    "an old tail, but nothing was cleaned": (
        [record(0, 1), record(12, 2)], [0, 12], Cleaned(0, 10, LOG_END), StartState(0, 10), [],
    ),
    "an old tail with a time that is none": (
        [record(0, 1), record(12, 2), record(13, -OLD)], [0, 12, 13],
        Cleaned(0, 10, LOG_END), StartState(0, 0), [],
    ),
    "an old tail of a log that was cleaned": (
        [record(0, 1), record(12, 2)], [0, 12], Cleaned(0, 10, LOG_END), StartState(0, 0),
        [("max_lag_broken", 12)],
    ),
}  # fmt: skip


def test_each_case_is_judged_as_it_began(frames):
    before, after, expected = [], [], []
    for number, (rows, kept, _, _, violations) in enumerate(CASES.values()):
        before.append(rows)
        after.append([row for row in rows if row[0] in kept])
        expected += [(kind, number, offset) for kind, offset in violations]
    verdict = verify(
        frame(frames, before),
        frame(frames, after).drop("aborted", "deleteHorizonMs"),
        Rules(
            strategy="timestamp", since_ms=SINCE, now_ms=NOW, delete_retention_ms=2**63 - 1,
            min_compaction_lag_ms=10, max_compaction_lag_ms=1_000,
        ),
        {("t", number): case[2] for number, case in enumerate(CASES.values())},
        begun={("t", number): case[3] for number, case in enumerate(CASES.values())},
        examples=100,
    )  # fmt: skip
    found = [(each["kind"], each["partition"], each["offset"]) for each in verdict.examples]
    assert sorted(found) == sorted(expected)


def test_without_a_first_time_a_tombstone_without_a_horizon_may_be_there_or_not(frames):
    rows = [record(0, 9, None), record(1, 9, None, key=b"l", horizon=NOW + 1)]
    kept = {0: [0, 1], 1: [1], 2: [0]}
    verdict = verify(
        frame(frames, [rows] * 3),
        frame(frames, [[row for row in rows if row[0] in each] for each in kept.values()]).drop(
            "deleteHorizonMs"
        ),
        Rules(since_ms=None, now_ms=NOW),
        {("t", number): Cleaned(0, 10, LOG_END) for number in kept},
    )
    found = [(each["kind"], each["partition"], each["offset"]) for each in verdict.examples]
    assert found == [("tombstone_lost", 2, 1)]
