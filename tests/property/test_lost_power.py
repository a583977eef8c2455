"""Faulty disks against a reference model: they leave the same files after a loss of power.

The same random operations go to a `FaultyDisk`, a `FaultyFileSystem` and the model, in memory.
Removals are followed by a sync of the directory, since a `FaultyDisk` makes them durable at once.
"""

from __future__ import annotations

from contextlib import suppress

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from logstore.faults.disk import FaultyDisk
from logstore.faults.faultfs import FaultyFileSystem
from logstore.faults.rules import DISK_KINDS, Faults
from logstore.runtime import (
    FileSystem,
    MemoryFileSystem,
    VirtualClock,
    directory_of,
    remove_tree,
)
from logstore.testing import Contents, CrashMode, Names
from tests.support.oracles.disk_model import DiskModel

ROOT = "/data"
NAMES = ("a", "x/a", "x/b", "x/y/a")
names = st.sampled_from(NAMES)
folders = st.sampled_from(["", "x", "x/y", "z"])
positions = st.integers(0, 24)
sizes = st.integers(0, 12)


def data_of(fs: MemoryFileSystem) -> dict[str, bytes | None]:
    return {path: None if found is None else found.read(0, found.size) for path, found in fs.walk()}


def dated(fs: MemoryFileSystem) -> dict[str, tuple[bytes | None, int]]:
    dates = {path: 0 if found is None else found.mtime_ms for path, found in fs.walk()}
    return {path: (data, dates[path]) for path, data in data_of(fs).items()}


class PowerMachine(RuleBasedStateMachine):
    """Random changes until the power is lost, then more changes to the remaining files."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock(1_000_000)
        self.base = MemoryFileSystem(self.clock)
        for name in NAMES:
            self.base.make_dirs(directory_of(f"{ROOT}/{name}"))
            self.base.open(f"{ROOT}/{name}", create=True).append(
                [b"from the start: " + name.encode()]
            )
        self.begin()

    def begin(self) -> None:
        self.broken = FaultyDisk(self.base, Faults(DISK_KINDS, self.clock))
        self.recorded = FaultyFileSystem(self.clock, self.base)
        self.model = DiskModel(data_of(self.base))
        self.serial = 0

    def both(self, change) -> bool:
        """Make a change everywhere, or nowhere."""
        done = []
        for fs in (self.recorded, self.broken):
            with suppress(OSError):
                change(fs)
                done.append(fs)
        assert len(done) in (0, 2)
        if done:
            change(self.model)
        return bool(done)

    def on_file(self, name: str, change) -> None:
        def opened(fs: FileSystem) -> None:
            file = fs.open(f"{ROOT}/{name}", write=True)
            change(file)
            file.close()

        self.clock.advance(ms=1)
        self.both(opened)

    @rule(name=names)
    def create(self, name: str) -> None:
        self.both(lambda fs: fs.open(f"{ROOT}/{name}", create=True).close())

    @rule(name=names, size=sizes)
    def append(self, name: str, size: int) -> None:
        self.serial += 1
        self.on_file(name, lambda file: file.append([b"%c" % (65 + self.serial % 26) * size]))

    @rule(name=names, position=positions, size=sizes)
    def write(self, name: str, position: int, size: int) -> None:
        self.serial += 1
        data = b"%c" % (97 + self.serial % 26) * size
        self.on_file(name, lambda file: file.write_at([data], position))

    @rule(name=names, position=positions, size=sizes)
    def write_zeros(self, name: str, position: int, size: int) -> None:
        self.on_file(name, lambda file: file.write_at([bytes(size)], position))

    @rule(name=names, size=positions)
    def truncate(self, name: str, size: int) -> None:
        self.on_file(name, lambda file: file.truncate(size))

    @rule(name=names)
    def sync(self, name: str) -> None:
        self.on_file(name, lambda file: file.sync())

    @rule(folder=folders)
    def make_dirs(self, folder: str) -> None:
        self.both(lambda fs: fs.make_dirs(f"{ROOT}/{folder}".rstrip("/")))

    @rule(folder=folders)
    def sync_dir(self, folder: str) -> None:
        self.both(lambda fs: fs.sync_dir(f"{ROOT}/{folder}".rstrip("/")))

    @rule(old=names, new=names)
    def rename(self, old: str, new: str) -> None:
        self.both(lambda fs: fs.rename(f"{ROOT}/{old}", f"{ROOT}/{new}"))

    @rule(old=folders.filter(bool), new=folders.filter(bool))
    def rename_folder(self, old: str, new: str) -> None:
        if not self.base.exists(f"{ROOT}/{new}"):
            self.both(lambda fs: fs.rename(f"{ROOT}/{old}", f"{ROOT}/{new}"))

    @rule(name=names)
    def remove(self, name: str) -> None:
        path = f"{ROOT}/{name}"

        def remove(fs: FileSystem) -> None:
            fs.remove(path)
            fs.sync_dir(directory_of(path))

        self.both(remove)

    @rule(folder=folders.filter(bool), chance=st.integers(0, 4))
    def remove_folder(self, folder: str, chance: int) -> None:
        if chance:
            return  # or little would be there
        path = f"{ROOT}/{folder}"

        def remove(fs: FileSystem) -> None:
            fs.sync_dir(path)
            remove_tree(fs, path)
            fs.sync_dir(directory_of(path))

        self.both(remove)

    @rule(chance=st.integers(0, 4))
    def lose_power(self, chance: int = 0) -> None:
        if chance:
            return  # or little would be pending
        left = self.recorded.crash()
        for contents, keeps in ((Contents.DROPPED, False), (Contents.KEPT, True)):
            for kept in range(self.recorded.pending_names + 1):
                crashed = self.recorded.crash(CrashMode(contents, Names.PREFIX, names_kept=kept))
                assert data_of(crashed) == self.model.crash(contents=keeps, names=kept)
        self.broken.lose_power()
        assert dated(self.base) == dated(left)
        assert data_of(left) == self.model.crash(contents=False, names=0)
        self.begin()

    def teardown(self) -> None:
        self.lose_power()


TestPower = PowerMachine.TestCase
TestPower.settings = settings(max_examples=60, stateful_step_count=30)
