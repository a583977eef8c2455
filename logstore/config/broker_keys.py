"""Every key of a broker's file that has an effect here, synonyms of topic keys included.

Source: docs/spec/storage-format.md §16, docs/spec/cleaner.md §12 and §13.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from logstore.config.keys import ConfigKey, Kind
from logstore.config.topic_keys import AT_LEAST_0, AT_LEAST_1, TOPIC_KEYS
from logstore.types import DAY_MS, INT32_MAX, INT64_MAX, MINUTE_MS, SMALL_FILE_MAX_BYTES

_BROKER_ROWS = (
    ConfigKey(
        "log.dirs",
        Kind.LIST,
        (),
        "Log directories; new partitions go to the one that has fewest. Else log.dir; else "
        "the caller chooses (Kafka: /tmp/kafka-logs).",
    ),
    ConfigKey(
        "node.id",
        Kind.INT,
        -1,
        "Number of this broker among its clients, who meet no directory of another's; -1: that in "
        "meta.properties of the log directories, else 0.",
    ),
    ConfigKey(
        "broker.id",
        Kind.INT,
        -1,
        "node.id under its name of ZooKeeper's time.",
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
        "Time in ms between two writes of the high watermarks: a replica begins at the last "
        "one; a broker alone writes them for one that takes the directory over.",
    ),
    ConfigKey(
        "replica.lag.time.max.ms",
        Kind.LONG,
        30_000,
        "Time in ms after which a follower that has not caught up with its leader is no longer in "
        "sync; in a cluster.",
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        Kind.INT,
        1 << 20,
        "Bytes that a follower fetches at a time, of each partition; a larger first batch comes "
        "whole.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "replica.fetch.backoff.ms",
        Kind.INT,
        1000,
        "Time in ms that a follower waits before it asks again, after its leader refused.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "default.replication.factor",
        Kind.INT,
        1,
        "Replicas of a topic of a cluster that is created without a number.",
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
        "num.partitions",
        Kind.INT,
        1,
        "Partitions of a topic whose creator says nothing of them: an admin client with -1, or a "
        "client that gets a topic by asking for it.",
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
        "offsets.retention.minutes",
        Kind.INT,
        7 * 24 * 60,
        "Minutes that committed offsets outlive the last member of their group, or, where nobody "
        "ever joined, their commit.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        10 * MINUTE_MS,
        "Time in ms between two searches for offsets and groups whose retention is over.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "group.min.session.timeout.ms",
        Kind.INT,
        6_000,
        "The shortest session timeout in ms that a member of a group may ask for.",
    ),
    ConfigKey(
        "group.max.session.timeout.ms",
        Kind.INT,
        30 * MINUTE_MS,
        "The longest session timeout in ms that a member of a group may ask for.",
    ),
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        0,
        "Time in ms that the first rebalance of an empty group waits for more members; Kafka "
        "waits 3000 by default, its own test brokers do not.",
    ),
    ConfigKey(
        "group.max.size",
        Kind.INT,
        INT32_MAX,
        "Most members that a group may have; more are refused (KIP-389).",
        AT_LEAST_1,
    ),
    ConfigKey(
        "max.connections",
        Kind.INT,
        2000,
        "Connections that a listener keeps at the same time; further ones are closed at once. "
        "Kafka has no limit by default.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "max.connections.per.ip",
        Kind.INT,
        INT32_MAX,
        "Connections that a listener keeps from one address at the same time; further ones are "
        "closed at once. By default there is no limit.",
        AT_LEAST_0,
    ),
    ConfigKey(
        "connections.max.idle.ms",
        Kind.LONG,
        10 * MINUTE_MS,
        "Time in ms without a byte in either direction after which a listener closes a "
        "connection; a negative time: never.",
    ),
    ConfigKey(
        "socket.request.max.bytes",
        Kind.INT,
        104_857_600,
        "Size in bytes of the largest request that a listener takes; a larger one ends its "
        "connection.",
        AT_LEAST_1,
    ),
    ConfigKey(
        "sasl.server.max.receive.size",
        Kind.INT,
        524_288,
        "Size in bytes of the largest request that a listener takes from a client that has not "
        "authenticated.",
    ),
    ConfigKey(
        "queued.max.request.bytes",
        Kind.LONG,
        256 << 20,
        "Bytes that all requests of a listener may hold in memory; at the limit it reads no new "
        "ones (KIP-72). -1, Kafka's default, is no limit.",
    ),
    ConfigKey(
        "fetch.max.bytes",
        Kind.INT,
        55 << 20,
        "Bytes of records in one response to a Fetch request, but for a larger first batch.",
        ((1024, None),),
    ),
    ConfigKey(
        "logstore.request.max.entries",
        Kind.INT,
        100_000,
        "This engine's own: elements that all arrays of one request may have together, such as "
        "topics and partitions; a request with more ends its connection.",
        AT_LEAST_1,
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
        "Bytes for the I/O buffers of all cleaner threads; none gets less than 1 MiB, and a "
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
