"""Exclusive file locks with at most one holder. Acquiring a lock never waits.

A data directory's `.lock` keeps out other writers. Acquire it before the first change, keep the
object as long as the directory is written, and release it last::

    lock = fs.lock(f"{log_dir}/.lock")
    if lock is None:
        ...  # another process, or another user in this one, has the directory: refuse it
    ...
    lock.release()

None means that another holder has the lock. An `OSError` means that the disk failed. The object
holds the lock: it is released when the object is dropped or the process ends.

On disk, this is a POSIX record lock over the whole file, as with Java's `FileChannel.tryLock`, so a
Kafka broker and this engine exclude each other. Such locks belong to the process; this module
records the holders within the process by device and inode. The lock is also lost when the process
closes *any* descriptor of the file. `DiskFileSystem` therefore closes descriptors with
`close_descriptor`, which defers this. Code that opens and closes a locked file by other means
silently releases the lock. A forked child holds no locks.

The file remains after a release. If it were removed, one process could hold the removed file and
another its replacement. Because Kafka 4.0 does remove it (`FileLock.destroy`), a lock is only valid
if the file still has its name after it was locked. The file may also be removed later, so holders
call `is_in_place` from time to time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

ATTEMPTS_MAX = 16
"""Number of attempts to lock a file that other processes keep removing."""


UNKNOWN_PROCESS = 0
"""A holder whose process id is unknown, for example in another container."""


class FileLock(Protocol):
    """An exclusive lock that is held; see the module."""

    @property
    def path(self) -> str:
        """Name under which the file was locked."""

    def is_in_place(self) -> bool:
        """Return whether the path still names the locked file. If not, others can lock the path."""

    def release(self) -> None:
        """Release the lock. The file remains. Thread-safe; a second call has no effect."""


# --- on a disk --------------------------------------------------------------------------------

Identity = tuple[int, int]
"""Device and inode of a file."""

# Re-entrant, because the garbage collector may release a dropped lock or file at any time.
_mutex = threading.RLock()
_held: dict[Identity, list[int]] = {}
"""The files locked by this process, and their descriptors, to be closed at release."""


class DiskLock:
    """A POSIX record lock of this process."""

    __slots__ = ("__weakref__", "_descriptors", "_identity", "_path")

    def __init__(self, path: str, identity: Identity, descriptors: list[int]) -> None:
        self._path = path
        self._identity = identity
        self._descriptors = descriptors

    @property
    def path(self) -> str:
        """Name under which the file was locked."""
        return self._path

    def is_in_place(self) -> bool:
        """Return whether the path still names the locked file."""
        return _identity_of(self._path) == self._identity

    def release(self) -> None:
        """Release the lock. The file remains."""
        with _mutex:
            # If not, it was already released, or inherited by a fork.
            if _held.get(self._identity) is not self._descriptors:
                return
            del _held[self._identity]
            for descriptor in self._descriptors:
                with suppress(OSError):
                    os.close(descriptor)

    def __del__(self) -> None:
        """Release a lock that is no longer referenced."""
        self.release()


# Do not follow a link, which could create a file elsewhere, and do not block on a pipe.
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def lock_disk_file(path: str) -> DiskLock | None:
    """Lock a file, creating it if missing. Return None if the lock is already held.

    Raises
    ------
    OSError
        The file cannot be opened for writing, or its file system does not support locks.
    """
    with _mutex:
        for _ in range(ATTEMPTS_MAX):
            # Check this before opening the file, because closing the descriptor would release a
            # lock held by this process.
            if _identity_of(path) in _held:
                return None
            descriptor = os.open(path, _LOCK_FLAGS, 0o644)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "is not a regular file", path)
            identity = _identity_of(descriptor)
            assert identity is not None
            if identity in _held:  # it got this name in the meantime
                _held[identity].append(descriptor)
                return None
            if not _try_lock(descriptor, path):
                return None
            if _identity_of(path) == identity:
                _held[identity] = [descriptor]
                return DiskLock(path, identity, _held[identity])
            os.close(descriptor)
        return None


_FLOCK = struct.Struct("qqihh" if sys.platform == "darwin" else "hhqqi0q")
"""C's `struct flock` of this platform, padded to its alignment."""


