"""Compaction by timestamp and by header: group V of the scenarios.

S-256, the capacity, is in the tests of the map, S-260 in the random histories.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from logstore import Broker, VirtualClock
from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.strategy import Strategy
from logstore.errors import InvalidConfigurationError
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.records import Record
from logstore.runtime import MemoryFileSystem
from logstore.storage.log import Log
from logstore.types import TimestampType
from tests.support.world.builders import memory_world
from tests.support.world.cleaning import (
    RETENTION_MS,
    Producer,
    batches_in,
    compacted,
    contents,
    offsets_in,
    opened,
    put,
    put_batches,
    put_each,
    run_pass,
    snapshot,
    versioned,
)

HEADER = {"compaction_strategy": "header", "compaction_strategy_header": "v"}
LOWEST, HIGHEST = -(2**63), 2**63 - 1


def room_for(keys: int) -> CleanerConfig:
    """Return a cleaner config whose map takes so many keys with versions."""
    return CleanerConfig(dedupe_buffer_bytes=32 * keys, load_factor=1.0)


def fill(log: Log, *records: tuple) -> int:
    """Append one batch per record, and close the segment; return the log end."""
    put_each(log, *records)
    log.writer.roll()
    return log.log_end_offset


def close_with_another(log: Log, key: bytes = b"other") -> None:
    """Append a record of another key in a separate segment."""
    fill(log, versioned(key, 1))


def horizon_of(log: Log, offset: int) -> int | None:
    (found,) = [
        batch.header.delete_horizon_ms
        for batch in batches_in(log)
        if offset in [record.offset for record in batch.records()]
    ]
    return found


def survivors(*records: tuple, **config: object) -> list[int]:
    """Return the survivors of one pass; an active record of another key follows the records."""
    _, log = opened(**HEADER | config)
    fill(log, *records)
    put(log, versioned(b"active", 1))
    run_pass(log)
    return offsets_in(log)[:-1]


# --- configuration ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    (
        {"compaction_strategy": "offset"},
        {"compaction_strategy": "header", "compaction_strategy_header": ""},
        {"compaction_strategy": "header", "compaction_strategy_header": "  "},
        {"compaction_strategy": "offset", "compaction_strategy_header": "v"},
    ),
)
@pytest.mark.parametrize("seed", range(4))
def test_s244_strategy_offset_by_any_name_gives_the_same_bytes(
    config: dict[str, object], seed: int
) -> None:
    """For logs of all kinds of records; the golden pairs are checked in their own tests."""
    assert random_log(seed, **config) == random_log(seed)


def random_log(seed: int, **config: object) -> list[object]:
    """Return all files and numbers after each pass over a log of versions, holes and markers."""
    rng = random.Random(seed)
    world = memory_world()
    log = compacted(
        world, segment_bytes=700, delete_retention_ms=20, index_interval_bytes=100, **config
    )
    producer = Producer(log, 5)
    first_dirty = 0
    seen: list[object] = []
    slots = rng.choice((3, 1000))
    for _ in range(6):
        for _ in range(rng.randint(3, 12)):
            draft = versioned(
                b"%d" % rng.randint(0, 5),
                rng.choice((None, 1, rng.randint(-5, 5))),
                rng.choice((None, b"x", b"y" * 60)),
            )
            if rng.random() < 0.2:
                producer.send(draft[:2])
                producer.abort() if rng.random() < 0.5 else producer.commit()
            else:
                put(log, draft, versioned(b"k", 7))
        log.writer.roll()
        world.clock.advance(ms=rng.randint(0, 30))
        end = log.active_segment.base_offset
        while first_dirty < end:
            small = CleanerConfig(dedupe_buffer_bytes=24 * slots)
            stats = run_pass(log, first_dirty, end, small)
            assert stats.strategy == "offset"
            assert stats.map_utilization == stats.map_entries / slots, "24 bytes per entry"
            first_dirty = stats.end_offset
            seen += [replace(stats, index_ms=0, clean_ms=0), snapshot(world)]
    return seen


def new_broker(**broker_config: str) -> Broker:
    clock = VirtualClock()
    return Broker(clock=clock, fs=MemoryFileSystem(clock), seed=3, broker_config=broker_config)


def test_s245_an_unknown_strategy_is_a_configuration_error() -> None:
    broker = new_broker()
    wrong = {"compaction.strategy": "Timestamp2"}
    with pytest.raises(InvalidConfigurationError, match="one of offset, timestamp, header"):
        broker.create_topic("t", configs=wrong)
    broker.create_topic("t")
    with pytest.raises(InvalidConfigurationError, match="one of offset, timestamp, header"):
        broker.alter_configs("t", wrong)
    assert broker.describe_configs("t")["compaction.strategy"].value == "offset"


def test_s245_the_topics_value_overrides_the_brokers() -> None:
    broker = new_broker(
        **{
            "log.cleaner.compaction.strategy": "header",
            "log.cleaner.compaction.strategy.header": "version",
        }
    )
    compact = {"cleanup.policy": "compact"}
    broker.create_topic("as-broker", configs=compact)
    broker.create_topic("own-header", configs=compact | {"compaction.strategy.header": "w"})
    broker.create_topic("own-strategy", configs=compact | {"compaction.strategy": "timestamp"})
    broker.create_topic("blank", configs=compact | {"compaction.strategy": " "})
    found = {t.name: Strategy.of(broker.manager.catalog.config(t.name)) for t in broker.topics()}
    assert found == {
        "as-broker": Strategy("header", "version"),
        "own-header": Strategy("header", "w"),
        "own-strategy": Strategy("timestamp"),
        "blank": Strategy("offset"),
    }
    number = (5).to_bytes(8, "big")
    for name in found:
        broker.append(name, value=b"1", key=b"k", timestamp=9, headers=[("version", number)])
        broker.append(name, value=b"2", key=b"k", timestamp=8, headers=[("w", number)])
        broker.append(name, value=b"3", key=b"k", timestamp=7)
        broker.append(name, value=b"4", key=b"last")
        broker.roll(name)
    strategies = {s.topic_partition.topic: s.strategy for s in broker.clean().cleaned}
    assert strategies == {name: strategy.name for name, strategy in found.items()}
    kept = {name: offsets_in(broker.log(name))[0] for name in found}
    assert kept == {"as-broker": 0, "own-header": 1, "own-strategy": 0, "blank": 2}


# --- versions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "kept"),
    (((5, 9, 7), 1), ((-3, -2), 1), ((HIGHEST, LOWEST), 0), ((LOWEST, HIGHEST), 1), ((5, 5), 1)),
)
def test_s246_the_highest_signed_version_is_kept(versions: tuple[int, ...], kept: int) -> None:
    assert survivors(*(versioned(b"a", version) for version in versions)) == [kept]


@pytest.mark.parametrize(
    ("first", "kept"),
    (
        ([9, 1], 1),  # 1 counts, and is below 5
        ([1, 9], 0),
        ([9, None], 1),
        ([9, b"1234"], 1),
    ),
)
def test_s247_the_last_of_several_headers_counts(first: list, kept: int) -> None:
    values = [v.to_bytes(8, "big") if isinstance(v, int) else v for v in first]
    duplicates = (b"a", b"x", None, tuple(("v", value) for value in values))
    assert survivors(duplicates, versioned(b"a", 5)) == [kept]


@pytest.mark.parametrize("last", (None, b"1234"))
def test_s247_a_bad_last_header_counts_as_missing_and_is_counted(last: bytes | None) -> None:
    """Any version wins against a missing one; of two missing ones the later offset wins."""
    bad = (b"a", b"x", None, (("v", (9).to_bytes(8, "big")), ("v", last)))
    assert survivors(versioned(b"a", LOWEST), bad) == [0]
    assert survivors(bad, versioned(b"a", None)) == [1]
    assert survivors(versioned(b"a", None), bad) == [1]
    _, log = opened(**HEADER)
    fill(log, bad, versioned(b"a", None), versioned(b"a", 1))
    stats = run_pass(log)
    assert (stats.unversioned_records, stats.malformed_versions) == (2, 0 if last is None else 1)


# --- arrivals out of order, across the checkpoint ---------------------------------------------


def test_s248_a_late_arrival_across_the_checkpoint_is_dropped() -> None:
    _, log = opened(**HEADER)
    assert fill(log, *(versioned(b"k%d" % n, 1) for n in range(3)), versioned(b"a", 9)) == 4
    assert run_pass(log).end_offset == 4
    fill(log, versioned(b"a", 5), versioned(b"b", 1))
    stats = run_pass(log, 4)
    assert offsets_in(log) == [0, 1, 2, 3, 5]
    assert stats.end_offset == 6, "M = 5"
    assert stats.fates["superseded"] == 1
    assert stats.seed_messages_read == 4


def test_s249_a_clean_survivor_is_below_the_mapped_range() -> None:
    _, log = opened(**HEADER)
    fill(log, *(versioned(b"k%d" % n, 1) for n in range(3)), versioned(b"a", 9))
    run_pass(log)
    fill(log, versioned(b"a", 5), versioned(b"a", 2))
    put(log, versioned(b"active", 1))
    stats = run_pass(log, 4)
    assert offsets_in(log) == [0, 1, 2, 3, 6]
    assert stats.fates["superseded"] == 2


# --- tombstones -------------------------------------------------------------------------------


def test_s250_a_winning_tombstone_outlives_its_losers_until_its_horizon() -> None:
    world, log = opened(**HEADER)
    fill(log, *(versioned(b"k%d" % n, 1) for n in range(3)), versioned(b"a", 9, None))
    end = run_pass(log).end_offset
    horizon = horizon_of(log, 3)
    assert horizon == world.clock.now_ms() + RETENTION_MS
    fill(log, versioned(b"a", 5), versioned(b"b", 1))
    assert horizon > world.clock.now_ms()
    end = run_pass(log, end).end_offset
    assert offsets_in(log) == [0, 1, 2, 3, 5]
    world.clock.advance(ms=RETENTION_MS)
    close_with_another(log)
    run_pass(log, end)
    assert offsets_in(log) == [0, 1, 2, 5, 6]
    assert not [key for _, key, _ in contents(log) if key == b"a"]


def test_s250_the_pass_that_drops_the_last_loser_keeps_an_expired_tombstone() -> None:
    """After a crash between two groups the superseded record must not be alone (cleaner §13.6)."""
    world, log = opened(**HEADER)
    fill(log, versioned(b"a", 9, None), versioned(b"k", 1))
    end = run_pass(log).end_offset
    world.clock.advance(ms=RETENTION_MS)
    fill(log, versioned(b"a", 5), versioned(b"b", 1))
    horizon = horizon_of(log, 0)
    assert horizon is not None
    assert horizon <= world.clock.now_ms()
    stats = run_pass(log, end)
    assert offsets_in(log) == [0, 1, 3]
    assert (stats.fates["superseded"], stats.fates["tombstone_expired"]) == (1, 0)
    assert horizon_of(log, 0) == horizon, "the horizon does not change"
    close_with_another(log)
    stats = run_pass(log, stats.end_offset)
    assert offsets_in(log) == [1, 3, 4]
    assert stats.fates["tombstone_expired"] == 1


def test_s251_a_losing_tombstone_is_dropped_at_once() -> None:
    _, log = opened(**HEADER)
    fill(log, versioned(b"a", 9, b"x"), versioned(b"a", 5, None))
    put(log, versioned(b"active", 1))
    stats = run_pass(log)
    assert contents(log) == [(0, b"a", b"x"), (2, b"active", b"x")]
    assert (stats.fates["superseded"], stats.fates["tombstone_expired"]) == (1, 0)
    assert horizon_of(log, 0) is None


def test_s252_a_tombstone_waits_until_a_late_record_was_compared() -> None:
    """With a map of two keys: records above the start of the tail are not yet compared."""
    world, log = opened(**HEADER)
    small = room_for(2)
    put(log, versioned(b"a", 9, None))
    put_each(log, *(versioned(b"%c" % (ord("a") + number), 1) for number in range(1, 9)))
    put_each(log, versioned(b"a", 5), versioned(b"z", 1))
    log.writer.roll()
    end = run_pass(log, config=small).end_offset
    assert end == 2, "a and b"
    horizon = horizon_of(log, 0)
    assert horizon == world.clock.now_ms() + RETENTION_MS
    world.clock.advance(ms=10 * RETENTION_MS)
    passes = 0
    while end <= 9:
        passes += 1
        assert 0 in offsets_in(log), "a@9 has not been compared"
        end = run_pass(log, end, log.active_segment.base_offset, small).end_offset
    assert passes > 4
    assert 9 not in offsets_in(log)
    while end < log.active_segment.base_offset:
        end = run_pass(log, end, log.active_segment.base_offset, small).end_offset
    close_with_another(log)
    run_pass(log, end)
    assert not [key for _, key, _ in contents(log) if key == b"a"], "it never reappeared"


@pytest.mark.parametrize(("closed_ms", "goes"), ((-1, False), (0, True), (1, True)))
def test_s253_a_tombstone_waits_for_a_segment_closed_at_its_horizon(
    closed_ms: int, goes: bool
) -> None:
    world, log = opened(**HEADER)
    fill(log, versioned(b"a", 9, None), versioned(b"k", 1))
    end = run_pass(log).end_offset
    horizon = horizon_of(log, 0)
    assert horizon is not None
    world.clock.advance(ms=1)
    fill(log, versioned(b"b", 1))  # its last append is before the horizon
    world.clock.advance(ms=horizon + 1 - world.clock.now_ms())
    put(log, versioned(b"a", 5))  # late, and in the active segment: not compared
    active = log.active_segment.base_offset
    stats = run_pass(log, end)
    assert stats.end_offset == active
    assert log.segments.view[-2].last_modified_ms < horizon < world.clock.now_ms()
    assert stats.fates["tombstone_expired"] == 0
    assert offsets_in(log) == [0, 1, 2, 3]
    closed = log.active_segment
    log.writer.roll()
    closed.set_last_modified_ms(horizon + closed_ms)
    put(log, versioned(b"c", 1))
    end = run_pass(log, active).end_offset
    assert offsets_in(log) == [0, 1, 2, 4], "a@3 is superseded; its survivor stays for this pass"
    newest = log.active_segment
    log.writer.roll()
    newest.set_last_modified_ms(horizon + closed_ms)
    put(log, versioned(b"d", 1))
    run_pass(log, end)
    assert offsets_in(log) == ([1, 2, 4, 5] if goes else [0, 1, 2, 4, 5])


def test_s253_with_nothing_behind_the_map_the_clock_is_what_counts() -> None:
    world, log = opened(**HEADER)
    fill(log, versioned(b"a", 9, None), versioned(b"k", 1))
    end = run_pass(log).end_offset
    horizon = horizon_of(log, 0)
    fill(log, versioned(b"b", 1))
    world.clock.advance(ms=RETENTION_MS)
    modified_ms = max(s.last_modified_ms for s in log.segments)
    assert horizon is not None
    assert modified_ms < horizon
    stats = run_pass(log, end)
    assert stats.end_offset == log.log_end_offset
    assert offsets_in(log) == [1, 2]


# --- the log's last record --------------------------------------------------------------------


def test_s254_the_logs_last_record_stays_though_it_loses() -> None:
    world, log = opened(**HEADER)
    fill(log, versioned(b"a", 9), versioned(b"b", 1), versioned(b"a", 1))
    assert (log.active_segment.size_bytes, log.log_end_offset) == (0, 3)
    end = run_pass(log).end_offset
    assert end == 3
    assert offsets_in(log) == [0, 1, 2]
    log.close()
    log = compacted(world, **HEADER)
    assert log.log_end_offset == 3
    put_each(log, versioned(b"c", 1), versioned(b"d", 1))
    log.writer.roll()
    stats = run_pass(log, end)
    assert b"a" not in [key for offset, key, _ in contents(log) if offset >= end]
    assert stats.fates["superseded"] == 1
    assert offsets_in(log) == [0, 1, 3, 4], "it competes again although its key is not dirty"
    assert log.log_end_offset == 5


def test_s254_its_winner_does_not_go_before_it() -> None:
    """An expired tombstone that supersedes the log's last record, in repeated passes."""
    world, log = opened(**HEADER)
    fill(log, versioned(b"a", 9, None), versioned(b"b", 1), versioned(b"a", 1))
    end = run_pass(log).end_offset
    for _ in range(3):
        world.clock.advance(ms=2 * RETENTION_MS)
        stats = run_pass(log, end)
        assert stats.end_offset == end
        assert offsets_in(log) == [0, 1, 2]
    fill(log, versioned(b"c", 1))
    end = run_pass(log, end).end_offset
    assert offsets_in(log) == [0, 1, 3], "the superseded record is removed first"
    fill(log, versioned(b"d", 1))
    run_pass(log, end)
    assert offsets_in(log) == [1, 3, 4], "then the winner"


