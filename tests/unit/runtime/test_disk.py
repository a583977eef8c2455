"""DiskFileSystem: the shared suite, and what only a disk has."""

import os

import pytest

from logstore.runtime import DiskFileSystem, FixedWallClock, SystemClock, VirtualClock
from logstore.runtime.fs import DiskFile
from tests.support.fs_suite import FileSystemSuite, Place, write_file


class TestDiskFileSystem(FileSystemSuite):
    @pytest.fixture
    def place(self, tmp_path):
        fs = DiskFileSystem()
        return Place(fs, str(tmp_path), lambda path, data: write_file(fs, path, data))


class TestDiskFileSystemWithOtherClock(FileSystemSuite):
    """Stamping every write changes nothing else."""

    @pytest.fixture
    def place(self, tmp_path):
        fs = DiskFileSystem(FixedWallClock(1_700_000_000_000))
        return Place(fs, str(tmp_path), lambda path, data: write_file(fs, path, data))


def test_files_bear_the_time_of_a_clock_that_is_not_the_machines(tmp_path):
    clock = VirtualClock(1_000_000_000_000)
    fs = DiskFileSystem(clock)
    path = f"{tmp_path}/a"
    file = fs.open(path, create=True)
    assert fs.stat(path) == (0, 1_000_000_000_000)
    for change in (
        lambda: file.append([b"abc"]),
        lambda: file.write_at([b"x"], 1),
        lambda: file.truncate(2),
    ):
        clock.advance(seconds=1)
        change()
        assert fs.stat(path).mtime_ms == clock.now_ms()
    clock.advance(seconds=1)
    file.write_at([], 0)
    fs.open(path, create=True).close()
    assert fs.stat(path) == (2, clock.now_ms() - 1000)
    file.close()


def test_the_systems_own_clock_leaves_stamping_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "utime", lambda *_args, **_options: pytest.fail("stamped"))
    write_file(DiskFileSystem(SystemClock()), f"{tmp_path}/a", b"abc")


def test_files_are_made_readable_for_all_but_writable_for_the_owner(tmp_path):
    before = os.umask(0)
    try:
        write_file(DiskFileSystem(), f"{tmp_path}/a", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


def test_short_reads_and_writes_are_continued(tmp_path, monkeypatch):
    """The system may transfer less than asked; three bytes a call here."""
    path = f"{tmp_path}/a"
    file = DiskFileSystem().open(path, create=True)
    pread, preadv, pwritev = os.pread, os.preadv, os.pwritev
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at))
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:3]], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, views, at: pwritev(fd, [views[0][:3]], at))
    file.write_at([b"0123456", b"", b"78", b"9abcdef"], 2)
    assert file.read(0, 100) == b"\0\x000123456789abcdef"
    view = bytearray(16)
    assert file.read_into(memoryview(view), 2) == 16
    assert view == b"0123456789abcdef"
    file.close()


def test_a_lost_handle_gives_its_descriptor_back(tmp_path):
    write_file(DiskFileSystem(), f"{tmp_path}/a", b"abc")
    descriptor = os.open(f"{tmp_path}/a", os.O_RDONLY)
    file = DiskFile(descriptor, f"{tmp_path}/a", None)
    del file
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_a_refused_directory_leaves_no_descriptor_open(tmp_path):
    def lowest_free_descriptor():
        descriptor = os.open(tmp_path, os.O_RDONLY)
        os.close(descriptor)
        return descriptor

    free = lowest_free_descriptor()
    with pytest.raises(IsADirectoryError):
        DiskFileSystem().open(str(tmp_path))
    assert lowest_free_descriptor() == free


def test_extending_by_truncate_takes_no_space(tmp_path):
    file = DiskFileSystem().open(f"{tmp_path}/a", create=True)
    file.truncate(10 << 20)
    assert file.size() == 10 << 20
    assert (tmp_path / "a").stat().st_blocks * 512 < 1 << 20
    file.close()
