"""What settings would do: which partitions are looked at, and how much of them is read."""

import pytest

from logstore import Broker, InvalidConfigurationError, UnknownTopicOrPartitionError, VirtualClock
from logstore.analysis import losses
from tests.support.world.messages import exactly

T = 1_704_067_200_000


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock(), seed=5) as broker:
        broker.create_topic("t", 2, configs={"segment.bytes": "400"})
        for number in range(20):
            broker.append("t", value=b"v" * 60, key=b"k%d" % (number % 3), partition=0)
            broker.clock.advance(minutes=1)
        yield broker


def test_a_cleaning_is_run_to_the_end_and_nothing_changes(broker):
    before = broker.topic("t"), broker.log("t").size_bytes
    told = broker.preview("t", set={"cleanup.policy": "compact", "delete.retention.ms": "1h"})
    first, empty = told.partitions
    assert first.before.explanation.binding == "policy"
    assert first.before.horizon_ms is None
    assert first.after.explanation.first_pass.fates["superseded"] > 10
    assert first.after.horizon_ms == broker.clock.now_ms() + 3_600_000
    assert empty.after.explanation.binding == "empty"
    assert [each.key for each in told.changed] == ["delete.retention.ms", "cleanup.policy"]
    assert not told.loss
    assert (broker.topic("t"), broker.log("t").size_bytes) == before


def test_partitions_that_are_not_due_are_cleaned_as_of_their_due_time(broker):
    given = {"cleanup.policy": "compact", "min.compaction.lag.ms": "1d"}
    first = broker.preview("t", 0, set=given).partitions[0].after
    assert (first.explanation.binding, first.explanation.first_pass) == ("min_compaction_lag", None)
    assert first.explanation.opens_at_ms is not None
    assert first.later_pass.fates["retained"] == 3
    assert first.later_passes_needed == 1


def test_a_quick_one_reads_no_record(broker):
    told = broker.preview("t", 0, set={"cleanup.policy": "compact"}, quick=True).partitions[0]
    assert told.after.explanation.will_clean
    assert told.after.explanation.first_pass is told.after.explanation.tombstones is None
    assert "quick" in told.unread
    told = broker.preview("t", 0, set={"cleanup.policy": "delete"}, quick=True).partitions[0]
    assert told.unread is None  # no cleaning pass would read anything


def test_data_above_the_read_limit_is_omitted_and_reported(broker):
    given = {"cleanup.policy": "compact"}
    told = broker.preview("t", set=given, read_bytes_max=100).partitions[0]
    assert "exceed the read limit" in told.unread
    assert told.after.explanation.first_pass is None
    told = broker.preview("t", set=given, partitions_max=1)
    assert (len(told.partitions), told.left_out) == (1, 1)


def test_broker_settings_concern_the_topics_that_go_by_them(broker):
    broker.create_topic("own", configs={"retention.ms": "1h"})
    told = broker.preview(set={"log.retention.ms": "300000"})
    assert {each.topic for each in told.partitions} == {"t"}
    assert told.changed[0].key == "log.retention.ms"
    goes = told.partitions[0].after.retention.removed
    assert told.loss.size_bytes == sum(each.size_bytes for each in goes) > 0
    assert "can still be read" in told.loss.text
    assert broker.describe_configs("t")["retention.ms"].value == "604800000"
    broker.alter_broker_configs({"log.retention.ms": "300000"})
    undone = broker.preview(unset=["log.retention.ms"])
    assert undone.partitions[0].after.retention.removed == ()


def test_a_preview_rejects_the_same_values_as_the_change(broker):
    with pytest.raises(InvalidConfigurationError, match="nearest") as told:
        broker.preview("t", set={"retention.mss": "1"})
    assert (told.value.key, told.value.nearest) == ("retention.mss", "retention.ms")
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly("retention.ms cannot be set and unset at the same time"),
    ):
        broker.preview("t", set={"retention.ms": "1"}, unset=["retention.ms"])
    with pytest.raises(InvalidConfigurationError, match="cannot be changed"):
        broker.preview(set={"log.dirs": "/tmp"})
    with pytest.raises(UnknownTopicOrPartitionError, match=exactly("unknown topic 'nowhere'")):
        broker.preview("nowhere", set={"retention.ms": "1"})


