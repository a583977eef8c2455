"""Topic keys: type, default, range, broker synonyms, meaning.

The broker synonyms give the default of every topic and stand in Kafka's order of precedence.
Ranges are data, since Kafka's releases differ in them: the rows are those of Kafka 3.9.
Source: docs/spec/storage-format.md §16, docs/spec/cleaner.md §12 and §13.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from logstore.config.keys import ConfigKey, Kind, Ranges, Synonym
from logstore.types import DAY_MS, HOUR_MS, INT64_MAX, MINUTE_MS, WEEK_MS, TimestampType

AT_LEAST_0: Ranges = ((0, None),)
AT_LEAST_1: Ranges = ((1, None),)
RATIO: Ranges = ((0, 1),)

COMPACT = "compact"
DELETE = "delete"

_TOPIC_ROWS = (
    ConfigKey(
        "segment.bytes",
        Kind.INT,
        1 << 30,
        "Bytes that a segment may hold: an append that would exceed them starts a new one, a "
        "larger append is refused (RECORD_LIST_TOO_LARGE).",
        ((14, None),),
        synonyms=(Synonym("log.segment.bytes"),),
    ),
    ConfigKey(
        "segment.ms",
        Kind.LONG,
        WEEK_MS,
        "Age in ms, from the segment's first batch to the append by their timestamps, above "
        "which an append starts a new segment; an idle one stays open.",
        AT_LEAST_1,
        synonyms=(
            Synonym("log.roll.ms"),
            Synonym("log.roll.hours", HOUR_MS, Kind.INT),
        ),
    ),
    ConfigKey(
        "segment.jitter.ms",
        Kind.LONG,
        0,
        "Most ms taken off segment.ms, drawn anew for each segment, so that logs do not all "
        "roll together; never more than segment.ms itself.",
        AT_LEAST_0,
        synonyms=(
            Synonym("log.roll.jitter.ms"),
            Synonym("log.roll.jitter.hours", HOUR_MS, Kind.INT),
        ),
    ),
    ConfigKey(
        "segment.index.bytes",
        Kind.INT,
        10 << 20,
        "Bytes reserved for each index of the active segment, trimmed when it is closed; a "
        "full index closes it. Below 24 every append starts a new segment.",
        ((4, None),),
        synonyms=(Synonym("log.index.size.max.bytes"),),
    ),
    ConfigKey(
        "index.interval.bytes",
        Kind.INT,
        4096,
        "Bytes of log after which the next batch gets an index entry: less finds faster and "
        "takes larger indexes, 0 indexes every batch but the first.",
        AT_LEAST_0,
        synonyms=(Synonym("log.index.interval.bytes"),),
    ),
    ConfigKey(
        "flush.messages",
        Kind.LONG,
        INT64_MAX,
        "Unflushed records at which an append forces the log to disk before it returns; 1: "
        "every append. Rolling and closing do so in any case.",
        AT_LEAST_1,
        synonyms=(Synonym("log.flush.interval.messages"),),
    ),
    ConfigKey(
        "flush.ms",
        Kind.LONG,
        INT64_MAX,
        "Time in ms after which unflushed records are forced to disk, looked at every "
        "log.flush.scheduler.interval.ms; by default rolling and closing alone do so.",
        AT_LEAST_0,
        synonyms=(
            Synonym("log.flush.interval.ms"),
            Synonym("log.flush.scheduler.interval.ms"),
        ),
    ),
    ConfigKey(
        "retention.bytes",
        Kind.LONG,
        -1,
        "Bytes that a partition keeps under policy delete: the oldest segment goes while the "
        "others still hold as many. 0 keeps none, any negative number all.",
        synonyms=(Synonym("log.retention.bytes"),),
    ),
    ConfigKey(
        "retention.ms",
        Kind.LONG,
        WEEK_MS,
        "Age in ms above which a segment goes under policy delete, by its newest record: one "
        "dated ahead holds it and all after it. 0: all before now, -1: never.",
        ((-1, None),),
        synonyms=(
            Synonym("log.retention.ms", ranges=((None, -1), (1, None))),
            Synonym("log.retention.minutes", MINUTE_MS, Kind.INT, ((None, -1), (1, None))),
            Synonym("log.retention.hours", HOUR_MS, Kind.INT, ((None, -1), (1, None))),
        ),
    ),
    ConfigKey(
        "max.message.bytes",
        Kind.INT,
        1_048_588,
        "Largest batch in bytes, header included and compressed as stored, that a client may "
        "append; a larger one is refused (MESSAGE_TOO_LARGE).",
        AT_LEAST_0,
        synonyms=(Synonym("message.max.bytes"),),
    ),
    ConfigKey(
        "delete.retention.ms",
        Kind.LONG,
        DAY_MS,
        "Time in ms that tombstones and markers stay after the cleaning that first met them; "
        "who reads longer than this from the start may miss deletions.",
        AT_LEAST_0,
        synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        Kind.LONG,
        0,
        "Age in ms, by its newest record, below which a segment is not compacted, so that "
        "every version stays readable; 0: the active one alone is safe.",
        AT_LEAST_0,
        synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        Kind.LONG,
        INT64_MAX,
        "Age in ms at which records are compacted whatever the dirty ratio (KIP-354), the "
        "active segment being rolled for it; not below min.compaction.lag.ms.",
        AT_LEAST_1,
        synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
    ),
    ConfigKey(
        "file.delete.delay.ms",
        Kind.LONG,
        MINUTE_MS,
        "Time in ms that files renamed to .deleted, and folders renamed to -delete, stay for "
        "readers still at work; an orderly stop removes the files at once.",
        AT_LEAST_0,
        synonyms=(Synonym("log.segment.delete.delay.ms"),),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        0.5,
        "Dirty part of a log above which it is cleaned: 0 at the first dirty byte, 1 never. "
        "Lower wastes less space and rewrites more often.",
        RATIO,
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
    ),
    ConfigKey(
        "cleanup.policy",
        Kind.LIST,
        (DELETE,),
        "What may remove records: delete (by age and size), compact (all but the newest of a "
        "key, and a key is required), both; empty: neither.",
        values=(COMPACT, DELETE),
        synonyms=(Synonym("log.cleanup.policy"),),
    ),
    ConfigKey(
        "compression.type",
        Kind.STRING,
        "producer",
        "Codec that batches are stored with: producer keeps the client's, any other "
        "recompresses what comes differently; markers are never compressed.",
        values=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        synonyms=(Synonym("compression.type"),),
    ),
    ConfigKey(
        "compression.gzip.level",
        Kind.INT,
        -1,
        "Level of gzip where the engine compresses, 1 fast to 9 small; -1 is the library's choice.",
        ((-1, -1), (1, 9)),
        synonyms=(Synonym("compression.gzip.level"),),
    ),
    ConfigKey(
        "compression.lz4.level",
        Kind.INT,
        9,
        "Level of lz4 where the engine compresses, 1 fast to 17 small.",
        ((1, 17),),
        synonyms=(Synonym("compression.lz4.level"),),
    ),
    ConfigKey(
        "compression.zstd.level",
        Kind.INT,
        3,
        "Level of zstd where the engine compresses, 22 smallest, negative faster still than "
        "1; 0 is the library's choice.",
        ((-131_072, 22),),
        synonyms=(Synonym("compression.zstd.level"),),
    ),
    ConfigKey(
        "preallocate",
        Kind.BOOLEAN,
        False,
        "Whether a new .log takes segment.bytes on the disk at once; what is left over is "
        "trimmed when the segment is closed.",
        synonyms=(Synonym("log.preallocate"),),
    ),
    ConfigKey(
        "message.timestamp.type",
        Kind.STRING,
        TimestampType.CREATE_TIME,
        "Whose time records bear: CreateTime the producer's, LogAppendTime the append's; the "
        "latter cannot be out of bounds or out of order.",
        values=tuple(kind.kafka_name for kind in TimestampType),
        synonyms=(Synonym("log.message.timestamp.type"),),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        INT64_MAX,
        "Most ms that a record's create time may lie before the append; older ones are "
        "refused (INVALID_TIMESTAMP), -1 for no time passes.",
        AT_LEAST_0,
        synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        INT64_MAX,
        "Most ms that a record's create time may lie after the append; later ones are refused "
        "(INVALID_TIMESTAMP), since they hold up retention.",
        AT_LEAST_0,
        synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
    ),
    ConfigKey(
        "message.timestamp.difference.max.ms",
        Kind.LONG,
        INT64_MAX,
        "Deprecated: the limit in ms of message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms where these are left without one.",
        AT_LEAST_0,
        synonyms=(Synonym("log.message.timestamp.difference.max.ms"),),
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        "Whether a replica that is not in sync may lead when no other can, and what it lacks be "
        "lost; in a cluster.",
        synonyms=(Synonym("unclean.leader.election.enable"),),
    ),
    ConfigKey(
        "min.insync.replicas",
        Kind.INT,
        1,
        "Replicas that must be in sync, the leader included, for an append with acks=all; in a "
        "cluster. Of no more than there are.",
        AT_LEAST_1,
        synonyms=(Synonym("min.insync.replicas"),),
    ),
    ConfigKey(
        "compaction.strategy",
        Kind.STRING,
        "offset",
        "Which record of a key survives: the one with the highest offset, timestamp, or "
        "header value (KIP-280), among equals the later; blank: offset.",
        values=("offset", "timestamp", "header"),
        synonyms=(Synonym("log.cleaner.compaction.strategy"),),
        blank_is_default=True,
    ),
    ConfigKey(
        "compaction.strategy.header",
        Kind.STRING,
        "",
        "Header whose value, a signed big-endian number of 8 bytes, counts under strategy "
        "header; records without it lose. Blank: as strategy offset.",
        synonyms=(Synonym("log.cleaner.compaction.strategy.header"),),
    ),
    ConfigKey(
        "logstore.compaction.strategy.header.encoding",
        Kind.STRING,
        "long",
        "This engine's own: how that header's value is written: long, 8 bytes as KIP-280 has it, "
        "or varlong, a zigzag number of up to 10 bytes as record fields are.",
        values=("long", "varlong"),
        synonyms=(Synonym("logstore.compaction.strategy.header.encoding"),),
        blank_is_default=True,
    ),
    ConfigKey(
        "logstore.decompression.max.bytes",
        Kind.INT,
        256 << 20,
        "This engine's own: bytes that one compressed batch may unfold to; one that claims "
        "more is taken for damage before the memory is.",
        AT_LEAST_1,
        synonyms=(Synonym("logstore.decompression.max.bytes"),),
    ),
    ConfigKey(
        "logstore.batch.max.records",
        Kind.INT,
        1_000_000,
        "This engine's own: records that a batch may have when it is appended; larger batches that "
        "a log holds already are read.",
        AT_LEAST_1,
        synonyms=(Synonym("logstore.batch.max.records"),),
    ),
)

TOPIC_KEYS: Mapping[str, ConfigKey] = {row.key: row for row in _TOPIC_ROWS}
