"""The coordinators of a cluster's groups and transactions: one of each, beside its brokers.

Where Kafka spreads them over the leaders of two replicated topics, here they are one object with a
data directory of its own (`coordinator`), which does not end with any broker: what groups have
committed and how far transactions are is not lost with a leader, and nobody waits for a new
coordinator. Markers of transactions are written to the leaders' logs, and count once the in-sync
replicas have them. Markers for the offsets of groups are written to the coordinators' own
`__consumer_offsets`, which has no other replica.
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
    """The coordinators of one cluster, and the files that they write.

    Parameters
    ----------
    data_dir : str or None
        The cluster's; None keeps everything in memory.
    clock : Clock
    broker_config : BrokerConfig
    partitions_of : callable
        Gives the numbers of a topic's partitions.
    leader_log : callable
        Gives the log of a partition at its leader.
    marked : callable
        Waits until the replicas in sync have a marker; see `PartitionLogs`.

    Attributes
    ----------
    transactions : TransactionCoordinator
        With the group coordinator as its `groups`.
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
