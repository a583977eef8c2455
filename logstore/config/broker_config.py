"""The configuration of the engine as a whole, and what it says for all topics.

Source: docs/spec/storage-format.md §16, docs/spec/cleaner.md §12.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.inert_keys import has_no_effect, translate_broker
from logstore.config.keys import ORIGIN_BROKER, Value, render, to_texts
from logstore.config.log_config import MAX_LAG, MIN_LAG, LagSetting, Settings, check_lags
from logstore.config.suggest import nearest_broker_key, suggesting
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.errors import InvalidConfigurationError
from logstore.runtime.fs import read_input
from logstore.types import LINE_END

MIN_DEDUPE_BYTES_PER_THREAD = 1 << 20
"""Each cleaner thread needs more than this for its offset map."""


def _broker(key: str) -> Any:  # noqa: ANN401  # see _topic
    return BROKER_KEYS[key].default


class TopicDefault(NamedTuple):
    """A topic key's value as a broker sets it, the broker key that does, and where it stands."""

    value: Value
    broker_key: str
    origin: str = ORIGIN_BROKER


class BrokerConfig(Settings):
    """The configuration of the engine as a whole.

    Fields are broker keys with their dots turned into underscores (`BROKER_KEYS`),
    and five more:

    Attributes
    ----------
    log_dirs : tuple of str
        From log.dirs, else log.dir; empty if neither is set, and then the caller chooses.
    topic_defaults : Mapping of str to TopicDefault
        By topic key: what the broker sets for all topics.
    given : Mapping of str to str
        The keys that the properties set, today's names, and their values as text.
    dynamic : DynamicLayers, optional
        What was set while the broker runs, which this configuration obeys already.
    notes : tuple of str
        Notes for the user about the properties: old names, unknown and ignored keys.

    Raises
    ------
    InvalidConfigurationError
        A value is out of its range, the defaults for topics contradict each other, or the
        cleaner's threads have too little memory.
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
    offsets_topic_num_partitions: int = _broker("offsets.topic.num.partitions")
    offsets_topic_segment_bytes: int = _broker("offsets.topic.segment.bytes")
    offset_metadata_max_bytes: int = _broker("offset.metadata.max.bytes")
    offsets_retention_minutes: int = _broker("offsets.retention.minutes")
    offsets_retention_check_interval_ms: int = _broker("offsets.retention.check.interval.ms")
    group_min_session_timeout_ms: int = _broker("group.min.session.timeout.ms")
    group_max_session_timeout_ms: int = _broker("group.max.session.timeout.ms")
    group_initial_rebalance_delay_ms: int = _broker("group.initial.rebalance.delay.ms")
    group_max_size: int = _broker("group.max.size")
    max_connections: int = _broker("max.connections")
    max_connections_per_ip: int = _broker("max.connections.per.ip")
    connections_max_idle_ms: int = _broker("connections.max.idle.ms")
    socket_request_max_bytes: int = _broker("socket.request.max.bytes")
    sasl_server_max_receive_size: int = _broker("sasl.server.max.receive.size")
    queued_max_request_bytes: int = _broker("queued.max.request.bytes")
    fetch_max_bytes: int = _broker("fetch.max.bytes")
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

    def _default_of(self, key: str) -> LagSetting:
        """Return what holds for topics without an override, under the broker's name if it is."""
        found = self.topic_defaults.get(key, TopicDefault(TOPIC_KEYS[key].default, key))
        assert isinstance(found.value, int)
        return LagSetting(found.broker_key, found.value)

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, object], *, refuse_unknown: bool = False
    ) -> BrokerConfig:
        """Build from a broker's properties.

        Parameters
        ----------
        properties : Mapping
            Broker keys; values as text, or as Python numbers and booleans.
        refuse_unknown : bool
            Refuse keys that no broker knows, as a program's mistake; in a broker's own file, which
            may be of another release, they are noted.

        Returns
        -------
        BrokerConfig
            `notes` tells what was translated, unknown or without effect.

        Raises
        ------
        InvalidConfigurationError
            A value of a key that has an effect is not allowed, or values contradict each other;
            the message has the broker's names. Or a key is unknown; it has the nearest one.
        """
        texts, notes = translate_broker(to_texts(properties))
        overruled = _overruled(texts)
        values = {
            key: (row._replace(ranges=()) if key in overruled else row).parse(texts[key])
            for key, row in BROKER_KEYS.items()
            if key in texts
        }
        named = next((key for key in ("log.dirs", "log.dir") if key in values), None)
        if named is not None:
            values["log.dirs"] = _directories(named, values[named])
        unknown = [key for key in texts if key not in BROKER_KEYS and not has_no_effect(key)]
        if unknown and refuse_unknown:
            near = nearest_broker_key(unknown[0])
            raise InvalidConfigurationError(
                f"unknown broker configuration {unknown[0]!r}{suggesting(near)}",
                key=unknown[0],
                nearest=near,
            )
        notes += [
            f"unknown broker key {key} is ignored{suggesting(nearest_broker_key(key))}"
            for key in unknown
        ]
        idle = [key for key in texts if key not in BROKER_KEYS and has_no_effect(key)]
        if idle:
            notes.append(f"broker keys without effect here: {', '.join(sorted(idle))}")
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
    """The settings that were changed while a broker runs, over what its file says.

    Attributes
    ----------
    static : BrokerConfig
        What the file says.
    cluster, broker : Mapping of str to str
        For all brokers of the cluster, and for this one, which goes before.
    """

    static: BrokerConfig
    cluster: Mapping[str, str]
    broker: Mapping[str, str]


_BROKER_FIELDS = frozenset(field.name for field in dataclasses.fields(BrokerConfig))


def _overruled(texts: Mapping[str, str]) -> frozenset[str]:
    """Return the keys whose own range does not count, since a finer unit is given as well."""
    return frozenset(
        synonym.key
        for row in TOPIC_KEYS.values()
        for synonym in [found for found in row.synonyms if found.key in texts][1:]
        if synonym.ranges is not None
    )


def topic_defaults_of(
    values: Mapping[str, Value], origin: str = ORIGIN_BROKER
) -> dict[str, TopicDefault]:
    """Return what broker keys say for topics, by topic key: each by its first synonym given."""
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
    named = tuple(path for path in paths if path)
    if not named:
        raise InvalidConfigurationError(f"{key} is set, but names no directory")
    return named


def read_properties(path: str) -> dict[str, str]:
    """Read a Java properties file, or a pipe that yields one.

    Raises
    ------
    InvalidConfigurationError
        There is no such file, or it is malformed.
    """
    try:
        data = read_input(path)
    except FileNotFoundError as error:
        raise InvalidConfigurationError(f"there is no configuration file {path}") from error
    return parse_properties(data, path)


def parse_properties(data: bytes, path: str) -> dict[str, str]:
    """Return what a Java properties file says; `path` names it in errors.

    Raises
    ------
    InvalidConfigurationError
        It is malformed.
    """
    # Few commands are given a file, and the library takes its time to load.
    import javaproperties

    try:
        return javaproperties.loads(_joined(data.decode("latin-1")))
    except ValueError as error:
        raise InvalidConfigurationError(f"{path} is no properties file: {error}") from error


def _joined(text: str) -> str:
    """Return properties with each logical line in one line; the library's time to join is squared.

    A line goes on in the next one if it ends in an odd number of backslashes, but for comments.
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
        # A line that begins so only once it is joined is a key, no comment.
        lines.append(f"\\{whole}" if parts and whole.startswith(("#", "!")) else whole)
        parts.clear()
    return "\n".join([*lines, "".join(parts)])
