"""`__consumer_offsets`: where a transaction keeps how far a consumer group has read.

Key     version i16 (1)   group string   topic string   partition i32
Value   version i16 (3)   offset i64   leaderEpoch i32   metadata string   commitTimestamp i64

All big-endian; strings as `logstore.broker.fields` has them. That is what Kafka 3.9 writes. Read
are keys of version 0 too, which are the same, and values of versions 0 to 4: below 3 there is no
leader epoch, 1 ends with an expireTimestamp i64, 4 is flexible. Keys of other versions tell of the
groups' members, whom nobody here knows. A record without a value says that the offset was
forgotten. Source: OffsetCommitKey.json and OffsetCommitValue.json of Kafka 3.9 and 4.x.

Offsets stand in transactional batches of the producer, whose sequences do not count since its
coordinator writes them; those of a transaction hold once its COMMIT marker stands in the partition.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from logstore.broker.coordinator_topic import CoordinatorTopic
from logstore.broker.fields import FieldReader, encode_string
from logstore.errors import (
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidRecordError,
    OffsetMetadataTooLargeError,
    UnknownTopicOrPartitionError,
    UnsupportedFormatError,
)
from logstore.names import GROUP_OFFSETS_TOPIC
from logstore.record.batch import build_batch
from logstore.record.control import end_txn_marker_of
from logstore.record.records import Record
from logstore.types import INT32_MAX, INT64_MAX, AppendOrigin, TopicPartition

if TYPE_CHECKING:
    from logstore.broker.transaction_state import ProducerIdAndEpoch
    from logstore.config.broker_config import BrokerConfig
    from logstore.manager.manager import LogManager
    from logstore.record.batch import RecordBatch
    from logstore.runtime.clock import Clock

logger = logging.getLogger(__name__)

KEY_VERSION = 1
VALUE_VERSION = 3
FLEXIBLE_VERSION = 4
NO_LEADER_EPOCH = -1
NO_GENERATION = -1

_VERSION = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_TIME = struct.Struct(">q")


class OffsetAndMetadata(NamedTuple):
    """How far a group has read a partition, as kafka-python says it.

    Attributes
    ----------
    offset : int
        Of the next record to read.
    metadata : str
        Whatever the group keeps with it.
    leader_epoch : int
        Of the last record read; -1 if not known.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


class ConsumerGroupMetadata(NamedTuple):
    """Who sends offsets, as kafka-python says it; a group's id is enough."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsConfig:
    """What Kafka's broker lets one set about committed offsets.

    Attributes
    ----------
    topic_num_partitions : int
        `offsets.topic.num.partitions`, for a topic that does not exist yet.
    topic_segment_bytes : int
        `offsets.topic.segment.bytes`.
    metadata_max_bytes : int
        `offset.metadata.max.bytes`: the longest metadata, counted as Kafka does, in UTF-16 units.
    """

    topic_num_partitions: int
    topic_segment_bytes: int
    metadata_max_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig) -> OffsetsConfig:
        """Return what a broker's configuration says."""
        return cls(
            topic_num_partitions=config.offsets_topic_num_partitions,
            topic_segment_bytes=config.offsets_topic_segment_bytes,
            metadata_max_bytes=config.offset_metadata_max_bytes,
        )

    @property
    def topic_configs(self) -> dict[str, str]:
        """The topic's configuration, as Kafka's broker creates it."""
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.topic_segment_bytes),
        }


