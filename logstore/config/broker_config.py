"""The configuration of a broker: its own settings, and the defaults of all topics.

Source: docs/spec/storage-format.md §16, docs/spec/cleaner.md §12.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from logstore.config.broker_keys import BROKER_KEYS, CONSUMER_GROUP_BOUNDED
from logstore.config.inert_keys import has_no_effect, translate_broker
from logstore.config.keys import ORIGIN_BROKER, Value, render, to_texts
from logstore.config.log_config import MAX_LAG, MIN_LAG, LagSetting, Settings, check_lags
from logstore.config.suggest import nearest_broker_key, suggestion
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.errors import InvalidConfigurationError
from logstore.runtime.fs import read_input
from logstore.types import LINE_END

MIN_DEDUPE_BYTES_PER_THREAD = 1 << 20
"""Each cleaner thread must have more than this number of bytes for its offset map."""


def _broker(key: str) -> Any:  # noqa: ANN401  # see _topic
    return BROKER_KEYS[key].default


class TopicDefault(NamedTuple):
    """A broker's default for a topic key: the value, the broker key that set it, and the origin."""

    value: Value
    broker_key: str
    origin: str = ORIGIN_BROKER


class BrokerConfig(Settings):
    """The configuration of a broker.

    The fields are named like the broker keys (`BROKER_KEYS`), with underscores instead of dots.
    There are five more:

    Attributes
    ----------
    log_dirs : tuple of str
        The value of log.dirs or log.dir. Empty if neither is set; the caller then chooses a
        directory.
    topic_defaults : Mapping of str to TopicDefault
        The broker's default of each topic key.
    given : Mapping of str to str
        The properties that were set, as text. Old names are replaced by the current ones.
    dynamic : DynamicLayers, optional
        The dynamic settings. They are already included in this configuration.
    notes : tuple of str
        Messages for the user about old names, unknown keys and ignored keys.

    Raises
    ------
    InvalidConfigurationError
        A value is out of range, topic defaults contradict each other, or there is not enough memory
        for the cleaner threads.
    """

    log_dirs: tuple[str, ...] = _broker("log.dirs")
    node_id: int = _broker("node.id")
    broker_id: int = _broker("broker.id")
    log_retention_check_interval_ms: int = _broker("log.retention.check.interval.ms")
    log_initial_task_delay_ms: int = _broker("log.initial.task.delay.ms")
    log_flush_scheduler_interval_ms: int = _broker("log.flush.scheduler.interval.ms")
    log_flush_offset_checkpoint_interval_ms: int = _broker(
        "log.flush.offset.checkpoint.interval.ms"
    )
    log_flush_start_offset_checkpoint_interval_ms: int = _broker(
        "log.flush.start.offset.checkpoint.interval.ms"
    )
    replica_high_watermark_checkpoint_interval_ms: int = _broker(
        "replica.high.watermark.checkpoint.interval.ms"
    )
    replica_lag_time_max_ms: int = _broker("replica.lag.time.max.ms")
    replica_fetch_max_bytes: int = _broker("replica.fetch.max.bytes")
    replica_fetch_backoff_ms: int = _broker("replica.fetch.backoff.ms")
    default_replication_factor: int = _broker("default.replication.factor")
    num_recovery_threads_per_data_dir: int = _broker("num.recovery.threads.per.data.dir")
    producer_id_expiration_ms: int = _broker("producer.id.expiration.ms")
    producer_id_expiration_check_interval_ms: int = _broker(
        "producer.id.expiration.check.interval.ms"
    )
    transactional_id_expiration_ms: int = _broker("transactional.id.expiration.ms")
    transaction_max_timeout_ms: int = _broker("transaction.max.timeout.ms")
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _broker(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    )
    transaction_partition_verification_enable: bool = _broker(
        "transaction.partition.verification.enable"
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _broker(
        "transaction.remove.expired.transaction.cleanup.interval.ms"
    )
    transaction_state_log_num_partitions: int = _broker("transaction.state.log.num.partitions")
    transaction_state_log_segment_bytes: int = _broker("transaction.state.log.segment.bytes")
    transaction_state_log_min_isr: int = _broker("transaction.state.log.min.isr")
    num_partitions: int = _broker("num.partitions")
    broker_rack: str = _broker("broker.rack")
    replica_selector_class: str = _broker("replica.selector.class")
    offsets_topic_num_partitions: int = _broker("offsets.topic.num.partitions")
    offsets_topic_segment_bytes: int = _broker("offsets.topic.segment.bytes")
    offset_metadata_max_bytes: int = _broker("offset.metadata.max.bytes")
    offsets_retention_minutes: int = _broker("offsets.retention.minutes")
    offsets_retention_check_interval_ms: int = _broker("offsets.retention.check.interval.ms")
    group_min_session_timeout_ms: int = _broker("group.min.session.timeout.ms")
    group_max_session_timeout_ms: int = _broker("group.max.session.timeout.ms")
    group_initial_rebalance_delay_ms: int = _broker("group.initial.rebalance.delay.ms")
    group_max_size: int = _broker("group.max.size")
    group_consumer_session_timeout_ms: int = _broker("group.consumer.session.timeout.ms")
    group_consumer_min_session_timeout_ms: int = _broker("group.consumer.min.session.timeout.ms")
    group_consumer_max_session_timeout_ms: int = _broker("group.consumer.max.session.timeout.ms")
    group_consumer_heartbeat_interval_ms: int = _broker("group.consumer.heartbeat.interval.ms")
    group_consumer_min_heartbeat_interval_ms: int = _broker(
        "group.consumer.min.heartbeat.interval.ms"
    )
    group_consumer_max_heartbeat_interval_ms: int = _broker(
        "group.consumer.max.heartbeat.interval.ms"
    )
    group_consumer_assignment_interval_ms: int = _broker("group.consumer.assignment.interval.ms")
    group_consumer_min_assignment_interval_ms: int = _broker(
        "group.consumer.min.assignment.interval.ms"
    )
    group_consumer_max_assignment_interval_ms: int = _broker(
        "group.consumer.max.assignment.interval.ms"
    )
    group_consumer_max_size: int = _broker("group.consumer.max.size")
    group_consumer_assignors: tuple[str, ...] = _broker("group.consumer.assignors")
    group_consumer_migration_policy: str = _broker("group.consumer.migration.policy")
    group_consumer_regex_refresh_interval_ms: int = _broker(
        "group.consumer.regex.refresh.interval.ms"
    )
    max_connections: int = _broker("max.connections")
    max_connections_per_ip: int = _broker("max.connections.per.ip")
    connections_max_idle_ms: int = _broker("connections.max.idle.ms")
    socket_request_max_bytes: int = _broker("socket.request.max.bytes")
    sasl_server_max_receive_size: int = _broker("sasl.server.max.receive.size")
    queued_max_request_bytes: int = _broker("queued.max.request.bytes")
    fetch_max_bytes: int = _broker("fetch.max.bytes")
    max_incremental_fetch_session_cache_slots: int = _broker(
        "max.incremental.fetch.session.cache.slots"
    )
    logstore_request_max_entries: int = _broker("logstore.request.max.entries")
    log_dir_failure_timeout_ms: int = _broker("log.dir.failure.timeout.ms")
    log_cleaner_enable: bool = _broker("log.cleaner.enable")
    log_cleaner_threads: int = _broker("log.cleaner.threads")
    log_cleaner_io_max_bytes_per_second: float = _broker("log.cleaner.io.max.bytes.per.second")
    logstore_cleaner_max_read_bytes_per_second: float = _broker(
        "logstore.cleaner.max.read.bytes.per.second"
    )
    logstore_cleaner_max_write_bytes_per_second: float = _broker(
        "logstore.cleaner.max.write.bytes.per.second"
    )
    log_cleaner_dedupe_buffer_size: int = _broker("log.cleaner.dedupe.buffer.size")
    log_cleaner_io_buffer_size: int = _broker("log.cleaner.io.buffer.size")
    log_cleaner_io_buffer_load_factor: float = _broker("log.cleaner.io.buffer.load.factor")
    log_cleaner_backoff_ms: int = _broker("log.cleaner.backoff.ms")
    logstore_small_file_max_bytes: int = _broker("logstore.small.file.max.bytes")
    logstore_kafka_exact: bool = _broker("logstore.kafka.exact")
    topic_defaults: Mapping[str, TopicDefault] = dataclasses.field(default_factory=dict, hash=False)
    given: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    dynamic: DynamicLayers | None = dataclasses.field(default=None, compare=False, repr=False)
    notes: tuple[str, ...] = dataclasses.field(default=(), compare=False)

    def __post_init__(self) -> None:
        for key in BROKER_KEYS.values():
            if key.attribute in _BROKER_FIELDS:
                key.check(getattr(self, key.attribute))
        check_lags(self._default_of(MIN_LAG), self._default_of(MAX_LAG))
        self._check_consumer_groups()
        is_given = "queued.max.request.bytes" in self.given
        if is_given and 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise InvalidConfigurationError(
                f"queued.max.request.bytes = {self.queued_max_request_bytes} is not allowed: it"
                f" must be at least socket.request.max.bytes = {self.socket_request_max_bytes}, or"
                " -1 for no limit"
            )
        threads = self.log_cleaner_threads
        if not self.log_cleaner_enable or threads == 0:
            return
        if self.log_cleaner_dedupe_buffer_size // threads <= MIN_DEDUPE_BYTES_PER_THREAD:
            raise InvalidConfigurationError(
                f"log.cleaner.dedupe.buffer.size = {self.log_cleaner_dedupe_buffer_size} is not"
                f" allowed: each of {threads} cleaner threads needs more than"
                f" {MIN_DEDUPE_BYTES_PER_THREAD} bytes"
            )

    def _check_consumer_groups(self) -> None:
        """Check that the settings `group.consumer.*` are consistent."""
        for setting in CONSUMER_GROUP_BOUNDED:
            keys = [f"group.consumer.{bound}{setting}" for bound in ("min.", "", "max.")]
            least, value, most = (getattr(self, BROKER_KEYS[key].attribute) for key in keys)
            if not least <= value <= most:
                raise InvalidConfigurationError(
                    f"{keys[1]} = {value} is not allowed: {keys[0]} is {least} and {keys[2]} is"
                    f" {most}",
                    key=keys[1],
                )
        heartbeat_ms = self.group_consumer_heartbeat_interval_ms
        if heartbeat_ms >= self.group_consumer_session_timeout_ms:
            raise InvalidConfigurationError(
                f"group.consumer.heartbeat.interval.ms = {heartbeat_ms} is not allowed: it must be"
                " less than group.consumer.session.timeout.ms ="
                f" {self.group_consumer_session_timeout_ms}",
                key="group.consumer.heartbeat.interval.ms",
            )

    def _default_of(self, key: str) -> LagSetting:
        """Return the default of a topic key, with the name of the broker key that sets it."""
        default = self.topic_defaults.get(key, TopicDefault(TOPIC_KEYS[key].default, key))
        assert isinstance(default.value, int)
        return LagSetting(default.broker_key, default.value)

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, object], *, refuse_unknown: bool = False
    ) -> BrokerConfig:
        """Create a configuration from broker properties.

        Parameters
        ----------
        properties : Mapping
            Broker keys and their values. A value is text, a number or a boolean.
        refuse_unknown : bool
            Whether an unknown key is an error. Otherwise a note is added, because the properties
            file of a broker may be for another release of Kafka.

        Returns
        -------
        BrokerConfig
            Its `notes` list the keys that have an old name, are unknown, or have no effect.

        Raises
        ------
        InvalidConfigurationError
            A value is not allowed, values contradict each other, or a key is unknown.
        """
        texts, notes = translate_broker(to_texts(properties))
        overridden = _overridden_keys(texts)
        values = {
            key: (row._replace(ranges=()) if key in overridden else row).parse(texts[key])
            for key, row in BROKER_KEYS.items()
            if key in texts
        }
        dirs_key = next((key for key in ("log.dirs", "log.dir") if key in values), None)
        if dirs_key is not None:
            values["log.dirs"] = _directories(dirs_key, values[dirs_key])
        unknown = [key for key in texts if key not in BROKER_KEYS and not has_no_effect(key)]
        if unknown and refuse_unknown:
            near = nearest_broker_key(unknown[0])
            raise InvalidConfigurationError(
                f"unknown broker configuration {unknown[0]!r}{suggestion(near)}",
                key=unknown[0],
                nearest=near,
            )
        notes += [
            f"ignoring unknown broker key {key}{suggestion(nearest_broker_key(key))}"
            for key in unknown
        ]
        ignored = [key for key in texts if key not in BROKER_KEYS and has_no_effect(key)]
        if ignored:
            notes.append(f"broker keys that have no effect here: {', '.join(sorted(ignored))}")
        fields: dict[str, Any] = {
            BROKER_KEYS[key].attribute: value
            for key, value in values.items()
            if BROKER_KEYS[key].attribute in _BROKER_FIELDS
        }
        return cls(
            topic_defaults=topic_defaults_of(values),
            given={key: render(value) for key, value in values.items()},
            notes=tuple(notes),
            **fields,
        )


