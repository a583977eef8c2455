"""A folder for index files, in memory and on disk."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from logstore.runtime import DiskFileSystem, FileSystem, MemoryFileSystem

MakePlace = Callable[[], tuple[FileSystem, str]]


@pytest.fixture(scope="module", params=("memory", "disk"))
def make_place(request, tmp_path_factory) -> MakePlace:
    """Return a function that returns a file system and a new empty directory in it."""
    numbers = itertools.count()

    def make() -> tuple[FileSystem, str]:
        if request.param == "memory":
            fs: FileSystem = MemoryFileSystem()
            directory = f"/log/{next(numbers)}"
            fs.make_dirs(directory)
            return fs, directory
        return DiskFileSystem(), str(tmp_path_factory.mktemp("index"))

    return make


@pytest.fixture
def place(make_place: MakePlace) -> tuple[FileSystem, str]:
    return make_place()
