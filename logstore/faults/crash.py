"""Crashes: what is left of files and names that were not durable.

The model is described in `logstore.faults.faultfs`, which records the changes that wait here
for their sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from logstore.faults.tree import Directory, Node
from logstore.runtime.clock import Clock
from logstore.runtime.environment import Random, random_source
from logstore.runtime.memfs import MemoryBytes, MemoryFileSystem

SECTOR_SIZE = 512


class Contents(Enum):
    """The contents that a crash leaves of those that were not synced."""

    DROPPED = "dropped"
    KEPT = "kept"
    TORN = "torn"
    ZEROED = "zeroed"
    SCATTERED = "scattered"


class Names(Enum):
    """The names that a crash leaves of those whose directory was not synced."""

    UNDONE = "undone"
    KEPT = "kept"
    PREFIX = "prefix"
    SUBSET = "subset"


@dataclass(frozen=True, slots=True)
class CrashMode:
    """The fate of pending changes; see the module."""

    contents: Contents = Contents.DROPPED
    names: Names = Names.UNDONE
    cut: int = 0
    names_kept: int = 0
    seed: int = 0

    def __str__(self) -> str:
        contents = self.contents.value
        if self.contents is Contents.TORN:
            contents += f" at {self.cut}"
        names = self.names.value
        if self.names is Names.PREFIX:
            names += f" of {self.names_kept}"
        seeded = Contents.SCATTERED is self.contents or Names.SUBSET is self.names
        return f"contents {contents}, names {names}" + (f", seed {self.seed}" if seeded else "")


class Change(NamedTuple):
    """A pending write (`data`) or truncation (None) of a file, and its place in time."""

    order: int
    position: int
    data: bytes | None

    @property
    def units(self) -> int:
        """Points after which it can be torn, the end included."""
        return 1 if self.data is None else len(self.data)

    def apply(self, contents: MemoryBytes) -> None:
        """Make the change."""
        if self.data is None:
            contents.truncate(self.position)
        elif self.data:
            contents.write_at(memoryview(self.data), self.position)


class FileNode(Node):
    """A file's contents, those that a crash spares, and what lies between the two."""

    def __init__(self, parent: Directory | None, name: str, contents: MemoryBytes) -> None:
        super().__init__(parent, name)
        self.volatile = contents
        self.durable = contents.copy()
        self.pending: list[Change] = []


class NameChange(NamedTuple):
    """One step of a name operation: `name` in `directory` comes to mean `node`, or nothing."""

    directory: Directory
    name: str
    node: Node | None

    @property
    def place(self) -> tuple[int, str]:
        """The name in its directory; changes of one place keep their order."""
        return id(self.directory), self.name

    def apply(self, names: dict[str, Node]) -> None:
        """Change the names of the directory, volatile or durable ones."""
        if self.node is None:
            names.pop(self.name, None)
        else:
            names[self.name] = self.node


NameOperation = tuple[NameChange, ...]
"""Changes that are durable together: one, or the two of a rename."""


def crash_image(
    clock: Clock,
    roots: Iterable[Directory],
    files: Sequence[FileNode],
    operations: Sequence[NameOperation],
    mode: CrashMode,
) -> MemoryFileSystem:
    """Return what a machine finds after losing its memory.

    Parameters
    ----------
    roots : iterable of Directory
        Whose durable names are taken.
    files : sequence of FileNode
        Every file, for the order of their pending changes.
    operations : sequence of tuple of NameChange
        Pending name operations in their order.
    """
    rng = random_source(mode.seed)
    names = _names_after(operations, mode, rng)
    contents = _contents_after(files, mode, rng)
    image = MemoryFileSystem(clock)
    for path, node in _walk(roots, names):
        if isinstance(node, FileNode):
            image.put(path, contents(node))
        else:
            image.make_dirs(path)
    return image


def _names_after(
    operations: Sequence[NameOperation], mode: CrashMode, rng: Random
) -> Callable[[Directory], dict[str, Node]]:
    if mode.names is Names.SUBSET:
        kept: Sequence[NameOperation] = _independent_subset(operations, rng)
    else:
        count = {Names.UNDONE: 0, Names.KEPT: len(operations)}.get(mode.names, mode.names_kept)
        kept = operations[:count]
    changed: dict[int, dict[str, Node]] = {}
    for operation in kept:
        for change in operation:
            directory = change.directory
            change.apply(changed.setdefault(id(directory), dict(directory.durable)))
    return lambda directory: changed.get(id(directory), directory.durable)


