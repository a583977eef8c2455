"""The times that `erasure` reports are exact: histories continue, and their files are read.

Time advances in units; the test reads the bytes of files, not the engine's reports.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logstore import Broker, TopicPartition, VirtualClock
from logstore.record.walk import walk_buffer
from logstore.runtime import MemoryFileSystem
from tests.support.world.cleaning import Producer

TP = TopicPartition("t", 0)
KEY = b"the-key"
UNIT_MS = 1000
T = 1_700_000_000_000
NEVER = 2**63 - 1
UNITS = 13
"""Longer than all that is configured here together."""

steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.booleans()),
        st.tuples(st.just("put"), st.booleans()),
        st.tuples(st.just("late"), st.booleans()),
        st.tuples(st.just("other"), st.integers(0, 3)),
        st.tuples(st.just("roll"), st.just(0)),
        st.tuples(st.just("pass"), st.integers(1, 3)),
        st.tuples(st.just("clean"), st.booleans()),
        st.tuples(st.just("transaction"), st.just(1)),
        st.tuples(st.just("end"), st.booleans()),
        st.tuples(st.just("delete"), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=16,
)
configs = st.fixed_dictionaries(
    {
        "cleanup.policy": st.sampled_from(["compact", "compact", "delete", "compact,delete"]),
        "compaction.strategy": st.sampled_from(["offset", "timestamp"]),
        "min.compaction.lag.ms": st.sampled_from([0, 2 * UNIT_MS]),
        "max.compaction.lag.ms": st.sampled_from([5 * UNIT_MS, NEVER]),
        "min.cleanable.dirty.ratio": st.sampled_from([0.0, 0.5, 1.0]),
        "delete.retention.ms": st.sampled_from([0, 3 * UNIT_MS]),
        "retention.ms": st.sampled_from([4 * UNIT_MS, -1]),
        "segment.bytes": st.sampled_from([200, 10_000]),
        "file.delete.delay.ms": st.just(0),
    }
)
BROKER = {"log.retention.check.interval.ms": 1, "log.cleaner.backoff.ms": 1}
"""Actions that are due are taken at most a millisecond later."""


def replayed(history, config, fs=None, broker_config=BROKER):
    """A broker after a history; only due or forced cleanings run."""
    broker = Broker(clock=VirtualClock(T), seed=1, broker_config=broker_config, fs=fs)
    broker.create_topic("t", configs=config)
    log = broker.log("t")
    producer = Producer(log, 1)
    for kind, argument in history:
        if kind == "put":
            broker.append("t", key=KEY, value=b"v" if argument else None)
        elif kind == "late":
            value = b"v" if argument else None
            broker.append("t", key=KEY, value=value, timestamp=T - 100 * UNIT_MS)
        elif kind == "other":
            broker.append("t", key=b"other%d" % argument, value=b"w" * 20)
        elif kind == "roll":
            broker.roll("t")
        elif kind == "pass":
            broker.clock.advance(ms=argument * UNIT_MS)
        elif kind == "transaction":
            producer.send(1)
        elif kind == "end":
            producer.commit() if argument else producer.abort()
        elif kind == "delete":
            broker.delete_records({TP: min(log.high_watermark, log.log_start_offset + argument)})
        else:
            broker.clean("t", force=argument)
    return broker


def offsets_in_files(broker):
    """Return the offsets of the key's records, by the files of the log alone."""
    fs, directory = broker.runtime.fs, broker.log("t").directory
    result = set()
    for name in fs.list_dir(directory):
        if name.endswith(".log"):
            file = fs.open(f"{directory}/{name}")
            for batch in walk_buffer(file.read(0, broker.log("t").size_bytes)):
                if not batch.header.is_control:
                    result |= {each.offset for each in batch.records() if each.key == KEY}
            file.close()
    return result


def moments(start_ms):
    """Yield the times around each unit of time."""
    for unit in range(UNITS):
        for step in range(-1, 4):
            if unit or step > 0:
                yield start_ms + unit * UNIT_MS + step


def removed(broker, act):
    """Return, by offset, the time at which each record of the key had been removed."""
    log = broker.log("t")
    left, seen = offsets_in_files(broker), log.segments.view
    deleted = {}
    start_ms = broker.clock.now_ms()
    for time_ms in (start_ms, *moments(start_ms)):
        if time_ms > broker.clock.now_ms():
            broker.clock.advance(ms=time_ms - broker.clock.now_ms())
        elif time_ms < broker.clock.now_ms():
            continue  # a late action took that long
        goes_on = True
        while goes_on and left:
            goes_on = act(broker)
            if log.segments.view != seen:
                seen = log.segments.view
                now_left = offsets_in_files(broker)
                deleted |= dict.fromkeys(left - now_left, broker.clock.now_ms())
                left = now_left
    return deleted


def let_alone(broker):
    """Do due work a millisecond late; return whether there was any, so that more may be due."""
    if not is_due(broker):
        return False
    broker.clock.advance(ms=1)
    before = (broker.log("t").segments.view, broker.cleaner.checkpoints.of(TP))
    broker.clean("t")
    broker.retain("t")
    return before != (broker.log("t").segments.view, broker.cleaner.checkpoints.of(TP))


def is_due(broker):
    (explained,) = broker.explain("t", quick=True).partitions
    idle = any(
        closing.at_ms <= broker.clock.now_ms()
        for closing in explained.active_segment.closings
        if not closing.needs_append
    )
    return (
        explained.will_clean or idle or bool(broker.retain("t", dry_run=True).decisions[0].removed)
    )


