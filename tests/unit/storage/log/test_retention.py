"""Retention: the behaviour scenarios of group I, the decision against a naive model, its cost."""

import random
from collections import Counter
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import given

from logstore import Broker, VirtualClock
from logstore.config.log_config import LogConfig
from logstore.errors import KafkaStorageError
from logstore.reasons import Reason
from logstore.runtime import Runtime
from logstore.storage.log import NewRecord
from logstore.storage.log.retention import LogBounds, RetentionRule, _Verdict, _walk
from logstore.types import AppendOrigin
from tests.support.world.builders import bases_of, batch, log_name, memory_world, offsets_in
from tests.support.world.faulty import FaultyFileSystem

DAY = 86_400_000
BOTH = ("compact", "delete")

LOG_START, SIZE, TIME = RetentionRule


def build(world, *counts, timestamp=1000, log=None, **config):
    """Return a log with given numbers of one-record batches per segment; 0 is an empty last one."""
    log = log or world.log(**config)
    for number, count in enumerate(counts):
        if number:
            log.writer.roll()
        for offset in range(log.log_end_offset, log.log_end_offset + count):
            log.writer.append_batches(unit(offset, timestamp), AppendOrigin.REPLICATION)
    return log


def unit(offset, timestamp=1000):
    """Build a batch of one record, always of the same size."""
    return batch(offset, timestamp=timestamp, key=b"key", value=b"value")


UNIT = len(unit(0))


def removed(decision):
    return [(verdict.base_offset, verdict.rule) for verdict in decision.removed]


# -- scenarios -------------------------------------------------------------------------------


def test_s084_the_oldest_segment_stays_if_less_than_it_is_too_much(world):
    """S-084: 14 units, limit 10, oldest 5: kept although over the limit; with 15 it is removed."""
    log = build(world, 5, 5, 4, retention_bytes=10 * UNIT, retention_ms=-1)
    decision = log.delete_old_segments()
    assert removed(decision) == []
    assert bases_of(log) == [0, 5, 10]
    exceeded = decision.kept[0].reasons[1]
    assert exceeded.code == "retention.size_exceeded_less"
    assert exceeded.values["excess_bytes"] == 4 * UNIT
    build(world, 1, log=log)
    assert removed(log.delete_old_segments()) == [(0, SIZE)]
    assert log.size_bytes == 10 * UNIT


def test_s085_an_expired_log_keeps_its_end(world):
    """S-085: one empty segment at the log end, which is the log start; appends continue there."""
    log = build(world, 5, 5, 5, timestamp=10, retention_ms=10_000)
    decision = log.delete_old_segments()
    assert decision.rolls
    assert removed(decision) == [(0, TIME), (5, TIME), (10, TIME)]
    assert (bases_of(log), log.active_segment.size_bytes) == ([15], 0)
    assert (log.log_start_offset, log.log_end_offset) == (15, 15)
    assert log.writer.append_records([NewRecord(b"k", b"v")]).first_offset == 15
    assert offsets_in(log) == [15]


def test_s086_the_age_must_exceed_retention_ms(world):
    """S-086: just retention.ms old is kept, one ms older is deleted."""
    now = world.clock.now_ms()
    log = build(world, 1, 1, timestamp=now, retention_ms=10_000)
    world.clock.advance(ms=10_000)
    decision = log.delete_old_segments()
    assert removed(decision) == []
    assert decision.kept[0].expires_at_ms == now + 10_001
    world.clock.set_ms(decision.kept[0].expires_at_ms)
    assert removed(log.delete_old_segments()) == [(0, TIME), (1, TIME)]


def test_s087_unlimited_and_zero_retention(world):
    """S-087: -1 and -1 delete nothing, ever; retention.ms 0 deletes everything in the past."""
    log = build(world, 3, 3, 0, retention_ms=-1, retention_bytes=-1)
    world.clock.advance(days=100_000)
    assert removed(log.delete_old_segments()) == []
    log.set_config(LogConfig(retention_ms=0, segment_index_bytes=4000))
    build(world, 1, timestamp=world.clock.now_ms(), log=log)
    assert removed(log.delete_old_segments()) == [(0, TIME), (3, TIME)]
    assert offsets_in(log) == [6], "written at the current time"
    world.clock.advance(ms=1)
    assert removed(log.delete_old_segments()) == [(6, TIME)]


