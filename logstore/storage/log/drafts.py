"""Drafts of appends: records, columns or ready-made batches, on their way to a log's bytes.

A draft holds what can be prepared without the log's lock; sealing it, under the lock, applies
the topic's rules and gives the bytes of one batch with its offsets in place.

Records come one by one, too, so that what runs for each append makes its values with
`tuple.__new__`: the constructor of a named tuple takes four times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import InvalidRecordError, InvalidTxnStateError
from logstore.record.batch import RecordBatch, built_batch, pack_batch, pack_record, place_batch
from logstore.record.choice import encodes_by_kernel
from logstore.record.codecs import Codec, compress
from logstore.record.control import (
    EndTxnMarker,
    encode_control_key,
    encode_end_txn_value,
    end_txn_marker_of,
)
from logstore.record.layout import HEADER_SIZE, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT
from logstore.record.records import (
    NO_HEADERS,
    NewRecord,
    Record,
    encode_headers,
    encode_rows,
)
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
    AppendOrigin,
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
    from logstore.storage.producers.state import ProducerStateManager
    from logstore.storage.segment.values import RollReason


class AppendInfo(NamedTuple):
    """Result of an append.

    Attributes
    ----------
    first_offset, last_offset : int
        Offsets assigned, both inclusive; -1 when nothing was appended.
    max_timestamp : int
        Largest timestamp stored, in ms.
    log_append_time : int
        The time stamped on a LogAppendTime topic, else -1.
    records : int
        Records appended.
    size_bytes : int
        Bytes written to the `.log`.
    roll_reason : RollReason or None
        Why a new segment was started first, if one was.
    is_duplicate : bool
        The client had sent the batch before: nothing was written, and offsets and time are those
        of the first time.
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
        """Sum up the batches of one append, at least one, offsets in place."""
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
        """Answer a batch that is in the log already with what was assigned then."""
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


class RecordLists:
    """Records to append, as a list for each of their fields.

    Attributes
    ----------
    keys, values : list of bytes or None
    timestamps : list of int or None
        In ms; None means the log's clock.
    headers : dict of int to headers
        By row; of those records that have any.
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
        """Return the lists of records."""
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
        """Return one of them."""
        return NewRecord(
            self.keys[row], self.values[row], self.timestamps[row], self.headers.get(row, ())
        )

    def each_headers(self) -> list[tuple[Header, ...]] | None:
        """Return the headers of each record; None if no record has any."""
        headers = self.headers
        return [headers.get(row, ()) for row in range(len(self))] if headers else None


class Stamp(NamedTuple):
    """The producer fields of a batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool


class Placement(NamedTuple):
    """Where and under which rules a draft becomes a batch: all that the log's lock guards.

    `stamp` is that of the producer who sends it, None if it is of none.
    """

    config: LogConfig
    base_offset: int
    leader_epoch: int
    now_ms: int
    stamp: Stamp | None = None


class SealedDraft(NamedTuple):
    """A batch ready to be written, and what its log notes of it.

    Attributes
    ----------
    data : bytes or memoryview
        The whole batch.
    record_count : int
        Its offsets are as many, from the placement's base on.
    max_timestamp : int
        Of the batch, in ms.
    log_append_time : int
        The time stamped on it by the topic's rules, else -1.
    batch : RecordBatch or None
        The same, its header known, if it bears a stamp.
    """

    data: bytes | memoryview
    record_count: int
    max_timestamp: int
    log_append_time: int
    batch: RecordBatch | None = None


class SealedBatches(NamedTuple):
    """Batches of no producer, ready for one write: their bytes, extents, and records' time."""

    data: memoryview
    extents: list[BatchExtent]
    max_timestamp: int


_new = tuple.__new__


