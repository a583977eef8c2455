"""A broker's place in its cluster: what its leaders and followers need of the world.

That is who they are, the settings, the controller, messages to other brokers, and tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from logstore.runtime import Signal

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.cluster.controller import Controller
    from logstore.cluster.messages import EpochRequest, EpochResponse, FetchRequest, FetchResponse
    from logstore.cluster.network import Network
    from logstore.runtime import Clock, ScheduledTask, Scheduler
    from logstore.types import TopicPartition


class Receiver(Protocol):
    """A broker, as messages of others reach it; see `Replicas`."""

    @property
    def is_over(self) -> bool:
        """Whether its process has ended: messages are lost."""

    def on_fetch(self, topic_partition: TopicPartition, request: FetchRequest) -> None:
        """Answer a follower, or tell it that this broker does not lead."""

    def on_epoch(self, topic_partition: TopicPartition, request: EpochRequest) -> None:
        """Answer a follower, or tell it that this broker does not lead."""

    def on_fetch_response(self, topic_partition: TopicPartition, answer: FetchResponse) -> None:
        """Take a leader's answer, if this broker still follows."""

    def on_epoch_response(self, topic_partition: TopicPartition, answer: EpochResponse) -> None:
        """Take a leader's answer, if this broker still follows."""


class Station(ABC):
    """One process of one broker.

    Parameters
    ----------
    broker_id : int
    broker : Broker
        Opened with `replicated`.
    controller : Controller
    network : Network
    clock : Clock
        Whose monotonic time all brokers share.
    scheduler : Scheduler
        The cluster's, started.
    peer : callable
        Gives a broker that runs, None for one that does not.

    Attributes
    ----------
    progress : Signal of TopicPartition
        Something that requests wait for may have come about: a follower fetched, the in-sync
        replicas are others, the role is another. (The high watermark is the log's to tell.) Told in
        any thread, maybe under the log's lock.
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

    def monotonic_ms(self) -> int:
        """Return the monotonic time that all brokers share."""
        return self._clock.monotonic_ms()

    def send(self, target: int, name: str, call: Callable[[Receiver], None]) -> None:
        """Let something be called at another broker, if it runs; see `Network.send`."""
        peer = self._peer(target)
        if peer is None or self.is_over:
            return

        def deliver() -> None:
            if not peer.is_over:
                call(peer)

        self.network.send(self.broker_id, target, f"{name}-{self.broker_id}-{target}", deliver)

    @abstractmethod
    def keeping_role(self, topic_partition: TopicPartition) -> AbstractContextManager[None]:
        """Let a replica be what it is, inside; what the controller says meanwhile is done after."""

    def soon(self, name: str, action: Callable[[], None]) -> None:
        """Do something as a task of its own, once whoever is at work is done."""
        self.later(name, action, 0)

    def later(self, name: str, action: Callable[[], None], delay_ms: int) -> ScheduledTask:
        """Do something after a delay, unless the broker has ended by then."""

        def run() -> None:
            if not self.is_over:
                action()

        return self._scheduler.schedule(f"{name}-{self.broker_id}", run, delay_ms=delay_ms)
