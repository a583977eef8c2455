"""Virtual nodes: one engine behind several listeners, as if it were a cluster.

For clients that are to meet leaders which move, and to find them again: each node has an address,
each partition a leader among the nodes, and all others refuse with `NOT_LEADER_OR_FOLLOWER`. There
is one copy of the records: all nodes are replicas in sync, nothing is lost, and no node ever lags.
Whoever wants that takes a `Cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Self

from logstore.errors import InvalidConfigurationError, NotLeaderForPartitionError
from logstore.runtime import Signal
from logstore.types import NO_PARTITION_LEADER_EPOCH, TopicPartition
from logstore.wire.nodes import Address, Nodes, PartitionView, check_epoch

if TYPE_CHECKING:
    from logstore.manager.manager import LogManager
    from logstore.storage.log.log import Log
    from logstore.wire.listener import Listener


class VirtualNodes:
    """The listeners of several nodes over one engine; made by `Broker.listen_nodes`.

    They close with the broker, or at the end of its `with`.

    Parameters
    ----------
    manager : LogManager
    count : int
        How many nodes: 0, 1 and so on. At first node p leads the partitions p, p + count, ….
    open_listener : callable
        Opens the listener of a node.

    Attributes
    ----------
    listeners : dict of int to Listener
        Those that are open.

    Raises
    ------
    InvalidConfigurationError
        There is no such number of nodes, or no address to be had.
    """

    def __init__(
        self, manager: LogManager, count: int, open_listener: Callable[[Nodes], Listener]
    ) -> None:
        if count < 1:
            raise InvalidConfigurationError(f"there is at least one node, and not {count}")
        self.count = count
        self.changed: Signal[[]] = Signal("another leader")
        self.listeners: dict[int, Listener] = {}
        self._manager = manager
        self._moved: dict[TopicPartition, int] = {}
        try:
            for number in range(count):
                self.listeners[number] = open_listener(_VirtualNode(manager, number, self))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"VirtualNodes({self.bootstrap})"

    def __getitem__(self, node: int) -> Listener:
        return self.listeners[node]

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes for clients, as `bootstrap.servers` has them."""
        return ",".join(listener.bootstrap for listener in self.listeners.values())

    def addresses(self) -> dict[int, Address]:
        """Return where clients reach each node; one whose listener was closed is not among them."""
        return {
            number: listener.address
            for number, listener in self.listeners.items()
            if not listener.is_closed
        }

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the node that leads a partition."""
        preferred = partition % self.count
        return self._moved.get(TopicPartition(topic, partition), preferred)

    def move_leader(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Let another node lead a partition, in a new leader epoch; the records are all there.

        Raises
        ------
        InvalidConfigurationError
            There is no such node.
        UnknownTopicOrPartitionError
        """
        if not 0 <= to < self.count:
            raise InvalidConfigurationError(
                f"there is no node {to}: they are 0 to {self.count - 1}"
            )
        log = self._manager.log(TopicPartition(topic, partition))
        with log.lock:
            log.epochs.assign(log.local.leader_epoch + 1, log.log_end_offset)
            self._moved[log.topic_partition] = to
        self.changed.emit()

    def close(self) -> None:
        """Close all listeners; closing twice is allowed."""
        for listener in self.listeners.values():
            listener.close()


class _VirtualNode(Nodes):
    """One of several nodes."""

    def __init__(self, manager: LogManager, number: int, nodes: VirtualNodes) -> None:
        super().__init__(manager)
        self.changed = nodes.changed
        self._number = number
        self._nodes = nodes

    @property
    def node_id(self) -> int:
        """The number of this node."""
        return self._number

    @property
    def controller_id(self) -> int:
        """The first node that can be reached."""
        return min(self._nodes.addresses(), default=self._number)

    def addresses(self, own: Address) -> dict[int, Address]:
        """Return where clients reach each node."""
        return {**self._nodes.addresses(), self._number: own}

    @property
    def running(self) -> Collection[int]:
        """All nodes."""
        return range(self._nodes.count)

    @property
    def default_replication_factor(self) -> int:
        """All nodes have what one has."""
        return self._nodes.count

    def partition(self, topic_partition: TopicPartition) -> PartitionView:
        """Return who leads a partition; all nodes have it."""
        found = super().partition(topic_partition)
        nodes = list(self.running)
        if found.error is not None:
            return found._replace(replicas=nodes, isr=nodes)
        first = topic_partition.partition % len(nodes)
        leader, _ = self.leader_of(topic_partition)
        replicas = nodes[first:] + nodes[:first]
        return found._replace(leader=leader, replicas=replicas, isr=replicas)

    def check(self, log: Log, current_leader_epoch: int = NO_PARTITION_LEADER_EPOCH) -> None:
        """Refuse a client that takes another node for the leader, or this one wrongly."""
        tp = log.topic_partition
        leader, epoch = self.leader_of(tp)
        check_epoch(tp, epoch, current_leader_epoch)
        if leader != self._number:
            raise NotLeaderForPartitionError(f"{tp} is led by node {leader}, not {self._number}")

    def leader_of(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Return leader and leader epoch."""
        log = self.manager.log(topic_partition)
        with log.lock:  # under which both change
            return self._nodes.leader(*topic_partition), log.local.leader_epoch

    def elect(self, topic_partition: TopicPartition, *, unclean: bool) -> bool:
        """Let the preferred node lead."""
        preferred = topic_partition.partition % self._nodes.count
        if unclean or self.leader_of(topic_partition)[0] == preferred:
            return False
        self._nodes.move_leader(*topic_partition, to=preferred)
        return True
