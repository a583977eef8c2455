"""Read the batches of a `.log` file and continue after damage.

Where `logstore.record.walk` would stop, the scan reports the damage and searches for the next batch
with a valid CRC. If only the length of a batch is wrong, the batch ends where the next one starts,
and its CRC matches.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from logstore.errors import CorruptionError, InvalidRecordError
from logstore.record import layout, legacy
from logstore.record.batch import RecordBatch
from logstore.record.crc32c import crc32c
from logstore.record.header import BatchHeader
from logstore.record.search import crc_of, find_batch, is_plausible
from logstore.runtime.fs import File
from logstore.types import INT32_MAX

_BLOCK = 1 << 20
_MIN_LENGTH = layout.HEADER_SIZE - layout.LOG_OVERHEAD


class ScannedBatch(NamedTuple):
    """A batch and its position.

    Attributes
    ----------
    batch : RecordBatch or None
        None if the CRC is wrong. Fields not covered by the CRC are corrected, and messages of magic
        0 or 1 are converted to magic 2.
    magic : int
        Magic number in the file.
    is_mended : bool
        Whether length or magic differ from the file.
    """

    position: int
    end_position: int
    header: BatchHeader
    batch: RecordBatch | None
    magic: int = layout.MAGIC
    is_mended: bool = False


class Unreadable(NamedTuple):
    """A range of the file without a recognizable batch. The preceding `Fault` gives the reason."""

    position: int
    end_position: int


class Fault(NamedTuple):
    """A fault in the file, yielded before the affected range.

    Attributes
    ----------
    check : str
        A name in `logstore.inspect.check.CHECKS`.
    is_tail : bool
        Whether the range extends to the end of the file.
    is_last : bool
        Whether no valid batch follows in the file.
    """

    check: str
    position: int
    offset: int | None = None
    expected: Any = None
    found: Any = None
    is_tail: bool = False
    is_last: bool = False


Scanned = ScannedBatch | Unreadable | Fault

_Step = Generator[Scanned, None, int | None]
"""A step of the scan. It returns the next position, or None at the end."""


class SegmentScan:
    """A scan of a segment's `.log` file.

    Parameters
    ----------
    file : File
        File open for reading. Bytes appended during the scan are ignored.
    path : str
    base_offset : int
        Base offset of the segment.
    limit : int
        Maximum decompressed size of a message of magic 0 or 1, in bytes.
    end : int, optional
        End of the scan, exclusive. [default: file size]

    Attributes
    ----------
    end_position : int
        Position after the last batch found.
    end_is_known : bool
        Whether the last batch found is known to be the last one.
    """

    def __init__(
        self, file: File, path: str, base_offset: int, limit: int, end: int | None = None
    ) -> None:
        self._file = file
        self._path = path
        self._base_offset = base_offset
        self._limit = limit
        self.size = file.size() if end is None else end
        self.end_position = 0
        self.end_is_known = True
        # Start and result of the last search for a valid batch. There is no valid batch in between.
        self._searched: tuple[int, int | None] = (self.size, None)
        self._block = b""
        self._block_start = 0

    def run(self) -> Iterator[Scanned]:
        """Yield batches, faults and unreadable ranges in file order."""
        if self.size > INT32_MAX:
            yield from self._run_oversized()
            return
        position = 0
        while position < self.size:
            head = self._read(position, layout.HEADER_SIZE)
            if len(head) <= layout.HEADER_SIZE_UP_TO_MAGIC:
                yield from self._tail(position)
                return
            header = BatchHeader.unpack_from(head.ljust(layout.HEADER_SIZE, b"\0"))
            end = position + header.size_bytes
            if (
                header.batch_length < layout.MIN_BATCH_LENGTH
                or end > self.size
                or (header.magic == layout.MAGIC and header.batch_length < _MIN_LENGTH)
            ):
                following = yield from self._bad_length(position, header)
            elif header.magic != layout.MAGIC:
                following = yield from self._odd_magic(position, header)
            else:
                following = yield from self._batch(position, header)
            if following is None:
                self.end_is_known = False
                yield Unreadable(position, self.size)
                return
            position = following

    def pairs(self) -> Iterator[tuple[Scanned, ScannedBatch | None]]:
        """Yield each item with the next item, or None if the next item is not a valid batch."""
        items = self.run()
        current = next(items, None)
        while current is not None:
            following = next(items, None)
            is_sound = isinstance(following, ScannedBatch) and following.batch is not None
            yield current, following if is_sound else None  # type: ignore[misc]  # judged above
            current = following

    def _run_oversized(self) -> Iterator[Scanned]:
        """Yield the first batches of a file that is too large for a segment, then the fault.

        Stops at the first damage, because a sparse file may have any size.
        """
        position = 0
        while (end := self._whole_batch_end(position)) is not None:
            header = BatchHeader.unpack_from(self._read(position, layout.HEADER_SIZE))
            yield self._trusted(position, end, header)
            position = end
        self.end_is_known = False
        yield Fault("segment_size", position, None, INT32_MAX, self.size, is_tail=True)

    def _whole_batch_end(self, position: int) -> int | None:
        """Return the end of the valid batch at a position, or None if there is none."""
        head = self._read(position, layout.HEADER_SIZE)
        header = BatchHeader.unpack_from(head.ljust(layout.HEADER_SIZE, b"\0"))
        end = position + header.size_bytes
        is_whole = header.batch_length >= _MIN_LENGTH and end <= INT32_MAX
        if header.magic != layout.MAGIC or not is_whole:
            return None
        return end if self._crc(position, end) == header.crc else None

    # -- one batch ---------------------------------------------------------------------------

    def _batch(self, position: int, header: BatchHeader) -> _Step:
        end = position + header.size_bytes
        computed = self._crc(position, end)
        if computed == header.crc:
            yield self._trusted(position, end, header)
            return end
        # If only the length is wrong, the batch ends where the next valid batch starts.
        following = self._next_batch(position + 1)
        true_end = self._true_end(position, header, following)
        if true_end is not None:
            yield self._wrong_length(position, header, true_end - position)
            yield self._trusted(position, true_end, header)
            return true_end
        is_last = following is None
        if end == self.size or self._is_batch(end):
            following = end
            is_last = end == self.size
        yield Fault("crc", position, header.base_offset, header.crc, computed, is_last=is_last)
        following = end if following is None else following
        yield ScannedBatch(position, following, header, None)
        self.end_position = following
        return following

    def _bad_length(self, position: int, header: BatchHeader) -> _Step:
        if self._is_zero(position):
            yield from self._tail(position)
            return self.size
        following = self._next_batch(position + 1)
        true_end = self._true_end(position, header, following)
        if true_end is not None:
            yield self._wrong_length(position, header, true_end - position)
            yield self._trusted(position, true_end, header)
            return true_end
        if following is None and position + header.size_bytes > self.size:
            yield from self._tail(position)
            return self.size
        fault = self._wrong_length(position, header, None)
        yield fault._replace(is_last=following is None)
        if following is not None:
            yield Unreadable(position, following)
        return following

    def _odd_magic(self, position: int, header: BatchHeader) -> _Step:
        end = position + header.size_bytes
        if header.magic in legacy.MAGICS:
            data = self._read(position, end - position)
            if legacy.is_sound(data):
                yield from self._old(data, position, header)
                return end
        is_whole = self._crc(position, end) == header.crc
        following = end if is_whole else self._next_batch(position + 1)
        is_last = following is None
        yield Fault(
            "magic", position, header.base_offset, layout.MAGIC, header.magic, is_last=is_last
        )
        if is_whole:
            yield self._trusted(position, end, header)
        elif following is not None:
            yield Unreadable(position, following)
        return following

    def _old(self, data: bytes, position: int, header: BatchHeader) -> Iterator[Scanned]:
        """Yield a message of magic 0 or 1 with a valid CRC."""
        end = position + len(data)
        try:
            batch = legacy.parse_message(data).batch(self._limit, self._path, position)
        except (InvalidRecordError, CorruptionError) as error:
            yield Fault("record_structure", position, header.base_offset, found=str(error))
            yield Unreadable(position, end)
            return
        self.end_position = end
        yield ScannedBatch(position, end, batch.header, batch, header.magic)

    def _trusted(self, position: int, end: int, header: BatchHeader) -> ScannedBatch:
        """Return a batch with a valid CRC, correcting the fields that the CRC does not cover."""
        data = self._read(position, end - position)
        length = end - position - layout.LOG_OVERHEAD
        is_mended = header.magic != layout.MAGIC or header.batch_length != length
        if is_mended:
            header = header._replace(magic=layout.MAGIC, batch_length=length)
            data = header.pack() + data[layout.HEADER_SIZE :]
        self.end_position = end
        batch = RecordBatch(data, self._path, position)
        return ScannedBatch(position, end, header, batch, is_mended=is_mended)

    def _wrong_length(self, position: int, header: BatchHeader, size: int | None) -> Fault:
        return Fault(
            "batch_length",
            position,
            header.base_offset,
            None if size is None else size - layout.LOG_OVERHEAD,
            header.batch_length,
        )

    def _tail(self, position: int) -> Iterator[Fault]:
        check = "zero_tail"
        if not self._is_zero(position):
            check = "torn_tail"
            self.end_is_known = False
        found = self.size
        yield Fault(check, position, expected=position, found=found, is_tail=True, is_last=True)

    # -- searching ---------------------------------------------------------------------------

    def _true_end(self, position: int, header: BatchHeader, following: int | None) -> int | None:
        """Return the end of a batch with a suspect length, if the CRC matches up to that end."""
        end = self.size if following is None else following
        if header.magic != layout.MAGIC or end - position < layout.HEADER_SIZE:
            return None
        return end if self._crc(position, end) == header.crc else None

    def _next_batch(self, start: int) -> int | None:
        """Return the position of the first valid batch at or after `start`."""
        searched, found = self._searched
        if start < searched or (found is not None and start > found):
            found = self._search(start)
            self._searched = (start, found)
        return found

    def _search(self, start: int) -> int | None:
        found = find_batch(self._file, start, self.size, self._base_offset)
        return None if found is None else found.position

    def _is_batch(self, position: int) -> bool:
        head = self._file.read(position, layout.HEADER_SIZE)
        if len(head) < layout.HEADER_SIZE:
            return False
        header = BatchHeader.unpack_from(head)
        return (
            is_plausible(header, self.size - position, self._base_offset)
            and self._crc(position, position + header.size_bytes) == header.crc
        )

    # -- bytes -------------------------------------------------------------------------------

    def _read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes. Small reads use a buffered block."""
        inside = position - self._block_start
        if inside < 0 or inside + size > len(self._block):
            wanted = min(max(size, _BLOCK), self.size - position)
            data = self._file.read(position, wanted)
            if size >= _BLOCK:
                return data
            self._block, self._block_start, inside = data, position, 0
        return self._block[inside : inside + size]

    def _crc(self, position: int, end: int) -> int:
        """Compute the CRC-32C of a batch up to `end`."""
        start = position + layout.ATTRIBUTES_POSITION
        if end - start <= _BLOCK:
            return crc32c(self._read(start, end - start))
        return crc_of(self._file, position, end)

    def _is_zero(self, position: int) -> bool:
        while position < self.size and (piece := self._file.read(position, _BLOCK)):
            if piece.strip(b"\0"):
                return False
            position += len(piece)
        return True


