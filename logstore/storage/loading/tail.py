"""The tail of a cleanly closed log: the bytes after its last complete batch.

If a log was copied incompletely, it ends inside a batch. Records appended after those bytes would
be acknowledged but could never be read, so such a tail is truncated. A batch with a damaged length
looks the same but is followed by valid batches, so it is left in place.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import CorruptRecordError, UnsupportedFormatError
from logstore.record import layout
from logstore.record.header import BatchHeader
from logstore.record.search import crc_of, find_batch, is_plausible
from logstore.record.walk import check_place
from logstore.types import INT32_MAX

if TYPE_CHECKING:
    from logstore.storage.segment.segment import LogSegment

_EFFORT = 1 << 30
"""Maximum number of bytes to search for valid batches."""


class Tail(NamedTuple):
    """The bytes at the end of a segment that a walk over its batches does not reach.

    Attributes
    ----------
    position, size_bytes : int
        Position and size of the tail; 0 bytes if the file ends with a complete batch.
    is_torn : bool
        Whether the tail is the beginning of a batch, or too short to decide.
    next_offset : int
        The offset after the last valid batch, which may be within the tail.
    """

    position: int
    size_bytes: int
    is_torn: bool
    next_offset: int

    @property
    def is_sound(self) -> bool:
        """Whether the tail is empty or a torn batch."""
        return not self.size_bytes or self.is_torn


def find_tail(segment: LogSegment) -> Tail | None:
    """Find the bytes after the last batch of a segment.

    Returns
    -------
    Tail or None
        None if a walk finds damage before the end, or the index points beyond the end of the file.

    Raises
    ------
    CorruptRecordError
        The tail is large and crafted to look like batches. Searching it would take too long.

    Notes
    -----
    Walks the batch headers from the last valid entry of the offset index. If that walk does not
    reach the end of the file, walks the whole segment and searches the bytes after it.
    """
    path, size = segment.log_path, segment.size_bytes
    try:
        last, end = _walk(segment, _indexed_position(segment))
        if end == size:
            return Tail(end, 0, False, last + 1)
        # Bytes inside a batch may look like one. A walk from the start skips them.
        with suppress(CorruptRecordError, UnsupportedFormatError):
            last, end = max((last, end), _walk(segment, 0), key=lambda walked: walked[1])
    except (CorruptRecordError, UnsupportedFormatError):
        return None
    if end == size:
        return None
    head = segment.file.read(end, layout.HEADER_SIZE)
    header = BatchHeader.unpack_from(head.ljust(layout.HEADER_SIZE, b"\0"))
    is_torn = len(head) < layout.HEADER_SIZE_UP_TO_MAGIC or (
        header.magic == layout.MAGIC
        and last < header.base_offset <= segment.base_offset + INT32_MAX
    )
    if is_torn and _is_whole_but_for_length(segment, end, header, len(head)):
        return Tail(end, size - end, False, header.next_offset)
    next_offset = last + 1
    at = end + 1
    try:
        while found := find_batch(segment.file, at, size, segment.base_offset, effort=_EFFORT):
            if found.header.base_offset >= next_offset:
                is_torn, next_offset = False, found.header.next_offset
                at = found.end_position
            else:
                at = found.position + 1
    except CorruptRecordError as error:
        raise CorruptRecordError(
            error.message, path=path, position=error.position, check=error.check
        ) from None
    return Tail(end, size - end, is_torn, next_offset)


def _walk(segment: LogSegment, position: int) -> tuple[int, int]:
    """Return the last offset of the batches from a position on, and their end position."""
    last, end = segment.base_offset - 1, position
    for at in segment.batches(position):
        check_place(at.header, last, segment.log_path, at.position)
        last, end = at.header.last_offset, at.end_position
    return last, end


def _indexed_position(segment: LogSegment) -> int:
    """Return the position of the last index entry whose batch is complete."""
    index = segment.offset_index
    for slot in reversed(range(index.entries)):
        entry = index.entry(slot)
        if segment.holds(entry):
            return entry.position
    return 0


def _is_whole_but_for_length(
    segment: LogSegment, position: int, header: BatchHeader, head_bytes: int
) -> bool:
    """Return whether the rest of the file is a single batch with a damaged length.

    The CRC does not cover the length.
    """
    room = segment.size_bytes - position
    real = header._replace(batch_length=room - layout.LOG_OVERHEAD)
    return (
        head_bytes == layout.HEADER_SIZE
        and is_plausible(real, room, segment.base_offset)
        and crc_of(segment.file, position, segment.size_bytes) == header.crc
    )
