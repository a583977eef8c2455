"""Transactions of version 2 (KIP-890 part 2): the epoch moves with every transaction."""

from dataclasses import replace

import pytest

from logstore.coordinator.host import NO_EPOCH
from logstore.coordinator.transactions.produce import add_to_transaction, append_as_client
from logstore.coordinator.transactions.state import (
    LAST_EPOCH,
    ProducerIdAndEpoch,
    TransactionVersion,
    decode_key,
    decode_value,
)
from logstore.errors import (
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaStorageError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
)
from logstore.names import TRANSACTION_STATE_TOPIC
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.types import TopicPartition
from tests.support.world.transactions import markers

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
MINUTE_MS = 60_000
V0, V2 = TransactionVersion.V0, TransactionVersion.V2


def stored(bench):
    log = bench.log(TRANSACTION_STATE_TOPIC)
    return [
        decode_value(decode_key(record.key), record.value)
        for _, record in log.reader.records(log.log_start_offset)
    ]


def end(bench, producer, *, commit=True, version=V2):
    return bench.coordinator.end_transaction("x", producer, commit=commit, version=version)


def encoded(bench, producer, sequence=0, *, is_transactional=True):
    return build_batch(
        [Record(0, bench.clock.now_ms(), b"k", b"v")],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def send(bench, producer, tp=T0, sequence=0, *, adds=True):
    """Send a batch of one record, as a Produce request of version 12 does."""
    data = encoded(bench, producer, sequence)
    return append_as_client(bench.broker.manager, bench.coordinator, tp, data, "x", adds=adds)


def give_epoch(bench, epoch):
    """Set the stored epoch of 'x', as after many transactions."""
    metadata = replace(bench.coordinator.transactions()["x"], producer_epoch=epoch)
    log, now_ms = bench.coordinator._log, bench.clock.now_ms()
    log.append(metadata, NO_EPOCH, now_ms=now_ms, durable=True)
    bench.reopen()
    return metadata.producer


@pytest.fixture
def producer(bench):
    return bench.coordinator.init_producer_id("x", MINUTE_MS)


@pytest.fixture
def failing_markers(bench, monkeypatch):
    """No marker can be written to partition 0 until `undo` is called."""

    def fail(*_, **__):
        raise KafkaStorageError("the disk failed")

    with monkeypatch.context() as patch:
        patch.setattr(bench.log().writer, "append_end_txn_marker", fail)
        yield patch


# -- ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", (True, False))
def test_each_transaction_ends_with_the_next_epoch(bench, producer, commit):
    kind = "COMMIT" if commit else "ABORT"
    for epoch in range(3):
        assert producer == (0, epoch)
        send(bench, producer)
        producer = end(bench, producer, commit=commit)
    assert markers(bench.log()) == [(1 + 2 * n, 0, n + 1, kind, 0) for n in range(3)]
    assert len(bench.seen()) == 3 * commit
    assert bench.log().last_stable_offset == bench.log().log_end_offset


def test_states_are_stored_as_in_kafka(bench, producer):
    bench.clock.advance(ms=10)
    send(bench, producer)
    bench.clock.advance(ms=10)
    end(bench, producer)
    names = [each.state.kafka_name for each in stored(bench)]
    assert names == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert [each.producer_epoch for each in stored(bench)] == [0, 0, 1, 1]
    assert [each.client_version for each in stored(bench)] == [V0, V2, V2, V2]
    assert {each.previous_producer_id for each in stored(bench)} == {0}
    assert {each.next_producer_id for each in stored(bench)} == {-1}
    bench.coordinator.init_producer_id("x", MINUTE_MS)
    assert stored(bench)[-1].client_version is V2, "the version of the last transaction"


@pytest.mark.parametrize("commit", (True, False))
def test_a_repeated_end_is_answered_with_the_new_epoch(bench, producer, commit):
    send(bench, producer)
    following = end(bench, producer, commit=commit)
    assert end(bench, producer, commit=commit) == following == (0, 1)
    with pytest.raises(InvalidTxnStateError):
        end(bench, producer, commit=not commit)
    assert len(markers(bench.log())) == 1
    bench.reopen()
    assert end(bench, producer, commit=commit) == following


def test_an_end_before_the_previous_epoch_is_fenced(bench, producer):
    for _ in range(2):
        send(bench, producer)
        older, producer = producer, end(bench, producer)
    for epoch in (0, 3):
        for commit in (True, False):
            with pytest.raises(ProducerFencedError):
                end(bench, ProducerIdAndEpoch(0, epoch), commit=commit)
    assert end(bench, older) == producer
    send(bench, producer)
    with pytest.raises(ProducerFencedError):
        end(bench, older)


def test_an_abort_needs_no_transaction(bench, producer):
    """It bumps the epoch, so that late batches of the transaction are refused."""
    with pytest.raises(InvalidTxnStateError):
        end(bench, producer)
    second = end(bench, producer, commit=False)
    bench.clock.advance(ms=10)
    third = end(bench, second, commit=False)
    assert (second, third) == ((0, 1), (0, 2))
    names = [each.state.kafka_name for each in stored(bench)]
    assert names == ["Empty", *["PrepareAbort", "CompleteAbort"] * 2]
    now_ms = bench.clock.now_ms()
    assert [each.start_ms for each in stored(bench)][1:] == [now_ms - 10] * 2 + [now_ms] * 2
    assert end(bench, second, commit=False) == third, "a retry"
    with pytest.raises(InvalidTxnStateError):
        end(bench, third)
    send(bench, third)
    fourth = end(bench, third)
    assert end(bench, fourth, commit=False) == (0, 4), "after a commit as well"
    assert markers(bench.log()) == [(1, 0, 3, "COMMIT", 0)]


def test_an_end_of_an_unknown_producer_is_refused(bench, producer):
    for commit in (True, False):
        with pytest.raises(InvalidProducerIdMappingError):
            bench.coordinator.end_transaction("y", producer, commit=commit, version=V2)
        with pytest.raises(InvalidProducerIdMappingError):
            end(bench, ProducerIdAndEpoch(7, 0), commit=commit)


def test_an_old_client_keeps_its_epoch(bench, producer):
    for _ in range(2):
        bench.coordinator.add_partitions("x", producer, [T0])
        assert end(bench, producer, version=V0) == producer
    with pytest.raises(InvalidTxnStateError):
        end(bench, producer, commit=False, version=V0)


def test_a_client_may_change_its_version_between_transactions(bench, producer):
    coordinator = bench.coordinator
    coordinator.add_partitions("x", producer, [T0])
    send(bench, producer, adds=False)
    end(bench, producer, version=V0)
    send(bench, producer, sequence=1)
    second = end(bench, producer)
    assert second == (0, 1)
    coordinator.add_partitions("x", second, [T0])
    send(bench, second, adds=False)
    end(bench, second, version=V0)
    send(bench, second, sequence=1)
    assert end(bench, second, commit=False) == (0, 2)
    assert [epoch for _, _, epoch, _, _ in markers(bench.log())] == [0, 1, 1, 2]
    assert len(bench.seen()) == 3
    versions = [each.client_version for each in stored(bench)]
    assert versions == [V0] * 4 + [V2] * 3 + [V0] * 3 + [V2] * 3


# -- the last epoch ----------------------------------------------------------------------------


@pytest.mark.parametrize("commit", (True, False))
def test_a_new_producer_id_follows_the_last_epoch(bench, producer, commit):
    last = give_epoch(bench, LAST_EPOCH)
    send(bench, last)
    following = end(bench, last, commit=commit)
    assert following == (1000, 0)
    assert markers(bench.log())[0][1:3] == (0, 32_767)
    prepared, completed = stored(bench)[-2:]
    assert (prepared.producer, prepared.next_producer_id) == ((0, 32_767), 1000)
    assert (completed.producer, completed.next_producer_id) == ((1000, 0), -1)
    assert completed.previous_producer_id == 0
    assert end(bench, last, commit=commit) == following
    with pytest.raises(InvalidTxnStateError):
        end(bench, last, commit=not commit)
    bench.reopen()
    assert end(bench, last, commit=commit) == following
    send(bench, following)
    with pytest.raises(InvalidProducerIdMappingError):
        end(bench, last, commit=commit)
    assert end(bench, following) == (1000, 1)


def test_an_old_client_keeps_the_last_epoch_and_takes_no_producer_id(bench, producer):
    last = give_epoch(bench, LAST_EPOCH)
    bench.coordinator.add_partitions("x", last, (T0,))
    send(bench, last, adds=False)
    assert end(bench, last, version=V0) == last
    assert stored(bench)[-2].next_producer_id == -1
    assert bench.coordinator.new_producer_id() == 1000


def test_an_abort_without_a_transaction_also_leaves_the_last_epoch(bench, producer):
    last = give_epoch(bench, LAST_EPOCH)
    assert end(bench, last, commit=False) == (1000, 0)
    assert bench.coordinator.init_producer_id("x", MINUTE_MS, expected=last) == (1000, 0)


def test_a_timeout_in_the_last_epoch_leads_to_a_new_producer_id(bench, producer):
    last = give_epoch(bench, LAST_EPOCH)
    send(bench, last)
    bench.clock.advance(ms=MINUTE_MS + 1)
    assert bench.coordinator.abort_timed_out() == ["x"]
    assert bench.coordinator.transactions()["x"].producer == (1000, 0)
    assert end(bench, last, commit=False) == (1000, 0)


# -- timeouts and fencing ----------------------------------------------------------------------


def test_after_a_timeout_an_abort_succeeds_and_a_commit_does_not(bench, producer):
    send(bench, producer)
    bench.clock.advance(ms=MINUTE_MS + 1)
    assert bench.coordinator.abort_timed_out() == ["x"]
    assert markers(bench.log()) == [(1, 0, 1, "ABORT", 0)]
    with pytest.raises(InvalidProducerEpochError):
        send(bench, producer, sequence=1)
    with pytest.raises(InvalidTxnStateError):
        end(bench, producer)
    following = end(bench, producer, commit=False)
    assert following == (0, 1)
    send(bench, following)
    assert end(bench, following) == (0, 2)


def test_another_producer_fences_with_two_epochs(bench, producer):
    send(bench, producer)
    assert bench.coordinator.init_producer_id("x", MINUTE_MS) == (0, 2)
    assert markers(bench.log()) == [(1, 0, 1, "ABORT", 0)]
    for commit in (True, False):
        with pytest.raises(ProducerFencedError):
            end(bench, producer, commit=commit)
    with pytest.raises(InvalidProducerEpochError):
        send(bench, producer, sequence=1)


# -- batches -----------------------------------------------------------------------------------


def test_the_first_batch_adds_its_partition(bench, producer):
    send(bench, producer)
    send(bench, producer, T1)
    send(bench, producer, sequence=1)
    assert bench.coordinator.transactions()["x"].partitions == {T0, T1}
    assert len(stored(bench)) == 3, "known partitions are not stored again"


def test_the_partitions_of_a_request_are_added_with_one_record(bench, producer):
    """If the batch is transactional and begins the transaction in an existing topic."""
    bench.broker.create_topic("u")
    open_one, plain = TopicPartition("t", 2), TopicPartition("u", 0)
    send(bench, producer, open_one)
    before, data = len(stored(bench)), encoded(bench, producer)
    add_to_transaction(
        bench.broker.manager,
        bench.coordinator,
        "x",
        [
            (TopicPartition("no", 0), data),
            (plain, encoded(bench, producer, is_transactional=False)),
            (T1, data),
            (TopicPartition(TRANSACTION_STATE_TOPIC, 0), data),
            (open_one, encoded(bench, producer, 1)),
            (plain, data[:60]),
            (T0, data),
        ],
    )
    assert bench.coordinator.open_partitions("x", producer) == {T0, T1, open_one}
    assert len(stored(bench)) == before + 1
    wrong = encoded(bench, producer._replace(producer_epoch=9))
    add_to_transaction(bench.broker.manager, bench.coordinator, "x", [(plain, wrong)])
    assert len(stored(bench)) == before + 1


def test_a_batch_of_an_older_epoch_adds_nothing(bench, producer):
    send(bench, producer)
    following = end(bench, producer)
    with pytest.raises(InvalidProducerEpochError):
        send(bench, producer, T1)
    with pytest.raises(InvalidProducerEpochError):
        send(bench, producer, sequence=1)
    assert bench.state() == "CompleteCommit"
    send(bench, following)


def test_a_batch_of_an_unknown_producer_creates_no_topic(bench):
    with pytest.raises(InvalidProducerIdMappingError):
        send(bench, ProducerIdAndEpoch(7, 0))
    assert [topic.name for topic in bench.broker.topics()] == ["t"]


def test_a_producer_that_is_fenced_while_its_batch_waits_has_an_invalid_epoch(
    bench, producer, monkeypatch
):
    """As for a batch that is refused at once."""

    def fence(*_, **__):
        bench.coordinator.init_producer_id("x", MINUTE_MS)

    monkeypatch.setattr(bench.coordinator._host, "wait_until", fence)
    with pytest.raises(InvalidProducerEpochError) as raised:
        send(bench, producer)
    assert raised.type is InvalidProducerEpochError


def test_the_first_batch_of_a_partition_begins_at_sequence_0(bench, producer):
    with pytest.raises(OutOfOrderSequenceNumberError):
        send(bench, producer, sequence=1)
    send(bench, producer)
    following = end(bench, producer)
    with pytest.raises(OutOfOrderSequenceNumberError):
        send(bench, following, sequence=1)
    send(bench, following)
    assert send(bench, following).is_duplicate
    assert bench.coordinator.transactions()["x"].partitions == {T0}


# -- transactions that cannot be completed yet -------------------------------------------------


def test_the_next_transaction_waits_for_the_markers(bench, producer, failing_markers):
    send(bench, producer)
    following = end(bench, producer)
    assert following == (0, 1)
    assert bench.state() == "PrepareCommit"
    assert end(bench, producer) == following
    for call in (
        lambda: send(bench, following),
        lambda: send(bench, following, T1),
        lambda: bench.coordinator.add_partitions("x", following, [T1], V2),
        lambda: bench.coordinator.init_producer_id("x", MINUTE_MS),
    ):
        with pytest.raises(ConcurrentTransactionsError, match="PrepareCommit"):
            call()
    for commit in (True, False):
        with pytest.raises(ProducerFencedError):
            end(bench, following, commit=commit)
    with pytest.raises(InvalidTxnStateError):
        end(bench, producer, commit=False)
    failing_markers.undo()
    send(bench, following)
    assert markers(bench.log()) == [(1, 0, 1, "COMMIT", 0)]


def test_a_new_producer_id_also_waits_for_the_markers(bench, producer, monkeypatch):
    last = give_epoch(bench, LAST_EPOCH)
    send(bench, last)

    def fail(*_, **__):
        raise KafkaStorageError("the disk failed")

    with monkeypatch.context() as patch:
        patch.setattr(bench.log().writer, "append_end_txn_marker", fail)
        following = end(bench, last)
        assert following == (1000, 0)
        with pytest.raises(ConcurrentTransactionsError):
            send(bench, following)
        assert end(bench, last) == following
    bench.reopen()
    send(bench, following)
    assert end(bench, following) == (1000, 1)


@pytest.mark.parametrize("version", (V0, V2))
def test_a_decision_is_completed_after_a_restart(bench, producer, version, monkeypatch):
    """With the epoch that the stored decision has."""
    send(bench, producer)

    def fail(*_, **__):
        raise KafkaStorageError("the disk failed")

    with monkeypatch.context() as patch:
        patch.setattr(bench.log().writer, "append_end_txn_marker", fail)
        following = end(bench, producer, version=version)
    bench.reopen()
    bench.coordinator.abort_timed_out()
    assert bench.state() == "CompleteCommit"
    assert markers(bench.log()) == [(1, 0, following.producer_epoch, "COMMIT", 0)]


# -- markers in a log --------------------------------------------------------------------------


def append_marker(bench, producer, version=2, coordinator_epoch=0):
    bench.log().writer.append_end_txn_marker(
        *producer, coordinator_epoch, commit=False, transaction_version=version
    )


def test_a_marker_of_version_2_needs_a_later_epoch_than_its_transaction(bench, producer):
    send(bench, producer)
    with pytest.raises(InvalidProducerEpochError):
        append_marker(bench, producer)
    assert markers(bench.log()) == []
    following = producer._replace(producer_epoch=1)
    append_marker(bench, following)
    append_marker(bench, following)  # a retry
    with pytest.raises(InvalidProducerEpochError):
        append_marker(bench, producer)
    assert [epoch for _, _, epoch, _, _ in markers(bench.log())] == [1, 1]
    append_marker(bench, following, version=1)


def test_a_late_marker_does_not_end_the_next_transaction(bench, producer):
    send(bench, producer)
    following = end(bench, producer)
    send(bench, following)
    with pytest.raises(InvalidProducerEpochError):
        append_marker(bench, following)
    assert bench.log().last_stable_offset < bench.log().log_end_offset
