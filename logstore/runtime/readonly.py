"""A view of a file system that refuses every change."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NoReturn

from logstore.runtime.fs import Buffer, File, FileKind, FileStat, FileSystem, Space
from logstore.runtime.locks import FileLock


class ReadOnlyFileSystem:
    """Reads fall through to `base`; anything that would alter it raises `PermissionError`.

    The proof, at the lowest level, that a read-only command writes nothing: an overlay over
    this view holds what recovery would do, and a slip surfaces as an error. So it is no
    `FileSystemLayer`, through which an operation would fall that nobody thought of here.
    """

    def __init__(self, base: FileSystem) -> None:
        self._base = base

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file for reading."""
        if write or create:
            _refuse(path)
        return _ReadOnlyFile(self._base.open(path), path)

    def exists(self, path: str) -> bool:
        """Tell whether a file or directory of that name exists."""
        return self._base.exists(path)

    def is_dir(self, path: str) -> bool:
        """Tell whether `path` is a directory."""
        return self._base.is_dir(path)

    def kind(self, path: str) -> FileKind | None:
        """Tell what stands under a name."""
        return self._base.kind(path)

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return self._base.list_dir(path)

    def kinds(self, path: str) -> dict[str, FileKind]:
        """Return the names in a directory with what stands under each."""
        return self._base.kinds(path)

    def stat(self, path: str) -> FileStat:
        """Return length and modification time of a file."""
        return self._base.stat(path)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Refuse."""
        _refuse(path)

    def rename(self, source: str, target: str) -> None:
        """Refuse."""
        _refuse(source)

    def remove(self, path: str) -> None:
        """Refuse."""
        _refuse(path)

    def make_dirs(self, path: str) -> None:
        """Refuse."""
        _refuse(path)

    def remove_dir(self, path: str) -> None:
        """Refuse."""
        _refuse(path)

    def sync_dir(self, path: str) -> None:
        """Refuse."""
        _refuse(path)

    def space(self, path: str) -> Space | None:
        """Return the room of the volume that a directory lies on."""
        return self._base.space(path)

    def lock(self, path: str) -> FileLock | None:
        """Refuse: who only reads locks nothing."""
        _refuse(path)

    def lock_holder(self, path: str) -> int | None:
        """Return who holds the lock on a file."""
        return self._base.lock_holder(path)


class _ReadOnlyFile:
    """A file that can only be read."""

    def __init__(self, base: File, path: str) -> None:
        self._base = base
        self._path = path
        self.size = base.size
        self.read_into = base.read_into
        self.read = base.read
        self.close = base.close

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Refuse."""
        _refuse(self._path)

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        """Refuse."""
        _refuse(self._path)

    def truncate(self, size: int) -> None:
        """Refuse."""
        _refuse(self._path)

    def sync(self) -> None:
        """Refuse."""
        _refuse(self._path)


def _refuse(path: str) -> NoReturn:
    raise PermissionError(errno.EROFS, "opened read-only", path)
