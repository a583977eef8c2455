"""Broker configuration: the broker's own settings, and the defaults of all topics.

Source: docs/spec/storage-format.md §16, docs/spec/cleaner.md §12.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from logstore.config.broker_keys import BROKER_KEYS, CONSUMER_GROUP_BOUNDED, BrokerSettings
from logstore.config.inert_keys import has_no_effect, translate_broker
from logstore.config.keys import ORIGIN_BROKER, Value, render, to_texts
from logstore.config.log_config import MAX_LAG, MIN_LAG, LagSetting, check_lags
from logstore.config.suggest import nearest_broker_key, suggestion
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.errors import InvalidConfigurationError
from logstore.runtime.fs import read_input
from logstore.types import LINE_END

MIN_DEDUPE_BYTES_PER_THREAD = 1 << 20
"""Each cleaner thread must have more than this number of bytes for its offset map."""


class TopicDefault(NamedTuple):
    """A broker's default for a topic key: the value, the broker key that set it, and the origin."""

    value: Value
    broker_key: str
    origin: str = ORIGIN_BROKER


class BrokerConfig(BrokerSettings):
    """Broker configuration.

    The fields are named after the broker keys (`BROKER_KEYS`), with underscores instead of dots.
    There are five additional fields:

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
            Whether an unknown key is an error. If not, a note is added, because the properties file
            may be for a different release of Kafka.

        Returns
        -------
        BrokerConfig
            The `notes` list the keys that have an old name, are unknown, or have no effect.

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
    """Return topic defaults by topic key. The first synonym in `values` sets the default."""
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
    """Read a Java properties file or pipe.

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
    # Imported here, because few commands read a file and the library is slow to import.
    import javaproperties

    try:
        return javaproperties.loads(_join_lines(data.decode("latin-1")))
    except ValueError as error:
        raise InvalidConfigurationError(f"{path} is not a properties file: {error}") from error


def _join_lines(text: str) -> str:
    """Join continuation lines, for which the library would take quadratic time.

    A line that is not a comment and ends in an odd number of backslashes continues in the next
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
        # A line that only starts like a comment because lines were joined is a key.
        lines.append(f"\\{whole}" if parts and whole.startswith(("#", "!")) else whole)
        parts.clear()
    return "\n".join([*lines, "".join(parts)])
