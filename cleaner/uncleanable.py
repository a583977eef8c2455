"""Uncleanable partitions, which are not cleaned because a pass failed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from logstore.errors import LogStoreError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from logstore.manager.directories.directory import LogDirectory
    from logstore.runtime import Clock
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)


class UncleanablePartition(NamedTuple):
    """A partition that is no longer cleaned, and the reason.

    Attributes
    ----------
    log_dir : str
        Data directory.
    reason : str
        Error message.
    since_ms : int
        Time of the failure, in Unix milliseconds.
    """

    topic_partition: TopicPartition
    log_dir: str
    reason: str
    since_ms: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object for the page."""
        topic, partition = self.topic_partition
        return {
            "topic": topic,
            "partition": partition,
            "log_dir": self.log_dir,
            "reason": self.reason,
            "since_ms": self.since_ms,
        }

    @classmethod
    def because_of(
        cls, error: Exception, topic_partition: TopicPartition, log_dir: str, now_ms: int
    ) -> Self:
        """Return an uncleanable partition, and log the failure (with a traceback for a defect)."""
        reason, trace = str(error), None
        if not isinstance(error, LogStoreError | OSError):
            reason, trace = f"{type(error).__name__}: {error}", error
        logger.warning("%s is no longer cleaned: %s", topic_partition, reason, exc_info=trace)
        return cls(topic_partition, log_dir, reason, now_ms)


class UncleanablePartitions:
    """The uncleanable partitions, until `forget` or the end of the process.

    Parameters
    ----------
    clock : Clock
    directory_of : callable
        Returns the data directory of a partition; see `LogRegistry.directory_of`.
    """

    def __init__(
        self, clock: Clock, directory_of: Callable[[TopicPartition], LogDirectory]
    ) -> None:
        self._clock = clock
        self._directory_of = directory_of
        self._partitions: dict[TopicPartition, UncleanablePartition] = {}

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._partitions

    def get(self, topic_partition: TopicPartition) -> UncleanablePartition | None:
        """Return why a partition is uncleanable, or None if it is not."""
        return self._partitions.get(topic_partition)

    def all(self) -> tuple[UncleanablePartition, ...]:
        """Return the uncleanable partitions, sorted by name."""
        return tuple(each for _, each in sorted(self._partitions.items()))

    def mark_uncleanable(self, log: Log, error: Exception) -> None:
        """Make a partition uncleanable because of an error.

        Has no effect if the log was closed or deleted or is offline, because that explains the
        error.
        """
        try:
            log.check_open()
        except LogStoreError as reason:
            logger.info("%s is passed over: %s", log.topic_partition, reason)
        else:
            self.add(log.topic_partition, error)

    def add(self, topic_partition: TopicPartition, error: Exception) -> None:
        """Make a partition uncleanable, whatever the state of its log."""
        try:
            directory = self._directory_of(topic_partition)
        except UnknownTopicOrPartitionError:  # deleted in the meantime
            return
        self._partitions[topic_partition] = UncleanablePartition.because_of(
            error, topic_partition, directory.path, self._clock.now_ms()
        )

    def move(self, topic_partition: TopicPartition, log_dir: str) -> None:
        """Change the data directory of an uncleanable partition."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            self._partitions[topic_partition] = partition._replace(log_dir=log_dir)

    def forget(self, topic_partition: TopicPartition) -> bool:
        """Allow a partition to be cleaned again. Return whether it was uncleanable."""
        return self._partitions.pop(topic_partition, None) is not None

    def totals(
        self, log_dirs: Iterable[str], logs: Iterable[Log], dirty_bytes: Callable[[Log], int]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Return the number of uncleanable logs and their dirty bytes, by data directory."""
        counts = dict.fromkeys(log_dirs, 0)
        sizes = dict(counts)
        for log in logs:
            partition = self._partitions.get(log.topic_partition)
            if partition is not None:
                counts[partition.log_dir] += 1
                # The log was just deleted, or measuring it fails for the same reason.
                with suppress(Exception):
                    sizes[partition.log_dir] += dirty_bytes(log)
        return counts, sizes
