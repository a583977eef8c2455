"""Broker settings that may change while the broker runs, and what a change makes of them.

Kafka's dynamic broker configurations, as far as this engine knows the keys: the cleaner's own
settings, the limits on connections, the defaults for topics under the first of their names, and
whether batches of transactions are verified. Keys without effect (`INERT_BROKER_KEYS`) and, like
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
from logstore.config.suggest import nearest_broker_key, suggesting
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
"""Keys that cleaners take up at once: their threads are stopped and begun anew."""

_TOPIC_SYNONYMS = frozenset(row.synonyms[0].key for row in TOPIC_KEYS.values() if row.synonyms)

LISTENER_KEYS = ("max.connections", "max.connections.per.ip")
"""Keys that a listener obeys from the next connection on."""

RECONFIGURABLE_KEYS = (
    frozenset((*CLEANER_KEYS, *LISTENER_KEYS, "transaction.partition.verification.enable"))
    | _TOPIC_SYNONYMS
    | INERT_BROKER_KEYS.keys()
)
"""Known broker keys that may change at run time."""


def is_reconfigurable(key: str) -> bool:
    """Return whether a broker key may change at run time; an unknown one may."""
    return key in RECONFIGURABLE_KEYS or is_unknown_broker_key(key)


class Layer(StrEnum):
    """Whom a change at run time is for: every broker of the cluster, or one."""

    CLUSTER = "cluster"
    BROKER = "broker"


def layered(
    static: BrokerConfig, cluster: Mapping[str, str], broker: Mapping[str, str]
) -> BrokerConfig:
    """Return what is in force: a broker's file, under what is set for all, under its own.

    Parameters
    ----------
    cluster, broker : mapping
        Reconfigurable broker keys, unknown ones among them, and their texts.

    Raises
    ------
    InvalidConfigurationError
        A key cannot change at run time, a value is not allowed, or all of it together
        contradicts itself.
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
    """Return what is set and what is taken back as one change, as `reconfigured` takes it.

    Raises
    ------
    InvalidConfigurationError
        A key is among both.
    """
    taken_back: dict[str, object] = {key.strip(): None for key in unset}
    both = sorted({key.strip() for key in given} & taken_back.keys())
    if both:
        raise InvalidConfigurationError(f"{both[0]} cannot be set and unset at once", key=both[0])
    return {**given, **taken_back}


def reconfigured(
    broker: BrokerConfig,
    changes: Mapping[str, object],
    layer: Layer = Layer.BROKER,
    *,
    refuse_unknown: bool = False,
) -> tuple[BrokerConfig, tuple[str, ...]]:
    """Return a broker's configuration after a change at run time, checked as a whole.

    Parameters
    ----------
    changes : mapping
        Broker keys, today's or old ones, times and sizes also with a unit
        (`logstore.config.units`); None takes a key out of the layer, so that the next one below
        holds.
    layer : Layer
        The one that changes.
    refuse_unknown : bool
        Refuse unknown keys, as in a file of this engine's own, instead of storing them as Kafka
        does.

    Returns
    -------
    BrokerConfig
    tuple of str
        Notes on old names that were translated, and on unknown keys that are stored.

    Raises
    ------
    InvalidConfigurationError
        A key cannot change at run time, a value is not allowed, there would be too many unknown
        keys, one of them is too long, one to take back was never set, no cleaner thread would be
        left, more than twice or less than half as many as now, or values contradict each other.
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
            f"{key} cannot be changed: there is no such key{suggesting(near)}",
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
        f"unknown broker key {key} is stored without effect{suggesting(nearest_broker_key(key))}"
        for key in unknown
    ]
    return changed, tuple(notes)


def _number(key: str, text: str) -> str:
    try:
        return without_unit(key, text)
    except ValueError as error:
        raise InvalidConfigurationError(f"{key}: {error}", key=key) from error


def with_layer(broker: BrokerConfig, texts: Mapping[str, str], layer: Layer) -> BrokerConfig:
    """Return a broker's configuration with other settings in a layer; raises as `layered`."""
    static = broker if broker.dynamic is None else broker.dynamic.static
    layers = {each: own_layer(broker, each) for each in Layer} | {layer: texts}
    return layered(static, layers[Layer.CLUSTER], layers[Layer.BROKER])


def own_layer(broker: BrokerConfig, layer: Layer) -> Mapping[str, str]:
    """Return the broker keys that were set in a layer, and their texts."""
    if broker.dynamic is None:
        return {}
    return broker.dynamic.cluster if layer is Layer.CLUSTER else broker.dynamic.broker


def _check_reconfigurable(keys: Iterable[str]) -> None:
    fixed = sorted(key for key in set(keys) if not is_reconfigurable(key))
    if fixed:
        raise InvalidConfigurationError(
            f"{', '.join(fixed)} cannot be changed while the broker runs; what can is "
            f"{', '.join(sorted(RECONFIGURABLE_KEYS))}",
            key=fixed[0],
        )


def _check_unknown(keys: Iterable[str], layer: Mapping[str, str]) -> None:
    """Bound the unknown keys that a change stores, and their number in the layer after it."""
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


def _check_threads(now: int, wanted: int) -> None:
    """Hold Kafka's rule for changing the size of a thread pool."""
    if now == wanted:
        return
    name = "log.cleaner.threads"
    if wanted < 1:
        raise InvalidConfigurationError(f"{name} = {wanted} is not allowed: at least 1", key=name)
    if wanted < now / 2:
        raise InvalidConfigurationError(
            f"{name} = {wanted} is not allowed: at least half of the present {now}", key=name
        )
    if wanted > 2 * now:
        raise InvalidConfigurationError(
            f"{name} = {wanted} is not allowed: at most twice the present {now}", key=name
        )
