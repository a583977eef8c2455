"""Groups and committed offsets in `__consumer_offsets`, with a cache.

The hash of a group's id determines its partition. The contents of a partition are cached up to an
offset in its log. Before each use, the cache reads the records after this offset, such as
transaction markers and records of other writers, so writers need not notify it. A transaction's
offsets are committed when its marker is written, even if an older transaction is open. For each
group and partition, the last record counts, whatever the order of the markers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logstore.coordinator.groups import consumer_records
from logstore.coordinator.groups.consumer_records import Record as GroupRecord
from logstore.coordinator.groups.consumer_records import decode_consumer_key
from logstore.coordinator.groups.records import (
    StoredOffset,
    decode_group_key,
    decode_key,
    decode_value,
    encode_group,
    encode_group_key,
    encode_key,
    encode_value,
)
from logstore.coordinator.host import NO_EPOCH
from logstore.coordinator.topic import CoordinatorTopic
from logstore.errors import InvalidConfigurationError, KafkaStorageError, LogStoreError
from logstore.names import GROUP_OFFSETS_TOPIC
from logstore.record.batch import build_batch
from logstore.record.control import end_txn_marker_of
from logstore.record.records import Record
from logstore.storage.log.reader import Isolation
from logstore.storage.producers.rules import check_epoch
from logstore.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    AppendOrigin,
    TopicPartition,
)

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.coordinator.groups.group import Group
    from logstore.coordinator.groups.offsets import OffsetAndMetadata
    from logstore.coordinator.host import CoordinatorHost
    from logstore.messages.types import GroupMetadataValue
    from logstore.record.batch import RecordBatch
    from logstore.runtime.clock import Clock
    from logstore.storage.log.log import Log

logger = logging.getLogger(__name__)

NO_PRODUCER = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

Entry = tuple[bytes, bytes | None]
"""The key and the value of a record to write."""


_WRITE_ERRORS = {
    "UNKNOWN_TOPIC_OR_PARTITION": "COORDINATOR_NOT_AVAILABLE",
    "KAFKA_STORAGE_ERROR": "NOT_COORDINATOR",
    "NOT_LEADER_OR_FOLLOWER": "NOT_COORDINATOR",
    "NOT_ENOUGH_REPLICAS": "COORDINATOR_NOT_AVAILABLE",
}
"""The client's error for each error of the coordinator's write, as in Kafka."""

_GROUP_ERRORS = ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD")
"""Errors of writing a group for which clients get UNKNOWN_SERVER_ERROR."""


class _OffsetRecord(NamedTuple):
    """The newest record of a committed offset. The value of a deleted offset is None."""

    record_offset: int
    value: bytes | None


class OffsetsPartition:
    """The contents of one partition of the topic, as far as its log has been read.

    Parameters
    ----------
    log : Log
    epoch : int
        The leader epoch in which the contents were loaded.

    Attributes
    ----------
    groups : dict of str to bytes
        The newest value of each classic group's record.
    consumer_groups : dict of str to dict of bytes to bytes
        The newest values of each consumer group's records by key, in offset order.
    next_offset : int
        The first offset that has not been read.
    """

    def __init__(self, log: Log, epoch: int = NO_EPOCH) -> None:
        self.log = log
        self.epoch = epoch
        self.groups: dict[str, bytes] = {}
        self.consumer_groups: dict[str, dict[bytes, bytes]] = {}
        self._generation = log.generation
        self.next_offset = log.log_start_offset
        self._offsets: dict[str, dict[TopicPartition, _OffsetRecord]] = {}
        self._pending: dict[int, list[tuple[str, TopicPartition, _OffsetRecord]]] = {}
        self._changed: dict[str, None] = {}

    def is_of(self, log: Log, epoch: int) -> bool:
        """Return whether the contents are valid for a log in an epoch, with no truncation since."""
        is_same = log is self.log and epoch == self.epoch
        return is_same and log.generation == self._generation

    def follow(self) -> None:
        """Read the records that were appended since the last call.

        Raises
        ------
        InvalidRecordError
            A key is malformed.
        LogStoreError
            The log cannot be read.
        """
        log = self.log
        start_offset = max(self.next_offset, log.log_start_offset)
        end_offset = log.log_end_offset
        if start_offset >= end_offset:
            return
        # This includes records that are not replicated yet. A new leader needs them, and responses
        # wait for their replication.
        for batch in log.reader.batches(start_offset, end_offset, isolation=Isolation.LOG_END):
            self._apply_batch(batch)
        self.next_offset = max(self.next_offset, end_offset)

    def apply_appended(self, first_offset: int, entries: Sequence[Entry], producer_id: int) -> None:
        """Apply records that have just been appended at an offset."""
        if first_offset == self.next_offset:  # if not, `follow` reads them later, in order
            for number, (key, value) in enumerate(entries):
                self._apply(first_offset + number, key, value, producer_id)
            self.next_offset = first_offset + len(entries)

    def offsets_of(self, group_id: str) -> dict[TopicPartition, StoredOffset]:
        """Return a group's committed offsets, ordered by partition.

        Raises
        ------
        InvalidRecordError, UnsupportedFormatError
            A value is malformed, or has an unknown version.
        """
        records = self._offsets.get(group_id, {})
        return {
            tp: decode_value(each.value)
            for tp, each in sorted(records.items())
            if each.value is not None
        }

    def has_offsets(self, group_id: str) -> bool:
        """Return whether a group has offsets, including offsets in open transactions."""
        records = self._offsets.get(group_id, {}).values()
        return any(each.value is not None for each in records) or bool(self.pending_of(group_id))

    def pending_of(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions for which a group has offsets in open transactions."""
        waiting = self._pending.values()
        return {tp for offsets in waiting for group, tp, _ in offsets if group == group_id}

    def take_changed(self) -> Collection[str]:
        """Return the groups whose offsets have changed since the last call, in order."""
        changed, self._changed = self._changed, {}
        return changed

    # -- applying records ------------------------------------------------------------------

    def _apply_batch(self, batch: RecordBatch) -> None:
        header = batch.header
        if header.is_control:
            marker = end_txn_marker_of(batch)
            if marker is not None:
                ended = self._pending.pop(header.producer_id, [])
                for group_id, tp, update in () if marker.is_abort else ended:
                    self._supersede(group_id, tp, update)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in batch.records():
            if record.offset >= self.next_offset:
                self._apply(record.offset, record.key, record.value, producer_id)

    def _apply(self, offset: int, key: bytes | None, value: bytes | None, producer_id: int) -> None:
        group_and_partition = decode_key(key)
        if group_and_partition is not None:
            update = _OffsetRecord(offset, value)
            self._changed[group_and_partition[0]] = None
            if producer_id == NO_PRODUCER_ID:
                self._supersede(*group_and_partition, update)
            else:
                self._pending.setdefault(producer_id, []).append((*group_and_partition, update))
            return
        group_id = decode_group_key(key)
        if group_id is None:
            self._apply_consumer_record(key or b"", value)
        elif value is None:
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = value

    def _apply_consumer_record(self, key: bytes, value: bytes | None) -> None:
        decoded = decode_consumer_key(key)
        if decoded is None:
            return  # a record of a share group, a streams group or a newer version of Kafka
        group_id = decoded[0]
        records = self.consumer_groups.setdefault(group_id, {})
        records.pop(key, None)
        if value is not None:
            records[key] = value
        elif not records:
            del self.consumer_groups[group_id]

    def _supersede(
        self, group_id: str, topic_partition: TopicPartition, record: _OffsetRecord
    ) -> None:
        """Replace a record with a later record. The order of markers does not matter."""
        of_group = self._offsets.setdefault(group_id, {})
        known = of_group.get(topic_partition)
        if known is None or known.record_offset < record.record_offset:
            of_group[topic_partition] = record


