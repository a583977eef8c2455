"""Shut down long-running commands on SIGTERM."""

from __future__ import annotations

import signal
import socket
from types import FrameType
from typing import Any, NoReturn, Self


class _Stopped(BaseException):
    """Raised on SIGTERM. Not an `Exception`, so that no handler treats it as a failure."""


class Stopping:
    """A context manager that exits normally on SIGTERM. Ctrl-C still interrupts."""

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGTERM, _stop)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> bool:
        signal.signal(signal.SIGTERM, self._previous)
        return kind is not None and issubclass(kind, _Stopped)

    def wait(self) -> NoReturn:
        """Wait until a signal handler raises an exception.

        The system may deliver a signal to another thread, or just before this thread sleeps, but
        the Python handler only runs when this thread wakes up. This therefore waits for the byte
        that `signal.set_wakeup_fd` writes for each signal.
        """
        reader, writer = socket.socketpair()
        with reader, writer:
            writer.setblocking(False)
            previous = signal.set_wakeup_fd(writer.fileno())
            try:
                while True:
                    reader.recv(1)
            finally:
                signal.set_wakeup_fd(previous)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise _Stopped
