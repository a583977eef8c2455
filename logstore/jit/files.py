"""Files of compiled kernels, and the lock under which one process compiles. Without numba."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FunctionType


@cache
def cache_dir() -> Path | None:
    """Return the folder of compiled kernels; None if no place can be written to.

    `NUMBA_CACHE_DIR` if that is set; else `__pycache__` beside this package's sources, or, if that
    is read-only, the user's cache.
    """
    given = os.environ.get("NUMBA_CACHE_DIR")
    beside = Path(__file__).with_name("__pycache__")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~").expanduser() / ".cache")
    places = [Path(given)] if given else [beside, Path(home) / "logstore"]
    for place in places:
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            if os.access(place, os.W_OK | os.X_OK):
                return place
    return None


class KernelFiles:
    """The files of a kernel's compiled form.

    Their name has the fingerprint of the kernel: after an edit the old files are not found, and
    versions of a kernel lie side by side.
    """

    def __init__(self, function: FunctionType, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        module = Path(function.__code__.co_filename).stem
        version = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
        self.index = f"{module}.{function.__qualname__}-{fingerprint}.{version}.nbi"

    def exist(self) -> bool:
        """Tell whether there is a compiled form, for arguments of some types."""
        place = cache_dir()
        return place is not None and (place / self.index).exists()

    @contextmanager
    def being_made(self) -> Iterator[None]:
        """Hold the lock of this kernel's compilation across processes; waits for it."""
        place = cache_dir()
        if place is None:
            yield
            return
        # One byte of the file a kernel. Never unlinked: whoever waits for it holds it open.
        with (place / "compiling.lock").open("ab") as file:
            byte = int(self.fingerprint[:12], 16)
            fcntl.lockf(file, fcntl.LOCK_EX, 1, byte)
            yield
