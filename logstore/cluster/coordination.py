"""The group coordinator and the transaction coordinator of a cluster, outside of its brokers.

In Kafka, the leaders of two replicated topics are the coordinators. Here they are one object with
its own data directory (`coordinator`), which does not stop with any broker. Transaction markers are
written to the leaders' logs and complete when the in-sync replicas have them. Markers for group
offsets are written to the coordinators' own `__consumer_offsets`, which is not replicated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from logstore.broker import Broker
from logstore.coordinator.groups.coordinator import GroupCoordinator
from logstore.coordinator.transactions.coordinator import PartitionLogs, TransactionCoordinator
from logstore.names import INTERNAL_COMPACTED_TOPICS

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.runtime import Clock
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition


class Coordination:
    """The coordinators of one cluster, with their files.

    Parameters
    ----------
    data_dir : str or None
        Data directory of the cluster; None keeps everything in memory.
    clock : Clock
    broker_config : BrokerConfig
    partitions_of : callable
        Returns the partition numbers of a topic.
    leader_log : callable
        Returns the leader's log of a partition.
    marked : callable
        Waits until the in-sync replicas have a marker; see `PartitionLogs`.

    Attributes
    ----------
    transactions : TransactionCoordinator
        Has the group coordinator as its `groups`.
    """

    def __init__(
        self,
        data_dir: str | None,
        clock: Clock,
        broker_config: BrokerConfig,
        partitions_of: Callable[[str], Collection[int]],
        leader_log: Callable[[TopicPartition], Log],
        marked: Callable[[Log, int], object],
    ) -> None:
        self._broker = Broker(
            None if data_dir is None else f"{data_dir}/coordinator",
            clock=clock,
            broker_config=replace(broker_config, node_id=-1),
            disk_faults=False,
        )
        runtime, manager = self._broker.runtime, self._broker.manager
        groups = GroupCoordinator(runtime, manager, partitions_of=partitions_of)

        def log_of(topic_partition: TopicPartition) -> Log:
            is_own = topic_partition.topic in INTERNAL_COMPACTED_TOPICS
            return (manager.log if is_own else leader_log)(topic_partition)

        def await_marker(log: Log, offset: int) -> None:
            if log.topic_partition.topic not in INTERNAL_COMPACTED_TOPICS:
                marked(log, offset)

        logs = PartitionLogs(log_of, await_marker)
        self.transactions = TransactionCoordinator(runtime, manager, groups=groups, logs=logs)
        manager.start([groups, self.transactions])

    def close(self) -> None:
        """Close the files."""
        self._broker.close()
