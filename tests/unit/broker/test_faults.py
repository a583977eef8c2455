"""`broker.fail`: requests that are refused, late or lose their answer, and disks that fail."""

from __future__ import annotations

from datetime import timedelta

import pytest

from logstore import (
    Broker,
    Cluster,
    CoordinatorNotAvailableError,
    CorruptRecordError,
    InvalidConfigurationError,
    KafkaStorageError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    TopicPartition,
    VirtualClock,
)
from logstore.errors import RequestError
from tests.support.world.brokers import values
from tests.support.world.messages import exactly

LEADER = "NOT_LEADER_OR_FOLLOWER"
LOST = "REQUEST_TIMED_OUT"
USERS = TopicPartition("users", 0)


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock(), seed=1) as broker:
        broker.create_topic("users")
        yield broker


# --- appends ---------------------------------------------------------------------------------


def test_the_second_append_is_refused_and_changes_nothing(broker):
    rule = broker.fail("append", nth=2, error=LEADER)
    broker.append("users", value=b"1")
    with pytest.raises(NotLeaderForPartitionError, match="append of users-0 was refused"):
        broker.append("users", value=b"2")
    broker.append("users", value=b"3")
    assert values(broker) == [b"1", b"3"]
    assert rule.hits == 1


def test_an_append_is_done_and_its_answer_lost(broker):
    with broker.fail("append", error=LOST, after=True), pytest.raises(RequestTimedOutError):
        broker.append("users", value=b"1")
    broker.append("users", value=b"1")
    assert values(broker) == [b"1", b"1"]


@pytest.mark.parametrize("records", ([(b"k", b"v")] * 3, [(b"k", b"v")] * 300))
def test_faults_apply_to_each_batch_of_append_many(broker, records):
    broker.fail("append", nth=3, error=LEADER, topic="users")
    with pytest.raises(NotLeaderForPartitionError):
        broker.append_many("users", records, batch_records=1)
    assert len(values(broker)) == 2


def test_faults_apply_to_prebuilt_batches(broker):
    broker.create_topic("copies")
    broker.append("users", value=b"1")
    batch = next(iter(broker.log("users").reader.batches(0)))
    broker.fail("append", error=LEADER, topic="copies")
    with pytest.raises(NotLeaderForPartitionError):
        broker.append_batches("copies", bytes(batch.data))


def test_a_delay_moves_virtual_time(broker):
    start_ms = broker.clock.now_ms()
    broker.fail("append", delay=timedelta(seconds=3), times=1)
    assert broker.append("users", value=b"1").timestamp == start_ms + 3000
    assert broker.append("users", value=b"2").timestamp == start_ms + 3000


# --- producers -------------------------------------------------------------------------------


@pytest.mark.parametrize("after", (False, True))
def test_a_producer_sends_again_until_it_passes_and_stores_once(broker, after):
    start_ms = broker.clock.now_ms()
    rule = broker.fail("append", times=3, error=LOST, after=after)
    producer = broker.producer(retry_backoff_ms=250)
    assert producer.send("users", b"1").get().offset == 0
    assert producer.send("users", b"2").get().offset == 1
    assert values(broker) == [b"1", b"2"]
    assert rule.hits == 3
    assert broker.clock.now_ms() - start_ms == 750
    assert producer.metrics(raw=True)["record-retry-total"] == 3


def test_a_producer_that_is_not_idempotent_stores_an_unacknowledged_batch_twice(broker):
    broker.fail("append", times=2, error=LOST, after=True)
    producer = broker.producer(enable_idempotence=False)
    assert producer.send("users", b"1").get().offset == 2
    assert values(broker) == [b"1", b"1", b"1"]


def test_a_producer_gives_up_after_its_retries_or_its_time(broker):
    broker.fail("append", error=LEADER)
    start_ms = broker.clock.now_ms()
    producer = broker.producer(enable_idempotence=False, retries=2)
    with pytest.raises(NotLeaderForPartitionError):
        producer.send("users", b"1").get()
    assert broker.clock.now_ms() - start_ms == 200
    producer = broker.producer(delivery_timeout_ms=1000)
    with pytest.raises(KafkaTimeoutError, match="users-0: a batch of 1 records was not delivered"):
        producer.send("users", b"1").get()
    assert broker.clock.now_ms() - start_ms == 200 + 1000
    assert values(broker) == []


