"""The controller of a cluster, which decides on leaders, leader epochs and in-sync replicas.

Kafka's controllers form a quorum with a metadata log, and exchange heartbeats with the brokers over
the network. Here, the controller is a single object that never fails, can always be reached, and
notices immediately when a broker stops. It makes the same decisions as KRaft. It returns the
changed states, and the cluster sends them to the brokers.

Source: Kafka's ReplicationControlManager and PartitionChangeBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from logstore.cluster.states import NO_LEADER, ClusterTopic, PartitionState
from logstore.errors import (
    FencedLeaderEpochError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    LeaderNotAvailableError,
    LogStoreError,
    NoReassignmentInProgressError,
    RequestError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from logstore.runtime import Signal
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns new configs, given the stored configs. Called with the controller's lock held."""


class Controller:
    """Decides on leaders and in-sync replicas. The class is thread-safe.

    Parameters
    ----------
    lock : context manager
        A lock that may be acquired while holding any other lock. While it is held, no other lock is
        acquired.
    is_unclean : callable
        Returns whether a topic allows unclean leader elections (`unclean.leader.election.enable`).
    remembered : iterable of ClusterTopic
        The stored topics.
    settings : mapping of str to str, optional
        The stored cluster-wide broker settings.
    groups : mapping of str to mapping, optional
        The stored group configs by group id.
    remember : callable, optional
        Stores topics, settings and groups after each change, before any broker applies the change.

    Attributes
    ----------
    settings : mapping of str to str, or None
        The dynamic cluster-wide broker settings by name, or None if they were never stored.
    groups : mapping of str to mapping
        The group configs by group id, without groups that have no configs.
    changes : int
        The number of changes so far. `topics` is unchanged while this number is.
    moved : Signal of TopicPartition
        Emitted when `alter_isr` completes a reassignment. The caller may hold a log's lock.
    racks : mapping of int to str
        The racks of the brokers. Empty if they have no racks.
    """

    def __init__(
        self,
        lock: AbstractContextManager[object],
        is_unclean: Callable[[str], bool],
        remembered: Iterable[ClusterTopic] = (),
        settings: Mapping[str, str] | None = None,
        groups: Mapping[str, Mapping[str, str]] | None = None,
        remember: Callable[
            [
                Collection[ClusterTopic],
                Mapping[str, str] | None,
                Mapping[str, Mapping[str, str]],
            ],
            object,
        ]
        | None = None,
    ) -> None:
        self._lock = lock
        self._is_unclean = is_unclean
        self._remember = remember
        self.settings = settings
        self.groups = groups or {}
        self.changes = 0
        self.racks: Mapping[int, str] = {}
        self._topics = {topic.name: _without_leaders(topic) for topic in remembered}
        self._alive: set[int] = set()
        self.moved: Signal[[TopicPartition]] = Signal("a completed reassignment")
        self._failed: set[tuple[int, TopicPartition]] = set()  # failed replicas of running brokers

    # -- state ---------------------------------------------------------------------------

    @property
    def alive(self) -> list[int]:
        """The ids of the running brokers, sorted."""
        with self._lock:
            return sorted(self._alive)

    def is_eligible(self, broker: int, topic_partition: TopicPartition) -> bool:
        """Return whether a broker is running and its replica has not failed."""
        return broker in self._alive and (broker, topic_partition) not in self._failed

    def topics(self) -> list[ClusterTopic]:
        """Return all topics, sorted by name."""
        with self._lock:
            return [self._topics[name] for name in sorted(self._topics)]

    def topic(self, name: str) -> ClusterTopic:
        """Return a topic.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        with self._lock:
            try:
                return self._topics[name]
            except KeyError:
                raise UnknownTopicOrPartitionError(f"unknown topic '{name}'") from None

    def state(self, topic_partition: TopicPartition) -> PartitionState:
        """Return the state of a partition. Raises the same errors as `topic`."""
        partitions = self.topic(topic_partition.topic).partitions
        if not 0 <= topic_partition.partition < len(partitions):
            raise UnknownTopicOrPartitionError(
                f"topic '{topic_partition.topic}' has no partition {topic_partition.partition}"
            )
        return partitions[topic_partition.partition]

    def states(self) -> list[PartitionState]:
        """Return the states of all partitions."""
        return [state for topic in self.topics() for state in topic.partitions]

    # -- topics --------------------------------------------------------------------------

    def assign(self, partitions: range, replication_factor: int) -> list[tuple[int, ...]]:
        """Assign the replicas of new partitions to running brokers.

        The brokers are ordered so that their racks alternate. The replicas of partition p are on
        consecutive brokers, starting at the p-th broker, the leader. Kafka's first broker is
        random.

        Raises
        ------
        InvalidReplicationFactorError
            Too few brokers are running.
        """
        alive = self.alive
        if not 1 <= replication_factor <= len(alive):
            raise InvalidReplicationFactorError(
                f"replication factor {replication_factor} exceeds the number of running brokers"
                f" ({len(alive)})"
            )
        order = _alternating(alive, self.racks)
        return [
            tuple(order[(number + rank) % len(order)] for rank in range(replication_factor))
            for number in partitions
        ]

    def add_topic(
        self,
        name: str,
        topic_id: str,
        configs: Mapping[str, str],
        assignment: Sequence[tuple[int, ...]],
    ) -> ClusterTopic:
        """Add a topic with a replica assignment.

        Raises
        ------
        TopicAlreadyExistsError
        """
        with self._lock:
            if name in self._topics:
                raise TopicAlreadyExistsError(f"topic '{name}' already exists")
            states = tuple(self._new_state(name, *each) for each in enumerate(assignment))
            topic = ClusterTopic(name, topic_id, len(assignment[0]), dict(configs), states)
            self._put(topic)
            return topic

    def add_partitions(self, name: str, assignment: Sequence[tuple[int, ...]]) -> ClusterTopic:
        """Add partitions to a topic."""
        with self._lock:
            topic = self.topic(name)
            added = enumerate(assignment, len(topic.partitions))
            states = (*topic.partitions, *(self._new_state(name, *each) for each in added))
            topic = replace(topic, partitions=states)
            self._put(topic)
            return topic

    def change_configs(self, name: str, change: ConfigChange) -> None:
        """Replace a topic's config overrides with the result of `change`."""
        with self._lock:
            topic = self.topic(name)
            self._put(replace(topic, configs=dict(change(topic.configs))))

    def remove_topic(self, name: str) -> ClusterTopic:
        """Remove a topic and return it."""
        with self._lock:
            topic = self.topic(name)
            with self._storing():
                self._topics = {each: self._topics[each] for each in self._topics if each != name}
            return topic

    def _put(self, *topics: ClusterTopic) -> None:
        """Add or replace topics. The caller must hold the lock."""
        with self._storing():
            self._topics = self._topics | {topic.name: topic for topic in topics}

    @contextmanager
    def _storing(self) -> Iterator[None]:
        """Store the changed state on exit. If that fails, restore the previous state."""
        previous = self._topics, self.settings, self.groups
        yield
        self.changes += 1
        try:
            if self._remember is not None:
                self._remember(self.topics(), self.settings, self.groups)
        except BaseException:
            self._topics, self.settings, self.groups = previous
            self.changes += 1
            raise

    def set_settings(self, settings: Mapping[str, str]) -> None:
        """Replace the cluster-wide broker settings."""
        with self._lock, self._storing():
            self.settings = dict(settings)

    def change_group_configs(self, group_id: str, change: ConfigChange) -> None:
        """Replace a group's configs with the result of `change`."""
        with self._lock:
            own = self.groups.get(group_id, {})
            configs = dict(change(own))
            if configs == own:
                return
            with self._storing():
                groups = {**self.groups, group_id: configs}
                if not configs:
                    del groups[group_id]
                self.groups = groups

    def _new_state(self, name: str, number: int, replicas: tuple[int, ...]) -> PartitionState:
        live = tuple(broker for broker in replicas if broker in self._alive)
        tp = TopicPartition(name, number)
        return PartitionState(tp, replicas, live[0], 0, live, 0)

    # -- brokers -------------------------------------------------------------------------

    def broker_started(self, broker: int) -> list[PartitionState]:
        """Add a running broker. Return the states of the partitions that it now leads."""
        with self._lock:
            self._alive.add(broker)
            self._failed = {each for each in self._failed if each[0] != broker}
            return self._change(
                self._led(state) for state in self.states() if state.leader == NO_LEADER
            )

    def broker_ended(self, broker: int) -> list[PartitionState]:
        """Remove a stopped broker from leaders and ISRs. Return the changed states."""
        with self._lock:
            self._alive.discard(broker)
            return self._change(
                self._without(state, broker) for state in self.states() if broker in state.isr
            )

    def replica_failed(self, broker: int, topic_partition: TopicPartition) -> list[PartitionState]:
        """Remove a replica whose disk has failed from the ISR. Return the changed states."""
        with self._lock:
            self._failed.add((broker, topic_partition))
            state = self.state(topic_partition)
            return self._change([self._without(state, broker)] if broker in state.isr else [])

    def _without(self, state: PartitionState, broker: int) -> PartitionState:
        isr = tuple(each for each in state.isr if each != broker) or state.isr
        state = replace(state, isr=isr)
        return state if state.leader != broker else self._led(state)

    def _led(self, state: PartitionState) -> PartitionState:
        """Elect the first live in-sync replica or, if the topic allows it, any live replica."""
        tp = state.topic_partition
        live = [broker for broker in state.replicas if self.is_eligible(broker, tp)]
        leader = next((each for each in live if each in state.isr), NO_LEADER)
        isr = state.isr
        if leader == NO_LEADER and live and self._is_unclean(tp.topic):
            leader = live[0]
            isr = (leader,)
        if leader == state.leader == NO_LEADER:
            return state
        return replace(state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)

    # -- elections -----------------------------------------------------------------------

    def elect(
        self, topic_partition: TopicPartition, to: int, *, unclean: bool = False
    ) -> list[PartitionState]:
        """Make the replica of broker `to` the leader. Return the changed states.

        Parameters
        ----------
        unclean : bool
            Whether to allow an out-of-sync replica, which then becomes the only in-sync replica.

        Raises
        ------
        RequestError
            The broker has no replica of the partition.
        LeaderNotAvailableError
            The broker is not running, its disk has failed, or its replica is not in sync.
        """
        with self._lock:
            state = self.state(topic_partition)
            if to not in state.replicas:
                raise RequestError(f"broker {to} has no replica of {topic_partition}")
            if not self.is_eligible(to, topic_partition):
                raise LeaderNotAvailableError(f"broker {to} is not running, or its disk has failed")
            isr = state.isr
            if to not in isr:
                if not unclean:
                    raise LeaderNotAvailableError(
                        f"broker {to} is not in sync with {topic_partition}; in-sync: {isr}"
                    )
                isr = (to,)
            if state.leader == to and isr == state.isr:
                return []
            epoch = state.leader_epoch + 1
            return self._change([replace(state, leader=to, leader_epoch=epoch, isr=isr)])

    def alter_isr(self, known: PartitionState, isr: Iterable[int]) -> PartitionState:
        """Change the in-sync replicas at the leader's request (Kafka's AlterPartition).

        Parameters
        ----------
        known : PartitionState
            The state known to the leader.

        Returns
        -------
        PartitionState
            The new state.

        Raises
        ------
        FencedLeaderEpochError
            The state known to the leader is outdated. Nothing was changed.
        """
        with self._lock:
            state = self.state(known.topic_partition)
            if state.partition_epoch != known.partition_epoch:
                raise FencedLeaderEpochError(
                    f"{known.topic_partition} has partition epoch {state.partition_epoch}, the"
                    f" leader knows {known.partition_epoch}"
                )
            tp = known.topic_partition
            wanted = {each for each in isr if self.is_eligible(each, tp)} | {state.leader}
            ordered = tuple(each for each in state.replicas if each in wanted)
            self._change([replace(state, isr=ordered)])
            new = self.state(tp)
        if state.is_moving and not new.is_moving:
            self.moved.emit(tp)
        return new

    # -- reassignments -------------------------------------------------------------------

    def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> tuple[list[PartitionState], dict[TopicPartition, LogStoreError]]:
        """Start or cancel partition reassignments.

        Replaced replicas are removed when all new replicas are in sync.

        Parameters
        ----------
        targets : mapping
            All replicas of each partition after its reassignment, preferred leader first. None
            cancels the reassignment.

        Returns
        -------
        states : list of PartitionState
            The changed states.
        errors : dict
            `NoReassignmentInProgressError` if no reassignment can be cancelled,
            `InvalidReplicaAssignmentError` if cancelling would require an unclean leader election,
            or `UnknownTopicOrPartitionError`. Partitions without an error are changed.
        """
        states: list[PartitionState] = []
        errors: dict[TopicPartition, LogStoreError] = {}
        with self._lock:
            for tp, replicas in targets.items():
                try:
                    state = self.state(tp)
                    states.append(
                        self._reverted(state) if replicas is None else _moving(state, replicas)
                    )
                except LogStoreError as error:
                    errors[tp] = error
            return self._change(states), errors

    def _reverted(self, state: PartitionState) -> PartitionState:
        tp = state.topic_partition
        if not state.is_moving:
            raise NoReassignmentInProgressError(f"{tp} is not being reassigned")
        replicas = tuple(each for each in state.replicas if each not in state.adding)
        isr = tuple(each for each in state.isr if each in replicas)
        if not isr and not self._is_unclean(tp.topic):
            raise InvalidReplicaAssignmentError(
                "Cannot revert partition reassignment because it would require an unclean leader"
                " election."
            )
        return self._ended(state, replicas, isr or replicas)

    def _completed(self, state: PartitionState) -> PartitionState:
        """Remove the replaced replicas if all added replicas are in sync.

        If the number of replicas decreases, all remaining replicas must be in sync.
        Source: Kafka's PartitionReassignmentReplicas.
        """
        if not state.is_moving:
            return state
        replicas = tuple(each for each in state.replicas if each not in state.removing)
        isr = tuple(each for each in state.isr if each in replicas)
        needed = replicas if len(state.adding) < len(state.removing) else state.adding
        if not set(needed) <= set(isr):
            return state
        if not state.removing:
            return replace(state, adding=())
        return self._ended(state, replicas, isr)

    def _ended(
        self, state: PartitionState, replicas: tuple[int, ...], isr: tuple[int, ...]
    ) -> PartitionState:
        """Return a state without a reassignment, electing a new leader if necessary.

        If the leader changed or replicas were removed, the leader epoch is incremented.
        """
        tp, leader = state.topic_partition, state.leader
        if leader not in isr:
            live = [each for each in replicas if each in isr and self.is_eligible(each, tp)]
            leader = live[0] if live else NO_LEADER
        is_new = leader != state.leader or len(replicas) < len(state.replicas)
        return replace(
            state,
            replicas=replicas,
            isr=isr,
            leader=leader,
            leader_epoch=state.leader_epoch + is_new,
            adding=(),
            removing=(),
        )

    def _change(self, states: Iterable[PartitionState]) -> list[PartitionState]:
        """Apply new states. Return the states that changed."""
        changed = []
        of_topics: dict[str, list[PartitionState]] = {}
        for state in list(states):
            tp = state.topic_partition
            if state == self.state(tp):
                continue
            done = self._completed(state)
            new = replace(done, partition_epoch=state.partition_epoch + 1)
            if tp.topic not in of_topics:
                of_topics[tp.topic] = list(self._topics[tp.topic].partitions)
            of_topics[tp.topic][tp.partition] = new
            changed.append(new)
        if changed:
            self._put(
                *(
                    replace(self._topics[name], partitions=tuple(partitions))
                    for name, partitions in of_topics.items()
                )
            )
        return changed


