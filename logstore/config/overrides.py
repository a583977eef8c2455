"""The overrides of a topic: validation, changes, and combination with broker settings.

The value of a topic key is the topic's override or, if there is none, the value of the first broker
synonym that is set or, if none is set, the default in `logstore.config.topic_keys`. Values are
parsed as in Kafka. They are only validated here, and the rest of the engine relies on this.

Source: docs/spec/storage-format.md §16, docs/spec/cleaner.md §12. The order of the layers is from
Kafka's ConfigHelper and DynamicBrokerConfig, 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

from logstore.config.broker_config import BrokerConfig
from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.inert_keys import (
    INERT_TOPIC_KEYS,
    NOT_OFFERED_TO_TOPICS,
    STORED_BROKER_KEYS,
    STORED_TOPIC_KEYS,
    is_unknown_broker_key,
    translate_policy,
    unknown_broker_key,
)
from logstore.config.keys import (
    ORIGIN_BROKER,
    ORIGIN_DEFAULT,
    ORIGIN_DYNAMIC_BROKER,
    ORIGIN_DYNAMIC_DEFAULT,
    ORIGIN_TOPIC,
    ConfigKey,
    Value,
    render,
    to_texts,
)
from logstore.config.log_config import MAX_LAG, MIN_LAG, LagSetting, LogConfig, check_lags
from logstore.config.suggest import nearest_topic_key, suggestion
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.config.units import without_unit
from logstore.errors import InvalidConfigurationError
from logstore.types import SMALL_FILE_MAX_BYTES

# -- layers: the topic, this broker, all brokers, the broker's file, the default -----------------

_DEFAULTS = {
    "retention.ms": ("log.retention.hours", "168"),
    "segment.ms": ("log.roll.hours", "168"),
    "segment.jitter.ms": None,
    "flush.ms": None,
}
"""The broker key that has the default of a topic key, and the default.

Only for topic keys where it is not the first synonym, because the keys with finer units have no
default in Kafka.
"""


class LayeredValue(NamedTuple):
    """A value in a layer: the key that sets it, its text, and the origin of the layer."""

    key: str
    value: str
    origin: str


def dynamic_layers(key: str, config: BrokerConfig) -> Iterator[LayeredValue]:
    """Yield a broker key's dynamic values: the per-broker value, then the cluster default."""
    if config.dynamic is not None:
        if key in config.dynamic.broker:
            yield LayeredValue(key, config.dynamic.broker[key], ORIGIN_DYNAMIC_BROKER)
        if key in config.dynamic.cluster:
            yield LayeredValue(key, config.dynamic.cluster[key], ORIGIN_DYNAMIC_DEFAULT)


def layers_below_topic(row: ConfigKey, config: BrokerConfig) -> Iterator[LayeredValue]:
    """Yield the values of the broker synonyms of a topic key, in order of precedence.

    The effective value is first, and the default is last.
    """
    if row.synonyms:
        yield from dynamic_layers(row.synonyms[0].key, config)
    static = config if config.dynamic is None else config.dynamic.static
    given_keys = [each.key for each in row.synonyms if each.key in static.given]
    for key in given_keys:
        yield LayeredValue(key, static.given[key], ORIGIN_BROKER)
    if not given_keys and (setting := static.topic_defaults.get(row.key)) is not None:
        yield LayeredValue(setting.broker_key, render(setting.value), ORIGIN_BROKER)
    if (default := _DEFAULTS.get(row.key, _own_default(row))) is not None:
        yield LayeredValue(*default, ORIGIN_DEFAULT)


def _own_default(row: ConfigKey) -> tuple[str, str] | None:
    return (row.synonyms[0].key, render(row.default)) if row.synonyms else None


def layers_of_broker_key(row: ConfigKey, config: BrokerConfig) -> list[LayeredValue]:
    """Return the values of a broker key that is not a topic key's synonym. It may have none."""
    static = config if config.dynamic is None else config.dynamic.static
    value = getattr(static, row.attribute, None)
    if value is None:
        return []
    layers = list(dynamic_layers(row.key, config))
    if row.key in static.given or value != row.default:
        layers.append(LayeredValue(row.key, render(value), ORIGIN_BROKER))
    layers.append(LayeredValue(row.key, render(row.default), ORIGIN_DEFAULT))
    return layers


