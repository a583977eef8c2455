"""Read a log: raw bytes from any offset, batches, records, columns, and offsets by time.

Gaps between offsets are normal. A read returns the batch that contains the offset or, if there is
none, the next batch, which may be in another segment (storage-format §14).

Reads take no lock. An iterator reads a chunk of one segment at a time and looks up the next chunk
in the segments that exist at that time. If a segment is removed or replaced concurrently, the
iterator returns the rest of its chunk. Then it continues in the replacement, or raises
`OffsetOutOfRangeError` if the log start has moved past its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

from logstore.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    InvalidRecordError,
    KafkaStorageError,
    OffsetOutOfRangeError,
)
from logstore.record.batch import RecordBatch, decode_stored, stored_rows
from logstore.record.control import ControlType, decode_control_key
from logstore.record.records import Record, RecordRow
from logstore.record.walk import check_place, misplaced, walk_buffer
from logstore.types import INT32_MAX, INT64_MAX, NO_TIMESTAMP, OffsetPosition

if TYPE_CHECKING:
    from logstore.record.columns import RecordColumns
    from logstore.storage.log.local_log import LocalLog
    from logstore.storage.log.offsets import LogOffsets
    from logstore.storage.segment.segment import LogSegment

Answer = TypeVar("Answer")

FETCH_BYTES = 1 << 20
"""Number of bytes that the batch iterator reads at a time."""

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5


class Isolation(Enum):
    """Which records a read returns."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"
    LOG_END = "log_end"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        names = ", ".join(level.value for level in cls)
        raise InvalidConfigurationError(f"Unknown isolation {value!r}. Use one of {names}")


class AbortedRange(NamedTuple):
    """The producer and first offset of an aborted transaction."""

    producer_id: int
    first_offset: int


class FetchResult(NamedTuple):
    """Raw batches, with the values that a consumer needs to interpret them.

    `data` starts with the complete batch that contains the requested offset (or the next one) and
    may end with a partial batch. `path` and `position` are its source.
    """

    data: bytes
    first_entry_incomplete: bool
    aborted: tuple[AbortedRange, ...]
    path: str | None
    position: int


ATTEMPTS_MAX = 16
"""Maximum number of attempts to read a changing log. The last one holds the log's lock."""

_NOTHING = FetchResult(b"", False, (), None, 0)


class ListedOffset(NamedTuple):
    """The result of a ListOffsets query. Timestamp and epoch are -1 if they do not apply."""

    timestamp: int
    offset: int
    leader_epoch: int