def test_s088_without_delete_only_the_log_start_counts(world):
    """S-088: expired segments stay; one below the log start is removed."""
    log = build(world, 5, 5, 5, cleanup_policy=("compact",), retention_ms=0, retention_bytes=0)
    decision = log.delete_old_segments()
    assert removed(decision) == []
    assert decision.kept[0].reason == (
        "it ends above the log start offset 0; cleanup.policy compact does not include delete"
    )
    assert log.offsets.maybe_increment_log_start_offset(5)
    assert removed(log.delete_old_segments()) == [(0, LOG_START)]
    assert bases_of(log) == [5, 10]
    assert log.segments.first.base_offset <= log.log_start_offset < bases_of(log)[1]
    log.set_config(LogConfig(cleanup_policy=(), retention_ms=0, segment_index_bytes=4000))
    decision = log.delete_old_segments()
    assert removed(decision) == [], "nor does an empty policy delete"
    assert decision.kept[0].reason.endswith("cleanup.policy (empty) does not include delete")


def test_s089_segments_above_the_high_watermark_are_retained(world):
    """S-089: a segment is removed once the high watermark reaches its successor's base."""
    log = build(world, *[5] * 8)
    log.offsets.set_high_watermark(0)
    decision = log.delete_old_segments()
    assert removed(decision) == []
    assert decision.kept[0].reason.count("its end 5 is above the high watermark 0") == 1
    for watermark in range(25, 31):
        log.offsets.set_high_watermark(watermark)
        log.delete_old_segments()
        assert bases_of(log)[0] == watermark // 5 * 5
        assert log.log_start_offset == bases_of(log)[0] <= log.high_watermark


def test_s090_the_log_start_never_passes_the_high_watermark(world):
    """S-090: 100 expired records, the watermark raised one by one; one empty segment is left."""
    log = build(world, *[10] * 10)
    for watermark in range(101):
        log.offsets.set_high_watermark(watermark)
        log.delete_old_segments()
        assert log.log_start_offset <= log.high_watermark == watermark
    assert (bases_of(log), log.size_bytes) == ([100], 0)


def test_s095_the_walk(world):
    """S-095: ten segments, the active one empty; a predicate sees each with its successor."""
    log = build(world, *[1] * 9, 0)
    asked = []

    def select(predicate):
        asked.clear()

        def asking(segment, following):
            asked.append((segment.base_offset, following and following.base_offset))
            return _Verdict(predicate(segment), "")

        bounds = LogBounds(0, log.high_watermark, log.log_end_offset)
        return len(_walk(log.segments.view, bounds, asking)[0])

    assert select(lambda segment: segment.base_offset <= 5) == 6
    assert asked == [(base, base + 1) for base in range(7)]
    assert select(lambda segment: True) == 9
    assert asked == [(base, base + 1 if base < 9 else None) for base in range(10)]
    build(world, 1, log=log)
    assert select(lambda segment: True) == 10
    log.offsets.set_high_watermark(4)
    assert select(lambda segment: True) == 4
    assert asked == [(base, base + 1) for base in range(4)]


@pytest.mark.parametrize("active_is_empty", (True, False))
def test_s096_the_snapshot_at_the_log_end_remains(world, active_is_empty):
    """S-096: the snapshots of removed segments are removed with them, after the delay."""
    log = world.log(file_delete_delay_ms=1000)
    for sequence in range(3):
        if sequence:
            log.writer.roll()
        data = batch(sequence, producer_id=1, producer_epoch=0, base_sequence=sequence)
        log.writer.append_batches(data, AppendOrigin.REPLICATION)
    if active_is_empty:
        log.writer.roll()
    assert log.delete_old_segments().rolls is not active_is_empty
    world.clock.advance(ms=1001)
    log.delete_expired_files()
    assert list(world.files(".snapshot", ".deleted")) == [f"{3:020d}.snapshot"]
    assert (log.log_start_offset, log.producer_state.snapshot_offsets) == (3, [3])
    assert log.producer_state.entry(1).last_sequence == 2


@pytest.mark.parametrize(
    ("starts", "left"),
    (((0, 5, 10), ((1, 5), (2, 10))), ((0, 7, 10), ((0, 5), (1, 7), (2, 10)))),
)
def test_s097_leader_epochs_follow_the_log_start(world, starts, left):
    """S-097: the epoch that contains the log start begins there from then on."""
    log = world.log()
    for offset in range(15):
        if offset in (5, 10):
            log.writer.roll()
        epoch = sum(offset >= start for start in starts) - 1
        log.writer.append_batches(batch(offset, leader_epoch=epoch), AppendOrigin.REPLICATION)
    log.offsets.set_high_watermark(5)
    assert (0, TIME) in removed(log.delete_old_segments())
    assert log.epochs.entries == left
    log.close()
    assert world.log().epochs.entries == left


