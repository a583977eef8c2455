"""Transactional producers: order of calls, visibility of records, errors and fencing."""

import threading
from collections import Counter

import pytest

from logstore import (
    Broker,
    InvalidProducerEpochError,
    InvalidRecordError,
    OutOfOrderSequenceNumberError,
    SystemClock,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from logstore.errors import (
    IllegalStateError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    ProducerFencedError,
    TransactionAbortedError,
)
from logstore.runtime import MemoryFileSystem
from logstore.storage.log.reader import Isolation
from tests.support.world.edited_batches import with_offset_and_epoch
from tests.support.world.messages import exactly
from tests.support.world.transactions import COMMITTED, Bench, markers, stamps

T0 = TopicPartition("t", 0)


@pytest.fixture
def bench():
    bench = Bench()
    bench.broker.create_topic("t", 2)
    bench.broker.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    yield bench
    bench.broker.close()


# -- order of calls --------------------------------------------------------------------------


def test_a_producer_without_an_id_has_no_transactions(bench):
    for producer in (bench.broker.producer(), bench.broker.producer(enable_idempotence=False)):
        for name in (
            "init_transactions",
            "begin_transaction",
            "commit_transaction",
            "abort_transaction",
        ):
            with pytest.raises(
                IllegalStateError, match=exactly("the producer has no transactional_id")
            ):
                getattr(producer, name)()
        with pytest.raises(
            IllegalStateError, match=exactly("the producer has no transactional_id")
        ):
            producer.send_offsets_to_transaction({}, "g")


def test_calls_in_the_wrong_order_are_refused_and_change_nothing(bench):
    producer = bench.broker.producer(transactional_id="x")

    def refused(*names):
        for name in names:
            call = getattr(producer, name)
            with pytest.raises(IllegalStateError, match="the producer is"):
                call("t", b"v") if name == "send" else call()

    refused("send", "begin_transaction", "commit_transaction", "abort_transaction")
    assert bench.coordinator.transactions() == {}
    producer.init_transactions()
    refused("send", "commit_transaction", "abort_transaction")
    producer.begin_transaction()
    refused("begin_transaction")
    producer.commit_transaction()
    refused("send", "commit_transaction", "abort_transaction")
    producer.begin_transaction()
    producer.abort_transaction()
    refused("send", "commit_transaction", "abort_transaction")


def test_to_initialize_again_does_nothing(bench):
    producer = bench.transactional()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    producer.init_transactions()
    producer.commit_transaction()
    assert bench.seen() == [b"v"]
    assert bench.coordinator.transactions()["x"].producer == (0, 0)


def test_a_timeout_that_the_broker_does_not_allow_is_refused(bench):
    producer = bench.broker.producer(transactional_id="x", transaction_timeout_ms=900_001)
    with pytest.raises(
        InvalidTransactionTimeoutError,
        match=exactly(
            "a transaction timeout of 900001 ms is not in [1, 900000] (transaction.max.timeout.ms)"
        ),
    ):
        producer.init_transactions()
    assert bench.transactional(transaction_timeout_ms=900_000)
    assert bench.coordinator.transactions()["x"].timeout_ms == 900_000


# -- what readers see ------------------------------------------------------------------------


def test_readers_of_committed_data_see_all_of_it_at_once(bench):
    producer = bench.transactional()
    plain = bench.broker.producer()
    producer.begin_transaction()
    producer.send("t", b"a", partition=0)
    producer.send("t", b"b", partition=1)
    plain.send("t", b"plain", partition=0)
    assert (bench.seen(), bench.seen(partition=1)) == ([], [])
    assert bench.seen(isolation="read_uncommitted") == [b"a", b"plain"]
    producer.commit_transaction()
    assert (bench.seen(), bench.seen(partition=1)) == ([b"a", b"plain"], [b"b"])


def test_aborted_data_are_never_seen(bench):
    producer = bench.transactional()
    for number in range(4):
        producer.begin_transaction()
        producer.send("t", b"%d" % number, partition=0)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    assert bench.seen() == [b"0", b"2"]
    fetched = bench.log().reader.read(0, 10_000, isolation=Isolation.READ_COMMITTED)
    assert fetched.aborted == ((0, 2), (0, 6)), "producer id and first offset of each"
    assert [kind for *_, kind, _ in markers(bench.log())] == ["COMMIT", "ABORT"] * 2


def test_transactions_of_several_producers_interleave(bench):
    one, two, three = (bench.transactional(name) for name in ("1", "2", "3"))
    for producer in (one, two, three):
        producer.begin_transaction()
    for number in range(3):
        for name, producer in ((b"one", one), (b"two", two), (b"three", three)):
            producer.send("t", name + b" %d" % number, partition=0)
    two.abort_transaction()
    assert bench.seen() == []
    three.commit_transaction()
    assert bench.seen() == []
    one.commit_transaction()
    assert bench.seen() == [
        b"one 0",
        b"three 0",
        b"one 1",
        b"three 1",
        b"one 2",
        b"three 2",
    ]
    assert bench.log().last_stable_offset == bench.log().log_end_offset == 12


def test_lingering_records_are_committed(bench):
    producer = bench.transactional(linger_ms=1000)
    producer.begin_transaction()
    futures = [producer.send("t", b"%d" % number, partition=number % 2) for number in range(4)]
    assert bench.state() == "Empty"
    producer.commit_transaction()
    assert [future.value.offset for future in futures] == [0, 0, 1, 1]
    assert stamps(bench.log()) == [(0, 0, 0, 0, True)]
    assert (bench.seen(), bench.seen(partition=1)) == ([b"0", b"2"], [b"1", b"3"])


def test_partitions_that_are_sent_to_together_are_one_record_of_the_state(bench):
    producer = bench.transactional(linger_ms=1000)
    producer.begin_transaction()
    for number in range(2):
        producer.send("t", b"v", partition=number)
    producer.commit_transaction()
    log = bench.log("__transaction_state")
    assert log.log_end_offset == 4, "Empty, Ongoing, PrepareCommit, CompleteCommit"


def test_records_that_linger_are_not_sent_when_the_transaction_is_aborted(bench):
    """KIP-654."""
    producer = bench.transactional(linger_ms=1000)
    producer.begin_transaction()
    producer.send("t", b"sent", partition=0).get()
    waiting = producer.send("t", b"waiting", partition=0)
    told = []
    waiting.add_both(told.append)
    producer.abort_transaction()
    assert told == [waiting.exception]
    with pytest.raises(TransactionAbortedError):
        waiting.get()
    assert bench.seen(isolation="read_uncommitted") == [b"sent"]
    producer.begin_transaction()
    producer.send("t", b"next", partition=0)
    producer.commit_transaction()
    assert bench.seen() == [b"next"]
    assert [stamp[3] for stamp in stamps(bench.log())] == [0, 1]


def test_partitions_are_added_before_their_first_data(bench, monkeypatch):
    producer = bench.broker.producer(transactional_id="x", linger_ms=0)
    producer.init_transactions()
    asked = []
    verified = bench.broker.coordinator.verified

    def noting(topic_partition, *arguments, **options):
        asked.append(topic_partition)
        return verified(topic_partition, *arguments, **options)

    monkeypatch.setattr(bench.broker.coordinator, "verified", noting)
    producer.begin_transaction()
    for partition in (0, 0, 1):
        producer.send("t", b"v", partition=partition)
    producer.commit_transaction()
    assert asked == [T0, TopicPartition("t", 1)]
    producer.close()
    plain = bench.broker.producer()
    plain.send("t", b"v", partition=0)
    assert len(asked) == 2


def test_an_empty_transaction_leaves_no_trace(bench):
    producer = bench.transactional()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        end()
    assert bench.state() == "Empty"
    assert bench.log().log_end_offset == 0


def test_a_batch_of_a_transaction_that_is_sent_again_is_a_duplicate(bench):
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    log = bench.log()
    (batch,) = log.reader.batches(0)
    data = with_offset_and_epoch(batch.data, 0, -1)
    assert log.writer.append_batches(data).is_duplicate
    producer.commit_transaction()
    assert log.writer.append_batches(data).is_duplicate, (
        "also after the end; it opens no transaction"
    )
    assert log.last_stable_offset == log.log_end_offset == 2
    assert bench.seen() == [b"v"]


# -- errors ----------------------------------------------------------------------------------


def test_a_refused_record_lets_the_transaction_only_be_aborted(bench):
    producer = bench.transactional(linger_ms=1000)
    producer.begin_transaction()
    good = producer.send("t", b"good", partition=0)
    good.get()
    bad = producer.send("compacted", b"no key")
    waiting = producer.send("t", b"waiting", partition=1)
    with pytest.raises(InvalidRecordError):
        producer.commit_transaction()
    assert isinstance(waiting.exception, InvalidRecordError)
    assert bad.failed()
    with pytest.raises(IllegalStateError, match="must be aborted") as raised:
        producer.send("t", b"more")
    assert isinstance(raised.value.__cause__, InvalidRecordError)
    with pytest.raises(InvalidRecordError):
        producer.commit_transaction()
    with pytest.raises(IllegalStateError):
        producer.begin_transaction()
    producer.abort_transaction()
    assert bench.seen() == bench.seen(partition=1) == []
    producer.begin_transaction()
    producer.send("t", b"next", partition=0)
    producer.commit_transaction()
    assert bench.seen() == [b"next"]
    assert bench.coordinator.transactions()["x"].producer == (0, 0), "the epoch was not bumped"


def test_after_a_sequence_that_was_not_expected_the_next_transaction_has_the_next_epoch(bench):
    producer = bench.transactional()
    producer.begin_transaction()
    for value in (b"1", b"2"):
        producer.send("t", value, partition=0)
    bench.broker.manager.truncate_to(T0, 1)
    with pytest.raises(
        OutOfOrderSequenceNumberError,
        match=exactly("t-0: sequence 2 of producer 0 in epoch 0 does not follow 0"),
    ):
        producer.send("t", b"3", partition=0).get()
    with pytest.raises(
        OutOfOrderSequenceNumberError,
        match=exactly("t-0: sequence 2 of producer 0 in epoch 0 does not follow 0"),
    ):
        producer.commit_transaction()
    producer.abort_transaction()
    assert bench.seen() == []
    producer.begin_transaction()
    producer.send("t", b"4", partition=0)
    producer.commit_transaction()
    assert bench.seen() == [b"4"]
    assert stamps(bench.log())[-1][1:] == (0, 1, 0, True)
    for value in (b"5", b"6", b"7"):
        producer.begin_transaction()
        producer.send("t", value, partition=0)
        producer.commit_transaction()
    assert bench.coordinator.transactions()["x"].producer == (0, 1), (
        "the epoch is bumped once per error"
    )


def test_an_unknown_topic_does_not_require_an_abort(bench):
    producer = bench.transactional()
    producer.begin_transaction()
    with pytest.raises(UnknownTopicOrPartitionError, match=exactly("unknown topic 'none'")):
        producer.send("none", b"v")
    producer.send("t", b"v", partition=0)
    producer.commit_transaction()
    assert bench.seen() == [b"v"]


def test_a_topic_deleted_during_a_transaction_is_left_out(bench):
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send("t", b"kept", partition=0)
    producer.send("compacted", b"gone", b"k")
    bench.broker.delete_topic("compacted")
    producer.commit_transaction()
    assert bench.seen() == [b"kept"]


# -- fencing -----------------------------------------------------------------------------------


def test_of_two_producers_with_one_id_the_newer_one_writes(bench):
    older = bench.transactional()
    older.begin_transaction()
    older.send("t", b"older", partition=0)
    newer = bench.transactional()
    refused = older.send("t", b"older again", partition=0)
    with pytest.raises(
        InvalidProducerEpochError,
        match=exactly("t-0: epoch 0 of producer 0 is older than the known 1"),
    ):
        refused.get()
    with pytest.raises(
        InvalidProducerEpochError,
        match=exactly("t-0: epoch 0 of producer 0 is older than the known 1"),
    ):
        older.commit_transaction()
    with pytest.raises(
        ProducerFencedError,
        match=exactly(
            "producer 0 with epoch 0 of transactional id 'x' is fenced: epoch 2 is the newest"
        ),
    ):
        older.abort_transaction()
    for call in (
        older.begin_transaction,
        older.commit_transaction,
        older.abort_transaction,
        older.init_transactions,
        lambda: older.send("t", b"v"),
    ):
        with pytest.raises(
            ProducerFencedError,
            match=exactly(
                "producer 0 with epoch 0 of transactional id 'x' is fenced: epoch 2 is the newest"
            ),
        ):
            call()
    older.close()
    newer.begin_transaction()
    newer.send("t", b"newer", partition=0)
    newer.commit_transaction()
    assert bench.seen() == [b"newer"]


def test_a_fenced_producer_can_not_bring_new_partitions_into_a_transaction(bench):
    older, newer = bench.transactional(), bench.transactional()
    older.begin_transaction()
    with pytest.raises(
        ProducerFencedError,
        match=exactly(
            "producer 0 with epoch 0 of transactional id 'x' is fenced: epoch 1 is the newest"
        ),
    ):
        older.send("t", b"v", partition=1).get()
    newer.begin_transaction()
    newer.send("t", b"newer", partition=1)
    with pytest.raises(
        ProducerFencedError,
        match=exactly(
            "producer 0 with epoch 0 of transactional id 'x' is fenced: epoch 1 is the newest"
        ),
    ):
        older.commit_transaction()
    newer.commit_transaction()
    assert bench.seen(partition=1) == [b"newer"]
    assert bench.seen(partition=1, isolation="read_uncommitted") == [b"newer"]


def test_records_that_linger_when_their_producer_is_fenced_are_refused(bench):
    older = bench.transactional(linger_ms=1000)
    older.begin_transaction()
    futures = [older.send("t", b"v", partition=number) for number in range(2)]
    bench.transactional()
    with pytest.raises(
        ProducerFencedError,
        match=exactly(
            "producer 0 with epoch 0 of transactional id 'x' is fenced: epoch 1 is the newest"
        ),
    ):
        older.commit_transaction()
    assert all(isinstance(future.exception, ProducerFencedError) for future in futures)
    assert bench.log().log_end_offset == 0


def test_a_producer_is_fenced_by_a_transaction_timeout(bench):
    producer = bench.transactional(transaction_timeout_ms=1000)
    producer.begin_transaction()
    producer.send("t", b"late", partition=0)
    bench.clock.advance(ms=1001)
    with pytest.raises(
        ProducerFencedError,
        match=exactly(
            "producer 0 with epoch 0 of transactional id 'x' is fenced: epoch 1 is the newest"
        ),
    ):
        producer.commit_transaction()
    assert bench.seen() == []
    assert bench.log().last_stable_offset == bench.log().high_watermark
    again = bench.transactional()
    again.begin_transaction()
    again.send("t", b"in time", partition=0)
    again.commit_transaction()
    assert bench.seen() == [b"in time"]


def test_time_outside_a_transaction_does_not_count(bench):
    producer = bench.transactional(transaction_timeout_ms=1000)
    for _ in range(3):
        bench.clock.advance(days=1)
        producer.begin_transaction()
        bench.clock.advance(hours=1)  # the timeout starts with the first record
        producer.send("t", b"v", partition=0)
        bench.clock.advance(ms=1000)
        producer.commit_transaction()
    assert bench.seen() == [b"v"] * 3


def test_a_producer_ends_when_its_id_expired(bench):
    producer = bench.transactional()
    bench.clock.advance(days=7)
    bench.transactional("other")
    producer.begin_transaction()
    with pytest.raises(
        InvalidProducerIdMappingError,
        match=exactly("producer 0 does not belong to transactional id 'x'"),
    ):
        producer.send("t", b"v").get()
    with pytest.raises(
        InvalidProducerIdMappingError,
        match=exactly("producer 0 does not belong to transactional id 'x'"),
    ):
        producer.abort_transaction()


def test_closing_aborts_an_open_transaction(bench):
    with bench.transactional(linger_ms=1000) as producer:
        producer.begin_transaction()
        producer.send("t", b"sent", partition=0).get()
        waiting = producer.send("t", b"waiting", partition=0)
    assert isinstance(waiting.exception, TransactionAbortedError)
    assert bench.state() == "CompleteAbort"
    assert bench.seen() == []
    bench.transactional().close()
    assert bench.state() == "Empty"


def test_closing_a_producer_that_cannot_abort_raises_nothing(bench, caplog):
    producer = bench.transactional()
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    bench.transactional()
    producer.close()
    assert "was not aborted" in caplog.text
    assert list(bench.broker.read("t", 0, isolation=COMMITTED)) == []


# -- threads -----------------------------------------------------------------------------------


def test_transactions_of_concurrent_producers_are_atomic():
    """Each transaction is in both partitions or in none, even for concurrent readers."""
    broker = Broker(clock=SystemClock(), fs=MemoryFileSystem(), background=True)
    broker.create_topic("t", 2)
    committed = set()
    broken = []

    def write(thread):
        producer = broker.producer(
            transactional_id=f"thread {thread}",
            linger_ms=thread % 2,
            transaction_timeout_ms=900_000,  # system clock: avoid timeouts on a busy machine
        )
        producer.init_transactions()
        for number in range(12):
            name = b"%d %d" % (thread, number)
            producer.begin_transaction()
            for partition in (0, 1, 0):
                producer.send("t", name, partition=partition)
            if number % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                committed.add(name)
                seen = [r.value for r in broker.read("t", 1, isolation=COMMITTED)]
                if any(seen.count(each) != 1 for each in seen):
                    broken.append(seen)

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert broken == []
    for partition, times in ((0, 2), (1, 1)):
        seen = [r.value for r in broker.read("t", partition, isolation=COMMITTED)]
        assert len(committed) == 32
        assert Counter(seen) == dict.fromkeys(committed, times)
    broker.close()
