"""OverlayFileSystem: the shared suite over each base, and the base it must leave alone."""

import os
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from logstore.runtime import (
    DiskFileSystem,
    FileKind,
    MemoryFileSystem,
    OverlayFileSystem,
    ReadOnlyFileSystem,
    VirtualClock,
)
from tests.support.world.fs_suite import BLOCK, FileSystemSuite, Place, write_file


def make_base(kind, tmp_path):
    if kind == "disk":
        return DiskFileSystem(), str(tmp_path)
    base = MemoryFileSystem()
    base.make_dirs("/data")
    return base, "/data"


@pytest.fixture(params=["disk", "memory"])
def base_and_root(request, tmp_path):
    return make_base(request.param, tmp_path)


class TestOverlayOverFilesOfItsBase(FileSystemSuite):
    """The files a test prepares are the base's; it is only ever read through."""

    renames_directories = False

    @pytest.fixture
    def place(self, base_and_root):
        base, root = base_and_root
        fs = OverlayFileSystem(ReadOnlyFileSystem(base))
        return Place(fs, root, lambda path, data: write_file(base, path, data))


class TestOverlayOverFilesOfItsOwn(FileSystemSuite):
    renames_directories = False

    @pytest.fixture
    def place(self, base_and_root):
        base, root = base_and_root
        fs = OverlayFileSystem(ReadOnlyFileSystem(base))
        return Place(fs, root, lambda path, data: write_file(fs, path, data))


class TestOverlayOverAnOverlay(FileSystemSuite):
    renames_directories = False

    @pytest.fixture
    def place(self, tmp_path):
        middle = OverlayFileSystem(ReadOnlyFileSystem(DiskFileSystem()))
        fs = OverlayFileSystem(ReadOnlyFileSystem(middle))
        return Place(fs, str(tmp_path), lambda path, data: write_file(middle, path, data))


class TestOverlayInADirectoryOfItsOwn(FileSystemSuite):
    renames_directories = False

    @pytest.fixture
    def place(self, base_and_root):
        base, root = base_and_root
        fs = OverlayFileSystem(ReadOnlyFileSystem(base))
        fs.make_dirs(f"{root}/own/dir")
        return Place(fs, f"{root}/own/dir", lambda path, data: write_file(fs, path, data))


def fingerprint(directory: Path):
    """Names, contents, and times to the nanosecond, of files and directories."""
    return {
        str(path.relative_to(directory)): (
            path.stat().st_mtime_ns,
            path.stat().st_mode,
            sha256(path.read_bytes()).hexdigest() if path.is_file() else None,
        )
        for path in [directory, *sorted(directory.rglob("*"))]
    }


def test_nothing_beneath_changes(tmp_path):
    disk = DiskFileSystem()
    disk.make_dirs(f"{tmp_path}/topic-0")
    for number in range(6):
        write_file(disk, f"{tmp_path}/topic-0/{number}.log", bytes([number]) * (BLOCK + number))
    for path in tmp_path.rglob("*.log"):
        os.utime(path, ns=(1_000_000_001, 1_000_000_001))
    before = fingerprint(tmp_path)
    fs = OverlayFileSystem(disk)
    root = f"{tmp_path}/topic-0"
    file = fs.open(f"{root}/0.log", write=True)
    file.append([b"more"])
    file.write_at([b"x"], 10)
    file.sync()
    fs.open(f"{root}/1.log", write=True).truncate(5)
    fs.rename(f"{root}/2.log", f"{root}/2.log.deleted")
    fs.rename(f"{root}/3.log", f"{root}/4.log")
    fs.remove(f"{root}/5.log")
    fs.set_mtime(f"{root}/4.log", 99)
    write_file(fs, f"{root}/new", b"new")
    fs.make_dirs(f"{tmp_path}/other-1/deep")
    fs.sync_dir(root)
    assert fs.list_dir(root) == ["0.log", "1.log", "2.log.deleted", "4.log", "new"]
    assert fs.list_dir(str(tmp_path)) == ["other-1", "topic-0"]
    assert fs.stat(f"{root}/4.log") == (BLOCK + 3, 99)
    assert fingerprint(tmp_path) == before


