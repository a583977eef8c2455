"""Value types in the interface of segments."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from logstore.record.layout import LOG_OVERHEAD

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.record.header import BatchHeader
    from logstore.runtime import Random

UNKNOWN_POSITION = -1
"""As `max_position` of a read, this means that the bound is not known, so only the position is
returned."""


class RollReason(Enum):
    """Why a segment is rolled (storage-format §8.3)."""

    SIZE = "segment.bytes"
    TIME = "segment.ms"
    OFFSET_INDEX_FULL = "offset index full"
    TIME_INDEX_FULL = "time index full"
    OFFSET_SPAN = "relative offset"


class SegmentRead(NamedTuple):
    """Bytes read from a segment, and their position."""

    data: bytes
    position: int
    first_batch_size: int

    @property
    def first_entry_incomplete(self) -> bool:
        """Whether even the first batch is incomplete."""
        return len(self.data) < self.first_batch_size


class BatchPosition(NamedTuple):
    """Position of the first batch at or after an offset."""

    base_offset: int
    position: int
    size_bytes: int


class BatchExtent(NamedTuple):
    """The properties of a batch that a segment needs to append it.

    `last_offset` is inclusive and becomes the key of the offset index entry. `max_timestamp` is in
    milliseconds.
    """

    last_offset: int
    max_timestamp: int
    size_bytes: int

    @classmethod
    def of(cls, header: BatchHeader) -> BatchExtent:
        """Return the extent of the batch with the given header."""
        last_offset = header.base_offset + header.last_offset_delta
        return cls(last_offset, header.max_timestamp, header.batch_length + LOG_OVERHEAD)


def draw_roll_jitter(config: LogConfig, rng: Random) -> int:
    """Draw how many ms before `segment.ms` a segment rolls. Called once per segment."""
    if config.segment_jitter_ms == 0:
        return 0
    bound = min(config.segment_jitter_ms, config.segment_ms)
    return abs(rng.getrandbits(32) - 2**31) % bound
