"""A walk over a `.log` that goes on after damage.

Where the engine's own walk stops (`logstore.record.walk`), this one names the damage and looks
for the next batch whose CRC is right. A wrong length is told from other damage by the CRC: it
still matches the bytes up to that next batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from typing import NamedTuple

from logstore.check.findings import CheckFinding, finding
from logstore.record import layout
from logstore.record.batch import RecordBatch
from logstore.record.crc32c import crc32c
from logstore.record.header import BatchHeader
from logstore.record.search import crc_of, find_batch, is_plausible
from logstore.runtime.fs import File

_BLOCK = 1 << 20
_MIN_LENGTH = layout.HEADER_SIZE - layout.LOG_OVERHEAD


class ScannedBatch(NamedTuple):
    """A batch and its place; `batch` is None if its CRC is wrong, so that nothing is sure."""

    position: int
    end_position: int
    header: BatchHeader
    batch: RecordBatch | None


class Unreadable(NamedTuple):
    """A stretch of the file in which no batch could be made out; already told as a finding."""

    position: int
    end_position: int


_Step = Generator[ScannedBatch | Unreadable | CheckFinding, None, int | None]
"""One step of a walk; it returns the next position, None where the walk ends."""


class SegmentScan:
    """One walk over the `.log` of a segment.

    Parameters
    ----------
    file : File
        Open for reading; what is appended meanwhile is not looked at.
    path : str
    base_offset : int
        The segment's.
    tail_severity : str
        How grave a torn tail is: a crash leaves one in the active segment.

    Attributes
    ----------
    end_position : int
        Position after the last batch seen.
    end_is_known : bool
        Whether the last batch seen is the last one there was.
    """

    def __init__(self, file: File, path: str, base_offset: int, tail_severity: str) -> None:
        self._file = file
        self._path = path
        self._base_offset = base_offset
        self._tail_severity = tail_severity
        self.size = file.size()
        self.end_position = 0
        self.end_is_known = True
        # The last search for a valid batch: none lies between where it began and what it found.
        self._searched: tuple[int, int | None] = (self.size, None)
        self._block = b""
        self._block_start = 0

    def run(self) -> Iterator[ScannedBatch | Unreadable | CheckFinding]:
        """Yield batches, findings, and stretches to skip, in the file's order."""
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
                following = yield from self._bad_magic(position, header)
            else:
                following = yield from self._batch(position, header)
            if following is None:
                self.end_is_known = False
                yield Unreadable(position, self.size)
                return
            position = following

    # -- one batch ---------------------------------------------------------------------------

    def _batch(self, position: int, header: BatchHeader) -> _Step:
        end = position + header.size_bytes
        computed = self._crc(position, end)
        if computed == header.crc:
            yield self._trusted(position, end, header)
            return end
        # Perhaps it is the length that is wrong; then another one ends or begins elsewhere.
        following = self._next_batch(position + 1)
        true_end = self._true_end(position, header, following)
        if true_end is not None:
            yield self._wrong_length(position, header, true_end - position)
            yield self._trusted(position, true_end, header)
            return true_end
        if end == self.size or self._is_batch(end):
            following = end
        yield finding(
            "crc",
            self._path,
            position,
            offset=header.base_offset,
            expected=header.crc,
            found=computed,
        )
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
        yield self._wrong_length(position, header, None)
        if following is not None:
            yield Unreadable(position, following)
        return following

    def _bad_magic(self, position: int, header: BatchHeader) -> _Step:
        end = position + header.size_bytes
        if header.magic in (0, 1) and self._old_crc(position, end) == _old_crc_of(header):
            yield finding(
                "unsupported_format",
                self._path,
                position,
                offset=header.base_offset,
                expected=layout.MAGIC,
                found=header.magic,
            )
            return None
        yield finding(
            "magic",
            self._path,
            position,
            offset=header.base_offset,
            expected=layout.MAGIC,
            found=header.magic,
        )
        if self._crc(position, end) == header.crc:
            yield self._trusted(position, end, header)
            return end
        following = self._next_batch(position + 1)
        if following is not None:
            yield Unreadable(position, following)
        return following

    def _trusted(self, position: int, end: int, header: BatchHeader) -> ScannedBatch:
        """Return a batch whose CRC is right; fields outside the CRC are as they should be."""
        data = self._read(position, end - position)
        length = end - position - layout.LOG_OVERHEAD
        if header.magic != layout.MAGIC or header.batch_length != length:
            header = header._replace(magic=layout.MAGIC, batch_length=length)
            data = header.pack() + data[layout.HEADER_SIZE :]
        self.end_position = end
        return ScannedBatch(position, end, header, RecordBatch(data, self._path, position))

    def _wrong_length(self, position: int, header: BatchHeader, size: int | None) -> CheckFinding:
        return finding(
            "batch_length",
            self._path,
            position,
            offset=header.base_offset,
            expected=None if size is None else size - layout.LOG_OVERHEAD,
            found=header.batch_length,
        )

    def _tail(self, position: int) -> Iterator[CheckFinding]:
        check = "zero_tail"
        if not self._is_zero(position):
            check = "torn_tail"
            self.end_is_known = False
        yield finding(
            check,
            self._path,
            position,
            expected=position,
            found=self.size,
            severity=self._tail_severity,
        )

    # -- looking around ----------------------------------------------------------------------

    def _true_end(self, position: int, header: BatchHeader, following: int | None) -> int | None:
        """Return where a batch of doubtful length ends, if its CRC covers the bytes to there."""
        end = self.size if following is None else following
        if header.magic != layout.MAGIC or end - position < layout.HEADER_SIZE:
            return None
        return end if self._crc(position, end) == header.crc else None

    def _next_batch(self, start: int) -> int | None:
        """Return the position of the first valid batch at `start` or after it."""
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
        """Return up to `size` bytes; small reads are served from a block."""
        inside = position - self._block_start
        if inside < 0 or inside + size > len(self._block):
            wanted = min(max(size, _BLOCK), self.size - position)
            data = self._file.read(position, wanted)
            if size >= _BLOCK:
                return data
            self._block, self._block_start, inside = data, position, 0
        return self._block[inside : inside + size]

    def _crc(self, position: int, end: int) -> int:
        """Return the CRC-32C of a batch's bytes from the attributes to `end`."""
        start = position + layout.ATTRIBUTES_POSITION
        if end - start <= _BLOCK:
            return crc32c(self._read(start, end - start))
        return crc_of(self._file, position, end)

    def _old_crc(self, position: int, end: int) -> int:
        start = position + layout.MAGIC_POSITION
        crc = 0
        while start < end and (piece := self._file.read(start, min(_BLOCK, end - start))):
            crc = zlib.crc32(piece, crc)
            start += len(piece)
        return crc

    def _is_zero(self, position: int) -> bool:
        while position < self.size and (piece := self._file.read(position, _BLOCK)):
            if piece.strip(b"\0"):
                return False
            position += len(piece)
        return True


def _old_crc_of(header: BatchHeader) -> int:
    """Return the field at byte 12, which in magic 0 and 1 is the CRC-32."""
    return header.partition_leader_epoch & 0xFFFFFFFF
