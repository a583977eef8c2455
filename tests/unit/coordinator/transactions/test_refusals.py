"""Errors of the transaction coordinator with their types and whole messages, and its warnings."""

import logging

import pytest

from logstore.coordinator.groups.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from logstore.coordinator.markers import TransactionMarker, write_markers
from logstore.coordinator.transactions.coordinator import TransactionCoordinator
from logstore.coordinator.transactions.produce import append_as_client
from logstore.coordinator.transactions.state import (
    ProducerIdAndEpoch,
    TransactionVersion,
    encode_key,
)
from logstore.errors import (
    ConcurrentTransactionsError,
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTopicError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaStorageError,
    LogStoreError,
    OffsetMetadataTooLargeError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from logstore.messages.types import WriteTxnMarkersRequest
from logstore.names import TRANSACTION_STATE_TOPIC
from logstore.storage.log import NewRecord
from logstore.types import TopicPartition
from tests.support.world.builders import batch

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MINUTE_MS = 60_000
V0, V2 = TransactionVersion.V0, TransactionVersion.V2


def refused(call, error, message, *arguments, **options):
    with pytest.raises(LogStoreError) as raised:
        call(*arguments, **options)
    assert (type(raised.value), str(raised.value)) == (error, message)


@pytest.fixture
def x(bench):
    """The third producer of `x`, which has an open transaction in partition 0."""
    for _ in range(2):
        bench.coordinator.init_producer_id("x", MINUTE_MS)
    producer = bench.coordinator.init_producer_id("x", MINUTE_MS)
    bench.coordinator.add_partitions("x", producer, [T0])
    assert producer == (0, 2)
    return producer


@pytest.mark.parametrize("timeout_ms", (0, 900_001))
def test_timeouts(bench, timeout_ms):
    refused(
        lambda: bench.coordinator.init_producer_id("x", timeout_ms),
        InvalidTransactionTimeoutError,
        f"a transaction timeout of {timeout_ms} ms is not in [1, 900000]"
        " (transaction.max.timeout.ms)",
    )


@pytest.mark.parametrize("version", (V0, V2))
def test_owners(bench, x, version):
    coordinator = bench.coordinator
    fenced = "producer 0 with epoch {} of transactional id 'x' is fenced: epoch 2 is the newest"
    other = "producer 7 does not belong to transactional id 'x'"
    nobody = "producer 0 does not belong to transactional id 'nobody'"
    calls = (
        lambda name, who: coordinator.add_partitions(name, who, [T0], version),
        lambda name, who: coordinator.end_transaction(name, who, commit=True, version=version),
        lambda name, who: coordinator.open_partitions(name, who),
    )
    for call in calls:
        for epoch in (1, 3):
            who = x._replace(producer_epoch=epoch)
            refused(call, ProducerFencedError, fenced.format(epoch), "x", who)
        who = x._replace(producer_id=7)
        refused(call, InvalidProducerIdMappingError, other, "x", who)
        refused(call, InvalidProducerIdMappingError, nobody, "nobody", x)
    refused(
        lambda: coordinator.init_producer_id("x", MINUTE_MS, x._replace(producer_epoch=1)),
        ProducerFencedError,
        fenced.format(1).replace("epoch 2", "epoch 3"),
    )


def test_owners_of_batches(bench, x):
    def send(producer, transactional_id=None, partition=0, sequence=0):
        data = batch(
            0,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        bench.broker.append_batches(
            "t", data, partition=partition, transactional_id=transactional_id
        )

    refused(
        lambda: send(x._replace(producer_epoch=1), "x"),
        InvalidProducerEpochError,
        "producer 0 with epoch 1 of transactional id 'x' is fenced: epoch 2 is the newest",
    )
    refused(
        lambda: send(x._replace(producer_id=7), "x"),
        InvalidProducerIdMappingError,
        "producer 7 does not belong to transactional id 'x'",
    )
    refused(
        lambda: send(x._replace(producer_id=7)),
        InvalidTxnStateError,
        "t-0: producer 7 has no transactional id, so it cannot have an open transaction",
    )
    for transactional_id in (None, "x"):
        refused(
            lambda name=transactional_id: send(x, name, partition=1),
            InvalidTxnStateError,
            "t-1 is not part of a transaction of 'x', whose state is Ongoing",
        )
    refused(
        lambda: bench.broker.append_batches(TRANSACTION_STATE_TOPIC, batch(0)),
        InvalidTopicError,
        "cannot produce to the internal topic '__transaction_state'",
    )
    send(x)
    bench.coordinator.end_transaction("x", x, commit=True)
    refused(
        lambda: send(x, sequence=1),
        InvalidTxnStateError,
        "t-0 is not part of a transaction of 'x', whose state is CompleteCommit",
    )


def test_the_first_batch_of_a_client_that_adds_no_partitions(bench):
    producer = bench.coordinator.init_producer_id("x", MINUTE_MS)
    manager = bench.broker.manager

    def send(sequence):
        data = batch(
            0, producer_id=0, producer_epoch=0, base_sequence=sequence, is_transactional=True
        )
        return append_as_client(manager, bench.coordinator, T0, data, "x", adds=True)

    message = "t-0: the first batch of producer 0 begins with sequence 3, not 0"
    refused(lambda: send(3), OutOfOrderSequenceNumberError, message)
    assert send(0).first_offset == 0
    bench.coordinator.end_transaction("x", producer, commit=True)
    # A marker without batches leaves a producer whose sequence is unknown, too.
    bench.coordinator.add_partitions("x", producer, [T0])
    bench.coordinator.end_transaction("x", producer, commit=True, version=V2)
    refused(
        lambda: append_as_client(
            manager,
            bench.coordinator,
            T0,
            batch(0, producer_id=0, producer_epoch=1, base_sequence=3, is_transactional=True),
            "x",
            adds=True,
        ),
        OutOfOrderSequenceNumberError,
        message,
    )


@pytest.mark.parametrize("version", (V0, V2))
def test_ends(bench, version):
    coordinator = bench.coordinator
    producer = coordinator.init_producer_id("x", MINUTE_MS)
    for commit in (True, False) if version is V0 else (True,):
        refused(
            coordinator.end_transaction,
            InvalidTxnStateError,
            f"cannot {'commit' if commit else 'abort'} the transaction of 'x' in state Empty",
            "x",
            producer,
            commit=commit,
            version=version,
        )
    coordinator.add_partitions("x", producer, [T0], version)
    coordinator.end_transaction("x", producer, commit=True, version=version)
    refused(
        lambda: coordinator.end_transaction("x", producer, commit=False, version=version),
        InvalidTxnStateError,
        "cannot abort the transaction of 'x' in state CompleteCommit",
    )


def test_a_transaction_that_cannot_be_completed(bench, x, monkeypatch):
    coordinator = bench.coordinator
    host = coordinator._host
    with monkeypatch.context() as patched:
        patched.setattr(host, "write_markers", lambda *_: {T0: "NOT_ENOUGH_REPLICAS"})
        coordinator.end_transaction("x", x, commit=False)
        refused(
            lambda: coordinator.add_partitions("x", x, [T0]),
            ConcurrentTransactionsError,
            message := "the last transaction of 'x' is still in state PrepareAbort: not all of its"
            " partitions are writable",
        )
        refused(lambda: coordinator.open_partitions("x", x), ConcurrentTransactionsError, message)
    former = coordinator.describe("x")
    coordinator.complete_prepared()
    assert bench.state() == "CompleteAbort"
    refused(
        lambda: coordinator._complete(former),
        ConcurrentTransactionsError,
        "the state of 'x' has changed",
    )


def test_states_that_cannot_be_read(bench, x):
    log = bench.log(TRANSACTION_STATE_TOPIC)
    for value in (b"\0\1damaged", b"\0\7"):
        log.writer.append_records([NewRecord(encode_key("y"), value)])
        bench.reopen()
        coordinator = bench.coordinator
        with pytest.raises(KafkaStorageError) as raised:
            coordinator.init_producer_id("y", MINUTE_MS)
        assert str(raised.value) == (
            "cannot read the state of transactional id 'y' in __transaction_state-0:"
            f" {raised.value.__cause__}"
        )
        with (
            pytest.raises(KafkaStorageError) as of_produce,
            coordinator.verified(T0, ProducerIdAndEpoch(0, 0), "y", adds=True),
        ):
            pass
        assert str(of_produce.value) == str(raised.value)
        log = bench.log(TRANSACTION_STATE_TOPIC)
    assert bench.coordinator.transactions().keys() == {"x"}
    bench.coordinator.init_producer_id("x", MINUTE_MS)
    log.writer.append_records([NewRecord(b"\0", b"v")])
    bench.reopen()
    refused(
        lambda: bench.coordinator.init_producer_id("x", MINUTE_MS),
        KafkaStorageError,
        "cannot read the state of transactional id 'x' in __transaction_state-0: TransactionLogKey,"
        " version -1 at byte 0: 1 bytes are too short for a version",
    )


def test_background_tasks_that_fail_are_logged_and_tried_again(bench, x, monkeypatch, caplog):
    coordinator = bench.coordinator
    coordinator.init_producer_id("idle", MINUTE_MS)
    write = type(coordinator._log)._write

    def fail(*_, **__):
        raise KafkaStorageError("no disk")

    bench.clock.advance(ms=MINUTE_MS + 1)
    monkeypatch.setattr(type(coordinator._log), "_write", fail)
    assert coordinator.abort_timed_out() == []
    bench.clock.advance(days=8)
    assert coordinator.remove_expired() == []
    monkeypatch.setattr(type(coordinator._log), "_write", write)
    with monkeypatch.context() as patched:
        patched.setattr(coordinator._host, "write_markers", lambda *_: {T0: "X"})
        assert coordinator.abort_timed_out() == ["x"]
    with monkeypatch.context() as patched:
        patched.setattr(TransactionCoordinator, "_ensure_complete", fail)
        coordinator.complete_prepared()
    assert bench.state() == "PrepareAbort"
    coordinator.complete_prepared()
    assert bench.state() == "CompleteAbort"
    assert coordinator.remove_expired() == ["idle"]
    assert caplog.messages == [
        "transaction of 'x' cannot be aborted: no disk",
        "transaction of 'idle' cannot be removed: no disk",
        "t-0: no marker was written for 'x': X",
        "transaction of 'x' cannot be completed: no disk",
    ]


def test_a_transaction_that_ended_or_began_meanwhile_is_not_aborted(bench, x):
    """A timeout is checked again when the turn of the transaction has come."""
    coordinator = bench.coordinator
    bench.clock.advance(ms=MINUTE_MS)
    coordinator._abort("x")
    assert bench.state() == "Ongoing"
    coordinator.end_transaction("x", x, commit=True)
    bench.clock.advance(ms=1)
    coordinator._abort("x")
    coordinator._abort("nobody")
    assert bench.state() == "CompleteCommit"
    coordinator.add_partitions("x", x, [T0])
    coordinator._forget("x")
    coordinator._forget("nobody")
    assert bench.state() == "Ongoing"
    bench.clock.advance(ms=MINUTE_MS + 1)
    coordinator._abort("x")
    assert bench.state() == "CompleteAbort"


def test_the_request_of_a_marker():
    """With the partitions in order, by topic."""
    kind = WriteTxnMarkersRequest
    partitions = [TopicPartition("u", 2), T1, TopicPartition("s", 4), T0]
    request = TransactionMarker(7, 2, 9, is_commit=True, version=V2).request(partitions)
    assert request == kind(
        markers=[
            kind.WritableTxnMarker(
                producer_id=7,
                producer_epoch=2,
                transaction_result=True,
                topics=[
                    kind.WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
                    for name, numbers in (("s", [4]), ("t", [0, 1]), ("u", [2]))
                ],
                coordinator_epoch=9,
                transaction_version=2,
            )
        ]
    )


def test_markers_are_durable_when_they_are_written_and_refused_one_by_one(bench, x, caplog):
    class Leader:
        def log(self, tp):
            return bench.broker.manager.log(tp)

        def check_append(self, tp):
            if tp == T1:
                raise KafkaStorageError("no disk")
            return f"role of {tp}"

        def delayed_append(self, tp, offset, role):
            return tp, offset, role

    data = batch(0, producer_id=0, producer_epoch=2, base_sequence=0, is_transactional=True)
    bench.broker.append_batches("t", data)
    t2 = TopicPartition("t", 2)
    marker = TransactionMarker(0, 2, 9, is_commit=True, version=V0)
    with caplog.at_level(logging.INFO):
        errors, delayed = write_markers(marker.request([T1, t2, T0]), Leader())
    assert errors == {0: {T0: None, T1: "KAFKA_STORAGE_ERROR", t2: None}}
    assert delayed == {
        (0, T0): (T0, 1, "role of t-0"),
        (0, t2): (t2, 0, "role of t-2"),
    }
    assert "t-1: no marker was written for producer 0: no disk" in caplog.messages
    for tp, end in ((T0, 2), (T1, 0), (t2, 1)):
        log = bench.broker.manager.log(tp)
        assert (log.recovery_point, log.log_end_offset) == (end, end)


def test_offsets_of_a_transaction_are_refused_whole(bench):
    groups = bench.broker.groups
    offsets = {T0: OffsetAndMetadata(1, "")}
    refused(
        lambda: groups.check_transactional(ConsumerGroupMetadata(""), offsets),
        InvalidGroupIdError,
        "the group id is empty",
    )
    refused(
        lambda: groups.check_transactional(ConsumerGroupMetadata("g", 3, "m"), offsets),
        IllegalGenerationError,
        "group 'g' rejected offsets of member 'm' in generation 3: ILLEGAL_GENERATION",
    )
    member = ConsumerGroupMetadata("g")
    refused(
        lambda: groups.check_transactional(member, {T0: OffsetAndMetadata(1, "😀" * 2049)}),
        OffsetMetadataTooLargeError,
        "metadata of 4098 UTF-16 units for t-0 is longer than offset.metadata.max.bytes 4096",
    )
    assert groups.check_transactional(member, {T0: OffsetAndMetadata(1, "😀" * 2048)}) is None
    refused(
        lambda: groups.check_transactional(member, {TopicPartition("t", 3): offsets[T0]}),
        UnknownTopicOrPartitionError,
        "t-3 does not exist",
    )
    assert groups.check_transactional(ConsumerGroupMetadata("g", -1, "m"), offsets) is None