class RecordRules:
    """The rules of a topic for a batch of one record, known before there is one.

    Parameters
    ----------
    config : LogConfig
        They hold as long as this is the log's.
    """

    __slots__ = ("_attributes", "_bytes_max", "_wants_codec", "_wants_key", "config")

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self._attributes = _attributes(config)
        self._bytes_max = config.batch_bytes_max
        self._wants_codec = target_codec(config, Codec.NONE) is not Codec.NONE
        self._wants_key = config.compact

    def seal(
        self, record: NewRecord, base_offset: int, leader_epoch: int, now_ms: int
    ) -> SealedDraft | None:
        """Validate and encode a record.

        None if the rules want a codec, or refuse it: a `RecordsDraft` says why.
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
        )
        if len(data) > self._bytes_max:
            return None
        sealed: SealedDraft = _new(SealedDraft, (data, 1, largest, log_append_time, None))
        return sealed


class RecordsDraft:
    """A few records, to be encoded in plain Python; their times, which are all set, are apart."""

    def __init__(self, records: RecordLists, timestamps: Sequence[int]) -> None:
        self._records = records
        self._timestamps = timestamps

    def seal(self, codec: Codec, place: Placement) -> SealedDraft:
        """Validate and encode; see `ColumnsDraft.seal`."""
        records, timestamps = self._records, self._timestamps
        first, headers = timestamps[0], records.headers
        section = encode_rows(
            (wrap_int64(timestamp - first), row, key, value, headers.get(row, ()))
            for row, (timestamp, key, value) in enumerate(
                zip(timestamps, records.keys, records.values, strict=True)
            )
        )
        times = _Times(first, min(timestamps), max(timestamps), timestamps)
        return _sealed(section, times, self._keyless, codec, place)

    def _keyless(self) -> list[int]:
        return [row for row, key in enumerate(self._records.keys) if key is None]


class ColumnsDraft:
    """Columns, their section encoded by a kernel.

    Parameters
    ----------
    keys, values : BytesColumn
        n rows each, n at least 1.
    timestamps : (n,) int64
        In ms.
    headers : BytesColumn, optional
        Encoded headers, n rows; None means that no record has any.

    Raises
    ------
    InvalidRecordError
        The columns differ in length.
    """

    def __init__(
        self,
        keys: BytesColumn,
        values: BytesColumn,
        timestamps: NDArray[np.int64],
        headers: BytesColumn | None = None,
    ) -> None:
        from logstore.record.columns import encode_batches

        count = len(values)
        rows_of_headers = count if headers is None else len(headers)
        if not len(keys) == len(timestamps) == rows_of_headers == count:
            raise InvalidRecordError(
                f"columns differ in length: {len(keys)} keys, {count} values,"
                f" {len(timestamps)} timestamps, {rows_of_headers} headers"
            )
        self._keys = keys
        self._timestamps = timestamps
        self._batch, _ = encode_batches(timestamps, keys, values, headers, (0, count))

    def seal(self, codec: Codec, place: Placement) -> SealedDraft:
        """Validate, compress and put the header on.

        Parameters
        ----------
        codec : Codec
            The producer's; `compression.type` may overrule it.
        place : Placement
            Offset of the first record, leader epoch, and the topic's rules.

        Raises
        ------
        InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError,
        RecordListTooLargeError
        """
        stamps = self._timestamps
        times = _Times(int(stamps[0]), int(stamps.min()), int(stamps.max()), stamps)
        section = self._batch[HEADER_SIZE:]
        return _sealed(section, times, self._keys.null_rows, codec, place, self._batch)


class SectionDraft:
    """A section that is encoded, of records of one time, which is that of the append.

    Parameters
    ----------
    section : memoryview
        All timestamp deltas are 0.
    count : int
        Records in it, at least 1.
    keyless : callable
        Returns the indexes of the records whose key is null.
    """

    def __init__(
        self, section: memoryview, count: int, keyless: Callable[[], Sequence[int]]
    ) -> None:
        self._section = section
        self._count = count
        self._keyless = keyless

    def seal(self, codec: Codec, place: Placement) -> SealedDraft:
        """Validate, compress and put the header on; see `ColumnsDraft.seal`."""
        now_ms = place.now_ms
        times = _Times(now_ms, now_ms, now_ms, [now_ms] * self._count)
        return _sealed(self._section, times, self._keyless, codec, place)


class BatchesDraft:
    """Columns cut into several batches, of records of one time.

    Parameters
    ----------
    keys, values : BytesColumn
        n rows each, n at least 1; no record has headers.
    bounds : sequence of int
        Batch i has the rows [bounds[i], bounds[i + 1]), at least one.
    now_ms : int
        The time of all records.
    """

    def __init__(
        self, keys: BytesColumn, values: BytesColumn, bounds: Sequence[int], now_ms: int
    ) -> None:
        import numpy as np

        from logstore.record.columns import encode_batches

        self._keys = keys
        self._bounds = bounds
        self._now_ms = now_ms
        times = np.full(len(keys), now_ms, np.int64)
        self._batches, extents = encode_batches(times, keys, values, None, bounds)
        self._sizes: list[int] = extents[:, 2].tolist()
        self._largest_count = max(last - first for first, last in pairwise(bounds))

    def seal(self, codec: Codec, place: Placement) -> SealedBatches | None:
        """Put all batches at their place.

        None, and nothing is done, if the topic's rules want other batches, or refuse one: they
        are to be appended one by one, which says so; see `apart`.
        """
        config, base, leader_epoch, now_ms, _ = place
        if (
            target_codec(config, codec) is not Codec.NONE
            or _attributes(config)
            or not timestamps_in_bounds(self._now_ms, self._now_ms, config, now_ms)
            or max(self._sizes) > config.batch_bytes_max
            or self._largest_count > config.logstore_batch_max_records
            or (config.compact and self._keys.null_rows())
        ):
            return None
        extents: list[BatchExtent] = []
        start = 0
        for last, size in zip(self._bounds[1:], self._sizes, strict=True):
            first_offset = extents[-1].last_offset + 1 if extents else base
            place_batch(self._batches[start:], first_offset, leader_epoch)
            extents.append(BatchExtent(base + last - 1 - self._bounds[0], self._now_ms, size))
            start += size
        return SealedBatches(self._batches, extents, self._now_ms)

    def apart(self) -> Iterator[SectionDraft]:
        """Yield the batches one by one."""
        start = 0
        for (first, last), size in zip(pairwise(self._bounds), self._sizes, strict=True):
            section = self._batches[start + HEADER_SIZE : start + size]
            yield SectionDraft(section, last - first, self._keys.slice(first, last).null_rows)
            start += size


def _attributes(config: LogConfig) -> int:
    """Return the attributes of an uncompressed batch of a topic's own records."""
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return TIMESTAMP_TYPE_BIT
    return 0


