"""Configuration of topics and of the engine, with Kafka's keys, defaults and precedence.

A topic's value comes from its override, else from the broker key that stands for it, else from
the table (`logstore.config_table`). Values are read as Kafka reads them; what cannot be obeyed
is refused here, once, so that the rest of the engine trusts what it is handed.
Source: storage-format §16, cleaner-semantics §12.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from logstore.config_ignored import NOT_OFFERED_TO_TOPICS, has_no_effect
from logstore.config_keys import Value, render, to_texts
from logstore.config_legacy import translate_broker, translate_policy
from logstore.config_table import BROKER_KEYS, COMPACT, DELETE, TOPIC_KEYS
from logstore.errors import InvalidConfigurationError
from logstore.runtime.fs import read_input
from logstore.types import INT64_MAX, TimestampType

MIN_DEDUPE_BYTES_PER_THREAD = 1 << 20
"""Each cleaner thread needs more than this for its offset map."""

MIN_LAG = "min.compaction.lag.ms"
MAX_LAG = "max.compaction.lag.ms"

ORIGIN_TOPIC = "topic"
ORIGIN_BROKER = "broker"
ORIGIN_DEFAULT = "default"


def _topic(key: str) -> Any:  # noqa: ANN401  # a dataclass default of the field's own type
    return TOPIC_KEYS[key].default


def _broker(key: str) -> Any:  # noqa: ANN401  # see _topic
    return BROKER_KEYS[key].default


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The configuration in force for the logs of one topic.

    Every field is a topic key with its dots turned into underscores; units, ranges and meanings
    are the rows of `config_table.TOPIC_KEYS`. `LogConfig()` is the defaults.

    Raises
    ------
    InvalidConfigurationError
        A value is out of its range, or max.compaction.lag.ms < min.compaction.lag.ms.
    """

    segment_bytes: int = _topic("segment.bytes")
    segment_ms: int = _topic("segment.ms")
    segment_jitter_ms: int = _topic("segment.jitter.ms")
    segment_index_bytes: int = _topic("segment.index.bytes")
    index_interval_bytes: int = _topic("index.interval.bytes")
    flush_messages: int = _topic("flush.messages")
    flush_ms: int = _topic("flush.ms")
    retention_bytes: int = _topic("retention.bytes")
    retention_ms: int = _topic("retention.ms")
    max_message_bytes: int = _topic("max.message.bytes")
    delete_retention_ms: int = _topic("delete.retention.ms")
    min_compaction_lag_ms: int = _topic("min.compaction.lag.ms")
    max_compaction_lag_ms: int = _topic("max.compaction.lag.ms")
    file_delete_delay_ms: int = _topic("file.delete.delay.ms")
    min_cleanable_dirty_ratio: float = _topic("min.cleanable.dirty.ratio")
    cleanup_policy: tuple[str, ...] = _topic("cleanup.policy")
    compression_type: str = _topic("compression.type")
    compression_gzip_level: int = _topic("compression.gzip.level")
    compression_lz4_level: int = _topic("compression.lz4.level")
    compression_zstd_level: int = _topic("compression.zstd.level")
    preallocate: bool = _topic("preallocate")
    message_timestamp_type: TimestampType = _topic("message.timestamp.type")  # noqa: RUF009  # the row's value is immutable
    message_timestamp_before_max_ms: int = _topic("message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = _topic("message.timestamp.after.max.ms")
    message_timestamp_difference_max_ms: int = _topic("message.timestamp.difference.max.ms")
    unclean_leader_election_enable: bool = _topic("unclean.leader.election.enable")
    min_insync_replicas: int = _topic("min.insync.replicas")
    compaction_strategy: str = _topic("compaction.strategy")
    compaction_strategy_header: str = _topic("compaction.strategy.header")
    logstore_compaction_strategy_header_encoding: str = _topic(
        "logstore.compaction.strategy.header.encoding"
    )
    logstore_decompression_max_bytes: int = _topic("logstore.decompression.max.bytes")

    def __post_init__(self) -> None:
        for key in TOPIC_KEYS.values():
            key.check(getattr(self, key.attribute))
        check_lags(
            LagSetting(MIN_LAG, self.min_compaction_lag_ms),
            LagSetting(MAX_LAG, self.max_compaction_lag_ms),
        )

    @property
    def compact(self) -> bool:
        """Whether the policy includes compaction."""
        return COMPACT in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether the policy includes deletion by age and size."""
        return DELETE in self.cleanup_policy

    @property
    def winner_keys(self) -> tuple[str, str, str]:
        """What decides which record of a key wins a compaction; equal values decide alike."""
        return (
            self.compaction_strategy,
            self.compaction_strategy_header,
            self.logstore_compaction_strategy_header_encoding,
        )

    @property
    def max_segment_ms(self) -> int:
        """Age in ms at which a segment is rolled: a compacted log must keep its maximum lag."""
        if not self.compact:
            return self.segment_ms
        return min(self.segment_ms, self.max_compaction_lag_ms)

    @property
    def timestamp_before_max_ms(self) -> int:
        """Most ms that a create time may lie in the past; the deprecated key may set it."""
        if self.message_timestamp_before_max_ms != INT64_MAX:
            return self.message_timestamp_before_max_ms
        return self.message_timestamp_difference_max_ms

    @property
    def timestamp_after_max_ms(self) -> int:
        """Most ms that a create time may lie in the future; the deprecated key may set it."""
        if self.message_timestamp_after_max_ms != INT64_MAX:
            return self.message_timestamp_after_max_ms
        return self.message_timestamp_difference_max_ms


class TopicDefault(NamedTuple):
    """A topic key's value as a broker sets it, and the broker key that does."""

    value: Value
    broker_key: str


class ConfigValue(NamedTuple):
    """One effective value: as text, where it comes from, and what it means.

    `origin` is `topic`, `broker` or `default`; `broker_key` names the key with the second.
    """

    value: str
    origin: str
    doc: str
    broker_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The configuration of the engine as a whole.

    Fields are broker keys with their dots turned into underscores (`config_table.BROKER_KEYS`),
    and three more:

    Attributes
    ----------
    log_dirs : tuple of str
        From log.dirs, else log.dir; empty if neither is set, and then the caller chooses.
    topic_defaults : Mapping of str to TopicDefault
        By topic key: what the broker sets for all topics.
    notes : tuple of str
        What a user should be told about the properties: old names, unknown and ignored keys.

    Raises
    ------
    InvalidConfigurationError
        A value is out of its range, the defaults for topics contradict each other, or the
        cleaner's threads have too little memory.
    """

    log_dirs: tuple[str, ...] = _broker("log.dirs")
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
    offsets_topic_num_partitions: int = _broker("offsets.topic.num.partitions")
    offsets_topic_segment_bytes: int = _broker("offsets.topic.segment.bytes")
    offset_metadata_max_bytes: int = _broker("offset.metadata.max.bytes")
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
    notes: tuple[str, ...] = dataclasses.field(default=(), compare=False)

    def __post_init__(self) -> None:
        for key in BROKER_KEYS.values():
            if key.attribute in _BROKER_FIELDS:
                key.check(getattr(self, key.attribute))
        check_lags(self._default_of(MIN_LAG), self._default_of(MAX_LAG))
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
        value, name = self.topic_defaults.get(key, (TOPIC_KEYS[key].default, key))
        assert isinstance(value, int)
        return LagSetting(name, value)

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
            raise InvalidConfigurationError(
                f"unknown broker configuration {unknown[0]!r}; the nearest is"
                f" {nearest_broker_key(unknown[0])!r}"
            )
        notes += [
            f"unknown broker key {key} is ignored; the nearest is {nearest_broker_key(key)}"
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
        return cls(topic_defaults=topic_defaults_of(values), notes=tuple(notes), **fields)


_LINE_END = re.compile(r"\r\n|\n|\r")
_BROKER_FIELDS = frozenset(field.name for field in dataclasses.fields(BrokerConfig))


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
    for line in _LINE_END.split(text):
        piece = line.lstrip(" \t\f")
        if not parts and piece.startswith(("#", "!")):
            continue
        if (len(piece) - len(piece.rstrip("\\"))) % 2:
            parts.append(piece[:-1])
            continue
        whole = "".join([*parts, piece])
        # What begins so only once it is joined is a key, no comment.
        lines.append(f"\\{whole}" if parts and whole.startswith(("#", "!")) else whole)
        parts.clear()
    return "\n".join([*lines, "".join(parts)])


def normalize_overrides(overrides: Mapping[str, object]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Check a topic's overrides one by one and spell them as Kafka does today.

    Parameters
    ----------
    overrides : Mapping
        Topic keys; values as text, or as Python numbers, booleans and lists.

    Returns
    -------
    overrides : dict of str to str
        Current names and values, fit to be stored.
    notes : tuple of str
        Which old names were translated.

    Raises
    ------
    InvalidConfigurationError
        A key is unknown (the message has the nearest one), or a value is not allowed.
    """
    normal: dict[str, str] = {}
    notes: list[str] = []
    for given, text in to_texts(overrides).items():
        key, text = translate_policy(given, text, "cleanup.policy", notes)
        if key not in TOPIC_KEYS:
            raise _unknown_topic_key(key)
        if key in normal and given != key:
            continue
        normal[key] = render(TOPIC_KEYS[key].parse(text))
    return normal, tuple(notes)


def effective_config(
    overrides: Mapping[str, object], broker: BrokerConfig | None = None
) -> LogConfig:
    """Return the configuration in force for a topic.

    Parameters
    ----------
    overrides : Mapping
        The topic's own values, as `normalize_overrides` takes them.
    broker : BrokerConfig, optional
        Where the topic says nothing; Kafka's defaults if None.

    Raises
    ------
    InvalidConfigurationError
        A key is unknown, a value is not allowed, or two values contradict each other; the
        message of the last says where each comes from.
    """
    values = _resolve(overrides, broker or BrokerConfig())
    check_lags(values[MIN_LAG].setting(MIN_LAG), values[MAX_LAG].setting(MAX_LAG))
    fields: dict[str, Any] = {
        TOPIC_KEYS[key].attribute: resolved.value for key, resolved in values.items()
    }
    return LogConfig(**fields)


def altered_overrides(
    overrides: Mapping[str, str],
    set: Mapping[str, object],
    unset: Iterable[str],
    broker: BrokerConfig | None = None,
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return a topic's overrides after a change, checked as a whole.

    Parameters
    ----------
    overrides : Mapping
        The topic's own values before the change.
    set : Mapping
        Topic keys that get a value, as `normalize_overrides` takes them.
    unset : iterable of str
        Topic keys that go back to the broker's value or the default; one that the topic does
        not override is no mistake.
    broker : BrokerConfig, optional
        What the result is checked together with.

    Returns
    -------
    overrides : dict of str to str
        Current names and values, fit to be stored.
    notes : tuple of str
        Which old names in the change were translated.

    Raises
    ------
    InvalidConfigurationError
        A key is unknown, set and unset at once, a value is not allowed, or the result, with
        what the broker says, contradicts itself.
    """
    given, notes = normalize_overrides(set)
    removed: list[str] = []
    old_names: list[str] = []
    for name in unset:
        key, _ = translate_policy(name.strip(), "", "cleanup.policy", old_names)
        # What is stored can be taken out again, whoever stored it.
        if key not in TOPIC_KEYS and key not in overrides:
            raise _unknown_topic_key(key)
        if key in given:
            raise InvalidConfigurationError(f"{key} cannot be set and unset at once")
        removed.append(key)
    kept = {key: text for key, text in overrides.items() if key not in removed and key not in given}
    result = normalize_overrides(kept)[0] | given
    effective_config(result, broker)
    return result, (*notes, *old_names)


def describe(
    overrides: Mapping[str, object], broker: BrokerConfig | None = None
) -> dict[str, ConfigValue]:
    """Return every topic key's effective value as text, its origin and its meaning.

    Raises as `effective_config` does, contradictions apart: what is in force can be shown.
    """
    return {
        key: ConfigValue(
            render(resolved.value), resolved.origin, TOPIC_KEYS[key].doc, resolved.broker_key
        )
        for key, resolved in _resolve(overrides, broker or BrokerConfig()).items()
    }


class LagSetting(NamedTuple):
    """A number, the name to complain of it under, and who set it, if there is a choice."""

    key: str
    value: int
    source: str = ""


def check_lags(low: LagSetting, high: LagSetting) -> None:
    """Raise `InvalidConfigurationError` unless the larger lag is at least the smaller one."""
    if high.value >= low.value:
        return
    sources = f": the first is {high.source}, the second {low.source}" if high.source else ""
    if high.source == low.source != "":
        sources = f": both are {low.source}"
    raise InvalidConfigurationError(
        f"{high.key} = {high.value} must not be below {low.key} = {low.value}{sources}"
    )


class _Resolved(NamedTuple):
    value: Value
    origin: str
    broker_key: str | None

    def setting(self, key: str) -> LagSetting:
        assert isinstance(self.value, int)
        source = {
            ORIGIN_TOPIC: "the topic's own",
            ORIGIN_BROKER: f"the broker's ({self.broker_key})",
            ORIGIN_DEFAULT: "the default",
        }[self.origin]
        return LagSetting(key, self.value, source)


def _resolve(overrides: Mapping[str, object], broker: BrokerConfig) -> dict[str, _Resolved]:
    own, _ = normalize_overrides(overrides)
    resolved = {}
    for key, row in TOPIC_KEYS.items():
        if key in own:
            resolved[key] = _Resolved(row.parse(own[key]), ORIGIN_TOPIC, None)
        elif key in broker.topic_defaults:
            value, broker_key = broker.topic_defaults[key]
            resolved[key] = _Resolved(value, ORIGIN_BROKER, broker_key)
        else:
            resolved[key] = _Resolved(row.default, ORIGIN_DEFAULT, None)
    return resolved


def _overruled(texts: Mapping[str, str]) -> frozenset[str]:
    """Return the keys whose own range does not count, since a finer unit is given as well."""
    return frozenset(
        synonym.key
        for row in TOPIC_KEYS.values()
        for synonym in [each for each in row.synonyms if each.key in texts][1:]
        if synonym.ranges is not None
    )


def topic_defaults_of(values: Mapping[str, Value]) -> dict[str, TopicDefault]:
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
            defaults[topic_key.key] = TopicDefault(value, synonym.key)
            break
    return defaults


def _directories(key: str, paths: Value) -> tuple[str, ...]:
    assert isinstance(paths, tuple)
    named = tuple(path for path in paths if path)
    if not named:
        raise InvalidConfigurationError(f"{key} is set, but names no directory")
    return named


def _unknown_topic_key(key: str) -> InvalidConfigurationError:
    if (reason := NOT_OFFERED_TO_TOPICS.get(key)) is not None:
        return InvalidConfigurationError(
            f"topic configuration {key!r} of Kafka's is not offered here: {reason}"
        )
    return InvalidConfigurationError(
        f"unknown topic configuration {key!r}; the nearest is {nearest_topic_key(key)!r}"
    )


def nearest_topic_key(key: str) -> str:
    """Return the topic key that was meant, perhaps: a broker synonym's own, or one alike."""
    for row in TOPIC_KEYS.values():
        if any(synonym.key == key for synonym in row.synonyms):
            return row.key
    return nearest(key, TOPIC_KEYS)


def nearest_broker_key(key: str) -> str:
    """Return the broker key that was meant, perhaps: a topic key's synonym, or one alike."""
    if key in TOPIC_KEYS:
        return TOPIC_KEYS[key].synonyms[0].key
    return nearest(key, BROKER_KEYS)


def nearest(key: str, names: Iterable[str]) -> str:
    """Return the name that is most alike."""
    import difflib  # only a mistake needs it

    return difflib.get_close_matches(key, list(names), n=1, cutoff=0.0)[0]
