"""A view of a file system that refuses every change."""

from __future__ import annotations

import errno
from typing import NoReturn

from logstore.runtime.fs import File, FileKind, FileStat, FileSystem, Space


class ReadOnlyFileSystem:
    """Forwards reads to `base`. Every method that writes raises `PermissionError`.

    This guarantees that read-only commands write nothing. Recovery makes its changes in an overlay
    over this file system, and a bug results in an error. It is not a `FileSystemLayer`, because
    that would forward new operations.
    """

    def __init__(self, base: FileSystem) -> None:
        self._base = base

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file for reading."""
        if write or create:
            _refuse(path)
        return _ReadOnlyFile(self._base.open(path), path)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists at `path`."""
        return self._base.exists(path)

    def is_dir(self, path: str) -> bool:
        """Return whether `path` is a directory."""
        return self._base.is_dir(path)

    def kind(self, path: str) -> FileKind | None:
        """Return the kind of a path."""
        return self._base.kind(path)

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return self._base.list_dir(path)

    def kinds(self, path: str) -> dict[str, FileKind]:
        """Return the names in a directory and their kinds, sorted by name."""
        return self._base.kinds(path)

    def stat(self, path: str) -> FileStat:
        """Return the length and modification time of a file."""
        return self._base.stat(path)

    def rename(self, source: str, target: str) -> None:
        """Raise `PermissionError`."""
        _refuse(source)

    def _refuse_change(self, path: str, *_: object, **__: object) -> NoReturn:
        _refuse(path)

    set_mtime = remove = make_dirs = remove_dir = sync_dir = lock = _refuse_change

    def space(self, path: str) -> Space | None:
        """Return the space on a directory's volume."""
        return self._base.space(path)

    def lock_holder(self, path: str) -> int | None:
        """Return the process that holds the lock on a file."""
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

    def _refuse_change(self, *_: object, **__: object) -> NoReturn:
        _refuse(self._path)

    append = write_at = truncate = sync = _refuse_change


def _refuse(path: str) -> NoReturn:
    raise PermissionError(errno.EROFS, "opened read-only", path)
