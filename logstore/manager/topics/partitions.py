"""A dictionary by partition, indexed by topic."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Set
from typing import TypeVar

from logstore.types import TopicPartition

V = TypeVar("V")


class PartitionMap(UserDict[TopicPartition, V]):
    """A dictionary by partition that looks up the partitions of a topic in constant time.

    Otherwise, searching thousands of partitions for each partition would take millions of steps.

    Attributes
    ----------
    changes : int
        Number of additions and removals so far.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._numbers: dict[str, set[int]] = {}
        super().__init__()

    def __setitem__(self, topic_partition: TopicPartition, value: V) -> None:
        super().__setitem__(topic_partition, value)
        self._numbers.setdefault(topic_partition.topic, set()).add(topic_partition.partition)
        self.changes += 1  # last, because readers without the lock cache topics by this number

    def __delitem__(self, topic_partition: TopicPartition) -> None:
        super().__delitem__(topic_partition)
        numbers = self._numbers[topic_partition.topic]
        numbers.discard(topic_partition.partition)
        if not numbers:
            del self._numbers[topic_partition.topic]
        self.changes += 1

    def topics(self) -> Iterable[str]:
        """Return the names of the topics that have partitions."""
        return self._numbers.keys()

    def numbers(self, topic: str) -> Set[int]:
        """Return the numbers of a topic's partitions."""
        return self._numbers.get(topic, frozenset())

    def of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic, in order."""
        return [TopicPartition(topic, number) for number in sorted(self.numbers(topic))]
