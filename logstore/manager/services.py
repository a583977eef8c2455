"""The services of a log manager, the events that they follow, and the holds on partitions.

A service works on the logs besides those who append and read: housekeeping is one, the transaction
coordinator, the cleaner and its pool are others. The manager owns them, starts and stops them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from logstore.runtime import Signal

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.runtime import Unsubscribe
    from logstore.types import TopicPartition


class LogEvents:
    """The events of the logs of one manager.

    All but `log_changed` come under the manager's lock.

    Attributes
    ----------
    partition_added, partition_removed : Signal of TopicPartition
        A partition is new here, or was deleted.
    partition_moved : Signal of TopicPartition, str
        A partition, held, lives in another data directory from now on.
    config_changed : Signal of str
        A topic's effective configuration may have changed.
    reconfigured : Signal of BrokerConfig
        Other broker settings, which were checked, are in force.
    log_changed : Signal
        Some log was opened (under the manager's lock), or has changed (`LocalLog.changed`, under
        that log's lock); often.
    """

    def __init__(self) -> None:
        self.partition_added: Signal[[TopicPartition]] = Signal("a new partition")
        self.partition_removed: Signal[[TopicPartition]] = Signal("a deleted partition")
        self.partition_moved: Signal[[TopicPartition, str]] = Signal("a partition that moved")
        self.config_changed: Signal[[str]] = Signal("a topic's other configuration")
        self.reconfigured: Signal[[BrokerConfig]] = Signal("other broker settings")
        self.log_changed: Signal[[]] = Signal("a change of any log")


class LogService(Protocol):
    """A service of a log manager."""

    def follow(self, events: LogEvents) -> Iterable[Unsubscribe]:
        """Subscribe to events; what is returned is called once the services are stopped."""

    def start(self) -> None:
        """Begin; the scheduler of the runtime runs."""

    def stop(self) -> None:
        """End; nothing of it runs afterwards."""


class PartitionHolder(Protocol):
    """Somebody who works on partitions, and lets go of one that is to be cut, moved or deleted."""

    def pause(self, topic_partition: TopicPartition) -> None:
        """Release a partition, and leave it alone until `resume`."""

    def check_pausable(self, topic_partition: TopicPartition) -> None:
        """Raise `IllegalStateError` if `pause` would wait for the thread that calls it."""

    def try_pause(self, topic_partition: TopicPartition) -> bool:
        """Keep away from a partition until `resume`; False, at once, if it is being worked on."""

    def resume(self, topic_partition: TopicPartition) -> None:
        """Undo one `pause`; not called for a partition that was deleted."""


class LogServices:
    """The services of one manager, and its holders of partitions.

    Attributes
    ----------
    events : LogEvents
        Emitted by the manager and its parts.
    """

    def __init__(self) -> None:
        self.events = LogEvents()
        self._services: list[LogService] = []
        self._subscriptions: list[Unsubscribe] = []
        self._holders: list[PartitionHolder] = []

    def add(self, service: LogService) -> None:
        """Subscribe a service to the events."""
        self._services.append(service)
        self._subscriptions.extend(service.follow(self.events))

    def add_holder(self, holder: PartitionHolder) -> None:
        """Ask a holder too, from now on, before somebody else gets a partition."""
        self._holders.append(holder)

    def stop(self) -> None:
        """Stop all services, the last first; then they and the holders are forgotten."""
        for service in reversed(self._services):
            service.stop()
        for unsubscribe in self._subscriptions:
            unsubscribe()
        self._services.clear()
        self._subscriptions.clear()
        self._holders.clear()

    def pause(self, topic_partition: TopicPartition) -> None:
        """Ask every holder to release a partition that is about to be deleted."""
        for holder in self._holders:
            holder.pause(topic_partition)

    def check_pausable(self, topic_partition: TopicPartition) -> None:
        """Raise `IllegalStateError` if a holder would wait for the thread that calls this."""
        for holder in self._holders:
            holder.check_pausable(topic_partition)

    @contextmanager
    def paused_if_idle(self, topic_partition: TopicPartition) -> Iterator[bool]:
        """Keep every holder away from a partition, unless one of them is at work on it."""
        done: list[PartitionHolder] = []
        try:
            for holder in self._holders:
                if not holder.try_pause(topic_partition):
                    yield False
                    return
                done.append(holder)
            yield True
        finally:
            for holder in reversed(done):
                holder.resume(topic_partition)

    @contextmanager
    def paused(self, topic_partition: TopicPartition) -> Iterator[None]:
        """Keep every holder away from a partition."""
        done: list[PartitionHolder] = []
        try:
            for holder in self._holders:
                holder.pause(topic_partition)
                done.append(holder)
            yield
        finally:
            for holder in reversed(done):
                holder.resume(topic_partition)
