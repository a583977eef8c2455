"""A file system whose operations fail on demand; a failing write leaves half of its bytes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from logstore.runtime import FileLock
from logstore.runtime.fs import Buffer, File, FileSystem
from logstore.runtime.layer import FileSystemLayer

Rule = Callable[[str, str], bool]
"""Receives the operation's name and the path; returns whether it fails."""


def never(_operation: str, _path: str) -> bool:
    """Let all operations succeed."""
    return False


class FaultyFileSystem(FileSystemLayer):
    """Passes operations to `base` unless `rule` fails them; `operations` lists all of them."""

    def __init__(self, base: FileSystem, rule: Rule = never) -> None:
        super().__init__(base)
        self.rule = rule
        self.operations: list[tuple[str, str]] = []

    def check(self, operation: str, path: str) -> None:
        self.operations.append((operation, path))
        if self.rule(operation, path):
            raise OSError(errno.EIO, f"injected failure of {operation}", path)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        self.check("open", path)
        return FaultyFile(self, path, self.base.open(path, write=write, create=create))

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        self.check("set_mtime", path)
        self.base.set_mtime(path, mtime_ms)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        self.base.rename(source, target)

    def remove(self, path: str) -> None:
        self.check("remove", path)
        self.base.remove(path)

    def make_dirs(self, path: str) -> None:
        self.check("make_dirs", path)
        self.base.make_dirs(path)

    def remove_dir(self, path: str) -> None:
        self.check("remove_dir", path)
        self.base.remove_dir(path)

    def sync_dir(self, path: str) -> None:
        self.check("sync_dir", path)
        self.base.sync_dir(path)

    def lock(self, path: str) -> FileLock | None:
        self.check("lock", path)
        return self.base.lock(path)


class FaultyFile:
    """A handle of a `FaultyFileSystem`."""

    def __init__(self, fs: FaultyFileSystem, path: str, base: File) -> None:
        self._fs = fs
        self._path = path
        self._base = base

    def size(self) -> int:
        return self._base.size()

    def read_into(self, view: memoryview, position: int) -> int:
        self._fs.check("read", self._path)
        return self._base.read_into(view, position)

    def read(self, position: int, size: int) -> bytes:
        self._fs.check("read", self._path)
        return self._base.read(position, size)

    def append(self, buffers: Sequence[Buffer]) -> int:
        position = self.size()
        self.write_at(buffers, position)
        return position

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        try:
            self._fs.check("write", self._path)
        except OSError:
            data = b"".join(bytes(buffer) for buffer in buffers)
            self._base.write_at([data[: len(data) // 2]], position)
            raise
        self._base.write_at(buffers, position)

    def truncate(self, size: int) -> None:
        self._fs.check("truncate", self._path)
        self._base.truncate(size)

    def sync(self) -> None:
        self._fs.check("sync", self._path)
        self._base.sync()

    def close(self) -> None:
        self._base.close()
