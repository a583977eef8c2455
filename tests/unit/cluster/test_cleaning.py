"""Cleaning on replicas: each on its own, and offsets never part."""

from __future__ import annotations

import pytest

from logstore import Cluster, VirtualClock
from logstore.cleaner.passes import clean
from logstore.record.batch import build_batch
from logstore.record.records import Record
from tests.unit.cluster.replicas import TP, create, ends, settle

NOW_MS = 1_704_067_200_000
DAY_MS = 86_400_000


@pytest.fixture
def cluster():
    with Cluster(brokers=3, clock=VirtualClock(), seed=1) as cluster:
        yield cluster


def records(cluster, broker):
    """Return offset and value of each record at a broker."""
    return [(record.offset, record.value) for record in cluster.brokers[broker].read(TP)]


def compact(cluster, broker):
    """Clean all that a broker has."""
    cluster.brokers[broker].clean(TP.topic, force=True, roll=True)


# -- KIP-280: three replicas, and the record at the log's end ------------------------------------


def clean_before_follower_2_has_d(cluster):
    """Records a, b and c are everywhere, d is not at broker 2, and the leader compacts.

    Of d's key another record has the later timestamp, so that d loses.
    """
    create(cluster, cleanup_policy="compact", compaction_strategy="timestamp")
    for key, value, age_ms in ((b"1", b"a", 0), (b"2", b"b", 0), (b"3", b"c", 0)):
        cluster.append(TP, key=key, value=value, timestamp=NOW_MS - age_ms)
    settle(cluster)
    cluster.disconnect({2}, {0, 1})
    cluster.append(TP, key=b"1", value=b"d", timestamp=NOW_MS - 1000, acks=1)
    cluster.clock.advance(
        ms=31_000
    )  # broker 2 is out of sync: the records that it lacks are committed
    assert cluster.state(TP).isr == (0, 1)
    compact(cluster, 0)
    cluster.heal()
    settle(cluster)


def test_the_record_at_the_logs_end_stays_for_followers_that_lag(cluster):
    """KIP-280: or broker 2 would lead without it, and give its offset to another record."""
    clean_before_follower_2_has_d(cluster)
    assert records(cluster, 0) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    assert records(cluster, 2) == records(cluster, 0)
    assert cluster.state(TP).isr == (0, 1, 2)
    cluster.move_leader(TP, to=2)
    assert cluster.append(TP, key=b"4", value=b"e").offset == 4
    settle(cluster)
    for broker in range(3):
        compact(cluster, broker)
        # Now d is not the last record and is superseded; only this broker has e.
        assert records(cluster, broker) == [(0, b"a"), (1, b"b"), (2, b"c"), (4, b"e")]
    assert ends(cluster) == {0: 5, 1: 5, 2: 5}


def test_without_that_record_replicas_of_one_log_differ(cluster, monkeypatch):
    """The planted fault, by which the test above fails: the empty batch keeps the offset alone."""
    rules = clean.Rules
    monkeypatch.setattr(
        clean, "Rules", lambda strategy, *, keep_offset, safe_ms: rules(strategy, safe_ms=safe_ms)
    )
    clean_before_follower_2_has_d(cluster)
    assert (3, b"d") not in records(cluster, 2)
    assert (3, b"d") in records(cluster, 1)
    assert ends(cluster)[2] == 4


# -- each on its own -----------------------------------------------------------------------------


def test_replicas_cleaned_at_different_times_converge(cluster):
    create(cluster, cleanup_policy="compact")
    for number in range(12):
        cluster.append(TP, key=b"%d" % (number % 3), value=b"%d" % number)
        if number % 4 == 3:
            settle(cluster)
            compact(cluster, number // 4)
    settle(cluster)
    assert len({tuple(records(cluster, broker)) for broker in range(3)}) > 1
    assert {tuple(cluster.brokers[b].table(TP.topic).items()) for b in range(3)} == {
        ((b"0", b"9"), (b"1", b"10"), (b"2", b"11"))
    }
    for broker in range(3):
        compact(cluster, broker)
    assert len({tuple(records(cluster, broker)) for broker in range(3)}) == 1


def test_nothing_above_the_high_watermark_is_cleaned(cluster):
    """It may be cut off again: then the older value counts."""
    create(cluster, cleanup_policy="compact")
    cluster.append(TP, key=b"1", value=b"old")
    settle(cluster)
    cluster.disconnect({0}, {1, 2})
    cluster.append(TP, key=b"1", value=b"new", acks=1)
    compact(cluster, 0)
    cluster.move_leader(TP, to=1)
    cluster.append(TP, key=b"2", value=b"other", acks=1)
    cluster.heal()
    settle(cluster)
    assert [cluster.brokers[b].table(TP.topic)[b"1"] for b in range(3)] == [b"old"] * 3


@pytest.mark.parametrize("ending", ("kill", "stop"))
def test_a_marker_above_the_high_watermark_decides_nothing(cluster, ending):
    """Not after a restart either: it may be cut off again, and the transaction be committed."""
    create(cluster, cleanup_policy="compact")
    writer = cluster.brokers[0].log(TP).writer
    batch = build_batch(
        [Record(0, NOW_MS, b"1", b"a", ())],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    writer.append_batches(batch)
    settle(cluster)
    cluster.brokers[0].roll(TP)
    cluster.disconnect({0}, {1, 2})
    writer.append_end_txn_marker(7, 0, 0, commit=False)
    cluster.clock.advance(ms=6_000)
    getattr(cluster, ending)(0)
    cluster.restart(0)
    log = cluster.brokers[0].log(TP)
    assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (1, 0, 2)
    compact(cluster, 0)
    cluster.brokers[1].log(TP).writer.append_end_txn_marker(7, 0, 0, commit=True)
    cluster.heal()
    settle(cluster)
    assert [broker.table(TP.topic) for broker in cluster.brokers.values()] == [{b"1": b"a"}] * 3


# -- away for longer than delete.retention.ms ----------------------------------------------------


def delete_key_while_broker_2_is_away(cluster, away_ms):
    create(cluster, cleanup_policy="compact", delete_retention_ms=DAY_MS)
    cluster.append(TP, key=b"ann", value=b"x")
    cluster.append(TP, key=b"bob", value=b"y")
    settle(cluster)
    cluster.kill(2)
    cluster.append(TP, key=b"ann", value=None)
    cluster.append(TP, key=b"bob", value=b"z")
    compact(cluster, 0)  # the tombstone gets its horizon
    cluster.clock.advance(ms=away_ms)
    compact(cluster, 0)
    cluster.restart(2)
    settle(cluster)
    assert cluster.state(TP).isr == (0, 1, 2)
    compact(cluster, 2)


def test_a_follower_that_returns_in_time_learns_of_deletions(cluster):
    delete_key_while_broker_2_is_away(cluster, DAY_MS - 1)
    assert cluster.brokers[2].table(TP.topic) == {b"bob": b"z"}


def test_a_follower_that_was_away_too_long_still_has_what_was_deleted(cluster):
    """As in Kafka: the tombstone was removed, and the follower never reads it, though in sync.

    The key is back when it leads, until it is written or deleted again.
    """
    delete_key_while_broker_2_is_away(cluster, DAY_MS + 1)
    assert cluster.brokers[0].table(TP.topic) == {b"bob": b"z"}
    assert cluster.brokers[2].table(TP.topic) == {b"ann": b"x", b"bob": b"z"}
    cluster.move_leader(TP, to=2)
    cluster.append(TP, key=b"ann", value=None)
    settle(cluster)
    compact(cluster, 2)
    assert cluster.brokers[2].table(TP.topic) == {b"bob": b"z"}
