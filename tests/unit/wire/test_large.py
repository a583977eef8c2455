"""Large requests: worked on outside the loop, in slices, and bounded in number and memory."""

import logging
import threading
import tracemalloc
from contextlib import contextmanager

import pytest

from logstore import Broker, Cluster
from logstore.errors import KAFKA_CODES
from logstore.messages.types import (
    ApiVersionsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from logstore.record.batch import RecordBatch
from logstore.record.codecs import Codec, size_bound
from logstore.storage.log.reader import LogReader
from logstore.wire import connection, data, session
from logstore.wire.limits import Limits
from logstore.wire.pool import RequestPool
from logstore.wire.service import Service
from tests.support.world.builders import CODECS, batch
from tests.support.world.wire import TIMEOUT_S, Client
from tests.unit.record.test_windows import large_batch

COUNT = 1000


@pytest.fixture(autouse=True)
def topic(broker):
    broker.create_topic("t")


def metadata(count):
    topics = [MetadataRequest.MetadataRequestTopic(name=f"t{n}") for n in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9


def fetch(count):
    asked = [
        FetchRequest.FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=100)
        for n in range(count)
    ]
    topics = [FetchRequest.FetchTopic(topic="t", partitions=asked)]
    return FetchRequest(topics=topics, max_bytes=1000, min_bytes=1, max_wait_ms=0), 4


def list_offsets(count):
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked] * count)]
    return ListOffsetsRequest(replica_id=-1, topics=topics), 1


def epoch_ends(count):
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[asked] * count)
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]), 2


def coordinators(count):
    return FindCoordinatorRequest(coordinator_keys=[f"g{n}" for n in range(count)]), 4


def groups(count):
    return DescribeGroupsRequest(groups=[f"g{n}" for n in range(count)]), 0


def offsets(count):
    topics = [
        OffsetFetchRequest.OffsetFetchRequestTopic(name=f"t{n}", partition_indexes=[0])
        for n in range(count // 2)
    ]
    return OffsetFetchRequest(group_id="g", topics=topics), 1


def configs(count):
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=f"t{n}")
        for n in range(count)
    ]
    return DescribeConfigsRequest(resources=resources), 1


def producers(count):
    asked = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0] * count)
    return DescribeProducersRequest(topics=[asked]), 0


def transactions(count):
    return DescribeTransactionsRequest(transactional_ids=[f"x{n}" for n in range(count)]), 0


def produce(count):
    empty = ProduceRequest.PartitionProduceData(index=0, records=None)
    topics = [ProduceRequest.TopicProduceData(name="t", partition_data=[empty] * count)]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 3


def commit(count):
    asked = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=7, committed_offset=1)
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[asked] * count)]
    return OffsetCommitRequest(group_id="g", topics=topics), 2


READING = (
    metadata,
    fetch,
    list_offsets,
    epoch_ends,
    coordinators,
    groups,
    offsets,
    configs,
    producers,
    transactions,
)
ALL = (*READING, produce, commit)


def by_name(request):
    return request.__name__


def send(client, asked):
    client.socket.sendall(client.frame(*asked))


class Gate:
    """A point that work reaches, and does not pass until it is opened."""

    def __init__(self):
        self.reached = threading.Semaphore(0)
        self.opened = threading.Event()
        self.passed = 0

    def __call__(self):
        self.reached.release()
        assert self.opened.wait(TIMEOUT_S)
        self.passed += 1


@pytest.fixture
def gate(monkeypatch):
    """Stop large requests between two slices."""
    found = Gate()
    monkeypatch.setattr(session, "give_way", found)
    yield found
    found.opened.set()


@contextmanager
def nothing_logged(caplog):
    with caplog.at_level(logging.ERROR):
        yield
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


# -- where work is done ------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ALL, ids=by_name)
@pytest.mark.parametrize("on_disk", (False, True), ids=("memory", "disk"))
def test_a_large_request_is_decoded_handled_and_encoded_outside_the_loop(
    tmp_path, monkeypatch, asked, on_disk
):
    threads, decoded = [], []
    run_large, parse_body = Service.run_large, connection.parse_body

    def noted(call):
        threads.append(threading.current_thread().name)
        return call()

    def counted(head, frame, elements_max):
        message, elements = parse_body(head, frame, elements_max)
        decoded.append((threading.current_thread().name, elements))
        return message, elements

    monkeypatch.setattr(
        Service, "run_large", lambda self, call: run_large(self, lambda: noted(call))
    )
    monkeypatch.setattr(connection, "parse_body", counted)
    with Broker(tmp_path if on_disk else None) as broker:
        broker.create_topic("t")
        with broker.listen() as listener, Client(listener) as client:
            loop = listener._loops._thread.name
            client.ask(*asked(200))
            assert threads == []
            client.ask(*asked(COUNT))
            # Decoded, handled, encoded: a thread each.
            assert len(threads) >= 3
            assert loop not in threads
            assert [name == loop for name, _ in decoded] == [True, False]


