"""Search for a batch after damage or a wrong length."""

from __future__ import annotations

from logstore.errors import CorruptRecordError
from logstore.record import layout
from logstore.record.crc32c import crc32c
from logstore.record.header import BatchHeader
from logstore.record.walk import BatchAt
from logstore.runtime.fs import File
from logstore.types import INT32_MAX

_BLOCK = 1 << 20
_MAX_CODEC = 4


def is_plausible(header: BatchHeader, room: int, base_offset: int) -> bool:
    """Return whether a header could be the header of a complete batch.

    Parameters
    ----------
    room : int
        Number of bytes from the start of the header to the end of the file.
    base_offset : int
        Base offset of the segment.
    """
    return (
        header.magic == layout.MAGIC
        and layout.HEADER_SIZE <= header.size_bytes <= room
        and header.codec_id <= _MAX_CODEC
        and header.last_offset_delta >= 0
        and header.record_count >= 0
        and 0 <= header.base_offset - base_offset <= INT32_MAX
    )


def crc_of(file: File, position: int, end: int) -> int:
    """Compute the CRC-32C of a batch up to `end`, reading it in chunks."""
    start = position + layout.ATTRIBUTES_POSITION
    crc = 0
    while start < end and (piece := file.read(start, min(_BLOCK, end - start))):
        crc = crc32c(piece, crc)
        start += len(piece)
    return crc


def find_batch(
    file: File, start: int, end: int, base_offset: int, *, effort: int | None = None
) -> BatchAt | None:
    """Find the first batch with a valid CRC that starts in [start, end) of a file.

    Parameters
    ----------
    start, end : int
        Positions in bytes. The batch must also end by `end`.
    base_offset : int
        Base offset of the segment. The batch must be at most 2^31-1 above it.
    effort : int, optional
        Maximum number of candidate bytes to read. Otherwise bytes that look like many long batches
        would take quadratic time.

    Raises
    ------
    CorruptRecordError
        `effort` was exceeded.

    Notes
    -----
    O(n) for ordinary bytes: one position in 256 is a candidate, and few candidates require a CRC.
    """
    spent = 0
    while start <= end - layout.HEADER_SIZE:
        data = file.read(start, min(_BLOCK, end - start))
        last = len(data) - layout.HEADER_SIZE
        at = data.find(layout.MAGIC, layout.MAGIC_POSITION)
        while 0 <= at <= last + layout.MAGIC_POSITION:
            place = at - layout.MAGIC_POSITION
            position = start + place
            header = BatchHeader.unpack_from(data, place)
            if is_plausible(header, end - position, base_offset):
                spent += header.size_bytes
                if effort is not None and spent > effort:
                    raise CorruptRecordError(
                        "too many byte sequences resemble a batch",
                        position=position,
                        check="torn_tail",
                    )
                if crc_of(file, position, position + header.size_bytes) == header.crc:
                    return BatchAt(position, header)
            at = data.find(layout.MAGIC, at + 1)
        start += max(1, last + 1)
    return None
