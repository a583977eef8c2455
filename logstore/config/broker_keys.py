"""All broker keys with an effect in this engine, including the synonyms of topic keys.

Source: docs/spec/storage-format.md §16, docs/spec/cleaner.md §12 and §13.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from logstore.config.keys import ConfigKey, Form
from logstore.config.settings import (
    Settings,
    bool_key,
    double_key,
    int_key,
    list_key,
    long_key,
    string_key,
)
from logstore.config.topic_keys import AT_LEAST_0, AT_LEAST_1, TOPIC_KEYS
from logstore.types import DAY_MS, INT32_MAX, INT64_MAX, MINUTE_MS, SMALL_FILE_MAX_BYTES

CONSUMER_GROUP_BOUNDED = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "assignment.interval.ms",
)
"""Settings `group.consumer.*` that have a minimum, a maximum, and a value for individual groups."""


class BrokerSettings(Settings):
    """A broker's own settings. Fields are named after keys, with underscores for dots."""

    log_dirs: tuple[str, ...] = list_key(
        (),
        "Log directories. A new partition is placed in the one with the fewest. If not set: "
        "log.dir, else the caller's directory (Kafka: /tmp/kafka-logs).",
    )
    node_id: int = int_key(
        -1,
        "Node id of this broker; log directories of another node are refused. -1: the id in "
        "meta.properties of the log directories, else 0.",
    )
    broker_id: int = int_key(
        -1,
        "Name of node.id in Kafka releases with ZooKeeper.",
    )
    broker_rack: str = string_key(
        "",
        "Rack of this broker, reported to clients. Cluster(racks=…) sets it for each broker, and "
        "new topics get replicas in different racks.",
    )
    replica_selector_class: str = string_key(
        "",
        "Selects the replica that a consumer with a rack reads from (KIP-392). Only Kafka's own "
        "classes are available. Empty: the leader.",
        values=(
            "",
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
    )
    log_dir = list_key(
        (),
        "Log directories, separated by commas, if log.dirs is not set.",
    )
    log_retention_check_interval_ms: int = long_key(
        5 * MINUTE_MS,
        "Interval in ms between background retention runs. Logs with policy compact are left "
        "to the cleaner threads.",
        AT_LEAST_1,
    )
    log_initial_task_delay_ms: int = long_key(
        30_000,
        "Delay in ms from the start to the first run of retention, flushing, and the "
        "checkpoints of recovery points and log start offsets.",
        AT_LEAST_0,
    )
    log_flush_scheduler_interval_ms: int = long_key(
        INT64_MAX,
        "Interval in ms between checks for logs whose flush.ms has elapsed; by default there "
        "are none. Also the default of flush.ms.",
        AT_LEAST_0,
    )
    log_flush_offset_checkpoint_interval_ms: int = int_key(
        MINUTE_MS,
        "Interval in ms between checkpoints of recovery points. After a crash, data behind the "
        "last checkpoint is verified again.",
        AT_LEAST_0,
    )
    log_flush_start_offset_checkpoint_interval_ms: int = int_key(
        MINUTE_MS,
        "Interval in ms between checkpoints of log start offsets. After a crash, records "
        "deleted since the last checkpoint may reappear.",
        AT_LEAST_0,
    )
    replica_high_watermark_checkpoint_interval_ms: int = long_key(
        5000,
        "Interval in ms between checkpoints of high watermarks. A replica starts from the last "
        "one; a single broker only writes them, for Kafka.",
    )
    replica_lag_time_max_ms: int = long_key(
        30_000,
        "Time in ms after which a follower that has not caught up with its leader is removed "
        "from the ISR. Applies to a cluster.",
    )
    replica_fetch_max_bytes: int = int_key(
        1 << 20,
        "Bytes that a follower fetches from each partition at a time. A larger first batch is "
        "returned whole.",
        AT_LEAST_0,
    )
    replica_fetch_backoff_ms: int = int_key(
        1000,
        "Time in ms that a follower waits before its next fetch if its leader returned an error.",
        AT_LEAST_0,
    )
    default_replication_factor: int = int_key(
        1,
        "Replication factor of a topic that is created in a cluster without one.",
    )
    num_recovery_threads_per_data_dir: int = int_key(
        1,
        "Number of threads per log directory that load logs and, after an unclean shutdown, "
        "recover them.",
        AT_LEAST_1,
    )
    producer_id_expiration_ms: int = int_key(
        DAY_MS,
        "Idle time in ms after which the state of a producer without an open transaction is "
        "removed; its retries are then not detected as duplicates.",
        AT_LEAST_1,
    )
    producer_id_expiration_check_interval_ms: int = int_key(
        10 * MINUTE_MS,
        "Interval in ms between checks for expired producer ids.",
        AT_LEAST_1,
    )
    transactional_id_expiration_ms: int = int_key(
        7 * DAY_MS,
        "Idle time in ms after which a transactional id without an open transaction expires. "
        "Its next producer gets a new producer id.",
        AT_LEAST_1,
    )
    transaction_max_timeout_ms: int = int_key(
        15 * MINUTE_MS,
        "Maximum transaction timeout in ms that a producer may request.",
        AT_LEAST_1,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int_key(
        10_000,
        "Interval in ms between checks for transactions to abort because their timeout has "
        "elapsed.",
        AT_LEAST_1,
    )
    transaction_partition_verification_enable: bool = bool_key(
        True,
        "Whether the first batch of a transaction in a partition is accepted only if the "
        "coordinator has added the partition (KIP-890).",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int_key(
        60 * MINUTE_MS,
        "Interval in ms between checks for expired transactional ids.",
        AT_LEAST_1,
    )
    transaction_state_log_num_partitions: int = int_key(
        50,
        "Number of partitions of __transaction_state when it is created. Do not change it "
        "later: the hash of a transactional id selects its partition.",
        AT_LEAST_1,
    )
    transaction_state_log_segment_bytes: int = int_key(
        104_857_600,
        "Value of segment.bytes with which __transaction_state is created.",
        AT_LEAST_1,
    )
    transaction_state_log_min_isr: int = int_key(
        2,
        "Value of min.insync.replicas with which __transaction_state is created, for a Kafka "
        "broker that takes over the directory.",
        AT_LEAST_1,
    )
    num_partitions: int = int_key(
        1,
        "Partition count of a topic that is created without one: by an admin client with "
        "-1, or automatically.",
        AT_LEAST_1,
    )
    offsets_topic_num_partitions: int = int_key(
        50,
        "Number of partitions of __consumer_offsets when it is created. Do not change it "
        "later: the hash of a group id selects its partition.",
        AT_LEAST_1,
    )
    offsets_topic_segment_bytes: int = int_key(
        104_857_600,
        "Value of segment.bytes with which __consumer_offsets is created.",
        AT_LEAST_1,
    )
    offset_metadata_max_bytes: int = int_key(
        4096,
        "Maximum length of committed offset metadata, in UTF-16 code units rather "
        "than bytes, as in Kafka.",
    )
    offsets_retention_minutes: int = int_key(
        7 * 24 * 60,
        "Minutes that committed offsets are retained after the last member left the group, or "
        "after the commit if the group never had members.",
        AT_LEAST_1,
    )
    offsets_retention_check_interval_ms: int = long_key(
        10 * MINUTE_MS,
        "Interval in ms between checks for expired offsets and groups.",
        AT_LEAST_1,
    )
    group_min_session_timeout_ms: int = int_key(
        6_000,
        "Minimum session timeout in ms that a group member may request.",
    )
    group_max_session_timeout_ms: int = int_key(
        30 * MINUTE_MS,
        "Maximum session timeout in ms that a group member may request.",
    )
    group_initial_rebalance_delay_ms: int = int_key(
        0,
        "Time in ms that the first rebalance of an empty group waits for more members. Kafka's "
        "default is 3000, and 0 in its own test brokers.",
    )
    group_max_size: int = int_key(
        INT32_MAX,
        "Maximum number of members in a group; further members are rejected (KIP-389).",
        AT_LEAST_1,
    )
    group_consumer_session_timeout_ms: int = int_key(
        45_000,
        "Time in ms without a heartbeat after which a member of the consumer protocol (KIP-848) "
        "is removed, unless its group sets consumer.session.timeout.ms.",
        AT_LEAST_1,
    )
    group_consumer_min_session_timeout_ms: int = int_key(
        45_000,
        "Minimum in ms of group.consumer.session.timeout.ms and of a group's "
        "consumer.session.timeout.ms.",
        AT_LEAST_1,
    )
    group_consumer_max_session_timeout_ms: int = int_key(
        60_000,
        "Maximum in ms of group.consumer.session.timeout.ms and of a group's "
        "consumer.session.timeout.ms.",
        AT_LEAST_1,
    )
    group_consumer_heartbeat_interval_ms: int = int_key(
        5_000,
        "Interval in ms at which members of the consumer protocol send heartbeats, unless their "
        "group sets consumer.heartbeat.interval.ms.",
        AT_LEAST_1,
    )
    group_consumer_min_heartbeat_interval_ms: int = int_key(
        5_000,
        "Minimum in ms of group.consumer.heartbeat.interval.ms and of a group's "
        "consumer.heartbeat.interval.ms.",
        AT_LEAST_1,
    )
    group_consumer_max_heartbeat_interval_ms: int = int_key(
        15_000,
        "Maximum in ms of group.consumer.heartbeat.interval.ms and of a group's "
        "consumer.heartbeat.interval.ms.",
        AT_LEAST_1,
    )
    group_consumer_assignment_interval_ms: int = int_key(
        1_000,
        "Minimum time in ms between two target assignments of a group, unless it sets "
        "consumer.assignment.interval.ms. Since Kafka 4.3.",
        AT_LEAST_0,
    )
    group_consumer_min_assignment_interval_ms: int = int_key(
        0,
        "Minimum in ms of group.consumer.assignment.interval.ms and of a group's "
        "consumer.assignment.interval.ms.",
        AT_LEAST_0,
    )
    group_consumer_max_assignment_interval_ms: int = int_key(
        15_000,
        "Maximum in ms of group.consumer.assignment.interval.ms and of a group's "
        "consumer.assignment.interval.ms.",
        AT_LEAST_0,
    )
    group_consumer_max_size: int = int_key(
        INT32_MAX,
        "Maximum number of members in a group of the consumer protocol.",
        AT_LEAST_1,
    )
    group_consumer_assignors: tuple[str, ...] = list_key(
        ("uniform", "range"),
        "Server-side assignors that members may select; the first one is the default. Kafka also "
        "loads classes.",
        form=Form("(uniform|range)(,(uniform|range))*", "a list of uniform and range"),
    )
    group_consumer_migration_policy: str = string_key(
        "bidirectional",
        "Whether a group with members may change to the consumer protocol (upgrade), to the "
        "classic one (downgrade), to both or to none.",
        values=("bidirectional", "upgrade", "downgrade", "disabled"),
        ignores_case=True,
    )
    group_consumer_regex_refresh_interval_ms: int = int_key(
        10 * MINUTE_MS,
        "Interval in ms at which the topics of subscriptions by regular expression are resolved "
        "again.",
        ((10_000, None),),
    )
    max_connections: int = int_key(
        2000,
        "Maximum number of open connections of a listener; further ones are closed at once. "
        "Kafka has no limit by default.",
        AT_LEAST_0,
    )
    max_connections_per_ip: int = int_key(
        INT32_MAX,
        "Maximum number of open connections of a listener from one IP address; further ones "
        "are closed at once. Unlimited by default.",
        AT_LEAST_0,
    )
    connections_max_idle_ms: int = long_key(
        10 * MINUTE_MS,
        "Idle time in ms, without traffic in either direction, after which a listener closes a "
        "connection. Negative: never.",
    )
    socket_request_max_bytes: int = int_key(
        104_857_600,
        "Maximum size of a request in bytes. A listener closes the connection of a larger one.",
        AT_LEAST_1,
    )
    sasl_server_max_receive_size: int = int_key(
        524_288,
        "Maximum size in bytes of a request from a client that has not authenticated yet.",
    )
    queued_max_request_bytes: int = long_key(
        256 << 20,
        "Maximum bytes of requests that a listener buffers; at the limit it stops "
        "reading (KIP-72). -1 disables the limit, as Kafka does.",
    )
    fetch_max_bytes: int = int_key(
        55 << 20,
        "Maximum bytes of records in a Fetch response. A larger first batch is returned whole.",
        ((1024, None),),
    )
    max_incremental_fetch_session_cache_slots: int = int_key(
        1000,
        "Maximum number of incremental fetch sessions of a listener (KIP-227). Clients without a "
        "session name all partitions in each Fetch.",
        AT_LEAST_0,
    )
    logstore_request_max_entries: int = int_key(
        100_000,
        "Not in Kafka. Maximum number of array elements in a request, such as topics and "
        "partitions. A larger request closes its connection.",
        AT_LEAST_1,
    )
    log_dir_failure_timeout_ms: int = long_key(
        30_000,
        "Accepted without effect: no controller has to be notified of a failed log directory.",
        AT_LEAST_1,
    )
    log_cleaner_enable: bool = bool_key(
        True,
        "Whether compacted logs are cleaned. If not, they get no background retention either, "
        "and only forced cleaning pass shrinks them.",
    )
    log_cleaner_threads: int = int_key(
        1,
        "Number of background cleaner threads, which share the cleaner's buffers; 0 disables "
        "background cleaning.",
        AT_LEAST_0,
    )
    log_cleaner_io_max_bytes_per_second: float = double_key(
        1.7976931348623157e308,
        "Maximum average bytes per second that all cleaner threads together read and write. "
        "Unlimited by default.",
    )
    logstore_cleaner_max_read_bytes_per_second: float = double_key(
        1.7976931348623157e308,
        "Not in Kafka (proposed in KAFKA-631). Maximum bytes per second that all cleaner "
        "threads read; log.cleaner.io.max.bytes.per.second also applies.",
    )
    logstore_cleaner_max_write_bytes_per_second: float = double_key(
        1.7976931348623157e308,
        "Not in Kafka (proposed in KAFKA-631). Maximum bytes per second that all cleaner "
        "threads write.",
    )
    log_cleaner_dedupe_buffer_size: int = long_key(
        128 << 20,
        "Bytes of the offset maps of all cleaner threads, 24 per key. Each thread needs more "
        "than 1 MiB and uses at most 2 GiB.",
    )
    log_cleaner_io_buffer_size: int = int_key(
        512 << 10,
        "Bytes of the I/O buffers of all cleaner threads, at least 1 MiB for each. A batch "
        "that is larger than its buffer is read whole.",
        AT_LEAST_0,
    )
    log_cleaner_io_buffer_load_factor: float = double_key(
        0.9,
        "Maximum load factor of the offset map (despite the name), above 0 and at most 1. A "
        "higher one fits more keys in a pass but slows lookups.",
    )
    log_cleaner_backoff_ms: int = long_key(
        15_000,
        "Time in ms that a cleaner thread sleeps when there is nothing to clean.",
        AT_LEAST_0,
    )
    logstore_small_file_max_bytes: int = int_key(
        SMALL_FILE_MAX_BYTES,
        "Not in Kafka. Maximum bytes of a checkpoint, producer snapshot or other file that is "
        "read whole. A larger one is treated as corrupt.",
        AT_LEAST_1,
    )
    logstore_kafka_exact: bool = bool_key(
        False,
        "Not in Kafka. Whether to follow Kafka's code wherever it differs from a KIP.",
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


BROKER_KEYS: Mapping[str, ConfigKey] = {**_synonym_rows(), **BrokerSettings.keys}
