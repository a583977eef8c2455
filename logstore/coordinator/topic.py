"""The compacted internal topic of a coordinator, partitioned by group id or transactional id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from logstore.coordinator.records import partition_for
from logstore.errors import UnknownTopicOrPartitionError
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.manager.manager import LogManager
    from logstore.manager.topics.store import Topic
    from logstore.storage.log.log import Log


class CoordinatorTopic:
    """`__transaction_state` or `__consumer_offsets`. The topic need not exist yet.

    Parameters
    ----------
    manager : LogManager
    name : str
    partitions : int
        Number of partitions for the creation of the topic.
    configs : mapping of str to str
        Topic configs with which Kafka's broker creates the topic.
    """

    def __init__(
        self, manager: LogManager, name: str, partitions: int, configs: Mapping[str, str]
    ) -> None:
        self._manager = manager
        self._partitions = partitions
        self._configs = configs
        self.name = name

    @property
    def is_stored(self) -> bool:
        """Whether the topic exists and is stored by this engine, not copied from a broker."""
        topic = self.topic
        return topic is not None and not topic.adopted

    @property
    def topic(self) -> Topic | None:
        """The topic, or None if it does not exist."""
        try:
            return self._manager.catalog.topic(self.name)
        except UnknownTopicOrPartitionError:
            return None

    def ensure_stored(self) -> None:
        """Create the topic, or take over a copied one.

        The compaction strategy is always `offset`, because the last record written is the
        coordinator's state.

        Raises
        ------
        KafkaStorageError
        """
        if not self.is_stored:
            configs = {**self._configs, "compaction.strategy": "offset"}
            self._manager.topics.create(self.name, self._partition_count(), configs)

    def partition_of(self, text: str) -> TopicPartition:
        """Return the partition of an id."""
        return TopicPartition(self.name, partition_for(text, self._partition_count()))

    def log(self, number: int) -> Log:
        """Return the log of a partition. Raises the errors of `LogManager.log`."""
        return self._manager.log(TopicPartition(self.name, number))

    def _partition_count(self) -> int:
        """Return the number of partitions that the topic has, or will be created with.

        A copied topic may lack some partition folders, so it has at least the configured number.
        """
        topic = self.topic
        if topic is None:
            return self._partitions
        count = topic.partitions[-1] + 1
        return max(count, self._partitions) if topic.adopted else count
