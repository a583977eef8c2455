"""Produce, Fetch, ListOffsets and OffsetForLeaderEpoch, as a broker of Kafka's answers them."""

import threading
from functools import partial

import pytest

from logstore import Broker, ShiftedClock, TopicPartition
from logstore.errors import KAFKA_CODES
from logstore.jit import policy
from logstore.jit.files import KernelFiles
from logstore.messages.types import (
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from logstore.record import columns, kernels, preload
from logstore.record.codecs import Codec
from logstore.storage.log.reader import Isolation, LogReader
from logstore.wire.fetch import _DelayedFetch, _ReadPositions
from logstore.wire.limits import Limits
from logstore.wire.nodes import Nodes
from tests.support.world.builders import batch, offsets_of
from tests.support.world.wire import TIMEOUT_S, Client, fetch_of, wait_for_preload

HOUR_MS = 3_600_000
LATEST, EARLIEST, MAX, EARLIEST_LOCAL, TIERED = -1, -2, -3, -4, -5


def error(name):
    return KAFKA_CODES[name]


def produce_of(records, topic="t", partition=0, acks=1, **fields):
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics, **fields)


def produced(client, *args, version=9, **fields):
    answer = client.ask(produce_of(*args, **fields), version)
    return answer.responses[0].partition_responses[0]


def fetched(client, *args, version=12, **fields):
    answer = client.ask(fetch_of(*args, **fields), version)
    return answer.responses[0].partitions[0]


def listed(client, timestamp, version=8, isolation=0, epoch=-1, topic="t", partition=0):
    asked = ListOffsetsRequest.ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
    )
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
    found = client.ask(request, version).topics[0].partitions[0]
    return found.error_code, found.offset, found.timestamp


@pytest.fixture(autouse=True)
def topic(broker):
    broker.create_topic("t", 2)


# -- kernels -----------------------------------------------------------------------------------


@pytest.fixture
def kernels_may_come(monkeypatch):
    """Let nothing be loaded, as in a new process, though that would pay; and then let it come."""
    may_come = threading.Event()
    group = kernels.decode_records.group
    monkeypatch.setattr(policy, "MODE", policy.AUTO)
    monkeypatch.setattr(group, "is_compiled", False)
    monkeypatch.setattr(group, "is_loading", False)
    monkeypatch.setattr(group, "load", None)
    monkeypatch.setattr(group, "spent_seconds", 1000.0)
    monkeypatch.setattr(KernelFiles, "exist", lambda self: True)
    monkeypatch.setattr(preload, "_exercise", partial(may_come.wait, TIMEOUT_S))
    yield may_come
    may_come.set()


def loading_thread():
    """Return the thread that loads kernels, which the listener starts from another thread."""
    wait_for_preload()
    (loading,) = (each for each in threading.enumerate() if each.name == "logstore-kernels")
    return loading


@pytest.mark.skipif(policy.MODE == policy.PYTHON, reason="nothing is compiled")
def test_a_large_batch_is_answered_before_kernels_are_there_and_then_by_them(
    broker, monkeypatch, kernels_may_come
):
    by_kernel = []
    decode = columns.decode_windows
    monkeypatch.setattr(
        columns,
        "decode_windows",
        lambda raw, start, count, *rest: (
            by_kernel.append(count) or decode(raw, start, count, *rest)
        ),
    )
    with broker.listen() as listener, Client(listener) as client:
        loading = loading_thread()
        assert produced(client, batch(0, 999)).error_code == 0
        assert loading.is_alive()
        assert by_kernel == []
        kernels_may_come.set()
        loading.join(TIMEOUT_S)
        assert produced(client, batch(0, 999)).base_offset == 1000
        assert by_kernel == [1000]


def test_a_listener_and_its_broker_close_while_kernels_load(broker, kernels_may_come):
    with broker.listen():
        pass
    broker.close()
    loading = loading_thread()
    kernels_may_come.set()
    loading.join(TIMEOUT_S)


