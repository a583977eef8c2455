"""The operations and resource types that each API requires.

An assertion stops a handler that checks anything else; docs/WIRE.md shows this table.
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
    # Without DESCRIBE, a topic is left out; CREATE is needed for auto-creation.
    "Metadata": (
        ("describe", "topic"),
        ("create", "cluster"),
        ("create", "topic"),
        ("describe", "cluster"),
    ),
    "OffsetCommit": (("read", "group"), ("read", "topic")),
    "OffsetFetch": (("describe", "group"), ("describe", "topic")),
    "FindCoordinator": (("describe", "group"), ("describe", "transactional_id")),
    # DESCRIBE decides which topics match the patterns of a consumer group.
    "JoinGroup": (("read", "group"), ("describe", "topic")),
    "Heartbeat": (("read", "group"),),
    "LeaveGroup": (("read", "group"),),
    "SyncGroup": (("read", "group"),),
    "DescribeGroups": (("describe", "group"),),
    # DESCRIBE on the cluster lists all groups; otherwise DESCRIBE is checked per group.
    "ListGroups": (("describe", "cluster"), ("describe", "group")),
    "SaslHandshake": (),
    "ApiVersions": (),
    # CREATE on the cluster replaces CREATE on the topic.
    "CreateTopics": (("create", "cluster"), ("create", "topic"), ("describe_configs", "topic")),
    "DeleteTopics": (("describe", "topic"), ("delete", "topic")),
    "DeleteRecords": (("delete", "topic"),),  # KIP-107
    # Without a transactional id, IDEMPOTENT_WRITE or WRITE on any topic.
    "InitProducerId": (
        ("write", "transactional_id"),
        ("idempotent_write", "cluster"),
        ("write", "topic"),
    ),
    "OffsetForLeaderEpoch": (("describe", "topic"),),
    # Since version 4 only CLUSTER_ACTION, because brokers send it.
    "AddPartitionsToTxn": (
        ("write", "transactional_id"),
        ("write", "topic"),
        ("cluster_action", "cluster"),
    ),
    "AddOffsetsToTxn": (("write", "transactional_id"), ("read", "group")),
    "EndTxn": (("write", "transactional_id"),),
    # One of the two is enough.
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
    # DESCRIBE on the topics that are named; a pattern only matches topics with DESCRIBE.
    "ConsumerGroupHeartbeat": (("read", "group"), ("describe", "topic")),
    "ConsumerGroupDescribe": (("describe", "group"), ("describe", "topic")),
    "DescribeTopicPartitions": (("describe", "topic"),),
}
"""Requirements by API. All of them apply unless a comment says otherwise."""
