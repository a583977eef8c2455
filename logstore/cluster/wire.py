"""The network side of a cluster: a listener for each broker, and the metadata that it reports.

A `ClusterNode` reports the controller's view of the cluster. It serves reads and writes according
to the roles that its broker has last received.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from logstore.cluster.coordination import CreatesTopics, as_topic
from logstore.cluster.leadership import Leadership
from logstore.cluster.requests import DelayedDeleteRecords
from logstore.cluster.states import NO_LEADER, ClusterTopic
from logstore.config.dynamic import Layer
from logstore.errors import (
    InvalidConfigurationError,
    LogStoreError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)
from logstore.types import NO_PARTITION_LEADER_EPOCH, TopicPartition
from logstore.wire.nodes import Address, Nodes, PartitionView, check_epoch
from logstore.wire.refusal import Refusal

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.cluster.replicas import Replicas
    from logstore.cluster.requests import DelayedProduce
    from logstore.config.broker_config import BrokerConfig
    from logstore.manager.topics.store import Topic
    from logstore.storage.log.log import Log
    from logstore.wire.listener import Listener
    from logstore.wire.settings import ListenerSettings

logger = logging.getLogger(__name__)

_BY_RACK = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class AdministeredCluster(CreatesTopics, Protocol):
    """The administrative methods of a cluster; see `Cluster`."""

    broker_config: BrokerConfig

    def create_partitions(
        self, name: str, total: int, *, assignment: Sequence[Sequence[int]] | None = None
    ) -> ClusterTopic:
        """Increase a topic's number of partitions to `total`."""

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""

    def alter_configs(
        self, name: str, configs: Mapping[str, object], *, unset: Iterable[str] = ()
    ) -> None:
        """Change a topic's config overrides."""

    def alter_group_configs(
        self, group_id: str, configs: Mapping[str, object], *, unset: Iterable[str] = ()
    ) -> None:
        """Change a group's configs."""

    def alter_broker_configs(
        self, configs: Mapping[str, object], *, brokers: Iterable[int] | None = None
    ) -> tuple[str, ...]:
        """Change the dynamic settings of some or all brokers."""

    def move_leader(
        self,
        topic: str | TopicPartition,
        partition: int | None = None,
        *,
        to: int,
        unclean: bool = False,
    ) -> None:
        """Make the replica of broker `to` the leader."""

    @property
    def broker_ids(self) -> range:
        """The ids of all brokers, including stopped brokers."""

    def reassign_all(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, LogStoreError]:
        """Start or cancel partition reassignments. Return the errors."""


