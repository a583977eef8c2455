"""Random requests of every API in every version, whose answers are stored (`transcripts`).

Most names, numbers and ids exist in the broker, so that many requests succeed: requests often
repeat the ids and epochs in earlier answers.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any, ClassVar

from logstore import Acl, Authorizer, Broker, VirtualClock
from logstore.messages import to_json
from logstore.messages.schema import Field
from logstore.record.batch import build_batch
from logstore.record.records import Record
from logstore.wire.versions import SERVED
from tests.support.world.random_messages import Maker, random_message
from tests.support.world.transcripts import Transcript, text_of
from tests.support.world.wire import Client

FEW = 24
REQUESTS = 150
NOBODY = "User:ANONYMOUS"
NOT_SENT = {"SaslHandshake", "SaslAuthenticate"}
"""Requests that close the connection."""
CHAINED = (
    *("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch", "DescribeGroups"),
    *("ConsumerGroupHeartbeat", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "Fetch"),
    *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "Produce", "Fetch"),
    *("TxnOffsetCommit", "EndTxn", "DescribeTransactions", "DescribeProducers", "LeaveGroup"),
)
"""Requests that follow from each other, and are therefore sent more often."""
KNOWN = {
    "member_id": "memberId",
    "member_epoch": "memberEpoch",
    "generation_id": "generationId",
    "generation_id_or_member_epoch": "generationId",
    "producer_id": "producerId",
    "producer_epoch": "producerEpoch",
    "session_id": "sessionId",
    "group_id": "group of a member",
    "transactional_id": "transactional id",
}
"""Fields of requests whose values come from a field of an earlier answer."""

TEXTS: dict[str, tuple[str, ...]] = {
    "name|topic|topic_name|topic_names|subscribed_topic_names": ("t", "u", "v", "no", "", "a/b"),
    "group_id|group_ids|groups|groups_names|coordinator_keys|key": ("g", "h", "x", ""),
    "resource_name|resource_name_filter": ("t", "u", "g", "0", "1", "", "kafka-cluster", "no"),
    "transactional_id|transactional_ids|v3_and_below_transactional_id": ("x", "y", ""),
    "transactional_id_pattern": ("x", ".*", "[", ""),
    "member_id|instance_id|group_instance_id": ("m", "n", ""),
    "principal|principal_filter": ("User:a", "User:*", "b", ""),
    "host|host_filter": ("*", "127.0.0.1", ""),
    "entity_type": ("user", "client-id", "ip", "group", ""),
    "entity_name|match": ("a", "b", "127.0.0.1", ""),
    "feature": ("transaction.version", "metadata.version", "group.version", "no"),
    "state_filters|states_filter": ("Empty", "Stable", "Ongoing", "CompleteCommit", "no"),
    "types_filter": ("classic", "consumer", "no"),
    "configuration_keys": ("retention.ms", "cleanup.policy", "log.cleaner.threads", "no"),
    "server_assignor": ("uniform", "range", "no"),
    "path": ("/data", "/other", ""),
    "mechanism": ("SCRAM-SHA-256",),
    "protocol_type": ("consumer", ""),
}
SETTINGS = (
    ("retention.ms", "1000"),
    ("retention.ms", "-5"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "delete"),
    ("cleanup.policy", "x"),
    ("segment.bytes", "1000000"),
    ("min.insync.replicas", "2"),
    ("message.timestamp.type", "LogAppendTime"),
    ("log.retention.ms", "5000"),
    ("log.cleaner.threads", "2"),
    ("consumer.session.timeout.ms", "50000"),
    ("producer_byte_rate", "1"),
    ("connection_creation_rate", "2"),
    ("leader.replication.throttled.replicas", "0:1"),
    ("leader.replication.throttled.rate", "1000"),
    ("no", ""),
)
NUMBERS: dict[str, tuple[int, ...]] = {
    "partition|partition_index|partition_indexes|partitions|index": (0, 0, 1, 2, 7, -1),
    "broker_id|broker_ids|node_id|replicas|replica_id": (0, 0, 1, -1),
    "num_partitions|count": (1, 2, 3, 0, -1),
    "replication_factor": (1, 1, 2, 0, -1),
    "acks": (1, -1, 2),
    ".*epoch": (0, 1, -1, 2),
    "max_wait_ms|min_bytes": (0,),
    # Short timeouts could end while the test runs.
    "transaction_timeout_ms": (600_000, 600_000, 0, -1, 10_000_000),
    "(session|rebalance)_timeout_ms": (600_000, 900_000),
    ".*_ms": (1000, 60_000, 0, -1),
    "max_bytes|partition_max_bytes": (1 << 20, 100, 0),
    "response_partition_limit": (1, 2, 2000, 0),
    "session_id": (0,),
    "session_epoch": (0, 0, 1, 1, 2, -1),
    "iterations": (4096, 1, 20_000),
    "key_type": (0, 1, 2),
    "resource_type|resource_type_filter|resource_types": (2, 2, 3, 4, 4, 5, 8, 16, 32, 1, 0),
    "resource_pattern_type": (3, 3, 4, 1),
    "pattern_type_filter": (3, 4, 1, 2, 0),
    "operation": (2, 3, 4, 1, 0, 8),
    "permission_type": (3, 2, 1, 0),
    "config_operation": (0, 0, 1, 2, 3, 4),
    "mechanism": (1, 2, 0),
    "timestamp": (-1, -2, -3, 0, 1_600_000_000_000),
    ".*offset|high_watermark": (0, 1, 2, 3, 9, -1),
    "producer_id|.*_producer_id|producer_id_filters": (0, 1, 2, -1),
    "max_version_level": (0, 1, 2, 3, 25, -1),
}
GENERATED = re.compile(r"(?<=sessionId: )\d{2,}|(?<=port: )\d+|\b[\w-]+-[0-9a-f]{8}(-[0-9a-f]+){4}")
"""Ids of sessions and members, and ports."""


def _of(pools: dict[str, Any], name: str) -> Any:
    return next((pool for pattern, pool in pools.items() if re.fullmatch(pattern, name)), None)


class Plausible(Maker):
    """Values that mostly name things that exist."""

    topic_ids: tuple[str, ...] = ()
    known: ClassVar[dict[str, Any]] = {}
    """The latest values by the names of the fields of answers."""

    def struct(self, struct: str) -> Any:
        made = super().struct(struct)
        setting = next((name for name in ("name", "key") if hasattr(made, name)), None)
        if setting is not None and hasattr(made, "value"):
            key, value = self.rng.choice(SETTINGS)
            setattr(made, setting, key)
            if isinstance(getattr(made, "value", None), float):
                made.value = float(self.rng.choice((1, 2.5, 0, 1e19)))
            elif getattr(made, "value", None) is not None:
                made.value = value
        return made

    def _element(self, each: Field) -> Any:
        rng = self.rng
        known = self.known.get(KNOWN.get(each.attribute, ""))
        if known is not None and rng.random() < 0.8:
            return known
        if each.element == "string":
            return rng.choice(_of(TEXTS, each.attribute) or ("", "a"))
        if each.element == "uuid":
            return rng.choice(self.topic_ids)
        if each.element == "records":
            return self._records()
        if each.element.startswith("int"):
            return rng.choice(_of(NUMBERS, each.attribute) or (0, 1, 2, -1))
        return super()._element(each)

    def _records(self) -> bytes:
        """Return a batch of nobody, or of the known producer."""
        rng, fields = self.rng, {}
        if "producerId" in self.known and rng.random() < 0.5:
            fields = {
                "producer_id": self.known["producerId"],
                "producer_epoch": max(self.known.get("producerEpoch", 0), 0),
                "base_sequence": rng.choice((0, 0, 1, 2)),
                "is_transactional": rng.random() < 0.5,
            }
        return bytes(build_batch([Record(0, 1_600_000_000_000, b"k", b"v")], **fields))


def _learn(api: str, request: Any, answer: Any, known: dict[str, Any]) -> None:
    """Take over the ids and epochs in an answer."""
    match api:
        case "JoinGroup" if answer["memberId"]:
            known["memberId"] = answer["memberId"]
            known["generationId"] = answer["generationId"]
        case "ConsumerGroupHeartbeat" if answer["memberEpoch"] > 0:
            known["memberEpoch"] = answer["memberEpoch"]
        case "InitProducerId" if answer["producerId"] >= 0:
            if request.transactional_id is not None:
                known["transactional id"] = request.transactional_id
            if request.transactional_id == known.get("transactional id"):
                known |= {key: answer[key] for key in ("producerId", "producerEpoch")}
        case "Fetch" if answer.get("sessionId"):
            known["sessionId"] = answer["sessionId"]


def _make_likely(rng: Random, api: str, request: Any, known: dict[str, Any]) -> None:
    """Change the fields that must agree with each other for a request to succeed."""
    if api == "Produce":
        request.acks = request.acks or 1  # 0 has no answer
    if api == "InitProducerId" and rng.random() < 0.6:
        request.producer_id = request.producer_epoch = -1
    if api == "JoinGroup":
        # Each member is alone in its group, so that no answer waits for another member.
        if "memberId" in known and rng.random() < 0.7:
            request.member_id = known["memberId"]
        else:
            known["groups"] = known.get("groups", 0) + 1
            request.member_id = ""
            known.pop("memberId", None)
        request.session_timeout_ms = rng.choice((600_000, 600_000, 600_000, 1))
        request.rebalance_timeout_ms = max(request.rebalance_timeout_ms, 600_000)
        request.protocol_type = "consumer"
        protocol = request.JoinGroupRequestProtocol(name="range", metadata=b"m")
        request.protocols = request.protocols or [protocol]
    if api in ("JoinGroup", "SyncGroup"):
        request.group_id = known["group of a member"] = f"alone{known.get('groups', 0)}"
    if api == "ConsumerGroupHeartbeat":
        request.subscribed_topic_regex = None  # a pattern is resolved after some time
    if api == "ConsumerGroupHeartbeat" and rng.random() < 0.7:
        request.group_id = "k"
        request.instance_id = request.server_assignor = request.topic_partitions = None
        request.subscribed_topic_names = ["t"]
        if rng.random() < 0.4:
            request.member_id, request.member_epoch = rng.choice("mn"), 0
            request.rebalance_timeout_ms, request.topic_partitions = 600_000, []


def _ensure_topics(broker: Broker[VirtualClock]) -> tuple[str, ...]:
    """Create the topics that an earlier request deleted; return the ids."""
    for name, partitions in (("t", 2), ("u", 1)):
        if name not in {topic.name for topic in broker.topics()}:
            broker.create_topic(name, partitions)
            broker.append(name, value=b"v")
    return broker.topic("t").id, broker.topic("u").id, "A" * 22


def _authorizer(seed: int) -> Authorizer | None:
    """Return an authorizer that allows everything or some of it, or None, in turn."""
    rng = Random(seed)
    if seed % 4 < 2:
        return None
    kinds = (("topic", "t"), ("topic", "v"), ("group", "g"), ("transactional_id", "x"))
    acls = [
        Acl(NOBODY, rng.choice(("read", "write", "describe", "all", "alter", "delete")), *kind)
        for kind in kinds * 2
        if rng.random() < 0.6
    ]
    cluster = ("describe", "alter", "alter_configs", "describe_configs", "idempotent_write")
    acls += [Acl(NOBODY, each, "cluster", "kafka-cluster") for each in rng.sample(cluster, 2)]
    return Authorizer(acls, super_users=[NOBODY] if seed % 4 == 2 else ())


def transcribe(seed: int) -> Transcript:
    """Return random requests to a broker, and their answers."""
    rng, transcript = Random(seed), Transcript()
    # The listener uses real time: nothing may depend on how much of it passes.
    config = {
        "group.initial.rebalance.delay.ms": 0,
        "group.consumer.assignment.interval.ms": 0,
        "group.consumer.session.timeout.ms": 600_000,
        "group.consumer.max.session.timeout.ms": 600_000,
    }
    with (
        Broker(clock=VirtualClock(), seed=seed, broker_config=config) as broker,
        broker.listen(authorizer=_authorizer(seed)) as listener,
        Client(listener) as client,
    ):
        known: dict[str, Any] = {}
        for _ in range(REQUESTS):
            topic_ids = _ensure_topics(broker)
            every = CHAINED if rng.random() < 0.5 else sorted(SERVED.keys() - NOT_SENT)
            api = rng.choice(every)
            version = rng.randint(SERVED[api].first, SERVED[api].last)
            kind = type("Of", (Plausible,), {"topic_ids": topic_ids, "known": known})
            request = random_message(rng, f"{api}Request", version, elements_max=2, maker=kind)
            _make_likely(rng, api, request, known)
            transcript.note(api, version, GENERATED.sub("...", text_of(to_json(request, version))))
            try:
                answer = to_json(client.ask(request, version), version)
            except EOFError:
                transcript.note("closed")
                client.__init__(listener)
                continue
            _learn(api, request, answer, known)
            transcript.note(GENERATED.sub("...", text_of(answer)))
    return transcript
