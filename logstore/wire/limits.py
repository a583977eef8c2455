"""Limits of a listener: what one client may take from the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a listener, of its connections and of their requests.

    A listener without limits of its own takes them from the broker's settings, by the keys that are
    named here.

    Attributes
    ----------
    frame_bytes : int
        Bytes of one request (`socket.request.max.bytes`); a larger one ends its connection before
        any of it is kept.
    frame_bytes_before_authentication : int
        The same until the client has authenticated (`sasl.server.max.receive.size`).
    queued_bytes : int
        Bytes of all requests in memory, from their first byte to their answer
        (`queued.max.request.bytes`); 0 or less is no limit. See `RequestPool`.
    frame_ms : int
        Time within which a request must be complete while no new requests are read; a connection
        that takes longer is closed, so that half requests cannot hold the pool.
    connections : int
        Connections at the same time (`max.connections`); further ones are closed at once.
    connections_per_address : int
        Connections from one address at the same time (`max.connections.per.ip`).
    idle_ms : int
        Time without a byte in either direction after which a connection is closed
        (`connections.max.idle.ms`), also if its client does not read its answers; a negative time
        is no limit.
    in_flight : int
        Requests of a connection that wait for their turn; the socket is not read meanwhile.
    fetch_bytes : int
        Bytes of records in one response (`fetch.max.bytes`).
    entries : int
        Elements of all arrays of one request (`logstore.request.max.entries`); a request with more
        ends its connection.
    partitions : int
        Partitions that one request may create (Kafka's MAX_PARTITIONS_PER_BATCH).
    remembered_requests, remembered_bytes : int
        What `Listener.requests` keeps.
    """

    frame_bytes: int = 100 << 20
    frame_bytes_before_authentication: int = 512 << 10
    queued_bytes: int = 256 << 20
    frame_ms: int = 30_000
    connections: int = 2000
    connections_per_address: int = 2**31 - 1
    idle_ms: int = 10 * 60_000
    in_flight: int = 64
    fetch_bytes: int = 55 << 20
    entries: int = 100_000
    partitions: int = 10_000
    remembered_requests: int = 1000
    remembered_bytes: int = 8 << 20

    @classmethod
    def of(cls, config: BrokerConfig) -> Limits:
        """Return the limits that a broker's settings name."""
        return cls(
            frame_bytes=config.socket_request_max_bytes,
            frame_bytes_before_authentication=config.sasl_server_max_receive_size,
            queued_bytes=config.queued_max_request_bytes,
            connections=config.max_connections,
            connections_per_address=config.max_connections_per_ip,
            idle_ms=config.connections_max_idle_ms,
            fetch_bytes=config.fetch_max_bytes,
            entries=config.logstore_request_max_entries,
        )
