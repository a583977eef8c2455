"""The dirty section of a log, whether it is due, and which gate is closed."""

from __future__ import annotations

import pytest

from logstore.cleaner.selection import (
    CleanableState,
    CleaningConditions,
    CleaningDecision,
    Gate,
    cleanable_state,
    decide,
    next_change_ms,
    selection_order,
)
from logstore.reasons import Reason
from logstore.storage.log import Log
from logstore.types import TopicPartition
from tests.support.world.builders import World, batch, data_batch, memory_world
from tests.support.world.cleaning import compacted, put, put_batches

HOUR_MS = 3_600_000


def log_of(world: World, *sizes: int, **config: object) -> Log:
    """Return a log of closed segments with given numbers of records, and an empty active one."""
    log = compacted(world, **config)
    for size in sizes:
        for _ in range(size):
            put(log, (b"k", b"v"))
        log.writer.roll()
    return log


def state(log: Log, checkpoint: int | None = None, **options: bool) -> CleanableState:
    return cleanable_state(log, checkpoint, log.runtime.clock.now_ms(), **options)


def decision(log: Log, checkpoint: int | None = None, **options: object) -> CleaningDecision:
    return decide(log, checkpoint, log.runtime.clock.now_ms(), CleaningConditions(**options))


def reason(log: Log, checkpoint: int | None = None, **options: object) -> str | None:
    binding = decision(log, checkpoint, **options).binding
    return None if binding is None else binding.gate


# --- first dirty offset -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("checkpoint", "first_dirty", "repaired"),
    ((None, 0, False), (0, 0, False), (4, 4, False), (6, 6, False), (7, 0, True), (-1, 0, True)),
)
def test_s204_a_checkpoint_outside_the_log_is_repaired(
    checkpoint: int | None, first_dirty: int, repaired: bool
) -> None:
    found = state(log_of(memory_world(), 3, 3), checkpoint)
    assert (found.first_dirty_offset, found.checkpoint_repaired) == (first_dirty, repaired)


def test_s204_a_checkpoint_below_the_log_start_is_repaired() -> None:
    world = memory_world()
    log_of(world, 3, 3).close()
    log = compacted(world, log_start_offset=2)
    assert state(log).first_dirty_offset == 2
    assert not state(log).checkpoint_repaired
    found = state(log, 1)
    assert (found.first_dirty_offset, found.checkpoint_repaired) == (2, True)


# --- first uncleanable offset, upper bound ----------------------------------------------------


def test_s206_only_an_active_segment_is_not_cleaned() -> None:
    log = compacted(memory_world())
    put(log, (b"a", b"1"), (b"b", b"1"))
    for checkpoint in (None, 1, 2):
        found = state(log, checkpoint)
        assert found.upper_bound_offset == 0
        assert found.cleanable_bytes == 0
        assert reason(log, checkpoint) == "active_segment"
        assert reason(log, checkpoint, force=True) == "active_segment"


def test_s207_the_high_watermark_limits_exactly_and_rounds_to_a_segment() -> None:
    log = log_of(memory_world(), *[10] * 7)
    put(log, (b"k", b"v"))
    assert state(log).first_uncleanable_offset == 70
    assert state(log).upper_bound_offset == 70
    log.offsets.set_high_watermark(50)
    assert state(log).first_uncleanable_offset == 50
    assert state(log).upper_bound_offset == 50
    log.offsets.set_high_watermark(55)
    found = state(log)
    assert (found.first_uncleanable_offset, found.upper_bound_offset) == (55, 50)
    assert found.uncleanable_gate == "last_stable_offset"
    assert found.cleanable_bytes == sum(s.size_bytes for s in log.segments.view[:5])


def test_an_open_transaction_limits_the_clean_section() -> None:
    log = compacted(memory_world())
    put(log, (b"k", b"v"))
    log.writer.roll()
    put_batches(log, data_batch(1, 2, 7), batch(3))
    log.writer.roll()
    found = state(log)
    assert (found.first_uncleanable_offset, found.upper_bound_offset) == (1, 1)
    assert found.uncleanable_gate == "last_stable_offset"
    assert reason(log) is None
    assert reason(log, 1) == "last_stable_offset"
    assert reason(log, 1, force=True) is None, "the clean section is rewritten"


