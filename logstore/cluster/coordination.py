"""The coordinators of groups and transactions in a cluster: the leaders of two internal topics.

Each broker coordinates the partitions of `__consumer_offsets` and `__transaction_state` that it
leads. When it becomes the leader, a task loads the partition from the log; until then, requests get
COORDINATOR_LOAD_IN_PROGRESS. A write of a coordinator counts when the in-sync replicas have it.
Markers are appended at the leaders of the data, by direct calls over links that are not cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol, cast

from logstore.cluster.leadership import Leadership
from logstore.cluster.requests import DelayedProduce
from logstore.cluster.states import NO_LEADER, ClusterTopic
from logstore.config.group_keys import GroupConfig, effective_group_config
from logstore.coordinator.host import C, CoordinatorHost
from logstore.coordinator.records import partition_for
from logstore.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidReplicationFactorError,
    LeaderNotAvailableError,
    LogStoreError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from logstore.manager.topics.store import Topic
from logstore.names import INTERNAL_COMPACTED_TOPICS, TRANSACTION_STATE_TOPIC
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.cluster.controller import Controller
    from logstore.cluster.network import Network
    from logstore.cluster.replicas import Replicas
    from logstore.coordinator.host import Written
    from logstore.coordinator.transactions.coordinator import TransactionCoordinator
    from logstore.coordinator.transactions.producer_ids import ProducerIds
    from logstore.runtime import Runtime, Unsubscribe
    from logstore.storage.log.log import Log
    from logstore.wire.purgatory import Purgatory

logger = logging.getLogger(__name__)

REPLICATION_FACTOR = 3
"""Replicas of an internal topic, if that many brokers are running."""

WRITE_TIMEOUT_MS = 10_000
"""Time to replicate a coordinator's write or a marker; after that, clients retry."""


class Members(Protocol):
    """The parts of a cluster that a coordinator uses; see `Cluster`."""

    controller: Controller
    network: Network
    purgatory: Purgatory
    runtime: Runtime

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The running brokers by id."""

    def replicas(self, broker: int) -> Replicas:
        """Return the replicas of a running broker."""

    @property
    def producer_ids(self) -> ProducerIds:
        """The generator of producer ids."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, object] | None = None,
        *,
        replication_factor: int = -1,
    ) -> ClusterTopic:
        """Create a topic."""


