"""The directories and folders that the verifier recognizes as a log's."""

import pytest

from logstore.inspect.check import Checker
from logstore.runtime import MemoryFileSystem
from tests.support.world.fs_suite import write_file

SEGMENT = f"{0:020d}.log"


def checker(path, files, folders=()):
    fs = MemoryFileSystem()
    for folder in ("", *folders, *(name.rpartition("/")[0] for name in files)):
        fs.make_dirs(f"{path}/{folder}".rstrip("/"))
    for name in files:
        write_file(fs, f"{path}/{name}", b"")
    return Checker(fs)


@pytest.mark.parametrize(
    ("path", "files", "folders", "has_anything"),
    (
        ("/data", (), (), False),
        ("/data", ("notes.txt", "x/notes.txt"), ("lost+found",), False),
        ("/data", ("t-0",), (), False),
        ("/t-0", (), (), True),
        ("/t-0.stray", (), (), False),
        ("/data", (), ("t-0",), True),
        ("/data", (SEGMENT,), (), True),
        ("/data", ("meta.properties",), (), True),
        ("/data", (), ("meta.properties",), False),
        ("/data", (), (SEGMENT,), False),
        ("/data", (f"x/{SEGMENT}",), (), True),
        ("/data", ("x/meta.properties",), (), False),
    ),
)
def test_a_directory_has_anything_of_a_log_by_its_names(path, files, folders, has_anything):
    assert checker(path, files, folders).has_anything(path) is has_anything
    assert checker(path, files, folders).has_anything(path + "/") is has_anything


def test_folders_are_listed_without_files_and_hidden_ones():
    found = checker("/data", ("x", "t-0/y"), (".hidden", "other"))
    for path in ("/data", "/data/"):
        assert sorted(found.folders(path)) == ["other", "t-0"]
    assert found.folders("/data/x") == []
    assert found.folders("/gone") == []


@pytest.mark.parametrize(
    ("path", "files", "is_data"),
    (
        ("/t-0", (SEGMENT,), False),
        ("/t-0", (), False),
        ("/any", (SEGMENT,), False),
        ("/any", (), True),
        ("/t-0", ("meta.properties",), True),
        ("/t-0", (SEGMENT, "meta.properties"), False),
        ("/t-0", (SEGMENT, f"u-0/{SEGMENT}"), True),
        ("/t-0", (SEGMENT, "u-0"), False),
    ),
)
def test_a_path_is_a_partition_or_a_data_directory_by_its_contents(
    path, files, is_data, monkeypatch
):
    verified = []
    check = checker(path, files)
    monkeypatch.setattr(check, "data_dirs", lambda paths: iter(verified.append(paths) or ()))
    for _ in check.path(path):
        pass
    assert verified == ([[path]] if is_data else [])
