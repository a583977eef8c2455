"""The table of configuration keys: name, type, default, range, broker synonyms, meaning.

`TOPIC_KEYS` are what a topic may override; their broker synonyms give the default of every topic
and stand in Kafka's order of precedence. `BROKER_KEYS` are all keys of a broker's file that have
an effect here, those synonyms included. Ranges are data, since Kafka's releases differ in them:
the rows are those of Kafka 3.9, `LATER_RELEASES` says what has changed since.
Source: storage-format §16, cleaner-semantics §12 and §13.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from logstore.config_keys import ConfigKey, Kind, Ranges, Synonym, Value
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

SMALL_FILE_MAX_BYTES = 64 << 20
"""Default of `logstore.small.file.max.bytes`, for those too who have no configuration."""

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
)

TOPIC_KEYS: Mapping[str, ConfigKey] = {row.key: row for row in _TOPIC_ROWS}

_BROKER_ROWS = (
    ConfigKey(
        "log.dirs",
        Kind.LIST,
        (),
        "Log directories; new partitions go to the one that has fewest. Else log.dir; else "
        "the caller chooses (Kafka: /tmp/kafka-logs).",
    ),
    ConfigKey(
        "log.dir",
        Kind.LIST,
        (),
        "Log directories where log.dirs is not set; as there, commas separate several.",
    ),
    ConfigKey(
        "log.retention.check.interval.ms",
        Kind.LONG,
        5 * MINUTE_MS,
        "Time in ms between two background retention runs; logs with compact in their policy "
        "are left to the cleaner's threads.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "log.initial.task.delay.ms",
        Kind.LONG,
        30_000,
        "Time in ms from the start to the first run of retention, flushing, and the "
        "checkpoints of recovery points and log starts.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        INT64_MAX,
        "Time in ms between two searches for logs whose flush.ms is over; by default there is "
        "none. Also the default of flush.ms.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms",
        Kind.INT,
        MINUTE_MS,
        "Time in ms between two writes of the recovery points: what was flushed since the "
        "last one is verified again after a crash.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms",
        Kind.INT,
        MINUTE_MS,
        "Time in ms between two writes of the log starts: records deleted since the last one "
        "may come back after a crash.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms",
        Kind.LONG,
        5000,
        "Time in ms between two writes of the high watermarks; they are for a broker that "
        "takes the directory over, here nothing trusts them.",
    ),
    ConfigKey(
        "num.recovery.threads.per.data.dir",
        Kind.INT,
        1,
        "Threads that load, and after an unclean stop recover, the logs of one log directory.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        Kind.INT,
        DAY_MS,
        "Idle time in ms after which a producer without an open transaction is forgotten; a "
        "batch it sends again is then no longer known as a duplicate.",
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
        "transactional.id.expiration.ms",
        Kind.INT,
        7 * DAY_MS,
        "Idle time in ms after which a transactional id without an open transaction is "
        "forgotten; its next producer gets a new producer id.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "transaction.max.timeout.ms",
        Kind.INT,
        15 * MINUTE_MS,
        "The longest timeout in ms that a producer may ask for its transactions.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        10_000,
        "Time in ms between two searches for transactions that took longer than their timeout.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        Kind.BOOLEAN,
        True,
        "Take a transaction's first batch in a partition only if the coordinator knows of both "
        "(KIP-890).",
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        60 * MINUTE_MS,
        "Time in ms between two searches for transactional ids to forget.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        Kind.INT,
        50,
        "Partitions of __transaction_state, when it is made; not to be changed later, since the "
        "hash of a transactional id names its partition.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        Kind.INT,
        104_857_600,
        "segment.bytes of __transaction_state, when it is made.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        Kind.INT,
        2,
        "min.insync.replicas of __transaction_state, when it is made: for a broker that takes "
        "the directory over.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "offsets.topic.num.partitions",
        Kind.INT,
        50,
        "Partitions of __consumer_offsets, when it is made; not to be changed later, since the "
        "hash of a group's id names its partition.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "offsets.topic.segment.bytes",
        Kind.INT,
        104_857_600,
        "segment.bytes of __consumer_offsets, when it is made.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "offset.metadata.max.bytes",
        Kind.INT,
        4096,
        "The longest metadata that may be committed with an offset, in UTF-16 units rather than "
        "bytes, as in Kafka.",
    ),
    ConfigKey(
        "log.dir.failure.timeout.ms",
        Kind.LONG,
        30_000,
        "Accepted without effect: there is no controller that would have to hear of a failed "
        "log directory.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "log.cleaner.enable",
        Kind.BOOLEAN,
        True,
        "Whether compacted logs are cleaned; if not, they get no background retention either, "
        "and only a forced cleaning shrinks them.",
    ),
    ConfigKey(
        "log.cleaner.threads",
        Kind.INT,
        1,
        "Background threads that clean, sharing the buffers below; 0: none.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        Kind.DOUBLE,
        1.7976931348623157e308,
        "Bytes that all cleaner threads together may read and write a second, on average; the "
        "default is no limit.",
    ),
    ConfigKey(
        "logstore.cleaner.max.read.bytes.per.second",
        Kind.DOUBLE,
        1.7976931348623157e308,
        "This engine's own, after KAFKA-631: bytes that all cleaner threads together may read a "
        "second, on average; the limit on the sum above holds as well.",
    ),
    ConfigKey(
        "logstore.cleaner.max.write.bytes.per.second",
        Kind.DOUBLE,
        1.7976931348623157e308,
        "This engine's own, after KAFKA-631: bytes that they may write.",
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        Kind.LONG,
        128 << 20,
        "Bytes for the offset maps of all cleaner threads, counted as 24 a key; more than 1 "
        "MiB for each thread, above 2 GiB for one is not used.",
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size",
        Kind.INT,
        512 << 10,
        "Bytes for the I/O buffers of all cleaner threads; none gets less than 64 KiB, and a "
        "larger batch is read whole all the same.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor",
        Kind.DOUBLE,
        0.9,
        "How full the offset map (despite the name) may get, above 0 and at most 1; fuller "
        "takes more keys in a pass, each more slowly.",
    ),
    ConfigKey(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15_000,
        "Time in ms that a cleaner thread sleeps when it found nothing to clean.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "logstore.small.file.max.bytes",
        Kind.INT,
        SMALL_FILE_MAX_BYTES,
        "This engine's own: bytes that a checkpoint, a producer snapshot or another file read as a "
        "whole may have; a larger one is taken for damage.",
        AT_LEAST_1,
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


class ReleaseChange(NamedTuple):
    """What a later release of Kafka changed about a key; None where it left things as they were.

    Attributes
    ----------
    since : str
        The release, as `4.0`.
    removed : bool
        Whether the release knows the key no more.
    """

    key: str
    since: str
    default: Value | None = None
    ranges: Ranges | None = None
    removed: bool = False


LATER_RELEASES = (
    ReleaseChange("segment.bytes", "4.0", ranges=((1 << 20, None),)),
    ReleaseChange("message.timestamp.after.max.ms", "4.0", default=HOUR_MS),
    ReleaseChange("message.timestamp.difference.max.ms", "4.0", removed=True),
    ReleaseChange("num.recovery.threads.per.data.dir", "4.0", default=2),
)
"""By topic key, for its broker keys as well; else by broker key. As of Kafka 4.4."""
