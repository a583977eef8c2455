"""Commands that go on until they are told to stop."""

from __future__ import annotations

import signal
import socket
from types import FrameType
from typing import Any, NoReturn, Self


class _Stopped(BaseException):
    """SIGTERM came: no `Exception`, so that nothing on the way takes it for a failure."""


class Stopping:
    """Ends its `with` at SIGTERM as if it had come to its end; Ctrl-C is an interrupt as ever."""

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGTERM, _stop)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> bool:
        signal.signal(signal.SIGTERM, self._previous)
        return kind is not None and issubclass(kind, _Stopped)

    def wait(self) -> NoReturn:
        """Wait until the handler of a signal raises.

        The system may give a signal to another thread, or while this one is about to fall asleep.
        Its handler in Python runs here only once something wakes this thread: the byte that is
        written for each signal does.
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
