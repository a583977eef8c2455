"""Faults in the bytes of a partition's segments: batches parsed, changed, and encoded again.

Unchanged batches keep their bytes. A changed segment gets an offset index without entries, which is
valid for any contents: opening the directory recovers nothing, and a reader meets the fault itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from logstore.names import INDEX_SUFFIX, LOG_SUFFIX, parse_segment_file
from logstore.record import layout
from logstore.record.batch import RecordBatch, seal_batch
from logstore.record.codecs import Codec
from logstore.record.control import end_txn_marker_of
from logstore.record.header import BatchHeader
from logstore.record.records import Record, encode_records
from logstore.record.walk import walk_buffer
from logstore.types import NO_TIMESTAMP, TimestampType
from tests.support.oracles.cleaner_oracle import empty_batch


@dataclass(eq=False)
class StoredBatch:
    """A batch of a file; `data` are its bytes as long as it is unchanged."""

    header: BatchHeader
    records: list[Record]
    data: bytes | None = None

    @property
    def is_data(self) -> bool:
        """Whether the batch contains records rather than a marker."""
        return not self.header.is_control

    def spans(self, offset: int) -> bool:
        """Return whether the header's range includes an offset."""
        return self.header.base_offset <= offset <= self.header.last_offset

    def sealed(self) -> bytes:
        """Return the bytes; a changed batch gets a header and a CRC that match its records."""
        if self.data is not None:
            return self.data
        header = self.header
        if not self.records:
            return empty_batch(header)
        newest = max(record.timestamp for record in self.records)
        by_log = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        base_timestamp = header.base_timestamp
        if base_timestamp == NO_TIMESTAMP:
            base_timestamp = self.records[0].timestamp
        return seal_batch(
            encode_records(self.records, header.base_offset, base_timestamp),
            codec=Codec(header.codec_id),
            base_offset=header.base_offset,
            last_offset_delta=header.last_offset_delta,
            record_count=len(self.records),
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if by_log else newest,
            timestamp_type=header.timestamp_type,
            partition_leader_epoch=header.partition_leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            has_delete_horizon=header.has_delete_horizon,
        )


class Row(NamedTuple):
    """A data record, its batch's header, and whether its transaction was aborted or is open."""

    record: Record
    header: BatchHeader
    aborted: bool

    @property
    def offset(self) -> int:
        """Offset of the record."""
        return self.record.offset

    @property
    def is_tombstone(self) -> bool:
        """Whether the value is null."""
        return self.record.value is None


@dataclass
class Segment:
    """A `.log` file as the list of its batches."""

    path: Path
    base_offset: int
    batches: list[StoredBatch] = field(default_factory=list)

    def seam(self, offset: int) -> int:
        """Return the index at which a batch with a base offset belongs."""
        return bisect_right([each.header.base_offset for each in self.batches], offset)


