"""Findings of the verifier, and the name of every check (docs/CHECKS.md explains each)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

from logstore.errors import CorruptionError
from logstore.reasons import Reason, Value
from logstore.reasons.templates import TEMPLATES

ERROR = "error"
WARNING = "warning"
INFO = "info"

SEVERITIES = (ERROR, WARNING, INFO)
"""Gravest first."""

LIMIT = 100
"""Findings of one check in one file that are reported one by one; the rest are counted."""

_PREFIX = "check."

CHECKS: Mapping[str, str] = {
    code.removeprefix(_PREFIX): text for code, text in TEMPLATES.items() if code.startswith(_PREFIX)
}
"""The meaning of each check, by its name."""

_UNITS = {
    "offset": """
        offset_delta offset_order segment_bounds segment_overlap offset_gap index_entry index_range
        index_chunked time_index_range time_index_offset txn_index_order snapshot_offset
        checkpoint_beyond_end checkpoint_below_start epoch_beyond_end epoch_inside_batch
    """,
    "bytes": """
        batch_length segment_size torn_tail zero_tail index_position index_size index_padding
        time_index_size time_index_padding txn_index_size
    """,
    "at_ms": "max_timestamp delete_horizon time_index_last",
}
_UNIT_OF = {check: unit for unit, checks in _UNITS.items() for check in checks.split()}
"""The unit of the numbers that a check compares, where it compares one kind of number."""


class CheckFinding(NamedTuple):
    """One thing that is not as it should be.

    Attributes
    ----------
    path : str
        The file or folder.
    position : int or None
        Bytes from the start of the file; None where the whole file is meant.
    offset : int or None
        The logical offset concerned, if there is one.
    check : str
        A name of `CHECKS`.
    expected, found : int, str or None
        The values that were compared.
    severity : str
        `error` (data or its lookup is wrong), `warning` (unusual, and perhaps a trace of damage)
        or `info` (harmless, or repaired by the next opening).
    """

    path: str
    position: int | None
    offset: int | None
    check: str
    expected: Any
    found: Any
    severity: str

    @property
    def reason(self) -> Reason:
        """The meaning of the check, with the compared values; numbers have their unit."""
        unit = _UNIT_OF.get(self.check)
        values: dict[str, Value] = {}
        for name, value in (("expected", self.expected), ("found", self.found)):
            if isinstance(value, int):
                values[f"{name}_{unit}" if unit else name] = value
            elif value is not None:
                values[name] = str(value)
        return Reason(f"{_PREFIX}{self.check}", values)

    def to_json(self) -> dict[str, Any]:
        """Return an item of `findings` in `logstore check --format json`."""
        return {**self._asdict(), **self.reason.to_json()}


def finding(
    check: str,
    path: str,
    position: int | None = None,
    *,
    offset: int | None = None,
    expected: object = None,
    found: object = None,
    severity: str = ERROR,
) -> CheckFinding:
    """Return a finding; an error by default."""
    assert check in CHECKS, check
    return CheckFinding(path, position, offset, check, expected, found, severity)


def unreadable(path: str, error: OSError | CorruptionError) -> CheckFinding:
    """Return the finding of a file or folder that the disk refuses, or `read_bytes`."""
    if isinstance(error, CorruptionError):
        return finding("unreadable", error.path or path, found=error.message)
    return finding("unreadable", error.filename or path, found=error.strerror or str(error))


def limited(
    findings: Iterable[CheckFinding], totals: MutableMapping[tuple[str, str], int]
) -> Iterator[CheckFinding]:
    """Yield at most `LIMIT` findings a file and check, then how many more there were.

    A damaged index may break a rule at each of a million entries. `totals` counts all findings by
    severity and check.
    """
    counts: dict[tuple[str, str], int] = {}
    for row in findings:
        kind = (row.severity, row.check)
        totals[kind] = totals.get(kind, 0) + 1
        key = (row.path, row.check)
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= LIMIT:
            yield row
    for (path, check), count in counts.items():
        if count > LIMIT:
            more = f"{count - LIMIT} more of {check}"
            yield finding("suppressed", path, found=more, severity=INFO)
