"""Print log messages of the engine to standard error while a command runs."""

from __future__ import annotations

import logging
from enum import Enum, auto

from logstore.cli.show.output import note, one_line, plural, print_stderr

FINDINGS_SHOWN_MAX = 10
"""Maximum number of recovery findings to print. A badly damaged directory has hundreds."""

_PACKAGES = ("logstore",)
_COMPILER = "logstore.jit"
_ABOUT_FILES = (
    "logstore.manager.topics.",
    "logstore.manager.directories.",
    "logstore.manager.registry",
)
"""Loggers that repeat a warning each time a file is read. Each warning is printed once."""

_RECOVERY = ("logstore.storage.loading.loader", "logstore.storage.loading.leftovers")


class Recovery(Enum):
    """How a command treats findings of recovery."""

    MENDED = auto()
    """Print them, because files are repaired and the findings cannot be shown later."""

    COMPUTED = auto()
    """Count them, because no file is changed and `inspect` shows them."""

    PART_OF_RESULT = auto()
    """Ignore them, because the command itself shows them."""


class MessageHandler(logging.Handler):
    """Prints warnings as `warning: …`, and a summary of recovery at the end.

    Compiler messages are printed as notes, because the user is waiting for the compiler.
    `sys.stderr` is looked up for each message, because tests replace it.
    """

    def __init__(self, recovery: Recovery) -> None:
        super().__init__(logging.INFO)
        self._recovery = recovery
        self._findings = 0
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print or count a message."""
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
        print_stderr(line)

    def finish(self) -> None:
        """Print the number of recovery findings, if any."""
        if not self._findings or self._recovery is Recovery.PART_OF_RESULT:
            return
        findings = plural(self._findings, "finding")
        if self._recovery is Recovery.COMPUTED:
            note(f"recovery: {findings}, nothing was changed; see logstore inspect")
        else:
            hidden = max(self._findings - FINDINGS_SHOWN_MAX, 0)
            shown = f"; the first {FINDINGS_SHOWN_MAX} are shown" if hidden else ""
            note(f"recovery: {findings} on opening{shown}")


def show_messages(recovery: Recovery) -> None:
    """Print log messages of the engine until `stop_messages`. A second call has no effect."""
    for package in _PACKAGES:
        logger = logging.getLogger(package)
        if not any(isinstance(handler, MessageHandler) for handler in logger.handlers):
            logger.addHandler(MessageHandler(recovery))
    logging.getLogger(_COMPILER).setLevel(logging.INFO)  # announces long compilations


def stop_messages() -> None:
    """Print the summary of recovery and restore the loggers."""
    for package in _PACKAGES:
        logger = logging.getLogger(package)
        for handler in list(logger.handlers):
            if isinstance(handler, MessageHandler):
                logger.removeHandler(handler)
                handler.finish()
    logging.getLogger(_COMPILER).setLevel(logging.NOTSET)
