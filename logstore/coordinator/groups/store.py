"""`__consumer_offsets`: groups and offsets as its records store them, cached and followed.

Each group is kept in the partition that the hash of its id names. The contents of a partition are
cached up to an offset of its log, and before each answer the records after that offset are read:
markers of transactions, and records written by others. So the log alone decides, and nobody has to
notify the store. Offsets of a transaction count from its marker on, even while an older transaction
is open; of two records for one partition of a group the later counts, whichever transaction ended
last.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logstore.coordinator.groups.records import (
    StoredGroup,
    StoredOffset,
    decode_group,
    decode_group_key,
    decode_key,
    decode_value,
    encode_group,
    encode_group_key,
    encode_key,
    encode_value,
)
from logstore.coordinator.topic import CoordinatorTopic
from logstore.errors import InvalidConfigurationError, KafkaStorageError, LogStoreError
from logstore.names import GROUP_OFFSETS_TOPIC
from logstore.record.batch import build_batch
from logstore.record.control import end_txn_marker_of
from logstore.record.records import Record
from logstore.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    AppendOrigin,
    TopicPartition,
)

if TYPE_CHECKING:
    from logstore.coordinator.groups.config import GroupConfig
    from logstore.coordinator.groups.offsets import OffsetAndMetadata
    from logstore.manager.manager import LogManager
    from logstore.record.batch import RecordBatch
    from logstore.runtime.clock import Clock
    from logstore.storage.log.log import Log

logger = logging.getLogger(__name__)

NO_PRODUCER = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

Entry = tuple[bytes, bytes | None]
"""Key and value of a record to write."""


class _Held(NamedTuple):
    """The newest record of an offset and its place in the log; no value: the offset was deleted."""

    record_offset: int
    value: bytes | None


class OffsetsPartition:
    """Content of one partition of the topic, up to `next_offset` of its log.

    Attributes
    ----------
    groups : dict of str to bytes
        The newest value of each group that has a record of its own.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.groups: dict[str, bytes] = {}
        self._generation = log.generation
        self._next_offset = log.log_start_offset
        self._offsets: dict[str, dict[TopicPartition, _Held]] = {}
        self._pending: dict[int, list[tuple[str, TopicPartition, _Held]]] = {}
        self._changed: set[str] = set()

    def is_of(self, log: Log) -> bool:
        """Tell whether the contents are those of a log, and not of one that was cut since."""
        return log is self.log and log.generation == self._generation

    def follow(self) -> None:
        """Read the records appended since the last call.

        Raises
        ------
        InvalidRecordError
            A key is malformed.
        LogStoreError
            The log cannot be read.
        """
        log = self.log
        start_offset = max(self._next_offset, log.log_start_offset)
        if start_offset >= log.log_end_offset:
            return
        for batch in log.reader.batches(start_offset):
            self._take_batch(batch)
        self._next_offset = max(self._next_offset, log.high_watermark)

    def took(self, first_offset: int, entries: Sequence[Entry], producer_id: int) -> None:
        """Take in records that were just appended at an offset."""
        if first_offset == self._next_offset:  # else records before it are still to be read
            for number, (key, value) in enumerate(entries):
                self._take(first_offset + number, key, value, producer_id)
            self._next_offset = first_offset + len(entries)

    def offsets_of(self, group_id: str) -> dict[TopicPartition, StoredOffset]:
        """Return the offsets of a group that count, by partition in order.

        Raises
        ------
        InvalidRecordError, UnsupportedFormatError
            A value is malformed, or of a later version.
        """
        held = self._offsets.get(group_id, {})
        return {
            tp: decode_value(each.value)
            for tp, each in sorted(held.items())
            if each.value is not None
        }

    def has_offsets(self, group_id: str) -> bool:
        """Tell whether a group has offsets, those of open transactions included."""
        held = self._offsets.get(group_id, {}).values()
        return any(each.value is not None for each in held) or bool(self.pending_of(group_id))

    def pending_of(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions for which open transactions have offsets of a group."""
        waiting = self._pending.values()
        return {tp for offsets in waiting for group, tp, _ in offsets if group == group_id}

    def take_changed(self) -> set[str]:
        """Return the groups whose offsets changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    # -- what records say ------------------------------------------------------------------

    def _take_batch(self, batch: RecordBatch) -> None:
        header = batch.header
        if header.is_control:
            marker = end_txn_marker_of(batch)
            if marker is not None:
                ended = self._pending.pop(header.producer_id, [])
                for group_id, tp, held in () if marker.is_abort else ended:
                    self._hold(group_id, tp, held)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in batch.records():
            if record.offset >= self._next_offset:
                self._take(record.offset, record.key, record.value, producer_id)

    def _take(self, offset: int, key: bytes | None, value: bytes | None, producer_id: int) -> None:
        whose = decode_key(key)
        if whose is not None:
            held = _Held(offset, value)
            self._changed.add(whose[0])
            if producer_id == NO_PRODUCER_ID:
                self._hold(*whose, held)
            else:
                self._pending.setdefault(producer_id, []).append((*whose, held))
            return
        group_id = decode_group_key(key)
        if group_id is None:
            return  # a kind of record of a later Kafka
        if value is None:
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = value

    def _hold(self, group_id: str, topic_partition: TopicPartition, held: _Held) -> None:
        """Replace a record by a later one: the place in the log decides, not that of the marker."""
        of_group = self._offsets.setdefault(group_id, {})
        known = of_group.get(topic_partition)
        if known is None or known.record_offset < held.record_offset:
            of_group[topic_partition] = held


class GroupStore:
    """Reads and writes `__consumer_offsets`; callers see to it that one does at a time.

    Parameters
    ----------
    manager : LogManager
    clock : Clock
    config : GroupConfig
    """

    def __init__(self, manager: LogManager, clock: Clock, config: GroupConfig) -> None:
        self._manager = manager
        self._clock = clock
        self._topic = CoordinatorTopic(
            manager, GROUP_OFFSETS_TOPIC, config.topic_num_partitions, config.topic_configs
        )
        self._partitions: dict[int, OffsetsPartition] = {}

    @property
    def is_stored(self) -> bool:
        """Whether the topic exists and is the engine's own, not copied from a broker."""
        return self._topic.is_stored

    def partition_of(self, group_id: str) -> TopicPartition:
        """Return the partition that keeps a group."""
        return self._topic.partition_of(group_id)

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of the topic's partitions."""
        topic = self._topic.topic
        return () if topic is None else topic.partitions

    def ensure_stored(self) -> None:
        """Create the topic, or take over a copied one.

        Raises
        ------
        InvalidConfigurationError
            The broker was opened read-only.
        KafkaStorageError
        """
        if self._manager.read_only:
            raise InvalidConfigurationError("groups cannot change: the broker was opened read-only")
        self._topic.ensure_stored()

    def logs_with_open_transactions(self) -> list[Log]:
        """Return the logs in which a transaction is open, if the topic is the engine's own."""
        found: list[Log] = []
        for number in self.numbers() if self.is_stored else ():
            try:
                log = self._topic.log(number)
            except LogStoreError as error:
                logger.warning("%s-%d cannot be opened: %s", GROUP_OFFSETS_TOPIC, number, error)
                continue
            if log.producer_state.open_producers():
                found.append(log)
        return found

    def partition(self, number: int) -> OffsetsPartition | None:
        """Return the current contents of a partition; None if there is none.

        Raises
        ------
        LogStoreError
            It cannot be read, or its disk failed.
        """
        if number not in self.numbers():
            self._partitions.pop(number, None)
            return None
        log = self._topic.log(number)
        if log.is_offline:
            raise KafkaStorageError(f"{log.topic_partition} is offline: its disk failed")
        found = self._partitions.get(number)
        if found is None or not found.is_of(log):
            found = OffsetsPartition(log)
        found.follow()
        self._partitions[number] = found
        return found

    def of_group(self, group_id: str) -> OffsetsPartition | None:
        """Return the current contents of the partition of a group; raises as `partition`."""
        return self.partition(self.partition_of(group_id).partition)

    # -- writing ---------------------------------------------------------------------------

    def write_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        producer: tuple[int, int] = NO_PRODUCER,
    ) -> None:
        """Write offsets, with a producer as part of its transaction; raises as `write`.

        Parameters
        ----------
        producer : (int, int)
            Producer id and epoch.
        """
        now_ms = self._clock.now_ms()
        entries = [
            (encode_key(group_id, tp), encode_value(committed, now_ms))
            for tp, committed in offsets.items()
        ]
        self.write(group_id, entries, producer)

    def forget_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete offsets; raises as `write`."""
        self.write(group_id, [(encode_key(group_id, tp), None) for tp in partitions])

    def write_group(self, group_id: str, group: StoredGroup) -> None:
        """Write the state of a group; raises as `write`."""
        self.write(group_id, [(encode_group_key(group_id), encode_group(group))])

    def forget_group(self, group_id: str) -> None:
        """Delete a group; raises as `write`."""
        self.write(group_id, [(encode_group_key(group_id), None)])

    def write(
        self, group_id: str, entries: Sequence[Entry], producer: tuple[int, int] = NO_PRODUCER
    ) -> None:
        """Write records of a group as one batch, as Kafka's coordinator does.

        Raises
        ------
        InvalidProducerEpochError
            There is a newer producer, or the transaction took too long.
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
            # A coordinator's sequences are not checked: each batch of a transaction begins at 0.
            base_sequence=0 if is_transactional else NO_SEQUENCE,
            is_transactional=is_transactional,
        )
        info = self._topic.log(number).writer.append_batches(batch, AppendOrigin.COORDINATOR)
        known = self._partitions.get(number)
        if known is not None and known.is_of(self._topic.log(number)):
            known.took(info.first_offset, entries, producer_id)


def decoded_group(group_id: str, value: bytes) -> StoredGroup | LogStoreError:
    """Return the group that a value stores, or the error of a malformed value."""
    try:
        return decode_group(value)
    except LogStoreError as error:
        logger.warning("group '%s' cannot be read: %s", group_id, error)
        return error
