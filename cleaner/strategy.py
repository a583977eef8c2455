"""Compaction strategies, which select the surviving record of a key (KIP-280).

A strategy selects by offset, timestamp or version header. These are pure functions from a topic
config to a strategy, and from a record to its order. The kernels implement the same rules for
chunks. Source: docs/spec/cleaner.md §13.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import InvalidRecordError
from logstore.record.varint import decode_varlong
from logstore.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from logstore.config.log_config import LogConfig
    from logstore.record.records import Header

OFFSET = "offset"
TIMESTAMP = "timestamp"
HEADER = "header"

LONG = "long"
VARLONG = "varlong"

OFFSET_ENTRY_BYTES = 24
"""Size of an entry in Kafka's map: a 16-byte hash and an offset.

Determines the capacity.
"""

VERSION_ENTRY_BYTES = 32
"""Size of an entry with a version."""


class Order(NamedTuple):
    """The rank of a record among the records with the same key. The highest rank survives."""

    present: bool
    version: int
    offset: int


@dataclass(frozen=True, slots=True)
class Strategy:
    """A compaction strategy.

    Attributes
    ----------
    name : str
        `offset`, `timestamp` or `header`.
    header : str
        Name of the header. Empty unless the strategy is `header`.
    encoding : str
        Encoding of the header's value: `long` (8 bytes) or `varlong`.
    """

    name: str = OFFSET
    header: str = ""
    encoding: str = LONG

    @classmethod
    def of(cls, config: LogConfig) -> Strategy:
        """Return the strategy of a topic.

        `header` without a header name is equivalent to `offset`.
        """
        name = config.compaction_strategy or OFFSET
        header = config.compaction_strategy_header.strip()
        if name == HEADER and header:
            encoding = config.logstore_compaction_strategy_header_encoding
            return cls(HEADER, header, encoding)
        return cls(TIMESTAMP) if name == TIMESTAMP else cls()

    @property
    def has_versions(self) -> bool:
        """Whether the strategy compares more than offsets."""
        return self.name != OFFSET

    @property
    def entry_bytes(self) -> int:
        """Size of an entry, for computing the capacity."""
        return VERSION_ENTRY_BYTES if self.has_versions else OFFSET_ENTRY_BYTES

    def order_of(self, offset: int, timestamp: int, headers: Iterable[Header]) -> Order:
        """Return the order of a record.

        Parameters
        ----------
        timestamp : int
            Timestamp of the record or, with LogAppendTime, of its batch.
        """
        if self.name == OFFSET:
            return Order(False, 0, offset)
        if self.name == TIMESTAMP:
            return Order(True, timestamp, offset)
        version = self.version_in(headers)
        return Order(version is not None, version or 0, offset)

    def version_in(self, headers: Iterable[Header]) -> int | None:
        """Return the version in the last header with the name, or None if missing or invalid."""
        value: bytes | None = None
        for key, candidate in headers:
            if key == self.header:
                value = candidate
        if value is None:
            return None
        if self.encoding == VARLONG:
            return _whole_varlong(value)
        return int.from_bytes(value, "big", signed=True) if len(value) == 8 else None


class KeySurvivors:
    """The surviving record of each key. Records must be entered in offset order."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._winners: dict[bytes, Order] = {}

    def enter(self, key: bytes, offset: int, timestamp: int, headers: Iterable[Header]) -> bool:
        """Enter a record. Return whether it supersedes the earlier records of its key."""
        if not self._strategy.has_versions:
            return True  # the later offset survives; no state is needed
        order = self._strategy.order_of(offset, timestamp, headers)
        if order < self._winners.get(key, order):
            return False
        self._winners[key] = order
        return True


def _whole_varlong(value: bytes) -> int | None:
    try:
        version, end = decode_varlong(value, 0, len(value))
    except InvalidRecordError:
        return None
    return version if end == len(value) else None


def recommendations(config: LogConfig) -> Iterator[str]:
    """Yield the settings that KIP-280 advises against, with the reason."""
    strategy = Strategy.of(config)
    if config.compaction_strategy == HEADER and strategy.name != HEADER:
        yield (
            "compaction.strategy is header, but compaction.strategy.header names none: "
            "the record with the highest offset survives"
        )
    if not strategy.has_versions:
        return
    limit = config.delete_retention_ms
    for key, value in (
        ("segment.ms", config.segment_ms),
        ("max.compaction.lag.ms", config.max_compaction_lag_ms),
    ):
        if value >= limit:
            given = f"{key} {value} is" if value < INT64_MAX else f"{key} is not set, and so"
            yield (
                f"{given} not below delete.retention.ms {limit}: a tombstone may be gone before "
                "an older record that arrives late is compared with it, which then stays"
            )
