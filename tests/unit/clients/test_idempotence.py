"""Idempotent producers: ids, sequences, duplicates, and unexpected sequences."""

import pytest

from logstore import (
    Broker,
    IllegalStateError,
    InvalidProducerEpochError,
    OutOfOrderSequenceNumberError,
    VirtualClock,
)
from logstore.coordinator.transactions.state import ProducerIdAndEpoch
from logstore.types import INT16_MAX, INT32_MAX, TopicPartition
from tests.support.world.edited_batches import with_offset_and_epoch
from tests.support.world.messages import exactly
from tests.support.world.transactions import Bench, stamps

T0 = TopicPartition("t", 0)


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", 2)
        yield broker


def captured(log):
    """Return the log's batches as a client sends them."""
    return [
        with_offset_and_epoch(batch.data, 0, -1)
        for batch in log.reader.batches(log.log_start_offset)
    ]


def send(producer, *values, partition=0):
    return [producer.send("t", value, partition=partition).get().offset for value in values]


def test_each_producer_has_an_id_and_each_partition_its_sequences(broker):
    one, two = broker.producer(), broker.producer(linger_ms=10)
    send(one, b"a", b"b")
    send(one, b"c", partition=1)
    futures = [two.send("t", b"d", partition=0) for _ in range(3)]
    two.flush()
    send(one, b"e")
    assert stamps(broker.log("t", 0)) == [
        (0, 0, 0, 0, False),
        (1, 0, 0, 1, False),
        (2, 1, 0, 0, False),
        (5, 0, 0, 2, False),
    ]
    assert stamps(broker.log("t", 1)) == [(0, 0, 0, 0, False)]
    assert [future.value.offset for future in futures] == [2, 3, 4]


def test_a_batch_that_is_sent_again_is_answered_with_its_offsets(broker):
    producer = broker.producer(linger_ms=10)
    for _ in range(3):
        producer.send("t", b"v", partition=0)
    producer.flush()
    send(producer, b"more")
    log = broker.log("t")
    first, second = captured(log)
    for data, offsets in ((first, (0, 2)), (second, (3, 3)), (first, (0, 2))):
        info = log.writer.append_batches(data)
        assert info.is_duplicate
        assert (info.first_offset, info.last_offset) == offsets
    assert log.log_end_offset == 4
    assert send(producer, b"after") == [4], "the producer continues"


def test_an_old_batch_of_a_fenced_epoch_is_refused(broker):
    producer = broker.producer()
    send(producer, b"1")
    log = broker.log("t")
    (old,) = captured(log)
    producer._session.recovers_from(OutOfOrderSequenceNumberError("as if"))
    assert send(producer, b"2") == [1]
    with pytest.raises(
        InvalidProducerEpochError,
        match=exactly("t-0: epoch 0 of producer 0 is older than the known 1"),
    ):
        log.writer.append_batches(old)
    assert log.log_end_offset == 2


def continue_at(producer, producer_id, sequence):
    """Set a producer's sequence as if it had sent this many records to t-0."""
    producer._session._restart(ProducerIdAndEpoch(producer_id, 0))
    producer._session._sequences[T0] = sequence


def test_sequences_wrap_after_the_largest_int(broker):
    producer = broker.producer()
    continue_at(producer, 7, INT32_MAX)
    assert send(producer, b"largest", b"smallest", b"next") == [0, 1, 2]
    assert [stamp[3] for stamp in stamps(broker.log("t"))] == [INT32_MAX, 0, 1]


def test_a_batch_may_span_the_wrap(broker):
    producer = broker.producer(linger_ms=10)
    continue_at(producer, 7, INT32_MAX - 1)
    futures = [producer.send("t", b"v", partition=0) for _ in range(3)]
    producer.flush()
    assert [future.value.offset for future in futures] == [0, 1, 2]
    log = broker.log("t")
    assert log.producer_state.entry(7).last_sequence == 0
    assert send(producer, b"next", b"one more") == [3, 4]
    assert [stamp[3] for stamp in stamps(log)] == [INT32_MAX - 1, 1, 2]
    first, *_ = captured(log)
    assert log.writer.append_batches(first).is_duplicate