# -- Produce -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 12))
def test_a_batch_is_appended_as_it_is(broker, client, version):
    first = produced(client, batch(0, 4), version=version)
    second = produced(client, batch(0, 1), version=version)
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 5)
    assert first.log_append_time_ms == -1
    if version >= 5:
        assert first.log_start_offset == 0
    assert [record.value for record in broker.read("t")] == [
        *(b"v%d" % n for n in range(5)),
        b"v0",
        b"v1",
    ]


def test_append_time_is_reported_if_the_log_sets_it(broker, client):
    broker.alter_configs("t", {"message.timestamp.type": "LogAppendTime"})
    answer = produced(client, batch(0))
    assert answer.log_append_time_ms == next(broker.read("t")).timestamp


def test_acks_0_are_not_answered_and_an_error_ends_the_connection(broker, listener):
    with Client(listener) as client:
        client.socket.sendall(client.frame(produce_of(batch(0), acks=0), 9))
        assert client.ask(MetadataRequest(topics=None), 9).topics[0].name == "t"
        assert broker.log("t").log_end_offset == 1
        client.socket.sendall(client.frame(produce_of(batch(0), topic="none", acks=0), 9))
        assert client.is_at_end()


@pytest.mark.parametrize(
    ("name", "fields"),
    (
        ("INVALID_REQUIRED_ACKS", {"acks": 2}),
        ("UNKNOWN_TOPIC_OR_PARTITION", {"topic": "none"}),
        ("UNKNOWN_TOPIC_OR_PARTITION", {"partition": 2}),
        ("UNKNOWN_TOPIC_OR_PARTITION", {"partition": -1}),
        ("INVALID_TOPIC_EXCEPTION", {"topic": "__consumer_offsets"}),
    ),
)
def test_produce_to_the_wrong_place_is_refused(broker, client, name, fields):
    broker.groups.partition_for("g")
    answer = produced(client, batch(0), **fields)
    assert (answer.error_code, answer.base_offset) == (error(name), -1)
    assert answer.log_start_offset == -1
    assert broker.log("t").log_end_offset == 0


def damaged(data):
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("name", "records", "version"),
    (
        ("INVALID_RECORD", b"", 9),
        ("INVALID_RECORD", None, 9),
        ("INVALID_RECORD", batch(0)[:-1], 9),
        ("INVALID_RECORD", batch(0) + batch(0), 9),
        ("INVALID_RECORD", batch(0)[:16] + b"\1" + batch(0)[17:], 9),
        ("INVALID_RECORD", batch(3), 9),
        ("CORRUPT_MESSAGE", damaged(batch(0)), 9),
        ("UNSUPPORTED_COMPRESSION_TYPE", batch(0, codec=Codec.ZSTD), 6),
        ("MESSAGE_TOO_LARGE", batch(0, value=b"x" * 2_000_000), 9),
    ),
    ids=(
        "nothing",
        "null",
        "torn",
        "two-batches",
        "magic-1",
        "base-offset",
        "crc",
        "zstd-before-7",
        "too-large",
    ),
)
def test_invalid_batches_are_refused(broker, client, name, records, version):
    answer = produced(client, records, version=version)
    assert (answer.error_code, answer.base_offset) == (error(name), -1)
    assert broker.log("t").log_end_offset == 0


def test_record_errors_name_the_records(broker, client):
    broker.create_topic("c", configs={"cleanup.policy": "compact"})
    answer = produced(client, batch(0, 2, key=None), topic="c")
    assert answer.error_code == error("INVALID_RECORD")
    assert [each.batch_index for each in answer.record_errors] == [0, 1, 2]
    assert "without key" in answer.record_errors[0].batch_index_error_message
    assert answer.error_message
    assert answer.log_start_offset == 0


def test_one_partition_s_error_keeps_from_no_other(broker, client):
    data = [ProduceRequest.PartitionProduceData(index=n, records=batch(0)) for n in (0, 7, 1)]
    topics = [ProduceRequest.TopicProduceData(name="t", partition_data=data)]
    answer = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9)
    found = [each.error_code for each in answer.responses[0].partition_responses]
    assert found == [0, error("UNKNOWN_TOPIC_OR_PARTITION"), 0]


