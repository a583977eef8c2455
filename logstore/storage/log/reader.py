"""Reading a log: raw bytes from any offset, batches, records, columns, and offsets by time.

Holes are normal: a read gives the batch that contains the offset or the next one after it,
across segments (storage-format §14).

No lock is held while reading. An iterator reads a piece of one segment at a time and looks for
the next piece in the segments of that moment. So what it holds of a segment that is removed or
replaced meanwhile it gives to the end; then it goes on in what took the segment's place, or
raises `OffsetOutOfRangeError` if the log start has moved beyond it.
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
"""Bytes that the batch iterator reads at a time."""

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5


class Isolation(Enum):
    """The records that a reader may see."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"
    LOG_END = "log_end"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        names = ", ".join(level.value for level in cls)
        raise InvalidConfigurationError(f"isolation {value!r} is none of {names}")


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


LOOKS_MAX = 16
"""Looks at a log that changes under each of them; the last one keeps it from changing."""

_NOTHING = FetchResult(b"", False, (), None, 0)


class ListedOffset(NamedTuple):
    """Answer to a ListOffsets query; timestamp and epoch are -1 where they mean nothing."""

    timestamp: int
    offset: int
    leader_epoch: int


class LogReader:
    """The reader of a log; holds no state of its own."""

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
            The disk failed, or the log is offline.
        """
        self._local.check_open()
        return self.steady(lambda: self._read(start_offset, max_bytes, isolation, min_one_message))

    def steady(self, look: Callable[[], Answer]) -> Answer:
        """Look something up without a lock; again if the log changed under the look.

        That is, if bytes were truncated meanwhile, or it failed and segments were removed. A log
        that changes under every look could go on so for ever, and hide what really fails: so the
        last look holds the log's lock, changes wait for it, and what it meets is so.

        Raises
        ------
        KafkaStorageError
            The disk failed.
        IllegalStateError, UnknownTopicOrPartitionError
            The log was closed meanwhile, or deleted.
        """
        local = self._local
        for _ in range(LOOKS_MAX - 1):
            generation = local.settled_generation()
            view = local.segments.view
            try:
                answer = look()
            except Exception as error:  # a file that is gone, a batch that was half cut
                with local.lock:  # a change that is under way comes to its end
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
                return look()
            except Exception as error:
                self._refuse_if_disk_failed(error)
                raise

    def _refuse_if_disk_failed(self, error: Exception) -> None:
        if isinstance(error, OSError):
            text = f"{self._local.topic_partition}: cannot read: {error}"
            raise KafkaStorageError(text) from error

    def open_files(self, end_offset: int) -> None:
        """Open the `.log` files of the segments below an offset, to read them all.

        So that they can be read to the end, whatever is removed meanwhile.
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
        # Segments that went since the first look would seem to be a hole.
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
        """Return the exclusive end of what may be read: high watermark, last stable or log end."""
        if isolation is Isolation.READ_COMMITTED:
            return self._offsets.last_stable_offset
        if isolation is Isolation.LOG_END:
            return self._local.log_end.offset
        return self._offsets.high_watermark

    def _max_position(self, segment: LogSegment, upper: int) -> int:
        """Return the byte bound that `upper` sets in a segment.

        An append publishes its bytes first, and the offsets that let them be read last. So the
        bytes there were once `upper` was known hold all below it, and perhaps more.
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
            return error.position  # what lies before the damage can be read
        return size if at is None else at.position

    def _aborted(
        self, segment: LogSegment, start_offset: int, position: int, size: int
    ) -> tuple[AbortedRange, ...]:
        """Collect the aborted transactions that a reader of these bytes must drop."""
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
                # Truncated since: what stands there by now may overlap what was given.
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
        """Yield data records in [start, end) with the batch of each, in offset order.

        Control records are passed over; with `READ_COMMITTED` so are those of aborted
        transactions. Every batch's CRC is verified.

        Raises
        ------
        OffsetOutOfRangeError
            At the first step; later if the log start moved beyond what was read so far, or the log
            was truncated below it.
        CorruptRecordError
            A batch is damaged; names file and position.
        """
        for batch, rows in self.rows(start_offset, end_offset, isolation=isolation):
            for row in rows:
                self._local.lifetime.check()  # what was read before it was closed ends, too
                yield batch, Record._make(row)

    def rows(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[tuple[RecordBatch, Sequence[RecordRow]]]:
        """Yield the same as `records`, some hundreds at a time, as plain rows.

        A caller that hands them out one by one asks `lifetime.check` before each.
        """
        next_offset = start_offset
        for batch in self._visible(start_offset, end_offset, isolation):
            header = batch.header
            # No record lies below its batch; above it hostile bytes may put one.
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

        The same records as `records`, with the same checks. A batch none of whose records is in
        the range, or visible, is passed over.

        Raises
        ------
        OffsetOutOfRangeError, CorruptRecordError
            As `records`.

        Notes
        -----
        Memory: one batch, whose section may unfold to `logstore.decompression.max.bytes`, and 88
        bytes a record. What was given stays valid: each batch has its own arena.
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
        """Yield every batch that overlaps [start, end), and whether a reader may see its records.

        It may not see those of control batches, nor, with `READ_COMMITTED`, of aborted
        transactions. Every batch's CRC is verified. For consumers, whose position moves over what
        they do not see; raises as `records`.
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
        """Yield the batches of data that a reader may see, their CRCs verified."""
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
            Unix ms.

        Returns
        -------
        int
            That of the first record at or after it, else the high watermark.

        Notes
        -----
        Unlike a ListOffsets query it goes on where a segment's newest records lie below the log
        start: what it answers is meant to be deleted up to.
        """
        self._local.check_open()
        return self.steady(lambda: self._first_offset_at(timestamp))

    def _first_offset_at(self, timestamp: int) -> int:
        for segment in self._local.segments:
            # Without a time index (-1) the records themselves must tell.
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
    """Return the error of a stored batch that breaks a read rule: damage at rest."""
    return CorruptRecordError(str(error), path=batch.path, position=batch.position, check=check)
