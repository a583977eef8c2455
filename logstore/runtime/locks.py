"""Exclusive locks on files: at most one holder, and nobody waits for it.

A data directory's `.lock` keeps a second writer out. Take it before the first change, keep the
object as long as the directory is written, release it last::

    lock = fs.lock(f"{log_dir}/.lock")
    if lock is None:
        ...  # another process, or another user in this one, has the directory: refuse it
    ...
    lock.release()

None means "held by somebody"; an `OSError` means that the disk failed. Holding the object is
holding the lock: a lost reference gives it up, and so does the end of the process.

On a disk this is a POSIX record lock over the whole file, as Java's `FileChannel.tryLock` takes,
so that a Kafka broker and this engine keep each other out. Those locks belong to the process;
who holds what inside it is kept here, by device and inode. They also vanish when the process
closes *any* descriptor of the file. Descriptors that `DiskFileSystem` opened are therefore closed
through `close_descriptor`, which puts that off; opening a held lock file by other means and
closing it gives the lock up unseen. A forked child holds nothing.

The file stays after a release: if it were removed, one process could hold the removed file and
another its successor. Kafka 4.0 does remove it (`FileLock.destroy`), so a lock counts
only if its file still bears the name once it is taken. Anybody may remove it later: the holder asks
`is_in_place` from time to time.
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
"""How often a lock is tried whose file others remove meanwhile; each removal is one of theirs."""


UNKNOWN_PROCESS = 0
"""Stands for a holder whose process id is not told: it lives in another container, say."""


class FileLock(Protocol):
    """An exclusive lock that is held; see the module."""

    @property
    def path(self) -> str:
        """Name under which the file was locked."""
        ...

    def is_in_place(self) -> bool:
        """Return whether the path still names the locked file; else others may lock it anew."""
        ...

    def release(self) -> None:
        """Release the lock; the file stays. A second call does nothing. Any thread may call."""
        ...


# --- on a disk --------------------------------------------------------------------------------

Identity = tuple[int, int]
"""Device and inode of a file."""

# Re-entrant: a lost lock or handle is given up by the garbage collector, at any moment.
_mutex = threading.RLock()
_held: dict[Identity, list[int]] = {}
"""The locked files and their descriptors in this process, to be closed at release."""


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
        """Give the lock up; the file stays."""
        with _mutex:
            # Another list, or none: released before, or inherited by a fork that holds nothing.
            if _held.get(self._identity) is not self._descriptors:
                return
            del _held[self._identity]
            for descriptor in self._descriptors:
                with suppress(OSError):
                    os.close(descriptor)

    def __del__(self) -> None:
        """Give up what a lost reference left locked."""
        self.release()


# A link is not followed: it could make a file elsewhere. Nothing waits for the other end of a pipe.
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def lock_disk_file(path: str) -> DiskLock | None:
    """Lock a file of the disk, made (empty) when missing; None if somebody else holds it.

    Raises
    ------
    OSError
        The file cannot be opened for writing, or its file system has no locks.
    """
    with _mutex:
        for _ in range(ATTEMPTS_MAX):
            # Looked up before it is opened: closing the descriptor again would release the lock
            # of whoever holds it here.
            if _identity_of(path) in _held:
                return None
            descriptor = os.open(path, _LOCK_FLAGS, 0o644)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "is no regular file", path)
            identity = _identity_of(descriptor)
            assert identity is not None
            if identity in _held:  # its name came up in between
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
    """Return the process that holds the lock on a file of the disk, without taking it.

    None if nobody does, or if it cannot be told: the file is missing or may not be read, or its
    file system has no locks.
    """
    with _mutex:
        try:
            if _identity_of(path) in _held:
                return os.getpid()
            # A pipe of that name would wait for its other end.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            found = fcntl.fcntl(descriptor, fcntl.F_GETLK, _asked())
        except OSError:
            return None
        finally:
            close_descriptor(descriptor)
    kind, pid = _answered(found)
    return None if kind == fcntl.F_UNLCK else max(pid, UNKNOWN_PROCESS)


def describe_holder(process_id: int | None) -> str:
    """Return what a message calls the holder of a lock, as `lock_holder` returns it."""
    if process_id == os.getpid():
        return "this process"
    return f"process {process_id}" if process_id else "another process"


def _asked() -> bytes:
    """Ask for a write lock over the whole file; the answer is what stands in its way."""
    if sys.platform == "darwin":
        return _FLOCK.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def _answered(found: bytes) -> tuple[int, int]:
    """Return the kind of a lock and who holds it (-1: a lock that belongs to no process)."""
    fields = _FLOCK.unpack(found)
    return (fields[3], fields[2]) if sys.platform == "darwin" else (fields[0], fields[4])


def close_descriptor(descriptor: int) -> None:
    """Close a descriptor, or at the release of its file if this process has that locked."""
    with _mutex:
        if _held:
            identity = _identity_of(descriptor)
            if identity in _held:
                _held[identity].append(descriptor)
                return
        os.close(descriptor)


def _try_lock(descriptor: int, path: str) -> bool:
    """Lock an open file; close it and return False if another process holds it."""
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
    """Locks held in one file system in memory; a copy of that starts with a new table."""

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
            Return the object that has the path; `make` makes it if there is none.
        """
        with _mutex:
            file = make()
            if id(file) in self._held:
                return None
            self._held.add(id(file))
            return _MemoryLock(self, file, path, find)

    def holder(self, find: Callable[[], object]) -> int | None:
        """Return this process if somebody holds the lock on the file that `find` returns."""
        with _mutex:
            return os.getpid() if id(find()) in self._held else None

    def release(self, file: object) -> None:
        """Release the lock on a file that is held."""
        with _mutex:
            self._held.discard(id(file))


class _MemoryLock:
    """A lock in memory; it keeps the file alive, so that no other takes its identity."""

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
        """Give the lock up; the file stays."""
        file, self._file = self._file, None
        if file is not None:
            self._table.release(file)

    def __del__(self) -> None:
        """Give up what a lost reference left locked."""
        self.release()
