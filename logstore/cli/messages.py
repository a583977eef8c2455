"""What the engine logs while a command runs, as lines on standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection

from logstore.cli.output import one_line

_PACKAGES = ("logstore", "cleaner")


class MessageHandler(logging.Handler):
    """Prints warnings as `warning: …`; those of `silent` loggers are part of a command's result.

    Standard error is looked up at each message, since a test may have replaced it.
    """

    def __init__(self, silent: Collection[str]) -> None:
        super().__init__(logging.WARNING)
        self._silent = silent

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        if record.name not in self._silent:
            level = record.levelname.lower()
            print(f"{level}: {one_line(record.getMessage())}", file=sys.stderr)


def show_messages(silent: Collection[str] = ()) -> None:
    """Print what the engine logs, until `stop_messages`; a second call changes nothing."""
    for package in _PACKAGES:
        logger = logging.getLogger(package)
        if not any(isinstance(handler, MessageHandler) for handler in logger.handlers):
            logger.addHandler(MessageHandler(silent))


def stop_messages() -> None:
    """Leave the loggers as they were."""
    for package in _PACKAGES:
        logger = logging.getLogger(package)
        for handler in list(logger.handlers):
            if isinstance(handler, MessageHandler):
                logger.removeHandler(handler)
