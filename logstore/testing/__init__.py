"""What tests of users import: disks that fail, assertions, logs with holes, the pytest plugin.

It stands above the broker: nothing that runs in production imports it. The public names are loaded
when first used, so that a pytest run that has the plugin and does not use it pays nothing.
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
