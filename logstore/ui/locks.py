"""Serialization of operations, and confirmation of data loss."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from logstore.runtime import random_source
from logstore.ui.errors import BusyError

if TYPE_CHECKING:
    from logstore.analysis.losses import Loss

WAIT_S = 120.0
"""Maximum time that a request waits for the lock."""

KEY_BITS = 256


class OperationLock:
    """Serializes operations of one kind. Thread-safe.

    With a virtual clock, waiting for a partition advances the time, so only one operation may wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Not the broker's random source, because that may be seeded.
        self._key = random_source().getrandbits(KEY_BITS).to_bytes(KEY_BITS // 8, "big")

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock.

        Raises
        ------
        BusyError
            Another operation did not release the lock within `WAIT_S`.
        """
        if not self._lock.acquire(timeout=WAIT_S):
            raise BusyError("another operation of this page is in progress; try again later")
        try:
            yield
        finally:
            self._lock.release()

    def confirmation(self, action: Mapping[str, object], loss: Loss) -> str:
        """Return a token that confirms a loss.

        The token becomes invalid if the loss changes, for example if more records would be deleted.
        """
        text = json.dumps([action, loss.parts], sort_keys=True)
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def is_confirmed(self, token: str, action: Mapping[str, object], loss: Loss) -> bool:
        """Return whether the token confirms this loss."""
        expected = self.confirmation(action, loss)
        return hmac.compare_digest(token.encode("utf-8", "surrogateescape"), expected.encode())


def refusal(loss: Loss, token: str, command: str | None) -> dict[str, Any]:
    """Return the response to an operation whose loss is not confirmed."""
    message = f"{loss.text}; to proceed, repeat the request with 'confirm'"
    return {
        "error": {"type": "ConfirmationNeededError", "message": message},
        "loses": loss.to_json(),
        "confirm": token,
        "command": command,
    }
