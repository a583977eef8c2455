"""Violations that the oracle counts, in words; needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping

KINDS: Mapping[str, str] = {
    "survivor_lost": "the record that wins its key is missing",
    "tombstone_lost": "a winning tombstone is missing before its delete horizon",
    "tail_lost": "a record beyond the cleaned range is missing",
    "min_lag_broken": "a record younger than min.compaction.lag.ms was removed",
    "loser_kept": "a record stays beside the one that wins its key",
    "wrong_winner": "a record stays instead of the one that wins its key",
    "tombstone_resurrected": "a deleted key has a value again: its tombstone is gone, this is not",
    "tombstone_overdue": "a tombstone stays though its delete horizon had passed",
    "aborted_kept": "a record of an aborted transaction stays",
    "keyless_kept": "a record without a key stays",
    "key_altered": "another key",
    "value_altered": "another value",
    "headers_altered": "other headers",
    "timestamp_altered": "another timestamp",
    "timestamp_type_altered": "another timestamp type",
    "fate_altered": "what was aborted counts as committed, or the other way round",
    "horizon_wrong": "a delete horizon that no cleaning gives, or a tombstone that got none",
    "duplicated": "a second record with the same offset",
    "invented_record": "nothing was at this offset",
    "invented_key": "nothing was at this offset, and the topic had no such key",
    "wrong_partition": "nothing was at this offset; the key belongs to another partition",
    "partition_lost": "the partition is missing",
    "partition_invented": "there was no such partition",
    "out_of_order": "a record stands behind one with a higher offset",
    "retention_early": "a record left by the front of the log before retention.ms had passed",
    "not_cleaned": "the partition was not cleaned, though that was asked for",
    "max_lag_broken": "a record stays uncleaned, and all of its tail is older than "
    "max.compaction.lag.ms",
}
"""Kinds of violation that a verdict may count."""
