"""Small value types shared by every layer."""

from __future__ import annotations

import base64
import enum
import re
import struct
from typing import NamedTuple

NO_OFFSET = -1
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1
BROKER_ID = 0
"""The default node id."""

CLUSTER_ID = "logstore"
"""The default cluster id."""

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

TOPIC_ID_SIZE = 16
TOPIC_ID_LENGTH = 22
"""Characters of a topic id in text: 16 bytes in URL-safe base64 without its two `=`."""
assert TOPIC_ID_LENGTH == (TOPIC_ID_SIZE * 8 + 5) // 6

_TOPIC_ID = re.compile(rf"[A-Za-z0-9_-]{{{TOPIC_ID_LENGTH}}}")

LINE_END = re.compile(r"\r\n|\n|\r")
"""Java's line endings on every system; `str.splitlines` splits at more characters."""

SMALL_FILE_MAX_BYTES = 64 << 20
"""Default of `logstore.small.file.max.bytes`, also without a configuration."""

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS


class TopicPartition(NamedTuple):
    """A topic name and a partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampType(enum.IntEnum):
    """Who sets a batch's timestamps. The value is bit 3 of the batch attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def kafka_name(self) -> str:
        """`CreateTime` or `LogAppendTime`, as in configs and kafka-dump-log."""
        return "LogAppendTime" if self else "CreateTime"


class AppendOrigin(enum.Enum):
    """The origin of an append, which determines the checks that apply."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class OffsetPosition(NamedTuple):
    """An offset index entry. `position` is where a scan for `offset` can start."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A time index entry: the largest timestamp so far and its offset."""

    timestamp: int
    offset: int


class AbortedTxn(NamedTuple):
    """A transaction index entry. All offsets are inclusive, except the last stable offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_topic_id(topic_id: bytes) -> str:
    """Return a topic's 16-byte UUID as the 22 characters shown in files and tools."""
    assert len(topic_id) == TOPIC_ID_SIZE, f"a topic id has 16 bytes, not {len(topic_id)}"
    return base64.urlsafe_b64encode(topic_id).decode("ascii").rstrip("=")


def decode_topic_id(text: str) -> bytes:
    """Return the 16 bytes of a topic id. Raises ValueError if `text` is not a topic id."""
    if not _TOPIC_ID.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a topic id: expected {TOPIC_ID_LENGTH} characters of URL-safe base64"
        )
    return base64.urlsafe_b64decode(text + "==")


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode()`: a signed 32-bit hash of the UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