def test_min_compaction_lag_keeps_young_segments() -> None:
    world = memory_world()
    log = compacted(world, min_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=0.0)
    for _ in range(3):
        put(log, (b"k", b"v"))
        world.clock.advance(minutes=30)
        log.writer.roll()
    found = state(log)
    assert (found.first_uncleanable_offset, found.uncleanable_gate) == (2, "min_compaction_lag")
    world.clock.advance(ms=HOUR_MS / 2 - 1)
    assert state(log).first_uncleanable_offset == 2
    world.clock.advance(ms=1)
    found = state(log)
    assert (found.first_uncleanable_offset, found.uncleanable_gate) == (3, "active_segment")


def test_min_compaction_lag_of_exactly_the_age_lets_go() -> None:
    world = memory_world()
    log = compacted(world, min_compaction_lag_ms=HOUR_MS)
    put(log, (b"k", b"v"))
    log.writer.roll()
    world.clock.advance(ms=HOUR_MS - 1)
    assert state(log).first_uncleanable_offset == 0
    assert reason(log) == "min_compaction_lag"
    assert state(log, ignore_lag=True).first_uncleanable_offset == 1
    assert reason(log, force=True) is None
    world.clock.advance(ms=1)
    assert state(log).first_uncleanable_offset == 1
    assert reason(log) is None


def test_the_upper_bound_may_be_below_the_first_dirty_offset() -> None:
    log = log_of(memory_world(), 4, 4)
    log.offsets.set_high_watermark(5)
    found = state(log, 6)
    assert (found.first_uncleanable_offset, found.upper_bound_offset) == (6, 4)
    assert found.cleanable_bytes == 0
    assert reason(log, 6) == "last_stable_offset"
    assert reason(log, 6, force=True) is None, "the clean section may be rewritten"


def test_s213_a_checkpoint_above_the_active_base_cleans_nothing() -> None:
    log = log_of(memory_world(), 2)
    put(log, (b"k", b"v"))
    put(log, (b"k", b"v"))
    found = state(log, 3)
    assert (found.first_dirty_offset, found.checkpoint_repaired) == (3, False)
    assert (found.upper_bound_offset, found.cleanable_bytes) == (2, 0)
    assert found.clean_bytes == log.size_bytes
    assert reason(log, 3) == "active_segment"


# --- sizes and ratio --------------------------------------------------------------------------


def test_a_checkpoint_at_the_active_base_counts_no_active_bytes_as_clean() -> None:
    """None of its records is below; otherwise a cleaned log would look cleaner than it is."""
    log = log_of(memory_world(), 2, 4)
    for _ in range(3):
        put(log, (b"k", b"v"))
    first, second, active = log.segments
    assert (active.base_offset, active.size_bytes > 0) == (6, True)
    closed = first.size_bytes + second.size_bytes
    assert state(log, 6).clean_bytes == closed
    assert state(log, 7).clean_bytes == closed + active.size_bytes


def test_s209_a_segment_that_holds_the_first_dirty_offset_counts_twice() -> None:
    log = compacted(memory_world())
    for _ in range(2):
        for _ in range(4):
            put(log, (b"k", b"vv"))
        log.writer.roll()
    assert [segment.size_bytes for segment in log.segments] == [284, 284, 0]
    found = state(log, 2)
    assert (found.clean_bytes, found.cleanable_bytes) == (284, 568)
    assert found.cleanable_ratio == 568 / 852


def test_s210_the_ratio_must_be_exceeded() -> None:
    for ratio, due in ((0.5, False), (0.4999, True), (1.0, False), (0.0, True)):
        log = log_of(memory_world(), 2, 2, min_cleanable_dirty_ratio=ratio)
        assert state(log, 2).cleanable_ratio == 0.5
        assert decision(log, 2).will_clean is due
    log = log_of(memory_world(), 2, 2, min_cleanable_dirty_ratio=1.0)
    assert reason(log) == "dirty_ratio", "1 never triggers"
    assert reason(log, force=True) is None


def test_s210_a_ratio_of_0_still_needs_a_dirty_byte() -> None:
    log = log_of(memory_world(), 2, 2, min_cleanable_dirty_ratio=0.0)
    assert state(log, 4).cleanable_bytes == 0
    assert reason(log, 4) == "active_segment"
    assert reason(log, 4, force=True) is None, "the clean section is rewritten once"


