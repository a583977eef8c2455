"""One connection of Kafka's protocol that sends exactly the message it is told, in any version."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Mapping
from typing import Any, Self

from logstore.messages import Message, decode_at, encode_bytes, schema
from logstore.messages.apis import Api, apis_by_name
from logstore.messages.compiler import classes
from logstore.messages.types import RequestHeader, ResponseHeader

ANSWER_TIMEOUT_S = 60


class ClosedByPeer(Exception):
    """The other side closed the connection instead of answering."""


def made(name: str, fields: Mapping[str, Any]) -> Message:
    """Return a message of plain data: mappings for its structures, under Python's field names."""
    return _made(name, name, fields)


def _made(name: str, struct_name: str, fields: Mapping[str, Any]) -> Message:
    kinds = {field.attribute: field for field in schema(name).structs[struct_name]}
    values: dict[str, Any] = {}
    for key, value in fields.items():
        kind = kinds[key]
        if not kind.is_struct or value is None:
            values[key] = value
        elif kind.is_array:
            values[key] = [_made(name, kind.element, each) for each in value]
        else:
            values[key] = _made(name, kind.element, value)
    return classes(name)[struct_name](**values)


class Caller:
    """A client in its plainest form: it keeps no state but the connection.

    Parameters
    ----------
    bootstrap : str
        `host:port`.
    client_id : str
    """

    def __init__(self, bootstrap: str, client_id: str = "caller") -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = self._socket.makefile("rb")
        self._client_id = client_id
        self._numbers = itertools.count(1)
        self._awaited: list[tuple[int, Api, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, whatever is still to be answered."""
        self._input.close()
        self._socket.close()

    def send(self, name: str, version: int, fields: Mapping[str, Any]) -> None:
        """Send a request of an API, as `Fetch`, without waiting for its answer."""
        api = apis_by_name()[name]
        number = next(self._numbers)
        header = RequestHeader(
            request_api_key=api.key,
            request_api_version=version,
            correlation_id=number,
            client_id=self._client_id,
        )
        head = encode_bytes(header, api.request_header_version(version))
        body = encode_bytes(made(f"{name}Request", fields), version)
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        self._awaited.append((number, api, version))

    def receive(self) -> Message:
        """Return the answer to the oldest request that has none yet.

        Raises
        ------
        ClosedByPeer
        """
        number, api, version = self._awaited.pop(0)
        try:
            (size,) = struct.unpack(">i", self._exactly(4))
            data = self._exactly(size)
        except ConnectionResetError as error:
            raise ClosedByPeer(f"no answer to {api.name} {version}") from error
        head, position = decode_at(ResponseHeader, api.response_header_version(version), data)
        assert head.correlation_id == number
        answer, end = decode_at(api.response, version, data, position)
        assert end == len(data), f"{len(data) - end} bytes behind a response of {api.name}"
        return answer

    def ask(self, name: str, version: int, fields: Mapping[str, Any]) -> Message:
        """Send a request and return its answer; raises as `receive`."""
        self.send(name, version, fields)
        return self.receive()

    def _exactly(self, size: int) -> bytes:
        data = self._input.read(size)
        if len(data) < size:
            raise ClosedByPeer(f"{len(data)} of {size} bytes came")
        return data
