"""The sentence for every reason code. The page has the same table.

A field in braces is a value: `{name}`, or `{name?one|other}` for a word that depends on a number.
`make docs` generates docs/REASONS.md and the page's copy (ui/front/templates.js) from this table.
"""

from __future__ import annotations

from collections.abc import Mapping

TEMPLATES: Mapping[str, str] = {
    # Conditions of a cleaning pass, by gate: the first column of `explain`.
    "condition.policy": "compacted",
    "condition.cleaner_disabled": "cleaner enabled",
    "condition.uncleanable": "cleanable",
    "condition.paused": "not in use",
    "condition.empty": "not empty",
    "condition.active_segment": "closed segments",
    "condition.last_stable_offset": "stable offsets",
    "condition.min_compaction_lag": "old enough",
    "condition.dirty_ratio": "dirty enough",
    "condition.max_compaction_lag": "or overdue",
    "condition.offset_map": "offset map large enough",
    # Why a partition was not cleaned, by gate, in a few words.
    "refusal.policy": "its cleanup.policy does not include compact",
    "refusal.cleaner_disabled": "log.cleaner.enable is false",
    "refusal.empty": "the log is empty",
    "refusal.dirty_ratio": "not dirty enough",
    "refusal.min_compaction_lag": "all dirty data is younger than min.compaction.lag.ms",
    "refusal.max_compaction_lag": "not overdue",
    "refusal.last_stable_offset": "a transaction is open",
    "refusal.active_segment": "nothing to clean below the active segment",
    "refusal.uncleanable": "an earlier cleaning pass failed",
    "refusal.paused": "cleaning is paused",
    "refusal.offset_map": "the offset map is too small",
    # Gates, with the values that were compared.
    "gate.policy": "cleanup.policy is {policy}",
    "gate.cleaner_enabled": "log.cleaner.enable is true",
    "gate.cleaner_disabled": "log.cleaner.enable is false",
    "gate.never_failed": "no cleaning pass has failed",
    "gate.uncleanable": "{message}",
    "gate.free": "no other operation uses the partition",
    "gate.paused": "{message}",
    "gate.offset_map": "{message}",
    "gate.size": "the log contains {size_bytes} {size_bytes?byte|bytes}",
    "gate.active_segment": (
        "the active segment starts at offset {active_offset}; dirty data begins at offset"
        " {dirty_offset}, {closed_bytes} {closed_bytes?byte|bytes} of it in closed segments"
    ),
    "gate.last_stable_offset": (
        "the last stable offset is {stable_offset}; dirty data begins at offset {dirty_offset}"
    ),
    "gate.old_enough": "no dirty data is younger than min.compaction.lag.ms {lag_ms}",
    "gate.too_young": (
        "data at or above offset {offset} is younger than min.compaction.lag.ms {lag_ms}"
    ),
    "gate.dirty_ratio": (
        "the dirty ratio {ratio} must exceed min.cleanable.dirty.ratio {threshold_ratio}"
    ),
    "gate.overdue": "the oldest dirty data exceeds max.compaction.lag.ms {lag_ms} by {span_ms}",
    "gate.not_overdue": (
        "no dirty data in closed segments is older than max.compaction.lag.ms {lag_ms}"
    ),
    "gate.lag_not_set": "max.compaction.lag.ms is not set",
    # The verdict on a partition.
    "verdict.due": "will be cleaned by the next pass",
    "verdict.all_clean": "the log has no dirty data",
    "verdict.policy": "never: its cleanup.policy does not include compact",
    "verdict.cleaner_disabled": "never: log.cleaner.enable is false",
    "verdict.uncleanable": "cannot be cleaned: it is damaged",
    "verdict.paused": "not now: another operation is using the partition",
    "verdict.empty": "the log is empty",
    "verdict.active_segment": "not yet: its records are still in the active segment",
    "verdict.last_stable_offset": "not yet: a transaction is still open",
    "verdict.min_compaction_lag": (
        "not yet: its records are younger than min.compaction.lag.ms={lag_ms}"
    ),
    "verdict.dirty_ratio": (
        "not yet: its dirty ratio is {ratio} and must exceed"
        " min.cleanable.dirty.ratio={threshold_ratio}"
    ),
    "verdict.max_compaction_lag": "not yet: its dirty data is not older than max.compaction.lag.ms",
    "verdict.offset_map": "cannot be cleaned: the offset map is too small",
    "verdict.damaged": (
        "{ranges} damaged {ranges?range|ranges} prevent{ranges?s|} cleaning. First: {message}"
    ),
    "verdict.damaged_elsewhere": (
        "{ranges} damaged {ranges?range|ranges} that no cleaning pass reads. First: {message}"
    ),
    "verdict.unreadable": "cannot be read: {message}",
    "verdict.unmeasured": "not opened yet",
    "verdict.not_opened": "cannot be opened: {message}",
    "verdict.retention": (
        "never compacted; retention would delete {segments} {segments?segment|segments}"
        " ({removed_bytes} {removed_bytes?byte|bytes})"
    ),
    "verdict.unknown_policy": (
        "no configuration is stored for its topic; if cleanup.policy is {policy}, retention would"
        " delete {segments} {segments?segment|segments} ({removed_bytes}"
        " {removed_bytes?byte|bytes})"
    ),
    "verdict.only_forced": (
        "the log has no dirty data, so no pass is due; a forced pass removes expired records"
    ),
    # Observations about a partition that do not prevent anything.
    "note.missing_offsets": (
        "offsets {first_offset}..{last_offset} are missing between two segments; a segment may be"
        " lost. A broker starts without an error, and consumers continue at offset {next_offset}"
    ),
    # Commands and settings that help, by verdict.
    "help.clean": "logstore clean {topic} --partition {partition_id}",
    "help.force": "logstore clean {topic} --partition {partition_id} --force",
    "help.roll": "logstore clean {topic} --partition {partition_id} --roll",
    "help.force_roll": "logstore clean {topic} --partition {partition_id} --force --roll",
    "help.retain": "logstore retain {topic} --partition {partition_id}",
    "help.check": "logstore check",
    "help.fetch_lost": "fetch the partition again from a replica that has these offsets",
    "help.salvage": "logstore salvage {topic}-{partition_id} --out DIR",
    "help.suppose_policy": (
        "--config cleanup.policy=compact, if the topic is compacted on its broker"
    ),
    "help.set_policy": "logstore topic alter {topic} --set cleanup.policy=compact",
    "help.enable_cleaner": "log.cleaner.enable=true",
    "help.lower_min_lag": "a shorter min.compaction.lag.ms",
    "help.lower_ratio": "a min.cleanable.dirty.ratio below {ratio}",
    "help.max_lag": "a shorter max.compaction.lag.ms",
    "help.end_transaction": "kafka-transactions.sh find-hanging, then abort",
    # Causes of a closed gate that the gate itself does not name.
    "cause.by_age_and_size": "retention deletes its records by age and size, without compaction",
    "cause.left_alone": "the cleaner skips the partition until the broker restarts",
    "cause.no_records": "the log contains no records",
    "cause.all_clean": "all closed segments are clean, and the active segment is empty",
    "cause.in_active_segment": (
        "all dirty data (from offset {dirty_offset}) is in active segment {base_offset}"
        " ({size_bytes} {size_bytes?byte|bytes}), which is never cleaned"
    ),
    "cause.open_transaction": (
        "producer {producer_id} has had an open transaction since offset {offset}; data at or"
        " above this offset cannot be cleaned"
    ),
    "cause.unknown_transaction": (
        "a transaction has been open since offset {offset}; data at or above this offset cannot"
        " be cleaned"
    ),
    # What opens a gate.
    "cure.wait": "wait until {at_ms}",
    "cure.wait_for_other": "wait until the other operation has completed",
    "cure.suppose_policy": "assume cleanup.policy=compact if the topic is compacted on its broker",
    "cure.set_policy": "set cleanup.policy=compact for topic {topic}",
    "cure.enable_cleaner": "set log.cleaner.enable=true",
    "cure.force": "force a cleaning pass",
    "cure.salvage": "salvage the valid batches",
    "cure.fetch_again": "truncate the log and fetch it again from another replica",
    "cure.append": "wait for new records",
    "cure.append_bytes": (
        "wait until {more_bytes} more {more_bytes?byte|bytes} in closed segments"
        " {more_bytes?is|are} dirty"
    ),
    "cure.roll": "roll the active segment",
    "cure.end_transaction": (
        "commit or abort the transaction (kafka-transactions.sh find-hanging, then abort)"
    ),
    "cure.lower_min_lag": "lower min.compaction.lag.ms",
    "cure.lower_ratio": "lower min.cleanable.dirty.ratio below {ratio}",
    "cure.lower_max_lag": "lower max.compaction.lag.ms",
    "cure.set_max_lag": "set max.compaction.lag.ms",
    # What rolls the active segment.
    "closing.bytes": (
        "an append larger than the {left_bytes} {left_bytes?byte|bytes} that remain of"
        " segment.bytes {limit_bytes}"
    ),
    "closing.time": (
        "an append with a timestamp at or after {at_ms} ({setting} {limit_ms} after its first"
        " record; time alone does not roll it)"
    ),
    "closing.idle": (
        "a running broker of this engine, at or after {at_ms} (max.compaction.lag.ms {lag_ms};"
        " Kafka waits for an append)"
    ),
    # What surviving tombstones are waiting for.
    "tombstones.none": "there are none",
    "tombstones.unstamped": (
        "{records} {records?has|have} no delete horizon yet; the first pass that reads a"
        " tombstone sets its horizon (time of the pass + delete.retention.ms"
        " {delete_retention_ms})"
    ),
    "tombstones.waiting": (
        "{records} {records?is|are} retained until {records?its delete|the last delete} horizon,"
        " {horizon_at_ms}"
    ),
    "tombstones.expired": (
        "{records} {records?is|are} past the delete horizon; the next pass that reads"
        " {records?it removes it|them removes them}"
    ),
    # When the next pass over a partition is due.
    "pass.due": "a pass is due now",
    "pass.due_later": "a pass will be due at {at_ms} if a cleaner is running",
    "pass.ends_before": "the pass ends at offset {end_offset}, before {records} of them",
    "pass.never": "no pass will be due",
    "pass.not_by_itself": (
        "no pass will become due: as in Kafka, only new dirty data in closed segments makes a"
        " pass due, not expired tombstones"
    ),
    "pass.forced": "a forced pass can run now",
    # Steps until a key is removed.
    "key.no_record": "the log contains no record with this key",
    "key.live": (
        "record {offset} is the latest record of the key; it is retained until a newer record of"
        " the key, or a tombstone, is appended"
    ),
    "key.no_pass": "no pass will become due without new dirty data",
    "key.stamped_later": (
        "the first pass that reads tombstone {offset} sets its delete horizon (time of the pass"
        " + delete.retention.ms {delete_retention_ms})"
    ),
    "key.removed_later": "the first pass that is due at or after the delete horizon removes it",
    "key.horizon": (
        "the delete horizon of tombstone {offset} is {at_ms}; the first pass at or after this"
        " time removes the tombstone"
    ),
    # Why retention deletes or keeps a segment.
    "retention.high_watermark": (
        "its end {end_offset} is above the high watermark {high_watermark_offset}"
    ),
    "retention.active_empty": "the active segment is empty",
    "retention.active": "it is the active segment",
    "retention.below_log_start": "it is entirely below the log start offset {log_start_offset}",
    "retention.not_below_log_start": "it ends above the log start offset {log_start_offset}",
    "retention.size_unlimited": "retention.bytes is unlimited",
    "retention.size_within": (
        "the log size of {total_bytes} {total_bytes?byte|bytes} does not exceed retention.bytes"
        " {limit_bytes}"
    ),
    "retention.size_exceeded": (
        "the log exceeds retention.bytes {limit_bytes} by {excess_bytes}"
        " {excess_bytes?byte|bytes}, at least the segment's {segment_bytes}"
    ),
    "retention.size_exceeded_less": (
        "the log exceeds retention.bytes {limit_bytes} by {excess_bytes}"
        " {excess_bytes?byte|bytes}, less than the segment's {segment_bytes}"
    ),
    "retention.time_unlimited": "retention.ms is unlimited",
    "retention.record_in_future": "its newest record ({newest_at_ms}) is {span_ms} in the future",
    "retention.record_within": (
        "its newest record ({newest_at_ms}) is {span_ms} old, within retention.ms {limit_ms}"
    ),
    "retention.record_past": (
        "its newest record ({newest_at_ms}) is {span_ms} old, past retention.ms {limit_ms}"
    ),
    "retention.file_in_future": (
        "its records' timestamps are unknown, and the modification time of its file"
        " ({newest_at_ms}) is {span_ms} in the future"
    ),
    "retention.file_within": (
        "its records' timestamps are unknown, and its file ({newest_at_ms}) is {span_ms} old,"
        " within retention.ms {limit_ms}"
    ),
    "retention.file_past": (
        "its records' timestamps are unknown, and its file ({newest_at_ms}) is {span_ms} old,"
        " past retention.ms {limit_ms}"
    ),
    "retention.policy": "cleanup.policy {policy} does not include delete",
    "retention.older_stays": "the earlier segment {offset} is retained",
    "retention.merged": (
        "its first batch ({first_at_ms}) is past retention.ms, but the cleaner merged it with"
        " newer segments, which expire together at {at_ms} (KIP-354)"
    ),
    "retention.maybe_merged": (
        "its first batch ({first_at_ms}) is past retention.ms, but the cleaner may have merged"
        " it with newer segments, which expire together at {at_ms} (KIP-354)"
    ),
    "retention.by_log_start": "below the log start offset {log_start_offset}",
    "retention.by_size": "retention.bytes={limit_bytes}",
    "retention.by_time": "retention.ms={limit_ms}",
    "retention.empties": "the active segment is deleted too, which leaves the log empty",
    # Locations of the bytes of a key, by state.
    "location.live": "it is the latest record of its key",
    "location.tombstone": "it is the latest record of its key and has no value",
    "location.superseded": "another record of its key supersedes it",
    "location.aborted": "it belongs to an aborted transaction",
    "location.open_transaction": "it belongs to an open transaction",
    "location.unstable": (
        "it is above the last stable offset, so read_committed consumers cannot read it yet"
    ),
    "location.below_log_start": (
        "it is below the log start offset, but its segment is still on disk"
    ),
    "location.deleted": "it is in a file that is scheduled for deletion",
    "location.swap": "it is in a cleaned file that is about to replace segments of the log",
    "location.cleaned": "it is in a file left by an unfinished cleaning pass",
    "location.torn_tail": "it is in a torn batch at the end of a file",
    "location.damaged": "it is in damaged bytes inside a file",
    "location.unreadable": "these bytes cannot be parsed as records, and may contain it",
    "location.deleted_partition": "it is in the directory of a deleted partition",
    "location.foreign": "it is in a directory or file that no broker uses",
    # The rule that removes the bytes of a key.
    "erasure.file_delay": (
        "the file is deleted file.delete.delay.ms {delay_ms} after it was renamed, or when a"
        " broker starts"
    ),
    "erasure.start": "the file is deleted when a broker starts",
    "erasure.folder_delay": (
        "the directory is deleted file.delete.delay.ms {delay_ms} after a broker starts or"
        " deletes the partition"
    ),
    "erasure.cut": "a broker truncates it when it opens the partition",
    "erasure.no_rule": "no rule removes it before its file is deleted",
    "erasure.not_opened": "the partition cannot be opened: {message}",
    "erasure.by_opening": "a starting broker truncates or replaces it",
    "erasure.by_retention": (
        "retention deletes its segment: retention.ms {retention_ms} after the newest record in"
        " this and all earlier segments, or when they are entirely below the log start offset"
    ),
    "erasure.by_log_start": (
        "retention deletes its segment when this and all earlier segments are below the log"
        " start offset"
    ),
    "erasure.by_size": "retention.bytes deletes its segment when enough data has been appended",
    "erasure.by_horizon": (
        "the cleaner removes it after its delete horizon, which is delete.retention.ms"
        " {delete_retention_ms} after the first pass that reads it"
    ),
    "erasure.by_cleaning": "the cleaner removes it when its segment is closed",
    "erasure.by_superseding": (
        "the cleaner removes it when its segment, all earlier segments and the segment of the"
        " record that supersedes it are closed"
    ),
    "erasure.min_lag": "each segment must also be older than min.compaction.lag.ms {lag_ms}",
    "erasure.last_record": (
        "the last record of the log is retained until another record is appended"
    ),
    "erasure.transaction_timeout": (
        "the transaction of producer {producer_id} is aborted at {at_ms} (transaction.timeout.ms"
        " after its start), unless it ends earlier"
    ),
    "erasure.empty_policy": "cleanup.policy is empty, so no rule removes it",
    "erasure.unlimited": "retention.ms and retention.bytes are unlimited",
    "erasure.until_superseded": (
        "it is retained until a newer record of its key, or a tombstone, is appended"
    ),
    "erasure.hanging_transaction": (
        "an open transaction must end first, but no coordinator in this directory knows it"
    ),
    "erasure.cleaner_disabled": "log.cleaner.enable is false",
    "erasure.never_cleaned": (
        "no pass will be due: its segment cannot be cleaned with this configuration"
    ),
    "erasure.start_due": (
        "without appends, a broker that starts at {at_ms} deletes the files"
        " file.delete.delay.ms {delay_ms} later"
    ),
    "erasure.cleaning_due": (
        "without appends, cleaning is due at {at_ms}; it runs within its interval, and the files"
        " are deleted file.delete.delay.ms {delay_ms} later"
    ),
    "erasure.retention_due": (
        "without appends, retention is due at {at_ms}; it runs within its interval, and the"
        " files are deleted file.delete.delay.ms {delay_ms} later"
    ),
    "erasure.not_due": "without appends, this will never be due",
    # Findings of `check`.
    "check.batch_length": "the length of a batch is invalid, or differs from the range of its CRC",
    "check.magic": "the magic of a batch is not 2",
    "check.unsupported_format": "messages of magic 0 or 1, which can be read but not written",
    "check.crc": "the CRC of a batch does not match",
    "check.codec": "the codec of a batch is unknown, or its records cannot be decompressed",
    "check.record_count": "the record count of a batch differs from its number of records",
    "check.record_structure": "a record is malformed",
    "check.offset_delta": "the offsets in a batch do not increase, or exceed its last offset",
    "check.max_timestamp": "the maximum timestamp of a batch differs from its records",
    "check.control_batch": "a control batch does not contain exactly one valid marker",
    "check.delete_horizon": "the delete horizon of a batch is negative, or set on an empty batch",
    "check.producer_fields": "producer id, epoch and sequence of a batch are inconsistent",
    "check.sequence_order": "the sequences of a producer decrease or have a gap",
    "check.producer_epoch": "the epoch of a producer decreases",
    "check.txn_state": "a producer writes outside its transaction",
    "check.leader_epoch": "the leader epoch of a batch differs from leader-epoch-checkpoint",
    "check.file_name": "the name of a segment is not 20 digits and a suffix",
    "check.duplicate_base": "two segments have the same base offset",
    "check.segment_size": "a segment is larger than the maximum position",
    "check.torn_tail": "a segment ends with a torn batch",
    "check.zero_tail": "a segment ends with zeros",
    "check.offset_order": "the offsets of a batch are not above those of earlier batches",
    "check.segment_bounds": "a batch is outside the offset range of its segment",
    "check.segment_overlap": "a segment overlaps the next segment",
    "check.leftover_segment": "a segment that was superseded by a completed swap",
    "check.offset_gap": "offsets are missing that compaction cannot have removed",
    "check.lost_segment": (
        "offsets are missing between two segments, and a segment may be lost: the adjacent"
        " segments have no missing offsets, or other files of the lost segment remain"
    ),
    "check.missing_log": "a .log file is missing, according to other files of its segment",
    "check.missing_index": "a segment has no .index or .timeindex file",
    "check.orphan_index": "an empty index has no segment",
    "check.index_size": "the size of an offset index is not a multiple of 8",
    "check.index_order": "the entries of an offset index do not increase",
    "check.index_range": "an entry of an offset index is outside the offset range of its segment",
    "check.index_position": "an entry of an offset index does not point to a batch",
    "check.index_entry": "an entry of an offset index does not match the batch that it points to",
    "check.index_chunked": (
        "an entry of an offset index covers several batches, as written by older Kafka versions"
    ),
    "check.index_padding": "the offset index of a closed segment ends with zeros",
    "check.time_index_size": "the size of a time index is not a multiple of 12",
    "check.time_index_order": "the entries of a time index do not increase",
    "check.time_index_range": "an entry of a time index is outside the offset range of its segment",
    "check.time_index_entry": (
        "the timestamp of a time index entry is not the largest up to its offset"
    ),
    "check.time_index_offset": (
        "a time index entry does not point to the first batch with its timestamp"
    ),
    "check.time_index_last": "the time index of a closed segment lacks its largest timestamp",
    "check.time_index_padding": "the time index of a closed segment ends with zeros",
    "check.txn_index_size": "the size of a transaction index is not a multiple of 34",
    "check.txn_index_version": "an entry of a transaction index has an unknown version",
    "check.txn_index_order": "the entries of a transaction index do not increase",
    "check.txn_index_entry": "an entry of a transaction index does not match its abort marker",
    "check.txn_index_missing": "an aborted transaction is not in the transaction index",
    "check.snapshot_size": "the size of a snapshot does not match its number of entries",
    "check.snapshot_version": "a snapshot has an unknown version",
    "check.snapshot_crc": "the CRC of a snapshot does not match",
    "check.snapshot_entry": "an entry of a snapshot is invalid",
    "check.snapshot_state": "a snapshot contradicts the log",
    "check.snapshot_offset": "the offset of a snapshot is beyond the log end offset",
    "check.checkpoint_version": "the version of a checkpoint is not 0",
    "check.checkpoint_count": "the entry count of a checkpoint differs from its number of entries",
    "check.checkpoint_entry": "a line of a checkpoint is malformed",
    "check.checkpoint_duplicate": "a checkpoint lists a partition twice",
    "check.checkpoint_unknown_partition": "a checkpoint lists a partition that does not exist",
    "check.checkpoint_beyond_end": "the offset in a checkpoint is beyond the log end offset",
    "check.checkpoint_below_start": "the offset in a checkpoint is below the log start offset",
    "check.epoch_order": "leader epochs do not increase",
    "check.epoch_beyond_end": "a leader epoch starts beyond the log end offset",
    "check.epoch_inside_batch": "a leader epoch starts inside a batch",
    "check.epoch_missing": "leader epochs of batches are missing from leader-epoch-checkpoint",
    "check.partition_metadata": "partition.metadata is malformed",
    "check.topic_id": (
        "the topic id of a partition differs from its topic's or from other partitions'"
    ),
    "check.shared_topic_id": "a partition has the topic id of another topic",
    "check.topics_file": "logstore-topics.json is malformed",
    "check.topics_partition": "logstore-topics.json does not match the partition directories",
    "check.moves_file": "logstore-moves.json is malformed",
    "check.folder_name": "the name of a directory is not the name of a partition",
    "check.duplicate_partition": "a partition is in two data directories",
    "check.leftover_cleaned": "a file left by an unfinished cleaning pass",
    "check.leftover_swap": "a cleaned file that has not replaced its segments yet",
    "check.leftover_deleted": "a file that is scheduled for deletion",
    "check.leftover_tmp": "a temporary file left by an unfinished write",
    "check.leftover_folder": (
        "a directory that is scheduled for deletion, being moved, or set aside"
    ),
    "check.foreign_file": "a file that does not belong to a log",
    "check.unreadable": "a file or directory cannot be read",
    "check.gone": "a file or directory was moved or removed during the check",
    "check.suppressed": (
        "further findings of the same check in the same file, counted but not listed"
    ),
}
