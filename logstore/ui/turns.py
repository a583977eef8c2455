"""Deeds in turn: one at a time, and those that lose data once somebody said yes to the loss."""

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
"""How long a request waits for its turn."""

KEY_BITS = 256


class Turns:
    """The turns of those who do something of one kind, as deeds, from one page.

    On a virtual clock whoever waits for a partition lets time pass, and one at a time may.

    Notes
    -----
    Any thread may call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Not the broker's randomness: with a seed others could repeat it.
        self._key = random_source().getrandbits(KEY_BITS).to_bytes(KEY_BITS // 8, "big")

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let nobody else do anything meanwhile.

        Raises
        ------
        BusyError
            Another deed takes its time.
        """
        if not self._lock.acquire(timeout=WAIT_S):
            raise BusyError("another request of this page is under way: wait until it is done")
        try:
            yield
        finally:
            self._lock.release()

    def confirmation(self, deed: Mapping[str, object], loss: Loss) -> str:
        """Return the token that says yes to one loss by one deed, and to no other.

        It is of no use once what would be lost is anything else: more records, or others.
        """
        text = json.dumps([deed, loss.parts], sort_keys=True)
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def is_confirmed(self, token: str, deed: Mapping[str, object], loss: Loss) -> bool:
        """Tell whether a token says yes to this loss."""
        expected = self.confirmation(deed, loss)
        return hmac.compare_digest(token.encode("utf-8", "surrogateescape"), expected.encode())


def refusal(loss: Loss, token: str, command: str | None) -> dict[str, Any]:
    """Return the answer to a deed that nobody said yes to yet."""
    message = f"{loss.text}; send the same again with 'confirm' to do it"
    return {
        "error": {"type": "ConfirmationNeededError", "message": message},
        "loses": loss.to_json(),
        "confirm": token,
        "command": command,
    }
