"""Settings of all tests: invariants on, Hypothesis profiles, a world in memory and on the disk."""

import gc
import os
import tempfile
from importlib.metadata import entry_points

# Read once, when logstore is imported: every change of a log is followed by its `_check()`.
os.environ["LOGSTORE_VERIFY"] = "1"
# Without this, tests would run the kernels as Python: their data is below the compilation limit.
# Processes share the compiled code.
os.environ.setdefault("LOGSTORE_KERNELS", "compiled")

import pytest
from hypothesis import HealthCheck, settings

from tests.support.interop.judge import fast_scratch
from tests.support.world.builders import World, disk_world, memory_world

PLUGIN = "logstore.testing.plugin"
# A .venv that was made before the plugin has no entry point for it, and pytest knows none twice.
pytest_plugins = [PLUGIN] if PLUGIN not in {p.value for p in entry_points(group="pytest11")} else []

settings.register_profile("dev", max_examples=20, stateful_step_count=20, deadline=None)
settings.register_profile(
    "ci", max_examples=60, derandomize=True, stateful_step_count=30, deadline=None
)
settings.register_profile(
    "nightly",
    max_examples=5000,
    stateful_step_count=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure(config: pytest.Config) -> None:
    """Put the temporary files of the default suite in memory, because syncs take time on a disk.

    Tests with the markers `interop` and `long` may need gigabytes.
    """
    if "not interop" in config.option.markexpr and "TMPDIR" not in os.environ:
        scratch = fast_scratch()
        if scratch is not None:
            os.environ["TMPDIR"] = tempfile.tempdir = scratch


def pytest_collection_finish() -> None:
    """Set aside what lives as long as the tests, so that no full collection walks it."""
    gc.collect()
    gc.freeze()
    # With the defaults, full collections took a sixth of the time of tests with clusters.
    gc.set_threshold(7000, 10, 20)


@pytest.fixture(params=("memory", "disk"))
def world(request: pytest.FixtureRequest, tmp_path) -> World:
    """Return an empty directory with a virtual clock, once in memory and once on the disk."""
    return memory_world() if request.param == "memory" else disk_world(tmp_path)
