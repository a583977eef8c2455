"""Points where the two logs diverge: entries of the closed list that random histories reach.

From such a step on the states of the engines differ, so the history ends there and is counted. Each
entry is identified by the difference and by the log itself, so that it hides no other difference;
`test_differences.py` shows them one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from logstore.record.batch import RecordBatch
from logstore.record.header import BatchHeader
from logstore.record.layout import LOG_OVERHEAD
from tests.support.interop.live import Operation, State

FORGOTTEN = "truncated when no producer was known"
CAME_BACK = "came back to an epoch within one replay"
TIME_LOST = "cut right after a start"
REFUSED = "refused by both"

CONTRADICTION = "InvalidTxnStateException: Expected transactional write"
"""Kafka's error for a contradictory log; this engine: `CorruptRecordError`."""

ONLY_OURS = re.compile(r"only this engine has \d{20}\.snapshot")

Entry = dict[str, Any]
"""A log's state of a producer."""


class Parted(Exception):  # no error: the end of a history
    """The states of the engines differ from here on, as the closed list allows."""


class Step(NamedTuple):
    """An operation, `open` for a start, and the state that both were in before it."""

    operation: Operation
    before: State | None = None

    @property
    def replays(self) -> bool:
        """Whether producers are rebuilt from the batches."""
        return self.operation["op"] in ("open", "truncate_to")


def of_states(step: Step, theirs: State, ours: State, folder: Path) -> str | None:
    """Return the entry that explains why two states differ, None for none.

    Parameters
    ----------
    folder : Path
        Of this engine's log.
    """
    wrong = {name for name in theirs if theirs[name] != ours[name]} - {"message"}
    if _knew_nobody(step) and wrong <= {"producers", "last_stable_offset"}:
        more = {entry["producer_id"] for entry in ours["producers"]}
        if more > {entry["producer_id"] for entry in theirs["producers"]}:
            return FORGOTTEN
    if step.replays and wrong == {"producers"}:
        pairs = list(zip(theirs["producers"], ours["producers"], strict=False))
        headers = batches_in(folder)
        if len(theirs["producers"]) == len(ours["producers"]) and all(
            left == right or _came_back(left, right, headers) for left, right in pairs
        ):
            return CAME_BACK
    return None


def of_names(step: Step | None, message: str) -> str | None:
    """Return the entry that explains why only one engine has a file, None for none."""
    known = step is not None and _knew_nobody(step) and ONLY_OURS.fullmatch(message)
    return FORGOTTEN if known else None


def of_time_index(entries: bytes, folder: Path, base_offset: int) -> str | None:
    """Return the entry that explains another time index of a segment cut after a start.

    `entries` are this engine's, which must be correct for the log.
    """
    batches = headers_in(folder / f"{base_offset:020}.log")
    for at in range(0, len(entries), 12):
        timestamp = int.from_bytes(entries[at : at + 8], signed=True)
        offset = base_offset + int.from_bytes(entries[at + 8 : at + 12])
        reached = [each.max_timestamp for each in batches if each.last_offset <= offset]
        if not reached or max(reached) != timestamp:
            return None
    return TIME_LOST


def stable_above_a_gap(theirs: State, ours: State, folder: Path) -> bool:
    """Return whether Kafka's last stable offset is the log end because a batch is missing.

    A transaction that began below the log start is open, and the log is empty from there on: a
    truncation removed a whole batch. Kafka 3.9.2 finds no batch at the log start and returns the
    end; this engine returns the log start. No reader sees a difference.
    """
    start, end = ours["log_start_offset"], ours["log_end_offset"]
    return (
        (theirs["last_stable_offset"], ours["last_stable_offset"]) == (end, start)
        and any(-1 < (e["transaction_first_offset"] or -1) < start for e in ours["producers"])
        and all(each.last_offset < start for each in batches_in(folder))
    )


def batches_in(folder: Path) -> list[BatchHeader]:
    """Return the headers of all batches of a log."""
    return [header for path in sorted(folder.glob("*.log")) for header in headers_in(path)]


def headers_in(path: Path) -> list[BatchHeader]:
    """Return the headers of a segment's batches, which zeros may follow."""
    data, at, result = path.read_bytes(), 0, []
    while length := int.from_bytes(data[at + 8 : at + LOG_OVERHEAD]):
        end = at + LOG_OVERHEAD + length
        result.append(RecordBatch(data[at:end]).header)
        at = end
    return result


def _knew_nobody(step: Step) -> bool:
    before = step.before
    return step.operation["op"] == "truncate_to" and before is not None and not before["producers"]


def _came_back(theirs: Entry, ours: Entry, headers: Sequence[BatchHeader]) -> bool:
    """Return whether Kafka keeps batches from before another epoch, as the only difference."""
    known, new = theirs["batches"], ours["batches"]
    if {**theirs, "batches": new} != ours or known[len(known) - len(new) :] != new:
        return False
    stale = known[: len(known) - len(new)]
    last_stale = stale[-1][1] if stale else -1
    return bool(stale) and any(
        each.producer_id == ours["producer_id"]
        and each.producer_epoch != ours["epoch"]
        and each.base_offset > last_stale
        for each in headers
    )
