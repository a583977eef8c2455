"""A topic's own values, checked, changed, and laid over the broker's.

A topic's value comes from its override, else from the broker key that stands for it, else from
the table (`logstore.config.topic_keys`). Values are read as Kafka reads them; what cannot be
obeyed is refused here, once, so that the rest of the engine trusts what it is handed.
Source: docs/spec/storage-format.md §16, docs/spec/cleaner.md §12.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

from logstore.config.broker_config import BrokerConfig
from logstore.config.ignored import NOT_OFFERED_TO_TOPICS
from logstore.config.inert_keys import INERT_TOPIC_KEYS, STORED_TOPIC_KEYS
from logstore.config.keys import Value, render, to_texts
from logstore.config.layers import LayeredValue, describe_broker, layers_below_topic
from logstore.config.legacy import translate_policy
from logstore.config.log_config import MAX_LAG, MIN_LAG, LagSetting, LogConfig, check_lags
from logstore.config.origins import (
    ORIGIN_BROKER,
    ORIGIN_DEFAULT,
    ORIGIN_DYNAMIC_BROKER,
    ORIGIN_DYNAMIC_DEFAULT,
    ORIGIN_TOPIC,
)
from logstore.config.suggest import nearest_topic_key, suggesting
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.config.units import without_unit
from logstore.errors import InvalidConfigurationError

HIDDEN = "(hidden)"
"""Shown for a value that may be a secret."""


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
