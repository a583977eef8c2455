"""Kafka's keys that are stored and described but change nothing in this engine.

Tools set them on any topic or broker: MirrorMaker copies topic configurations, and
`kafka-reassign-partitions` sets and removes throttles. A value is checked as Kafka checks it. A
value that asks for a missing feature is refused. Types, defaults and ranges are those of Kafka 3.9;
keys that later releases added follow the release that did.
"""

from __future__ import annotations

from collections.abc import Mapping

from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.ignored import has_no_effect
from logstore.config.keys import ConfigKey, Form, Kind
from logstore.config.topic_keys import AT_LEAST_0, AT_LEAST_1, TOPIC_KEYS
from logstore.types import INT32_MAX, INT64_MAX

UNKNOWN_KEYS_MAX = 100
"""Most unknown broker keys that one layer may hold."""

UNKNOWN_KEY_CHARACTERS_MAX = 255
UNKNOWN_VALUE_CHARACTERS_MAX = 4096

_NO_EFFECT = "Stored and described, but without effect here: "
_TIERED = f"{_NO_EFFECT}there is no tiered storage."
_THROTTLED = f"{_NO_EFFECT}partitions are not moved between brokers, so nothing is throttled."
_CONVERTED = f"{_NO_EFFECT}batches are stored and read in one format."
_THREADS = f"{_NO_EFFECT}this engine has no such threads."

_REPLICAS = Form(
    r",?\*,?|(?:[0-9]+:[0-9]+)?(?:,(?:[0-9]+:[0-9]+)?)*",
    "* or a list of PARTITION:BROKER, such as 0:1,0:2",
)
_RELEASE = Form(
    r"(?:0\.(?:8\.[0-2]|9\.0|10\.[0-2]|11\.0)|1\.[01]|2\.[0-8]|3\.[0-9])(?:-IV[0-9])?(?:\..*)?",
    "a release of Kafka from 0.8.0 to 3.9, such as 2.8 or 3.0-IV1",
)
_NOT_TIERED = Form("false", "false, since there is no tiered storage here")

INERT_TOPIC_KEYS: Mapping[str, ConfigKey] = {
    row.key: row
    for row in (
        ConfigKey(
            "follower.replication.throttled.replicas", Kind.LIST, (), _THROTTLED, form=_REPLICAS
        ),
        ConfigKey(
            "leader.replication.throttled.replicas", Kind.LIST, (), _THROTTLED, form=_REPLICAS
        ),
        ConfigKey("local.retention.bytes", Kind.LONG, -2, _TIERED, ((-2, None),)),
        ConfigKey("local.retention.ms", Kind.LONG, -2, _TIERED, ((-2, None),)),
        ConfigKey("message.downconversion.enable", Kind.BOOLEAN, True, _CONVERTED),
        ConfigKey("message.format.version", Kind.STRING, "3.0-IV1", _CONVERTED, form=_RELEASE),
        ConfigKey("remote.copy.lag.bytes", Kind.LONG, -1, _TIERED, ((-1, None),)),
        ConfigKey("remote.copy.lag.ms", Kind.LONG, 0, _TIERED, ((-1, None),)),
        ConfigKey("remote.log.copy.disable", Kind.BOOLEAN, False, _TIERED),
        ConfigKey("remote.log.delete.on.disable", Kind.BOOLEAN, False, _TIERED),
        ConfigKey("remote.storage.enable", Kind.BOOLEAN, False, _TIERED, form=_NOT_TIERED),
    )
}
"""Topic keys without effect. `describe` lists those that a topic sets."""

INERT_BROKER_KEYS: Mapping[str, ConfigKey] = {
    row.key: row
    for row in (
        ConfigKey("background.threads", Kind.INT, 10, _THREADS, AT_LEAST_1),
        ConfigKey(
            "follower.replication.throttled.rate", Kind.LONG, INT64_MAX, _THROTTLED, AT_LEAST_0
        ),
        ConfigKey(
            "leader.replication.throttled.rate", Kind.LONG, INT64_MAX, _THROTTLED, AT_LEAST_0
        ),
        ConfigKey(
            "max.connection.creation.rate",
            Kind.INT,
            INT32_MAX,
            f"{_NO_EFFECT}connections are limited by number only (max.connections).",
            AT_LEAST_0,
        ),
        ConfigKey("num.io.threads", Kind.INT, 8, _THREADS, AT_LEAST_1),
        ConfigKey("num.network.threads", Kind.INT, 3, _THREADS, AT_LEAST_1),
        ConfigKey("num.replica.fetchers", Kind.INT, 1, _THREADS, AT_LEAST_1),
        ConfigKey(
            "replica.alter.log.dirs.io.max.bytes.per.second",
            Kind.LONG,
            INT64_MAX,
            _THROTTLED,
            AT_LEAST_0,
        ),
        ConfigKey(
            "sasl.kerberos.min.time.before.relogin",
            Kind.LONG,
            60_000,
            f"{_NO_EFFECT}there is no Kerberos.",
        ),
    )
}
"""Broker keys without effect that may be set while the broker runs, as in Kafka."""

STORED_TOPIC_KEYS: Mapping[str, ConfigKey] = {**TOPIC_KEYS, **INERT_TOPIC_KEYS}
"""Every key that a topic can have."""

STORED_BROKER_KEYS: Mapping[str, ConfigKey] = {**BROKER_KEYS, **INERT_BROKER_KEYS}
"""Every broker key of a known type."""


def is_unknown_broker_key(key: str) -> bool:
    """Return whether a key belongs neither to this engine nor to Kafka's broker."""
    return key not in STORED_BROKER_KEYS and not has_no_effect(key)


def unknown_broker_key(key: str) -> ConfigKey:
    """Return the row of a key that is stored for a plugin or tool that knows it."""
    return ConfigKey(key, Kind.STRING, "", "Unknown: stored, its value hidden, without effect.")
