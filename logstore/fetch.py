"""Reading a log: raw bytes from any offset, batches, records, and offsets by time.

Holes are normal: a read gives the batch that contains the offset or the next one after it,
across segments (storage-format §14). No lock is held while reading; a segment that is swapped
away meanwhile stays readable through its open file.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaStorageError,
    OffsetOutOfRangeError,
)
from logstore.record.batch import RecordBatch, decode_stored
from logstore.record.control import ControlType, decode_control_key
from logstore.record.records import Record
from logstore.record.walk import check_place, misplaced, walk_buffer
from logstore.types import NO_TIMESTAMP, OffsetPosition

if TYPE_CHECKING:
    from logstore.log import Log
    from logstore.segment import LogSegment

FETCH_BYTES = 1 << 20
"""Bytes that the batch iterator reads at a time."""

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5


class Isolation(Enum):
    """What a reader may see."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"
    LOG_END = "log_end"


class AbortedRange(NamedTuple):
    """An aborted transaction: its producer, and the offset of its first record."""

    producer_id: int
    first_offset: int


class FetchResult(NamedTuple):
    """Raw bytes, and what a consumer needs to interpret them.

    `data` starts with the whole batch that contains the offset asked for (or the first one
    after it) and may end with a torn batch. `path` and `position` say where it was read.
    """

    data: bytes
    first_entry_incomplete: bool
    aborted: tuple[AbortedRange, ...]
    path: str | None
    position: int


_NOTHING = FetchResult(b"", False, (), None, 0)


class ListedOffset(NamedTuple):
    """Answer to a ListOffsets query; timestamp and epoch are -1 where they mean nothing."""

    timestamp: int
    offset: int
    leader_epoch: int


