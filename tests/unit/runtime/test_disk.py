"""DiskFileSystem: the shared suite, and what only a disk has."""

import errno
import os
import sys

import pytest

from logstore.runtime import (
    DiskFileSystem,
    FileKind,
    FixedWallClock,
    NotRegularFileError,
    SystemClock,
    VirtualClock,
    clear_folder,
    open_anew,
    remove_tree,
)
from logstore.runtime.fs import DiskFile
from tests.support.world.fs_suite import FileSystemSuite, Place, write_file
from tests.support.world.messages import exactly
from tests.support.world.special_files import (
    PRECIOUS,
    files_below,
    make_precious,
    make_socket,
    no_hang,
)


class TestDiskFileSystem(FileSystemSuite):
    @pytest.fixture
    def place(self, tmp_path):
        fs = DiskFileSystem()
        return Place(fs, str(tmp_path), lambda path, data: write_file(fs, path, data))


class TestDiskFileSystemWithOtherClock(FileSystemSuite):
    """Setting the time of every write has no other effect."""

    @pytest.fixture
    def place(self, tmp_path):
        fs = DiskFileSystem(FixedWallClock(1_700_000_000_000))
        return Place(fs, str(tmp_path), lambda path, data: write_file(fs, path, data))


def test_files_have_the_time_of_a_clock_that_is_not_the_machines(tmp_path):
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


# -- links and special files -----------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path):
    """A folder next to the tests' folder, and its files."""
    return make_precious(tmp_path / "outside")


def links(folder, outside):
    """Make a link of every sort in a folder; return their names."""
    targets = {
        "to-file": outside / "one",
        "to-folder": outside,
        "dangling": outside / "none",
        "loop": folder / "loop",
        "to-parent": folder,
    }
    for name, target in targets.items():
        (folder / name).symlink_to(target)
    return sorted(targets)


def test_removal_takes_links_and_leaves_where_they_lead(tmp_path, outside):
    fs = DiskFileSystem()
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    names = links(tree, outside)
    links(tree / "inner", outside)
    before = files_below(outside)
    assert {name: fs.kinds(str(tree))[name] for name in names} == dict.fromkeys(
        names, FileKind.LINK
    )
    assert all(fs.kind(f"{tree}/{name}") is FileKind.LINK for name in names)
    clear_folder(fs, str(tree))
    assert list(tree.iterdir()) == []
    for name in links(tree, outside):
        remove_tree(fs, f"{tree}/{name}")
        assert not (tree / name).is_symlink()
    assert files_below(outside) == before
    assert tree.is_dir()


def test_a_tree_deeper_than_the_stack_is_removed(tmp_path):
    fs = DiskFileSystem()
    tree = tmp_path / "tree"
    tree.mkdir()
    descriptor = os.open(tree, os.O_RDONLY)
    for _ in range(sys.getrecursionlimit()):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    remove_tree(fs, str(tree))
    assert list(tmp_path.iterdir()) == []


def test_renaming_a_link_moves_the_link(tmp_path, outside):
    (tmp_path / "a").symlink_to(outside)
    (tmp_path / "b").symlink_to(outside / "one")
    fs = DiskFileSystem()
    fs.rename(f"{tmp_path}/a", f"{tmp_path}/c")
    write_file(fs, f"{tmp_path}/new", b"new")
    fs.rename(f"{tmp_path}/new", f"{tmp_path}/b")
    assert (tmp_path / "c").readlink() == outside
    assert files_below(outside) == PRECIOUS
    assert not (tmp_path / "b").is_symlink()


@pytest.mark.parametrize("options", ({"write": True}, {"create": True}), ids=str)
def test_no_file_is_written_through_a_link(tmp_path, outside, options):
    fs = DiskFileSystem()
    for name in set(links(tmp_path, outside)) - {"to-folder", "to-parent"}:
        path = f"{tmp_path}/{name}"
        with pytest.raises(NotRegularFileError, match="symbolic link") as caught:
            fs.open(path, **options)
        assert caught.value.filename == path
        open_anew(fs, path).close()
        assert fs.kind(path) is FileKind.FILE
    assert files_below(outside) == PRECIOUS


def test_a_file_is_read_through_a_link(tmp_path, outside):
    links(tmp_path, outside)
    file = DiskFileSystem().open(f"{tmp_path}/to-file")
    assert file.read(0, 10) == b"1"
    file.close()


def test_dating_a_link_leaves_where_it_leads(tmp_path, outside):
    links(tmp_path, outside)
    before = (outside / "one").stat().st_mtime_ns
    DiskFileSystem().set_mtime(f"{tmp_path}/to-file", 1_000)
    assert (outside / "one").stat().st_mtime_ns == before


def test_a_folder_is_not_made_through_a_link_that_leads_nowhere(tmp_path, outside):
    links(tmp_path, outside)
    fs = DiskFileSystem()
    fs.make_dirs(f"{tmp_path}/to-folder/sub/deep")
    for name in ("dangling", "loop", "to-file"):
        with pytest.raises(OSError, match="symbolic link") as caught:
            fs.make_dirs(f"{tmp_path}/{name}")
        assert caught.value.filename == f"{tmp_path}/{name}"


