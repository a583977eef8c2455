"""The part of a broker that its coordinators use, and that depends on replication.

`CoordinatorHost` is for a single broker, which is the coordinator for all partitions of the
internal topics. In a `Cluster`, it is replaced by `cluster.coordination.ClusterHost`. There, a
broker is the coordinator for the partitions that it leads, and a write takes effect when the
in-sync replicas have it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from logstore.config.group_keys import GroupConfig, effective_group_config
from logstore.coordinator.markers import write_markers
from logstore.errors import LogStoreError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from logstore.coordinator.markers import TransactionMarker
    from logstore.manager.manager import LogManager
    from logstore.manager.topics.store import Topic
    from logstore.runtime import Signal
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

C = TypeVar("C")
"""The class of transaction coordinators. They import this module."""

G = TypeVar("G")
"""The class of group coordinators. They import this module."""

NO_EPOCH = -1
"""The epoch of a coordinator that is never replaced."""

_NONE: Mapping[int, int] = {}

Written = Mapping["Log", int]
"""The logs that a call has written to, and the last offset that it wrote to each of them."""


class CoordinatorHost:
    """A single broker.

    Parameters
    ----------
    manager : LogManager
    """

    is_replicated = False
    """Whether another broker may be the coordinator for some partitions."""

    moved: Signal[[]] | None = None
    """Emitted when coordinators may have moved. None if there is only one broker."""

    take_producer_id: Callable[[], int] | None = None
    """Returns a new producer id. None if the coordinator reserves producer ids itself."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._owned: dict[str, tuple[Topic, Mapping[int, int]]] = {}

    # -- internal topics -------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        """Return a topic with all its partitions, or None if the topic does not exist."""
        try:
            return self._manager.catalog.topic(name)
        except UnknownTopicOrPartitionError:
            return None

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create an internal topic, or take over a topic that was copied from a broker.

        Raises
        ------
        KafkaStorageError
        """
        self._manager.topics.create(name, partitions, configs)

    def owned(self, name: str) -> Mapping[int, int]:
        """Return the partitions of a topic that this broker coordinates, with their leader epochs.

        The returned object is the same until the topic, its partitions or the epochs change.
        """
        topic = self.topic(name)
        if topic is None:
            return _NONE
        known = self._owned.get(name)
        if known is None or (known[0].id, known[0].partitions) != (topic.id, topic.partitions):
            known = self._owned[name] = topic, dict.fromkeys(topic.partitions, NO_EPOCH)
        return known[1]

    def check_owner(self, topic_partition: TopicPartition) -> None:
        """Check that this broker is the coordinator for a partition of an internal topic.

        Raises
        ------
        NotCoordinatorError
            Another broker is the leader of the partition.
        CoordinatorLoadInProgressError
            The coordinator has not loaded the partition yet.
        """

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return the log of an internal topic's partition.

        Raises
        ------
        NotCoordinatorError, CoordinatorLoadInProgressError
            See `check_owner`.
        LogStoreError
            See `LogManager.log`.
        """
        self.check_owner(topic_partition)
        return self._manager.log(topic_partition)

    @property
    def is_closing(self) -> bool:
        """Whether the cluster is being closed, so that its coordinators do not move anymore."""
        return False

    def is_coordinated(self, name: str) -> bool:
        """Return whether each partition of a topic has a coordinator that has loaded it.

        In a cluster, a broker only knows this for its own partitions. For the others, it only knows
        whether they have a leader.
        """
        return True

    # -- replication -----------------------------------------------------------------------

    def check_append(self, topic_partition: TopicPartition) -> None:
        """Check that enough replicas are in sync before an append.

        Raises
        ------
        CoordinatorNotAvailableError
            There are fewer than `min.insync.replicas`. Nothing may be appended.
        """

    def await_replicated(self, written: Written) -> None:
        """Wait until the in-sync replicas have the written records.

        Raises
        ------
        NotCoordinatorError
            Another broker has become the leader of a partition. It may not have the records.
        CoordinatorNotAvailableError
            The records were appended, but they have not been replicated yet.
        """

    def when_replicated(
        self, written: Written, then: Callable[[LogStoreError | None], object]
    ) -> None:
        """Call a function when `await_replicated` would return. It gets the error, or None."""
        then(None)

    def wait_until(self, predicate: Callable[[], bool], *, timeout_ms: int) -> None:
        """In a cluster, wait until a predicate is true. `notify` causes it to be checked again."""

    def notify(self) -> None:
        """Let the callers of `wait_until` check their predicates again."""

    # -- all partitions --------------------------------------------------------------------

    @property
    def topic_changes(self) -> int:
        """The number of changes of topics so far. As long as it is the same, so is `topics`."""
        return self._manager.catalog.changes

    def topics(self) -> list[Topic]:
        """Return all topics by name."""
        return self._manager.catalog.topics()

    def racks_of(self, topic: str, partitions: Sequence[int]) -> Sequence[Sequence[str]]:
        """Return the racks of each partition's replicas. Empty if no broker has a rack."""
        rack = self._manager.broker_config.broker_rack
        return ((rack,),) * len(partitions) if rack else ()

    def partitions_of(self, topic: str) -> Collection[int]:
        """Return the partition numbers of a topic.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        return self._manager.catalog.topic(topic).partitions

    def group_config(self, group_id: str) -> GroupConfig:
        """Return the effective configuration of a consumer group."""
        catalog = self._manager.catalog
        return effective_group_config(catalog.store.groups.get(group_id, {}), catalog.broker_config)

    def check_exists(self, topic_partition: TopicPartition) -> None:
        """Raise UnknownTopicOrPartitionError if a partition does not exist."""
        if topic_partition.partition not in self.partitions_of(topic_partition.topic):
            raise UnknownTopicOrPartitionError(f"unknown partition {topic_partition}")

    def leader_log(self, topic_partition: TopicPartition) -> Log:
        """Return the log of a partition at its leader.

        Raises
        ------
        LeaderNotAvailableError
            The partition has no leader that this broker can reach.
        LogStoreError
            See `LogManager.log`.
        """
        return self._manager.log(topic_partition)

    def write_markers(
        self, marker: TransactionMarker, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, str | None]:
        """Send a marker to the leaders of partitions, and wait for their responses.

        Returns
        -------
        dict
            The error of each partition. It is None if all in-sync replicas have the marker. If
            there is an error in a cluster, `TransactionCoordinator.complete_prepared` is called
            later.
        """
        errors, _ = write_markers(marker.request(partitions), _OnlyLeader(self._manager))
        return errors[marker.producer_id]

    def groups_of(self, coordinator: G, group_id: str) -> G:
        """Return the coordinator of a group, given the coordinator of this broker.

        Raises
        ------
        CoordinatorNotAvailableError
            No broker is currently the coordinator of the group.
        """
        return coordinator

    def all_groups(self, coordinator: G) -> list[G]:
        """Return the group coordinators of all brokers, given the coordinator of this broker."""
        return [coordinator]

    def transactions_of(self, coordinator: C, transactional_id: str | None, producer_id: int) -> C:
        """Return the coordinator of a transaction, given the coordinator of this broker.

        Parameters
        ----------
        transactional_id : str or None
            If None, the coordinator is looked up by the producer id.

        Raises
        ------
        NotEnoughReplicasError
            No broker is currently the coordinator of the transaction.
        """
        return coordinator


class _OnlyLeader:
    """A single broker, which is the leader of all partitions."""

    def __init__(self, manager: LogManager) -> None:
        self.log = manager.log

    def check_append(self, topic_partition: TopicPartition) -> None:
        """Do nothing, because the only replica is always in sync."""

    def delayed_append(
        self, topic_partition: TopicPartition, last_offset: int, role: object
    ) -> None:
        """Return None, because a single broker has no followers."""
