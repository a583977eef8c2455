"""The page's server: one event loop in one thread, at an address of this machine."""

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
from logstore.ui.site import Site

if TYPE_CHECKING:
    from socket import socket

    from logstore.broker import Broker
    from logstore.security.authorizer import Authorizer

logger = logging.getLogger(__name__)

TOKEN_BYTES = 32
CONNECTIONS_MAX = 256
"""More are told to come later."""

IDLE_S = 60
"""For how long a connection is kept that asks nothing."""

FAREWELL_S = 2.0
"""How long answers may take to reach their readers once the page closes; then they are cut off."""


class Ui:
    """The page of a broker; made by `Broker.ui`, closed with the broker.

    Parameters
    ----------
    broker : Broker
    host : str
        To bind to.
    port : int
        0 lets the system choose.
    token : str, optional
        What a reader has to know; by default a new one that nobody can guess.
    authorizer : Authorizer, optional
        Decides what the page may do; everything by default.
    principal : str
        As whom.

    Raises
    ------
    InvalidConfigurationError
        Nobody can listen at this address, or the token cannot stand in one.
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
    ) -> None:
        # Not the broker's randomness: with a seed others could repeat it.
        self._token = (
            f"{random_source().getrandbits(8 * TOKEN_BYTES):x}" if token is None else token
        )
        if not (self._token.isascii() and self._token.replace("-", "").replace("_", "").isalnum()):
            raise InvalidConfigurationError(
                "a token has letters, digits, - and _, and one at least"
            )
        opened = opened_socket(host, port)
        self._host, self._port = host, opened.getsockname()[1]
        if not is_loopback(opened.getsockname()[0]):
            logger.warning(
                "the page is served on %s without encryption: whoever can listen on the way has"
                " its token",
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
        self._site = Site(broker, self._loops, authorizer, principal)
        app = application(self._site, token=self._token, host=self._host, port=self._port)
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
        return f"Ui({host_and_port(*self.address)})"  # without the token: this goes into logs

    @property
    @lasting
    def address(self) -> tuple[str, int]:
        """Host and port that it listens at."""
        return self._host, self._port

    @property
    @lasting
    def token(self) -> str:
        """What a reader has to know."""
        return self._token

    @property
    @lasting
    def url(self) -> str:
        """The address to open, with the token."""
        return f"http://{host_and_port(*self.address)}/?token={self._token}"

    @property
    @lasting
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def close(self) -> None:
        """Answer what was asked, end what is told as it happens; closing twice is allowed."""
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
        if serving.done():  # it cannot serve, and says why
            await serving
        self._site.live.start()
        return serving

    async def _end(self) -> None:
        self._site.close()
        self._server.should_exit = True
        await asyncio.wait([self._serving], timeout=FAREWELL_S)
        for connection in list(self._server.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        await self._serving
