"""Helpers for users' tests: assertions, failing disks, logs with holes, and the pytest plugin.

Code that runs in production never imports this package. Its public names are loaded when they are
first used, so that the plugin does not slow down test runs that do not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.lazy import import_on_use

if TYPE_CHECKING:
    from logstore.faults.crash import Contents, CrashMode, Names
    from logstore.faults.faultfs import FaultyFileSystem, Kind, Operation, SimulatedCrash
    from logstore.testing.assertions import (
        assert_committed,
        assert_compacted,
        assert_tombstone_gone,
        history,
        records_by_key,
    )
    from logstore.testing.holes import HoleyLog

__all__ = [
    "Contents",
    "CrashMode",
    "FaultyFileSystem",
    "HoleyLog",
    "Kind",
    "Names",
    "Operation",
    "SimulatedCrash",
    "assert_committed",
    "assert_compacted",
    "assert_tombstone_gone",
    "history",
    "records_by_key",
]

__getattr__, __dir__ = import_on_use(
    __name__,
    {
        "logstore.faults.crash": ("Contents", "CrashMode", "Names"),
        "logstore.faults.faultfs": (
            "Fault",
            "FaultyFileSystem",
            "Kind",
            "Operation",
            "SimulatedCrash",
        ),
        "logstore.testing.assertions": (
            "assert_committed",
            "assert_compacted",
            "assert_tombstone_gone",
            "history",
            "records_by_key",
        ),
        "logstore.testing.holes": ("HoleyLog",),
    },
)
