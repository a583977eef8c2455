"""A client of the wire whose messages are plain data, in any version."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from logstore.messages import Message, schema
from logstore.messages.compiler import classes
from tests.support.world.wire import Client


class ClosedByPeer(Exception):
    """The other side closed the connection without a response."""


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


class Caller(Client):
    """A connection to an address, which may have several requests in flight.

    Parameters
    ----------
    bootstrap : str
        `host:port`.
    client_id : str
    """

    def __init__(self, bootstrap: str, client_id: str = "caller") -> None:
        super().__init__(SimpleNamespace(bootstrap=bootstrap), client_id)
        self._awaited: list[tuple[Message, int]] = []

    def send(self, name: str, version: int, fields: Mapping[str, Any]) -> None:
        """Send a request of an API, as `Fetch`, without waiting for its answer."""
        request = made(f"{name}Request", fields)
        self.socket.sendall(self.frame(request, version))
        self._awaited.append((request, version))

    def receive(self) -> Message:
        """Return the answer to the oldest request that has none yet.

        Raises
        ------
        ClosedByPeer
        """
        request, version = self._awaited.pop(0)
        try:
            _, answer = self.read(request, version)
        except (EOFError, ConnectionError) as error:
            raise ClosedByPeer(f"no answer to {request!r:.200}") from error
        return answer

    def call(self, name: str, version: int, fields: Mapping[str, Any]) -> Message:
        """Send a request and return its answer; raises as `receive`."""
        self.send(name, version, fields)
        return self.receive()
