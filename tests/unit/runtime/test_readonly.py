"""ReadOnlyFileSystem: reads like its base and refuses the rest before the base hears of it."""

import pytest

from logstore.runtime import DiskFileSystem, MemoryFileSystem, ReadOnlyFileSystem
from tests.support.world.fs_suite import write_file


@pytest.fixture(params=["disk", "memory"])
def base_and_root(request, tmp_path):
    base = DiskFileSystem() if request.param == "disk" else MemoryFileSystem()
    root = str(tmp_path)
    base.make_dirs(f"{root}/d")
    write_file(base, f"{root}/a", b"abc")
    base.set_mtime(f"{root}/a", 5_000)
    return base, root


def test_reads_fall_through(base_and_root):
    base, root = base_and_root
    fs = ReadOnlyFileSystem(base)
    assert fs.list_dir(root) == ["a", "d"]
    assert fs.stat(f"{root}/a") == (3, 5_000)
    assert fs.exists(f"{root}/a")
    assert not fs.exists(f"{root}/b")
    assert fs.is_dir(f"{root}/d")
    file = fs.open(f"{root}/a")
    assert (file.size(), file.read(1, 9)) == (3, b"bc")
    view = bytearray(2)
    assert file.read_into(memoryview(view), 0) == 2
    assert view == b"ab"
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.size()
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/b")


def test_changes_are_refused(base_and_root):
    base, root = base_and_root
    fs = ReadOnlyFileSystem(base)
    file = fs.open(f"{root}/a")
    for change in (
        lambda: fs.open(f"{root}/a", write=True),
        lambda: fs.open(f"{root}/a", create=True),
        lambda: fs.open(f"{root}/b", create=True),
        lambda: fs.set_mtime(f"{root}/a", 1),
        lambda: fs.rename(f"{root}/a", f"{root}/b"),
        lambda: fs.remove(f"{root}/a"),
        lambda: fs.make_dirs(f"{root}/e"),
        lambda: fs.remove_dir(f"{root}/d"),
        lambda: fs.sync_dir(root),
        lambda: fs.lock(f"{root}/a"),
        lambda: fs.lock(f"{root}/.lock"),
        lambda: file.append([b"x"]),
        lambda: file.write_at([b"x"], 0),
        lambda: file.truncate(0),
        file.sync,
    ):
        with pytest.raises(PermissionError, match="read-only"):
            change()
    assert base.list_dir(root) == ["a", "d"]
    assert base.stat(f"{root}/a") == (3, 5_000)
    assert file.read(0, 9) == b"abc"