def let_alone_promptly(broker):
    broker.clean("t")
    broker.retain("t")
    return False


def make_due(broker):
    """Append data that makes a pass due, as old as possible; close its segment, and clean."""
    log = broker.log("t")
    broker.roll("t")  # as an append that does not fit does it
    broker.retain("t")
    for _ in range(2):  # what expires at once goes in the second
        broker.append("t", key=b"help", value=b"", timestamp=1 if log.config.compact else None)
        broker.roll("t")
        if log.config.min_cleanable_dirty_ratio < 1:
            broker.override_configs("t", {"min.cleanable.dirty.ratio": "0"})
        broker.clean("t")
        broker.retain("t")
    return False


def check(history, config):
    broker = replayed(history, config)
    report = broker.erasure("t", KEY)
    places = {place.offset: place for place in report.places if place.state != "deleted"}
    assert set(places) == offsets_in_files(broker)
    # If left alone, each record is removed at its latest time and not before, or stays.
    alone = removed(replayed(history, config), let_alone)
    for offset, place in places.items():
        assert place.latest_ms == alone.get(offset), (place, alone)
    # Under any appends, no record is removed before its earliest time, and some appends achieve it.
    removed_early = removed(replayed(history, config), make_due)
    promptly = removed(replayed(history, config), let_alone_promptly)
    for offset, place in places.items():
        ways = [way[offset] for way in (removed_early, promptly) if offset in way]
        assert place.earliest_ms == min(ways, default=None), (place, removed_early, promptly)
        assert place.latest_ms is None or place.earliest_ms <= place.latest_ms


def in_any_file(broker):
    """Return whether the key's bytes are in any file of the partition, whatever its name."""
    fs, directory = broker.runtime.fs, broker.log("t").directory
    return any(
        KEY in fs.open(f"{directory}/{name}").read(0, 1 << 20) for name in fs.list_dir(directory)
    )


PLAIN = {
    "cleanup.policy": "compact",
    "compaction.strategy": "offset",
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": NEVER,
    "min.cleanable.dirty.ratio": 0.0,
    "delete.retention.ms": 3 * UNIT_MS,
    "retention.ms": -1,
    "segment.bytes": 10_000,
    "file.delete.delay.ms": 0,
}
PUT, GONE, ROLL, CLEAN = ("put", True), ("put", False), ("roll", 0), ("clean", True)
LATE = ("late", True)


@settings(max_examples=12)
@given(steps, configs, st.integers(0, 600_000), st.sampled_from([None, KEY, b"other"]))
@example([PUT, PUT], PLAIN | {"max.compaction.lag.ms": 5 * UNIT_MS}, 7, b"other")
@example([PUT, PUT], PLAIN | {"max.compaction.lag.ms": 5 * UNIT_MS}, 60_000, KEY)
@example([PUT], PLAIN | {"cleanup.policy": "delete", "retention.ms": 4 * UNIT_MS}, 7, KEY)
def test_a_running_broker_meets_the_latest_time(history, config, since_ms, key):
    """With Kafka's intervals, from any starting time; bytes are removed with their files.

    A transaction may be open, whose producer has ended and which the coordinator aborts.
    """
    fs = MemoryFileSystem(VirtualClock(T))
    broker = replayed(history, config | {"file.delete.delay.ms": 60_000}, fs, {})
    if key is not None:
        producer = broker.producer(transactional_id="x", transaction_timeout_ms=60_000)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v", key=key).get()
    broker.clock.advance(ms=since_ms)
    places = broker.erasure("t", KEY).places
    latest = [place.latest_ms for place in places]
    for place in places:
        assert place.latest_ms is None or place.earliest_ms <= place.latest_ms
    broker._kill()
    with Broker(clock=broker.clock, fs=fs, background=True) as running:
        if not places or None in latest:
            running.clock.advance(days=1)
            # With a transaction, the time of the checks determines whether one pass suffices.
            assert key is not None or in_any_file(running) is bool(places)
            return
        running.clock.advance(ms=max(latest) - running.clock.now_ms())
        assert not in_any_file(running)


@pytest.mark.slow
@settings(max_examples=14)
@example([PUT, PUT, ROLL], PLAIN | {"min.cleanable.dirty.ratio": 1.0})
@example(
    [GONE, ROLL, CLEAN, ("pass", 3), ("other", 1), ROLL],
    PLAIN | {"min.compaction.lag.ms": 2 * UNIT_MS},
)
@example([PUT, GONE, ROLL, CLEAN, ("pass", 3)], PLAIN)
@example([PUT, PUT, ROLL], PLAIN | {"max.compaction.lag.ms": 5 * UNIT_MS})
@example([PUT, PUT, ("transaction", 1), PUT], PLAIN)
@example([PUT, LATE], PLAIN | {"compaction.strategy": "timestamp"})
@example([PUT, LATE, GONE, ROLL, CLEAN], PLAIN | {"compaction.strategy": "timestamp"})
@example(  # a cleaning pass would join its segment with a younger one
    [PUT, ("other", 2), ("other", 3), ROLL, CLEAN, ("pass", 3), ("other", 1), ROLL],
    PLAIN
    | {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 0.5}
    | {"retention.ms": 4 * UNIT_MS},
)
@given(steps, configs)
def test_times_are_exact(history, config):
    check(history, config)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=1000)
@given(steps, configs)
def test_times_are_exact_in_a_thousand_histories(history, config):
    check(history, config)
