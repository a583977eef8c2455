"""`logstore.faults.disk`: a file system like any other, until its power is lost."""

from __future__ import annotations

import errno
import gc
import tracemalloc
from contextlib import closing

import pytest

from logstore import Broker, Cluster
from logstore.faults import disk
from logstore.faults.disk import FaultyDisk, Kind
from logstore.faults.faultfs import FaultyFileSystem
from logstore.faults.rules import DISK_KINDS, Call, Faults
from logstore.runtime import DiskFileSystem, MemoryFileSystem, VirtualClock
from tests.support.world.fs_suite import FileSystemSuite, Place, write_file
from tests.support.world.locks import HeldLock


def breakable(base, clock=None):
    return FaultyDisk(base, Faults(DISK_KINDS, clock or VirtualClock()))


class TestOverMemory(FileSystemSuite):
    @pytest.fixture
    def place(self):
        fs = breakable(MemoryFileSystem())
        fs.make_dirs("/data")
        return Place(fs, "/data", lambda path, data: write_file(fs, path, data))


@pytest.fixture(params=["memory", "disk"])
def place(request, tmp_path):
    base = MemoryFileSystem() if request.param == "memory" else DiskFileSystem()
    root = "/data" if request.param == "memory" else str(tmp_path / "data")
    base.make_dirs(root)
    return Place(breakable(base), root, lambda path, data: write_file(base, path, data))


def test_a_file_is_left_as_last_synced(place):
    path = place.file("a", b"0123456789")
    file = place.fs.open(path, write=True)
    file.write_at([b"xx"], 2)
    file.truncate(5)
    file.append([b"yyyyyyyyyyyy"])
    file.write_at([b"zz"], 0)
    file.close()
    place.fs.lose_power()
    assert place.read_all(path) == b"0123456789"


def test_a_power_loss_reverts_to_the_last_sync(place):
    path = place.file("a", b"0123456789")
    file = place.fs.open(path, write=True)
    file.write_at([b"xx"], 2)
    file.sync()
    file.write_at([b"zz"], 0)
    file.write_at([b"yy"], 3)
    file.close()
    place.fs.lose_power()
    assert place.read_all(path) == b"01xx456789"


def kept_bytes(fs):
    """Return how many bytes are kept for a loss of power."""
    return sum(
        len(data)
        for node in fs._pending.files.values()
        for change in node.changes
        for _, data in change.kept
    )


def preallocate(place, entries):
    """Return the path and the size of a file as indexes are: entries, and zeros."""
    size = 10 * 1024 * 1024
    path = place.file("index", entries)
    with closing(place.fs.open(path, write=True)) as file:
        file.truncate(size)
        file.sync()
    return path, size


def test_of_a_preallocated_file_only_what_was_written_is_kept(place):
    entries = b"8 bytes " * 5
    path, size = preallocate(place, entries)
    with closing(place.fs.open(path, write=True)) as file:
        for _ in range(3):  # as often as it is closed and opened
            file.truncate(len(entries))
            file.truncate(0)
            file.truncate(size)
            for number in range(10):
                file.write_at([b"%08d" % number], number * 8)
    assert kept_bytes(place.fs) == len(entries)
    place.fs.lose_power()
    data = place.read_all(path)
    assert (len(data), data.rstrip(b"\0")) == (size, entries)


def test_a_replaced_file_returns_without_zeros_being_written():
    base = MemoryFileSystem()
    base.make_dirs("/data")
    place = Place(breakable(base), "/data", lambda path, data: write_file(base, path, data))
    path, size = preallocate(place, b"old")
    place.file("new", b"new")
    place.fs.rename(place.path("new"), path)
    place.fs.lose_power()
    contents = dict(base.walk())[path]
    assert (contents.size, contents.written) == (size, len(b"old"))


def test_zeros_return_where_other_bytes_were_written(place, monkeypatch):
    monkeypatch.setattr(disk, "_PIECE_BYTES", 4)
    monkeypatch.setattr(disk, "_ZEROS", bytes(4))
    path = place.file("a", b"0123" + bytes(12) + b"6789")
    with closing(place.fs.open(path, write=True)) as file:
        for position in range(0, 20, 2):
            file.write_at([b"xx"], position)
        file.truncate(6)
        file.append([b"y" * 30])
    place.fs.lose_power()
    assert place.read_all(path) == b"0123" + bytes(12) + b"6789"


def held_mib(action):
    """Return what of the memory that an action took is still held."""
    gc.collect()
    tracemalloc.start()
    try:
        result = action()
        gc.collect()
        return result, tracemalloc.get_traced_memory()[0] / 2**20
    finally:
        tracemalloc.stop()