class ClusterListeners(Mapping[int, "Listener"]):
    """The listeners of the running brokers by id; created by `Cluster.listen`.

    A restarted broker listens on its previous port. If that port is in use and was picked
    automatically, a new port is picked. The listeners are closed with the cluster, or at the end of
    their `with` block.

    Parameters
    ----------
    cluster : Administered
    host : str
    port : int
        Port of broker 0. The other brokers use the subsequent ports. 0 picks free ports.
    settings : ListenerSettings
        The settings of all listeners.
    """

    def __init__(
        self,
        cluster: AdministeredCluster,
        host: str,
        port: int,
        settings: ListenerSettings,
    ) -> None:
        self._cluster = cluster
        self._host = host
        self._first_port = port
        self._settings = settings
        self._opened: dict[int, Listener] = {}
        self.is_closed = False

    def __getitem__(self, broker: int) -> Listener:
        return self._opened[broker]

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(number for number in self._opened if self._is_open(number)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, broker: object) -> bool:
        return broker in self._opened and self._is_open(broker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ClusterListeners({self.bootstrap})"

    def _is_open(self, broker: object) -> bool:
        return not self._opened[broker].is_closed  # type: ignore[index]  # asked for a key alone

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers for `bootstrap.servers`, including stopped brokers."""
        return ",".join(self._opened[number].bootstrap for number in sorted(self._opened))

    def addresses(self) -> dict[int, Address]:
        """Return the addresses of the running brokers."""
        return {number: self._opened[number].address for number in self}

    def open(self, number: int, broker: Broker, replicas: Replicas) -> None:
        """Open the listener of a broker that has just started."""
        if self.is_closed:
            return
        node = ClusterNode(self._cluster, number, broker, replicas, self)
        known = self._opened.get(number)
        port = self._first_port and self._first_port + number
        if known is not None:
            port = known.port
        try:
            opened = self._open(broker, port, node)
        except InvalidConfigurationError as error:
            if known is None or self._first_port:
                raise
            # The system picked the previous port, so a different port is acceptable. Clients learn
            # it from the metadata.
            logger.warning("broker %d listens on another port: %s", number, error)
            opened = self._open(broker, 0, node)
        self._opened[number] = opened

    def _open(self, broker: Broker, port: int, node: ClusterNode) -> Listener:
        return broker._open_listener(self._host, port, self._settings, nodes=node)

    def close(self) -> None:
        """Close all listeners. Repeated calls have no effect."""
        self.is_closed = True
        for listener in self._opened.values():
            listener.close()


class ClusterNode(Nodes):
    """The metadata of the cluster as reported by one of its brokers."""

    def __init__(
        self,
        cluster: AdministeredCluster,
        number: int,
        broker: Broker,
        replicas: Replicas,
        listeners: ClusterListeners,
    ) -> None:
        super().__init__(broker.manager)
        self._cluster = cluster
        self._controller = cluster.controller
        self._number = number
        self._replicas = replicas
        self._listeners = listeners
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        replicas.progress.subscribe(self._on_progress)

    def _on_progress(self, topic_partition: TopicPartition) -> None:
        """Emit `changed` if the leader has changed. Most calls are caused by followers' fetches."""
        leader = self.leader_of(topic_partition)
        if self._leaders.get(topic_partition) != leader:
            self._leaders[topic_partition] = leader
            self.changed.emit()

    # -- brokers -------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        """The id of the broker."""
        return self._number

    @property
    def controller_id(self) -> int:
        """The lowest id of a running broker, which handles requests for the controller."""
        return min(self._listeners, default=self._number)

    def addresses(self, own: Address) -> dict[int, Address]:
        """Return the addresses of the running brokers."""
        return dict(sorted({**self._listeners.addresses(), self._number: own}.items()))

    def rack(self, node_id: int) -> str | None:
        """Return a broker's rack, or None if it has none."""
        return self._controller.racks.get(node_id)

    # -- topics --------------------------------------------------------------------------

    def topics(self) -> list[Topic]:
        """Return all topics of the cluster."""
        return [as_topic(topic) for topic in self._controller.topics()]

    @property
    def changes(self) -> int:
        """The number of changes to the controller's state so far."""
        return self._controller.changes

    def configured_groups(self) -> list[str]:
        """Return the ids of the groups that have configs."""
        return sorted(self._controller.groups)

    def topic(self, name: str) -> Topic:
        """Return a topic of the cluster."""
        return as_topic(self._controller.topic(name))

    def overrides(self, name: str) -> Mapping[str, str]:
        """Return a topic's config overrides."""
        return self._controller.topic(name).configs

    def create_topic(
        self,
        name: str,
        configs: Mapping[str, object],
        partitions: int,
        replication_factor: int,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic."""
        created = self._cluster.create_topic(
            name,
            partitions,
            configs,
            replication_factor=replication_factor,
            assignment=assignment,
        )
        return as_topic(created)

    def create_partitions(
        self, name: str, total: int, assignment: Sequence[Sequence[int]] | None
    ) -> None:
        """Increase a topic's number of partitions to `total`."""
        self._cluster.create_partitions(name, total, assignment=assignment)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self._cluster.delete_topic(name)

    def alter_topic(self, name: str, configs: Mapping[str, object], unset: Iterable[str]) -> None:
        """Change a topic's config overrides."""
        self._cluster.alter_configs(name, configs, unset=unset)

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """Return the configs that are set for a group."""
        return self._controller.groups.get(group_id, {})

    def alter_group(
        self, group_id: str, configs: Mapping[str, object], unset: Iterable[str]
    ) -> None:
        """Change a group's configs."""
        self._cluster.alter_group_configs(group_id, configs, unset=unset)

    def reconfigure(self, changes: Mapping[str, object], layer: Layer) -> None:
        """Change the dynamic settings of this broker or of all brokers."""
        brokers = None if layer is Layer.CLUSTER else [self._number]
        self._cluster.alter_broker_configs(changes, brokers=brokers)

    # -- replicas ------------------------------------------------------------------------

    @property
    def running(self) -> Collection[int]:
        """The ids of the running brokers."""
        return self._controller.alive

    @property
    def registered(self) -> Collection[int]:
        """The ids of all brokers, including stopped brokers."""
        return self._cluster.broker_ids

    def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Mapping[TopicPartition, LogStoreError]:
        """Start or cancel partition reassignments. Return the errors."""
        return self._cluster.reassign_all(targets)

    @property
    def default_replication_factor(self) -> int:
        """The value of `default.replication.factor`."""
        return self._cluster.broker_config.default_replication_factor

    def partition(self, topic_partition: TopicPartition) -> PartitionView:
        """Return the state of a partition according to the controller."""
        try:
            state = self._controller.state(topic_partition)
        # the partition was deleted after the caller looked it up
        except UnknownTopicOrPartitionError as error:
            return PartitionView(NO_LEADER, NO_PARTITION_LEADER_EPOCH, (), (), (), error)
        alive = set(self._controller.alive)
        offline = [each for each in state.replicas if each not in alive]
        return PartitionView(
            state.leader,
            state.leader_epoch,
            state.replicas,
            state.isr,
            offline,
            adding=state.adding,
            removing=state.removing,
        )

    def replica(self, topic_partition: TopicPartition) -> Log:
        """Return this broker's replica of a partition."""
        try:
            state = self._controller.state(topic_partition)
        except UnknownTopicOrPartitionError:
            return self.manager.log(topic_partition)  # raises the error of the broker
        if self._number not in state.replicas:
            raise NotLeaderForPartitionError(
                f"broker {self._number} has no replica of {topic_partition}"
            )
        return self.manager.log(topic_partition)

    def check(self, log: Log, current_leader_epoch: int) -> None:
        """Check that this broker leads a partition and that the client's epoch is current."""
        tp = log.topic_partition
        role = self._replicas.role(tp)
        if role is not None:
            check_epoch(tp, role.state.leader_epoch, current_leader_epoch)
        if not isinstance(role, Leadership):
            raise NotLeaderForPartitionError(f"broker {self._number} is not the leader of {tp}")

    def check_readable(self, log: Log, current_leader_epoch: int) -> None:
        """Check that this broker hosts a replica and that the client's leader epoch is current."""
        tp = log.topic_partition
        role = self._replicas.role(tp)
        if role is None:
            raise NotLeaderForPartitionError(f"broker {self._number} has no replica of {tp}")
        check_epoch(tp, role.state.leader_epoch, current_leader_epoch)

    def preferred_replica(self, log: Log, offset: int, rack: str) -> int:
        """Return the preferred read replica for a consumer's rack, or -1 for this broker.

        The replica is an in-sync follower in that rack that has the offset (KIP-392).
        """
        racks = self._controller.racks
        selects = self.manager.broker_config.replica_selector_class == _BY_RACK
        if not (rack and selects and racks) or racks[self._number] == rack:
            return NO_LEADER
        role = self._replicas.role(log.topic_partition)
        if not isinstance(role, Leadership):
            return NO_LEADER
        here = [broker for broker in self._controller.alive if racks[broker] == rack]
        return role.preferred_follower(here, offset)

    def is_settled(self, log: Log) -> bool:
        """Return whether the high watermark has reached the start of the current leader epoch."""
        role = self._replicas.role(log.topic_partition)
        return not isinstance(role, Leadership) or log.high_watermark >= role.start_offset

    def leader_of(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Return the leader's id and the leader epoch, as known to this broker."""
        role = self._replicas.role(topic_partition)
        return (NO_LEADER, -1) if role is None else (role.state.leader, role.state.leader_epoch)

    def elect(self, topic_partition: TopicPartition, *, unclean: bool) -> bool:
        """Elect the preferred replica, or any live replica if the election is unclean.

        Return whether the leader has changed.
        """
        state = self._controller.state(topic_partition)
        alive = self._controller.alive
        if unclean:
            if state.leader != NO_LEADER:
                return False
            to = next((each for each in state.replicas if each in alive), None)
            if to is None:
                raise Refusal(
                    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
                    "Eligible topic partition leaders are not available.",
                )
        else:
            to = state.replicas[0]
            if state.leader == to:
                return False
            if to not in alive or to not in state.isr:
                text = "The preferred leader was not available."
                raise Refusal("PREFERRED_LEADER_NOT_AVAILABLE", text)
        self._cluster.move_leader(topic_partition, to=to, unclean=unclean)
        return True

    # -- requests that wait --------------------------------------------------------------

    def check_append(self, topic_partition: TopicPartition) -> Leadership:
        """Return the leader role if at least `min.insync.replicas` replicas are in sync.

        Raises
        ------
        NotEnoughReplicasError, NotLeaderForPartitionError
        """
        return self._replicas.check_append(topic_partition)

    def delayed_append(
        self, topic_partition: TopicPartition, last_offset: int, role: object
    ) -> DelayedProduce:
        """Return an operation that waits until an offset is replicated."""
        return self._replicas.delayed_append(topic_partition, last_offset, role)

    def delete_records(
        self, topic_partition: TopicPartition, before_offset: int
    ) -> DelayedDeleteRecords:
        """Delete records on the leader. Return an operation that waits for all live replicas."""
        self.log(topic_partition)  # raises an error if another broker is the leader
        start_offset = self.manager.delete_records(topic_partition, before_offset)
        return DelayedDeleteRecords(self._replicas, topic_partition, start_offset)
