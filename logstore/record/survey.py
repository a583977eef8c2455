"""Find all valid batches of a `.log` file, and the damage between them.

A batch is valid if its CRC matches, its records can be decoded, and its offsets are in order with
adjacent batches and segments. Fields without a CRC (length, magic, base offset) are corrected in
memory if only one value is possible. The file is not changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import CorruptionError, InvalidRecordError
from logstore.record import layout, legacy
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec
from logstore.record.control import end_txn_marker_of
from logstore.record.scan import Fault, ScannedBatch, SegmentScan, Unreadable, misplaced
from logstore.record.splice import Piece, Splice
from logstore.types import TimestampType

if TYPE_CHECKING:
    from logstore.record.records import Record
    from logstore.runtime.fs import File

RUN_BYTES = 128 * 1024
"""Approximate size of old messages per converted batch. Each read converts them again."""


class Damage(NamedTuple):
    """A range of a `.log` file without a readable batch.

    Valid batches follow in the same or a later file. A torn batch at the end of a log is not
    damage, because a crash or a running process can leave one.

    Attributes
    ----------
    path : str
        The file on disk.
    position, size_bytes : int
        The range.
    check : str
        Name of the failed check in `logstore.inspect.check.CHECKS`.
    last_offset_before, first_offset_after : int or None
        Offsets of the adjacent valid batches, or None if there are none.
    is_mended : bool
        Whether only fields without a CRC are wrong and adjacent batches determine their values, so
        that the records can be read.
    later_records : int or None
        Number of records in later valid batches, including later files, or None if not counted.
    """

    path: str
    position: int
    size_bytes: int
    check: str
    last_offset_before: int | None
    first_offset_after: int | None
    is_mended: bool = False
    later_records: int | None = None

    def __str__(self) -> str:
        before, after = self.last_offset_before, self.first_offset_after
        around = "" if before is None else f" after offset {before}"
        around += "" if after is None else f"{' and' if around else ''} before offset {after}"
        if self.is_mended:
            how = f"wrong ({self.check}), but can be inferred from adjacent batches"
        else:
            how = f"damaged ({self.check})"
            if later := self.later_records:
                how += f"; {later:,} later record{' is' if later == 1 else 's are'} valid"
        return (
            f"{self.path}: {self.size_bytes:,} bytes at position {self.position}{around} are {how}"
        )


class SegmentBounds(NamedTuple):
    """A segment file and the offset range of its batches.

    Attributes
    ----------
    path : str
        The file on disk.
    base_offset : int
    first_offset : int
        Lowest offset of this segment: `base_offset`, unless the previous segment overlaps.
    following : int or None
        Base offset of the next segment, or None for the last one.
    """

    path: str
    base_offset: int
    first_offset: int
    following: int | None

    @property
    def is_partly_superseded(self) -> bool:
        """Whether the previous segment contains the first offsets, as after a completed swap."""
        return self.first_offset > self.base_offset


class ValidBatch(NamedTuple):
    """A valid batch and its position in the file.

    Attributes
    ----------
    magic : int
        Magic number in the file. `batch` always has magic 2.
    is_mended : bool
        Whether length, magic or base offset differ from the file.
    """

    position: int
    end_position: int
    magic: int
    is_mended: bool
    batch: RecordBatch


def survey(
    file: File, bounds: SegmentBounds, limit: int, end: int | None = None
) -> Iterator[ValidBatch | Damage]:
    """Yield the valid batches of a file and the damage between them, in order.

    Parameters
    ----------
    file : File
        File open for reading.
    limit : int
        Maximum decompressed size of a batch, in bytes.
    end : int, optional
        End of the survey (exclusive). [default: file size]

    Notes
    -----
    Takes about 10 µs per batch, plus decoding its records. `Damage.first_offset_after` is None if
    no valid batch follows in this file.
    """
    waiting: list[Damage] = []
    last_offset: int | None = None
    for found in _judged(file, bounds, limit, end):
        if isinstance(found, Damage):
            waiting.append(found._replace(last_offset_before=last_offset))
            continue
        header = found.batch.header
        for damage in waiting:
            yield damage._replace(first_offset_after=header.base_offset)
        waiting.clear()
        last_offset = header.last_offset
        yield found
    yield from waiting


def _judged(
    file: File, bounds: SegmentBounds, limit: int, file_end: int | None
) -> Iterator[ValidBatch | Damage]:
    """Yield valid batches and damage. The damage lacks the adjacent offsets."""
    scan = SegmentScan(file, bounds.path, bounds.base_offset, limit, file_end)
    end: int | None = bounds.first_offset
    is_adjacent = True
    check = "torn_tail"

    def damage(position: int, end_position: int) -> Damage:
        return Damage(bounds.path, position, end_position - position, check, None, None)

    for item, following in scan.pairs():
        if isinstance(item, Fault):
            check = item.check
            if item.is_tail:
                yield damage(item.position, scan.size)
            continue
        if isinstance(item, Unreadable) or item.batch is None:
            yield damage(item.position, item.end_position)
            is_adjacent = False
            continue
        if item.header.last_offset < bounds.first_offset and bounds.is_partly_superseded:
            continue
        valid, check = _placed(item, following, bounds, end, check, is_adjacent=is_adjacent)
        if valid is not None and (wrong := _undecodable(valid.batch, limit)):
            valid, check = None, wrong
        if valid is None:
            yield damage(item.position, item.end_position)
            is_adjacent = False
            continue
        if valid.is_mended:
            yield Damage(
                bounds.path,
                item.position,
                item.end_position - item.position,
                check,
                None,
                None,
                is_mended=True,
            )
        end, is_adjacent, check = valid.batch.header.next_offset, True, "torn_tail"
        yield valid


def _placed(
    item: ScannedBatch,
    following: ScannedBatch | None,
    bounds: SegmentBounds,
    end: int | None,
    check: str,
    *,
    is_adjacent: bool,
) -> tuple[ValidBatch | None, str]:
    """Check a batch's offsets. Correct the base offset if only one value is possible."""
    batch = item.batch
    assert batch is not None
    after = None if following is None else following.header.base_offset
    wrong = misplaced(item.header, bounds.base_offset, end, after, bounds.following)
    if wrong is None:
        valid = ValidBatch(item.position, item.end_position, item.magic, item.is_mended, batch)
        return valid, check
    if after is None:
        after = bounds.following
    header = item.header
    fits = (
        end is not None
        and after is not None
        and is_adjacent
        and item.magic == layout.MAGIC
        and end + header.last_offset_delta + 1 == after
        and header.last_offset_delta >= 0
        and end - bounds.base_offset >= 0
    )
    if not fits:
        return None, wrong[0]
    assert end is not None
    right = batch.with_place(end, header.partition_leader_epoch)
    right.path, right.position = batch.path, batch.position
    return ValidBatch(item.position, item.end_position, item.magic, True, right), wrong[0]


