"""Names of Kafka's keys that mean nothing to one node without a network.

A broker's own `server.properties` is full of them. They are told apart from misspelt keys, so
that the first can be listed in one line and the second warned about. Topic keys of that kind are
refused like misspelt ones, but with the reason: nobody should believe that they are obeyed.
Keys that tools set on any topic or broker are stored instead (`logstore.config.inert_keys`).
"""

from __future__ import annotations

PREFIXES = (
    "add.partitions.to.txn.",
    "advertised.",
    "alter.",
    "authorizer.",
    "auto.leader.",
    "broker.heartbeat.",
    "broker.id.",
    "broker.rack",
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
    "group.consumer.",
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
        "max.incremental.fetch.session.cache.slots",
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
    """Tell whether `key` is a broker key of Kafka's that this engine has no use for."""
    return key in NAMES or key.startswith(PREFIXES)


NOT_OFFERED_TO_TOPICS = {
    "errors.deadletterqueue.group.enable": "there are no share groups",
    "max.decompressed.message.bytes": "logstore.decompression.max.bytes has its place",
}
"""Kafka's topic keys that a topic cannot have here, and why."""
