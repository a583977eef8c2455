"""Keys that have no effect of their own: ignored keys, old names, and inert keys.

An inert key is stored and described but has no effect in this engine. Some tools set these keys on
every topic or broker. For example, MirrorMaker copies topic configurations, and
`kafka-reassign-partitions` sets and removes throttles. The values are validated as in Kafka. A
value that requires a missing feature is refused. Types, defaults and ranges are those of Kafka 3.9,
or of the release that added the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.keys import ConfigKey, Form, Kind
from logstore.config.topic_keys import AT_LEAST_0, AT_LEAST_1, COMPACT, TOPIC_KEYS
from logstore.types import INT32_MAX, INT64_MAX, MINUTE_MS

# -- ignored keys --------------------------------------------------------------------------------
# Kafka's broker keys that have no meaning in this engine. One note lists them all, while each
# misspelt key gets a warning of its own. Topic keys of this kind are refused with the reason.

PREFIXES = (
    "add.partitions.to.txn.",
    "advertised.",
    "alter.",
    "authorizer.",
    "auto.leader.",
    "broker.heartbeat.",
    "broker.id.",
    "broker.session.",
    "client.quota.",
    "confluent.",
    "connection.",
    "connections.max.reauth.",
    "control.plane.",
    "controlled.shutdown.",
    "controller.",
    "delegation.token.",
    "delete.records.purgatory.",
    "early.start.",
    "eligible.leader.",
    "errors.deadletterqueue.",
    "fetch.purgatory.",
    "follower.fetch.",
    "group.consumer.assignor.",
    "group.coordinator.",
    "group.share.",
    "group.streams.",
    "initial.broker.",
    "inter.broker.",
    "internal.metadata.",
    "kafka.",
    "leader.imbalance.",
    "listener.",
    "log.remote.",
    "metadata.",
    "metric.",
    "metrics.",
    "num.replica.",
    "offsets.commit.",
    "offsets.load.",
    "offsets.topic.compression.",
    "offsets.topic.replication.",
    "password.encoder.",
    "principal.",
    "quota.",
    "remote.",
    "replica.",
    "replication.",
    "request.",
    "reserved.broker.",
    "sasl.client.",
    "sasl.enabled.",
    "sasl.jaas.",
    "sasl.kerberos.",
    "sasl.login.",
    "sasl.mechanism.",
    "sasl.oauthbearer.",
    "sasl.server.callback.",
    "security.",
    "share.",
    "socket.connection.",
    "socket.listen.",
    "socket.receive.",
    "socket.send.",
    "ssl.",
    "transaction.state.log.load.",
    "transaction.state.log.replication.",
    "transaction.two.phase.",
    "unclean.leader.election.interval.",
    "unstable.",
    "zookeeper.",
)

NAMES = frozenset(
    (
        "auto.create.topics.enable",
        "auto.include.jmx.reporter",
        "background.threads",
        "config.providers",
        "cordoned.log.dirs",
        "create.topic.policy.class.name",
        "delete.topic.enable",
        "follower.replication.throttled.rate",
        "host.name",
        "leader.replication.throttled.rate",
        "listeners",
        "log.deletion.max.segments.per.run",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "max.connection.creation.rate",
        "max.connections.per.ip.overrides",
        "max.decompressed.message.bytes",
        "max.request.partition.size.limit",
        "num.io.threads",
        "num.network.threads",
        "port",
        "process.roles",
        "queued.max.requests",
        "producer.purgatory.purge.interval.requests",
        "server.max.startup.time.ms",
        "telemetry.max.bytes",
    )
)


def has_no_effect(key: str) -> bool:
    """Return whether `key` is a Kafka broker key that is ignored here."""
    return key in NAMES or key.startswith(PREFIXES)


NOT_OFFERED_TO_TOPICS = {
    "errors.deadletterqueue.group.enable": "share groups are not supported",
    "max.decompressed.message.bytes": "use logstore.decompression.max.bytes instead",
}
"""Kafka's topic keys that cannot be set here, and the reason for each."""


# -- old names of keys and values ------------------------------------------------------------------
# KAFKA-631 proposed `topic.cleanup.policy` with the policy `dedupe`, a pool of cleaner threads with
# a buffer each and two throughput limits; `log.cleanup.interval.mins` is from operators' guides.

OLD_POLICY_KEY = "topic.cleanup.policy"
OLD_COMPACT = "dedupe"


class OldName(NamedTuple):
    """An old broker key, its replacement, and how to convert its value."""

    old: str
    current: str
    reading: str


OLD_BROKER_NAMES = (
    OldName(
        OLD_POLICY_KEY,
        "log.cleanup.policy",
        f"the same, except that {OLD_COMPACT} is now {COMPACT}",
    ),
    OldName("cleaner.thread.pool.size", "log.cleaner.threads", "the same"),
    OldName(
        "cleaner.buffer.size.bytes",
        "log.cleaner.dedupe.buffer.size",
        "bytes for each thread; multiplied by the number of threads",
    ),
    OldName(
        "cleaner.max.read.throughput",
        "logstore.cleaner.max.read.bytes.per.second",
        "the same, in bytes per second",
    ),
    OldName(
        "cleaner.max.write.throughput",
        "logstore.cleaner.max.write.bytes.per.second",
        "the same, in bytes per second",
    ),
    OldName(
        "log.cleanup.interval.mins",
        "log.retention.check.interval.ms",
        "minutes, converted to milliseconds",
    ),
)

_CURRENT = {name.old: name.current for name in OLD_BROKER_NAMES}


