"""The supported APIs and their versions.

For each API, a client uses the newest version that both sides support. An API that is not listed
here or has no handler is not advertised, and requests for it are refused like unknown APIs in
Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from logstore.coordinator.transactions.state import SERVER_VERSION


class Versions(NamedTuple):
    """A range of API versions, both ends inclusive.

    Attributes
    ----------
    first, last : int
        The first and the last supported version.
    advertised_from : int or None
        The first version in ApiVersions responses, if it differs from `first`.
    """

    first: int
    last: int
    advertised_from: int | None = None

    @property
    def first_advertised(self) -> int:
        """The first version in ApiVersions responses."""
        return self.first if self.advertised_from is None else self.advertised_from


SERVED: Mapping[str, Versions] = {
    # librdkafka before 2.8 disables compression unless version 0 is advertised (KAFKA-18659).
    "Produce": Versions(3, 13, advertised_from=0),
    "Fetch": Versions(4, 18),
    "ListOffsets": Versions(1, 11),
    "Metadata": Versions(0, 13),
    "OffsetCommit": Versions(2, 10),
    "OffsetFetch": Versions(1, 10),
    "FindCoordinator": Versions(0, 6),
    "JoinGroup": Versions(0, 9),
    "Heartbeat": Versions(0, 4),
    "LeaveGroup": Versions(0, 5),
    "SyncGroup": Versions(0, 5),
    "DescribeGroups": Versions(0, 6),
    "ListGroups": Versions(0, 5),
    "SaslHandshake": Versions(0, 1),
    "ApiVersions": Versions(0, 4),
    "CreateTopics": Versions(2, 7),
    "DeleteTopics": Versions(1, 6),
    "DeleteRecords": Versions(0, 2),
    "InitProducerId": Versions(0, 5),
    "OffsetForLeaderEpoch": Versions(2, 4),
    # Since version 4, only brokers and tools use it.
    "AddPartitionsToTxn": Versions(0, 5),
    "AddOffsetsToTxn": Versions(0, 4),
    "EndTxn": Versions(0, 5),
    "WriteTxnMarkers": Versions(1, 2),
    "TxnOffsetCommit": Versions(0, 5),
    "DescribeAcls": Versions(1, 3),
    "CreateAcls": Versions(1, 3),
    "DeleteAcls": Versions(1, 3),
    "DescribeConfigs": Versions(1, 4),
    "AlterConfigs": Versions(0, 2),
    "AlterReplicaLogDirs": Versions(1, 2),
    "DescribeLogDirs": Versions(1, 5),
    "SaslAuthenticate": Versions(0, 2),
    "CreatePartitions": Versions(0, 3),
    "DeleteGroups": Versions(0, 2),
    "ElectLeaders": Versions(0, 2),
    "IncrementalAlterConfigs": Versions(0, 1),
    "AlterPartitionReassignments": Versions(0, 1),
    "ListPartitionReassignments": Versions(0, 0),
    "OffsetDelete": Versions(0, 0),
    "DescribeUserScramCredentials": Versions(0, 0),
    "AlterUserScramCredentials": Versions(0, 0),
    "DescribeClientQuotas": Versions(0, 1),
    "AlterClientQuotas": Versions(0, 1),
    "DescribeQuorum": Versions(0, 2),
    "UpdateFeatures": Versions(0, 2),
    "DescribeCluster": Versions(0, 2),
    "DescribeProducers": Versions(0, 0),
    "DescribeTransactions": Versions(0, 0),
    "ListTransactions": Versions(0, 2),
    "ConsumerGroupHeartbeat": Versions(0, 1),
    "ConsumerGroupDescribe": Versions(0, 1),
    "UnregisterBroker": Versions(0, 0),
    "ListConfigResources": Versions(0, 1),
    "DescribeTopicPartitions": Versions(0, 0),
}

MINIMUM: Mapping[str, Versions] = {
    "Produce": Versions(3, 7, advertised_from=0),
    "Fetch": Versions(4, 11),
    "ListOffsets": Versions(1, 3),
    "Metadata": Versions(0, 7),
    "OffsetCommit": Versions(2, 3),
    "OffsetFetch": Versions(1, 3),
    "FindCoordinator": Versions(0, 2),
    "JoinGroup": Versions(0, 5),
    "Heartbeat": Versions(0, 3),
    "LeaveGroup": Versions(0, 1),
    "SyncGroup": Versions(0, 3),
    "DescribeGroups": Versions(0, 3),
    "ListGroups": Versions(0, 2),
    "ApiVersions": Versions(0, 3),
    "CreateTopics": Versions(2, 3),
    "DeleteTopics": Versions(1, 3),
    "DeleteRecords": Versions(0, 1),
    "InitProducerId": Versions(0, 1),
    "OffsetForLeaderEpoch": Versions(2, 3),
    "AddPartitionsToTxn": Versions(0, 1),
    "AddOffsetsToTxn": Versions(0, 1),
    "EndTxn": Versions(0, 1),
    "TxnOffsetCommit": Versions(0, 2),
    "DescribeAcls": Versions(1, 1),
    "CreateAcls": Versions(1, 1),
    "DeleteAcls": Versions(1, 1),
    "DescribeConfigs": Versions(1, 2),
    "AlterConfigs": Versions(0, 1),
    "DescribeLogDirs": Versions(1, 2),
    "CreatePartitions": Versions(0, 1),
    "DeleteGroups": Versions(0, 1),
    "IncrementalAlterConfigs": Versions(0, 1),
    "DescribeCluster": Versions(0, 0),
}
"""The oldest versions that the clients in docs/WIRE.md support. Tests simulate old brokers."""

TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
"""The names of the features."""

GROUP_VERSION_LEVEL = 1
"""The level of `group.version` that allows the consumer protocol (KIP-848)."""

_V2_SINCE = {"Produce": 12, "TxnOffsetCommit": 5, "EndTxn": 5}
"""The first version of each API that clients use with level 2 of `transaction.version`."""


def supports_v2(versions: Mapping[str, Versions]) -> bool:
    """Return whether clients can use level 2 of `transaction.version` with these versions."""
    return all(api in versions and versions[api].last >= v for api, v in _V2_SINCE.items())


def features_of(versions: Mapping[str, Versions]) -> dict[str, int]:
    """Return the feature levels that clients can use with these versions."""
    features = {}
    if "ConsumerGroupHeartbeat" in versions:
        features[GROUP_VERSION] = GROUP_VERSION_LEVEL
    if supports_v2(versions):
        features[TRANSACTION_VERSION] = int(SERVER_VERSION)
    return features