def _undecodable(batch: RecordBatch, limit: int) -> str | None:
    """Return the check that fails when the records are decoded, or None if they are valid."""
    header = batch.header
    try:
        if header.is_control:
            end_txn_marker_of(batch)
        previous = header.base_offset - 1
        for rows in batch.row_lists(limit):
            for row in rows:
                if not previous < row[0] <= header.last_offset:
                    return "offset_delta"
                previous = row[0]
    except InvalidRecordError:
        return "record_structure"
    except CorruptionError:
        return "codec"
    return None


# -- splicing ----------------------------------------------------------------------------------


class _Run:
    """Consecutive old messages to be converted to one batch."""

    def __init__(self) -> None:
        self.position = self.end_position = 0
        self.batches: list[RecordBatch] = []

    def takes(self, valid: ValidBatch) -> bool:
        if not self.batches:
            return True
        last = self.batches[-1].header
        return (
            valid.position == self.end_position
            and valid.end_position - self.position <= RUN_BYTES
            and valid.batch.header.attributes == last.attributes == 0
        )


class SpliceBuilder:
    """Builds the splice of a file from its valid batches."""

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._pieces: list[Piece] = []
        self._run = _Run()

    def add(self, valid: ValidBatch) -> None:
        """Add the next batch."""
        if valid.magic != layout.MAGIC:
            if not self._run.takes(valid):
                self._end_run()
            if not self._run.batches:
                self._run.position = valid.position
            self._run.batches.append(valid.batch)
            self._run.end_position = valid.end_position
            return
        self._end_run()
        if valid.is_mended:
            head = valid.batch.data[: layout.HEADER_SIZE]
            size = valid.end_position - valid.position
            self._put(valid.position, size, size, partial(_with_head, head))
            return
        last = self._pieces[-1] if self._pieces else None
        size = valid.end_position - valid.position
        if last is not None and last.make is None and last.position + last.size == valid.position:
            self._pieces[-1] = last._replace(
                size=last.size + size, size_bytes=last.size_bytes + size
            )
        else:
            self._put(valid.position, size, size, None)

    def finish(self, file_size: int) -> Splice | None:
        """Return the splice, or None if the file can be read unchanged."""
        self._end_run()
        pieces = self._pieces
        if not pieces and not file_size:
            return None
        if len(pieces) == 1 and pieces[0] == Piece(0, file_size, 0, file_size):
            return None
        return Splice(self._path, pieces)

    def _put(self, position: int, size_bytes: int, size: int, make: object) -> None:
        start = self._pieces[-1].start + self._pieces[-1].size if self._pieces else 0
        self._pieces.append(Piece(start, size, position, size_bytes, make))  # type: ignore[arg-type]

    def _end_run(self) -> None:
        run, self._run = self._run, _Run()
        if run.batches:
            make = partial(_batch_of_old, limit=self._limit)
            size = len(_joined(run.batches, self._limit))
            self._put(run.position, run.end_position - run.position, size, make)


def _with_head(head: bytes, data: bytes) -> bytes:
    return head + data[len(head) :]


def _batch_of_old(data: bytes, limit: int) -> bytes:
    batches = []
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + layout.LOG_OVERHEAD
        batches.append(legacy.parse_message(data[position : position + size]).batch(limit))
        position += size
    return _joined(batches, limit)


def _joined(batches: list[RecordBatch], limit: int) -> bytes:
    """Join the records of batches in one batch. Compressed batches are recompressed with lz4."""
    header = batches[-1].header
    records: list[Record] = []
    for batch in batches:
        records += batch.records(limit)
    appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return build_batch(
        records,
        codec=Codec.LZ4 if len(records) > len(batches) else Codec.NONE,
        last_offset=header.last_offset,
        timestamp_type=header.timestamp_type,
        append_time=header.max_timestamp if appended else None,
    )
