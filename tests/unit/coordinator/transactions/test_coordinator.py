"""The transaction coordinator: states, fencing, timeouts, and its records."""

import logging

import pytest

from logstore import (
    Broker,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    VirtualClock,
)
from logstore.coordinator.transactions.state import (
    LAST_EPOCH,
    ProducerIdAndEpoch,
    TransactionState,
    TransactionVersion,
    decode_key,
    decode_value,
)
from logstore.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidTransactionTimeoutError,
    KafkaStorageError,
    ProducerFencedError,
)
from logstore.names import TRANSACTION_STATE_TOPIC
from tests.support.world.builders import batch
from tests.support.world.locks import HeldLock
from tests.support.world.transactions import Bench, markers

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
MINUTE_MS = 60_000
DAY_MS = 86_400_000


def stored(bench, partition=0):
    """Return the records in a partition of the state topic, oldest first."""
    log = bench.log(TRANSACTION_STATE_TOPIC, partition)
    return [
        record.value and decode_value(decode_key(record.key), record.value)
        for _, record in log.reader.records(log.log_start_offset)
    ]


def states(bench):
    return [each.state.kafka_name for each in stored(bench)]


# -- topic and ids -----------------------------------------------------------------------


def test_the_state_topic_is_created_on_first_use_with_kafka_s_configs():
    bench = Bench(state_partitions=50)
    bench.broker.create_topic("t")
    bench.broker.producer().send("t", b"v")
    assert [topic.name for topic in bench.broker.topics()] == ["t"]
    bench.coordinator.init_producer_id("copy-job", MINUTE_MS)
    topic = bench.broker.topic(TRANSACTION_STATE_TOPIC)
    assert len(topic.partitions) == 50
    assert topic.configs == {
        "cleanup.policy": "compact",
        "compaction.strategy": "offset",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    assert len(stored(bench, 35)) == 1, "the partition of Java's hash of 'copy-job'"


def test_a_new_id_gets_a_producer_id_and_epoch_0_then_the_next_epochs(bench):
    coordinator = bench.coordinator
    assert coordinator.init_producer_id("x", MINUTE_MS) == (0, 0)
    assert coordinator.init_producer_id("y", MINUTE_MS) == (1, 0)
    assert coordinator.init_producer_id("x", 2 * MINUTE_MS) == (0, 1)
    assert states(bench) == ["Empty"] * 3
    assert [each.timeout_ms for each in stored(bench)] == [MINUTE_MS, MINUTE_MS, 2 * MINUTE_MS]
    assert coordinator.new_producer_id() == 2


@pytest.mark.parametrize("timeout_ms", (0, -1, 15 * MINUTE_MS + 1))
def test_a_timeout_out_of_bounds_is_refused(bench, timeout_ms):
    with pytest.raises(InvalidTransactionTimeoutError, match=r"transaction\.max\.timeout\.ms"):
        bench.coordinator.init_producer_id("x", timeout_ms)
    assert bench.coordinator.transactions() == {}
    bench.coordinator.init_producer_id("x", 15 * MINUTE_MS)


def test_an_id_that_is_too_long_is_refused_before_anything_is_written(bench):
    with pytest.raises(InvalidRecordError):
        bench.coordinator.init_producer_id("x" * 32_768, MINUTE_MS)
    assert bench.coordinator.new_producer_id() == 0


def test_epochs_end_at_32766_and_a_new_producer_id_follows(bench):
    producer = bench.coordinator.init_producer_id("x", MINUTE_MS)
    for _ in range(3):
        bench.coordinator.init_producer_id("x", MINUTE_MS)
    give_epoch(bench, LAST_EPOCH - 1)
    assert bench.coordinator.init_producer_id("x", MINUTE_MS) == (producer.producer_id, LAST_EPOCH)
    assert bench.coordinator.init_producer_id("x", MINUTE_MS) == (1000, 0)


def test_a_producer_with_the_last_epoch_can_still_be_fenced(bench):
    """Its transaction is aborted with epoch 32767, which is never assigned to a producer."""
    bench.coordinator.init_producer_id("x", MINUTE_MS)
    give_epoch(bench, LAST_EPOCH - 1)
    producer = bench.coordinator.init_producer_id("x", MINUTE_MS)
    bench.coordinator.add_partitions("x", producer, [T0])
    assert bench.coordinator.init_producer_id("x", MINUTE_MS) == (1000, 1), "0 ended the abort"
    assert markers(bench.log()) == [(0, 0, 32_767, "ABORT", 0)]
    bench.reopen()
    assert bench.coordinator.init_producer_id("x", MINUTE_MS) == (1000, 2)


def give_epoch(bench, epoch):
    """Set the stored epoch of 'x', as after many restarts."""
    from dataclasses import replace

    coordinator = bench.coordinator
    metadata = replace(coordinator.transactions()["x"], producer_epoch=epoch)
    coordinator._log.append(metadata, -1, now_ms=bench.clock.now_ms(), durable=True)
    bench.reopen()


# -- states of a transaction -------------------------------------------------------------


@pytest.mark.parametrize(("commit", "name"), ((True, "Commit"), (False, "Abort")))
def test_a_transaction_passes_through_kafkas_states(bench, commit, name):
    coordinator, clock = bench.coordinator, bench.clock
    start_ms = clock.now_ms()
    producer = coordinator.init_producer_id("x", MINUTE_MS)
    clock.advance(ms=10)
    coordinator.add_partitions("x", producer, [T0])
    clock.advance(ms=10)
    coordinator.add_partitions("x", producer, [T1, T0])
    clock.advance(ms=10)
    coordinator.end_transaction("x", producer, commit=commit)
    assert states(bench) == ["Empty", "Ongoing", "Ongoing", f"Prepare{name}", f"Complete{name}"]
    assert [each.partitions for each in stored(bench)] == [
        set(),
        {T0},
        {T0, T1},
        {T0, T1},
        set(),
    ]
    assert [each.start_ms - start_ms for each in stored(bench)[1:]] == [10] * 4
    assert stored(bench)[0].start_ms == -1
    assert [each.last_update_ms - start_ms for each in stored(bench)] == [0, 10, 20, 30, 30]
    for log in (bench.log("t", 0), bench.log("t", 1)):
        assert markers(log) == [(0, 0, 0, name.upper(), 0)]
    assert markers(bench.log("t", 2)) == []


@pytest.mark.parametrize("version", (TransactionVersion.V0, TransactionVersion.V2))
def test_partitions_are_durable_when_they_have_been_added(bench, version):
    producer = bench.coordinator.init_producer_id("x", MINUTE_MS)
    for partitions in ([T0], [T1]):
        bench.coordinator.add_partitions("x", producer, partitions, version)
        log = bench.log(TRANSACTION_STATE_TOPIC)
        assert log.recovery_point == log.log_end_offset


def test_partitions_that_are_known_are_not_stored_again(bench):
    producer = bench.coordinator.init_producer_id("x", MINUTE_MS)
    bench.coordinator.add_partitions("x", producer, [T0, T1])
    bench.coordinator.add_partitions("x", producer, [T1])
    assert states(bench) == ["Empty", "Ongoing"]


def test_repeating_an_end_is_harmless_with_the_same_outcome(bench):
    coordinator = bench.coordinator
    producer = coordinator.init_producer_id("x", MINUTE_MS)
    for commit in (True, False):
        with pytest.raises(InvalidTxnStateError, match="Empty"):
            coordinator.end_transaction("x", producer, commit=commit)
        coordinator.add_partitions("x", producer, [T0])
        coordinator.end_transaction("x", producer, commit=commit)
        coordinator.end_transaction("x", producer, commit=commit)
        with pytest.raises(InvalidTxnStateError, match="Complete"):
            coordinator.end_transaction("x", producer, commit=not commit)
        producer = coordinator.init_producer_id("x", MINUTE_MS)
    assert len(markers(bench.log())) == 2


def test_markers_bear_the_leader_epoch_of_the_state_topic(bench):
    producer = bench.coordinator.init_producer_id("x", MINUTE_MS)
    log = bench.log(TRANSACTION_STATE_TOPIC)
    log.epochs.assign(5, log.log_end_offset)
    bench.coordinator.add_partitions("x", producer, [T0])
    bench.coordinator.end_transaction("x", producer, commit=True)
    assert markers(bench.log()) == [(0, 0, 0, "COMMIT", 5)]


def test_a_deleted_partition_needs_no_marker(bench):
    bench.broker.create_topic("gone")
    producer = bench.coordinator.init_producer_id("x", MINUTE_MS)
    bench.coordinator.add_partitions("x", producer, [T0, TopicPartition("gone", 0)])
    bench.broker.delete_topic("gone")
    bench.coordinator.end_transaction("x", producer, commit=True)
    assert bench.state() == "CompleteCommit"
    assert len(markers(bench.log())) == 1
    with pytest.raises(UnknownTopicOrPartitionError):
        bench.broker.topic("gone")


def test_a_log_that_knows_a_newer_producer_needs_no_marker(bench, caplog):
    """Another coordinator has ended both transactions."""
    producer = bench.coordinator.init_producer_id("x", MINUTE_MS)
    bench.coordinator.add_partitions("x", producer, [T0, T1])
    bench.log().writer.append_end_txn_marker(producer.producer_id, 5, 0, commit=False)
    bench.coordinator.end_transaction("x", producer, commit=True)
    assert caplog.messages == [f"t-0: the marker of {producer} is outdated: INVALID_PRODUCER_EPOCH"]
    assert bench.state() == "CompleteCommit"
    assert [kind for *_, kind, _ in markers(bench.log())] == ["ABORT"]
    assert [kind for *_, kind, _ in markers(bench.log("t", 1))] == ["COMMIT"]


# -- fencing -------------------------------------------------------------------------------


def test_another_producer_aborts_the_open_transaction_and_fences_its_producer(bench):
    coordinator = bench.coordinator
    older = coordinator.init_producer_id("x", MINUTE_MS)
    coordinator.add_partitions("x", older, [T0])
    newer = coordinator.init_producer_id("x", MINUTE_MS)
    assert newer == (older.producer_id, 2), "epoch 1 was only used for the abort"
    assert markers(bench.log()) == [(0, 0, 1, "ABORT", 0)]
    assert states(bench) == ["Empty", "Ongoing", "PrepareAbort", "CompleteAbort", "Empty"]
    for call in (
        lambda: coordinator.add_partitions("x", older, [T0]),
        lambda: coordinator.end_transaction("x", older, commit=True),
        lambda: coordinator.end_transaction("x", older, commit=False),
        lambda: coordinator.init_producer_id("x", MINUTE_MS, expected=older),
    ):
        with pytest.raises(ProducerFencedError, match="epoch 2 is the newest") as raised:
            call()
        assert raised.value.kafka_error == "PRODUCER_FENCED"
        assert isinstance(raised.value, InvalidProducerEpochError)
    coordinator.add_partitions("x", newer, [T0])


def test_a_producer_may_request_a_new_epoch(bench):
    coordinator = bench.coordinator
    producer = coordinator.init_producer_id("x", MINUTE_MS)
    assert coordinator.init_producer_id("x", MINUTE_MS, expected=producer) == (0, 1)
    for expected in (ProducerIdAndEpoch(9, 1), ProducerIdAndEpoch(9, 0), ProducerIdAndEpoch(0, 2)):
        with pytest.raises(ProducerFencedError):
            coordinator.init_producer_id("x", MINUTE_MS, expected=expected)
    assert states(bench) == ["Empty"] * 2


def test_a_retry_after_a_lost_response_gets_the_same_epoch(bench):
    """A retry returns the same epoch, unless another producer came in between (KIP-360)."""
    coordinator = bench.coordinator
    first = coordinator.init_producer_id("x", MINUTE_MS)
    second = coordinator.init_producer_id("x", MINUTE_MS, expected=first)
    for timeout_ms in (MINUTE_MS, 2 * MINUTE_MS):
        again = coordinator.init_producer_id("x", timeout_ms, expected=first)
        assert again == second == (0, 1)
    assert stored(bench)[-1].timeout_ms == 2 * MINUTE_MS
    coordinator.add_partitions("x", second, [T0])
    coordinator.end_transaction("x", second, commit=True)
    assert coordinator.init_producer_id("x", MINUTE_MS, expected=first) == second
    third = coordinator.init_producer_id("x", MINUTE_MS)
    for expected in (first, second):
        with pytest.raises(ProducerFencedError):
            coordinator.init_producer_id("x", MINUTE_MS, expected=expected)
    fourth = coordinator.init_producer_id("x", MINUTE_MS, expected=third)
    bench.reopen()
    with pytest.raises(ProducerFencedError):  # the previous epoch is not stored
        bench.coordinator.init_producer_id("x", MINUTE_MS, expected=third)
    assert bench.coordinator.init_producer_id("x", MINUTE_MS, expected=fourth) == (0, 4)


def test_requesting_an_epoch_within_a_transaction_aborts_it(bench):
    """As in Kafka 4: the abort bumps the epoch, and the producer continues with it."""
    coordinator = bench.coordinator
    first = coordinator.init_producer_id("x", MINUTE_MS)
    second = coordinator.init_producer_id("x", MINUTE_MS, expected=first)
    coordinator.add_partitions("x", second, [T0])
    with pytest.raises(ProducerFencedError):
        coordinator.init_producer_id("x", MINUTE_MS, expected=ProducerIdAndEpoch(5, 1))
    assert states(bench)[-1] == "Ongoing", "an unknown producer id changes nothing"
    with pytest.raises(ProducerFencedError):
        coordinator.init_producer_id("x", MINUTE_MS, expected=first)
    assert states(bench)[-2:] == ["PrepareAbort", "CompleteAbort"]
    assert coordinator.init_producer_id("x", MINUTE_MS, expected=second) == (0, 2)
    assert coordinator.init_producer_id("x", MINUTE_MS) == (0, 3)


def test_after_a_transaction_timeout_its_producer_may_request_an_epoch(bench):
    """As in Kafka 4, unless the coordinator has restarted since."""
    coordinator = bench.coordinator
    first = coordinator.init_producer_id("x", 1000)
    second = coordinator.init_producer_id("x", 1000, expected=first)
    coordinator.add_partitions("x", second, [T0])
    bench.clock.advance(ms=1001)
    assert coordinator.abort_timed_out() == ["x"]
    with pytest.raises(ProducerFencedError):
        coordinator.init_producer_id("x", MINUTE_MS, expected=first)
    assert coordinator.init_producer_id("x", 1000, expected=second) == (0, 2)
    coordinator.add_partitions("x", ProducerIdAndEpoch(0, 2), [T0])
    bench.clock.advance(ms=1001)
    coordinator.abort_timed_out()
    bench.reopen()
    with pytest.raises(ProducerFencedError):
        bench.coordinator.init_producer_id("x", 1000, expected=ProducerIdAndEpoch(0, 2))


def test_after_the_last_epoch_a_producer_and_its_retry_get_a_new_id(bench):
    coordinator = bench.coordinator
    coordinator.init_producer_id("x", MINUTE_MS)
    give_epoch(bench, LAST_EPOCH)
    last, coordinator = ProducerIdAndEpoch(0, LAST_EPOCH), bench.coordinator
    renewed = coordinator.init_producer_id("x", MINUTE_MS, expected=last)
    assert renewed == (1000, 0)
    assert coordinator.init_producer_id("x", MINUTE_MS, expected=last) == renewed
    other = ProducerIdAndEpoch(last.producer_id, LAST_EPOCH - 1)
    with pytest.raises(ProducerFencedError):
        coordinator.init_producer_id("x", MINUTE_MS, expected=other)


def test_a_missing_or_different_producer_id_is_refused(bench):
    coordinator = bench.coordinator
    coordinator.init_producer_id("x", MINUTE_MS)
    for transactional_id, producer in (
        ("never seen", ProducerIdAndEpoch(0, 0)),
        ("x", ProducerIdAndEpoch(7, 0)),
    ):
        with pytest.raises(InvalidProducerIdMappingError):
            coordinator.add_partitions(transactional_id, producer, [T0])
        with pytest.raises(InvalidProducerIdMappingError):
            coordinator.end_transaction(transactional_id, producer, commit=True)
    assert states(bench) == ["Empty"]


# -- timeouts and expiry ---------------------------------------------------------------------


def test_a_transaction_is_aborted_at_the_next_call_after_its_timeout(bench):
    """Its age counts from the first partition and must exceed the timeout."""
    coordinator = bench.coordinator
    producer = coordinator.init_producer_id("x", MINUTE_MS)
    bench.clock.advance(hours=1)
    coordinator.add_partitions("x", producer, [T0])
    bench.clock.advance(ms=MINUTE_MS)
    coordinator.add_partitions("x", producer, [T1])
    bench.clock.advance(ms=1)
    assert bench.state() == "Ongoing", "timeouts are only checked during calls"
    coordinator.init_producer_id("y", MINUTE_MS)
    assert bench.state() == "CompleteAbort"
    assert markers(bench.log("t", 1)) == [(0, 0, 1, "ABORT", 0)]
    with pytest.raises(ProducerFencedError):
        coordinator.end_transaction("x", producer, commit=True)
    assert coordinator.init_producer_id("x", MINUTE_MS) == (0, 2)


def test_the_background_task_checks_timeouts_every_ten_seconds():
    bench = Bench(background=True)
    bench.broker.create_topic("t")
    producer = bench.coordinator.init_producer_id("x", 5000)
    bench.clock.advance(ms=5000)
    bench.coordinator.add_partitions("x", producer, [T0])
    bench.clock.advance(ms=5000)
    assert bench.state() == "Ongoing", "at 10 s it is 5 s old: exactly its timeout"
    bench.coordinator.add_partitions("x", producer, [TopicPartition("t", 0)])
    bench.clock.advance(ms=9999)
    assert bench.state() == "Ongoing"
    bench.clock.advance(ms=1)
    assert bench.state() == "CompleteAbort"
    bench.broker.close()
    bench.clock.advance(days=30)


@pytest.mark.parametrize("is_alone", (True, False))
def test_after_an_idle_hour_a_timed_out_transaction_is_aborted(is_alone):
    """The task wakes up whether it was idle from the start or since an earlier transaction."""
    with Broker(clock=VirtualClock(), background=True) as broker:
        broker.create_topic("t")
        if not is_alone:
            producer = broker.producer(transactional_id="before")
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v")
            producer.commit_transaction()
        broker.clock.advance(hours=1)
        producer = broker.producer(transactional_id="x")
        producer.init_transactions()
        broker.clock.advance(hours=1)
        producer.begin_transaction()
        producer.send("t", b"v").get()
        log = broker.log("t")
        assert log.last_stable_offset == log.high_watermark - 1
        broker.clock.advance(hours=5)
        assert log.last_stable_offset == log.high_watermark
        assert broker.coordinator.transactions()["x"].state.kafka_name == "CompleteAbort"


def test_a_broker_with_background_tasks_checks_timeouts():
    clock = VirtualClock()
    with Broker(clock=clock, background=True) as broker:
        broker.create_topic("t")
        producer = broker.coordinator.init_producer_id("x", 5000)
        broker.coordinator.add_partitions("x", producer, [T0])
        clock.advance(ms=10_000)
        assert markers(broker.log("t")) == [(0, 0, 1, "ABORT", 0)]


def test_the_brokers_configuration_applies():
    clock = VirtualClock()
    properties = {
        "transaction.state.log.num.partitions": 3,
        "transaction.state.log.segment.bytes": 2_000_000,
        "transaction.state.log.min.isr": 1,
        "transaction.max.timeout.ms": 7000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 2000,
        "transactional.id.expiration.ms": 9000,
    }
    with Broker(clock=clock, background=True, broker_config=properties) as broker:
        assert broker.broker_config.notes == ()
        broker.create_topic("t")
        with pytest.raises(InvalidTransactionTimeoutError):
            broker.coordinator.init_producer_id("x", 7001)
        assert broker.coordinator.init_producer_id("x", 7000) == (0, 0)
        assert broker.coordinator.init_producer_id("x", 1) == (0, 1)
        producer = broker.coordinator.init_producer_id("x", 4500)
        topic = broker.topic(TRANSACTION_STATE_TOPIC)
        assert topic.partitions == (0, 1, 2)
        assert (topic.configs["segment.bytes"], topic.configs["min.insync.replicas"]) == (
            "2000000",
            "1",
        )
        broker.coordinator.add_partitions("x", producer, [T0])
        clock.advance(ms=4999)
        assert markers(broker.log("t")) == []
        clock.advance(ms=1)
        assert len(markers(broker.log("t"))) == 1
        clock.advance(ms=8999)
        assert list(broker.coordinator.transactions()) == ["x"]
        clock.advance(ms=1)
        assert broker.coordinator.transactions() == {}


def test_an_id_expires_after_a_week_without_use(bench):
    coordinator = bench.coordinator
    producer = coordinator.init_producer_id("x", MINUTE_MS)
    open_one = coordinator.init_producer_id("open", MINUTE_MS)
    coordinator.add_partitions("open", open_one, [T0])
    coordinator.end_transaction("open", open_one, commit=True)
    bench.clock.advance(ms=7 * DAY_MS - 1)
    assert coordinator.remove_expired() == []
    bench.clock.advance(ms=1)
    assert coordinator.remove_expired() == ["x", "open"]
    assert stored(bench)[-2:] == [None, None]
    assert coordinator.transactions() == {}
    with pytest.raises(InvalidProducerIdMappingError):
        coordinator.add_partitions("x", producer, [T0])
    bench.reopen()
    assert bench.coordinator.transactions() == {}
    assert bench.coordinator.init_producer_id("x", MINUTE_MS) == (1000, 0)


def test_without_a_background_task_ids_expire_during_calls_at_most_once_an_hour():
    bench = Bench()
    bench.reopen(transactional_id_expiration_ms=MINUTE_MS)

    def after_a_call():
        bench.coordinator.init_producer_id("y", MINUTE_MS)
        return list(bench.coordinator.transactions())

    for _ in range(3):
        bench.coordinator.init_producer_id("x", MINUTE_MS)
        bench.clock.advance(hours=1, ms=-1)
        assert after_a_call() == ["x", "y"]
        bench.clock.advance(ms=1)
        assert after_a_call() == ["y"]
    bench.broker.close()


def test_in_the_background_ids_expire_hourly():
    bench = Bench(background=True)
    bench.coordinator.init_producer_id("x", MINUTE_MS)
    bench.clock.advance(days=7, ms=-1)
    assert list(bench.coordinator.transactions()) == ["x"]
    bench.clock.advance(ms=1)
    assert bench.coordinator.transactions() == {}
    bench.broker.close()


def test_background_tasks_create_no_topic():
    bench = Bench(background=True)
    bench.clock.advance(days=8)
    assert bench.coordinator.abort_timed_out() == bench.coordinator.remove_expired() == []
    assert bench.broker.topics() == []
    bench.broker.close()


def test_reading_the_states_changes_nothing(bench):
    assert bench.coordinator.transactions() == {}
    assert [topic.name for topic in bench.broker.topics()] == ["t"]
    producer = bench.coordinator.init_producer_id("x", MINUTE_MS)
    (metadata,) = bench.coordinator.transactions().values()
    assert (metadata.producer, metadata.state) == (producer, TransactionState.EMPTY)


# -- owners, and decisions ----------------------------------------------------------------------


def test_the_owner_of_an_id_is_its_newest_producer_as_far_as_it_is_in_memory(bench):
    first = ProducerIdAndEpoch(0, 0)
    assert not bench.coordinator.owns("x", first)
    assert bench.coordinator.init_producer_id("x", 60_000) == first
    assert bench.coordinator.owns("x", first)
    assert not bench.coordinator.owns("y", first)
    second = bench.coordinator.init_producer_id("x", 60_000)
    assert not bench.coordinator.owns("x", first)
    assert bench.coordinator.owns("x", second)
    bench.reopen()
    assert not bench.coordinator.owns("x", second)
    bench.coordinator.transactions()
    assert bench.coordinator.owns("x", second)


@pytest.mark.parametrize("commit", (True, False))
def test_a_decision_is_durable_before_any_marker_is_written(bench, commit, monkeypatch):
    producer = bench.coordinator.init_producer_id("x", 60_000)
    bench.coordinator.add_partitions("x", producer, [T0])
    state_log = bench.log(TRANSACTION_STATE_TOPIC)
    host = bench.coordinator._host
    write_markers = host.write_markers
    unflushed = []

    def write_and_note(*args, **kwargs):
        unflushed.append(state_log.log_end_offset - state_log.recovery_point)
        return write_markers(*args, **kwargs)

    monkeypatch.setattr(host, "write_markers", write_and_note)
    bench.coordinator.end_transaction("x", producer, commit=commit)
    assert unflushed == [0]
    assert [kind for *_, kind, _ in markers(bench.log())] == ["COMMIT" if commit else "ABORT"]


def test_a_partition_outside_the_open_transaction_is_not_verified(bench):
    producer = bench.coordinator.init_producer_id("x", 60_000)
    bench.coordinator.add_partitions("x", producer, [T0])
    with bench.coordinator.verified(T0, producer):
        pass
    for whose in (None, "x"):
        with (
            pytest.raises(InvalidTxnStateError, match="state is Ongoing"),
            bench.coordinator.verified(TopicPartition("t", 1), producer, whose),
        ):
            pytest.fail("it must not be verified")


# -- idle times of background tasks --------------------------------------------------------------


def test_expiry_is_idle_until_the_first_id_expires(bench):
    coordinator, idle_ms = bench.coordinator, bench.coordinator._expiry_idle_ms
    assert idle_ms() is None
    coordinator.init_producer_id("x", MINUTE_MS)
    bench.clock.advance(ms=1000)
    coordinator.init_producer_id("y", MINUTE_MS)
    expiration_ms = coordinator.config.transactional_id_expiration_ms
    assert idle_ms() == expiration_ms - 1000
    bench.clock.advance(ms=expiration_ms - 1001)
    assert idle_ms() == 1
    bench.clock.advance(ms=3)
    assert idle_ms() == 0


def test_timeouts_are_checked_while_a_transaction_is_open(bench):
    coordinator, idle_ms = bench.coordinator, bench.coordinator._abort_idle_ms
    assert idle_ms() is None
    producer = coordinator.init_producer_id("x", MINUTE_MS)
    assert idle_ms() is None
    coordinator.add_partitions("x", producer, [T0])
    assert idle_ms() == 0
    coordinator.end_transaction("x", producer, commit=True)
    assert idle_ms() is None


def test_a_deleted_partition_does_not_keep_the_others_from_being_flushed(bench, monkeypatch):
    bench.broker.create_topic("a")
    producer = bench.coordinator.init_producer_id("x", MINUTE_MS)
    bench.coordinator.add_partitions("x", producer, [TopicPartition("a", 0), T0, T1])
    bench.broker.delete_topic("a")
    flushed = []
    flush = type(bench.log()).flush

    def record(log):
        flushed.append(str(log.topic_partition))
        flush(log)

    monkeypatch.setattr(type(bench.log()), "flush", record)
    bench.coordinator._flush([T1, T0, TopicPartition("a", 0)])
    assert flushed == ["t-0", "t-1"]


def test_the_producer_before_the_current_one_is_forgotten(bench):
    coordinator = bench.coordinator
    first = coordinator.init_producer_id("x", MINUTE_MS)
    second = coordinator.init_producer_id("x", MINUTE_MS, expected=first)
    assert coordinator.transactions()["x"].last_producer_epoch == 0
    third = coordinator.init_producer_id("x", MINUTE_MS)
    assert coordinator.transactions()["x"].last_producer_epoch == -1
    assert [each.producer_epoch for each in (first, second, third)] == [0, 1, 2]
    coordinator.init_producer_id("x", MINUTE_MS, expected=third)
    assert coordinator.transactions()["x"].last_producer_epoch == 2
    bench.clock.advance(ms=coordinator.config.transactional_id_expiration_ms)
    assert coordinator.remove_expired() == ["x"]


# -- errors that are logged ----------------------------------------------------------------------


def fail(*_, **__):
    raise KafkaStorageError("the disk failed")


def test_a_completion_that_cannot_be_stored_is_logged(bench, monkeypatch, caplog):
    producer = bench.coordinator.init_producer_id("x", MINUTE_MS)
    bench.coordinator.add_partitions("x", producer, [T0])
    store = bench.coordinator._store

    def fail_at_the_end(metadata, *epoch, **options):
        return fail() if metadata.state.is_idle else store(metadata, *epoch, **options)

    monkeypatch.setattr(bench.coordinator, "_store", fail_at_the_end)
    bench.coordinator.end_transaction("x", producer, commit=True)
    assert caplog.messages == ["cannot store the completion of 'x': the disk failed"]
    assert bench.state() == "PrepareCommit"


def test_a_log_whose_producer_ids_cannot_be_read_is_logged(bench, monkeypatch, caplog):
    opened = bench.broker.manager.log
    monkeypatch.setattr(bench.broker.manager, "log", lambda tp: fail() if tp == T1 else opened(tp))
    assert bench.coordinator._largest_known_id() == -1
    assert caplog.messages == ["t-1: cannot read its producer ids: the disk failed"]
    opened(T0).writer.append_batches(batch(0, producer_id=7, producer_epoch=0, base_sequence=0))
    assert bench.coordinator._largest_known_id() == 7


def test_without_replicas_a_call_holds_the_lock_until_it_returns(bench, monkeypatch):
    coordinator = bench.coordinator
    lock = coordinator._lock = HeldLock(coordinator._lock)
    host, held = coordinator._host, []
    for name in ("write_markers", "await_replicated", "leader_log"):

        def call(*arguments, method=getattr(host, name)):  # noqa: B008  # each its own
            held.append(lock.depth > 0)
            return method(*arguments)

        monkeypatch.setattr(host, name, call)
    producer = coordinator.init_producer_id("x", MINUTE_MS)
    coordinator.add_partitions("x", producer, [T0])
    coordinator.end_transaction("x", producer, commit=True)
    assert all(held)
    assert len(held) == 7
    with coordinator.verified(T0, producer, "x", adds=True):
        assert lock.depth == 1
    assert lock.depth == 0


# -- markers that leaders refuse -------------------------------------------------------------------


class Host:
    """The coordinator's host, with other answers of the leaders to markers."""

    def __init__(self, host, answers, *, is_replicated=False):
        self.host, self.answers, self.is_replicated = host, answers, is_replicated

    def __getattr__(self, name):
        return getattr(self.host, name)

    def write_markers(self, marker, partitions):
        del marker
        return {tp: self.answers.get(tp) for tp in partitions}


def with_answers(bench, answers, **options):
    coordinator = bench.coordinator
    coordinator._host = Host(coordinator._host, answers, **options)
    return coordinator


@pytest.mark.parametrize(("is_replicated", "level"), ((False, "ERROR"), (True, "WARNING")))
@pytest.mark.parametrize("code", ("INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED"))
def test_an_outdated_marker_counts_as_written(bench, caplog, code, is_replicated, level):
    coordinator = bench.coordinator
    producer = coordinator.init_producer_id("x", MINUTE_MS)
    coordinator.add_partitions("x", producer, [T0, T1])
    with_answers(bench, {T0: code}, is_replicated=is_replicated)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        coordinator.end_transaction("x", producer, commit=True)
    assert bench.state() == "CompleteCommit"
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        (level, f"t-0: the marker of {producer} is outdated: {code}")
    ]


def test_a_decided_transaction_is_completed_before_the_next_one_begins(bench, caplog):
    coordinator = bench.coordinator
    producer = coordinator.init_producer_id("x", MINUTE_MS)
    coordinator.add_partitions("x", producer, [T0, T1])
    host = coordinator._host
    with_answers(bench, {T1: "NOT_ENOUGH_REPLICAS"})
    with caplog.at_level(logging.WARNING):
        coordinator.end_transaction("x", producer, commit=True)
    assert bench.state() == "PrepareCommit"
    assert {each.getMessage() for each in caplog.records} == {
        "t-1: no marker was written for 'x': NOT_ENOUGH_REPLICAS"
    }
    with pytest.raises(ConcurrentTransactionsError):
        coordinator.add_partitions("x", producer, [T0])
    coordinator._host = host
    bench.clock.advance(ms=5)
    coordinator.add_partitions("x", producer, [T0])
    assert [each[3] for each in markers(bench.log("t", 1))] == ["COMMIT"]
    metadata = coordinator.describe("x")
    assert (metadata.state.kafka_name, metadata.partitions) == ("Ongoing", {T0})
    assert metadata.start_ms == bench.clock.now_ms()
