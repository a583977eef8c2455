"""Arguments as users give them: topics or partitions, offsets by number or by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.errors import InvalidConfigurationError
from logstore.types import NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    from logstore.storage.log.log import Log
    from logstore.storage.log.reader import Isolation

EARLIEST, LATEST = "earliest", "latest"


def checked_partition(partition: object) -> TopicPartition:
    """Return a partition in the engine's type, from kafka-python's too.

    Raises
    ------
    TypeError
    """
    topic, number = getattr(partition, "topic", None), getattr(partition, "partition", None)
    if not isinstance(topic, str) or isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"a TopicPartition is wanted, not {partition!r}")
    return TopicPartition(topic, number)


def topic_and_partition(
    topic: str | TopicPartition | None, partition: int | None
) -> tuple[Any, Any]:
    """Return both, also where the topic is given as a TopicPartition.

    Raises
    ------
    TypeError
        It is neither a name nor a TopicPartition.
    InvalidConfigurationError
        Another partition is given beside it; 0, a default of many methods, is none.
    """
    if topic is None or isinstance(topic, str):
        return topic, partition
    found = checked_partition(topic)
    if partition not in (None, 0, found.partition):
        raise InvalidConfigurationError(f"{found} is not in partition {partition} of its topic")
    return found


def offset_of(value: int | str | None, log: Log, isolation: Isolation) -> int | None:
    """Return an offset that may be given as `earliest` or `latest`.

    Raises
    ------
    InvalidConfigurationError
        It is another word.
    """
    if not isinstance(value, str):
        return value
    if value == EARLIEST:
        return log.log_start_offset
    if value == LATEST:
        return log.reader.upper_offset(isolation)
    raise InvalidConfigurationError(
        f"an offset is a number, {EARLIEST!r} or {LATEST!r}, not {value!r}"
    )


def before_offset(value: int | str) -> int:
    """Return below which offset records are deleted: `latest` is the high watermark, -1.

    Raises
    ------
    InvalidConfigurationError
        It is another word.
    """
    if value == LATEST:
        return NO_OFFSET
    if isinstance(value, str):
        raise InvalidConfigurationError(
            f"records are deleted below an offset or {LATEST!r}, not {value!r}"
        )
    return value