class _Times(NamedTuple):
    """The timestamps of a batch: the first, the extremes, and all of them."""

    first: int
    lowest: int
    largest: int
    each: Sequence[int] | NDArray[np.int64]


def _sealed(
    section: bytes | memoryview,
    times: _Times,
    keyless: Callable[[], Sequence[int]],
    codec: Codec,
    place: Placement,
    batch: memoryview | None = None,
) -> SealedDraft:
    """Apply the topic's rules to an encoded section and put the header on; errors as `seal`.

    `batch` is the section with a header of its own, which serves if the rules want no other.
    """
    config, base, leader_epoch, now_ms, stamp = place
    first, lowest, largest, timestamps = times
    check_record_count(len(timestamps), config)
    if stamp is not None:
        # A client's batch is judged as it was sent, before anybody looks into it.
        check_batch_size(HEADER_SIZE + len(section), config)
    if not timestamps_in_bounds(lowest, largest, config, now_ms):
        check_timestamps([int(each) for each in timestamps], config, now_ms, keyless())
    if config.compact:
        check_keys(keyless(), config)
    count = len(timestamps)
    attributes, log_append_time = _attributes(config), NO_TIMESTAMP
    if attributes:
        log_append_time = largest = now_ms
    stored = target_codec(config, codec)
    if stored is not Codec.NONE:
        attributes |= stored
        section = compress(stored, section, codec_level(config, stored))
    data: bytes | memoryview
    stamped = None
    if stamp is not None:
        *producer, is_transactional = stamp
        if is_transactional:
            attributes |= TRANSACTIONAL_BIT
        covered = (attributes, count - 1, first, largest, *producer, count)
        stamped = RecordBatch.packed(section, base, leader_epoch, *covered)
        data = stamped.data
    elif batch is not None and not attributes:
        data = batch
        place_batch(data, base, leader_epoch)
    else:
        data = pack_batch(
            section,
            base,
            leader_epoch,
            attributes,
            count - 1,
            first,
            largest,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            count,
        )
    if len(data) > config.batch_bytes_max:
        check_batch_size(len(data), config)
    return SealedDraft(data, count, largest, log_append_time, stamped)