def test_s097_a_log_without_records_keeps_its_newest_epoch(world):
    """S-097: everything deleted at offset 100 leaves epoch 1 from 100 on."""
    log = world.log()
    for offset in range(100):
        epoch = int(offset >= 50)
        log.writer.append_batches(batch(offset, leader_epoch=epoch), AppendOrigin.REPLICATION)
    log.delete_old_segments()
    assert log.epochs.entries == ((1, 100),)


# -- the decision ----------------------------------------------------------------------------


def test_a_future_record_keeps_its_segment_and_all_after_it(world):
    future = world.clock.now_ms() + 5 * DAY
    log = build(world, 2)
    build(world, 0, 1, timestamp=future, log=log)
    build(world, 0, 2, log=log)
    decision = log.delete_old_segments()
    assert removed(decision) == [(0, TIME)]
    kept = decision.kept
    assert [verdict.base_offset for verdict in kept] == [2, 3]
    reason = Reason.of("retention.record_in_future", newest_at_ms=future, span_ms=5 * DAY)
    assert reason in kept[0].reasons
    assert kept[0].expires_at_ms == future + 7 * DAY + 1
    assert kept[1].reason == "the earlier segment 2 is retained"
    assert kept[1].expires_at_ms is None


def test_records_without_time_are_as_old_as_their_file(world):
    log = build(world, 1, 1, timestamp=-1, retention_ms=1000)
    written = world.clock.now_ms()
    world.clock.advance(ms=1000)
    kept = log.retention_decision().kept[0]
    reason = Reason.of("retention.file_within", newest_at_ms=written, span_ms=1000, limit_ms=1000)
    assert reason in kept.reasons
    assert kept.expires_at_ms == written + 1001
    world.clock.advance(ms=1)
    assert removed(log.delete_old_segments()) == [(0, TIME), (1, TIME)]


def test_each_rule_applies_to_the_segments_left_by_the_one_before(world):
    now = world.clock.now_ms()
    log = build(world, 2, 2, 2, 2, retention_bytes=4 * UNIT, retention_ms=DAY)
    build(world, 0, 2, timestamp=now, log=log)
    log.offsets.maybe_increment_log_start_offset(3)
    decision = log.delete_old_segments()
    assert removed(decision) == [(0, LOG_START), (2, SIZE), (4, SIZE), (6, TIME)]
    sizes = {"limit_bytes": 4 * UNIT, "segment_bytes": 2 * UNIT}
    assert [verdict.reasons for verdict in decision.segments] == [
        (Reason.of("retention.below_log_start", log_start_offset=3),),
        (Reason.of("retention.size_exceeded", excess_bytes=4 * UNIT, **sizes),),
        (Reason.of("retention.size_exceeded", excess_bytes=2 * UNIT, **sizes),),
        (Reason.of("retention.record_past", newest_at_ms=1000, span_ms=now - 1000, limit_ms=DAY),),
        (
            Reason.of("retention.active"),
            Reason.of("retention.size_within", total_bytes=2 * UNIT, limit_bytes=4 * UNIT),
            Reason.of("retention.record_within", newest_at_ms=now, span_ms=0, limit_ms=DAY),
        ),
    ]
    assert [verdict.end_offset for verdict in decision.segments] == [2, 4, 6, 8, 10]
    assert (decision.log_start_offset, log.log_start_offset) == (8, 8)


def test_at_the_exact_limit_nothing_is_too_much(world):
    log = build(world, 1, 1, retention_bytes=2 * UNIT, retention_ms=-1)
    assert removed(log.delete_old_segments()) == []
    log.set_config(LogConfig(retention_bytes=UNIT, retention_ms=-1, segment_index_bytes=4000))
    assert removed(log.delete_old_segments()) == [(0, SIZE)]
    log.set_config(LogConfig(retention_bytes=0, retention_ms=-1, segment_index_bytes=4000))
    assert log.delete_old_segments().rolls


def test_an_expiry_that_the_high_watermark_delays_has_no_time(world):
    log = build(world, 2, 1)
    log.offsets.set_high_watermark(1)
    kept = log.retention_decision().kept[0]
    assert kept.expires_at_ms is None
    assert kept.reason == "its end 2 is above the high watermark 1"


