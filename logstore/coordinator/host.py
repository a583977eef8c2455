"""The broker of a coordinator, as far as the coordinator depends on replication.

`CoordinatorHost` is a single broker, which coordinates every partition of the internal topics. In a
`Cluster`, `cluster.coordination.ClusterHost` takes its place: a broker coordinates the partitions
that it leads, and a write counts when the in-sync replicas have it.
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
"""The class of group coordinators."""

NO_EPOCH = -1
"""Epoch of a coordinator that is never replaced."""

_NONE: Mapping[int, int] = {}

Written = Mapping["Log", int]
"""Logs that a call wrote to, and the last offset that it wrote to each."""


class CoordinatorHost:
    """A single broker.

    Parameters
    ----------
    manager : LogManager
    """

    is_replicated = False
    """Whether other brokers may coordinate some partitions."""

    moved: Signal[[]] | None = None
    """Emitted when coordinators may have moved, or None if there is only this broker."""

    take_producer_id: Callable[[], int] | None = None
    """Returns a new producer id, or None if the coordinator reserves its own."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._owned: dict[str, tuple[Topic, Mapping[int, int]]] = {}

    # -- internal topics -------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        """Return a topic with all its partitions, or None if it does not exist."""
        try:
            return self._manager.catalog.topic(name)
        except UnknownTopicOrPartitionError:
            return None

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create an internal topic, or take over a copied one.

        Raises
        ------
        KafkaStorageError
        """
        self._manager.topics.create(name, partitions, configs)

    def owned(self, name: str) -> Mapping[int, int]:
        """Return the partitions of a topic that this broker coordinates, with its leader epochs.

        The same object is returned until the topic, its partitions or the epochs change.
        """
        topic = self.topic(name)
        if topic is None:
            return _NONE
        known = self._owned.get(name)
        if known is None or (known[0].id, known[0].partitions) != (topic.id, topic.partitions):
            known = self._owned[name] = topic, dict.fromkeys(topic.partitions, NO_EPOCH)
        return known[1]

    def check_owner(self, topic_partition: TopicPartition) -> None:
        """Check that this broker coordinates a partition of an internal topic.

        Raises
        ------
        NotCoordinatorError
            Another broker leads the partition.
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
        """Whether the cluster closes: its coordinators no longer move."""
        return False

    def is_coordinated(self, name: str) -> bool:
        """Return whether no coordinator of a topic's partitions is still missing or loading.

        A broker of a cluster knows this of its own partitions; of others, whether they are led.
        """
        return True

    # -- replication -----------------------------------------------------------------------

    def check_append(self, topic_partition: TopicPartition) -> None:
        """Check before an append that enough replicas are in sync.

        Raises
        ------
        CoordinatorNotAvailableError
            Fewer than `min.insync.replicas` are; nothing may be appended.
        """

    def await_replicated(self, written: Written) -> None:
        """Wait until the in-sync replicas have the written records.

        Raises
        ------
        NotCoordinatorError
            Another broker leads a partition now, and may not have the records.
        CoordinatorNotAvailableError
            The records were appended, but are not replicated yet.
        """

    def when_replicated(
        self, written: Written, then: Callable[[LogStoreError | None], object]
    ) -> None:
        """Call a function when `await_replicated` would return, with its error or None."""
        then(None)

    def wait_until(self, predicate: Callable[[], bool], *, timeout_ms: int) -> None:
        """Wait in a cluster until a predicate is true, which calls of `notify` may have changed."""

    def notify(self) -> None:
        """Make the callers of `wait_until` check their predicates."""

    # -- all partitions --------------------------------------------------------------------

    @property
    def topic_changes(self) -> int:
        """Number of changes of topics so far; `topics` changes only if it increases."""
        return self._manager.catalog.changes

    def topics(self) -> list[Topic]:
        """Return all topics by name."""
        return self._manager.catalog.topics()

    def racks_of(self, topic: str, partitions: Sequence[int]) -> Sequence[Sequence[str]]:
        """Return the replicas' racks for each partition; empty if no broker has a rack."""
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
        """Raise UnknownTopicOrPartitionError for a partition that does not exist."""
        if topic_partition.partition not in self.partitions_of(topic_partition.topic):
            raise UnknownTopicOrPartitionError(f"unknown partition {topic_partition}")

    def leader_log(self, topic_partition: TopicPartition) -> Log:
        """Return a partition's log at its leader.

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
        """Send a marker to the leaders of partitions, and wait for the responses.

        Returns
        -------
        dict
            The error of each partition, or None if its in-sync replicas have the marker. After an
            error in a cluster, `TransactionCoordinator.complete_prepared` is called later.
        """
        errors, _ = write_markers(marker.request(partitions), _OnlyLeader(self._manager))
        return errors[marker.producer_id]

    def groups_of(self, coordinator: G, group_id: str) -> G:
        """Return the coordinator of a group, given this broker's own.

        Raises
        ------
        CoordinatorNotAvailableError
            No broker coordinates the group at present.
        """
        return coordinator

    def all_groups(self, coordinator: G) -> list[G]:
        """Return the group coordinators of all brokers, given this broker's own."""
        return [coordinator]

    def transactions_of(self, coordinator: C, transactional_id: str | None, producer_id: int) -> C:
        """Return the coordinator of a transaction, given this broker's.

        Parameters
        ----------
        transactional_id : str or None
            None selects by the producer id.

        Raises
        ------
        NotEnoughReplicasError
            No broker coordinates the transaction at present.
        """
        return coordinator


class _OnlyLeader:
    """A single broker, which leads all partitions."""

    def __init__(self, manager: LogManager) -> None:
        self.log = manager.log

    def check_append(self, topic_partition: TopicPartition) -> None:
        """Do nothing: the only replica is in sync."""

    def delayed_append(
        self, topic_partition: TopicPartition, last_offset: int, role: object
    ) -> None:
        """Return None: there is no follower."""
