"""A disk that fails by rule, and that forgets what was not synced: a layer over any file system.

What a loss of power takes is kept as what would undo it, so that the layer costs little as long as
nothing is lost, and works over files in memory and on the machine's disk alike. The model is that
of `logstore.faults.faultfs` with everything dropped that is not durable:

*Contents.* A file is durable as of its last `File.sync`. Whatever is written or cut afterwards is
undone: bytes that were there before are read and kept when they are overwritten or cut, those
behind the old end are not. Zeros are kept as their number, so that a preallocated index, which is
cut and extended whenever it is opened or closed, costs what its entries take.
*Names.* A created file or directory, and a rename, is durable once a directory that it touches is
synced, and with it what happened to the same names before. Else it is undone; a file that a rename
replaced is held open till then. A removal is durable at once: a disk may do so, and nothing would
be learnt from files that come back.
*Failures.* After a failed sync what was pending is lost, whatever later syncs report, as on Linux.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logstore.faults.rules import Call
from logstore.faults.tree import Directory, Node
from logstore.names import SWAP_SUFFIX, parse_log_dir
from logstore.runtime import directory_of, remove_tree
from logstore.runtime.fs import Buffer, File, FileKind, FileSystem
from logstore.runtime.layer import FileSystemLayer
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from logstore.faults.rules import Faults
    from logstore.types import TopicPartition


_PIECE_BYTES = 64 * 1024
"""Bytes that are read at a time, and left out if all of them are zeros."""

_ZEROS = bytes(_PIECE_BYTES)


class _Kept:
    """The bytes of a range of a file: those of the pieces, and zeros elsewhere."""

    __slots__ = ("end", "pieces", "start")

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.pieces: list[tuple[int, bytes]] = []

    def read(self, file: File, end: int) -> None:
        """Add what a file has from the end of the range up to another end."""
        self.pieces += _written(file, self.end, end)
        self.end = end

    def restore(self, file: File) -> None:
        """Give a file these bytes again; zeros behind its end are left out."""
        for position, data in _written(file, self.start, self.end):
            file.write_at([_ZEROS[: len(data)]], position)
        for position, data in self.pieces:
            file.write_at([data], position)


def _written(file: File, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes [start, end) of a file in pieces with their positions, zeros left out.

    Some zeros are among them.
    """
    while start < end and (data := file.read(start, min(_PIECE_BYTES, end - start))):
        if data != _ZEROS[: len(data)]:
            yield start, data.rstrip(b"\0")
        start += len(data)


class _FileNode(Node):
    """A file, and what undoes its changes since the last sync.

    Attributes
    ----------
    durable_size : int or None
        As of the last sync; None if nothing has changed since.
    kept_from : int
        From here up to the durable size everything is kept already.
    undo : list of _Kept
        What was overwritten or cut, the oldest first.
    is_doomed : bool
        Whether a sync failed, so that no later one helps.
    is_gone : bool
        Whether it was removed, or replaced for good.
    """

    def __init__(self, parent: Directory, name: str) -> None:
        super().__init__(parent, name)
        self.durable_size: int | None = None
        self.kept_from = 0
        self.undo: list[_Kept] = []
        self.is_doomed = False
        self.is_gone = False


class _NameChange(NamedTuple):
    """A name operation that is not durable.

    Attributes
    ----------
    places : tuple of (folder, name)
        What it touches.
    undo : callable
    settle : callable
        Called once it is durable.
    """

    places: tuple[tuple[Directory, str], ...]
    undo: Callable[[], None]
    settle: Callable[[], None]

    @property
    def keys(self) -> set[tuple[int, str]]:
        """The places, to be compared; the folders live as long as the change does."""
        return {(id(folder), name) for folder, name in self.places}


