"""The broker's administration: configs, delete-records, offsets, retention, the background."""

import pytest

from logstore import (
    Broker,
    DeleteRecordsResult,
    InvalidConfigurationError,
    OffsetAndTimestamp,
    TopicPartition,
    UnknownTopicOrPartitionError,
    VirtualClock,
)
from logstore.runtime import MemoryFileSystem
from tests.support.world.messages import exactly

A0 = TopicPartition("a", 0)
T = 1_700_000_000_000


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock(T)) as broker:
        yield broker


def fill(broker, timestamps, topic="a", **configs):
    configs = {key.replace("_", "."): value for key, value in configs.items()}
    broker.create_topic(topic, configs={"segment.bytes": 200, **configs})
    for timestamp in timestamps:
        broker.append(topic, value=b"v", key=b"k", timestamp=timestamp)


def test_one_bad_partition_of_a_delete_request_does_not_hide_others(broker):
    fill(broker, range(T, T + 10))
    fill(broker, [T], "compacted", cleanup_policy="compact")
    fill(broker, [T], "both", cleanup_policy=["compact", "delete"])
    results = broker.delete_records(
        {
            TopicPartition("a", 1): 0,
            TopicPartition("none", 0): 0,
            TopicPartition("compacted", 0): 0,
            A0: 4,
            TopicPartition("both", 0): -1,
        }
    )
    assert [result.error for result in results.values()] == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "POLICY_VIOLATION",
        None,
        None,
    ]
    assert results[A0] == DeleteRecordsResult(4)
    assert results[TopicPartition("both", 0)].low_watermark == 1
    assert [r.low_watermark for r in results.values() if r.error] == [-1, -1, -1]
    for offset in (11, -5):
        (result,) = broker.delete_records({A0: offset}).values()
        assert (result.low_watermark, result.error) == (-1, "OFFSET_OUT_OF_RANGE")
        assert "[4, 10]" in result.message
    assert broker.delete_records({A0: 2}) == {A0: DeleteRecordsResult(4)}
    assert [record.offset for record in broker.read("a")] == list(range(4, 10))


def test_deleting_by_time_ends_at_the_first_record_at_or_after_it(broker):
    fill(broker, [T, T + 50, T + 20, T + 60, T + 10, T + 70])
    assert [broker.log("a").reader.first_offset_at(T + t) for t in (0, 1, 51, 61, 70, 71)] == [
        0,
        1,
        3,
        5,
        5,
        6,
    ]
    broker.delete_records({A0: broker.log("a").reader.first_offset_at(T + 51)})
    assert broker.log("a").log_start_offset == 3


def test_deleting_by_time_is_not_misled_by_records_below_the_log_start(broker):
    """A ListOffsets query answers none here (S-082), which would mean to delete everything."""
    broker.create_topic("a", configs={"segment.bytes": 10_000})
    broker.append_many("a", [(b"k", b"v", T + 90), (b"k", b"v", T)], partition=0)
    broker.roll("a")
    broker.append("a", value=b"v", key=b"k", timestamp=T + 50)
    broker.delete_records({A0: 1})
    assert broker.offsets_for_times({A0: T + 10}) == {A0: None}
    assert broker.log("a").reader.first_offset_at(T + 10) == 2


def test_offsets_for_times_and_bounds(broker):
    fill(broker, [T, T + 50, T + 20])
    b0 = TopicPartition("b", 0)
    broker.create_topic("b")
    assert broker.offsets_for_times({A0: T + 1, b0: T}) == {
        A0: OffsetAndTimestamp(1, T + 50, 0),
        b0: None,
    }
    assert broker.offsets_for_times({A0: T + 51}) == {A0: None}
    assert broker.log("a").reader.offset_for_timestamp(-3) == (T + 50, 1, 0)
    broker.delete_records({A0: 2})
    assert [broker.log(tp).log_start_offset for tp in (A0, b0)] == [2, 0]
    assert [broker.log(tp).high_watermark for tp in (A0, b0)] == [3, 0]
    with pytest.raises(ValueError, match=exactly("the timestamp for a-0 must not be negative: -1")):
        broker.offsets_for_times({A0: -1})
    with pytest.raises(UnknownTopicOrPartitionError):
        broker.offsets_for_times({TopicPartition("c", 0): 1})