@pytest.mark.parametrize("asked", READING, ids=by_name)
def test_others_are_answered_between_the_slices_of_a_large_request(listener, gate, asked):
    with Client(listener) as large, Client(listener) as other:
        send(large, asked(COUNT))
        assert gate.reached.acquire(timeout=TIMEOUT_S)
        assert other.ask(ApiVersionsRequest(), 0).error_code == 0
        gate.opened.set()
        large.read(*asked(COUNT))
        assert gate.passed >= COUNT // (2 * 64)


def test_others_are_answered_while_a_large_request_writes(broker, listener, monkeypatch):
    gate = Gate()
    refused = data._refused
    monkeypatch.setattr(data, "_refused", lambda *args: (gate(), refused(*args))[1])
    with Client(listener) as large, Client(listener) as other:
        send(large, produce(COUNT))
        assert gate.reached.acquire(timeout=TIMEOUT_S)
        assert other.ask(ApiVersionsRequest(), 0).error_code == 0
        gate.opened.set()
        large.read(*produce(COUNT))


def test_two_large_requests_are_worked_on_at_the_same_time_and_no_more(listener, gate):
    clients = [Client(listener) for _ in range(5)]
    for _ in range(2):  # filled, drained, and filled again
        gate.opened.clear()
        for client in clients:
            send(client, groups(COUNT))
        for _ in range(2):
            assert gate.reached.acquire(timeout=TIMEOUT_S)
        with Client(listener) as other:
            assert other.ask(ApiVersionsRequest(), 0).error_code == 0
        assert not gate.reached.acquire(blocking=False)
        gate.opened.set()
        for client in clients:
            assert len(client.read(*groups(COUNT))[1].groups) == COUNT
        while gate.reached.acquire(blocking=False):
            pass
    for client in clients:
        client.close()


def test_requests_of_one_client_are_answered_in_their_order_large_and_small(listener):
    with Client(listener) as client:
        asked = [groups(COUNT), (ApiVersionsRequest(), 0), metadata(COUNT), groups(3)] * 3
        client.socket.sendall(b"".join(client.frame(*each) for each in asked))
        assert [client.read(*each)[0] for each in asked] == list(range(1, 13))


def test_one_client_s_many_requests_let_others_have_their_turn(broker, monkeypatch):
    """The loop answers a client's next request at once only for as long as a turn lasts."""
    monkeypatch.setattr(connection, "_TIME_SLICE_S", 0.0)
    order = []
    with broker.listen() as listener, Client(listener) as busy, Client(listener) as other:
        for client in (busy, other):
            client.ask(ApiVersionsRequest(), 0)
        ours = set(listener._connections)
        assert len(ours) == 2
        note = listener._note

        async def feed():
            loop = listener._loops.loop
            by_port = {each._transport.get_extra_info("peername")[1]: each for each in ours}
            first = by_port[busy.socket.getsockname()[1]]
            second = by_port[other.socket.getsockname()[1]]
            for each, name in ((first, "busy"), (second, "other")):
                each._on_request = lambda *args, name=name: (order.append(name), note(*args))
            first.data_received(b"".join(busy.frame(ApiVersionsRequest(), 0) for _ in range(20)))
            loop.call_soon(second.data_received, other.frame(ApiVersionsRequest(), 0))

        listener._loops.call(feed())
        for _ in range(20):
            busy.read(ApiVersionsRequest(), 0)
        other.read(ApiVersionsRequest(), 0)
    assert order.count("busy") == 20
    assert order.index("other") < 10


# -- a client that leaves, a listener that closes ----------------------------------------------


@pytest.mark.parametrize("asked", READING, ids=by_name)
def test_a_large_request_ends_with_the_next_slice_if_its_client_left(broker, gate, asked, caplog):
    with nothing_logged(caplog), broker.listen() as listener, Client(listener) as other:
        with Client(listener) as large:
            send(large, asked(COUNT))
            send(large, metadata(3))
            assert gate.reached.acquire(timeout=TIMEOUT_S)
        other.until(lambda: len(listener._connections) == 1)
        # Its memory is in use until the work has ended.
        assert listener.service.pool.used_bytes >= COUNT // 2 * connection.ELEMENT_BYTES
        gate.opened.set()
        other.until(lambda: listener.service.pool.used_bytes == 0)
        assert gate.passed == 1
        assert [each.api for each in listener.requests].count("Metadata") == (asked is metadata)
        assert other.ask(ApiVersionsRequest(), 0).error_code == 0


