"""Names under which no regular file stands: links of every sort, pipes, sockets."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_SECONDS = 30
"""After which an operation that should end at once counts as hanging."""


@contextmanager
def no_hang() -> Iterator[None]:
    """Raise `TimeoutError` out of an operation that waits for the other end of a pipe."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"nothing for {PATIENCE_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def make_socket(path: Path) -> None:
    """Let a socket stand under a name; its path may be longer than a socket's address."""
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)
