"""A file system layer that fails according to rules and can lose unsynced changes.

All changes are applied to the underlying files immediately. The layer can undo changes that are not
durable. It therefore has little overhead as long as power does not fail, and works both in memory
and on real disks. The model:

*Contents.* `File.sync` makes the contents of a file durable. Later writes and truncations are
pending. To be able to undo them, the layer stores the bytes that they overwrote or cut off. Zeros
are stored as a count, so a preallocated index costs no more than its entries.

*Names.* Creating, renaming or removing a name is pending until an affected directory is synced.
That also makes earlier changes of the same names durable. `File.sync` does not affect names, and
`sync_dir` does not affect contents. The name of a directory belongs to its parent. A file replaced
by a rename is held open until the rename is durable. Removals are durable immediately, as a disk is
allowed to do, because the space of removed files is needed.

*Failures.* After a failed fsync, pending changes of the file remain visible but are lost on a power
failure, regardless of later fsyncs, because Linux marks pages that it could not write as clean.

`logstore.faults.faultfs` records all changes, which allows crashes at any point and in any mode.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from copy import copy
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from logstore.faults.rules import Call
from logstore.names import SWAP_SUFFIX, parse_log_dir
from logstore.runtime import directory_of, remove_tree
from logstore.runtime.fs import Buffer, File, FileKind, FileSystem
from logstore.runtime.guard import is_disk_failure
from logstore.runtime.layer import FileSystemLayer
from logstore.runtime.memfs import MemoryFile
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from logstore.faults.rules import Faults
    from logstore.types import TopicPartition


_PIECE_BYTES = 64 * 1024
"""Size of pieces to read. Pieces that contain only zeros are not stored."""

_ZEROS = bytes(_PIECE_BYTES)

_DISPLACED = "/\1"
"""Prefix of the number in a ghost's path."""


class Kind(Enum):
    """Kinds of file operations. OPEN and later kinds change nothing and are not recorded."""

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
        """Whether operations of this kind are recorded, counted, and possible crash points."""
        return self not in _READS

    @property
    def rules(self) -> tuple[str, ...]:
        """Kinds of rules that apply to operations of this kind."""
        rules = _RULES.get(self, (self.value,))
        return (*rules, "change") if self.is_change else rules


_READS = frozenset({Kind.OPEN, Kind.READ, Kind.STAT, Kind.LIST, Kind.SIZE, Kind.LOCK})
_RULES = {
    Kind.TRUNCATE: ("write", "truncate"),
    Kind.SYNC: ("fsync",),
    Kind.SYNC_DIR: ("fsync", "sync_dir"),
}


class Fate(Enum):
    """What happens to a change when power is lost."""

    PENDING = "pending"
    LOST = "lost"
    DURABLE = "durable"


class Change:
    """A change to a file's contents, and how to undo it.

    Attributes
    ----------
    order : int
        Number of the operation.
    position : int
        Start of the written bytes, or the new size for a truncation.
    length : int or None
        Number of written bytes, or None for a truncation.
    size_before : int
        File size that an undo restores.
    end : int
        End of the range, starting at `position`, whose previous bytes are stored.
    kept : list of (int, bytes)
        Previous bytes in this range. All others were zero.
    fate : Fate
    """

    __slots__ = ("end", "fate", "kept", "length", "order", "position", "size_before")

    def __init__(
        self, position: int, size_before: int, *, order: int = 0, length: int | None = 0
    ) -> None:
        self.order = order
        self.position = self.end = position
        self.length = length
        self.size_before = size_before
        self.kept: list[tuple[int, bytes]] = []
        self.fate = Fate.PENDING

    @property
    def units(self) -> int:
        """Number of points at which the change can be torn, including its end."""
        return 1 if self.length is None else self.length

    def keep(self, file: File, end: int) -> None:
        """Extend the range of stored bytes to `end`, reading the bytes from the file."""
        self.kept += written_pieces(file, self.end, end)
        self.end = end

    def undo(self, file: File) -> None:
        """Restore the previous bytes and size."""
        for position, data in written_pieces(file, self.position, self.end):
            file.write_at([_ZEROS[: len(data)]], position)
        for position, data in self.kept:
            file.write_at([data], position)
        file.truncate(self.size_before)


