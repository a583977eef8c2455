"""Fixtures of unit tests in several rooms."""

import pytest

from logstore.runtime import DiskFileSystem, MemoryFileSystem, VirtualClock
from tests.support.world.data_home import Home


@pytest.fixture(params=("memory", "disk"))
def home(request: pytest.FixtureRequest, tmp_path) -> Home:
    """Return a data directory that is still missing, once in memory and once on the disk."""
    clock = VirtualClock()
    if request.param == "disk":
        return Home(DiskFileSystem(clock), f"{tmp_path}/data", clock)
    return Home(MemoryFileSystem(clock), "/data", clock)
