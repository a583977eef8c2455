"""The services of a log manager, their events, and pauses of partitions.

A service works on the logs in the background, for example housekeeping, the transaction
coordinator, the cleaner and its pool. The manager owns, starts and stops its services.
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
    """The events of a manager's logs.

    All events except `topic_deleted` and `log_changed` are emitted under the manager's lock.

    Attributes
    ----------
    partition_added, partition_removed : Signal of TopicPartition
        A partition was created or deleted.
    topic_deleted : Signal
        The partitions of a topic were deleted. Emitted without the manager's lock.
    partition_moved : Signal of TopicPartition, str
        A partition was moved to another data directory. It is paused while this is emitted.
    config_changed : Signal of str
        A topic's effective configuration may have changed.
    reconfigured : Signal of BrokerConfig
        Broker settings changed. They are validated and in effect.
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
        """Subscribe to events. The returned functions are called after all services stop."""

    def start(self) -> None:
        """Start the service. The runtime's scheduler is already running."""

    def stop(self) -> None:
        """Stop the service, and return when none of its work is running."""


class PartitionHolder(Protocol):
    """A user of partitions that releases them before they are truncated, moved or deleted."""

    def pause(self, topic_partition: TopicPartition) -> None:
        """Release a partition and do not use it until `resume`."""

    def check_pausable(self, topic_partition: TopicPartition) -> None:
        """Raise `IllegalStateError` if `pause` would wait for the calling thread."""

    def try_pause(self, topic_partition: TopicPartition) -> bool:
        """Pause a partition if it is not in use. Otherwise return False immediately."""

    def resume(self, topic_partition: TopicPartition) -> None:
        """Undo a `pause`. This is not called for a deleted partition."""


class LogServices:
    """The services of a manager, and its partition holders.

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
        """Add a holder that releases partitions on request."""
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
        """Make every holder release a partition that will be deleted."""
        for holder in self._holders:
            holder.pause(topic_partition)

    def check_pausable(self, topic_partition: TopicPartition) -> None:
        """Raise `IllegalStateError` if a holder would wait for the calling thread."""
        for holder in self._holders:
            holder.check_pausable(topic_partition)

    @contextmanager
    def paused_if_idle(self, topic_partition: TopicPartition) -> Iterator[bool]:
        """Pause every holder of a partition, unless it is in use. Yield whether it is paused."""
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
        """Pause every holder of a partition for the duration of the context."""
        done: list[PartitionHolder] = []
        try:
            for holder in self._holders:
                holder.pause(topic_partition)
                done.append(holder)
            yield
        finally:
            for holder in reversed(done):
                holder.resume(topic_partition)
