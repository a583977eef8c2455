"""Offsets committed outside transactions: permissions, caching and expiration."""

import pytest

from logstore.broker import Broker
from logstore.coordinator.groups.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from logstore.coordinator.groups.records import encode_group_key, encode_key
from logstore.coordinator.groups.requests import FetchedOffset, GroupListing, LeavingMember
from logstore.errors import (
    IllegalGenerationError,
    InvalidConfigurationError,
    KafkaStorageError,
    NotCoordinatorError,
    UnknownMemberIdError,
)
from logstore.messages import encode_versioned
from logstore.messages.types import GroupMetadataValue, OffsetCommitValue
from logstore.names import GROUP_OFFSETS_TOPIC
from logstore.storage.log import NewRecord
from logstore.types import DAY_MS, TopicPartition
from tests.support.world.groups import SESSION_MS, GroupBench, settle, wanting

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
FIVE = OffsetAndMetadata(5, "m", 2)
WEEK_MS = 7 * DAY_MS
CHECK_MS = 600_000


@pytest.fixture
def bench():
    bench = GroupBench()
    bench.broker.create_topic("t", 4)
    bench.broker.create_topic("u", 1)
    yield bench
    bench.broker.close()


def stay(member, ms):
    """Let time pass while a member sends heartbeats."""
    for _ in range(-(-ms // (SESSION_MS // 2))):
        member.bench.clock.advance(ms=SESSION_MS // 2)
        assert member.beat() is None


def tombstones(bench):
    log = bench.broker.log(GROUP_OFFSETS_TOPIC)
    return [record.key for _, record in log.reader.records(0) if record.value is None]


# -- permissions -----------------------------------------------------------------------------


def test_before_the_topic_exists_no_group_has_offsets(bench):
    assert bench.groups.fetch("g", [T0, T1]) == dict.fromkeys((T0, T1), FetchedOffset(None))
    assert bench.groups.fetch("g") == {}


def test_a_consumer_with_assigned_partitions_commits_without_a_member(bench):
    assert bench.groups.commit("g", {T0: FIVE, T1: OffsetAndMetadata(6)}) == {T0: None, T1: None}
    assert bench.groups.committed("g") == {T0: FIVE, T1: OffsetAndMetadata(6)}
    assert bench.groups.committed("h") == {}
    assert bench.groups.describe("g").state == "Empty"
    bench.groups.commit("g", {T0: OffsetAndMetadata(7)})
    assert bench.groups.committed("g")[T0] == OffsetAndMetadata(7)
    unknown = TopicPartition("no", 0)
    assert bench.groups.fetch("h", [T0, unknown]) == dict.fromkeys(
        (T0, unknown), FetchedOffset(None)
    )
    bench.reopen()
    assert bench.groups.committed("g") == {T0: OffsetAndMetadata(7), T1: OffsetAndMetadata(6)}


def test_a_member_id_without_generation_commits_to_groups_without_members(bench):
    """A consumer of KIP-848 generates an id, even if it assigns partitions and never joins."""
    assert bench.groups.commit("g", {T0: FIVE}, -1, "generated") == {T0: None}
    assert bench.groups.commit("g", {T0: OffsetAndMetadata(6)}, -1, "generated") == {T0: None}
    assert bench.groups.commit("g", {T0: FIVE}, -1, "", "i") == {T0: None}
    assert bench.groups.commit("g", {T0: FIVE}, 0, "generated") == {T0: "UNKNOWN_MEMBER_ID"}
    sender = ConsumerGroupMetadata("g", -1, "generated")
    bench.groups.check_transactional(sender, {T0: FIVE})
    bench.groups.check_transactional(sender._replace(group_id="new"), {T0: FIVE})
    settle(bench.member())
    assert bench.groups.commit("g", {T0: FIVE}, -1, "generated") == {T0: "UNKNOWN_MEMBER_ID"}
    with pytest.raises(UnknownMemberIdError):
        bench.groups.check_transactional(sender, {T0: FIVE})


def test_a_member_commits_in_its_generation(bench):
    first, second = bench.member(), bench.member()
    settle(first)
    assert first.commit({T0: FIVE}) == {T0: None}
    assert bench.groups.commit("g", {T0: FIVE}) == {T0: "UNKNOWN_MEMBER_ID"}
    assert second.commit({T0: FIVE}) == {T0: "UNKNOWN_MEMBER_ID"}
    second.join()
    assert first.commit({T0: OffsetAndMetadata(6)}) == {T0: None}  # still allowed
    first.join()
    assert first.commit({T0: FIVE}) == {T0: "REBALANCE_IN_PROGRESS"}
    first.generation = 1
    assert first.commit({T0: FIVE}) == {T0: "ILLEGAL_GENERATION"}
    assert bench.groups.committed("g") == {T0: OffsetAndMetadata(6)}


def test_a_generation_of_an_unknown_group(bench):
    assert bench.groups.commit("g", {T0: FIVE}, 1, "m") == {T0: "ILLEGAL_GENERATION"}
    assert bench.groups.list_groups() == []


def test_a_replaced_static_member_cannot_commit(bench):
    first = bench.member(instance="i")
    settle(first)
    bench.member(instance="i").join()
    assert first.commit({T0: FIVE}) == {T0: "FENCED_INSTANCE_ID"}


def test_a_commit_renews_the_session(bench):
    member = bench.member()
    settle(member)
    for _ in range(3):
        bench.clock.advance(ms=SESSION_MS - 1)
        assert member.commit({T0: FIVE}) == {T0: None}


def test_an_invalid_partition_does_not_affect_the_others(bench):
    too_long = OffsetAndMetadata(1, "x" * 4097)
    offsets = {T0: FIVE, T1: too_long, TopicPartition("t", 9): FIVE, TopicPartition("no", 0): FIVE}
    assert list(bench.groups.commit("g", offsets).values()) == [
        None,
        "OFFSET_METADATA_TOO_LARGE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    assert bench.groups.committed("g") == {T0: FIVE}


def test_a_topic_that_refuses_the_record(bench):
    bench.groups.commit("g", {T0: FIVE})
    bench.broker.alter_configs(GROUP_OFFSETS_TOPIC, {"max.message.bytes": "120"})
    error = {T0: "INVALID_COMMIT_OFFSET_SIZE"}
    assert bench.groups.commit("g", {T0: OffsetAndMetadata(6, "x" * 100)}) == error
    assert bench.groups.committed("g") == {T0: FIVE}


def test_a_member_sends_offsets_in_a_transaction(bench):
    """The consumer's generation fences other members (KIP-447)."""
    member = bench.member()
    settle(member)
    producer = bench.broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    whose = ConsumerGroupMetadata("g", member.generation, member.member_id)
    producer.send_offsets_to_transaction({T0: FIVE}, whose)
    assert bench.groups.fetch("g", [T0, T1], require_stable=True) == {
        T0: FetchedOffset(None, "UNSTABLE_OFFSET_COMMIT"),
        T1: FetchedOffset(None),
    }
    assert bench.groups.fetch("g", [T0]) == {T0: FetchedOffset(None)}
    producer.commit_transaction()
    assert bench.groups.fetch("g", require_stable=True) == {T0: FetchedOffset(FIVE)}
    producer.begin_transaction()
    with pytest.raises(IllegalGenerationError):
        producer.send_offsets_to_transaction({T0: FIVE}, whose._replace(generation_id=9))
    producer.abort_transaction()


# -- caching ---------------------------------------------------------------------------------


def test_a_member_of_another_generation_sends_no_offsets_in_a_transaction(bench):
    member = bench.member()
    settle(member)
    whose = ConsumerGroupMetadata("g", member.generation + 1, member.member_id)
    with pytest.raises(IllegalGenerationError) as caught:
        bench.groups.check_transactional(whose, {T0: FIVE})
    assert str(caught.value) == (
        f"group 'g' rejected offsets of member '{member.member_id}' in generation 2:"
        " ILLEGAL_GENERATION"
    )


def test_offsets_that_cannot_be_written_are_logged(bench, monkeypatch, caplog):
    def fail(*_):
        raise KafkaStorageError("the disk failed")

    bench.groups.commit("g", {T0: FIVE})
    monkeypatch.setattr(bench.groups._store, "write_offsets", fail)
    bench.groups.commit("g", {T0: FIVE})
    assert caplog.messages == ["cannot write to __consumer_offsets: the disk failed"]


def test_a_commit_that_cannot_be_written_creates_no_group(bench, monkeypatch):
    def fail(*_):
        raise KafkaStorageError("the disk failed")

    with monkeypatch.context() as patch:
        patch.setattr(bench.groups._store, "write_offsets", fail)
        assert bench.groups.commit("g", {T0: FIVE}) == {T0: "NOT_COORDINATOR"}
    assert bench.groups.list_groups() == []


def test_the_groups_of_a_topic_that_was_created_again_are_gone(bench):
    bench.groups.commit("g", {T0: FIVE})
    owned = bench.groups._store._topic.owned
    bench.broker.delete_topic(GROUP_OFFSETS_TOPIC)
    bench.groups.ensure_stored()
    assert bench.groups._store._topic.owned is not owned
    assert bench.groups.committed("g") == {}


def test_an_offline_partition_is_refused(bench, monkeypatch):
    bench.groups.commit("g", {T0: FIVE})
    log = bench.broker.log(GROUP_OFFSETS_TOPIC)
    monkeypatch.setattr(log, "is_offline", True)
    with pytest.raises(KafkaStorageError) as caught:
        bench.groups._store.partition(0)
    assert str(caught.value) == "__consumer_offsets-0 is offline because its disk failed"


def test_committed_offsets_are_cached(bench, monkeypatch):
    bench.groups.commit("g", {T0: FIVE})
    bench.groups.committed("g")
    log = bench.broker.log(GROUP_OFFSETS_TOPIC)
    monkeypatch.setattr(log.reader, "batches", None)
    for offset in range(50):
        bench.groups.commit("g", {T0: OffsetAndMetadata(offset)})
        assert bench.groups.committed("g") == {T0: OffsetAndMetadata(offset)}


def test_records_of_other_writers_are_read(bench):
    """Records removed by the cleaner are not needed."""
    from logstore.coordinator.groups.records import encode_key, encode_value

    bench.groups.commit("g", {T0: FIVE})
    log = bench.broker.log(GROUP_OFFSETS_TOPIC)
    log.writer.append_records([NewRecord(encode_key("h", T1), encode_value(FIVE, 0))])
    bench.groups.commit("g", {T0: OffsetAndMetadata(6)})
    assert bench.groups.committed("h") == {T1: FIVE}
    log.truncate_to(1)
    assert (bench.groups.committed("g"), bench.groups.committed("h")) == ({T0: FIVE}, {})
    bench.groups.commit("g", {T0: OffsetAndMetadata(7)})
    log.writer.roll()
    bench.broker.clean(GROUP_OFFSETS_TOPIC, force=True)
    assert bench.groups.committed("g") == {T0: OffsetAndMetadata(7)}
    bench.reopen()
    assert bench.groups.committed("g") == {T0: OffsetAndMetadata(7)}


def test_records_of_other_writers_just_before_a_commit_are_read(bench):
    from logstore.coordinator.groups.records import encode_key, encode_value

    bench.groups.commit("g", {T0: FIVE})
    assert bench.groups.committed("g") == {T0: FIVE}
    store = bench.groups._store
    log = bench.broker.log(GROUP_OFFSETS_TOPIC)
    log.writer.append_records([NewRecord(encode_key("h", T1), encode_value(FIVE, 0))])
    store.write_offsets("g", {T0: OffsetAndMetadata(6)})
    assert bench.groups.committed("h") == {T1: FIVE}
    assert bench.groups.committed("g") == {T0: OffsetAndMetadata(6)}


def test_a_damaged_group_is_refused_and_the_others_are_served(bench):
    from logstore.coordinator.groups.records import encode_group_key

    bench.groups.commit("g", {T0: FIVE})
    log = bench.broker.log(GROUP_OFFSETS_TOPIC)
    log.writer.append_records([NewRecord(encode_group_key("bad"), b"\0\3garbage")])
    bench.reopen()
    assert bench.member("bad").join().error == "NOT_COORDINATOR"
    assert bench.groups.describe("bad").error == "NOT_COORDINATOR"
    assert bench.groups.commit("bad", {T0: FIVE}) == {T0: "NOT_COORDINATOR"}
    assert bench.groups.delete(["bad", "g"]) == {"bad": "NOT_COORDINATOR", "g": None}
    producer = bench.broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    with pytest.raises(NotCoordinatorError):
        producer.send_offsets_to_transaction({T0: FIVE}, "bad")


def test_a_read_only_broker_reads_groups_and_changes_nothing(bench):
    member = bench.member()
    settle(member)
    member.commit({T0: FIVE})
    bench.broker.close()
    with Broker("/data", fs=bench.fs, clock=bench.clock, read_only=True) as reader:
        bench.clock.advance(ms=WEEK_MS * 2)
        assert reader.groups.committed("g") == {T0: FIVE}
        assert reader.groups.describe("g").state == "Stable"
        assert [each.group_id for each in reader.groups.list_groups()] == ["g"]
        reading = GroupBench.__new__(GroupBench)
        reading.groups = reader.groups
        with pytest.raises(InvalidConfigurationError):
            reading.member("new").join()
        assert reader.groups.commit("h", {T0: FIVE}) == {T0: "INVALID_CONFIG"}
    bench.open()


# -- expiration ------------------------------------------------------------------------------


def test_offsets_of_groups_without_members_expire_after_their_commit(bench):
    bench.groups.commit("g", {T0: FIVE})
    bench.clock.advance(ms=DAY_MS)
    bench.groups.commit("g", {T1: FIVE})
    bench.clock.advance(ms=WEEK_MS - DAY_MS - 1)
    assert bench.groups.remove_expired() == []
    assert set(bench.groups.committed("g")) == {T0, T1}
    bench.clock.advance(ms=1)
    assert bench.groups.remove_expired() == []
    assert set(bench.groups.committed("g")) == {T1}
    bench.clock.advance(ms=DAY_MS)
    assert bench.groups.remove_expired() == ["g"]
    assert bench.groups.list_groups() == []
    assert len(tombstones(bench)) == 2  # two offsets; the group has no group record


def stored_by_an_old_client(bench, partition, commit_ms, expire_ms):
    """Write an offset with an expiry time, as clients did before version 2 of the value."""
    value = OffsetCommitValue(
        offset=5, metadata="", commit_timestamp=commit_ms, expire_timestamp=expire_ms
    )
    key = encode_key("g", partition)
    record = NewRecord(key, encode_versioned(value, 1), bench.clock.now_ms())
    bench.broker.log(GROUP_OFFSETS_TOPIC).writer.append_record(record)


@pytest.mark.parametrize("retained_ms", (DAY_MS, 4 * WEEK_MS), ids=("sooner", "later"))
def test_an_expiry_time_of_an_old_client_overrides_the_retention(bench, retained_ms):
    bench.groups.commit("g", {T0: FIVE})
    now_ms = bench.clock.now_ms()
    stored_by_an_old_client(bench, T1, now_ms, now_ms + retained_ms)
    bench.reopen()
    assert set(bench.groups.committed("g")) == {T0, T1}
    first, last = sorted(((WEEK_MS, T0), (retained_ms, T1)))
    bench.clock.advance(ms=first[0] - 1)
    bench.groups.remove_expired()
    assert set(bench.groups.committed("g")) == {T0, T1}
    bench.clock.advance(ms=CHECK_MS)
    bench.groups.remove_expired()
    assert set(bench.groups.committed("g")) == {last[1]}
    bench.clock.advance(ms=last[0] - first[0])
    bench.groups.remove_expired()
    assert bench.groups.committed("g") == {}


def test_a_copied_topic_is_not_changed_by_deletions_and_expiry(bench):
    """Its broker may still be running."""
    bench.groups.commit("g", {T0: FIVE, U0: FIVE})
    bench.kill()
    for name in bench.fs.list_dir("/data"):
        if name.endswith(".json"):
            bench.fs.remove(f"/data/{name}")
    bench.open()
    bench.broker.delete_topic("u")
    bench.clock.advance(ms=2 * WEEK_MS)
    assert bench.groups.remove_expired() == []
    assert bench.groups._expiry._idle_ms() is None
    assert bench.groups.committed("g") == {T0: FIVE, U0: FIVE}
    assert tombstones(bench) == []


def test_a_group_stays_while_a_member_id_is_pending(bench):
    """The group's last offset expires before the member joins with its id."""
    bench.groups.commit("g", {T0: FIVE})
    bench.clock.advance(ms=WEEK_MS - 1000)
    member = bench.member(requires_member_id=True)
    assert member.join().error == "MEMBER_ID_REQUIRED"
    bench.clock.advance(ms=2000)
    assert bench.groups.remove_expired() == []
    assert bench.groups.committed("g") == {}
    assert member.join().error is None
    assert (member.joined.generation_id, bench.state()) == (1, "CompletingRebalance")


def test_offsets_of_members_expire_after_the_last_one_left(bench):
    member = bench.member()
    settle(member)
    member.commit({T0: FIVE})
    stay(member, SESSION_MS * 5)
    member.leave()
    bench.clock.advance(ms=WEEK_MS - 1)
    assert bench.groups.remove_expired() == []
    bench.clock.advance(ms=1)
    assert bench.groups.remove_expired() == ["g"]
    assert bench.groups.committed("g") == {}
    assert len(tombstones(bench)) == 2  # the offset, and the group
    bench.reopen()
    assert bench.groups.list_groups() == []


def test_offsets_of_a_topic_that_members_read_stay(bench):
    bench.config["offsets.retention.minutes"] = 1
    bench.restart()
    member = bench.member(topics=("t",))
    settle(member)
    member.commit({T0: FIVE, U0: FIVE})
    stay(member, 65_000)
    bench.groups.remove_expired()
    assert set(bench.groups.committed("g")) == {T0}


def test_offsets_that_a_transaction_is_about_to_replace_stay(bench):
    bench.config["offsets.retention.minutes"] = 1
    bench.config["transaction.max.timeout.ms"] = 2**31 - 1
    bench.restart()
    bench.groups.commit("g", {T0: FIVE})
    producer = bench.broker.producer(transactional_id="x", transaction_timeout_ms=2**31 - 1)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(6)}, "g")
    bench.clock.advance(hours=1)
    assert bench.groups.remove_expired() == []
    assert bench.groups.committed("g") == {T0: FIVE}
    producer.abort_transaction()
    assert bench.groups.remove_expired() == ["g"]


def test_expiry_is_checked_at_kafka_s_interval():
    """Here during calls of the coordinator, and otherwise in a background task."""
    bench = GroupBench(**{"offsets.retention.minutes": 1})
    bench.broker.create_topic("t")
    for _ in range(3):
        bench.groups.commit("g", {T0: FIVE})
        bench.clock.advance(ms=CHECK_MS - 1)
        assert bench.groups.committed("g") == {T0: FIVE}
        bench.clock.advance(ms=1)
        assert bench.groups.committed("g") == {}


def test_offsets_of_a_group_without_the_time_of_its_state_expire_after_their_commit(bench):
    """Kafka stores it since version 2 of the group's record."""
    stored = GroupMetadataValue(protocol_type="consumer", generation=3)
    log = bench.broker.log(bench.groups.partition_for("g"))
    record = NewRecord(encode_group_key("g"), encode_versioned(stored, 1), bench.clock.now_ms())
    log.writer.append_record(record)
    bench.groups.commit("g", {T0: FIVE})
    bench.reopen()
    bench.clock.advance(ms=WEEK_MS - 1)
    assert bench.groups.remove_expired() == []
    bench.clock.advance(ms=1)
    assert bench.groups.remove_expired() == ["g"]


def test_the_coordinator_is_idle_until_the_first_offset_may_expire(bench):
    idle_ms = bench.groups._expiry._idle_ms
    assert idle_ms() is None
    bench.groups.commit("g", {T0: FIVE})
    bench.clock.advance(ms=DAY_MS)
    bench.groups.commit("h", {T0: FIVE})
    bench.groups.commit("g", {T1: FIVE})
    assert idle_ms() == WEEK_MS - DAY_MS
    bench.clock.advance(ms=WEEK_MS - DAY_MS - 1)
    assert idle_ms() == 1
    bench.clock.advance(ms=1)
    assert idle_ms() == 0
    bench.clock.advance(ms=5)
    assert idle_ms() == 0
    bench.groups.remove_expired()
    assert idle_ms() == DAY_MS - 5


@pytest.fixture
def half_readable(monkeypatch):
    """Return a bench with an offset of group 'g', and one of 'h', whose partition is unreadable."""
    bench = GroupBench(**{"offsets.topic.num.partitions": 2})
    bench.broker.create_topic("t", 2)
    for number, group in enumerate(("h", "g")):
        assert bench.groups.partition_of(group).partition == number
        bench.groups.commit(group, {T0: FIVE})
    partition = bench.groups._store.partition

    def failing(number):
        if number == 0:
            raise KafkaStorageError("the disk failed")
        return partition(number)

    monkeypatch.setattr(bench.groups._store, "partition", failing)
    return bench


def test_an_unreadable_group_does_not_hide_the_first_expiry(half_readable):
    assert half_readable.groups._expiry._idle_ms() == WEEK_MS


def test_groups_of_an_earlier_process_expire(bench):
    bench.groups.commit("g", {T0: FIVE})
    bench.reopen()
    bench.clock.advance(ms=WEEK_MS)
    assert bench.groups.remove_expired() == ["g"]


def test_offsets_of_an_earlier_process_are_deleted_with_their_topic(bench):
    bench.groups.commit("g", {T0: FIVE, U0: FIVE})
    bench.reopen()
    bench.broker.delete_topic("t")
    bench.broker.create_topic("t", 4)
    assert bench.groups.committed("g") == {U0: FIVE}


def test_groups_are_loaded_when_the_background_starts():
    bench = GroupBench()
    bench.broker.create_topic("t")
    bench.groups.commit("g", {T0: FIVE})
    bench.broker.close()
    config = bench.config
    with Broker(
        "/data", fs=bench.fs, clock=bench.clock, broker_config=config, background=True
    ) as broker:
        assert [group.group_id for group in broker.groups._groups] == ["g"]


def test_years_of_expiry_in_the_background_pass_at_once():
    bench = GroupBench()
    with Broker(clock=bench.clock, broker_config=bench.config, background=True) as broker:
        broker.create_topic("t")
        broker.groups.commit("g", {T0: FIVE})
        log = broker.log(GROUP_OFFSETS_TOPIC)
        bench.clock.advance(ms=WEEK_MS - CHECK_MS)
        assert log.log_end_offset == 1
        bench.clock.advance(ms=2 * CHECK_MS)
        assert log.log_end_offset == 2
        runs = broker.groups._expiry._task.runs
        bench.clock.advance(days=3650)
        assert broker.groups._expiry._task.runs - runs <= 2


def test_a_group_without_members_is_deleted_with_the_topic_of_its_last_offset(bench):
    bench.groups.commit("lone", {T0: FIVE})
    bench.groups.commit("with others", {T0: FIVE, U0: FIVE})
    settle(bench.member("at work"))
    bench.broker.delete_topic("t")
    states = {
        name: bench.groups.describe(name).state for name in ("lone", "with others", "at work")
    }
    assert states == {"lone": "Dead", "with others": "Empty", "at work": "Stable"}
    bench.restart()
    assert {each.group_id for each in bench.groups.list_groups()} == {"with others", "at work"}


def test_a_group_without_members_is_deleted_with_its_last_offset(bench):
    bench.groups.commit("lone", {T0: FIVE, U0: FIVE})
    assert bench.groups.delete_offsets("lone", [T0]).error is None
    assert bench.groups.describe("lone").state == "Empty"
    assert bench.groups.delete_offsets("lone", [U0]).error is None
    assert bench.groups.describe("lone").state == "Dead"


def test_offsets_are_deleted_with_their_topic(bench):
    bench.groups.commit("g", {T0: FIVE, U0: FIVE})
    bench.broker.delete_topic("u")
    assert set(bench.groups.committed("g")) == {T0}
    bench.broker.create_topic("u")
    assert set(bench.groups.committed("g")) == {T0}
    bench.broker.delete_topic("t")
    bench.restart()
    assert bench.groups.committed("g") == {}


def test_offsets_are_deleted_with_their_topic_though_the_broker_is_killed_at_once(bench):
    bench.groups.commit("g", {T0: FIVE, U0: FIVE})
    bench.broker.delete_topic("u")
    bench.reopen()
    assert bench.groups.committed("g") == {T0: FIVE}


# -- administration --------------------------------------------------------------------------


def test_groups_are_listed_by_state_and_type(bench):
    bench.groups.commit("offsets only", {T0: FIVE})
    member, workers = bench.member("at work"), bench.member("workers", protocol_type="connect")
    settle(member)
    workers.join()
    listed = [
        GroupListing("at work", "consumer", "Stable"),
        GroupListing("offsets only", "", "Empty"),
        GroupListing("workers", "connect", "CompletingRebalance"),
    ]
    assert bench.groups.list_groups() == listed
    assert bench.groups.list_groups(["stable"]) == listed[:1]
    assert bench.groups.list_groups(types=["Classic"]) == listed
    assert bench.groups.list_groups(types=["consumer"]) == []


def test_a_group_is_described(bench):
    member = bench.member(instance="i")
    settle(member)
    (described,) = bench.groups.describe("g").members
    assert described == (member.member_id, "i", "c", "/127.0.0.1", wanting("t"), described[5])
    assert described.assignment == member.synced.assignment
    assert bench.groups.describe("g")[:4] == ("g", "Stable", "consumer", "range")
    member.join()
    assert bench.groups.describe("g").members[0].metadata == b""
    none = ("none", "Dead", "", "", (), None, "Group none not found.")
    assert bench.groups.describe("none") == none


def test_groups_without_members_are_deleted(bench):
    member = bench.member()
    settle(member)
    member.commit({T0: FIVE})
    bench.groups.commit("h", {T0: FIVE})
    assert bench.groups.delete(["g", "h", "none"]) == {
        "g": "NON_EMPTY_GROUP",
        "h": None,
        "none": "GROUP_ID_NOT_FOUND",
    }
    member.leave()
    assert bench.groups.delete(["g"]) == {"g": None}
    assert bench.groups.list_groups() == []
    bench.reopen()
    assert bench.groups.list_groups() == []
    assert bench.member().join().generation_id == 1


def test_a_group_of_the_first_generation_is_deleted_from_the_log():
    bench = GroupBench(**{"group.initial.rebalance.delay.ms": 3000})
    bench.broker.create_topic("t", 2)
    bench.member().join()
    bench.groups.leave("g", [LeavingMember(bench.groups.describe("g").members[0].member_id)])
    bench.clock.advance(ms=3000)
    assert bench.state() == "Empty"
    assert bench.groups.delete(["g"]) == {"g": None}
    assert tombstones(bench) == [encode_group_key("g")]
    bench.reopen()
    assert bench.groups.list_groups() == []


def test_offsets_of_a_deleted_topic_are_deleted_though_another_group_is_unreadable(half_readable):
    half_readable.broker.delete_topic("t")
    half_readable.broker.create_topic("t", 2)
    assert half_readable.groups.committed("g") == {}


def test_offsets_of_a_deleted_topic_are_deleted_though_another_offset_is_damaged(bench):
    bench.groups.commit("g", {T0: FIVE})
    log = bench.broker.log(GROUP_OFFSETS_TOPIC)
    log.writer.append_records([NewRecord(encode_key("bad", U0), b"\0\x63")])
    bench.broker.delete_topic("t")
    assert bench.groups.committed("g") == {}


def test_offsets_of_topics_without_subscribers_are_deleted(bench):
    member = bench.member(topics=("t",))
    settle(member)
    member.commit({T0: FIVE, U0: FIVE})
    unknown = [TopicPartition("none", 0), TopicPartition("t", 4)]
    deleted = bench.groups.delete_offsets("g", [T0, U0, *unknown])
    assert deleted.error is None
    assert deleted.partitions == {
        T0: "GROUP_SUBSCRIBED_TO_TOPIC",
        U0: None,
        **dict.fromkeys(unknown, "UNKNOWN_TOPIC_OR_PARTITION"),
    }
    assert set(bench.groups.committed("g")) == {T0}
    member.leave()
    log = bench.broker.log(GROUP_OFFSETS_TOPIC)
    known, end = tombstones(bench), log.log_end_offset
    assert bench.groups.delete_offsets("g", [T0, T1]).partitions == {T0: None, T1: None}
    assert tombstones(bench)[len(known) :] == [encode_key("g", T0), encode_group_key("g")]
    assert log.log_end_offset == end + 2
    assert bench.groups.committed("g") == {}
    assert bench.groups.delete_offsets("none", [T0]).error == "GROUP_ID_NOT_FOUND"
    bench.member("workers", protocol_type="connect").join()
    assert bench.groups.delete_offsets("workers", [T0]).error == "NON_EMPTY_GROUP"