class DynamicLayers(NamedTuple):
    """The dynamic settings of a broker, and the static configuration that they override.

    Attributes
    ----------
    static : BrokerConfig
        The configuration from the properties file.
    cluster : Mapping of str to str
        Settings for all brokers of the cluster.
    broker : Mapping of str to str
        Settings for this broker. They take precedence over `cluster`.
    """

    static: BrokerConfig
    cluster: Mapping[str, str]
    broker: Mapping[str, str]


_BROKER_FIELDS = frozenset(field.name for field in dataclasses.fields(BrokerConfig))


def _overridden_keys(texts: Mapping[str, str]) -> frozenset[str]:
    """Return the keys that are not checked because a key with a finer unit overrides them."""
    return frozenset(
        synonym.key
        for row in TOPIC_KEYS.values()
        for synonym in [each for each in row.synonyms if each.key in texts][1:]
        if synonym.ranges is not None
    )


def topic_defaults_of(
    values: Mapping[str, Value], origin: str = ORIGIN_BROKER
) -> dict[str, TopicDefault]:
    """Return the topic defaults by topic key. The first synonym in `values` sets the default."""
    defaults = {}
    for topic_key in TOPIC_KEYS.values():
        for synonym in topic_key.synonyms:
            if synonym.key not in values:
                continue
            value = values[synonym.key]
            if isinstance(value, int) and synonym.factor != 1:
                value *= synonym.factor
            if topic_key.key == "retention.ms" and isinstance(value, int):
                value = max(value, -1)
            defaults[topic_key.key] = TopicDefault(value, synonym.key, origin)
            break
    return defaults