def misplaced(
    header: BatchHeader,
    segment_base: int,
    end_offset: int | None,
    after: int | None,
    following: int | None,
) -> tuple[str, object, object] | None:
    """Check a batch's offsets against its segment and the adjacent batches.

    The CRC does not cover the base offset. If two batches overlap, the second one is assumed wrong,
    unless it is contiguous with earlier batches and the first one leaves a gap there.

    Parameters
    ----------
    end_offset : int or None
        Offset after the preceding batches.
    after : int or None
        Base offset of the next batch in the file, if that batch is valid.
    following : int or None
        Base offset of the next segment, or None for the last segment.

    Returns
    -------
    tuple or None
        The failed check, and the expected and actual values.
    """
    first, last = header.base_offset, header.last_offset
    if header.last_offset_delta < 0:
        return "offset_delta", 0, header.last_offset_delta
    if first < segment_base:
        return "segment_bounds", segment_base, first
    if last - segment_base > INT32_MAX:
        return "segment_bounds", segment_base + INT32_MAX, last
    if following is not None and last >= following:
        return "segment_overlap", following - 1, last
    if end_offset is not None and first < end_offset:
        return "offset_order", end_offset, first
    is_ahead = end_offset is not None and after is not None and first > end_offset
    if is_ahead and end_offset <= after <= last:  # type: ignore[operator]  # both are known
        return "offset_order", f"below {after}", last
    return None
