"""Helpers for users' tests: assertions, failing disks, logs with holes, the pytest plugin.

Production code never imports this package. Public names are loaded on first use, so that the plugin
costs nothing in test runs that do not use it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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

_HOMES = ("logstore.faults.faultfs", "logstore.testing.assertions", "logstore.testing.holes")
"""Modules of the public names."""


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any public name
    """Load a public name from its module (PEP 562)."""
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(home)
            if hasattr(module, name):
                value = globals()[name] = getattr(module, name)
                return value
    raise AttributeError(f"module 'logstore.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