class LogBytes:
    """All segments of a partition's directory, to be changed without the engine.

    Parameters
    ----------
    directory : Path
        Of the partition; closed cleanly.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.segments = [
            Segment(path, parse_segment_file(path.name).base_offset)
            for path in sorted(directory.glob(f"*{LOG_SUFFIX}"))
        ]
        for segment in self.segments:
            for batch in walk_buffer(segment.path.read_bytes()):
                segment.batches.append(
                    StoredBatch(batch.header, batch.records(), bytes(batch.data))
                )

    # -- contents --------------------------------------------------------------------------

    @property
    def batches(self) -> list[StoredBatch]:
        """All batches, including markers."""
        return [batch for segment in self.segments for batch in segment.batches]

    @property
    def records(self) -> list[Record]:
        """All data records in reading order."""
        return [record for batch in self.batches if batch.is_data for record in batch.records]

    def rows(self) -> list[Row]:
        """Return all data records with the results of their transactions."""
        committed = self._committed()
        return [
            Row(record, batch.header, batch.header.is_transactional and batch not in committed)
            for batch in self.batches
            if batch.is_data
            for record in batch.records
        ]

    def _committed(self) -> set[StoredBatch]:
        pending: dict[int, list[StoredBatch]] = {}
        committed = set()
        for batch in self.batches:
            if batch.is_data:
                pending.setdefault(batch.header.producer_id, []).append(batch)
                continue
            assert batch.data is not None
            marker = end_txn_marker_of(RecordBatch(batch.data))
            ended = pending.pop(batch.header.producer_id, [])
            if marker is not None and not marker.is_abort:
                committed.update(ended)
        return committed

    def free_offsets(self, start: int, end: int) -> Iterator[int]:
        """Yield the offsets of [start, end) where neither a record nor a marker is."""
        taken = {record.offset for record in self.records}
        for batch in self.batches:
            if not batch.is_data:
                taken.update(range(batch.header.base_offset, batch.header.next_offset))
        yield from (offset for offset in range(start, end) if offset not in taken)

    # -- changes ---------------------------------------------------------------------------

    def holder(self, offset: int) -> tuple[StoredBatch, int]:
        """Return the batch with the record of an offset, and the record's index in it."""
        for batch in self.batches:
            if batch.is_data and batch.spans(offset):
                for at, record in enumerate(batch.records):
                    if record.offset == offset:
                        return batch, at
        raise LookupError(f"no record at offset {offset} in {self.directory}")

    def remove(self, offset: int) -> None:
        """Remove a record; a batch without other records stays as an empty one."""
        batch, at = self.holder(offset)
        del batch.records[at]
        batch.data = None

    def change(self, offset: int, **fields: object) -> None:
        """Give a record other fields."""
        batch, at = self.holder(offset)
        batch.records[at] = batch.records[at]._replace(**fields)
        batch.data = None

    def put(self, record: Record, like: BatchHeader) -> None:
        """Insert a record by its offset, in a batch of its own if none spans it.

        Parameters
        ----------
        like : BatchHeader
            Whose codec, producer and delete horizon a batch of its own gets.
        """
        for batch in self.batches:
            if batch.is_data and batch.spans(record.offset):
                at = bisect_right([each.offset for each in batch.records], record.offset)
                batch.records.insert(at, record)
                batch.data = None
                return
        last_segment = [each for each in self.segments if each.base_offset <= record.offset][-1]
        header = like._replace(base_offset=record.offset, last_offset_delta=0)
        last_segment.batches.insert(last_segment.seam(record.offset), StoredBatch(header, [record]))

    def repeat(self, offset: int, **fields: object) -> None:
        """Insert a copy of a record after it, with other fields if any are named."""
        batch, at = self.holder(offset)
        batch.records.insert(at + 1, batch.records[at]._replace(**fields))
        batch.data = None

    def swap(self, offset: int) -> None:
        """Swap a record and the next one in its batch."""
        batch, at = self.holder(offset)
        batch.records[at : at + 2] = reversed(batch.records[at : at + 2])
        batch.data = None

    def repeat_batch(self, batch: StoredBatch) -> None:
        """Insert a copy of a batch after it."""
        segment = self._segment_of(batch)
        copy = replace(batch, records=list(batch.records))
        segment.batches.insert(segment.batches.index(batch), copy)

    def swap_batches(self, one: StoredBatch, other: StoredBatch) -> None:
        """Swap two batches of a segment."""
        batches = self._segment_of(one).batches
        first, second = batches.index(one), batches.index(other)
        batches[first], batches[second] = other, one

    def _segment_of(self, batch: StoredBatch) -> Segment:
        return next(each for each in self.segments if batch in each.batches)

    def set_by_log(self, batch: StoredBatch) -> None:
        """Mark a batch as LogAppendTime, so that all records have its largest timestamp."""
        attributes = batch.header.attributes | layout.TIMESTAMP_TYPE_BIT
        batch.header = batch.header._replace(attributes=attributes)
        newest = batch.header.max_timestamp
        batch.records = [record._replace(timestamp=newest) for record in batch.records]
        batch.data = None

    def write(self) -> None:
        """Write the segments that were changed."""
        for segment in self.segments:
            data = b"".join(batch.sealed() for batch in segment.batches)
            if data != segment.path.read_bytes():
                segment.path.write_bytes(data)
                segment.path.with_suffix(INDEX_SUFFIX).write_bytes(b"")
