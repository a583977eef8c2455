"""Broker settings that may change while the broker runs, and what a change makes of them.

Kafka's dynamic broker configurations, as far as this engine knows the keys: the cleaner's own
settings, the defaults for topics under the first of their names, and whether batches of
transactions are verified.
Source: cleaner-semantics §12.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from enum import StrEnum

from logstore.config.broker_config import BrokerConfig, DynamicLayers, topic_defaults_of
from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.ignored import has_no_effect
from logstore.config.keys import Value, render, to_text
from logstore.config.legacy import translate_broker
from logstore.config.origins import ORIGIN_DYNAMIC_BROKER, ORIGIN_DYNAMIC_DEFAULT
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

RECONFIGURABLE_KEYS = (
    frozenset(CLEANER_KEYS) | _TOPIC_SYNONYMS | {"transaction.partition.verification.enable"}
)
"""Broker keys that may change at run time."""


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
        Reconfigurable broker keys and their texts.

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
        values = {key: BROKER_KEYS[key].parse(text) for key, text in texts.items()}
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
    broker: BrokerConfig, changes: Mapping[str, object], layer: Layer = Layer.BROKER
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

    Returns
    -------
    BrokerConfig
    tuple of str
        Notes on old names that were translated.

    Raises
    ------
    InvalidConfigurationError
        A key cannot change at run time, a value is not allowed, there would be no cleaner thread
        left, more than twice or less than half as many as now, or values contradict each other.
    """
    texts, notes = translate_broker(
        {key.strip(): to_text(value) for key, value in changes.items() if value is not None}
    )
    removed = {key.strip() for key, value in changes.items() if value is None}
    _check_reconfigurable(removed | texts.keys())
    static = broker if broker.dynamic is None else broker.dynamic.static
    layers = {each: own_layer(broker, each) for each in Layer}
    kept = {key: text for key, text in layers[layer].items() if key not in removed}
    layers[layer] = kept | {
        key: render(BROKER_KEYS[key].parse(_number(key, text))) for key, text in texts.items()
    }
    changed = layered(static, layers[Layer.CLUSTER], layers[Layer.BROKER])
    _check_threads(broker.log_cleaner_threads, changed.log_cleaner_threads)
    return changed, tuple(notes)


def _number(key: str, text: str) -> str:
    try:
        return without_unit(key, text)
    except ValueError as error:
        raise InvalidConfigurationError(f"{key}: {error}", key=key) from error


def own_layer(broker: BrokerConfig, layer: Layer) -> Mapping[str, str]:
    """Return the broker keys that were set in a layer, and their texts."""
    if broker.dynamic is None:
        return {}
    return broker.dynamic.cluster if layer is Layer.CLUSTER else broker.dynamic.broker


def _check_reconfigurable(keys: Iterable[str]) -> None:
    fixed = sorted(set(keys) - RECONFIGURABLE_KEYS)
    unknown = [key for key in fixed if key not in BROKER_KEYS and not has_no_effect(key)]
    if unknown:
        near = nearest_broker_key(unknown[0])
        raise InvalidConfigurationError(
            f"{unknown[0]} cannot be changed: there is no such key{suggesting(near)}",
            key=unknown[0],
            nearest=near,
        )
    if fixed:
        raise InvalidConfigurationError(
            f"{', '.join(fixed)} cannot be changed while the broker runs; what can is "
            f"{', '.join(sorted(RECONFIGURABLE_KEYS))}",
            key=fixed[0],
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
