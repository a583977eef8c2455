"""The producer: sending, futures, batches, lingering, partitions, serializers and closing."""

import logging
import threading

import pytest

from logstore import (
    Broker,
    InvalidConfigurationError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    VirtualClock,
)
from logstore.clients.futures import ProducerBatch
from logstore.clients.open_batch import estimated_size
from logstore.errors import IllegalStateError, RequestError
from logstore.record.codecs import Codec
from logstore.record.layout import HEADER_SIZE
from logstore.runtime import DeterministicScheduler, MemoryFileSystem, SystemClock
from tests.support.world.brokers import values
from tests.support.world.messages import exactly
from tests.support.world.transactions import stamps

T = 1_700_000_000_000


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock(T)) as broker:
        broker.create_topic("t", 3)
        yield broker


def batches(broker, topic="t", partition=0):
    log = broker.log(topic, partition)
    return list(log.reader.batches(log.log_start_offset))


def counts(broker, topic="t", partition=0):
    return [batch.header.record_count for batch in batches(broker, topic, partition)]


# -- sending and futures -------------------------------------------------------------------


def test_a_record_is_stored_when_send_returns(broker):
    producer = broker.producer()
    broker.clock.advance(ms=5)
    future = producer.send("t", b"value", b"key", [("h", b"12"), ("é", b"")], 1)
    assert future.is_done
    assert future.succeeded()
    assert not future.failed()
    metadata = future.get(timeout=1)
    assert metadata == future.value
    assert metadata._asdict() == {
        "topic": "t",
        "partition": 1,
        "topic_partition": TopicPartition("t", 1),
        "offset": 0,
        "timestamp": T + 5,
        "checksum": None,
        "serialized_key_size": 3,
        "serialized_value_size": 5,
        "serialized_header_size": 5,
    }
    (record,) = broker.read("t", 1)
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", T + 5)
    assert record.headers == (("h", b"12"), ("é", b""))
    assert producer.send("t", key=b"k", partition=1, timestamp_ms=T).get()[3:] == (
        1,
        T,
        None,
        1,
        -1,
        -1,
    )


def test_the_logs_time_counts_on_a_topic_of_append_times(broker):
    broker.create_topic("append", configs={"message.timestamp.type": "LogAppendTime"})
    producer = broker.producer()
    assert producer.send("append", b"v", timestamp_ms=T - 1000).get().timestamp == T


def test_callbacks_are_called_once_in_either_order(broker):
    producer = broker.producer(linger_ms=1000)
    told = []
    future = producer.send("t", b"v", partition=0)
    assert future.add_callback(told.append) is future
    future.add_callback(lambda *args, **kw: told.append((args[0], kw)), "before", word=1)
    future.add_errback(lambda error: told.append(("never", error)))
    assert told == []
    metadata = future.get()
    assert told == [metadata, ("before", {"word": 1})]
    future.add_callback(told.append)
    assert told[2:] == [metadata]


def test_errbacks_get_the_error_of_a_record(broker):
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    future = broker.producer().send("compacted", b"no key")
    told = []
    future.add_errback(told.append).add_callback(told.append).add_both(told.append)
    assert told == [future.exception] * 2
    assert future.failed()
    assert not future.succeeded()
    assert not future.retriable()
    with pytest.raises(InvalidRecordError, match="without key"):
        future.get()
    assert "InvalidRecordError" in repr(future)


def test_errbacks_are_called_when_a_lingering_batch_is_refused(broker):
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    producer = broker.producer(linger_ms=1000)
    told = []
    future = producer.send("compacted", b"no key")
    future.add_callback(told.append).add_errback(lambda *args: told.append(args), 1, 2)
    assert told == []
    producer.flush()
    assert told == [(1, 2, future.exception)]


def test_callbacks_are_called_in_the_order_of_their_records(broker):
    producer = broker.producer(linger_ms=1000)
    futures = [producer.send("t", b"v", partition=0) for _ in range(5)]
    told = []
    for row in (3, 1, 4):
        futures[row].add_callback(lambda metadata: told.append(metadata.offset))
    producer.flush()
    assert told == [1, 3, 4]


