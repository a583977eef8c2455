"""`broker.crash`: the state after a loss of power, in memory and on a disk."""

from __future__ import annotations

import pytest

from logstore import (
    Broker,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaStorageError,
    SystemClock,
    TopicPartition,
    VirtualClock,
)
from logstore.testing import Contents, CrashMode, FaultyFileSystem, Names
from tests.support.world.brokers import values
from tests.support.world.messages import exactly

USERS = TopicPartition("users", 0)
DURABLE = {"flush.messages": "1"}


@pytest.fixture(params=["memory", "disk"])
def broker(request, tmp_path):
    data_dir = str(tmp_path / "data") if request.param == "disk" else None
    config = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with Broker(data_dir, clock=VirtualClock(), seed=1, broker_config=config) as broker:
        yield broker


def test_unsynced_data_is_removed(broker):
    broker.create_topic("users", configs=DURABLE)
    broker.append("users", value=b"1", key=b"k")
    broker.alter_configs("users", {}, unset=["flush.messages"])
    for _ in range(3):
        broker.append("users", value=b"2", key=b"k")
    with broker.crash() as recovered:
        assert values(recovered) == [b"1"]
        assert recovered.append("users", value=b"3", key=b"k").offset == 1
        assert recovered.clock is broker.clock
        recovered.log("users").flush()
        with recovered.crash() as again:
            assert values(again) == [b"1", b"3"]


def test_a_new_segment_is_gone_or_stays(broker):
    broker.create_topic("users", configs={"segment.bytes": "1048576"})
    broker.append("users", value=b"1")
    broker.roll("users")
    broker.append("users", value=b"2")
    broker.roll("users")
    broker.append("users", value=b"3")
    with broker.crash() as recovered:
        assert values(recovered) == [b"1", b"2"]


def test_a_topic_that_was_created_stays_and_one_deleted_is_removed(broker):
    broker.create_topic("users")
    broker.create_topic("orders")
    broker.delete_topic("users")
    with broker.crash() as recovered:
        assert [topic.name for topic in recovered.topics()] == ["orders"]


def test_a_cleaned_log_stays_clean(broker):
    broker.create_topic("users", configs={"cleanup.policy": "compact", **DURABLE})
    for value in (b"1", b"2", b"3"):
        broker.append("users", value=value, key=b"k")
    broker.clean("users", force=True, roll=True)
    broker.append("users", value=b"4", key=b"j")
    with broker.crash() as recovered:
        assert values(recovered) == [b"3", b"4"]


def test_deleted_records_do_not_return(broker):
    broker.create_topic("users", configs=DURABLE)
    for number in range(5):
        broker.append("users", value=b"%d" % number)
    broker.delete_records({USERS: 3})
    with broker.crash() as recovered:
        assert values(recovered) == [b"3", b"4"]


def test_a_committed_transaction_stays_and_an_open_one_is_aborted(broker):
    broker.create_topic("users")
    for number, ends in enumerate((True, False)):
        producer = broker.producer(transactional_id=f"p{number}")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("users", b"%d" % number)
        producer.flush()
        if ends:
            producer.commit_transaction()
    with broker.crash() as recovered:
        assert values(recovered, isolation="read_committed") == [b"0"]
        with pytest.raises(IllegalStateError, match="power"):
            producer.commit_transaction()
        recovered.producer(transactional_id="p1").init_transactions()
        assert values(recovered, isolation="read_committed") == [b"0"]


def test_a_consumer_continues_with_what_was_committed_durably(broker):
    broker.create_topic("users", configs=DURABLE)
    for number in range(4):
        broker.append("users", value=b"%d" % number)
    consumer = broker.consumer("users", group_id="g", auto_offset_reset="earliest")
    consumer.poll(max_records=2)
    consumer.commit()
    broker.log(*broker.groups.partition_of("g")).flush()
    consumer.poll(max_records=1)
    consumer.commit()
    with broker.crash() as recovered:
        with pytest.raises(IllegalStateError, match="power"):
            consumer.poll()
        heir = recovered.consumer("users", group_id="g", auto_offset_reset="earliest")
        records = heir.poll(timeout_ms=120_000)
        assert [record.value for record in records[USERS]] == [b"2", b"3"]


def test_the_crashed_broker_refuses_any_use_and_can_be_closed(broker):
    broker.create_topic("users")
    log = broker.log("users")
    recovered = broker.crash()
    for use in (
        broker.topics,
        broker.crash,
        log.writer.roll,
        lambda: broker.append("users", value=b""),
    ):
        with pytest.raises(IllegalStateError, match="has lost power"):
            use()
    broker.close()
    broker.close()
    assert recovered.append("users", value=b"1").offset == 0
    recovered.close()


def test_background_work_ends_and_begins_again():
    with Broker(clock=VirtualClock(), background=True) as worker:
        worker.create_topic("users", configs={"retention.ms": "1000", "segment.ms": "1000"})
        worker.append("users", value=b"1")
        worker.log("users").flush()
        with worker.crash() as recovered:
            assert values(recovered) == [b"1"]
            recovered.clock.advance(hours=1)
            recovered.append("users", value=b"2")
            recovered.clock.advance(hours=1)
            assert b"1" not in values(recovered)


