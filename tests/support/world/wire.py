"""A minimal client of the wire, controlled by the test: frames, and messages in them."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest

from logstore.errors import KAFKA_CODES
from logstore.messages import Message, decode, encode_bytes
from logstore.messages.apis import apis_by_name
from logstore.messages.types import FetchRequest, RequestHeader
from logstore.wire.versions import SERVED

TIMEOUT_S = 20
"""Maximum wait of a test; a passing test never waits this long."""


class Client:
    """One connection."""

    def __init__(self, listener: Any, client_id: str | None = "test") -> None:
        host, _, port = listener.bootstrap.rpartition(":")
        host = host.strip("[]")
        host = "127.0.0.1" if host == "0.0.0.0" else host
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.client_id = client_id
        self.correlation_id = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def frame(self, request: Message, version: int) -> bytes:
        """Return a request with its header and length."""
        api = apis_by_name()[type(request).__name__.removesuffix("Request")]
        self.correlation_id += 1
        header = RequestHeader(
            request_api_key=api.key,
            request_api_version=version,
            correlation_id=self.correlation_id,
            client_id=self.client_id,
        )
        head = encode_bytes(header, api.request_header_version(version))
        body = encode_bytes(request, version)
        return struct.pack(">i", len(head) + len(body)) + head + body

    def send_raw(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def read_bytes(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            received = self.socket.recv(count - len(data))
            if not received:
                raise EOFError
            data += received
        return data

    def read(self, request: Message, version: int) -> tuple[int, Any]:
        """Return the correlation id of the next response, and the response."""
        api = apis_by_name()[type(request).__name__.removesuffix("Request")]
        (size,) = struct.unpack(">i", self.read_bytes(4))
        data = self.read_bytes(size)
        (correlation_id,) = struct.unpack_from(">i", data)
        start = 4
        if api.response_header_version(version):
            assert data[4] == 0, "tags in a response header"
            start = 5
        return correlation_id, decode(api.response, version, data, start)

    def ask(self, request: Message, version: int) -> Any:
        self.socket.sendall(self.frame(request, version))
        correlation_id, response = self.read(request, version)
        assert correlation_id == self.correlation_id
        return response

    def is_at_end(self) -> bool:
        """Wait until the other side closes; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for something that another thread is about to do."""
        pause = threading.Event()
        for _ in range(TIMEOUT_S * 200):
            if condition():
                return
            pause.wait(0.005)
        raise TimeoutError


def wait_for_preload() -> None:
    """Wait until listeners have imported the code that loads kernels."""
    for thread in threading.enumerate():
        if thread.name == "logstore-preload":
            thread.join(TIMEOUT_S)


def name_of(code: int) -> str:
    """Return Kafka's name of an error's number."""
    return next(name for name, each in KAFKA_CODES.items() if each == code)


def versions(api: str, *also: int) -> pytest.MarkDecorator:
    """Run a test in the first and the last served version of an API, and in those it changed in."""
    served = SERVED[api]
    return pytest.mark.parametrize("version", sorted({served.first, *also, served.last}))


def fetch_of(topic: str, offset: int, partition: int = 0, **fields: Any) -> FetchRequest:
    """Return a request for one partition; the arguments are the request's fields."""
    options = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 0} | fields
    requested = FetchRequest.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    return FetchRequest(
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[requested])], **options
    )


class Listening:
    """The address of a listener in another process, for `Client`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
