"""What works on the logs besides those who append and read: the interface, and who tells it.

The log manager owns its services and tells them what changes. Housekeeping is one, the cleaner
another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig


class LogService:
    """Something that works on the logs of a manager; each method does nothing unless overridden."""

    def start(self) -> None:
        """Begin; the scheduler of the runtime runs."""

    def stop(self) -> None:
        """End; nothing of it runs afterwards."""

    def partition_added(self, topic_partition: TopicPartition) -> None:
        """Hear of a new partition."""

    def partition_removed(self, topic_partition: TopicPartition) -> None:
        """Hear that a partition was deleted."""

    def partition_moved(self, topic_partition: TopicPartition, log_dir: str) -> None:
        """Hear that a partition, paused, lives in another data directory from now on."""

    def pause(self, topic_partition: TopicPartition) -> None:
        """Let go of a partition, and keep away from it: it is about to be cut, moved or deleted."""

    def resume(self, topic_partition: TopicPartition) -> None:
        """Take back one `pause`; not called for a partition that was deleted."""

    def try_pause(self, topic_partition: TopicPartition) -> bool:
        """Keep away from a partition until `resume`; False, at once, if it is being worked on."""
        return True

    def config_changed(self, topic: str) -> None:
        """Hear that a topic's effective configuration may have changed."""

    def reconfigure(self, config: BrokerConfig) -> None:
        """Obey other broker settings, which were checked, from now on."""

    def log_changed(self) -> None:
        """Hear that some log was opened, appended to, rolled, flushed or cut; often: be quick."""


class LogServices:
    """The services of one manager; what one is told, all are, in the order they came."""

    def __init__(self) -> None:
        self._services: list[LogService] = []

    def add(self, service: LogService) -> None:
        """Tell a service too from now on."""
        self._services.append(service)

    def stop(self) -> None:
        """Stop all services, the last first, and forget them."""
        for service in reversed(self._services):
            service.stop()
        self._services.clear()

    def partition_added(self, topic_partition: TopicPartition) -> None:
        """Tell of a new partition."""
        for service in self._services:
            service.partition_added(topic_partition)

    def partition_removed(self, topic_partition: TopicPartition) -> None:
        """Tell of a deleted partition."""
        for service in self._services:
            service.partition_removed(topic_partition)

    def partition_moved(self, topic_partition: TopicPartition, log_dir: str) -> None:
        """Tell of a partition that moved."""
        for service in self._services:
            service.partition_moved(topic_partition, log_dir)

    def config_changed(self, topic: str) -> None:
        """Tell of another configuration."""
        for service in self._services:
            service.config_changed(topic)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Tell of other broker settings."""
        for service in self._services:
            service.reconfigure(config)

    def log_changed(self) -> None:
        """Tell of an opening, an append, a roll, a flush or a cut; quick."""
        for service in self._services:
            service.log_changed()

    def pause(self, topic_partition: TopicPartition) -> None:
        """Let every service let go of a partition that is about to be deleted."""
        for service in self._services:
            service.pause(topic_partition)

    @contextmanager
    def paused_if_idle(self, topic_partition: TopicPartition) -> Iterator[bool]:
        """Keep every service away from a partition, unless one of them is at work on it."""
        done: list[LogService] = []
        try:
            for service in self._services:
                if not service.try_pause(topic_partition):
                    yield False
                    return
                done.append(service)
            yield True
        finally:
            for service in reversed(done):
                service.resume(topic_partition)

    @contextmanager
    def paused(self, topic_partition: TopicPartition) -> Iterator[None]:
        """Keep every service away from a partition."""
        done: list[LogService] = []
        try:
            for service in self._services:
                service.pause(topic_partition)
                done.append(service)
            yield
        finally:
            for service in reversed(done):
                service.resume(topic_partition)
