"""Connections of the page's server: one that asks nothing, or never to the end, is not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from typing import Any

HEAD_S = 20.0
"""For how long a connection may be at the head of a request."""


class Connection(H11Protocol):
    """A connection whose requests begin with a whole head soon.

    Connections are few, and a client without the token can open them, too. One that sends nothing,
    or a head without an end, is closed after a while, and before that as soon as another client
    needs its place: otherwise it could take all places, and nobody would be answered.
    """

    _giving_up: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Whatever another server in this process made of their common logger: it would have the
        # address with the token.
        self.access_log = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request; if there are too many connections, make room."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._watch()
        most = self.limit_concurrency
        while most is not None and len(self.connections) >= most:
            idle = [each for each in self.connections if isinstance(each, Connection)]
            idle = [each for each in idle if each is not self and each.is_idle]
            if not idle:
                return  # the server tells the client to come back later
            # First those that never asked: a connection without the token ends with its answer.
            min(idle, key=lambda each: (each.cycle is not None, each._idle_since)).make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        super().connection_lost(exc)
        self._unwatch()

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.conn.their_state is h11.IDLE

    def make_room(self) -> None:
        """Close the connection at once; it counts no longer."""
        self.connections.discard(self)
        self.transport.abort()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._idle_since = self.loop.time()

    def handle_events(self) -> None:
        """Wait for the rest of a head, which does not have more time with each of its bytes."""
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