def test_a_write_far_into_the_base_keeps_what_is_around_it(base_and_root):
    base, root = base_and_root
    data = bytes(range(256)) * (BLOCK // 64)
    write_file(base, f"{root}/a", data)
    file = OverlayFileSystem(base).open(f"{root}/a", write=True)
    file.truncate(len(data) + 100)
    expected = bytearray(data + bytes(100))
    for position, piece in ((3 * BLOCK, b"one"), (2 * BLOCK + 9, b"two"), (len(data) + 50, b"3")):
        file.write_at([piece], position)
        expected[position : position + len(piece)] = piece
        assert file.read(0, len(expected) + 1) == expected
        view = bytearray(len(expected))
        assert file.read_into(memoryview(view), 0) == len(expected)
        assert view == expected
    file.truncate(BLOCK)
    file.truncate(BLOCK + 10)
    assert file.read(BLOCK - 5, 100) == expected[BLOCK - 5 : BLOCK] + bytes(10)
    file.close()


def test_times_show_through_until_a_change(base_and_root):
    base, root = base_and_root
    write_file(base, f"{root}/a", b"abc")
    base.set_mtime(f"{root}/a", 123_000)
    clock = VirtualClock(1_000_000_000_000)
    fs = OverlayFileSystem(base, clock)
    assert fs.stat(f"{root}/a") == (3, 123_000)
    file = fs.open(f"{root}/a", write=True)
    assert fs.stat(f"{root}/a") == (3, 123_000)
    file.append([b"d"])
    assert fs.stat(f"{root}/a") == (4, 1_000_000_000_000)
    write_file(fs, f"{root}/b", b"")
    assert fs.stat(f"{root}/b") == (0, 1_000_000_000_000)


def test_a_name_can_pass_from_a_file_to_a_directory(base_and_root):
    base, root = base_and_root
    write_file(base, f"{root}/a", b"abc")
    fs = OverlayFileSystem(base)
    fs.remove(f"{root}/a")
    assert fs.list_dir(root) == []
    fs.make_dirs(f"{root}/a")
    assert fs.exists(f"{root}/a")
    assert fs.is_dir(f"{root}/a")
    assert fs.list_dir(root) == ["a"]
    fs.remove_dir(f"{root}/a")
    assert fs.list_dir(root) == []
    assert not fs.exists(f"{root}/a")


def test_directories_of_the_base_are_retained(base_and_root):
    base, root = base_and_root
    base.make_dirs(f"{root}/d")
    fs = OverlayFileSystem(base)
    with pytest.raises(OSError, match="Read-only"):
        fs.remove_dir(f"{root}/d")
    with pytest.raises(OSError, match="Read-only"):
        fs.rename(f"{root}/d", f"{root}/e")


class Counting(DiskFileSystem):
    """A disk that knows which of the files opened on it are open."""

    def __init__(self):
        super().__init__()
        self._opened = []

    def open(self, path, *, write=False, create=False):
        file = super().open(path, write=write, create=create)
        self._opened.append(file)
        return file

    def open_now(self):
        count = 0
        for file in self._opened:
            try:
                file.size()
                count += 1
            except OSError:
                pass
        return count


def test_a_base_file_is_open_only_while_a_handle_is(tmp_path):
    disk = Counting()
    for number in range(3):
        write_file(disk, f"{tmp_path}/{number}", b"abc")
    fs = OverlayFileSystem(disk)
    first, second = fs.open(f"{tmp_path}/0"), fs.open(f"{tmp_path}/0", write=True)
    other = fs.open(f"{tmp_path}/1")
    assert disk.open_now() == 2
    second.append([b"d"])
    first.close()
    first.close()
    assert disk.open_now() == 2
    assert second.read(0, 10) == b"abcd"
    second.close()
    del other  # lost, not closed
    assert disk.open_now() == 0
    third = fs.open(f"{tmp_path}/0")
    assert third.read(0, 10) == b"abcd"
    third.close()
    fs.stat(f"{tmp_path}/2")
    fs.rename(f"{tmp_path}/2", f"{tmp_path}/3")
    assert disk.open_now() == 0


def test_a_listing_holds_together_while_the_base_changes(tmp_path):
    class Changing(DiskFileSystem):
        """Another process replaces a file between any two looks at the directory."""

        def _replace(self):
            for path in tmp_path.iterdir():
                path.rename(tmp_path / str(int(path.name) + 1))

        def list_dir(self, path):
            self._replace()
            return super().list_dir(path)

        def kinds(self, path):
            self._replace()
            return super().kinds(path)

    (tmp_path / "1").touch()
    fs = OverlayFileSystem(Changing())
    names = [(name, kind) for _ in range(3) for name, kind in fs.kinds(str(tmp_path)).items()]
    assert names == [(str(number), FileKind.FILE) for number in (2, 3, 4)]


# -- a base that others change -------------------------------------------------------------------


def test_a_held_file_is_readable_until_its_release(tmp_path):
    """Whatever becomes of the name, the file, and its folder, in the base."""
    disk = Counting()
    folder = f"{tmp_path}/t-0"
    disk.make_dirs(folder)
    names = ["0", "1"]
    for name in names:
        write_file(disk, f"{folder}/{name}", b"abc")
    fs = OverlayFileSystem(disk)
    for name in names:
        fs.pin(f"{folder}/{name}")
        disk.remove(f"{folder}/{name}")
    disk.remove_dir(folder)
    assert disk.open_now() == 2
    assert fs.is_dir(folder)
    assert fs.exists(folder)
    for _ in range(2):
        with closing(fs.open(f"{folder}/0")) as file:
            assert file.read(0, 10) == b"abc"
    fs.unpin(f"{folder}/0")
    fs.unpin(f"{folder}/0")
    assert disk.open_now() == 1
    with pytest.raises(FileNotFoundError):
        fs.open(f"{folder}/0")
    with closing(fs.open(f"{folder}/1")) as file:
        assert file.read(0, 10) == b"abc"
    fs.refresh(folder)
    assert disk.open_now() == 0
    assert not fs.exists(folder)
    assert not fs.is_dir(folder)
    assert not fs.exists(f"{folder}/1")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{folder}/1")


def test_a_refresh_forgets_what_was_changed_below_a_directory_and_nothing_else(base_and_root):
    base, root = base_and_root
    for name in ("a/b/c", "d"):
        base.make_dirs(f"{root}/{name}")
        write_file(base, f"{root}/{name}/file", b"abc")
    fs = OverlayFileSystem(base)
    for name in ("a", "a/b", "a/b/c", "d"):
        write_file(fs, f"{root}/{name}/own", b"")
        fs.make_dirs(f"{root}/{name}/dir/deep")
    for name in ("a/b/c", "d"):
        fs.rename(f"{root}/{name}/file", f"{root}/{name}/renamed")
    fs.refresh(f"{root}/a")
    for name, left in (("a", ["b"]), ("a/b", ["c"]), ("a/b/c", ["file"])):
        assert fs.list_dir(f"{root}/{name}") == left
        assert not fs.exists(f"{root}/{name}/own")
        assert not fs.exists(f"{root}/{name}/dir")
        assert not fs.is_dir(f"{root}/{name}/dir/deep")
    with closing(fs.open(f"{root}/a/b/c/file")) as file:
        assert file.read(0, 10) == b"abc"
    assert fs.list_dir(f"{root}/d") == ["dir", "own", "renamed"]
    assert fs.is_dir(f"{root}/d/dir/deep")
