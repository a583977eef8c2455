"""The services of a log manager, the events that they follow, and holds on partitions.

A service works on the logs in the background: housekeeping, the transaction coordinator, the
cleaner and its pool. The manager owns, starts and stops the services.
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
    """The events of one manager's logs.

    All except `topic_deleted` and `log_changed` are emitted under the manager's lock.

    Attributes
    ----------
    partition_added, partition_removed : Signal of TopicPartition
        A partition was created or deleted.
    topic_deleted : Signal
        The partitions of a topic were deleted. Emitted without the manager's lock.
    partition_moved : Signal of TopicPartition, str
        A partition was moved to another data directory. It is held.
    config_changed : Signal of str
        A topic's effective configuration may have changed.
    reconfigured : Signal of BrokerConfig
        Other broker settings, already validated, are effective.
    log_changed : Signal
        A log was opened (under the manager's lock) or has changed (`LocalLog.changed`, under that
        log's lock). Emitted often.
    """

    def __init__(self) -> None:
        self.partition_added: Signal[[TopicPartition]] = Signal("a new partition")
        self.partition_removed: Signal[[TopicPartition]] = Signal("a deleted partition")
        self.topic_deleted: Signal[[]] = Signal("a deleted topic")
        self.partition_moved: Signal[[TopicPartition, str]] = Signal("a partition that moved")
        self.config_changed: Signal[[str]] = Signal("a topic's other configuration")
        self.reconfigured: Signal[[BrokerConfig]] = Signal("other broker settings")
        self.log_changed: Signal[[]] = Signal("a change of any log")


class LogService(Protocol):
    """A service of a log manager."""

    def follow(self, events: LogEvents) -> Iterable[Unsubscribe]:
        """Subscribe to events. The returned functions are called after the services are stopped."""

    def start(self) -> None:
        """Start. The runtime's scheduler is running."""

    def stop(self) -> None:
        """Stop, and return when no work of the service runs."""


class PartitionHolder(Protocol):
    """A worker on partitions that releases a partition before it is truncated, moved or deleted."""

    def pause(self, topic_partition: TopicPartition) -> None:
        """Release a partition, and do not use it until `resume`."""

    def check_pausable(self, topic_partition: TopicPartition) -> None:
        """Raise `IllegalStateError` if `pause` would wait for the calling thread."""

    def try_pause(self, topic_partition: TopicPartition) -> bool:
        """Do not use a partition until `resume`, and return False, at once, if it is in use."""

    def resume(self, topic_partition: TopicPartition) -> None:
        """Undo one `pause`. This is not called for a deleted partition."""


class LogServices:
    """The services of one manager, and its partition holders.

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
        """Add a holder that must release partitions."""
        self._holders.append(holder)

    def stop(self) -> None:
        """Stop all services in reverse order, and remove them and the holders."""
        for service in reversed(self._services):
            service.stop()
        for unsubscribe in self._subscriptions:
            unsubscribe()
        self._services.clear()
        self._subscriptions.clear()
        self._holders.clear()

    def pause(self, topic_partition: TopicPartition) -> None:
        """Make every holder release a partition that is about to be deleted."""
        for holder in self._holders:
            holder.pause(topic_partition)

    def check_pausable(self, topic_partition: TopicPartition) -> None:
        """Raise `IllegalStateError` if a holder would wait for the calling thread."""
        for holder in self._holders:
            holder.check_pausable(topic_partition)

    @contextmanager
    def paused_if_idle(self, topic_partition: TopicPartition) -> Iterator[bool]:
        """Pause every holder of a partition, unless one is using it; yield whether it is paused."""
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
        """Pause every holder of a partition."""
        done: list[PartitionHolder] = []
        try:
            for holder in self._holders:
                holder.pause(topic_partition)
                done.append(holder)
            yield
        finally:
            for holder in reversed(done):
                holder.resume(topic_partition)
