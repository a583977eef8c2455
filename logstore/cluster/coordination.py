"""The coordinators of groups and transactions in a cluster.

Each broker coordinates the partitions of `__consumer_offsets` and `__transaction_state` that it
leads. When it becomes the leader of a partition, a task loads the partition from the log. Until
then, requests get COORDINATOR_LOAD_IN_PROGRESS. A coordinator's write takes effect once it is
replicated. Markers are sent over the network to the leaders of the data; see `markers`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, cast

from logstore.cluster.leadership import Leadership
from logstore.cluster.replicas import MARKER_TIMEOUT_MS
from logstore.cluster.requests import Completion, DelayedProduce
from logstore.cluster.states import NO_LEADER, ClusterTopic
from logstore.config.group_keys import GroupConfig, effective_group_config
from logstore.coordinator.host import C, CoordinatorHost, G
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
from logstore.names import (
    GROUP_OFFSETS_TOPIC,
    INTERNAL_COMPACTED_TOPICS,
    TRANSACTION_STATE_TOPIC,
)
from logstore.runtime import Signal
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.cluster.controller import Controller
    from logstore.cluster.network import Network
    from logstore.cluster.replicas import Replicas
    from logstore.coordinator.host import Written
    from logstore.coordinator.markers import TransactionMarker
    from logstore.coordinator.transactions.coordinator import TransactionCoordinator
    from logstore.coordinator.transactions.producer_ids import ProducerIds
    from logstore.runtime import Runtime, Unsubscribe
    from logstore.storage.log.log import Log
    from logstore.wire.purgatory import Purgatory

logger = logging.getLogger(__name__)

REPLICATION_FACTOR = 3
"""The replication factor of internal topics, if enough brokers are running."""

WRITE_TIMEOUT_MS = 10_000
"""How long a coordinator waits for a write to be replicated. After that, clients must retry."""

_NO_RESPONSE = "NETWORK_EXCEPTION"


class CreatesTopics(Protocol):
    """A cluster in which topics can be created; see `Cluster`."""

    controller: Controller

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, object] | None = None,
        *,
        replication_factor: int = -1,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> ClusterTopic:
        """Create a topic."""


class CoordinatedCluster(CreatesTopics, Protocol):
    """The parts of a cluster that a coordinator uses; see `Cluster`."""

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
        """The producer id generator."""


class ClusterHost(CoordinatorHost):
    """The coordinators' interface to a broker in a cluster.

    Parameters
    ----------
    members : Members
        The cluster.
    broker_id : int
    """

    is_replicated = True

    def __init__(self, members: CoordinatedCluster, broker_id: int) -> None:
        self._members = members
        self._controller = members.controller
        self._broker_id = broker_id
        self._replicas: Replicas | None = None
        self.moved: Signal[[]] = Signal("a change of coordinators")
        self._lock = members.runtime.lock()  # no other lock is acquired while it is held
        # The partitions whose leader has changed, with the new epoch if this broker leads them.
        self._changed: dict[TopicPartition, int | None] = {}
        self._changes = 0  # number of changes of links and leaders
        self._has_unwritten = False  # whether unwritten markers wait for such a change
        self._will_retry = False  # whether a task is scheduled to resend refused markers
        self._unsubscribe: Unsubscribe = members.network.healed.subscribe(self.retry_markers)
        # The inner mappings are replaced and never modified, because callers compare identities.
        self._loaded: dict[str, dict[int, int]] = {name: {} for name in INTERNAL_COMPACTED_TOPICS}

    @property
    def take_producer_id(self) -> Callable[[], int]:  # type: ignore[override]  # never None
        """The function that returns a new producer id of the cluster."""
        return self._members.producer_ids.take

    def start(self, broker: Broker, replicas: Replicas) -> None:
        """Start loading partitions whenever the broker becomes their leader."""
        self._broker = broker
        self._replicas = replicas
        replicas.progress.subscribe(self._on_progress)

    # -- leadership ------------------------------------------------------------------------

    def _on_progress(self, topic_partition: TopicPartition) -> None:
        """Load a partition of which this broker became the leader, or unload a lost partition."""
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
        """Take over the partitions that this broker leads, and unload those that it has lost.

        This runs in a thread of the broker because it may wait for replication.
        """
        with self._lock:
            changed, self._changed = self._changed, {}
            for (name, number), epoch in changed.items():
                if epoch is not None and self._led_epoch(TopicPartition(name, number)) == epoch:
                    self._loaded[name] = {**self._loaded[name], number: epoch}
        # Do not use a set: its order differs between processes.
        self.take_over(*dict.fromkeys(tp.topic for tp in changed))

    def take_over(self, *names: str) -> None:
        """Make the coordinators read the loaded partitions of internal topics."""
        broker = self._broker
        for name in names or self._loaded:
            try:
                if name == TRANSACTION_STATE_TOPIC:
                    broker.coordinator.take_over()
                else:
                    broker.groups.take_over()
            except LogStoreError as error:
                if not broker.manager.lifetime.is_over:
                    logger.warning("the coordinator cannot take over %s: %s", name, error)

    # -- internal topics -------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        """Return a topic of the cluster, or None if the topic does not exist."""
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
            return  # another broker has just created it
        except InvalidReplicationFactorError as error:
            raise CoordinatorNotAvailableError(
                f"topic {name} cannot be created: {error}"
            ) from error

    def owned(self, name: str) -> Mapping[int, int]:
        """Return the loaded partitions of a topic, with their leader epochs."""
        return self._loaded[name]

    def check_owner(self, topic_partition: TopicPartition) -> None:
        """Raise an error unless this broker leads the partition and has finished loading it."""
        name, number = topic_partition
        epoch = self._led_epoch(topic_partition)
        if epoch is None:
            raise NotCoordinatorError(
                f"broker {self._broker_id} is not the leader of {topic_partition}"
            )
        if self._loaded[name].get(number) != epoch:
            raise CoordinatorLoadInProgressError(
                f"broker {self._broker_id} has not loaded {topic_partition} yet"
            )

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return the log of a partition that this broker leads and has loaded."""
        self.check_owner(topic_partition)
        return self._broker.manager.log(topic_partition)

    @property
    def is_closing(self) -> bool:
        """Whether the cluster is being closed, so that coordinators no longer move."""
        return not self._members.runtime.scheduler.is_started

    def is_coordinated(self, name: str) -> bool:
        """Return whether all partitions of a topic have leaders, and this broker's are loaded."""
        try:
            partitions = self._controller.topic(name).partitions
        except UnknownTopicOrPartitionError:
            return True
        return all(
            self._loaded[name].get(tp.partition) == epoch
            if (epoch := self._led_epoch(tp)) is not None
            else state.leader not in (NO_LEADER, self._broker_id)
            for state in partitions
            for tp in (state.topic_partition,)
        )

    # -- replication -----------------------------------------------------------------------

    def check_append(self, topic_partition: TopicPartition) -> None:
        """Check that enough replicas are in sync before an append."""
        assert self._replicas is not None
        try:
            self._replicas.check_append(topic_partition)
        except LogStoreError as error:
            raise _refusal(error) from error

    def _delayed(self, written: Written) -> list[DelayedProduce]:
        delayed = []
        for log, offset in written.items():
            tp = log.topic_partition
            _, replicas = self._leader_of(tp)
            role = replicas.leadership(tp)
            if role.log is not log:
                raise NotLeaderForPartitionError(f"the leader of {tp} has changed")
            delayed.append(DelayedProduce(replicas, tp, offset, role))
        return delayed

    def await_replicated(self, written: Written) -> None:
        """Wait until the written records are replicated to the in-sync replicas."""
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
        """Call `then` when the written records are replicated or might be lost."""
        try:
            delayed = self._delayed(written)
        except LogStoreError as error:
            then(_refusal(error))
            return

        def end() -> None:
            error = next((each.error for each in delayed if each.error is not None), None)
            then(None if error is None else _refusal(error))

        runtime = self._members.runtime
        Completion(runtime.scheduler, runtime.lock(), delayed, end, WRITE_TIMEOUT_MS)

    def wait_until(self, predicate: Callable[[], bool], *, timeout_ms: int) -> None:
        """Wait until a predicate is true or the timeout expires."""
        if not predicate():
            self._members.runtime.scheduler.wait_until(predicate, timeout_ms=timeout_ms)

    def notify(self) -> None:
        """Make the callers of `wait_until` check their predicates again."""
        self._members.runtime.scheduler.notify()

    # -- all partitions --------------------------------------------------------------------

    @property
    def topic_changes(self) -> int:
        """The number of changes to the cluster's topics so far."""
        return self._controller.changes

    def topics(self) -> list[Topic]:
        """Return all topics of the cluster."""
        return [as_topic(topic) for topic in self._controller.topics()]

    def racks_of(self, topic: str, partitions: Sequence[int]) -> Sequence[Sequence[str]]:
        """Return the racks of each partition's replicas, or nothing if no broker has a rack."""
        racks = self._controller.racks
        if not racks:
            return ()
        with suppress(UnknownTopicOrPartitionError):
            states = self._controller.topic(topic).partitions
            replicas = (states[number].replicas for number in partitions)
            return tuple(tuple(sorted(racks[each] for each in ids)) for ids in replicas)
        return ()

    def write_markers(
        self, marker: TransactionMarker, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, str | None]:
        """Send a marker to the leaders of partitions, and wait for their responses.

        After an error, the coordinator tries to complete its prepared transactions again when
        links are restored, when leaders change, and some time after a leader refused the marker.
        """
        errors: dict[TopicPartition, str | None] = dict.fromkeys(partitions, _NO_RESPONSE)
        while any(errors.values()):
            changes = self._changes
            errors |= self._send_markers(marker, [tp for tp in errors if errors[tp]])
            if any(errors.values()):
                self._has_unwritten = True  # set this before checking for changes
            if changes == self._changes:
                break
        return errors

    def _send_markers(
        self, marker: TransactionMarker, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, str | None]:
        """Send a marker to the reachable leaders. Return their responses."""
        replicas = self._replicas
        assert replicas is not None
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            # the topic has just been deleted
            with suppress(UnknownTopicOrPartitionError):
                leader = self._controller.state(tp).leader
                if self._reachable(leader) is not None:
                    by_leader.setdefault(leader, []).append(tp)
        sent = [
            replicas.markers.send(leader, marker.request(of_leader))
            for leader, of_leader in by_leader.items()
        ]
        scheduler = self._members.runtime.scheduler
        self._members.purgatory.wait(sent, scheduler, timeout_ms=MARKER_TIMEOUT_MS)
        for each in sent:
            replicas.markers.give_up(each.number)
        errors: dict[TopicPartition, str | None] = {}
        for each in sent:
            errors |= (each.errors or {}).get(marker.producer_id, {})
        if any(errors.values()):
            self._retry_after(replicas.backoff_ms)
        return errors

    def retry_markers(self) -> None:
        """Resend markers without a leader or a response, after links or leaders have changed."""
        with self._lock:
            self._changes += 1
            has_unwritten, self._has_unwritten = self._has_unwritten, False
        self._members.runtime.scheduler.notify()
        self.moved.emit()
        if self._replicas is not None and self._replicas.is_over:
            self._unsubscribe()
        elif has_unwritten:
            self._schedule_completion(self._complete_prepared, delay_ms=0)

    def _retry_after(self, backoff_ms: int) -> None:
        """Complete all prepared transactions after a delay, unless this is already scheduled.

        Without this check, each transaction refused during a retry would schedule a retry of all
        transactions.
        """
        with self._lock:
            if self._will_retry:
                return
            self._will_retry = True

        def retry() -> None:
            with self._lock:
                self._will_retry = False
            self._complete_prepared()

        self._schedule_completion(retry, delay_ms=backoff_ms)

    def _schedule_completion(self, complete: Callable[[], None], *, delay_ms: int) -> None:
        """Schedule a task in a thread of the broker, because completing transactions may wait."""
        name = f"complete-transactions-{self._broker_id}"
        self._broker.runtime.scheduler.schedule(name, complete, delay_ms=delay_ms)

    def _complete_prepared(self) -> None:
        broker = self._broker
        try:
            broker.coordinator.complete_prepared()
        except LogStoreError as error:
            if not broker.manager.lifetime.is_over:
                logger.warning("prepared transactions cannot be completed: %s", error)

    def partitions_of(self, topic: str) -> Collection[int]:
        """Return a topic's partition numbers in the cluster."""
        return range(len(self._controller.topic(topic).partitions))

    def group_config(self, group_id: str) -> GroupConfig:
        """Return the effective configuration of a group, which the controller stores."""
        own = self._controller.groups.get(group_id, {})
        return effective_group_config(own, self._broker.broker_config)

    def leader_log(self, topic_partition: TopicPartition) -> Log:
        """Return the log of a partition on its leader, or raise an error if it is unreachable."""
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
        """Return a broker, or None if it is not running or the link to it is cut."""
        if broker == NO_LEADER:
            return None
        if self._members.network.cut_since_ms(self._broker_id, broker) is not None:
            return None
        return self._members.brokers.get(broker)

    def _leading(self, topic: Topic, key: str) -> Broker | None:
        """Return the leader of a group's or transaction's partition, or None if unreachable."""
        number = partition_for(key, len(topic.partitions))
        return self._reachable(self._controller.state(TopicPartition(topic.name, number)).leader)

    def groups_of(self, coordinator: G, group_id: str) -> G:
        """Return the coordinator of a group, which runs on the leader of the group's partition."""
        topic = self.topic(GROUP_OFFSETS_TOPIC)
        if topic is None:
            return coordinator
        broker = self._leading(topic, group_id)
        if broker is None:
            raise CoordinatorNotAvailableError(
                f"the coordinator of group '{group_id}' is not available"
            )
        return cast("G", broker.groups)

    def all_groups(self, coordinator: G) -> list[G]:
        """Return the group coordinators of all running brokers."""
        return [cast("G", broker.groups) for broker in self._members.brokers.values()]

    def transactions_of(self, coordinator: C, transactional_id: str | None, producer_id: int) -> C:
        """Return the coordinator of a transaction, which runs on the leader of its partition."""
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
        broker = self._leading(topic, transactional_id)
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


def _refusal(error: LogStoreError) -> LogStoreError:
    """Convert an append error to the corresponding error of a coordinator's write."""
    kind: type[LogStoreError] = CoordinatorNotAvailableError
    if isinstance(error, NotLeaderForPartitionError):
        kind = NotCoordinatorError
    return kind(str(error))


def as_topic(topic: ClusterTopic) -> Topic:
    """Convert a topic of the cluster to a `Topic` with all its partitions."""
    return Topic(topic.name, tuple(range(len(topic.partitions))), topic.configs, id=topic.id)