class LogReader:
    """A stateless reader of a log."""

    def __init__(self, local: LocalLog, offsets: LogOffsets) -> None:
        self._local = local
        self._offsets = offsets

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
            In [log_start_offset, log_end_offset]. At the log end, the result is empty.
        max_bytes : int
            Maximum number of bytes, unless `min_one_message` applies.
        isolation : Isolation
            Whether to read up to the high watermark, the last stable offset or the log end.
        min_one_message : bool
            Return the complete first batch even if it is larger than `max_bytes`.

        Raises
        ------
        OffsetOutOfRangeError
            `start_offset` is out of range. The error contains both bounds.
        KafkaStorageError
            The disk failed, or the log is offline.
        """
        self._local.check_open()
        return self.steady(lambda: self._read(start_offset, max_bytes, isolation, min_one_message))

    def steady(self, read: Callable[[], Answer]) -> Answer:
        """Call `read` without a lock. Repeat the call if the log changed in the meantime.

        The call is repeated if the log was truncated, or if it failed while segments were removed.
        The last attempt holds the log's lock, so the number of attempts is limited, and an error in
        that attempt is genuine.

        Raises
        ------
        KafkaStorageError
            The disk failed.
        IllegalStateError, UnknownTopicOrPartitionError
            The log was closed or deleted concurrently.
        """
        local = self._local
        for _ in range(ATTEMPTS_MAX - 1):
            generation = local.settled_generation()
            view = local.segments.view
            try:
                answer = read()
            except Exception as error:  # a removed file, or a truncated batch
                with local.lock:  # wait for a change in progress
                    has_changed = local.generation != generation or local.segments.view is not view
                local.check_open()
                if has_changed:
                    continue
                self._refuse_if_disk_failed(error)
                raise
            if local.generation == generation:
                return answer
        with local.lock:
            local.check_open()
            try:
                return read()
            except Exception as error:
                self._refuse_if_disk_failed(error)
                raise

    def _refuse_if_disk_failed(self, error: Exception) -> None:
        if isinstance(error, OSError):
            text = f"{self._local.topic_partition}: cannot read: {error}"
            raise KafkaStorageError(text) from error

    def open_files(self, end_offset: int) -> None:
        """Open the `.log` files of the segments below an offset.

        They can then be read to the end even if the segments are removed.
        """
        local = self._local
        with local.lock, local.guard("cannot open segments"):
            local.check_open()
            for segment in local.segments.between(local.segments.first.base_offset, end_offset):
                _ = segment.file

    def _check_range(self, offset: int) -> None:
        start_offset, end_offset = self._offsets.log_start_offset, self._local.log_end.offset
        if not start_offset <= offset <= end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self._local.topic_partition} is out of range "
                f"[{start_offset}, {end_offset}]",
                offset=offset,
                log_start_offset=start_offset,
                log_end_offset=end_offset,
            )

    def _read(
        self, start_offset: int, max_bytes: int, isolation: Isolation, min_one_message: bool
    ) -> FetchResult:
        self._check_range(start_offset)
        upper = self.upper_offset(isolation)
        found = _NOTHING
        if start_offset < upper:
            found = self._find(start_offset, upper, max_bytes, isolation, min_one_message)
        # A segment removed after the first check would look like a gap.
        self._check_range(start_offset)
        return found

    def _find(
        self,
        start_offset: int,
        upper: int,
        max_bytes: int,
        isolation: Isolation,
        min_one_message: bool,
    ) -> FetchResult:
        for segment in self._local.segments.from_offset(start_offset):
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

    def upper_offset(self, isolation: Isolation) -> int:
        """Return the exclusive end of the readable offsets for an isolation level."""
        if isolation is Isolation.READ_COMMITTED:
            return self._offsets.last_stable_offset
        if isolation is Isolation.LOG_END:
            return self._local.log_end.offset
        return self._offsets.high_watermark

    def _max_position(self, segment: LogSegment, upper: int) -> int:
        """Return the position in a segment at which a read up to `upper` ends.

        An append publishes its bytes first and the offsets that make them readable last. Once
        `upper` is known, the bytes therefore contain all records below it, and perhaps more.
        """
        size = segment.size_bytes
        end = self._local.log_end
        if upper == end.offset and segment.base_offset >= end.base_offset:
            return end.position if segment.base_offset == end.base_offset else 0
        following = self._local.segments.higher(segment.base_offset)
        if following is not None and following.base_offset <= upper:
            return size
        try:
            at = segment.translate_offset(upper)
        except CorruptRecordError as error:
            if error.position is None:
                raise
            return error.position  # the batches before the damage can be read
        return size if at is None else at.position

    def _aborted(
        self, segment: LogSegment, start_offset: int, position: int, size: int
    ) -> tuple[AbortedRange, ...]:
        """Collect the aborted transactions that a reader of these bytes must skip."""
        local = self._local
        upper = segment.fetch_upper_bound_offset(OffsetPosition(start_offset, position), size)
        if upper is None:
            following = local.segments.higher(segment.base_offset)
            upper = local.log_end.offset if following is None else following.base_offset
        found: list[AbortedRange] = []
        for later in local.segments.from_offset(segment.base_offset):
            transactions, complete = later.collect_aborted_txns(start_offset, upper)
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
        """Yield the complete batches that overlap [start, end), without verifying their CRCs.

        Parameters
        ----------
        start_offset : int
            Inclusive. Must be within the log.
        end_offset : int, optional
            Exclusive. [default: the end for `isolation`]

        Raises
        ------
        OffsetOutOfRangeError
            Raised on the first iteration if `start_offset` is out of range.
        CorruptRecordError, UnsupportedFormatError
            Some bytes are not a valid batch. The message names file and position.
        """
        for batch, _ in self._fetch(start_offset, end_offset, isolation):
            self._local.lifetime.check()
            yield batch

    def _fetch(
        self, start_offset: int, end_offset: int | None, isolation: Isolation
    ) -> Iterator[tuple[RecordBatch, tuple[AbortedRange, ...]]]:
        local = self._local
        offset = start_offset
        previous = -1
        generation = local.generation
        while end_offset is None or offset < end_offset:
            result = self.read(offset, FETCH_BYTES, isolation=isolation, min_one_message=True)
            if local.generation != generation:
                # The log was truncated, so new batches might overlap those already returned.
                generation, previous = local.generation, -1
                continue
            if not result.data:
                return
            before = offset
            for batch in walk_buffer(result.data, result.path, result.position):
                header = batch.header
                if end_offset is not None and header.base_offset >= end_offset:
                    return
                check_place(header, previous, batch.path, batch.position or 0)
                previous = header.last_offset
                if previous >= local.log_end.offset and local.generation == generation:
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
        """Yield data records in [start, end) in offset order, each with its batch.

        Control records are skipped. With `READ_COMMITTED`, records of aborted transactions are
        skipped as well. The CRC of every batch is verified.

        Raises
        ------
        OffsetOutOfRangeError
            Raised on the first iteration if `start_offset` is out of range; later if the log start
            moves past the current position, or the log is truncated below it.
        CorruptRecordError
            A batch is damaged. The message names file and position.
        """
        for batch, rows in self.rows(start_offset, end_offset, isolation=isolation):
            for row in rows:
                self._local.lifetime.check()  # stop iterating when the log is closed
                yield batch, Record._make(row)

    def rows(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[tuple[RecordBatch, Sequence[RecordRow]]]:
        """Yield the records of `records` as plain rows, some hundreds at a time.

        A caller that returns the rows one by one must call `lifetime.check` before each row.
        """
        next_offset = start_offset
        for batch in self._visible(start_offset, end_offset, isolation):
            header = batch.header
            # Record offsets are never below the batch, but a crafted batch may contain one above
            # it.
            is_inside = (
                end_offset is None and next_offset <= header.base_offset <= INT64_MAX - INT32_MAX
            )
            for rows in stored_rows(batch, self._decompression_limit):
                yield (
                    batch,
                    rows
                    if is_inside
                    else [
                        row
                        for row in rows
                        if row[0] >= next_offset and (end_offset is None or row[0] < end_offset)
                    ],
                )
            next_offset = header.next_offset

    def columns(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[tuple[RecordBatch, RecordColumns]]:
        """Yield the data records in [start, end) as columns, batch by batch.

        These are the records of `records`, with the same checks. A batch without visible records in
        the range is skipped.

        Raises
        ------
        OffsetOutOfRangeError, CorruptRecordError
            See `records`.

        Notes
        -----
        Memory: one batch, which may decompress to `logstore.decompression.max.bytes`, and 88 bytes
        per record. Results remain valid, because each batch has its own arena.
        """
        next_offset = start_offset
        for batch in self._visible(start_offset, end_offset, isolation):
            try:
                columns = batch.columns(self._decompression_limit)
            except InvalidRecordError as error:
                raise _damage(batch, "record_structure", error) from error
            columns = columns.between(next_offset, end_offset)
            next_offset = batch.header.next_offset
            if len(columns):
                self._local.lifetime.check()
                yield batch, columns

    def fetched(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[tuple[RecordBatch, bool]]:
        """Yield every batch that overlaps [start, end), and whether its records are visible.

        Records of control batches are invisible and, with `READ_COMMITTED`, so are records of
        aborted transactions. The CRC of every batch is verified. Consumers use this to advance past
        invisible batches. Raises the same errors as `records`.
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
                yield batch, False
            else:
                is_aborted = header.is_transactional and header.producer_id in aborted_producers
                yield batch, not is_aborted

    def _visible(
        self, start_offset: int, end_offset: int | None, isolation: Isolation
    ) -> Iterator[RecordBatch]:
        """Yield the visible data batches, with verified CRCs."""
        for batch, is_visible in self.fetched(start_offset, end_offset, isolation=isolation):
            if is_visible:
                yield batch

    @property
    def _decompression_limit(self) -> int:
        return self._local.config.logstore_decompression_max_bytes

    def _end_transaction(self, batch: RecordBatch, aborted_producers: set[int]) -> None:
        record = next(decode_stored(batch, self._decompression_limit), None)
        if record is None:
            return
        try:
            control_type = decode_control_key(record.key).control_type
        except InvalidRecordError as error:
            raise _damage(batch, "control_record", error) from error
        if control_type is ControlType.ABORT:
            aborted_producers.discard(batch.header.producer_id)

    def offset_for_timestamp(self, target: int) -> ListedOffset | None:
        """Answer a ListOffsets query (storage-format §14).

        Parameters
        ----------
        target : int
            In Unix milliseconds, or -1 for latest, -2 for earliest, -3 for the maximum timestamp,
            -4 for earliest local, -5 for latest tiered.

        Returns
        -------
        ListedOffset or None
            None if no record is at or after the timestamp.

        Raises
        ------
        InvalidRecordError
            `target` is negative and not a special value listed above.
        CorruptRecordError
            A batch that must be read is damaged.
        KafkaStorageError
            See `read`.
        """
        local = self._local
        local.check_open()
        if target in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            entries = local.epochs.entries
            first = entries[0] if entries else None
            known = first is not None and first.start_offset <= self._offsets.log_start_offset
            epoch = first.epoch if first is not None and known else -1
            return ListedOffset(NO_TIMESTAMP, self._offsets.log_start_offset, epoch)
        if target == LATEST_TIMESTAMP:
            latest = local.epochs.latest
            return ListedOffset(
                NO_TIMESTAMP, local.log_end.offset, -1 if latest is None else latest.epoch
            )
        if target == LATEST_TIERED_TIMESTAMP:
            return ListedOffset(NO_TIMESTAMP, -1, -1)
        if target < MAX_TIMESTAMP:
            raise InvalidRecordError(f"unknown ListOffsets timestamp {target}")
        if target == MAX_TIMESTAMP:
            return self.steady(self._offset_of_max_timestamp)
        return self.steady(lambda: self._offset_at_or_after(target))

    def _offset_at_or_after(self, target: int) -> ListedOffset | None:
        for segment in self._local.segments:
            if segment.largest_timestamp >= target:
                found = segment.find_offset_by_timestamp(target, self._offsets.log_start_offset)
                if found is None:
                    return None
                return ListedOffset(found[0].timestamp, found[0].offset, found[1])
        return None

    def first_offset_at(self, timestamp: int) -> int:
        """Return the offset below which every record is older than `timestamp`.

        Parameters
        ----------
        timestamp : int
            In Unix milliseconds.

        Returns
        -------
        int
            Offset of the first record at or after `timestamp`, or the high watermark if there is
            none.

        Notes
        -----
        Unlike a ListOffsets query, this continues if the newest records of a segment are below the
        log start, because the result is meant to become the log start.
        """
        self._local.check_open()
        return self.steady(lambda: self._first_offset_at(timestamp))

    def _first_offset_at(self, timestamp: int) -> int:
        for segment in self._local.segments:
            # Without a time index (-1) the records must be read.
            if 0 <= segment.max_timestamp_so_far.timestamp < timestamp:
                continue
            found = segment.find_offset_by_timestamp(timestamp, self._offsets.log_start_offset)
            if found is not None:
                return found[0].offset
        return self._offsets.high_watermark

    def _offset_of_max_timestamp(self) -> ListedOffset | None:
        best = max(
            self._local.segments,
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


def _damage(batch: RecordBatch, check: str, error: InvalidRecordError) -> CorruptRecordError:
    """Return the error for a stored batch that violates the format."""
    return CorruptRecordError(str(error), path=batch.path, position=batch.position, check=check)