def draft_records(records: RecordLists, now_ms: int) -> RecordsDraft | ColumnsDraft:
    """Return the draft that suits the number of records, at least one.

    Timestamps that are no 64-bit numbers fit no column; a `RecordsDraft` refuses them.
    """
    timestamps = [now_ms if each is None else each for each in records.timestamps]
    fits = min(timestamps) >= NO_TIMESTAMP and max(timestamps) <= INT64_MAX
    if not fits or not encodes_by_kernel(len(records)):
        return RecordsDraft(records, timestamps)
    import numpy as np

    from logstore.record.columns import BytesColumn, headers_column

    each_headers = records.each_headers()
    return ColumnsDraft(
        BytesColumn.from_list(records.keys),
        BytesColumn.from_list(records.values),
        np.array(timestamps, np.int64),
        None if each_headers is None else headers_column(each_headers, len(records)),
    )


def end_txn_batch(
    producer_id: int, producer_epoch: int, marker: EndTxnMarker, now_ms: int
) -> RecordBatch:
    """Return the control batch that ends a transaction, as a coordinator sends it to the log.

    Parameters
    ----------
    now_ms : int
        Becomes the record's timestamp; wall time in Unix ms.
    """
    record = Record(
        0, now_ms, encode_control_key(marker.control_type), encode_end_txn_value(marker), ()
    )
    return built_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


class ProducerCheck(NamedTuple):
    """Result of checking the producers of an append.

    `markers` has the marker of each batch, None for a data batch, and is empty if no batch has a
    producer; `duplicate` is the batch that a client sends again.
    """

    markers: Sequence[EndTxnMarker | None]
    duplicate: BatchMetadata | None = None


NO_PRODUCERS = ProducerCheck(())


def check_producers(
    producer_state: ProducerStateManager, batches: Sequence[RecordBatch], origin: AppendOrigin
) -> ProducerCheck:
    """Check, changing nothing, that batches may follow what is known of their producers.

    Parameters
    ----------
    batches : sequence of RecordBatch
        One append, offsets in place; exactly one unless it is a replica's.

    Raises
    ------
    InvalidProducerEpochError, OutOfOrderSequenceNumberError, InvalidTxnStateError,
    TransactionCoordinatorFencedError
        See `logstore.storage.producers.rules`.
    InvalidRecordError, CorruptRecordError
        A control record is malformed.
    """
    for batch in batches:
        if batch.header.producer_id >= 0:
            break
    else:
        return NO_PRODUCERS
    markers = [end_txn_marker_of(batch) for batch in batches]
    if origin is not AppendOrigin.REPLICATION:
        duplicate = producer_state.validate(batches[0].header, markers[0], origin)
        return ProducerCheck(markers, duplicate)
    # Whether a transaction is open after the batches of this very append.
    is_open: dict[int, bool] = {}
    for batch, marker in zip(batches, markers, strict=True):
        header = batch.header
        producer_id = header.producer_id
        if not header.has_producer_id:
            continue
        if header.is_control:
            if marker is not None:
                is_open[producer_id] = False
        elif header.is_transactional:
            is_open[producer_id] = True
        elif producer_id not in is_open:
            producer_state.validate(header)
        elif is_open[producer_id]:
            raise InvalidTxnStateError(
                f"producer {producer_id} writes outside a transaction at offset"
                f" {header.base_offset} while a transaction of the same append is open"
            )
    return ProducerCheck(markers)
