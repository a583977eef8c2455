"""Limits of a listener, which protect clients from each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a listener, its connections and their requests.

    By default, a listener takes them from the broker settings named below.

    Attributes
    ----------
    frame_bytes : int
        Size of one request (`socket.request.max.bytes`). A larger one closes its connection before
        any of it is buffered.
    frame_bytes_before_authentication : int
        The same before authentication (`sasl.server.max.receive.size`).
    queued_bytes : int
        Size of all requests in memory, from their first byte to their response
        (`queued.max.request.bytes`); 0 or less means no limit. See `RequestPool`.
    frame_ms : int
        Time in which a request must arrive completely while the request pool is full; slower
        connections are closed, so that partial requests cannot occupy the pool.
    connections : int
        Concurrent connections (`max.connections`); further ones are closed immediately.
    connections_per_address : int
        Concurrent connections from one address (`max.connections.per.ip`).
    idle_ms : int
        Time without traffic after which a connection is closed (`connections.max.idle.ms`), also
        if its client does not read its responses; negative means no limit.
    in_flight : int
        Queued requests of a connection at which its socket is no longer read.
    fetch_bytes : int
        Bytes of records in one response (`fetch.max.bytes`).
    fetch_sessions : int
        Incremental fetch sessions (`max.incremental.fetch.session.cache.slots`).
    entries : int
        Elements in all arrays of one request (`logstore.request.max.entries`). A request with more
        closes its connection.
    partitions : int
        Partitions that one request may create (Kafka's MAX_PARTITIONS_PER_BATCH).
    remembered_requests, remembered_bytes : int
        Number and total size of the requests kept in `Listener.requests`.
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
    fetch_sessions: int = 1000
    entries: int = 100_000
    partitions: int = 10_000
    remembered_requests: int = 1000
    remembered_bytes: int = 8 << 20

    @classmethod
    def of(cls, config: BrokerConfig) -> Limits:
        """Return the limits from a broker's settings."""
        return cls(
            frame_bytes=config.socket_request_max_bytes,
            frame_bytes_before_authentication=config.sasl_server_max_receive_size,
            queued_bytes=config.queued_max_request_bytes,
            connections=config.max_connections,
            connections_per_address=config.max_connections_per_ip,
            idle_ms=config.connections_max_idle_ms,
            fetch_bytes=config.fetch_max_bytes,
            fetch_sessions=config.max_incremental_fetch_session_cache_slots,
            entries=config.logstore_request_max_entries,
        )