def test_producers_name_topics_by_id_since_version_13(broker, client):
    known, unknown = broker.topic("t").id, "B" * 21 + "A"

    def topic_of(topic_id, *partitions):
        data = [ProduceRequest.PartitionProduceData(index=n, records=batch(0)) for n in partitions]
        return ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=data)

    topics = [topic_of(unknown, 0, 1), topic_of(known, 1, 7)]
    answer = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 13)
    assert [
        (topic.topic_id, each.index, each.error_code, each.base_offset)
        for topic in answer.responses
        for each in topic.partition_responses
    ] == [
        (unknown, 0, error("UNKNOWN_TOPIC_ID"), -1),
        (unknown, 1, error("UNKNOWN_TOPIC_ID"), -1),
        (known, 1, 0, 0),
        (known, 7, error("UNKNOWN_TOPIC_OR_PARTITION"), -1),
    ]
    assert [broker.log("t", n).log_end_offset for n in (0, 1)] == [0, 1]
    topics = [topic_of(unknown, 0), topic_of(known, 1)]
    answer = client.ask(ProduceRequest(acks=7, timeout_ms=1000, topic_data=topics), 13)
    found = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert found == [error("UNKNOWN_TOPIC_ID"), error("INVALID_REQUIRED_ACKS")]


def test_the_id_of_a_deleted_topic_is_unknown_to_a_topic_of_its_name(broker, client):
    old = broker.topic("t").id
    broker.delete_topic("t")
    broker.create_topic("t")
    data = ProduceRequest.PartitionProduceData(index=0, records=batch(0))
    topics = [ProduceRequest.TopicProduceData(topic_id=old, partition_data=[data])]
    answer = client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 13)
    assert answer.responses[0].partition_responses[0].error_code == error("UNKNOWN_TOPIC_ID")
    assert broker.log("t").log_end_offset == 0


def test_a_batch_sent_again_is_answered_with_its_first_offset(broker, client):
    data = batch(0, 1, producer_id=7, producer_epoch=0, base_sequence=0)
    answers = [produced(client, data) for _ in range(2)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 0)]
    assert broker.log("t").log_end_offset == 2
    ahead = produced(client, batch(0, producer_id=7, producer_epoch=0, base_sequence=9))
    assert ahead.error_code == error("OUT_OF_ORDER_SEQUENCE_NUMBER")


def test_data_of_a_transaction_that_was_not_begun_is_rejected(broker, client):
    broker.coordinator.init_producer_id("x", 1000)
    data = batch(0, producer_id=0, producer_epoch=0, base_sequence=0, is_transactional=True)
    answer = produced(client, data, transactional_id="x")
    assert answer.error_code == error("INVALID_TXN_STATE")
    assert broker.log("t").log_end_offset == 0


def test_restamped_batches_are_as_of_the_broker_s_clock():
    clock = ShiftedClock()
    with Broker(clock=clock) as broker:
        broker.create_topic("t")
        clock.advance(days=30)
        now_ms = clock.now_ms() - clock.shift_ms
        data = batch(0, 2, timestamp=[now_ms, now_ms + 5, now_ms - 5], codec=Codec.GZIP)
        for restamp in (False, True):
            with broker.listen(restamp=restamp) as listener, Client(listener) as client:
                assert produced(client, data).error_code == 0
        times = [record.timestamp for record in broker.read("t")]
        assert times[:3] == [now_ms, now_ms + 5, now_ms - 5]
        moved = [time + 30 * 24 * HOUR_MS for time in times[:3]]
        assert all(abs(a - b) <= 50 for a, b in zip(times[3:], moved, strict=True))
        assert times[4] - times[3] == 5
        assert next(broker.read("t", offset=3)).value == b"v0"


