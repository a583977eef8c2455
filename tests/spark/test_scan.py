"""The oracle's scans omit superseded records only, and detect offsets out of order."""

import numpy as np
import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from logstore import Broker
from logstore.spark.oracle import scan
from logstore.spark.oracle.verify import Cleaned, Rules, verify
from tests.support.world.frames import frame_of

COLUMNS = "topic,partition,offset,key,timestamp,timestampType,aborted"


@pytest.fixture
def here(monkeypatch):
    """Run the scans in this process; what `spark` there is does not matter."""

    def collect(_, tasks, read, schema):
        batches = [batch for task in tasks for batch in read(task)]
        return pa.Table.from_batches(batches).to_pylist(), schema.names

    monkeypatch.setattr(scan, "_scan", collect)


@pytest.fixture
def many(tmp_path):
    """Return a directory with many records a key, and some of none, over segments."""
    draws = np.random.default_rng(7)
    with Broker(tmp_path / "d") as broker:
        broker.create_topic("t", 2)
        for number in range(400):
            key = None if number % 31 == 0 else b"%d" % draws.integers(0, 20)
            partition = int(draws.integers(0, 2))
            broker.append_many("t", [(key, b"v", 1000 - number)], partition=partition)
            if number % 90 == 89:
                broker.roll("t")
    return str(tmp_path / "d")


@pytest.mark.parametrize("rows_max", (1, 1 << 20))
def test_only_what_a_later_record_of_the_key_beats_is_left_out(here, monkeypatch, many, rows_max):
    monkeypatch.setattr(scan, "STRETCH_ROWS", rows_max)
    monkeypatch.setattr("logstore.spark.datasource.source.ARROW_ROWS", 5)
    options = {"columns": COLUMNS}
    all_rows, _ = scan.scan(None, [many], options)
    ranges = {("t", 0): (20, 150), ("t", 1): (0, 0)}
    rows, names = scan.scan_folded(None, [many], options, ranges)
    assert names == [*COLUMNS.split(","), "superseded", "supersededNewest"]
    found = {(row["partition"], row["offset"]): row for row in rows}
    assert len(found) == len(rows)
    missing = [row for row in all_rows if (row["partition"], row["offset"]) not in found]
    assert sum(row["superseded"] for row in rows) == len(missing)
    assert missing
    for row in missing:
        assert row["partition"] == 0
        assert 20 <= row["offset"] < 150
        assert row["key"] is not None
        by = [
            each
            for each in rows
            if each["partition"] == 0 and each["key"] == row["key"] and each["superseded"]
            and row["offset"] < each["offset"] < 150
        ]  # fmt: skip
        # Times fall, so that the first that was left out has the newest.
        assert any(
            each["supersededNewest"] >= row["timestamp"].timestamp() * 1_000_000 for each in by
        )
    for row in rows:
        assert (row["supersededNewest"] is None) == (row["superseded"] == 0)
    if rows_max > 400:
        kept = [r for r in rows if r["partition"] == 0 and 20 <= r["offset"] < 150 and r["key"]]
        assert len(kept) == len({row["key"] for row in kept})


@pytest.mark.parametrize(("limit", "batches"), (("STRETCH_ROWS", 3), ("STRETCH_BYTES", 4)))
def test_a_stretch_ends_at_so_many_rows_or_bytes(here, monkeypatch, many, limit, batches):
    monkeypatch.setattr("logstore.spark.datasource.source.ARROW_ROWS", 5)
    options = {"columns": COLUMNS, "partitions": "0", "topic": "t"}
    stretches = []
    real = scan._folded

    def folded(stretch, *rest):
        stretches.append([(each.num_rows, each.nbytes) for each in stretch])
        return real(stretch, *rest)

    monkeypatch.setattr(scan, "_folded", folded)
    scan.scan_folded(None, [many], options, {})
    (whole,) = stretches
    assert [rows for rows, _ in whole[:-1]] == [5] * (len(whole) - 1)
    stretches.clear()
    size = max(size for _, size in whole)
    monkeypatch.setattr(scan, limit, {"STRETCH_ROWS": 12, "STRETCH_BYTES": 3 * size + 1}[limit])
    scan.scan_folded(None, [many], options, {})
    assert stretches == [whole[at : at + batches] for at in range(0, len(whole), batches)]
    monkeypatch.setattr(scan, limit, {"STRETCH_ROWS": 10, "STRETCH_BYTES": 1}[limit])
    stretches.clear()
    scan.scan_folded(None, [many], options, {})
    assert {len(stretch) for stretch in stretches[:-1]} == {2 if limit == "STRETCH_ROWS" else 1}


