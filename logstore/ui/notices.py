"""Warnings about a copied directory, as printed by the command line."""

from __future__ import annotations

import logging

NOTICES_MAX = 100


class Notices(logging.Handler):
    """A log handler that collects the distinct warnings of the engine."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._texts: dict[str, None] = {}

    def attach(self) -> None:
        """Start collecting."""
        logging.getLogger("logstore").addHandler(self)

    def detach(self) -> None:
        """Stop collecting."""
        logging.getLogger("logstore").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Record a message, unless the page itself has logged it."""
        if not record.name.startswith("logstore.ui") and len(self._texts) < NOTICES_MAX:
            self._texts[" ".join(record.getMessage().split())] = None

    def texts(self) -> list[str]:
        """Return the messages in order of first occurrence."""
        return list(self._texts)
