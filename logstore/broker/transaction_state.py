"""What `__transaction_state` says of a transactional id, and how it is written.

Key     version i16 (0)   transactionalId string
Value   version i16 (0)   producerId i64   producerEpoch i16   transactionTimeoutMs i32
        status i8         [topic string    [partition i32]] or null
        lastUpdateTimestampMs i64          startTimestampMs i64

All big-endian; a string is its length as i16 and UTF-8, an array its length as i32 (-1: null) and
its elements. Version 0 is written. Version 1, which brokers with `transaction.version` 1 and above
write, is read: lengths are unsigned varints of one more, and tagged fields follow each structure;
those that Kafka 4 defines serve its retries, and are passed over. A record without a value
says that the id was forgotten. Source: TransactionLogKey.json and TransactionLogValue.json of
Kafka 3.9 and 4.x; `kafka.coordinator.transaction.TransactionLog`.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from logstore.broker.fields import FieldReader, encode_string
from logstore.errors import InvalidRecordError, UnsupportedFormatError
from logstore.types import INT16_MAX, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

KEY_VERSION = 0
VALUE_VERSION = 0
FLEXIBLE_VERSION = 1

_VERSION = struct.Struct(">h")
_COUNT = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhib")
_TIMES = struct.Struct(">qq")
assert (_PRODUCER.size, _TIMES.size) == (15, 16)


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
    """Who writes: a producer id, and which incarnation of it."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """What is known of one transactional id.

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
    return _VERSION.pack(KEY_VERSION) + encode_string(transactional_id)


def decode_key(key: bytes | None) -> str | None:
    """Return the transactional id of a record; None if the key is of a later version.

    Raises
    ------
    InvalidRecordError
        The key is null or malformed.
    """
    if key is None:
        raise InvalidRecordError("a record of the transaction state has no key")
    reader = FieldReader(key, "a key of the transaction state")
    (version,) = reader.unpack(_VERSION)
    return reader.string() if version == KEY_VERSION else None


def encode_value(metadata: TransactionMetadata) -> bytes:
    """Return the value that stores `metadata`; partitions in order, null if it is empty."""
    parts = [
        _VERSION.pack(VALUE_VERSION),
        _PRODUCER.pack(
            metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms, metadata.state
        ),
    ]
    if metadata.state is TransactionState.EMPTY:
        parts.append(_COUNT.pack(-1))
    else:
        by_topic = [
            (topic, [tp.partition for tp in group])
            for topic, group in groupby(sorted(metadata.partitions), attrgetter("topic"))
        ]
        parts.append(_COUNT.pack(len(by_topic)))
        for topic, numbers in by_topic:
            parts += (encode_string(topic), _COUNT.pack(len(numbers)), *map(_COUNT.pack, numbers))
    parts.append(_TIMES.pack(metadata.last_update_ms, metadata.start_ms))
    return b"".join(parts)


def decode_value(transactional_id: str, value: bytes) -> TransactionMetadata:
    """Return what a record stored of an id.

    Raises
    ------
    InvalidRecordError
        The value is malformed.
    UnsupportedFormatError
        It is of a later version than 1.
    """
    reader = FieldReader(value, "a transaction state")
    (version,) = reader.unpack(_VERSION)
    if version not in (VALUE_VERSION, FLEXIBLE_VERSION):
        raise UnsupportedFormatError(
            f"the state of transactional id '{transactional_id}' is of version {version}"
        )
    flexible = version == FLEXIBLE_VERSION
    producer_id, producer_epoch, timeout_ms, status = reader.unpack(_PRODUCER)
    partitions = _partitions(reader, flexible=flexible)
    last_update_ms, start_ms = reader.unpack(_TIMES)
    if flexible:
        reader.skip_tags()
    if status not in _STORED:
        raise InvalidRecordError(f"transaction status {status} is never stored")
    return TransactionMetadata(
        transactional_id,
        producer_id,
        producer_epoch,
        timeout_ms,
        TransactionState(status),
        partitions,
        start_ms,
        last_update_ms,
    )


def _partitions(reader: FieldReader, *, flexible: bool) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for _ in range(reader.count(flexible=flexible)):
        topic = reader.string(flexible=flexible)
        for _ in range(reader.count(flexible=flexible)):
            (number,) = reader.unpack(_COUNT)
            found.add(TopicPartition(topic, number))
        if flexible:
            reader.skip_tags()
    return frozenset(found)