class ClusterHost(CoordinatorHost):
    """A broker of a cluster, for its coordinators.

    Parameters
    ----------
    members : Members
        The cluster.
    broker_id : int
    """

    is_replicated = True

    def __init__(self, members: Members, broker_id: int) -> None:
        self._members = members
        self._controller = members.controller
        self._broker_id = broker_id
        self._replicas: Replicas | None = None
        self._lock = members.runtime.lock()  # under which no other lock is taken
        # Partitions whose leader has changed, and the new epoch if this broker leads.
        self._changed: dict[TopicPartition, int | None] = {}
        # Replaced, never changed: callers compare identities.
        self._loaded: dict[str, dict[int, int]] = {name: {} for name in INTERNAL_COMPACTED_TOPICS}

    @property
    def take_producer_id(self) -> Callable[[], int]:  # type: ignore[override]  # never None
        """Returns a new producer id of the cluster."""
        return self._members.producer_ids.take

    def start(self, broker: Broker, replicas: Replicas) -> None:
        """Load the partitions that the broker leads from now on."""
        self._broker = broker
        self._replicas = replicas
        replicas.progress.subscribe(self._on_progress)

    # -- leadership ------------------------------------------------------------------------

    def _on_progress(self, topic_partition: TopicPartition) -> None:
        """Forget a partition that another broker leads; load one that this broker now leads."""
        name, number = topic_partition
        if name not in self._loaded:
            return
        role = self._leadership(topic_partition)
        epoch = None if role is None else role.state.leader_epoch
        with self._lock:
            loaded = self._loaded[name]
            if loaded.get(number) == epoch:
                return
            loaded = {each: loaded[each] for each in loaded if each != number}
            if role is not None and role.log.log_end_offset == 0:
                self._loaded[name] = {**loaded, number: role.state.leader_epoch}
                return  # there is nothing to load
            self._loaded[name] = loaded
            is_scheduled, self._changed[topic_partition] = bool(self._changed), epoch
        if not is_scheduled and self._replicas is not None and not self._replicas.is_over:
            scheduler = self._broker.runtime.scheduler
            scheduler.start()
            scheduler.schedule(f"load-coordinator-{self._broker_id}", self._load)

    def _leadership(self, topic_partition: TopicPartition) -> Leadership | None:
        replicas = self._replicas
        role = None if replicas is None or replicas.is_over else replicas.role(topic_partition)
        return role if isinstance(role, Leadership) else None

    def _led_epoch(self, topic_partition: TopicPartition) -> int | None:
        role = self._leadership(topic_partition)
        return None if role is None else role.state.leader_epoch

    def _load(self) -> None:
        """Take over the partitions that this broker leads, and drop those that it lost.

        This runs in a thread of the broker, since it may wait for replicas.
        """
        with self._lock:
            changed, self._changed = self._changed, {}
            for (name, number), epoch in changed.items():
                if epoch is not None and self._led_epoch(TopicPartition(name, number)) == epoch:
                    self._loaded[name] = {**self._loaded[name], number: epoch}
        self.take_over(*{tp.topic for tp in changed})

    def take_over(self, *names: str) -> None:
        """Let the coordinators of some or all internal topics read the loaded partitions."""
        broker = self._broker
        for name in names or self._loaded:
            coordinator = broker.coordinator if name == TRANSACTION_STATE_TOPIC else broker.groups
            try:
                coordinator.take_over()
            except LogStoreError as error:
                if not broker.manager.lifetime.is_over:
                    logger.warning("%s cannot be taken over: %s", name, error)

    # -- internal topics -------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        """Return a topic of the cluster, or None if it does not exist."""
        try:
            return as_topic(self._controller.topic(name))
        except UnknownTopicOrPartitionError:
            return None

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create an internal topic with up to three replicas.

        Raises
        ------
        CoordinatorNotAvailableError
            No broker is running.
        """
        factor = min(REPLICATION_FACTOR, len(self._controller.alive))
        try:
            self._members.create_topic(name, partitions, configs, replication_factor=factor)
        except TopicAlreadyExistsError:
            return  # another broker was faster
        except InvalidReplicationFactorError as error:
            raise CoordinatorNotAvailableError(f"{name} cannot be created: {error}") from error

    def owned(self, name: str) -> Mapping[int, int]:
        """Return the loaded partitions of a topic, with their leader epochs."""
        return self._loaded[name]

    def check_owner(self, topic_partition: TopicPartition) -> None:
        """Check that this broker leads a partition and has loaded it."""
        name, number = topic_partition
        epoch = self._led_epoch(topic_partition)
        if epoch is None:
            raise NotCoordinatorError(f"broker {self._broker_id} does not lead {topic_partition}")
        if self._loaded[name].get(number) != epoch:
            raise CoordinatorLoadInProgressError(
                f"broker {self._broker_id} has not loaded {topic_partition} yet"
            )

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return the log of a partition that this broker leads and has loaded."""
        self.check_owner(topic_partition)
        return self._broker.manager.log(topic_partition)

    # -- replication -----------------------------------------------------------------------

    def _delayed(self, written: Written) -> list[DelayedProduce]:
        delayed = []
        for log, offset in written.items():
            tp = log.topic_partition
            _, replicas = self._leader_of(tp)
            if replicas.leadership(tp).log is not log:
                raise NotLeaderForPartitionError(f"the leader of {tp} has changed")
            delayed.append(DelayedProduce(replicas, tp, offset))
        return delayed

    def await_replicated(self, written: Written) -> None:
        """Wait until the in-sync replicas have the written records."""
        try:
            delayed = self._delayed(written)
        except LogStoreError as error:
            raise _refusal(error) from error
        scheduler = self._members.runtime.scheduler
        self._members.purgatory.wait(delayed, scheduler, timeout_ms=WRITE_TIMEOUT_MS)
        for each in delayed:
            if each.error is not None:
                raise _refusal(each.error)

    def when_replicated(
        self, written: Written, then: Callable[[LogStoreError | None], object]
    ) -> None:
        """Call a function when the in-sync replicas have the written records, or may lose them."""
        try:
            delayed = self._delayed(written)
        except LogStoreError as error:
            then(_refusal(error))
            return
        if delayed:
            _Completion(self._members.runtime, delayed, then)
        else:
            then(None)

    # -- all partitions --------------------------------------------------------------------

    @property
    def topic_changes(self) -> int:
        """Number of changes of the cluster's topics."""
        return self._controller.changes

    def topics(self) -> list[Topic]:
        """Return all topics of the cluster."""
        return [as_topic(topic) for topic in self._controller.topics()]

    def partitions_of(self, topic: str) -> Collection[int]:
        """Return the partition numbers of a topic of the cluster."""
        return range(len(self._controller.topic(topic).partitions))

    def group_config(self, group_id: str) -> GroupConfig:
        """Return the effective configuration of a group, which the controller stores."""
        own = self._controller.groups.get(group_id, {})
        return effective_group_config(own, self._broker.broker_config)

    def leader_log(self, topic_partition: TopicPartition) -> Log:
        """Return a partition's log at its leader, if the link to it is not cut."""
        return self._leader_of(topic_partition)[0].manager.log(topic_partition)

    def _leader_of(self, topic_partition: TopicPartition) -> tuple[Broker, Replicas]:
        leader = self._controller.state(topic_partition).leader
        broker = self._reachable(leader)
        if broker is None:
            raise LeaderNotAvailableError(
                f"{topic_partition} has no leader that broker {self._broker_id} can reach"
            )
        return broker, self._members.replicas(leader)

    def _reachable(self, broker: int) -> Broker | None:
        """Return a running broker to which the link is not cut, or None."""
        if broker == NO_LEADER:
            return None
        if self._members.network.cut_since_ms(self._broker_id, broker) is not None:
            return None
        return self._members.brokers.get(broker)

    def transactions_of(self, coordinator: C, transactional_id: str | None, producer_id: int) -> C:
        """Return the coordinator of a transaction at the leader of its partition."""
        owner = self._owner_of(transactional_id, producer_id)
        return coordinator if owner is None else cast("C", owner)

    def _owner_of(
        self, transactional_id: str | None, producer_id: int
    ) -> TransactionCoordinator | None:
        if transactional_id is None:
            return self._coordinator_with(producer_id)
        topic = self.topic(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        number = partition_for(transactional_id, len(topic.partitions))
        leader = self._controller.state(TopicPartition(TRANSACTION_STATE_TOPIC, number)).leader
        broker = self._reachable(leader)
        if broker is None:
            raise NotEnoughReplicasError(
                f"the transaction coordinator of '{transactional_id}' is not available"
            )
        return broker.coordinator

    def _coordinator_with(self, producer_id: int) -> TransactionCoordinator | None:
        for number in self._controller.alive:
            broker = self._reachable(number)
            if broker is not None and broker.coordinator.has_producer(producer_id):
                return broker.coordinator
        return None


class _Completion:
    """A call that is made once, when appends have completed or timed out."""

    def __init__(
        self,
        runtime: Runtime,
        delayed: list[DelayedProduce],
        then: Callable[[LogStoreError | None], object],
    ) -> None:
        self._delayed = delayed
        self._then = then
        self._lock = runtime.lock()
        self._is_due = self._is_over = False
        self._scheduler = runtime.scheduler
        self._timer = runtime.scheduler.schedule(
            "coordinator-write-timeout", self._end, delay_ms=WRITE_TIMEOUT_MS
        )
        self._unsubscribe: list[Unsubscribe] = []
        for each in delayed:
            self._unsubscribe.append(each.subscribe(self._wake))
        self._check()
        if self._is_over:  # perhaps in another thread, while this one subscribed
            self._leave()

    def _wake(self) -> None:
        if not self._is_over and not self._is_due:
            self._is_due = True
            self._scheduler.schedule("coordinator-write", self._check)

    def _check(self) -> None:
        self._is_due = False
        if all(each.is_done() for each in self._delayed):
            self._end()

    def _end(self) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        self._timer.cancel()
        self._leave()
        errors = (each.error for each in self._delayed if each.error is not None)
        error = next(errors, None)
        self._then(None if error is None else _refusal(error))

    def _leave(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()


def _refusal(error: LogStoreError) -> LogStoreError:
    """Return the error of a coordinator's write by the error of the append."""
    kind: type[LogStoreError] = CoordinatorNotAvailableError
    if isinstance(error, NotLeaderForPartitionError):
        kind = NotCoordinatorError
    return kind(str(error))


def as_topic(topic: ClusterTopic) -> Topic:
    """Return a topic of the cluster with all its partitions."""
    return Topic(topic.name, tuple(range(len(topic.partitions))), topic.configs, id=topic.id)