class BreakableFileSystem(FileSystemLayer):
    """Passes on to `base` what no rule forbids, and knows what of it is not durable.

    Parameters
    ----------
    base : FileSystem
    faults : Faults
        Whose rules of `DISK_KINDS` are obeyed; an attribute, too.
    forgets : bool
        Whether `lose_power` is wanted: False over a base that can crash by itself.

    Notes
    -----
    Any thread may call, as of the base; a file has one writer at a time. Nobody else changes files
    below directories that are used through it.
    """

    def __init__(self, base: FileSystem, faults: Faults, *, forgets: bool = True) -> None:
        super().__init__(base)
        self.faults = faults
        self._forgets = forgets
        self._is_powered = True
        self._lock = threading.RLock()
        self._roots = {"": Directory(None, ""), "/": Directory(None, "/")}
        self._dirty: dict[int, _FileNode] = {}
        self._names: list[_NameChange] = []

    # -- power ---------------------------------------------------------------------------

    def cut_power(self) -> None:
        """Let nothing become durable any more: the loss of power has begun."""
        self._is_powered = False

    def lose_power(self) -> None:
        """Undo, in the base, whatever is not durable; nobody uses its files meanwhile.

        Raises
        ------
        OSError
            The base cannot.
        """
        assert self._forgets, "asked of the base"
        self._is_powered = False
        with self._lock:
            while self._names:
                self._names.pop().undo()
            for node in self._dirty.values():
                if not node.is_gone and self.base.exists(node.path):
                    self._undo_contents(node)
            self._dirty.clear()

    def _undo_contents(self, node: _FileNode) -> None:
        assert node.durable_size is not None
        path = node.path
        mtime_ms = self.base.stat(path).mtime_ms
        file = self.base.open(path, write=True)
        try:
            for kept in reversed(node.undo):
                kept.restore(file)
            file.truncate(node.durable_size)
            file.sync()
        finally:
            file.close()
        self.base.set_mtime(path, mtime_ms)

    # -- the file system -----------------------------------------------------------------

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file; see `FileSystem.open`."""
        with self._lock:
            is_new = self._forgets and create and not self.base.exists(path)
            file = self.base.open(path, write=write, create=create)
            folder, name = self._place(path)
            node = folder.names.get(name)
            if is_new or not isinstance(node, _FileNode):
                node = _FileNode(folder, name)
                folder.names[name] = node
            if is_new:
                made = node

                def undo() -> None:
                    made.is_gone = True
                    self.base.remove(made.path)

                self._names.append(_NameChange(((folder, name),), undo, _nothing))
            return _BreakableFile(self, node, file, tracks=self._forgets and (write or create))

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing a file of the target's name."""
        self.meet("rename", source, target)
        if source.endswith(SWAP_SUFFIX) or target.endswith(SWAP_SUFFIX):
            self.meet("swap", source, target)
        with self._lock:
            if not self._forgets or source == target:
                self.base.rename(source, target)
                return
            saved = self._held(target)
            try:
                self.base.rename(source, target)
            except BaseException:
                if saved is not None:
                    saved.file.close()
                raise
            self._renamed(source, target, saved)

    def _renamed(self, source: str, target: str, saved: _Replaced | None) -> None:
        """Note a rename that was done, and what it replaced."""
        before, after = self._place(source), self._place(target)
        node = before[0].names.pop(before[1], None)
        if node is None:
            is_dir = self.base.kind(target) is FileKind.DIRECTORY
            node = Directory(*after) if is_dir else _FileNode(*after)
        _put(node, *after)

        def undo() -> None:
            self.base.rename(node.path, _path_of(*before))
            del after[0].names[after[1]]
            _put(node, *before)
            if saved is not None:
                saved.restore(self.base)
                _put(saved.node, *after)

        def settle() -> None:
            if saved is not None:
                saved.node.is_gone = True
                self._dirty.pop(id(saved.node), None)
                saved.file.close()

        self._names.append(_NameChange((before, after), undo, settle))

    def _held(self, path: str) -> _Replaced | None:
        """Hold a file that is about to be replaced, if there is one."""
        if self.base.kind(path) is not FileKind.FILE:
            return None
        file, stat = self.base.open(path), self.base.stat(path)
        folder, name = self._place(path)
        node = folder.names.get(name)
        if not isinstance(node, _FileNode):
            node = _FileNode(folder, name)
        return _Replaced(node, file, stat.mtime_ms)

    def remove(self, path: str) -> None:
        """Remove a file, durably."""
        with self._lock:
            self.base.remove(path)
            self._forget(path)

    def make_dirs(self, path: str) -> None:
        """Create a directory and the missing ones above it."""
        with self._lock:
            if not self._forgets or self.base.is_dir(path):
                self.base.make_dirs(path)  # which refuses what is no directory
                return
            above = directory_of(path)
            if above not in ("", path):
                self.make_dirs(above)
            self.base.make_dirs(path)
            folder, name = self._place(path)
            made = Directory(folder, name)
            folder.names[name] = made

            def undo() -> None:
                remove_tree(self.base, made.path)
                folder.names.pop(name, None)

            self._names.append(_NameChange(((folder, name),), undo, _nothing))

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory, durably."""
        with self._lock:
            self.base.remove_dir(path)
            self._forget(path, self._folder(path))

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        self.meet("fsync", path)
        if not self._is_powered:
            return
        with self._lock:
            self.base.sync_dir(path)
            if self._names:
                self._settle(set(), self._folder(path))

    # -- inside --------------------------------------------------------------------------

    def meet(self, kind: str, path: str, target: str | None = None) -> None:
        """Fail or delay an operation if a rule says so."""
        if self.faults.rules:
            call = Call(kind, _partitions_of(path), path=path, target=target)
            self.faults.through(call, _nothing)

    def changes(self, node: _FileNode, size: int) -> None:
        """Note that a file, of this size yet, is no longer as of its last sync."""
        node.durable_size = node.kept_from = size
        self._dirty[id(node)] = node

    def synced(self, node: _FileNode) -> None:
        """Note that a file was synced."""
        if self._is_powered and not node.is_doomed and node.durable_size is not None:
            node.durable_size = None
            node.undo.clear()
            self._dirty.pop(id(node), None)

    @property
    def is_powered(self) -> bool:
        """Whether anything becomes durable yet."""
        return self._is_powered

    def _folder(self, path: str) -> Directory:
        folder = self._roots["/" if path.startswith("/") else ""]
        for name in path.split("/"):
            if name:
                below = folder.names.get(name)
                if not isinstance(below, Directory):
                    below = folder.names[name] = Directory(folder, name)
                folder = below
        return folder

    def _place(self, path: str) -> tuple[Directory, str]:
        return self._folder(directory_of(path)), path.rpartition("/")[2]

    def _forget(self, path: str, gone: Directory | None = None) -> None:
        """Note a removal, which is durable, and so is what happened to the name before.

        And what happened to names in the directory that is `gone`: it cannot be undone there.
        """
        if not self._forgets:
            return
        folder, name = self._place(path)
        node = folder.names.pop(name, None)
        if isinstance(node, _FileNode):
            node.is_gone = True
            self._dirty.pop(id(node), None)
        self._settle({(id(folder), name)}, gone)

    def _settle(self, needed: set[tuple[int, str]], directory: Directory | None) -> None:
        """Take for durable what touches these names or this directory.

        And what happened before to names that such a change touches.
        """
        pending = []
        for change in reversed(self._names):
            is_synced = any(folder is directory for folder, _ in change.places)
            if is_synced or not needed.isdisjoint(change.keys):
                needed |= change.keys
                change.settle()
            else:
                pending.append(change)
        self._names = pending[::-1]


class _Replaced(NamedTuple):
    """A file that a rename replaced: what is needed to bring it back."""

    node: _FileNode
    file: File
    mtime_ms: int

    def restore(self, base: FileSystem) -> None:
        path = self.node.path
        copy = base.open(path, create=True)
        try:
            size = self.file.size()
            for position, data in _written(self.file, 0, size):
                copy.write_at([data], position)
            copy.truncate(size)
            copy.sync()
        finally:
            copy.close()
            self.file.close()
        base.set_mtime(path, self.mtime_ms)


class _BreakableFile:
    """A handle on a file of a `BreakableFileSystem`."""

    __slots__ = ("_base", "_fs", "_node", "_tracks")

    def __init__(
        self, fs: BreakableFileSystem, node: _FileNode, base: File, *, tracks: bool
    ) -> None:
        self._fs = fs
        self._node = node
        self._base = base
        self._tracks = tracks

    def size(self) -> int:
        """Return the length in bytes."""
        return self._base.size()

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` from `position` on; return the bytes read, fewer only at the end."""
        if self._fs.faults.rules:
            self._fs.meet("read", self._node.path)
        return self._base.read_into(view, position)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position` on, fewer only at the end."""
        if self._fs.faults.rules:
            self._fs.meet("read", self._node.path)
        return self._base.read(position, size)

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all `buffers` at the end; return the position of the first byte."""
        if self._fs.faults.rules:
            self._fs.meet("write", self._node.path)
        if self._tracks and self._node.durable_size is None:
            self._fs.changes(self._node, self._base.size())
        return self._base.append(buffers)

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all `buffers` from `position` on."""
        if self._fs.faults.rules:
            self._fs.meet("write", self._node.path)
        durable_size = self._node.durable_size
        # Else it is behind what is durable, as all appends to a log are but the first.
        if self._tracks and (durable_size is None or position < durable_size):
            size = sum(memoryview(buffer).nbytes for buffer in buffers)
            if size:
                self._keep(position, position + size)
        self._base.write_at(buffers, position)

    def truncate(self, size: int) -> None:
        """Cut to `size` bytes, or extend to it with zeros."""
        if self._fs.faults.rules:
            self._fs.meet("write", self._node.path)
        if self._tracks:
            self._keep(size, INT64_MAX)
            self._node.kept_from = min(self._node.kept_from, size)
        self._base.truncate(size)

    def _keep(self, start: int, end: int) -> None:
        """Keep what is durable of a range that is about to change."""
        node, size = self._node, self._base.size()
        if node.durable_size is None:
            self._fs.changes(node, size)
        end = min(end, size, node.kept_from)
        if start < end:
            if not node.undo or node.undo[-1].end != start:
                node.undo.append(_Kept(start))
            node.undo[-1].read(self._base, end)

    def sync(self) -> None:
        """Make the contents durable."""
        if not self._fs.is_powered:
            return
        try:
            self._fs.meet("fsync", self._node.path)
            self._base.sync()
        except OSError:
            self._node.is_doomed = self._node.durable_size is not None
            raise
        if self._tracks:
            self._fs.synced(self._node)

    def close(self) -> None:
        """Give up the handle; closing twice is allowed."""
        self._base.close()


def _nothing() -> None:
    pass


def _put(node: Node, folder: Directory, name: str) -> None:
    """Let a node stand under a name."""
    node.parent, node.name = folder, name
    folder.names[name] = node


def _path_of(folder: Directory, name: str) -> str:
    return Node(folder, name).path


def _partitions_of(path: str) -> tuple[TopicPartition, ...]:
    """Return the partition whose folder a path is, or lies in."""
    above, _, name = path.rpartition("/")
    for folder in (above.rpartition("/")[2], name):
        parsed = parse_log_dir(folder)
        if parsed is not None:
            return (parsed.topic_partition,)
    return ()
