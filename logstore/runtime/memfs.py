"""Files in memory, made of immutable blocks and a growing tail, so that views remain valid.

A `MemoryBytes` contains the bytes of one file. Full blocks of 256 KiB are sealed as `bytes` and
shared by snapshots. Only the tail is written. Zeros after the last write take no space, so a
preallocated 10 MiB index with three entries takes the space of three entries.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from typing import NoReturn, Protocol

from logstore.runtime.clock import Clock, SystemClock
from logstore.runtime.fs import Buffer, File, FileKind, FileStat
from logstore.runtime.locks import FileLock, LockTable

BLOCK_SIZE = 256 * 1024

_ZERO_BLOCK = bytes(BLOCK_SIZE)


class Contents(Protocol):
    """The contents behind a `MemoryFile`."""

    mtime_ms: int

    @property
    def size(self) -> int:
        """Length in bytes."""

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position` on."""

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` from `position` on. Return the number of bytes read."""

    def write_at(self, data: bytes | memoryview, position: int) -> None:
        """Write `data`, which must not be empty, at `position`."""

    def truncate(self, size: int) -> None:
        """Truncate to `size`, or extend with zeros."""


class MemoryBytes:
    """The contents of an in-memory file.

    Invariants: every sealed block is `BLOCK_SIZE` long; `written` is the number of bytes in the
    sealed blocks and the tail; `size >= written`; bytes in `[written, size)` are zeros that take no
    space.

    Notes
    -----
    One thread writes while any number of threads read without a lock. A write stores the bytes,
    then raises `written`, then `size`; readers use the opposite order. Blocks and tail are replaced
    together. A truncation lowers `size`, increments the truncation count, then lowers the rest. A
    reader whose read spans a change of that count may have mixed two states, and retries.
    """

    __slots__ = ("_blocks_and_tail", "_truncations", "mtime_ms", "size", "written")

    def __init__(self, mtime_ms: int = 0) -> None:
        self._blocks_and_tail: tuple[list[bytes], bytearray] = ([], bytearray())
        self._truncations = 0
        self.written = 0
        self.size = 0
        self.mtime_ms = mtime_ms

    def copy(self) -> MemoryBytes:
        """Return an independent copy that shares the sealed blocks."""
        twin = MemoryBytes(self.mtime_ms)
        blocks, tail = self._blocks_and_tail
        twin._blocks_and_tail = (list(blocks), tail[: self.written % BLOCK_SIZE])
        twin.written = self.written
        twin.size = self.size
        return twin

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position` on."""
        while True:
            truncations = self._truncations
            data = self._read(position, size)
            if self._truncations == truncations:
                return data

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` from `position` on. Return the number of bytes read."""
        while True:
            truncations = self._truncations
            count = self._read_into(view, position)
            if self._truncations == truncations:
                return count

    def _read(self, position: int, size: int) -> bytes:
        size = min(size, self.size - position)
        if size <= 0:
            return b""
        block, start = divmod(position, BLOCK_SIZE)
        if start + size <= BLOCK_SIZE and position + size <= self.written:
            blocks, tail = self._blocks_and_tail
            source = blocks[block] if block < len(blocks) else tail
            return bytes(memoryview(source)[start : start + size])
        data = bytearray(size)
        count = self._read_into(memoryview(data), position)
        return bytes(memoryview(data)[:count])

    def _read_into(self, view: memoryview, position: int) -> int:
        wanted = min(len(view), self.size - position)
        if wanted <= 0:
            return 0
        stored = min(wanted, self.written - position)
        blocks, tail = self._blocks_and_tail
        done = 0
        while done < stored:
            block, start = divmod(position + done, BLOCK_SIZE)
            source = blocks[block] if block < len(blocks) else tail
            piece = memoryview(source)[start : min(BLOCK_SIZE, start + stored - done)]
            if not piece:
                return done
            view[done : done + len(piece)] = piece
            done += len(piece)
        while done < wanted:
            count = min(wanted - done, BLOCK_SIZE)
            view[done : done + count] = memoryview(_ZERO_BLOCK)[:count]
            done += count
        return wanted

    def write_at(self, data: bytes | memoryview, position: int) -> None:
        """Write `data` at `position`."""
        start = position % BLOCK_SIZE
        end = start + len(data)
        tail = self._blocks_and_tail[1]
        if position == self.written == self.size and end <= len(tail) and end < BLOCK_SIZE:
            tail[start:end] = data  # an append into the existing buffer
            self.written = self.size = position + len(data)
            return
        data = memoryview(data)
        while position > self.written:
            gap = min(position - self.written, BLOCK_SIZE - self.written % BLOCK_SIZE)
            self._extend(memoryview(_ZERO_BLOCK)[:gap])
        overlap = min(len(data), self.written - position)
        if overlap:
            self._overwrite(data[:overlap], position)
        self._extend(data[overlap:])
        self.size = max(self.size, self.written)

    def truncate(self, size: int) -> None:
        """Truncate to `size`, or extend with zeros."""
        if size < self.written:
            blocks, tail = self._blocks_and_tail
            block, keep = divmod(size, BLOCK_SIZE)
            source = blocks[block] if block < len(blocks) else tail
            self.size = size
            self._truncations += 1
            self.written = size
            self._blocks_and_tail = (blocks[:block], bytearray(memoryview(source)[:keep]))
        self.size = size

    def _overwrite(self, data: memoryview, position: int) -> None:
        blocks, tail = self._blocks_and_tail
        done = 0
        while done < len(data):
            block, start = divmod(position + done, BLOCK_SIZE)
            count = min(len(data) - done, BLOCK_SIZE - start)
            if block < len(blocks):
                changed = bytearray(blocks[block])
                changed[start : start + count] = data[done : done + count]
                blocks[block] = bytes(changed)
            else:
                tail[start : start + count] = data[done : done + count]
            done += count

    def _extend(self, data: memoryview) -> None:
        done = 0
        while done < len(data):
            blocks, tail = self._blocks_and_tail
            start = self.written % BLOCK_SIZE
            count = min(len(data) - done, BLOCK_SIZE - start)
            piece = data[done : done + count]
            end = start + count
            if count == BLOCK_SIZE:
                blocks.append(_ZERO_BLOCK if piece.obj is _ZERO_BLOCK else bytes(piece))
            else:
                if end > len(tail):
                    # A larger buffer replaces the old one, which existing views may still use.
                    grown = bytearray(min(BLOCK_SIZE, max(end, 2 * len(tail), 512)))
                    grown[:start] = memoryview(tail)[:start]
                    tail = grown
                tail[start:end] = piece
                if end == BLOCK_SIZE:
                    # Readers of the old pair find the block either in the list or in the tail.
                    blocks.append(bytes(tail))
                    tail = bytearray()
                self._blocks_and_tail = (blocks, tail)
            self.written += count
            done += count