def test_a_large_write_completes_after_its_client_disconnects(broker, monkeypatch):
    gate, done = Gate(), []
    refused = data._refused
    monkeypatch.setattr(data, "_refused", lambda *args: (gate(), done.append(1), refused(*args))[2])
    with broker.listen() as listener, Client(listener) as other:
        with Client(listener) as large:
            send(large, produce(COUNT))
            assert gate.reached.acquire(timeout=TIMEOUT_S)
        other.until(lambda: len(listener._connections) == 1)
        gate.opened.set()
        other.until(lambda: listener.service.pool.used_bytes == 0)
        assert len(done) == COUNT


@pytest.mark.parametrize("asked", (groups, fetch, produce), ids=by_name)
def test_a_listener_closes_while_it_works_on_large_requests(
    broker, gate, asked, caplog, monkeypatch
):
    if asked is produce:
        refused = data._refused
        monkeypatch.setattr(data, "_refused", lambda *args: (gate(), refused(*args))[1])
    before = set(threading.enumerate())
    with nothing_logged(caplog):
        listener = broker.listen()
        clients = [Client(listener) for _ in range(3)]
        for client in clients:
            send(client, asked(COUNT))
        for _ in range(2):
            assert gate.reached.acquire(timeout=TIMEOUT_S)
        closing = threading.Thread(target=listener.close)
        closing.start()
        for client in clients:
            assert client.is_at_end()
        gate.opened.set()
        closing.join(TIMEOUT_S)
        assert not closing.is_alive()
        assert set(threading.enumerate()) == before
        assert listener._tasks == set()
    for client in clients:
        client.close()


# -- bounds ------------------------------------------------------------------------------------


def test_a_request_with_too_many_elements_ends_its_connection_and_names_the_setting(caplog):
    with (
        Broker(broker_config={"logstore.request.max.entries": 500}) as broker,
        broker.listen() as listener,
        Client(listener) as other,
    ):
        for count in (500, 501, 500, 501):
            with Client(listener) as client:
                send(client, groups(count))
                if count == 500:
                    assert len(client.read(*groups(count))[1].groups) == count
                else:
                    assert client.is_at_end()
        other.ask(ApiVersionsRequest(), 0)
        other.until(lambda: listener.service.pool.used_bytes == 0)
    assert "a request may have at most 500 (logstore.request.max.entries)" in caplog.text


def test_a_bound_below_what_the_loop_takes_holds_as_well(broker):
    with broker.listen(limits=Limits(entries=5)) as listener:
        for count in (5, 6):
            with Client(listener) as client:
                send(client, groups(count))
                if count == 5:
                    client.read(*groups(count))
                else:
                    assert client.is_at_end()


@pytest.mark.parametrize("asked", ALL, ids=by_name)
def test_the_memory_of_a_large_request_is_in_proportion_to_it(broker, asked, monkeypatch):
    monkeypatch.setattr(session, "give_way", lambda: None)
    count = 2000
    limits = Limits(remembered_requests=0)
    with broker.listen(limits=limits) as listener, Client(listener) as client:
        client.ask(*asked(300))
        frame = client.frame(*asked(count))
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            client.socket.sendall(frame)
            size = int.from_bytes(client.read_bytes(4), "big")
            peak = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        client.read_bytes(size)
    assert peak < len(frame) * 2 + size * 3 + count * connection.ELEMENT_BYTES


def test_elements_count_towards_the_memory_that_requests_may_hold(broker, gate):
    limits = Limits(queued_bytes=COUNT * connection.ELEMENT_BYTES, frame_bytes=100_000)
    with broker.listen(limits=limits) as listener:
        for _ in range(2):  # filled, drained, and filled again
            gate.opened.clear()
            with Client(listener) as large, Client(listener) as other:
                other.ask(ApiVersionsRequest(), 0)
                send(large, groups(COUNT))
                assert gate.reached.acquire(timeout=TIMEOUT_S)
                other.until(lambda: listener.service.pool.is_full)
                assert not any(each._is_reading for each in listener._connections)
                gate.opened.set()
                large.read(*groups(COUNT))
                assert other.ask(ApiVersionsRequest(), 0).error_code == 0
                other.until(lambda: listener.service.pool.used_bytes == 0)
            while gate.reached.acquire(blocking=False):
                pass


