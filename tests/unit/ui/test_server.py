"""The page over a real socket: its address, its end with streams open, and with its broker."""

import contextlib
import http.client
import logging
import socket
import sys
import threading
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from uvicorn.importer import ImportFromStringError

from logstore import Broker, Cluster, InvalidConfigurationError, VirtualClock
from logstore.errors import IllegalStateError
from logstore.ui import connections, open_ui, server


@pytest.fixture
def ui(broker):
    with broker.ui() as ui:
        yield ui


def connected(ui):
    return closing(http.client.HTTPConnection(*ui.address))


def get(connection, target, **headers):
    connection.request("GET", target, headers=headers)
    response = connection.getresponse()
    return response, response.read()


def bearer(ui):
    return {"Authorization": f"Bearer {ui.token}"}


def test_the_printed_address_leads_to_the_page(ui):
    address = urlsplit(ui.url)
    assert (address.hostname, address.port) == ui.address == ("127.0.0.1", ui.address[1])
    with connected(ui) as connection:
        entered, _ = get(connection, f"{address.path}?{address.query}")
        assert entered.status == 303
        cookie = entered.headers["Set-Cookie"].partition(";")[0]
        index, text = get(connection, entered.headers["Location"], Cookie=cookie)
        assert (index.status, b"<html" in text) == (200, True)
        about, _ = get(connection, "/api/about", Cookie=cookie)
        assert about.status == 200
        assert "Server" not in about.headers


def test_a_token_is_new_for_each_page_and_in_no_log(broker, caplog):
    caplog.set_level(logging.DEBUG)
    with broker.ui() as one, broker.ui() as two:
        assert one.token != two.token
        assert len(one.token) > 50
        with connected(one) as connection:
            get(connection, f"/?token={one.token}")
        assert one.token not in caplog.text + repr(one)


def test_a_token_is_not_logged_by_what_another_server_of_the_process_set_up(ui, caplog):
    access = logging.getLogger("uvicorn.access")
    caplog.set_level(logging.DEBUG, access.name)
    access.addHandler(caplog.handler)
    try:
        with connected(ui) as connection:
            entered, _ = get(connection, f"/?token={ui.token}")
            assert entered.status == 303
    finally:
        access.removeHandler(caplog.handler)
    assert ui.token not in caplog.text


HALF_A_HEAD = b"GET /api/about HTTP/1.1\r\nHost: "


@pytest.mark.parametrize("head", (HALF_A_HEAD, b""))
def test_a_connection_that_does_not_ask_is_not_kept(broker, monkeypatch, head):
    """Otherwise a client without the token could take all connections."""
    monkeypatch.setattr(connections, "HEAD_S", 0.0)
    with (
        broker.ui() as ui,
        socket.create_connection(ui.address, 300) as silent,
        contextlib.suppress(ConnectionError),  # it may be closed already
    ):
        silent.sendall(head)
        assert silent.recv(1) == b""


def test_a_connection_that_asks_only_once_wholly_is_not_kept(ui, monkeypatch):
    with connected(ui) as connection:
        assert get(connection, "/api/about", **bearer(ui))[0].status == 200
        monkeypatch.setattr(connections, "HEAD_S", 0.0)
        connection.sock.settimeout(300)
        with contextlib.suppress(ConnectionError):
            connection.sock.sendall(HALF_A_HEAD)
            assert connection.sock.recv(1) == b""


@pytest.fixture
def few_connections(monkeypatch):
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 8)


def silent(ui, count, head):
    found = []
    for _ in range(count):
        found.append(socket.create_connection(ui.address, 300))
        found[-1].sendall(head)
    return found


@pytest.mark.parametrize("head", (HALF_A_HEAD, b""))
def test_connections_that_do_not_ask_do_not_keep_others_out(few_connections, broker, head):
    """The oldest idle connection is closed for a new one at once."""
    with broker.ui() as ui:
        for _ in range(2):
            strangers = silent(ui, 30, head)
            for _ in range(3):
                with connected(ui) as connection:
                    assert get(connection, "/api/about", **bearer(ui))[0].status == 200
            for each in strangers:
                each.close()


def test_a_reader_keeps_its_connection_when_strangers_take_all_places(few_connections, broker):
    with broker.ui() as ui, connected(ui) as connection:
        get(connection, "/api/about", **bearer(ui))
        opened = connection.sock
        for _ in range(3):
            strangers = silent(ui, 30, b"")
            with connected(ui) as last:  # and so accepted after all of them
                assert get(last, "/api/about", **bearer(ui))[0].status == 200
            assert get(connection, "/api/about", **bearer(ui))[0].status == 200
            assert connection.sock is opened
            for each in strangers:
                each.close()


def test_a_stream_continues_when_strangers_take_all_places(few_connections, broker):
    with broker.ui() as ui, connected(ui) as stream:
        stream.request("GET", "/api/events", headers=bearer(ui))
        response = stream.getresponse()
        assert response.status == 200
        strangers = silent(ui, 30, b"")
        with connected(ui) as connection:
            assert get(connection, "/api/about", **bearer(ui))[0].status == 200
        broker.create_topic("new")
        assert response.readline()
        for each in strangers:
            each.close()


