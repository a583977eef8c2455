"""The kinds of violation that the oracle reports. Independent of Spark."""

from __future__ import annotations

from collections.abc import Mapping

KINDS: Mapping[str, str] = {
    "survivor_lost": "the surviving record of a key is missing",
    "tombstone_lost": "a surviving tombstone is missing before its delete horizon",
    "tail_lost": "a record beyond the cleaned range is missing",
    "min_lag_broken": "a record younger than min.compaction.lag.ms was removed",
    "loser_kept": "a superseded record was retained next to its key's survivor",
    "wrong_winner": "a superseded record was retained instead of its key's survivor",
    "tombstone_resurrected": "a deleted key has a value again: its tombstone was removed, a "
    "superseded value was kept",
    "tombstone_overdue": "a tombstone was retained although its delete horizon had passed",
    "aborted_kept": "a record of an aborted transaction was retained",
    "keyless_kept": "a record without a key was retained",
    "key_altered": "the key of a record changed",
    "value_altered": "the value of a record changed",
    "headers_altered": "the headers of a record changed",
    "timestamp_altered": "the timestamp of a record changed",
    "timestamp_type_altered": "the timestamp type of a record changed",
    "fate_altered": "an aborted record counts as committed, or a committed one as aborted",
    "horizon_wrong": "a delete horizon is missing, changed or not from one of the passes",
    "duplicated": "a second record has the same offset",
    "invented_record": "a record has an offset that did not exist before",
    "invented_key": "a record has an offset and a key that did not exist before",
    "wrong_partition": "a record has an offset that did not exist before; its key was in another "
    "partition",
    "partition_lost": "a partition is missing",
    "partition_invented": "a partition did not exist before",
    "out_of_order": "a record follows one with a higher offset",
    "retention_early": "a record was removed from the log start before retention.ms had passed",
    "not_cleaned": "a partition was not cleaned",
    "max_lag_broken": "a record is not cleaned although the whole dirty section is older than "
    "max.compaction.lag.ms",
}
"""Descriptions by kind of violation, in the order of a verdict."""
