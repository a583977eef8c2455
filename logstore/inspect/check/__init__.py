"""An offline verifier: every invariant of the files and of their relations, as findings.

`Checker` yields `CheckFinding`s with path, position, what was expected and what was found. It
shares with the engine the layouts of files and the decoding of records, but not the code that
writes and recovers them: a verifier that asked the suspect would be none.
The checks are listed in docs/CHECKS.md.
"""

from logstore.inspect.check.again import confirmed
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
    "confirmed",
]