def test_s254_a_follower_one_record_behind_sees_the_same_offsets() -> None:
    broker = new_broker()
    broker.create_topic(
        "t",
        configs={
            "cleanup.policy": "compact",
            "compaction.strategy": "timestamp",
            "min.cleanable.dirty.ratio": 0,
        },
    )
    broker.append("t", value=b"new", key=b"a", timestamp=9)
    broker.append("t", value=b"old", key=b"a", timestamp=1)
    broker.roll("t")
    broker.clean("t")
    assert [record.offset for record in broker.read("t", offset=1)] == [1]
    assert broker.table("t") == {b"a": b"new"}
    broker.append("t", value=b"x", key=b"b", timestamp=5)
    broker.roll("t")
    broker.clean("t")
    assert [record.offset for record in broker.read("t")] == [0, 2]


@pytest.mark.parametrize("wins", (True, False))
def test_s255_the_logs_last_record_stays_though_it_is_an_expired_tombstone(wins: bool) -> None:
    world, log = opened(**HEADER)
    fill(log, versioned(b"a", 5), versioned(b"b", 1), versioned(b"a", 9 if wins else 1, None))
    end = run_pass(log).end_offset
    horizon = horizon_of(log, 2)
    assert horizon == world.clock.now_ms() + RETENTION_MS
    for _ in range(2):
        world.clock.advance(ms=2 * RETENTION_MS)
        stats = run_pass(log, end)
        assert stats.fates["tombstone_expired"] == 0
        assert offsets_in(log) == ([1, 2] if wins else [0, 1, 2])
        assert horizon_of(log, 2) == horizon
    fill(log, versioned(b"c", 1))
    run_pass(log, end)
    assert offsets_in(log) == ([1, 3] if wins else [0, 1, 3])


