"""The interface through which leaders and followers use their broker and the cluster.

It provides the broker id, settings, the controller, messages to other brokers, and tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from logstore.cluster.throttles import ReplicationQuota
from logstore.runtime import Signal

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.cluster.controller import Controller
    from logstore.cluster.messages import EpochRequest, EpochResponse, FetchRequest, FetchResponse
    from logstore.cluster.network import Network
    from logstore.config.broker_config import BrokerConfig
    from logstore.coordinator.markers import MarkerErrors
    from logstore.messages.types import WriteTxnMarkersRequest
    from logstore.runtime import Clock, ScheduledTask, Scheduler
    from logstore.types import TopicPartition


class Receiver(Protocol):
    """A receiver of messages from other brokers; see `Replicas`."""

    @property
    def is_over(self) -> bool:
        """Whether the broker has stopped, so that messages are lost."""

    def on_fetch(self, topic_partition: TopicPartition, request: FetchRequest) -> None:
        """Respond to a follower, with an error if this broker is not the leader."""

    def on_epoch(self, topic_partition: TopicPartition, request: EpochRequest) -> None:
        """Respond to a follower, with an error if this broker is not the leader."""

    def on_fetch_response(self, topic_partition: TopicPartition, answer: FetchResponse) -> None:
        """Handle a response from the leader if this broker is still a follower."""

    def on_epoch_response(self, topic_partition: TopicPartition, answer: EpochResponse) -> None:
        """Handle a response from the leader if this broker is still a follower."""

    def on_markers(self, source: int, number: int, request: WriteTxnMarkersRequest) -> None:
        """Write markers to partitions that this broker leads. Respond when they are replicated."""

    def on_markers_response(self, number: int, errors: MarkerErrors) -> None:
        """Handle a leader's response to a request of this broker's coordinator."""


class BrokerProcess(ABC):
    """The process of a broker in a cluster.

    Parameters
    ----------
    broker_id : int
    broker : Broker
        A broker that was opened with a `host`.
    controller : Controller
    network : Network
    clock : Clock
        The clock whose monotonic time all brokers share.
    scheduler : Scheduler
        The cluster's scheduler, which must be started.
    peer : callable
        Returns the running broker with an id, or None if it is not running.

    Attributes
    ----------
    leader_quota, follower_quota : ReplicationQuota
    progress : Signal of TopicPartition
        Emitted when waiting requests may be able to complete, because a follower has fetched, or
        the ISR or a role has changed. The log itself signals changes of the high watermark. The
        emitter may be any thread and may hold the log's lock.
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
        self.broker_id = broker_id
        self.manager = broker.manager
        self.controller = controller
        self.network = network
        self._clock = clock
        self._scheduler = scheduler
        self._peer = peer
        self.is_over = False
        config = broker.broker_config
        self.lag_max_ms = config.replica_lag_time_max_ms
        self.fetch_max_bytes = config.replica_fetch_max_bytes
        self.backoff_ms = config.replica_fetch_backoff_ms
        self.progress: Signal[[TopicPartition]] = Signal("progress of replicas")

        def current_config() -> BrokerConfig:
            return self.manager.broker_config

        quota = partial(
            ReplicationQuota,
            controller=controller,
            config=current_config,
            monotonic_ms=clock.monotonic_ms,
        )
        self.leader_quota = quota("leader")
        self.follower_quota = quota("follower")

    def monotonic_ms(self) -> int:
        """Return the monotonic time, which all brokers share."""
        return self._clock.monotonic_ms()

    def send(self, target: int, name: str, call: Callable[[Receiver], None]) -> Receiver | None:
        """Schedule a call on another broker if it is running; see `Network.send`.

        If either broker stops before the message arrives, the message is lost. The fetch of a
        follower that has restarted since must not count, because the follower may have lost the
        records that the fetch acknowledged (KIP-903).

        Return the receiver, or None if it is not running.
        """
        peer = self._peer(target)
        if peer is None or self.is_over:
            return None

        def deliver() -> None:
            if not (self.is_over or peer.is_over):
                call(peer)

        self.network.send(self.broker_id, target, f"{name}-{self.broker_id}-{target}", deliver)
        return peer

    @abstractmethod
    def keeping_role(self, topic_partition: TopicPartition) -> AbstractContextManager[None]:
        """Pin the role of a replica. States that arrive in the meantime are applied on exit."""

    def call_soon(self, name: str, action: Callable[[], None]) -> None:
        """Run an action in a separate task as soon as possible."""
        self.call_later(name, action, 0)

    def call_later(self, name: str, action: Callable[[], None], delay_ms: int) -> ScheduledTask:
        """Run an action after a delay, unless the broker has stopped by then."""

        def run() -> None:
            if not self.is_over:
                action()

        return self._scheduler.schedule(f"{name}-{self.broker_id}", run, delay_ms=delay_ms)