def test_a_damaged_batch_is_refused_where_batches_are_restamped_too():
    """It must not get a sum that fits its damage."""
    clock = ShiftedClock()
    with Broker(clock=clock) as broker:
        broker.create_topic("t")
        clock.advance(days=30)
        now_ms = clock.now_ms() - clock.shift_ms
        with broker.listen(restamp=True) as listener, Client(listener) as client:
            for codec in Codec:
                data = batch(0, 2, timestamp=now_ms, codec=codec)
                for at in (-1, 45, 60):  # in the records, the largest timestamp, the count
                    spoilt = bytearray(data)
                    spoilt[at] ^= 1
                    answer = produced(client, bytes(spoilt))
                    assert answer.error_code == error("CORRUPT_MESSAGE")
        assert broker.log("t").log_end_offset == 0


# -- Fetch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 13))
def test_raw_batches_are_given_from_an_offset_on(broker, client, version):
    broker.log("t").writer.append_batches(batch(0, 4))
    broker.log("t").writer.append_batches(batch(0, 1))
    found = fetched(client, "t", 5, version=version)
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 7, 7)
    assert offsets_of(bytes(found.records)) == [5, 6]
    assert found.aborted_transactions is None
    if version >= 5:
        assert found.log_start_offset == 0


@pytest.mark.parametrize("version", range(13, 18))
def test_newer_versions_ask_by_topic_id(broker, client, version):
    broker.log("t").writer.append_batches(batch(0, 4))
    request = fetch_of("", 0)
    request.topics[0].topic_id = broker.topic("t").id
    answer = client.ask(request, version)
    assert answer.responses[0].topic_id == broker.topic("t").id
    assert offsets_of(bytes(answer.responses[0].partitions[0].records)) == [0, 1, 2, 3, 4]
    broker.delete_topic("t")
    broker.create_topic("t")
    answer = client.ask(request, version)
    assert answer.responses[0].partitions[0].error_code == error("UNKNOWN_TOPIC_ID")


def test_read_committed_ends_at_the_last_stable_offset_and_names_what_was_aborted(broker, client):
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", value=b"a", partition=0)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", value=b"b", partition=0)
    producer.flush()
    found = fetched(client, "t", 0, isolation_level=1)
    assert offsets_of(bytes(found.records)) == [0, 1]
    assert (found.high_watermark, found.last_stable_offset) == (3, 2)
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions]
    assert len(aborted) == 1
    assert aborted[0][1] == 0
    assert offsets_of(bytes(fetched(client, "t", 0).records)) == [0, 1, 2]
    producer.commit_transaction()
    assert fetched(client, "t", 2, isolation_level=1).last_stable_offset == 4


@pytest.mark.parametrize(
    ("name", "fields"),
    (
        ("OFFSET_OUT_OF_RANGE", {"offset": 1}),
        ("OFFSET_OUT_OF_RANGE", {"offset": -1}),
        ("UNKNOWN_TOPIC_OR_PARTITION", {"topic": "none"}),
        ("UNKNOWN_TOPIC_OR_PARTITION", {"partition": 9}),
    ),
)
def test_a_fetch_of_what_is_not_there_is_refused_at_once(client, name, fields):
    found = fetched(client, **{"topic": "t", "offset": 0, "max_wait_ms": 60_000} | fields)
    assert found.error_code == error(name)
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (-1, -1, -1)
    assert bytes(found.records) == b""


def test_leader_epochs_that_are_not_the_log_s_are_refused(broker, client):
    broker.log("t").writer.append_batches(batch(0), leader_epoch=5)
    for epoch, name in ((4, "FENCED_LEADER_EPOCH"), (6, "UNKNOWN_LEADER_EPOCH"), (5, "NONE")):
        request = fetch_of("t", 0)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        assert client.ask(request, 12).responses[0].partitions[0].error_code == error(name)
        assert listed(client, LATEST, epoch=epoch)[0] == error(name)


