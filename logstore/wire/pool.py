"""The memory that the requests of a listener hold, and who may read while there is no more of it.

Kafka bounds the bytes of all requests by a pool (KIP-72, `queued.max.request.bytes`) from which it
takes a request's announced size. Here bytes count when they arrive: a client that announces 100 MiB
and sends nothing takes nothing from the others.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
"""More than one read of a socket returns: what arrives before a full pool stops it."""

_HARMLESS_BYTES = 64 << 10
"""Memory that a request may hold for as long as it waits."""


class Reader(Protocol):
    """A connection, as the pool knows it."""

    @property
    def missing_bytes(self) -> int:
        """Bytes that the request which is being received still lacks; 0 between two requests."""

    @property
    def held_bytes(self) -> int:
        """Bytes that the requests of the connection hold in memory."""

    @property
    def held_since(self) -> float:
        """When the oldest of them began to arrive, or to be answered, in the loop's time."""

    def hold(self) -> None:
        """Stop reading the socket."""

    def let_go(self) -> None:
        """Read the socket again."""

    def abort(self) -> None:
        """Close the connection at once."""


class RequestPool:
    """The bytes of all requests of one listener, from their first byte to their answer.

    At the limit no connection reads a new request. The requests that have begun to arrive are
    received to their end, oldest first, as far as they fit into an allowance above the limit. The
    others wait. Reading goes on as soon as answers have brought the sum below the limit.

    Only the loop's thread may call.

    Parameters
    ----------
    limit_bytes : int
        0 or less is no limit; a smaller limit than `largest_bytes` counts as that.
    largest_bytes : int
        Size of the largest request. The allowance is as large, so that the oldest request can
        always be completed.
    readers : collection of Reader
        All connections, as they are at each time.
    """

    def __init__(self, limit_bytes: int, largest_bytes: int, readers: Collection[Reader]) -> None:
        if limit_bytes > 0:
            limit_bytes = max(limit_bytes, largest_bytes)
        self._limit_bytes = limit_bytes
        self._most_bytes = limit_bytes + largest_bytes + _CHUNK_BYTES
        self._readers = readers
        self._started: dict[Reader, None] = {}
        self.used_bytes = 0
        self.is_full = False
        self._is_reported = False

    def __repr__(self) -> str:
        return f"RequestPool({self.used_bytes} of {self._limit_bytes} bytes)"

    def take(self, size_bytes: int) -> None:
        """Count bytes that arrived."""
        self.used_bytes += size_bytes
        if self.used_bytes >= self._limit_bytes > 0 and not self.is_full:
            self.is_full = True
            self._report()
            for reader in self._readers:
                reader.hold()
            self._admit()

    def _report(self) -> None:
        if self._is_reported:
            return
        self._is_reported = True
        logger.warning(
            "requests hold %d bytes, of %d that queued.max.request.bytes allows: no new requests"
            " are read until some are answered",
            self.used_bytes,
            self._limit_bytes,
        )

    def give_back(self, size_bytes: int) -> None:
        """Count bytes no longer."""
        self.used_bytes -= size_bytes
        if not self.is_full:
            return
        if self.used_bytes >= self._limit_bytes:
            self._admit()
            return
        self.is_full = False
        for reader in self._readers:
            reader.let_go()

    def join(self, reader: Reader) -> None:
        """Let a new connection wait, if none may read now."""
        if self.is_full:
            reader.hold()

    def begin(self, reader: Reader) -> None:
        """Note that a part of a request arrived, and more of it is to come."""
        self._started[reader] = None
        if self.is_full:
            self._admit()

    def end(self, reader: Reader) -> None:
        """Note that the request is complete, or its connection closed."""
        self._started.pop(reader, None)
        if self.is_full:
            reader.hold()
            self._admit()

    def _admit(self) -> None:
        """Let the oldest requests be received to their end."""
        room = self._most_bytes - self.used_bytes
        for reader in self._started:
            room -= reader.missing_bytes
            if room < 0:
                break
            reader.let_go()

    def close_stalled(self, before: float) -> None:
        """Close connections that have held memory since before a time, if the pool is full.

        These are connections with a request that is still arriving, and connections whose requests
        hold more than a little while they wait, be it for other clients. The oldest are closed
        first, and not more than it takes to read new requests again.
        """
        if not self.is_full:
            self._is_reported = False
            return
        stalled = [
            each
            for each in self._readers
            if each.held_since < before
            and (each.missing_bytes or each.held_bytes > _HARMLESS_BYTES)
        ]
        for reader in sorted(stalled, key=lambda each: each.held_since):
            if self.is_full:
                reader.abort()