def translate_policy(key: str, text: str, current: str, notes: list[str]) -> tuple[str, str]:
    """Return a key and its value after replacing old names of the cleanup policy.

    Parameters
    ----------
    key, text : str
        The key and the value that the user set.
    current : str
        The current name of the key: cleanup.policy for a topic, log.cleanup.policy for a broker.
    notes : list of str
        Receives a message about each translated name.
    """
    if key == OLD_POLICY_KEY:
        notes.append(f"{OLD_POLICY_KEY} is the old name of {current}")
        key = current
    if key == current and OLD_COMPACT in (parts := [part.strip() for part in text.split(",")]):
        notes.append(f"{current}: {OLD_COMPACT} is the old name of {COMPACT}")
        text = ",".join(COMPACT if part == OLD_COMPACT else part for part in parts)
    return key, text


def translate_broker(texts: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return broker properties with old names replaced, and messages about the replacements.

    If both names are set, the current name takes precedence.

    Raises
    ------
    InvalidConfigurationError
        The value of an old key is not a number, or is less than 1.
    """
    current = dict(texts)
    notes: list[str] = []

    def replace(old: str, text: str, remark: str = "") -> None:
        key = _CURRENT[old]
        if key in current:
            notes.append(f"{old} is ignored because {key} is set")
            return
        current[key] = text
        notes.append(f"{old} is an old name: using {key} = {text}{remark}")

    if (threads := current.pop("cleaner.thread.pool.size", None)) is not None:
        replace("cleaner.thread.pool.size", threads)
    if (minutes := current.pop("log.cleanup.interval.mins", None)) is not None:
        interval_ms = MINUTE_MS * _old_number("log.cleanup.interval.mins", minutes)
        replace("log.cleanup.interval.mins", str(interval_ms))
    if (buffer := current.pop("cleaner.buffer.size.bytes", None)) is not None:
        per_thread = _old_number("cleaner.buffer.size.bytes", buffer)
        threads_row = BROKER_KEYS["log.cleaner.threads"]
        count = threads_row.parse(current.get(threads_row.key, str(threads_row.default)))
        assert isinstance(count, int)
        replace(
            "cleaner.buffer.size.bytes",
            str(per_thread * max(count, 1)),
            f" ({per_thread} for each thread)",
        )
    for old in ("cleaner.max.read.throughput", "cleaner.max.write.throughput"):
        if (limit := current.pop(old, None)) is not None:
            _old_number(old, limit)
            replace(old, limit)
    if (policy := current.pop(OLD_POLICY_KEY, None)) is not None:
        replace(OLD_POLICY_KEY, policy)
    if "log.cleanup.policy" in current:
        _, current["log.cleanup.policy"] = translate_policy(
            "log.cleanup.policy", current["log.cleanup.policy"], "log.cleanup.policy", notes
        )
    return current, notes


def _old_number(key: str, text: str) -> int:
    row = ConfigKey(key, Kind.LONG, 1, "", AT_LEAST_1)
    value = row.parse(text)
    assert isinstance(value, int)
    return value


# -- inert and unknown keys ----------------------------------------------------------------------

UNKNOWN_KEYS_MAX = 100
"""Maximum number of unknown broker keys in a layer."""

UNKNOWN_KEY_CHARACTERS_MAX = 255
UNKNOWN_VALUE_CHARACTERS_MAX = 4096

_NO_EFFECT = "Stored and described, but has no effect here: "
_TIERED = f"{_NO_EFFECT}tiered storage is not supported."
_THROTTLED = "Replicas that are throttled while they are not in sync; no effect in a single broker."
_THROTTLED_RATE = "Bytes per second of throttled replicas; no effect in a single broker."
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
_NOT_TIERED = Form("false", "false, since tiered storage is not supported")

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
"""Topic keys that have no effect. `describe` lists those that are set for a topic."""

INERT_BROKER_KEYS: Mapping[str, ConfigKey] = {
    row.key: row
    for row in (
        ConfigKey("background.threads", Kind.INT, 10, _THREADS, AT_LEAST_1),
        ConfigKey(
            "follower.replication.throttled.rate", Kind.LONG, INT64_MAX, _THROTTLED_RATE, AT_LEAST_0
        ),
        ConfigKey(
            "leader.replication.throttled.rate", Kind.LONG, INT64_MAX, _THROTTLED_RATE, AT_LEAST_0
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
            f"{_NO_EFFECT}moves between directories are not throttled.",
            AT_LEAST_0,
        ),
        ConfigKey(
            "sasl.kerberos.min.time.before.relogin",
            Kind.LONG,
            60_000,
            f"{_NO_EFFECT}Kerberos is not supported.",
        ),
    )
}
"""Dynamic broker keys that have no effect."""

STORED_TOPIC_KEYS: Mapping[str, ConfigKey] = {**TOPIC_KEYS, **INERT_TOPIC_KEYS}
"""All keys that can be set for a topic."""

STORED_BROKER_KEYS: Mapping[str, ConfigKey] = {**BROKER_KEYS, **INERT_BROKER_KEYS}
"""All broker keys whose type is known."""


def is_unknown_broker_key(key: str) -> bool:
    """Return whether a key is unknown to both this engine and Kafka's broker."""
    return key not in STORED_BROKER_KEYS and not has_no_effect(key)


def unknown_broker_key(key: str) -> ConfigKey:
    """Return a row for an unknown key, which is stored for plugins and tools."""
    return ConfigKey(
        key,
        Kind.STRING,
        "",
        "Unknown key. It is stored but has no effect, and its value is hidden.",
    )