def test_after_an_unexpected_sequence_the_epoch_is_bumped(broker):
    """The log was truncated: the next records are stored nevertheless."""
    producer = broker.producer()
    send(producer, b"1", b"2", b"3")
    send(producer, b"4", partition=1)
    broker.manager.truncate_to(T0, 1)
    assert send(producer, b"5", b"6") == [1, 2]
    assert stamps(broker.log("t", 0)) == [
        (0, 0, 0, 0, False),
        (1, 0, 1, 0, False),
        (2, 0, 1, 1, False),
    ]
    assert send(producer, b"7", partition=1) == [1]
    assert stamps(broker.log("t", 1))[-1] == (1, 0, 1, 0, False), "all sequences restart at 0"
    assert producer.metrics(raw=True)["record-retry-total"] == 1


def test_after_the_last_epoch_a_new_id_is_used(broker):
    producer = broker.producer()
    send(producer, b"1")
    producer._session._restart(ProducerIdAndEpoch(0, INT16_MAX))
    send(producer, b"2", b"3")
    broker.manager.truncate_to(T0, 2)
    assert send(producer, b"4") == [2]
    assert stamps(broker.log("t"))[-1] == (2, 1, 0, 0, False)


def test_an_epoch_that_the_log_knows_a_newer_one_of_makes_way_for_a_new_id(broker):
    producer, other = broker.producer(), broker.producer()
    send(other, b"0", partition=1)
    send(producer, b"1")
    assert (other._session.producer, producer._session.producer) == ((0, 0), (1, 0))
    other._session._restart(ProducerIdAndEpoch(1, 3))
    send(other, b"2")
    assert send(producer, b"3", b"4") == [2, 3]
    assert stamps(broker.log("t"))[-2:] == [(2, 2, 0, 0, False), (3, 2, 0, 1, False)]


def test_a_refused_batch_uses_no_sequences(broker):
    broker.alter_configs("t", {"cleanup.policy": "compact"})
    producer = broker.producer()
    for key in (b"1", None, b"2"):
        producer.send("t", b"v", key, partition=0)
    assert [stamp[3] for stamp in stamps(broker.log("t"))] == [0, 1]


def test_a_producer_expired_in_the_log_continues(broker):
    """After a day without records, the log accepts any sequence."""
    producer = broker.producer()
    send(producer, b"1", b"2")
    broker.clock.advance(days=1)
    broker.log("t").producer_state.remove_expired(broker.clock.now_ms())
    assert send(producer, b"3") == [2]
    assert stamps(broker.log("t"))[-1] == (2, 0, 0, 2, False)


def test_a_producer_continues_in_a_recreated_topic(broker):
    producer = broker.producer()
    send(producer, b"1", b"2")
    broker.delete_topic("t")
    broker.create_topic("t")
    assert send(producer, b"3", b"4") == [0, 1]


def test_ids_are_not_used_again_by_the_next_process():
    bench = Bench()
    bench.broker.create_topic("t")
    bench.broker.producer().send("t", b"v")
    bench.reopen()
    for _ in range(2):
        bench.broker.producer().send("t", b"v")
    assert [stamp[1] for stamp in stamps(bench.log())] == [0, 1000, 1001]
    bench.broker.close()


# -- tasks in virtual time -------------------------------------------------------------------------


@pytest.mark.parametrize("transactional_id", (None, "x"))
@pytest.mark.parametrize("is_written", (False, True))
def test_a_task_sends_no_batch_before_the_one_that_is_retried(transactional_id, is_written):
    """It runs in the thread that waits, so the producer's lock does not exclude it."""
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t")
        broker.runtime.scheduler.start()
        configs = {"transactional_id": transactional_id} if transactional_id else {}
        producer = broker.producer(linger_ms=0, **configs)
        if transactional_id:
            producer.init_transactions()
            producer.begin_transaction()
        futures, refused = [], []

        def send():
            futures.append(producer.send("t", b"2", partition=0))
            with pytest.raises(IllegalStateError):
                producer.flush()
            refused.append(True)

        broker.runtime.scheduler.schedule("send", send, delay_ms=10)
        error = "REQUEST_TIMED_OUT" if is_written else "NOT_ENOUGH_REPLICAS"
        with broker.fail("append", error=error, nth=1, after=is_written):
            futures.append(producer.send("t", b"1", partition=0))
        assert refused
        if transactional_id:
            producer.commit_transaction()
        assert sorted(future.get().offset for future in futures) == [0, 1]
        assert [record.value for record in broker.read("t")] == [b"1", b"2"]