def test_batches_are_appended_with_the_lock_and_callbacks_run_without_it(broker):
    producer = broker.producer(linger_ms=1000, batch_size=300)
    told = []

    def is_locked():
        return producer._accumulator.lock._is_owned()

    broker.log("t").subscribe(lambda: told.append(("appended", is_locked())))
    for size in (100, 200):
        producer.send("t", b"v" * size, partition=0).add_callback(
            lambda metadata: told.append((metadata.offset, is_locked()))
        )
        assert len(told) == (0 if size == 100 else 2)
    producer.flush()
    assert told == [("appended", True), (0, False), ("appended", True), (1, False)]


def test_bytes_are_serialized_too(broker):
    producer = broker.producer(key_serializer=bytes.upper, value_serializer=bytes.upper)
    producer.send("t", b"v", b"k", partition=0)
    assert [(record.key, record.value) for record in broker.read("t")] == [(b"K", b"V")]


def test_a_serializer_gets_null_too(broker):
    def serialize(topic, headers, data):
        return b"null" if data is None else data.encode()

    producer = broker.producer(
        key_serializer=lambda key: serialize(None, None, key),
        value_serializer=lambda value: serialize(None, None, value),
    )
    producer.send("t", None, "k", partition=0)
    producer.send("t", "v", None, partition=0)
    assert [(record.key, record.value) for record in broker.read("t")] == [
        (b"k", b"null"),
        (b"null", b"v"),
    ]


def test_an_interrupted_send_fails_with_a_timeout_since_the_record_may_be_stored(
    broker, monkeypatch
):
    """Of three batches, the first was stored, the second is interrupted, the third was not sent."""
    producer = broker.producer(linger_ms=1000)
    results = []
    futures = [
        producer.send("t", b"v", partition=number).add_both(results.append)
        for number in (2, 0, 0, 1)
    ]
    monkeypatch.setattr(broker.log("t", 0).writer, "append_records", interrupt, raising=False)
    with pytest.raises(KeyboardInterrupt):
        producer.flush()
    monkeypatch.undo()
    assert [future.is_done for future in futures] == [True] * 4
    assert results == [futures[0].value, *(future.exception for future in futures[1:])]
    assert [repr(error) for error in results[1:]] == [
        "KafkaTimeoutError('the send was interrupted: the record may have been stored')"
    ] * 3
    assert producer.metrics(raw=True)["record-error-total"] == 3
    for number in range(3):
        producer.send("t", b"after", partition=number)
    producer.flush()
    assert [values(broker, "t", number) for number in range(3)] == [
        *([b"after"], [b"after"], [b"v", b"after"])
    ]
    # The batch may have been stored, so its sequences are not used again.
    for number in range(3):
        _, _, epoch, sequence, _ = stamps(broker.log("t", number))[-1]
        assert (epoch > 0, sequence) == (True, 0)


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_exceptions_of_callbacks_are_logged_and_ignored(broker, caplog):
    producer = broker.producer(linger_ms=1000)
    told = []
    future = producer.send("t", b"v", partition=0)
    future.add_callback(lambda _: 1 // 0).add_callback(told.append)
    with caplog.at_level(logging.ERROR):
        producer.flush()
    assert told == [future.value]
    assert "ZeroDivisionError" in caplog.text


def test_a_callback_may_use_the_producer(broker):
    producer = broker.producer(linger_ms=1000)
    later = []
    producer.send("t", b"1", partition=0).add_callback(
        lambda _: later.append(producer.send("t", b"2", partition=0))
    )
    producer.flush()
    assert later[0].get().offset == 1
    producer.send("t", b"3", partition=0).add_callback(lambda _: producer.close())
    producer.flush()
    with pytest.raises(IllegalStateError, match=exactly("the producer is closed")):
        producer.send("t", b"4")
    assert values(broker, "t") == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    (
        ({"value": None}, ValueError, "a record needs a key or a value"),
        ({"value": "text"}, TypeError, "a serialized value must be bytes or None, not str"),
        ({"value": b"v", "key": 7}, TypeError, "a serialized key must be bytes or None, not int"),
        (
            {"value": b"v", "headers": (("a", b"b"),)},
            TypeError,
            "headers must be a list or a mapping, not (('a', b'b'),)",
        ),
        (
            {"value": b"v", "headers": [["a", b"b"]]},
            TypeError,
            "a header must be a pair of str and bytes, not ['a', b'b']",
        ),
        (
            {"value": b"v", "headers": [("a", None)]},
            TypeError,
            "a header must be a pair of str and bytes, not ('a', None)",
        ),
        (
            {"value": b"v", "headers": [(b"a", b"b")]},
            TypeError,
            "a header must be a pair of str and bytes, not (b'a', b'b')",
        ),
        (
            {"value": b"v", "headers": [("\ud800", b"b")]},
            ValueError,
            (
                "'utf-8' codec can't encode character '\\ud800' in position 0: surrogates "
                "not allowed"
            ),
        ),
        ({"value": b"v", "partition": 3}, ValueError, "topic 't' has no partition 3"),
        ({"value": b"v", "partition": -1}, ValueError, "topic 't' has no partition -1"),
        ({"value": b"v", "partition": True}, ValueError, "topic 't' has no partition True"),
        (
            {"value": b"v", "timestamp_ms": 1.5},
            TypeError,
            "a timestamp must be an int in ms, not 1.5",
        ),
        ({"value": b"v", "timestamp_ms": -2}, ValueError, "timestamp out of range: -2"),
        (
            {"value": b"v", "timestamp_ms": 2**63},
            ValueError,
            "timestamp out of range: 9223372036854775808",
        ),
        ({"topic": "none", "value": b"v"}, UnknownTopicOrPartitionError, "unknown topic 'none'"),
        ({"topic": 7, "value": b"v"}, TypeError, "expected a TopicPartition, not 7"),
        (
            {"value": b"x" * 1_048_500},
            MessageSizeTooLargeError,
            ("a record of up to 1048582 bytes is larger than max_request_size 1048576"),
        ),
    ),
)
def test_send_raises_for_invalid_arguments(broker, arguments, error, message):
    producer = broker.producer(linger_ms=1000)
    with pytest.raises(error, match=exactly(message)):
        producer.send(**{"topic": "t", **arguments})
    producer.flush()
    assert [broker.log("t", number).log_end_offset for number in range(3)] == [0, 0, 0]