class GroupStore:
    """Reads and writes `__consumer_offsets`. The caller must serialize calls.

    Parameters
    ----------
    host : CoordinatorHost
    clock : Clock
    config : BrokerConfig
    read_only : bool
        Whether the broker is read-only.
    """

    def __init__(
        self, host: CoordinatorHost, clock: Clock, config: BrokerConfig, *, read_only: bool
    ) -> None:
        self._clock = clock
        self.read_only = read_only
        self._topic = CoordinatorTopic(
            host,
            GROUP_OFFSETS_TOPIC,
            config.offsets_topic_num_partitions,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
        self._partitions: dict[int, OffsetsPartition] = {}
        self._written: dict[Log, int] = {}

    @property
    def is_stored(self) -> bool:
        """Whether the topic exists and was created by logstore, not copied from a broker."""
        return self._topic.is_stored

    @property
    def is_writable(self) -> bool:
        """Whether the topic is stored and the broker is not read-only."""
        return self.is_stored and not self.read_only

    def partition_of(self, group_id: str) -> TopicPartition:
        """Return the partition that stores a group."""
        return self._topic.partition_of(group_id)

    def numbers(self) -> Iterable[int]:
        """Return the numbers of the partitions that this broker coordinates."""
        return self._topic.owned

    def take_written(self) -> dict[Log, int]:
        """Return the last offset written to each log since the previous `take_written`."""
        written, self._written = self._written, {}
        return written

    @property
    def written(self) -> dict[Log, int]:
        """The last offset written to each log by the current call."""
        return dict(self._written)

    def await_read(self, contents: OffsetsPartition) -> None:
        """Make the current call wait until all records that were read are replicated."""
        if contents.next_offset > contents.log.log_start_offset:
            self._written[contents.log] = contents.next_offset - 1

    def ensure_stored(self) -> None:
        """Create the topic, or take over a topic that was copied from a broker.

        Raises
        ------
        InvalidConfigurationError
            The broker is read-only.
        KafkaStorageError
        """
        if self.read_only:
            raise InvalidConfigurationError("cannot change groups: the broker was opened read-only")
        self._topic.ensure_stored()

    def logs_with_open_transactions(self) -> list[Log]:
        """Return the logs with open transactions. The list is empty if the topic was copied."""
        logs: list[Log] = []
        for number in self.numbers() if self.is_stored else ():
            try:
                log = self._topic.log(number)
            except LogStoreError as error:
                logger.warning("%s-%d cannot be opened: %s", GROUP_OFFSETS_TOPIC, number, error)
                continue
            if log.producer_state.open_producers():
                logs.append(log)
        return logs

    def partition(self, number: int) -> OffsetsPartition | None:
        """Return the current contents of a partition, or None if the partition does not exist.

        Raises
        ------
        NotCoordinatorError, CoordinatorLoadInProgressError
            This broker does not coordinate the partition, or is still loading it.
        LogStoreError
            The partition cannot be read, or its disk has failed.
        """
        topic = self._topic.topic
        if topic is None or number not in topic.partitions:
            self._partitions.pop(number, None)
            return None
        log = self._topic.log(number)
        if log.is_offline:
            raise KafkaStorageError(f"{log.topic_partition} is offline because its disk failed")
        epoch = self._topic.owned.get(number, NO_EPOCH)
        contents = self._partitions.get(number)
        if contents is None or not contents.is_of(log, epoch):
            contents = OffsetsPartition(log, epoch)
        contents.follow()
        self._partitions[number] = contents
        return contents

    # -- writing ---------------------------------------------------------------------------

    def check_epoch(self, group_id: str, producer: tuple[int, int]) -> None:
        """Raise `InvalidProducerEpochError` if the log has a newer epoch of the producer."""
        if not self._topic.is_stored:
            return
        log = self._topic.log(self.partition_of(group_id).partition)
        producer_id, producer_epoch = producer
        with log.lock:
            entry = log.producer_state.entry(producer_id)
            if entry is not None:
                check_epoch(log.topic_partition, entry, producer_epoch)

    def write_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        producer: tuple[int, int] = NO_PRODUCER,
    ) -> None:
        """Write offsets. Raises the same errors as `write`.

        Parameters
        ----------
        producer : (int, int)
            Producer id and epoch, if the offsets are part of a transaction.
        """
        now_ms = self._clock.now_ms()
        entries = [
            (encode_key(group_id, tp), encode_value(committed, now_ms))
            for tp, committed in offsets.items()
        ]
        self.write(group_id, entries, producer)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete offsets. Raises the same errors as `write`."""
        self.write(group_id, [(encode_key(group_id, tp), None) for tp in partitions])

    def write_group(self, group_id: str, group: GroupMetadataValue) -> None:
        """Write a group. Raises the same errors as `write`."""
        self.write(group_id, [(encode_group_key(group_id), encode_group(group))])

    def write(
        self, group_id: str, entries: Sequence[Entry], producer: tuple[int, int] = NO_PRODUCER
    ) -> None:
        """Write the records of a group as one batch, like Kafka's coordinator.

        Raises
        ------
        InvalidProducerEpochError
            The producer was fenced by a newer epoch, or the transaction timed out.
        RequestError, KafkaStorageError
            Nothing was written.
        """
        if not entries:
            return
        self.ensure_stored()
        number = self.partition_of(group_id).partition
        now_ms = self._clock.now_ms()
        producer_id, producer_epoch = producer
        is_transactional = producer_id != NO_PRODUCER_ID
        batch = build_batch(
            [Record(slot, now_ms, key, value) for slot, (key, value) in enumerate(entries)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            # Sequences of a coordinator are not checked, because each batch of a transaction starts
            # at 0.
            base_sequence=0 if is_transactional else NO_SEQUENCE,
            is_transactional=is_transactional,
        )
        known = self._partitions.get(number)
        epoch = NO_EPOCH if known is None else known.epoch
        log, info = self._topic.append(
            number, epoch, lambda writer: writer.append_batches(batch, AppendOrigin.COORDINATOR)
        )
        self._written[log] = info.last_offset
        if known is not None and known.is_of(log, epoch):
            known.apply_appended(info.first_offset, entries, producer_id)

    def try_write(self, write: Callable[[], None]) -> str | None:
        """Write records. Return the client's error name, or None on success."""
        try:
            write()
        except LogStoreError as error:
            logger.warning("cannot write to %s: %s", GROUP_OFFSETS_TOPIC, error)
            return _WRITE_ERRORS.get(error.kafka_error, error.kafka_error)
        return None

    def save_group(self, group: Group, assignments: Mapping[str, bytes]) -> str | None:
        """Write a group with assignments. Return the client's error name, or None on success."""
        stored = group.to_record(assignments)
        return self._try_save(lambda: self.write_group(group.group_id, stored))

    def save_records(self, group_id: str, records: Iterable[GroupRecord]) -> str | None:
        """Write a group's records as one batch. Return the client's error name if it fails."""
        return self._try_save(
            lambda: self.write(group_id, [consumer_records.encode(each) for each in records])
        )

    def _try_save(self, write: Callable[[], None]) -> str | None:
        error = self.try_write(write)
        return "UNKNOWN_SERVER_ERROR" if error in _GROUP_ERRORS else error
