"""The state of a producer: stamps, sequences, and the reaction to each error."""

import pytest

from logstore import SystemClock
from logstore.clients.coordinators import TransactionRequests
from logstore.clients.session import ProducerSession, SessionState
from logstore.coordinator.transactions.state import ProducerIdAndEpoch
from logstore.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
)
from logstore.types import INT16_MAX, INT32_MAX, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SEQUENCE, EPOCH, LOST = (
    each("x")
    for each in (OutOfOrderSequenceNumberError, InvalidProducerEpochError, KafkaTimeoutError)
)
FATAL = tuple(
    each("x") for each in (ProducerFencedError, InvalidProducerIdMappingError, InvalidTxnStateError)
)


class Coordinator:
    is_replicated = False

    def __init__(self):
        self.calls = []
        self.ids = iter(range(40, 99))

    def new_producer_id(self):
        return next(self.ids)

    def init_producer_id(self, *args, expected=None):
        self.calls.append(("init", *args, expected))
        return ProducerIdAndEpoch(7, 0 if expected is None else expected[1] + 1)

    def add_partitions(self, *args):
        self.calls.append(("add", *args))

    def end_transaction(self, *args, commit):
        self.calls.append(("end", *args, commit))


def session(transactional_id=None):
    requests = TransactionRequests(Coordinator(), transactional_id, SystemClock(), 60_000, 100)
    return ProducerSession(requests, transactional_id, 60_000)


def in_transaction():
    it = session("x")
    it.init()
    it.begin()
    it.add_partitions([T0])
    return it


def test_sequences_are_of_a_partition_and_wrap():
    it = session()
    assert it.producer is None
    assert it.producer_fields(T0) == (40, 0, 0, False)
    it.advance(T0, 5)
    it.advance(T1, INT32_MAX)
    assert (it.producer_fields(T0), it.producer_fields(T1)) == (
        (40, 0, 5, False),
        (40, 0, INT32_MAX, False),
    )
    it.advance(T1, 3)
    assert it.producer_fields(T1) == (40, 0, 2, False)
    assert it.producer == (40, 0)


@pytest.mark.parametrize(
    ("epoch", "error", "recovers", "stamp"),
    (
        (3, SEQUENCE, True, (40, 4, 0, False)),
        (INT16_MAX - 1, SEQUENCE, True, (40, INT16_MAX, 0, False)),
        (INT16_MAX, SEQUENCE, True, (41, 0, 0, False)),
        (3, EPOCH, True, (41, 0, 0, False)),
        (3, LOST, False, (40, 3, 9, False)),
        (3, FATAL[2], False, (40, 3, 9, False)),
    ),
)
def test_an_idempotent_producer_continues_after_an_error(epoch, error, recovers, stamp):
    it = session()
    it.producer_fields(T0)
    it._restart(ProducerIdAndEpoch(40, epoch))
    it.advance(T0, 9)
    it.advance(T1, 9)
    assert it.recovers_from(error) is recovers
    assert (it.producer_fields(T0), it.producer_fields(T1)) == (stamp, stamp)
    it.fail(error)
    assert (it.state, it.error) == (SessionState.UNINITIALIZED, None)


def test_sequences_of_a_lost_response_are_not_used_again():
    it = session()
    it.handle_lost_response()  # before the first batch there is nothing to lose
    it.producer_fields(T0)
    it.advance(T0, 9)
    it.handle_lost_response()
    assert it.producer_fields(T0) == (40, 1, 0, False)
    it = in_transaction()
    it.advance(T0, 9)
    it.handle_lost_response()
    assert it.producer_fields(T0) == (7, 0, 9, True)
    it.fail(LOST)
    it.abort()
    assert it.producer_fields(T0) == (7, 1, 0, True)
    assert it._coordinator.home.calls[-1] == ("init", "x", 60_000, (7, 0))


@pytest.mark.parametrize(
    ("error", "epoch"), ((SEQUENCE, 1), (EPOCH, 1), (LOST, 0)), ids=("sequence", "epoch", "other")
)
def test_a_transaction_that_failed_can_only_be_aborted(error, epoch):
    it = in_transaction()
    assert not it.recovers_from(error)
    it.fail(error)
    it.fail(ValueError("later"))
    assert (it.state, it.error, it.has_transaction) == (SessionState.ABORTABLE_ERROR, error, True)
    for refused in (it.check_can_commit, it.check_can_send_offsets, it.commit, it.raise_if_failed):
        with pytest.raises(type(error)):
            refused()
    with pytest.raises(IllegalStateError) as raised:
        it.check_can_send()
    assert str(raised.value) == (
        "cannot send: the producer is in a transaction that must be aborted"
    )
    assert it.abort_reason() is error
    it.abort()
    assert it._coordinator.home.calls[2] == ("end", "x", (7, 0), False)
    assert (it.state, it.error, it.producer) == (SessionState.READY, None, (7, epoch))
    it.begin()
    it.add_partitions([T0, T1])
    assert it._coordinator.home.calls[-1] == ("add", "x", (7, epoch), {T0, T1})
    it.abort()
    assert it.producer == (7, epoch)


@pytest.mark.parametrize("error", FATAL, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ("transaction", "ready"))
def test_a_fatal_error_is_the_end(error, where):
    it = in_transaction()
    if where == "ready":
        it.commit()
    it.fail(error)
    assert (it.state, it.error, it.has_transaction) == (SessionState.FATAL_ERROR, error, False)
    for refused in (it.init, it.begin, it.commit, it.abort, it.check_can_send):
        with pytest.raises(type(error)):
            refused()


def test_partitions_are_added_once_to_each_transaction():
    it = session("x")
    assert (it.is_transactional, it.has_transaction) == (True, False)
    for refused in (it.begin, it.check_can_commit, it.check_can_abort, it.check_can_send):
        with pytest.raises(IllegalStateError, match=r": the producer is not initialized$"):
            refused()
    it.init()
    it.init()
    for _ in range(2):
        it.begin()
        it.check_can_send()
        it.add_partitions([T0])
        it.add_partitions([T0, T1])
        it.add_partitions([T1])
        it.commit()
    of_each = [
        ("add", "x", (7, 0), {T0}),
        ("add", "x", (7, 0), {T1}),
        ("end", "x", (7, 0), True),
    ]
    assert it._coordinator.home.calls == [("init", "x", 60_000, None), *of_each, *of_each]
    it.begin()
    it.commit()
    assert len(it._coordinator.home.calls) == 7, "an empty transaction has nothing to end"


def test_without_a_transactional_id_there_are_no_transactions():
    it = session()
    it.check_can_send()
    it.add_partitions([T0])
    assert it._coordinator.home.calls == []
    for refused in (it.init, it.begin, it.commit, it.abort):
        with pytest.raises(IllegalStateError) as raised:
            refused()
        assert str(raised.value) == "the producer has no transactional_id"
