"""Explanations of a decision: missing dirty bytes, tombstones, ways to close a segment."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import Broker, VirtualClock
from logstore.cleaner.explaining import (
    ActiveSegment,
    RollCondition,
    Tombstones,
    bytes_to_exceed,
    remedies,
)
from logstore.cleaner.selection import Gate
from logstore.reasons import Reason, text_of
from logstore.types import DAY_MS, INT64_MAX, TopicPartition


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
    assert "2 are past the delete horizon" in text


def test_a_due_pass_that_ends_before_tombstones_does_not_report_them(broker):
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


def test_a_clean_log_has_nothing_to_clean():
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


def decided(gates=(), *, will_clean=False, opens_at_ms=None, opens_below_offset=None):
    """Return the parts of a decision about a log that are explained."""
    return SimpleNamespace(
        gates=gates,
        binding=next((gate for gate in gates if not gate.open), None),
        will_clean=will_clean,
        opens_at_ms=opens_at_ms,
        opens_below_offset=opens_below_offset,
        state=SimpleNamespace(
            first_dirty_offset=7,
            upper_bound_offset=6,
            cleanable_bytes=10,
            total_bytes=100,
            cleanable_ratio=0.1,
        ),
    )


DUE = (Reason.of("pass.due"), Reason.of("pass.ends_before", end_offset=6, records=2))
LATER = (
    Reason.of("pass.due_later", at_ms=900),
    Reason.of("pass.ends_before", end_offset=7, records=1),
)
BY_FORCE = (Reason.of("pass.not_by_itself"), Reason.of("pass.forced"))


@pytest.mark.parametrize(
    ("decision", "unreached", "pass_reasons"),
    (
        (decided(will_clean=True, opens_at_ms=900, opens_below_offset=7), 2, DUE),
        (decided(opens_at_ms=900, opens_below_offset=7), 1, LATER),
        (decided(opens_below_offset=8), 0, (Reason.of("pass.due"),)),
        (decided([Gate.closed_by("paused", "")]), 4, BY_FORCE),
        (decided([Gate.closed_by("policy", "")]), 4, (Reason.of("pass.never"),)),
        (decided([Gate.closed_by("cleaner_disabled", "")]), 4, (Reason.of("pass.never"),)),
        (decided([Gate.closed_by("uncleanable", "")]), 4, (Reason.of("pass.never"),)),
    ),
)
def test_tombstones_are_counted_by_what_they_wait_for(decision, unreached, pass_reasons):
    tombstones = [(0, None), (5, 200), (6, 100), (7, 201)]
    found = Tombstones.of(tombstones, 200, decision)
    assert found == Tombstones(4, 1, 2, unreached, 100, 201)
    assert found.reasons(decision, 50) == (
        Reason.of("tombstones.unstamped", records=1, delete_retention_ms=50),
        Reason.of("tombstones.waiting", records=1, horizon_at_ms=201),
        Reason.of("tombstones.expired", records=2),
        *pass_reasons,
    )


def test_only_what_tombstones_wait_for_is_named():
    decision = decided(opens_below_offset=9)
    due = Reason.of("pass.due")
    for horizon_ms, reason in (
        (None, Reason.of("tombstones.unstamped", records=1, delete_retention_ms=50)),
        (201, Reason.of("tombstones.waiting", records=1, horizon_at_ms=201)),
        (200, Reason.of("tombstones.expired", records=1)),
    ):
        found = Tombstones.of([(0, horizon_ms)], 200, decision)
        assert found.reasons(decision, 50) == (reason, due)


MESSAGE = {"message": "so"}
LOWER_MAX_LAG, SET_MAX_LAG = Reason.of("cure.lower_max_lag"), Reason.of("cure.set_max_lag")
DIRTIER = (Reason.of("cure.append_bytes", more_bytes=81), Reason.of("cure.lower_ratio", ratio=0.1))
REMEDIES = {
    "empty": (
        [Reason.of("cause.no_records")],
        [Reason.of("cure.append")],
    ),
    "policy": (
        [Reason("gate.policy", MESSAGE), Reason.of("cause.by_age_and_size")],
        [Reason.of("cure.suppose_policy"), Reason.of("cure.set_policy", topic="t")],
    ),
    "cleaner_disabled": (
        [Reason("gate.cleaner_disabled", MESSAGE)],
        [Reason.of("cure.enable_cleaner"), Reason.of("cure.force")],
    ),
    "uncleanable": (
        [Reason("gate.uncleanable", MESSAGE), Reason.of("cause.left_alone")],
        [Reason.of("cure.salvage"), Reason.of("cure.fetch_again")],
    ),
    "paused": ([Reason("gate.paused", MESSAGE)], [Reason.of("cure.wait_for_other")]),
    "last_stable_offset": (
        [Reason.of("cause.unknown_transaction", offset=5)],
        [Reason.of("cure.end_transaction")],
    ),
    "min_compaction_lag": (
        [Reason("gate.min_compaction_lag", MESSAGE)],
        [Reason.of("cure.lower_min_lag"), Reason.of("cure.force")],
    ),
    "dirty_ratio": (
        [Reason("gate.dirty_ratio", MESSAGE)],
        [*DIRTIER, LOWER_MAX_LAG, Reason.of("cure.force")],
    ),
    "max_compaction_lag": ([Reason("gate.max_compaction_lag", MESSAGE)], [LOWER_MAX_LAG]),
}


def described(max_lag_ms=1000):
    """Return the parts of a log that are explained."""
    return SimpleNamespace(
        topic_partition=TopicPartition("t", 0),
        last_stable_offset=5,
        producer_state=SimpleNamespace(ongoing_producer=lambda: None),
        config=SimpleNamespace(max_compaction_lag_ms=max_lag_ms, min_cleanable_dirty_ratio=0.5),
    )


@pytest.mark.parametrize("gate", REMEDIES)
def test_causes_and_cures_of_each_gate(gate):
    causes, cures = REMEDIES[gate]
    active = ActiveSegment(9, 0, None, ())
    [found] = remedies(described(), decided([Gate.closed_by(gate, "so")]), active)
    assert found == (gate, tuple(causes), tuple(cures))
    if gate in ("min_compaction_lag", "dirty_ratio", "max_compaction_lag"):
        closed = Gate.closed_by(gate, "so")._replace(opens_at_ms=0)
        [found] = remedies(described(), decided([closed]), active)
        assert found.cures == (Reason.of("cure.wait", at_ms=0), *cures)
        [found] = remedies(described(INT64_MAX), decided([closed]), active)
        expected = [SET_MAX_LAG if cure == LOWER_MAX_LAG else cure for cure in cures]
        assert list(found.cures[1:]) == expected


def test_one_of_the_dirty_ratio_and_the_maximum_lag_is_enough():
    closed = [Gate.closed_by(name, "") for name in ("dirty_ratio", "paused", "max_compaction_lag")]
    active = ActiveSegment(9, 0, None, ())

    def gates(*opened):
        all_gates = [gate._replace(open=gate.gate in opened) for gate in closed]
        return [each.gate for each in remedies(described(), decided(all_gates), active)]

    assert gates() == ["dirty_ratio", "paused", "max_compaction_lag"]
    assert gates("paused") == ["dirty_ratio", "max_compaction_lag"]
    assert gates("dirty_ratio") == ["paused"]
    assert gates("max_compaction_lag") == ["paused"]


def test_an_active_segment_lists_the_conditions_that_close_it(broker):
    put(broker, (b"a", b"1"))
    now_ms = broker.clock.now_ms()
    broker.alter_configs("t", {"max.compaction.lag.ms": 30 * DAY_MS})
    closings = explained(broker).active_segment.closings
    [remedy] = [each for each in explained(broker).remedies if each.gate == "active_segment"]
    active = explained(broker).active_segment
    size = active.size_bytes
    limit = 1 << 30
    assert closings == (
        RollCondition(
            *("segment.bytes", None, True),
            Reason.of("closing.bytes", left_bytes=limit - size, limit_bytes=limit),
        ),
        RollCondition(
            *("segment.ms", now_ms + 7 * DAY_MS + 1, True),
            Reason.of(
                "closing.time",
                at_ms=now_ms + 7 * DAY_MS + 1,
                setting="segment.ms",
                limit_ms=7 * DAY_MS,
            ),
        ),
        RollCondition(
            *("max.compaction.lag.ms", now_ms + 30 * DAY_MS + 1, False),
            Reason.of("closing.idle", lag_ms=30 * DAY_MS, at_ms=now_ms + 30 * DAY_MS + 1),
        ),
    )
    assert remedy.causes == (
        Reason.of("cause.in_active_segment", dirty_offset=0, base_offset=0, size_bytes=size),
    )
    assert remedy.cures == (*(each.reason for each in closings), Reason.of("cure.roll"))
    broker.clean("t", force=True, roll=True)
    [remedy] = [each for each in explained(broker).remedies if each.gate == "active_segment"]
    assert remedy.causes == (Reason.of("cause.all_clean"),)
    assert remedy.cures == (Reason.of("cure.append"),)