@pytest.mark.parametrize("error", (LOST, "TOPIC_AUTHORIZATION_FAILED"))
def test_sequences_of_a_batch_that_was_given_up_are_not_used_again(broker, error):
    """Else the log takes the next batch for that one, and loses it."""
    producer = broker.producer(delivery_timeout_ms=500)
    producer.send("users", b"0").get()
    with broker.fail("append", error=error, after=True):
        assert producer.send("users", b"1").failed()
    assert producer.send("users", b"2").get().offset == 2
    assert values(broker) == [b"0", b"1", b"2"]


def test_a_transaction_that_lost_an_answer_is_aborted_and_the_next_one_counts(broker):
    producer = broker.producer(transactional_id="a")
    producer.init_transactions()
    producer.begin_transaction()
    with broker.fail("append", error="TOPIC_AUTHORIZATION_FAILED", after=True, topic="users"):
        producer.send("users", b"1")
    with pytest.raises(TopicAuthorizationFailedError):
        producer.commit_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("users", b"2")
    producer.commit_transaction()
    assert values(broker, isolation="read_committed") == [b"2"]


# --- fetches ---------------------------------------------------------------------------------


def test_a_read_is_refused(broker):
    broker.append("users", value=b"1")
    with broker.fail("fetch", error=LEADER):
        with pytest.raises(NotLeaderForPartitionError):
            values(broker)
        with pytest.raises(NotLeaderForPartitionError):
            broker.table("users")
    assert values(broker) == [b"1"]


def test_a_consumer_asks_again_after_its_backoff(broker):
    broker.append("users", value=b"1")
    consumer = broker.consumer("users", auto_offset_reset="earliest", retry_backoff_ms=200)
    rule = broker.fail("fetch", times=3, error=LEADER, topic="users")
    start_ms = broker.clock.now_ms()
    assert consumer.poll(timeout_ms=0) == {}
    assert consumer.poll(timeout_ms=0) == {}
    assert rule.hits == 1
    records = consumer.poll(timeout_ms=5000)
    assert [record.value for record in records[USERS]] == [b"1"]
    assert broker.clock.now_ms() - start_ms == 600


def test_a_consumer_reports_corrupt_records(broker):
    broker.append("users", value=b"1")
    consumer = broker.consumer("users", auto_offset_reset="earliest")
    for error, kind in (
        ("TOPIC_AUTHORIZATION_FAILED", TopicAuthorizationFailedError),
        ("CORRUPT_MESSAGE", CorruptRecordError),
    ):
        with broker.fail("fetch", error=error), pytest.raises(kind):
            consumer.poll()
    assert consumer.position(USERS) == 0


def test_an_offset_out_of_range_resets_the_position(broker):
    for number in range(3):
        broker.append("users", value=b"%d" % number)
    consumer = broker.consumer("users", auto_offset_reset="earliest")
    consumer.poll()
    consumer.seek(USERS, 2)
    broker.fail("fetch", nth=1, error="OFFSET_OUT_OF_RANGE")
    assert [record.offset for record in consumer.poll()[USERS]] == [0, 1, 2]


# --- groups ----------------------------------------------------------------------------------


def test_a_commit_is_made_again_as_long_as_it_may(broker):
    broker.append("users", value=b"1")
    consumer = broker.consumer("users", group_id="g", auto_offset_reset="earliest")
    consumer.poll()
    start_ms = broker.clock.now_ms()
    rule = broker.fail("commit", times=2, error="COORDINATOR_NOT_AVAILABLE")
    consumer.commit()
    assert (consumer.committed(USERS), rule.hits) == (1, 2)
    assert broker.clock.now_ms() - start_ms == 200
    broker.fail("commit", error="COORDINATOR_NOT_AVAILABLE", when=lambda c: c.group_id == "g")
    with pytest.raises(KafkaTimeoutError, match="COORDINATOR_NOT_AVAILABLE"):
        consumer.commit(timeout_ms=1000)
    assert broker.clock.now_ms() - start_ms == 1200


