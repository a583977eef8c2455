"""Messages that the engine logs while a command runs, as lines on standard error."""

from __future__ import annotations

import logging
from enum import Enum, auto

from logstore.cli.show.output import note, one_line, plural, tell

FINDINGS_SHOWN_MAX = 10
"""Findings of recovery that are told one by one; a directory in disorder has hundreds."""

_PACKAGES = ("logstore",)
_COMPILER = "logstore.jit"
_ABOUT_FILES = (
    "logstore.manager.topics.",
    "logstore.manager.directories.",
    "logstore.manager.registry",
)
"""Loggers that warn of what is on the disk, each time that it is read: once is enough."""

_RECOVERY = ("logstore.storage.loading.loader", "logstore.storage.loading.leftovers")


class Recovery(Enum):
    """The fate of recovery's findings while a command runs."""

    MENDED = auto()
    """Told: they are performed, and nobody can look them up afterwards."""

    COMPUTED = auto()
    """Counted: nothing is changed, and `inspect` shows them at any time."""

    PART_OF_RESULT = auto()
    """Left to the command, which shows them itself."""


class MessageHandler(logging.Handler):
    """Prints warnings as `warning: …`, and in the end what recovery came to.

    Compiling is a note, since somebody waits for it. Standard error is looked up
    at each message, since a test may have replaced it.
    """

    def __init__(self, recovery: Recovery) -> None:
        super().__init__(logging.INFO)
        self._recovery = recovery
        self._findings = 0
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message, or count it."""
        if record.name == _COMPILER:
            note(record.getMessage())
            return
        if record.levelno < logging.WARNING:
            return
        if record.name in _RECOVERY:
            self._findings += 1
            if self._recovery is not Recovery.MENDED or self._findings > FINDINGS_SHOWN_MAX:
                return
        line = f"{record.levelname.lower()}: {one_line(record.getMessage())}"
        if record.name.startswith(_ABOUT_FILES):
            if line in self._printed:
                return
            self._printed.add(line)
        tell(line)

    def finish(self) -> None:
        """Tell how much recovery found, if it found anything."""
        if not self._findings or self._recovery is Recovery.PART_OF_RESULT:
            return
        findings = plural(self._findings, "finding")
        if self._recovery is Recovery.COMPUTED:
            note(f"recovery: {findings}, nothing was changed; logstore inspect shows them")
        else:
            hidden = max(self._findings - FINDINGS_SHOWN_MAX, 0)
            shown = f"; the first {FINDINGS_SHOWN_MAX} are shown" if hidden else ""
            note(f"recovery: {findings} on opening{shown}")


def show_messages(recovery: Recovery) -> None:
    """Print what the engine logs, until `stop_messages`; a second call changes nothing."""
    for package in _PACKAGES:
        logger = logging.getLogger(package)
        if not any(isinstance(handler, MessageHandler) for handler in logger.handlers):
            logger.addHandler(MessageHandler(recovery))
    logging.getLogger(_COMPILER).setLevel(logging.INFO)  # it speaks before a wait


def stop_messages() -> None:
    """Tell what recovery came to, and leave the loggers as they were."""
    for package in _PACKAGES:
        logger = logging.getLogger(package)
        for handler in list(logger.handlers):
            if isinstance(handler, MessageHandler):
                logger.removeHandler(handler)
                handler.finish()
    logging.getLogger(_COMPILER).setLevel(logging.NOTSET)