def test_a_fork_or_crash_holds_no_preallocated_indexes():
    """Two indexes of 10 MiB a partition, each cut twice, were 40 MiB a partition."""
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", partitions=3)
        broker.append("t", value=b"x", partition=0)
        fork, held = held_mib(broker.fork)
        fork.close()
        assert held < 3
        crashed, held = held_mib(broker.crash)
        crashed.close()
        assert held < 3


def test_restarts_of_a_cluster_hold_no_preallocated_indexes():
    with Cluster(brokers=3, clock=VirtualClock()) as cluster:
        cluster.create_topic("t", partitions=3, replication_factor=3)
        cluster.append("t", value=b"x", partition=0)

        def restart(power_loss):
            cluster.kill(1, power_loss=power_loss)
            cluster.restart(1)
            cluster.run_until(lambda: len(cluster.state("t", 0).isr) == 3)

        def restart_often():
            for number in range(4):
                restart(power_loss=number % 2 == 0)

        _, held = held_mib(restart_often)
        assert held < 3


def test_names_are_left_as_their_directory_was_synced(place):
    fs, base = place.fs, place.fs.base
    for name in ("a", "b"):
        place.file(name, name.encode())
    fs.make_dirs(place.path("new/below"))
    write_file(fs, place.path("new/below/file"), b"gone with its folder")
    fs.sync_dir(place.path("new/below"))
    fs.rename(place.path("a"), place.path("b"))
    write_file(fs, place.path("c"), b"")
    fs.lose_power()
    assert base.list_dir(place.root) == ["a", "b"]
    assert (place.read_all(place.path("a")), place.read_all(place.path("b"))) == (b"a", b"b")


def test_a_sync_of_the_directory_keeps_names_and_not_contents(place):
    fs = place.fs
    place.file("old", b"old")
    file = fs.open(place.path("new"), create=True)
    file.append([b"synced"])
    file.sync()
    file.append([b" and not"])
    file.close()
    fs.rename(place.path("new"), place.path("old"))
    fs.sync_dir(place.root)
    fs.lose_power()
    assert fs.base.list_dir(place.root) == ["old"]
    assert place.read_all(place.path("old")) == b"synced"


def test_a_failed_sync_is_not_credited_to_later_calls(place):
    fs = place.fs
    path = place.file("a", b"durable")
    rule = fs.faults.add("fsync", nth=1, when=lambda call: call.path == path)
    file = fs.open(path, write=True)
    file.append([b" lost"])
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    file.close()
    assert rule.hits == 1
    assert place.read_all(path) == b"durable lost"
    fs.lose_power()
    assert place.read_all(path) == b"durable"


def test_nothing_becomes_durable_once_the_power_is_cut(place):
    fs = place.fs
    file = fs.open(place.path("a"), create=True)
    file.append([b"1"])
    fs.cut_power()
    file.sync()
    file.close()
    fs.sync_dir(place.root)
    fs.remove(place.path("a"))
    fs.lose_power()
    assert fs.base.list_dir(place.root) == []


@pytest.mark.parametrize("kind", ("write", "read", "fsync", "rename", "swap"))
def test_operations_of_a_kind_fail_and_change_nothing(place, kind):
    fs = place.fs
    path, swap = place.file("a", b"1"), place.file("a.swap", b"2")
    file = fs.open(path, write=True)
    uses = {
        "write": [
            lambda: file.append([b"x"]),
            lambda: file.write_at([b"x"], 0),
            lambda: file.truncate(0),
        ],
        "read": [lambda: file.read(0, 1), lambda: file.read_into(memoryview(bytearray(1)), 0)],
        "fsync": [file.sync, lambda: fs.sync_dir(place.root)],
        "rename": [lambda: fs.rename(path, place.path("b")), lambda: fs.rename(swap, path)],
        "swap": [lambda: fs.rename(swap, path), lambda: fs.rename(path, place.path("c.swap"))],
    }[kind]
    rule = fs.faults.add(kind, error="ENOSPC")
    for use in uses:
        with pytest.raises(OSError, match="No space left") as caught:
            use()
        assert caught.value.errno == errno.ENOSPC
    assert rule.hits == len(uses)
    rule.remove()
    assert (place.read_all(path), place.read_all(swap)) == (b"1", b"2")
    file.close()


