"""Large requests: worked on outside the loop, in slices, and bounded in number and memory."""

import logging
import threading
import tracemalloc
from contextlib import contextmanager

import pytest

from logstore import Broker
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
from logstore.wire import connection, data, session
from logstore.wire.limits import Limits
from logstore.wire.service import Service
from tests.support.world.wire import TIMEOUT_S, Client

COUNT = 1000


@pytest.fixture(autouse=True)
def topic(broker):
    broker.create_topic("t")


def metadata(count):
    topics = [MetadataRequest.MetadataRequestTopic(name=f"t{n}") for n in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9


def fetch(count):
    asked = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    topics = [FetchRequest.FetchTopic(topic="t", partitions=[asked] * count)]
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
    monkeypatch.setattr(connection, "_TURN_S", 0.0)
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


def test_what_a_large_request_began_to_write_is_written_though_its_client_left(broker, monkeypatch):
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
    assert "logstore.request.max.entries allows 500 in one request" in caplog.text


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
    count = 4000
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
