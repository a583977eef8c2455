"""Small value types shared by every layer."""

from __future__ import annotations

import enum
from typing import NamedTuple

NO_OFFSET = -1
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS


class TopicPartition(NamedTuple):
    """A topic's name and the number of one of its partitions."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampType(enum.IntEnum):
    """Who set a batch's timestamps; the value is bit 3 of the batch attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def kafka_name(self) -> str:
        """`CreateTime` or `LogAppendTime`, as configs and kafka-dump-log spell it."""
        return "LogAppendTime" if self else "CreateTime"


class AppendOrigin(enum.Enum):
    """Who appends: decides which checks of storage-format §12 apply."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class OffsetPosition(NamedTuple):
    """An offset index entry: `position` is where the scan for `offset` may start."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A time index entry: the largest timestamp so far, and an offset that bears it."""

    timestamp: int
    offset: int


class AbortedTxn(NamedTuple):
    """A transaction index entry (storage-format §7.4); all offsets inclusive but the last."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