def test_deciding_touches_no_file(world):
    """Not even a missing time index is created, and a removed one is not recreated."""
    build(world, 2, 2, 1, timestamp=-1).close()
    for base in (0, 2):
        world.fs.remove(world.path(f"{base:020d}.timeindex"))
    world.clock.advance(days=8)
    log = world.log()

    def everything():
        names = world.fs.list_dir(world.directory)
        return world.files(), [world.fs.stat(world.path(name)).mtime_ms for name in names]

    before = everything()
    decision = log.retention_decision(first_dirty_offset=4)
    assert decision.rolls
    assert everything() == before
    log.set_config(LogConfig(retention_ms=9 * DAY, cleanup_policy=BOTH, segment_index_bytes=4000))
    assert log.retention_decision(first_dirty_offset=4).kept[0].expires_at_ms is not None
    assert everything() == before


def test_a_damaged_first_batch_does_not_stop_retention(world):
    """Only the note on merging reads it."""
    now = world.clock.now_ms()
    build(world, 1, 1, 1, timestamp=now).close()
    data = bytearray(world.files()[log_name(0)])
    data[8:12] = b"\0\0\0\1"
    world.write(log_name(0), bytes(data))
    world.clock.advance(days=1)
    log = world.log(cleanup_policy=BOTH, retention_ms=2 * DAY)
    kept = log.retention_decision(first_dirty_offset=2).kept[0]
    assert (kept.expires_at_ms, kept.delayed_by_merging) == (now + 2 * DAY + 1, False)
    world.clock.advance(days=3)
    assert log.delete_old_segments().rolls


# -- merging ---------------------------------------------------------------------------------


def merging_broker(segment_ms=7 * DAY):
    """Return a broker and a topic with three segments of one day each, and an active one."""
    broker = Broker(clock=VirtualClock())
    configs = {"cleanup.policy": "compact,delete", "retention.ms": str(2 * DAY)}
    broker.create_topic("t", configs=configs | {"segment.ms": str(segment_ms)})
    for day in range(3):
        broker.append("t", key=b"day %d" % day, value=b"v")
        broker.roll("t")
        broker.clock.advance(days=1)
    broker.append("t", key=b"active", value=b"v")
    return broker


def test_an_old_segment_with_a_short_span_may_not_have_been_merged():
    """The time span of its records matters, not their age."""
    broker = merging_broker()
    start = broker.clock.now_ms() - 3 * DAY
    broker.clean("t", force=True)
    broker.alter_configs("t", {"retention.ms": str(10 * DAY)})
    broker.clock.set_ms(start + 11 * DAY)
    (decision,) = broker.retain(dry_run=True).decisions
    assert decision.kept[0].delayed_by_merging
    assert decision.kept[0].reasons[-1].code == "retention.maybe_merged"
    broker.alter_configs("t", {"cleanup.policy": "delete"})
    (decision,) = broker.retain(dry_run=True).decisions
    assert decision.kept[0].expires_at_ms is not None
    assert not decision.kept[0].delayed_by_merging


@pytest.mark.parametrize(("segment_ms", "code"), ((7 * DAY, "maybe_merged"), (DAY, "merged")))
def test_merging_delays_expiry_and_the_decision_reports_it(segment_ms, code):
    """A known limit of KIP-354: a merged segment expires with its newest record."""
    broker = merging_broker(segment_ms)
    start = broker.clock.now_ms() - 3 * DAY
    broker.clean("t", force=True)
    assert bases_of(broker.log("t")) == [0, 3]
    (decision,) = broker.retain(dry_run=True).decisions
    kept = decision.kept[0]
    assert kept.delayed_by_merging
    assert kept.expires_at_ms == start + 4 * DAY + 1
    values = {"first_at_ms": start, "at_ms": kept.expires_at_ms}
    assert kept.reasons[-1] == Reason(f"retention.{code}", values)
    assert not decision.kept[1].delayed_by_merging
    broker.clock.set_ms(kept.expires_at_ms)
    (decision,) = broker.retain().decisions
    assert removed(decision) == [(0, TIME)]
    assert not decision.kept[0].delayed_by_merging


