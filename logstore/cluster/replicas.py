"""The replicas of a broker, each of which is a leader or a follower (Kafka's ReplicaManager).

A `Replicas` exists as long as the broker's process. A restarted broker gets a new instance, and
messages for the old instance are lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from logstore.cluster.broker_process import BrokerProcess
from logstore.cluster.leadership import Leadership
from logstore.cluster.markers import MarkerChannel
from logstore.cluster.messages import EpochRequest, EpochResponse, FetchRequest, FetchResponse
from logstore.cluster.replica_fetcher import ReplicaFetcher
from logstore.cluster.requests import Completion, DelayedProduce
from logstore.coordinator.markers import write_markers
from logstore.errors import LogStoreError, NotLeaderForPartitionError
from logstore.runtime import Signal
from logstore.storage.log.epochs import LeaderEpochCache

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.cluster.broker_process import Receiver
    from logstore.cluster.controller import Controller
    from logstore.cluster.network import Network
    from logstore.cluster.states import PartitionState
    from logstore.coordinator.markers import MarkerErrors
    from logstore.messages.types import WriteTxnMarkersRequest
    from logstore.runtime import Clock, Scheduler
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

_NOT_LEADER = NotLeaderForPartitionError.kafka_error

MARKER_TIMEOUT_MS = 30_000
"""How long a marker may await replication (a broker's `request.timeout.ms`)."""

Role = Leadership | ReplicaFetcher


class Replicas(BrokerProcess):
    """All replicas of a broker. The parameters are documented in `BrokerProcess`.

    Attributes
    ----------
    failed : Signal of TopicPartition
        Emitted in a separate task when a replica's disk has failed.
    markers : MarkerChannel
        The requests of this broker's transaction coordinator.
    """

    def __init__(
        self,
        broker_id: int,
        broker: Broker,
        controller: Controller,
        network: Network,
        clock: Clock,
        scheduler: Scheduler,
        peer: Callable[[int], Receiver | None],
    ) -> None:
        super().__init__(broker_id, broker, controller, network, clock, scheduler, peer)
        self._roles: dict[TopicPartition, Role] = {}
        # Held while roles change or a log is truncated. It is acquired before a log's lock.
        self._changing = self.manager.runtime.lock()
        self._kept: set[TopicPartition] = set()
        self._postponed: dict[TopicPartition, PartitionState] = {}
        self.failed: Signal[[TopicPartition]] = Signal("a replica whose disk failed")
        self.markers = MarkerChannel(self)
        self._unsubscribe = network.healed.subscribe(self._resume_fetching)

    def role(self, topic_partition: TopicPartition) -> Role | None:
        """Return the broker's role in a partition, or None if it has no replica."""
        return self._roles.get(topic_partition)

    def roles(self) -> list[Role]:
        """Return the roles of all replicas."""
        return list(self._roles.values())

    def leadership(self, topic_partition: TopicPartition) -> Leadership:
        """Return the leader role of a partition.

        Raises
        ------
        NotLeaderForPartitionError
            The broker is not the leader of the partition, or has stopped.
        """
        role = self._roles.get(topic_partition)
        if self.is_over or not isinstance(role, Leadership):
            raise NotLeaderForPartitionError(
                f"broker {self.broker_id} is not the leader of {topic_partition}"
            )
        return role

    # -- appends at the leader -----------------------------------------------------------

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return the log of a partition. Raises the same errors as `leadership`."""
        return self.leadership(topic_partition).log

    def check_append(self, topic_partition: TopicPartition) -> Leadership:
        """Return the leader role if enough replicas are in sync for an append with acks=all.

        Raises `NotEnoughReplicasError` if fewer than `min.insync.replicas` are in sync, and the
        errors of `leadership`.
        """
        leadership = self.leadership(topic_partition)
        leadership.check_enough()
        return leadership

    def delayed_append(
        self, topic_partition: TopicPartition, last_offset: int, role: object
    ) -> DelayedProduce:
        """Return an operation that waits until an offset is replicated.

        Parameters
        ----------
        role : object
            The result of `check_append` before the append.
        """
        return DelayedProduce(self, topic_partition, last_offset, role)

    # -- roles ---------------------------------------------------------------------------

    def store_epochs(self, states: Iterable[PartitionState]) -> None:
        """Store new leaders' epochs in one batch, because `apply` fsyncs them one at a time."""
        with self._changing:
            new = [
                state
                for state in states
                if state.leader == self.broker_id and state.topic_partition not in self._roles
            ]
            caches = []
            for state in new:
                with suppress(LogStoreError):  # `apply` reports the error
                    log = self.manager.log(state.topic_partition)
                    log.epochs.assign(state.leader_epoch, log.log_end_offset, flush=False)
                    caches.append(log.epochs)
            with suppress(OSError):  # `apply` tries again
                LeaderEpochCache.flush_all(self.manager.runtime, caches)

    def apply(self, states: Iterable[PartitionState]) -> None:
        """Apply the controller's states, unless newer states are known."""
        for state in states:
            if self.broker_id in state.replicas and not self.is_over:
                with self._changing:
                    self._apply_or_postpone(state)

    def _apply_or_postpone(self, state: PartitionState) -> None:
        tp = state.topic_partition
        if tp in self._kept:  # this thread has pinned the role and is waiting for a cleaner
            self._postponed[tp] = state
            return
        try:
            self._apply(state)
        except LogStoreError as error:
            logger.warning("%s has no replica on this broker: %s", tp, error)

    @contextmanager
    def keeping_role(self, topic_partition: TopicPartition) -> Iterator[None]:
        """Pin the role of a replica. States that arrive in the meantime are applied on exit."""
        with self._changing:
            self._kept.add(topic_partition)
            try:
                yield
            finally:
                self._kept.discard(topic_partition)
                state = self._postponed.pop(topic_partition, None)
                if state is not None:
                    self._apply_or_postpone(state)

    def _apply(self, state: PartitionState) -> None:
        tp = state.topic_partition
        log = self.manager.log(tp)
        with log.lock:
            old = self._roles.get(tp)
            if old is not None:
                if old.state.partition_epoch >= state.partition_epoch:
                    return
                if old.state.leader_epoch == state.leader_epoch:
                    if isinstance(old, Leadership):
                        old.update(state)
                    else:
                        old.state = state
                    return
                old.end()
            else:
                log.went_offline.subscribe(partial(self._on_offline, tp))
            kind = Leadership if state.leader == self.broker_id else ReplicaFetcher
            role = self._roles[tp] = kind(self, log, state)
            role.begin()
        self.progress.emit(tp)
        if isinstance(role, ReplicaFetcher):
            role.send_next_request()

    def forget(self, topic_partition: TopicPartition) -> None:
        """Remove a replica that is being deleted."""
        role = self._roles.pop(topic_partition, None)
        if role is not None:
            with role.log.lock:
                role.end()
            self.progress.emit(topic_partition)

    def stop(self) -> None:
        """Stop sending and receiving messages, because the broker is stopping."""
        self.is_over = True
        self._unsubscribe()
        for tp in list(self._roles):
            self.progress.emit(tp)

    def _on_offline(self, topic_partition: TopicPartition, _: str) -> None:
        self.call_soon("handle-log-dir-failure", partial(self.failed.emit, topic_partition))

    def _resume_fetching(self) -> None:
        self.markers.give_up()  # the coordinator resends them
        for role in self.roles():
            if isinstance(role, ReplicaFetcher):
                role.send_next_request()

    # -- messages ------------------------------------------------------------------------

    def on_fetch(self, topic_partition: TopicPartition, request: FetchRequest) -> None:
        """Respond to a follower, with an error if this broker is not the leader."""
        role = self._roles.get(topic_partition)
        if isinstance(role, Leadership):
            role.on_fetch(request)
            return
        answer = FetchResponse(request.number, _NOT_LEADER)
        self.send(
            request.replica,
            "Fetch-response",
            lambda peer: peer.on_fetch_response(topic_partition, answer),
        )

    def on_epoch(self, topic_partition: TopicPartition, request: EpochRequest) -> None:
        """Respond to a follower, with an error if this broker is not the leader."""
        role = self._roles.get(topic_partition)
        if isinstance(role, Leadership):
            role.on_epoch(request)
            return
        answer = EpochResponse(request.number, _NOT_LEADER)
        self.send(
            request.replica,
            "OffsetForLeaderEpoch-response",
            lambda peer: peer.on_epoch_response(topic_partition, answer),
        )

    def on_fetch_response(self, topic_partition: TopicPartition, answer: FetchResponse) -> None:
        """Handle a response from the leader if this broker is still a follower."""
        role = self._roles.get(topic_partition)
        if isinstance(role, ReplicaFetcher):
            role.on_fetch_response(answer)

    def on_epoch_response(self, topic_partition: TopicPartition, answer: EpochResponse) -> None:
        """Handle a response from the leader if this broker is still a follower."""
        role = self._roles.get(topic_partition)
        if isinstance(role, ReplicaFetcher):
            role.on_epoch_response(answer)

    def on_markers(self, source: int, number: int, request: WriteTxnMarkersRequest) -> None:
        """Write markers to partitions that this broker leads. Respond when they are replicated."""
        errors, delayed = write_markers(request, self)

        def respond() -> None:
            for (producer_id, tp), each in delayed.items():
                errors[producer_id][tp] = None if each.error is None else each.error.kafka_error
            self.send(
                source,
                "WriteTxnMarkers-response",
                lambda peer: peer.on_markers_response(number, errors),
            )

        Completion(
            self._scheduler,
            self.manager.runtime.lock(),
            list(delayed.values()),
            respond,
            MARKER_TIMEOUT_MS,
        )

    def on_markers_response(self, number: int, errors: MarkerErrors) -> None:
        """Handle a leader's response to a request of this broker's coordinator."""
        self.markers.on_response(number, errors)
