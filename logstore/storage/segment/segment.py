"""A segment of a partition: a `.log` file, its indexes and its timestamps.

A segment appends batches without parsing them and indexes them sparsely by bytes (storage-format
§8). Writers must hold the log's lock. Readers hold no lock and only read published bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from logstore.errors import (
    CorruptRecordError,
    InvalidOffsetError,
    SegmentOverflowError,
    UnsupportedFormatError,
)
from logstore.record.batch import RecordBatch, decode_stored
from logstore.record.header import BatchHeader
from logstore.record.layout import HEADER_SIZE, MAGIC, MAGIC_POSITION
from logstore.record.walk import BatchAt, check_place, read_batch, walk_headers
from logstore.runtime import MemoryFileSystem
from logstore.storage.index import OffsetIndex
from logstore.storage.segment.files import SegmentFiles
from logstore.storage.segment.values import (
    UNKNOWN_POSITION,
    BatchExtent,
    BatchPosition,
    RollReason,
    SegmentRead,
    draw_roll_jitter,
)
from logstore.types import INT32_MAX, INT64_MAX, NO_TIMESTAMP, OffsetPosition, TimestampOffset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from logstore.config.log_config import LogConfig
    from logstore.runtime import Clock, File, Runtime
    from logstore.runtime.fs import Buffer
    from logstore.types import AbortedTxn

__all__ = [
    "UNKNOWN_POSITION",
    "BatchExtent",
    "BatchPosition",
    "LogSegment",
    "RollReason",
    "SegmentRead",
]

logger = logging.getLogger(__name__)

_BATCH_SECONDS = 10e-6
"""Approximate cost of a batch in `find_index_entries` as plain Python."""

_NO_RUNWAY = (-1, -1, -1, -2)

_new = tuple.__new__  # see `logstore.storage.log.drafts`

COPY_BYTES = 1 << 20
"""Number of bytes that `append_from_file` copies per write.

