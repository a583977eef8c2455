"""The compacted internal topic of a coordinator, partitioned by group id or transactional id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from logstore.coordinator.host import NO_EPOCH
from logstore.coordinator.records import partition_for
from logstore.errors import NotCoordinatorError
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.coordinator.host import CoordinatorHost
    from logstore.manager.topics.store import Topic
    from logstore.storage.log.drafts import AppendInfo
    from logstore.storage.log.log import Log
    from logstore.storage.log.writer import LogWriter


class CoordinatorTopic:
    """`__transaction_state` or `__consumer_offsets`. The topic need not exist yet.

    Parameters
    ----------
    host : CoordinatorHost
    name : str
    partitions : int
        The number of partitions of a new topic.
    configs : mapping of str to str
        The configs of a new topic, as in Kafka.
    """

    def __init__(
        self, host: CoordinatorHost, name: str, partitions: int, configs: Mapping[str, str]
    ) -> None:
        self._host = host
        self._partitions = partitions
        self._configs = configs
        self.name = name

    @property
    def is_stored(self) -> bool:
        """Whether the topic exists and was created by logstore, not copied from a broker."""
        topic = self.topic
        return topic is not None and not topic.adopted

    @property
    def topic(self) -> Topic | None:
        """The topic, or None if it does not exist."""
        return self._host.topic(self.name)

    def ensure_stored(self) -> None:
        """Create the topic, or take over a topic that was copied from a broker.

        The compaction strategy is always `offset`, because the latest record of each key contains
        the current state.

        Raises
        ------
        KafkaStorageError
        """
        if not self.is_stored:
            configs = {**self._configs, "compaction.strategy": "offset"}
            self._host.create_topic(self.name, self._partition_count(), configs)

    def partition_of(self, text: str) -> TopicPartition:
        """Return the partition to which an id belongs."""
        return TopicPartition(self.name, partition_for(text, self._partition_count()))

    @property
    def owned(self) -> Mapping[int, int]:
        """The partitions that this broker coordinates; see `CoordinatorHost.owned`."""
        return self._host.owned(self.name)

    def check_owner(self, number: int) -> None:
        """Raise the same errors as `CoordinatorHost.check_owner`."""
        self._host.check_owner(TopicPartition(self.name, number))

    def log(self, number: int) -> Log:
        """Return the log of a partition. Raises the same errors as `CoordinatorHost.log`."""
        return self._host.log(TopicPartition(self.name, number))

    def append(
        self, number: int, epoch: int, append: Callable[[LogWriter], AppendInfo]
    ) -> tuple[Log, AppendInfo]:
        """Append to a partition whose contents were loaded under the given leader epoch.

        Raises
        ------
        NotCoordinatorError
            The leader epoch of the partition has changed.
        CoordinatorNotAvailableError
            See `CoordinatorHost.check_append`.
        LogStoreError
            See `CoordinatorHost.log` and `LogWriter`.
        """
        log = self.log(number)
        self._host.check_append(log.topic_partition)
        with log.lock:
            if epoch not in (NO_EPOCH, log.leader_epoch):
                raise NotCoordinatorError(
                    f"{log.topic_partition} has leader epoch {log.leader_epoch}, but its contents"
                    f" were loaded in epoch {epoch}"
                )
            return log, append(log.writer)

    def _partition_count(self) -> int:
        """Return the topic's number of partitions, or the configured number if it does not exist.

        A copied topic may lack some partition directories, so its number of partitions is at least
        the configured number.
        """
        topic = self.topic
        if topic is None:
            return self._partitions
        count = topic.partitions[-1] + 1
        return max(count, self._partitions) if topic.adopted else count
