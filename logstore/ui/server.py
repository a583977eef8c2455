"""The HTTP server of the page, with an event loop in its own thread."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self

import uvicorn

from logstore.errors import InvalidConfigurationError
from logstore.runtime import random_source
from logstore.runtime.lifetime import lasting
from logstore.runtime.loops import LoopThread
from logstore.runtime.sockets import host_and_port, is_loopback, opened_socket
from logstore.security.acls import ANONYMOUS
from logstore.ui.app import application
from logstore.ui.connections import Connection
from logstore.ui.context import Context

if TYPE_CHECKING:
    from collections.abc import Mapping
    from socket import socket

    from logstore.broker import Broker
    from logstore.inspect.schemas.files import SchemaFiles
    from logstore.inspect.schemas.kinds import Schema
    from logstore.security.authorizer import Authorizer

logger = logging.getLogger(__name__)

TOKEN_BYTES = 32
CONNECTIONS_MAX = 256
"""Maximum number of connections. Further clients get status 503."""

IDLE_S = 60
"""Time after which idle connections are closed."""

CLOSE_WAIT_S = 2.0
"""Time limit for pending responses at shutdown."""


class Ui:
    """The web page of a broker. Created by `Broker.ui`, and closed with the broker.

    Parameters
    ----------
    broker : Broker
    host : str
        Address to bind to.
    port : int
        Port to bind to, or 0 for any free port.
    token : str, optional
        Secret that is required for access. [default: random]
    authorizer : Authorizer, optional
        Authorizes operations. [default: all are permitted]
    principal : str
        Principal of all operations.
    schemas : mapping of int to sequence of str or Schema, optional
        Avro, Protobuf and JSON schemas by Confluent schema id, for decoding keys and values. A
        value is a list of files, referenced schemas first, or a schema returned by
        `logstore.inspect.schemas.registry.read_registry`.

    Raises
    ------
    InvalidConfigurationError
        The address cannot be bound, or the token or a schema is invalid.
    """

    def __init__(
        self,
        broker: Broker,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        token: str | None = None,
        authorizer: Authorizer | None = None,
        principal: str = ANONYMOUS,
        schemas: SchemaFiles | None = None,
    ) -> None:
        self._schemas = _loaded(schemas)
        # Not the broker's random source, because that may be seeded and thus predictable.
        self._token = (
            f"{random_source().getrandbits(8 * TOKEN_BYTES):x}" if token is None else token
        )
        if not (self._token.isascii() and self._token.replace("-", "").replace("_", "").isalnum()):
            raise InvalidConfigurationError(
                "the token must consist of letters, digits, - and _, and must not be empty"
            )
        opened = opened_socket(host, port)
        self._host, self._port = host, opened.getsockname()[1]
        if not is_loopback(opened.getsockname()[0]):
            logger.warning(
                "the page is served on %s without encryption: its token can be intercepted on the"
                " network",
                host_and_port(*self.address),
            )
        self._is_closed = False
        self._loops = LoopThread("page", broker.clock)
        try:
            self._serving = self._open(broker, opened, authorizer, principal)
        except BaseException:
            opened.close()
            self._loops.stop()
            raise
        broker.manager.lifetime.add(self)

    def _open(
        self, broker: Broker, opened: socket, authorizer: Authorizer | None, principal: str
    ) -> asyncio.Task[None]:
        self._context = Context(broker, self._loops, authorizer, principal, self._schemas)
        app = application(self._context, token=self._token, host=self._host, port=self._port)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_keep_alive=IDLE_S,
            )
        )
        return self._loops.call(self._serve(opened))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ui({host_and_port(*self.address)})"  # omit the token, because this is logged

    @property
    @lasting
    def address(self) -> tuple[str, int]:
        """Host and port that the server listens on."""
        return self._host, self._port

    @property
    @lasting
    def token(self) -> str:
        """The access token."""
        return self._token

    @property
    @lasting
    def url(self) -> str:
        """The URL to open, including the token."""
        return f"http://{host_and_port(*self.address)}/?token={self._token}"

    @property
    @lasting
    def is_closed(self) -> bool:
        """Whether the page is closed."""
        return self._is_closed

    def close(self) -> None:
        """Send pending responses, end event streams and stop. Calling it again has no effect."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._loops.is_usable:
            self._loops.call(self._end())
        self._loops.stop()

    # -- in the loop ---------------------------------------------------------------------

    async def _serve(self, opened: socket) -> asyncio.Task[None]:
        serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[opened]))
        while not (self._server.started or serving.done()):
            await asyncio.sleep(0)
        if serving.done():  # failed to start
            await serving
        self._context.live.start()
        return serving

    async def _end(self) -> None:
        self._context.close()
        self._server.should_exit = True
        await asyncio.wait([self._serving], timeout=CLOSE_WAIT_S)
        for connection in list(self._server.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        await self._serving


def _loaded(files: SchemaFiles | None) -> Mapping[int, Schema]:
    if not files:
        return {}
    from logstore.inspect.schemas.files import load_schemas  # imports schema libraries

    return load_schemas(files)