def test_a_reader_beyond_the_end_of_an_epoch_receives_its_end_offset(broker, client):
    writer = broker.log("t").writer
    writer.append_batches(batch(0, 2), leader_epoch=0)
    writer.append_batches(batch(0, 2), leader_epoch=3)
    for last, offset, expected in ((0, 5, (0, 3)), (2, 3, (0, 3)), (3, 5, (-1, -1))):
        request = fetch_of("t", offset)
        request.topics[0].partitions[0].last_fetched_epoch = last
        found = client.ask(request, 12).responses[0].partitions[0]
        diverging = found.diverging_epoch
        assert ((diverging.epoch, diverging.end_offset) if diverging else (-1, -1)) == expected
        assert (bytes(found.records) == b"") == (expected != (-1, -1))


def test_sizes_bound_the_answer_but_for_the_first_batch(broker, client):
    writer = broker.log("t").writer
    for _ in range(3):
        writer.append_batches(batch(0, value=b"x" * 1000))
    request = fetch_of("t", 0, max_bytes=10)
    assert offsets_of(bytes(client.ask(request, 12).responses[0].partitions[0].records)) == [0]
    request = fetch_of("t", 0)
    request.topics[0].partitions[0].partition_max_bytes = 2200
    records = bytes(client.ask(request, 12).responses[0].partitions[0].records)
    assert len(records) == 2200
    broker.log("t", 1).writer.append_batches(batch(0))
    request = fetch_of("t", 0, max_bytes=10)
    request.topics[0].partitions.append(
        FetchRequest.FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1000)
    )
    first, second = client.ask(request, 12).responses[0].partitions
    assert len(first.records) > 1000
    assert (bytes(second.records), second.high_watermark) == (b"", 1)


def test_no_answer_has_more_records_than_the_limit(broker):
    for _ in range(3):
        broker.append("t", value=b"x" * 1000, partition=0)
    limits = Limits(fetch_bytes=1500)
    with broker.listen(limits=limits) as listener, Client(listener) as client:
        for _ in range(3):
            assert len(fetched(client, "t", 0).records) == 1500


def test_fault_rules_of_the_broker_are_met_at_this_door_too(broker, client):
    broker.append("t", value=b"1", partition=0)
    with broker.fail("fetch", nth=1, error="NOT_LEADER_OR_FOLLOWER", topic="t"):
        assert fetched(client, "t", 0).error_code == 6
        assert fetched(client, "t", 0).error_code == 0
    records = bytes(fetched(client, "t", 0).records)
    with broker.fail("append", times=1, error="REQUEST_TIMED_OUT", after=True):
        assert produced(client, records).error_code == 7
    assert broker.log("t").high_watermark == 2


def waiting(client, log, **fields):
    """Send a fetch that waits, and return when it does."""
    before = len(log.changed._listeners)
    client.socket.sendall(client.frame(fetch_of("t", 0, max_wait_ms=60_000, **fields), 12))
    client.until(lambda: len(log.changed._listeners) > before)


def answered(client):
    return client.read(fetch_of("t", 0), 12)[1].responses[0].partitions[0]


@pytest.fixture
def reads(monkeypatch):
    """Note each read of a log by a Fetch request."""
    noted = []
    read = LogReader.read
    monkeypatch.setattr(
        LogReader,
        "read",
        lambda self, *args, **kwargs: noted.append(1) or read(self, *args, **kwargs),
    )
    return noted


def test_a_fetch_that_waits_has_read_the_log_once(broker, client, reads):
    waiting(client, broker.log("t"))
    assert len(reads) == 1
    broker.append("t", value=b"x", partition=0)
    assert offsets_of(bytes(answered(client).records)) == [0]
    assert len(reads) == 2
    assert offsets_of(bytes(fetched(client, "t", 0, max_wait_ms=60_000).records)) == [0]
    assert len(reads) == 3


def test_records_appended_during_a_fetch_are_not_missed(broker, client, monkeypatch):
    log = broker.log("t")
    read = LogReader.read

    def read_and_append(self, *args, **kwargs):
        found = read(self, *args, **kwargs)
        if log.log_end_offset == 0:
            broker.append("t", value=b"x", partition=0)
        return found

    monkeypatch.setattr(LogReader, "read", read_and_append)
    found = fetched(client, "t", 0, max_wait_ms=3_600_000)
    assert offsets_of(bytes(found.records)) == [0]


