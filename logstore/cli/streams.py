"""Handle standard streams that are closed (`<&-`, `>&-`) or whose reader has closed the pipe."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

NAMES = ("input", "output", "error")


class _Closed(io.RawIOBase):
    """A replacement for a closed stream. Using it raises an error that names the stream."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_forgotten = False

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  # as io has it
        raise self._error()

    def write(self, buffer: Any) -> int:  # noqa: ANN401  # as io has it
        if self.is_forgotten:
            return len(buffer)
        raise self._error()

    def _error(self) -> OSError:
        return OSError(errno.EBADF, f"standard {self._name} is closed")


def replace_closed_streams() -> None:
    """Replace closed standard streams.

    Their descriptors are reserved first, because otherwise the next opened file would get one of
    them, and messages for standard error might be written to a segment. Reads and writes raise an
    error that names the stream. Output to a closed standard error is discarded.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)
    for descriptor, stream in enumerate(streams):
        if stream is None:
            # Use the opposite mode, so that direct use of the descriptor fails as well.
            taken = os.open(os.devnull, os.O_WRONLY if descriptor == 0 else os.O_RDONLY)
            if taken != descriptor:
                os.dup2(taken, descriptor)
                os.close(taken)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Closed("input")), "utf-8")
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Closed("output")), "utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  # for good


def forget_output() -> None:
    """Discard buffered output, so that flushing it does not fail again at exit."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        closed = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
        if isinstance(closed, _Closed):
            # Python 3.13 and later report streams that cannot be flushed at exit.
            closed.is_forgotten = True
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  # for good
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