def test_a_call_names_the_partition_of_its_folder():
    fs = breakable(MemoryFileSystem())
    fs.make_dirs("/data/users-0")
    seen = []
    fs.faults.add("fsync", delay=1, when=lambda call: seen.append(call) or False)
    fs.faults.add("write", delay=1, when=lambda call: seen.append(call) or False)
    file = fs.open("/data/users-0/00000000000000000000.log", create=True)
    file.append([b"1"])
    fs.sync_dir("/data/users-0")
    fs.sync_dir("/data")
    assert [call.partitions for call in seen] == [(("users", 0),), (("users", 0),), ()]


@pytest.mark.parametrize("removed", ("file", "folder"))
def test_a_removal_is_durable_at_once(place, removed):
    fs = place.fs
    path = place.path("removed")
    if removed == "file":
        place.file("removed", b"durable")
        fs.remove(path)
    else:
        fs.base.make_dirs(path)
        fs.remove_dir(path)
    fs.lose_power()
    assert fs.base.list_dir(place.root) == []


@pytest.mark.parametrize("kind", (FaultyDisk, FaultyFileSystem))
def test_changes_of_a_removed_file_are_not_of_its_successor(kind):
    base = MemoryFileSystem()
    write_file(base, "/a", b"0123456789")
    if kind is FaultyDisk:
        fs, lost = breakable(base), lambda: fs.lose_power() or base
    else:
        fs = FaultyFileSystem(image=base)
        lost = fs.crash
    with closing(fs.open("/a", write=True)) as file:
        file.write_at([b"xx"], 2)
    fs.remove("/a")
    write_file(fs, "/a", b"new")
    fs.sync_dir("/")
    assert [(path, each.size) for path, each in lost().walk() if each] == [("/a", 0)]


def test_an_open_that_creates_nothing_tracks_its_changes(place):
    path = place.file("a", b"durable")
    with closing(place.fs.open(path, create=True)) as file:
        file.append([b" and not"])
    place.fs.lose_power()
    assert place.read_all(path) == b"durable"


def test_a_loss_of_power_leaves_the_times_of_files(place):
    path, name = place.file("a", b"durable"), place.path("new name")
    place.fs.base.set_mtime(path, 5_000)
    place.fs.rename(path, name)
    with closing(place.fs.open(name, write=True)) as file:
        file.append([b" and not"])
    place.fs.base.set_mtime(name, 6_000)
    place.fs.lose_power()
    assert place.fs.base.stat(path) == (7, 6_000)


def test_a_failed_sync_loses_only_what_was_pending(place):
    fs = place.fs
    path = place.file("a", b"durable")
    fs.faults.add("fsync", nth=1)
    with closing(fs.open(path, write=True)) as file:
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        assert fs.lost_contents is False
        file.append([b" too"])
        file.sync()
    fs.lose_power()
    assert place.read_all(path) == b"durable too"


def test_rules_see_the_current_names_of_open_files():
    fs = breakable(MemoryFileSystem())
    fs.make_dirs("/data/t-0")
    file = fs.open("/data/t-0/a", create=True)
    seen = []
    fs.faults.add("fsync", delay=1, when=lambda call: seen.append(call.path) or False)
    fs.rename("/data/t-0/a", "/data/t-0/b")
    file.sync()
    fs.rename("/data/t-0", "/data/t-1")
    file.sync()
    assert seen == ["/data/t-0/b", "/data/t-1/b"]


class Remembering(MemoryFileSystem):
    """Files in memory; all that were opened for reading are remembered."""

    def __init__(self):
        super().__init__()
        self.opened = []

    def open(self, path, *, write=False, create=False):
        file = super().open(path, write=write, create=create)
        if not write and not create:
            self.opened.append(file)
        return file

    def are_open(self):
        """Return of each file whether it is open."""
        return [is_open(file) for file in self.opened]


def is_open(file):
    try:
        file.size()
    except OSError:
        return False
    return True


def test_files_that_are_held_are_closed():
    fs = breakable(Remembering())

    def replace():
        write_file(fs, "/a", b"old")
        write_file(fs, "/b", b"new")
        fs.rename("/b", "/a")

    replace()
    assert fs.base.are_open() == [True]
    fs.sync_dir("/")
    assert fs.base.are_open() == [False]
    replace()
    assert fs.base.are_open() == [False, True]
    fs.lose_power()
    assert fs.base.are_open() == [False, False]
    write_file(fs, "/a", b"old")
    with pytest.raises(FileNotFoundError):
        fs.rename("/none", "/a")
    assert fs.base.are_open() == [False, False, False]