def written_pieces(file: File, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes [start, end) of a file as (position, bytes), without most zeros."""
    if isinstance(file, MemoryFile):
        end = min(end, file.written())
    while start < end and (data := file.read(start, min(_PIECE_BYTES, end - start))):
        if data != _ZEROS[: len(data)]:
            yield start, data.rstrip(b"\0")
        start += len(data)


class FileNode:
    """A file and its changes since the last sync.

    Attributes
    ----------
    path : str
        Current path, or the last path if the file was removed.
    durable_size : int or None
        Size at the last sync, or None if the file has not changed since then.
    kept_from : int
        All bytes from here up to the durable size are already stored.
    changes : list of Change
        Oldest first. Appends are omitted unless all changes are recorded.
    is_lossy : bool
        Whether an fsync failed, so that later fsyncs cannot make the file durable.
    """

    __slots__ = ("changes", "durable_size", "is_lossy", "kept_from", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.durable_size: int | None = None
        self.kept_from = 0
        self.changes: list[Change] = []
        self.is_lossy = False

    def begin(self, size: int) -> None:
        """Note that the file, which has `size` bytes, is about to change."""
        self.durable_size = self.kept_from = size

    def overwrite(self, file: File, start: int, end: int) -> None:
        """Store the durable bytes of a range that is about to change."""
        size = file.size()
        if self.durable_size is None:
            self.begin(size)
        assert self.durable_size is not None
        end = min(end, size, self.kept_from)
        if start < end:
            if not self.changes or self.changes[-1].end != start:
                self.changes.append(Change(start, self.durable_size))
            self.changes[-1].keep(file, end)

    def record(self, file: File, order: int, position: int, length: int | None) -> None:
        """Record a write, or a truncation if `length` is None, before it is applied."""
        size = file.size()
        if self.durable_size is None:
            self.durable_size = size
        change = Change(position, size, order=order, length=length)
        change.keep(file, size if length is None else min(size, position + length))
        self.changes.append(change)

    def mark_synced(self) -> None:
        """Note that the file was synced."""
        if self.is_lossy:
            self._mark_pending(Fate.DURABLE)
        elif self.durable_size is not None:
            self.durable_size = None
            self.changes.clear()

    def mark_sync_failed(self) -> bool:
        """Note that a sync failed. Return whether it lost recorded changes."""
        self.is_lossy |= self.durable_size is not None
        return self._mark_pending(Fate.LOST)

    def _mark_pending(self, fate: Fate) -> bool:
        pending = [change for change in self.changes if change.fate is Fate.PENDING]
        for change in pending:
            change.fate = fate
        return bool(pending)


@contextmanager
def dated(fs: FileSystem, path: str) -> Iterator[File]:
    """Open a file for changes that are synced and preserve its modification time."""
    mtime_ms = fs.stat(path).mtime_ms
    with closing(fs.open(path, write=True)) as file:
        yield file
        file.sync()
    fs.set_mtime(path, mtime_ms)


class ReplacedFile(NamedTuple):
    """A removed or replaced file, kept open so that it can be restored."""

    node: FileNode
    file: File
    mtime_ms: int

    def restore(self, fs: FileSystem, path: str) -> None:
        """Write the file again under a name."""
        with closing(fs.open(path, create=True)) as target:
            size = self.file.size()
            for position, data in written_pieces(self.file, 0, size):
                target.write_at([data], position)
            target.truncate(size)
            target.sync()
        fs.set_mtime(path, self.mtime_ms)


class NameChange:
    """A change of names that is not yet durable.

    Attributes
    ----------
    kind : Kind
    places : tuple of str
        Affected names (two for a rename), as paths with the current directory names.
    held : ReplacedFile or None
        The removed or replaced file, if any.
    displaced : str
        Path under which names in a removed or replaced directory are stored.
    """

    __slots__ = ("displaced", "held", "kind", "places")

    def __init__(
        self, kind: Kind, *places: str, held: ReplacedFile | None = None, displaced: str = ""
    ) -> None:
        self.kind = kind
        self.places = places
        self.held = held
        self.displaced = displaced


class Pending:
    """The changes on a disk that are not yet durable.

    Attributes
    ----------
    files : dict
        Known files with their changes, by path.
    changes : list of NameChange
        Oldest first.
    displaced_dirs : list of str
        Directories created or moved by an undo, which are removed at the end.
    """

    def __init__(self) -> None:
        self.files: dict[str, FileNode] = {}
        self.changes: list[NameChange] = []
        self.displaced_dirs: list[str] = []
        self._displaced_count = 0

    def copy(self) -> Pending:
        """Return a copy whose name changes can be undone. File changes are shared."""
        twin = Pending()
        twin.files = dict(self.files)
        twin.changes = [copy(change) for change in self.changes]
        twin._displaced_count = self._displaced_count
        return twin

    @property
    def contents(self) -> Iterator[Change]:
        """Yield the pending changes of all files that can exist after a crash."""
        held = [change.held.node for change in self.changes if change.held is not None]
        for node in (*self.files.values(), *held):
            yield from (change for change in node.changes if change.fate is Fate.PENDING)

    def displace(self, path: str) -> str:
        """Move the names in a directory to a separate path before the directory is removed."""
        self._displaced_count += 1
        displaced = f"{directory_of(path).rstrip('/')}{_DISPLACED}{self._displaced_count}"
        self.move(path, displaced)
        return displaced

    def move(self, source: str, target: str) -> None:
        """Record the renaming of a directory."""
        prefix = source + "/"

        def moved(path: str) -> str:
            return target + path[len(source) :] if path.startswith(prefix) else path

        for change in self.changes:
            change.places = tuple(map(moved, change.places))
            change.displaced = moved(change.displaced)
        self.displaced_dirs[:] = map(moved, self.displaced_dirs)
        self.files = {moved(path): node for path, node in self.files.items()}

    def move_file(self, source: str, target: str) -> None:
        """Record the renaming of a file."""
        self.files.pop(target, None)
        node = self.files.pop(source, None)
        if node is not None:
            self.files[target] = node

    def mark_durable(self, directory: str | None, places: Iterable[str] = ()) -> None:
        """Mark changes in a directory, or of the given names, as durable.

        Earlier changes of names affected by such a change become durable as well.
        """
        needed = set(places)
        pending = []
        for change in reversed(self.changes):
            is_synced = directory in tuple(map(directory_of, change.places))
            if is_synced or not needed.isdisjoint(change.places):
                needed.update(change.places)
                if change.held is not None:
                    change.held.file.close()
            else:
                pending.append(change)
        self.changes = pending[::-1]

    def close(self) -> None:
        """Close held files."""
        for change in self.changes:
            if change.held is not None:
                change.held.file.close()

    def changed_files(self, fs: FileSystem) -> Iterator[tuple[str, FileNode]]:
        """Yield existing files with changes, and their paths."""
        for path, node in sorted(self.files.items()):
            if node.durable_size is not None and fs.exists(path):
                yield path, node

    def undo(self, fs: FileSystem, changes: Sequence[NameChange]) -> None:
        """Undo name changes, together with all later changes of the same names."""
        for change in reversed(changes):
            self._undo(fs, change)
        for displaced in self.displaced_dirs:
            if fs.exists(displaced):
                remove_tree(fs, displaced)

    def _undo(self, fs: FileSystem, change: NameChange) -> None:
        first, last = change.places[0], change.places[-1]
        above = directory_of(first)
        if _DISPLACED in above and not fs.is_dir(above):
            self.displaced_dirs.append(
                f"{above}/"[: f"{above}/".index("/", above.index(_DISPLACED) + 1)]
            )
            fs.make_dirs(above)
        if change.kind is Kind.CREATE:
            fs.remove(first)
        elif change.kind is Kind.MAKE_DIR:
            self.displaced_dirs.append(self.displace(first))
            fs.rename(first, self.displaced_dirs[-1])
        elif change.kind is Kind.RENAME:
            is_dir = fs.is_dir(last)
            fs.rename(last, first)
            (self.move if is_dir else self.move_file)(last, first)
        if change.held is not None:
            change.held.restore(fs, last)
            self.files[last] = change.held.node
        elif change.displaced:
            fs.make_dirs(last)
            self.move(change.displaced, last)


class FaultyDisk(FileSystemLayer):
    """A layer that fails operations by rule, and can undo changes that are not durable.

    Parameters
    ----------
    base : FileSystem
    faults : Faults
        The rules, also available as an attribute.
    forgets : bool
        Whether to store changes for `lose_power`. Not required if the base can crash itself.

    Attributes
    ----------
    lost_contents : bool
        Whether a failed sync lost contents that are still visible to handles.

    Notes
    -----
    As thread-safe as the base. A file must have only one writer at a time. Files in directories in
    use must not be changed by any other means.
    """

    _keeps_removed = False
    """Whether removals are also pending until a sync."""

    def __init__(self, base: FileSystem, faults: Faults, *, forgets: bool = True) -> None:
        super().__init__(base)
        self.faults = faults
        self.lost_contents = False
        self._forgets = forgets
        self._is_powered = True
        self._lock = threading.RLock()
        # Rules can cause delays, so they are applied without holding the lock.
        self._serial: AbstractContextManager[object] = nullcontext()
        self._pending = Pending()

    # -- power ---------------------------------------------------------------------------

    def cut_power(self) -> None:
        """Start a power failure. Changes made from now on do not become durable."""
        self._is_powered = False

    def lose_power(self) -> None:
        """Undo everything in the base that is not durable. No file may be in use.

        Raises
        ------
        OSError
            The base failed.
        """
        assert self._forgets, "the base crashes itself"
        self._is_powered = False
        with self._lock:
            pending, self._pending = self._pending, Pending()
            pending.undo(self.base, pending.changes)
            for path, node in pending.changed_files(self.base):
                with dated(self.base, path) as file:
                    for change in reversed(node.changes):
                        change.undo(file)
                    assert node.durable_size is not None
                    file.truncate(node.durable_size)
            pending.close()

    # -- the file system -----------------------------------------------------------------

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file; see `FileSystem.open`."""
        with self._lock:
            self._begin(Kind.OPEN, path)
            is_new = self._forgets and create and not self.base.exists(path)
            if is_new:
                self._begin(Kind.CREATE, path)
            file = self.base.open(path, write=write, create=create)
            node = self._node(path) if self._forgets else FileNode(path)
            if is_new:
                self._pending.changes.append(NameChange(Kind.CREATE, path))
                self._end()
            return self._handle(node, file, tracks=self._forgets and (write or create))

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing an existing file."""
        with self._serial:
            self._begin(Kind.RENAME, source, target)
            with self._lock:
                if not self._forgets or source == target:
                    self.base.rename(source, target)
                else:
                    self._rename(source, target)
            self._end()

    def _rename(self, source: str, target: str) -> None:
        held, replaces_dir = self._open_replaced(target), self.base.is_dir(target)
        try:
            self.base.rename(source, target)
        except BaseException:
            if held is not None:
                held.file.close()
            raise
        pending = self._pending
        displaced = pending.displace(target) if replaces_dir else ""
        pending.changes.append(
            NameChange(Kind.RENAME, source, target, held=held, displaced=displaced)
        )
        if self.base.is_dir(target):
            pending.move(source, target)
            for path, node in pending.files.items():
                node.path = path
        else:
            pending.move_file(source, target)
            if target in pending.files:
                pending.files[target].path = target

    def remove(self, path: str) -> None:
        """Remove a file."""
        with self._serial, self._lock:
            self._begin(Kind.REMOVE, path)
            held = self._open_replaced(path) if self._keeps_removed else None
            self.base.remove(path)
            if self._forgets:
                self._note_removal(NameChange(Kind.REMOVE, path, held=held))
                self._pending.files.pop(path, None)
            self._end()

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        with self._serial, self._lock:
            self._begin(Kind.REMOVE_DIR, path)
            self.base.remove_dir(path)
            if self._forgets:
                displaced = self._pending.displace(path)
                self._note_removal(NameChange(Kind.REMOVE_DIR, path, displaced=displaced))
            self._end()

    def _note_removal(self, change: NameChange) -> None:
        if self._keeps_removed:
            self._pending.changes.append(change)
        else:
            self._pending.mark_durable(change.displaced or None, change.places)

    def make_dirs(self, path: str) -> None:
        """Create a directory and its missing parents, one operation each."""
        with self._lock:
            if not self._forgets or self.base.exists(path):
                self.base.make_dirs(path)  # fails if `path` is a file
                return
            above = directory_of(path)
            if above not in ("", path):
                self.make_dirs(above)
            self._begin(Kind.MAKE_DIR, path)
            self.base.make_dirs(path)
            self._pending.changes.append(NameChange(Kind.MAKE_DIR, path))
            self._end()

    def sync_dir(self, path: str) -> None:
        """Fsync a directory, which makes the names in it durable."""
        with self._serial:
            self._begin(Kind.SYNC_DIR, path)
            self._end()
            if self._is_powered:
                with self._lock:
                    self.base.sync_dir(path)
                    if self._pending.changes:
                        self._pending.mark_durable(path)

    def sync_file(self, node: FileNode, base: File) -> None:
        """Fsync a file on behalf of a handle."""
        if not self._is_powered:
            return
        try:
            self._begin(Kind.SYNC, node.path)
            self._end()
            base.sync()
        except OSError as error:
            if is_disk_failure(error):
                self.lost_contents |= node.mark_sync_failed()
            raise
        if self._is_powered:
            node.mark_synced()

    # -- inside --------------------------------------------------------------------------

    def apply_rules(self, kind: Kind, path: str, target: str | None = None) -> None:
        """Fail or delay an operation if a rule applies."""
        rules = kind.rules
        if target is not None and any(name.endswith(SWAP_SUFFIX) for name in (path, target)):
            rules = (*rules, "swap")
        for rule in rules:
            call = Call(rule, _partitions_of(path), path=path, target=target)
            self.faults.call_with_rules(call, _do_nothing)

    def _begin(self, kind: Kind, path: str, target: str | None = None, size: int = 0) -> None:
        """Start an operation, which may fail."""
        if self.faults.rules:
            self.apply_rules(kind, path, target)

    def _end(self) -> None:
        """Complete a change or start a sync. This is a possible crash point."""

    def _handle(self, node: FileNode, base: File, *, tracks: bool) -> File:
        return FaultyFile(self, node, base, tracks=tracks)

    def _node(self, path: str) -> FileNode:
        node = self._pending.files.get(path)
        if node is None:
            node = self._pending.files[path] = FileNode(path)
        return node

    def _open_replaced(self, path: str) -> ReplacedFile | None:
        """Open a file that is about to be removed or replaced, if it exists."""
        if self.base.kind(path) is not FileKind.FILE:
            return None
        return ReplacedFile(self._node(path), self.base.open(path), self.base.stat(path).mtime_ms)


class FaultyFile:
    """A handle on a file of a `FaultyDisk`."""

    __slots__ = ("_base", "_fs", "_node", "_tracks")

    def __init__(self, fs: FaultyDisk, node: FileNode, base: File, *, tracks: bool) -> None:
        self._fs = fs
        self._node = node
        self._base = base
        self._tracks = tracks

    def size(self) -> int:
        """Return the length in bytes."""
        return self._base.size()

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` from `position` on. Return the number of bytes, lower only at the end."""
        if self._fs.faults.rules:
            self._fs.apply_rules(Kind.READ, self._node.path)
        return self._base.read_into(view, position)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes starting at `position`; fewer only at the end of the file."""
        if self._fs.faults.rules:
            self._fs.apply_rules(Kind.READ, self._node.path)
        return self._base.read(position, size)

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Append all `buffers`, and return the position of the first byte."""
        if self._fs.faults.rules:
            self._fs.apply_rules(Kind.WRITE, self._node.path)
        if self._tracks and self._node.durable_size is None:
            self._node.begin(self._base.size())
        return self._base.append(buffers)

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all `buffers` at `position`."""
        if self._fs.faults.rules:
            self._fs.apply_rules(Kind.WRITE, self._node.path)
        durable_size = self._node.durable_size
        # Undoing a change requires no bytes after the durable ones, so most appends skip this.
        if self._tracks and (durable_size is None or position < durable_size):
            size = sum(memoryview(buffer).nbytes for buffer in buffers)
            if size:
                self._node.overwrite(self._base, position, position + size)
        self._base.write_at(buffers, position)

    def truncate(self, size: int) -> None:
        """Truncate to `size` bytes, or extend with zeros."""
        if self._fs.faults.rules:
            self._fs.apply_rules(Kind.TRUNCATE, self._node.path)
        if self._tracks:
            self._node.overwrite(self._base, size, INT64_MAX)
            self._node.kept_from = min(self._node.kept_from, size)
        self._base.truncate(size)

    def sync(self) -> None:
        """Fsync the contents."""
        self._fs.sync_file(self._node, self._base)

    def close(self) -> None:
        """Close the handle. Closing it again has no effect."""
        self._base.close()


def _do_nothing() -> None:
    pass


def _partitions_of(path: str) -> tuple[TopicPartition, ...]:
    """Return the partition whose directory is, or contains, a path."""
    above, _, name = path.rpartition("/")
    for folder in (above.rpartition("/")[2], name):
        parsed = parse_log_dir(folder)
        if parsed is not None:
            return (parsed.topic_partition,)
    return ()
