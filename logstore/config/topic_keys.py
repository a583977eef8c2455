"""The topic keys: their types, defaults, ranges, broker synonyms and documentation.

A broker synonym sets the default for all topics. Synonyms are listed in Kafka's order of
precedence. The ranges are data, because they differ between releases of Kafka. These are the ranges
of Kafka 3.9.

Source: docs/spec/storage-format.md §16, docs/spec/cleaner.md §12 and §13.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from logstore.config.keys import ConfigKey, Kind, Ranges, Synonym
from logstore.config.settings import (
    Settings,
    bool_key,
    double_key,
    int_key,
    list_key,
    long_key,
    string_key,
)
from logstore.types import DAY_MS, HOUR_MS, INT64_MAX, MINUTE_MS, WEEK_MS, TimestampType

AT_LEAST_0: Ranges = ((0, None),)
AT_LEAST_1: Ranges = ((1, None),)
RATIO: Ranges = ((0, 1),)

COMPACT = "compact"
DELETE = "delete"


class TopicSettings(Settings):
    """The settings of a topic. Fields are named after keys, with underscores for dots."""

    segment_bytes: int = int_key(
        1 << 30,
        "Maximum size of a segment in bytes. An append that would exceed it rolls the segment; "
        "a larger append is rejected (RECORD_LIST_TOO_LARGE).",
        ((14, None),),
        synonyms=(Synonym("log.segment.bytes"),),
    )
    segment_ms: int = long_key(
        WEEK_MS,
        "Maximum age of a segment in ms, from the timestamp of its first batch to the "
        "appended batch's. An append rolls an older segment; an idle one remains open.",
        AT_LEAST_1,
        synonyms=(
            Synonym("log.roll.ms"),
            Synonym("log.roll.hours", HOUR_MS, Kind.INT),
        ),
    )
    segment_jitter_ms: int = long_key(
        0,
        "Maximum random jitter in ms subtracted from segment.ms, drawn for each segment, so "
        "that logs do not all roll at once; at most segment.ms.",
        AT_LEAST_0,
        synonyms=(
            Synonym("log.roll.jitter.ms"),
            Synonym("log.roll.jitter.hours", HOUR_MS, Kind.INT),
        ),
    )
    segment_index_bytes: int = int_key(
        10 << 20,
        "Bytes preallocated for each index of the active segment, trimmed when it is rolled. A "
        "full index rolls the segment; below 24, every append does.",
        ((4, None),),
        synonyms=(Synonym("log.index.size.max.bytes"),),
    )
    index_interval_bytes: int = int_key(
        4096,
        "Bytes of log between index entries. A smaller interval makes lookups faster and "
        "indexes larger; 0 indexes every batch but the first.",
        AT_LEAST_0,
        synonyms=(Synonym("log.index.interval.bytes"),),
    )
    flush_messages: int = long_key(
        INT64_MAX,
        "Number of unflushed records at which an append flushes the log before it returns; 1 "
        "flushes every append. Rolling and closing always flush.",
        AT_LEAST_1,
        synonyms=(Synonym("log.flush.interval.messages"),),
    )
    flush_ms: int = long_key(
        INT64_MAX,
        "Maximum time in ms that records may remain unflushed, checked every "
        "log.flush.scheduler.interval.ms. By default only rolling and closing flush.",
        AT_LEAST_0,
        synonyms=(
            Synonym("log.flush.interval.ms"),
            Synonym("log.flush.scheduler.interval.ms"),
        ),
    )
    retention_bytes: int = long_key(
        -1,
        "Maximum size of a partition in bytes under policy delete. The oldest segment is "
        "deleted if the other segments contain at least this much. Negative: no limit.",
        synonyms=(Synonym("log.retention.bytes"),),
    )
    retention_ms: int = long_key(
        WEEK_MS,
        "Age in ms above which policy delete removes a segment, by its largest timestamp. One "
        "in the future keeps it and all later segments. -1: no limit.",
        ((-1, None),),
        synonyms=(
            Synonym("log.retention.ms", ranges=((None, -1), (1, None))),
            Synonym("log.retention.minutes", MINUTE_MS, Kind.INT, ((None, -1), (1, None))),
            Synonym("log.retention.hours", HOUR_MS, Kind.INT, ((None, -1), (1, None))),
        ),
    )
    max_message_bytes: int = int_key(
        1_048_588,
        "Largest batch in bytes, with its header and as stored (after compression), that a "
        "client may append; a larger one is rejected (MESSAGE_TOO_LARGE).",
        AT_LEAST_0,
        synonyms=(Synonym("message.max.bytes"),),
    )
    delete_retention_ms: int = long_key(
        DAY_MS,
        "Time in ms that tombstones and markers are retained after their first cleaning pass. A "
        "consumer that reads from the start for longer may miss deletions.",
        AT_LEAST_0,
        synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
    )
    min_compaction_lag_ms: int = long_key(
        0,
        "Minimum age in ms, by its largest timestamp, at which a segment may be compacted. 0: "
        "every segment but the active one.",
        AT_LEAST_0,
        synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
    )
    max_compaction_lag_ms: int = long_key(
        INT64_MAX,
        "Age in ms at which records are due for compaction at any dirty ratio (KIP-354); the "
        "active segment is rolled for it. Not below min.compaction.lag.ms.",
        AT_LEAST_1,
        synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
    )
    file_delete_delay_ms: int = long_key(
        MINUTE_MS,
        "Time in ms that .deleted files and -delete directories are retained for readers that "
        "still use them. A clean shutdown removes the files at once.",
        AT_LEAST_0,
        synonyms=(Synonym("log.segment.delete.delay.ms"),),
    )
    min_cleanable_dirty_ratio: float = double_key(
        0.5,
        "Ratio of dirty bytes to all bytes above which a log is cleaned. With 1, it is never "
        "cleaned. A lower ratio wastes less space but rewrites the log more often.",
        RATIO,
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
    )
    cleanup_policy: tuple[str, ...] = list_key(
        (DELETE,),
        "Retention policy of old segments: delete removes them by age and size, compact keeps "
        "the latest record of each key. Both or neither may be set.",
        values=(COMPACT, DELETE),
        synonyms=(Synonym("log.cleanup.policy"),),
    )
    compression_type: str = string_key(
        "producer",
        "Compression codec of stored batches: producer keeps the client's, any other "
        "recompresses batches of a different codec. Markers are never compressed.",
        values=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        synonyms=(Synonym("compression.type"),),
    )
    compression_gzip_level: int = int_key(
        -1,
        "Compression level of gzip, from 1 (fastest) to 9 (smallest); -1 is the library's default.",
        ((-1, -1), (1, 9)),
        synonyms=(Synonym("compression.gzip.level"),),
    )
    compression_lz4_level: int = int_key(
        9,
        "Compression level of lz4, from 1 (fastest) to 17 (smallest).",
        ((1, 17),),
        synonyms=(Synonym("compression.lz4.level"),),
    )
    compression_zstd_level: int = int_key(
        3,
        "Compression level of zstd, up to 22 (smallest); negative levels are faster than 1, 0 "
        "is the library's default.",
        ((-131_072, 22),),
        synonyms=(Synonym("compression.zstd.level"),),
    )
    preallocate: bool = bool_key(
        False,
        "Whether to preallocate segment.bytes on disk for a new segment. The unused rest is "
        "trimmed when the segment is rolled.",
        synonyms=(Synonym("log.preallocate"),),
    )
    message_timestamp_type: TimestampType = string_key(
        TimestampType.CREATE_TIME,
        "Timestamp of a record: CreateTime, set by the producer, or LogAppendTime, set by the "
        "append, which is never out of bounds or out of order.",
        values=tuple(kind.kafka_name for kind in TimestampType),
        synonyms=(Synonym("log.message.timestamp.type"),),
    )
    message_timestamp_before_max_ms: int = long_key(
        INT64_MAX,
        "Maximum time in ms by which a create time may precede the append; earlier ones are "
        "rejected (INVALID_TIMESTAMP). Timestamp -1 (none) is accepted.",
        AT_LEAST_0,
        synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
    )
    message_timestamp_after_max_ms: int = long_key(
        INT64_MAX,
        "Maximum time in ms by which a create time may exceed the append; later ones, which "
        "delay retention, are rejected (INVALID_TIMESTAMP).",
        AT_LEAST_0,
        synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
    )
    message_timestamp_difference_max_ms: int = long_key(
        INT64_MAX,
        "Deprecated. Limit in ms for message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms where they are not set.",
        AT_LEAST_0,
        synonyms=(Synonym("log.message.timestamp.difference.max.ms"),),
    )
    unclean_leader_election_enable: bool = bool_key(
        False,
        "Whether a replica outside the ISR may be elected leader as a last resort, although "
        "records it lacks are lost. Applies to a cluster.",
        synonyms=(Synonym("unclean.leader.election.enable"),),
    )
    min_insync_replicas: int = int_key(
        1,
        "Minimum number of in-sync replicas, including the leader, that acks=all requires. It is "
        "capped at the replication factor. It has no effect on a single broker.",
        AT_LEAST_1,
        synonyms=(Synonym("min.insync.replicas"),),
    )
    compaction_strategy: str = string_key(
        "offset",
        "Record of a key that compaction keeps: the highest offset, timestamp or header value "
        "(KIP-280); of equal ones the later. Blank: offset.",
        values=("offset", "timestamp", "header"),
        synonyms=(Synonym("log.cleaner.compaction.strategy"),),
        blank_is_default=True,
    )
    compaction_strategy_header: str = string_key(
        "",
        "Header with the version for strategy header: a signed 8-byte big-endian number. A "
        "record without it is superseded. Blank: strategy offset.",
        synonyms=(Synonym("log.cleaner.compaction.strategy.header"),),
    )
    logstore_compaction_strategy_header_encoding: str = string_key(
        "long",
        "Not in Kafka. Encoding of the version header: long, 8 bytes as in KIP-280, or "
        "varlong, a zigzag varint of up to 10 bytes.",
        values=("long", "varlong"),
        synonyms=(Synonym("logstore.compaction.strategy.header.encoding"),),
        blank_is_default=True,
    )
    logstore_decompression_max_bytes: int = int_key(
        256 << 20,
        "Not in Kafka. Maximum size in bytes of a decompressed batch. A larger one is treated "
        "as corrupt before memory is allocated.",
        AT_LEAST_1,
        synonyms=(Synonym("logstore.decompression.max.bytes"),),
    )
    logstore_batch_max_records: int = int_key(
        1_000_000,
        "Not in Kafka. Maximum number of records in an appended batch. Larger batches that are "
        "already in a log can be read.",
        AT_LEAST_1,
        synonyms=(Synonym("logstore.batch.max.records"),),
    )


TOPIC_KEYS: Mapping[str, ConfigKey] = TopicSettings.keys
