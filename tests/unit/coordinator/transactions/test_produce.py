"""Appends of clients: transactional batches are verified by the coordinator."""

import threading

import pytest

from logstore import Broker, InvalidTopicError, OffsetAndMetadata, TopicPartition, VirtualClock
from logstore.errors import (
    ConcurrentTransactionsError,
    CorruptRecordError,
    InvalidConfigurationError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidTxnStateError,
    KafkaStorageError,
    ProducerFencedError,
    UnsupportedFormatError,
)
from logstore.names import TRANSACTION_STATE_TOPIC
from tests.support.world.builders import batch, commit, old_message
from tests.support.world.transactions import Bench

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
MINUTE_MS = 60_000
VERIFICATION = "transaction.partition.verification.enable"


class Client:
    """A client that calls the coordinator and sends encoded batches."""

    def __init__(self, bench, transactional_id="x"):
        self.bench = bench
        self.transactional_id = transactional_id
        self.sequence = 0
        self.init()

    def init(self):
        coordinator = self.bench.coordinator
        self.producer = coordinator.init_producer_id(self.transactional_id, MINUTE_MS)
        self.sequence = 0

    def add(self, *partitions):
        self.bench.coordinator.add_partitions(self.transactional_id, self.producer, partitions)

    def end(self, *, commit=True):
        coordinator = self.bench.coordinator
        coordinator.end_transaction(self.transactional_id, self.producer, commit=commit)

    def batch(self, **fields):
        defaults = {
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.producer_epoch,
            "base_sequence": self.sequence,
            "is_transactional": True,
        }
        return batch(0, **defaults | fields)

    def send(self, transactional_id=None, *, partition=0, **fields):
        broker, data = self.bench.broker, self.batch(**fields)
        info = broker.append_batches(
            "t", data, partition=partition, transactional_id=transactional_id
        )
        self.sequence += 1
        return info


def refuses(bench, error, send, match=None):
    """Assert that a batch is rejected with exactly this error, and nothing changes."""
    log = bench.log()

    def state():
        return log.log_end_offset, log.last_stable_offset, repr(log.producer_state.entries())

    before = state()
    with pytest.raises(error, match=match) as caught:
        send()
    assert type(caught.value) is error
    assert state() == before


def settled(bench):
    """Assert that no transaction is open in the log."""
    log = bench.log()
    assert log.last_stable_offset == log.log_end_offset


# -- transactions that were not begun ------------------------------------------------------


