"""Dynamic broker configurations, which can be changed while the broker is running.

The following of Kafka's dynamic keys have an effect: the settings of the cleaner, the connection
limits, the first broker synonym of each topic key, group.consumer.assignment.interval.ms, and
transaction.partition.verification.enable. Keys without an effect (`INERT_BROKER_KEYS`) and, as in
Kafka, unknown keys are stored as well.

Source: docs/spec/cleaner.md §12.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from enum import StrEnum

from logstore.config.broker_config import BrokerConfig, DynamicLayers, topic_defaults_of
from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.inert_keys import (
    INERT_BROKER_KEYS,
    STORED_BROKER_KEYS,
    UNKNOWN_KEY_CHARACTERS_MAX,
    UNKNOWN_KEYS_MAX,
    UNKNOWN_VALUE_CHARACTERS_MAX,
    is_unknown_broker_key,
    translate_broker,
)
from logstore.config.keys import (
    ORIGIN_DYNAMIC_BROKER,
    ORIGIN_DYNAMIC_DEFAULT,
    Value,
    render,
    to_text,
)
from logstore.config.suggest import nearest_broker_key, suggestion
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.config.units import without_unit
from logstore.errors import InvalidConfigurationError

CLEANER_KEYS = (
    "log.cleaner.threads",
    "log.cleaner.io.max.bytes.per.second",
    "logstore.cleaner.max.read.bytes.per.second",
    "logstore.cleaner.max.write.bytes.per.second",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.backoff.ms",
)
"""If one of these keys changes, the cleaner threads are restarted."""

_TOPIC_SYNONYMS = frozenset(row.synonyms[0].key for row in TOPIC_KEYS.values() if row.synonyms)

LISTENER_KEYS = ("max.connections", "max.connections.per.ip")
"""Changes to these keys apply to new connections of a listener."""

RECONFIGURABLE_KEYS = (
    frozenset(
        (
            *CLEANER_KEYS,
            *LISTENER_KEYS,
            "transaction.partition.verification.enable",
            "group.consumer.assignment.interval.ms",
        )
    )
    | _TOPIC_SYNONYMS
    | INERT_BROKER_KEYS.keys()
)
"""The dynamic broker keys that are known here."""


def is_reconfigurable(key: str) -> bool:
    """Return whether a broker key is dynamic. Unknown keys are dynamic."""
    return key in RECONFIGURABLE_KEYS or is_unknown_broker_key(key)


class Layer(StrEnum):
    """The scope of a dynamic setting: all brokers of the cluster, or one broker."""

    CLUSTER = "cluster"
    BROKER = "broker"


def merge_layers(
    static: BrokerConfig, cluster: Mapping[str, str], broker: Mapping[str, str]
) -> BrokerConfig:
    """Return the effective configuration.

    Broker settings take precedence over cluster settings, which take precedence over the static
    configuration.

    Parameters
    ----------
    cluster, broker : mapping
        Dynamic broker keys with their values as text. Unknown keys are accepted.

    Raises
    ------
    InvalidConfigurationError
        A key is not dynamic, a value is not allowed, or values contradict each other.
    """
    fields: dict[str, Value] = {}
    defaults = dict(static.topic_defaults)
    for texts, origin in ((cluster, ORIGIN_DYNAMIC_DEFAULT), (broker, ORIGIN_DYNAMIC_BROKER)):
        _check_reconfigurable(texts)
        values = {
            key: BROKER_KEYS[key].parse(text) for key, text in texts.items() if key in BROKER_KEYS
        }
        defaults |= topic_defaults_of(values, origin)
        fields |= {
            BROKER_KEYS[key].attribute: value
            for key, value in values.items()
            if key not in _TOPIC_SYNONYMS
        }
    layers = DynamicLayers(static, dict(cluster), dict(broker)) if cluster or broker else None
    return dataclasses.replace(static, topic_defaults=defaults, dynamic=layers, **fields)  # type: ignore[arg-type]


def changes_of(given: Mapping[str, object], unset: Iterable[str]) -> dict[str, object]:
    """Combine the values to set and the keys to unset into a single change for `reconfigure`.

    Raises
    ------
    InvalidConfigurationError
        A key is both set and unset.
    """
    removals: dict[str, object] = {key.strip(): None for key in unset}
    both = sorted({key.strip() for key in given} & removals.keys())
    if both:
        raise InvalidConfigurationError(
            f"{both[0]} cannot be set and unset at the same time", key=both[0]
        )
    return {**given, **removals}


def reconfigure(
    broker: BrokerConfig,
    changes: Mapping[str, object],
    layer: Layer = Layer.BROKER,
    *,
    refuse_unknown: bool = False,
) -> tuple[BrokerConfig, tuple[str, ...]]:
    """Return a broker's configuration after a dynamic change, validated.

    Parameters
    ----------
    changes : mapping
        New values by broker key. Old key names are accepted. A time or size may have a unit
        (`logstore.config.units`). None removes the key from the layer.
    layer : Layer
        The layer to change.
    refuse_unknown : bool
        Whether an unknown key is an error. If not, it is stored, as in Kafka.

    Returns
    -------
    BrokerConfig
    tuple of str
        Messages about old names that were translated, and about unknown keys that were stored.

    Raises
    ------
    InvalidConfigurationError
        A key is not dynamic; a value is not allowed, or values contradict each other; there are too
        many unknown keys, an unknown key is too long, or an unknown key to remove was not set; or
        the number of cleaner threads would become 0, more than twice or less than half of the
        current number.
    """
    texts, notes = translate_broker(
        {key.strip(): to_text(value) for key, value in changes.items() if value is not None}
    )
    removed = {key.strip() for key, value in changes.items() if value is None}
    _check_reconfigurable(removed | texts.keys())
    unknown = [key for key in texts if is_unknown_broker_key(key)]
    stored = own_layer(broker, layer)
    absent = removed - stored.keys()
    for key in filter(is_unknown_broker_key, (*absent, *(unknown if refuse_unknown else ()))):
        near = nearest_broker_key(key)
        raise InvalidConfigurationError(
            f"{key} cannot be changed because it is an unknown broker key{suggestion(near)}",
            key=key,
            nearest=near,
        )
    texts_after = {key: text for key, text in stored.items() if key not in removed} | {
        key: text if key in unknown else render(STORED_BROKER_KEYS[key].parse(_number(key, text)))
        for key, text in texts.items()
    }
    _check_unknown(unknown, texts_after)
    changed = with_layer(broker, texts_after, layer)
    _check_threads(broker.log_cleaner_threads, changed.log_cleaner_threads)
    notes += [
        f"unknown broker key {key} is stored but has no effect{suggestion(nearest_broker_key(key))}"
        for key in unknown
    ]
    return changed, tuple(notes)


def _number(key: str, text: str) -> str:
    try:
        return without_unit(key, text)
    except ValueError as error:
        raise InvalidConfigurationError(f"{key}: {error}", key=key) from error


def with_layer(broker: BrokerConfig, texts: Mapping[str, str], layer: Layer) -> BrokerConfig:
    """Return a broker's configuration with one layer replaced.

    Raises the same errors as `merge_layers`.
    """
    static = broker if broker.dynamic is None else broker.dynamic.static
    layers = {each: own_layer(broker, each) for each in Layer} | {layer: texts}
    return merge_layers(static, layers[Layer.CLUSTER], layers[Layer.BROKER])


def own_layer(broker: BrokerConfig, layer: Layer) -> Mapping[str, str]:
    """Return the broker keys set in a layer, with their values as text."""
    if broker.dynamic is None:
        return {}
    return broker.dynamic.cluster if layer is Layer.CLUSTER else broker.dynamic.broker


def _check_reconfigurable(keys: Iterable[str]) -> None:
    fixed = sorted(key for key in set(keys) if not is_reconfigurable(key))
    if fixed:
        raise InvalidConfigurationError(
            f"{', '.join(fixed)} cannot be changed while the broker runs; the dynamic keys are "
            f"{', '.join(sorted(RECONFIGURABLE_KEYS))}",
            key=fixed[0],
        )


def _check_unknown(keys: Iterable[str], layer: Mapping[str, str]) -> None:
    """Check the length of the unknown keys in a change, and their number after it."""
    count = sum(map(is_unknown_broker_key, layer))
    for key in keys:
        if not 0 < len(key) <= UNKNOWN_KEY_CHARACTERS_MAX:
            raise InvalidConfigurationError(
                f"the name of an unknown broker key has {len(key)} characters; 1 to"
                f" {UNKNOWN_KEY_CHARACTERS_MAX} are allowed",
                key=key[:UNKNOWN_KEY_CHARACTERS_MAX],
            )
        if len(layer[key]) > UNKNOWN_VALUE_CHARACTERS_MAX:
            raise InvalidConfigurationError(
                f"the value of the unknown broker key {key} has {len(layer[key])} characters; at"
                f" most {UNKNOWN_VALUE_CHARACTERS_MAX} are allowed",
                key=key,
            )
        if count > UNKNOWN_KEYS_MAX:
            raise InvalidConfigurationError(
                f"{key} cannot be stored: there would be {count} unknown broker keys; at most"
                f" {UNKNOWN_KEYS_MAX} are allowed",
                key=key,
            )


def _check_threads(old: int, new: int) -> None:
    """Enforce Kafka's rule for resizing a thread pool."""
    if old == new:
        return
    name = "log.cleaner.threads"
    if new < 1:
        raise InvalidConfigurationError(
            f"{name} = {new} is not allowed: it must be at least 1", key=name
        )
    if new < old / 2:
        raise InvalidConfigurationError(
            f"{name} = {new} is not allowed: it must be at least half of the current {old}",
            key=name,
        )
    if new > 2 * old:
        raise InvalidConfigurationError(
            f"{name} = {new} is not allowed: it must be at most twice the current {old}", key=name
        )
