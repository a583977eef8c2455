"""A writable in-memory layer over a file system that is not changed.

Read-only commands open a log over an overlay. Recovery truncates, renames and rebuilds files in the
overlay with the same code as on disk, and the base does not change. A file only uses memory after
its first change. The bytes before the first change are read from the base.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import closing

from logstore.runtime.clock import Clock, SystemClock
from logstore.runtime.fs import File, FileKind, FileStat, FileSystem
from logstore.runtime.locks import FileLock, LockTable
from logstore.runtime.memfs import MemoryBytes, MemoryFile, fail, split_path

# Re-entrant, because the garbage collector may close a dropped file at any time.
_counting = threading.RLock()


def _renew_in_child() -> None:
    global _counting  # another thread of the parent may have held it
    _counting = threading.RLock()


os.register_at_fork(after_in_child=_renew_in_child)


class OverlayBytes:
    """A file in an overlay: a prefix of a base file, followed by bytes in memory.

    The base file is only open while this file has open handles.

    Parameters
    ----------
    open_base : callable, optional
        Opens the base file for reading. None for a file that only exists in the overlay.
    prefix : int
        Number of bytes read from the start of the base file.
    mtime_ms : int
        Modification time in Unix milliseconds.

    Notes
    -----
    Invariants: without a base file, the prefix is 0. Prefix and tail are replaced together, so that
    threads can read while one thread writes.
    """

    __slots__ = (
        "_base",
        "_handles",
        "_is_own",
        "_open_base",
        "_prefix_and_tail",
        "mtime_ms",
    )

    def __init__(self, open_base: Callable[[], File] | None, prefix: int, mtime_ms: int) -> None:
        self._open_base = open_base
        self._base: File | None = None
        self._handles = 0
        self._is_own = open_base is None
        self._prefix_and_tail = (prefix, MemoryBytes())
        self.mtime_ms = mtime_ms

    @property
    def size(self) -> int:
        """Length in bytes."""
        prefix, tail = self._prefix_and_tail
        return prefix + tail.size

    def acquire(self) -> None:
        """Count a new handle. The first handle opens the base file.

        The base file may have been replaced since it was last open. Unless the overlay has changed
        the file, the new base file is read.
        """
        with _counting:
            if self._base is None and self._open_base is not None:
                self._base = self._open_base()
                if not self._is_own:
                    self._prefix_and_tail = (self._base.size(), MemoryBytes())
            self._handles += 1

    def release(self) -> None:
        """Count a closed handle. The last handle closes the base file."""
        with _counting:
            self._handles -= 1
            if self._handles == 0 and self._base is not None:
                self._base.close()
                self._base = None

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position` on."""
        prefix, tail = self._prefix_and_tail
        if self._base is not None and position + size <= prefix:
            return self._base.read(position, size)
        if position >= prefix:
            return tail.read(position - prefix, size)
        data = bytearray(max(0, min(size, prefix + tail.size - position)))
        count = self.read_into(memoryview(data), position)
        return bytes(memoryview(data)[:count])

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` from `position` on. Return the number of bytes read."""
        prefix, tail = self._prefix_and_tail
        done = 0
        if self._base is not None and position < prefix:
            wanted = min(len(view), prefix - position)
            done = self._base.read_into(view[:wanted], position)
            if done < wanted:
                return done
        return done + tail.read_into(view[done:], position + done - prefix)

    def write_at(self, data: bytes | memoryview, position: int) -> None:
        """Write `data` at `position`. The overlay then contains all bytes from there on."""
        self._is_own = True
        prefix, tail = self._prefix_and_tail
        if position < prefix and self._base is not None:
            moved = memoryview(bytearray(prefix - position))
            self._base.read_into(moved, position)
            whole = MemoryBytes()
            whole.write_at(moved, 0)
            whole.write_at(memoryview(tail.read(0, tail.written)), len(moved))
            whole.truncate(len(moved) + tail.size)
            prefix, tail = position, whole
            self._prefix_and_tail = (prefix, tail)
        tail.write_at(data, position - prefix)

    def truncate(self, size: int) -> None:
        """Truncate to `size`, or extend with zeros."""
        self._is_own = True
        prefix, tail = self._prefix_and_tail
        if size < prefix:
            self._prefix_and_tail = (size, MemoryBytes())
        else:
            tail.truncate(size - prefix)


class OverlayFile(MemoryFile):
    """A handle on an `OverlayBytes`."""

    __slots__ = ("_release",)

    def __init__(self, contents: OverlayBytes, clock: Clock, *, writable: bool = True) -> None:
        self._release: Callable[[], None] | None = None
        super().__init__(contents, clock, writable=writable)
        contents.acquire()
        self._release = contents.release

    def close(self) -> None:
        """Close the handle. The contents belong to the overlay."""
        super().close()
        release, self._release = self._release, None
        if release is not None:
            release()

    def __del__(self) -> None:
        """Close a handle that is no longer referenced."""
        self.close()


class OverlayFileSystem:
    """Keeps changes in memory over `base`, which is only read.

    Parameters
    ----------
    base : FileSystem
        The files to read. A file keeps the length it had when it was opened, as long as a handle on
        it is open, and permanently once it is changed.
    clock : Clock, optional
        Provides the modification times of the overlay's files. [default: the system clock]

    Notes
    -----
    Directories cannot be renamed, and directories in the base cannot be removed. Opening a log does
    neither.
    """

    def __init__(self, base: FileSystem, clock: Clock | None = None) -> None:
        self._base = base
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._nodes: dict[str, OverlayBytes | None] = {}
        self._dirs: set[str] = set()
        # For each directory, all names of nodes and directories that it ever contained, with their
        # paths, so that no operation walks the paths of other directories.
        self._children: dict[str, dict[str, str]] = {}
        self._locks = LockTable()
        self._held_open: dict[str, OverlayFile] = {}
        self._held_dirs: set[str] = set()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file; see `FileSystem.open`."""
        contents = self._node(path, create=create)
        return OverlayFile(contents, self._clock, writable=write or create)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists at `path`."""
        if path in self._dirs or path in self._held_dirs:
            return True
        if path in self._nodes:
            return self._nodes[path] is not None
        return self._base.exists(path)

    def is_dir(self, path: str) -> bool:
        """Return whether `path` is a directory."""
        if path in self._dirs or path in self._held_dirs:
            return True
        return path not in self._nodes and self._base.is_dir(path)

    def kind(self, path: str) -> FileKind | None:
        """Return the kind of a path. A link in the base remains a link until it is written here."""
        if path in self._dirs:
            return FileKind.DIRECTORY
        if path in self._nodes:
            return None if self._nodes[path] is None else FileKind.FILE
        return self._base.kind(path)

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return list(self.kinds(path))

    def kinds(self, path: str) -> dict[str, FileKind]:
        """Return the names in a directory and their kinds, sorted by name."""
        if not self.is_dir(path):
            fail(errno.ENOTDIR if self.exists(path) else errno.ENOENT, path)
        # Use a single call, because another process might change the base between two calls.
        kinds = self._base.kinds(path) if self._base.is_dir(path) else {}
        for name, child in list(self._children.get(path, {}).items()):
            if child in self._dirs:
                kinds[name] = FileKind.DIRECTORY
            elif self._nodes.get(child) is not None:
                kinds[name] = FileKind.FILE
            elif child in self._nodes:
                kinds.pop(name, None)
        return dict(sorted(kinds.items()))

    def stat(self, path: str) -> FileStat:
        """Return the length and modification time of a file."""
        if path not in self._nodes:
            return self._base.stat(path)
        contents = self._node(path)
        return FileStat(contents.size, contents.mtime_ms)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set a file's modification time in Unix milliseconds."""
        self._node(path).mtime_ms = mtime_ms

    def rename(self, source: str, target: str) -> None:
        """Rename a file. An existing target file is replaced."""
        if self.is_dir(source):
            fail(errno.EROFS, source)
        contents = self._node(source)
        if self.is_dir(target):
            fail(errno.EISDIR, target)
        self._check_parent(target)
        self._put(target, contents)
        if target != source:
            self._put(source, None)

    def remove(self, path: str) -> None:
        """Remove a file. If it is a symbolic link in the base, remove the link."""
        if path in self._nodes or self._base.kind(path) in (None, FileKind.DIRECTORY):
            self._node(path)  # fails if there is nothing to remove
        self._put(path, None)

    def make_dirs(self, path: str) -> None:
        """Create a directory and its missing parents."""
        missing = []
        while path and not self.is_dir(path):
            if self.exists(path):
                fail(errno.EEXIST, path)
            missing.append(path)
            path, _ = split_path(path)
        for each in missing:
            self._dirs.add(each)
            self._note(each)

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory that only exists in the overlay."""
        if self.list_dir(path):
            fail(errno.ENOTEMPTY, path)
        if path not in self._dirs:
            fail(errno.EROFS, path)
        self._dirs.discard(path)

    def sync_dir(self, path: str) -> None:
        """Check that the directory exists or existed. An overlay is never durable."""
        if not any(each in self._nodes for each in list(self._children.get(path, {}).values())):
            self.list_dir(path)

    def space(self, path: str) -> None:
        """Return None, because the space is unlimited."""

    def lock(self, path: str) -> FileLock | None:
        """Acquire the exclusive lock on a file in the overlay, not in the base."""
        nodes = self._nodes
        return self._locks.lock(
            path, lambda: self._node(path, create=True), lambda: nodes.get(path)
        )

    def lock_holder(self, path: str) -> int | None:
        """Return the process that holds the lock on a file, in the overlay or the base."""
        own = self._locks.holder(lambda: self._nodes.get(path))
        return self._base.lock_holder(path) if own is None else own

    # -- a base that changes -----------------------------------------------------------------

    @property
    def base(self) -> FileSystem:
        """The file system below the overlay."""
        return self._base

    def show(self, path: str, open_file: Callable[[], File]) -> None:
        """Show the file that `open_file` opens at `path`, with the base file's mtime."""
        with closing(open_file()) as file:
            size = file.size()
        exists = self._base.exists(path)
        mtime_ms = self._base.stat(path).mtime_ms if exists else self._clock.now_ms()
        self._put(path, OverlayBytes(open_file, size, mtime_ms))

    def pin(self, path: str) -> None:
        """Keep a file open until `unpin` or `refresh`, even if the base removes or renames it.

        Its directory counts as existing as well.
        """
        self._held_dirs.add(split_path(path)[0])
        self._held_open[path] = OverlayFile(self._node(path), self._clock, writable=False)

    def unpin(self, path: str) -> None:
        """Close a held file. A file that is not held is ignored."""
        if (held := self._held_open.pop(path, None)) is not None:
            held.close()

    def refresh(self, directory: str) -> None:
        """Discard everything below a directory, so that the base is read again."""
        for path in self._children.pop(directory, {}).values():
            self._nodes.pop(path, None)
            self.unpin(path)
            self.refresh(path)
        self._held_dirs.discard(directory)
        self._dirs.discard(directory)

    def _node(self, path: str, *, create: bool = False) -> OverlayBytes:
        contents = self._nodes.get(path)
        if contents is not None:
            return contents
        if self.is_dir(path):
            fail(errno.EISDIR, path)
        if path not in self._nodes and self._base.exists(path):
            status = self._base.stat(path)
            contents = OverlayBytes(lambda: self._base.open(path), status.size, status.mtime_ms)
        elif create:
            self._check_parent(path)
            contents = OverlayBytes(None, 0, self._clock.now_ms())
        else:
            fail(errno.ENOENT, path)
        self._put(path, contents)
        return contents

    def _put(self, path: str, contents: OverlayBytes | None) -> None:
        """Set or hide the file at a path, even if the base has one."""
        self._nodes[path] = contents
        self._note(path)

    def _note(self, path: str) -> None:
        """Add a path to its directory and to all parents."""
        is_new = True
        while is_new and path not in ("", "/"):
            parent, name = split_path(path)
            siblings = self._children.setdefault(parent, {})
            is_new = name not in siblings
            siblings[name] = path
            path = parent

    def _check_parent(self, path: str) -> None:
        parent, _ = split_path(path)
        if parent and not self.is_dir(parent):
            fail(errno.ENOTDIR if self.exists(parent) else errno.ENOENT, path)