def test_buffers_are_accepted_as_bytes(broker):
    producer = broker.producer()
    buffer = bytearray(b"value")
    producer.send("t", buffer, memoryview(b"key"), partition=0)
    buffer[:] = b"other"
    (record,) = broker.read("t", 0)
    assert (record.key, record.value) == (b"key", b"value")


def test_errors_of_the_log_are_in_the_future(broker):
    broker.create_topic("small", configs={"max.message.bytes": 200})
    broker.create_topic("now", configs={"message.timestamp.after.max.ms": 1000})
    producer = broker.producer()
    with pytest.raises(
        MessageSizeTooLargeError,
        match=exactly("a batch of 270 bytes exceeds max.message.bytes 200"),
    ):
        producer.send("small", b"x" * 200).get()
    with pytest.raises(InvalidTimestampError):
        producer.send("now", b"v", timestamp_ms=T + 2000).get()
    broker.create_topic("__consumer_offsets")
    with pytest.raises(InvalidTopicError):
        producer.send("__consumer_offsets", b"v", b"k").get()
    assert producer.send("small", b"fits").get().offset == 0


def test_each_record_of_a_refused_batch_gets_its_own_error(broker):
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    producer = broker.producer(linger_ms=1000)
    futures = [producer.send("compacted", b"v", key) for key in (b"1", None, b"3", None)]
    producer.flush()
    assert [type(future.exception) for future in futures] == [
        RequestError,
        InvalidRecordError,
        RequestError,
        InvalidRecordError,
    ]
    assert "other records in its batch" in str(futures[0].exception)
    assert producer.send("compacted", b"v", b"4").get().offset == 0


def test_each_record_of_a_large_refused_batch_gets_its_own_error(broker):
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    producer = broker.producer(linger_ms=1000)
    futures = [producer.send("compacted", b"v", b"k" if n % 3 else None) for n in range(90)]
    producer.flush()
    for row, future in enumerate(futures):
        text = str(future.exception)
        assert ("without key" in text) == (row % 3 == 0), row
        assert ("other records in its batch" in text) == (row % 3 != 0), row


def test_with_acks_0_futures_have_neither_offset_nor_error(broker):
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    producer = broker.producer(acks=0)
    for _ in range(2):
        assert producer.send("t", b"v", partition=0).get().offset == -1
    refused = producer.send("compacted", b"no key")
    assert refused.succeeded()
    assert (refused.value.offset, refused.value.timestamp) == (-1, T)
    assert values(broker, "t") == [b"v"] * 2
    assert values(broker, "compacted") == []
    waiting = broker.producer(acks=0, linger_ms=1000)
    futures = [waiting.send("t", b"v", partition=0) for _ in range(2)]
    waiting.flush()
    assert [future.value.offset for future in futures] == [-1, -1]


