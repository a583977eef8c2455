"""Iterate over the batches of a buffer or file (storage-format §4.2).

A walk only reads lengths and magics. CRCs are checked by `RecordBatch.ensure_valid`. A walk ends
silently at a torn tail and raises an error at bytes that cannot be a batch. Entries of magic 0 and
1 raise a different error.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from logstore.errors import CorruptRecordError, UnsupportedFormatError
from logstore.record import layout
from logstore.record.batch import RecordBatch
from logstore.record.header import BatchHeader, possible_record_count
from logstore.runtime.fs import File, read_pieces
from logstore.types import INT64_MAX, NO_TIMESTAMP

_READ_AHEAD = 64 * 1024
_SUM_READ_AHEAD = 256 * 1024
_LARGE_BATCH = 8 * 1024

_BATCH_LENGTH = struct.Struct(">i")

# Fields read from every header: batch length, magic, attributes, last offset delta, maxTimestamp,
# count. Fields read from few headers: base offset and last offset delta, base timestamp.
_SUMMED = struct.Struct(">8xi4xb4xhi8xq14xi")
_OFFSETS = struct.Struct(">q15xi")
_BASE_TIMESTAMP = struct.Struct(">q")
assert _SUMMED.size == layout.HEADER_SIZE
assert _OFFSETS.size == layout.BASE_TIMESTAMP_POSITION

_OLD_FIXED_BYTES = 4 + 1 + 1 + 4 + 4
"""Size of a message of magic 0 without key and value: CRC, magic, attributes, lengths."""


class BatchAt(NamedTuple):
    """A batch header and its position."""

    position: int
    header: BatchHeader

    @property
    def end_position(self) -> int:
        """Position after the batch."""
        return self.position + self.header.size_bytes


class BatchTotals(NamedTuple):
    """Totals over the batches of a file.

    `last_offset` is inclusive. `last_offset` and `max_timestamp` (in milliseconds) are -1 if there
    are no batches. `end_position` is the position after the last complete batch.
    `delete_horizon_ms` is the earliest delete horizon, or None if there is none.
    """

    batches: int = 0
    records: int = 0
    last_offset: int = -1
    max_timestamp: int = NO_TIMESTAMP
    end_position: int = 0
    delete_horizon_ms: int | None = None


def walk_buffer(
    data: bytes, path: str | None = None, start_position: int = 0
) -> Iterator[RecordBatch]:
    """Yield the complete batches in a buffer. A partial batch at the end is ignored.

    Parameters
    ----------
    data : bytes
        Batches. The last one may be partial.
    path, start_position : str, int, optional
        File that contains the buffer, and the buffer's position in it. With a path, more lenient
        rules apply at the end of the file: up to 17 arbitrary bytes, or a torn batch of any magic,
        end the walk.

    Raises
    ------
    CorruptRecordError
        A batchLength is below 14, or a magic is not in 0..2.
    UnsupportedFormatError
        A valid entry has magic 0 or 1.
    """
    is_file = path is not None
    least = layout.HEADER_SIZE_UP_TO_MAGIC + 1 if is_file else layout.LOG_OVERHEAD
    start = 0
    while (remaining := len(data) - start) >= least:
        position = start_position + start
        size = _entry_size(data, start, path, position)
        if remaining < layout.HEADER_SIZE_UP_TO_MAGIC or (is_file and size > remaining):
            return
        magic = data[start + layout.MAGIC_POSITION]
        if magic > layout.MAGIC:
            raise _bad_magic(magic, path, position)
        if size > remaining:
            return
        entry = data[start : start + size]
        if magic != layout.MAGIC:
            raise _old_or_bad_magic(iter((entry[layout.MAGIC_POSITION :],)), entry, path, position)
        yield RecordBatch(entry, path, position)
        start += size


def walk_headers(
    file: File, path: str, start: int = 0, end: int | None = None
) -> Iterator[BatchAt]:
    """Yield the headers of complete batches in [start, end) of a file.

    Parameters
    ----------
    file : File
        File open for reading.
    path : str
        Path, for error messages.
    start, end : int
        Positions in bytes. `end` is exclusive. [default: file size]

    Raises
    ------
    CorruptRecordError, UnsupportedFormatError
        See `walk_buffer`. The error contains path and position.

    Notes
    -----
    Takes 1 to 2 µs per batch. Skips large batches, and reads small ones in blocks of 64 KiB.
    """
    if end is None:
        end = file.size()
    last_start = end - layout.HEADER_SIZE_UP_TO_MAGIC
    block = b""
    block_start = position = start
    read_ahead = _READ_AHEAD
    while position < last_start:
        inside = position - block_start
        if inside + layout.HEADER_SIZE > len(block):
            block = file.read(position, min(read_ahead, end - position))
            block_start, inside = position, 0
            if len(block) <= layout.HEADER_SIZE_UP_TO_MAGIC:
                return  # the file has been truncated below `end`
        header = None
        if inside + layout.HEADER_SIZE <= len(block):
            header = BatchHeader.unpack_from(block, inside)
        if (
            header is None
            or header.magic != layout.MAGIC
            or header.batch_length < layout.HEADER_LENGTH
        ):
            header = _judge_odd_header(file, block[inside:], path, position, end)
            if header is None:
                return
        size = header.batch_length + layout.LOG_OVERHEAD
        if size > end - position:
            return
        yield BatchAt(position, header)
        position += size
        read_ahead = 4 * layout.HEADER_SIZE if size > _LARGE_BATCH else _READ_AHEAD


def batch_totals(
    file: File, path: str, end: int | None = None, *, start: BatchTotals | None = None
) -> BatchTotals:
    """Return totals over the headers of the complete batches before `end`.

    Parameters
    ----------
    start : BatchTotals, optional
        Totals of an earlier, shorter state of the file, so that only the new bytes are read.

    Raises
    ------
    CorruptRecordError, UnsupportedFormatError
        See `walk_headers`.

    Notes
    -----
    Takes about 0.2 µs per batch, because it creates no header objects.
    """
    if end is None:
        end = file.size()
    unpack = _SUMMED.unpack_from
    header_size, overhead = layout.HEADER_SIZE, layout.LOG_OVERHEAD
    least_length, least_record = layout.HEADER_LENGTH, layout.MIN_RECORD_SIZE
    expected, codec_mask = layout.MAGIC, layout.CODEC_MASK
    has_horizon, horizon_ms = layout.DELETE_HORIZON_BIT, INT64_MAX
    batches, records, last_offset, largest, position, known_ms = start or BatchTotals()
    if known_ms is not None:
        horizon_ms = known_ms
    length = 0
    is_odd = False
    while end - position >= header_size and not is_odd:
        # Skip large batches, and read small ones in blocks.
        wanted = _SUM_READ_AHEAD if length < _LARGE_BATCH else header_size
        block = file.read(position, min(wanted, end - position))
        last_inside = len(block) - header_size
        if last_inside < 0:
            break
        left = end - position
        following = 0
        while following <= last_inside:
            inside = following
            length, magic, attributes, delta, max_timestamp, count = unpack(block, inside)
            following += length + overhead
            if magic != expected or length < least_length or following > left:
                following = inside
                is_odd = True
                break
            batches += 1
            if count == delta + 1 and 0 < count * least_record <= length - least_length:
                records += count
            else:
                codec = attributes & codec_mask
                records += possible_record_count(count, delta, length + overhead, codec)
            if max_timestamp > largest:
                largest = max_timestamp
            if attributes & has_horizon:
                stamp_at = inside + layout.BASE_TIMESTAMP_POSITION
                horizon_ms = min(horizon_ms, *_BASE_TIMESTAMP.unpack_from(block, stamp_at))
            summed = inside
        if following:
            last_offset = sum(_OFFSETS.unpack_from(block, summed))
        position += following
    # `walk_headers` handles the end of the file and unusual headers.
    for at in walk_headers(file, path, position, end):
        batches += 1
        records += at.header.possible_record_count
        last_offset = at.header.last_offset
        largest = max(largest, at.header.max_timestamp)
        if at.header.has_delete_horizon:
            horizon_ms = min(horizon_ms, at.header.base_timestamp)
        position = at.end_position
    first_horizon_ms = None if horizon_ms == INT64_MAX else horizon_ms
    return BatchTotals(batches, records, last_offset, largest, position, first_horizon_ms)


def refuse_old_format(file: File, path: str) -> None:
    """Raise `UnsupportedFormatError` if a `.log` starts with an old format, even if damaged.

    A walk treats a magic 0 or 1 message with a wrong CRC-32 as damage, and recovery would truncate
    the file at that message. At the start of a file, the structure of the message or a later valid
    message identifies the old format.

    Notes
    -----
    Reads 17 bytes, plus up to 64 KiB if the magic is 0 or 1.
    """
    head = file.read(0, layout.HEADER_SIZE_UP_TO_MAGIC)
    if len(head) < layout.HEADER_SIZE_UP_TO_MAGIC or head[layout.MAGIC_POSITION] >= layout.MAGIC:
        return
    with suppress(CorruptRecordError):
        next(walk_headers(file, path), None)
    data = file.read(0, _READ_AHEAD)
    if not _is_old_message(data, 0, file.size()):
        last_start = len(data) - layout.HEADER_SIZE_UP_TO_MAGIC
        for start in range(1, last_start):
            magic_at = start + layout.MAGIC_POSITION
            if data[magic_at] < layout.MAGIC and _is_old_message(data, start, len(data)):
                end = start + _entry_size(data, start, path, start)
                stored = data[start + layout.LOG_OVERHEAD : magic_at]
                if zlib.crc32(data[magic_at:end]).to_bytes(4, "big") == stored:
                    break
        else:
            return
    raise _old_format(head[layout.MAGIC_POSITION], path, 0)


def _is_old_message(data: bytes, start: int, file_size: int) -> bool:
    """Return whether key and value fill the entry, as in a magic 0 or 1 message.

    `data` is the start of a file of `file_size` bytes. The first value may be incomplete.
    """
    length_at = start + layout.BATCH_LENGTH_POSITION
    length = int.from_bytes(data[length_at : length_at + 4], "big", signed=True)
    magic = data[start + layout.MAGIC_POSITION]
    fixed = _OLD_FIXED_BYTES + 8 * magic  # magic 1 has a timestamp
    end = start + layout.LOG_OVERHEAD + length
    if length < fixed or (start and end > file_size):
        return False
    at = start + layout.LOG_OVERHEAD + fixed - 8
    left = length - fixed
    for _ in ("key", "value"):
        if at + 4 > len(data):
            return False
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if not -1 <= size <= left:
            return False
        at += 4 + max(size, 0)
        left -= max(size, 0)
    return left == 0


def check_place(header: BatchHeader, previous: int, path: str | None, position: int) -> None:
    """Raise `CorruptRecordError` unless the offsets are ascending and above `previous`.

    The CRC does not cover the base offset, so only the order can be checked.
    """
    first, last = header.base_offset, header.last_offset
    if not previous < first <= last < INT64_MAX:
        raise misplaced(first, last, previous + 1, path, position)


def misplaced(
    first: int, last: int, expected: int, path: str | None, position: int
) -> CorruptRecordError:
    """Return the error for a batch whose offsets are invalid at its position."""
    return CorruptRecordError(
        f"a batch of offsets {first} to {last} is where offsets from {expected} on are expected",
        path=path,
        position=position,
        check="offset_order",
        expected=expected,
        found=first,
    )


def read_batch(file: File, path: str, position: int, size: int) -> RecordBatch:
    """Read a complete batch at `position`."""
    return RecordBatch(file.read(position, size), path, position)


def _judge_odd_header(
    file: File, head: bytes, path: str, position: int, end: int
) -> BatchHeader | None:
    """Return the header of a batch smaller than 61 bytes, or None at a torn tail.

    `head` must contain at least 18 bytes. Raises an error if the bytes cannot be a batch.
    """
    size = _entry_size(head, 0, path, position)
    if size > end - position:
        return None
    magic = head[layout.MAGIC_POSITION]
    if magic > layout.MAGIC:
        raise _bad_magic(magic, path, position)
    if magic != layout.MAGIC:
        checked = read_pieces(file, position + layout.MAGIC_POSITION, position + size)
        raise _old_or_bad_magic(checked, head, path, position)
    if len(head) < min(size, layout.HEADER_SIZE):
        return None  # the file has been truncated below `end`
    return BatchHeader.unpack_from(head[:size].ljust(layout.HEADER_SIZE, b"\0"))


def _entry_size(data: bytes, start: int, path: str | None, position: int) -> int:
    """Return the size of the entry at `start` in `data`, which is at `position` in the file."""
    (length,) = _BATCH_LENGTH.unpack_from(data, start + layout.BATCH_LENGTH_POSITION)
    if length < layout.MIN_BATCH_LENGTH:
        raise CorruptRecordError(
            f"batch length {length} is less than the minimum {layout.MIN_BATCH_LENGTH}",
            path=path,
            position=position,
            check="batch_length",
            expected=layout.MIN_BATCH_LENGTH,
            found=length,
        )
    return int(length) + layout.LOG_OVERHEAD


def _old_or_bad_magic(
    checked: Iterator[bytes], head: bytes, path: str | None, position: int
) -> UnsupportedFormatError | CorruptRecordError:
    """Return the error for magic 0 or 1: old format if the CRC-32 matches, corruption if not.

    `checked` yields the bytes covered by the CRC. `head` starts with the bytes before them
    (storage-format §4.1).
    """
    magic = head[layout.MAGIC_POSITION]
    crc = 0
    for piece in checked:
        crc = zlib.crc32(piece, crc)
    if crc != int.from_bytes(head[layout.LOG_OVERHEAD : layout.MAGIC_POSITION], "big"):
        return _bad_magic(magic, path, position)
    return _old_format(magic, path, position)


def _old_format(magic: int, path: str | None, position: int) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"{path or 'buffer'} at position {position}: message format v{magic} "
        "(magic 0 and 1) is not supported; the file is not changed",
        path=path,
        position=position,
        magic=magic,
    )


def _bad_magic(magic: int, path: str | None, position: int) -> CorruptRecordError:
    signed = magic - 256 if magic > 127 else magic
    return CorruptRecordError(
        f"magic {signed} is not {layout.MAGIC}",
        path=path,
        position=position,
        check="magic",
        expected=layout.MAGIC,
        found=signed,
    )
