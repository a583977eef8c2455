"""The states of a transactional id, and their records in `__transaction_state`.

Records are written with version 1 of TransactionLogValue, as brokers with `transaction.version` 1
or higher do. Version 0 can also be read. A null value removes the id.

Source: Kafka's `TransactionLog`, `TransactionMetadata` and `TransactionVersion`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from logstore.coordinator.records import read_record, write_record
from logstore.errors import InvalidRecordError
from logstore.messages import version_of
from logstore.messages.types import TransactionLogKey, TransactionLogValue
from logstore.types import (
    INT16_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TopicPartition,
)

KEY_VERSION = 0
VALUE_VERSION = 1

LAST_EPOCH = INT16_MAX - 1
"""The last epoch that is assigned to a producer. The next epoch is reserved for fencing."""


class TransactionVersion(enum.IntEnum):
    """The level of the feature `transaction.version` that a client uses.

    With `V2` (KIP-890 part 2), each transaction bumps the epoch, and partitions are added when data
    is sent to them. `V1` only affects the records in `__transaction_state`.
    """

    V0 = 0
    V1 = 1
    V2 = 2

    @property
    def bumps_epoch(self) -> bool:
        """Whether ending a transaction bumps the epoch."""
        return self >= TransactionVersion.V2


SERVER_VERSION = TransactionVersion.V2
"""The version with which the coordinator aborts transactions by itself."""


class TransactionState(enum.IntEnum):
    """The state of a transaction. The values are stored on disk and must not be changed.

    Kafka's coordinator uses `DEAD` and `PREPARE_EPOCH_FENCE` while it removes an id or fences an
    older producer. They are never stored.
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
        """The name in Kafka's admin tools, such as `PrepareCommit`."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided but markers may be missing."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        """Whether the outcome is a commit."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def is_complete(self) -> bool:
        """Whether the last transaction is complete and no new transaction has begun."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is in progress, so that a new one may begin or the id expire."""
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
    TransactionState.PREPARE_ABORT: _IDLE | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset((TransactionState.PREPARE_COMMIT,)),
    TransactionState.COMPLETE_ABORT: frozenset((TransactionState.PREPARE_ABORT,)),
}
"""The valid previous states of each stored state."""


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The state of a transactional id.

    Attributes
    ----------
    producer_epoch : int
        The epoch of the newest producer. 32767 only occurs in prepared states and markers.
    timeout_ms : int
        The transaction timeout.
    partitions : frozenset of TopicPartition
        The partitions of the open transaction. They might not contain any of its records yet.
    start_ms : int
        Start of the open or last transaction in Unix milliseconds, or -1 if there was none.
    last_update_ms : int
        Time of the last change in Unix milliseconds.
    previous_producer_id : int
        The producer id before the last change, or -1 in records of version 0.
    next_producer_id : int
        The producer id that replaces an exhausted id when a prepared transaction completes, or -1
        if the id is not replaced.
    client_version : TransactionVersion
        The version that the client used for the last change of its transaction.
    last_producer_epoch : int
        The epoch before the last bump, with which the bump can be retried, or -1 if there is none.
        As in Kafka, it is not stored, so a producer that retries after a restart is fenced.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: TransactionVersion = TransactionVersion.V0
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The newest producer, the only one that may use the transactional id."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has used all its epochs."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def next_producer(self) -> ProducerIdAndEpoch:
        """The producer id and epoch for the next transaction."""
        if self.state.is_prepared and self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return self.producer

    def may_belong(self, producer: ProducerIdAndEpoch) -> bool:
        """Return whether a producer that requests an epoch bump may own this id.

        The epoch is only checked if the producer's id was replaced because it was exhausted.
        """
        return producer.producer_id == self.producer_id or (
            producer.producer_id == self.previous_producer_id
            and producer.producer_epoch >= LAST_EPOCH
        )

    def is_before_end(self, producer: ProducerIdAndEpoch) -> bool:
        """Return whether the end of the last transaction bumped this producer's epoch."""
        if producer.producer_id == self.producer_id:
            return producer.producer_epoch + 1 == self.producer_epoch
        is_replaced = producer == (self.previous_producer_id, LAST_EPOCH)
        return is_replaced and self.producer_epoch == 0

    def prepared(
        self, *, commit: bool, version: TransactionVersion, next_producer_id: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the prepared state, which contains the producer id and epoch of the marker."""
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if version.bumps_epoch:
            epoch, last_epoch = min(epoch + 1, INT16_MAX), epoch
        return replace(
            self,
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            next_producer_id=next_producer_id,
            client_version=version,
            start_ms=now_ms if self.state.is_idle else self.start_ms,
        )

    def completed(self) -> TransactionMetadata:
        """Return the state after all markers of a prepared transaction have been written."""
        producer = self.next_producer
        return replace(
            self,
            state=(
                TransactionState.COMPLETE_COMMIT
                if self.state.is_commit
                else TransactionState.COMPLETE_ABORT
            ),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

    def check_follows(self, previous: TransactionMetadata | None) -> None:
        """Assert that this state may follow the previously stored state of the id."""
        assert self.state in VALID_PREVIOUS_STATES, self
        assert self.producer_id > NO_PRODUCER_ID, self
        assert 0 <= self.producer_epoch <= INT16_MAX, self
        if self.state in _IDLE:
            assert not self.partitions, self
        if previous is None:
            assert self.state is TransactionState.EMPTY, self
            return
        assert previous.state in VALID_PREVIOUS_STATES[self.state], (previous, self)
        assert self.previous_producer_id == previous.producer_id, (previous, self)
        if self.producer_id == previous.producer_id:
            assert self.producer_epoch - previous.producer_epoch in (0, 1), (previous, self)
        else:
            assert self.producer_epoch == 0, (previous, self)
            is_replaced = self.producer_id == previous.next_producer_id
            assert self.state is TransactionState.EMPTY or is_replaced, (previous, self)
        if self.next_producer_id != NO_PRODUCER_ID:
            assert self.state.is_prepared, (previous, self)
        if self.state is TransactionState.ONGOING:
            assert previous.partitions <= self.partitions, (previous, self)


def encode_key(transactional_id: str) -> bytes:
    """Encode the key in the records of a transactional id.

    Raises
    ------
    InvalidRecordError
        The id is longer than 32767 bytes in UTF-8, or cannot be encoded.
    """
    return write_record(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def decode_key(key: bytes | None) -> str | None:
    """Return the transactional id in a record's key, or None if the key has a newer version.

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
    """Encode the value of a record. Partitions are sorted, or null in the `EMPTY` state."""
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
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        client_transaction_version=metadata.client_version,
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
    try:
        client_version = TransactionVersion(stored.client_transaction_version)
    except ValueError as error:
        raise InvalidRecordError(
            f"transaction version {stored.client_transaction_version} is unknown"
        ) from error
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
        stored.previous_producer_id,
        stored.next_producer_id,
        client_version,
    )
