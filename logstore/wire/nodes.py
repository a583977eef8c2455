"""The metadata of a cluster as reported by one of its brokers: members, leaders and replicas.

`Nodes` represents a single broker, which is the controller and leads all partitions;
`cluster.wire.ClusterNode` represents a broker of a `Cluster`. They contain everything that differs
between a single broker and a cluster, including access to the logs that the broker leads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from logstore.config.dynamic import Layer
from logstore.errors import (
    FencedLeaderEpochError,
    InvalidReplicationFactorError,
    KafkaStorageError,
    LogStoreError,
    NoReassignmentInProgressError,
    UnknownLeaderEpochError,
)
from logstore.runtime import Signal
from logstore.types import NO_PARTITION_LEADER_EPOCH, TopicPartition
from logstore.wire.purgatory import DelayedOperation

if TYPE_CHECKING:
    from logstore.manager.manager import LogManager
    from logstore.manager.topics.store import Topic
    from logstore.runtime import Unsubscribe
    from logstore.storage.log.log import Log

NO_LEADER = -1

Address = tuple[str, int]
"""The host and port that are advertised to clients."""


class PartitionView(NamedTuple):
    """A partition as described in a Metadata response.

    Attributes
    ----------
    leader : int
        Broker id of the leader, or -1 if there is none.
    offline : sequence of int
        The offline replicas.
    error : LogStoreError or None
        Why the partition is unavailable, or None if it is available.
    adding, removing : sequence of int
        The replicas that a reassignment adds and removes.
    """

    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int] = ()
    error: LogStoreError | None = None
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()


class DelayedAppend(DelayedOperation, Protocol):
    """An append awaiting replication."""

    error: LogStoreError | None


class DelayedDeletion(DelayedOperation, Protocol):
    """A DeleteRecords operation awaiting replication."""

    low_watermark: int
    error: LogStoreError | None


class CompletedDeletion:
    """A completed DeleteRecords operation."""

    error: LogStoreError | None = None

    def __init__(self, low_watermark: int) -> None:
        self.low_watermark = low_watermark

    def is_done(self) -> bool:
        """Return True."""
        return True

    def subscribe(self, listener: object) -> Unsubscribe:
        """Do nothing, because `is_done` never changes."""
        return lambda: None


class Nodes:
    """The metadata of a single broker.

    Parameters
    ----------
    manager : LogManager
        The broker's log manager.

    Attributes
    ----------
    changed : Signal
        Emitted when the leader of a partition may have changed. Any thread may emit it.
    """

    def __init__(self, manager: LogManager) -> None:
        self.manager = manager
        self.changed: Signal[[]] = Signal("another leader")

    # -- nodes ---------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        """The id of this broker."""
        return self.manager.identity.node_id

    @property
    def controller_id(self) -> int:
        """The id of the broker that is reported as the controller."""
        return self.node_id

    def addresses(self, own: Address) -> dict[int, Address]:
        """Return the addresses of all running brokers, given this broker's address."""
        return {self.node_id: own}

    def rack(self, node_id: int) -> str | None:
        """Return a broker's rack, or None if it has none."""
        return self.manager.broker_config.broker_rack or None

    # -- topics --------------------------------------------------------------------------

    @property
    def changes(self) -> int:
        """The number of topic changes so far. While it is the same, `topics` is the same."""
        return self.manager.catalog.changes

    def topics(self) -> list[Topic]:
        """Return all topics, sorted by name."""
        return self.manager.catalog.topics()

    def configured_groups(self) -> list[str]:
        """Return the ids of the groups that have configs."""
        return sorted(self.manager.catalog.store.groups)

    def topic(self, name: str) -> Topic:
        """Return a topic and its partitions.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        return self.manager.catalog.topic(name)

    def overrides(self, name: str) -> Mapping[str, str]:
        """Return a topic's config overrides, including temporary overrides of a command."""
        return self.manager.catalog.overrides(name)

    def create_topic(
        self,
        name: str,
        configs: Mapping[str, object],
        partitions: int,
        replication_factor: int,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic. `assignment` contains the broker ids of each partition's replicas.

        Raises
        ------
        TopicAlreadyExistsError, InvalidReplicationFactorError
        """
        return self.manager.topics.create(name, partitions, configs)

    def create_partitions(
        self, name: str, total: int, assignment: Sequence[Sequence[int]] | None
    ) -> None:
        """Increase a topic's number of partitions to `total`.

        `assignment` contains the broker ids of each new partition's replicas.
        """
        self.manager.topics.create_partitions(name, total)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.manager.topics.delete(name)

    def alter_topic(self, name: str, configs: Mapping[str, object], unset: Iterable[str]) -> None:
        """Change a topic's config overrides."""
        self.manager.topics.alter(name, configs, unset)

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """Return the configs that are set for a group."""
        return self.manager.catalog.store.groups.get(group_id, {})

    def alter_group(
        self, group_id: str, configs: Mapping[str, object], unset: Iterable[str]
    ) -> None:
        """Change a group's configs."""
        self.manager.topics.alter_group(group_id, configs, unset)

    def reconfigure(self, changes: Mapping[str, object], layer: Layer) -> None:
        """Change the dynamic settings of this broker or of all brokers."""
        self.manager.topics.reconfigure(changes, layer)

    # -- replicas ------------------------------------------------------------------------

    @property
    def running(self) -> Collection[int]:
        """The ids of the running brokers, which can host new replicas."""
        return (self.node_id,)

    @property
    def registered(self) -> Collection[int]:
        """The ids of all brokers, including stopped brokers."""
        return self.running

    def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Mapping[TopicPartition, LogStoreError]:
        """Start or cancel (None) partition reassignments. Return the errors.

        The errors are `NoReassignmentInProgressError` and `InvalidReplicaAssignmentError`.
        """
        return {
            tp: NoReassignmentInProgressError(f"{tp} is not being reassigned")
            for tp, replicas in targets.items()
            if replicas is None
        }

    @property
    def default_replication_factor(self) -> int:
        """The replication factor of topics that are created without an explicit factor."""
        return 1

    def check_replication_factor(self, factor: int) -> None:
        """Raise `InvalidReplicationFactorError` if too few brokers are running."""
        count = len(self.running)
        if factor > count:
            raise InvalidReplicationFactorError(
                f"Unable to replicate the partition {factor} time(s): The target replication factor"
                f" of {factor} cannot be reached because only {count} broker(s) are registered."
            )

    def partition(self, topic_partition: TopicPartition) -> PartitionView:
        """Return the leader and the replicas of a partition."""
        me = (self.node_id,)
        try:
            epoch = self.manager.log(topic_partition).leader_epoch
        except KafkaStorageError as error:  # the only replica is in a failed directory
            return PartitionView(NO_LEADER, NO_PARTITION_LEADER_EPOCH, me, me, me, error)
        except LogStoreError as error:
            return PartitionView(*me, NO_PARTITION_LEADER_EPOCH, me, me, (), error)
        return PartitionView(*me, epoch, me, me)

    def log(
        self,
        topic_partition: TopicPartition,
        current_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    ) -> Log:
        """Return the log of a partition that this broker leads.

        Raises the same errors as `replica` and `check`.
        """
        log = self.replica(topic_partition)
        self.check(log, current_leader_epoch)
        return log

    def replica(self, topic_partition: TopicPartition) -> Log:
        """Return this broker's replica of a partition.

        Raises
        ------
        NotLeaderForPartitionError
            This broker has no replica of the partition.
        UnknownTopicOrPartitionError, KafkaStorageError
        """
        return self.manager.log(topic_partition)

    def check(self, log: Log, current_leader_epoch: int) -> None:
        """Check that this broker leads a partition and that the client's epoch is current.

        Parameters
        ----------
        current_leader_epoch : int
            The leader epoch known to the client (KIP-320), or -1 to skip the check.

        Raises
        ------
        FencedLeaderEpochError, UnknownLeaderEpochError
            The client's epoch is older or newer than this broker's epoch.
        NotLeaderForPartitionError
            A different broker is the leader.
        """
        if current_leader_epoch != NO_PARTITION_LEADER_EPOCH:
            check_epoch(log.topic_partition, log.leader_epoch, current_leader_epoch)

    def check_readable(self, log: Log, current_leader_epoch: int) -> None:
        """Check that consumers may read from this replica, which may be a follower (KIP-392).

        Raises
        ------
        FencedLeaderEpochError, UnknownLeaderEpochError
        """
        self.check(log, current_leader_epoch)

    def preferred_replica(self, log: Log, offset: int, rack: str) -> int:
        """Return the preferred read replica for a consumer's rack, or -1 for this broker."""
        return NO_LEADER

    def is_settled(self, log: Log) -> bool:
        """Return whether the high watermark has reached the start of the current leader epoch."""
        return True

    def leader_of(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Return the leader's id and the leader epoch, which callers compare to detect changes."""
        return self.node_id, 0

    def elect(self, topic_partition: TopicPartition, *, unclean: bool) -> bool:
        """Elect the preferred replica, or any live replica if the election is unclean.

        Return whether the leader has changed.

        Raises
        ------
        LogStoreError
            The partition does not exist, or no replica can become the leader.
        """
        self.log(topic_partition)
        return False

    def check_append(self, topic_partition: TopicPartition) -> object:
        """Check `min.insync.replicas` before an append with acks=all. Return the leader's role.

        Raises
        ------
        NotEnoughReplicasError
        """
        return None

    def delayed_append(
        self, topic_partition: TopicPartition, last_offset: int, role: object
    ) -> DelayedAppend | None:
        """Return an operation that waits until an offset is replicated, or None if it is.

        Parameters
        ----------
        role : object
            The result of `check_append` before the append.
        """
        return None

    def delete_records(
        self, topic_partition: TopicPartition, before_offset: int
    ) -> DelayedDeletion:
        """Delete records. Return an operation that waits for all live replicas (KIP-107)."""
        self.log(topic_partition)  # raises an error if another broker is the leader
        return CompletedDeletion(self.manager.delete_records(topic_partition, before_offset))


def check_epoch(topic_partition: TopicPartition, known: int, asked: int) -> None:
    """Check that a client's leader epoch is current, or -1 to skip the check (KIP-320)."""
    if asked in (NO_PARTITION_LEADER_EPOCH, known):
        return
    text = f"{topic_partition} has leader epoch {known}, the request has {asked}"
    raise FencedLeaderEpochError(text) if asked < known else UnknownLeaderEpochError(text)
