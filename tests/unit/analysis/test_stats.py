"""Statistics of a partition with every kind of record, all values."""

from __future__ import annotations

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis import stats
from logstore.analysis.stats import partition_stats
from logstore.analysis.verdict import partition_verdict
from logstore.storage.log import NewRecord
from tests.support.world.cleaning import Producer

TP = TopicPartition("t", 0)
T = 1_700_000_000_000
DAY_MS = 86_400_000


def filled() -> Broker[VirtualClock]:
    broker = Broker(clock=VirtualClock(T))
    broker.create_topic("t")
    log = broker.log("t")
    one, two = Producer(log, 7), Producer(log, 9)
    headers = (("h", b"1"), ("h", b"2"), ("i", None))
    log.writer.append_records([NewRecord(b"a", b"1", T, headers), NewRecord(None, b"xy", T)])
    broker.alter_configs("t", {"cleanup.policy": "compact"})
    two.send((b"e", b"5"))
    two.abort()
    broker.roll("t")
    one.send((b"a", b"22"), (b"b", b"333"))
    one.commit()
    broker.clock.advance(ms=DAY_MS)
    log.writer.append_records([NewRecord(b"b", None, T + DAY_MS)])
    two.send((b"a", b"z"))
    two.send((b"c", b"z"))
    return broker


def key(name: str, records: int, size: int) -> dict:
    return {"key": name, "records": records, "bytes": size}


def segment(*values: int) -> dict:
    names = ("base_offset", "bytes", "batches", "records", "live_records", "dead_records")
    return dict(zip((*names, "record_bytes", "live_bytes"), values, strict=True))


def producer(producer_id: int, batches: int, records: int, size: int, record_bytes: int) -> dict:
    return {
        "producer_id": producer_id,
        "batches": batches,
        "records": records,
        "bytes": size,
        "record_bytes": record_bytes,
    }


TOP = [key("a", 3, 39), key("b", 2, 19), key("e", 1, 9)]
WHOLE = {
    "topic": "t",
    "partition": 0,
    "records": 10,
    "bytes": 607,
    "live_records": 2,
    "dead_records": 8,
    "tombstones": 1,
    "live_keys": 1,
    "top_keys": TOP,
    "top_keys_by_bytes": TOP,
    "distinct_keys": 4,
    "keyless_records": 1,
    "batches": 8,
    "record_bytes": 119,
    "live_bytes": 19,
    "dead": {
        "superseded": 2,
        "tombstone": 1,
        "aborted": 1,
        "open_transaction": 2,
        "unstable": 0,
        "control": 2,
        "below_log_start": 0,
    },
    "segments": [segment(0, 238, 3, 4, 1, 3, 55, 9), segment(4, 369, 5, 6, 1, 5, 64, 10)],
    "key_sizes": {
        "count": 7,
        "nulls": 1,
        "bytes": 7,
        "min": 1,
        "max": 1,
        "histogram": [{"from": 1, "to": 1, "count": 7}],
    },
    "value_sizes": {
        "count": 7,
        "nulls": 1,
        "bytes": 11,
        "min": 1,
        "max": 3,
        "histogram": [{"from": 1, "to": 1, "count": 4}, {"from": 2, "to": 3, "count": 3}],
    },
    "records_with_headers": 1,
    "headers": [{"name": "h", "records": 1}, {"name": "i", "records": 1}],
    "codecs": [{"codec": "none", "batches": 8, "records": 10, "bytes": 607, "record_bytes": 119}],
    "producers": [
        producer(9, 4, 4, 288, 44),
        producer(-1, 2, 3, 159, 37),
        producer(7, 2, 3, 160, 38),
    ],
    "days": [
        {"day": "2023-11-14", "records": 5, "record_bytes": 59},
        {"day": "2023-11-15", "records": 3, "record_bytes": 26},
    ],
    "first_timestamp": T,
    "last_timestamp": T + DAY_MS,
    "cleanup_policy": "compact",
    "damages": (),
    "assumed": (),
    "passes": 1,
}


def test_every_value_is_exact() -> None:
    with filled() as broker:
        result = partition_stats(broker, TP, top=3)
        assert result.to_json() == WHOLE | {"verdict": result.verdict.to_json()}
        assert result.verdict == partition_verdict(broker, TP, exact=True)
        assert [each["name"] for each in result.to_json()["headers"]] == ["h", "i"]
        assert [each["producer_id"] for each in result.to_json()["producers"]] == [9, -1, 7]
        top = partition_stats(broker, TP, top=1)
        assert [each.key for each in (*top.top_keys, *top.top_keys_by_bytes)] == [b"a", b"a"]


def test_more_keys_than_fit_at_a_time_are_read_in_passes() -> None:
    steps: list[tuple[int, int]] = []
    with filled() as broker:
        result = partition_stats(
            broker, TP, top=3, keys_max=1, progress=lambda *step: steps.append(step)
        )
    assert result.to_json() == WHOLE | {"passes": 4, "verdict": result.verdict.to_json()}
    assert steps == [(at, 607) for at in (0, 90, 160, 238, 320, 398, 467, 537)] * 4


def test_small_batches_are_counted_together_with_the_same_result(monkeypatch) -> None:
    with Broker(clock=VirtualClock(T)) as broker:
        broker.create_topic("t", configs={"segment.bytes": "1000"})
        for number in range(60):
            headers = [("h", b"%d" % number)] if number % 4 == 0 else []
            key = None if number % 7 == 0 else b"k%d" % (number % 11)
            value = None if number % 5 == 0 else b"v" * number
            broker.append("t", key=key, value=value, headers=headers)
        broker.delete_records({TP: 5})

        def result(keys_max: int) -> dict:
            return partition_stats(broker, TP, keys_max=keys_max).to_json()

        together = [result(keys_max) for keys_max in (2, 5, 100)]
        monkeypatch.setattr(stats, "GROUP_BYTES", 200)
        assert [result(keys_max) for keys_max in (2, 5, 100)] == together
        monkeypatch.setattr(stats, "GROUP_RECORDS", 0)
        assert [result(keys_max) for keys_max in (2, 5, 100)] == together


def test_records_below_the_log_start_are_dead_and_their_keys_unknown() -> None:
    with filled() as broker:
        broker.alter_configs("t", {"cleanup.policy": "delete"})
        broker.delete_records({TP: 3})
        result = partition_stats(broker, TP, top=3)
    assert result.dead["below_log_start"] == 3
    assert (result.records, result.live_records, result.dead_records) == (10, 1, 9)
    assert (result.keyless_records, result.distinct_keys, result.records_with_headers) == (0, 3, 0)
    assert result.dead["aborted"] == 0
    assert result.dead["control"] == 2
    assert result.headers == {}


def test_equal_ranks_are_ordered_by_offset() -> None:
    with Broker(clock=VirtualClock(T)) as broker:
        broker.create_topic("t")
        for name in (b"x", b"y", b"z", b"z", b"y", b"x"):
            broker.append("t", key=name, value=b"v")
        result = partition_stats(broker, TP, top=2)
    assert [(each.key, each.records) for each in result.top_keys] == [(b"z", 2), (b"y", 2)]


def test_days_beyond_the_calendar() -> None:
    assert stats._day(0) == "1970-01-01"
    assert stats._day(19_675) == "2023-11-14"
    assert stats._day(10**9) == "1000000000"
