"""An open batch: records of a partition that wait until they fill one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from logstore.record.layout import HEADER_SIZE, MAX_RECORD_OVERHEAD

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.log.drafts import NewRecord

T = TypeVar("T")

_HEADER_OVERHEAD = 10


class OpenBatch(Generic[T]):
    """Items that stand for records, up to a limit of bytes; sizes are upper bounds.

    Parameters
    ----------
    limit_bytes : int
        See `limit_of`. One record alone may be larger: whoever appends it refuses it, or not.
    """

    __slots__ = ("items", "limit_bytes", "size_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = HEADER_SIZE
        self.items: list[T] = []

    def has_room(self, size_bytes: int) -> bool:
        """Tell whether a record of that size fits."""
        return not self.items or self.size_bytes + size_bytes <= self.limit_bytes

    def add(self, item: T, size_bytes: int) -> bool:
        """Take a record of that size; tell whether the batch is full now."""
        self.items.append(item)
        self.size_bytes += size_bytes
        return self.size_bytes >= self.limit_bytes


def limit_of(config: LogConfig, batch_bytes: int | None = None) -> int:
    """Return how many bytes a batch may have that a log of this configuration takes."""
    limit = min(config.max_message_bytes, config.segment_bytes)
    return limit if batch_bytes is None else min(limit, batch_bytes)


def estimated_size(record: NewRecord) -> int:
    """Return an upper bound of a record's bytes in an uncompressed batch."""
    key, value, _, headers = record
    size = MAX_RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, header_value in headers:
        size += _HEADER_OVERHEAD + 4 * len(name) + len(header_value or b"")
    return size