def test_another_limit_of_unfolding_stops_the_cleaning(broker):
    broker.append("t", value=b"v" * 2000, key=b"k", partition=1, compression="gzip")
    given = {"cleanup.policy": "compact", "logstore.decompression.max.bytes": "100"}
    told = broker.preview("t", 1, set=given).partitions[0].after.explanation
    assert told.binding == "uncleanable"
    broker.alter_configs("t", given)
    report = broker.clean("t", 1, force=True, roll=True)
    assert report.not_cleaned[0].reason == "uncleanable"


def test_an_uncleanable_partition_stays_so(broker):
    broker.alter_configs("t", {"cleanup.policy": "compact"})
    log = broker.log("t")
    broker.cleaner.uncleanable_partitions.add(log.topic_partition, ValueError("damage"))
    told = broker.preview("t", 0, set={"min.cleanable.dirty.ratio": "0"}).partitions[0]
    assert told.after.explanation.binding == "uncleanable"
    assert told.after.later_pass is None


def test_under_other_strategies_the_last_clean_record_competes_again(broker):
    broker.alter_configs("t", {"cleanup.policy": "compact"})
    broker.clean("t", 0, force=True, roll=True)
    end = broker.log("t").log_end_offset
    told = broker.preview("t", 0, set={"compaction.strategy": "timestamp"}).partitions[0]
    assert told.before.explanation.first_dirty_offset == end
    assert told.after.explanation.first_dirty_offset == end - 1


def test_of_a_large_log_offsets_are_counted_instead_of_records(broker, monkeypatch):
    log = broker.log("t")
    assert losses.lost_with([log]).is_counted
    monkeypatch.setattr(losses, "COUNTED_BYTES_MAX", 100)
    told = losses.lost_with([log])
    assert (told.records, told.is_counted) == (20, False)
    assert told.text.startswith("up to 20 records")
    assert told.to_json()["from_ms"] == T


def test_forcing_a_cleaning_loses_what_a_lag_promises(broker):
    broker.alter_configs("t", {"cleanup.policy": "compact", "min.compaction.lag.ms": "10m"})
    log = broker.log("t")
    told = losses.lost_by_forced_cleaning(broker.cleaner, log, roll=True)
    before = {record.offset for record in broker.read("t", 0)}
    with broker.fork() as other:
        other.clean("t", force=True, roll=True)
        forced = {record.offset for record in other.read("t", 0)}
    with broker.fork() as other:
        other.alter_configs("t", {"min.cleanable.dirty.ratio": "0"})
        other.clean("t", roll=True)
        allowed = {record.offset for record in other.read("t", 0)}
    assert forced < allowed < before
    assert told.records == len(allowed - forced)
    broker.alter_configs("t", {}, unset=["min.compaction.lag.ms"])
    assert not losses.lost_by_forced_cleaning(broker.cleaner, log, roll=True)


def test_damage_that_would_prevent_cleaning_is_reported(broker, tmp_path):
    """In a copied directory, where damage is passed over; as `explain` meets it."""
    with Broker(tmp_path, clock=VirtualClock()) as written:
        written.create_topic("t", configs={"segment.bytes": "400"})
        for number in range(20):
            written.append("t", value=b"v" * 60, key=b"k%d" % (number % 3))
    damaged = min((tmp_path / "t-0").glob("*.log"))
    data = bytearray(damaged.read_bytes())
    data[200] ^= 1
    damaged.write_bytes(data)
    given = {"cleanup.policy": "compact"}
    options = {"clock": VirtualClock(T + 10), "read_only": True, "on_damage": "pass_over"}
    with Broker(tmp_path, **options) as copied:
        told = copied.preview("t", set=given).partitions[0].after.explanation
    with Broker(tmp_path, **options) as copied:
        copied.override_configs("t", given)
        (explained,) = copied.explain("t").partitions
    assert told.binding == explained.binding == "uncleanable"
    assert told.damages == explained.damages != ()
    assert told.gates == explained.gates
    assert damaged.read_bytes() == data


