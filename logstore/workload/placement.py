"""Placement of sealed batches in a log: offsets, producer sequences and append times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from logstore.record import layout
from logstore.record.crc32c import crc32c
from logstore.record.header import BatchHeader, increment_sequence
from logstore.types import AppendOrigin

if TYPE_CHECKING:
    from logstore.storage.log.log import Log
    from logstore.workload.spec import Producers

PRODUCER_EPOCH = COORDINATOR_EPOCH = 0

GROUP_BATCHES = 64
"""Maximum number of batches per append. With fewer, each batch takes up to twice as long."""


class PlacedBatch(NamedTuple):
    """A batch as appended, with its arrival time and largest timestamp in milliseconds."""

    data: bytes
    at_ms: int
    max_timestamp: int
    records: int


class BatchPlacer:
    """The next offset of a partition and the next sequence of each producer.

    Parameters
    ----------
    first_id : int
        Id of the first producer. Other producers have the following ids.
    """

    def __init__(self, producers: Producers, first_id: int = 0) -> None:
        self._producers = producers
        self._first_id = first_id
        self._sequences: dict[int, int] = {}
        self.next_offset = 0

    def copy(self) -> BatchPlacer:
        """Return a copy, to be used for an append that may fail."""
        twin = BatchPlacer(self._producers, self._first_id)
        twin._sequences = dict(self._sequences)
        twin.next_offset = self.next_offset
        return twin

    def place(self, producer: int, at_ms: int, batch: bytes) -> PlacedBatch:
        """Assign an offset, producer id and sequence to a sealed batch."""
        header = BatchHeader.unpack_from(batch)._replace(base_offset=self.next_offset)
        if producer < self._producers.with_id:
            sequence = self._sequences.get(producer, 0)
            self._sequences[producer] = increment_sequence(sequence, header.record_count)
            is_transactional = producer < self._producers.transactional
            header = header._replace(
                attributes=header.attributes | layout.TRANSACTIONAL_BIT * is_transactional,
                producer_id=self._first_id + producer,
                producer_epoch=PRODUCER_EPOCH,
                base_sequence=sequence,
            )
        body = batch[layout.HEADER_SIZE :]
        crc = crc32c(body, crc32c(header.pack()[layout.ATTRIBUTES_POSITION :]))
        self.next_offset = header.next_offset
        data = header._replace(crc=crc).pack() + body
        return PlacedBatch(data, at_ms, header.max_timestamp, header.record_count)

    def place_marker(self) -> None:
        """Assign an offset to a transaction marker."""
        self.next_offset += 1


def append_batches(log: Log, placed: Sequence[PlacedBatch]) -> None:
    """Append consecutive placed batches at the current time."""
    data = b"".join([batch.data for batch in placed])
    log.writer.append_batches(data, AppendOrigin.REPLICATION)


def append_marker(log: Log, producer: int, *, commit: bool) -> None:
    """Append a transaction marker at the current time."""
    log.writer.append_end_txn_marker(producer, PRODUCER_EPOCH, COORDINATOR_EPOCH, commit=commit)


def fit_segment(log: Log, batches: Sequence[bytes], at_ms: int) -> bool:
    """Return whether the active segment has room for all sealed batches without a roll.

    The batches are checked as a single append with their total size, largest timestamp and last
    offset. Returns False if the segment is empty.

    Parameters
    ----------
    at_ms : int
        Arrival time of the last batch.
    """
    segment = log.active_segment
    if not segment.size_bytes:
        return False
    index, times = segment.offset_index, segment.time_index
    room = min(index.max_entries - index.entries, times.max_entries - times.entries)
    if room <= len(batches) + 1:
        return False
    headers = [BatchHeader.unpack_from(batch) for batch in batches]
    last_offset = log.log_end_offset - 1 + sum(header.record_count for header in headers)
    latest = max(header.max_timestamp for header in headers)
    size = sum(map(len, batches))
    return segment.roll_reason(size, latest, last_offset, at_ms) is None