class LogReader:
    """The reading half of a `Log`; holds no state of its own."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        min_one_message: bool = False,
    ) -> FetchResult:
        """Read raw batches from `start_offset` on.

        Parameters
        ----------
        start_offset : int
            In [log_start_offset, log_end_offset]; at the end the result is empty.
        max_bytes : int
            Most bytes to return, but for `min_one_message`.
        isolation : Isolation
            Bounds the read by the high watermark, the last stable offset or the log end.
        min_one_message : bool
            Give the first batch whole even if it is larger than `max_bytes`.

        Raises
        ------
        OffsetOutOfRangeError
            With both bounds.
        KafkaStorageError
            The disk failed, or the log is closed or offline.
        """
        log = self._log
        log.check_open()
        end_offset = log.log_end_offset
        if not log.log_start_offset <= start_offset <= end_offset:
            raise OffsetOutOfRangeError(
                f"offset {start_offset} of {log.topic_partition} is out of range "
                f"[{log.log_start_offset}, {end_offset}]",
                offset=start_offset,
                log_start_offset=log.log_start_offset,
                log_end_offset=end_offset,
            )
        upper = self._upper_offset(isolation)
        if start_offset >= upper:
            return _NOTHING
        try:
            return self._read(start_offset, upper, max_bytes, isolation, min_one_message)
        except OSError as error:
            raise KafkaStorageError(f"{log.topic_partition}: cannot read: {error}") from error

    def _read(
        self,
        start_offset: int,
        upper: int,
        max_bytes: int,
        isolation: Isolation,
        min_one_message: bool,
    ) -> FetchResult:
        for segment in self._log.segments.from_offset(start_offset):
            max_position = self._max_position(segment, upper)
            found = segment.read(
                start_offset,
                max_bytes,
                max_position=max_position,
                min_one_message=min_one_message,
            )
            if found is None:
                continue
            aborted: tuple[AbortedRange, ...] = ()
            if isolation is Isolation.READ_COMMITTED:
                aborted = self._aborted(segment, start_offset, found.position, len(found.data))
            incomplete = found.first_entry_incomplete and len(found.data) > 0
            return FetchResult(found.data, incomplete, aborted, segment.log_path, found.position)
        return _NOTHING

    def _upper_offset(self, isolation: Isolation) -> int:
        log = self._log
        if isolation is Isolation.READ_COMMITTED:
            return log.last_stable_offset
        return log.log_end_offset if isolation is Isolation.LOG_END else log.high_watermark

    def _max_position(self, segment: LogSegment, upper: int) -> int | None:
        """Return the byte bound that `upper` sets in a segment; None when it sets none."""
        if upper == self._log.log_end_offset:
            return None
        following = self._log.segments.higher(segment.base_offset)
        if following is not None and following.base_offset <= upper:
            return None
        at = segment.translate_offset(upper)
        return None if at is None else at.position

    def _aborted(
        self, segment: LogSegment, start_offset: int, position: int, size: int
    ) -> tuple[AbortedRange, ...]:
        """Collect the aborted transactions that a reader of these bytes must drop."""
        log = self._log
        upper = segment.fetch_upper_bound_offset(OffsetPosition(start_offset, position), size)
        if upper is None:
            following = log.segments.higher(segment.base_offset)
            upper = log.log_end_offset if following is None else following.base_offset
        found: list[AbortedRange] = []
        for each in log.segments.from_offset(segment.base_offset):
            transactions, complete = each.collect_aborted_txns(start_offset, upper)
            found += [AbortedRange(t.producer_id, t.first_offset) for t in transactions]
            if complete:
                break
        return tuple(found)

    def batches(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[RecordBatch]:
        """Yield the whole batches that overlap [start, end); CRCs are not checked.

        Parameters
        ----------
        start_offset : int
            Inclusive; within the log.
        end_offset : int, optional
            Exclusive; what `isolation` allows by default.

        Raises
        ------
        OffsetOutOfRangeError
            At the first step.
        CorruptRecordError, UnsupportedFormatError
            The walk met bytes that are no batch; the message names file and position.
        """
        for batch, _ in self._fetch(start_offset, end_offset, isolation):
            yield batch

    def _fetch(
        self, start_offset: int, end_offset: int | None, isolation: Isolation
    ) -> Iterator[tuple[RecordBatch, tuple[AbortedRange, ...]]]:
        offset = start_offset
        previous = -1
        while end_offset is None or offset < end_offset:
            result = self.read(offset, FETCH_BYTES, isolation=isolation, min_one_message=True)
            if not result.data:
                return
            before = offset
            for batch in walk_buffer(result.data, result.path, result.position):
                header = batch.header
                if end_offset is not None and header.base_offset >= end_offset:
                    return
                check_place(header, previous, batch.path, batch.position or 0)
                previous = header.last_offset
                if previous >= self._log.log_end_offset:
                    raise misplaced(
                        header.base_offset, previous, offset, batch.path, batch.position or 0
                    )
                if previous >= offset:
                    yield batch, result.aborted
                    offset = header.next_offset
            if offset == before:
                return

    def records(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[tuple[RecordBatch, Record]]:
        """Yield data records in [start, end) with the batch of each, in offset order.

        Control records are passed over; with `READ_COMMITTED` so are those of aborted
        transactions. Every batch's CRC is verified.

        Raises
        ------
        OffsetOutOfRangeError
            At the first step.
        CorruptRecordError
            A batch is damaged; names file and position.
        """
        aborted_producers: set[int] = set()
        entered: set[AbortedRange] = set()
        for batch, aborted in self._fetch(start_offset, end_offset, isolation):
            batch.ensure_valid()
            header = batch.header
            for transaction in aborted:
                if transaction.first_offset <= header.last_offset and transaction not in entered:
                    entered.add(transaction)
                    aborted_producers.add(transaction.producer_id)
            if header.is_control:
                self._end_transaction(batch, aborted_producers)
                continue
            if header.is_transactional and header.producer_id in aborted_producers:
                continue
            for record in decode_stored(batch, self._decompression_limit):
                if record.offset >= start_offset and (
                    end_offset is None or record.offset < end_offset
                ):
                    yield batch, record

    @property
    def _decompression_limit(self) -> int:
        return self._log.config.logstore_decompression_max_bytes

    def _end_transaction(self, batch: RecordBatch, aborted_producers: set[int]) -> None:
        record = next(decode_stored(batch, self._decompression_limit), None)
        if record is None:
            return
        try:
            control_type = decode_control_key(record.key).control_type
        except InvalidRecordError as error:
            raise CorruptRecordError(
                str(error), path=batch.path, position=batch.position, check="control_record"
            ) from error
        if control_type is ControlType.ABORT:
            aborted_producers.discard(batch.header.producer_id)

    def offset_for_timestamp(self, target: int) -> ListedOffset | None:
        """Answer a ListOffsets query (storage-format §14).

        Parameters
        ----------
        target : int
            Unix ms, or -1 latest, -2 earliest, -3 largest timestamp, -4 earliest local,
            -5 latest tiered.

        Returns
        -------
        ListedOffset or None
            None when no record is at or after the time.

        Raises
        ------
        InvalidRecordError
            A negative time without a meaning.
        CorruptRecordError
            A batch on the way is damaged.
        KafkaStorageError
            As `read`.
        """
        log = self._log
        log.check_open()
        if target in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            entries = log.epochs.entries
            first = entries[0] if entries else None
            known = first is not None and first.start_offset <= log.log_start_offset
            epoch = first.epoch if first is not None and known else -1
            return ListedOffset(NO_TIMESTAMP, log.log_start_offset, epoch)
        if target == LATEST_TIMESTAMP:
            latest = log.epochs.latest
            return ListedOffset(
                NO_TIMESTAMP, log.log_end_offset, -1 if latest is None else latest.epoch
            )
        if target == LATEST_TIERED_TIMESTAMP:
            return ListedOffset(NO_TIMESTAMP, -1, -1)
        if target < MAX_TIMESTAMP:
            raise InvalidRecordError(f"unknown ListOffsets timestamp {target}")
        try:
            if target == MAX_TIMESTAMP:
                return self._offset_of_max_timestamp()
            return self._offset_at_or_after(target)
        except OSError as error:
            raise KafkaStorageError(f"{log.topic_partition}: cannot read: {error}") from error

    def _offset_at_or_after(self, target: int) -> ListedOffset | None:
        log = self._log
        for segment in log.segments:
            if segment.largest_timestamp >= target:
                found = segment.find_offset_by_timestamp(target, log.log_start_offset)
                if found is None:
                    return None
                return ListedOffset(found[0].timestamp, found[0].offset, found[1])
        return None

    def _offset_of_max_timestamp(self) -> ListedOffset | None:
        best = max(
            self._log.segments,
            key=lambda segment: segment.max_timestamp_so_far.timestamp,
        )
        target = best.max_timestamp_so_far
        if target.timestamp < 0:
            return None
        for at in best.batches(best.indexed_position(target.offset)):
            if at.header.max_timestamp != target.timestamp:
                continue
            batch = best.read_batch(at)
            batch.ensure_valid()
            for record in decode_stored(batch, self._decompression_limit):
                if record.timestamp == target.timestamp:
                    return ListedOffset(
                        record.timestamp, record.offset, at.header.partition_leader_epoch
                    )
        return None