def _moving(state: PartitionState, replicas: Sequence[int]) -> PartitionState:
    """Return a state that begins a reassignment to the given replicas.

    If it replaces a reassignment and adds no replicas, it waits for the remaining replicas that the
    earlier reassignment added. Kafka also waits for replicas that are no longer wanted, and might
    wait forever.
    """
    before, target = set(state.replicas), set(replicas)
    adding = target - before or target & set(state.adding)
    removing = sorted(before - target)
    merged = (*replicas, *removing)
    return replace(
        state,
        replicas=merged,
        adding=tuple(sorted(adding)),
        removing=tuple(removing),
        isr=tuple(each for each in merged if each in state.isr),
    )


def _alternating(brokers: Sequence[int], racks: Mapping[int, str]) -> Sequence[int]:
    """Return brokers in an order in which their racks alternate."""
    if not racks:
        return brokers
    of_rack: dict[str, list[int]] = {}
    for broker in brokers:
        of_rack.setdefault(racks[broker], []).append(broker)
    rows = zip_longest(*of_rack.values())
    return [broker for row in rows for broker in row if broker is not None]


def _without_leaders(topic: ClusterTopic) -> ClusterTopic:
    """Return a topic without leaders, as it is while no broker is running."""
    states = tuple(replace(state, leader=NO_LEADER) for state in topic.partitions)
    return replace(topic, partitions=states)