# --- timestamps -------------------------------------------------------------------------------


def append_time_batch(first: int, append_time: int, *keys: bytes) -> bytes:
    """Return a batch whose records have different timestamps, which do not count."""
    records = [
        Record(first + at, 10_000 - 100 * at - first, key, b"x") for at, key in enumerate(keys)
    ]
    return build_batch(
        records,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        append_time=append_time,
        partition_leader_epoch=0,
    )


@pytest.mark.parametrize("strategy", ("offset", "timestamp"))
def test_s257_by_log_append_time_the_later_wins_as_by_offset(strategy: str) -> None:
    world = memory_world()
    log = compacted(
        world,
        compaction_strategy=strategy,
        message_timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    for keys in ((b"a", b"b", b"a"), (b"b", b"c"), (b"a",)):
        put(log, *((key, b"x", 99_999) for key in keys))
    log.writer.roll()
    put(log, (b"active", b"x"))
    run_pass(log)
    assert offsets_in(log) == [3, 4, 5, 6]


@pytest.mark.parametrize(("strategy", "kept"), (("offset", [2, 3, 4]), ("timestamp", [1, 2, 4])))
def test_s257_after_a_backward_step_of_the_clock_the_larger_time_wins(
    strategy: str, kept: list[int]
) -> None:
    log = compacted(memory_world(), compaction_strategy=strategy)
    put_batches(log, append_time_batch(0, 5000, b"a", b"a"), append_time_batch(2, 4000, b"b", b"a"))
    log.writer.roll()
    put(log, (b"active", b"x"))
    run_pass(log)
    assert offsets_in(log) == kept


# --- strategies that change -------------------------------------------------------------------


def test_s258_a_new_strategy_takes_what_the_old_one_left() -> None:
    broker = new_broker()
    by_header = {"compaction.strategy": "header", "compaction.strategy.header": "v"}
    broker.create_topic("t", configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})

    def append(key: bytes, version: int, value: bytes) -> None:
        broker.append(
            "t", value=value, key=key, headers=[("v", version.to_bytes(8, "big", signed=True))]
        )

    def clean() -> list[tuple[bytes | None, bytes | None]]:
        broker.roll("t")
        broker.clean("t")
        return [(record.key, record.value) for record in broker.read("t")]

    append(b"a", 9, b"a9")
    append(b"a", 5, b"a5")
    append(b"b", 5, b"b5")
    append(b"z", 1, b"z")
    assert clean() == [(b"a", b"a5"), (b"b", b"b5"), (b"z", b"z")], "by offset"
    broker.alter_configs("t", by_header)
    append(b"a", 3, b"a3")
    append(b"b", 7, b"b7")
    append(b"z", 2, b"z2")
    assert clean() == [(b"a", b"a5"), (b"b", b"b7"), (b"z", b"z2")], "a9 was removed"
    assert broker.table("t") == {b"a": b"a5", b"b": b"b7", b"z": b"z2"}
    broker.alter_configs("t", {}, unset=list(by_header))
    append(b"a", 1, b"a1")
    append(b"z", 1, b"z1")
    assert clean() == [(b"b", b"b7"), (b"a", b"a1"), (b"z", b"z1")], "the highest offset again"
    assert broker.table("t") == {b"a": b"a1", b"b": b"b7", b"z": b"z1"}