def test_retention_by_the_cleaner_reports_merging():
    """It removes segments of compacted topics itself, in the cleaned section."""
    broker = Broker(clock=VirtualClock())
    configs = {"cleanup.policy": "compact,delete", "retention.ms": str(2 * DAY)}
    broker.create_topic("t", configs=configs)
    for day in range(4):
        broker.append("t", key=b"day %d" % day, value=b"v")
        broker.roll("t")
        broker.clock.advance(days=1)
    size = broker.log("t").segments.first.size_bytes
    broker.override_configs("t", {"segment.bytes": str(2 * size)})
    broker.clean("t", force=True)
    assert bases_of(broker.log("t")) == [0, 2, 4]
    broker.clock.advance(days=0.5)
    (decision,) = broker.cleaner.retain()
    assert removed(decision) == [(0, TIME)]
    assert decision.kept[0].delayed_by_merging


def test_a_log_that_was_never_cleaned_was_not_merged():
    """Even with all days in one segment, longer than the current segment.ms."""
    broker = Broker(clock=VirtualClock())
    broker.create_topic("t", configs={"cleanup.policy": "compact,delete", "retention.ms": "100"})
    for _ in range(3):
        broker.append("t", key=b"k", value=b"v")
        broker.clock.advance(ms=60)
    broker.roll("t")
    broker.override_configs("t", {"segment.ms": "10"})
    (decision,) = broker.retain(dry_run=True).decisions
    assert not any(verdict.delayed_by_merging for verdict in decision.segments)
    assert "KIP-354" not in decision.kept[0].reason


def test_segments_that_cleaning_has_left_apart_expire_one_by_one():
    """Each is larger than half of segment.bytes, so that no two are merged."""
    broker = merging_broker()
    broker.override_configs("t", {"segment.bytes": "100"})
    broker.clean("t", force=True)
    assert bases_of(broker.log("t")) == [0, 1, 2, 3]
    (decision,) = broker.retain().decisions
    assert removed(decision) == [(0, TIME)]
    assert not any(verdict.delayed_by_merging for verdict in decision.segments)


# -- against a model -------------------------------------------------------------------------


@dataclass
class KafkaLog:
    """A model of Kafka's three walks, each of which deletes before the next one starts."""

    segments: list  # [base, size, largest timestamp]
    high_watermark: int
    end: int
    start: int
    now: int
    rolled: bool = False
    gone: list = field(default_factory=list)

    def delete(self, rule, should_delete):
        deletable = []
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1] if number + 1 < len(self.segments) else None
            upper = following[0] if following else self.end
            if not (self.high_watermark >= upper and should_delete(segment, following)):
                break
            if following is None and segment[1] == 0:
                break
            deletable.append(segment)
        if not deletable:
            return
        if len(deletable) == len(self.segments):
            self.segments.append([self.end, 0, self.now])
            self.rolled = True
        self.segments = [each for each in self.segments if each not in deletable]
        self.start = max(self.start, self.segments[0][0])
        self.gone += [(each[0], rule) for each in deletable]

    def run(self, config):
        self.delete(LOG_START, lambda _, following: following and following[0] <= self.start)
        if "delete" not in config.cleanup_policy:
            return
        total = sum(size for _, size, _ in self.segments)
        if 0 <= config.retention_bytes <= total:
            diff = total - config.retention_bytes

            def breaches(segment, _):
                nonlocal diff
                if diff - segment[1] < 0:
                    return False
                diff -= segment[1]
                return True

            self.delete(SIZE, breaches)
        if config.retention_ms >= 0:
            self.delete(TIME, lambda each, _: self.now - each[2] > config.retention_ms)


segments = st.lists(
    st.lists(st.sampled_from((-1, 0, 5, 40, 90, 100, 101, 300)), max_size=3), min_size=1, max_size=6
)