class Flusher:
    """A service that makes a log durable as it is stopped."""

    def __init__(self, log):
        self.log = log

    def follow(self, events):
        return ()

    def start(self):
        pass

    def stop(self):
        self.log.flush()


def test_a_sync_during_shutdown_is_too_late(broker):
    broker.create_topic("users")
    broker.append("users", value=b"1")
    broker.manager.services.add(Flusher(broker.log("users")))
    with broker.crash() as recovered:
        assert values(recovered) == []


def test_threads_end_and_the_system_clock_continues():
    with Broker(clock=SystemClock(), background=True) as worker:
        worker.create_topic("users", configs=DURABLE)
        worker.append("users", value=b"1")
        with worker.crash() as recovered:
            assert values(recovered) == [b"1"]


def test_a_listener_ends_and_its_address_is_free_again():
    with Broker() as broker:
        address = broker.listen().bootstrap
        host, _, port = address.rpartition(":")
        with broker.crash() as recovered:
            assert recovered.listen(host, int(port)).bootstrap == address


def test_memory_and_disk_leave_the_same_files(tmp_path):
    def story(broker):
        broker.create_topic("users", configs={"cleanup.policy": "compact"})
        for number in range(40):
            broker.append("users", value=b"x" * number, key=b"%d" % (number % 7))
            if number % 9 == 0:
                broker.roll("users")
            if number == 30:
                broker.clean("users", force=True)
        recovered = broker.crash()
        recovered.append("users", value=b"end", key=b"end")
        recovered.close()

    story(Broker(str(tmp_path / "memory"), clock=VirtualClock(), seed=1))
    in_memory = Broker(clock=VirtualClock(), seed=1)
    fs = in_memory.runtime.fs.base
    story(in_memory)
    folder = tmp_path / "memory" / "users-0"
    on_disk = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert on_disk
    assert on_disk == {
        path.rpartition("/")[2]: found.read(0, found.size)
        for path, found in fs.walk()
        if found is not None and path.startswith("/memory/users-0/")
    }


def test_the_same_seed_leaves_the_same_bytes():
    def run():
        with Broker(clock=VirtualClock(), seed=7) as broker:
            broker.create_topic("users")
            broker.fail("append", nth=3, error="NOT_LEADER_OR_FOLLOWER")
            producer = broker.producer()
            for number in range(9):
                producer.send("users", b"%d" % number)
            broker.roll("users")
            recovered = broker.crash()
        with recovered:
            recovered.append("users", value=b"end")
            log = recovered.log("users")
            return b"".join(bytes(batch.data) for batch in log.reader.batches(0))

    assert run() == run()


# --- faulty file systems, and refusals ------------------------------------------------------


def test_a_faulty_file_system_crashes_at_the_configured_operation():
    for mode, left in (
        (None, [b"1"]),
        (CrashMode(Contents.KEPT, Names.KEPT), [b"1", b"2"]),
    ):
        clock = VirtualClock()
        broker = Broker("/data", clock=clock, fs=FaultyFileSystem(clock), disk_faults=True)
        broker.create_topic("users", configs=DURABLE)
        broker.append("users", value=b"1")
        broker.alter_configs("users", {}, unset=["flush.messages"])
        broker.append("users", value=b"2")
        with broker.crash(mode) as recovered:
            assert values(recovered) == left


def test_a_mode_is_refused_where_it_means_nothing_and_nothing_is_lost(broker):
    broker.create_topic("users")
    broker.append("users", value=b"1")
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "crash modes require fs=FaultyFileSystem(…); other file systems always keep synced data"
        ),
    ):
        broker.crash(CrashMode())
    assert values(broker) == [b"1"]


def test_settings_are_those_of_the_start_under_those_that_were_stored():
    loaded = []
    with Broker(
        clock=VirtualClock(), broker_config={"log.retention.ms": "1000"}, on_load=loaded.append
    ) as broker:
        broker.create_topic("orders")
        broker.append("orders", value=b"1")
        broker.alter_broker_configs({"log.retention.ms": "2000"})
        with broker.crash() as recovered:
            recovered.create_topic("users")
            assert recovered.describe_configs("users")["retention.ms"].value == "2000"
            recovered.alter_broker_configs({"log.retention.ms": None})
            assert recovered.describe_configs("users")["retention.ms"].value == "1000"
    assert [each.topic_partition for each in loaded] == [TopicPartition("orders", 0)]


def test_a_fork_of_a_broker_has_what_was_written():
    with Broker(clock=VirtualClock()) as first:
        first.create_topic("users")
        first.append("users", value=b"1")
        with first.fork() as other:
            assert values(other) == [b"1"]
            with other.crash() as recovered:
                assert values(recovered) == [b"1"]


def test_a_disk_that_cannot_discard_what_is_not_synced(broker, monkeypatch):
    def fail():
        raise OSError(5, "broken")

    monkeypatch.setattr(broker._disk, "lose_power", fail)
    with pytest.raises(KafkaStorageError) as caught:
        broker.crash()
    assert str(caught.value) == "unsynced data cannot be discarded: [Errno 5] broken"
