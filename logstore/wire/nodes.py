"""Cluster metadata as one broker reports it: members, leaders, replicas.

`Nodes` is a single broker, which is the controller and leads every partition. In a `Cluster`,
`cluster.wire.ClusterNode` takes its place. Handlers use it for everything that differs between the
two, including access to the logs that this broker leads.
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
"""Host and port advertised to clients."""


class PartitionView(NamedTuple):
    """A partition as Metadata reports it.

    Attributes
    ----------
    leader : int
        Broker id, or -1 without a leader.
    offline : sequence of int
        Replicas that are offline.
    error : LogStoreError or None
        Why the partition has no available leader.
    adding, removing : sequence of int
        Replicas that a reassignment adds and removes.
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
    """An append that waits for the in-sync replicas."""

    error: LogStoreError | None


class DelayedDeletion(DelayedOperation, Protocol):
    """A DeleteRecords operation that waits for replicas."""

    low_watermark: int
    error: LogStoreError | None


class DoneDeletion:
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
    """Metadata of a single broker.

    Parameters
    ----------
    manager : LogManager
        Log manager of the broker.

    Attributes
    ----------
    changed : Signal
        Sent, in any thread, when the leader of a partition may have changed.
    """

    def __init__(self, manager: LogManager) -> None:
        self.manager = manager
        self.changed: Signal[[]] = Signal("another leader")

    # -- nodes ---------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        """Id of this broker."""
        return self.manager.identity.node_id

    @property
    def controller_id(self) -> int:
        """Id of the broker reported as controller."""
        return self.node_id

    def addresses(self, own: Address) -> dict[int, Address]:
        """Return the addresses of all running brokers, given this broker's."""
        return {self.node_id: own}

    def rack(self, node_id: int) -> str | None:
        """Return the rack of a broker, or None."""
        return self.manager.broker_config.broker_rack or None

    # -- topics --------------------------------------------------------------------------

    @property
    def topic_changes(self) -> int:
        """Number of changes of topics so far; `topics` changes only if it increases."""
        return self.manager.catalog.changes

    def topics(self) -> list[Topic]:
        """Return all topics, sorted by name."""
        return self.manager.catalog.topics()

    @property
    def changes(self) -> int:
        """Number of changes of the topics so far."""
        return self.manager.catalog.changes

    def configured_groups(self) -> list[str]:
        """Return the ids of the groups that have configurations of their own."""
        return sorted(self.manager.catalog.store.groups)

    def topic(self, name: str) -> Topic:
        """Return a topic with all its partitions.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        return self.manager.catalog.topic(name)

    def overrides(self, name: str) -> Mapping[str, str]:
        """Return the config overrides of a topic, including temporary ones of a command."""
        return self.manager.catalog.overrides(name)

    def create_topic(
        self,
        name: str,
        configs: Mapping[str, object],
        partitions: int,
        replication_factor: int,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic; `assignment` lists the replicas of each partition.

        Raises
        ------
        TopicAlreadyExistsError, InvalidReplicationFactorError
        """
        return self.manager.topics.create(name, partitions, configs)

    def create_partitions(
        self, name: str, total: int, assignment: Sequence[Sequence[int]] | None
    ) -> None:
        """Grow a topic to `total` partitions; `assignment` lists the replicas of the new ones."""
        self.manager.topics.create_partitions(name, total)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.manager.topics.delete(name)

    def alter_topic(self, name: str, configs: Mapping[str, object], unset: Iterable[str]) -> None:
        """Change the config overrides of a topic."""
        self.manager.topics.alter(name, configs, unset)

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """Return the configurations that a group sets itself."""
        return self.manager.catalog.store.groups.get(group_id, {})

    def alter_group(
        self, group_id: str, configs: Mapping[str, object], unset: Iterable[str]
    ) -> None:
        """Change the configurations of a group."""
        self.manager.topics.alter_group(group_id, configs, unset)

    def reconfigure(self, changes: Mapping[str, object], layer: Layer) -> None:
        """Change dynamic settings of this broker, or of all brokers."""
        self.manager.topics.reconfigure(changes, layer)

    # -- replicas ------------------------------------------------------------------------

    @property
    def running(self) -> Collection[int]:
        """Ids of the running brokers, which can take new replicas."""
        return (self.node_id,)

    @property
    def registered(self) -> Collection[int]:
        """Ids of all brokers, which may be stopped."""
        return self.running

    def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Mapping[TopicPartition, LogStoreError]:
        """Begin to move partitions to other replicas, or cancel moves (None); return the errors.

        They are `NoReassignmentInProgressError` and `InvalidReplicaAssignmentError`.
        """
        return {
            tp: NoReassignmentInProgressError(f"{tp} is not being reassigned")
            for tp, replicas in targets.items()
            if replicas is None
        }

    @property
    def default_replication_factor(self) -> int:
        """Replication factor of topics created without one."""
        return 1

    def check_replication_factor(self, factor: int) -> None:
        """Raise InvalidReplicationFactorError if there are fewer running brokers."""
        count = len(self.running)
        if factor > count:
            raise InvalidReplicationFactorError(
                f"Unable to replicate the partition {factor} time(s): The target replication factor"
                f" of {factor} cannot be reached because only {count} broker(s) are registered."
            )

    def partition(self, topic_partition: TopicPartition) -> PartitionView:
        """Return the leader and replicas of a partition."""
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
        """Return the log of a partition led by this broker; raises as `replica` and `check` do."""
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
        """Check that this broker leads the partition and that the client's epoch is current.

        Parameters
        ----------
        current_leader_epoch : int
            Leader epoch known to the client (KIP-320); -1 skips the check.

        Raises
        ------
        FencedLeaderEpochError, UnknownLeaderEpochError
            The client's epoch is older, or newer, than this broker's.
        NotLeaderForPartitionError
            Another broker leads.
        """
        if current_leader_epoch != NO_PARTITION_LEADER_EPOCH:
            check_epoch(log.topic_partition, log.leader_epoch, current_leader_epoch)

    def check_readable(self, log: Log, current_leader_epoch: int) -> None:
        """Check that consumers may read this replica, which need not be the leader (KIP-392).

        Raises
        ------
        FencedLeaderEpochError, UnknownLeaderEpochError
        """
        self.check(log, current_leader_epoch)

    def preferred_replica(self, log: Log, offset: int, rack: str) -> int:
        """Return the broker that a consumer in a rack should read from, or -1 for this one."""
        return NO_LEADER

    def is_settled(self, log: Log) -> bool:
        """Return whether the high watermark has reached the start of the leader's epoch."""
        return True

    def leader_of(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Return leader id and leader epoch, to detect changes."""
        return self.node_id, 0

    def elect(self, topic_partition: TopicPartition, *, unclean: bool) -> bool:
        """Elect the preferred or, if unclean, any live replica; return whether the leader changed.

        Raises
        ------
        LogStoreError
            The partition does not exist, or no replica can lead it.
        """
        self.log(topic_partition)
        return False

    def check_append(self, topic_partition: TopicPartition) -> object:
        """Check `min.insync.replicas` before an append with acks=all; return the leader's role.

        Raises
        ------
        NotEnoughReplicasError
        """
        return None

    def delayed_append(
        self, topic_partition: TopicPartition, last_offset: int, role: object
    ) -> DelayedAppend | None:
        """Return an operation that waits until all in-sync replicas have an offset, or None.

        Parameters
        ----------
        role : object
            Result of `check_append` before the append.
        """
        return None

    def delete_records(
        self, topic_partition: TopicPartition, before_offset: int
    ) -> DelayedDeletion:
        """Delete records, and return an operation that waits for all live replicas (KIP-107)."""
        self.log(topic_partition)  # raises if another broker leads
        return DoneDeletion(self.manager.delete_records(topic_partition, before_offset))


def check_epoch(topic_partition: TopicPartition, known: int, asked: int) -> None:
    """Raise unless a client's leader epoch is current or -1 (KIP-320)."""
    if asked in (NO_PARTITION_LEADER_EPOCH, known):
        return
    text = f"{topic_partition} has leader epoch {known}, the request has {asked}"
    raise FencedLeaderEpochError(text) if asked < known else UnknownLeaderEpochError(text)
