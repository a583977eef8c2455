"""What `explain` says of the future holds to the millisecond, and a dry run is the real run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import Broker, TopicPartition, VirtualClock
from logstore.runtime import MemoryFileSystem

TP = TopicPartition("t", 0)
T = 1_700_000_000_000

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("roll"), st.just(0), st.just(False)),
        st.tuples(st.just("pass"), st.integers(1, 5000), st.just(False)),
        st.tuples(st.just("clean"), st.just(0), st.booleans()),
    ),
    min_size=1,
    max_size=25,
)
configs = st.fixed_dictionaries(
    {
        "cleanup.policy": st.sampled_from(["compact", "compact", "compact,delete", "delete"]),
        "min.compaction.lag.ms": st.sampled_from([0, 700, 3000]),
        "max.compaction.lag.ms": st.sampled_from([3000, 9000, 2**63 - 1]),
        "min.cleanable.dirty.ratio": st.sampled_from([0.0, 0.3, 0.5, 1.0]),
        "segment.bytes": st.sampled_from([150, 400, 10_000]),
        "delete.retention.ms": st.just(500),
    }
)


def replayed(history, config, fs=None):
    """A broker over a history; only cleanings that are due happen in it."""
    broker = Broker(clock=VirtualClock(T), seed=1, fs=fs)
    broker.create_topic("t", configs=config)
    for kind, number, is_tombstone in history:
        if kind == "append":
            broker.append("t", None if is_tombstone else b"v" * number, key=b"k%d" % number)
        elif kind == "roll":
            broker.roll("t")
        elif kind == "pass":
            broker.clock.advance(ms=number)
        else:
            broker.clean("t", force=is_tombstone)
    return broker


def cleaned(broker):
    return bool(broker.clean("t").cleaned)


@given(steps, configs)
def test_a_cleaning_happens_at_the_moment_foreseen_and_not_a_millisecond_before(history, config):
    broker = replayed(history, config)
    (explained,) = broker.explain("t").partitions
    decision = explained.decision
    now = broker.clock.now_ms()
    if decision.opens_at_ms is None:
        broker.clock.advance(ms=60_000)
        assert not cleaned(broker)
        return
    if decision.opens_at_ms > now:
        assert not decision.will_clean
        broker.clock.advance(ms=decision.opens_at_ms - now - 1)
        assert not cleaned(replayed_to(history, config, broker.clock.now_ms()))
        broker.clock.advance(ms=1)
    assert cleaned(broker)


def replayed_to(history, config, moment):
    broker = replayed(history, config)
    broker.clock.advance(ms=moment - broker.clock.now_ms())
    return broker


@given(steps, configs)
def test_each_gate_opens_at_its_moment(history, config):
    broker = replayed(history, config)
    decision = broker.explain("t").partitions[0].decision
    now = broker.clock.now_ms()
    for gate in decision.gates:
        if gate.open or gate.opens_at_ms is None:
            continue
        for moment, is_open in ((gate.opens_at_ms - 1, False), (gate.opens_at_ms, True)):
            if moment < now:
                continue
            later = replayed_to(history, config, moment)
            gates = later.explain("t").partitions[0].decision.gates
            assert {g.gate: g.open for g in gates}[gate.gate] is is_open, (gate, moment)


@given(steps, configs, st.booleans(), st.booleans())
def test_a_dry_run_is_the_real_run(history, config, force, roll):
    """Equal but for `dry_run` and the times; nothing is changed, also not a roll."""
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
    return files, sizes, log.log_end_offset, broker.cleaner.checkpoint_of(TP)


@pytest.mark.parametrize("keys", (40, 400))
def test_a_dry_run_counts_the_passes_of_a_small_map(keys):
    """24 slots of which 0.9 may be used: 21 keys a pass."""
    from cleaner.config import CleanerConfig

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
