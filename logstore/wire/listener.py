"""A listener, which serves Kafka's wire protocol at an address in a separate thread."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter, deque
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack, cast

from logstore.errors import InvalidConfigurationError
from logstore.runtime.lifetime import lasting
from logstore.runtime.loops import LoopThread
from logstore.runtime.sockets import host_and_port, is_loopback, opened_socket
from logstore.security.tls import generate_tls
from logstore.wire.connection import Connection
from logstore.wire.faulty import CUT
from logstore.wire.limits import Limits
from logstore.wire.pool import RequestPool
from logstore.wire.service import ServedBroker, Service
from logstore.wire.session import Session
from logstore.wire.settings import ListenerSettings

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.faults.names import KafkaError, ServedApi
    from logstore.faults.rules import FaultRule, Faults, RuleOptions
    from logstore.messages import Message
    from logstore.runtime import Unsubscribe
    from logstore.wire.frames import RequestHead

logger = logging.getLogger(__name__)

BACKLOG = 512
_ANY = ("", "0.0.0.0", "::")
"""Wildcard hosts, which mean all addresses of the machine."""


class ReceivedRequest(NamedTuple):
    """A request that the listener has received.

    Attributes
    ----------
    api : str
        Name of the API, such as `Fetch`.
    body : Message
        The decoded request.
    size_bytes : int
        Size of the request's frame.
    """

    api: str
    version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    principal: str
    body: Message
    size_bytes: int


class Listener:
    """Serves a broker to Kafka clients.

    Parameters
    ----------
    broker : ServedBroker
    host : str
        Address to bind to.
    port : int
        Port to bind to; 0 picks a free port.
    settings : ListenerSettings, optional

    Raises
    ------
    InvalidConfigurationError
        The address is invalid or cannot be bound, or `node.id` in the settings differs from the
        broker id in the data directories.
    CorruptCheckpointError
        `meta.properties` is damaged.
    """

    def __init__(
        self,
        broker: ServedBroker,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: ListenerSettings | None = None,
    ) -> None:
        settings = settings or ListenerSettings()
        # Everything that can fail comes before the event loop is started.
        _ = broker.manager.identity  # read it now, because every client requests it
        tls, ca_pem = settings.tls, None
        if tls == "generate":
            tls, ca_pem = generate_tls(host)
        self._tls = tls
        opened = opened_socket(host, port)
        self._host, self._port = host, opened.getsockname()[1]
        if settings.sasl is None and not is_loopback(opened.getsockname()[0]):
            logger.warning(
                "the broker listens on %s without authentication: anyone who can reach this address"
                " can read, write and delete its topics",
                self.bootstrap,
            )
        self._ca_path = None if ca_pem is None else _written(ca_pem)
        self._connections: set[Connection] = set()
        self._per_address: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused = 0
        self._requests: deque[ReceivedRequest] = deque()
        self._requests_bytes = 0
        self._is_closed = False
        self._loops = LoopThread("listener", broker.runtime.clock)
        limits = settings.limits or Limits.of(broker.manager.broker_config)
        self._pool = RequestPool(limits.queued_bytes, limits.frame_bytes, self._connections)
        self._service = Service(broker, settings, limits, self._pool, self._loops)
        _ = self._service.handlers  # import the handlers before the first client connects
        self._server = self._loops.call(self._serve(opened))
        self._unfollow: Unsubscribe | None = None
        if settings.limits is None:
            reconfigured = broker.manager.services.events.reconfigured
            self._unfollow = reconfigured.subscribe(self._follow)
        broker.manager.lifetime.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Listener({self.bootstrap})"

    @property
    @lasting
    def bootstrap(self) -> str:
        """The address to use for the client setting `bootstrap.servers`."""
        return host_and_port(self._host, self._port)

    @property
    @lasting
    def port(self) -> int:
        """The port to which the listener is bound."""
        return cast("int", self._port)

    @property
    @lasting
    def address(self) -> tuple[str, int]:
        """The host and port that other brokers advertise to their clients."""
        host = self._host
        if host in _ANY:
            host = "::1" if host == "::" else "127.0.0.1"
        return host, self._port

    @property
    @lasting
    def is_closed(self) -> bool:
        """Whether the listener is closed."""
        return self._is_closed

    @property
    @lasting
    def ca_path(self) -> str | None:
        """The path of the CA certificate for clients, or None if no certificate was generated.

        The file is removed when the listener closes.
        """
        return self._ca_path

    @property
    @lasting
    def requests(self) -> list[ReceivedRequest]:
        """The latest requests, oldest first, up to the limits on number and size."""
        return list(self._requests)

    @property
    def service(self) -> Service:
        """The state shared by all connections."""
        return self._service

    @property
    def faults(self) -> Faults:
        """The active fault rules in order of creation. `clear()` removes all of them."""
        return self._service.faults

    def fail(
        self,
        api: ServedApi,
        *,
        error: KafkaError | int | type[Exception] | None = None,
        drop: bool = False,
        **options: Unpack[RuleOptions],
    ) -> FaultRule:
        """Return errors for requests, delay them, or close their connections.

        A rule for a topic or a partition only affects that part of a request. All other parts are
        handled normally.

        Parameters
        ----------
        api : str
            Name of the API, such as `Produce`.
        error : str, int or exception class, optional
            A Kafka error name or code, or an exception class of `logstore.errors` or kafka-python.
        delay : timedelta or ms, optional
            How long to wait, in real time, before handling the request.
        drop : bool
            Close the connection instead of sending a response.
        nth, times, topic, partition, when
            The requests to which the rule applies; see `Faults.add`.
        after : bool
            Handle the request before returning the error or closing the connection.

        Returns
        -------
        FaultRule
            The rule is active until `remove` is called, its `with` block ends, or the listener is
            closed.

        Raises
        ------
        InvalidConfigurationError
            The API or the error is unknown, or the rule has no effect.
        """
        if drop and error is not None:
            raise InvalidConfigurationError("fail takes either an error or drop, not both")
        return self._service.faults.add(api, error=CUT if drop else error, **options)

    def close(self) -> None:
        """Close the socket and all connections immediately. Repeated calls have no effect."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._unfollow is not None:
            self._unfollow()
        if self._loops.is_usable:
            self._loops.call(self._end())
            if self._ca_path is not None:
                Path(self._ca_path).unlink(missing_ok=True)
        self._loops.stop()

    def _follow(self, config: BrokerConfig) -> None:
        """Apply changes of the connection limits."""
        self._service.limits = replace(
            self._service.limits,
            connections=config.max_connections,
            connections_per_address=config.max_connections_per_ip,
        )

    # -- in the loop ---------------------------------------------------------------------

    async def _serve(self, opened: socket.socket) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        self._sweep(loop)
        return await loop.create_server(
            lambda: Connection(
                self._new_session, self._note, self._forget, self._pool, self._start
            ),
            sock=opened,
            backlog=BACKLOG,
            ssl=self._tls,
        )

    async def _end(self) -> None:
        self._sweeper.cancel()
        self._server.close()
        for connection in list(self._connections):
            connection.abort()
        # The connections' tasks and subscriptions end in the next iterations of the loop. The task
        # of a large request ends when its worker thread is done.
        while self._connections:
            await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _new_session(self, transport: asyncio.Transport, connection: Connection) -> Session | None:
        limits = self._service.limits
        peer = transport.get_extra_info("peername")
        host = peer[0] if peer else ""
        if len(self._connections) >= limits.connections:
            self._refuse(host, f"max.connections allows {limits.connections}")
            return None
        if self._per_address[host] >= limits.connections_per_address:
            allowed = limits.connections_per_address
            self._refuse(host, f"max.connections.per.ip allows {allowed} from one address")
            return None
        self._connections.add(connection)
        self._per_address[host] += 1
        return Session(
            self._service,
            host,
            (self._advertised_host(transport), self._port),
            is_encrypted=self._tls is not None,
        )

    def _refuse(self, host: str, reason: str) -> None:
        """Log the first refused connection of each sweep. `_sweep` logs the number of the rest."""
        if not self._refused:
            logger.warning("rejected a connection from %s: %s", host, reason)
        self._refused += 1

    def _forget(self, connection: Connection) -> None:
        """Stop counting a closed connection."""
        if connection not in self._connections:
            return  # the connection was refused
        self._connections.remove(connection)
        host = connection.client_host
        self._per_address[host] -= 1
        if not self._per_address[host]:
            del self._per_address[host]

    def _advertised_host(self, transport: asyncio.Transport) -> str:
        """Return the host for Metadata responses: the address to which this client connected."""
        if self._host not in _ANY:
            return self._host
        return cast("str", transport.get_extra_info("sockname")[0])

    def _note(self, session: Session, head: RequestHead, request: Message, size_bytes: int) -> None:
        limits = self._service.limits
        self._requests.append(
            ReceivedRequest(
                head.api.name,
                head.version,
                head.correlation_id,
                head.client_id,
                session.client_host,
                session.principal,
                request,
                size_bytes,
            )
        )
        self._requests_bytes += size_bytes
        while self._requests and (
            len(self._requests) > limits.remembered_requests
            or self._requests_bytes > limits.remembered_bytes
        ):
            self._requests_bytes -= self._requests.popleft().size_bytes

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close idle connections, and connections that stall while the request pool is full."""
        limits = self._service.limits
        now = loop.time()
        if limits.idle_ms >= 0:
            latest = now - limits.idle_ms / 1000
            for connection in list(self._connections):
                if connection.is_idle and connection.active_at < latest:
                    connection.abort()
        self._pool.close_stalled(now - limits.frame_ms / 1000)
        if self._refused > 1:
            logger.warning("%d more connections were refused", self._refused - 1)
        self._refused = 0
        times = [each for each in (limits.idle_ms, limits.frame_ms) if each >= 0]
        self._sweeper = loop.call_later(max(min(times) / 4000, 0.01), self._sweep, loop)


def _written(pem: bytes) -> str:
    """Write a certificate to a temporary file, because clients only accept a path."""
    with NamedTemporaryFile(prefix="logstore-ca-", suffix=".pem", delete=False) as file:
        file.write(pem)
    return file.name