class BrokerSetting(NamedTuple):
    """A broker key with its effective value.

    The value is None for an unset synonym without a default.

    Attributes
    ----------
    row : ConfigKey
        The key, with its broker name.
    layers : tuple of LayeredValue
        The values in all layers, the effective value first. For a synonym, the values of the topic
        key.
    is_sensitive : bool
        Whether the value is hidden. If so, `value` is None and `layers` is empty.
    """

    row: ConfigKey
    value: str | None
    origin: str
    layers: tuple[LayeredValue, ...]
    is_sensitive: bool = False


def describe_broker(config: BrokerConfig) -> Iterator[BrokerSetting]:
    """Yield the effective value, the origin and the layers of each broker key.

    Dynamic keys without an effect and unknown keys come last.
    """
    for row in BROKER_KEYS.values():
        if layers := layers_of_broker_key(row, config):
            yield BrokerSetting(row, layers[0].value, layers[0].origin, tuple(layers))
    for topic_row in TOPIC_KEYS.values():
        layers = list(layers_below_topic(topic_row, config))
        for synonym in topic_row.synonyms:
            row = topic_row._replace(key=synonym.key)
            layer = next((each for each in layers if each.key == synonym.key), None)
            value, origin = (None, ORIGIN_DEFAULT) if layer is None else layer[1:]
            yield BrokerSetting(row, value, origin, tuple(layers))
    if config.dynamic is not None:
        for key in {**config.dynamic.cluster, **config.dynamic.broker}:
            if key not in BROKER_KEYS:
                yield _setting_of(key, tuple(dynamic_layers(key, config)))


def _setting_of(key: str, layers: tuple[LayeredValue, ...]) -> BrokerSetting:
    """Return the setting of a key that has at least one dynamic value."""
    top = layers[0]
    if is_unknown_broker_key(key):
        return BrokerSetting(unknown_broker_key(key), None, top.origin, (), is_sensitive=True)
    return BrokerSetting(STORED_BROKER_KEYS[key], top.value, top.origin, layers)


def describe_cluster_wide(config: BrokerConfig) -> Iterator[BrokerSetting]:
    """Yield the dynamic settings of the cluster (Kafka's `<default>` broker)."""
    cluster = {} if config.dynamic is None else config.dynamic.cluster
    for key, value in cluster.items():
        yield _setting_of(key, (LayeredValue(key, value, ORIGIN_DYNAMIC_DEFAULT),))


HIDDEN = "(hidden)"
"""This is shown instead of a value that may be a secret."""


# -- topics ---------------------------------------------------------------------------------------


class ConfigValue(NamedTuple):
    """An effective value as text, with its origin and the documentation of its key.

    Attributes
    ----------
    origin : str
        `topic`, `group`, `dynamic broker`, `dynamic default` (for all brokers), `broker` (static)
        or `default`.
    broker_key : str or None
        The broker key that sets the value.
    layers : tuple of LayeredValue
        The values in all layers, the effective value first.
    """

    value: str
    origin: str
    doc: str
    broker_key: str | None = None
    layers: tuple[LayeredValue, ...] = ()


