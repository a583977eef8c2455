"""A limit for the memory used by the requests of a listener.

Kafka reserves the full size of a request when it has received the size field (KIP-72,
`queued.max.request.bytes`). This pool counts the bytes actually received, so a client cannot
reserve 100 MiB by sending only a size.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
"""Allowance for bytes that arrive before reading pauses. A socket read never returns that much."""

_SMALL_REQUEST_BYTES = 64 << 10
"""Connections whose complete requests use at most this much memory are never closed as stalled."""


class Reader(Protocol):
    """A connection as used by the pool."""

    @property
    def missing_bytes(self) -> int:
        """The number of bytes missing from a partially received request, or 0 between requests."""

    @property
    def held_bytes(self) -> int:
        """The memory used by the requests of the connection, in bytes."""

    @property
    def held_since(self) -> float:
        """When the oldest request in memory began to be handled or, if incomplete, to arrive."""

    def pause_reading(self) -> None:
        """Stop reading from the socket."""

    def resume_reading(self) -> None:
        """Resume reading from the socket."""

    def abort(self) -> None:
        """Close the connection immediately."""


class RequestPool:
    """Counts the bytes of all requests to a listener, from their arrival to their response.

    When the limit is reached, connections stop reading new requests. Partially received requests
    are completed, oldest first, as far as they fit into an additional allowance. Reading resumes
    when enough responses have been sent.

    The caller must call all methods in the event loop's thread.

    Parameters
    ----------
    limit_bytes : int
        0 or less means no limit. A limit below `largest_bytes` is raised to that size.
    largest_bytes : int
        Size of the largest possible request, and of the allowance, so that the oldest request can
        always be completed.
    readers : collection of Reader
        A live view of all connections.
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
        """Count received bytes."""
        self.used_bytes += size_bytes
        if self.used_bytes >= self._limit_bytes > 0 and not self.is_full:
            self.is_full = True
            self._report()
            for reader in self._readers:
                reader.pause_reading()
            self._resume_waiting()

    def _report(self) -> None:
        if self._is_reported:
            return
        self._is_reported = True
        logger.warning(
            "requests use %d bytes (queued.max.request.bytes = %d): no new requests are read until"
            " responses have been sent",
            self.used_bytes,
            self._limit_bytes,
        )

    def give_back(self, size_bytes: int) -> None:
        """Stop counting the bytes of requests that were handled or dropped."""
        self.used_bytes -= size_bytes
        if not self.is_full:
            return
        if self.used_bytes >= self._limit_bytes:
            self._resume_waiting()
            return
        self.is_full = False
        for reader in self._readers:
            reader.resume_reading()

    def join(self, reader: Reader) -> None:
        """Pause a new connection if the pool is full."""
        if self.is_full:
            reader.pause_reading()

    def begin(self, reader: Reader) -> None:
        """Record that part of a request has arrived."""
        self._started[reader] = None
        if self.is_full:
            self._resume_waiting()

    def end(self, reader: Reader) -> None:
        """Record that a request is complete, or that its connection was closed."""
        self._started.pop(reader, None)
        if self.is_full:
            reader.pause_reading()
            self._resume_waiting()

    def _resume_waiting(self) -> None:
        """Resume reading the oldest incomplete requests that fit."""
        room = self._most_bytes - self.used_bytes
        for reader in self._started:
            room -= reader.missing_bytes
            if room < 0:
                break
            reader.resume_reading()

    def close_stalled(self, before: float) -> None:
        """If the pool is full, close connections that have used memory since before a given time.

        This affects connections with an incomplete request, and connections whose requests use much
        memory while they wait. The oldest are closed first, until the pool is no longer full.
        """
        if not self.is_full:
            self._is_reported = False
            return
        stalled = [
            each
            for each in self._readers
            if each.held_since < before
            and (each.missing_bytes or each.held_bytes > _SMALL_REQUEST_BYTES)
        ]
        for reader in sorted(stalled, key=lambda each: each.held_since):
            if self.is_full:
                reader.abort()