def _contents_after(
    files: Sequence[FileNode], mode: CrashMode, rng: Random
) -> Callable[[FileNode], MemoryBytes]:
    if mode.contents is Contents.SCATTERED:
        return lambda file: _scattered(file, rng)
    if mode.contents is Contents.ZEROED:
        return _zeroed
    if mode.contents is Contents.KEPT:
        return _kept
    changes = sorted(
        (change for file in files for change in file.pending), key=lambda change: change.order
    )
    left = _first_units(changes, mode.cut if mode.contents is Contents.TORN else 0)
    return lambda file: _applied(file, left)


def _first_units(changes: Iterable[Change], units: int) -> dict[int, int]:
    """Return how much of each change lies within the first `units`, by its order."""
    left = {}
    for change in changes:
        left[change.order] = min(change.units, units)
        units -= left[change.order]
    return left


def _independent_subset(operations: Iterable[NameOperation], rng: Random) -> list[NameOperation]:
    """Drop operations by chance, and those on names that a dropped one touched."""
    undone: set[tuple[int, str]] = set()
    kept = []
    for operation in operations:
        places = {change.place for change in operation}
        if undone & places or rng.random() < 0.5:
            undone |= places
        else:
            kept.append(operation)
    return kept


def _walk(
    directories: Iterable[Directory], names_of: Callable[[Directory], dict[str, Node]]
) -> Iterator[tuple[str, Node]]:
    """Yield path and node of everything below, parents first."""
    pending: list[tuple[str, Directory]] = [(each.name, each) for each in directories]
    while pending:
        above, directory = pending.pop()
        prefix = above if above in ("", "/") else f"{above}/"
        for name, node in sorted(names_of(directory).items()):
            path = prefix + name
            yield path, node
            if isinstance(node, Directory):
                pending.append((path, node))


def _dated(contents: MemoryBytes, file: FileNode) -> MemoryBytes:
    contents.mtime_ms = file.volatile.mtime_ms
    return contents


def _kept(file: FileNode) -> MemoryBytes:
    contents = file.durable.copy()
    for change in file.pending:
        change.apply(contents)
    return _dated(contents, file)


def _applied(file: FileNode, left: dict[int, int]) -> MemoryBytes:
    """Return the durable contents with the first units of each pending change."""
    contents = file.durable.copy()
    for change in file.pending:
        units = left[change.order]
        if units == change.units:
            change.apply(contents)
        elif units:
            assert change.data is not None
            contents.write_at(memoryview(change.data)[:units], change.position)
    return _dated(contents, file)


def _zeroed(file: FileNode) -> MemoryBytes:
    """Return contents of the final length without anything that was written."""
    contents = file.durable.copy()
    for change in file.pending:
        if change.data is None:
            contents.truncate(change.position)
        elif change.position + len(change.data) > contents.size:
            contents.truncate(change.position + len(change.data))
    return _dated(contents, file)


def _scattered(file: FileNode, rng: Random) -> MemoryBytes:
    """Return one of many things that may be left of a file."""
    if not file.pending:
        return _dated(file.durable.copy(), file)
    choice = rng.randrange(6)
    if choice == 0:
        return _applied(file, _first_units(file.pending, 0))
    if choice == 1:
        return _kept(file)
    if choice == 2:
        return _zeroed(file)
    if choice == 3:
        total = sum(change.units for change in file.pending)
        return _applied(file, _first_units(file.pending, rng.randint(0, total)))
    return _sectors_lost(file, rng, garbage=choice == 5)


def _sectors_lost(file: FileNode, rng: Random, *, garbage: bool) -> MemoryBytes:
    """Return contents of the final length in which some written sectors are missing."""
    contents = file.durable.copy()
    old_end = contents.size
    for change in file.pending:
        if change.data is None:
            contents.truncate(change.position)
            old_end = min(old_end, change.position)
            continue
        contents.truncate(max(contents.size, change.position + len(change.data)))
        for start, piece in _sectors(change.position, change.data):
            if rng.random() < 0.5:
                contents.write_at(memoryview(piece), start)
            elif garbage and start >= old_end:
                contents.write_at(memoryview(rng.randbytes(len(piece))), start)
    return _dated(contents, file)


def _sectors(position: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Cut written bytes at the borders of the disk's sectors."""
    end = position + len(data)
    start = position
    while start < end:
        stop = min(end, (start // SECTOR_SIZE + 1) * SECTOR_SIZE)
        yield start, data[start - position : stop - position]
        start = stop
