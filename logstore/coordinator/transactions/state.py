"""States of a transactional id, and the records of `__transaction_state` that keep them.

Version 0 of TransactionLogValue is written. Version 1, which brokers with `transaction.version` 1
and above write, is read; its tagged fields serve Kafka's retries and are not used. A record without
a value says that the id was forgotten. Source: `kafka.coordinator.transaction.TransactionLog`.
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
    """Where a transaction is; the numbers are on disk, do not change them.

    `DEAD` and `PREPARE_EPOCH_FENCE` are Kafka's names for moments that are never written: an id
    being forgotten, and an older producer being fenced.
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
        """`PrepareCommit` and the like, as Kafka's admin tools spell it."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the end is decided and its markers are still to be written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        """Whether the decision is, or was, to commit."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open: the next may begin, and the id may be forgotten."""
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
"""From which states each stored state is entered."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer: its id, and which incarnation of it."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The state of one transactional id.

    Attributes
    ----------
    producer_epoch : int
        That of the newest producer; 32767 only while an older one is being fenced.
    timeout_ms : int
        Age at which a transaction of this id is aborted.
    partitions : frozenset of TopicPartition
        Those that got, or may have got, data of the open transaction.
    start_ms : int
        When the open or last transaction began, in Unix ms; -1 if there was none.
    last_update_ms : int
        When any of this last changed, in Unix ms.
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
        """The producer that may write in this id's name."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    def check_follows(self, previous: TransactionMetadata | None) -> None:
        """Assert what must hold from one stored state of an id to the next."""
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
    """Return the key of an id's records.

    Raises
    ------
    InvalidRecordError
        Longer than 32767 bytes of UTF-8, or no Unicode text.
    """
    return write_record(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def decode_key(key: bytes | None) -> str | None:
    """Return the transactional id of a record; None if the key is of a later version.

    Raises
    ------
    InvalidRecordError
        The key is null or malformed.
    """
    if key is None:
        raise InvalidRecordError("a record of the transaction state has no key")
    if version_of(key) > KEY_VERSION:
        return None
    return read_record(TransactionLogKey, key).transactional_id


def encode_value(metadata: TransactionMetadata) -> bytes:
    """Return the value that stores `metadata`; partitions in order, null if it is empty."""
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
    """Return what a record stored of an id.

    Raises
    ------
    InvalidRecordError
        The value is malformed.
    UnsupportedFormatError
        It is of a later version than 1.
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
