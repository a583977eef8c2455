"""The error tree of the engine.

LogStoreError                         every error this library raises on purpose
├─ InvalidConfigurationError          (+ValueError) a key or value nobody can obey
├─ RequestError                       the caller's fault; the log is unchanged
│   ├─ OffsetOutOfRangeError          ├─ InvalidRecordError        ├─ PolicyViolationError
│   ├─ MessageSizeTooLargeError       ├─ InvalidTimestampError     ├─ InvalidTopicError
│   ├─ RecordListTooLargeError        ├─ InvalidProducerEpochError ├─ TopicAlreadyExistsError
│   ├─ OutOfOrderSequenceNumberError  ├─ InvalidTxnStateError      ├─ UnknownTopicOrPartitionError
│   ├─ OffsetsOutOfOrderError         ├─ UnexpectedAppendOffsetError
│   ├─ TransactionCoordinatorFencedError  ├─ InvalidTransactionTimeoutError
│   ├─ InvalidProducerIdMappingError  (ProducerFencedError is an InvalidProducerEpochError)
│   ├─ InvalidGroupIdError            ├─ IllegalGenerationError    ├─ OffsetMetadataTooLargeError
│   └─ LogDirNotFoundError
├─ IllegalStateError                  a method was called out of turn
├─ TransactionAbortedError            what became of records that waited when it was aborted
├─ UnsupportedFormatError             bytes that are sound but of a kind this engine refuses
├─ CorruptionError                    bytes at rest are wrong: path, position, check, expected…
│   ├─ CorruptRecordError  ├─ CorruptIndexError  ├─ CorruptSnapshotError  └─ CorruptCheckpointError
├─ SegmentOverflowError               a relative offset or an index is full: roll or split
├─ InvalidOffsetError                 an index was asked to go backwards
└─ KafkaStorageError                  the disk failed; the log directory goes offline

`kafka_error` is the name in Kafka's protocol, `exit_code` what the command line returns
(1 refused or corrupt, 2 wrong usage, 3 I/O). Broken invariants are `AssertionError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class LogStoreError(Exception):
    """Root of the tree; catch this to catch everything the engine raises on purpose.

    Each can be copied and pickled with its fields, so that it comes out of a process pool.
    """

    kafka_error: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    exit_code: ClassVar[int] = 1

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are otherwise made anew from their message alone, which lacks the fields.
        return _blank, (type(self), self.args), self.__dict__


def _blank(kind: type[LogStoreError], arguments: tuple[object, ...]) -> LogStoreError:
    """Return an error without its fields, which pickle adds."""
    return kind.__new__(kind, *arguments)


class InvalidConfigurationError(LogStoreError, ValueError):
    """A configuration key is unknown, or its value is out of range or contradicts another."""

    kafka_error = "INVALID_CONFIG"
    exit_code = 2


class RequestError(LogStoreError):
    """The request cannot be served as asked; nothing was changed."""

    kafka_error = "INVALID_REQUEST"


class OffsetOutOfRangeError(RequestError):
    """The offset is below the log start offset or above the log end offset."""

    kafka_error = "OFFSET_OUT_OF_RANGE"

    def __init__(
        self, message: str, *, offset: int, log_start_offset: int, log_end_offset: int
    ) -> None:
        super().__init__(message)
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class MessageSizeTooLargeError(RequestError):
    """A batch is larger than `max.message.bytes`."""

    kafka_error = "MESSAGE_TOO_LARGE"


class RecordListTooLargeError(RequestError):
    """A set of batches is larger than `segment.bytes`."""

    kafka_error = "RECORD_LIST_TOO_LARGE"


class InvalidRecordError(RequestError):
    """Records break a structural rule; `record_errors` are `(index, message)` pairs."""

    kafka_error = "INVALID_RECORD"

    def __init__(self, message: str, *, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.record_errors = tuple(record_errors)


class InvalidTimestampError(InvalidRecordError):
    """A timestamp lies outside the bounds that the topic allows."""

    kafka_error = "INVALID_TIMESTAMP"


class OutOfOrderSequenceNumberError(RequestError):
    """A producer's sequence number does not follow its last one."""

    kafka_error = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class InvalidProducerEpochError(RequestError):
    """A producer's epoch is older than the one known (the producer is fenced)."""

    kafka_error = "INVALID_PRODUCER_EPOCH"


class ProducerFencedError(InvalidProducerEpochError):
    """Another producer took over the transactional id, or its transaction took too long."""

    kafka_error = "PRODUCER_FENCED"


