"""The state of a partition in its cluster: who has it, who leads, who is in sync."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from logstore.types import TopicPartition

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition, as the controller has it.

    Attributes
    ----------
    replicas : tuple of int
        Broker ids, the preferred leader first.
    leader : int
        -1 if nobody can lead.
    leader_epoch : int
        One more with each leader, and each end of one.
    isr : tuple of int
        The in-sync replicas, in the order of `replicas`; never empty: the last one stays, dead or
        not, since nobody else has all that was acknowledged.
    partition_epoch : int
        One more with each change of any of these.
    """

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class ClusterTopic:
    """A topic of a cluster; its partitions are numbered from 0.

    Attributes
    ----------
    configs : mapping of str to str
        Overrides by Kafka's keys.
    id : str
        The same on all brokers.
    """

    name: str
    id: str
    replication_factor: int
    configs: Mapping[str, str]
    partitions: tuple[PartitionState, ...]