def test_a_stranger_keeps_no_connection(ui):
    """Not by a body that never ends either."""
    with socket.create_connection(ui.address, 300) as silent:
        silent.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1")
        answer = b""
        while part := silent.recv(4096):
            answer += part
    assert answer.startswith(b"HTTP/1.1 401 ")


def test_head_has_no_body(ui):
    with connected(ui) as connection:
        connection.request("HEAD", "/api/about", headers=bearer(ui))
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"")


def test_it_ends_with_streams_open(broker, caplog):
    ui = broker.ui()
    with connected(ui) as connection:
        connection.request("GET", "/api/events", headers=bearer(ui))
        stream = connection.getresponse()
        assert stream.status == 200
        assert stream.readline() == b"retry: 1000\n"
        ui.close()
        assert b"event: clock" in stream.read()  # to its end
    ui.close()
    assert ui.is_closed
    assert caplog.text == ""


def test_it_ends_though_a_reader_does_not_read(broker, caplog, monkeypatch):
    monkeypatch.setattr(server, "CLOSE_WAIT_S", 0.0)
    ui = broker.ui()
    with connected(ui) as connection:
        connection.request("GET", "/api/events", headers=bearer(ui))
        stream = connection.getresponse()
        assert stream.readline() == b"retry: 1000\n"
        live = ui._context.live

        async def flood():
            for reader in live._readers:
                reader.set_state("flood", {"text": "x" * 50_000_000})

        ui._loops.call(flood())
        stream.read(10_000)  # it is being sent, and nobody reads on
        ui.close()
    assert caplog.text == ""


def test_it_closes_with_its_broker_and_its_address_remains_available():
    with Broker() as broker:
        ui = broker.ui()
        address = ui.address
    assert ui.is_closed
    assert ui.address == address
    assert ui.url.endswith(ui.token)
    with pytest.raises(ConnectionRefusedError), connected(ui) as connection:
        connection.connect()
    with pytest.raises(IllegalStateError):
        broker.ui()


@pytest.mark.parametrize("end", (Broker._kill, Broker._lose_power, Broker.crash))
def test_it_ends_with_a_broker_that_ends_suddenly(end):
    broker = Broker(clock=VirtualClock())
    ui = broker.ui()
    recovered = end(broker)
    assert ui.is_closed
    if recovered is not None:
        recovered.close()


def test_a_broker_of_a_cluster_is_shown_and_not_changed():
    with Cluster(2, clock=VirtualClock()) as cluster, cluster.brokers[1].ui() as ui:
        with connected(ui) as connection:
            _, text = get(connection, "/api/about", **bearer(ui))
        assert b'"read_only":true' in text
        assert b"cluster" in text


def test_an_address_that_others_reach_is_warned_of(broker, caplog):
    with broker.ui("0.0.0.0") as ui, connected(ui) as connection:
        assert "without encryption" in caplog.text
        connection.connect()
        port = ui.address[1]
        about, _ = get(connection, "/api/about", **bearer(ui), Host=f"127.0.0.1:{port}")
        assert about.status == 200
        stranger, _ = get(connection, "/api/about", **bearer(ui), Host=f"evil.example:{port}")
        assert stranger.status == 421


def test_forwarding_headers_of_a_proxy_are_ignored(broker):
    """Or a header would make a reader come from a host that ACLs allow."""
    from logstore import Acl, Authorizer

    acl = Acl("User:ANONYMOUS", "describe", "topic", "users", host="10.0.0.7")
    with broker.ui(authorizer=Authorizer([acl])) as ui, connected(ui) as connection:
        _, text = get(
            connection, "/api/partitions", **bearer(ui), **{"X-Forwarded-For": "10.0.0.7"}
        )
        assert b'"total":0' in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        ({"port": 70_000}, "the port is out of range"),
        ({"host": "no.such.host.invalid"}, "cannot listen on"),
        ({"token": ""}, "letters, digits"),
        ({"token": "a b"}, "letters, digits"),
    ),
)
def test_requests_that_cannot_be_served_are_refused(broker, arguments, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        broker.ui(**arguments)


def test_a_closed_broker_has_no_page_and_leaves_no_thread():
    with Broker() as broker:
        pass
    with pytest.raises(IllegalStateError):
        open_ui(broker)
    assert [each.name for each in threading.enumerate() if "logstore-page" in each.name] == []


def test_a_page_that_cannot_start_releases_its_port_and_thread(broker, monkeypatch):
    with broker.ui() as ui:
        port = ui.address[1]
    with monkeypatch.context() as patched:
        patched.setattr(server, "Connection", "uvicorn:absent")
        with pytest.raises(ImportFromStringError, match="absent"):
            broker.ui(port=port)
    assert [each.name for each in threading.enumerate() if "logstore-page" in each.name] == []
    with broker.ui(port=port) as ui:
        assert ui.address[1] == port


def test_a_port_that_is_taken_is_refused(broker, ui):
    with pytest.raises(InvalidConfigurationError, match="cannot listen"):
        broker.ui(port=ui.address[1])


@pytest.mark.parametrize("missing", ("starlette", "uvicorn"))
def test_without_the_extra_a_message_explains_the_installation(broker, monkeypatch, missing):
    for name in list(sys.modules):
        if name.partition(".")[0] == missing or name.startswith("logstore.ui."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InvalidConfigurationError, match=r"pip install 'kafka-logstore\[ui\]'"):
        broker.ui()
