"""Read segments in chunks of complete, verified batches.

Verifies the CRC, lengths and counts of each batch, and that offsets are ascending within the
segment's range, so that later steps can rely on this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from logstore import jit
from logstore.cleaner.errors import OverflowedSegmentError
from logstore.cleaner.kernels.table import (
    COL_ATTRIBUTES,
    COL_BASE_OFFSET,
    COL_LAST_OFFSET,
    COL_POSITION,
    COL_RECORD_COUNT,
    COL_SECTION_END,
    COL_SECTION_START,
    COL_SIZE,
    MISPLACED,
    TABLE_COLUMNS,
    Scan,
    read_control_types,
    scan_batches,
)
from logstore.errors import CorruptRecordError, InvalidRecordError
from logstore.record.batch import RecordBatch, decode_stored
from logstore.record.codecs import Codec, decompress
from logstore.record.control import decode_control_key
from logstore.record.header import BatchHeader
from logstore.record.kernels import OK, read_i32
from logstore.record.layout import (
    BATCH_LENGTH_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MIN_RECORD_SIZE,
)
from logstore.record.walk import walk_headers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logstore.cleaner.passes.skipping import Ranges, Skipping, Survivors
    from logstore.storage.log.log import Log
    from logstore.storage.segment.segment import LogSegment

_BATCH_SECONDS = 50e-6
_RECORD_SECONDS = 25e-6
"""Approximate time to map or rewrite a record in plain Python."""

UNFOLDED_BYTES = 16 * 1024 * 1024
"""Decompressed size after which a chunk ends early. A single batch may exceed it."""


class Chunk:
    """Complete batches of a segment in a buffer, with a table row for each batch.

    Attributes
    ----------
    data : (n,) uint8
        Bytes of the chunk, followed by decompressed sections.
    table : (rows, TABLE_COLUMNS) int64
        See `kernels`.
    position : int
        Position of the chunk in the segment file.
    size_bytes : int
        Total size of the batches.
    found : Scan
        Combined attributes of the batches, and totals or upper bounds.
    passed_over : int
        Number of (superseded) records in batches that were not read or have no row. `size_bytes`
        includes these batches, which are between or after the batches with a row.
    """

    __slots__ = (
        "_ranges",
        "data",
        "found",
        "passed_over",
        "position",
        "segment",
        "size_bytes",
        "table",
    )

    def __init__(
        self,
        segment: LogSegment,
        position: int,
        size_bytes: int,
        data: NDArray[np.uint8],
        table: NDArray[np.int64],
        found: Scan,
        ranges: Ranges | None = None,
    ) -> None:
        self.found = found
        self.passed_over = found.passed_over
        if ranges is not None:
            self.passed_over += ranges.passed_over
        self._ranges = ranges
        self.segment = segment
        self.position = position
        self.size_bytes = size_bytes
        self.data = data
        self.table = table

    @property
    def rows(self) -> int:
        """Number of batches."""
        return len(self.table)

    @property
    def first_offset(self) -> int:
        """First offset of the first batch."""
        return int(self.table[0, COL_BASE_OFFSET])

    @property
    def last_offset(self) -> int:
        """Last offset of the last batch."""
        return int(self.table[-1, COL_LAST_OFFSET])

    @property
    def record_count(self) -> int:
        """Number of records in all batches."""
        return int(self.table[:, COL_RECORD_COUNT].sum())

    def may_have(self, attributes: int) -> bool:
        """Return whether any batch might have one of these attribute bits."""
        return self.found.attributes & attributes != 0

    @property
    def has_producers(self) -> bool:
        """Whether any batch might have a producer id."""
        return self.found.producers != 0

    def refuse(self, row: int) -> NoReturn:
        """Raise the error for a batch that a kernel could not read."""
        inside = int(self.table[row, COL_POSITION])
        if self._ranges is None:
            raise_damage(self.segment, self.position + inside)
        for start, end in self._ranges.ranges:
            if inside < end - start:
                raise_damage(self.segment, start + inside)
            inside -= end - start
        raise AssertionError("the row is inside a range")

    def end_before(self, row: int) -> None:
        """Leave a damaged batch and all later batches to the next chunk, which raises the error.

        Batches before the damage are thus returned first. If the first batch is damaged, this
        raises the error immediately.
        """
        if row == 0:
            self.refuse(row)
        self.size_bytes = int(self.table[row, COL_POSITION])
        self.table = self.table[:row]


class ChunkReader:
    """Reads chunks into a reused buffer.

    Parameters
    ----------
    io_buffer_bytes : int
        Number of bytes read at once. For a larger batch, the buffer grows, regardless of the
        current `max.message.bytes`, and shrinks again after the segment.
    unfolded_max : int, optional
        Maximum decompressed size of a batch. [default: taken from the segments]

    Attributes
    ----------
    bytes_ahead : int
        Number of bytes that will be read. Set by the caller, so that large work is compiled at
        once.
    """

    def __init__(self, io_buffer_bytes: int, unfolded_max: int | None = None) -> None:
        self.bytes_ahead = 0
        self._unfolded_max = unfolded_max
        self._io_buffer_bytes = max(io_buffer_bytes, HEADER_SIZE)
        self._resize_buffer(self._io_buffer_bytes)
        self._table = np.empty((0, TABLE_COLUMNS), np.int64)

    def chunks(
        self,
        segment: LogSegment,
        end_offset: int,
        start: int = 0,
        *,
        verify: bool = True,
        skipping: Skipping | None = None,
        survivors: Survivors | None = None,
    ) -> Iterator[Chunk]:
        """Yield the chunks of a segment from a position on. A chunk is valid until the next one.

        Complete batches before a damaged batch form a separate chunk. Callers that find damage in a
        chunk can end the chunk there (`Chunk.end_before`).

        Parameters
        ----------
        end_offset : int
            See `end_of`. Higher offsets count as damage.
        verify : bool
            Whether to verify CRCs. Lengths, magic, counts and offsets are always verified.
        skipping : Skipping, optional
            Selects the parts to read. After an unexpected part, everything is read.
        survivors : Survivors, optional
            Selects the batches that need a row in the table. CRCs are then not verified.

        Raises
        ------
        CorruptRecordError, UnsupportedFormatError
            A batch is damaged, torn or out of order. The message contains file and position.
        OverflowedSegmentError
            An offset is more than 2^31-1 above the base offset.
        """
        position = start
        next_offset = segment.base_offset
        while position < segment.size_bytes:
            chunk = None
            if skipping is not None:
                chunk = self._read_ranges(
                    segment, position, next_offset, end_offset, skipping, survivors
                )
            if chunk is None:
                skipping = None
                chunk = self._read(segment, position, next_offset, end_offset, verify, survivors)
            last_offset = chunk.last_offset
            if not segment.can_append_offset(last_offset):
                raise OverflowedSegmentError(
                    f"{segment.log_path}: offset {last_offset} is more than 31 bits above the base",
                    base_offset=segment.base_offset,
                )
            yield chunk
            next_offset = chunk.last_offset + 1
            position += chunk.size_bytes
        self._shrink()

    def _read_ranges(
        self,
        segment: LogSegment,
        position: int,
        next_offset: int,
        end_offset: int,
        skipping: Skipping,
        survivors: Survivors | None,
    ) -> Chunk | None:
        """Read the selected parts. Return None if a part is unexpected or does not fit."""
        ranges = skipping.next_ranges(self._io_buffer_bytes)
        if ranges is None:
            return None
        view, read_into = self._view, segment.file.read_into
        filled = 0
        for start, end in ranges.ranges:
            filled += read_into(view[filled : filled + end - start], start)
        found = self._scan(filled, next_offset, end_offset, False, survivors)
        if found.status != OK or found.position != filled or found.unfit >= 0:
            return None
        size_bytes = ranges.end_position - position
        return self._chunk(segment, position, size_bytes, found, ranges)

    def _scan(
        self,
        count: int,
        next_offset: int,
        end_offset: int,
        verify: bool,
        survivors: Survivors | None,
    ) -> Scan:
        """Scan the batches at the start of the buffer; see `scan_batches`."""
        rows_max = min(count, self._io_buffer_bytes) // HEADER_SIZE + 1
        if len(self._table) < rows_max:
            self._table = np.empty((rows_max, TABLE_COLUMNS), np.int64)
        data, table, last_offset = self._buffer, self._table, end_offset - 1
        if survivors is None:
            fields = scan_batches(data, count, verify, next_offset, last_offset, table)
        else:
            fields = survivors.scan(data, count, next_offset, last_offset, table)
        return Scan._make(fields)

    def _read(
        self,
        segment: LogSegment,
        position: int,
        next_offset: int,
        end_offset: int,
        verify: bool,
        survivors: Survivors | None,
    ) -> Chunk:
        wanted = min(self._io_buffer_bytes, segment.size_bytes - position)
        while True:
            count = segment.file.read_into(self._view[:wanted], position)
            found = self._scan(count, next_offset, end_offset, verify, survivors)
            if found.rows:
                return self._chunk(segment, position, int(found.position), found)
            if found.status == MISPLACED:
                raise self._misplaced_batch(segment, position, next_offset, end_offset)
            if found.status != OK or count < wanted:
                raise_damage(segment, position)
            wanted = self._grow(segment, position, count)

    def _grow(self, segment: LogSegment, position: int, count: int) -> int:
        """Enlarge the buffer for the batch at `position`."""
        if count < LOG_OVERHEAD:
            raise_damage(segment, position)
        size = LOG_OVERHEAD + int(read_i32(self._buffer, BATCH_LENGTH_POSITION))
        if size > segment.size_bytes - position or size <= count:
            raise_damage(segment, position)
        if size > len(self._buffer):
            self._resize_buffer(size)
        return size

    def _shrink(self) -> None:
        if len(self._buffer) > self._io_buffer_bytes:
            self._resize_buffer(self._io_buffer_bytes)

    def _resize_buffer(self, size_bytes: int) -> None:
        """Replace the buffer with a buffer of a different size."""
        self._buffer = np.empty(size_bytes, np.uint8)
        self._view = memoryview(self._buffer)  # type: ignore[arg-type]  # a buffer

    def _misplaced_batch(
        self, segment: LogSegment, position: int, next_offset: int, end_offset: int
    ) -> CorruptRecordError:
        """Return the error for the first batch in the buffer."""
        header = BatchHeader.unpack_from(self._buffer[:HEADER_SIZE].tobytes())
        return CorruptRecordError(
            f"a batch has offsets {header.base_offset} to {header.last_offset}, expected offsets "
            f"in [{next_offset}, {end_offset})",
            path=segment.log_path,
            position=position,
            check="offsets",
            expected=end_offset,
            found=header.last_offset,
        )

    def _chunk(
        self,
        segment: LogSegment,
        position: int,
        size_bytes: int,
        found: Scan,
        ranges: Ranges | None = None,
    ) -> Chunk:
        """Return the scanned batches, decompressed, with the types of control batches.

        A chunk ends before a batch whose record count is too high for its size, because space is
        reserved for that many records.
        """
        table = self._table[: found.rows]
        chunk = Chunk(segment, position, size_bytes, self._buffer, table, found, ranges)
        if found.unfit >= 0:
            chunk.end_before(found.unfit)
        seconds = found.rows * _BATCH_SECONDS + found.records * _RECORD_SECONDS
        self.bytes_ahead = max(self.bytes_ahead - size_bytes, 0)
        jit.compile_if_worthwhile(
            scan_batches, seconds, seconds * self.bytes_ahead / max(size_bytes, 1)
        )
        if found.attributes & CODEC_MASK:
            self._append_decompressed(chunk)
        if found.attributes & CONTROL_BIT:
            status, row = read_control_types(chunk.data, chunk.table)
            if status != OK:
                chunk.end_before(row)
        return chunk

    def _append_decompressed(self, chunk: Chunk) -> None:
        """Append decompressed sections after the bytes of a chunk, or end the chunk early."""
        table = chunk.table
        # An empty batch left by compaction has no section, regardless of its codec.
        bare = (table[:, COL_SIZE] == HEADER_SIZE) & (table[:, COL_RECORD_COUNT] == 0)
        compressed = np.flatnonzero((table[:, COL_ATTRIBUTES] & CODEC_MASK != 0) & ~bare)
        if not len(compressed):
            return
        data, rows = self._decompress(
            chunk.segment, chunk.position, chunk.size_bytes, chunk.table, compressed
        )
        chunk.data = data
        if rows < len(chunk.table):
            chunk.end_before(rows)
        table = chunk.table
        sections = table[:, COL_SECTION_END] - table[:, COL_SECTION_START]
        unfit = np.flatnonzero(table[:, COL_RECORD_COUNT] * MIN_RECORD_SIZE > sections)
        if len(unfit):
            chunk.end_before(int(unfit[0]))

    def _decompress(
        self,
        segment: LogSegment,
        position: int,
        size_bytes: int,
        table: NDArray[np.int64],
        compressed: NDArray[np.intp],
    ) -> tuple[NDArray[np.uint8], int]:
        """Append decompressed sections to the bytes of the chunk.

        Returns the bytes, and the number of rows whose sections they contain. This is less than the
        number of all rows if the sections exceed the limit for a chunk, or if a later section is
        damaged.
        """
        rows = len(table)
        limit = self._unfolded_max or segment.config.logstore_decompression_max_bytes
        parts: list[bytes | memoryview] = [self._view[:size_bytes]]
        end = size_bytes
        for row in compressed.tolist():
            if end - size_bytes >= UNFOLDED_BYTES:
                rows = row
                break
            start = int(table[row, COL_POSITION]) + HEADER_SIZE
            stop = int(table[row, COL_POSITION] + table[row, COL_SIZE])
            try:
                codec = Codec(int(table[row, COL_ATTRIBUTES]) & CODEC_MASK)
                section = decompress(codec, self._buffer[start:stop].tobytes(), limit=limit)
            except CorruptRecordError as error:
                if row > 0:
                    rows = row
                    break
                if error.path is None:
                    error.path = segment.log_path
                    error.position = position + start - HEADER_SIZE
                raise
            parts.append(section)
            table[row, COL_SECTION_START] = end
            end += len(section)
            table[row, COL_SECTION_END] = end
        return np.frombuffer(bytearray().join(parts), np.uint8), rows


def end_of(segment: LogSegment, log: Log) -> int:
    """Return the exclusive end of a segment: the next base offset or the log end offset."""
    following = log.segments.higher(segment.base_offset)
    return log.log_end_offset if following is None else following.base_offset


def raise_damage(segment: LogSegment, position: int) -> NoReturn:
    """Raise the error for the batch at `position`, found by reading step by step."""
    at = next(walk_headers(segment.file, segment.log_path, position, segment.size_bytes), None)
    if at is not None:
        batch: RecordBatch = segment.read_batch(at)
        batch.ensure_valid()
        first = next(decode_stored(batch, segment.config.logstore_decompression_max_bytes), None)
        if batch.header.is_control and first is not None:
            try:
                decode_control_key(first.key)
            except InvalidRecordError as error:
                raise CorruptRecordError(
                    str(error), path=segment.log_path, position=position, check="control_record"
                ) from error
        raise CorruptRecordError(
            f"the batch or a record in it is outside the offsets {at.header.base_offset} to "
            f"{at.header.last_offset} of its header",
            path=segment.log_path,
            position=position,
            check="offsets",
        )
    raise CorruptRecordError(
        "the segment ends inside a batch",
        path=segment.log_path,
        position=position,
        check="whole_batch",
        expected=segment.size_bytes,
        found=position,
    )