def test_records_that_are_aborted_or_undecided_neither_beat_nor_are_beaten():
    fields = {
        "offset": [0, 1, 2, 3, 4],
        "timestamp": pa.array([50, 40, 30, 20, 10], pa.timestamp("us", "UTC")),
        "key": [b"k"] * 5,
        "aborted": [False, True, False, None, True],
    }
    batch = pa.RecordBatch.from_pydict(fields)
    schema = batch.schema.append(pa.field("superseded", pa.int64()))
    schema = schema.append(pa.field("supersededNewest", pa.int64()))
    (folded,) = scan._folded([batch], 0, 5, schema)
    assert folded["offset"].to_pylist() == [1, 2, 3, 4]
    assert folded["superseded"].to_pylist() == [0, 1, 0, 0]
    assert folded["supersededNewest"].to_pylist() == [None, 50, None, None]


def test_records_at_unexpected_positions_are_displaced(here, many, tmp_path):
    options = {"columns": COLUMNS, "order": "stored", "splitBytes": "1"}
    rows, _ = scan.scan_in_order(None, [many], options)
    assert len(rows) == 400
    assert not any(row["displaced"] for row in rows)
    logs = sorted((tmp_path / "d" / "t-0").glob("*.log"))
    first = logs[0].read_bytes()
    cut = int.from_bytes(first[8:12], "big") + 12
    logs[0].write_bytes(first[cut:] + first[:cut])
    rows, _ = scan.scan_in_order(None, [many], options)
    assert [row["offset"] for row in rows if row["displaced"]] == [0]


def test_a_record_that_was_left_out_speaks_of_its_age_and_counts(frames):
    now_ms = 1_700_000_000_000
    ages_ms = (1_000, 999)
    schema = (
        "key binary, valueDigest bigint, headersDigest bigint, topic string, partition int, "
        "offset bigint, ms bigint, timestampType int, aborted boolean"
    )

    def row(partition, offset, ms):
        return (b"k", 5, 6, "t", partition, offset, ms, 0, False)

    def frame(rows, schema=schema):
        made = frame_of(frames, rows, schema)
        return made.selectExpr("*", "timestamp_millis(ms) AS timestamp").drop("ms")

    losers = [row(partition, 0, now_ms - age_ms) for partition, age_ms in enumerate(ages_ms)]
    winners = [row(partition, 1, now_ms - 100_000) for partition in range(2)]
    before, after = frame(losers + winners), frame(winners)
    beaten = [
        (*winner, 1, (now_ms - age_ms) * 1000)
        for winner, age_ms in zip(winners, ages_ms, strict=True)
    ]
    folded = frame(beaten, f"{schema}, superseded bigint, supersededNewest bigint")
    rules = Rules(since_ms=now_ms, now_ms=now_ms, min_compaction_lag_ms=1_000)
    numbers = {("t", partition): Cleaned(0, 2, 2) for partition in range(2)}
    verdict = verify(before, after, rules, numbers, folded=folded)
    assert verdict.violations == {"min_lag_broken": 1}
    assert [each["partition"] for each in verdict.examples] == [1]
    assert (verdict.records_before, verdict.records_after) == (4, 2)
