"""Read segments in chunks of whole, verified batches, for mapping and for rewriting.

Checks each batch's CRC, lengths and counts, and that offsets rise within the segment's range, so
that later steps can rely on them.
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
_RECORD_SECONDS = 100e-6
"""Approximate cost of mapping or rewriting a record if kernels run as Python."""

UNFOLDED_BYTES = 16 * 1024 * 1024
"""Decompressed bytes after which a chunk ends early. A single batch may exceed it."""


class Chunk:
    """Whole batches of one segment in a buffer, with one table row for each batch.

    Attributes
    ----------
    data : (n,) uint8
        The chunk's bytes, then decompressed sections.
    table : (rows, TABLE_COLUMNS) int64
        See `kernels`.
    position : int
        Where the chunk starts in the segment's file.
    size_bytes : int
        Bytes of its whole batches.
    found : Scan
        Common attributes of the batches, and their totals or upper bounds of them.
    passed_over : int
        Records, all superseded, of batches that were not read or have no row. These batches are
        between or after those with a row, and count in `size_bytes`.
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
        """Batches in the chunk."""
        return len(self.table)

    @property
    def first_offset(self) -> int:
        """First offset of its first batch."""
        return int(self.table[0, COL_BASE_OFFSET])

    @property
    def last_offset(self) -> int:
        """Last offset of its last batch."""
        return int(self.table[-1, COL_LAST_OFFSET])

    @property
    def record_count(self) -> int:
        """Records of all its batches."""
        return int(self.table[:, COL_RECORD_COUNT].sum())

    def may_have(self, attributes: int) -> bool:
        """Return whether a batch may have one of the given attribute bits."""
        return self.found.attributes & attributes != 0

    @property
    def has_producers(self) -> bool:
        """Whether a batch may belong to a producer with an id."""
        return self.found.producers != 0

    def refuse(self, row: int) -> NoReturn:
        """Raise the error of a batch that a kernel could not read."""
        inside = int(self.table[row, COL_POSITION])
        if self._ranges is None:
            raise_damage(self.segment, self.position + inside)
        for start, end in self._ranges.ranges:
            if inside < end - start:
                raise_damage(self.segment, start + inside)
            inside -= end - start
        raise AssertionError("the row is inside a range")

    def end_before(self, row: int) -> None:
        """Leave a damaged batch and all after it to the next chunk, where it raises.

        The batches before the damage are returned first. A damaged first batch raises
        immediately.
        """
        if row == 0:
            self.refuse(row)
        self.size_bytes = int(self.table[row, COL_POSITION])
        self.table = self.table[:row]


class ChunkReader:
    """Reads chunks through one reused buffer.

    Parameters
    ----------
    io_buffer_bytes : int
        Bytes read at a time. A larger batch makes the buffer grow to its size, whatever
        `max.message.bytes` is now. After its segment the buffer shrinks again.
    unfolded_max : int, optional
        Most bytes of a decompressed batch. [default: the segments' setting]

    Attributes
    ----------
    bytes_ahead : int
        Bytes that will be read. Callers set it, so that large work is compiled at once.
    """

    def __init__(self, io_buffer_bytes: int, unfolded_max: int | None = None) -> None:
        self.bytes_ahead = 0
        self._unfolded_max = unfolded_max
        self._io_buffer_bytes = max(io_buffer_bytes, HEADER_SIZE)
        self._hold(self._io_buffer_bytes)
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
        """Yield the chunks of a segment from position `start` on. Each is valid until the next.

        Whole batches before a damaged one form their own chunk. A caller that meets damage inside a
        chunk may end it there (`Chunk.end_before`).

        Parameters
        ----------
        end_offset : int
            See `end_of`; higher offsets are damage.
        verify : bool
            Check the CRC of every batch; lengths, magic, counts and offsets are always checked.
        skipping : Skipping, optional
            Selects the parts to read. If a part is not as expected, everything after it is read.
        survivors : Survivors, optional
            Selects the batches that need a row in the table. Then no CRC is checked.

        Raises
        ------
        CorruptRecordError, UnsupportedFormatError
            A batch is damaged, torn or out of place; names file and position.
        OverflowedSegmentError
            An offset is more than 31 bits above the segment's base.
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
        """Read the selected parts. Return None if one is not as expected, or does not fit."""
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
        """Tabulate the batches of the first bytes of the buffer; see `scan_batches`."""
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
                raise self._misplaced(segment, position, next_offset, end_offset)
            if found.status != OK or count < wanted:
                raise_damage(segment, position)
            wanted = self._grow(segment, position, count)

    def _grow(self, segment: LogSegment, position: int, count: int) -> int:
        """Make room for the batch at `position`, which is larger than the buffer."""
        if count < LOG_OVERHEAD:
            raise_damage(segment, position)
        size = LOG_OVERHEAD + int(read_i32(self._buffer, BATCH_LENGTH_POSITION))
        if size > segment.size_bytes - position or size <= count:
            raise_damage(segment, position)
        if size > len(self._buffer):
            self._hold(size)
        return size

    def _shrink(self) -> None:
        if len(self._buffer) > self._io_buffer_bytes:
            self._hold(self._io_buffer_bytes)

    def _hold(self, size_bytes: int) -> None:
        """Replace the buffer by one of another size."""
        self._buffer = np.empty(size_bytes, np.uint8)
        self._view = memoryview(self._buffer)  # type: ignore[arg-type]  # a buffer

    def _misplaced(
        self, segment: LogSegment, position: int, next_offset: int, end_offset: int
    ) -> CorruptRecordError:
        """Return the error of the first batch in the buffer."""
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

        A chunk ends before a batch that counts more records than its size allows, because room is
        reserved for that many.
        """
        table = self._table[: found.rows]
        chunk = Chunk(segment, position, size_bytes, self._buffer, table, found, ranges)
        if found.unfit >= 0:
            chunk.end_before(found.unfit)
        seconds = found.rows * _BATCH_SECONDS + found.records * _RECORD_SECONDS
        self.bytes_ahead = max(self.bytes_ahead - size_bytes, 0)
        jit.pays(scan_batches, seconds, seconds * self.bytes_ahead / max(size_bytes, 1))
        if found.attributes & CODEC_MASK:
            self._unfold(chunk)
        if found.attributes & CONTROL_BIT:
            status, row = read_control_types(chunk.data, chunk.table)
            if status != OK:
                chunk.end_before(row)
        return chunk

    def _unfold(self, chunk: Chunk) -> None:
        """Append the decompressed sections behind a chunk's bytes, or end the chunk early."""
        table = chunk.table
        # An empty batch left by compaction has no section, whatever its codec.
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
        """Append the decompressed sections to the bytes of the chunk.

        Returns the bytes, and the number of rows whose sections they contain. This is less
        than all rows if the sections exceed the limit of a chunk, or if a later one is
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
    """Return the exclusive end of a segment's offsets: the next segment's base, or the log end."""
    following = log.segments.higher(segment.base_offset)
    return log.log_end_offset if following is None else following.base_offset


def raise_damage(segment: LogSegment, position: int) -> NoReturn:
    """Raise the damage of the batch at `position`, which a step-by-step read finds."""
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