A larger batch is copied with a single write.
"""


class LogSegment(SegmentFiles):
    """A `.log` file with its offset, time and transaction indexes.

    Parameters
    ----------
    runtime : Runtime
        Provides files, the clock and the random roll jitter.
    directory : str
        The partition's directory.
    base_offset : int
        Lower bound of the segment's offsets; determines the file names.
    config : LogConfig
        Index sizes and interval, roll limits, preallocation.
    suffix : str
        Appended to every file name (`.cleaned` while a cleaner writes the segment).
    create : bool
        Whether to create the `.log`. If false, it must exist.

    Raises
    ------
    FileNotFoundError
        The `.log` is missing.
    CorruptRecordError
        The `.log` is larger than 2^31-1 bytes.

    Notes
    -----
    Creating or opening a segment only touches the `.log`. An index file is created on first use.
    `size_bytes` excludes the zeros of a preallocated file.
    """

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        suffix: str = "",
        create: bool = False,
    ) -> None:
        super().__init__(runtime.fs, directory, base_offset, config, suffix=suffix, create=create)
        self._clock: Clock = runtime.clock
        self.created_ms = self._clock.now_ms()
        self._rolling_based_timestamp: int | None = None
        self.index_interval_bytes = config.index_interval_bytes
        self._bytes_since_last_index_entry = 0
        self._max_timestamp: TimestampOffset | None = None
        # Limits of `append_next`: the maximum position, end, last offset and timestamp of a batch
        # that needs neither an index entry nor a roll. None until computed.
        self._runway: tuple[int, int, int, int] | None = None
        self._rebuilt_index: OffsetIndex | None = None
        self._rebuild_lock = runtime.lock()
        self.roll_jitter_ms = draw_roll_jitter(config, runtime.rng)

    def __repr__(self) -> str:
        return f"LogSegment(base_offset={self.base_offset}, size_bytes={self.size_bytes})"

    def set_config(self, config: LogConfig) -> None:
        """Replace the configuration. The size of existing indexes does not change."""
        self.config = config
        self._runway = None

    def close(self) -> None:
        """Write the last time index entry, trim the indexes and the log, and close the files."""
        self._runway = None
        if self._max_timestamp is not None:
            self._append_last_time_entry()
        self._keep_rebuilt_index()
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.close()
        self._trim_log()
        self._close_log()

    def on_become_inactive(self) -> None:
        """After a roll, write the last time index entry and trim the files."""
        self._runway = None
        self._append_last_time_entry()
        self._keep_rebuilt_index()
        self.offset_index.trim_to_valid_size()
        self.time_index.trim_to_valid_size()
        self._trim_log()

    def _append_last_time_entry(self) -> None:
        last = self.max_timestamp_so_far
        # If an index has no room for the reserved entry, the entry is omitted.
        with suppress(SegmentOverflowError):
            self.time_index.maybe_append(last.timestamp, last.offset, skip_full_check=True)

    # -- append and roll -----------------------------------------------------------------

    def can_append_offset(self, offset: int) -> bool:
        """Return whether the offset relative to the base offset fits into 31 bits."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    def append(
        self, extents: Sequence[BatchExtent] | NDArray[np.int64], buffers: Sequence[Buffer]
    ) -> int:
        """Append whole batches in one write (storage-format §8.1).

        Parameters
        ----------
        extents : sequence of BatchExtent, or (n, EXTENT_COLUMNS) int64
            The batches in the buffers, in order. Their sizes must add up to the number of bytes.
            For an array, a kernel selects the index entries, which take one write per index.
        buffers : sequence of bytes-like
            The bytes, split at any positions.

        Returns
        -------
        int
            Position of the first byte.

        Raises
        ------
        SegmentOverflowError
            The last offset does not fit into the segment. Nothing was written.
        OSError
            The write failed. The file was truncated to its former size if possible.

        Notes
        -----
        As in Kafka since 3.9.1, the indexes are sparse by batch, not by append: a batch gets an
        entry if more than `index.interval.bytes` precede it since the last entry. The index files
        therefore only depend on the `.log`, except for reopened segments.
        """
        position = self.size_bytes
        if not len(extents):
            return position
        last_offset = int(extents[-1][0])
        if not self.can_append_offset(last_offset):
            raise SegmentOverflowError(
                f"offset {last_offset} does not fit segment {self.base_offset}"
            )
        is_listed = isinstance(extents, (list, tuple))
        index = self._index_listed if is_listed else self._index_by_kernel
        is_indexed = False
        try:
            if position == 0:
                self.resize_indexes()  # as in Kafka; otherwise loading would recover the segment
            self._writing().write_at(buffers, position)
            is_indexed = True
            end, counter, largest = index(extents, position)  # type: ignore[arg-type]
        except OSError:
            self._take_back(position, int(extents[0][0]) if is_indexed else None)
            raise
        if position == 0:
            self._rolling_based_timestamp = int(extents[0][1])
        self._bytes_since_last_index_entry = counter
        self._runway = None
        # Keep this order, so that readers find the record with the largest timestamp they see.
        self.size_bytes = end
        self._max_timestamp = largest
        return position

    def _index_listed(
        self, extents: Sequence[BatchExtent], position: int
    ) -> tuple[int, int, TimestampOffset]:
        """Add the index entries of batches that start at a position.

        Returns their end position, the bytes since the last entry, and the largest timestamp so
        far.
        """
        largest = self._max_timestamp
        if largest is None:
            largest = self.time_index.last_entry
        counter = self._bytes_since_last_index_entry
        entries = []
        for last_offset, max_timestamp, size in extents:
            if max_timestamp > largest.timestamp:
                largest = TimestampOffset(max_timestamp, last_offset)
            if counter > self.index_interval_bytes:
                entries.append((OffsetPosition(last_offset, position), largest))
                counter = 0
            counter += size
            position += size
        for entry, largest_so_far in entries:
            if self.offset_index.is_full or self.time_index.is_full:
                break  # the next append rolls
            self.offset_index.append(*entry)
            self.time_index.maybe_append(*largest_so_far)
            if self._rebuilt_index is not None:
                self._rebuilt_index.append(*entry)
        return position, counter, largest

    def _index_by_kernel(
        self, extents: NDArray[np.int64], position: int
    ) -> tuple[int, int, TimestampOffset]:
        """Add the index entries of many batches; see `_index_listed`."""
        import numpy as np

        from logstore import jit
        from logstore.storage.segment import kernels

        jit.compile_if_worthwhile(kernels.find_index_entries, len(extents) * _BATCH_SECONDS)
        places, times = np.empty((2, len(extents), 2), np.int64)
        counters = np.array(self._entry_counters(), np.int64)
        rows, time_rows, end = kernels.find_index_entries(
            extents, position, self.index_interval_bytes, counters, places, times
        )
        self.offset_index.append_rows(places[:rows])
        self.time_index.append_rows(times[:time_rows])
        if self._rebuilt_index is not None:
            self._rebuilt_index.append_rows(places[:rows])
        counter, *largest, _, _, _ = counters.tolist()
        return int(end), counter, TimestampOffset(*largest)

    def append_next(self, data: Buffer, last_offset: int, max_timestamp: int) -> bool:
        """Append a batch if it requires no roll and no index entry, which is the usual case.

        Parameters
        ----------
        data : bytes
            The batch. Its offsets must be above those in the segment.

        Returns
        -------
        bool
            False, without any change, if the batch might require a roll or an index entry, or the
            segment is empty. The caller must then use `roll_reason` and `append`.

        Raises
        ------
        OSError
            See `append`.
        """
        if self._runway is None:
            self._runway = self._measured_runway()
        position_max, end_max, offset_max, timestamp_max = self._runway
        position = self.size_bytes
        end = position + len(data)
        if (
            position > position_max
            or end > end_max
            or last_offset > offset_max
            or max_timestamp > timestamp_max
        ):
            return False
        try:
            self._writing().write_at((data,), position)
        except OSError:
            self._take_back(position, None)
            raise
        largest = self._max_timestamp
        assert largest is not None, "set before the runway was measured"
        self._bytes_since_last_index_entry += end - position
        self.size_bytes = end  # first, as in `append`
        if max_timestamp > largest[0]:
            self._max_timestamp = _new(TimestampOffset, (max_timestamp, last_offset))
        return True

    def _measured_runway(self) -> tuple[int, int, int, int]:
        first = self._rolling_based_timestamp
        if (
            first is None  # the segment is empty
            or first < 0  # the roll depends on the system clock
            or self._max_timestamp is None
            or self.offset_index.is_full
            or self.time_index.is_full
        ):
            return _NO_RUNWAY
        config = self.config
        last_entry = self.size_bytes - self._bytes_since_last_index_entry
        return (
            last_entry + self.index_interval_bytes,
            config.segment_bytes,
            min(self.base_offset + INT32_MAX, INT64_MAX - 1),
            first + config.max_segment_ms - self.roll_jitter_ms,
        )

    def _entry_counters(self) -> tuple[int, ...]:
        """Return the counters for the next index entries; see `kernels.COUNTERS`."""
        index, time_index = self.offset_index, self.time_index
        last_entry = time_index.last_entry
        return (
            self._bytes_since_last_index_entry,
            *(self._max_timestamp or last_entry),
            last_entry.timestamp,
            index.max_entries - index.entries,
            time_index.max_entries - 1 - time_index.entries,
        )

    def _take_back(self, position: int, indexed_from: int | None) -> None:
        """Undo an append whose write failed.

        Bytes that remain on disk are beyond the published size and entries. The next append
        overwrites them, closing the segment trims them, or recovery truncates them.
        """
        with suppress(OSError):
            self._writing().truncate(position)
        if indexed_from is not None:
            for index in (self.offset_index, self.time_index):
                with suppress(OSError):
                    index.truncate_to(indexed_from)

    def append_from_file(
        self, source: File, path: str, start: int = 0, end: int | None = None
    ) -> int:
        """Append the batches of another `.log` as long as their offsets fit into this segment.

        Parameters
        ----------
        source : File
            The `.log`, open for reading. `path` is used in error messages.
        start, end : int
            Positions of the batches to copy. `end` is exclusive. [default: the size of the file]

        Returns
        -------
        int
            Number of bytes appended. Less than `end - start` if an offset does not fit.
        """
        position = start
        chunk: list[BatchExtent] = []
        size = 0
        for at in walk_headers(source, path, start, end):
            if not self.can_append_offset(at.header.last_offset):
                break
            if chunk and size + at.header.size_bytes > COPY_BYTES:
                self.append(chunk, [source.read(position, size)])
                position += size
                chunk, size = [], 0
            chunk.append(BatchExtent.of(at.header))
            size += at.header.size_bytes
        if chunk:
            self.append(chunk, [source.read(position, size)])
        return position + size - start

    def roll_reason(
        self, append_bytes: int, max_timestamp: int, max_offset: int, now_ms: int
    ) -> RollReason | None:
        """Decide whether an append requires a new segment (storage-format §8.3).

        Parameters
        ----------
        append_bytes : int
            Size of the append.
        max_timestamp, max_offset : int
            Largest timestamp (in milliseconds) and last offset (inclusive) of the append.
        now_ms : int
            Wall-clock time in Unix milliseconds.
        """
        config = self.config
        if self.size_bytes > config.segment_bytes - append_bytes:
            return RollReason.SIZE
        if self.size_bytes > 0:
            waited = self.time_waited_for_roll(now_ms, max_timestamp)
            if waited > config.max_segment_ms - self.roll_jitter_ms:
                return RollReason.TIME
        if self.offset_index.is_full:
            return RollReason.OFFSET_INDEX_FULL
        if self.time_index.is_full:
            return RollReason.TIME_INDEX_FULL
        if max_offset - self.base_offset > INT32_MAX:
            return RollReason.OFFSET_SPAN
        return None

    def has_entries_for(self, batches: int) -> bool:
        """Return whether both indexes have room for one entry per batch."""
        room = (
            self.offset_index.max_entries - self.offset_index.entries,
            self.time_index.max_entries - 1 - self.time_index.entries,
        )
        return batches <= min(room)  # at most one entry each

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """Return the ms that count towards `segment.ms`, by timestamps or else by the clock."""
        first = self._rolling_based_timestamp
        if first is None:
            first = self._first_timestamp()
        if first is not None and first >= 0:
            return message_timestamp - first
        return now_ms - self.created_ms

    def rolls_from_ms(self, max_segment_ms: int) -> int | None:
        """Return the earliest Unix time (ms) at which an append rolls the segment due to its age.

        This assumes that the append has that time as its timestamp. None if the segment is empty or
        never rolls by age.
        """
        first = self._first_timestamp()
        begins = first if first is not None and first >= 0 else self.created_ms
        moment = begins + max_segment_ms - self.roll_jitter_ms + 1
        return moment if self.size_bytes and moment <= INT64_MAX else None

    def first_batch_timestamp(self) -> int:
        """Return the first batch's maxTimestamp, or 2^63-1 if it is missing or negative."""
        first = self._first_timestamp()
        return first if first is not None and first >= 0 else INT64_MAX

    def _first_timestamp(self) -> int | None:
        if self._rolling_based_timestamp is None:
            first = next(self.batches(), None)
            if first is not None:
                self._rolling_based_timestamp = first.header.max_timestamp
        return self._rolling_based_timestamp

    # -- times ---------------------------------------------------------------------------

    @property
    def max_timestamp_so_far(self) -> TimestampOffset:
        """The largest record timestamp and its offset.

        After a reload, they are read from the time index. This neither creates a time index nor
        caches the result, because a reader must not overwrite the value of a concurrent append.
        """
        largest = self._max_timestamp
        if largest is not None:
            return largest
        if self.time_index.is_file_open or self.time_index.exists_on_disk:
            return self.time_index.last_entry
        return TimestampOffset(NO_TIMESTAMP, self.base_offset)

    @property
    def largest_timestamp(self) -> int:
        """Largest record timestamp in ms, or the file's modification time if there is none."""
        largest = self.max_timestamp_so_far.timestamp
        return largest if largest >= 0 else self.last_modified_ms

    def find_offset_by_timestamp(
        self, timestamp: int, start_offset: int
    ) -> tuple[TimestampOffset, int] | None:
        """Find the first record at or above `start_offset` with at least the given timestamp.

        Returns
        -------
        (TimestampOffset, int) or None
            The record's timestamp and offset, and its batch's leader epoch. None if there is no
            such record.

        Raises
        ------
        CorruptRecordError
        """
        first = max(self.time_index.lookup(timestamp).offset, start_offset)
        for at in self.batches(self.indexed_position(first)):
            if at.header.max_timestamp < timestamp:
                continue
            batch = self.read_batch(at)
            batch.ensure_valid()
            for record in decode_stored(batch, self.config.logstore_decompression_max_bytes):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    found = TimestampOffset(record.timestamp, record.offset)
                    return found, at.header.partition_leader_epoch
        return None

    # -- read ----------------------------------------------------------------------------

    def batches(self, start: int = 0, end: int | None = None) -> Iterator[BatchAt]:
        """Yield the positions and headers of the batches in the byte range [start, end)."""
        end = self.size_bytes if end is None else end
        if start >= end:
            return iter(())  # do not even open the file of an empty segment
        return walk_headers(self.file, self.log_path, start, end)

    def read_batch(self, at: BatchAt) -> RecordBatch:
        """Read a complete batch that `batches` yielded."""
        return read_batch(self.file, self.log_path, at.position, at.header.size_bytes)

    def translate_offset(self, offset: int) -> BatchPosition | None:
        """Find the first batch whose last offset is not below `offset`, or None if all are."""
        previous = self.base_offset - 1
        for at in self.batches(self.indexed_position(offset)):
            check_place(at.header, previous, self.log_path, at.position)
            previous = at.header.last_offset
            if previous >= offset:
                return BatchPosition(at.header.base_offset, at.position, at.header.size_bytes)
        return None

    def indexed_position(self, offset: int) -> int:
        """Return a position from which to scan for `offset`.

        The index has no checksum, so an entry loaded from disk must point to a batch (`holds`). If
        it does not, the index is rebuilt in memory and written when the segment is closed.

        Notes
        -----
        Costs one read of 61 bytes if the index was loaded from disk.
        """
        entry = self._index.lookup(offset)
        if entry.position and self.offset_index.loaded_entries and not self.holds(entry):
            entry = self._rebuild_index_after(entry).lookup(offset)
        return entry.position

    def is_index_end_sound(self, last_offset: int | None) -> bool:
        """Return whether the last index entry points to a batch and is within the segment.

        `last_offset` is the segment's last offset. If None, it is read from the `.log`.
        """
        entry = self.offset_index.lookup(INT64_MAX)
        if not self.offset_index.loaded_entries:
            return True
        if entry.position and not self.holds(entry):
            return False
        if last_offset is not None:
            return entry.offset <= last_offset
        last = self.base_offset - 1
        with suppress(CorruptRecordError, UnsupportedFormatError):
            for at in self.batches(entry.position):
                last = at.header.last_offset
        return entry.offset <= last

    def txn_index_contradiction(self) -> str | None:
        """Compare the last aborted transaction with the batch at its marker's offset.

        Returns
        -------
        str or None
            The contradiction, or None if there is none. A missing marker is not a contradiction,
            because compaction may have removed it.
        """
        last = self.txn_index.last_txn
        if last is None:
            return None
        found = self.translate_offset(last.last_offset)
        if found is None:
            return (
                f"an aborted transaction ends at {last.last_offset}, but no batch has this offset"
            )
        if found.base_offset > last.last_offset:
            return None
        header = next(self.batches(found.position)).header
        if header.is_control and header.producer_id == last.producer_id:
            return None
        return (
            f"an aborted transaction of producer {last.producer_id} ends at {last.last_offset},"
            " but there is no marker at this offset"
        )

    def holds(self, entry: OffsetPosition) -> bool:
        """Return whether an index entry points to a batch that starts at or below its offset.

        Up to version 3.9.0, Kafka wrote one entry per append, with the append's last offset and the
        position of its first batch. Later versions write entries for single batches. Both are
        valid.
        """
        position = entry.position
        if not 0 <= position < self.size_bytes:
            return False
        head = self.file.read(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE or head[MAGIC_POSITION] != MAGIC:
            return False
        header = BatchHeader.unpack_from(head)
        return (
            header.size_bytes >= HEADER_SIZE
            and position + header.size_bytes <= self.size_bytes
            and self.base_offset <= header.base_offset <= min(entry.offset, header.last_offset)
        )

    @property
    def _index(self) -> OffsetIndex:
        return self.offset_index if self._rebuilt_index is None else self._rebuilt_index

    def _rebuild_index_after(self, wrong_entry: OffsetPosition) -> OffsetIndex:
        """Rebuild the offset index in memory after a wrong entry was found.

        Valid entries after a damaged batch, where the `.log` cannot be walked, are retained.
        """
        index = self.offset_index
        with self._rebuild_lock:
            # Use the index if another reader has already rebuilt it, unless it was truncated since
            # then.
            if self._rebuilt_index is not None and wrong_entry not in self._rebuilt_index:
                return self._rebuilt_index
            logger.warning(
                "%s: no batch with offset %d or below at position %d: rebuilding the index",
                index.path,
                wrong_entry.offset,
                wrong_entry.position,
            )
            rebuilt = OffsetIndex(
                MemoryFileSystem(),
                "index",
                self.base_offset,
                max_index_bytes=INT32_MAX,  # enough for any segment
                writable=True,
            )
            behind = 0
            with suppress(CorruptRecordError, UnsupportedFormatError, SegmentOverflowError):
                since_last_entry = 0
                for at in self.batches():
                    if since_last_entry > self.index_interval_bytes:
                        rebuilt.append(at.header.last_offset, at.position)
                        since_last_entry = 0
                    since_last_entry += at.header.size_bytes
                    behind = at.end_position
            for entry in index:
                if entry.position >= behind and self.holds(entry):
                    with suppress(InvalidOffsetError, SegmentOverflowError):
                        rebuilt.append(*entry)
            self._rebuilt_index = rebuilt
            return rebuilt

    def _keep_rebuilt_index(self) -> None:
        """Replace the index on disk with the index that was rebuilt in memory."""
        if self._rebuilt_index is not None:
            self.offset_index.reset()
            for entry in self._rebuilt_index:
                if self.offset_index.is_full:
                    break
                self.offset_index.append(*entry)
            self._rebuilt_index = None  # last, because readers still use it

    def read(
        self,
        start_offset: int,
        max_size: int,
        *,
        max_position: int | None = None,
        min_one_message: bool = False,
    ) -> SegmentRead | None:
        """Read batches from the one that contains `start_offset` on. The last one may be partial.

        Parameters
        ----------
        max_size : int
            Maximum number of bytes. With `min_one_message`, the first batch is always returned.
        max_position : int, optional
            End of the read (exclusive). `UNKNOWN_POSITION` reads no bytes and only returns the
            batch's position. [default: the segment's size]

        Returns
        -------
        SegmentRead or None
            None if every batch is below `start_offset`.

        Raises
        ------
        ValueError
            `max_size` is negative.
        """
        if max_size < 0:
            raise ValueError(f"invalid maximum size {max_size} for a read of {self!r}")
        end = self.size_bytes if max_position is None else max_position
        found = self.translate_offset(start_offset)
        if found is None:
            return None
        limit = max(max_size, found.size_bytes) if min_one_message else max_size
        length = max(0, min(end - found.position, limit))
        data = self.file.read(found.position, length) if length else b""
        return SegmentRead(data, found.position, found.size_bytes)

    def read_next_offset(self) -> int:
        """Return the offset after the last batch, or the base offset if the segment is empty."""
        previous = self.base_offset - 1
        for at in self.batches(self.indexed_position(INT64_MAX)):
            check_place(at.header, previous, self.log_path, at.position)
            previous = at.header.last_offset
        return previous + 1

    def last_batch(self) -> BatchAt | None:
        """Return the position and header of the last batch, or None if the segment is empty."""
        last = None
        for at in self.batches(self.indexed_position(INT64_MAX)):
            last = at
        return last

    def fetch_upper_bound_offset(self, start: OffsetPosition, size: int) -> int | None:
        """Return an indexed offset at least `size` bytes after `start`, or None if none is."""
        bound = self._index.fetch_upper_bound_offset(start, size)
        if bound is not None and self.offset_index.loaded_entries and not self.holds(bound):
            bound = self._rebuild_index_after(bound).fetch_upper_bound_offset(start, size)
        return None if bound is None else bound.offset

    def collect_aborted_txns(
        self, fetch_offset: int, upper_bound_offset: int
    ) -> tuple[list[AbortedTxn], bool]:
        """Return the aborted transactions that overlap [fetch, upper), and whether they are all."""
        return self.txn_index.collect_aborted_txns(fetch_offset, upper_bound_offset)

    # -- recovery and truncation ---------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Truncate the segment before the first batch that reaches `offset` (storage-format §8.6).

        Parameters
        ----------
        offset : int
            If at or below the base offset, all batches are removed without being read.

        Returns
        -------
        int
            Number of bytes removed, or 0 if no batch reaches `offset`.

        Raises
        ------
        CorruptRecordError, UnsupportedFormatError
            The batches up to `offset` cannot be walked. The segment is unchanged.
        """
        position = self.size_bytes
        if offset <= self.base_offset:
            position = 0
        elif found := self.translate_offset(offset):
            position = found.position
        return self.truncate_at(position, offset)

    def truncate_at(self, position: int, offset: int) -> int:
        """Truncate the `.log` at a position and the indexes at an offset. Return the bytes removed.

        The caller must ensure that the batches before the position end below the offset.
        """
        self._runway = None
        self._keep_rebuilt_index()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.resize_indexes()
        cut = self.size_bytes - position
        if cut:
            self._writing().truncate(position)
            self.size_bytes = position
        if self.size_bytes == 0:
            self.created_ms = self._clock.now_ms()
            self._rolling_based_timestamp = None
        self._bytes_since_last_index_entry = 0
        # After a reload, Kafka uses the last remaining entry, which may be far below the timestamps
        # in the data. Retention and lookups by time depend on them.
        self._max_timestamp = self._scan_max_timestamp()
        return cut

    def _scan_max_timestamp(self) -> TimestampOffset:
        last = self.time_index.last_entry
        for at in self.batches(self.indexed_position(last.offset)):
            if at.header.max_timestamp > last.timestamp:
                last = TimestampOffset(at.header.max_timestamp, at.header.last_offset)
        return last

    def finish_recovery(self, max_timestamp: TimestampOffset) -> None:
        """Complete a recovery.

        Writes the last time index entry, trims the indexes and resets the counters.
        """
        self._runway = None
        self._max_timestamp = max_timestamp
        self._rebuilt_index = None
        self._rolling_based_timestamp = None
        self._bytes_since_last_index_entry = 0
        self.offset_index.trim_to_valid_size()
        self._append_last_time_entry()
        self.time_index.trim_to_valid_size()

    def _check(self) -> None:
        """Assert all invariants of the segment (in tests and with `LOGSTORE_VERIFY=1`)."""
        assert 0 <= self.size_bytes <= INT32_MAX
        assert self.file.size() >= self.size_bytes
        previous_last = self.base_offset - 1
        end = 0
        largest = NO_TIMESTAMP
        for at in self.batches():
            assert at.position == end
            assert at.header.last_offset > previous_last, "offsets rise from batch to batch"
            assert self.can_append_offset(at.header.last_offset)
            previous_last = at.header.last_offset
            end = at.end_position
            largest = max(largest, at.header.max_timestamp)
        assert end == self.size_bytes, "whole batches fill the file"
        assert self.max_timestamp_so_far.timestamp <= max(largest, NO_TIMESTAMP)
        for entry in self.offset_index:
            assert entry.position < max(self.size_bytes, 1)