class InvalidProducerIdMappingError(RequestError):
    """The producer id is not the one that belongs to the transactional id."""

    kafka_error = "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeoutError(RequestError):
    """A transaction timeout that is not positive or above `transaction.max.timeout.ms`."""

    kafka_error = "INVALID_TRANSACTION_TIMEOUT"


class InvalidTxnStateError(RequestError):
    """The operation does not fit the state of the producer's transaction."""

    kafka_error = "INVALID_TXN_STATE"


class TransactionCoordinatorFencedError(RequestError):
    """A transaction marker comes from a coordinator older than the one known."""

    kafka_error = "TRANSACTION_COORDINATOR_FENCED"


class InvalidGroupIdError(RequestError):
    """The id of a consumer group is empty."""

    kafka_error = "INVALID_GROUP_ID"


class IllegalGenerationError(RequestError):
    """The consumer belongs to another generation of its group than the one known."""

    kafka_error = "ILLEGAL_GENERATION"


class OffsetMetadataTooLargeError(RequestError):
    """The metadata of a committed offset is longer than `offset.metadata.max.bytes`."""

    kafka_error = "OFFSET_METADATA_TOO_LARGE"


class OffsetsOutOfOrderError(RequestError):
    """Replicated batches do not rise in offset."""

    kafka_error = "INVALID_RECORD"


class UnexpectedAppendOffsetError(RequestError):
    """A replicated batch starts below the log end offset."""

    kafka_error = "INVALID_RECORD"

    def __init__(self, message: str, *, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class PolicyViolationError(RequestError):
    """The topic's cleanup policy forbids the request."""

    kafka_error = "POLICY_VIOLATION"


class UnknownTopicOrPartitionError(RequestError):
    """No such topic, or the topic has no such partition."""

    kafka_error = "UNKNOWN_TOPIC_OR_PARTITION"
    exit_code = 2


class LogDirNotFoundError(RequestError):
    """The broker has no such data directory."""

    kafka_error = "LOG_DIR_NOT_FOUND"
    exit_code = 2


class TopicAlreadyExistsError(RequestError):
    """A topic of that name exists."""

    kafka_error = "TOPIC_ALREADY_EXISTS"


class InvalidTopicError(RequestError):
    """The name is not a legal topic name (storage-format §6.2)."""

    kafka_error = "INVALID_TOPIC_EXCEPTION"
    exit_code = 2


class InconsistentTopicIdError(RequestError):
    """A partition's folder bears another topic id than the topic: it is another topic's."""

    kafka_error = "INCONSISTENT_TOPIC_ID"


class IllegalStateError(LogStoreError):
    """A method was called out of turn: on a closed producer, or outside a transaction."""


class TransactionAbortedError(LogStoreError):
    """The record was not sent yet when its transaction was aborted (KIP-654)."""


class UnsupportedFormatError(LogStoreError):
    """Sound bytes of a format this engine refuses by name; they are never altered."""

    kafka_error = "UNSUPPORTED_FOR_MESSAGE_FORMAT"

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        position: int | None = None,
        magic: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.position = position
        self.magic = magic


class CorruptionError(LogStoreError):
    """Bytes at rest are wrong.

    `check` names the rule that failed, `expected` and `found` what it compared, `path` and
    `position` (bytes from the start of the file) where; each may be None when unknown.
    """

    kafka_error = "CORRUPT_MESSAGE"

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        position: int | None = None,
        check: str | None = None,
        expected: object = None,
        found: object = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.position = position
        self.check = check
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        if self.path is None:
            return self.message
        where = self.path if self.position is None else f"{self.path} at position {self.position}"
        return f"{where}: {self.message}"


class CorruptRecordError(CorruptionError):
    """A record batch is damaged: length, magic, CRC-32C, compression or record structure."""


class CorruptIndexError(CorruptionError):
    """An index file is damaged; it is derived data and can be rebuilt."""


class CorruptSnapshotError(CorruptionError):
    """A producer snapshot is damaged; an older one is used instead."""


class CorruptCheckpointError(CorruptionError):
    """A checkpoint file is damaged."""


class SegmentOverflowError(LogStoreError):
    """An offset does not fit the 31 bits relative to its segment, or an index is full."""


class InvalidOffsetError(LogStoreError):
    """An index append that does not rise in offset or in time."""


class KafkaStorageError(LogStoreError):
    """A file operation failed; the log directory is taken offline."""

    kafka_error = "KAFKA_STORAGE_ERROR"
    exit_code = 3
