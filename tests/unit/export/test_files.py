"""The file of an export appears when it is whole, replaces nothing unasked, and leaves no half."""

from __future__ import annotations

import pytest

from logstore.export.files import PARTIAL_SUFFIX, ExportFile
from logstore.runtime import MemoryFileSystem
from tests.support.world.faulty import FaultyFileSystem, never

PATH = "/out/users.csv"


@pytest.fixture
def fs():
    found = MemoryFileSystem()
    found.make_dirs("/out")
    return found


def content(fs, path=PATH):
    file = fs.open(path)
    return file.read(0, file.size())


def test_the_file_has_its_name_once_it_is_whole(fs):
    with ExportFile(fs, PATH) as file:
        file.stream.write(b"a" * 3_000_000)
        assert fs.list_dir("/out") == [f"users.csv{PARTIAL_SUFFIX}"]
    assert fs.list_dir("/out") == ["users.csv"]
    assert content(fs) == b"a" * 3_000_000


def export_half(fs, error, **options):
    with ExportFile(fs, PATH, **options) as file:
        file.stream.write(b"half")
        raise error("on the way")


@pytest.mark.parametrize("error", (ValueError, KeyboardInterrupt))
def test_an_error_leaves_nothing(fs, error):
    with pytest.raises(error, match="on the way"):
        export_half(fs, error)
    assert fs.list_dir("/out") == []


def test_a_file_that_is_there_stays_unless_it_may_be_replaced(fs):
    with ExportFile(fs, PATH) as file:
        file.stream.write(b"old")
    with pytest.raises(FileExistsError, match=r"users\.csv"):
        ExportFile(fs, PATH)
    assert content(fs) == b"old"
    with pytest.raises(ValueError, match="on the way"):
        export_half(fs, ValueError, overwrite=True)
    assert (content(fs), fs.list_dir("/out")) == (b"old", ["users.csv"])
    with ExportFile(fs, PATH, overwrite=True) as file:
        file.stream.write(b"new")
    assert (content(fs), fs.list_dir("/out")) == (b"new", ["users.csv"])


def test_a_file_that_came_meanwhile_is_not_replaced(fs):
    def export():
        with ExportFile(fs, PATH) as file:
            fs.open(PATH, create=True).append([b"another's"])
            file.stream.write(b"ours")

    with pytest.raises(FileExistsError):
        export()
    assert (content(fs), fs.list_dir("/out")) == (b"another's", ["users.csv"])


def test_files_of_a_killed_export_do_not_disturb_the_next_one(fs):
    fs.open(PATH + PARTIAL_SUFFIX, create=True).append([b"left from before"])
    with ExportFile(fs, PATH) as file:
        file.stream.write(b"ours")
    assert (content(fs), fs.list_dir("/out")) == (b"ours", ["users.csv"])


def test_no_failed_operation_leaves_a_partial_file(fs):
    data = b"a" * (2 << 20)

    def export(rule):
        faulty = FaultyFileSystem(fs, rule)
        with ExportFile(faulty, PATH, overwrite=True) as file:
            file.stream.write(data)
        return [name for name, _ in faulty.operations]

    operations = export(never)
    assert {"write", "sync", "rename", "sync_dir"} <= set(operations)
    for count, name in enumerate(operations, 1):
        fs.remove(PATH)
        steps = iter(range(1, 100))
        with pytest.raises(OSError, match=f"injected failure of {name}"):
            export(lambda _operation, _path, steps=steps, count=count: next(steps) == count)
        if name == "sync_dir":  # by then it is whole
            assert content(fs) == data
        else:
            assert not fs.exists(PATH)
            # A file that failed to open does not exist yet.
            assert name == "truncate" or fs.list_dir("/out") == []
            export(never)
