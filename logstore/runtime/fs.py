"""Files and directories behind one interface for disk, memory and overlays.

Paths are strings with `/`. A `File` addresses bytes by position and has no cursor. `File.sync`
fsyncs contents, and `FileSystem.sync_dir` fsyncs names. Failures raise plain `OSError`s, which the
log converts to `KafkaStorageError`.

Only regular files are opened, because reading a pipe, a socket or a device could block or never
end. For writing, symbolic links are only followed for directories, so that operators can link data
directories and partition folders. A file behind a link can only be read. Removing or renaming it
affects the link itself.

A file on disk may have several names (hard links). Before such a file is opened for writing, or its
modification time is set, it is replaced with a copy, so that the change is not visible under the
other names.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum
from typing import NamedTuple, Protocol

from logstore.runtime.clock import Clock
from logstore.runtime.locks import (
    FileLock,
    close_descriptor,
    disk_lock_holder,
    lock_disk_file,
)
from logstore.types import INT64_MAX

Buffer = bytes | bytearray | memoryview
"""Bytes to write, in any contiguous buffer."""

IOV_MAX = 1024
"""Maximum number of buffers of a vectored write on Linux."""


class FileKind(Enum):
    """The kind of a directory entry, without following links."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "symbolic link"
    SPECIAL = "special file"


class NotRegularFileError(OSError):
    """The file to open is a pipe, socket, device, or a link that would be written through."""


class FileStat(NamedTuple):
    """The length of a file in bytes and its modification time in Unix milliseconds."""

    size: int
    mtime_ms: int