class GroupOffsets:
    """Reads and writes `__consumer_offsets`.

    Parameters
    ----------
    manager : LogManager
    clock : Clock
    config : OffsetsConfig, optional
        The broker's by default.
    """

    def __init__(
        self, manager: LogManager, clock: Clock, config: OffsetsConfig | None = None
    ) -> None:
        self.config = OffsetsConfig.of(manager.broker_config) if config is None else config
        self._manager = manager
        self._clock = clock
        self._topic = CoordinatorTopic(
            manager,
            GROUP_OFFSETS_TOPIC,
            self.config.topic_num_partitions,
            self.config.topic_configs,
        )

    def partition_of(self, group_id: str) -> TopicPartition:
        """Return the partition that keeps a group's offsets."""
        return self._topic.partition_of(group_id)

    def ensure_stored(self) -> None:
        """Create the topic, or take over a copied one.

        Raises
        ------
        KafkaStorageError
        """
        self._topic.ensure_stored()

    def check(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Refuse what Kafka's group coordinator would, before anything is written.

        Raises
        ------
        InvalidGroupIdError
            The id is empty.
        IllegalGenerationError
            A generation, though nobody joined a group here.
        UnknownTopicOrPartitionError
        OffsetMetadataTooLargeError
        InvalidRecordError
            The id is too long, or no Unicode text.
        """
        if not group.group_id:
            raise InvalidGroupIdError("the id of a consumer group is empty")
        encode_string(group.group_id)
        if group.generation_id >= 0:
            raise IllegalGenerationError(
                f"group '{group.group_id}' has no generation {group.generation_id}: nobody joined"
            )
        for tp, committed in offsets.items():
            if tp.partition not in self._manager.catalog.topic(tp.topic).partitions:
                raise UnknownTopicOrPartitionError(f"{tp} does not exist")
            size = len(committed.metadata.encode("utf-16-le", "surrogatepass")) // 2
            if size > self.config.metadata_max_bytes:
                raise OffsetMetadataTooLargeError(
                    f"metadata of {size} UTF-16 units for {tp} is longer than"
                    f" offset.metadata.max.bytes {self.config.metadata_max_bytes}"
                )

    def append(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        producer: ProducerIdAndEpoch,
    ) -> None:
        """Write offsets in the name of a producer, as part of its transaction.

        Parameters
        ----------
        offsets : mapping
            At least one, checked.

        Raises
        ------
        InvalidProducerEpochError
            There is a newer producer, or the transaction took too long.
        RequestError, KafkaStorageError
            Nothing was written.
        """
        now_ms = self._clock.now_ms()
        records = [
            Record(slot, now_ms, encode_key(group_id, tp), encode_value(committed, now_ms))
            for slot, (tp, committed) in enumerate(offsets.items())
        ]
        batch = build_batch(
            records,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        log = self._topic.log(self.partition_of(group_id).partition)
        log.writer.append_batches(batch, AppendOrigin.COORDINATOR)

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets of a group, those of transactions that are committed; a full read.

        A transaction counts from its marker on, also while an older one of another group is open.

        Raises
        ------
        InvalidRecordError, UnsupportedFormatError
            A record makes no sense.
        LogStoreError
            The partition cannot be read.
        """
        held: dict[TopicPartition, _Stored] = {}
        if self._topic.topic is None:
            return {}
        log = self._topic.log(self.partition_of(group_id).partition)
        pending: dict[int, list[_Stored]] = {}
        for batch in log.reader.batches(log.log_start_offset):
            header = batch.header
            if header.is_control:
                marker = end_txn_marker_of(batch)
                if marker is not None:
                    ended = pending.pop(header.producer_id, [])
                    _take(held, [] if marker.is_abort else ended)
                continue
            found = _of_group(group_id, batch)
            if header.is_transactional:
                pending.setdefault(header.producer_id, []).extend(found)
            else:
                _take(held, found)
        return {
            tp: decode_value(each.value)
            for tp, each in sorted(held.items())
            if each.value is not None
        }


class _Stored(NamedTuple):
    """A record of a group's offsets; the value is None where an offset was forgotten."""

    offset: int
    topic_partition: TopicPartition
    value: bytes | None


def _of_group(group_id: str, batch: RecordBatch) -> list[_Stored]:
    keys = [(record, decode_key(record.key)) for record in batch.records()]
    return [
        _Stored(record.offset, whose[1], record.value)
        for record, whose in keys
        if whose is not None and whose[0] == group_id
    ]


def _take(held: dict[TopicPartition, _Stored], found: Sequence[_Stored]) -> None:
    """Let offsets hold that stand behind those that hold: the record decides, not its marker."""
    for each in found:
        known = held.get(each.topic_partition)
        if known is None or known.offset < each.offset:
            held[each.topic_partition] = each


def encode_key(group_id: str, topic_partition: TopicPartition) -> bytes:
    """Return the key of a partition's offset in a group.

    Raises
    ------
    InvalidRecordError
        A name is longer than 32767 bytes of UTF-8, or no Unicode text.
    """
    return (
        _VERSION.pack(KEY_VERSION)
        + encode_string(group_id)
        + encode_string(topic_partition.topic)
        + _PARTITION.pack(topic_partition.partition)
    )


def decode_key(key: bytes | None) -> tuple[str, TopicPartition] | None:
    """Return group and partition of a record; None if it tells something else of a group.

    Raises
    ------
    InvalidRecordError
        The key is null or malformed.
    """
    if key is None:
        raise InvalidRecordError("a record of the committed offsets has no key")
    reader = FieldReader(key, "a key of the committed offsets")
    (version,) = reader.unpack(_VERSION)
    if not 0 <= version <= KEY_VERSION:
        return None
    group_id, topic = reader.string(), reader.string()
    (partition,) = reader.unpack(_PARTITION)
    return group_id, TopicPartition(topic, partition)


def encode_value(committed: OffsetAndMetadata, now_ms: int) -> bytes:
    """Return the value that stores an offset committed at `now_ms`, wall time in Unix ms."""
    return (
        _VERSION.pack(VALUE_VERSION)
        + _OFFSET.pack(committed.offset)
        + _LEADER_EPOCH.pack(committed.leader_epoch)
        + encode_string(committed.metadata)
        + _TIME.pack(now_ms)
    )


def decode_value(value: bytes) -> OffsetAndMetadata:
    """Return the offset that a record stored.

    Raises
    ------
    InvalidRecordError
        The value is malformed.
    UnsupportedFormatError
        It is of a later version than 4.
    """
    reader = FieldReader(value, "a committed offset")
    (version,) = reader.unpack(_VERSION)
    if not 0 <= version <= FLEXIBLE_VERSION:
        raise UnsupportedFormatError(f"a committed offset is of version {version}")
    flexible = version == FLEXIBLE_VERSION
    (offset,) = reader.unpack(_OFFSET)
    leader_epoch = NO_LEADER_EPOCH
    if version >= VALUE_VERSION:
        (leader_epoch,) = reader.unpack(_LEADER_EPOCH)
    metadata = reader.string(flexible=flexible)
    reader.unpack(_TIME)
    if version == 1:
        reader.unpack(_TIME)
    if flexible:
        reader.skip_tags()
    return OffsetAndMetadata(offset, metadata, leader_epoch)


def checked_group(group: object) -> ConsumerGroupMetadata:
    """Return who sends offsets, from a group's id or from what kafka-python's consumer tells.

    Raises
    ------
    TypeError
        It is neither.
    ValueError
        A generation without a member.
    """
    if isinstance(group, str):
        return ConsumerGroupMetadata(group)
    fields = [getattr(group, name, None) for name in ConsumerGroupMetadata._fields]
    group_id, generation_id, member_id, _ = fields
    if not isinstance(group_id, str) or not _is_int(generation_id):
        raise TypeError(f"a ConsumerGroupMetadata or the id of a group is wanted, not {group!r}")
    found = ConsumerGroupMetadata._make(fields)
    if found.generation_id > 0 and not member_id:
        raise ValueError(f"generation {generation_id} implies a member, but there is none: {group}")
    return found


def checked_offsets(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets in the engine's types, from those of kafka-python too.

    Raises
    ------
    TypeError
        No mapping of TopicPartition to OffsetAndMetadata.
    ValueError
        A number that its field cannot hold, or text that is no Unicode.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets are a mapping of TopicPartition, not {offsets!r}")
    found = {}
    for key, value in offsets.items():
        topic, partition = getattr(key, "topic", None), getattr(key, "partition", None)
        if not isinstance(topic, str) or not _is_int(partition):
            raise TypeError(f"offsets are of a TopicPartition, not of {key!r}")
        found[TopicPartition(topic, partition)] = _checked_offset(value)
    return found


def _checked_offset(value: object) -> OffsetAndMetadata:
    offset, metadata = getattr(value, "offset", None), getattr(value, "metadata", None)
    leader_epoch = getattr(value, "leader_epoch", None)
    if metadata is None:
        metadata = ""
    if leader_epoch is None:
        leader_epoch = NO_LEADER_EPOCH
    if not (_is_int(offset) and isinstance(metadata, str) and _is_int(leader_epoch)):
        raise TypeError(f"an OffsetAndMetadata is wanted, not {value!r}")
    if not (0 <= offset <= INT64_MAX and NO_LEADER_EPOCH <= leader_epoch <= INT32_MAX):
        raise ValueError(f"no offset to commit: {value!r}")
    metadata.encode()  # a ValueError now, rather than in the middle of a batch
    return OffsetAndMetadata(offset, metadata, leader_epoch)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
