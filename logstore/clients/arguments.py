"""Conversion of users' arguments: topics, partitions and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.errors import InvalidConfigurationError
from logstore.types import NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    from logstore.storage.log.log import Log
    from logstore.storage.log.reader import Isolation

EARLIEST, LATEST = "earliest", "latest"


def to_topic_partition(partition: object) -> TopicPartition:
    """Convert an object such as kafka-python's TopicPartition to a `TopicPartition`.

    Raises
    ------
    TypeError
    """
    topic, number = getattr(partition, "topic", None), getattr(partition, "partition", None)
    if not isinstance(topic, str) or isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"expected a TopicPartition, not {partition!r}")
    return TopicPartition(topic, number)


def topic_and_partition(
    topic: str | TopicPartition | None, partition: int | None
) -> tuple[Any, Any]:
    """Return the topic and the partition number. `topic` can also be a TopicPartition.

    Raises
    ------
    TypeError
        `topic` is neither a string nor a TopicPartition.
    InvalidConfigurationError
        `partition` contradicts the TopicPartition. A `partition` of 0 is ignored, because many
        methods have it as default.
    """
    if topic is None or isinstance(topic, str):
        return topic, partition
    tp = to_topic_partition(topic)
    if partition not in (None, 0, tp.partition):
        raise InvalidConfigurationError(f"{tp} conflicts with partition {partition}")
    return tp


def offset_of(value: int | str | None, log: Log, isolation: Isolation) -> int | None:
    """Return an offset as a number, looking up `earliest` and `latest`.

    Raises
    ------
    InvalidConfigurationError
        The value is any other string.
    """
    if not isinstance(value, str):
        return value
    if value == EARLIEST:
        return log.log_start_offset
    if value == LATEST:
        return log.reader.upper_offset(isolation)
    raise InvalidConfigurationError(
        f"an offset must be a number, {EARLIEST!r} or {LATEST!r}, not {value!r}"
    )


def before_offset(value: int | str) -> int:
    """Convert the end offset of a deletion. `latest` becomes -1, the high watermark.

    Raises
    ------
    InvalidConfigurationError
        The value is any other string.
    """
    if value == LATEST:
        return NO_OFFSET
    if isinstance(value, str):
        raise InvalidConfigurationError(f"expected an offset or {LATEST!r}, not {value!r}")
    return value
