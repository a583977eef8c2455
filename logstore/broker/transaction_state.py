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

from logstore.errors import InvalidRecordError, UnsupportedFormatError
from logstore.types import NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

INT16_MAX = 2**15 - 1

KEY_VERSION = 0
VALUE_VERSION = 0
FLEXIBLE_VERSION = 1

_VERSION = struct.Struct(">h")
_LENGTH = struct.Struct(">h")
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


def java_hash(text: str) -> int:
    """Return `String.hashCode()` of Java: over UTF-16 code units, 32 bits, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(transactional_id: str, partitions: int) -> int:
    """Return the partition of `__transaction_state` that keeps an id, of `partitions` in all."""
    hashed = java_hash(transactional_id)
    # Java's abs of the smallest number is negative; Kafka's own takes it as 0.
    return 0 if hashed == -(1 << 31) else abs(hashed) % partitions


def encode_key(transactional_id: str) -> bytes:
    """Return the key of an id's records.

    Raises
    ------
    InvalidRecordError
        Longer than 32767 bytes of UTF-8, or no Unicode text.
    """
    return _VERSION.pack(KEY_VERSION) + _string(transactional_id)


def decode_key(key: bytes | None) -> str | None:
    """Return the transactional id of a record; None if the key is of a later version.

    Raises
    ------
    InvalidRecordError
        The key is null or malformed.
    """
    if key is None:
        raise InvalidRecordError("a record of the transaction state has no key")
    reader = _Reader(key)
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
            parts += (_string(topic), _COUNT.pack(len(numbers)), *map(_COUNT.pack, numbers))
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
    reader = _Reader(value)
    (version,) = reader.unpack(_VERSION)
    if version not in (VALUE_VERSION, FLEXIBLE_VERSION):
        raise UnsupportedFormatError(
            f"the state of transactional id '{transactional_id}' is of version {version}"
        )
    flexible = version == FLEXIBLE_VERSION
    producer_id, producer_epoch, timeout_ms, status = reader.unpack(_PRODUCER)
    partitions = reader.partitions(flexible=flexible)
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


def _string(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRecordError(f"{text!r} is no Unicode text") from error
    if len(data) > INT16_MAX:
        raise InvalidRecordError(f"a name of {len(data)} bytes is longer than {INT16_MAX}")
    return _LENGTH.pack(len(data)) + data


class _Reader:
    """Takes fields off the front of bytes; running past the end is `InvalidRecordError`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def unpack(self, fields: struct.Struct) -> tuple[int, ...]:
        return fields.unpack(self._take(fields.size))

    def string(self, *, flexible: bool = False) -> str:
        size = self._unsigned() - 1 if flexible else self.unpack(_LENGTH)[0]
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise InvalidRecordError("a name in the transaction state is no UTF-8") from error

    def partitions(self, *, flexible: bool) -> frozenset[TopicPartition]:
        found: set[TopicPartition] = set()
        for _ in range(self._count(flexible=flexible)):
            topic = self.string(flexible=flexible)
            for _ in range(self._count(flexible=flexible)):
                (number,) = self.unpack(_COUNT)
                found.add(TopicPartition(topic, number))
            if flexible:
                self.skip_tags()
        return frozenset(found)

    def skip_tags(self) -> None:
        for _ in range(self._unsigned()):
            self._unsigned()
            self._take(self._unsigned())

    def _count(self, *, flexible: bool) -> int:
        count = self._unsigned() - 1 if flexible else self.unpack(_COUNT)[0]
        if count > len(self._data):
            raise InvalidRecordError(f"{count} elements do not fit {len(self._data)} bytes")
        return max(count, 0)

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise InvalidRecordError("a length in the transaction state has more than five bytes")

    def _take(self, size: int) -> bytes:
        start, self._position = self._position, self._position + size
        if size < 0 or self._position > len(self._data):
            raise InvalidRecordError(
                f"{size} bytes wanted at {start} of a transaction state of {len(self._data)}"
            )
        return self._data[start : self._position]