def _directories(key: str, paths: Value) -> tuple[str, ...]:
    assert isinstance(paths, tuple)
    directories = tuple(path for path in paths if path)
    if not directories:
        raise InvalidConfigurationError(f"{key} is set but does not name a directory")
    return directories


def read_properties(path: str) -> dict[str, str]:
    """Read a Java properties file or a pipe.

    Raises
    ------
    InvalidConfigurationError
        The file does not exist or is malformed.
    """
    try:
        data = read_input(path)
    except FileNotFoundError as error:
        raise InvalidConfigurationError(f"configuration file {path} does not exist") from error
    return parse_properties(data, path)


def parse_properties(data: bytes, path: str) -> dict[str, str]:
    """Parse the content of a Java properties file. `path` is only used in error messages.

    Raises
    ------
    InvalidConfigurationError
        The content is malformed.
    """
    # Import this lazily, because few commands read a file and the library is slow to import.
    import javaproperties

    try:
        return javaproperties.loads(_join_lines(data.decode("latin-1")))
    except ValueError as error:
        raise InvalidConfigurationError(f"{path} is not a properties file: {error}") from error


def _join_lines(text: str) -> str:
    """Join continuation lines. The library would need quadratic time to do it.

    If a line is not a comment and ends in an odd number of backslashes, it continues in the next
    line.
    """
    lines: list[str] = []
    parts: list[str] = []
    for line in LINE_END.split(text):
        piece = line.lstrip(" \t\f")
        if not parts and piece.startswith(("#", "!")):
            continue
        if (len(piece) - len(piece.rstrip("\\"))) % 2:
            parts.append(piece[:-1])
            continue
        whole = "".join([*parts, piece])
        # If a line only starts like a comment because lines were joined, it is a key.
        lines.append(f"\\{whole}" if parts and whole.startswith(("#", "!")) else whole)
        parts.clear()
    return "\n".join([*lines, "".join(parts)])