def test_closed_segments_of_no_bytes_count_nothing() -> None:
    log = log_of(memory_world(), 2)
    log.writer.roll(10)
    log.writer.roll(20)
    log.offsets.set_high_watermark(20)
    found = state(log, 10)
    assert (found.clean_bytes, found.cleanable_bytes, found.upper_bound_offset) == (140, 0, 20)


# --- max compaction lag -----------------------------------------------------------------------


def test_min_compaction_lag_bounds_a_segment_that_is_overdue_as_well() -> None:
    """As in Kafka's LogCleanerManager; in KIP-354 the maximum lag would decide."""
    world = memory_world()
    log = compacted(world, max_compaction_lag_ms=2 * HOUR_MS, min_compaction_lag_ms=HOUR_MS)
    put(log, (b"k", b"old"))
    world.clock.advance(minutes=90)
    put(log, (b"k", b"young"))
    world.clock.advance(minutes=45)
    log.writer.roll()
    assert state(log).max_compaction_delay_ms == HOUR_MS / 4
    assert (state(log).first_uncleanable_offset, reason(log)) == (0, "min_compaction_lag")
    world.clock.advance(minutes=15)
    assert (state(log).first_uncleanable_offset, reason(log)) == (2, None)


def test_data_older_than_the_maximum_lag_must_be_cleaned() -> None:
    world = memory_world()
    log = log_of(world, 9, 1, 1, max_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=0.9)
    assert reason(log, 9) == "dirty_ratio"
    world.clock.advance(ms=HOUR_MS)
    assert state(log, 9).max_compaction_delay_ms == 0
    assert reason(log, 9) == "dirty_ratio"
    world.clock.advance(ms=5)
    found = state(log, 9)
    assert found.max_compaction_delay_ms == 5
    assert found.must_clean_bytes == found.cleanable_bytes == 140
    assert found.must_clean_ratio == found.cleanable_ratio == 140 / log.size_bytes
    assert reason(log, 9) is None
    assert reason(log, 11) == "active_segment", "nothing is dirty"


def test_only_positive_first_timestamps_and_closed_segments_count_for_the_lag() -> None:
    world = memory_world()
    log = compacted(world, max_compaction_lag_ms=HOUR_MS)
    for timestamp in (0, -1):
        put(log, (b"k", b"v", timestamp))
        log.writer.roll()
    put(log, (b"k", b"v", 5))
    assert state(log).max_compaction_delay_ms == 0
    log.writer.roll()
    found = state(log)
    assert found.max_compaction_delay_ms == world.clock.now_ms() - HOUR_MS - 5
    assert found.must_clean_bytes == log.segments.view[2].size_bytes


# --- gates ------------------------------------------------------------------------------------


def gates_of(log: Log, checkpoint: int, **conditions: object) -> list[tuple]:
    """Return each gate as a tuple, with code and values of its reason."""
    return [
        (*gate[:4], gate.reason.code.removeprefix("gate."), gate.reason.values)
        for gate in decision(log, checkpoint, **conditions).gates
    ]


