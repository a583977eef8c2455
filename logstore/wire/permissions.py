"""The permissions that each API checks: operations on resource types.

A handler that checks any other permission fails an assertion. docs/WIRE.md contains this table.

Source: KafkaApis, AclApis and ControllerApis of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping

Need = tuple[str, str]
"""An operation and a resource type, by Kafka's names."""

NEEDS: Mapping[str, tuple[Need, ...]] = {
    "Produce": (("write", "transactional_id"), ("write", "topic")),
    "Fetch": (("read", "topic"),),
    "ListOffsets": (("describe", "topic"),),
    # Topics without DESCRIBE are omitted. Automatic creation needs CREATE.
    "Metadata": (
        ("describe", "topic"),
        ("create", "cluster"),
        ("create", "topic"),
        ("describe", "cluster"),
    ),
    "OffsetCommit": (("read", "group"), ("read", "topic")),
    "OffsetFetch": (("describe", "group"), ("describe", "topic")),
    "FindCoordinator": (("describe", "group"), ("describe", "transactional_id")),
    # A pattern in a subscription only matches topics with DESCRIBE.
    "JoinGroup": (("read", "group"), ("describe", "topic")),
    "Heartbeat": (("read", "group"),),
    "LeaveGroup": (("read", "group"),),
    "SyncGroup": (("read", "group"),),
    "DescribeGroups": (("describe", "group"),),
    # With DESCRIBE on the cluster, all groups are listed. Without it, DESCRIBE is checked for each
    # group.
    "ListGroups": (("describe", "cluster"), ("describe", "group")),
    "SaslHandshake": (),
    "ApiVersions": (),
    # CREATE on the topic is not needed with CREATE on the cluster.
    "CreateTopics": (("create", "cluster"), ("create", "topic"), ("describe_configs", "topic")),
    "DeleteTopics": (("describe", "topic"), ("delete", "topic")),
    "DeleteRecords": (("delete", "topic"),),  # KIP-107
    # Without a transactional id, IDEMPOTENT_WRITE on the cluster or WRITE on any topic is needed.
    "InitProducerId": (
        ("write", "transactional_id"),
        ("idempotent_write", "cluster"),
        ("write", "topic"),
    ),
    "OffsetForLeaderEpoch": (("describe", "topic"),),
    # Since version 4, only CLUSTER_ACTION is needed, because brokers send these versions.
    "AddPartitionsToTxn": (
        ("write", "transactional_id"),
        ("write", "topic"),
        ("cluster_action", "cluster"),
    ),
    "AddOffsetsToTxn": (("write", "transactional_id"), ("read", "group")),
    "EndTxn": (("write", "transactional_id"),),
    # One of these two is sufficient.
    "WriteTxnMarkers": (("alter", "cluster"), ("cluster_action", "cluster")),
    "TxnOffsetCommit": (("write", "transactional_id"), ("read", "group"), ("read", "topic")),
    "DescribeAcls": (("describe", "cluster"),),
    "CreateAcls": (("alter", "cluster"),),
    "DeleteAcls": (("alter", "cluster"),),
    "DescribeConfigs": (
        ("describe_configs", "topic"),
        ("describe_configs", "cluster"),
        ("describe_configs", "group"),
    ),
    "AlterConfigs": (
        ("alter_configs", "topic"),
        ("alter_configs", "cluster"),
        ("alter_configs", "group"),
    ),
    "IncrementalAlterConfigs": (
        ("alter_configs", "topic"),
        ("alter_configs", "cluster"),
        ("alter_configs", "group"),
    ),
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
    "DescribeClientQuotas": (("describe_configs", "cluster"),),
    "AlterClientQuotas": (("alter_configs", "cluster"),),
    "DescribeQuorum": (("describe", "cluster"),),
    "UpdateFeatures": (("alter", "cluster"),),
    "UnregisterBroker": (("alter", "cluster"),),
    "ListConfigResources": (("describe_configs", "cluster"),),
    "DescribeCluster": (("describe", "cluster"),),
    "DescribeProducers": (("read", "topic"),),
    "DescribeTransactions": (("describe", "transactional_id"), ("describe", "topic")),
    "ListTransactions": (("describe", "transactional_id"),),
    # DESCRIBE is needed for topics given by name. A pattern only matches topics with DESCRIBE.
    "ConsumerGroupHeartbeat": (("read", "group"), ("describe", "topic")),
    "ConsumerGroupDescribe": (("describe", "group"), ("describe", "topic")),
    "DescribeTopicPartitions": (("describe", "topic"),),
}
"""The permissions needed for each API. All of them are needed unless a comment says otherwise."""
