"""Limits of a listener: what one client may take from the others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a listener, of its connections and of their requests.

    Attributes
    ----------
    frame_bytes : int
        Bytes of one request (Kafka's `socket.request.max.bytes`); a larger one ends its
        connection before any of it is kept.
    frame_bytes_before_authentication : int
        The same while nobody has authenticated himself (`sasl.server.max.receive.size`).
    connections : int
        Connections at the same time (`max.connections`); further ones are closed at once.
    idle_ms : int
        Time without a byte in either direction after which a connection is closed
        (`connections.max.idle.ms`); so is one whose client does not read its answers.
    in_flight : int
        Requests of a connection that wait for their turn; the socket is not read meanwhile.
    fetch_bytes : int
        Bytes of records in one response (`fetch.max.bytes`).
    partitions : int
        Partitions that one request may create (Kafka's MAX_PARTITIONS_PER_BATCH).
    remembered_requests, remembered_bytes : int
        What `Listener.requests` keeps.
    """

    frame_bytes: int = 100 << 20
    frame_bytes_before_authentication: int = 512 << 10
    connections: int = 2000
    idle_ms: int = 10 * 60_000
    in_flight: int = 64
    fetch_bytes: int = 55 << 20
    partitions: int = 10_000
    remembered_requests: int = 1000
    remembered_bytes: int = 8 << 20
