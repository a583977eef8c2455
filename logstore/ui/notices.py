"""Warnings about a copied directory, which the command line prints while it reads."""

from __future__ import annotations

import logging

NOTICES_MAX = 100


class Notices(logging.Handler):
    """Collects the engine's warnings, each once, while it is attached to its logger."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._texts: dict[str, None] = {}

    def attach(self) -> None:
        """Collect warnings until `detach`."""
        logging.getLogger("logstore").addHandler(self)

    def detach(self) -> None:
        """Stop collecting."""
        logging.getLogger("logstore").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message, unless the page logged it."""
        if not record.name.startswith("logstore.ui") and len(self._texts) < NOTICES_MAX:
            self._texts[" ".join(record.getMessage().split())] = None

    def texts(self) -> list[str]:
        """Return the messages in the order of their first occurrence."""
        return list(self._texts)
