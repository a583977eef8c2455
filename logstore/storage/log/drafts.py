"""Records to append, encoded before the log's lock is acquired.

A draft consists of one or more encoded batches. Sealing it under the lock applies the topic's rules
and sets offsets and leader epoch. `RecordSealer` does this faster for a single record. Because it
runs once per append, it creates its result with `tuple.__new__`, which is four times as fast as the
constructor of a named tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import InvalidRecordError
from logstore.record.batch import RecordBatch, pack_batch, pack_record, place_batch
from logstore.record.choice import encodes_by_kernel
from logstore.record.codecs import Codec, compress
from logstore.record.layout import HEADER_SIZE, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT
from logstore.record.records import NO_HEADERS, NewRecord, encode_headers, encode_rows
from logstore.record.varint import wrap_int64
from logstore.storage.log.validate import (
    check_batch_size,
    check_keys,
    check_record_count,
    check_timestamps,
    codec_level,
    target_codec,
    timestamps_in_bounds,
)
from logstore.storage.segment.values import BatchExtent
from logstore.types import (
    INT64_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TimestampType,
)

__all__ = ["AppendInfo", "NewRecord"]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from logstore.config.log_config import LogConfig
    from logstore.record.columns import BytesColumn
    from logstore.record.header import BatchHeader
    from logstore.record.records import Header
    from logstore.storage.producers.entry import BatchMetadata
    from logstore.storage.segment.values import RollReason


class AppendInfo(NamedTuple):
    """Result of an append.

    Attributes
    ----------
    first_offset, last_offset : int
        Offsets assigned, both inclusive, or -1 if nothing was appended.
    max_timestamp : int
        Largest timestamp stored, in milliseconds.
    log_append_time : int
        Append time in milliseconds if the topic uses LogAppendTime, or -1 otherwise.
    records : int
        Number of records appended.
    size_bytes : int
        Number of bytes written to the `.log`.
    roll_reason : RollReason or None
        Why a new segment was rolled before the append, or None if it was not.
    is_duplicate : bool
        Whether the producer had sent the batch before. If so, nothing was written, and offsets and
        time are from the first append.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int
    records: int
    size_bytes: int
    roll_reason: RollReason | None
    is_duplicate: bool = False

    @classmethod
    def of(cls, headers: Sequence[BatchHeader], roll_reason: RollReason | None) -> AppendInfo:
        """Return the sum over the batches (at least one) of an append, whose offsets are final."""
        if len(headers) == 1:
            header = headers[0]
            stamped = header.attributes & TIMESTAMP_TYPE_BIT
            return cls(
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.max_timestamp if stamped else NO_TIMESTAMP,
                header.record_count,
                header.size_bytes,
                roll_reason,
            )
        largest = max(headers, key=lambda header: header.max_timestamp)
        stamped = largest.timestamp_type is TimestampType.LOG_APPEND_TIME
        return cls(
            first_offset=headers[0].base_offset,
            last_offset=headers[-1].last_offset,
            max_timestamp=largest.max_timestamp,
            log_append_time=largest.max_timestamp if stamped else NO_TIMESTAMP,
            records=sum(header.record_count for header in headers),
            size_bytes=sum(header.size_bytes for header in headers),
            roll_reason=roll_reason,
        )

    @classmethod
    def of_duplicate(cls, batch: BatchMetadata) -> AppendInfo:
        """Return the offsets and time of a batch that was already appended."""
        return cls(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            max_timestamp=batch.timestamp,
            log_append_time=batch.timestamp,
            records=0,
            size_bytes=0,
            roll_reason=None,
            is_duplicate=True,
        )


NOTHING_APPENDED = AppendInfo(-1, -1, NO_TIMESTAMP, NO_TIMESTAMP, 0, 0, None)