def test_a_transaction_that_was_not_begun_is_refused():
    """It would never end, and the last stable offset would never advance."""
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t")
        data = batch(0, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        with pytest.raises(
            InvalidTxnStateError,
            match=(
                r"^t-0: producer 7 has no transactional id, so it cannot have an open transaction$"
            ),
        ) as no:
            broker.append_batches("t", data)
        assert no.value.kafka_error == "INVALID_TXN_STATE"
        with pytest.raises(
            InvalidProducerIdMappingError,
            match=r"^producer 7 does not belong to transactional id 'x'$",
        ):
            broker.append_batches("t", data, transactional_id="x")
        log = broker.log("t")
        assert (log.log_end_offset, log.last_stable_offset) == (0, 0)
        assert log.producer_state.is_empty
        assert [topic.name for topic in broker.topics()] == ["t"], "the state topic is not created"
        assert log.writer.append_batches(data).first_offset == 0, "a bare log does not verify"
        assert log.last_stable_offset == 0 < log.log_end_offset
        log.writer.append_end_txn_marker(7, 0, 0, commit=False)


def test_a_batch_is_refused_before_its_partition_is_part_of_the_transaction(bench):
    client = Client(bench)
    refuses(bench, InvalidTxnStateError, client.send, "t-0 is not part .* state is Empty")
    client.add(T1)
    refuses(bench, InvalidTxnStateError, client.send, "t-0 is not part .* state is Ongoing")
    client.add(T0)
    assert [client.send().first_offset for _ in range(3)] == [0, 1, 2]
    assert client.send("x").first_offset == 3
    client.end()
    assert len(bench.seen()) == 4


@pytest.mark.parametrize("is_commit", (True, False))
def test_a_batch_after_the_end_is_refused(bench, is_commit):
    client = Client(bench)
    client.add(T0)
    sent = client.batch()
    client.send()
    client.end(commit=is_commit)
    refuses(bench, InvalidTxnStateError, client.send)
    # A retry after a lost response; Kafka also verifies before it checks for duplicates.
    refuses(bench, InvalidTxnStateError, lambda: bench.broker.append_batches("t", sent))
    client.add(T1)
    refuses(bench, InvalidTxnStateError, client.send)
    client.add(T0)
    client.send()
    client.end()
    settled(bench)


def test_a_batch_that_is_sent_again_in_its_transaction_is_answered(bench):
    client = Client(bench)
    client.add(T0)
    sent = client.batch()
    client.send()
    assert bench.broker.append_batches("t", sent).is_duplicate


def test_an_older_epoch_is_refused_as_such(bench):
    """By the log that knows the next epoch, and by the coordinator, whose error is another one."""
    client = Client(bench)
    client.add(T0)
    bench.coordinator.init_producer_id("x", MINUTE_MS)
    refuses(bench, InvalidProducerEpochError, client.send, "epoch 0 .* older than the known 1")
    refuses(
        bench,
        InvalidProducerEpochError,
        lambda: client.send(partition=1),
        "epoch 2 is the newest",
    )
    assert InvalidProducerEpochError.kafka_error != ProducerFencedError.kafka_error


def test_a_transaction_that_took_too_long_is_over(bench):
    client = Client(bench)
    client.add(T0)
    bench.clock.advance(ms=MINUTE_MS + 1)
    with pytest.raises(InvalidProducerEpochError, match="is fenced"):
        client.send()
    settled(bench)


def test_a_transactional_id_must_be_the_producers(bench):
    client = Client(bench)
    client.add(T0)
    Client(bench, "y").add(T0)
    for transactional_id in ("y", "z", ""):
        refuses(
            bench,
            InvalidProducerIdMappingError,
            lambda name=transactional_id: client.send(name),
            f"transactional id '{transactional_id}'",
        )
    refuses(
        bench,
        InvalidTxnStateError,
        lambda: client.send(producer_id=99),
        "producer 99 has no transactional id",
    )


def test_a_producer_cannot_write_after_others_ended_its_transaction(bench):
    """It has added its partitions already, so only the append can detect this."""
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send("t", b"1", partition=0)
    (known,) = bench.coordinator.transactions().values()
    bench.coordinator.end_transaction("x", known.producer, commit=True)
    with pytest.raises(InvalidTxnStateError, match="not part of a transaction of 'x'"):
        producer.send("t", b"2", partition=0).get()
    assert bench.seen() == [b"1"]
    settled(bench)


def test_offsets_of_a_transaction_that_was_ended_by_others_are_refused():
    bench = Bench(broker_config={"offsets.topic.num.partitions": 1})
    bench.broker.create_topic("t")
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
    (known,) = bench.coordinator.transactions().values()
    bench.coordinator.end_transaction("x", known.producer, commit=True)
    with pytest.raises(InvalidTxnStateError, match="not part of a transaction of 'x'"):
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(2)}, "g")
    log = bench.log("__consumer_offsets")
    assert log.last_stable_offset == log.log_end_offset == 2
    assert bench.broker.groups.committed("g")[T0].offset == 1
    bench.broker.close()


# -- batches outside transactions ----------------------------------------------------------


def test_batches_outside_transactions_are_not_verified(bench):
    assert bench.broker.append_batches("t", batch(0, 2)).last_offset == 2
    idempotent = batch(0, producer_id=4, producer_epoch=0, base_sequence=0)
    assert bench.broker.append_batches("t", idempotent).first_offset == 3
    assert bench.broker.append_batches("t", b"").first_offset == -1
    assert [topic.name for topic in bench.broker.topics()] == ["t"]


def test_a_batch_outside_the_transaction_of_its_producer(bench):
    """As in Kafka, it is rejected once the transaction has data here, and not verified before."""
    client = Client(bench)
    client.add(T0)
    assert client.send(is_transactional=False).first_offset == 0
    client.send()
    refuses(
        bench,
        InvalidTxnStateError,
        lambda: client.send(is_transactional=False),
        "writes outside a transaction while",
    )


@pytest.mark.parametrize(
    ("data", "error"),
    (
        (batch(0) + batch(0), InvalidRecordError),
        (batch(5), InvalidRecordError),
        (commit(0, 1), InvalidRecordError),
        (batch(0)[:-1] + b"\xff", CorruptRecordError),
        (old_message(), UnsupportedFormatError),
    ),
    ids=("two batches", "base offset", "marker", "CRC", "magic"),
)
def test_the_log_validates_malformed_batches(bench, data, error):
    refuses(bench, error, lambda: bench.broker.append_batches("t", data))


INTERNAL = "^cannot produce to the internal topic '__transaction_state'$"


