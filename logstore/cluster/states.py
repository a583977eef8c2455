"""The state of topics and partitions in a cluster: replicas, leader and ISR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from logstore.types import TopicPartition

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a partition, as decided by the controller.

    Attributes
    ----------
    replicas : tuple of int
        Broker ids, the preferred leader first.
    leader : int
        Broker id, or -1 without a leader.
    leader_epoch : int
        Increases when a leader is elected or lost.
    isr : tuple of int
        The in-sync replicas, in the order of `replicas`. Never empty: the last one remains even if
        its broker stops, because no other replica has all acknowledged records.
    partition_epoch : int
        Increases with each change of the state.
    adding, removing : tuple of int
        Replicas that a reassignment adds and removes; both are in `replicas` meanwhile.
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
        Overrides by Kafka's keys.
    id : str
        Topic id, the same on all brokers.
    """

    name: str
    id: str
    replication_factor: int
    configs: Mapping[str, str]
    partitions: tuple[PartitionState, ...]