class ProducerFields(NamedTuple):
    """The producer fields of a batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool


class Placement(NamedTuple):
    """The values of the log that sealing a draft requires, read under the log's lock.

    `producer_fields` contains the producer fields of the batch, or None for a batch without a
    producer.
    """

    config: LogConfig
    base_offset: int
    leader_epoch: int
    now_ms: int
    producer_fields: ProducerFields | None = None


class SealedBatch(NamedTuple):
    """A batch ready to be written.

    Attributes
    ----------
    data : bytes or memoryview
        The whole batch.
    record_count : int
        Number of records and consecutive offsets, starting at the placement's base offset.
    max_timestamp : int
        Largest timestamp in the batch, in milliseconds.
    log_append_time : int
        Append time in milliseconds if the topic uses LogAppendTime, or -1 otherwise.
    batch : RecordBatch or None
        The batch with its header, if it has producer fields.
    """

    data: bytes | memoryview
    record_count: int
    max_timestamp: int
    log_append_time: int
    batch: RecordBatch | None = None


_new = tuple.__new__


class RecordSealer:
    """Builds single-record batches under a topic's rules, which it evaluates once.

    Parameters
    ----------
    config : LogConfig
        Configuration of the log. After it changes, a new sealer is needed.
    """

    __slots__ = ("_attributes", "_bytes_max", "_wants_codec", "_wants_key", "config")

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self._attributes = _attributes(config)
        self._bytes_max = config.batch_bytes_max
        self._wants_codec = target_codec(config, Codec.NONE) is not Codec.NONE
        self._wants_key = config.compact

    def seal(
        self,
        record: NewRecord,
        base_offset: int,
        leader_epoch: int,
        now_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        sequence: int = NO_SEQUENCE,
    ) -> SealedBatch | None:
        """Validate and encode a record.

        Returns
        -------
        SealedBatch or None
            None if the topic compresses its batches or a rule is broken. A `BatchDraft` of the
            same record then compresses the batch or raises the error.
        """
        key, value, timestamp, headers = record
        if timestamp is None:
            timestamp = now_ms
        elif not timestamps_in_bounds(timestamp, timestamp, self.config, now_ms):
            return None
        if self._wants_codec or (key is None and self._wants_key):
            return None
        attributes = self._attributes
        log_append_time = now_ms if attributes else NO_TIMESTAMP
        largest = now_ms if attributes else timestamp
        data = pack_record(
            key,
            value,
            encode_headers(headers) if headers else NO_HEADERS,
            base_offset,
            leader_epoch,
            attributes,
            timestamp,
            largest,
            producer_id,
            producer_epoch,
            sequence,
        )
        if len(data) > self._bytes_max:
            return None
        sealed: SealedBatch = _new(SealedBatch, (data, 1, largest, log_append_time, None))
        return sealed


class RecordLists:
    """Records to append, as one list per field.

    Attributes
    ----------
    keys, values : list of bytes or None
    timestamps : list of int or None
        In milliseconds. None means the log's clock.
    headers : dict of int to headers
        Headers by row, for the records that have headers.
    """

    __slots__ = ("headers", "keys", "timestamps", "values")

    def __init__(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamps: list[int | None],
        headers: dict[int, tuple[Header, ...]],
    ) -> None:
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.headers = headers

    @classmethod
    def of(cls, records: Sequence[NewRecord]) -> RecordLists:
        """Return a sequence of records as lists."""
        return RecordLists(
            [record.key for record in records],
            [record.value for record in records],
            [record.timestamp for record in records],
            {row: record.headers for row, record in enumerate(records) if record.headers},
        )

    def __len__(self) -> int:
        return len(self.keys)

    def part(self, start: int, stop: int) -> RecordLists:
        """Return the records in [start, stop)."""
        rows = slice(start, stop)
        headers = self.headers
        if headers:
            headers = {row - start: headers[row] for row in range(start, stop) if row in headers}
        return RecordLists(self.keys[rows], self.values[rows], self.timestamps[rows], headers)

    def record(self, row: int) -> NewRecord:
        """Return the record of a row."""
        return NewRecord(
            self.keys[row], self.values[row], self.timestamps[row], self.headers.get(row, ())
        )

    def draft(self, now_ms: int) -> BatchDraft:
        """Encode one or more records as a batch.

        A few records are encoded in plain Python, more records by a kernel; see
        `logstore.record.choice`. Timestamps that exceed 64 bits cannot be stored in an array. They
        are refused when the draft is sealed.

        Parameters
        ----------
        now_ms : int
            Timestamp for the records without one, in milliseconds.
        """
        timestamps = [now_ms if each is None else each for each in self.timestamps]
        lowest, largest = min(timestamps), max(timestamps)
        count, headers = len(timestamps), self.headers
        if lowest >= NO_TIMESTAMP and largest <= INT64_MAX and encodes_by_kernel(count):
            return self._to_arrays(timestamps).draft(now_ms)
        first = timestamps[0]
        section = encode_rows(
            (wrap_int64(timestamp - first), row, key, value, headers.get(row, ()))
            for row, (timestamp, key, value) in enumerate(
                zip(timestamps, self.keys, self.values, strict=True)
            )
        )
        return BatchDraft(
            section, count, self._null_keys, Times(first, lowest, largest, timestamps)
        )

    def _to_arrays(self, timestamps: list[int]) -> RecordArrays:
        import numpy as np

        from logstore.record.columns import BytesColumn, headers_column

        count, headers = len(self), self.headers
        return RecordArrays(
            BytesColumn.from_list(self.keys),
            BytesColumn.from_list(self.values),
            np.array(timestamps, np.int64),
            headers_column([headers.get(row, ()) for row in range(count)], count)
            if headers
            else None,
        )

    def _null_keys(self) -> list[int]:
        return [row for row, key in enumerate(self.keys) if key is None]


class RecordArrays:
    """Records to append, as one array per field.

    Parameters
    ----------
    keys, values : BytesColumn
        n rows each; size -1 means null.
    timestamps : (n,) int64, optional
        In milliseconds. [default: the log's clock]
    headers : BytesColumn, optional
        Encoded headers, as `logstore.record.columns.headers_column` returns them, or None if no
        record has headers.

    Raises
    ------
    InvalidRecordError
        The columns have different lengths.
    """

    __slots__ = ("headers", "keys", "timestamps", "values")

    def __init__(
        self,
        keys: BytesColumn,
        values: BytesColumn,
        timestamps: NDArray[np.int64] | None = None,
        headers: BytesColumn | None = None,
    ) -> None:
        count = len(values)
        time_rows = count if timestamps is None else len(timestamps)
        header_rows = count if headers is None else len(headers)
        if not len(keys) == time_rows == header_rows == count:
            raise InvalidRecordError(
                f"columns differ in length: {len(keys)} keys, {count} values,"
                f" {time_rows} timestamps, {header_rows} headers"
            )
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.headers = headers

    def __len__(self) -> int:
        return len(self.values)

    def draft(self, now_ms: int) -> BatchDraft:
        """Encode the records (at least one) as a batch; see `RecordLists.draft`."""
        import numpy as np

        from logstore.record.columns import encode_batches

        count, stamps = len(self), self.timestamps
        if stamps is None:
            stamps = np.full(count, now_ms, np.int64)
            times = Times(now_ms, now_ms, now_ms, stamps)
        else:
            times = Times(int(stamps[0]), int(stamps.min()), int(stamps.max()), stamps)
        batch, _ = encode_batches(stamps, self.keys, self.values, self.headers, (0, count))
        return BatchDraft(batch[HEADER_SIZE:], count, self.keys.null_rows, times, batch)

    def draft_batches(self, bounds: Sequence[int], now_ms: int) -> BatchesDraft:
        """Encode the records as several batches. They must have neither timestamps nor headers.

        Parameters
        ----------
        bounds : sequence of int
            Batch i has the rows [bounds[i], bounds[i + 1]), which must not be empty.
        """
        import numpy as np

        from logstore.record.columns import encode_batches

        assert self.timestamps is None
        assert self.headers is None
        stamps = np.full(len(self), now_ms, np.int64)
        data, extents = encode_batches(stamps, self.keys, self.values, None, bounds)
        return BatchesDraft(data, extents[:, 2].tolist(), self.keys, bounds, now_ms)


class Times(NamedTuple):
    """The timestamps of a batch: the first, the minimum, the maximum, and all of them."""

    first: int
    lowest: int
    largest: int
    each: Sequence[int] | NDArray[np.int64]


class BatchDraft:
    """A batch whose records are encoded.

    Parameters
    ----------
    section : bytes-like
        The records, uncompressed; timestamp deltas count from `times.first`.
    count : int
        Number of records, at least 1.
    find_null_keys : callable
        Returns the rows with a null key.
    times : Times, optional
        Timestamps of the records. By default, all records get the time at which the draft is
        sealed, and their deltas are 0.
    batch : memoryview, optional
        The section after a header without producer and codec. Written unchanged if the topic's
        rules require no other header.
    """

    __slots__ = ("_batch", "_count", "_find_null_keys", "section", "times")

    def __init__(
        self,
        section: bytes | memoryview,
        count: int,
        find_null_keys: Callable[[], Sequence[int]],
        times: Times | None = None,
        batch: memoryview | None = None,
    ) -> None:
        self.section = section
        self.times = times
        self._count = count
        self._find_null_keys = find_null_keys
        self._batch = batch

    def seal(self, codec: Codec, place: Placement) -> SealedBatch:
        """Apply the topic's rules, compress the section and set the header.

        Parameters
        ----------
        codec : Codec
            The producer's codec, which `compression.type` may override.
        place : Placement
            Offset of the first record, leader epoch, and the topic's rules.

        Raises
        ------
        InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError,
        RecordListTooLargeError
        """
        config, base, leader_epoch, now_ms, producer_fields = place
        section, count = self.section, self._count
        first, lowest, largest, timestamps = self.times or (now_ms, now_ms, now_ms, ())
        check_record_count(count, config)
        if producer_fields is not None:
            # As for a batch from the wire, check the uncompressed size before the records.
            check_batch_size(HEADER_SIZE + len(section), config)
        if not timestamps_in_bounds(lowest, largest, config, now_ms):
            times = [int(each) for each in timestamps]
            check_timestamps(times, config, now_ms, self._find_null_keys())
        if config.compact:
            check_keys(self._find_null_keys(), config)
        attributes, log_append_time = _attributes(config), NO_TIMESTAMP
        if attributes:
            log_append_time = largest = now_ms
        stored = target_codec(config, codec)
        if stored is not Codec.NONE:
            attributes |= stored
            section = compress(stored, section, codec_level(config, stored))
        data: bytes | memoryview
        batch = None
        if self._batch is not None and producer_fields is None and not attributes:
            data = self._batch
            place_batch(data, base, leader_epoch)
        else:
            producer: Sequence[int] = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
            if producer_fields is not None:
                *producer, is_transactional = producer_fields
                if is_transactional:
                    attributes |= TRANSACTIONAL_BIT
            covered = (attributes, count - 1, first, largest, *producer, count)
            if producer_fields is not None:
                batch = RecordBatch.pack(section, base, leader_epoch, *covered)
                data = batch.data
            else:
                data = pack_batch(section, base, leader_epoch, *covered)
        if len(data) > config.batch_bytes_max:
            check_batch_size(len(data), config)
        return SealedBatch(data, count, largest, log_append_time, batch)


class BatchesDraft:
    """Several batches whose encoded records share one timestamp; see `draft_batches`."""

    def __init__(
        self,
        data: memoryview,
        sizes: list[int],
        keys: BytesColumn,
        bounds: Sequence[int],
        now_ms: int,
    ) -> None:
        self.data = data
        self.timestamp = now_ms
        self._sizes = sizes
        self._keys = keys
        self._bounds = bounds

    def seal(self, codec: Codec, place: Placement) -> list[BatchExtent] | None:
        """Place all batches of `data` in the log and return their extents.

        Returns
        -------
        list of BatchExtent or None
            None, without any change, if the topic's rules require different batches or refuse a
            batch. The caller must then append the drafts of `split` one by one.
        """
        config, base, leader_epoch, now_ms, _ = place
        data, timestamp, bounds = self.data, self.timestamp, self._bounds
        if (
            target_codec(config, codec) is not Codec.NONE
            or _attributes(config)
            or not timestamps_in_bounds(timestamp, timestamp, config, now_ms)
            or max(self._sizes) > config.batch_bytes_max
            or max(last - first for first, last in pairwise(bounds))
            > config.logstore_batch_max_records
            or (config.compact and self._keys.null_rows())
        ):
            return None
        extents: list[BatchExtent] = []
        start, first_offset = 0, base
        for stop, size in zip(bounds[1:], self._sizes, strict=True):
            place_batch(data[start:], first_offset, leader_epoch)
            first_offset = base + stop - bounds[0]
            extents.append(BatchExtent(first_offset - 1, timestamp, size))
            start += size
        return extents

    def split(self) -> Iterator[BatchDraft]:
        """Yield a draft of each batch. Its records get the time at which it is sealed."""
        start = 0
        for (first, last), size in zip(pairwise(self._bounds), self._sizes, strict=True):
            section = self.data[start + HEADER_SIZE : start + size]
            yield BatchDraft(section, last - first, self._keys.slice(first, last).null_rows)
            start += size


def _attributes(config: LogConfig) -> int:
    """Return the attributes of an uncompressed batch without a producer."""
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return TIMESTAMP_TYPE_BIT
    return 0
