"""The state of the topics and partitions of a cluster: replicas, leader and ISR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from logstore.types import TopicPartition

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a partition, which the controller determines.

    Attributes
    ----------
    replicas : tuple of int
        Broker ids. The first one is the preferred leader.
    leader : int
        Broker id of the leader, or -1 if there is none.
    leader_epoch : int
        Incremented when a leader is elected or lost.
    isr : tuple of int
        The in-sync replicas, in the order of `replicas`. It is never empty. The last one remains
        even if its broker stops, because no other replica has all acknowledged records.
    partition_epoch : int
        Incremented when the state changes.
    adding, removing : tuple of int
        The replicas that a reassignment adds and removes. Until it is complete, all of them are in
        `replicas`.
    """

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class ClusterTopic:
    """A topic of a cluster. Its partitions are numbered from 0.

    Attributes
    ----------
    configs : mapping of str to str
        The overrides by Kafka's keys.
    id : str
        The topic id, which is the same on all brokers.
    """

    name: str
    id: str
    replication_factor: int
    configs: Mapping[str, str]
    partitions: tuple[PartitionState, ...]
