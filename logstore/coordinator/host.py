"""The interface between a broker and its coordinators, which depends on replication.

`CoordinatorHost` implements it for a single broker, which coordinates all partitions of the
internal topics. `cluster.coordination.ClusterHost` implements it for a `Cluster`: a broker
coordinates the partitions that it leads, and a write takes effect once it is replicated.
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
"""The class of transaction coordinators, which import this module."""

G = TypeVar("G")
"""The class of group coordinators, which import this module."""

NO_EPOCH = -1
"""The epoch of a coordinator that is never replaced."""

_NONE: Mapping[int, int] = {}

Written = Mapping["Log", int]
"""The last offset that a call wrote to each log."""


class CoordinatorHost:
    """The coordinators' interface to a single broker.

    Parameters
    ----------
    manager : LogManager
    """

    is_replicated = False
    """Whether other brokers may coordinate some of the partitions."""

    moved: Signal[[]] | None = None
    """Emitted when coordinators may have moved, or None on a single broker."""

    take_producer_id: Callable[[], int] | None = None
    """Returns a new producer id, or is None if the coordinator reserves producer ids itself."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._owned: dict[str, tuple[Topic, Mapping[int, int]]] = {}

    # -- internal topics -------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        """Return a topic and its partitions, or None if the topic does not exist."""
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

        The method returns the same object until the topic, its partitions or the epochs change.
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
            A different broker is the leader of the partition.
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
        """Whether the cluster is being closed, so that coordinators no longer move."""
        return False

    def is_coordinated(self, name: str) -> bool:
        """Return whether a coordinator has loaded each partition of a topic.

        In a cluster, a broker only knows this for its own partitions. For other partitions, it only
        checks that they have a leader.
        """
        return True

    # -- replication -----------------------------------------------------------------------

    def check_append(self, topic_partition: TopicPartition) -> None:
        """Check that enough replicas are in sync before an append.

        Raises
        ------
        CoordinatorNotAvailableError
            Fewer than `min.insync.replicas` replicas are in sync. The caller must not append.
        """

    def await_replicated(self, written: Written) -> None:
        """Wait until the written records are replicated to the in-sync replicas.

        Raises
        ------
        NotCoordinatorError
            A different broker became the leader of a partition, and might not have the records.
        CoordinatorNotAvailableError
            The records were appended but have not been replicated yet.
        """

    def when_replicated(
        self, written: Written, then: Callable[[LogStoreError | None], object]
    ) -> None:
        """Call `then` when `await_replicated` would return, with its error, or None on success."""
        then(None)

    def wait_until(self, predicate: Callable[[], bool], *, timeout_ms: int) -> None:
        """In a cluster, wait until a predicate is true. `notify` triggers a new check."""

    def notify(self) -> None:
        """Make the callers of `wait_until` check their predicates again."""

    # -- all partitions --------------------------------------------------------------------

    @property
    def topic_changes(self) -> int:
        """The number of topic changes so far. While it is the same, `topics` is the same."""
        return self._manager.catalog.changes

    def topics(self) -> list[Topic]:
        """Return all topics, sorted by name."""
        return self._manager.catalog.topics()

    def racks_of(self, topic: str, partitions: Sequence[int]) -> Sequence[Sequence[str]]:
        """Return the racks of each partition's replicas, or nothing if no broker has a rack."""
        rack = self._manager.broker_config.broker_rack
        return ((rack,),) * len(partitions) if rack else ()

    def partitions_of(self, topic: str) -> Collection[int]:
        """Return a topic's partition numbers.

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
        """Raise `UnknownTopicOrPartitionError` if a partition does not exist."""
        if topic_partition.partition not in self.partitions_of(topic_partition.topic):
            raise UnknownTopicOrPartitionError(f"unknown partition {topic_partition}")

    def leader_log(self, topic_partition: TopicPartition) -> Log:
        """Return the log of a partition on its leader.

        Raises
        ------
        LeaderNotAvailableError
            The partition has no leader, or this broker cannot reach it.
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
            The error name of each partition, or None if its marker is replicated. After an error
            in a cluster, `TransactionCoordinator.complete_prepared` is called later.
        """
        errors, _ = write_markers(marker.request(partitions), _SingleBroker(self._manager))
        return errors[marker.producer_id]

    def groups_of(self, coordinator: G, group_id: str) -> G:
        """Return the coordinator of a group, given this broker's group coordinator.

        Raises
        ------
        CoordinatorNotAvailableError
            No broker is currently the group's coordinator.
        """
        return coordinator

    def all_groups(self, coordinator: G) -> list[G]:
        """Return the group coordinators of all brokers, given this broker's group coordinator."""
        return [coordinator]

    def transactions_of(self, coordinator: C, transactional_id: str | None, producer_id: int) -> C:
        """Return the coordinator of a transaction, given this broker's transaction coordinator.

        Parameters
        ----------
        transactional_id : str or None
            If None, the coordinator is looked up by producer id.

        Raises
        ------
        NotEnoughReplicasError
            No broker is currently the coordinator of the transaction.
        """
        return coordinator


class _SingleBroker:
    """A single broker, which leads all partitions."""

    def __init__(self, manager: LogManager) -> None:
        self.log = manager.log

    def check_append(self, topic_partition: TopicPartition) -> None:
        """Do nothing, because the only replica is always in sync."""

    def delayed_append(
        self, topic_partition: TopicPartition, last_offset: int, role: object
    ) -> None:
        """Return None, because a single broker has no followers."""