DAY_MS = 86_400_000
KEPT = {
    "retained": 3,
    "superseded": 17,
    "tombstone_expired": 0,
    "aborted": 0,
    "control_expired": 0,
    "null_key": 0,
}
BY_POLICY = (False, "policy", 1, None, None, 0, [], 7 * DAY_MS - 18 * 60_000 + 1, None)
DUE = (True, None, 1, None, None, 0, [], None, DAY_MS)
COMPACT = {"cleanup.policy": "compact"}
AGED = {"cleanup.policy": "compact,delete", "retention.ms": "600001"}


def shown(outlook, now_ms):
    """Return the values of an outlook, times from now."""
    told = outlook.explanation
    times = outlook.next_expiry_ms, outlook.horizon_ms
    return (
        told.will_clean,
        told.binding,
        told.passes_needed,
        told.first_pass and dict(told.first_pass.fates),
        outlook.later_pass and dict(outlook.later_pass.fates),
        outlook.later_passes_needed,
        [each.base_offset for each in outlook.retention.removed],
        *(ms if ms is None else ms - now_ms for ms in times),
    )


@pytest.mark.parametrize(
    ("own", "given", "options", "before", "after", "unread"),
    (
        (
            {},
            AGED,
            {},
            BY_POLICY,
            (True, None, 1, KEPT, None, 0, [0, 3, 6], -479_998, DAY_MS),
            None,
        ),
        (
            {},
            AGED,
            {"quick": True},
            BY_POLICY,
            (True, None, 1, None, None, 0, [0, 3, 6], -479_998, DAY_MS),
            "a quick preview reads no records (7860 bytes)",
        ),
        (
            {},
            COMPACT | {"min.cleanable.dirty.ratio": "1"},
            {},
            BY_POLICY,
            (False, "dirty_ratio", 1, None, KEPT, 1, [], None, None),
            None,
        ),
        (
            {},
            COMPACT | {"min.compaction.lag.ms": "1d"},
            {},
            BY_POLICY,
            (False, "min_compaction_lag", 0, None, KEPT, 1, [], None, 2 * DAY_MS - 18 * 60_000),
            None,
        ),
        (
            COMPACT,
            {"delete.retention.ms": "5"},
            {"read_bytes_max": 7860},
            DUE,
            (True, None, 1, KEPT, None, 0, [], None, 5),
            None,
        ),
        (
            COMPACT,
            {"delete.retention.ms": "5"},
            {"read_bytes_max": 7859},
            DUE,
            (*DUE[:-1], 5),
            "its 7860 bytes exceed the read limit of this preview",
        ),
        (
            COMPACT,
            {"cleanup.policy": "delete"},
            {},
            DUE,
            BY_POLICY,
            None,
        ),
    ),
)
def test_each_side_uses_its_own_settings(broker, own, given, options, before, after, unread):
    broker.roll("t", 0)
    if own:
        broker.alter_configs("t", own)
    now_ms = broker.clock.now_ms()
    log = broker.log("t", 0)
    told = broker.preview("t", set=given, **options)
    one, two = told.partitions
    sizes = log.size_bytes, len(log.segments)
    assert (one.topic, one.partition, one.size_bytes, one.segments) == ("t", 0, *sizes)
    assert (two.topic, two.partition, two.size_bytes, two.segments) == ("t", 1, 0, 1)
    assert shown(one.before, now_ms) == before
    assert shown(one.after, now_ms) == after
    assert (one.unread, two.unread, told.left_out) == (unread, None, 0)


def test_an_obstacle_stops_both_sides(broker):
    """Damage is met when the records are read, whatever the settings."""
    broker.alter_configs("t", COMPACT)
    broker.roll("t", 0)
    path = broker.log("t", 0).segments.first.log_path
    broker.runtime.fs.open(path, create=True).write_at([b"\xff"], 90)
    one = broker.preview("t", 0, set={"delete.retention.ms": "5"}).partitions[0]
    for side in (one.before, one.after):
        assert side.explanation.binding == "uncleanable"
        assert (side.explanation.will_clean, side.explanation.first_pass) == (False, None)
        assert len(side.explanation.damages) == 1
    told = broker.preview("t", 0, set={"cleanup.policy": "delete"}).partitions[0]
    assert told.after.explanation.binding == "policy"