def test_a_fetch_does_not_wait_if_what_it_lacks_is_in_the_next_segment(broker, client):
    """A read ends with its segment; Kafka answers then, however few bytes that are."""
    log = broker.log("t")
    log.writer.append_batches(batch(0, value=b"x" * 100))
    waiting(client, log, min_bytes=1000)
    log.writer.roll()
    log.writer.append_batches(batch(0, value=b"x" * 2000))
    assert offsets_of(bytes(answered(client).records)) == [0]
    found = fetched(client, "t", 0, min_bytes=1000, max_wait_ms=3_600_000)
    assert offsets_of(bytes(found.records)) == [0]


def test_a_fetch_waits_at_the_end_of_a_log_whose_last_segment_is_empty(broker, client):
    """Its read ends with the segment before, but there is nothing more to read."""
    log = broker.log("t")
    log.writer.append_batches(batch(0, value=b"x" * 100))
    log.writer.roll()
    waiting(client, log, min_bytes=1000)
    log.writer.append_batches(batch(0, value=b"x" * 2000))
    assert offsets_of(bytes(answered(client).records)) == [0]


@pytest.mark.parametrize("on_disk", (False, True))
def test_a_fetch_waits_for_what_is_appended_next(tmp_path, on_disk):
    with Broker(tmp_path / "data" if on_disk else None) as broker:
        broker.create_topic("t")
        with broker.listen() as listener, Client(listener) as client:
            waiting(client, broker.log("t"))
            broker.append("t", value=b"x")
            assert offsets_of(bytes(answered(client).records)) == [0]


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(broker, client):
    log = broker.log("t")
    size = len(batch(0, value=b"x" * 1000))
    waiting(client, log, min_bytes=3 * size)
    for _ in range(3):
        log.writer.append_batches(batch(0, value=b"x" * 1000))
    assert offsets_of(bytes(answered(client).records)) == [0, 1, 2]


def test_a_fetch_of_committed_records_waits_for_the_commit(broker, client):
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", value=b"a" * 1000, partition=0)
    producer.flush()
    waiting(client, broker.log("t"), isolation_level=1, min_bytes=1000)
    producer.commit_transaction()
    assert offsets_of(bytes(answered(client).records)) == [0, 1]


def test_a_waiting_fetch_fails_when_the_topic_is_deleted(broker, client):
    waiting(client, broker.log("t"))
    broker.delete_topic("t")
    assert answered(client).error_code == error("UNKNOWN_TOPIC_OR_PARTITION")


def test_a_topic_that_is_deleted_before_a_fetch_waits_for_it_ends_the_wait(broker):
    log = broker.log("t")
    stand = _ReadPositions._now([log], Isolation.READ_UNCOMMITTED, Nodes(broker.manager))
    delayed = _DelayedFetch(stand, 1)
    assert not delayed.is_done()
    broker.delete_topic("t")
    delayed.subscribe(lambda: None)()
    assert delayed.is_done()


def test_a_waiting_fetch_fails_when_its_records_are_deleted(broker, client):
    broker.log("t").writer.append_batches(batch(0, 4))
    waiting(client, broker.log("t"), min_bytes=10_000)
    broker.delete_records({TopicPartition("t", 0): 3})
    broker.append("t", value=b"x" * 20_000, partition=0)
    assert answered(client).error_code == error("OFFSET_OUT_OF_RANGE")


def test_a_fetch_is_answered_with_nothing_when_its_time_is_over(client):
    assert bytes(fetched(client, "t", 0, max_wait_ms=20).records) == b""


def test_a_fetch_is_answered_at_its_deadline_with_less_than_it_wants(broker, client):
    """With what came while it waited, too."""
    log = broker.log("t")
    log.writer.append_batches(batch(0))
    before = len(log.changed._listeners)
    asked = fetch_of("t", 0, min_bytes=10_000, max_wait_ms=300)
    client.socket.sendall(client.frame(asked, 12))
    client.until(lambda: len(log.changed._listeners) > before)
    log.writer.append_batches(batch(0))
    assert offsets_of(bytes(answered(client).records)) == [0, 1]
    assert len(log.changed._listeners) == before


