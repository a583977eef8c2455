"""A file system that fails: from one operation on, every operation raises an I/O error."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

from logstore.runtime import DiskFileSystem, File
from logstore.runtime.fs import Buffer


class FailingFileSystem(DiskFileSystem):
    """A file system that works up to a chosen change; a failing write leaves half of its bytes.

    Earlier data stays, as if a controller or a cable failed: a process that starts later on a
    working disk reads it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._left: int | None = None

    def fail_at(self, number: int) -> None:
        """Fail the n-th change from now on, counted from 1, and all later ones."""
        self._left = number

    def strikes(self) -> bool:
        """Count a change and return whether it fails."""
        if self._left is None:
            return False
        self._left -= 1
        return self._left <= 0

    def enter(self, path: str) -> None:
        """Fail a change that has no half."""
        if self.strikes():
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        if create:
            self.enter(path)
        file = super().open(path, write=write, create=create)
        return _FailingFile(self, file, path) if write or create else file

    def rename(self, source: str, target: str) -> None:
        self.enter(source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.enter(path)
        super().remove(path)

    def make_dirs(self, path: str) -> None:
        self.enter(path)
        super().make_dirs(path)

    def remove_dir(self, path: str) -> None:
        self.enter(path)
        super().remove_dir(path)

    def sync_dir(self, path: str) -> None:
        self.enter(path)
        super().sync_dir(path)


class _FailingFile:
    """A file of a `FailingFileSystem`, open for writing."""

    def __init__(self, fs: FailingFileSystem, file: File, path: str) -> None:
        self._fs = fs
        self._file = file
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def append(self, buffers: Sequence[Buffer]) -> int:
        position = self._file.size()
        self.write_at(buffers, position)
        return position

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        if self._fs.strikes():
            data = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in buffers)
            self._file.write_at([data[: len(data) // 2]], position)
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        self._file.write_at(buffers, position)

    def truncate(self, size: int) -> None:
        self._fs.enter(self._path)
        self._file.truncate(size)

    def sync(self) -> None:
        self._fs.enter(self._path)
        self._file.sync()
