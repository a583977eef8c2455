"""The oracle's verdicts on new delete horizons, and on records below the log start."""

import numpy as np
import pytest
import xxhash

pytest.importorskip("pyspark")

from logstore import Broker, VirtualClock
from logstore.spark.datasource.kernels import digest_strings
from logstore.spark.oracle.verify import Cleaned, Rules, StartState, verify
from tests.support.world.frames import frame_of

NOW = 1_700_000_000_000
SINCE = NOW - 1_000
RETENTION = 50_000
GIVEN = SINCE + RETENTION
SCHEMA = (
    "topic string, partition int, offset bigint, key binary, value binary, ms bigint,"
    " timestampType int, headers array<struct<key:string,value:binary>>, deleteHorizonMs bigint"
)
FRESH, HALF, CLEAN, NEVER = (
    (Cleaned(0, 10, 20), StartState(0, 0)),
    (Cleaned(0, 10, 20), StartState(0, 5)),
    (Cleaned(0, 10, 20), StartState(0, 10)),
    (Cleaned(0, 0, 20), StartState(0, 0)),
)

CASES = {
    # offset of a tombstone, its horizon before and after, the cleaned range, whether that is wrong
    "first cleaning": (3, None, GIVEN, FRESH, False),
    "last cleaning": (3, None, NOW + RETENTION, FRESH, False),
    "too early": (3, None, GIVEN - 1, FRESH, True),
    "too late": (3, None, NOW + RETENTION + 1, FRESH, True),
    "none given": (3, None, None, FRESH, True),
    "none set in the clean section": (3, None, None, HALF, True),
    "perhaps not rewritten": (3, None, None, CLEAN, False),
    "rewritten once more": (3, None, GIVEN, CLEAN, False),
    "kept": (3, NOW + 7, NOW + 7, FRESH, False),
    "another": (3, NOW + 7, GIVEN, FRESH, True),
    "lost": (3, NOW + 7, None, CLEAN, True),
    "tail that was not rewritten": (13, None, None, FRESH, False),
    "tail of the segment that was": (13, None, GIVEN, FRESH, False),
    "tail, too early": (13, None, SINCE, FRESH, True),
    "tail, another": (13, NOW + 7, GIVEN, FRESH, True),
    "nothing was cleaned": (3, None, GIVEN, NEVER, True),
}


def frame(spark, rows):
    made = frame_of(spark, rows, SCHEMA).coalesce(1)
    return made.selectExpr("*", "timestamp_millis(ms) AS timestamp").drop("ms")


def row(partition, offset, horizon, value=None, ms=NOW - 10_000_000):
    return ("t", partition, offset, b"k%d" % offset, value, ms, 0, [], horizon)


@pytest.mark.parametrize("lost", (False, True), ids=("intact", "with-a-lost-record"))
def test_a_horizon_is_the_old_one_or_one_that_a_cleaning_gives(frames, lost):
    """A lost record makes a partition doubtful, so that each of its records is compared."""
    cases = dict(enumerate(CASES.values()))
    # A record with a value bears its batch's horizon, and needs none.
    before = [row(n, 1, None, b"v") for n in cases]
    given = {n: GIVEN if n % 2 and each[3] is FRESH else None for n, each in cases.items()}
    after = [row(n, 1, given[n], b"v") for n in cases]
    before += [row(n, offset, old) for n, (offset, old, *_) in cases.items()]
    after += [row(n, offset, new) for n, (offset, _, new, *_) in cases.items()]
    if lost:
        before += [row(n, 2, None, b"v") for n in cases]
    verdict = verify(
        frame(frames, before),
        frame(frames, after),
        Rules(since_ms=SINCE, now_ms=NOW, delete_retention_ms=RETENTION),
        {("t", n): each[3][0] for n, each in cases.items()},
        begun={("t", n): each[3][1] for n, each in cases.items()},
        examples=100,
    )
    names = list(CASES)
    wrong = [each for each in verdict.examples if each["kind"] == "horizon_wrong"]
    assert [names[each["partition"]] for each in wrong] == [
        name for name, case in CASES.items() if case[4]
    ]
    violations = {"horizon_wrong": len(wrong)}
    if lost:
        uncleaned = sum(case[3] is NEVER for case in CASES.values())
        violations |= {"survivor_lost": len(CASES) - uncleaned, "tail_lost": uncleaned}
    assert verdict.violations == violations


def test_a_tombstone_that_became_a_record_is_not_missing_a_horizon(frames):
    values = ((None, b"v"), (b"v", None), (None, None))
    before, after = (
        [row(0, at, None, each[side], NOW) for at, each in enumerate(values)] for side in (0, 1)
    )
    verdict = verify(
        *(frame(frames, before), frame(frames, after)),
        *(Rules(since_ms=NOW, now_ms=NOW), {("t", 0): Cleaned(0, 10, 20)}),
    )
    assert [(each["kind"], each["offset"]) for each in verdict.examples] == [
        ("value_altered", 0),
        ("value_altered", 1),
        ("horizon_wrong", 2),
    ]


@pytest.mark.parametrize("examples", (1, 2))
def test_records_deleted_by_retention_are_counted_and_must_have_expired(frames, examples):
    ages = (RETENTION + 1, RETENTION, RETENTION - 1, 0)
    rows = [row(n, at, None, b"v", NOW - age) for n in (0, 1) for at, age in enumerate(ages)]
    kept = [each for each in rows if each[2] == 3]
    begun = {("t", n): StartState(0, 0) for n in (0, 1)}
    verdict = verify(
        frame(frames, rows[::-1]), frame(frames, kept), Rules(since_ms=NOW, now_ms=NOW),
        {("t", 0): Cleaned(3, 0, 4, RETENTION), ("t", 1): Cleaned(3, 0, 4)}, begun=begun,
        examples=examples,
    )  # fmt: skip
    assert (verdict.records_before, verdict.records_after, verdict.gone_from_front) == (2, 2, 6)
    assert verdict.violations == {"retention_early": 2}
    assert [(e["partition"], e["offset"]) for e in verdict.examples] == [
        *((0, 1), (0, 2))[:examples]
    ]


@pytest.mark.slow
def test_the_sources_digest_is_sparks(spark, tmp_path):
    values = [b"", None, *(b"abc" * n for n in range(1, 40))]
    with Broker(tmp_path, clock=VirtualClock(NOW)) as broker:
        broker.create_topic("t")
        broker.append_many("t", [(b"k", value) for value in values])
    rows = spark.read.format("logstore").option("columns", "value,valueDigest").load(str(tmp_path))
    assert rows.where("NOT valueDigest <=> IF(value IS NULL, NULL, xxhash64(value))").count() == 0
    assert rows.where("valueDigest IS NULL").count() == 1


def test_digest_strings_is_xxh64():
    data = np.random.default_rng(1).integers(0, 256, 5_000, np.uint8)
    sizes = np.array([*range(130), -1, 1_000])
    starts = np.arange(len(sizes)) * 7
    found = np.empty(len(sizes), np.int64)
    digest_strings(data, starts, sizes, found)
    expected = [
        xxhash.xxh64_intdigest(data[start : start + max(size, 0)].tobytes(), 42)
        for start, size in zip(starts, sizes, strict=True)
    ]
    assert [int(each) & (1 << 64) - 1 for each in found] == expected
