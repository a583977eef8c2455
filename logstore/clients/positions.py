"""Where a consumer reads each of its partitions, and what it reads there.

A position moves over everything that a consumer does not see, as far as a batch spans it: holes
that a cleaner left in or between batches, control batches, records of aborted transactions, batches
without records. It ends up after the last batch, as in every client. If the log ends in a hole that
no batch spans, that is below the end offset.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.errors import OffsetOutOfRangeError
from logstore.storage.log.reader import Isolation
from logstore.types import TimestampType, TopicPartition

if TYPE_CHECKING:
    from logstore.clients.consumer_config import ConsumerConfig
    from logstore.record.batch import RecordBatch
    from logstore.record.records import Header, Record
    from logstore.storage.log.log import Log


class ConsumedRecord(NamedTuple):
    """A record as a consumer gets it, under the names of kafka-python's ConsumerRecord.

    Attributes
    ----------
    leader_epoch : int
        Of the batch; -1 if it has none.
    timestamp : int
        Unix ms; `timestamp_type` says who set it.
    key, value : Any
        As the deserializers gave them; None for null.
    checksum : None
        Batches have one, records no more.
    serialized_key_size, serialized_value_size, serialized_header_size : int
        In bytes; -1 if there is none.
    """

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: tuple[Header, ...]
    checksum: None = None
    serialized_key_size: int = -1
    serialized_value_size: int = -1
    serialized_header_size: int = -1


class Position:
    """Where one partition is read.

    Attributes
    ----------
    offset : int or None
        Of the next record; None until something says where to begin.
    reset : str or None
        `earliest` or `latest`, where the consumer was told to begin there.
    is_paused : bool
    retry_ns : int
        Monotonic moment before which it is not asked for, since a fetch was refused.
    leader_epoch : int
        Of the last record read; -1 if none was.
    """

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.offset: int | None = None
        self.reset: str | None = None
        self.is_paused = False
        self.retry_ns = 0
        self.leader_epoch = -1
        # Of the batch under way: records not given yet, and where it ends.
        self._batch: RecordBatch | None = None
        self._records: deque[Record] = deque()
        self._next_offset = 0
        # Generation of the log, offset and end between which no batch was found.
        self._hole: tuple[int, int, int] | None = None

    def seek(self, offset: int) -> None:
        """Read on at an offset."""
        self.offset, self.reset = offset, None
        self._drop_batch()

    def seek_to(self, reset: str) -> None:
        """Read on at the beginning or the end as it is when that is first needed."""
        self.offset, self.reset = None, reset
        self._drop_batch()

    def _drop_batch(self) -> None:
        self._batch = None
        self._records.clear()

    def has_data(self, log: Log, isolation: Isolation) -> bool:
        """Tell whether there may be something to read, or to move over."""
        if self.offset is None or self._records:
            return True
        end = log.reader.upper_offset(isolation)
        if log.log_start_offset > self.offset:
            return True
        return self.offset < end and self._hole != (log.generation, self.offset, end)

    def take(self, log: Log, config: ConsumerConfig, most: int) -> list[ConsumedRecord]:
        """Read up to so many records, and move over what is not seen on the way.

        Raises
        ------
        OffsetOutOfRangeError
            The position is outside the log.
        CorruptRecordError
            A batch is damaged; the position stands before it.
        """
        found: list[ConsumedRecord] = []
        while len(found) < most:
            if not self._records and not self._next_batch(log, config.isolation):
                break
            record = self._records.popleft()
            found.append(self._consumed(record, config))
            self.offset = record.offset + 1 if self._records else self._next_offset
        return found

    def _next_batch(self, log: Log, isolation: Isolation) -> bool:
        """Decode the next batch that has something to give; False at the end."""
        assert self.offset is not None
        start = self.offset
        generation = log.generation
        end = log.reader.upper_offset(isolation)
        if not log.log_start_offset <= start <= max(end, log.log_end_offset):
            raise OffsetOutOfRangeError(
                f"position {start} of {self.topic_partition} is out of range"
                f" [{log.log_start_offset}, {log.log_end_offset}]",
                offset=start,
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
            )
        if start >= end or self._hole == (generation, start, end):
            return False
        for batch, is_visible in log.reader.fetched(start, isolation=isolation):
            if is_visible:
                records = [each for each in batch.records() if each.offset >= start]
                if records:
                    self._batch = batch
                    self._records.extend(records)
                    self._next_offset = batch.header.next_offset
                    return True
            self.offset = max(start, batch.header.next_offset)
        self._hole = generation, self.offset, end
        return False

    def _consumed(self, record: Record, config: ConsumerConfig) -> ConsumedRecord:
        assert self._batch is not None
        header = self._batch.header
        topic, partition = self.topic_partition
        headers: list[Any] = list(record.headers)
        key, value = record.key, record.value
        if config.deserialize_key is not None:
            key = config.deserialize_key(topic, headers, key)
        if config.deserialize_value is not None:
            value = config.deserialize_value(topic, headers, value)
        self.leader_epoch = header.partition_leader_epoch
        return ConsumedRecord(
            topic,
            partition,
            header.partition_leader_epoch,
            record.offset,
            record.timestamp,
            header.timestamp_type,
            key,
            value,
            record.headers,
            None,
            -1 if record.key is None else len(record.key),
            -1 if record.value is None else len(record.value),
            _size_of(record.headers),
        )


def _size_of(headers: tuple[Header, ...]) -> int:
    if not headers:
        return -1
    return sum(
        len(name.encode("utf-8", "surrogateescape")) + len(value or b"") for name, value in headers
    )