def test_gates_their_order_and_their_numbers() -> None:
    world = memory_world()
    log = log_of(
        world,
        *(2, 3),
        min_compaction_lag_ms=HOUR_MS,
        max_compaction_lag_ms=2 * HOUR_MS,
        min_cleanable_dirty_ratio=0.75,
    )
    shared = [
        ("empty", True, 350, 1, "size", {"size_bytes": 350}),
        (
            *("active_segment", True, 5, 2, "active_segment"),
            {"active_offset": 5, "dirty_offset": 2, "closed_bytes": 210},
        ),
        (
            *("last_stable_offset", True, 5, 2, "last_stable_offset"),
            {"stable_offset": 5, "dirty_offset": 2},
        ),
    ]
    standing = [
        ("policy", True, None, None, "policy", {"policy": "compact"}),
        ("cleaner_disabled", True, None, None, "cleaner_enabled", {}),
        ("uncleanable", True, None, None, "never_failed", {}),
        ("paused", True, None, None, "free", {}),
    ]
    assert gates_of(log, 2) == [
        *standing,
        *shared,
        ("min_compaction_lag", False, 2, 2, "too_young", {"offset": 2, "lag_ms": HOUR_MS}),
        ("dirty_ratio", False, 0.0, 0.75, "dirty_ratio", {"ratio": 0.0, "threshold_ratio": 0.75}),
        ("max_compaction_lag", False, 0, 0, "not_overdue", {"lag_ms": 2 * HOUR_MS}),
    ]
    standing[1] = ("cleaner_disabled", True, None, None, "cleaner_disabled", {})
    assert gates_of(log, 2, cleaner_enabled=False, force=True) == [*standing, *shared]
    world.clock.advance(hours=3)
    found = gates_of(log, 2, cleaner_enabled=False, uncleanable="bad CRC", paused="its state")
    assert found == [
        standing[0],
        ("cleaner_disabled", False, None, None, "cleaner_disabled", {}),
        ("uncleanable", False, None, None, "uncleanable", {"message": "bad CRC"}),
        ("paused", False, None, None, "paused", {"message": "its state"}),
        *shared,
        ("min_compaction_lag", True, 5, 2, "old_enough", {"lag_ms": HOUR_MS}),
        ("dirty_ratio", False, 0.6, 0.75, "dirty_ratio", {"ratio": 0.6, "threshold_ratio": 0.75}),
        (
            *("max_compaction_lag", True, HOUR_MS, 0, "overdue"),
            {"lag_ms": 2 * HOUR_MS, "span_ms": HOUR_MS},
        ),
    ]


def test_gates_of_a_log_without_a_policy_or_limits() -> None:
    log = log_of(memory_world(), 1, cleanup_policy=())
    assert gates_of(log, 1) == [
        ("policy", False, None, None, "policy", {"policy": "empty"}),
        ("cleaner_disabled", True, None, None, "cleaner_enabled", {}),
        ("uncleanable", True, None, None, "never_failed", {}),
        ("paused", True, None, None, "free", {}),
        ("empty", True, 70, 1, "size", {"size_bytes": 70}),
        (
            *("active_segment", False, 1, 1, "active_segment"),
            {"active_offset": 1, "dirty_offset": 1, "closed_bytes": 0},
        ),
        (
            *("last_stable_offset", True, 1, 1, "last_stable_offset"),
            {"stable_offset": 1, "dirty_offset": 1},
        ),
        ("min_compaction_lag", True, 1, 1, "old_enough", {"lag_ms": 0}),
        ("dirty_ratio", False, 0.0, 0.5, "dirty_ratio", {"ratio": 0.0, "threshold_ratio": 0.5}),
        ("max_compaction_lag", False, 0, 0, "lag_not_set", {}),
    ]


def test_s214_other_policies_and_empty_logs_are_never_cleaned() -> None:
    log = log_of(memory_world(), 2, cleanup_policy=("delete",))
    assert reason(log) == reason(log, force=True) == "policy"
    assert log_of(memory_world(), 2, cleanup_policy=("compact", "delete")).config.compact
    assert reason(log_of(memory_world(), 2, cleanup_policy=("compact", "delete"))) is None
    empty = compacted(memory_world())
    assert reason(empty) == reason(empty, force=True) == "empty"


def test_a_cleaner_that_is_off_cleans_only_by_force() -> None:
    log = log_of(memory_world(), 2)
    assert reason(log, cleaner_enabled=False) == "cleaner_disabled"
    assert reason(log, cleaner_enabled=False, force=True) is None


def test_a_log_that_failed_is_not_tried_again_even_by_force() -> None:
    log = log_of(memory_world(), 2)
    assert reason(log, uncleanable="bad CRC") == "uncleanable"
    assert reason(log, uncleanable="bad CRC", force=True) == "uncleanable"
    assert decision(log, uncleanable="bad CRC").binding.text == "bad CRC"
    assert not decision(log, uncleanable="bad CRC").is_candidate


# --- the future -------------------------------------------------------------------------------


def foreseen(log: Log, checkpoint: int | None = None) -> CleaningDecision:
    return decide(log, checkpoint, log.runtime.clock.now_ms(), forecast=True)


