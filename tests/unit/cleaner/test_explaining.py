"""Explanations of a decision: missing dirty bytes, tombstones, ways to close a segment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import Broker, VirtualClock
from logstore.cleaner.explaining import Tombstones, bytes_to_exceed
from logstore.reasons import Reason, text_of
from logstore.types import DAY_MS


@given(
    st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 0.999])
)
def test_so_many_bytes_and_not_one_less_exceed_a_ratio(dirty, clean, ratio):
    total = dirty + clean
    needed = bytes_to_exceed(dirty, total, ratio)

    def exceeds(more):
        return total + more > 0 and (dirty + more) / (total + more) > ratio

    assert exceeds(needed)
    assert needed == 0 or not exceeds(needed - 1)


def test_no_bytes_exceed_all():
    assert bytes_to_exceed(5, 10, 1.0) is None


def put(broker, *pairs):
    for key, value in pairs:
        broker.append("t", key=key, value=value)


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        yield broker


def explained(broker):
    [found] = broker.explain("t").partitions
    return found


def test_superseded_tombstones_are_not_counted(broker):
    """They are superseded in the active segment, which no pass reaches."""
    put(broker, (b"a", b"1"), (b"a", b"2"))
    broker.roll("t")
    put(broker, (b"a", None), (b"a", None), (b"a", b"3"))
    found = explained(broker)
    assert found.will_clean
    assert found.tombstones == Tombstones()
    assert found.tombstone_reasons == (Reason.of("tombstones.none"),)


def test_tombstones_are_counted_by_their_horizons(broker):
    put(broker, (b"a", None), (b"b", None))
    broker.clean("t", force=True, roll=True)
    now_ms = broker.clock.now_ms()
    broker.clock.advance(days=1)
    put(broker, (b"c", None), (b"c", None))
    found = explained(broker)
    assert found.tombstones == Tombstones(
        records=3,
        unstamped=1,
        expired=2,
        unreached=3,
        first_horizon_ms=now_ms + DAY_MS,
        last_horizon_ms=now_ms + DAY_MS,
    )
    assert found.tombstone_reasons == (
        Reason.of("tombstones.unstamped", records=1, delete_retention_ms=DAY_MS),
        Reason.of("tombstones.expired", records=2),
        Reason.of("pass.not_by_itself"),
        Reason.of("pass.forced"),
    )
    text = text_of(found.tombstone_reasons)
    assert "1 has no delete horizon yet" in text
    assert "2 are past the horizon" in text


def test_a_due_pass_that_ends_before_tombstones_is_not_said_to_reach_them(broker):
    put(broker, (b"a", b"1"), (b"a", b"2"), (b"b", None))
    broker.roll("t")
    assert explained(broker).tombstone_reasons[-1] == Reason.of("pass.due")
    put(broker, (b"c", None))
    found = explained(broker)
    assert (found.tombstones.records, found.tombstones.unreached) == (2, 1)
    due = Reason.of("pass.due")
    assert found.tombstone_reasons[1:] == (
        due,
        Reason.of("pass.ends_before", end_offset=3, records=1),
    )
    put(broker, (b"b", b"3"))
    found = explained(broker)
    assert found.tombstones.records == found.tombstones.unreached == 1
    assert found.tombstone_reasons[1:] == (
        due,
        Reason.of("pass.ends_before", end_offset=3, records=1),
    )


def test_only_committed_tombstones_are_counted(broker):
    put(broker, (b"a", b"1"))
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.send("t", None, key=b"a").get()
        assert explained(broker).tombstones.records == 0
        end()
        assert explained(broker).tombstones.records == (end == producer.commit_transaction)


def test_the_strategy_decides_which_tombstones_count():
    with Broker(clock=VirtualClock()) as broker:
        configs = {"cleanup.policy": "compact", "compaction.strategy": "timestamp"}
        broker.create_topic("t", configs=configs)
        for key, value, timestamp in ((b"a", b"1", 9), (b"a", None, 8), (b"b", None, 9)):
            broker.append("t", key=key, value=value, timestamp=timestamp)
        assert explained(broker).tombstones.records == 1
        told = broker.preview("t", set={"compaction.strategy": "offset"}).partitions[0]
        assert told.before.explanation.tombstones.records == 1
        assert told.after.explanation.tombstones.records == 2


@pytest.mark.parametrize(
    ("configs", "codes"),
    (
        ({"max.compaction.lag.ms": 1000}, ["tombstones.unstamped", "pass.due_later"]),
        ({}, ["tombstones.unstamped", "pass.not_by_itself", "pass.forced"]),
        ({"cleanup.policy": "delete"}, []),
    ),
)
def test_whether_anything_makes_their_pass_due(configs, codes):
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"} | configs)
        broker.append("t", key=b"k", value=None)
        [found] = broker.explain("t").partitions
        assert [reason.code for reason in found.tombstone_reasons] == codes


def test_an_open_transaction_is_named():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        producer = broker.producer(transactional_id="x")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", key=b"k", value=b"v").get()
        broker.roll("t")
        [found] = broker.explain("t").partitions
        assert found.reason == Reason.of("verdict.last_stable_offset")
        [remedy] = [each for each in found.remedies if each.gate == "last_stable_offset"]
        assert remedy.causes == (Reason.of("cause.open_transaction", producer_id=0, offset=0),)
        producer.abort_transaction()


def test_what_is_clean_has_nothing_to_clean():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        broker.append("t", key=b"k", value=b"v")
        broker.clean("t", force=True, roll=True)
        [found] = broker.explain("t").partitions
        assert found.reason == Reason.of("verdict.all_clean")


def test_overdue_data_that_is_too_young_to_be_cleaned_opens_no_gate():
    """A segment's first record exceeds the maximum lag; its last one is within the minimum lag."""
    with Broker(clock=VirtualClock()) as broker:
        lags = {"min.compaction.lag.ms": 30_000, "max.compaction.lag.ms": 60_000}
        broker.create_topic("t", configs={"cleanup.policy": "compact"} | lags)
        put(broker, (b"a", b"1"))
        broker.clock.advance(ms=59_000)
        put(broker, (b"a", b"2"))
        broker.roll("t")
        broker.clock.advance(ms=2_000)
        gates = {gate.gate: gate for gate in explained(broker).gates}
        assert not gates["min_compaction_lag"].open
        assert (gates["max_compaction_lag"].value, gates["max_compaction_lag"].open) == (
            1000,
            False,
        )
        broker.clock.advance(ms=30_000)
        gates = {gate.gate: gate for gate in explained(broker).gates}
        assert gates["min_compaction_lag"].open
        assert gates["max_compaction_lag"].open
