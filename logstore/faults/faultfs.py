"""A disk that lies: it counts operations, fails or crashes at a chosen one, and forgets.

Model
-----
*Contents.* A file has volatile contents, which every handle sees, and durable ones: the volatile
contents as of its last `File.sync`, to which the writes and truncations since then are pending.
*Names.* A directory has volatile names and durable ones. Creating, renaming or removing a name is
pending until a directory it touches is synced; a sync also takes along what earlier happened to
the same names. `File.sync` makes no name durable, `sync_dir` no contents, and neither the name of
the directory itself: that is its parent's affair.
*Crash.* `crash` builds what a machine finds after losing its memory. A `CrashMode` says what
becomes of the pending changes. Contents are

- DROPPED: as last synced;
- KEPT: as every handle saw them;
- TORN: the first `cut` units of pending changes survive, in the order in which they were made,
  over all files; a byte written is a unit and so is a truncation, so every byte can be the last;
- ZEROED: lengths survive, but what was written reads as zeros (as what ext4 and xfs may leave
  of data whose blocks were allocated and not yet written), and what was overwritten is old;
- SCATTERED: by `seed`, each file apart: one of the above, or 512-byte sectors that were or were
  not written, those beyond the old end otherwise zeros or garbage.

Names are UNDONE, KEPT, a PREFIX of `names_kept` operations in their order, or a SUBSET by `seed`
in which each operation is kept or not, alone; an operation on a name that an undone one touched
is undone too. So a rename is atomic, a name never shows what it did not hold at some time, and
operations on different names may be reordered.

An operation at which the crash comes counts as begun: its change is pending, never durable.

*Failures.* A chosen operation raises an `OSError` and does nothing, except that a write may
first have put some bytes in place. After a failed `File.sync` the changes that were pending stay
visible until the crash and are then lost, whatever later syncs report, as on Linux, which marks
pages clean that it could not write.

*Locks.* Taking one is no change: it is not counted and no point of a crash, and the empty file that
it makes is durable at once, since nothing reads it. It fails by a fault of `Kind.LOCK`. What a
crash leaves is unlocked.

Not modelled: modification times (they survive as they were), damage to what was synced, disks
whose cache ignores flushes, hard links, memory maps, failures of `close`, a machine that goes on
after the crash.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from logstore.faults.crash import (
    Change,
    Contents,
    CrashMode,
    FileNode,
    NameChange,
    NameOperation,
    Names,
    crash_image,
)
from logstore.faults.tree import Directory, Node
from logstore.runtime.clock import Clock, SystemClock
from logstore.runtime.fs import Buffer, File, FileKind, FileStat
from logstore.runtime.locks import FileLock, LockTable
from logstore.runtime.memfs import MemoryBytes, MemoryFile, MemoryFileSystem, fail, split_path

__all__ = [
    "Contents",
    "CrashMode",
    "Fault",
    "FaultyFileSystem",
    "Kind",
    "Names",
    "Operation",
    "SimulatedCrash",
]


class SimulatedCrash(BaseException):
    """The machine stopped. Not an `Exception`, so that nothing handles it by accident."""


class Kind(Enum):
    """The kinds of operation; from OPEN on nothing is changed, recorded or counted."""

    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    RENAME = "rename"
    REMOVE = "remove"
    MAKE_DIR = "make_dir"
    REMOVE_DIR = "remove_dir"
    SYNC_DIR = "sync_dir"
    SET_MTIME = "set_mtime"
    OPEN = "open"
    READ = "read"
    STAT = "stat"
    LIST = "list"
    SIZE = "size"
    LOCK = "lock"

    @property
    def is_change(self) -> bool:
        """Whether operations of this kind are recorded, counted and points of a crash."""
        return self not in _READS


_READS = frozenset({Kind.OPEN, Kind.READ, Kind.STAT, Kind.LIST, Kind.SIZE, Kind.LOCK})


class Operation(NamedTuple):
    """One recorded operation.

    `number` counts from 1; `size` is the bytes of a write or the length of a truncation; `target`
    is the new name of a rename.
    """

    number: int
    kind: Kind
    path: str
    size: int = 0
    target: str = ""


@dataclass(slots=True)
class Fault:
    """A failure to come.

    Attributes
    ----------
    code : int
        The `errno`.
    kind : Kind or None
        Fail operations of this kind; None is any change.
    suffix : str
        Only those whose path, or new path, ends so.
    skip : int
        Matching operations that still succeed.
    persistent : bool
        Whether the ones after the first fail too.
    written : int
        Bytes that a failing write still puts in place.
    hits : int
        Operations failed so far.
    """

    code: int
    kind: Kind | None = None
    suffix: str = ""
    skip: int = 0
    persistent: bool = False
    written: int = 0
    hits: int = 0

    def strikes(self, operation: Operation) -> bool:
        """Tell whether this operation fails, and count it."""
        kind = operation.kind
        if kind is not self.kind if self.kind is not None else not kind.is_change:
            return False
        if not operation.path.endswith(self.suffix) and not (
            operation.target and operation.target.endswith(self.suffix)
        ):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.hits and not self.persistent:
            return False
        self.hits += 1
        return True


class FaultyFileSystem:
    """Files in memory with the failures of a disk; see the module for the model.

    Parameters
    ----------
    clock : Clock, optional
        Dates the files; the system clock by default.
    image : MemoryFileSystem, optional
        What is there, all of it durable; nothing by default. It is copied.

    Attributes
    ----------
    operations : list of Operation
        Every change that was tried, failed ones included.
    lost_contents : bool
        Whether a failed sync doomed contents that handles still show.
    """

    def __init__(self, clock: Clock | None = None, image: MemoryFileSystem | None = None) -> None:
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._lock = threading.RLock()
        self._roots = {"": Directory(None, ""), "/": Directory(None, "/")}
        self._files: list[FileNode] = []
        self._name_operations: list[NameOperation] = []
        self._faults: list[Fault] = []
        self._locks = LockTable()
        self._crash_at: int | None = None
        self._crashed = False
        self.operations: list[Operation] = []
        self.lost_contents = False
        for path, contents in () if image is None else image.walk():
            directory, name = self._parent_of(path)
            if contents is None:
                node: Node = Directory(directory, name)
            else:
                node = self._new_file(directory, name, contents.copy())
            directory.names[name] = directory.durable[name] = node

    def __repr__(self) -> str:
        crashed = ", crashed" if self._crashed else ""
        return f"FaultyFileSystem({len(self.operations)} operations{crashed})"

    # -- control -------------------------------------------------------------------------

    @property
    def operation_count(self) -> int:
        """Changes tried so far: the number of points at which a crash can come."""
        return len(self.operations)

    @property
    def crashed(self) -> bool:
        """Whether the crash has come; every use but `crash` raises `SimulatedCrash` then."""
        return self._crashed

    @property
    def pending_units(self) -> int:
        """Bytes written and truncations that are not durable: where `TORN` can cut."""
        return sum(change.units for file in self._files for change in file.pending)

    @property
    def pending_names(self) -> int:
        """Name operations that are not durable: what `PREFIX` can keep."""
        return len(self._name_operations)

    def crash_at(self, number: int) -> None:
        """Let the machine stop in the middle of operation `number`, counted from 1."""
        self._crash_at = number

    def add_fault(self, fault: Fault) -> Fault:
        """Let operations fail; return the fault, whose `hits` tell whether any did."""
        self._faults.append(fault)
        return fault

    def clear_faults(self) -> None:
        """Let everything succeed again."""
        self._faults.clear()

    def crash(self, mode: CrashMode | None = None) -> MemoryFileSystem:
        """Return what a crash now would leave; this file system stays as it is.

        Parameters
        ----------
        mode : CrashMode, optional
            By default only what was synced survives.
        """
        mode = CrashMode() if mode is None else mode
        with self._lock:
            return crash_image(
                self._clock, self._roots.values(), self._files, self._name_operations, mode
            )

    # -- the file system -----------------------------------------------------------------

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file; see `FileSystem.open`."""
        with self._lock:
            self._enter(Kind.OPEN, path)
            node = self._find(path)
            if node is None:
                if not create:
                    fail(errno.ENOENT, path)
                directory, name = self._parent_of(path)
                self._enter(Kind.CREATE, path)
                node = self._new_file(directory, name, MemoryBytes(self._clock.now_ms()))
                self._change_names(NameChange(directory, name, node))
            elif not isinstance(node, FileNode):
                fail(errno.EISDIR, path)
            return _FaultyFile(self, node, self._clock, writable=write or create)

    def exists(self, path: str) -> bool:
        """Tell whether a file or directory of that name exists."""
        self._enter(Kind.STAT, path)
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        """Tell whether `path` is a directory."""
        self._enter(Kind.STAT, path)
        return isinstance(self._find(path), Directory)

    def kind(self, path: str) -> FileKind | None:
        """Tell what stands under a name; there are no links."""
        self._enter(Kind.STAT, path)
        node = self._find(path)
        if node is None:
            return None
        return FileKind.DIRECTORY if isinstance(node, Directory) else FileKind.FILE

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        self._enter(Kind.LIST, path)
        return sorted(self._directory(path).names)

    def kinds(self, path: str) -> dict[str, FileKind]:
        """Return the names in a directory with what stands under each."""
        self._enter(Kind.LIST, path)
        return {
            name: FileKind.DIRECTORY if isinstance(node, Directory) else FileKind.FILE
            for name, node in sorted(self._directory(path).names.items())
        }

    def stat(self, path: str) -> FileStat:
        """Return length and modification time of a file."""
        self._enter(Kind.STAT, path)
        contents = self._file(path).volatile
        return FileStat(contents.size, contents.mtime_ms)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set a file's modification time in Unix milliseconds."""
        with self._lock:
            node = self._file(path)
            self._enter(Kind.SET_MTIME, path)
            node.volatile.mtime_ms = mtime_ms
            self._leave()

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory atomically, replacing a file of the target's name."""
        with self._lock:
            node = self._find(source)
            if node is None:
                fail(errno.ENOENT, source)
            directory, name = self._parent_of(target)
            self._check_target(node, source, target)
            self._enter(Kind.RENAME, source, target=target)
            if node.parent is None or target == source:
                self._leave()
                return
            self._change_names(
                NameChange(node.parent, node.name, None), NameChange(directory, name, node)
            )

    def remove(self, path: str) -> None:
        """Remove a file."""
        with self._lock:
            node = self._file(path)
            self._enter(Kind.REMOVE, path)
            assert node.parent is not None
            self._change_names(NameChange(node.parent, node.name, None))

    def make_dirs(self, path: str) -> None:
        """Create a directory and the missing ones above it, an operation each."""
        with self._lock:
            node = self._find(path)
            if node is None:
                above, name = split_path(path)
                self.make_dirs(above)
                directory = self._directory(above)
                self._enter(Kind.MAKE_DIR, path)
                self._change_names(NameChange(directory, name, Directory(directory, name)))
            elif not isinstance(node, Directory):
                fail(errno.EEXIST, path)

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        with self._lock:
            directory = self._directory(path)
            if directory.names:
                fail(errno.ENOTEMPTY, path)
            self._enter(Kind.REMOVE_DIR, path)
            assert directory.parent is not None
            self._change_names(NameChange(directory.parent, directory.name, None))

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        with self._lock:
            directory = self._directory(path)
            self._enter(Kind.SYNC_DIR, path)
            self._leave()
            needed: set[tuple[int, str]] = set()
            kept: list[NameOperation] = []
            still_pending: list[NameOperation] = []
            for operation in reversed(self._name_operations):
                places = {change.place for change in operation}
                if needed & places or any(c.directory is directory for c in operation):
                    needed |= places
                    kept.append(operation)
                else:
                    still_pending.append(operation)
            for operation in reversed(kept):
                for change in operation:
                    change.apply(change.directory.durable)
            self._name_operations = still_pending[::-1]

    def space(self, path: str) -> None:
        """Tell that nothing bounds it."""

    def lock(self, path: str) -> FileLock | None:
        """Take the exclusive lock on a file; see `FileSystem.lock` and the module."""
        with self._lock:
            self._enter(Kind.LOCK, path)
            node = self._find(path)
            if node is None:
                directory, name = self._parent_of(path)
                node = self._new_file(directory, name, MemoryBytes(self._clock.now_ms()))
                directory.names[name] = directory.durable[name] = node
            return self._locks.lock(path, lambda: self._file(path), lambda: self._find(path))

    def lock_holder(self, path: str) -> int | None:
        """Return who holds the lock on a file; see `FileSystem.lock_holder`."""
        return self._locks.holder(lambda: self._find(path))

    # -- inside --------------------------------------------------------------------------

    def _enter(self, kind: Kind, path: str, *, size: int = 0, target: str = "") -> None:
        """Begin an operation: record it, and fail it if that was asked for."""
        fault = self._begin(kind, path, size, target)
        if fault is not None:
            fail(fault.code, path)

    def _begin(self, kind: Kind, path: str, size: int = 0, target: str = "") -> Fault | None:
        if self._crashed:
            raise SimulatedCrash(f"{kind.value} {path}: after the crash")
        operation = Operation(len(self.operations) + 1, kind, path, size, target)
        if kind.is_change:
            self.operations.append(operation)
        return next((fault for fault in self._faults if fault.strikes(operation)), None)

    def _leave(self) -> None:
        """Crash if the change that was just made, or the sync about to be, is the chosen one."""
        if self._crash_at is not None and len(self.operations) >= self._crash_at:
            self._crashed = True
            raise SimulatedCrash(str(self.operations[-1]))

    def _change_names(self, *changes: NameChange) -> None:
        for change in changes:
            change.apply(change.directory.names)
            if change.node is not None:
                change.node.parent, change.node.name = change.directory, change.name
        self._name_operations.append(changes)
        self._leave()

    def change_file(self, file: FileNode, kind: Kind, position: int, data: bytes | None) -> None:
        """Write or truncate (`data` None), for a handle."""
        with self._lock:
            size = position if data is None else len(data)
            fault = self._begin(kind, file.path, size)
            if fault is not None:
                data = None if data is None else data[: fault.written]
            if fault is None or data:
                change = Change(len(self.operations), position, data)
                change.apply(file.volatile)
                file.volatile.mtime_ms = self._clock.now_ms()
                file.pending.append(change)
            if fault is not None:
                fail(fault.code, file.path)
            self._leave()

    def sync_file(self, file: FileNode) -> None:
        """Make a file's contents durable, for a handle."""
        with self._lock:
            fault = self._begin(Kind.SYNC, file.path)
            if fault is None:
                self._leave()
                for change in file.pending:
                    change.apply(file.durable)
            self.lost_contents |= fault is not None and bool(file.pending)
            file.pending.clear()
            if fault is not None:
                fail(fault.code, file.path)

    def check_read(self, file: FileNode, kind: Kind) -> None:
        """Fail a handle's read if that was asked for."""
        if self._crashed or self._faults:
            fault = self._begin(kind, file.path)
            if fault is not None:
                fail(fault.code, file.path)

    def _new_file(self, directory: Directory, name: str, contents: MemoryBytes) -> FileNode:
        node = FileNode(directory, name, contents)
        self._files.append(node)
        return node

    def _find(self, path: str) -> Node | None:
        root = "/" if path.startswith("/") else ""
        node: Node | None = self._roots[root]
        for name in path.split("/"):
            if name:
                node = node.names.get(name) if isinstance(node, Directory) else None
        return node

    def _parent_of(self, path: str) -> tuple[Directory, str]:
        above, name = split_path(path)
        node = self._find(above)
        if not isinstance(node, Directory):
            fail(errno.ENOENT if node is None else errno.ENOTDIR, path)
        return node, name

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            fail(errno.ENOENT if node is None else errno.ENOTDIR, path)
        return node

    def _file(self, path: str) -> FileNode:
        node = self._find(path)
        if not isinstance(node, FileNode):
            fail(errno.ENOENT if node is None else errno.EISDIR, path)
        return node

    def _check_target(self, node: Node, source: str, target: str) -> None:
        there = self._find(target)
        if isinstance(node, FileNode):
            if isinstance(there, Directory):
                fail(errno.EISDIR, target)
        elif target.startswith(source + "/"):
            fail(errno.EINVAL, target)
        elif isinstance(there, FileNode):
            fail(errno.ENOTDIR, target)
        elif isinstance(there, Directory) and there is not node and there.names:
            fail(errno.ENOTEMPTY, target)


