"""The table of configuration keys: name, type, default, range, broker synonyms, meaning.

`TOPIC_KEYS` are what a topic may override; their broker synonyms give the default of every topic
and stand in Kafka's order of precedence. `BROKER_KEYS` are all keys of a broker's file that have
an effect here, those synonyms included. Ranges are data, since Kafka's releases differ in them.
Source: storage-format §16, cleaner-semantics §12 and §13.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from logstore.config_keys import ConfigKey, Kind, Ranges, Synonym
from logstore.types import INT64_MAX, TimestampType

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS

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
        "Size in bytes at which a segment is closed; also the most that one append may hold.",
        ((14, None),),
        synonyms=(Synonym("log.segment.bytes"),),
    ),
    ConfigKey(
        "segment.ms",
        Kind.LONG,
        WEEK_MS,
        "Age in ms at which an append closes the active segment, full or not.",
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
        "Most that is randomly taken off segment.ms, so that logs do not all roll together.",
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
        "Size in bytes of a new segment's index files; a full index closes the segment.",
        ((4, None),),
        synonyms=(Synonym("log.index.size.max.bytes"),),
    ),
    ConfigKey(
        "index.interval.bytes",
        Kind.INT,
        4096,
        "Bytes of log between two index entries; smaller finds faster and takes more index.",
        AT_LEAST_0,
        synonyms=(Synonym("log.index.interval.bytes"),),
    ),
    ConfigKey(
        "flush.messages",
        Kind.LONG,
        INT64_MAX,
        "Appended records after which the log is forced to disk.",
        AT_LEAST_1,
        synonyms=(Synonym("log.flush.interval.messages"),),
    ),
    ConfigKey(
        "flush.ms",
        Kind.LONG,
        INT64_MAX,
        "Time in ms after which the log is forced to disk.",
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
        "Size in bytes above which the oldest segments go, under policy delete; negative: none.",
        synonyms=(Synonym("log.retention.bytes"),),
    ),
    ConfigKey(
        "retention.ms",
        Kind.LONG,
        WEEK_MS,
        "Age in ms past which segments go, by their newest record, under policy delete; -1: never.",
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
        "Largest batch in bytes that a client may append, after compression.",
        AT_LEAST_0,
        synonyms=(Synonym("message.max.bytes"),),
    ),
    ConfigKey(
        "delete.retention.ms",
        Kind.LONG,
        DAY_MS,
        "Time in ms that a tombstone stays readable after the cleaning that first met it.",
        AT_LEAST_0,
        synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        Kind.LONG,
        0,
        "Age in ms that a record must have before it may be compacted.",
        AT_LEAST_0,
        synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        Kind.LONG,
        INT64_MAX,
        "Age in ms at which a record must be compacted, whatever the dirty ratio (KIP-354).",
        AT_LEAST_1,
        synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
    ),
    ConfigKey(
        "file.delete.delay.ms",
        Kind.LONG,
        MINUTE_MS,
        "Time in ms between renaming a file to .deleted and removing it.",
        AT_LEAST_0,
        synonyms=(Synonym("log.segment.delete.delay.ms"),),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        0.5,
        "Part of the log that must be dirty, and more, before the cleaner takes it up.",
        RATIO,
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
    ),
    ConfigKey(
        "cleanup.policy",
        Kind.LIST,
        (DELETE,),
        "What may remove records: delete (age, size), compact (newer ones of their key), or both.",
        values=(COMPACT, DELETE),
        synonyms=(Synonym("log.cleanup.policy"),),
    ),
    ConfigKey(
        "compression.type",
        Kind.STRING,
        "producer",
        "Codec that batches are stored with; producer keeps the client's.",
        values=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        synonyms=(Synonym("compression.type"),),
    ),
    ConfigKey(
        "compression.gzip.level",
        Kind.INT,
        -1,
        "Level of gzip where the engine compresses; -1 is the library's choice.",
        ((-1, -1), (1, 9)),
        synonyms=(Synonym("compression.gzip.level"),),
    ),
    ConfigKey(
        "compression.lz4.level",
        Kind.INT,
        9,
        "Level of lz4 where the engine compresses.",
        ((1, 17),),
        synonyms=(Synonym("compression.lz4.level"),),
    ),
    ConfigKey(
        "compression.zstd.level",
        Kind.INT,
        3,
        "Level of zstd where the engine compresses.",
        ((-131_072, 22),),
        synonyms=(Synonym("compression.zstd.level"),),
    ),
    ConfigKey(
        "preallocate",
        Kind.BOOLEAN,
        False,
        "Create segments at their full size and trim them when they are closed.",
        synonyms=(Synonym("log.preallocate"),),
    ),
    ConfigKey(
        "message.timestamp.type",
        Kind.STRING,
        TimestampType.CREATE_TIME,
        "Whose time records bear: the producer's (CreateTime) or the append's (LogAppendTime).",
        values=tuple(kind.kafka_name for kind in TimestampType),
        synonyms=(Synonym("log.message.timestamp.type"),),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        INT64_MAX,
        "Most that a record's create time may lie before the append, in ms.",
        AT_LEAST_0,
        synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        INT64_MAX,
        "Most that a record's create time may lie after the append, in ms.",
        AT_LEAST_0,
        synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
    ),
    ConfigKey(
        "message.timestamp.difference.max.ms",
        Kind.LONG,
        INT64_MAX,
        "Deprecated: stands in for before.max.ms and after.max.ms where those have no limit.",
        AT_LEAST_0,
        synonyms=(Synonym("log.message.timestamp.difference.max.ms"),),
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        "Accepted without effect: a single node elects no leader.",
        synonyms=(Synonym("unclean.leader.election.enable"),),
    ),
    ConfigKey(
        "min.insync.replicas",
        Kind.INT,
        1,
        "Accepted without effect: a single node has no replicas.",
        AT_LEAST_1,
        synonyms=(Synonym("min.insync.replicas"),),
    ),
    ConfigKey(
        "compaction.strategy",
        Kind.STRING,
        "offset",
        "Which record of a key wins: the highest offset, timestamp, or header value (KIP-280).",
        values=("offset", "timestamp", "header"),
        synonyms=(Synonym("log.cleaner.compaction.strategy"),),
        blank_is_default=True,
    ),
    ConfigKey(
        "compaction.strategy.header",
        Kind.STRING,
        "",
        "Header whose 8-byte big-endian number decides under the strategy header; blank: offset.",
        synonyms=(Synonym("log.cleaner.compaction.strategy.header"),),
    ),
    ConfigKey(
        "logstore.decompression.max.bytes",
        Kind.INT,
        256 << 20,
        "This engine's own: bytes that one compressed batch may unfold to; more is damage.",
        AT_LEAST_1,
        synonyms=(Synonym("logstore.decompression.max.bytes"),),
    ),
)

TOPIC_KEYS: Mapping[str, ConfigKey] = {row.key: row for row in _TOPIC_ROWS}

_BROKER_ROWS = (
    ConfigKey(
        "log.dirs",
        Kind.LIST,
        (),
        "Log directories; else log.dir; else the caller chooses (Kafka: /tmp/kafka-logs).",
    ),
    ConfigKey("log.dir", Kind.STRING, "", "The one log directory where log.dirs is not set."),
    ConfigKey(
        "log.retention.check.interval.ms",
        Kind.LONG,
        5 * MINUTE_MS,
        "Time in ms between two retention runs over the logs that are not compacted.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "log.initial.task.delay.ms",
        Kind.LONG,
        30_000,
        "Time in ms from the start to the first background run.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        INT64_MAX,
        "Time in ms between two checks whether a log is due for flushing.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms",
        Kind.INT,
        MINUTE_MS,
        "Time in ms between two writes of the recovery-point checkpoint.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms",
        Kind.INT,
        MINUTE_MS,
        "Time in ms between two writes of the log-start checkpoint.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms",
        Kind.LONG,
        5000,
        "Time in ms between two writes of the high-watermark checkpoint.",
    ),
    ConfigKey(
        "num.recovery.threads.per.data.dir",
        Kind.INT,
        1,
        "Threads that load and recover the logs of one log directory.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        Kind.INT,
        DAY_MS,
        "Idle time in ms after which a producer without an open transaction is forgotten.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        Kind.INT,
        10 * MINUTE_MS,
        "Time in ms between two searches for producers to forget.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "log.dir.failure.timeout.ms",
        Kind.LONG,
        30_000,
        "Time in ms that a failed log directory may take to be reported.",
        AT_LEAST_1,
    ),
    ConfigKey("log.cleaner.enable", Kind.BOOLEAN, True, "Whether compacted logs are cleaned."),
    ConfigKey("log.cleaner.threads", Kind.INT, 1, "Background threads that clean.", AT_LEAST_0),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        Kind.DOUBLE,
        1.7976931348623157e308,
        "Bytes that all cleaner threads together may read and write a second, on average.",
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        Kind.LONG,
        128 << 20,
        "Bytes for the offset maps of all cleaner threads; more than 1 MiB for each.",
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size",
        Kind.INT,
        512 << 10,
        "Bytes for the I/O buffers of all cleaner threads.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor",
        Kind.DOUBLE,
        0.9,
        "How full the offset map (despite the name) may get; fuller cleans more at once, slower.",
    ),
    ConfigKey(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15_000,
        "Time in ms that a cleaner thread sleeps when it found nothing to clean.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "logstore.kafka.exact",
        Kind.BOOLEAN,
        False,
        "This engine's own: do as Kafka's code does wherever a KIP says otherwise.",
    ),
)


def _synonym_rows() -> dict[str, ConfigKey]:
    rows = {}
    for topic_key in TOPIC_KEYS.values():
        for synonym in topic_key.synonyms:
            ranges = topic_key.ranges if synonym.ranges is None else synonym.ranges
            rows[synonym.key] = topic_key._replace(
                key=synonym.key, kind=synonym.kind or topic_key.kind, ranges=ranges, synonyms=()
            )
    return rows


BROKER_KEYS: Mapping[str, ConfigKey] = _synonym_rows() | {row.key: row for row in _BROKER_ROWS}