# -- batches -------------------------------------------------------------------------------


def test_a_record_of_exactly_the_largest_request_is_sent(broker):
    size = HEADER_SIZE + estimated_size(None, b"v" * 1000)
    producer = broker.producer(max_request_size=size)
    assert producer.send("t", b"v" * 1000, partition=0).succeeded()
    with pytest.raises(MessageSizeTooLargeError, match=f"max_request_size {size}"):
        producer.send("t", b"v" * 1001, partition=0)


def test_a_producer_that_closes_while_a_record_is_made_does_not_send_it(broker):
    """Another thread or a serializer may close it between the first check and the lock."""
    producer = broker.producer(value_serializer=lambda value: (producer.close(), value)[1])
    with pytest.raises(IllegalStateError, match=exactly("the producer is closed")):
        producer.send("t", b"v", partition=0)
    assert values(broker, "t") == []


def test_without_lingering_each_record_is_a_batch(broker):
    producer = broker.producer()
    for number in range(3):
        producer.send("t", b"%d" % number, partition=0)
    assert counts(broker) == [1, 1, 1]


def test_lingering_records_gather_until_the_time_is_over(broker):
    producer = broker.producer(linger_ms=50)
    first = producer.send("t", b"1", partition=0)
    broker.clock.advance(ms=30)
    second = producer.send("t", b"2", partition=0)
    other = producer.send("t", b"3", partition=1)
    broker.clock.advance(ms=19)
    assert not first.is_done
    broker.clock.advance(ms=1)
    assert (first.value.offset, second.value.offset) == (0, 1)
    assert (first.value.timestamp, second.value.timestamp) == (T, T + 30)
    assert counts(broker) == [2]
    assert not other.is_done
    broker.clock.advance(ms=30)
    assert other.is_done
    broker.clock.advance(days=1)
    third = producer.send("t", b"4", partition=0)
    broker.clock.advance(ms=50)
    assert third.value.offset == 2


@pytest.mark.parametrize(("linger_ms", "delay_ms"), ((0.5, 1), (1.2, 2), (3, 3)))
def test_lingering_for_part_of_a_millisecond_ends(broker, monkeypatch, linger_ms, delay_ms):
    """The scheduler uses whole ms: rounded down, the task would always run too early."""
    delays = []
    schedule = DeterministicScheduler.schedule

    def counted(self, name, *args, **options):
        delays.append(options["delay_ms"])
        assert len(delays) < 5, "the task is scheduled again and again"
        return schedule(self, name, *args, **options)

    monkeypatch.setattr(DeterministicScheduler, "schedule", counted)
    broker.producer(linger_ms=linger_ms).send("t", b"v", partition=0)
    broker.clock.advance(ms=delay_ms - 0.01)
    assert values(broker, "t") == []
    broker.clock.advance(ms=0.01)
    assert values(broker, "t") == [b"v"]
    assert delays == [delay_ms]


def test_lingering_follows_the_background_of_the_broker_if_it_has_one():
    clock = VirtualClock(T)
    with Broker(clock=clock, background=True) as broker:
        broker.create_topic("t")
        future = broker.producer(linger_ms=50).send("t", b"v")
        clock.advance(ms=50)
        assert future.is_done


def test_lingering_in_real_time_needs_no_background():
    others = set(threading.enumerate())
    with Broker(clock=SystemClock(), fs=MemoryFileSystem()) as broker:
        broker.create_topic("t")
        done = threading.Event()
        producer = broker.producer(linger_ms=1)
        producer.send("t", b"v").add_callback(lambda _: done.set())
        assert done.wait(60)
        producer.close()
        assert not [each for each in set(threading.enumerate()) - others if "logstore" in each.name]


@pytest.mark.parametrize("ask", ("flush", "get", "close"))
def test_get_flush_and_close_send_lingering_batches(broker, ask):
    producer = broker.producer(linger_ms=1000)
    futures = [producer.send("t", b"%d" % number, partition=0) for number in range(3)]
    other = producer.send("t", b"other", partition=1)
    assert "waiting" in repr(other)
    if ask == "get":
        assert futures[1].get(timeout=0).offset == 1
        assert not other.is_done, "another partition's batch is not sent"
    else:
        getattr(producer, ask)()
        assert other.is_done
    assert [future.value.offset for future in futures] == [0, 1, 2]
    assert counts(broker) == [3]