@pytest.mark.parametrize(
    ("kind", "rules"),
    (
        (Kind.CREATE, ("create", "change")),
        (Kind.WRITE, ("write", "change")),
        (Kind.TRUNCATE, ("write", "truncate", "change")),
        (Kind.SYNC, ("fsync", "change")),
        (Kind.RENAME, ("rename", "change")),
        (Kind.REMOVE, ("remove", "change")),
        (Kind.MAKE_DIR, ("make_dir", "change")),
        (Kind.REMOVE_DIR, ("remove_dir", "change")),
        (Kind.SYNC_DIR, ("fsync", "sync_dir", "change")),
        (Kind.SET_MTIME, ("set_mtime", "change")),
        (Kind.OPEN, ("open",)),
        (Kind.READ, ("read",)),
        (Kind.STAT, ("stat",)),
        (Kind.LIST, ("list",)),
        (Kind.SIZE, ("size",)),
        (Kind.LOCK, ("lock",)),
    ),
)
def test_kinds_of_rules_that_apply_to_each_kind_of_operation(kind, rules):
    assert kind.rules == rules


def test_calls_of_renames_name_both_paths_and_swaps_on_either_side():
    fs = breakable(MemoryFileSystem())
    fs.make_dirs("/data")
    seen = []
    for kind in ("rename", "swap"):
        fs.faults.add(
            kind,
            delay=1,
            when=lambda call: seen.append((call.kind, call.path, call.target)) or False,
        )
    write_file(fs, "/data/a", b"")
    for source, target in (("a", "b"), ("b", "c.swap"), ("c.swap", "d")):
        fs.rename(f"/data/{source}", f"/data/{target}")
    assert seen == [
        ("rename", "/data/a", "/data/b"),
        ("rename", "/data/b", "/data/c.swap"),
        ("swap", "/data/b", "/data/c.swap"),
        ("rename", "/data/c.swap", "/data/d"),
        ("swap", "/data/c.swap", "/data/d"),
    ]


def test_a_disk_that_forgets_nothing_keeps_nothing():
    fs = FaultyDisk(MemoryFileSystem(), Faults(DISK_KINDS, VirtualClock()), forgets=False)
    fs.make_dirs("/data")
    write_file(fs, "/data/a", b"1")
    with closing(fs.open("/data/a", write=True)) as file:
        file.write_at([b"2"], 0)
        file.truncate(0)
    fs.rename("/data/a", "/data/b")
    fs.remove("/data/b")
    fs.remove_dir("/data")
    assert (fs._pending.files, fs._pending.changes, fs._pending.displaced_dirs) == ({}, [], [])


class Watched(MemoryFileSystem):
    """A file system that records whether a lock is held during each change."""

    def __init__(self):
        super().__init__()
        self.lock = None
        self.changes = []

    def _note(self, name):
        if self.lock is not None:
            self.changes.append((name, self.lock.depth > 0))

    def open(self, path, *, write=False, create=False):
        self._note("open")
        return super().open(path, write=write, create=create)

    def rename(self, source, target):
        self._note("rename")
        super().rename(source, target)

    def remove(self, path):
        self._note("remove")
        super().remove(path)

    def remove_dir(self, path):
        self._note("remove_dir")
        super().remove_dir(path)

    def make_dirs(self, path):
        self._note("make_dirs")
        super().make_dirs(path)

    def sync_dir(self, path):
        self._note("sync_dir")
        super().sync_dir(path)


@pytest.mark.parametrize("forgets", (False, True))
def test_names_change_under_a_lock(forgets):
    """The name in the base and the change to undo belong together."""
    base = Watched()
    fs = FaultyDisk(base, Faults(DISK_KINDS, VirtualClock()), forgets=forgets)
    base.lock = fs._lock = HeldLock(fs._lock)
    fs.make_dirs("/d/e")
    fs.open("/d/f", create=True).close()
    fs.rename("/d/f", "/d/e/f")
    fs.sync_dir("/d/e")
    fs.remove("/d/e/f")
    fs.remove_dir("/d/e")
    fs.make_dirs("/d/g")
    if forgets:
        fs.lose_power()
        assert not base.exists("/d")
    assert {name for name, _ in base.changes} >= {
        *("make_dirs", "open", "rename", "remove", "remove_dir", "sync_dir")
    }  # fmt: skip
    assert [name for name, is_held in base.changes if not is_held] == []


def test_rules_are_added_removed_and_applied_under_a_lock():
    faults = Faults(DISK_KINDS, VirtualClock())
    lock = faults._lock = HeldLock(faults._lock)
    for expected, call in enumerate(
        (
            lambda: faults.add("write", error="ENOSPC", times=2),
            lambda: faults.apply_to(Call("write", (), path="/a")),
            lambda: faults.rules[0].remove(),
            faults.clear,
        ),
        1,
    ):
        call()
        assert (lock.entered, lock.depth) == (expected, 0)
