"""A topic's own values, checked, changed, and laid over the broker's.

A topic's value comes from its override, else from the broker key that stands for it, else from
the table (`logstore.config.topic_keys`). Values are read as Kafka reads them; what cannot be
obeyed is refused here, once, so that the rest of the engine trusts what it is handed.
Source: docs/spec/storage-format.md §16, docs/spec/cleaner.md §12; for the order of layers Kafka's
ConfigHelper and DynamicBrokerConfig, 3.9.
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
from logstore.config.suggest import nearest_topic_key, suggesting
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
"""Topic key → the broker key that has its default, and its value, where that is not the first
synonym: the finer units of a broker's key have no default of their own."""


class LayeredValue(NamedTuple):
    """A value as one layer has it: under which key, as text, and the layer's origin."""

    key: str
    value: str
    origin: str


def dynamic_layers(key: str, config: BrokerConfig) -> Iterator[LayeredValue]:
    """Yield what was set under a broker key while the broker runs: for it, then for all."""
    if config.dynamic is not None:
        if key in config.dynamic.broker:
            yield LayeredValue(key, config.dynamic.broker[key], ORIGIN_DYNAMIC_BROKER)
        if key in config.dynamic.cluster:
            yield LayeredValue(key, config.dynamic.cluster[key], ORIGIN_DYNAMIC_DEFAULT)


def layers_below_topic(row: ConfigKey, config: BrokerConfig) -> Iterator[LayeredValue]:
    """Yield what broker keys say for a topic key, the layer in force first, the default last."""
    if row.synonyms:
        yield from dynamic_layers(row.synonyms[0].key, config)
    static = config if config.dynamic is None else config.dynamic.static
    named = [each.key for each in row.synonyms if each.key in static.given]
    for key in named:
        yield LayeredValue(key, static.given[key], ORIGIN_BROKER)
    if not named and (found := static.topic_defaults.get(row.key)) is not None:
        yield LayeredValue(found.broker_key, render(found.value), ORIGIN_BROKER)
    if (default := _DEFAULTS.get(row.key, _own_default(row))) is not None:
        yield LayeredValue(*default, ORIGIN_DEFAULT)


def _own_default(row: ConfigKey) -> tuple[str, str] | None:
    return (row.synonyms[0].key, render(row.default)) if row.synonyms else None


def layers_of_broker_key(row: ConfigKey, config: BrokerConfig) -> list[LayeredValue]:
    """Return what the layers say of a key that is the broker's alone; empty if it has no value."""
    static = config if config.dynamic is None else config.dynamic.static
    value = getattr(static, row.attribute, None)
    if value is None:
        return []
    found = list(dynamic_layers(row.key, config))
    if row.key in static.given or value != row.default:
        found.append(LayeredValue(row.key, render(value), ORIGIN_BROKER))
    found.append(LayeredValue(row.key, render(row.default), ORIGIN_DEFAULT))
    return found


class BrokerSetting(NamedTuple):
    """A broker key with its value in force; None for the finer unit of a key that nobody set.

    Attributes
    ----------
    row : ConfigKey
        Under the broker's name.
    layers : tuple of LayeredValue
        That in force first; those of its topic key where it has one.
    is_sensitive : bool
        Whether the value is hidden; `value` is None and there are no layers.
    """

    row: ConfigKey
    value: str | None
    origin: str
    layers: tuple[LayeredValue, ...]
    is_sensitive: bool = False


def describe_broker(config: BrokerConfig) -> Iterator[BrokerSetting]:
    """Yield every broker key's effective value, its origin, and the layers below.

    Keys without effect and unknown keys follow, if they were set.
    """
    for row in BROKER_KEYS.values():
        if layers := layers_of_broker_key(row, config):
            yield BrokerSetting(row, layers[0].value, layers[0].origin, tuple(layers))
    for topic_row in TOPIC_KEYS.values():
        layers = list(layers_below_topic(topic_row, config))
        for synonym in topic_row.synonyms:
            row = topic_row._replace(key=synonym.key)
            found = next((each for each in layers if each.key == synonym.key), None)
            value, origin = (None, ORIGIN_DEFAULT) if found is None else found[1:]
            yield BrokerSetting(row, value, origin, tuple(layers))
    if config.dynamic is not None:
        for key in {**config.dynamic.cluster, **config.dynamic.broker}:
            if key not in BROKER_KEYS:
                yield _setting_of(key, tuple(dynamic_layers(key, config)))


def _setting_of(key: str, layers: tuple[LayeredValue, ...]) -> BrokerSetting:
    """Return a key that was set while the broker runs, in at least one layer."""
    top = layers[0]
    if is_unknown_broker_key(key):
        return BrokerSetting(unknown_broker_key(key), None, top.origin, (), is_sensitive=True)
    return BrokerSetting(STORED_BROKER_KEYS[key], top.value, top.origin, layers)


def describe_cluster_wide(config: BrokerConfig) -> Iterator[BrokerSetting]:
    """Yield what was set for all brokers, and nothing else (Kafka's `<default>` broker)."""
    cluster = {} if config.dynamic is None else config.dynamic.cluster
    for key, value in cluster.items():
        yield _setting_of(key, (LayeredValue(key, value, ORIGIN_DYNAMIC_DEFAULT),))


