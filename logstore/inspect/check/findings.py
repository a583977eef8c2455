"""Findings of the verifier, and the name of every check (docs/CHECKS.md tells them at length)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

from logstore.errors import CorruptionError

ERROR = "error"
WARNING = "warning"
INFO = "info"

SEVERITIES = (ERROR, WARNING, INFO)
"""Gravest first."""

LIMIT = 100
"""Findings of one check in one file that are told one by one; the rest is counted."""

CHECKS: Mapping[str, str] = {
    # Batches
    "batch_length": "a batch's length is impossible, or not what its CRC covers",
    "magic": "a batch's magic is not 2",
    "unsupported_format": "messages of magic 0 or 1, which are read and never written",
    "crc": "a batch's CRC does not match",
    "codec": "a batch's codec is unknown, or its records cannot be decompressed",
    "record_count": "a batch does not hold as many records as it counts",
    "record_structure": "a record breaks a read rule",
    "offset_delta": "the offsets in a batch do not rise, or pass its last offset",
    "max_timestamp": "a batch's largest timestamp is not that of its records",
    "control_batch": "a control batch is not one marker as markers are",
    "delete_horizon": "a batch's delete horizon is negative, or set on an empty batch",
    "producer_fields": "producer id, epoch and sequence of a batch do not fit together",
    "sequence_order": "a producer's sequences fall or jump",
    "producer_epoch": "a producer's epoch falls",
    "txn_state": "a producer writes outside its open transaction",
    "leader_epoch": "a batch's leader epoch is not that of leader-epoch-checkpoint",
    # Segments
    "file_name": "a segment's name is not 20 digits and a suffix",
    "duplicate_base": "two segments have one base offset",
    "segment_size": "a segment is larger than positions can say",
    "torn_tail": "a segment ends inside a batch",
    "zero_tail": "a segment ends in zeros",
    "offset_order": "a batch's offsets are not above those before it",
    "segment_bounds": "a batch lies outside the segment's offsets",
    "segment_overlap": "a segment reaches into the next one",
    "leftover_segment": "a segment whose records a finished swap had put into another one",
    "offset_gap": "offsets are missing that no cleaning explains",
    "missing_log": "other files prove that there was a .log, and it is not there",
    # Offset index
    "missing_index": "a segment has no .index or .timeindex",
    "orphan_index": "an index without entries has no segment",
    "index_size": "an offset index's size is no multiple of 8",
    "index_order": "an offset index's entries do not rise",
    "index_range": "an offset index's entry is outside the segment's offsets",
    "index_position": "an offset index's entry points at no batch",
    "index_entry": "an offset index's entry does not belong to the batch it points at",
    "index_chunked": "an offset index's entry stands for several batches, as Kafka wrote before",
    "index_padding": "an offset index that nobody writes to ends in zeros",
    # Time index
    "time_index_size": "a time index's size is no multiple of 12",
    "time_index_order": "a time index's entries do not rise",
    "time_index_range": "a time index's entry is outside the segment's offsets",
    "time_index_entry": "a time index's timestamp is not the largest up to its offset",
    "time_index_offset": "a time index's entry names not the first batch with its timestamp",
    "time_index_last": "a closed segment's time index lacks its largest timestamp",
    "time_index_padding": "a time index that nobody writes to ends in zeros",
    # Transaction index
    "txn_index_size": "a transaction index's size is no multiple of 34",
    "txn_index_version": "a transaction index's entry is of an unknown version",
    "txn_index_order": "a transaction index's entries do not rise",
    "txn_index_entry": "a transaction index's entry does not fit the abort marker it names",
    "txn_index_missing": "an aborted transaction is not in the transaction index",
    # Producer snapshots
    "snapshot_size": "a snapshot's size does not fit its count",
    "snapshot_version": "a snapshot is of an unknown version",
    "snapshot_crc": "a snapshot's CRC does not match",
    "snapshot_entry": "a snapshot's entry is impossible",
    "snapshot_state": "a snapshot contradicts the log",
    "snapshot_offset": "a snapshot is of an offset beyond the end of the log",
    # Small files
    "checkpoint_version": "a checkpoint's version is not 0",
    "checkpoint_count": "a checkpoint has more or fewer entries than it counts",
    "checkpoint_entry": "a checkpoint's line is no entry",
    "checkpoint_duplicate": "a checkpoint names a partition twice",
    "checkpoint_unknown_partition": "a checkpoint names a partition that is not there",
    "checkpoint_beyond_end": "a checkpoint's offset is beyond the end of the log",
    "checkpoint_below_start": "a checkpoint's offset is below the start of the log",
    "epoch_order": "leader epochs do not rise",
    "epoch_beyond_end": "a leader epoch begins beyond the end of the log",
    "epoch_inside_batch": "a leader epoch begins inside a batch",
    "epoch_missing": "batches bear leader epochs that leader-epoch-checkpoint does not know",
    "partition_metadata": "partition.metadata is malformed",
    "topic_id": "a partition has another topic id than its topic, or than other partitions",
    "topics_file": "logstore-topics.json is malformed",
    "topics_partition": "logstore-topics.json and the folders differ",
    "moves_file": "logstore-moves.json is malformed",
    # Names
    "folder_name": "a folder is no partition's",
    "duplicate_partition": "a partition is in two data directories",
    "leftover_cleaned": "an unfinished file of a cleaner",
    "leftover_swap": "a cleaned file that is not in its place yet",
    "leftover_deleted": "a file that is scheduled for deletion",
    "leftover_tmp": "an unfinished small file",
    "leftover_folder": "a folder scheduled for deletion, being moved, or kept aside",
    "foreign_file": "a file that is none of ours",
    "unreadable": "a file or folder cannot be read",
    "gone": "a file or folder that was to be verified was moved or removed meanwhile",
    "suppressed": "more findings of one check in one file than are told",
}


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
        or `info` (nothing is wrong, or the next opening mends it).
    """

    path: str
    position: int | None
    offset: int | None
    check: str
    expected: Any
    found: Any
    severity: str


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
    """Return a finding; an error unless said otherwise."""
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