class _FaultyFile(MemoryFile):
    """A handle on a file of a `FaultyFileSystem`."""

    __slots__ = ("_fs", "_node")

    def __init__(
        self, fs: FaultyFileSystem, node: FileNode, clock: Clock, *, writable: bool
    ) -> None:
        super().__init__(node.volatile, clock, writable=writable)
        self._fs = fs
        self._node = node

    def size(self) -> int:
        """Return the length in bytes."""
        self._fs.check_read(self._node, Kind.SIZE)
        return super().size()

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` from `position` on; return the bytes read, fewer only at the end."""
        self._fs.check_read(self._node, Kind.READ)
        return super().read_into(view, position)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position` on, fewer only at the end."""
        self._fs.check_read(self._node, Kind.READ)
        return super().read(position, size)

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all `buffers` from `position` on, in one operation."""
        self._written_to()
        data = b"".join(memoryview(buffer).cast("B") for buffer in _filled(buffers))
        if data:
            self._fs.change_file(self._node, Kind.WRITE, position, data)

    def truncate(self, size: int) -> None:
        """Cut to `size` bytes, or extend to it with zeros."""
        self._written_to()
        self._fs.change_file(self._node, Kind.TRUNCATE, size, None)

    def sync(self) -> None:
        """Make the contents durable."""
        self._readable()
        self._fs.sync_file(self._node)


def _filled(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    return (buffer for buffer in buffers if memoryview(buffer).nbytes)