# --- producers --------------------------------------------------------------------------------


def test_s259_a_producers_last_batch_of_losers_keeps_its_header() -> None:
    world, log = opened(**HEADER | {"compaction_strategy": "timestamp"})
    later_ms = world.clock.now_ms() + 1
    put(log, (b"0", b"new", later_ms), (b"1", b"new", later_ms))
    producer = Producer(log, 7)
    producer.send(0, 1, transactional=False)
    put(log, (b"2", b"x"))
    log.writer.roll()
    put(log, (b"3", b"x"))
    run_pass(log)
    assert offsets_in(log) == [0, 1, 4, 5]
    (empty,) = [batch for batch in batches_in(log) if batch.header.producer_id == 7]
    assert isinstance(empty, RecordBatch)
    assert (empty.header.record_count, empty.header.base_offset) == (0, 2)
    assert (empty.header.base_sequence, empty.header.last_sequence) == (0, 1)
    log.close()
    for suffix in (".snapshot", ".index", ".timeindex"):
        for name in [name for name in world.files() if name.endswith(suffix)]:
            world.fs.remove(world.path(name))
    log = compacted(world, clean=False, compaction_strategy="timestamp")
    producer.log = log
    assert log.writer.append_batches(producer.sent[0]).is_duplicate, "it is known"
    producer.send(2, transactional=False)
    assert offsets_in(log) == [0, 1, 4, 5, 6]