def test_a_client_that_may_not_be_read_is_not_idle(broker, gate, monkeypatch):
    """Otherwise a full pool would cost all other clients their connections."""
    swept = threading.Semaphore(0)
    close_stalled = RequestPool.close_stalled

    def count(self, before):
        close_stalled(self, before)
        swept.release()

    monkeypatch.setattr(RequestPool, "close_stalled", count)
    limits = Limits(queued_bytes=COUNT * connection.ELEMENT_BYTES, frame_bytes=100_000, idle_ms=40)
    with (
        broker.listen(limits=limits) as listener,
        Client(listener) as large,
        Client(listener) as other,
    ):
        send(large, groups(COUNT))
        other.until(lambda: len(listener._connections) == 2 and listener.service.pool.is_full)
        for _ in range(10):  # a quarter of the time passes between two of them
            assert swept.acquire(timeout=TIMEOUT_S)
        assert len(listener._connections) == 2
        gate.opened.set()
        large.read(*groups(COUNT))


def test_large_fetches_that_wait_cannot_hold_the_pool(broker):
    """Or a few of them, which wait for days, would keep all others from being read."""
    request, version = fetch(COUNT)
    request.max_wait_ms = 2**31 - 1
    limits = Limits(queued_bytes=600_000, frame_bytes=100_000, frame_ms=40)
    with broker.listen(limits=limits) as listener:
        for _ in range(2):
            with Client(listener) as first, Client(listener) as second, Client(listener) as other:
                send(first, (request, version))
                send(second, (request, version))
                assert first.is_at_end()
                assert other.ask(ApiVersionsRequest(), 0).error_code == 0
            other.until(lambda: not listener._connections)


def test_large_requests_are_remembered_by_the_memory_they_take(broker):
    limits = Limits(remembered_bytes=3 * COUNT * connection.ELEMENT_BYTES)
    with broker.listen(limits=limits) as listener, Client(listener) as client:
        for _ in range(6):
            client.ask(*groups(COUNT))
        assert len(listener.requests) == 2


# -- answers in proportion to the question -----------------------------------------------------


def test_a_topic_is_described_once_however_often_it_is_named(client):
    named = MetadataRequest.MetadataRequestTopic(name="t")
    other = MetadataRequest.MetadataRequestTopic(name="u")
    request = MetadataRequest(topics=[named, other, named], allow_auto_topic_creation=False)
    assert [each.name for each in client.ask(request, 9).topics] == ["t", "u"]


def test_a_group_and_a_resource_are_described_once_however_often_they_are_named(client):
    answer = client.ask(DescribeGroupsRequest(groups=["g", "h", "g"]), 0)
    assert [each.group_id for each in answer.groups] == ["g", "h"]
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [resource(resource_type=2, resource_name="t") for _ in range(3)]
    asked.append(resource(resource_type=2, resource_name="t", configuration_keys=["segment.ms"]))
    answer = client.ask(DescribeConfigsRequest(resources=asked), 1)
    assert [each.resource_name for each in answer.results] == ["t", "t"]
    assert len(answer.results[1].configs) == 1


# -- small requests that are much work ---------------------------------------------------------


def produce_of(records, topic="t"):
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9


def produced(client, records):
    return client.ask(*produce_of(records)).responses[0].partition_responses[0]


@pytest.fixture
def apart(monkeypatch):
    """Record the steps taken as for a large request."""
    noted = []
    run_large = Service.run_large
    monkeypatch.setattr(
        Service, "run_large", lambda self, call: (noted.append(1), run_large(self, call))[1]
    )
    return noted


USUAL = {
    "one record": batch(0),
    **{f"{codec.kafka_name}": batch(0, 9, codec=codec, value=b"v" * 50) for codec in CODECS},
    "ten thousand records": batch(0, 9999, value=b"v" * 50),
    "lz4 of 64 KiB": batch(0, codec=Codec.LZ4, value=b"text " * 13_000),
    "zstd of 120 KiB": batch(0, codec=Codec.ZSTD, value=b"text " * 24_000),
}
MUCH = {
    **{
        f"{codec.kafka_name} of 8 MiB": batch(0, codec=codec, value=bytes(8 << 20))
        for codec in CODECS[1:]
    },
    "many records": large_batch(25_000, Codec.ZSTD),
    "many records that are not there": large_batch(10, Codec.NONE)[:57]
    + (2**31 - 1).to_bytes(4, "big")
    + large_batch(10, Codec.NONE)[61:],
    "many bytes": batch(0, value=bytes(3 << 20)),
}