class MemoryFile:
    """A handle on an in-memory file, which it keeps alive after the file is removed.

    Like a descriptor, it refuses writes unless opened for writing, and any use after it is closed.
    """

    __slots__ = ("_clock", "_contents", "_writable")

    def __init__(self, contents: Contents, clock: Clock, *, writable: bool = True) -> None:
        self._contents: Contents | None = contents
        self._clock = clock
        self._writable = writable

    def size(self) -> int:
        """Return the length in bytes."""
        return self._readable().size

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` from `position` on. Return the number of bytes, lower only at the end."""
        return self._readable().read_into(view, position)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes starting at `position`; fewer only at the end of the file."""
        return self._readable().read(position, size)

    def written(self) -> int:
        """Return the end of the written bytes. All later bytes are zeros."""
        contents = self._readable()
        return contents.written if isinstance(contents, MemoryBytes) else contents.size

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Append all `buffers`, and return the position of the first byte."""
        position = self._readable().size
        self.write_at(buffers, position)
        return position

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all `buffers` at `position`."""
        contents = self._contents
        if contents is None or not self._writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        start = position
        for buffer in buffers:
            if type(buffer) is bytes:  # most are, and a view takes as long as the write
                if buffer:
                    contents.write_at(buffer, position)
                    position += len(buffer)
                continue
            view = memoryview(buffer)
            if view.nbytes:
                contents.write_at(view if view.format == "B" else view.cast("B"), position)
                position += view.nbytes
        if position > start:
            contents.mtime_ms = self._clock.now_ms()

    def truncate(self, size: int) -> None:
        """Truncate to `size` bytes, or extend with zeros."""
        contents = self._written_to()
        contents.truncate(size)
        contents.mtime_ms = self._clock.now_ms()

    def sync(self) -> None:
        """Do nothing, because memory need not be fsynced."""
        self._readable()

    def close(self) -> None:
        """Close the handle. The contents belong to the file system."""
        self._contents = None

    def _readable(self) -> Contents:
        if self._contents is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._contents

    def _written_to(self) -> Contents:
        if not self._writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._readable()


class MemoryFileSystem:
    """A tree of files in memory.

    Parameters
    ----------
    clock : Clock, optional
        Provides the modification times. [default: the system clock]

    Notes
    -----
    One thread at a time may change the names in a directory. Other threads may concurrently list it
    and open files.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._files: dict[str, MemoryBytes] = {}
        self._children: dict[str, set[str]] = {"": set(), "/": set()}
        self._locks = LockTable()

    def __repr__(self) -> str:
        return f"MemoryFileSystem({len(self._files)} files)"

    def fork(self, clock: Clock | None = None) -> MemoryFileSystem:
        """Return an independent copy without locks. This is cheap: sealed blocks are shared.

        Parameters
        ----------
        clock : Clock, optional
            Provides the modification times of the copy. [default: this file system's clock]
        """
        twin = MemoryFileSystem(self._clock if clock is None else clock)
        twin._files = {path: contents.copy() for path, contents in list(self._files.items())}
        twin._children = {path: set(names) for path, names in list(self._children.items())}
        return twin

    def walk(self) -> Iterator[tuple[str, MemoryBytes | None]]:
        """Yield each path with the contents of the file, or None for a directory.

        Parents come first.
        """
        for path in sorted(self._files.keys() | self._children.keys() - {"", "/"}):
            yield path, self._files.get(path)

    def put(self, path: str, contents: MemoryBytes) -> None:
        """Store `contents` as the file at `path`, whose directory must exist."""
        self._link(path)
        self._files[path] = contents

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file; see `FileSystem.open`."""
        contents = self._files.get(path)
        if contents is None:
            if path in self._children:
                fail(errno.EISDIR, path)
            if not create:
                fail(errno.ENOENT, path)
            contents = MemoryBytes(self._clock.now_ms())
            self._link(path)
            self._files[path] = contents
        return MemoryFile(contents, self._clock, writable=write or create)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists at `path`."""
        return path in self._files or path in self._children

    def is_dir(self, path: str) -> bool:
        """Return whether `path` is a directory."""
        return path in self._children

    def kind(self, path: str) -> FileKind | None:
        """Return the kind of a path. There are no links in memory."""
        if path in self._children:
            return FileKind.DIRECTORY
        return FileKind.FILE if path in self._files else None

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        if path not in self._children:
            fail(errno.ENOTDIR if path in self._files else errno.ENOENT, path)
        return sorted(self._children[path])

    def kinds(self, path: str) -> dict[str, FileKind]:
        """Return the names in a directory and their kinds, sorted by name."""
        names = self.list_dir(path)
        prefix = path if path in ("", "/") else f"{path}/"
        return {
            name: FileKind.FILE if prefix + name in self._files else FileKind.DIRECTORY
            for name in names
        }

    def stat(self, path: str) -> FileStat:
        """Return the length and modification time of a file."""
        contents = self._contents(path)
        return FileStat(contents.size, contents.mtime_ms)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set a file's modification time in Unix milliseconds."""
        self._contents(path).mtime_ms = mtime_ms

    def rename(self, source: str, target: str) -> None:
        """Rename atomically. An existing target file is replaced."""
        self.check_rename(source, target)
        if target == source:
            return
        self._link(target)
        if source in self._children:
            self._rename_dir(source, target)
        else:
            # A concurrent reader must find the file under at least one of its names.
            self._files[target] = self._files[source]
        self._unlink(source)
        self._files.pop(source, None)

    def check_rename(self, source: str, target: str) -> None:
        """Raise the error that renaming would raise, if any."""
        if source not in self._children:
            self._contents(source)
            if target in self._children:
                fail(errno.EISDIR, target)
        elif target.startswith(source + "/"):
            fail(errno.EINVAL, target)
        elif target in self._files:
            fail(errno.ENOTDIR, target)
        elif target != source and self._children.get(target):
            fail(errno.ENOTEMPTY, target)
        self._check_parent(target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._contents(path)
        del self._files[path]
        self._unlink(path)

    def make_dirs(self, path: str) -> None:
        """Create a directory and its missing parents."""
        if path in self._children:
            return
        if path in self._files:
            fail(errno.EEXIST, path)
        parent, _ = split_path(path)
        self.make_dirs(parent)
        self._children[path] = set()
        self._link(path)

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        if self.list_dir(path):
            fail(errno.ENOTEMPTY, path)
        del self._children[path]
        self._unlink(path)

    def sync_dir(self, path: str) -> None:
        """Check that the directory exists. Memory need not be fsynced."""
        self.list_dir(path)

    def space(self, path: str) -> None:
        """Return None, because the space is unlimited."""

    def lock(self, path: str) -> FileLock | None:
        """Acquire the exclusive lock on a file; see `FileSystem.lock`."""

        def make() -> MemoryBytes:
            self.open(path, create=True).close()
            return self._contents(path)

        return self._locks.lock(path, make, lambda: self._files.get(path))

    def lock_holder(self, path: str) -> int | None:
        """Return the process that holds the lock; see `FileSystem.lock_holder`."""
        return self._locks.holder(lambda: self._files.get(path))

    def _contents(self, path: str) -> MemoryBytes:
        contents = self._files.get(path)
        if contents is None:
            fail(errno.EISDIR if path in self._children else errno.ENOENT, path)
        return contents

    def _link(self, path: str) -> None:
        self._check_parent(path)
        parent, name = split_path(path)
        self._children[parent].add(name)

    def _check_parent(self, path: str) -> None:
        parent, _ = split_path(path)
        if parent not in self._children:
            fail(errno.ENOTDIR if parent in self._files else errno.ENOENT, path)

    def _unlink(self, path: str) -> None:
        parent, name = split_path(path)
        self._children[parent].discard(name)

    def _rename_dir(self, source: str, target: str) -> None:
        prefix = source + "/"
        for path in [p for p in list(self._files) if p.startswith(prefix)]:
            self._files[target + path[len(source) :]] = self._files.pop(path)
        for path in [p for p in list(self._children) if p == source or p.startswith(prefix)]:
            self._children[target + path[len(source) :]] = self._children.pop(path)


def split_path(path: str) -> tuple[str, str]:
    """Return the directory and the name of `path`. The directory of a bare name is empty."""
    parent, slash, name = path.rpartition("/")
    if slash and not parent:
        parent = "/"
    return parent, name


def fail(code: int, path: str) -> NoReturn:
    """Raise the `OSError` that the operating system raises with `code`."""
    raise OSError(code, os.strerror(code), path)
