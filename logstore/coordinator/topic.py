"""A compacted topic in which a coordinator keeps what it knows, each id in one partition."""

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
    """`__transaction_state` or `__consumer_offsets`, which need not exist yet.

    Parameters
    ----------
    manager : LogManager
    name : str
    partitions : int
        For a topic that does not exist yet.
    configs : mapping of str to str
        Its overrides, as Kafka's broker creates it.
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
        """Whether the topic is this engine's own, and not one copied from a broker, or none."""
        topic = self.topic
        return topic is not None and not topic.adopted

    @property
    def topic(self) -> Topic | None:
        """The topic, None if there is none."""
        try:
            return self._manager.catalog.topic(self.name)
        except UnknownTopicOrPartitionError:
            return None

    def ensure_stored(self) -> None:
        """Create the topic, or take over a copied one.

        Whatever the broker's own topics are compacted by, what a coordinator wrote last is what
        it knows: of its topics the highest offset survives.

        Raises
        ------
        KafkaStorageError
        """
        if not self.is_stored:
            configs = {**self._configs, "compaction.strategy": "offset"}
            self._manager.topics.create(self.name, self._partition_count(), configs)

    def partition_of(self, text: str) -> TopicPartition:
        """Return the partition that keeps an id."""
        return TopicPartition(self.name, partition_for(text, self._partition_count()))

    def log(self, number: int) -> Log:
        """Return the log of a partition; raises as `LogManager.log`."""
        return self._manager.log(TopicPartition(self.name, number))

    def _partition_count(self) -> int:
        """Return how many partitions the topic has, or will have.

        A copied one may lack some folders, so that it had as many as Kafka makes, or more.
        """
        topic = self.topic
        if topic is None:
            return self._partitions
        found = topic.partitions[-1] + 1
        return max(found, self._partitions) if topic.adopted else found
