"""Crashes, and which changes survive them.

`logstore.faults.disk` records the changes and describes the model. A `CrashMode` determines which
changes survive. Pending contents can be

- DROPPED: as last fsynced;
- KEPT: as seen by open handles;
- TORN: the first `cut` units over all files survive, in the order in which they were made. Each
  written byte and each truncation is a unit, so contents can end after any byte;
- ZEROED: sizes survive, but new bytes read as zeros, and overwritten bytes have their old values.
  ext4 and xfs may do this for blocks that were allocated but not yet written;
- SCATTERED: depending on `seed`, either one of the above for each file, or each 512-byte sector is
  either written or not. Sectors that were not written are zeros, or garbage after the old end.

Pending names can be UNDONE, KEPT, a PREFIX of `names_kept` changes, or a SUBSET that depends on
`seed`. If a change is undone, later changes of the same names are undone as well. Renames are thus
atomic, a name never gets a state that it never had, and changes of different names may be
reordered.

Modification times survive. Not modelled: damage to synced data, disks that ignore flushes, hard
links, memory maps, failures of `close`, and machines that continue after the crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from logstore.faults.disk import Change, Fate, FileNode, NameChange, Pending, dated
from logstore.runtime.environment import Random, random_source
from logstore.runtime.fs import File, FileSystem

SECTOR_SIZE = 512


class Contents(Enum):
    """What happens to unsynced contents."""

    DROPPED = "dropped"
    KEPT = "kept"
    TORN = "torn"
    ZEROED = "zeroed"
    SCATTERED = "scattered"


class Names(Enum):
    """What happens to names in unsynced directories."""

    UNDONE = "undone"
    KEPT = "kept"
    PREFIX = "prefix"
    SUBSET = "subset"


@dataclass(frozen=True, slots=True)
class CrashMode:
    """What happens to pending changes; see the module docstring."""

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


def apply_crash(fs: FileSystem, pending: Pending, mode: CrashMode) -> None:
    """Change files to their state after a crash.

    Parameters
    ----------
    fs : FileSystem
        The files, or a copy, with all changes as seen by open handles.
    pending : Pending
        Changes that are not durable. Its names must not be used after this call.
    """
    rng = random_source(mode.seed)
    changes = sorted(pending.contents, key=lambda change: change.order)
    left = _first_units(changes, mode.cut if mode.contents is Contents.TORN else 0)
    kept = _kept_names(pending.changes, mode, rng)
    pending.undo(fs, [change for change in pending.changes if change not in kept])
    for path, node in pending.changed_files(fs):
        if mode.contents is not Contents.KEPT or node.is_lossy:
            with dated(fs, path) as file:
                _apply_crash_to_contents(file, node, mode.contents, left, rng)


def _kept_names(changes: Sequence[NameChange], mode: CrashMode, rng: Random) -> list[NameChange]:
    if mode.names is not Names.SUBSET:
        count = {Names.UNDONE: 0, Names.KEPT: len(changes)}.get(mode.names, mode.names_kept)
        return list(changes[:count])
    undone: set[str] = set()
    kept = []
    for change in changes:
        if not undone.isdisjoint(change.places) or rng.random() < 0.5:
            undone.update(change.places)
        else:
            kept.append(change)
    return kept


def _first_units(changes: Iterable[Change], units: int) -> dict[int, int]:
    """Return how much of each change is within the first `units`, by order."""
    left = {}
    for change in changes:
        left[change.order] = min(change.units, units)
        units -= left[change.order]
    return left


class _UndoneChange(NamedTuple):
    """An undone change of contents. A truncation has no data."""

    change: Change
    data: bytes | None

    @property
    def position(self) -> int:
        """Start of the change, or the new size for a truncation."""
        return self.change.position

    def apply(self, file: File, units: int | None = None) -> None:
        """Reapply the change, or only its first units."""
        if self.data is not None:
            file.write_at([self.data[:units]], self.position)
        elif units != 0:
            file.truncate(self.position)


def _apply_crash_to_contents(
    file: File, node: FileNode, mode: Contents, left: dict[int, int], rng: Random
) -> None:
    redo = _roll_back(file, node)
    if mode is Contents.KEPT:
        _apply(file, redo)
    elif mode is Contents.ZEROED:
        _apply_zeros(file, redo)
    elif mode is Contents.SCATTERED:
        _scatter(file, redo, rng)
    else:
        _apply_first(file, redo, left)


def _roll_back(file: File, node: FileNode) -> list[_UndoneChange]:
    """Undo all changes that are not durable. Return the pending changes, oldest first."""
    redo = []
    for change in reversed(node.changes):
        data = None if change.length is None else file.read(change.position, change.length)
        redo.append(_UndoneChange(change, data))
        change.undo(file)
    redo.reverse()
    _apply(file, (each for each in redo if each.change.fate is Fate.DURABLE))
    return [each for each in redo if each.change.fate is Fate.PENDING]


def _apply(file: File, redo: Iterable[_UndoneChange]) -> None:
    for each in redo:
        each.apply(file)


def _apply_first(file: File, redo: Iterable[_UndoneChange], left: Mapping[int, int]) -> None:
    for each in redo:
        each.apply(file, left[each.change.order])


def _apply_zeros(file: File, redo: Iterable[_UndoneChange]) -> None:
    """Set the final size of the file without the written bytes."""
    for each in redo:
        if each.data is None:
            file.truncate(each.position)
        else:
            file.truncate(max(file.size(), each.position + len(each.data)))


def _scatter(file: File, redo: Sequence[_UndoneChange], rng: Random) -> None:
    """Leave one of many possible contents, chosen at random."""
    if not redo:
        return
    choice = rng.randrange(6)
    if choice == 1:
        _apply(file, redo)
    elif choice == 2:
        _apply_zeros(file, redo)
    elif choice == 3:
        changes = [each.change for each in redo]
        units = rng.randint(0, sum(change.units for change in changes))
        _apply_first(file, redo, _first_units(changes, units))
    elif choice:
        _apply_sectors(file, redo, rng, garbage=choice == 5)


def _apply_sectors(
    file: File, redo: Iterable[_UndoneChange], rng: Random, *, garbage: bool
) -> None:
    """Set the final size of the file without some of the written sectors."""
    old_end = file.size()
    for each in redo:
        if each.data is None:
            file.truncate(each.position)
            old_end = min(old_end, each.position)
            continue
        file.truncate(max(file.size(), each.position + len(each.data)))
        for start, piece in _sectors(each.position, each.data):
            if rng.random() < 0.5:
                file.write_at([piece], start)
            elif garbage and start >= old_end:
                file.write_at([rng.randbytes(len(piece))], start)


def _sectors(position: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Split written bytes at sector boundaries."""
    start, end = position, position + len(data)
    while start < end:
        stop = min(end, (start // SECTOR_SIZE + 1) * SECTOR_SIZE)
        yield start, data[start - position : stop - position]
        start = stop