@pytest.mark.parametrize("name", USUAL)
def test_a_batch_of_a_usual_size_is_appended_in_the_loop(client, apart, name):
    assert produced(client, USUAL[name]).error_code == 0
    assert apart == []


@pytest.mark.parametrize("name", MUCH)
def test_a_batch_that_may_be_much_work_is_judged_outside_the_loop(client, apart, name):
    produced(client, MUCH[name])
    assert len(apart) == 2  # appended, and the answer encoded
    assert produced(client, batch(0)).error_code == 0
    assert len(apart) == 2  # the next request is none


@pytest.mark.parametrize("codec", CODECS[1:])
def test_several_batches_are_judged_by_their_sum(broker, client, apart, codec):
    broker.create_topic("many", 30)
    data = [
        ProduceRequest.PartitionProduceData(
            index=n, records=batch(0, codec=codec, value=b"text " * 200)
        )
        for n in range(30)
    ]
    topics = [ProduceRequest.TopicProduceData(name="many", partition_data=data)]
    client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)
    one = size_bound(codec, data[0].records[61:])
    assert bool(apart) == (30 * one > 2 << 20)


@contextmanager
def served(layout, tmp_path, **settings):
    """Serve a topic `t` by one broker or by several, and give the listener of its leader."""
    if layout in ("memory", "disk"):
        with Broker(tmp_path if layout == "disk" else None, broker_config=settings) as broker:
            broker.create_topic("t")
            with broker.listen() as listener:
                yield listener, lambda: broker.log("t").log_end_offset
        return
    with Cluster(int(layout), broker_config=settings) as cluster, cluster.listen() as server:
        cluster.create_topic("t", replication_factor=int(layout))
        leader = cluster.leader("t", 0)
        log = cluster.brokers[leader].log("t")
        yield server[leader], lambda: log.log_end_offset


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("layout", ("memory", "disk", "1", "3"))
def test_a_bomb_is_refused_by_name_and_changes_nothing(tmp_path, layout, codec):
    settings = {
        "logstore.batch.max.records": 1000,
        "logstore.decompression.max.bytes": 100_000,
    }
    too_large = KAFKA_CODES["MESSAGE_TOO_LARGE"]
    with served(layout, tmp_path, **settings) as (listener, end), Client(listener) as client:
        for _ in range(2):
            assert produced(client, large_batch(1001, codec)).error_code == too_large
            if codec is not Codec.NONE:
                bomb = batch(0, codec=codec, value=bytes(200_000))
                assert produced(client, bomb).error_code == too_large
        assert end() == 0
        assert produced(client, large_batch(1000, codec)).error_code == 0
        assert end() == 1000


@pytest.mark.parametrize("on_disk", (False, True), ids=("memory", "disk"))
def test_others_are_answered_while_a_bomb_is_judged(tmp_path, monkeypatch, on_disk):
    gate = Gate()
    facts = RecordBatch.facts

    def judged(self, limit):
        if self.header.record_count > 1000:
            gate()
        return facts(self, limit)

    monkeypatch.setattr(RecordBatch, "facts", judged)
    with served("disk" if on_disk else "memory", tmp_path) as (listener, end):
        with Client(listener) as one, Client(listener) as other:
            bomb = produce_of(large_batch(25_000, Codec.ZSTD))
            send(one, bomb)
            assert gate.reached.acquire(timeout=TIMEOUT_S)
            # To the same partition, too.
            assert produced(other, batch(0)).base_offset == 0
            gate.opened.set()
            assert one.read(*bomb)[1].responses[0].partition_responses[0].base_offset == 1
        assert end() == 25_001


def test_offsets_are_found_by_time_outside_the_loop(broker, listener, monkeypatch):
    """The batch that has the time may have a million records."""
    threads = []
    find = LogReader.offset_for_timestamp

    def noted(self, target):
        threads.append(threading.current_thread())
        return find(self, target)

    monkeypatch.setattr(LogReader, "offset_for_timestamp", noted)
    broker.append("t", value=b"x")
    with Client(listener) as client:
        for timestamp, is_in_loop in ((0, False), (-3, False), (-2, True)):
            asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            topics = [ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])]
            client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 7)
            assert (threads.pop() is listener._loops._thread) == is_in_loop
