"""The record batch header.

Uses plain Python and `struct`, so that reading headers requires neither NumPy nor numba.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.record import layout
from logstore.types import INT32_MAX, NO_SEQUENCE, TimestampType

_MAX_RATIOS = {0: 1, 1: 1032, 2: 64, 3: 255, 4: 1 << 15}
"""Maximum number of bytes that one compressed byte expands to, by codec, rounded up.

Deflate: 258 bytes per 2-bit match. Snappy: 64 bytes per copy. LZ4: 255 bytes per length byte.
Zstandard: a block of 128 KiB takes 4 bytes if it repeats one.
"""


class BatchHeader(NamedTuple):
    """The 61-byte header of a batch (storage-format §1)."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @classmethod
    def unpack_from(cls, buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
        """Parse the header at `position`. The caller must ensure that 61 bytes are available."""
        return cls._make(layout.HEADER.unpack_from(buffer, position))

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch in bytes, including the header."""
        return self.batch_length + layout.LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Last offset of the batch as written (inclusive)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """First offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def possible_record_count(self) -> int:
        """Record count, capped by the offsets and bytes of the batch."""
        return possible_record_count(
            self.record_count, self.last_offset_delta, self.size_bytes, self.codec_id
        )

    @property
    def codec_id(self) -> int:
        """Number of the compression codec, 0 to 7. Numbers above 4 are undefined."""
        return self.attributes & layout.CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """CreateTime or LogAppendTime."""
        # An enum lookup by value takes 1 µs, which is too slow for an export of every record.
        is_append = self.attributes & layout.TIMESTAMP_TYPE_BIT
        return TimestampType.LOG_APPEND_TIME if is_append else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & layout.TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch contains a control record, such as a transaction marker."""
        return bool(self.attributes & layout.CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether baseTimestamp is a delete horizon (KIP-534)."""
        return bool(self.attributes & layout.DELETE_HORIZON_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Unix time in ms from which tombstones and markers may be removed, or None if not set."""
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer, or a coordinator, wrote the batch."""
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Last sequence number stored in the batch, or -1 if it has none."""
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    def pack(self) -> bytes:
        """Encode the header."""
        return layout.HEADER.pack(*self)


def possible_record_count(count: int, last_offset_delta: int, size_bytes: int, codec: int) -> int:
    """Return the record count of a header, capped by its other fields.

    Used for totals over headers whose CRCs are not checked, where one damaged count could dominate.
    """
    section = max(0, size_bytes - layout.HEADER_SIZE)
    most = section * _MAX_RATIOS.get(codec, 0) // layout.MIN_RECORD_SIZE
    return max(0, min(count, last_offset_delta + 1, most))


def increment_sequence(sequence: int, increment: int) -> int:
    """Return `sequence + increment`, wrapping from 2^31-1 to 0. -1 remains -1."""
    if sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    if sequence > INT32_MAX - increment:
        return increment - (INT32_MAX - sequence) - 1
    return sequence + increment
