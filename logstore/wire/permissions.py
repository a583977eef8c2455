"""Permissions: what the client of each API must be allowed to do, to what.

The one place that says it; a handler that asks for anything else is stopped by an assertion, and
docs/WIRE.md shows this table. Source: Kafka's KafkaApis, AclApis and ControllerApis, 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping

Need = tuple[str, str]
"""An operation and a type of resource, in Kafka's words."""

NEEDS: Mapping[str, tuple[Need, ...]] = {
    "Produce": (("write", "transactional_id"), ("write", "topic")),
    "Fetch": (("read", "topic"),),
    "ListOffsets": (("describe", "topic"),),
    # Topics that may not be seen are left out of all; CREATE is for those that it creates.
    "Metadata": (
        ("describe", "topic"),
        ("create", "cluster"),
        ("create", "topic"),
        ("describe", "cluster"),
    ),
    "OffsetCommit": (("read", "group"), ("read", "topic")),
    "OffsetFetch": (("describe", "group"), ("describe", "topic")),
    "FindCoordinator": (("describe", "group"), ("describe", "transactional_id")),
    "JoinGroup": (("read", "group"),),
    "Heartbeat": (("read", "group"),),
    "LeaveGroup": (("read", "group"),),
    "SyncGroup": (("read", "group"),),
    "DescribeGroups": (("describe", "group"),),
    # Who may DESCRIBE the cluster sees all groups, others those that they may DESCRIBE.
    "ListGroups": (("describe", "cluster"), ("describe", "group")),
    "SaslHandshake": (),
    "ApiVersions": (),
    # Who may CREATE in the cluster needs no CREATE of the topic.
    "CreateTopics": (("create", "cluster"), ("create", "topic"), ("describe_configs", "topic")),
    "DeleteTopics": (("describe", "topic"), ("delete", "topic")),
    "DeleteRecords": (("delete", "topic"),),  # KIP-107
    # Without a transactional id; WRITE of any topic is enough, too.
    "InitProducerId": (
        ("write", "transactional_id"),
        ("idempotent_write", "cluster"),
        ("write", "topic"),
    ),
    "OffsetForLeaderEpoch": (("describe", "topic"),),
    "AddPartitionsToTxn": (("write", "transactional_id"), ("write", "topic")),
    "AddOffsetsToTxn": (("write", "transactional_id"), ("read", "group")),
    "EndTxn": (("write", "transactional_id"),),
    "TxnOffsetCommit": (("write", "transactional_id"), ("read", "group"), ("read", "topic")),
    "DescribeAcls": (("describe", "cluster"),),
    "CreateAcls": (("alter", "cluster"),),
    "DeleteAcls": (("alter", "cluster"),),
    "DescribeConfigs": (("describe_configs", "topic"), ("describe_configs", "cluster")),
    "AlterConfigs": (("alter_configs", "topic"), ("alter_configs", "cluster")),
    "IncrementalAlterConfigs": (("alter_configs", "topic"), ("alter_configs", "cluster")),
    "AlterReplicaLogDirs": (("alter", "cluster"),),
    "DescribeLogDirs": (("describe", "cluster"),),
    "SaslAuthenticate": (),
    "CreatePartitions": (("alter", "topic"),),
    "DeleteGroups": (("delete", "group"),),
    "ElectLeaders": (("alter", "cluster"),),
    "AlterPartitionReassignments": (("alter", "cluster"),),
    "ListPartitionReassignments": (("describe", "cluster"),),
    "OffsetDelete": (("delete", "group"), ("read", "topic")),
    "DescribeUserScramCredentials": (("describe", "cluster"),),
    "AlterUserScramCredentials": (("alter", "cluster"),),
    "DescribeCluster": (("describe", "cluster"),),
    "DescribeProducers": (("read", "topic"),),
    "DescribeTransactions": (("describe", "transactional_id"), ("describe", "topic")),
    "ListTransactions": (("describe", "transactional_id"),),
    "DescribeTopicPartitions": (("describe", "topic"),),
}
"""By API; of several that concern the same, each is asked for unless a comment says otherwise."""