def test_a_full_batch_is_sent(broker):
    """Sizes are upper bounds: 61 bytes for the header, and 21 per record plus key and value."""
    producer = broker.producer(linger_ms=1000, batch_size=61 + 3 * 121)
    futures = [producer.send("t", b"x" * 100, partition=0) for _ in range(3)]
    assert [future.is_done for future in futures] == [True] * 3
    producer.send("t", b"x" * 100, partition=0)
    large = producer.send("t", b"y" * 300, partition=0)
    assert counts(broker) == [3, 1]
    assert not large.is_done
    producer.send("t", b"z" * 3000, partition=0)
    assert counts(broker) == [3, 1, 1, 1]


def test_a_batch_size_of_0_makes_every_record_a_batch(broker):
    producer = broker.producer(linger_ms=1000, batch_size=0)
    assert producer.send("t", b"v", partition=0).is_done
    assert producer.send("t", b"v", partition=0).is_done
    assert counts(broker) == [1, 1]


def test_a_batch_stays_below_the_limits_of_the_topic(broker):
    broker.create_topic("small", configs={"max.message.bytes": 300})
    producer = broker.producer(linger_ms=1000)
    futures = [producer.send("small", b"x" * 50) for _ in range(10)]
    producer.flush()
    assert [future.value.offset for future in futures] == list(range(10))
    assert counts(broker, "small") == [3, 3, 3, 1]


@pytest.mark.parametrize("idempotent", (True, False))
def test_a_batch_above_a_lowered_limit_is_split(broker, idempotent):
    producer = broker.producer(linger_ms=1000, enable_idempotence=idempotent)
    headers = [[("h", b"%d" % n)] * (n % 2) for n in range(10)]
    futures = [
        producer.send("t", b"%03d" % n + b"x" * 100, headers=headers[n], partition=0)
        for n in range(10)
    ]
    broker.alter_configs("t", {"max.message.bytes": 300})
    producer.flush()
    assert [list(record.headers) for record in broker.read("t")] == headers
    assert [future.value.offset for future in futures] == list(range(10))
    assert [value[:3] for value in values(broker, "t")] == [b"%03d" % n for n in range(10)]
    assert max(counts(broker)) == 2
    if idempotent:
        assert [stamp[3] for stamp in stamps(broker.log("t"))] == [
            batch.header.base_offset for batch in batches(broker)
        ]
    assert producer.metrics()["producer-metrics"]["record-retry-total"] > 0


@pytest.mark.parametrize("records", (1, 64, 65, 200))
@pytest.mark.parametrize("name", (None, "gzip", "snappy", "lz4", "zstd"))
def test_batches_are_compressed_regardless_of_their_size(broker, records, name):
    """Up to 64 records are encoded in plain Python, more by a kernel."""
    producer = broker.producer(linger_ms=1000, compression_type=name, batch_size=1 << 20)
    expected = []
    for number in range(records):
        headers = [("n", b"%d" % number)] if number % 3 == 0 else None
        key = b"k%d" % number if number % 2 else None
        producer.send("t", b"v" * (number % 50), key, headers, 0, T + number)
        expected.append((key, b"v" * (number % 50), tuple(headers or ()), T + number))
    producer.flush()
    (batch,) = batches(broker)
    assert batch.codec is (Codec.NONE if name is None else Codec.from_name(name))
    batch.ensure_valid()
    found = [(r.key, r.value, r.headers, r.timestamp) for r in broker.read("t", 0)]
    assert found == expected


def test_batches_of_one_record_are_compressed(broker):
    producer = broker.producer(compression_type="lz4")
    for _ in range(2):
        producer.send("t", b"v" * 100, partition=0)
    assert [batch.codec for batch in batches(broker)] == [Codec.LZ4] * 2


def test_each_part_of_a_split_batch_has_its_own_outcome(broker):
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    producer = broker.producer(linger_ms=1000)
    keys = [b"0", b"1", b"2", None, None, b"5", b"6", b"7"]
    futures = [producer.send("compacted", b"x" * 100, key) for key in keys]
    broker.alter_configs("compacted", {"max.message.bytes": 300})
    producer.flush()
    offsets = [future.value and future.value.offset for future in futures]
    assert offsets == [0, 1, None, None, None, None, 2, 3]
    assert ["key" in str(future.exception) for future in futures[2:6]] == [False, True, True, False]


