"""The world outside: time, files, randomness and locks.

The only package of the engine that touches them (import-linter and ruff hold this).
Everything else is handed a `Runtime`, so that the same code runs on a disk or in memory,
on wall time or virtual time.
"""

from logstore.runtime.clock import Clock, FixedWallClock, SystemClock, VirtualClock
from logstore.runtime.environment import Random, Runtime, random_source
from logstore.runtime.fs import (
    DiskFileSystem,
    File,
    FileStat,
    FileSystem,
    directory_of,
    make_dirs_durably,
)
from logstore.runtime.memfs import MemoryFileSystem
from logstore.runtime.overlay import OverlayFileSystem
from logstore.runtime.readonly import ReadOnlyFileSystem

__all__ = [
    "Clock",
    "DiskFileSystem",
    "File",
    "FileStat",
    "FileSystem",
    "FixedWallClock",
    "MemoryFileSystem",
    "OverlayFileSystem",
    "Random",
    "ReadOnlyFileSystem",
    "Runtime",
    "SystemClock",
    "VirtualClock",
    "directory_of",
    "make_dirs_durably",
    "random_source",
]
