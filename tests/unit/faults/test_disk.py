"""`logstore.faults.disk`: a file system like any other, until its power is lost."""

from __future__ import annotations

import errno

import pytest

from logstore.faults.disk import BreakableFileSystem
from logstore.faults.rules import DISK_KINDS, Faults
from logstore.runtime import DiskFileSystem, MemoryFileSystem, VirtualClock
from tests.support.world.fs_suite import FileSystemSuite, Place, write_file


def breakable(base, clock=None):
    return BreakableFileSystem(base, Faults(DISK_KINDS, clock or VirtualClock()))


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


def test_a_sync_is_where_the_next_loss_goes_back_to(place):
    path = place.file("a", b"0123456789")
    file = place.fs.open(path, write=True)
    file.write_at([b"xx"], 2)
    file.sync()
    file.write_at([b"zz"], 0)
    file.write_at([b"yy"], 3)
    file.close()
    place.fs.lose_power()
    assert place.read_all(path) == b"01xx456789"


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


def test_a_failed_sync_helps_nobody_later(place):
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
