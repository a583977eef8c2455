"""Validate, decode and build record batches.

`RecordBatch` is a view over the bytes of a batch. `build_batch` encodes records, `seal_batch` adds
a header to an encoded section, and `pack_batch` does the same on hot paths, with positional
arguments and without compression. Small batches are decoded in plain Python, large batches by
kernels (`choice`). Large batches are built from columns (`columns`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from logstore.errors import CorruptRecordError, InvalidRecordError
from logstore.record import layout
from logstore.record.choice import LISTED_RECORDS_MAX, decodes_by_kernel
from logstore.record.codecs import DEFAULT_LIMIT, Codec, compress, decompress
from logstore.record.crc32c import crc32c
from logstore.record.header import BatchHeader
from logstore.record.records import (
    Record,
    RecordRow,
    decode_records,
    decode_windows,
    encode_records,
    record_parts,
)
from logstore.types import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TimestampType,
)

if TYPE_CHECKING:
    from logstore.record.columns import RecordColumns

_pack_up_to_crc = layout.HEADER_UP_TO_CRC.pack
_pack_under_crc = layout.HEADER_UNDER_CRC.pack
_pack_offset = struct.Struct(">q").pack_into
_pack_epoch = struct.Struct(">i").pack_into
_pack_place = struct.Struct(">qii").pack
_crc32c = google_crc32c.extend
_MAGIC = layout.MAGIC
_BYTES_BEFORE_COVERED = layout.ATTRIBUTES_POSITION - layout.LOG_OVERHEAD
"""Number of bytes that the batch length includes but the CRC does not."""

_KNOWN_ATTRIBUTES = (
    layout.CODEC_MASK
    | layout.TIMESTAMP_TYPE_BIT
    | layout.TRANSACTIONAL_BIT
    | layout.CONTROL_BIT
    | layout.DELETE_HORIZON_BIT
)


class RecordFacts(NamedTuple):
    """Properties of the records in a non-empty batch.

    Attributes
    ----------
    lowest, largest : int
        Minimum and maximum timestamp.
    is_dense : bool
        Whether the records have all offsets from the first to the last one in the header, in order.
    has_null_key : bool
    """

    lowest: int
    largest: int
    is_dense: bool
    has_null_key: bool


class RecordBatch:
    """A complete batch of magic 2.

    Parameters
    ----------
    data : bytes
        The batch, starting at its baseOffset. Like `walk`, the constructor accepts fewer than 61
        bytes; `ensure_valid` does not.
    path, position : str, int, optional
        File and position, for error messages.
    """

    __slots__ = ("data", "header", "path", "position")

    def __init__(self, data: bytes, path: str | None = None, position: int | None = None) -> None:
        self.data = data
        self.path = path
        self.position = position
        if len(data) < layout.HEADER_SIZE:
            data = data.ljust(layout.HEADER_SIZE, b"\0")
        self.header = BatchHeader.unpack_from(data)

    @classmethod
    def of(cls, header: BatchHeader, data: bytes) -> RecordBatch:
        """Return the batch in `data`, given its parsed header."""
        batch = cls.__new__(cls)
        batch.data = data
        batch.header = header
        batch.path = batch.position = None
        return batch

    @classmethod
    def pack(
        cls, body: bytes | memoryview, base_offset: int, leader_epoch: int, *covered: int
    ) -> RecordBatch:
        """Return the batch built by `pack_batch`, with its parsed header."""
        data = pack_batch(body, base_offset, leader_epoch, *covered)
        crc = int.from_bytes(data[layout.CRC_POSITION : layout.ATTRIBUTES_POSITION], "big")
        length = len(data) - layout.LOG_OVERHEAD
        header = (base_offset, length, leader_epoch, _MAGIC, crc, *covered)
        return cls.of(BatchHeader._make(header), data)

    def __repr__(self) -> str:
        header = self.header
        return (
            f"RecordBatch(offsets {header.base_offset}..{header.last_offset}, "
            f"{header.record_count} records, {len(self.data)} bytes)"
        )

    @property
    def codec(self) -> Codec:
        """Compression codec.

        Raises
        ------
        CorruptRecordError
            The codec in the attributes is 5, 6 or 7.
        """
        return Codec(self.header.codec_id)

    def computed_crc(self) -> int:
        """Compute the CRC-32C of the batch."""
        return crc32c(self.data[layout.ATTRIBUTES_POSITION :])

    def is_valid(self) -> bool:
        """Return whether the batch is at least as long as a header and its CRC matches."""
        return len(self.data) >= layout.HEADER_SIZE and self.computed_crc() == self.header.crc

    def ensure_valid(self) -> None:
        """Raise `CorruptRecordError` unless the batch is valid (storage-format §4.3)."""
        self._ensure_has_header()
        computed = self.computed_crc()
        if computed != self.header.crc:
            raise CorruptRecordError(
                f"batch at offset {self.header.base_offset} has a bad CRC "
                f"(stored crc = {self.header.crc}, computed crc = {computed})",
                path=self.path,
                position=self.position,
                check="crc",
                expected=self.header.crc,
                found=computed,
            )

    def section(self, limit: int = DEFAULT_LIMIT) -> bytes | memoryview:
        """Return the decompressed records section. Raise an error if it exceeds `limit` bytes."""
        body = memoryview(self.data)[layout.HEADER_SIZE :]
        if not body and self.header.record_count == 0:
            return body  # emptied by compaction; any codec is possible
        try:
            codec = self.codec
            return body if codec is Codec.NONE else decompress(codec, body, limit=limit)
        except CorruptRecordError as error:
            error.path, error.position = self.path, self.position
            raise

    def records(self, limit: int = DEFAULT_LIMIT) -> list[Record]:
        """Decode all records.

        Parameters
        ----------
        limit : int
            Maximum decompressed size in bytes (`logstore.decompression.max.bytes`).

        Raises
        ------
        InvalidRecordError
            The section violates a read rule of storage-format §2.
        CorruptRecordError
            The batch is smaller than its header, or the compressed data is damaged or expands to
            more than `limit` bytes.
        """
        return list(self.iter_records(limit))

    def iter_records(self, limit: int = DEFAULT_LIMIT) -> Iterator[Record]:
        """Decode and check all records, then yield them. `limit` is as in `records`.

        Records are yielded lazily, because a list of tiny records takes seventy times the size of
        their section.
        """
        return (Record._make(row) for rows in self.row_lists(limit) for row in rows)

    def row_lists(self, limit: int = DEFAULT_LIMIT) -> Iterator[Sequence[RecordRow]]:
        """Decode and check all records, then yield them as lists of a few hundred rows.

        Limit and errors are as in `records`, and the call itself raises the errors. A large batch
        is decoded twice, the first time to check it, so that only the section and a few lists are
        in memory.
        """
        self._ensure_has_header()
        count = self.header.record_count
        if count == 0 and len(self.data) == layout.HEADER_SIZE:
            return iter(())
        windows = self.windows(limit)
        first = next(windows(), None)
        if first is None or len(first) == count:
            return iter(()) if first is None else rows_of(first)
        for _ in windows():
            pass  # raises errors
        return (rows for window in windows() for rows in rows_of(window))

    def facts(self, limit: int = DEFAULT_LIMIT) -> RecordFacts:
        """Decode and check all records, and return the facts that an append needs.

        Limit and errors are as in `records`. Only the records section and a few decoded records
        are in memory.
        """
        self._ensure_has_header()
        header = self.header
        offset = header.base_offset
        lowest, largest = INT64_MAX, INT64_MIN
        is_dense, has_null_key = header.record_count == header.next_offset - offset, False
        for window in self.windows(limit)():
            stop = offset + len(window)
            if isinstance(window, list):
                timestamps = [row[1] for row in window]
                is_dense = is_dense and [row[0] for row in window] == list(range(offset, stop))
                has_null_key = has_null_key or any(row[2] is None for row in window)
                lowest, largest = min(lowest, min(timestamps)), max(largest, max(timestamps))
            else:
                is_dense = is_dense and window.has_offsets_from(offset)
                has_null_key = has_null_key or window.has_null_key
                lowest = min(lowest, int(window.timestamps.min()))
                largest = max(largest, int(window.timestamps.max()))
            offset = stop
        return RecordFacts(lowest, largest, is_dense, has_null_key)

    def windows(
        self, limit: int = DEFAULT_LIMIT
    ) -> Callable[[], Iterator[list[Record] | RecordColumns]]:
        """Return a function that decodes and yields all records in windows.

        Limit and errors are as in `records`. Errors in the records of a large batch are raised when
        their window is decoded, all others by this call.
        """
        self._ensure_has_header()
        count = self.header.record_count
        if decodes_by_kernel(count):
            return self._column_windows(limit)
        return self._list_windows(limit)

    def _list_windows(self, limit: int) -> Callable[[], Iterator[list[Record]]]:
        header, section = self.header, self.section(limit)
        arguments = (
            section,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            self._append_time,
        )
        if header.record_count <= LISTED_RECORDS_MAX:
            records = decode_records(*arguments)
            return lambda: iter((records,))
        return lambda: decode_windows(*arguments, rows_max=LISTED_RECORDS_MAX)

    def _column_windows(self, limit: int) -> Callable[[], Iterator[RecordColumns]]:
        from logstore.record.columns import decode_windows as decode_columns

        header = self.header
        raw, start = self.data, layout.HEADER_SIZE
        if header.codec_id != Codec.NONE:
            section = self.section(limit)
            raw, start = section if isinstance(section, bytes) else bytes(section), 0
        return lambda: decode_columns(
            raw,
            start,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            self._append_time,
        )

    def columns(self, limit: int = DEFAULT_LIMIT) -> RecordColumns:
        """Decode all records into columns with a kernel. Limit and errors are as in `records`."""
        from logstore.record.columns import decode_batch, decode_section

        self._ensure_has_header()
        header = self.header
        if header.codec_id == Codec.NONE:
            return decode_batch(self.data)
        return decode_section(
            self.section(limit),
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            self._append_time,
        )

    def with_place(self, base_offset: int, partition_leader_epoch: int) -> RecordBatch:
        """Return the batch with a new base offset and leader epoch. The CRC does not change."""
        length = self.header.batch_length
        data = _pack_place(base_offset, length, partition_leader_epoch)
        header = (base_offset, length, partition_leader_epoch, *self.header[3:])
        return RecordBatch.of(BatchHeader._make(header), data + self.data[layout.MAGIC_POSITION :])

    def with_timestamp(self, timestamp_type: TimestampType, max_timestamp: int) -> RecordBatch:
        """Return the batch with a new timestamp type and maxTimestamp, and a new CRC.

        Returns the same batch if both are unchanged. The base timestamp and deltas are retained. As
        in Kafka, undefined attribute bits are cleared (storage-format §1, "in-place edits").
        """
        header = self.header
        if header.timestamp_type is timestamp_type and header.max_timestamp == max_timestamp:
            return self
        attributes = header.attributes & _KNOWN_ATTRIBUTES & ~layout.TIMESTAMP_TYPE_BIT
        if timestamp_type is TimestampType.LOG_APPEND_TIME:
            attributes |= layout.TIMESTAMP_TYPE_BIT
        header = header._replace(attributes=attributes, max_timestamp=max_timestamp)
        base_offset, _, leader_epoch, _, _, *covered = header
        body = self.data[layout.HEADER_SIZE :]
        return RecordBatch.pack(body, base_offset, leader_epoch, *covered)

    @property
    def _append_time(self) -> int | None:
        """Timestamp of all records for LogAppendTime, or None for CreateTime."""
        if self.header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return self.header.max_timestamp
        return None

    def _ensure_has_header(self) -> None:
        if len(self.data) < layout.HEADER_SIZE:
            raise CorruptRecordError(
                f"batch of {len(self.data)} bytes is smaller than its header",
                path=self.path,
                position=self.position,
                check="batch_size",
                expected=layout.HEADER_SIZE,
                found=len(self.data),
            )


def rows_of(window: list[Record] | RecordColumns) -> Iterator[Sequence[RecordRow]]:
    """Return the records of a window as lists of a few hundred rows."""
    return iter((window,)) if isinstance(window, list) else window.row_lists()


def stored_rows(batch: RecordBatch, limit: int) -> Iterator[Sequence[RecordRow]]:
    """Decode a batch from a log, where a violated read rule means corruption.

    Parameters
    ----------
    limit : int
        Maximum decompressed size in bytes.

    Returns
    -------
    Iterator of lists of rows
        See `RecordBatch.row_lists`.

    Raises
    ------
    CorruptRecordError
        Raised by the call, with file and position of the batch.
    """
    try:
        return batch.row_lists(limit)
    except InvalidRecordError as error:
        raise _corrupt(batch, error) from error


def stored_columns(batch: RecordBatch, limit: int) -> RecordColumns:
    """Decode a batch from a log into columns. Limit and errors are as in `stored_rows`."""
    try:
        return batch.columns(limit)
    except InvalidRecordError as error:
        raise _corrupt(batch, error) from error


def _corrupt(batch: RecordBatch, error: InvalidRecordError) -> CorruptRecordError:
    return CorruptRecordError(
        str(error), path=batch.path, position=batch.position, check="record_structure"
    )


def decode_stored(batch: RecordBatch, limit: int) -> Iterator[Record]:
    """Yield the records of a batch from a log; see `stored_rows`."""
    return (Record._make(row) for rows in stored_rows(batch, limit) for row in rows)


def pack_batch(
    body: bytes | memoryview,
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytes:
    """Build a batch from a stored (possibly compressed) section, computing length and CRC."""
    covered = (
        _pack_under_crc(
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        )
        + body
    )
    length = len(covered) + _BYTES_BEFORE_COVERED
    crc = _crc32c(0, covered)
    return _pack_up_to_crc(base_offset, length, partition_leader_epoch, _MAGIC, crc) + covered


def pack_record(
    key: bytes | None,
    value: bytes | None,
    headers: bytes,
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """Build the uncompressed batch of one record outside a transaction.

    `headers` must be encoded with `encode_headers`.
    """
    # Inlines `pack_batch`, because a call takes as long as the checksum.
    covered = _pack_under_crc(
        attributes, 0, timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, 1
    ) + b"".join(record_parts(0, 0, key, value, headers))
    length = len(covered) + _BYTES_BEFORE_COVERED
    crc = _crc32c(0, covered)
    return _pack_up_to_crc(base_offset, length, partition_leader_epoch, _MAGIC, crc) + covered


def place_batch(batch: memoryview, base_offset: int, partition_leader_epoch: int) -> None:
    """Set the base offset and leader epoch of a batch in place. The CRC covers neither."""
    _pack_offset(batch, layout.BASE_OFFSET_POSITION, base_offset)
    _pack_epoch(batch, layout.PARTITION_LEADER_EPOCH_POSITION, partition_leader_epoch)


def seal_batch(
    section: bytes | memoryview,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    last_offset_delta: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    has_delete_horizon: bool = False,
) -> bytes:
    """Build a batch from an uncompressed records section, compressing it.

    Raises
    ------
    ValueError
        `base_timestamp` is negative but not -1.
    """
    if base_timestamp < NO_TIMESTAMP:
        raise ValueError(f"invalid message timestamp {base_timestamp}")
    body = section if codec is Codec.NONE else compress(codec, section, level)
    attributes = int(codec)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= layout.TIMESTAMP_TYPE_BIT
    if is_transactional:
        attributes |= layout.TRANSACTIONAL_BIT
    if is_control:
        attributes |= layout.CONTROL_BIT
    if has_delete_horizon:
        attributes |= layout.DELETE_HORIZON_BIT
    return pack_batch(
        body,
        base_offset,
        partition_leader_epoch,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )


def build_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_time: int | None = None,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Build a batch from records with ascending offsets.

    Parameters
    ----------
    records : sequence of Record
        The records, at least one.
    base_offset, last_offset : int, optional
        First and last offset in the header. [default: those of the records]
    timestamp_type, append_time : TimestampType, int
        With `LOG_APPEND_TIME`, maxTimestamp is `append_time` in milliseconds. The deltas are still
        computed from the records' timestamps.
    delete_horizon_ms : int, optional
        Delete horizon in Unix milliseconds. Sets baseTimestamp and attribute bit 6 (KIP-534).

    Raises
    ------
    InvalidRecordError
        `records` is empty, the offsets are not ascending, or an offset exceeds `last_offset` or the
        31 bits above the base offset.
    ValueError
        The first timestamp or the horizon is negative but not -1, or a producer id has no epoch.
    """
    if not records:
        raise InvalidRecordError("a batch needs at least one record")
    check_producer_epoch(producer_id, producer_epoch)
    first_offset = records[0].offset if base_offset is None else base_offset
    final_offset = records[-1].offset if last_offset is None else last_offset
    _check_offsets(first_offset, [record.offset for record in records], final_offset)
    base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    if timestamp_type is TimestampType.LOG_APPEND_TIME and append_time is not None:
        max_timestamp = append_time
    else:
        max_timestamp = max(record.timestamp for record in records)
    return seal_batch(
        encode_records(records, first_offset, base_timestamp),
        codec=codec,
        level=level,
        base_offset=first_offset,
        last_offset_delta=final_offset - first_offset,
        record_count=len(records),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        timestamp_type=timestamp_type,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=is_control,
        has_delete_horizon=delete_horizon_ms is not None,
    )


def check_producer_epoch(producer_id: int, producer_epoch: int) -> None:
    """Raise `ValueError` if there is a producer id but no epoch."""
    if producer_id >= 0 and producer_epoch == NO_PRODUCER_EPOCH:
        raise ValueError(f"a batch of producer {producer_id} has no epoch: {producer_epoch}")


def _check_offsets(first: int, offsets: Sequence[int], last: int) -> None:
    """Raise an error unless the offsets are ascending and in [first, last]."""
    if not first <= offsets[0] <= offsets[-1] <= last <= first + INT32_MAX:
        raise InvalidRecordError(
            f"records of offsets {offsets[0]} to {offsets[-1]} do not fit "
            f"a batch of {first} to {last}"
        )
    if any(before >= after for before, after in pairwise(offsets)):
        raise InvalidRecordError("the offsets of records in a batch must increase")
