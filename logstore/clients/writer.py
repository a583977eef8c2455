"""Append records to a topic in batches, with one open batch per partition."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.clients.open_batch import OpenBatch, estimated_size, limit_of
from logstore.clients.records import to_new_record
from logstore.errors import InvalidConfigurationError, UnknownTopicOrPartitionError
from logstore.record.choice import encodes_by_kernel
from logstore.record.codecs import Codec
from logstore.record.layout import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from logstore.clients.partitioner import Partitioner
    from logstore.clients.records import RecordLike
    from logstore.faults.rules import Faults
    from logstore.record.columns import BytesColumn
    from logstore.storage.log.drafts import AppendInfo, NewRecord
    from logstore.storage.log.log import Log

PAIRS_AT_A_TIME = 8192
"""Number of records converted to columns at a time."""

BATCH_BYTES = 16_384
"""Default maximum size of a batch, as for `batch.size` of Kafka's producer."""


class AppendedRange(NamedTuple):
    """The inclusive range of offsets that a `BatchWriter` appended to one partition."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    bytes: int


class _OpenBatch(OpenBatch):
    __slots__ = ("log",)

    def __init__(self, log: Log, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.log = log


class BatchWriter:
    """Appends records to a topic in batches.

    Parameters
    ----------
    topic : str
        Name of the topic, used in errors and results.
    partitions : sequence of int
        The partition numbers of the topic.
    log_of : callable
        Returns the log of a partition, given its number.
    partitioner : Partitioner
        Selects the partition of records that are added without a partition.
    faults : Faults
        Fault rules, applied to each batch.
    codec : Codec
        Compression codec of the batches.
    batch_records : int, optional
        Number of records per batch. By default, a batch has about 16 KiB. A batch of several
        records never exceeds `max.message.bytes` or `segment.bytes`.

    Raises
    ------
    InvalidConfigurationError
        `batch_records` is less than 1.
    """

    def __init__(
        self,
        topic: str,
        partitions: Sequence[int],
        log_of: Callable[[int], Log],
        partitioner: Partitioner,
        *,
        faults: Faults,
        codec: Codec = Codec.NONE,
        batch_records: int | None = None,
    ) -> None:
        if batch_records is not None and batch_records < 1:
            raise InvalidConfigurationError(f"batch_records must be at least 1: {batch_records}")
        self.topic = topic
        self.partitions = partitions
        self._log_of = log_of
        self._partitioner = partitioner
        self._faults = faults
        self._codec = codec
        self._batch_records = batch_records
        self._open: dict[int, _OpenBatch] = {}
        self._null_key_partition: int | None = None
        self._done: dict[int, AppendedRange] = {}

    def __repr__(self) -> str:
        waiting = sum(len(batch) for batch in self._open.values())
        return f"BatchWriter({self.topic}, {waiting} records waiting)"

    def add(self, record: NewRecord, partition: int | None = None) -> None:
        """Add a record to the open batch, and append the batch if it is full.

        Raises
        ------
        RequestError
            A batch was rejected, and its records were dropped: either the previous batch or the
            batch with this record.
        UnknownTopicOrPartitionError
            The partition does not exist.
        """
        number = self.partition_for(record, partition)
        key, value, _, headers = record
        size_bytes = estimated_size(key, value, headers)
        batch = self._open.get(number)
        if batch is not None and not batch.has_room(size_bytes):
            self.flush(number)
            batch = None
        if batch is None:
            batch = self._open[number] = self._new_batch(number)
        if batch.add(*record, size_bytes) or len(batch) == self._batch_records:
            self.flush(number)

    def add_all(self, items: Iterable[RecordLike], partition: int | None = None) -> None:
        """Add several records, with the same batches and errors as calls of `add`.

        Notes
        -----
        A long list or tuple of (key, value) pairs for one partition is encoded as columns.
        """
        if isinstance(items, list | tuple) and encodes_by_kernel(len(items)):
            number = self._only_partition(partition)
            if number is not None and not self._open:
                items = islice(items, self._add_pairs(items, number), None)
        for item in items:
            self.add(to_new_record(item), partition)

    def _only_partition(self, partition: int | None) -> int | None:
        """Return the common partition of all records, or None if keys decide or it is unknown."""
        if partition is None:
            return self.partitions[0] if len(self.partitions) == 1 else None
        return partition if partition in self.partitions else None

    def _add_pairs(self, items: Sequence[RecordLike], number: int) -> int:
        """Append as many full batches of (key, value) pairs as possible.

        Return the number of appended pairs. The rest do not fill a batch, or include other items.
        """
        from logstore.record.columns import find_bounds
        from logstore.storage.log.drafts import RecordArrays

        log = self._log_of(number)
        done = 0
        batch_bytes = BATCH_BYTES if self._batch_records is None else None
        while columns := _columns_of_pairs(items[done : done + PAIRS_AT_A_TIME]):
            keys, values = columns
            room = limit_of(log.config, batch_bytes) - HEADER_SIZE
            bounds = find_bounds(keys, values, room, self._batch_records or len(keys))
            if done + len(keys) < len(items):
                bounds.pop()  # more pairs might fit into the last batch
            if len(bounds) < 2:
                break  # a batch is larger than a chunk, so records are added one at a time
            last = bounds[-1]
            records = RecordArrays(keys.slice(0, last), values.slice(0, last))
            # Fault rules for requests or writes apply to each batch.
            request = self._request(log) if self._faults.rules else None
            for info in log.writer.append_parts(records, bounds, self._codec, request):
                self._note(number, info)
            done += last
        return done

    def partition_for(self, record: NewRecord, partition: int | None = None) -> int:
        """Return the partition of a record.

        Records without a key share a partition until its batch is full.
        """
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
        """Append the partition's open batch, if any. Raises the same errors as `add`."""
        if number == self._null_key_partition:
            self._null_key_partition = None
        batch = self._open.pop(number, None)
        if batch is None:
            return
        append = partial(batch.log.writer.append_records, batch, self._codec)
        self._note(number, self._request(batch.log)(append))

    def _request(self, log: Log) -> Callable[[Callable[[], AppendInfo]], AppendInfo]:
        return partial(self._faults.request, "append", (log.topic_partition,))

    def _note(self, number: int, info: AppendInfo) -> None:
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
        """Append all open batches. Return the ranges of all appended records."""
        for number in sorted(self._open):
            self.flush(number)
        return self.appended

    @property
    def appended(self) -> list[AppendedRange]:
        """The ranges appended so far, one per partition."""
        return [self._done[number] for number in sorted(self._done)]

    def _new_batch(self, number: int) -> _OpenBatch:
        if number not in self.partitions:
            raise UnknownTopicOrPartitionError(f"topic '{self.topic}' has no partition {number}")
        log = self._log_of(number)
        batch_bytes = BATCH_BYTES if self._batch_records is None else None
        return _OpenBatch(log, limit_of(log.config, batch_bytes))


def _columns_of_pairs(items: Sequence[Any]) -> tuple[BytesColumn, BytesColumn] | None:
    """Return the columns of the items, or None if an item is not a plain (key, value) pair."""
    from logstore.record.columns import BytesColumn

    if set(map(type, items)) != {tuple}:
        return None
    try:
        # `zip(*items)` creates an iterator per item, which slows down garbage collection.
        keys = [key for key, _ in items]
        values = [value for _, value in items]
    except ValueError:  # an item does not have exactly two fields
        return None
    columns = []
    for fields in (keys, values):
        kinds = set(map(type, fields))
        if not kinds <= {bytes, type(None)}:
            return None
        columns.append(BytesColumn.from_list(fields, has_nulls=type(None) in kinds))
    return columns[0], columns[1]
