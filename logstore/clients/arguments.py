"""Arguments as users give them: topics or partitions, offsets by number or by name."""

from __future__ import annotations

import warnings
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


MISSING: Any = type("Missing", (), {"__repr__": lambda _: "…"})()
"""Stands for a value that was not given, since None is a tombstone."""


def key_and_value(
    in_old_order: tuple[bytes | None, ...], key: bytes | None, value: bytes | None
) -> tuple[bytes | None, bytes | None]:
    """Return key and value, which up to release 0.1 were taken as `value, key` without a name.

    Raises
    ------
    TypeError
        The value is missing, or given twice.
    """
    if in_old_order:
        if len(in_old_order) > 2 or value is not MISSING or (key and len(in_old_order) > 1):
            raise TypeError("append() takes a topic, and value=… and key=… by name")
        warnings.warn(
            "append() takes value=… and key=… by name: in append_many() the key comes first",
            DeprecationWarning,
            stacklevel=3,
        )
        value, *keys = in_old_order
        key = keys[0] if keys else key
    if value is MISSING:
        raise TypeError("append() wants value=…, None for a tombstone")
    return key, value