HIDDEN = "(hidden)"
"""Shown for a value that may be a secret."""


# -- topics ---------------------------------------------------------------------------------------


class ConfigValue(NamedTuple):
    """One effective value: as text, where it comes from, and what it means.

    Attributes
    ----------
    origin : str
        `topic`, `dynamic broker` (set for the broker while it runs), `dynamic default` (set so
        for all brokers), `broker` (its file) or `default`.
    broker_key : str or None
        The key that says it for all topics.
    layers : tuple of LayeredValue
        What each layer says, that in force first.
    """

    value: str
    origin: str
    doc: str
    broker_key: str | None = None
    layers: tuple[LayeredValue, ...] = ()


class Overrides(Mapping[str, str]):
    """A topic's own values, each checked by itself, under today's names.

    As a mapping they are text, spelled as Kafka does, fit to be stored.

    Attributes
    ----------
    parsed : Mapping of str to Value
        The values that the engine goes by; nobody parses them again.
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
    """Check a topic's overrides one by one and give them their names of today.

    Parameters
    ----------
    overrides : Mapping
        Topic keys; values as text, times and sizes also with a unit (`logstore.config.units`),
        or as Python numbers, booleans, lists and, for times, timedeltas. `Overrides` are returned
        as they are.

    Returns
    -------
    overrides : Overrides
    notes : tuple of str
        Which old names were translated.

    Raises
    ------
    InvalidConfigurationError
        A key is unknown (the message has the nearest one), or a value is not allowed.
    """
    if isinstance(overrides, Overrides):
        return overrides, ()
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
    """Return the configuration in force for a topic.

    Parameters
    ----------
    overrides : Mapping
        The topic's own values, as `parse_overrides` takes them.
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
) -> tuple[Overrides, tuple[str, ...]]:
    """Return a topic's overrides after a change, checked as a whole.

    Parameters
    ----------
    overrides : Mapping
        The topic's own values before the change.
    set : Mapping
        Topic keys that get a value, as `parse_overrides` takes them.
    unset : iterable of str
        Topic keys that go back to the broker's value or the default; one that the topic does
        not override is no mistake.
    broker : BrokerConfig, optional
        The settings that the result is checked together with.

    Returns
    -------
    overrides : Overrides
    notes : tuple of str
        Which old names in the change were translated.

    Raises
    ------
    InvalidConfigurationError
        A key is unknown, set and unset at once, a value is not allowed, or the result, with
        what the broker says, contradicts itself.
    """
    changes, notes = parse_overrides(set)
    removed: list[str] = []
    old_names: list[str] = []
    for name in unset:
        key, _ = translate_policy(name.strip(), "", "cleanup.policy", old_names)
        # A stored key can be taken out again, whoever stored it.
        if key not in STORED_TOPIC_KEYS and key not in overrides:
            raise _unknown_topic_key(key)
        if key in changes:
            raise InvalidConfigurationError(f"{key} cannot be set and unset at once", key=key)
        removed.append(key)
    replaced = {*removed, *changes}
    result = _without(overrides, replaced) | changes
    effective_config(result, broker)
    return result, (*notes, *old_names)


def _without(overrides: Mapping[str, str], replaced: Set[str]) -> Overrides:
    """Return overrides but for some, which may be what is wrong with them."""
    if isinstance(overrides, Overrides):
        return Overrides({k: v for k, v in overrides.parsed.items() if k not in replaced})
    return parse_overrides({k: text for k, text in overrides.items() if k not in replaced})[0]


def describe(
    overrides: Mapping[str, object], broker: BrokerConfig | None = None
) -> dict[str, ConfigValue]:
    """Return every topic key's effective value as text, its origin and its meaning.

    Keys without effect (`INERT_TOPIC_KEYS`) follow, if the topic sets them.

    Raises as `effective_config` does, contradictions apart: what is in force can be shown.
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
    """Return every broker key that has a value: its value as text, its origin and its meaning.

    The value of an unknown key is hidden: it may be a secret.
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
            f"topic configuration {key!r} of Kafka's is not offered here: {reason}", key=key
        )
    near = nearest_topic_key(key)
    return InvalidConfigurationError(
        f"unknown topic configuration {key!r}{suggesting(near)}", key=key, nearest=near
    )


# -- limits for those who read files without a log ------------------------------------------------


def _default(key: str) -> int:
    value = TOPIC_KEYS[key].default
    assert isinstance(value, int)
    return value


class ReadLimits(NamedTuple):
    """Bytes that may be read at once.

    Attributes
    ----------
    batch_bytes : int
        To which a compressed batch may unfold: `logstore.decompression.max.bytes`.
    small_file_bytes : int
        Of a checkpoint, a snapshot and the like: `logstore.small.file.max.bytes`.
    """

    batch_bytes: int = _default("logstore.decompression.max.bytes")
    small_file_bytes: int = SMALL_FILE_MAX_BYTES

    @classmethod
    def of(cls, config: BrokerConfig) -> ReadLimits:
        """Return what a broker of that configuration obeys, for topics that say nothing."""
        topic = effective_config({}, config)
        return cls(topic.logstore_decompression_max_bytes, config.logstore_small_file_max_bytes)
