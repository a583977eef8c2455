"""Sealed batches get their places: offsets, their producers' sequences, and a moment to arrive."""

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
"""Most batches that one append takes; less than that, and each costs twice as much."""


class Placed(NamedTuple):
    """A batch as it will stand in the log, when it arrives, and its largest timestamp, in ms."""

    data: bytes
    at_ms: int
    max_timestamp: int
    records: int


class Placing:
    """The next offset of a partition, and the next sequence of each producer in it.

    Parameters
    ----------
    first_id : int
        The id of the first producer; the others follow.
    """

    def __init__(self, producers: Producers, first_id: int = 0) -> None:
        self._producers = producers
        self._first_id = first_id
        self._sequences: dict[int, int] = {}
        self.next_offset = 0

    def copy(self) -> Placing:
        """Return another one that goes on from here, for an append that may be refused."""
        twin = Placing(self._producers, self._first_id)
        twin._sequences = dict(self._sequences)
        twin.next_offset = self.next_offset
        return twin

    def place(self, producer: int, at_ms: int, batch: bytes) -> Placed:
        """Give a sealed batch its offset and what its producer puts into the header."""
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
        return Placed(data, at_ms, header.max_timestamp, header.record_count)

    def place_marker(self) -> None:
        """Give a transaction's marker its offset."""
        self.next_offset += 1


def append_placed(log: Log, placed: Sequence[Placed]) -> None:
    """Append placed batches that follow one another, at the moment that it is."""
    data = b"".join([batch.data for batch in placed])
    log.writer.append_batches(data, AppendOrigin.REPLICATION)


def append_marker(log: Log, producer: int, *, commit: bool) -> None:
    """Append a transaction's end, at the moment that it is."""
    log.writer.append_end_txn_marker(producer, PRODUCER_EPOCH, COORDINATOR_EPOCH, commit=commit)


def fit_the_segment(log: Log, batches: Sequence[bytes], at_ms: int) -> bool:
    """Tell whether none of some sealed batches begins a new segment.

    What the last and the largest of them do not bring about, none of them does; an empty segment
    knows too little for that.

    Parameters
    ----------
    at_ms : int
        When the last of them arrives.
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