# -- other methods -----------------------------------------------------------------------------


def test_partitions_connection_and_names(broker):
    producer = broker.producer(client_id="me", transactional_id="x")
    assert producer.partitions_for("t") == {0, 1, 2}
    with pytest.raises(UnknownTopicOrPartitionError, match=exactly("unknown topic 'none'")):
        producer.partitions_for("none")
    assert repr(producer) == "Producer(me, transactional_id='x')"
    assert producer.bootstrap_connected()
    producer.close()
    assert not producer.bootstrap_connected()


def test_metrics_count_by_kafkas_names(broker):
    producer = broker.producer(linger_ms=1000)
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    for size in (10, 50, 20):
        producer.send("t", b"v" * size, partition=0)
    broker.clock.advance(ms=500)
    producer.flush()
    producer.send("t", b"v", partition=0)
    broker.clock.advance(ms=100)
    producer.flush()
    producer.send("compacted", b"no key")
    producer.flush()
    broker.clock.advance(ms=1400)
    sizes = [len(batch.data) for batch in batches(broker)]
    (group,) = producer.metrics().values()
    assert group == producer.metrics(raw=True)
    assert group == {
        "batch-size-avg": sum(sizes) / 2,
        "batch-size-max": max(sizes),
        "byte-rate": sum(sizes) / 2,
        "record-error-rate": 0.5,
        "record-error-total": 1,
        "record-queue-time-avg": 300,
        "record-queue-time-max": 500,
        "record-retry-rate": 0,
        "record-retry-total": 0,
        "record-send-rate": 2,
        "record-send-total": 4,
        "record-size-max": estimated_size(None, b"v" * 50),
        "records-per-request-avg": 2,
        "requests-in-flight": 0,
    }
    assert broker.producer(metrics_enabled=False).metrics() is None
    assert broker.producer().metrics(raw=True)["record-send-rate"] == 0


def test_closing_twice_is_fine_and_a_closed_producer_sends_nothing(broker):
    with broker.producer() as producer:
        producer.send("t", b"v")
    producer.close(timeout=0)
    for call in (lambda: producer.send("t", b"v"), producer.begin_transaction):
        with pytest.raises(IllegalStateError, match=exactly("the producer is closed")):
            call()
    producer.flush(timeout=1)
    with pytest.raises(ValueError, match=exactly("invalid timeout: -1")):
        broker.producer().close(timeout=-1)


def test_the_broker_closes_its_producers_first():
    broker = Broker(clock=VirtualClock(T))
    broker.create_topic("t")
    one, two = broker.producer(linger_ms=1000), broker.producer(linger_ms=1000)
    futures = [one.send("t", b"1"), two.send("t", b"2")]
    broker.close()
    assert [future.value.offset for future in futures] == [0, 1]
    with pytest.raises(IllegalStateError):
        one.send("t", b"3")


def test_a_read_only_broker_has_no_producer(tmp_path):
    Broker(tmp_path).close()
    with Broker(tmp_path, read_only=True) as broker:
        with pytest.raises(
            InvalidConfigurationError,
            match=exactly("cannot produce: the broker was opened read-only"),
        ):
            broker.producer()
        with pytest.raises(
            InvalidConfigurationError,
            match=exactly("cannot coordinate transactions: the broker was opened read-only"),
        ):
            _ = broker.coordinator


def test_threads_share_a_producer(broker):
    producer = broker.producer(batch_size=500, linger_ms=5)
    futures = [[] for _ in range(4)]

    def send(thread):
        for number in range(100):
            futures[thread].append(
                producer.send("t", b"%d %d" % (thread, number), partition=number % 2)
            )
            if number % 10 == 0:
                futures[thread][-1].get()

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush()
    found = {(n, r.offset): r.value for n in (0, 1) for r in broker.read("t", n)}
    assert len(found) == 400
    for thread, own in enumerate(futures):
        for number, future in enumerate(own):
            metadata = future.value
            assert found[metadata.partition, metadata.offset] == b"%d %d" % (thread, number)


# -- interrupted sends --------------------------------------------------------------------------