class Overrides(Mapping[str, str]):
    """The overrides of a topic under their current names, validated individually.

    The values of the mapping are text in Kafka's format, as stored.

    Attributes
    ----------
    parsed : Mapping of str to Value
        The parsed values.
    """

    __slots__ = ("parsed",)

    def __init__(self, parsed: Mapping[str, Value]) -> None:
        self.parsed = parsed

    def __getitem__(self, key: str) -> str:
        return render(self.parsed[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.parsed)

    def __len__(self) -> int:
        return len(self.parsed)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __or__(self, other: Overrides) -> Overrides:
        return Overrides({**self.parsed, **other.parsed})


def parse_overrides(overrides: Mapping[str, object]) -> tuple[Overrides, tuple[str, ...]]:
    """Validate the overrides of a topic individually, and translate old names.

    Parameters
    ----------
    overrides : Mapping
        Topic keys and their values. A value can be text (a time or size may have a unit, see
        `logstore.config.units`), a number, a boolean, a list, or a timedelta. An instance of
        `Overrides` is returned unchanged.

    Returns
    -------
    overrides : Overrides
    notes : tuple of str
        Messages about old names that were translated.

    Raises
    ------
    InvalidConfigurationError
        A key is unknown, or a value is not allowed.
    TypeError
        `overrides` is not a mapping.
    """
    if isinstance(overrides, Overrides):
        return overrides, ()
    if not isinstance(overrides, Mapping):
        raise TypeError(f"expected a mapping of topic configs, not {overrides!r}")
    parsed: dict[str, Value] = {}
    notes: list[str] = []
    for name, text in to_texts(overrides).items():
        key, text = translate_policy(name, text, "cleanup.policy", notes)
        if key not in STORED_TOPIC_KEYS:
            raise _unknown_topic_key(key)
        if key in parsed and name != key:
            continue
        try:
            text = without_unit(key, text)
        except ValueError as error:
            raise InvalidConfigurationError(f"{key}: {error}", key=key) from error
        parsed[key] = STORED_TOPIC_KEYS[key].parse(text)
    return Overrides(parsed), tuple(notes)


def effective_config(
    overrides: Mapping[str, object], broker: BrokerConfig | None = None
) -> LogConfig:
    """Return the effective configuration of a topic.

    Parameters
    ----------
    overrides : Mapping
        The overrides of the topic, as in `parse_overrides`.
    broker : BrokerConfig, optional
        The configuration with the defaults of topics. If None, Kafka's defaults are used.

    Raises
    ------
    InvalidConfigurationError
        A key is unknown, a value is not allowed, or two values contradict each other. In the last
        case, the message names the origin of both.
    """
    values = _resolve(overrides, broker or BrokerConfig())
    check_lags(values[MIN_LAG].setting(MIN_LAG), values[MAX_LAG].setting(MAX_LAG))
    fields: dict[str, Any] = {
        TOPIC_KEYS[key].attribute: resolved.value for key, resolved in values.items()
    }
    return LogConfig(**fields)


def alter_overrides(
    overrides: Mapping[str, str],
    set: Mapping[str, object],
    unset: Iterable[str],
    broker: BrokerConfig | None = None,
) -> tuple[Overrides, tuple[str, ...]]:
    """Return the overrides of a topic after a change, validated.

    Parameters
    ----------
    overrides : Mapping
        The overrides of the topic before the change.
    set : Mapping
        The values to set, as in `parse_overrides`.
    unset : iterable of str
        Topic keys to reset to the broker's value. They need not be overridden.
    broker : BrokerConfig, optional
        The configuration with the defaults of topics.

    Returns
    -------
    overrides : Overrides
    notes : tuple of str
        Messages about old names in the change that were translated.

    Raises
    ------
    InvalidConfigurationError
        A key is unknown, a key is both set and unset, a value is not allowed, or effective values
        contradict each other.
    """
    changes, notes = parse_overrides(set)
    removed: list[str] = []
    old_names: list[str] = []
    for name in unset:
        key, _ = translate_policy(name.strip(), "", "cleanup.policy", old_names)
        # Any stored key can be removed, even if it is unknown to this engine.
        if key not in STORED_TOPIC_KEYS and key not in overrides:
            raise _unknown_topic_key(key)
        if key in changes:
            raise InvalidConfigurationError(
                f"{key} cannot be set and unset at the same time", key=key
            )
        removed.append(key)
    replaced = {*removed, *changes}
    result = _without(overrides, replaced) | changes
    effective_config(result, broker)
    return result, (*notes, *old_names)


def _without(overrides: Mapping[str, str], replaced: Set[str]) -> Overrides:
    """Return the overrides except the replaced keys, whose values may be invalid."""
    if isinstance(overrides, Overrides):
        return Overrides({k: v for k, v in overrides.parsed.items() if k not in replaced})
    return parse_overrides({k: text for k, text in overrides.items() if k not in replaced})[0]


def describe(
    overrides: Mapping[str, object], broker: BrokerConfig | None = None
) -> dict[str, ConfigValue]:
    """Return the effective value, origin and documentation of every topic config.

    Keys without an effect (`INERT_TOPIC_KEYS`) come last, if the topic sets any. Raises the errors
    of `effective_config`, except for values that contradict each other.
    """
    broker = broker or BrokerConfig()
    own = parse_overrides(overrides)[0]
    described = {}
    for key, resolved in _resolve(own, broker).items():
        row, value = TOPIC_KEYS[key], render(resolved.value)
        layers = tuple(layers_below_topic(row, broker))
        if resolved.origin == ORIGIN_TOPIC:
            layers = (LayeredValue(key, value, ORIGIN_TOPIC), *layers)
        described[key] = ConfigValue(value, resolved.origin, row.doc, resolved.broker_key, layers)
    for key, row in INERT_TOPIC_KEYS.items():
        if key in own:
            layer = LayeredValue(key, own[key], ORIGIN_TOPIC)
            described[key] = ConfigValue(layer.value, layer.origin, row.doc, None, (layer,))
    return described


def describe_broker_values(broker: BrokerConfig) -> dict[str, ConfigValue]:
    """Return the effective value, origin and documentation of every broker config that is set.

    Values of unknown configs are hidden, because they may be secrets.
    """
    return {
        each.row.key: ConfigValue(value, each.origin, each.row.doc, None, each.layers)
        for each in describe_broker(broker)
        if (value := HIDDEN if each.is_sensitive else each.value) is not None
    }


class _Resolved(NamedTuple):
    value: Value
    origin: str
    broker_key: str | None

    def setting(self, key: str) -> LagSetting:
        assert isinstance(self.value, int)
        source = {
            ORIGIN_TOPIC: "the topic's own",
            ORIGIN_DYNAMIC_BROKER: f"set for the broker ({self.broker_key})",
            ORIGIN_DYNAMIC_DEFAULT: f"set for all brokers ({self.broker_key})",
            ORIGIN_BROKER: f"the broker's ({self.broker_key})",
            ORIGIN_DEFAULT: "the default",
        }[self.origin]
        return LagSetting(key, self.value, source)


def _resolve(overrides: Mapping[str, object], broker: BrokerConfig) -> dict[str, _Resolved]:
    parsed = parse_overrides(overrides)[0].parsed
    resolved = {}
    for key, row in TOPIC_KEYS.items():
        if key in parsed:
            resolved[key] = _Resolved(parsed[key], ORIGIN_TOPIC, None)
        elif key in broker.topic_defaults:
            value, broker_key, origin = broker.topic_defaults[key]
            resolved[key] = _Resolved(value, origin, broker_key)
        else:
            resolved[key] = _Resolved(row.default, ORIGIN_DEFAULT, None)
    return resolved


def _unknown_topic_key(key: str) -> InvalidConfigurationError:
    if (reason := NOT_OFFERED_TO_TOPICS.get(key)) is not None:
        return InvalidConfigurationError(
            f"Kafka's topic configuration {key!r} is not supported: {reason}", key=key
        )
    near = nearest_topic_key(key)
    return InvalidConfigurationError(
        f"unknown topic configuration {key!r}{suggestion(near)}", key=key, nearest=near
    )


# -- limits for readers of files without a log ----------------------------------------------------


def _default(key: str) -> int:
    value = TOPIC_KEYS[key].default
    assert isinstance(value, int)
    return value


class ReadLimits(NamedTuple):
    """Limits on the memory for reading files.

    Attributes
    ----------
    batch_bytes : int
        Maximum size of a batch after decompression (`logstore.decompression.max.bytes`).
    small_file_bytes : int
        Maximum size of a checkpoint, snapshot or similar file (`logstore.small.file.max.bytes`).
    """

    batch_bytes: int = _default("logstore.decompression.max.bytes")
    small_file_bytes: int = SMALL_FILE_MAX_BYTES

    @classmethod
    def of(cls, config: BrokerConfig) -> ReadLimits:
        """Return a broker's limits for topics without overrides."""
        topic = effective_config({}, config)
        return cls(topic.logstore_decompression_max_bytes, config.logstore_small_file_max_bytes)
