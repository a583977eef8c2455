"""The configurations of individual groups, which override the broker settings `group.consumer.*`.

Source: GroupConfig and GroupConfigManager of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from logstore.config.broker_config import BrokerConfig
from logstore.config.broker_keys import BROKER_KEYS, CONSUMER_GROUP_BOUNDED
from logstore.config.keys import ORIGIN_GROUP, ConfigKey, Synonym, render, to_text
from logstore.config.overrides import ConfigValue, LayeredValue, layers_of_broker_key
from logstore.config.suggest import nearest, suggestion
from logstore.config.units import without_unit
from logstore.errors import InvalidConfigurationError

GROUPS_MAX = 10_000
"""Maximum number of groups that have configurations."""

GROUP_ID_CHARACTERS_MAX = 1_000
"""Maximum length of the group id for a group that has configurations."""


_DOCS = {
    "session.timeout.ms": "Time in ms without a heartbeat after which a member is removed.",
    "heartbeat.interval.ms": "Interval in ms at which members are asked to send heartbeats.",
    "assignment.interval.ms": "Minimum time in ms between two target assignments.",
}


def _key_of(setting: str) -> ConfigKey:
    broker_key = f"group.consumer.{setting}"
    return BROKER_KEYS[broker_key]._replace(
        key=f"consumer.{setting}", doc=_DOCS[setting], synonyms=(Synonym(broker_key),)
    )


GROUP_KEYS: Mapping[str, ConfigKey] = {row.key: row for row in map(_key_of, CONSUMER_GROUP_BOUNDED)}
"""The keys of a consumer group (KIP-848). The default of each one is set by a broker key."""


class GroupConfig(NamedTuple):
    """The effective configuration of a consumer group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def effective_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
    """Return the effective configuration of a group, limited to the broker's bounds.

    Parameters
    ----------
    overrides : mapping
        The values set for the group, as returned by `alter_group_overrides`.
    """
    return GroupConfig(*(_effective(each, overrides, broker) for each in CONSUMER_GROUP_BOUNDED))


def _effective(setting: str, overrides: Mapping[str, str], broker: BrokerConfig) -> int:
    text = overrides.get(f"consumer.{setting}")
    if text is None:
        return _broker_value(f"group.consumer.{setting}", broker)
    least, most = _bounds(setting, broker)
    return min(max(int(text), least), most)


def _bounds(setting: str, broker: BrokerConfig) -> tuple[int, int]:
    least, most = (f"group.consumer.{bound}.{setting}" for bound in ("min", "max"))
    return _broker_value(least, broker), _broker_value(most, broker)


def _broker_value(key: str, broker: BrokerConfig) -> int:
    value = getattr(broker, BROKER_KEYS[key].attribute)
    assert isinstance(value, int)
    return value


def parse_group_overrides(texts: Mapping[str, object]) -> dict[str, str]:
    """Validate the values of a group individually.

    A time may have a unit (`logstore.config.units`).

    Raises
    ------
    InvalidConfigurationError
        A key is unknown, or a value is not allowed.
    """
    parsed = {}
    for key, value in texts.items():
        if key not in GROUP_KEYS:
            raise InvalidConfigurationError(
                f"unknown group configuration {key!r}{suggestion(nearest(key, GROUP_KEYS))}",
                key=key,
            )
        try:
            text = without_unit(key, to_text(value))
        except ValueError as error:
            raise InvalidConfigurationError(f"{key}: {error}", key=key) from error
        parsed[key] = render(GROUP_KEYS[key].parse(text))
    return parsed


def alter_group_overrides(
    own: Mapping[str, str], values: Mapping[str, object], unset: Iterable[str], broker: BrokerConfig
) -> dict[str, str]:
    """Return the values set for a group after a change, validated.

    Parameters
    ----------
    values : mapping
        Values to set, as in `parse_group_overrides`.
    unset : iterable of str
        Keys to reset to the broker's value. They need not be set.

    Raises
    ------
    InvalidConfigurationError
        A key is unknown, a value is not allowed or exceeds the broker's bounds, or the session
        timeout is not larger than the heartbeat interval.
    """
    changed = {key: text for key, text in own.items() if key not in set(unset)}
    changed |= parse_group_overrides(values)
    for setting in CONSUMER_GROUP_BOUNDED:
        key = f"consumer.{setting}"
        least, most = _bounds(setting, broker)
        if key in changed and not least <= int(changed[key]) <= most:
            raise InvalidConfigurationError(
                f"{key} = {changed[key]} is not allowed: the broker's bounds"
                f" group.consumer.min.{setting} and group.consumer.max.{setting} are {least} and"
                f" {most}",
                key=key,
            )
    effective = effective_group_config(changed, broker)
    if changed and effective.session_timeout_ms <= effective.heartbeat_interval_ms:
        raise InvalidConfigurationError(
            f"consumer.session.timeout.ms = {effective.session_timeout_ms} is not allowed: it must"
            f" exceed consumer.heartbeat.interval.ms = {effective.heartbeat_interval_ms}",
            key="consumer.session.timeout.ms",
        )
    return changed


def check_new_group(group_id: str, known: Collection[str]) -> None:
    """Check that configurations may be stored for a new group.

    Raises
    ------
    InvalidConfigurationError
        The id is too long, or too many groups have configurations.
    """
    if len(group_id) > GROUP_ID_CHARACTERS_MAX:
        raise InvalidConfigurationError(
            f"the group id has {len(group_id)} characters; a group with configurations can have"
            f" at most {GROUP_ID_CHARACTERS_MAX}"
        )
    if group_id not in known and len(known) >= GROUPS_MAX:
        raise InvalidConfigurationError(
            f"group '{group_id}' cannot be configured: {GROUPS_MAX} other groups already are"
        )


def describe_group(own: Mapping[str, str], broker: BrokerConfig) -> dict[str, ConfigValue]:
    """Return the effective value, the origin and the documentation of each group key."""
    described = {}
    for key, row in GROUP_KEYS.items():
        broker_key = row.synonyms[0].key
        layers = tuple(layers_of_broker_key(BROKER_KEYS[broker_key], broker))
        if key in own:
            layers = (LayeredValue(key, own[key], ORIGIN_GROUP), *layers)
        first = layers[0]
        setter = None if key in own else broker_key
        described[key] = ConfigValue(first.value, first.origin, row.doc, setter, layers)
    return described
