"""A listener over a socket: whole frames, hostile ones, limits, its end."""

import asyncio
import gc
import socket
import struct
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from logstore import Broker, Cluster
from logstore.errors import IllegalStateError, InvalidConfigurationError
from logstore.messages.types import (
    ApiVersionsRequest,
    MetadataRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from logstore.wire.limits import Limits
from logstore.wire.versions import MINIMUM, SERVED
from tests.support.world.builders import batch
from tests.support.world.messages import exactly
from tests.support.world.wire import Client, fetch_of, wait_for_preload


def test_api_versions_match_the_handlers(broker):
    with broker.listen() as listener, Client(listener) as client:
        answer = client.ask(ApiVersionsRequest(), 0)
        served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert answer.error_code == 0
        assert served[0] == (0, 13)
        assert served[1] == (4, 18)
        assert served[18] == (0, 4)
        assert len(served) == len(listener.service.handlers)


@pytest.mark.parametrize(
    ("served", "version"), ((SERVED, 0), (SERVED, 3), (SERVED, 4), (MINIMUM, 0), (MINIMUM, 3))
)
def test_api_versions_name_the_features(broker, served, version):
    """Clients before version 4 cannot read a feature whose lowest level is 0 (KAFKA-17492)."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    with broker.listen(versions=served) as listener, Client(listener) as client:
        answer = client.ask(request, version)
    finalized = [
        (each.name, each.min_version_level, each.max_version_level)
        for each in answer.finalized_features
    ]
    supported = [
        (each.name, each.min_version, each.max_version) for each in answer.supported_features
    ]
    is_named = served is SERVED and version >= 3
    features = {"group.version": 1, "transaction.version": 2} if is_named else {}
    assert finalized == [(name, level, level) for name, level in features.items()]
    assert answer.finalized_features_epoch == (0 if is_named else -1)
    is_supported = version >= 4
    assert supported == [(name, 0, level) for name, level in features.items() if is_supported]


def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_error_35(broker):
    with broker.listen() as listener, Client(listener) as client:
        client.send_raw(struct.pack(">hhih", 18, 99, 7, -1))
        correlation_id, answer = client.read(ApiVersionsRequest(), 0)
        assert (correlation_id, answer.error_code) == (7, 35)
        assert [(each.api_key, each.max_version) for each in answer.api_keys] == [(18, 4)]
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize(
    "frame",
    (
        struct.pack(">hhih", 0, 2, 1, -1),
        struct.pack(">hhih", 0, 77, 1, -1),
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        b"",
        b"\0",
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">hhih", 3, 0, 1, -1) + struct.pack(">i", 2**31 - 1),
    ),
    ids=(
        "version-not-served",
        "no-such-version",
        "no-such-api",
        "negative-api",
        "empty",
        "one-byte",
        "text",
        "array-longer-than-the-frame",
    ),
)
def test_an_invalid_request_closes_only_its_connection(broker, frame):
    with broker.listen() as listener, Client(listener) as other, Client(listener) as client:
        client.send_raw(frame)
        assert client.is_at_end()
        assert other.ask(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize("size", (-1, 2**31 - 1, (100 << 20) + 1))
def test_a_frame_that_is_too_long_ends_its_connection_at_once(broker, size):
    with broker.listen() as listener, Client(listener) as other, Client(listener) as client:
        client.socket.sendall(struct.pack(">i", size) + b"x" * 10)
        assert client.is_at_end()
        assert other.ask(ApiVersionsRequest(), 0).error_code == 0


def test_a_connection_with_half_a_frame_is_closed_after_the_idle_timeout(broker):
    with broker.listen(limits=Limits(idle_ms=50)) as listener, Client(listener) as client:
        client.socket.sendall(struct.pack(">i", 1000) + b"x" * 500)
        with Client(listener) as other:
            assert other.ask(ApiVersionsRequest(), 0).error_code == 0
        assert client.is_at_end()


def test_requests_in_one_piece_are_answered_in_their_order(broker):
    with broker.listen() as listener, Client(listener) as client:
        frames = [client.frame(ApiVersionsRequest(), 0) for _ in range(300)]
        client.socket.sendall(b"".join(frames))
        ids = [client.read(ApiVersionsRequest(), 0)[0] for _ in frames]
        assert ids == sorted(ids)


def test_a_frame_may_come_byte_by_byte(broker):
    with broker.listen() as listener, Client(listener) as client:
        for byte in client.frame(MetadataRequest(topics=None), 12):
            client.socket.sendall(bytes([byte]))
        answer = client.read(MetadataRequest(topics=None), 12)[1]
        assert [(each.host, each.port) for each in answer.brokers] == [("127.0.0.1", listener.port)]


def test_a_client_that_does_not_read_is_disconnected_without_delaying_others(broker):
    broker.create_topic("t")
    broker.append("t", value=b"x" * 900_000)
    with broker.listen(limits=Limits(idle_ms=200)) as listener, Client(listener) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(20):
            client.socket.sendall(client.frame(fetch_of("t", 0), 12))
        with Client(listener) as other:
            assert other.ask(ApiVersionsRequest(), 0).error_code == 0
        client.until(lambda: not listener._connections)
        # Its further requests were not read.
        assert [each.api for each in listener.requests].count("Fetch") < 20


def test_connections_above_the_limit_are_closed_at_once(broker):
    with broker.listen(limits=Limits(connections=2)) as listener:
        with Client(listener) as first, Client(listener) as second:
            for client in (first, second):
                client.ask(ApiVersionsRequest(), 0)
            with Client(listener) as third:
                assert third.is_at_end()
        first.until(lambda: not listener._connections)
        with Client(listener) as again:
            assert again.ask(ApiVersionsRequest(), 0).error_code == 0


def test_two_hundred_clients_at_once(broker):
    with broker.listen() as listener:
        clients = [Client(listener) for _ in range(200)]
        for client in clients:
            client.socket.sendall(client.frame(ApiVersionsRequest(), 0))
        for client in clients:
            assert client.read(ApiVersionsRequest(), 0)[1].error_code == 0
            client.close()


def test_requests_that_wait_their_turn_are_few_and_the_socket_is_not_read_meanwhile(broker):
    broker.create_topic("t")
    request, count = ApiVersionsRequest(), 1000
    long_name = "c" * 20_000  # so that it is more than sockets buffer
    with (
        broker.listen(limits=Limits(in_flight=4)) as listener,
        Client(listener) as other,
        Client(listener, client_id=long_name) as client,
    ):
        waits = fetch_of("t", 0, max_wait_ms=3_600_000)
        client.socket.sendall(client.frame(waits, 12))
        frames = b"".join(client.frame(request, 0) for _ in range(count))
        sender = threading.Thread(target=client.socket.sendall, args=(frames,))
        sender.start()
        client.until(lambda: any(not each._is_reading for each in listener._connections))
        (held,) = (each for each in listener._connections if not each._is_reading)
        # What came with one read of the socket, and no more.
        assert len(held._frames) < count / 2
        assert other.ask(ApiVersionsRequest(), 0).error_code == 0
        broker.append("t", value=b"x")
        ids = [client.read(waits, 12)[0]]
        ids += [client.read(request, 0)[0] for _ in range(count)]
        assert ids == sorted(ids)
        sender.join()


def test_a_connection_is_held_up_each_time_that_too_many_requests_wait(broker):
    """Filled, drained, and filled again: no request is read that may not wait, nor one lost."""
    broker.create_topic("t")
    request = ApiVersionsRequest()
    with (
        broker.listen(limits=Limits(in_flight=4)) as listener,
        Client(listener) as client,
    ):
        client.ask(request, 0)
        (connection,) = listener._connections
        for number in range(3):
            waits = fetch_of("t", number, max_wait_ms=3_600_000)
            frames = client.frame(waits, 12)
            frames += b"".join(client.frame(request, 0) for _ in range(8))
            client.socket.sendall(frames)
            client.until(lambda: not connection._is_reading)
            broker.append("t", value=b"x")
            client.read(waits, 12)
            for _ in range(8):
                assert client.read(request, 0)[1].error_code == 0
            client.until(lambda: connection._is_reading)


def test_an_unauthenticated_client_cannot_send_a_large_frame(broker):
    limits = Limits(frame_bytes=2000, frame_bytes_before_authentication=1000)
    with broker.listen(sasl={"ann": "secret"}, limits=limits) as listener:
        with Client(listener) as client:
            client.socket.sendall(struct.pack(">i", 1001))
            assert client.is_at_end()
        with Client(listener) as client:
            client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            asked = SaslAuthenticateRequest(auth_bytes=b"\0ann\0secret")
            assert client.ask(asked, 2).error_code == 0
            name = "n" * 1100
            topics = [MetadataRequest.MetadataRequestTopic(name=name)]
            assert client.ask(MetadataRequest(topics=topics), 9).topics[0].name == name
            client.socket.sendall(struct.pack(">i", 2001))
            assert client.is_at_end()


def test_requests_are_remembered_up_to_a_limit(broker):
    with broker.listen(limits=Limits(remembered_requests=3)) as listener:
        with Client(listener, client_id="me") as client:
            for _ in range(5):
                client.ask(ApiVersionsRequest(), 0)
            client.ask(MetadataRequest(topics=None), 1)
        found = listener.requests
        assert [(each.api, each.version, each.client_id) for each in found] == [
            ("ApiVersions", 0, "me"),
            ("ApiVersions", 0, "me"),
            ("Metadata", 1, "me"),
        ]
        assert found[-1].body == MetadataRequest(topics=None)


def test_requests_are_remembered_again_and_again_up_to_a_number_of_bytes(broker):
    """The newest ones, however many went before."""
    limits = Limits(remembered_bytes=10_000)
    with broker.listen(limits=limits) as listener, Client(listener) as client:
        names = [f"{number}-{'n' * 900}" for number in range(60)]
        for name in names:
            topics = [MetadataRequest.MetadataRequestTopic(name=name)]
            asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            client.ask(asked, 9)
            assert listener.requests[-1].body.topics[0].name == name
        found = listener.requests
        size = found[0].size_bytes
        assert [each.body.topics[0].name for each in found] == names[-(10_000 // size) :]
        # One that is larger than all that may be remembered is not, and the next ones are.
        topics = [MetadataRequest.MetadataRequestTopic(name="n" * 200) for _ in range(60)]
        client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
        assert listener.requests == []
        client.ask(ApiVersionsRequest(), 0)
        assert [each.api for each in listener.requests] == ["ApiVersions"]


def test_connections_are_ended_each_time_they_were_idle_for_too_long(broker):
    with broker.listen(limits=Limits(idle_ms=50)) as listener:
        for _ in range(3):
            with Client(listener) as client:
                client.ask(ApiVersionsRequest(), 0)
                assert client.is_at_end()
            client.until(lambda: not listener._connections)


def test_large_frames_end_their_connections_each_time(broker):
    limits = Limits(frame_bytes=2000)
    with broker.listen(limits=limits) as listener:
        for _ in range(3):
            with Client(listener) as client:
                client.ask(ApiVersionsRequest(), 0)
                client.socket.sendall(struct.pack(">i", 2001))
                assert client.is_at_end()
            with Client(listener) as client:
                assert client.ask(ApiVersionsRequest(), 0).error_code == 0


def test_opened_and_closed_leaves_no_thread_and_no_socket(broker):
    before = set(threading.enumerate())
    for _ in range(20):
        with broker.listen() as listener:
            client = Client(listener)
            client.ask(ApiVersionsRequest(), 0)
        assert client.is_at_end()
        client.close()
    assert set(threading.enumerate()) == before
    with pytest.raises(ConnectionRefusedError):
        Client(listener)


@pytest.mark.long
def test_a_thousand_listeners_opened_and_closed_leave_nothing(broker):
    def open_files():
        return len(list(Path("/proc/self/fd").iterdir()))

    broker.create_topic("t")
    with broker.listen() as listener, Client(listener) as client:
        client.ask(MetadataRequest(topics=None), 9)  # imported on first use
    threads, files = set(threading.enumerate()), open_files()
    for number in range(1000):
        tls = "generate" if number % 100 == 0 else None
        with broker.listen(tls=tls) as listener:
            client = Client(listener)
            if tls is None:
                client.ask(MetadataRequest(topics=None), 9)
        assert tls is not None or client.is_at_end()
        client.close()
    assert set(threading.enumerate()) == threads
    assert open_files() <= files


def test_a_broker_closes_its_listeners(broker):
    listener = broker.listen()
    with Client(listener) as client:
        client.ask(ApiVersionsRequest(), 0)
        broker.close()
        assert client.is_at_end()
    listener.close()
    assert listener.bootstrap.startswith("127.0.0.1:")
    with pytest.raises(IllegalStateError):
        _ = listener.service


def test_an_unusable_listen_address_is_rejected_by_name(broker):
    taken = broker.listen()
    with pytest.raises(InvalidConfigurationError, match=taken.bootstrap):
        broker.listen(port=taken.port)
    for host, port in (("no.such.host.invalid", 0), ("127.0.0.1", 70_000)):
        with pytest.raises(InvalidConfigurationError, match="cannot listen on"):
            broker.listen(host, port)


def test_a_listener_beyond_loopback_without_authentication_warns(broker, caplog):
    with broker.listen() as listener:
        assert caplog.text == ""
    with broker.listen("0.0.0.0") as listener, Client(listener) as client:
        assert "without authentication" in caplog.text
        answer = client.ask(MetadataRequest(topics=None), 12)
        assert [each.host for each in answer.brokers] == ["127.0.0.1"]


def test_a_read_only_broker_does_not_listen(tmp_path):
    Broker(tmp_path).close()
    with (
        Broker(tmp_path, read_only=True) as broker,
        pytest.raises(
            InvalidConfigurationError,
            match=exactly("cannot listen: the broker was opened read-only"),
        ),
    ):
        broker.listen()


def test_a_connection_that_is_cut_in_a_fetch_leaves_no_subscription(broker):
    broker.create_topic("t")
    listeners = broker.log("t").changed._listeners
    before = len(listeners)
    with broker.listen() as listener:
        client = Client(listener)
        client.socket.sendall(client.frame(fetch_of("t", 0, max_wait_ms=60_000), 12))
        client.until(lambda: len(listeners) > before)
        client.socket.shutdown(socket.SHUT_RDWR)
        client.close()
        client.until(lambda: len(listeners) == before)


# -- memory of requests ------------------------------------------------------------------------


HALF = 300 << 10


def held_bytes(listener):
    return listener.service.pool.used_bytes


def half_of(size=512 << 10, sent=HALF):
    return struct.pack(">i", size) + bytes(sent)


@pytest.mark.parametrize("sasl", (None, {"ann": "secret"}), ids=("open", "unauthenticated"))
def test_half_a_request_is_released_with_its_connection(broker, sasl):
    with broker.listen(sasl=sasl) as listener, Client(listener) as other:
        other.ask(ApiVersionsRequest(), 0)
        gc.collect()
        gc.disable()  # memory must not wait for it
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(2):  # filled, drained, and filled again
                clients = [Client(listener) for _ in range(5)]
                for client in clients:
                    client.socket.sendall(half_of())
                other.until(lambda: held_bytes(listener) == 5 * (4 + HALF))
                for client in clients:
                    client.close()
                other.until(lambda: held_bytes(listener) == 0)
                other.until(lambda: len(listener._connections) == 1)
            assert tracemalloc.get_traced_memory()[0] - before < 3 * HALF
        finally:
            tracemalloc.stop()
            gc.enable()


def test_an_answered_request_is_not_kept_until_the_next_one(broker):
    limits = Limits(remembered_requests=0)
    with broker.listen(limits=limits) as listener, Client(listener) as client:
        frame = client.frame(big_request("no such topic", 4 << 20), 9)
        wait_for_preload()  # it imports modules
        tracemalloc.start()
        try:
            for _ in range(2):
                client.socket.sendall(frame)
                client.read(big_request(), 9)
                client.until(lambda: held_bytes(listener) == 0)
                assert tracemalloc.get_traced_memory()[0] < 2 << 20
        finally:
            tracemalloc.stop()


def test_an_announced_size_holds_no_memory(broker):
    with broker.listen() as listener:
        clients = [Client(listener) for _ in range(10)]
        for client in clients:
            client.socket.sendall(struct.pack(">i", 100 << 20) + b"x" * 10)
        clients[0].until(lambda: held_bytes(listener) == 140)
        for client in clients:
            client.close()


def big_request(topic="t", size=600_000):
    """Return a request that is answered once all of it has arrived."""
    data = ProduceRequest.PartitionProduceData(index=0, records=batch(0, value=bytes(size)))
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)


def test_while_requests_hold_all_memory_no_new_ones_are_read_and_begun_ones_are_answered(broker):
    broker.create_topic("t")
    limits = Limits(queued_bytes=1_000_000, frame_bytes=1_000_000)
    with broker.listen(limits=limits) as listener, Client(listener) as other:
        for _ in range(2):  # filled, drained, and filled again
            first, second = Client(listener), Client(listener)
            frames = [each.frame(big_request(), 9) for each in (first, second)]
            for client, frame in zip((first, second), frames, strict=True):
                client.socket.sendall(frame[:550_000])
            other.until(lambda: held_bytes(listener) == 1_100_000)
            other.socket.sendall(other.frame(ApiVersionsRequest(), 0))
            with Client(listener) as late:
                late.socket.sendall(late.frame(ApiVersionsRequest(), 0))
                late.until(lambda: len(listener._connections) == 4)
                reading = [each for each in listener._connections if each._is_reading]
                assert len(reading) == 2
                for client, frame in zip((first, second), frames, strict=True):
                    client.socket.sendall(frame[550_000:])
                    answer = client.read(big_request(), 9)[1]
                    assert answer.responses[0].partition_responses[0].error_code == 0
                assert other.read(ApiVersionsRequest(), 0)[1].error_code == 0
                assert late.read(ApiVersionsRequest(), 0)[1].error_code == 0
            first.close()
            second.close()
            other.until(lambda: (held_bytes(listener), len(listener._connections)) == (0, 1))


def test_half_requests_that_hold_all_memory_are_closed_and_others_answered(broker, caplog):
    limits = Limits(queued_bytes=1_000_000, frame_bytes=1_000_000, frame_ms=40)
    with broker.listen(limits=limits) as listener:
        for _ in range(2):
            first, second, third = (Client(listener) for _ in range(3))
            first.socket.sendall(half_of(900_000, 600_000))
            third.until(lambda: held_bytes(listener) == 600_004)
            second.socket.sendall(half_of(900_000, 600_000))
            third.until(lambda: "no new requests are read" in caplog.text)
            assert third.ask(ApiVersionsRequest(), 0).error_code == 0
            assert first.is_at_end()
            third.close()
            second.close()
            second.until(lambda: not listener._connections)


def test_a_request_whose_length_has_not_arrived_counts_as_the_largest(broker):
    """Or many such requests could all be received to their end once the pool is full."""
    with broker.listen(limits=Limits(frame_bytes=5000)) as listener, Client(listener) as client:
        client.ask(ApiVersionsRequest(), 0)
        (connection,) = listener._connections
        assert connection.missing_bytes == 0
        client.socket.sendall(struct.pack(">i", 1000)[:3])
        client.until(lambda: connection.missing_bytes == 5000)
        client.socket.sendall(struct.pack(">i", 1000)[3:] + b"x" * 100)
        client.until(lambda: connection.missing_bytes == 900)


def test_a_request_does_not_keep_what_arrived_behind_it(broker):
    """Its fields are views of the bytes that arrived, and requests are remembered."""
    records = batch(0)
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    topics = [ProduceRequest.TopicProduceData(name="t", partition_data=[data])]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    broker.create_topic("t")
    with broker.listen() as listener, Client(listener) as client:
        client.ask(ApiVersionsRequest(), 0)
        (connection,) = listener._connections
        arrived = client.frame(request, 9) + half_of(500_000, 200_000)

        async def feed():
            connection.data_received(arrived)

        listener._loops.call(feed())
        client.read(request, 9)
        view = listener.requests[-1].body.topic_data[0].partition_data[0].records
        assert bytes(view) == records
        assert len(view.obj) < 1000


def test_a_request_may_arrive_in_very_small_pieces(broker):
    """Each piece is an object of Python: they must not take many times their size."""
    with broker.listen() as listener, Client(listener) as client:
        client.ask(ApiVersionsRequest(), 0)
        (connection,) = listener._connections
        frame = half_of(100_000, 20_000)

        async def feed():
            for at in range(len(frame)):
                connection.data_received(frame[at : at + 1])
            return sum(map(sys.getsizeof, connection._chunks)), len(connection._chunks)

        size, count = listener._loops.call(feed())
        assert size < 1.5 * len(frame)
        assert count <= 2


# -- limits from the broker's settings ---------------------------------------------------------


def test_limits_match_the_broker_s_settings():
    settings = {
        "max.connections": 7,
        "max.connections.per.ip": 5,
        "connections.max.idle.ms": 12_345,
        "socket.request.max.bytes": 2000,
        "sasl.server.max.receive.size": 1000,
        "queued.max.request.bytes": 3000,
        "fetch.max.bytes": 1024,
        "logstore.request.max.entries": 99,
    }
    with Broker(broker_config=settings) as broker, broker.listen() as listener:
        assert listener.service.limits == Limits(
            connections=7,
            connections_per_address=5,
            idle_ms=12_345,
            frame_bytes=2000,
            frame_bytes_before_authentication=1000,
            queued_bytes=3000,
            fetch_bytes=1024,
            entries=99,
        )
    with Broker() as broker, broker.listen() as listener:
        assert listener.service.limits == Limits()


def test_limits_of_the_settings_hold_for_each_broker_of_a_cluster():
    with (
        Cluster(3, broker_config={"max.connections": 1}) as cluster,
        cluster.listen() as listening,
    ):
        for listener in listening.values():
            with Client(listener) as first:
                first.ask(ApiVersionsRequest(), 0)
                with Client(listener) as second:
                    assert second.is_at_end()


def test_max_connections_may_change_while_the_broker_runs(broker):
    followers = broker.manager.services.events.reconfigured._listeners
    before = len(followers)
    with broker.listen() as listener, Client(listener) as first:
        first.ask(ApiVersionsRequest(), 0)
        broker.alter_broker_configs({"max.connections": 1})
        with Client(listener) as second:
            assert second.is_at_end()
        broker.alter_broker_configs({"max.connections": None})
        with Client(listener) as second:
            assert second.ask(ApiVersionsRequest(), 0).error_code == 0
    assert len(followers) == before


def test_limits_that_were_given_stay_when_settings_change(broker):
    with broker.listen(limits=Limits(connections=2)) as listener:
        broker.alter_broker_configs({"max.connections": 1})
        assert listener.service.limits.connections == 2


def test_connections_from_one_address_above_the_limit_are_closed_at_once(caplog):
    def from_address(listener, host):
        client = Client.__new__(Client)
        client.socket = socket.create_connection(
            ("127.0.0.1", listener.port), 20, source_address=(host, 0)
        )
        client.client_id, client.correlation_id = "test", 0
        return client

    with (
        Broker(broker_config={"max.connections.per.ip": 2}) as broker,
        broker.listen() as listener,
    ):
        for _ in range(2):  # filled, drained, and filled again
            clients = [from_address(listener, host) for host in ("127.0.0.1", "127.0.0.2") * 2]
            for client in clients:
                assert client.ask(ApiVersionsRequest(), 0).error_code == 0
            for host in ("127.0.0.1", "127.0.0.2"):
                with from_address(listener, host) as one_more:
                    assert one_more.is_at_end()
            for client in clients:
                client.close()
            client.until(lambda: not listener._connections)
        assert listener._per_address == {}
    assert "max.connections.per.ip allows 2 from one address" in caplog.text


def test_refused_connections_are_reported_in_few_lines(broker, caplog):
    limits = Limits(connections=1, frame_ms=200_000)
    with broker.listen(limits=limits) as listener, Client(listener) as first:
        first.ask(ApiVersionsRequest(), 0)
        for _ in range(20):
            with Client(listener) as client:
                assert client.is_at_end()
        listener._loops.call(_swept(listener))
    messages = [each.getMessage() for each in caplog.records]
    assert messages == [
        "rejected a connection from 127.0.0.1: max.connections allows 1",
        "19 more connections were refused",
    ]


async def _swept(listener):
    listener._sweeper.cancel()
    listener._sweep(asyncio.get_running_loop())