def disk_lock_holder(path: str) -> int | None:
    """Return the process that holds the lock on a file on disk, without locking it.

    Returns None if there is none or it is unknown, because the file is missing or unreadable, or
    its file system does not support locks.
    """
    with _mutex:
        try:
            if _identity_of(path) in _held:
                return os.getpid()
            # Without O_NONBLOCK, opening a pipe would block.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            found = fcntl.fcntl(descriptor, fcntl.F_GETLK, _lock_query())
        except OSError:
            return None
        finally:
            close_descriptor(descriptor)
    kind, pid = _parse_lock(found)
    return None if kind == fcntl.F_UNLCK else max(pid, UNKNOWN_PROCESS)


def describe_holder(process_id: int | None) -> str:
    """Return a text for the holder that `lock_holder` returned."""
    if process_id == os.getpid():
        return "this process"
    return f"process {process_id}" if process_id else "another process"


def _lock_query() -> bytes:
    """Return the query for a write lock on the whole file."""
    if sys.platform == "darwin":
        return _FLOCK.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def _parse_lock(found: bytes) -> tuple[int, int]:
    """Return the type of the conflicting lock and its process id, or -1 if it has none."""
    fields = _FLOCK.unpack(found)
    return (fields[3], fields[2]) if sys.platform == "darwin" else (fields[0], fields[4])


def close_descriptor(descriptor: int) -> None:
    """Close a descriptor. If this process has locked the file, defer this until the release."""
    with _mutex:
        if _held:
            identity = _identity_of(descriptor)
            if identity in _held:
                _held[identity].append(descriptor)
                return
        os.close(descriptor)


def _try_lock(descriptor: int, path: str) -> bool:
    """Lock an open file. If another process holds the lock, close the file and return False."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise OSError(error.errno, error.strerror, path) from error
    return True


def _identity_of(file: str | int) -> Identity | None:
    try:
        status = os.stat(file)  # noqa: PTH116  # strings are the paths of this interface
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _forget_in_child() -> None:
    global _mutex  # another thread of the parent may have held it
    _mutex = threading.RLock()
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)


# --- in memory --------------------------------------------------------------------------------


class LockTable:
    """The locks held in an in-memory file system. A copy starts with an empty table."""

    def __init__(self) -> None:
        self._held: set[int] = set()

    def lock(
        self, path: str, make: Callable[[], object], find: Callable[[], object]
    ) -> FileLock | None:
        """Lock a file.

        Parameters
        ----------
        path : str
        make, find : callable
            Return the file at the path. `make` creates it if it is missing.
        """
        with _mutex:
            file = make()
            if id(file) in self._held:
                return None
            self._held.add(id(file))
            return _MemoryLock(self, file, path, find)

    def holder(self, find: Callable[[], object]) -> int | None:
        """Return the id of this process if the file that `find` returns is locked."""
        with _mutex:
            return os.getpid() if id(find()) in self._held else None

    def release(self, file: object) -> None:
        """Release the lock on a file."""
        with _mutex:
            self._held.discard(id(file))


class _MemoryLock:
    """An in-memory lock. It keeps the file alive, so that the file's `id` is not reused."""

    __slots__ = ("_file", "_find", "_path", "_table")

    def __init__(
        self, table: LockTable, file: object, path: str, find: Callable[[], object]
    ) -> None:
        self._table = table
        self._file: object | None = file
        self._path = path
        self._find = find

    @property
    def path(self) -> str:
        """Name under which the file was locked."""
        return self._path

    def is_in_place(self) -> bool:
        """Return whether the path still names the locked file."""
        return self._find() is self._file

    def release(self) -> None:
        """Release the lock. The file remains."""
        file, self._file = self._file, None
        if file is not None:
            self._table.release(file)

    def __del__(self) -> None:
        """Release a lock that is no longer referenced."""
        self.release()
