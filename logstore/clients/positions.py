"""The positions of a consumer in its partitions, and reading from a position.

A position advances over everything that a consumer does not return: offset gaps within or between
batches, control batches, aborted records and empty batches. As in other clients, it stops after the
last batch. If the log ends with a gap that no batch covers, the position remains below the end
offset.
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
    """A record returned by a consumer, with the fields of kafka-python's ConsumerRecord.

    Attributes
    ----------
    leader_epoch : int
        Leader epoch of the batch, or -1 if it has none.
    timestamp : int
        Timestamp in Unix milliseconds.
    timestamp_type : TimestampType
        Whether the producer or the log set the timestamp.
    key, value : Any
        The deserialized key and value. Without a deserializer, bytes, or None for null.
    checksum : None
        Always None, because records have no checksums since message format v2.
    serialized_key_size, serialized_value_size, serialized_header_size : int
        Sizes in bytes, or -1 for a null or missing headers.
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
    """The position of a consumer in one partition.

    Attributes
    ----------
    offset : int or None
        Offset of the next record, or None if it must be looked up.
    reset : str or None
        `earliest` or `latest` after a seek to the beginning or the end, or None after other seeks.
    is_paused : bool
    retry_ns : int
        Monotonic time of the next fetch after a retriable error.
    leader_epoch : int
        Leader epoch of the last record returned, or -1 if no record was returned.
    """

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.offset: int | None = None
        self.reset: str | None = None
        self.is_paused = False
        self.retry_ns = 0
        self.leader_epoch = -1
        # The current batch, its records that have not been returned yet, and its end offset.
        self._batch: RecordBatch | None = None
        self._records: deque[Record] = deque()
        self._next_offset = 0
        # Log generation, start and end of the last range without a batch.
        self._gap: tuple[int, int, int] | None = None

    def seek(self, offset: int) -> None:
        """Set the offset from which the partition is read next."""
        self.offset, self.reset = offset, None
        self._drop_batch()

    def seek_to(self, reset: str) -> None:
        """Seek to the beginning or the end of the partition. The next read looks up the offset."""
        self.offset, self.reset = None, reset
        self._drop_batch()

    def _drop_batch(self) -> None:
        self._batch = None
        self._records.clear()

    def has_data(self, log: Log, isolation: Isolation) -> bool:
        """Return whether there may be more records to return or skip."""
        if self.offset is None or self._records:
            return True
        end = log.reader.upper_offset(isolation)
        if log.log_start_offset > self.offset:
            return True
        return self.offset < end and self._gap != (log.generation, self.offset, end)

    def take(self, log: Log, config: ConsumerConfig, limit: int) -> list[ConsumedRecord]:
        """Read up to `limit` records, and advance the position.

        Raises
        ------
        OffsetOutOfRangeError
            The position is outside the log.
        CorruptRecordError
            A batch is corrupt. The position does not advance past the batch.
        """
        consumed: list[ConsumedRecord] = []
        while len(consumed) < limit:
            if not self._records and not self._next_batch(log, config.isolation):
                break
            record = self._records.popleft()
            consumed.append(self._to_consumed_record(record, config))
            self.offset = record.offset + 1 if self._records else self._next_offset
        return consumed

    def _next_batch(self, log: Log, isolation: Isolation) -> bool:
        """Decode the next batch with records to return. Return False at the end of the log."""
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
        if start >= end or self._gap == (generation, start, end):
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
        self._gap = generation, self.offset, end
        return False

    def _to_consumed_record(self, record: Record, config: ConsumerConfig) -> ConsumedRecord:
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
