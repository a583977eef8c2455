"""A listener over a socket: whole frames, hostile ones, limits, its end."""

import socket
import struct
import threading
from pathlib import Path

import pytest

from logstore import Broker
from logstore.errors import IllegalStateError, InvalidConfigurationError
from logstore.messages.types import (
    ApiVersionsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from logstore.wire.limits import Limits
from tests.support.world.wire import Client, fetch_of


def test_api_versions_are_those_of_the_handlers(broker):
    with broker.listen() as listener, Client(listener) as client:
        answer = client.ask(ApiVersionsRequest(), 0)
        served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert answer.error_code == 0
        assert served[0] == (0, 11)
        assert served[1] == (4, 17)
        assert served[18] == (0, 4)
        assert len(served) == len(listener.service.handlers)


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
def test_what_is_no_request_ends_its_connection_and_no_other(broker, frame):
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


def test_half_a_frame_holds_up_nobody_and_is_ended_when_it_was_idle_for_too_long(broker):
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


def test_a_client_that_reads_nothing_holds_up_nobody_and_is_ended(broker):
    broker.create_topic("t")
    broker.append("t", value=b"x" * 900_000)
    with broker.listen(limits=Limits(idle_ms=200)) as listener, Client(listener) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(20):
            client.socket.sendall(client.frame(fetch_of("t", 0), 12))
        with Client(listener) as other:
            assert other.ask(ApiVersionsRequest(), 0).error_code == 0
        client.until(lambda: not listener._connections)
        # What it asked further was not even looked at.
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


def test_who_has_not_authenticated_sends_no_large_frame(broker):
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
        client.ask(MetadataRequest(topics=None), 9)  # what is imported once is
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


def test_an_address_nobody_can_listen_at_is_refused_by_name(broker):
    taken = broker.listen()
    with pytest.raises(InvalidConfigurationError, match=taken.bootstrap):
        broker.listen(port=taken.port)
    for host, port in (("no.such.host.invalid", 0), ("127.0.0.1", 70_000)):
        with pytest.raises(InvalidConfigurationError, match="cannot listen on"):
            broker.listen(host, port)


def test_beyond_loopback_without_authentication_it_says_so(broker, caplog):
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
        pytest.raises(InvalidConfigurationError, match="read-only"),
    ):
        broker.listen()


def test_a_connection_that_is_cut_in_a_fetch_leaves_no_subscription(broker):
    broker.create_topic("t")
    listeners = broker.log("t").local.changed._listeners
    before = len(listeners)
    with broker.listen() as listener:
        client = Client(listener)
        client.socket.sendall(client.frame(fetch_of("t", 0, max_wait_ms=60_000), 12))
        client.until(lambda: len(listeners) > before)
        client.socket.shutdown(socket.SHUT_RDWR)
        client.close()
        client.until(lambda: len(listeners) == before)
