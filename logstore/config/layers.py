"""Layers of a setting: who says what of a key, from the topic down to the table's default.

Kafka's order, which is also the order of the synonyms that DescribeConfigs tells: the topic's
own, what was set for this broker while it runs, what was set for all brokers of the cluster, the
broker's file, the default.
Source: Kafka's ConfigHelper and DynamicBrokerConfig, 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from logstore.config.broker_config import BrokerConfig
from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.inert_keys import (
    STORED_BROKER_KEYS,
    is_unknown_broker_key,
    unknown_broker_key,
)
from logstore.config.keys import ConfigKey, render
from logstore.config.origins import (
    ORIGIN_BROKER,
    ORIGIN_DEFAULT,
    ORIGIN_DYNAMIC_BROKER,
    ORIGIN_DYNAMIC_DEFAULT,
)
from logstore.config.topic_keys import TOPIC_KEYS

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
