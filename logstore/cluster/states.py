"""The state of a cluster's topics and partitions: replicas, leader and ISR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from logstore.types import TopicPartition

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a partition, as determined by the controller.

    Attributes
    ----------
    replicas : tuple of int
        Broker ids, preferred leader first.
    leader : int
        Broker id of the leader, or -1 if there is none.
    leader_epoch : int
        Incremented when a leader is elected or lost.
    isr : tuple of int
        The in-sync replicas, in the order of `replicas`. It is never empty: the last in-sync
        replica remains even if its broker stops, because no other has all acknowledged records.
    partition_epoch : int
        Incremented when the state changes.
    adding, removing : tuple of int
        The replicas that a reassignment adds and removes. `replicas` contains all of them until
        the reassignment completes.
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
        The config overrides by Kafka's config names.
    id : str
        The topic id, which is the same on all brokers.
    """

    name: str
    id: str
    replication_factor: int
    configs: Mapping[str, str]
    partitions: tuple[PartitionState, ...]
