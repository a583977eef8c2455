"""Predictions of `explain` are exact to the millisecond, and a dry run equals the real run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import Broker, TopicPartition, VirtualClock
from logstore.runtime import MemoryFileSystem
from tests.support.world.cleaning import Producer

TP = TopicPartition("t", 0)
T = 1_700_000_000_000
NEVER = 2**63 - 1
LONG_MS = 60_000
"""Longer than any lag and any future timestamp drawn here."""

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("append at"), st.integers(-12_000, 12_000), st.just(False)),
        st.tuples(st.just("append undated"), st.sampled_from([-1, 0]), st.just(False)),
        st.tuples(st.just("roll"), st.just(0), st.just(False)),
        st.tuples(st.just("pass"), st.integers(1, 5000), st.just(False)),
        st.tuples(st.just("clean"), st.just(0), st.booleans()),
        st.tuples(st.just("transaction"), st.integers(1, 2), st.just(False)),
        st.tuples(st.just("end"), st.integers(1, 2), st.booleans()),
        st.tuples(st.just("delete"), st.integers(0, 3), st.just(False)),
    ),
    min_size=1,
    max_size=25,
)
configs = st.fixed_dictionaries(
    {
        "cleanup.policy": st.sampled_from(["compact", "compact", "compact,delete", "delete"]),
        "min.compaction.lag.ms": st.sampled_from([0, 700, 3000]),
        "max.compaction.lag.ms": st.sampled_from([3000, 9000, NEVER]),
        "min.cleanable.dirty.ratio": st.sampled_from([0.0, 0.3, 0.5, 1.0]),
        "segment.bytes": st.sampled_from([150, 400, 10_000]),
        "delete.retention.ms": st.just(500),
    }
)


def replayed(history, config, fs=None, *, exact=False):
    """A broker after a history; only due cleanings run."""
    broker = Broker(
        clock=VirtualClock(T), seed=1, fs=fs, broker_config={"logstore.kafka.exact": exact}
    )
    broker.create_topic("t", configs=config)
    log = broker.log("t")
    producers = {number: Producer(log, number) for number in (1, 2)}
    for kind, number, flag in history:
        if kind == "append":
            broker.append("t", value=None if flag else b"v" * number, key=b"k%d" % number)
        elif kind == "append at":
            broker.append("t", value=b"v", key=b"k", timestamp=broker.clock.now_ms() + number)
        elif kind == "append undated":
            broker.append("t", value=b"v", key=b"k", timestamp=number)
        elif kind == "roll":
            broker.roll("t")
        elif kind == "pass":
            broker.clock.advance(ms=number)
        elif kind == "transaction":
            producers[number].send(number)
        elif kind == "end":
            producers[number].commit() if flag else producers[number].abort()
        elif kind == "delete":
            # Refused where the policy is to compact alone.
            broker.delete_records({TP: min(log.high_watermark, log.log_start_offset + number)})
        else:
            broker.clean("t", force=flag)
    return broker


def at(history, config, time_ms, *, exact=False):
    """The same history, followed by idle time."""
    broker = replayed(history, config, exact=exact)
    broker.clock.advance(ms=time_ms - broker.clock.now_ms())
    return broker


def cleaned(broker):
    return bool(broker.clean("t").cleaned)


def decided(broker):
    return broker.explain("t").partitions[0].decision


def gates_of(broker):
    return {gate.gate: gate for gate in decided(broker).gates}


@given(steps, configs, st.booleans())
def test_a_cleaning_runs_at_the_predicted_millisecond(history, config, exact):
    broker = replayed(history, config, exact=exact)
    decision = decided(broker)
    now = broker.clock.now_ms()
    if decision.opens_at_ms is None:
        assert not decision.will_clean
        assert not cleaned(at(history, config, now + LONG_MS, exact=exact))
        return
    if decision.opens_at_ms > now:
        assert not decision.will_clean
        assert not cleaned(at(history, config, decision.opens_at_ms - 1, exact=exact))
        broker.clock.advance(ms=decision.opens_at_ms - now)
    assert cleaned(broker)


@given(steps, configs, st.booleans())
def test_each_gate_opens_at_its_predicted_time(history, config, exact):
    """Also a gate that stays closed however long no record is appended."""
    broker = replayed(history, config, exact=exact)
    decision = decided(broker)
    now = broker.clock.now_ms()
    for gate in decision.gates:
        if gate.open:
            assert gate.opens_at_ms == now
            continue
        times_ms = [(now + LONG_MS, False)]
        if gate.opens_at_ms is not None:
            assert now < gate.opens_at_ms <= now + LONG_MS
            times_ms = [(gate.opens_at_ms - 1, False), (gate.opens_at_ms, True)]
        for time_ms, is_open in times_ms:
            later = gates_of(at(history, config, time_ms, exact=exact))
            assert later[gate.gate].open is is_open, (gate, time_ms)


@given(steps, configs, st.booleans())
def test_a_binding_gate_opens_at_its_predicted_time(history, config, exact):
    """A necessary gate; of the dirty ratio and the maximum lag, the first to open."""
    broker = replayed(history, config, exact=exact)
    decision = decided(broker)
    binding = decision.binding
    if binding is None or not decision.is_candidate:
        return
    times_ms = [binding.opens_at_ms]
    if binding.gate == "dirty_ratio":
        times_ms.append(gates_of(broker)["max_compaction_lag"].opens_at_ms)
    gives_way = min((time_ms for time_ms in times_ms if time_ms is not None), default=None)
    if gives_way is None:
        later = decided(at(history, config, broker.clock.now_ms() + LONG_MS, exact=exact))
        assert later.binding.gate == binding.gate
        assert decision.opens_at_ms is None
        return
    for time_ms, binds in ((gives_way - 1, True), (gives_way, False)):
        later = decided(at(history, config, time_ms, exact=exact)).binding
        assert (later is not None and later.gate == binding.gate) is binds, (binding, time_ms)
    assert decision.opens_at_ms is None or decision.opens_at_ms >= gives_way


# -- each gate that time can open --------------------------------------------------------------

COMPACT = {"cleanup.policy": "compact", "segment.bytes": 10_000, "min.cleanable.dirty.ratio": 0}
PUT = ("append", 1, False)
ROLL = ("roll", 0, False)
CLEAN = ("clean", 0, True)


def passing(ms):
    return ("pass", ms, False)


def story(config, *history):
    return list(history), COMPACT | config


LAGS = {"min.compaction.lag.ms": 700}
OVERDUE = {"max.compaction.lag.ms": 3000, "min.cleanable.dirty.ratio": 1.0}
MIXED = LAGS | OVERDUE
STORIES = {
    "young": (*story(LAGS, PUT, passing(100), ROLL), "min_compaction_lag", 700),
    "young by its timestamp": (
        *story(LAGS, ("append at", 5000, False), ROLL),
        "min_compaction_lag",
        5700,
    ),
    "undated, as old as its file": (
        *story(LAGS, passing(50), ("append undated", -1, False), passing(100), ROLL),
        "min_compaction_lag",
        750,
    ),
    "more and more of it is old enough": (
        *story(
            LAGS | {"min.cleanable.dirty.ratio": 0.5},
            *(PUT, PUT, PUT, ROLL, CLEAN),
            *(PUT, passing(200), ROLL, PUT, PUT, PUT, ROLL, passing(500)),
        ),
        "dirty_ratio",
        900,
    ),
    "overdue in a closed segment": (*story(OVERDUE, PUT, ROLL), "dirty_ratio", 3001),
    "overdue, but too young": (
        *story(MIXED, PUT, passing(2900), ("append at", 0, False), ROLL),
        "min_compaction_lag",
        3600,
    ),
    "overdue while it is active": (*story(OVERDUE, PUT), "active_segment", 3001),
    "rolled, yet too young": (
        *story(MIXED, PUT, passing(2900), ("append at", 0, False)),
        "active_segment",
        3600,
    ),
    "rolled, and so dirty enough": (
        *story(
            {"max.compaction.lag.ms": 3000, "min.cleanable.dirty.ratio": 0.5},
            *(PUT, PUT, ROLL, CLEAN, passing(10), PUT, ROLL, PUT, PUT),
        ),
        "dirty_ratio",
        3011,
    ),
    "overdue below an open transaction": (
        *story(OVERDUE, PUT, ROLL, ("transaction", 1, False), ROLL),
        "dirty_ratio",
        3001,
    ),
}


@pytest.mark.parametrize(
    ("history", "config", "binding", "opens_ms"), STORIES.values(), ids=STORIES
)
def test_the_predicted_time_of_a_history(history, config, binding, opens_ms):
    broker = replayed(history, config)
    decision = decided(broker)
    assert decision.binding.gate == binding
    assert decision.opens_at_ms == T + opens_ms
    assert not cleaned(at(history, config, T + opens_ms - 1))
    assert cleaned(at(history, config, T + opens_ms))


@pytest.mark.parametrize(
    ("history", "config", "binding"),
    (
        (*story({}, PUT), "active_segment"),
        (*story({}, PUT, ROLL, CLEAN), "active_segment"),
        (*story(MIXED, ("transaction", 1, False), ROLL, PUT, ROLL), "last_stable_offset"),
        (*story(OVERDUE, ("append undated", -1, False), ROLL), "dirty_ratio"),
        (*story(OVERDUE, ("append undated", -1, False)), "active_segment"),
        (*story({"cleanup.policy": "delete"}, PUT, ROLL), "policy"),
        (*story(OVERDUE), "empty"),
    ),
)
def test_gates_that_time_alone_does_not_open(history, config, binding):
    decision = decided(replayed(history, config))
    assert (decision.binding.gate, decision.opens_at_ms) == (binding, None)
    later = at(history, config, T + 400 * 86_400_000)
    assert decided(later).binding.gate == binding
    assert not cleaned(later)


def test_a_dry_run_does_not_roll_partitions_that_are_not_cleaned():
    history, config = story(OVERDUE | {"cleanup.policy": "delete"}, PUT)
    gate = gates_of(at(history, config, T + LONG_MS))["active_segment"]
    assert (gate.open, gate.value, gate.threshold) == (False, 0, 0)


def test_kafka_itself_rolls_no_idle_segment():
    history, config, _, _ = STORIES["overdue while it is active"]
    decision = decided(replayed(history, config, exact=True))
    assert (decision.binding.gate, decision.opens_at_ms) == ("active_segment", None)
    assert not cleaned(at(history, config, T + LONG_MS, exact=True))


# -- the open segment --------------------------------------------------------------------------


@settings(max_examples=50)
@given(steps, configs, st.sampled_from([900, 2500]))
def test_an_active_segment_rolls_at_the_predicted_time(history, config, segment_ms):
    """By an append at that time but not a millisecond earlier, or by an idle roll."""
    config = config | {"segment.ms": segment_ms, "segment.bytes": 10_000}
    broker = replayed(history, config)
    active = broker.explain("t").partitions[0].active_segment
    now = broker.clock.now_ms()
    for closing in active.closings:
        if closing.at_ms is None:
            continue
        for time_ms, closes in ((closing.at_ms - 1, False), (closing.at_ms, True)):
            if time_ms < now:
                continue
            later = at(history, config, time_ms)
            if closing.needs_append:
                later.append("t", key=b"k", value=b"")
            else:
                later.clean("t")
            base = later.log("t").active_segment.base_offset
            assert (base > active.base_offset) is closes, closing


# -- a dry run ---------------------------------------------------------------------------------


@given(steps, configs, st.booleans(), st.booleans())
def test_a_dry_run_is_the_real_run(history, config, force, roll):
    """Equal except for `dry_run` and the times; nothing changes on disk, including rolls."""
    fs = MemoryFileSystem(VirtualClock(T))
    broker = replayed(history, config, fs)
    before = state_of(broker)
    dry = broker.clean("t", force=force, roll=roll, dry_run=True).to_json()
    assert state_of(broker) == before
    real = broker.clean("t", force=force, roll=roll).to_json()
    assert (dry.pop("dry_run"), real.pop("dry_run")) == (True, False)
    first = [each for each in real["cleaned"] if each["pass"] == 1]
    for each in (*dry["cleaned"], *first):
        del each["index_ms"], each["clean_ms"]
        assert sum(each["fates"].values()) >= each["messages_read"]
    assert dry["cleaned"] == first
    if real["cleaned"] == first or force:
        assert (dry["passes_needed"], dry["not_cleaned"]) == (
            real["passes_needed"],
            real["not_cleaned"],
        )


def state_of(broker):
    log = broker.log("t")
    files = broker.runtime.fs.list_dir(log.directory)
    sizes = [broker.runtime.fs.stat(f"{log.directory}/{name}") for name in files]
    return files, sizes, log.log_end_offset, broker.cleaner.checkpoints.of(TP)


@pytest.mark.parametrize("keys", (40, 400))
def test_a_dry_run_counts_the_passes_of_a_small_map(keys):
    """24 slots of which 0.9 may be used: 21 keys a pass."""
    from logstore.cleaner.config import CleanerConfig

    with Broker(clock=VirtualClock(T)) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact", "segment.bytes": 2000})
        broker.append_many("t", [(b"%d" % n, b"v") for n in range(keys)], batch_records=5)
        broker.roll("t")
        broker.cleaner.config = CleanerConfig(dedupe_buffer_bytes=24 * 24)
        dry = broker.clean("t", force=True, dry_run=True)
        assert [stats.pass_number for stats in dry.cleaned] == [1]
        real = broker.clean("t", force=True)
        assert dry.passes_needed == real.passes_needed == {TP: -(-keys // 21)}
        assert len(real.cleaned) == real.passes_needed[TP]
