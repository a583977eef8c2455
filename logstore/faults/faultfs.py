"""A disk for tests that records all changes, and can fail or crash at any change.

The model is described in `logstore.faults.disk`, except that removals are pending, like other name
changes. See `logstore.faults.crash` for crash modes.

An operation at which the disk crashes has started, so its change is pending and never durable. An
operation that fails raises an `OSError` and has no effect, except that a write may first write some
of its bytes. Acquiring a lock is not a change: it is not recorded, cannot crash, and the lock file
is durable immediately. A crash releases all locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from logstore.faults.crash import Contents, CrashMode, Names, apply_crash
from logstore.faults.disk import FaultyDisk, FaultyFile, FileNode, Kind
from logstore.faults.rules import FILE_KINDS, Call, FaultRule, Faults
from logstore.runtime import directory_of
from logstore.runtime.clock import Clock, SystemClock
from logstore.runtime.fs import Buffer, File, FileKind, FileStat
from logstore.runtime.locks import FileLock
from logstore.runtime.memfs import MemoryFileSystem

__all__ = [
    "Contents",
    "CrashMode",
    "FaultyFileSystem",
    "Kind",
    "Names",
    "Operation",
    "SimulatedCrash",
]


class SimulatedCrash(BaseException):
    """The machine crashed. Not an `Exception`, so that it is not caught by accident."""


class Operation(NamedTuple):
    """A recorded operation.

    `number` starts at 1. `size` is the number of bytes written, or the new size for a truncation.
    `target` is the new name for a rename.
    """

    number: int
    kind: Kind
    path: str
    size: int = 0
    target: str = ""


class FaultyFileSystem(FaultyDisk):
    """An in-memory file system that can fail and crash; see the module docstring.

    Parameters
    ----------
    clock : Clock, optional
        Clock for modification times. [default: system clock]
    image : MemoryFileSystem, optional
        Initial files, which are copied and durable. [default: none]

    Attributes
    ----------
    operations : list of Operation
        All attempted changes, including those that failed.
    faults : Faults
        The current rules. `fail` adds rules; `clear()` removes all.
    lost_contents : bool
        Whether a failed sync lost contents that are still visible to handles.
    """

    base: MemoryFileSystem
    _keeps_removed = True

    def __init__(self, clock: Clock | None = None, image: MemoryFileSystem | None = None) -> None:
        clock = SystemClock() if clock is None else clock
        base = MemoryFileSystem(clock) if image is None else image.fork(clock)
        super().__init__(base, Faults(FILE_KINDS, clock))
        self._serial = self._lock
        self._crash_at: int | None = None
        self._crashed = False
        self.operations: list[Operation] = []

    def __repr__(self) -> str:
        crashed = ", crashed" if self._crashed else ""
        return f"FaultyFileSystem({len(self.operations)} operations{crashed})"

    # -- control -------------------------------------------------------------------------

    @property
    def operation_count(self) -> int:
        """Number of attempted changes, which equals the number of possible crash points."""
        return len(self.operations)

    @property
    def crashed(self) -> bool:
        """Whether the crash has happened, so that all operations raise `SimulatedCrash`."""
        return self._crashed

    @property
    def pending_units(self) -> int:
        """Number of bytes and truncations that are not durable, at which `TORN` can cut."""
        return sum(change.units for change in self._pending.contents)

    @property
    def pending_names(self) -> int:
        """Number of name changes that are not durable, for `PREFIX`."""
        return len(self._pending.changes)

    def crash_at(self, number: int) -> None:
        """Crash in the middle of operation `number`, counted from 1."""
        self._crash_at = number

    def fail(
        self,
        kind: str,
        *,
        error: str | int = "EIO",
        nth: int | None = None,
        times: int | None = None,
        suffix: str = "",
        written: int = 0,
    ) -> FaultRule:
        """Make operations fail.

        Parameters
        ----------
        kind : str
            `change` for all changes, a disk operation as in `Broker.fail`, or the value of a
            `Kind`.
        error : str or int
            Name or number of an `errno`.
        nth, times : int, optional
            The first operation to fail, and the number of operations; see `Faults.add`.
        suffix : str
            Only match operations whose path or target has this suffix.
        written : int
            Number of bytes that a failing write still writes.
        """

        def has_suffix(call: Call) -> bool:
            return any(path.endswith(suffix) for path in (call.path, call.target) if path)

        return self.faults.add(
            kind, error=error, nth=nth, times=times, when=has_suffix, written=written
        )

    def crash(self, mode: CrashMode | None = None) -> MemoryFileSystem:
        """Return the files that a crash now would leave. This file system is not changed.

        Parameters
        ----------
        mode : CrashMode, optional
            Which changes survive. [default: only synced changes]
        """
        with self._lock:
            image = self.base.fork()
            apply_crash(image, self._pending.copy(), CrashMode() if mode is None else mode)
            return image

    # -- the file system -----------------------------------------------------------------

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists at `path`."""
        self._begin(Kind.STAT, path)
        return super().exists(path)

    def is_dir(self, path: str) -> bool:
        """Return whether `path` is a directory."""
        self._begin(Kind.STAT, path)
        return super().is_dir(path)

    def kind(self, path: str) -> FileKind | None:
        """Return whether a path is a file or a directory, or None if it does not exist."""
        self._begin(Kind.STAT, path)
        return super().kind(path)

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        self._begin(Kind.LIST, path)
        return super().list_dir(path)

    def kinds(self, path: str) -> dict[str, FileKind]:
        """Return the names in a directory and their kinds."""
        self._begin(Kind.LIST, path)
        return super().kinds(path)

    def stat(self, path: str) -> FileStat:
        """Return the length and modification time of a file."""
        self._begin(Kind.STAT, path)
        return super().stat(path)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set the modification time of a file in Unix milliseconds."""
        with self._lock:
            self._begin(Kind.SET_MTIME, path)
            super().set_mtime(path, mtime_ms)
            self._end()

    def lock(self, path: str) -> FileLock | None:
        """Acquire the exclusive lock on a file; see `FileSystem.lock` and the module docstring."""
        self._begin(Kind.LOCK, path)
        return super().lock(path)

    # -- inside --------------------------------------------------------------------------

    def _begin(self, kind: Kind, path: str, target: str | None = None, size: int = 0) -> None:
        """Start and record an operation. Fail if a rule applies."""
        if self._crashed:
            raise SimulatedCrash(f"{kind.value} {path}: after the crash")
        if kind.is_change:
            self._refuse(kind, path, target or "")
            number = len(self.operations) + 1
            self.operations.append(Operation(number, kind, path, size, target or ""))
        super()._begin(kind, path, target)

    def _refuse(self, kind: Kind, path: str, target: str) -> None:
        """Raise the error of an impossible operation, without recording the operation."""
        base = self.base
        if kind is Kind.REMOVE and base.kind(path) is not FileKind.FILE:
            base.remove(path)
        elif kind is Kind.REMOVE_DIR and (not base.is_dir(path) or base.list_dir(path)):
            base.remove_dir(path)
        elif kind is Kind.CREATE and not base.is_dir(directory_of(path)):
            base.open(path, create=True)
        elif kind is Kind.SYNC_DIR:
            base.list_dir(path)
        elif kind is Kind.SET_MTIME:
            base.stat(path)
        elif kind is Kind.RENAME:
            base.check_rename(path, target)

    def _end(self) -> None:
        """Crash if this change or sync is the selected one."""
        if self._crash_at is not None and len(self.operations) >= self._crash_at:
            self._crashed = True
            raise SimulatedCrash(str(self.operations[-1]))

    def _handle(self, node: FileNode, base: File, *, tracks: bool) -> File:
        return _RecordedFile(self, node, base, tracks=tracks)

    def change_file(self, node: FileNode, base: File, position: int, data: bytes | None) -> None:
        """Write, or truncate if `data` is None, on behalf of a handle."""
        kind, size = (Kind.TRUNCATE, position) if data is None else (Kind.WRITE, len(data))
        with self._lock:
            failure = None
            try:
                self._begin(kind, node.path, size=size)
            except OSError as error:
                data = data and data[: vars(error).get("written", 0)]
                if not data:
                    raise
                failure = error
            node.record(base, len(self.operations), position, None if data is None else len(data))
            if data is None:
                base.truncate(position)
            else:
                base.write_at([data], position)
            if failure is not None:
                raise failure
            self._end()

    def sync_file(self, node: FileNode, base: File) -> None:
        """Fsync a file on behalf of a handle."""
        with self._lock:
            super().sync_file(node, base)

    def begin_read(self, kind: Kind, node: FileNode) -> None:
        """Start a read by a handle, which may fail."""
        if self._crashed or self.faults.rules:
            self._begin(kind, node.path)


class _RecordedFile(FaultyFile):
    """A handle on a file of a `FaultyFileSystem`."""

    __slots__ = ()

    _fs: FaultyFileSystem

    def size(self) -> int:
        """Return the length in bytes."""
        self._fs.begin_read(Kind.SIZE, self._node)
        return self._base.size()

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` from `position` on. Return the number of bytes, lower only at the end."""
        self._fs.begin_read(Kind.READ, self._node)
        return self._base.read_into(view, position)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes starting at `position`; fewer only at the end of the file."""
        self._fs.begin_read(Kind.READ, self._node)
        return self._base.read(position, size)

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Append all `buffers`, and return the position of the first byte."""
        position = self.size()
        self.write_at(buffers, position)
        return position

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all `buffers` at `position`, as one operation."""
        self._check_writable()
        data = b"".join(memoryview(buffer) for buffer in buffers)
        if data:
            self._fs.change_file(self._node, self._base, position, data)

    def truncate(self, size: int) -> None:
        """Truncate to `size` bytes, or extend with zeros."""
        self._check_writable()
        self._fs.change_file(self._node, self._base, size, None)

    def _check_writable(self) -> None:
        """Raise an error if the handle is closed or read-only."""
        if self._tracks:
            self._base.size()
        else:
            self._base.truncate(self._base.size())