def test_an_asynchronous_commit_reports_the_error(broker):
    broker.append("users", value=b"1")
    consumer = broker.consumer("users", group_id="g", auto_offset_reset="earliest")
    consumer.poll()
    with broker.fail("commit", error="COORDINATOR_NOT_AVAILABLE"):
        future = consumer.commit_async()
    assert isinstance(future.exception, CoordinatorNotAvailableError)
    assert consumer.committed(USERS) is None


def test_a_commit_whose_answer_is_lost_counts(broker):
    broker.append("users", value=b"1")
    consumer = broker.consumer("users", group_id="g", auto_offset_reset="earliest")
    consumer.poll()
    with broker.fail("commit", error=LOST, after=True):
        assert consumer.commit_async().failed()
    assert consumer.committed(USERS) == 1


@pytest.mark.parametrize("after", (False, True))
def test_a_join_is_retried_within_one_poll(broker, after):
    broker.append("users", value=b"1")
    rule = broker.fail("join", times=3, error="COORDINATOR_NOT_AVAILABLE", after=after)
    consumer = broker.consumer("users", group_id="g", auto_offset_reset="earliest")
    start_ms = broker.clock.now_ms()
    assert consumer.poll() == {}
    assert rule.hits == 1
    assert len(consumer.poll(timeout_ms=60_000)[USERS]) == 1
    assert rule.hits == 3
    assert 300 <= broker.clock.now_ms() - start_ms < 10_000


def test_a_join_that_is_late_delays_the_poll(broker):
    broker.append("users", value=b"1")
    broker.fail("join", nth=1, delay=2500)
    consumer = broker.consumer("users", group_id="g", auto_offset_reset="earliest")
    start_ms = broker.clock.now_ms()
    consumer.poll()
    assert broker.clock.now_ms() - start_ms >= 2500


# --- disks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_on_disk", (False, True))
def test_a_full_disk_takes_the_directory_offline_until_it_is_opened_again(is_on_disk, tmp_path):
    clock = VirtualClock()
    data_dir = str(tmp_path) if is_on_disk else None
    with Broker(data_dir, clock=clock) as broker:
        broker.create_topic("users", configs={"flush.messages": "1"})
        broker.append("users", value=b"1")
        rule = broker.fail("append", nth=1, error="ENOSPC")
        with pytest.raises(KafkaStorageError, match="No space left"):
            broker.append("users", value=b"2")
        with pytest.raises(
            KafkaStorageError,
            match=exactly(
                "users-0 is offline: cannot append: [Errno 28] No space left on device: "
                "'{path}/00000000000000000000.log'"
            ),
        ):
            broker.append("users", value=b"3")
        assert rule.hits == 1
        with broker.crash() as recovered:
            assert values(recovered) == [b"1"]
            recovered.append("users", value=b"4")
            assert not recovered.faults


def test_a_sync_that_fails_loses_what_it_was_to_keep(broker):
    broker.append("users", value=b"1")
    broker.log("users").flush()
    broker.append("users", value=b"2")
    broker.fail("fsync", nth=1, topic="users")
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        broker.log("users").flush()
    with broker.crash() as recovered:
        assert values(recovered) == [b"1"]


def test_a_slow_disk_advances_time_and_blocks_other_requests(broker):
    served = []
    broker.append("users", value=b"1")
    broker.runtime.scheduler.start()
    broker.runtime.scheduler.schedule("due", lambda: served.append(1), delay_ms=1000)
    broker.fail("fsync", nth=1, delay=5000, when=lambda call: call.path.endswith(".log"))
    start_ms = broker.clock.now_ms()
    broker.log("users").flush()
    assert broker.clock.now_ms() - start_ms == 5000
    assert served == []
    broker.clock.advance(ms=1)
    assert served == [1]


