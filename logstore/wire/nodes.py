"""The nodes of a cluster, as one of them tells clients: who there is, who leads, who has copies.

`Nodes` is a broker that is alone: the controller, and the leader of every partition. In a `Cluster`
it is `cluster.wire.ClusterNode`. Handlers ask here for all that depends on it, and for the log of a
partition that is led here.
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
"""Host and port by which clients reach a node."""


class PartitionView(NamedTuple):
    """A partition as Metadata tells it.

    Attributes
    ----------
    leader : int
        -1 if there is none.
    offline : sequence of int
        Replicas that cannot be had.
    error : LogStoreError or None
        Why it has no leader, or none that could be asked.
    """

    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int] = ()
    error: LogStoreError | None = None


class DelayedAppend(DelayedOperation, Protocol):
    """An append that waits for replicas."""

    error: LogStoreError | None


class DelayedDeletion(DelayedOperation, Protocol):
    """A deletion that waits for replicas."""

    low_watermark: int
    error: LogStoreError | None


class DoneDeletion:
    """A deletion that waits for nobody."""

    error: LogStoreError | None = None

    def __init__(self, low_watermark: int) -> None:
        self.low_watermark = low_watermark

    def is_done(self) -> bool:
        """Tell that it is."""
        return True

    def subscribe(self, listener: object) -> Unsubscribe:
        """Tell nobody of anything."""
        return lambda: None


class Nodes:
    """A broker that is alone.

    Parameters
    ----------
    manager : LogManager
        Of the broker behind the listener.

    Attributes
    ----------
    changed : Signal
        A partition may have another leader; told in any thread.
    """

    def __init__(self, manager: LogManager) -> None:
        self.manager = manager
        self.changed: Signal[[]] = Signal("another leader")

    # -- nodes ---------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        """The number of the broker behind the listener."""
        return self.manager.identity.node_id

    @property
    def controller_id(self) -> int:
        """The number of the node that clients take for the controller, and for coordinators."""
        return self.node_id

    @property
    def is_coordinator(self) -> bool:
        """Whether this is the node that FindCoordinator names, and that lists groups and ids."""
        return self.node_id == self.controller_id

    def addresses(self, own: Address) -> dict[int, Address]:
        """Return where clients reach each node that runs; the own address is known."""
        return {self.node_id: own}

    # -- topics --------------------------------------------------------------------------

    def topics(self) -> list[Topic]:
        """Return all topics by name."""
        return self.manager.catalog.topics()

    def topic(self, name: str) -> Topic:
        """Return a topic with all its partitions.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        return self.manager.catalog.topic(name)

    def overrides(self, name: str) -> Mapping[str, str]:
        """Return a topic's own configuration, that of commands and tests included."""
        return self.manager.catalog.overrides(name)

    def create_topic(
        self,
        name: str,
        configs: Mapping[str, object],
        partitions: int,
        replication_factor: int,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic; an assignment has the replicas of each partition.

        Raises
        ------
        TopicAlreadyExistsError, InvalidReplicationFactorError
        """
        return self.manager.topics.create(name, partitions, configs)

    def create_partitions(
        self, name: str, total: int, assignment: Sequence[Sequence[int]] | None
    ) -> None:
        """Let a topic have so many partitions; an assignment has the replicas of the new ones."""
        self.manager.topics.create_partitions(name, total)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.manager.topics.delete(name)

    def alter_topic(self, name: str, configs: Mapping[str, object], unset: Iterable[str]) -> None:
        """Change a topic's own configuration."""
        self.manager.topics.alter(name, configs, unset)

    def reconfigure(self, changes: Mapping[str, object], layer: Layer) -> None:
        """Change settings of the broker, or of all brokers."""
        self.manager.topics.reconfigure(changes, layer)

    # -- replicas ------------------------------------------------------------------------

    @property
    def running(self) -> Collection[int]:
        """The nodes on which there can be new replicas."""
        return (self.node_id,)

    @property
    def default_replication_factor(self) -> int:
        """The replicas of a topic that is created without a number."""
        return 1

    def check_replication_factor(self, factor: int) -> None:
        """Refuse more replicas than there are nodes."""
        count = len(self.running)
        if factor > count:
            raise InvalidReplicationFactorError(
                f"Unable to replicate the partition {factor} time(s): The target replication factor"
                f" of {factor} cannot be reached because only {count} broker(s) are registered."
            )

    def partition(self, topic_partition: TopicPartition) -> PartitionView:
        """Return who leads and has copies of a partition."""
        me = (self.node_id,)
        try:
            epoch = self.manager.log(topic_partition).leader_epoch
        except KafkaStorageError as error:  # the only replica stands in a directory that failed
            return PartitionView(NO_LEADER, NO_PARTITION_LEADER_EPOCH, me, me, me, error)
        except LogStoreError as error:
            return PartitionView(*me, NO_PARTITION_LEADER_EPOCH, me, me, (), error)
        return PartitionView(*me, epoch, me, me)

    def log(
        self,
        topic_partition: TopicPartition,
        current_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    ) -> Log:
        """Return the log of a partition that is led here; raises as `replica` and `check` do."""
        log = self.replica(topic_partition)
        self.check(log, current_leader_epoch)
        return log

    def replica(self, topic_partition: TopicPartition) -> Log:
        """Return the log of a partition here, whoever leads.

        Raises
        ------
        NotLeaderForPartitionError
            Only others have it.
        UnknownTopicOrPartitionError, KafkaStorageError
        """
        return self.manager.log(topic_partition)

    def check(self, log: Log, current_leader_epoch: int) -> None:
        """Refuse a client that takes another node for the leader, or this one wrongly.

        Parameters
        ----------
        current_leader_epoch : int
            As the client knows it (KIP-320); -1 if it does not say.

        Raises
        ------
        FencedLeaderEpochError, UnknownLeaderEpochError
            The client's epoch is older, or newer, than the one known here.
        NotLeaderForPartitionError
            Another node leads.
        """
        check_epoch(log.topic_partition, log.leader_epoch, current_leader_epoch)

    def leader_of(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Return leader and leader epoch as they are known here, to see whether they change."""
        return self.node_id, 0

    def elect(self, topic_partition: TopicPartition, *, unclean: bool) -> bool:
        """Let the preferred replica lead, or any if none can; False if nothing is to be done.

        Raises
        ------
        LogStoreError
            There is no such partition, or nobody who could lead it.
        """
        self.log(topic_partition)
        return False

    def check_append(self, topic_partition: TopicPartition) -> None:
        """Raise if too few replicas are in sync for an append that all of them are to have.

        Raises
        ------
        NotEnoughReplicasError
        """

    def delayed_append(
        self, topic_partition: TopicPartition, last_offset: int
    ) -> DelayedAppend | None:
        """Return what waits until all replicas in sync have an offset; None: they have."""
        return None

    def delete_records(
        self, topic_partition: TopicPartition, before_offset: int
    ) -> DelayedDeletion:
        """Delete records here, and return what waits for the other replicas (KIP-107)."""
        self.log(topic_partition)  # which tells whether it is led here
        return DoneDeletion(self.manager.delete_records(topic_partition, before_offset))


def check_epoch(topic_partition: TopicPartition, known: int, asked: int) -> None:
    """Refuse a client that knows another leader epoch (KIP-320); -1 is none."""
    if asked in (NO_PARTITION_LEADER_EPOCH, known):
        return
    text = f"{topic_partition} has leader epoch {known}, and not {asked}"
    raise FencedLeaderEpochError(text) if asked < known else UnknownLeaderEpochError(text)