def test_clients_cannot_produce_to_internal_topics(bench):
    Client(bench)
    with pytest.raises(InvalidTopicError, match=INTERNAL):
        bench.broker.append_batches(TRANSACTION_STATE_TOPIC, batch(0))


@pytest.mark.parametrize("idempotent", (False, True))
def test_producers_cannot_send_to_internal_topics(bench, idempotent):
    bench.broker.producer(transactional_id="x").init_transactions()
    producer = bench.broker.producer(enable_idempotence=idempotent)
    sent = producer.send(TRANSACTION_STATE_TOPIC, b"v", b"k", partition=0)
    producer.flush()
    with pytest.raises(InvalidTopicError, match=INTERNAL):
        sent.get()


def test_a_read_only_broker_refuses_appends(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
    with (
        Broker(tmp_path, read_only=True) as broker,
        pytest.raises(InvalidConfigurationError, match="cannot append"),
    ):
        broker.append_batches("t", batch(0))


@pytest.mark.parametrize("verification", (True, False))
def test_later_batches_are_held_to_the_owner_of_the_producer_id(bench, verification):
    bench.broker.alter_broker_configs({VERIFICATION: verification})
    client, other = Client(bench), Client(bench, "y")
    for each in (client, other):
        each.add(T0, T1)
    client.send("x")
    for whose in ("y", "nobody"):
        refuses(bench, InvalidProducerIdMappingError, lambda whose=whose: client.send(whose))
    refuses(bench, InvalidProducerEpochError, lambda: client.send("x", producer_epoch=1))
    client.send("x")
    client.end()
    client.init()
    client.add(T0)
    refuses(bench, InvalidProducerEpochError, lambda: client.send("x", producer_epoch=0))
    client.send("x")
    assert client.send().first_offset == 4, "in this process the id may be omitted"


def test_later_batches_do_not_wait_for_the_coordinator(bench):
    client = Client(bench)
    client.add(T0)
    client.send("x")
    sent = []
    with bench.coordinator._lock:
        thread = threading.Thread(target=lambda: sent.append(client.send("x")))
        thread.start()
        thread.join(30)
    assert [info.first_offset for info in sent] == [1]


# -- restarts and races ----------------------------------------------------------------------


def test_transactions_are_verified_again_after_a_restart(bench):
    client = Client(bench)
    client.add(T0, T1)
    client.send(partition=1)
    bench.log("t", 1).flush()
    bench.reopen()
    client.sequence = 0
    client.send()
    assert client.send(base_sequence=1, partition=1).first_offset == 1
    client.end()
    bench.reopen()
    client.sequence = 1
    refuses(bench, InvalidTxnStateError, client.send)
    settled(bench)


def test_a_transaction_that_cannot_be_completed_yet_accepts_no_batches(bench, monkeypatch):
    client = Client(bench)
    client.add(T0, T1)

    def fail(*_, **__):
        raise KafkaStorageError("the disk failed")

    with monkeypatch.context() as patch:
        patch.setattr(bench.log("t", 1).writer, "append_end_txn_marker", fail)
        client.end()
        assert bench.state() == "PrepareCommit"
        refuses(bench, ConcurrentTransactionsError, client.send, "PrepareCommit")
    refuses(bench, InvalidTxnStateError, client.send, "CompleteCommit")


@pytest.mark.parametrize("batches_before", (0, 1))
def test_no_marker_is_written_between_check_and_append(bench, batches_before, monkeypatch):
    """Writing a marker needs a lock that is held until the batch is written."""
    client = Client(bench)
    client.add(T0)
    for _ in range(batches_before):
        client.send()
    log = bench.log()
    append = log.writer.append_batches
    lock = log.lock if batches_before else bench.coordinator._lock._lock
    seen = []

    def append_under_watch(data):
        def others():
            seen.append(lock.acquire(blocking=False))
            if seen[-1]:
                lock.release()

        thread = threading.Thread(target=others)
        thread.start()
        thread.join()
        return append(data)

    monkeypatch.setattr(log.writer, "append_batches", append_under_watch)
    client.send()
    assert seen == [False]


# -- switched off ----------------------------------------------------------------------------


def test_verification_can_be_switched_off_and_on():
    data = batch(0, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    with Broker(clock=VirtualClock(), broker_config={VERIFICATION: "false"}) as broker:
        broker.create_topic("t", 2)
        assert broker.append_batches("t", data).first_offset == 0
        broker.alter_broker_configs({VERIFICATION: True})
        with pytest.raises(InvalidTxnStateError):
            broker.append_batches("t", data, partition=1)
