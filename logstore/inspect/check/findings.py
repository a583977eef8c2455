"""Findings of the verifier, and the names of all checks (explained in docs/CHECKS.md)."""

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
"""Severities, most severe first."""

LIMIT = 100
"""Maximum number of findings to list per check and file. Further findings are counted."""

_PREFIX = "check."

CHECKS: Mapping[str, str] = {
    code.removeprefix(_PREFIX): text for code, text in TEMPLATES.items() if code.startswith(_PREFIX)
}
"""Explanation of each check, by name."""

_UNITS = {
    "offset": """
        offset_delta offset_order segment_bounds segment_overlap offset_gap lost_segment
        index_entry index_range
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
"""Unit of the numbers that a check compares, if they all have the same unit."""


class CheckFinding(NamedTuple):
    """A violated invariant or a noteworthy file.

    Attributes
    ----------
    path : str
        The file or directory.
    position : int or None
        Byte position in the file, or None if the finding is about the whole file.
    offset : int or None
        The affected record offset, or None if the finding is not about a record.
    check : str
        A name in `CHECKS`.
    expected, found : int, str or None
        The compared values.
    severity : str
        `error` (data, or the lookup of data, is wrong), `warning` (unusual; may indicate damage) or
        `info` (harmless, or repaired by the next opening).
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
        """Explanation of the check, with the expected and found values and their unit."""
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
    """Return a finding, by default with severity `error`."""
    assert check in CHECKS, check
    return CheckFinding(path, position, offset, check, expected, found, severity)


def unreadable(path: str, error: OSError | CorruptionError) -> CheckFinding:
    """Return the finding for a file or directory that cannot be read."""
    if isinstance(error, CorruptionError):
        return finding("unreadable", error.path or path, found=error.message)
    return finding("unreadable", error.filename or path, found=error.strerror or str(error))


def limit_findings(
    findings: Iterable[CheckFinding], totals: MutableMapping[tuple[str, str], int]
) -> Iterator[CheckFinding]:
    """Yield at most `LIMIT` findings per file and check, then the number of omitted ones.

    A damaged index may violate a rule in each of a million entries. `totals` counts all findings by
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
            more = f"{count - LIMIT} more findings of {check}"
            yield finding("suppressed", path, found=more, severity=INFO)
