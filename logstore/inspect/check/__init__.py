"""Offline verifier of files: their invariants and their relations to each other.

`Checker` yields `CheckFinding`s with path, position, expected and found values. It shares file
layouts and record decoding with the engine, but not the code that writes and recovers files,
because a verifier must be independent of the code that it verifies. docs/CHECKS.md lists the
checks.
"""

from logstore.inspect.check.confirmation import confirm_findings
from logstore.inspect.check.directory import Checker
from logstore.inspect.check.findings import CHECKS, ERROR, INFO, WARNING, CheckFinding
from logstore.inspect.check.segment import CheckCounts

__all__ = [
    "CHECKS",
    "ERROR",
    "INFO",
    "WARNING",
    "CheckCounts",
    "CheckFinding",
    "Checker",
    "confirm_findings",
]
