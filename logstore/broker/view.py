"""A partition as it lies on the disk: every valid batch with its place, and what is damaged.

The one layer that commands read through. A partition is opened without a byte being changed;
damage is passed over batch by batch and named, or, with a broker that was opened
`as_recovered`, the log is what a broker's recovery would leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from logstore.loading.second_look import TRANSIENT
from logstore.record.batch import RecordBatch, decode_stored
from logstore.record.walk import check_place, read_batch, walk_headers

if TYPE_CHECKING:
    from logstore.log.finding import Damage, Finding
    from logstore.log.log import Log
    from logstore.manager.manager import LogManager
    from logstore.record.records import Record
    from logstore.types import TopicPartition

Answer = TypeVar("Answer")


class HasLogs(Protocol):
    """A broker, as far as its logs are concerned."""

    @property
    def manager(self) -> LogManager:
        """Its logs."""


class StoredBatch(NamedTuple):
    """A valid batch and its place.

    Attributes
    ----------
    path, position, size_bytes : str, int, int
        Where it lies, and how many bytes it takes there.
    magic : int
        Of the bytes that lie there; `batch` is of magic 2 in any case.
    batch : RecordBatch
        Its CRC is right and its records can be decoded.
    """

    path: str
    position: int
    size_bytes: int
    magic: int
    batch: RecordBatch


class PartitionView:
    """One partition, only read.

    Parameters
    ----------
    broker : HasLogs
        Opened read-only.
    topic_partition : TopicPartition

    Notes
    -----
    What is damaged is known once it was met: after `batches` came to its end, all of it.
    """

    def __init__(self, broker: HasLogs, topic_partition: TopicPartition) -> None:
        self.broker = broker
        self.topic_partition = topic_partition

    @property
    def log(self) -> Log:
        """Its log as it is known now; another one once damage was met."""
        return self.broker.manager.log(self.topic_partition)

    @property
    def damages(self) -> tuple[Damage, ...]:
        """The damages that were met."""
        return self.log.damages

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What an opening for writing would mend, a torn end among it."""
        return self.log.findings

    def look(self, question: Callable[[Log], Answer]) -> Answer:
        """Ask something of the log; again once damage was met on the way, and passed over.

        Raises
        ------
        CorruptionError, KafkaStorageError
            It cannot be passed over.
        """
        failures = 0
        while True:
            try:
                return question(self.log)
            except TRANSIENT:
                failures += 1
                if self.broker.manager.registry.reopen(self.topic_partition, failures) is None:
                    raise

    def batches(
        self, start_offset: int | None = None, end_offset: int | None = None
    ) -> Iterator[StoredBatch]:
        """Yield the valid batches that overlap [start, end), in the log's order.

        Parameters
        ----------
        start_offset : int, optional
            The log start by default: what lies below is hidden.
        end_offset : int, optional
            The log end by default.
        """
        offset = self.log.log_start_offset if start_offset is None else start_offset
        failures = 0
        while True:
            try:
                for batch in self._walk(offset, end_offset):
                    yield batch
                    offset, failures = batch.batch.header.next_offset, 0
            except TRANSIENT:
                failures += 1
                if self.broker.manager.registry.reopen(self.topic_partition, failures) is None:
                    raise
            else:
                return

    def _walk(self, start_offset: int, end_offset: int | None) -> Iterator[StoredBatch]:
        log = self.log
        limit = log.config.logstore_decompression_max_bytes
        end = log.log_end_offset if end_offset is None else end_offset
        previous = -1
        for segment in log.segments.from_offset(start_offset):
            found = segment.translate_offset(start_offset)
            if found is None:
                continue
            for at in walk_headers(
                segment.file, segment.log_path, found.position, segment.size_bytes
            ):
                header = at.header
                check_place(header, previous, segment.log_path, at.position)
                previous = header.last_offset
                if header.last_offset < start_offset:
                    continue
                if header.base_offset >= end:
                    return
                batch = read_batch(segment.file, segment.log_path, at.position, header.size_bytes)
                batch.ensure_valid()
                for _ in decode_stored(batch, limit):
                    break  # all are decoded before the first is given
                yield StoredBatch(
                    segment.log_path, at.position, header.size_bytes, header.magic, batch
                )

    def records(
        self, start_offset: int | None = None, end_offset: int | None = None
    ) -> Iterator[tuple[StoredBatch, Record]]:
        """Yield the records in [start, end), control records included, with their batches."""
        start = self.log.log_start_offset if start_offset is None else start_offset
        limit = self.log.config.logstore_decompression_max_bytes
        for stored in self.batches(start, end_offset):
            for record in decode_stored(stored.batch, limit):
                if record.offset >= start and (end_offset is None or record.offset < end_offset):
                    yield stored, record
