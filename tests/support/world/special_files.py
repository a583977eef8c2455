"""Names that are not regular files: links of every sort, pipes, sockets."""

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
    """Create a socket under a name; its path may be longer than a socket's address."""
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


PRECIOUS = {"one": b"1", "sub/two": b"2"}
"""Contents of a directory that must not be changed."""


def make_precious(folder: Path) -> Path:
    """Make that folder, and return it."""
    for name, data in PRECIOUS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def files_below(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files of a folder, by their paths in it."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