@given(
    segments,
    st.sampled_from(((), ("delete",), ("compact",), BOTH)),
    st.sampled_from((-1, 0, 5, 60, 100)),
    st.one_of(st.sampled_from((-1, 0)), st.integers(0, 12).map(lambda n: n * UNIT)),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_the_decision_equals_kafkas_and_is_applied(
    times, policy, retention_ms, retention_bytes, start, watermark
):
    world = memory_world()
    now = world.clock.now_ms()
    config = {
        "cleanup_policy": policy,
        "retention_ms": retention_ms,
        "retention_bytes": retention_bytes,
    }
    log = world.log(**config)
    model = []
    for number, stamps in enumerate(times):
        if number and log.active_segment.size_bytes:
            log.writer.roll()
        # Relative to a time 100 ms before the run, to distinguish -1 from the clock.
        for stamp in stamps:
            timestamp = stamp if stamp < 0 else now + stamp
            log.writer.append_batches(unit(log.log_end_offset, timestamp), AppendOrigin.REPLICATION)
        largest = max([now + stamp for stamp in stamps if stamp >= 0], default=now)
        model = [each for each in model if each[0] != log.active_segment.base_offset]
        model.append([log.active_segment.base_offset, len(stamps) * UNIT, largest])
    world.clock.advance(ms=100)
    end = log.log_end_offset
    log.offsets.maybe_increment_log_start_offset(min(start, end))
    log.offsets.set_high_watermark(max(watermark, log.log_start_offset))
    kafka = KafkaLog(model, log.high_watermark, end, log.log_start_offset, now + 100)
    kafka.run(log.config)

    files = world.files()
    decision = log.retention_decision()
    assert world.files() == files
    assert removed(decision) == kafka.gone
    assert (decision.rolls, decision.log_start_offset) == (kafka.rolled, kafka.start)
    assert [each.base_offset for each in decision.segments] == bases_of(log)
    assert all(verdict.reason for verdict in decision.segments)
    assert log.delete_old_segments() == decision
    assert bases_of(log) == [base for base, _, _ in kafka.segments]
    assert (log.log_start_offset, log.log_end_offset) == (kafka.start, end)
    visible = list(range(max(kafka.start, log.log_start_offset), log.high_watermark))
    assert offsets_in(log) == visible
    assert list(world.files(".log")) == [log_name(base) for base in bases_of(log)]
    assert log.delete_old_segments().removed == (), "a second run finds nothing more"


# -- cost and failures -----------------------------------------------------------------------


def thousand_segments(world):
    """Write a log of 1000 segments with one record each, a ms apart, without the engine."""
    for base in range(1000):
        world.write(log_name(base), batch(base, timestamp=base))
        world.write(f"{base:020d}.index", b"")
        entry = base.to_bytes(8, "big") + bytes(4)
        world.write(f"{base:020d}.timeindex", entry)


def test_a_run_opens_no_file_twice():
    """1000 segments: a run reads the time indexes of the removed segments and of the next one."""
    world = memory_world()
    thousand_segments(world)
    fs = FaultyFileSystem(world.fs)
    runtime = Runtime(world.clock, fs, random.Random(0))
    log = world.log(runtime=runtime, retention_ms=world.clock.now_ms() - 500)

    def operations():
        """Run retention, and count its file operations."""
        before = len(fs.operations)
        log.delete_old_segments()
        return Counter(operation for operation, _ in fs.operations[before:])

    world.clock.set_ms(world.clock.now_ms() - 1000)
    assert operations() == {"open": 1, "read": 1}
    assert operations() == {}
    world.clock.advance(ms=1000)
    counted = operations()
    assert bases_of(log)[0] == 500
    assert counted.pop("rename") == 3 * 500
    assert counted.pop("sync_dir") == 500
    assert counted.pop("open") <= 501
    assert sum(counted.values()) <= 510
    assert operations() == {}


def test_a_decision_that_cannot_read_takes_the_log_offline(world):
    build(world, 1, 1).close()
    fs = FaultyFileSystem(world.fs)
    log = world.log(runtime=Runtime(world.clock, fs, random.Random(0)))
    fs.rule = lambda operation, path: operation == "read" and path.endswith(".timeindex")
    with pytest.raises(KafkaStorageError, match="decide about retention"):
        log.delete_old_segments()
    assert log.is_offline


def test_expiry_has_no_time_beyond_the_last_one(world):
    """A caller that waits for it would sleep until a time that no clock has."""
    last = 2**63 - 1
    log = build(world, 2, 2, timestamp=last - 10, retention_ms=5)
    decision = log.retention_decision()
    assert decision.segments[0].expires_at_ms == last - 10 + 5 + 1
    for retention_ms in (10, 11, last):
        log = build(memory_world(), 2, 2, timestamp=last - 10, retention_ms=retention_ms)
        assert log.retention_decision().segments[0].expires_at_ms == last
        assert log.next_expiry_ms() == last


def test_the_next_expiry_is_the_first_time_at_which_a_segment_expires():
    world = memory_world()
    now = world.clock.now_ms()
    log = build(world, 2, 2, timestamp=now, retention_ms=1000)
    expiry = log.next_expiry_ms()
    assert expiry == log.retention_decision().segments[0].expires_at_ms
    world.clock.set_ms(expiry - 1)
    assert log.delete_old_segments().removed == ()
    world.clock.set_ms(expiry)
    assert (0, TIME) in removed(log.delete_old_segments())
