"""Copies of the files of a partition."""

from contextlib import contextmanager

import pytest

from logstore.manager.directories.copying import copy_file, files_of
from logstore.runtime import MemoryFileSystem, VirtualClock
from logstore.storage.checkpoint.atomic import read_bytes

DATA = bytes(range(256)) * 13_000  # more than one piece


@pytest.fixture
def fs():
    fs = MemoryFileSystem(VirtualClock(1_000_000))
    fs.make_dirs("/a/folder")
    put(fs, "/a/x", DATA)
    fs.set_mtime("/a/x", 777_000)
    return fs


def put(fs, path, data):
    file = fs.open(path, create=True)
    file.append([data])
    file.close()


def test_a_copy_has_the_bytes_and_the_time_of_the_original(fs):
    sizes, calls = [], []

    def guard(name):
        @contextmanager
        def entered():
            calls.append(name)
            yield

        return entered

    [(name, stat)] = files_of(fs, "/a").items()
    target = MemoryFileSystem(VirtualClock())
    target.make_dirs("/b")
    copy_file(
        *(fs, "/a/x", stat, target, "/b/y"),
        reading=guard("read"),
        writing=guard("write"),
        progress=sizes.append,
    )
    assert name == "x"
    assert read_bytes(target, "/b/y") == DATA
    assert target.stat("/b/y").mtime_ms == 777_000
    assert sizes[0] == 0
    assert sizes == sorted(set(sizes))
    assert len(sizes) > 1
    assert sizes[-1] < len(DATA)
    pieces = len(sizes)
    # Opening both, each piece, the read that finds the end, and the time.
    assert calls == ["read", "write", *["read", "write"] * pieces, "read", "write"]


@pytest.mark.parametrize("change", ("appended", "truncated"))
def test_a_copy_has_what_the_listing_saw_unless_the_file_was_truncated(fs, change):
    stat = files_of(fs, "/a")["x"]
    file = fs.open("/a/x", write=True)
    if change == "appended":
        file.append([b"later"])
    else:
        file.truncate(10)
    copy_file(fs, "/a/x", stat, fs, "/a/y")
    assert read_bytes(fs, "/a/y") == (DATA if change == "appended" else DATA[:10])
