"""HTTP connections with a time limit for request headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from typing import Any

HEAD_S = 20.0
"""Time limit for receiving the headers of a request."""


class Connection(H11Protocol):
    """An HTTP connection with a time limit for request headers.

    The number of connections is limited, and anyone can connect without the token. To prevent such
    clients from using up all connections, a connection without a complete request is closed after
    `HEAD_S`, or as soon as another client needs it.
    """

    _giving_up: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # The shared logger may be enabled by another server in this process, and the log would
        # reveal the token.
        self.access_log = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit. If there are too many connections, close an idle one."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._watch()
        most = self.limit_concurrency
        while most is not None and len(self.connections) >= most:
            idle = [each for each in self.connections if isinstance(each, Connection)]
            idle = [each for each in idle if each is not self and each.is_idle]
            if not idle:
                return  # the server sends 503
            # Prefer connections without any request, whose clients may lack the token.
            min(idle, key=lambda each: (each.cycle is not None, each._idle_since)).make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        super().connection_lost(exc)
        self._unwatch()

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self.conn.their_state is h11.IDLE

    def make_room(self) -> None:
        """Close the connection and stop counting it."""
        self.connections.discard(self)
        self.transport.abort()

    def on_response_complete(self) -> None:
        """Start waiting for the next request."""
        super().on_response_complete()
        self._idle_since = self.loop.time()

    def handle_events(self) -> None:
        """Start the time limit at the first byte of the headers."""
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._giving_up is None and self.conn.trailing_data[0]:
            self._watch()

    def _watch(self) -> None:
        self._giving_up = self.loop.call_later(HEAD_S, self.transport.abort)

    def _unwatch(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
