"""Helpers for the tests of users: a file system that fails, crashes and forgets.

It stands beside the engine and not in it: nothing that runs in production imports it.
"""

from logstore.testing.faultfs import (
    Contents,
    CrashMode,
    Fault,
    FaultyFileSystem,
    Kind,
    Names,
    Operation,
    SimulatedCrash,
)

__all__ = [
    "Contents",
    "CrashMode",
    "Fault",
    "FaultyFileSystem",
    "Kind",
    "Names",
    "Operation",
    "SimulatedCrash",
]