@pytest.mark.parametrize("kind", ("swap", "rename"))
def test_a_swap_that_fails_leaves_all_records(broker, kind):
    broker.create_topic("table", configs={"cleanup.policy": "compact", "flush.messages": "1"})
    for value in (b"1", b"2", b"3"):
        broker.append("table", value=value, key=b"k")
    rule = broker.fail(kind, nth=1, topic="table", when=lambda c: c.target.endswith(".swap"))
    with pytest.raises(KafkaStorageError, match="table-0: cannot replace segments"):
        broker.clean("table", force=True, roll=True)
    assert rule.hits == 1
    with broker.crash() as recovered:
        assert values(recovered, "table") == [b"1", b"2", b"3"]
        recovered.clean("table", force=True, roll=True)
        assert values(recovered, "table") == [b"3"]


def test_a_read_that_fails(broker):
    broker.append("users", value=b"1")
    broker.fail("fetch", error="EIO", nth=1)
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "users-0: cannot read: [Errno 5] Input/output error: "
            "'/memory/users-0/00000000000000000000.log'"
        ),
    ):
        values(broker)


# --- refusals --------------------------------------------------------------------------------


def test_rules_are_listed_and_cleared(broker):
    assert repr(broker.faults) == "[]"
    rule = broker.fail("append", error=LEADER)
    assert list(broker.faults) == [rule]
    broker.faults.clear()
    broker.append("users", value=b"1")


def test_a_disk_that_was_opened_as_it_is_cannot_be_made_to_fail(tmp_path):
    with Broker(str(tmp_path)) as broker:
        broker.create_topic("users")
        for kind, error in (("fsync", None), ("append", "ENOSPC")):
            with pytest.raises(InvalidConfigurationError, match="without disk_faults=True"):
                broker.fail(kind, error=error)
        with pytest.raises(
            InvalidConfigurationError,
            match=exactly(
                "cannot simulate a power failure: the broker was opened without disk_faults=True"
            ),
        ):
            broker.crash()
        assert not broker.faults
        with broker.fail("append", error=LEADER), pytest.raises(NotLeaderForPartitionError):
            broker.append("users", value=b"1")
    with Broker(str(tmp_path), read_only=True, clock=VirtualClock()) as broker:
        with pytest.raises(
            InvalidConfigurationError,
            match=exactly("cannot simulate a power failure: the broker was opened read-only"),
        ):
            broker.crash()
        with broker.fail("fetch", error=LEADER), pytest.raises(NotLeaderForPartitionError):
            values(broker)
    with Broker(str(tmp_path), disk_faults=True) as broker:
        broker.fail("fsync", nth=1)
        with broker.crash() as recovered:
            assert values(recovered) == []


@pytest.mark.parametrize("brokers", (0, 1, 3))
@pytest.mark.parametrize("on_disk", (False, True))
def test_a_predicate_may_append(brokers, on_disk, tmp_path):
    """It runs before the append begins, without a lock, and its own calls do not reach it."""
    data_dir, clock = tmp_path if on_disk else None, VirtualClock()
    if brokers:
        whole = Cluster(brokers, data_dir=data_dir, clock=clock, seed=1)
        whole.create_topic("t", replication_factor=brokers)
        broker = whole.brokers[whole.leader("t", 0)]
    else:
        whole = broker = Broker(data_dir, clock=clock)
        broker.create_topic("t")
    calls, offsets = [], []

    def append(value):
        return whole.append("t", value=value).offset

    def when(call):
        calls.append(call)
        offsets.append(append(b"inner"))
        return len(calls) == 2

    with whole:
        with broker.fail("append", error="INVALID_REQUIRED_ACKS", when=when) as rule:
            offsets.append(append(b"outer"))
            with pytest.raises(RequestError, match="INVALID_REQUIRED_ACKS"):
                append(b"refused")
            offsets.append(append(b"outer"))
        assert sorted(offsets) == list(range(5))
        assert (len(calls), rule.calls, rule.hits) == (3, 1, 1)
