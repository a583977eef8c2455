"""States of a transactional id, and their records in `__transaction_state`.

Encoders write version 0 of TransactionLogValue. Decoders also accept version 1, which brokers with
`transaction.version` 1 and above write; its tagged fields are for Kafka's retries and are ignored.
A null value removes the id. Source: `kafka.coordinator.transaction.TransactionLog`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from logstore.coordinator.records import read_record, write_record
from logstore.errors import InvalidRecordError
from logstore.messages import version_of
from logstore.messages.types import TransactionLogKey, TransactionLogValue
from logstore.types import INT16_MAX, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

KEY_VERSION = 0
VALUE_VERSION = 0


class TransactionState(enum.IntEnum):
    """State of a transaction. The numbers are stored on disk and must not change.

    `DEAD` and `PREPARE_EPOCH_FENCE` are transient states of Kafka's coordinator that are never
    stored: an id is being removed, and an older producer is being fenced.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """Name in Kafka's admin tools, such as `PrepareCommit`."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided but markers may be missing."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        """Whether the decision is to commit."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open, so that the next may begin and the id may expire."""
        return self in _IDLE


_IDLE = frozenset(
    (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
)
_STORED = frozenset(TransactionState) - {
    TransactionState.DEAD,
    TransactionState.PREPARE_EPOCH_FENCE,
}

VALID_PREVIOUS_STATES = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: _IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset((TransactionState.ONGOING,)),
    TransactionState.PREPARE_ABORT: frozenset((TransactionState.ONGOING,)),
    TransactionState.COMPLETE_COMMIT: frozenset((TransactionState.PREPARE_COMMIT,)),
    TransactionState.COMPLETE_ABORT: frozenset((TransactionState.PREPARE_ABORT,)),
}
"""Valid previous states of each stored state."""


class ProducerIdAndEpoch(NamedTuple):
    """Identity of a producer: its id and epoch."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The state of one transactional id.

    Attributes
    ----------
    producer_epoch : int
        Epoch of the newest producer; 32767 only to fence an older producer.
    timeout_ms : int
        Transaction timeout.
    partitions : frozenset of TopicPartition
        Partitions of the open transaction, whether or not they have data of it.
    start_ms : int
        Start of the open or last transaction in Unix ms, or -1.
    last_update_ms : int
        Time of the last change in Unix ms.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int = NO_TIMESTAMP

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The newest producer, which alone may use this transactional id."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    def check_follows(self, previous: TransactionMetadata | None) -> None:
        """Assert that this state may follow the previous stored state of the id."""
        assert self.state in VALID_PREVIOUS_STATES, self
        assert self.producer_id > NO_PRODUCER_ID, self
        assert 0 <= self.producer_epoch <= INT16_MAX, self
        if self.state in _IDLE:
            assert not self.partitions, self
        if previous is None:
            assert self.state is TransactionState.EMPTY, self
            return
        assert previous.state in VALID_PREVIOUS_STATES[self.state], (previous, self)
        if self.producer_id == previous.producer_id:
            assert self.producer_epoch - previous.producer_epoch in (0, 1), (previous, self)
        else:
            assert self.state is TransactionState.EMPTY, (previous, self)
            assert self.producer_epoch == 0, (previous, self)
        if self.state is TransactionState.ONGOING:
            assert previous.partitions <= self.partitions, (previous, self)


def encode_key(transactional_id: str) -> bytes:
    """Encode the key of a transactional id's records.

    Raises
    ------
    InvalidRecordError
        The id is longer than 32767 bytes of UTF-8, or cannot be encoded.
    """
    return write_record(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def decode_key(key: bytes | None) -> str | None:
    """Return the transactional id of a record's key; None if the key has a later version.

    Raises
    ------
    InvalidRecordError
        The key is null or malformed.
    """
    if key is None:
        raise InvalidRecordError("a record in __transaction_state has no key")
    if version_of(key) > KEY_VERSION:
        return None
    return read_record(TransactionLogKey, key).transactional_id


def encode_value(metadata: TransactionMetadata) -> bytes:
    """Encode the value of a record, with partitions in order, or null if the state is empty."""
    by_topic = groupby(sorted(metadata.partitions), attrgetter("topic"))
    partitions = [
        TransactionLogValue.PartitionsSchema(
            topic=topic, partition_ids=[tp.partition for tp in topic_partitions]
        )
        for topic, topic_partitions in by_topic
    ]
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None if metadata.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    return write_record(value, VALUE_VERSION)


def decode_value(transactional_id: str, value: bytes) -> TransactionMetadata:
    """Decode the value of a record.

    Raises
    ------
    InvalidRecordError
        The value is malformed.
    UnsupportedFormatError
        The version is higher than 1.
    """
    stored = read_record(TransactionLogValue, value)
    if stored.transaction_status not in _STORED:
        raise InvalidRecordError(f"transaction status {stored.transaction_status} is never stored")
    return TransactionMetadata(
        transactional_id,
        stored.producer_id,
        stored.producer_epoch,
        stored.transaction_timeout_ms,
        TransactionState(stored.transaction_status),
        frozenset(
            TopicPartition(topic.topic, partition)
            for topic in stored.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        stored.transaction_start_timestamp_ms,
        stored.transaction_last_update_timestamp_ms,
    )