class File(Protocol):
    """An open file.

    It remains readable after the file is renamed or removed.
    """

    def size(self) -> int:
        """Return the length in bytes."""

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` from `position` on, and return the bytes read, fewer only at the end."""

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes starting at `position`; fewer only at the end of the file."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Append all `buffers` in order. Return the position of the first byte."""

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all `buffers` at `position`. A gap before it reads as zeros."""

    def truncate(self, size: int) -> None:
        """Truncate to `size` bytes, or extend with zeros."""

    def sync(self) -> None:
        """Fsync the contents."""

    def close(self) -> None:
        """Close the handle. Closing it again has no effect."""


class Space(NamedTuple):
    """The size of a volume, and the bytes that unprivileged users can still write."""

    total_bytes: int
    usable_bytes: int


class FileSystem(Protocol):
    """A tree of directories and files."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file. `create` creates the file if it does not exist, and implies `write`.

        Raises
        ------
        FileNotFoundError
            The file does not exist or, with `create`, its directory does not exist.
        IsADirectoryError, NotRegularFileError
            `path` is not a regular file, or is a symbolic link that would be written through.
        """

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists at `path`."""

    def is_dir(self, path: str) -> bool:
        """Return whether `path` is a directory, or a symbolic link to one."""

    def kind(self, path: str) -> FileKind | None:
        """Return the kind of a path without following links, or None if it does not exist."""

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def kinds(self, path: str) -> dict[str, FileKind]:
        """Return the names in a directory and their kinds, sorted by name; see `kind`."""

    def stat(self, path: str) -> FileStat:
        """Return the length and modification time of a file."""

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set a file's modification time in Unix milliseconds."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory atomically. An existing target file is replaced."""

    def remove(self, path: str) -> None:
        """Remove a file, a symbolic link itself, or a special file."""

    def make_dirs(self, path: str) -> None:
        """Create a directory and its missing parents, unless it exists."""

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_dir(self, path: str) -> None:
        """Fsync a directory, which makes the names in it durable."""

    def space(self, path: str) -> Space | None:
        """Return the space on a directory's volume, or None if it is unlimited."""

    def lock(self, path: str) -> FileLock | None:
        """Acquire the exclusive lock on a file without waiting; see `logstore.runtime.locks`.

        A missing file is created empty and remains. The lock follows a file when it is renamed.

        Returns
        -------
        FileLock or None
            The lock, or None if this process or another one holds it.

        Raises
        ------
        FileNotFoundError
            The file's directory does not exist.
        """

    def lock_holder(self, path: str) -> int | None:
        """Return the process that holds the lock on a file, without locking or creating the file.

        Returns
        -------
        int or None
            A process id (possibly this process's) or `UNKNOWN_PROCESS`. None if the lock is free or
            this cannot be determined.
        """


# Without O_NONBLOCK, opening a pipe would block before its kind can be checked. Regular files
# ignore it.
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_WRITING = os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW

_KINDS = {
    stat.S_IFREG: FileKind.FILE,
    stat.S_IFDIR: FileKind.DIRECTORY,
    stat.S_IFLNK: FileKind.LINK,
}


TEMPORARY_SUFFIX = ".tmp"
"""Suffix of the temporary copy of a file with several names."""

_BLOCK_BYTES = 1 << 20

_LINKS_NOT = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of `link` across file systems, on file systems without links, and at the limit."""


def _kind_of(entry: os.DirEntry[str]) -> FileKind:
    """Return the kind of a directory entry. Most file systems store it in the entry."""
    if entry.is_file(follow_symlinks=False):
        return FileKind.FILE
    if entry.is_dir(follow_symlinks=False):
        return FileKind.DIRECTORY
    return FileKind.LINK if entry.is_symlink() else FileKind.SPECIAL


class DiskFileSystem:
    """The files of the operating system.

    Parameters
    ----------
    clock : Clock, optional
        If its wall-clock time is not system time, files are dated by this clock on each creation
        and write, so that rules about modification times (retention, mtime fallback) only use one
        clock.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._stamp = None if clock is None or clock.follows_system else clock

    def __repr__(self) -> str:
        return "DiskFileSystem()"

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file; see `FileSystem.open`."""
        flags = os.O_CLOEXEC | (_WRITING if write or create else _READING)
        if create:
            flags |= os.O_CREAT
        is_new = create and self._stamp is not None and not os.path.lexists(path)
        try:
            file = DiskFile(os.open(path, flags, 0o644), path, self._stamp)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
                raise self._refusal(error, path) from error
            raise
        if is_new:
            file.touch()
            return file
        status = file.status()
        if not stat.S_ISREG(status.st_mode):
            file.close()
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            raise NotRegularFileError(errno.EINVAL, "is not a regular file", path)
        if status.st_nlink > 1 and (write or create):
            file.close()
            self._part(path)
            return self.open(path, write=True)
        return file

    def _part(self, path: str) -> None:
        """Replace a hard-linked file with its own copy. The change is durable on return."""
        import shutil  # slow to import, and rarely needed

        temporary = path + TEMPORARY_SUFFIX
        with suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108  # see is_dir
        try:
            with open(path, "rb") as shared, open(temporary, "xb") as own:  # noqa: PTH123
                shutil.copyfileobj(shared, own, _BLOCK_BYTES)
                own.flush()
                status = os.fstat(shared.fileno())
                os.fchmod(own.fileno(), stat.S_IMODE(status.st_mode))
                os.utime(own.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
                os.fsync(own.fileno())
            os.replace(temporary, path)  # noqa: PTH105  # see is_dir
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108  # see is_dir
            raise
        # Otherwise later fsyncs of the file would be lost together with its name.
        self.sync_dir(directory_of(path))

    def link(self, source: str, target: str) -> bool:
        """Create a hard link to a file. Return False if the file system refuses.

        Files that are already open for writing would be changed under both names.
        """
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _LINKS_NOT:
                raise
            return False
        return True

    def _refusal(self, error: OSError, path: str) -> OSError:
        """Return the reason why the system refused to open an irregular file."""
        kind = self.kind(path)
        if kind is FileKind.LINK:
            text = "is a symbolic link, which writes do not follow"
            return NotRegularFileError(error.errno, text, path)
        if kind is FileKind.SPECIAL:
            return NotRegularFileError(error.errno, "is not a regular file", path)
        return error

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists at `path`."""
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        """Return whether `path` is a directory, or a symbolic link to one."""
        return os.path.isdir(path)  # noqa: PTH112  # strings are the paths of this interface

    def kind(self, path: str) -> FileKind | None:
        """Return the kind of a path; see `FileSystem.kind`."""
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _KINDS.get(stat.S_IFMT(mode), FileKind.SPECIAL)

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))  # noqa: PTH208  # see is_dir

    def kinds(self, path: str) -> dict[str, FileKind]:
        """Return the names in a directory and their kinds, without a system call per file."""
        with os.scandir(path) as entries:
            found = {entry.name: _kind_of(entry) for entry in entries}
        return dict(sorted(found.items()))

    def stat(self, path: str) -> FileStat:
        """Return the length and modification time of a file."""
        status = os.stat(path)  # noqa: PTH116  # see is_dir
        return FileStat(status.st_size, status.st_mtime_ns // 1_000_000)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set the access and modification times in Unix milliseconds."""
        try:
            status = os.lstat(path)
            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                self._part(path)
            times_ns = (mtime_ms * 1_000_000, mtime_ms * 1_000_000)
            os.utime(path, ns=times_ns, follow_symlinks=False)
        except OSError as error:  # unlike other errors, this one lacks the path
            raise _named(error, path) from error

    def rename(self, source: str, target: str) -> None:
        """Rename atomically. An existing target file is replaced."""
        os.replace(source, target)  # noqa: PTH105  # see is_dir

    def remove(self, path: str) -> None:
        """Remove a file, or a symbolic link itself."""
        os.unlink(path)  # noqa: PTH108  # see is_dir

    def make_dirs(self, path: str) -> None:
        """Create a directory and its missing parents."""
        try:
            os.makedirs(path, exist_ok=True)  # noqa: PTH103  # see is_dir
        except FileExistsError as error:
            if self.kind(path) is FileKind.LINK:
                text = "is a symbolic link whose target is not a directory"
                raise FileExistsError(errno.EEXIST, text, path) from error
            raise

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)  # noqa: PTH106  # see is_dir

    def sync_dir(self, path: str) -> None:
        """Fsync a directory, which makes the names in it durable."""
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise _named(error, path) from error
        finally:
            os.close(descriptor)

    def space(self, path: str) -> Space:
        """Return the space on a directory's volume."""
        try:
            found = os.statvfs(path or ".")
        except OSError as error:
            raise _named(error, path) from error
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def lock(self, path: str) -> FileLock | None:
        """Acquire the exclusive lock on a file; see `FileSystem.lock`."""
        is_new = self._stamp is not None and not os.path.lexists(path)
        lock = lock_disk_file(path)
        if is_new and self._stamp is not None:
            self.set_mtime(path, self._stamp.now_ms())
        return lock

    def lock_holder(self, path: str) -> int | None:
        """Return the process that holds the lock; see `FileSystem.lock_holder`."""
        return disk_lock_holder(path)


def _named(error: OSError, path: str) -> OSError:
    return OSError(error.errno, error.strerror, path)


class DiskFile:
    """A file descriptor.

    Positions are explicit, so threads can share a file. Errors contain the path with which the file
    was opened.
    """

    __slots__ = ("_descriptor", "_path", "_stamp")

    def __init__(self, descriptor: int, path: str, stamp: Clock | None) -> None:
        self._descriptor = descriptor
        self._path = path
        self._stamp = stamp

    def size(self) -> int:
        """Return the length in bytes."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise _named(error, self._path) from error

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` from `position` on, and return the bytes read, fewer only at the end."""
        size, done = len(view), 0
        while done < size:
            rest = view[done:] if done else view
            try:
                count = os.preadv(self._descriptor, [rest], position + done)
            except OSError as error:
                raise _named(error, self._path) from error
            if count == 0:
                break
            done += count
        return done

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes starting at `position`; fewer only at the end of the file."""
        data = self._read(position, size)
        if len(data) in (0, size):
            return data
        parts = [data]
        done = len(data)
        while done < size and (data := self._read(position + done, size - done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def _read(self, position: int, size: int) -> bytes:
        try:
            return os.pread(self._descriptor, size, position)
        except OSError as error:
            raise _named(error, self._path) from error

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Append all `buffers`, and return the position of the first byte."""
        position = self.size()
        self.write_at(buffers, position)
        return position

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all `buffers` at `position`. Short writes are continued."""
        pending = [view.cast("B") for buffer in buffers if (view := memoryview(buffer)).nbytes]
        if not pending:
            return
        while pending:
            try:
                count = os.pwritev(self._descriptor, pending[:IOV_MAX], position)
            except OSError as error:
                raise _named(error, self._path) from error
            position += count
            while count and count >= len(pending[0]):
                count -= len(pending.pop(0))
            if count:
                pending[0] = pending[0][count:]
        self.touch()

    def truncate(self, size: int) -> None:
        """Truncate to `size` bytes, or extend with zeros (sparse if the disk supports it)."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise _named(error, self._path) from error
        self.touch()

    def sync(self) -> None:
        """Fsync the contents."""
        if self._descriptor < 0:  # otherwise `fsync` raises a ValueError
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise _named(error, self._path) from error

    def close(self) -> None:
        """Close the descriptor. Closing it again has no effect."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            close_descriptor(descriptor)

    def __del__(self) -> None:
        """Close a file that is no longer referenced."""
        self.close()

    def status(self) -> os.stat_result:
        """Return the status of the file."""
        return os.fstat(self._descriptor)

    def touch(self) -> None:
        """Set the file's modification time if a clock replaces the system clock."""
        if self._stamp is not None:
            now_ns = self._stamp.now_ms() * 1_000_000
            os.utime(self._descriptor, ns=(now_ns, now_ns))


def make_dirs_durably(fs: FileSystem, path: str) -> None:
    """Create a directory and its missing parents. The change is durable on return.

    Files in a directory are only durable if the directory's name is, so each new name requires an
    fsync of its parent. If that fsync fails, the directory is removed again. Otherwise the next
    attempt would assume that it is durable.
    """
    missing = []
    while path and not fs.is_dir(path):
        missing.append(path)
        path = directory_of(path)
    for each in reversed(missing):
        fs.make_dirs(each)
        try:
            fs.sync_dir(directory_of(each))
        except OSError:
            with suppress(OSError):
                fs.remove_dir(each)
            raise


def read_input(path: str) -> bytes:
    """Return the contents of a user's file, which may be a pipe such as `<(…)` of a shell."""
    with open(path, "rb") as file:  # noqa: PTH123  # strings are the paths of this package
        return file.read()


def open_anew(fs: FileSystem, path: str) -> File:
    """Open an empty file for writing, replacing an existing file. Raises an error for a directory.

    A symbolic link or special file is removed first, so that it is not written through.
    """
    if fs.kind(path) in (FileKind.LINK, FileKind.SPECIAL):
        fs.remove(path)
    file = fs.open(path, write=True, create=True)
    file.truncate(0)
    return file


def read_pieces(file: File, start: int = 0, end: int = INT64_MAX) -> Iterator[bytes]:
    """Yield the bytes [start, end) of a file in pieces, as it may be larger than memory.

    Yields fewer bytes if the file is shorter.
    """
    while start < end and (piece := file.read(start, min(_BLOCK_BYTES, end - start))):
        yield piece
        start += len(piece)


def remove_tree(fs: FileSystem, path: str) -> None:
    """Remove a directory with its contents. Symbolic links are removed, not followed."""
    if fs.kind(path) is FileKind.DIRECTORY:
        clear_folder(fs, path)
        fs.remove_dir(path)
    else:
        fs.remove(path)


def clear_folder(fs: FileSystem, path: str) -> None:
    """Remove the contents of a directory."""
    # Do not use recursion, because directories may be nested more deeply than Python's stack
    # allows.
    folders = [path]
    for folder in folders:
        for name, kind in fs.kinds(folder).items():
            if kind is FileKind.DIRECTORY:
                folders.append(f"{folder}/{name}")
            else:
                fs.remove(f"{folder}/{name}")
    for folder in reversed(folders[1:]):
        fs.remove_dir(folder)


def directory_of(path: str) -> str:
    """Return the directory of `path`. Empty for a bare name."""
    directory, slash, _ = path.rpartition("/")
    return directory or slash