def test_an_empty_segment_is_as_young_as_its_file_and_that_passes() -> None:
    """A gap in a replica leaves one: it delays the old data after it until it is old itself."""
    world = memory_world()
    log = compacted(world, min_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=0.6)
    start_ms = world.clock.now_ms()
    put(log, (b"k", b"v"))
    log.writer.roll()
    put(log, (b"k", b"v"))
    world.clock.advance(minutes=50)
    log.writer.roll()
    log.writer.roll(10)
    for _ in range(3):
        put(log, (b"k", b"v", start_ms))
    log.writer.roll()
    assert [segment.size_bytes for segment in log.segments] == [70, 70, 0, 210, 0]
    world.clock.advance(minutes=30)
    assert reason(log, 1) == "dirty_ratio"
    opens_ms = foreseen(log, 1).opens_at_ms
    assert opens_ms == start_ms + 50 * 60_000 + HOUR_MS
    world.clock.advance(ms=opens_ms - world.clock.now_ms() - 1)
    assert reason(log, 1) == "dirty_ratio"
    world.clock.advance(ms=1)
    assert reason(log, 1) is None


def test_an_idle_roll_of_data_of_the_first_millisecond_is_foreseen() -> None:
    world = memory_world()
    lag_ms = world.clock.now_ms() + HOUR_MS
    log = compacted(world, max_compaction_lag_ms=lag_ms, min_cleanable_dirty_ratio=0.0)
    put(log, (b"k", b"v", 0))
    assert foreseen(log).binding.gate == "active_segment"
    assert foreseen(log).opens_at_ms == lag_ms + 1


# --- order ------------------------------------------------------------------------------------


def decided(name: str, clean: int, cleanable: int, must: int = 0, number: int = 0):
    measured = CleanableState(
        topic_partition=TopicPartition(name, number),
        first_dirty_offset=0,
        checkpoint_repaired=False,
        first_uncleanable_offset=9,
        uncleanable_gate="active_segment",
        upper_bound_offset=9,
        clean_bytes=clean,
        cleanable_bytes=cleanable,
        max_compaction_delay_ms=int(must > 0),
        must_clean_bytes=must,
    )
    return CleaningDecision(measured, ())


def test_the_dirtiest_is_first_and_names_break_ties() -> None:
    decisions = [
        decided("b", 5, 5),
        decided("a", 5, 5, number=10),
        decided("a", 5, 5, number=9),
        decided("c", 1, 9),
    ]
    order = [each.state.topic_partition for each in sorted(decisions, key=selection_order)]
    assert order == [("c", 0), ("a", 9), ("a", 10), ("b", 0)]


def test_s211_overdue_logs_are_cleaned_first_unless_kafka_exact() -> None:
    overdue, dirty = decided("overdue", 9, 1, must=1), decided("dirty", 4, 6)
    assert min([dirty, overdue], key=selection_order) is overdue
    assert min([dirty, overdue], key=lambda d: selection_order(d, kafka_exact=True)) is dirty


def test_a_log_of_nothing_has_no_ratio() -> None:
    assert decided("a", 0, 0).state.cleanable_ratio == 0
    assert decided("a", 0, 0).state.must_clean_ratio == 0


@pytest.mark.parametrize("position", (0, 4, 8, None))
def test_a_gate_that_the_records_close_replaces_the_decisions_own(position: int | None) -> None:
    found = decision(log_of(memory_world(), 3))._replace(opens_at_ms=5, opens_below_offset=6)
    names = [gate.gate for gate in found.gates]
    obstacle = Gate.closed_by("offset_map" if position is None else names[position], "full")
    stopped = found.stopped_by(obstacle)
    expected = list(found.gates)
    if position is None:
        expected.append(obstacle)
    else:
        expected[position] = obstacle
    assert stopped == found._replace(
        gates=tuple(expected), opens_at_ms=None, opens_below_offset=None
    )
    assert stopped.gates[-1 if position is None else position] == (
        obstacle.gate,
        False,
        None,
        None,
        Reason(f"gate.{obstacle.gate}", {"message": "full"}),
        *obstacle[5:],
    )


def test_a_decision_changes_when_lags_pass_and_not_at_the_present() -> None:
    log = compacted(memory_world(), min_compaction_lag_ms=100, max_compaction_lag_ms=250)
    for at in (1_000, 1_400):
        put_batches(log, batch(log.log_end_offset, timestamp=at))
        log.writer.roll()
    seen, now_ms = [], 0
    while now_ms is not None:
        seen.append(now_ms)
        now_ms = next_change_ms(log, 0, now_ms, kafka_exact=True)
    assert seen == [0, 1_100, 1_251, 1_500, 1_651]
