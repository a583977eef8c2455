"""A base class for layers that override some operations of a file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore.runtime.fs import File, FileKind, FileStat, FileSystem, Space
    from logstore.runtime.locks import FileLock


class FileSystemLayer:
    """Forwards every operation to `base`; see `FileSystem`."""

    def __init__(self, base: FileSystem) -> None:
        self.base = base

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base!r})"

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file."""
        return self.base.open(path, write=write, create=create)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists at `path`."""
        return self.base.exists(path)

    def is_dir(self, path: str) -> bool:
        """Return whether `path` is a directory."""
        return self.base.is_dir(path)

    def kind(self, path: str) -> FileKind | None:
        """Return the kind of a path."""
        return self.base.kind(path)

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return self.base.list_dir(path)

    def kinds(self, path: str) -> dict[str, FileKind]:
        """Return the names in a directory and their kinds, sorted by name."""
        return self.base.kinds(path)

    def stat(self, path: str) -> FileStat:
        """Return the length and modification time of a file."""
        return self.base.stat(path)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set a file's modification time."""
        self.base.set_mtime(path, mtime_ms)

    def rename(self, source: str, target: str) -> None:
        """Rename atomically. An existing target file is replaced."""
        self.base.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.base.remove(path)

    def make_dirs(self, path: str) -> None:
        """Create a directory and its missing parents."""
        self.base.make_dirs(path)

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        self.base.remove_dir(path)

    def sync_dir(self, path: str) -> None:
        """Fsync a directory, which makes the names in it durable."""
        self.base.sync_dir(path)

    def space(self, path: str) -> Space | None:
        """Return the space on a directory's volume."""
        return self.base.space(path)

    def lock(self, path: str) -> FileLock | None:
        """Acquire the exclusive lock on a file."""
        return self.base.lock(path)

    def lock_holder(self, path: str) -> int | None:
        """Return the process that holds the lock on a file."""
        return self.base.lock_holder(path)
