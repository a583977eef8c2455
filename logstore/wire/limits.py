"""The limits of a listener, which protect the broker and its clients from each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a listener, its connections and their requests.

    The defaults are the defaults of the broker settings in parentheses.

    Attributes
    ----------
    frame_bytes : int
        Maximum size of a request (`socket.request.max.bytes`). A larger request closes its
        connection before it is buffered.
    frame_bytes_before_authentication : int
        Maximum size of a request before authentication (`sasl.server.max.receive.size`).
    queued_bytes : int
        Maximum size of all requests in memory (`queued.max.request.bytes`). A request counts from
        its first byte until its response is sent. 0 or less means no limit. See `RequestPool`.
    frame_ms : int
        Time within which a request must arrive completely while the request pool is full. A slower
        request closes its connection, so that incomplete requests cannot fill the pool.
    connections : int
        Maximum number of connections (`max.connections`). Further connections are closed
        immediately.
    connections_per_address : int
        Maximum number of connections from one address (`max.connections.per.ip`).
    idle_ms : int
        Time without traffic after which a connection is closed (`connections.max.idle.ms`). Clients
        that do not read their responses are also disconnected. A negative value means no limit.
    in_flight : int
        Maximum number of queued requests per connection, at which its socket is no longer read.
    fetch_bytes : int
        Maximum size of the records in a Fetch response (`fetch.max.bytes`).
    fetch_sessions : int
        Maximum number of fetch sessions (`max.incremental.fetch.session.cache.slots`).
    entries : int
        Maximum total number of array elements in a request (`logstore.request.max.entries`). A
        larger request closes its connection.
    partitions : int
        Maximum number of partitions that a request may create (Kafka's MAX_PARTITIONS_PER_BATCH).
    remembered_requests, remembered_bytes : int
        Maximum number and total size of the requests in `Listener.requests`.
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
        """Return the limits according to a broker's settings."""
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
