"""The topics of the cluster as the group coordinator uses them: ids, names and partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from logstore.coordinator.groups.java_maps import java_hash_order
from logstore.types import decode_topic_id

if TYPE_CHECKING:
    from logstore.coordinator.host import CoordinatorHost

_HASH_FORMAT = b"\0"


class TopicInfo(NamedTuple):
    """The name, the id and the partitions of a topic.

    Attributes
    ----------
    partitions : sequence of int
        Partition numbers in ascending order. A copied topic may lack some partitions.
    racks : sequence of sequences of str
        The sorted racks of each partition's replicas. Empty if no broker has a rack.
    """

    name: str
    topic_id: str
    partitions: Sequence[int]
    racks: Sequence[Sequence[str]] = ()

    def hash(self) -> bytes:
        """Return the XXH3 hash of the topic, as computed by Kafka's coordinator."""
        content = [_HASH_FORMAT]
        identity = decode_topic_id(self.topic_id)
        content += [identity[:8][::-1], identity[8:][::-1], *_text(self.name)]
        content.append(_int(len(self.partitions)))
        for index, number in enumerate(self.partitions):
            content.append(_int(number))
            for rack in self.racks[index] if self.racks else ():
                content += [_int(len(rack)), *_text(rack)]
        return xxhash.xxh3_64_intdigest(b"".join(content)).to_bytes(8, "little")


def _int(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _text(text: str) -> tuple[bytes, bytes]:
    encoded = text.encode("utf-16-le")
    return encoded, _int(len(encoded) // 2)


class ClusterTopics:
    """An immutable snapshot of all topics.

    Parameters
    ----------
    topics : iterable of TopicInfo
    version : int
        Incremented when a topic is created or deleted, or when partitions are added to a topic.
    created_version : int
        The version at which a topic was last created.
    """

    def __init__(
        self, topics: Iterable[TopicInfo] = (), version: int = 0, created_version: int = 0
    ) -> None:
        self.version = version
        self.created_version = created_version
        self._by_name = {each.name: each for each in topics}
        self._by_id = {each.topic_id: each for each in self._by_name.values()}
        self._hashes: dict[str, bytes] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterTopics) and self._by_name == other._by_name

    __hash__ = None  # type: ignore[assignment]  # compared, never a key

    def changed_to(self, topics: Iterable[TopicInfo]) -> ClusterTopics:
        """Return a new snapshot with the given topics, or this object if no topic changed."""
        after = ClusterTopics(topics, self.version + 1, self.created_version)
        if after == self:
            return self
        if not after._by_id.keys() <= self._by_id.keys():
            after.created_version = after.version
        return after

    def named(self, name: str) -> TopicInfo | None:
        """Return the topic with a name, or None if it does not exist."""
        return self._by_name.get(name)

    def of_id(self, topic_id: str) -> TopicInfo | None:
        """Return the topic with an id, or None if it does not exist."""
        return self._by_id.get(topic_id)

    def ids(self, names: Iterable[str]) -> Collection[str]:
        """Return the ids of existing topics, in the order of a Java HashSet of their names."""
        by_name = self._by_name
        known = java_hash_order(sorted(name for name in names if name in by_name))
        return dict.fromkeys(by_name[name].topic_id for name in known)

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self._by_name.keys()

    def hash_of(self, names: Iterable[str]) -> int:
        """Return a group's metadata hash: the signed 64-bit hash of its topics.

        The hash is 0 if no topic exists.
        """
        existing = sorted(name for name in names if name in self._by_name)
        if not existing:
            return 0
        hashes = self._hashes
        for name in existing:
            if name not in hashes:
                hashes[name] = self._by_name[name].hash()
        digest = xxhash.xxh3_64_digest(b"".join(hashes[name] for name in existing))
        return int.from_bytes(digest, "big", signed=True)


class TopicsFollower:
    """Provides the current topics of a host. The caller must serialize calls."""

    def __init__(self, host: CoordinatorHost) -> None:
        self._host = host
        self._changes = -1
        self._topics = ClusterTopics()

    @property
    def current(self) -> ClusterTopics:
        """The current topics. The property returns the same object until a topic changes."""
        changes = self._host.topic_changes
        if changes != self._changes:
            self._topics = self._topics.changed_to(self._read())
            self._changes = changes
        return self._topics

    def _read(self) -> Iterable[TopicInfo]:
        for topic in self._host.topics():
            if topic.id is not None and topic.partitions:
                numbers = topic.partitions
                racks = self._host.racks_of(topic.name, numbers)
                yield TopicInfo(topic.name, topic.id, numbers, racks)
