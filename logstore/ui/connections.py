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

    Connections are few, and who has no token can open them, too: without a bound it would take
    them all by sending nothing, or a head without an end, and nobody would be answered any more.
    """

    _giving_up: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Whatever another server in this process made of their common logger: it would have the
        # address with the token.
        self.access_log = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        super().connection_lost(exc)
        self._unwatch()

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