@pytest.mark.parametrize("options", ({}, {"write": True}, {"create": True}), ids=str)
@pytest.mark.parametrize("sort", ("pipe", "socket", "device"))
def test_special_files_are_refused_at_once(tmp_path, sort, options):
    path = tmp_path / "special"
    if sort == "pipe":
        os.mkfifo(path)
    elif sort == "socket":
        make_socket(path)
    else:
        path = "/dev/null"
    fs = DiskFileSystem()
    with no_hang(), pytest.raises(NotRegularFileError, match="not a regular file") as caught:
        fs.open(str(path), **options)
    assert caught.value.filename == str(path)
    assert fs.kind(str(path)) is FileKind.SPECIAL


@pytest.mark.parametrize(
    ("sort", "message"),
    (
        ("pipe", "[Errno 22] is not a regular file: '{path}/.lock'"),
        ("link", "[Errno 40] Too many levels of symbolic links: '{path}/.lock'"),
    ),
)
def test_a_lock_file_is_a_file_of_its_own(tmp_path, outside, sort, message):
    path = tmp_path / ".lock"
    if sort == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(outside / "none")
    with no_hang(), pytest.raises(OSError, match=exactly(message)) as caught:
        DiskFileSystem().lock(str(path))
    assert caught.value.filename == str(path)
    assert not (outside / "none").exists()


class TestSecondNames:
    """A file with two names: what changes one of them never shows under the other."""

    @pytest.fixture
    def names(self, tmp_path):
        original, copy = tmp_path / "a" / "x.log", tmp_path / "b" / "x.log"
        for path in (original, copy):
            path.parent.mkdir()
        original.write_bytes(b"abcdef")
        original.chmod(0o640)
        os.utime(original, ns=(1_000, 2_000_000_000))
        assert DiskFileSystem().link(str(original), str(copy))
        assert original.samefile(copy)
        return original, copy

    @pytest.mark.parametrize(
        "change",
        (
            lambda fs, path: fs.open(path, write=True).write_at([b"X"], 2),
            lambda fs, path: fs.open(path, write=True).append([b"gh"]),
            lambda fs, path: fs.open(path, create=True).truncate(3),
            lambda fs, path: open_anew(fs, path).append([b"new"]),
            lambda fs, path: fs.set_mtime(path, 77_000),
        ),
        ids=("write", "append", "truncate", "anew", "date"),
    )
    @pytest.mark.parametrize("clock", (None, FixedWallClock(5_000_000)))
    def test_a_change_parts_them(self, names, change, clock):
        original, copy = names
        before = original.stat()
        change(DiskFileSystem(clock), str(copy))
        after = original.stat()
        assert original.read_bytes() == b"abcdef"
        assert (after.st_ino, after.st_mtime_ns, after.st_nlink) == (
            before.st_ino,
            before.st_mtime_ns,
            1,
        )
        assert not copy.samefile(original)
        assert copy.stat().st_mode == before.st_mode
        assert [*copy.parent.iterdir()] == [copy]

    def test_opening_for_writing_changes_nothing_else(self, names):
        original, copy = names
        file = DiskFileSystem().open(str(copy), write=True)
        assert file.read(0, 99) == b"abcdef"
        assert copy.stat().st_mtime_ns == 2_000_000_000
        file.append([b"!"])
        assert (original.read_bytes(), copy.read_bytes()) == (b"abcdef", b"abcdef!")

    def test_reading_and_renaming_and_removing_leave_them_together(self, names):
        original, copy = names
        fs = DiskFileSystem()
        fs.open(str(copy)).close()
        fs.rename(str(copy), f"{copy}.deleted")
        assert original.stat().st_nlink == 2
        fs.remove(f"{copy}.deleted")
        assert original.read_bytes() == b"abcdef"

    def test_a_disk_that_is_full_leaves_both(self, names, monkeypatch):
        original, copy = names

        def full(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("shutil.copyfileobj", full)
        with pytest.raises(OSError, match="No space"):
            DiskFileSystem().open(str(copy), write=True)
        assert copy.samefile(original)
        assert [*copy.parent.iterdir()] == [copy]

    def test_files_of_a_killed_process_do_not_disturb_the_next_one(self, names):
        original, copy = names
        copy.with_name("x.log.tmp").write_bytes(b"half")
        DiskFileSystem().open(str(copy), write=True).truncate(1)
        assert (original.read_bytes(), copy.read_bytes()) == (b"abcdef", b"a")
        assert [*copy.parent.iterdir()] == [copy]

    def test_the_new_name_is_durable_before_anything_is_written(self, names, monkeypatch):
        _, copy = names
        synced = []
        monkeypatch.setattr(DiskFileSystem, "sync_dir", lambda _, path: synced.append(path))
        DiskFileSystem().open(str(copy), write=True)
        assert synced == [str(copy.parent)]

    def test_possible_errors_are_reported(self, names):
        original, copy = names
        with pytest.raises(FileExistsError):
            DiskFileSystem().link(str(original), str(copy))
