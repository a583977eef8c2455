"""Collecting records into batches, one open batch a partition, as a producer does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from logstore.broker.open_batch import OpenBatch, estimated_size, limit_of
from logstore.errors import InvalidConfigurationError, UnknownTopicOrPartitionError
from logstore.record.codecs import Codec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from logstore.broker.partitioner import Partitioner
    from logstore.log.drafts import NewRecord
    from logstore.log.log import Log

BATCH_BYTES = 16_384
"""Where a batch closes unless told otherwise: `batch.size` of Kafka's producer."""


class AppendedRange(NamedTuple):
    """What one run stored in one partition; offsets are inclusive."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    bytes: int


class _OpenBatch(OpenBatch["NewRecord"]):
    __slots__ = ("log",)

    def __init__(self, log: Log, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.log = log


class BatchWriter:
    """Appends records to a topic in batches.

    Parameters
    ----------
    topic : str
        Names the ranges in the report.
    partitions : sequence of int
        Those the topic has; a key's hash chooses among them.
    log_of : callable
        Gives the log of a partition number.
    partitioner : Partitioner
        For records that name no partition.
    codec : Codec
        What the batches are compressed with.
    batch_records : int, optional
        Records a batch; by default a batch closes at about 16 KiB. Either way it stays below
        `max.message.bytes` and `segment.bytes`, as far as several records are concerned.

    Raises
    ------
    InvalidConfigurationError
        `batch_records` is below 1.
    """

    def __init__(
        self,
        topic: str,
        partitions: Sequence[int],
        log_of: Callable[[int], Log],
        partitioner: Partitioner,
        *,
        codec: Codec = Codec.NONE,
        batch_records: int | None = None,
    ) -> None:
        if batch_records is not None and batch_records < 1:
            raise InvalidConfigurationError(f"batch records must be at least 1: {batch_records}")
        self.topic = topic
        self.partitions = partitions
        self._log_of = log_of
        self._partitioner = partitioner
        self._codec = codec
        self._batch_records = batch_records
        self._open: dict[int, _OpenBatch] = {}
        self._null_key_partition: int | None = None
        self._done: dict[int, AppendedRange] = {}

    def add(self, record: NewRecord, partition: int | None = None) -> None:
        """Take a record, and append the batch that it fills.

        Raises
        ------
        RequestError
            A batch was refused and is dropped: the one before this record, or one of this
            record alone that is larger than any batch may be.
        UnknownTopicOrPartitionError
            The topic has no such partition.
        """
        number = self.partition_for(record, partition)
        size_bytes = estimated_size(record)
        batch = self._open.get(number)
        if batch is not None and not batch.has_room(size_bytes):
            self.flush(number)
            batch = None
        if batch is None:
            batch = self._open[number] = self._new_batch(number)
        if batch.add(record, size_bytes) or len(batch.items) == self._batch_records:
            self.flush(number)

    def partition_for(self, record: NewRecord, partition: int | None = None) -> int:
        """Return where a record goes; records without a key stay together in a batch."""
        if partition is not None:
            return partition
        if len(self.partitions) == 1:
            return self.partitions[0]
        if record.key is not None:
            return self._partitioner.of_key(record.key, self.partitions)
        if self._null_key_partition is None:
            self._null_key_partition = self._partitioner.for_null_keys(self.partitions)
        return self._null_key_partition

    def flush(self, number: int) -> None:
        """Append the open batch of a partition; errors as `add`."""
        if number == self._null_key_partition:
            self._null_key_partition = None
        batch = self._open.pop(number, None)
        if batch is None:
            return
        info = batch.log.writer.append_records(batch.items, self._codec)
        before = self._done.get(number)
        self._done[number] = AppendedRange(
            self.topic,
            number,
            info.first_offset if before is None else before.first_offset,
            info.last_offset,
            info.records + (0 if before is None else before.records),
            info.size_bytes + (0 if before is None else before.bytes),
        )

    def finish(self) -> list[AppendedRange]:
        """Append all open batches and return what was stored."""
        for number in sorted(self._open):
            self.flush(number)
        return self.appended

    @property
    def appended(self) -> list[AppendedRange]:
        """What was stored so far, one range a partition."""
        return [self._done[number] for number in sorted(self._done)]

    def _new_batch(self, number: int) -> _OpenBatch:
        if number not in self.partitions:
            raise UnknownTopicOrPartitionError(f"topic '{self.topic}' has no partition {number}")
        log = self._log_of(number)
        batch_bytes = BATCH_BYTES if self._batch_records is None else None
        return _OpenBatch(log, limit_of(log.config, batch_bytes))
