"""Names of Kafka's broker keys that mean nothing to one node without a network.

A broker's own `server.properties` is full of them. They are told apart from misspelt keys, so
that the first can be listed in one line and the second warned about.
"""

from __future__ import annotations

_PREFIXES = (
    "advertised.",
    "alter.",
    "authorizer.",
    "auto.leader.",
    "broker.",
    "client.quota.",
    "confluent.",
    "connection.",
    "connections.",
    "control.plane.",
    "controlled.shutdown.",
    "controller.",
    "delegation.token.",
    "early.start.",
    "eligible.leader.",
    "fetch.",
    "group.",
    "initial.broker.",
    "inter.broker.",
    "kafka.",
    "leader.imbalance.",
    "listener.",
    "metadata.",
    "metric.",
    "metrics.",
    "num.replica.",
    "offsets.",
    "password.encoder.",
    "principal.",
    "queued.",
    "quota.",
    "remote.",
    "replica.",
    "replication.",
    "request.",
    "reserved.broker.",
    "sasl.",
    "security.",
    "share.",
    "socket.",
    "ssl.",
    "transaction.",
    "transactional.",
    "unclean.leader.election.interval.",
    "unstable.",
    "zookeeper.",
)

_NAMES = frozenset(
    (
        "auto.create.topics.enable",
        "auto.include.jmx.reporter",
        "background.threads",
        "create.topic.policy.class.name",
        "alter.config.policy.class.name",
        "default.replication.factor",
        "delete.topic.enable",
        "host.name",
        "internal.metadata.delete.delay.millis",
        "listeners",
        "log.deletion.max.segments.per.run",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.incremental.fetch.session.cache.slots",
        "max.request.partition.size.limit",
        "node.id",
        "num.io.threads",
        "num.network.threads",
        "num.partitions",
        "port",
        "process.roles",
        "producer.purgatory.purge.interval.requests",
        "server.max.startup.time.ms",
        "telemetry.max.bytes",
    )
)


def has_no_effect(key: str) -> bool:
    """Tell whether `key` is a broker key of Kafka's that this engine has no use for."""
    return key in _NAMES or key.startswith(_PREFIXES)
