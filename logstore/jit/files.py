"""Cache files of compiled kernels, and the lock between processes, without numba."""

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
    """Return the directory of compiled kernels, or None if none is writable.

    This is `NUMBA_CACHE_DIR` if set. Otherwise, it is `__pycache__` in this package or, if that is
    read-only, the user's cache.
    """
    configured = os.environ.get("NUMBA_CACHE_DIR")
    pycache = Path(__file__).with_name("__pycache__")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~").expanduser() / ".cache")
    folders = [Path(configured).absolute()] if configured else [pycache, Path(home) / "logstore"]
    for folder in folders:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
    return None


class KernelFiles:
    """The cache files of a kernel.

    File names contain the fingerprint, so different versions of a kernel have separate files.
    """

    def __init__(self, function: FunctionType, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        module = Path(function.__code__.co_filename).stem
        version = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
        self.index = f"{module}.{function.__qualname__}-{fingerprint}.{version}.nbi"

    def exist(self) -> bool:
        """Return whether a compiled form exists for any argument types."""
        folder = cache_dir()
        return folder is not None and (folder / self.index).exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that serializes compilation of this kernel across processes."""
        folder = cache_dir()
        if folder is None:
            yield
            return
        # One byte per kernel. The file is never deleted, because waiting processes have it open.
        with (folder / "compiling.lock").open("ab") as file:
            byte = int(self.fingerprint[:12], 16)
            fcntl.lockf(file, fcntl.LOCK_EX, 1, byte)
            yield