REENTRY = (
    "a signal handler cannot send with a producer while the same thread adds a record for t-0:"
    " send after that call has returned"
)


@pytest.mark.parametrize("use", ("send", "flush"))
def test_a_signal_handler_cannot_use_a_producer_that_adds_a_record(broker, monkeypatch, use):
    producer = broker.producer(linger_ms=1000)
    first = producer.send("t", b"1", partition=0)
    raised = []
    add = ProducerBatch.add
    uses = {
        "send": lambda: producer.send("t", b"inner", partition=0),
        "flush": producer.flush,
    }

    def interrupted(self, *args):
        monkeypatch.undo()
        with pytest.raises(IllegalStateError) as error:
            uses[use]()
        raised.append(str(error.value))
        return add(self, *args)

    monkeypatch.setattr(ProducerBatch, "add", interrupted)
    second = producer.send("t", b"2", partition=0)
    producer.flush()
    assert raised == [REENTRY]
    assert [first.value.offset, second.value.offset] == [0, 1]
    assert [record.value for record in broker.read("t", 0)] == [b"1", b"2"]
    producer.send("t", b"3", partition=0).get()
    assert counts(broker) == [2, 1]


@pytest.mark.parametrize("moment", ("before", "after"))
def test_an_interrupted_record_leaves_no_part_in_its_batch(broker, monkeypatch, moment):
    producer = broker.producer(linger_ms=1000)
    producer.send("t", b"1", b"k1", [("h", b"1")], partition=0)
    add = ProducerBatch.add

    def interrupted(self, key, value, timestamp, headers, size_bytes):
        monkeypatch.undo()
        self.keys.append(key)
        if moment == "after":
            self.keys.pop()
            add(self, key, value, timestamp, headers, size_bytes)
        raise KeyboardInterrupt

    monkeypatch.setattr(ProducerBatch, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.send("t", b"2", b"k2", [("h", b"2")], partition=0)
    future = producer.send("t", b"3", b"k3", partition=0)
    producer.flush()
    assert future.value.offset == 1
    assert [(each.key, each.value, each.headers) for each in broker.read("t", 0)] == [
        (b"k1", b"1", (("h", b"1"),)),
        (b"k3", b"3", ()),
    ]
    assert counts(broker) == [2]


def test_batches_of_several_partitions_are_sent_when_each_is_due(broker):
    producer = broker.producer(linger_ms=100)
    first = producer.send("t", b"a", partition=0)
    broker.clock.advance(ms=60)
    second = producer.send("t", b"b", partition=1)
    broker.clock.advance(ms=39)
    assert (first.is_done, second.is_done) == (False, False)
    broker.clock.advance(ms=1)
    assert (first.is_done, second.is_done) == (True, False)
    third = producer.send("t", b"c", partition=0)
    broker.clock.advance(ms=59)
    assert (second.is_done, third.is_done) == (False, False)
    broker.clock.advance(ms=1)
    assert (second.is_done, third.is_done) == (True, False)
    broker.clock.advance(ms=40)
    assert third.is_done


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    (
        ({"topic": 5}, TypeError, "expected a TopicPartition, not 5"),
        ({"topic": None, "value": b"v"}, TypeError, "a topic must be a string, not None"),
        ({}, ValueError, "a record needs a key or a value"),
        (
            {"value": b"v", "timestamp_ms": 1.5},
            TypeError,
            "a timestamp must be an int in ms, not 1.5",
        ),
        ({"value": b"v", "timestamp_ms": -2}, ValueError, "timestamp out of range: -2"),
        ({"value": b"v", "timestamp_ms": 2**63}, ValueError, f"timestamp out of range: {2**63}"),
        ({"value": b"v", "headers": 5}, TypeError, "headers must be a list or a mapping, not 5"),
        (
            {"value": b"v", "headers": [("a", "b")]},
            TypeError,
            "a header must be a pair of str and bytes, not ('a', 'b')",
        ),
        (
            {"value": b"v", "headers": [("a",)]},
            TypeError,
            "a header must be a pair of str and bytes, not ('a',)",
        ),
    ),
)
def test_the_error_of_a_refused_record_gives_the_reason(broker, arguments, error, message):
    producer = broker.producer()
    with pytest.raises(error) as raised:
        producer.send(**{"topic": "t", "partition": 0, **arguments})
    assert str(raised.value) == message
    assert list(broker.read("t", 0)) == []