def test_a_waiting_fetch_holds_up_no_other_connection(broker, listener, client):
    """Not even when something came that is not enough for it."""
    waiting(client, broker.log("t"), min_bytes=1000)
    with Client(listener) as other:
        assert produced(other, batch(0)).base_offset == 0
        assert produced(other, batch(0, value=b"x" * 1000)).base_offset == 1
    assert offsets_of(bytes(answered(client).records)) == [0, 1]


def test_a_broker_that_is_closed_leaves_no_fetch_waiting(broker, client):
    waiting(client, broker.log("t"))
    closing = threading.Thread(target=broker.close)
    closing.start()
    assert client.is_at_end()
    closing.join()


# -- ListOffsets -------------------------------------------------------------------------------


def test_offsets_are_found_by_time_and_by_name(broker, client):
    log = broker.log("t")
    log.writer.append_batches(batch(0, 2, timestamp=[1000, 3000, 2000]))
    log.delete_records(1)
    assert listed(client, LATEST) == (0, 3, -1)
    assert listed(client, EARLIEST) == (0, 1, -1)
    assert listed(client, EARLIEST_LOCAL) == (0, 1, -1)
    assert listed(client, MAX) == (0, 1, 3000)
    assert listed(client, 2000) == (0, 1, 3000)
    assert listed(client, 3001) == (0, -1, -1)
    assert listed(client, 0, partition=1) == (0, -1, -1)
    assert listed(client, MAX, partition=1) == (0, -1, -1)


@pytest.mark.parametrize(
    ("target", "version"), ((MAX, 6), (EARLIEST_LOCAL, 7), (TIERED, 8), (-6, 8))
)
def test_times_with_a_meaning_need_their_version(client, target, version):
    assert listed(client, target, version)[0] == error("UNSUPPORTED_VERSION")


def test_read_committed_knows_no_offset_beyond_the_last_stable_one(broker, client):
    producer = broker.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", value=b"a", partition=0, timestamp_ms=5000)
    producer.flush()
    assert listed(client, LATEST) == (0, 1, -1)
    assert listed(client, LATEST, isolation=1) == (0, 0, -1)
    assert listed(client, 5000) == (0, 0, 5000)
    assert listed(client, 5000, isolation=1) == (0, -1, -1)
    assert listed(client, MAX, isolation=1) == (0, -1, -1)


@pytest.mark.parametrize(("timestamp", "since"), ((TIERED, 9), (-6, 11)))
def test_offsets_of_tiered_storage_do_not_exist(broker, client, timestamp, since):
    broker.append("t", partition=0, value=b"1")
    for version in range(5, 12):
        code = 0 if version >= since else error("UNSUPPORTED_VERSION")
        assert listed(client, timestamp, version=version) == (code, -1, -1)


def test_partitions_that_are_not_there_or_asked_twice_are_refused(client):
    assert listed(client, LATEST, topic="none")[0] == error("UNKNOWN_TOPIC_OR_PARTITION")
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked, asked])]
    answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 5)
    assert [each.error_code for each in answer.topics[0].partitions] == [42, 42]


# -- OffsetForLeaderEpoch ----------------------------------------------------------------------


def test_ends_of_epochs(broker, client):
    writer = broker.log("t").writer
    writer.append_batches(batch(0, 2), leader_epoch=1)
    writer.append_batches(batch(0, 2), leader_epoch=3)

    def end_of(epoch, topic="t", current=-1):
        asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=0, leader_epoch=epoch, current_leader_epoch=current
        )
        topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        found = client.ask(request, 4).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    assert end_of(1) == (0, 1, 3)
    assert end_of(2) == (0, 1, 3)
    assert end_of(3) == (0, 3, 6)
    assert end_of(4) == (0, -1, -1)
    assert end_of(3, current=2) == (error("FENCED_LEADER_EPOCH"), -1, -1)
    assert end_of(3, topic="none") == (error("UNKNOWN_TOPIC_OR_PARTITION"), -1, -1)
