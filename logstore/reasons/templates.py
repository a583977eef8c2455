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
    "condition.paused": "free",
    "condition.empty": "filled",
    "condition.active_segment": "closed segments",
    "condition.last_stable_offset": "stable offsets",
    "condition.min_compaction_lag": "old enough",
    "condition.dirty_ratio": "dirty enough",
    "condition.max_compaction_lag": "or overdue",
    "condition.offset_map": "room in the offset map",
    # Why a partition was not cleaned, by gate, in a few words.
    "refusal.policy": "its cleanup.policy does not compact",
    "refusal.cleaner_disabled": "log.cleaner.enable is false",
    "refusal.empty": "it is empty",
    "refusal.dirty_ratio": "not dirty enough",
    "refusal.min_compaction_lag": "its dirty data is too young",
    "refusal.max_compaction_lag": "not overdue",
    "refusal.last_stable_offset": "a transaction is open",
    "refusal.active_segment": "nothing to clean below the active segment",
    "refusal.uncleanable": "cleaning it failed",
    "refusal.paused": "cleaning is paused",
    "refusal.offset_map": "the offset map is too small",
    # Gates, with the values that were compared.
    "gate.policy": "cleanup.policy is {policy}",
    "gate.cleaner_enabled": "log.cleaner.enable is true",
    "gate.cleaner_disabled": "log.cleaner.enable is false",
    "gate.never_failed": "cleaning has not failed",
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
    "gate.too_young": "data from offset {offset} on is younger than min.compaction.lag.ms {lag_ms}",
    "gate.dirty_ratio": (
        "the dirty ratio {ratio} must exceed min.cleanable.dirty.ratio {threshold_ratio}"
    ),
    "gate.overdue": "the oldest dirty data exceeds max.compaction.lag.ms {lag_ms} by {span_ms}",
    "gate.not_overdue": (
        "no dirty data in closed segments is older than max.compaction.lag.ms {lag_ms}"
    ),
    "gate.lag_not_set": "max.compaction.lag.ms is not set",
    # The verdict on a partition.
    "verdict.due": "will be cleaned with the next pass",
    "verdict.all_clean": "all of it is clean",
    "verdict.policy": "never: its cleanup.policy does not compact",
    "verdict.cleaner_disabled": "never: the cleaner is switched off",
    "verdict.uncleanable": "cannot be cleaned: it is damaged",
    "verdict.paused": "not now: another operation holds it",
    "verdict.empty": "it is empty",
    "verdict.active_segment": "not yet: its records are still in the active segment",
    "verdict.last_stable_offset": "not yet: a transaction is still open",
    "verdict.min_compaction_lag": (
        "not yet: its records are younger than min.compaction.lag.ms={lag_ms}"
    ),
    "verdict.dirty_ratio": (
        "not yet: its dirty ratio is {ratio} and must exceed"
        " min.cleanable.dirty.ratio={threshold_ratio}"
    ),
    "verdict.max_compaction_lag": "not yet: too little of it is dirty",
    "verdict.offset_map": "cannot be cleaned: the offset map is too small",
    "verdict.damaged": (
        "{ranges} damaged {ranges?range|ranges} prevent{ranges?s|} cleaning. First: {message}"
    ),
    "verdict.damaged_elsewhere": (
        "{ranges} damaged {ranges?range|ranges} that no cleaning pass reads. First: {message}"
    ),
    "verdict.unreadable": "it cannot be read: {message}",
    "verdict.unmeasured": "it is not open yet",
    "verdict.not_opened": "it cannot be opened: {message}",
    "verdict.retention": (
        "never compacted; retention would remove {segments} {segments?segment|segments},"
        " {removed_bytes} {removed_bytes?byte|bytes}"
    ),
    "verdict.unknown_policy": (
        "no configuration of its topic is stored here; if cleanup.policy is {policy}, retention"
        " would remove {segments} {segments?segment|segments}, {removed_bytes}"
        " {removed_bytes?byte|bytes}"
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
    "help.suppose_policy": "--config cleanup.policy=compact, if its broker compacts it",
    "help.set_policy": "logstore topic alter {topic} --set cleanup.policy=compact",
    "help.enable_cleaner": "log.cleaner.enable=true",
    "help.lower_min_lag": "a shorter min.compaction.lag.ms",
    "help.lower_ratio": "a min.cleanable.dirty.ratio below {ratio}",
    "help.max_lag": "a shorter max.compaction.lag.ms",
    "help.end_transaction": "kafka-transactions.sh find-hanging, then abort",
    # Causes of a closed gate that the gate itself does not name.
    "cause.by_age_and_size": "its records are removed by age and size, never by key",
    "cause.left_alone": "a broker leaves the partition alone until it restarts",
    "cause.no_records": "the log contains no records",
    "cause.all_clean": "everything is clean, and the active segment is empty",
    "cause.in_active_segment": (
        "all dirty data, from offset {dirty_offset} on, is still in the active segment"
        " {base_offset} ({size_bytes} {size_bytes?byte|bytes}), which the cleaner never touches"
    ),
    "cause.open_transaction": (
        "a transaction of producer {producer_id} is open since offset {offset}: nothing from"
        " there on is cleaned"
    ),
    "cause.unknown_transaction": (
        "a transaction is open since offset {offset}: nothing from there on is cleaned"
    ),
    # What opens a gate.
    "cure.wait": "wait until {at_ms}",
    "cure.wait_for_other": "wait until the other operation has finished",
    "cure.suppose_policy": "suppose cleanup.policy=compact if its broker compacts it",
    "cure.set_policy": "set cleanup.policy=compact for topic {topic}",
    "cure.enable_cleaner": "set log.cleaner.enable=true",
    "cure.force": "force a cleaning pass",
    "cure.salvage": "salvage the intact records",
    "cure.fetch_again": "truncate it and fetch it again from another replica",
    "cure.append": "wait until records are appended",
    "cure.append_bytes": (
        "wait until closed segments have {more_bytes} more dirty {more_bytes?byte|bytes}"
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
        "an append that does not fit into the {left_bytes} {left_bytes?byte|bytes} left of"
        " segment.bytes {limit_bytes}"
    ),
    "closing.time": (
        "an append with a timestamp of {at_ms} or later ({setting} {limit_ms} after its first"
        " record; time alone does not close it)"
    ),
    "closing.idle": (
        "a running broker of this engine, from {at_ms} on (max.compaction.lag.ms {lag_ms}; Kafka"
        " waits for an append)"
    ),
    # What surviving tombstones are waiting for.
    "tombstones.none": "there are none",
    "tombstones.unstamped": (
        "{records} {records?has|have} no delete horizon yet: the first cleaning pass that reaches a"
        " tombstone sets one, the time of that cleaning plus delete.retention.ms"
        " {delete_retention_ms}"
    ),
    "tombstones.waiting": (
        "{records} {records?is retained until its horizon|are retained until the last horizon},"
        " {horizon_at_ms}"
    ),
    "tombstones.expired": (
        "{records} {records?is|are} past the horizon: the next pass that reaches"
        " {records?it removes it|them removes them}"
    ),
    # When the next pass over a partition is due.
    "pass.due": "a pass is due now",
    "pass.due_later": "a pass of a running cleaner is due from {at_ms} on",
    "pass.ends_before": "the pass ends at offset {end_offset} and does not reach {records} of them",
    "pass.never": "no pass will be due",
    "pass.not_by_itself": (
        "no pass is due by itself: as in Kafka, only new dirty data in closed segments makes"
        " one due, not an expired tombstone"
    ),
    "pass.forced": "a forced cleaning runs a pass now",
    # Steps until a key is removed.
    "key.no_record": "it has no record in the log",
    "key.live": (
        "record {offset} is the latest of the key: it is retained until a newer record of the key,"
        " or a tombstone, is appended"
    ),
    "key.no_pass": "no pass over the partition is due by itself",
    "key.stamped_later": (
        "the first pass that reads tombstone {offset} sets its delete horizon: the time of"
        " that pass plus delete.retention.ms {delete_retention_ms}"
    ),
    "key.removed_later": (
        "the first pass at or after that horizon removes it; a pass must be due then, too"
    ),
    "key.horizon": (
        "the delete horizon of tombstone {offset} is {at_ms}: the first pass at or after it"
        " removes the tombstone"
    ),
    # Why retention deletes or keeps a segment.
    "retention.high_watermark": (
        "the high watermark {high_watermark_offset} is below its end {end_offset}"
    ),
    "retention.active_empty": "the active segment is empty",
    "retention.active": "it is the active segment",
    "retention.below_log_start": "all of it is below the log start {log_start_offset}",
    "retention.not_below_log_start": "not all of it is below the log start {log_start_offset}",
    "retention.size_unlimited": "retention.bytes is unlimited",
    "retention.size_within": (
        "{total_bytes} {total_bytes?byte is|bytes are} within retention.bytes {limit_bytes}"
    ),
    "retention.size_exceeded": (
        "{excess_bytes} {excess_bytes?byte exceeds|bytes exceed} retention.bytes"
        " {limit_bytes}, at least its {segment_bytes}"
    ),
    "retention.size_exceeded_less": (
        "{excess_bytes} {excess_bytes?byte exceeds|bytes exceed} retention.bytes"
        " {limit_bytes}, fewer than its {segment_bytes}"
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
        "no record time is known, and its file ({newest_at_ms}) is {span_ms} in the future"
    ),
    "retention.file_within": (
        "no record time is known, and its file ({newest_at_ms}) is {span_ms} old, within"
        " retention.ms {limit_ms}"
    ),
    "retention.file_past": (
        "no record time is known, and its file ({newest_at_ms}) is {span_ms} old, past"
        " retention.ms {limit_ms}"
    ),
    "retention.policy": "cleanup.policy {policy} does not delete",
    "retention.older_stays": "the older segment {offset} is retained",
    "retention.merged": (
        "its first batch ({first_at_ms}) is past retention.ms, but the cleaner rewrote it, and"
        " the segments that it joined expire together, at {at_ms} (KIP-354)"
    ),
    "retention.maybe_merged": (
        "its first batch ({first_at_ms}) is past retention.ms, but the cleaner rewrote it, and"
        " the segments that it may have joined expire together, at {at_ms} (KIP-354)"
    ),
    "retention.by_log_start": "below the log start {log_start_offset}",
    "retention.by_size": "retention.bytes={limit_bytes}",
    "retention.by_time": "retention.ms={limit_ms}",
    "retention.empties": "the active segment too, so the log ends up empty",
    # Locations of the bytes of a key, by state.
    "location.live": "it is the latest record of its key",
    "location.tombstone": "it is the latest record of its key and has no value",
    "location.superseded": "another record of its key supersedes it",
    "location.aborted": "it belongs to an aborted transaction",
    "location.open_transaction": "it belongs to an open transaction",
    "location.unstable": (
        "it follows the start of an open transaction: consumers of committed data do not read"
        " it yet"
    ),
    "location.below_log_start": "consumers cannot read it any more, but its segment is still there",
    "location.deleted": "it is in a file that waits for its removal",
    "location.swap": "it is in a file that is about to take its place in the log",
    "location.cleaned": "it is in a file that an unfinished cleaning left",
    "location.torn_tail": "it is in bytes at the end of a file that are not a whole batch",
    "location.damaged": "it is in bytes inside a file that are not a valid batch",
    "location.unreadable": "these bytes cannot be read as records and may hold it",
    "location.deleted_partition": "it is in the folder of a deleted partition",
    "location.foreign": "it is in a folder or file that no broker uses",
    # The rule that removes the bytes of a key.
    "erasure.file_delay": (
        "the file is removed file.delete.delay.ms {delay_ms} after it was renamed, or when a"
        " broker starts"
    ),
    "erasure.start": "the file is removed when a broker starts",
    "erasure.folder_delay": (
        "the folder is removed file.delete.delay.ms {delay_ms} after a broker starts or deletes it"
    ),
    "erasure.cut": "a broker cuts it off when it opens the partition",
    "erasure.no_rule": "no rule removes it before its file is removed",
    "erasure.not_opened": "the partition cannot be opened: {message}",
    "erasure.by_opening": "a broker that starts cuts or replaces it",
    "erasure.by_retention": (
        "retention removes its segment: retention.ms {retention_ms} after the newest record in"
        " it and in those before it, or once all of them are below the log start"
    ),
    "erasure.by_log_start": (
        "retention removes its segment once it and those before it are below the log start"
    ),
    "erasure.by_size": "retention.bytes removes its segment once enough is appended",
    "erasure.by_horizon": (
        "the cleaner removes it when its delete horizon has passed, delete.retention.ms"
        " {delete_retention_ms} after the first pass that reads it"
    ),
    "erasure.by_cleaning": "the cleaner removes it once its segment is closed",
    "erasure.by_superseding": (
        "the cleaner removes it once its segment, those before it and the one of the record"
        " that supersedes it are closed"
    ),
    "erasure.min_lag": "each segment must also be older than min.compaction.lag.ms {lag_ms}",
    "erasure.last_record": "the log's last record is retained until another one is appended",
    "erasure.transaction_timeout": (
        "the transaction of producer {producer_id} is aborted at {at_ms},"
        " transaction.timeout.ms after its start, unless it ends before"
    ),
    "erasure.empty_policy": "cleanup.policy is empty, so no rule removes it",
    "erasure.unlimited": "retention.ms and retention.bytes are unlimited",
    "erasure.until_superseded": (
        "it is retained until a newer record of its key, or a tombstone, is appended"
    ),
    "erasure.hanging_transaction": (
        "an open transaction must end first, and no coordinator here knows it"
    ),
    "erasure.cleaner_disabled": "log.cleaner.enable is false",
    "erasure.never_cleaned": (
        "no pass is ever due: its segment cannot be cleaned under this configuration"
    ),
    "erasure.start_due": (
        "even without an append a broker's start is due at {at_ms}, and files are removed"
        " file.delete.delay.ms {delay_ms} later"
    ),
    "erasure.cleaning_due": (
        "even without an append, cleaning is due at {at_ms}; it runs within its interval, and"
        " files are removed file.delete.delay.ms {delay_ms} later"
    ),
    "erasure.retention_due": (
        "even without an append retention is due at {at_ms}; it runs within its interval, and"
        " files are removed file.delete.delay.ms {delay_ms} later"
    ),
    "erasure.not_due": "nothing makes that due unless something is appended",
    # Findings of `check`.
    "check.batch_length": "a batch's length is impossible, or differs from what its CRC covers",
    "check.magic": "a batch's magic is not 2",
    "check.unsupported_format": "messages of magic 0 or 1, which are read and never written",
    "check.crc": "a batch's CRC does not match",
    "check.codec": "a batch's codec is unknown, or its records cannot be decompressed",
    "check.record_count": "a batch does not hold as many records as it counts",
    "check.record_structure": "a record breaks a read rule",
    "check.offset_delta": "the offsets in a batch do not rise, or pass its last offset",
    "check.max_timestamp": "a batch's largest timestamp differs from its records'",
    "check.control_batch": "a control batch does not contain exactly one valid marker",
    "check.delete_horizon": "a batch's delete horizon is negative, or set on an empty batch",
    "check.producer_fields": "producer id, epoch and sequence of a batch do not fit together",
    "check.sequence_order": "a producer's sequences fall or jump",
    "check.producer_epoch": "a producer's epoch falls",
    "check.txn_state": "a producer writes outside its open transaction",
    "check.leader_epoch": "a batch's leader epoch differs from leader-epoch-checkpoint",
    "check.file_name": "a segment's name is not 20 digits and a suffix",
    "check.duplicate_base": "two segments have the same base offset",
    "check.segment_size": "a segment is larger than positions can express",
    "check.torn_tail": "a segment ends inside a batch",
    "check.zero_tail": "a segment ends in zeros",
    "check.offset_order": "a batch's offsets are not above those before it",
    "check.segment_bounds": "a batch is outside the segment's offsets",
    "check.segment_overlap": "a segment reaches into the next one",
    "check.leftover_segment": "a segment whose records a finished swap had put into another one",
    "check.offset_gap": "offsets are missing, which compaction does not explain",
    "check.lost_segment": (
        "offsets are missing between two segments, and a segment may be lost: both neighbours"
        " lack no offset, or files of a segment without its .log remain"
    ),
    "check.missing_log": "other files prove that there was a .log, and it is missing",
    "check.missing_index": "a segment has no .index or .timeindex",
    "check.orphan_index": "an index without entries has no segment",
    "check.index_size": "an offset index's size is not a multiple of 8",
    "check.index_order": "an offset index's entries do not rise",
    "check.index_range": "an offset index's entry is outside the segment's offsets",
    "check.index_position": "an offset index's entry points at no batch",
    "check.index_entry": "an offset index's entry does not belong to the batch it points at",
    "check.index_chunked": (
        "an offset index's entry covers several batches, as older Kafka versions wrote them"
    ),
    "check.index_padding": "an offset index that nobody writes to ends in zeros",
    "check.time_index_size": "a time index's size is not a multiple of 12",
    "check.time_index_order": "a time index's entries do not rise",
    "check.time_index_range": "a time index's entry is outside the segment's offsets",
    "check.time_index_entry": "a time index's timestamp is not the largest up to its offset",
    "check.time_index_offset": (
        "a time index's entry does not name the first batch with its timestamp"
    ),
    "check.time_index_last": "a closed segment's time index lacks its largest timestamp",
    "check.time_index_padding": "a time index that nobody writes to ends in zeros",
    "check.txn_index_size": "a transaction index's size is not a multiple of 34",
    "check.txn_index_version": "a transaction index's entry has an unknown version",
    "check.txn_index_order": "a transaction index's entries do not rise",
    "check.txn_index_entry": "a transaction index's entry does not fit the abort marker it names",
    "check.txn_index_missing": "an aborted transaction is not in the transaction index",
    "check.snapshot_size": "a snapshot's size does not fit its count",
    "check.snapshot_version": "a snapshot has an unknown version",
    "check.snapshot_crc": "a snapshot's CRC does not match",
    "check.snapshot_entry": "a snapshot's entry is impossible",
    "check.snapshot_state": "a snapshot contradicts the log",
    "check.snapshot_offset": "a snapshot's offset is beyond the end of the log",
    "check.checkpoint_version": "a checkpoint's version is not 0",
    "check.checkpoint_count": "a checkpoint has more or fewer entries than it counts",
    "check.checkpoint_entry": "a checkpoint's line is not an entry",
    "check.checkpoint_duplicate": "a checkpoint names a partition twice",
    "check.checkpoint_unknown_partition": "a checkpoint names a partition that does not exist",
    "check.checkpoint_beyond_end": "a checkpoint's offset is beyond the end of the log",
    "check.checkpoint_below_start": "a checkpoint's offset is below the start of the log",
    "check.epoch_order": "leader epochs do not rise",
    "check.epoch_beyond_end": "a leader epoch begins beyond the end of the log",
    "check.epoch_inside_batch": "a leader epoch begins inside a batch",
    "check.epoch_missing": "batches have leader epochs that leader-epoch-checkpoint does not know",
    "check.partition_metadata": "partition.metadata is malformed",
    "check.topic_id": "a partition has another topic id than its topic, or than other partitions",
    "check.shared_topic_id": "a partition has the topic id of another topic",
    "check.topics_file": "logstore-topics.json is malformed",
    "check.topics_partition": "logstore-topics.json and the folders differ",
    "check.moves_file": "logstore-moves.json is malformed",
    "check.folder_name": "a folder is not a partition's",
    "check.duplicate_partition": "a partition is in two data directories",
    "check.leftover_cleaned": "an unfinished file of a cleaner",
    "check.leftover_swap": "a cleaned file that is not in its place yet",
    "check.leftover_deleted": "a file that is scheduled for deletion",
    "check.leftover_tmp": "an unfinished small file",
    "check.leftover_folder": "a folder scheduled for deletion, being moved, or kept aside",
    "check.foreign_file": "a file that does not belong to a log",
    "check.unreadable": "a file or folder cannot be read",
    "check.gone": "a file or folder was moved or removed while it was verified",
    "check.suppressed": (
        "further findings of one check in one file, which are counted and not listed"
    ),
}
