"""Connections of the page's server, with a time limit for request heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from typing import Any

HEAD_S = 20.0
"""Time limit for receiving the head of a request."""


class Connection(H11Protocol):
    """A connection with a time limit for request heads.

    The number of connections is limited, and clients without the token can open them. A connection
    that sends nothing or an incomplete head is closed after `HEAD_S`, or as soon as another client
    needs a connection. Otherwise such clients could use up all connections.
    """

    _giving_up: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Even if another server in this process enabled the shared logger: the log would contain
        # the token.
        self.access_log = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request. If there are too many connections, make room."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._watch()
        most = self.limit_concurrency
        while most is not None and len(self.connections) >= most:
            idle = [each for each in self.connections if isinstance(each, Connection)]
            idle = [each for each in idle if each is not self and each.is_idle]
            if not idle:
                return  # the server responds with 503
            # Prefer connections without a request so far. These may be clients without the token.
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
        """Close the connection at once and stop counting it."""
        self.connections.discard(self)
        self.transport.abort()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._idle_since = self.loop.time()

    def handle_events(self) -> None:
        """Start the time limit at the first byte of a head; further bytes do not extend it."""
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
