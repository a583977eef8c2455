"""The cleaner checkpoint, which stores the first dirty offset of each partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from logstore.runtime.guard import StorageGuard

if TYPE_CHECKING:
    from logstore.manager.directories.directory import LogDirectory
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition


class CleanerCheckpoints:
    """First dirty offsets, stored in the data directory of each partition.

    Parameters
    ----------
    directory_of : callable
        Returns the data directory of a partition; see `LogRegistry.directory_of`.
    """

    def __init__(self, directory_of: Callable[[TopicPartition], LogDirectory]) -> None:
        self._directory_of = directory_of

    def of(self, topic_partition: TopicPartition) -> int | None:
        """Return the stored first dirty offset of a partition, or None if there is none.

        Raises
        ------
        UnknownTopicOrPartitionError
        KafkaStorageError
            The disk failed.
        """
        directory = self._directory_of(topic_partition)
        # Appends must continue even if the checkpoint file cannot be read.
        with StorageGuard(None, directory.path, "cannot read checkpoints"):
            return directory.cleaner_offset(topic_partition)

    def write(self, log: Log, first_dirty_offset: int) -> None:
        """Store the end of a log's clean section. The caller must have claimed the partition."""
        directory = self._directory_of(log.topic_partition)
        with log.guard("cannot write the cleaner checkpoint"):
            directory.write_cleaner_offset(log.topic_partition, first_dirty_offset)
