"""An open batch, which collects the records of one partition until it is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.record.layout import HEADER_SIZE, MAX_RECORD_OVERHEAD
from logstore.storage.log.drafts import RecordLists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logstore.config.log_config import LogConfig
    from logstore.record.records import Header

_HEADER_OVERHEAD = 10


class OpenBatch(RecordLists):
    """Records up to a size limit, based on upper bounds of their sizes.

    Parameters
    ----------
    limit_bytes : int
        See `limit_of`. A single larger record is still added, and the log accepts or rejects the
        batch.
    """

    __slots__ = ("limit_bytes", "size_bytes")

    def __init__(self, limit_bytes: int) -> None:
        super().__init__([], [], [], {})
        self.limit_bytes = limit_bytes
        self.size_bytes = HEADER_SIZE

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a record of the given size fits, or the batch is empty."""
        return self.size_bytes + size_bytes <= self.limit_bytes or not self.keys

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: tuple[Header, ...],
        size_bytes: int,
    ) -> bool:
        """Add a record that fits. Return whether the batch is now full."""
        if headers:
            self.headers[len(self.keys)] = headers
        self.keys.append(key)
        self.values.append(value)
        self.timestamps.append(timestamp)
        self.size_bytes += size_bytes
        return self.size_bytes >= self.limit_bytes


def limit_of(config: LogConfig, batch_bytes: int | None = None) -> int:
    """Return the maximum batch size for a log, at most `batch_bytes`."""
    limit = min(config.max_message_bytes, config.segment_bytes)
    return limit if batch_bytes is None else min(limit, batch_bytes)


def estimated_size(key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()) -> int:
    """Return an upper bound for the size of a record in an uncompressed batch."""
    size = MAX_RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, header_value in headers:
        size += _HEADER_OVERHEAD + 4 * len(name) + len(header_value or b"")
    return size