def test_dry_run_of_retention_predicts_the_real_run(broker):
    fill(broker, range(T, T + 10), retention_ms=1000)
    fill(broker, range(T, T + 3), "b", retention_bytes=0)
    broker.clock.advance(ms=1006)
    dry = broker.retain(dry_run=True)
    assert dry.dry_run
    assert broker.log("a").log_start_offset == broker.log("b").log_start_offset == 0
    real = broker.retain()
    assert (real.decisions, real.dry_run) == (dry.decisions, False)
    removed = real.to_json()["removed"]
    assert dry.to_json()["removed"] == removed
    assert {each["rule"] for each in removed} == {"retention.ms", "retention.bytes"}
    assert set(removed[0]) == {
        *("topic", "partition", "base_offset", "size_bytes", "rule", "reason"),
        *("code", "values", "reasons"),
    }
    assert (
        broker.log("a").log_start_offset == sum(1 for each in removed if each["topic"] == "a") * 2
    )
    assert broker.log("b").log_start_offset == 3
    assert broker.retain("b").to_json()["removed"] == []


def test_configs_are_altered_for_good(broker):
    fill(broker, [T] * 3)
    notes = broker.alter_configs("a", {"cleanup.policy": "dedupe"}, unset=["segment.bytes"])
    assert any("dedupe" in note for note in notes)
    configs = broker.describe_configs("a")
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].origin) == (
        "compact",
        "topic",
    )
    assert configs["segment.bytes"].origin == "default"
    with pytest.raises(InvalidConfigurationError):
        broker.alter_configs("a", {"cleanup.policy": "shred"})
    broker.delete_topic("a")
    assert broker.topics() == []


def test_configs_that_are_no_mapping_are_refused(broker):
    fill(broker, [T])
    for call in (
        lambda: broker.alter_configs("a", 7),
        lambda: broker.create_topic("c", 1, 7),
    ):
        with pytest.raises(TypeError, match="expected a mapping of topic configs, not 7"):
            call()


def test_a_read_only_broker_changes_nothing():
    clock = VirtualClock(T)
    fs = MemoryFileSystem(clock)
    with Broker("/data", clock=clock, fs=fs) as broker:
        fill(broker, [T] * 3, retention_ms=1)
    clock.advance(days=1)
    with Broker("/data", clock=clock, fs=fs, read_only=True, background=True) as broker:
        assert len(broker.retain(dry_run=True).to_json()["removed"]) > 0
        for change in (
            lambda: broker.retain(),
            lambda: broker.delete_records({A0: 1}),
            lambda: broker.alter_configs("a", {}),
            lambda: broker.delete_topic("a"),
        ):
            with pytest.raises(InvalidConfigurationError, match="read-only"):
                change()
        clock.advance(days=1)
        assert broker.log("a").log_start_offset == 0


def test_a_broker_in_the_background_retains_by_itself():
    clock = VirtualClock(T)
    with Broker(clock=clock, background=True) as broker:
        fill(broker, [T] * 4, retention_ms=3_600_000)
        clock.advance(hours=1)
        assert broker.log("a").log_start_offset == 0
        clock.advance(minutes=5)
        assert broker.log("a").log_start_offset == 4
        assert broker.append("a", value=b"v").offset == 4
    with Broker(clock=clock) as broker:
        fill(broker, [T] * 4, retention_ms=1)
        clock.advance(days=1)
        assert broker.log("a").log_start_offset == 0, "nothing happens that is not asked for"


def test_an_explanation_has_what_its_json_has_by_the_same_names(broker):
    """Attributes have the names of the JSON."""
    broker.create_topic("compacted", 2, {"cleanup.policy": "compact"})
    for _ in range(3):
        broker.append("compacted", value=b"v", key=b"k", partition=0)
    broker.roll("compacted", 0)
    for partition in (0, 1):
        (explained,) = broker.explain("compacted", partition).partitions
        item = explained.to_json()
        for name in ("gates", "remedies"):
            assert item.pop(name) == [each.to_json() for each in getattr(explained, name)]
        closings = item.pop("active_segment")["closings"]
        assert closings == [each.to_json() for each in explained.active_segment.closings]
        assert item.pop("tombstones")["records"] == explained.tombstones.records
        assert item.pop("reason") == explained.reason.to_json()
        assert item.pop("verdict") == explained.verdict.to_json()
        first_pass = item.pop("first_pass")
        assert first_pass == (explained.first_pass and explained.first_pass.to_json())
        assert {name: getattr(explained, name) for name in item} == item
        assert explained.topic == "compacted"
        assert explained.partition == partition
        assert explained.will_clean is (partition == 0)
        assert explained.binding == (None if partition == 0 else "empty")
        assert explained.decision.will_clean is explained.will_clean
