"""The selection among several logs, and its range: group R of the scenarios, in a broker."""

from __future__ import annotations

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.cleaner.selection import CleanableState, cleanable_state
from logstore.runtime import MemoryFileSystem
from tests.support.world.builders import bases_of, memory_world
from tests.support.world.cleaning import Producer, compacted

HOUR_MS = 3_600_000
LOGS = (TopicPartition("first", 0), TopicPartition("second", 0), TopicPartition("third", 0))


def new_broker(*topics: str) -> Broker:
    """Return a broker with compacted topics for which one dirty byte is enough."""
    clock = VirtualClock()
    broker = Broker(clock=clock, fs=MemoryFileSystem(clock), seed=3)
    for name in topics:
        broker.create_topic(
            name, configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
        )
    return broker


def fill(broker: Broker, name: str, count: int) -> None:
    """Append records of equal size, one per batch."""
    for number in range(count):
        broker.append(name, value=b"v", key=b"%02d" % (number % 5), partition=0)


def checkpoint(broker: Broker):
    return broker.manager.directories[0].checkpoint("cleaner-offset-checkpoint")


def chosen(broker: Broker) -> list[str]:
    """Return the topics that a cleaning pass selects, in order."""
    return [stats.topic_partition.topic for stats in broker.clean().cleaned]


# --- the dirtiest that may be cleaned ---------------------------------------------------------


@pytest.fixture
def three() -> Broker:
    """Return a broker with three logs that are clean below 20 and end at 20, 25 and 30."""
    broker = new_broker("first", "second", "third")
    for tp, end in zip(LOGS, (20, 25, 30), strict=True):
        fill(broker, tp.topic, 20)
        broker.roll(tp.topic)
        fill(broker, tp.topic, end - 20)
        broker.roll(tp.topic)
        assert broker.log(tp.topic).log_end_offset == end
    checkpoint(broker).write(dict.fromkeys(LOGS, 20))
    return broker


def damage(broker: Broker, name: str) -> None:
    """Flip a bit of the last closed batch."""
    segment = broker.log(name).segments.view[-2]
    file = broker.runtime.fs.open(segment.log_path, write=True)
    (byte,) = file.read(segment.size_bytes - 1, 1)
    file.write_at([bytes([byte ^ 1])], segment.size_bytes - 1)
    file.close()


def test_s203_the_dirtiest_log_is_chosen_first(three: Broker) -> None:
    ratios = [three.cleaner.chooser.state_of(three.log(tp.topic)).cleanable_ratio for tp in LOGS]
    assert ratios == [0, 5 / 25, 10 / 30]
    assert chosen(three) == ["third", "second"]
    assert checkpoint(three).read() == dict(zip(LOGS, (20, 25, 30), strict=True))


def test_s203_an_uncleanable_log_is_skipped(three: Broker) -> None:
    damage(three, "third")
    assert chosen(three) == ["second"], "the third was tried, and failed"
    assert chosen(three) == []
    fill(three, "second", 5)
    three.roll("second")
    assert chosen(three) == ["second"], "the third is not tried again"
    assert {e.topic: e.reason for e in three.clean().not_cleaned}["third"] == "uncleanable"


def test_s203_a_log_in_progress_is_skipped(three: Broker) -> None:
    assert three.cleaner.states.begin(LOGS[2])
    assert chosen(three) == ["second"]
    assert checkpoint(three).read()[LOGS[2]] == 20
    assert three.cleaner.states.done(LOGS[2])
    assert chosen(three) == ["third"]


def test_s203_one_in_progress_and_the_other_uncleanable_leave_none(three: Broker) -> None:
    assert three.cleaner.states.begin(LOGS[2])
    damage(three, "second")
    assert chosen(three) == []
    report = three.clean()
    assert report.cleaned == ()
    assert {each.topic: each.reason for each in report.not_cleaned} == {
        "first": "active_segment",
        "second": "uncleanable",
        "third": "paused",
    }


# --- the checkpoint ---------------------------------------------------------------------------


def state_and_stored(
    broker: Broker, stored: int, log_start: int, topic: str = "first"
) -> tuple[CleanableState, int]:
    """Measure a log with a stored checkpoint, clean it, and return the new checkpoint."""
    tp = TopicPartition(topic, 0)
    if log_start:
        broker.delete_records({tp: log_start})
        assert broker.log(topic).log_start_offset == log_start
    checkpoint(broker).write({tp: stored})
    state = broker.cleaner.chooser.state_of(broker.log(topic))
    broker.clean()
    return state, checkpoint(broker).read()[tp]


def deleting(broker: Broker, *topics: str) -> None:
    """Allow deleting records, which the policy `compact` alone forbids."""
    for name in topics:
        broker.alter_configs(name, {"cleanup.policy": "compact,delete"})


def test_s204_a_checkpoint_above_the_end_begins_at_the_log_start() -> None:
    broker = new_broker("first")
    fill(broker, "first", 22)
    state, stored = state_and_stored(broker, 200, 0)
    assert (state.first_dirty_offset, state.checkpoint_repaired) == (0, True)
    assert stored == 0


def test_s204_a_checkpoint_below_the_log_start_begins_there() -> None:
    broker = new_broker("first")
    deleting(broker, "first")
    fill(broker, "first", 22)
    state, stored = state_and_stored(broker, 0, 10)
    assert (state.first_dirty_offset, state.checkpoint_repaired) == (10, True)
    assert stored == 10


def test_s205_the_checkpoint_of_a_log_with_nothing_to_clean_is_replaced() -> None:
    broker = new_broker("first")
    deleting(broker, "first")
    fill(broker, "first", 30)
    _, stored = state_and_stored(broker, 15, 20)
    assert stored == 20
    assert not broker.clean().cleaned


def test_s205_the_checkpoint_of_a_log_that_was_not_chosen_is_replaced() -> None:
    broker = new_broker("first", "dirtier")
    deleting(broker, "first")
    fill(broker, "first", 20)
    broker.delete_records({LOGS[0]: 15})
    fill(broker, "dirtier", 20)
    broker.roll("dirtier")
    checkpoint(broker).write({LOGS[0]: 10})
    assert chosen(broker) == ["dirtier"]
    assert checkpoint(broker).read() == {LOGS[0]: 15, TopicPartition("dirtier", 0): 20}


# --- transactions and the minimum lag ---------------------------------------------------------


def test_s208_an_open_transaction_then_the_age_of_its_marker() -> None:
    world = memory_world()
    log = compacted(world, min_compaction_lag_ms=HOUR_MS)

    def limit() -> tuple[int, str]:
        state = cleanable_state(log, None, world.clock.now_ms())
        return state.first_uncleanable_offset, state.uncleanable_gate

    producer = Producer(log, 1)
    producer.send(1, 2, 3)
    log.writer.roll()
    assert bases_of(log) == [0, 3]
    for _ in range(3):
        assert limit()[0] == 0
        world.clock.advance(hours=1)
    assert limit() == (0, "last_stable_offset"), "whatever the age"
    assert producer.abort().first_offset == 3
    log.writer.roll()
    assert (log.high_watermark, log.last_stable_offset) == (4, 4)
    assert limit() == (3, "min_compaction_lag"), "the segment of the marker is too young"
    world.clock.advance(ms=HOUR_MS - 1)
    assert limit() == (3, "min_compaction_lag")
    world.clock.advance(ms=1)
    assert limit() == (4, "active_segment")
