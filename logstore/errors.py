"""The error hierarchy of the engine.

LogStoreError                         every error this library raises on purpose
├─ InvalidConfigurationError          (+ValueError) an unknown key or invalid value
├─ RequestError                       an invalid request. The log is unchanged
│   ├─ OffsetOutOfRangeError          ├─ InvalidRecordError        ├─ PolicyViolationError
│   ├─ MessageSizeTooLargeError       ├─ InvalidTimestampError     ├─ InvalidTopicError
│   ├─ RecordListTooLargeError        ├─ InvalidProducerEpochError ├─ TopicAlreadyExistsError
│   ├─ OutOfOrderSequenceNumberError  ├─ InvalidTxnStateError      ├─ UnknownTopicOrPartitionError
│   ├─ OffsetsOutOfOrderError         ├─ UnexpectedAppendOffsetError
│   ├─ TransactionCoordinatorFencedError  ├─ InvalidTransactionTimeoutError
│   ├─ InvalidProducerIdMappingError  (ProducerFencedError is an InvalidProducerEpochError)
│   ├─ InvalidGroupIdError            ├─ IllegalGenerationError    ├─ OffsetMetadataTooLargeError
│   ├─ UnknownMemberIdError           ├─ MemberIdRequiredError     ├─ RebalanceInProgressError
│   ├─ InconsistentGroupProtocolError ├─ FencedInstanceIdError     ├─ InvalidSessionTimeoutError
│   ├─ GroupMaxSizeReachedError       ├─ NonEmptyGroupError        ├─ GroupIdNotFoundError
│   ├─ GroupSubscribedToTopicError    ├─ UnstableOffsetCommitError ├─ InvalidReplicationFactorError
│   ├─ CoordinatorNotAvailableError   ├─ InvalidPartitionsError    ├─ LogDirNotFoundError
│   ├─ CoordinatorLoadInProgressError ├─ NotCoordinatorError       ├─ LeaderNotAvailableError
│   ├─ NotLeaderForPartitionError     ├─ RequestTimedOutError      ├─ NetworkExceptionError
│   ├─ NotEnoughReplicasError         ├─ NotEnoughReplicasAfterAppendError
│   ├─ TopicAuthorizationFailedError  ├─ GroupAuthorizationFailedError
│   └─ MessageError
├─ CommitFailedError                  the group was rebalanced without the committing member
├─ NoOffsetForPartitionError          no committed offset and no reset policy
├─ KafkaTimeoutError                  a wait timed out
├─ IllegalStateError                  a method was called in the wrong state
├─ TransactionAbortedError            the transaction was aborted before a record was sent
├─ UnsupportedFormatError             valid bytes of a format that is not supported
├─ CorruptionError                    damaged files: path, position, check, expected…
│   ├─ CorruptRecordError  ├─ CorruptIndexError  ├─ CorruptSnapshotError  ├─ CorruptCheckpointError
│   └─ DataLossError                  opening for writing would truncate valid batches
├─ SegmentOverflowError               a relative offset or an index is full: roll or split
├─ InvalidOffsetError                 an index entry is not above the last one
└─ KafkaStorageError                  the disk failed. The log directory goes offline

`kafka_error` is the name of the error in Kafka's protocol, `code` its number, and `exit_code` the
exit code of the command line (1 refused or corrupt, 2 usage error, 3 I/O). A broken invariant
raises `AssertionError`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

_NAMES_BY_CODE = """
    NONE OFFSET_OUT_OF_RANGE CORRUPT_MESSAGE UNKNOWN_TOPIC_OR_PARTITION INVALID_FETCH_SIZE
    LEADER_NOT_AVAILABLE NOT_LEADER_OR_FOLLOWER REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE
    REPLICA_NOT_AVAILABLE MESSAGE_TOO_LARGE STALE_CONTROLLER_EPOCH OFFSET_METADATA_TOO_LARGE
    NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR
    INVALID_TOPIC_EXCEPTION RECORD_LIST_TOO_LARGE NOT_ENOUGH_REPLICAS
    NOT_ENOUGH_REPLICAS_AFTER_APPEND INVALID_REQUIRED_ACKS ILLEGAL_GENERATION
    INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT
    REBALANCE_IN_PROGRESS INVALID_COMMIT_OFFSET_SIZE TOPIC_AUTHORIZATION_FAILED
    GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED INVALID_TIMESTAMP
    UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE UNSUPPORTED_VERSION TOPIC_ALREADY_EXISTS
    INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG
    NOT_CONTROLLER INVALID_REQUEST UNSUPPORTED_FOR_MESSAGE_FORMAT POLICY_VIOLATION
    OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER INVALID_PRODUCER_EPOCH
    INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING INVALID_TRANSACTION_TIMEOUT
    CONCURRENT_TRANSACTIONS TRANSACTION_COORDINATOR_FENCED TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    SECURITY_DISABLED OPERATION_NOT_ATTEMPTED KAFKA_STORAGE_ERROR LOG_DIR_NOT_FOUND
    SASL_AUTHENTICATION_FAILED UNKNOWN_PRODUCER_ID REASSIGNMENT_IN_PROGRESS
    DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_AUTHORIZATION_FAILED
    DELEGATION_TOKEN_EXPIRED INVALID_PRINCIPAL_TYPE NON_EMPTY_GROUP GROUP_ID_NOT_FOUND
    FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH LISTENER_NOT_FOUND
    TOPIC_DELETION_DISABLED FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH
    UNSUPPORTED_COMPRESSION_TYPE STALE_BROKER_EPOCH OFFSET_NOT_AVAILABLE MEMBER_ID_REQUIRED
    PREFERRED_LEADER_NOT_AVAILABLE GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID
    ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED NO_REASSIGNMENT_IN_PROGRESS
    GROUP_SUBSCRIBED_TO_TOPIC INVALID_RECORD UNSTABLE_OFFSET_COMMIT THROTTLING_QUOTA_EXCEEDED
    PRODUCER_FENCED RESOURCE_NOT_FOUND DUPLICATE_RESOURCE UNACCEPTABLE_CREDENTIAL
    INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED
    PRINCIPAL_DESERIALIZATION_FAILURE SNAPSHOT_NOT_FOUND POSITION_OUT_OF_RANGE UNKNOWN_TOPIC_ID
    DUPLICATE_BROKER_REGISTRATION BROKER_ID_NOT_REGISTERED INCONSISTENT_TOPIC_ID
    INCONSISTENT_CLUSTER_ID TRANSACTIONAL_ID_NOT_FOUND FETCH_SESSION_TOPIC_ID_ERROR
    INELIGIBLE_REPLICA NEW_LEADER_ELECTED OFFSET_MOVED_TO_TIERED_STORAGE FENCED_MEMBER_EPOCH
    UNRELEASED_INSTANCE_ID UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH MISMATCHED_ENDPOINT_TYPE
    UNSUPPORTED_ENDPOINT_TYPE UNKNOWN_CONTROLLER_ID UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE
    INVALID_REGISTRATION TRANSACTION_ABORTABLE INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND
    INVALID_SHARE_SESSION_EPOCH FENCED_STATE_EPOCH INVALID_VOTER_KEY DUPLICATE_VOTER
    VOTER_NOT_FOUND INVALID_REGULAR_EXPRESSION REBOOTSTRAP_REQUIRED STREAMS_INVALID_TOPOLOGY
    STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED SHARE_SESSION_LIMIT_REACHED
"""
KAFKA_CODES = {"UNKNOWN_SERVER_ERROR": -1, **{n: i for i, n in enumerate(_NAMES_BY_CODE.split())}}
"""The error codes of Kafka's protocol by name, as of Kafka 4.3."""


COORDINATOR_ERRORS = frozenset(
    ["COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"]
)
"""Errors after which a client looks up its coordinator again."""

RETRIABLE_ERRORS = frozenset(
    [
        "CORRUPT_MESSAGE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_OR_FOLLOWER",
        "REQUEST_TIMED_OUT",
        "REPLICA_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NOT_CONTROLLER",
        "CONCURRENT_TRANSACTIONS",
        "KAFKA_STORAGE_ERROR",
        "FETCH_SESSION_ID_NOT_FOUND",
        "INVALID_FETCH_SESSION_EPOCH",
        "LISTENER_NOT_FOUND",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "UNSTABLE_OFFSET_COMMIT",
        "THROTTLING_QUOTA_EXCEEDED",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
        "FETCH_SESSION_TOPIC_ID_ERROR",
    ]
)
"""Errors after which Kafka's clients retry (RetriableException)."""


_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")


class LogStoreError(Exception):
    """Base class of all errors that the engine raises deliberately.

    Errors can be copied and pickled with their fields, so they can cross process boundaries.

    Attributes
    ----------
    kafka_error : str
        Kafka's name of the error. If the class does not set it, it is derived from the class name
        (`InvalidTimestampError` is INVALID_TIMESTAMP) or, failing that, inherited.
    code : int
        Kafka's error code.
    exit_code : int
        Exit code of a command that fails with the error.
    """

    kafka_error: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    code: ClassVar[int] = KAFKA_CODES[kafka_error]
    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls) -> None:
        name = _WORD_START.sub("_", cls.__name__.removesuffix("Error")).upper()
        if name in KAFKA_CODES and "kafka_error" not in vars(cls):
            cls.kafka_error = name
        cls.code = KAFKA_CODES[cls.kafka_error]

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, an exception is re-created from its message alone, without the fields.
        return _blank, (type(self), self.args), self.__dict__


def _blank(kind: type[LogStoreError], arguments: tuple[object, ...]) -> LogStoreError:
    """Return an error without its fields, which pickle adds later."""
    return kind.__new__(kind, *arguments)


class InvalidConfigurationError(LogStoreError, ValueError):
    """A configuration key is unknown, or its value is out of range or contradicts another value.

    Attributes
    ----------
    key : str or None
        The invalid key as given, or None if the error is not about a key.
    nearest : str or None
        The closest known key if the key is unknown, otherwise None.
    """

    kafka_error = "INVALID_CONFIG"
    exit_code = 2

    def __init__(self, *args: object, key: str | None = None, nearest: str | None = None) -> None:
        super().__init__(*args)
        self.key = key
        self.nearest = nearest


class RequestError(LogStoreError):
    """The request is refused. Nothing is changed."""

    kafka_error = "INVALID_REQUEST"


class OffsetOutOfRangeError(RequestError):
    """The offset is below the log start offset or above the log end offset."""

    def __init__(
        self, message: str, *, offset: int, log_start_offset: int, log_end_offset: int
    ) -> None:
        super().__init__(message)
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class MessageError(RequestError):
    """A message cannot be decoded or encoded in its version.

    Attributes
    ----------
    name : str
        The name of the message in Kafka's definitions.
    version : int
    field : str
        The dotted path of the field. Empty after the last field. Adjacent numbers that are encoded
        together are all named.
    position : int or None
        Byte position of the field, or None if a message was being encoded.
    """

    def __init__(
        self, reason: str, *, name: str, version: int, field: str, position: int | None
    ) -> None:
        where = f".{field}" if field else ""
        at = "" if position is None else f" at byte {position}"
        super().__init__(f"{name}{where}, version {version}{at}: {reason}")
        self.name = name
        self.version = version
        self.field = field
        self.position = position


class TooManyElementsError(MessageError):
    """The arrays of a message have more elements in total than the caller permits."""


class MessageSizeTooLargeError(RequestError):
    """A batch is larger than `max.message.bytes`."""

    kafka_error = "MESSAGE_TOO_LARGE"


class RecordListTooLargeError(RequestError):
    """A set of batches is larger than `segment.bytes`."""


class InvalidRecordError(RequestError):
    """Records violate a structural rule. `record_errors` contains `(index, message)` pairs."""

    def __init__(self, message: str, *, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.record_errors = tuple(record_errors)


class InvalidTimestampError(InvalidRecordError):
    """A timestamp is outside the topic's bounds."""


class OutOfOrderSequenceNumberError(RequestError):
    """A producer's sequence number does not follow its last one."""


class InvalidProducerEpochError(RequestError):
    """A producer's epoch is older than the current one (the producer is fenced)."""


class ProducerFencedError(InvalidProducerEpochError):
    """Another producer took over the transactional id, or the transaction timed out."""


class InvalidProducerIdMappingError(RequestError):
    """The producer id does not belong to the transactional id."""


class InvalidTransactionTimeoutError(RequestError):
    """The transaction timeout is not positive or exceeds `transaction.max.timeout.ms`."""


class InvalidTxnStateError(RequestError):
    """The operation is not valid in the state of the producer's transaction."""


class TransactionCoordinatorFencedError(RequestError):
    """The coordinator epoch of a transaction marker is older than the current one."""


class InvalidGroupIdError(RequestError):
    """The id of a consumer group is empty."""


class IllegalGenerationError(RequestError):
    """The consumer's generation is not the current generation of its group."""


class OffsetMetadataTooLargeError(RequestError):
    """The metadata of a committed offset is longer than `offset.metadata.max.bytes`."""


class UnknownMemberIdError(RequestError):
    """The member is not in the group: it left, its session timed out, or it never joined."""


class InvalidRegularExpressionError(RequestError):
    """A pattern is not a valid regular expression in RE2 syntax, or it is too large."""


class MemberIdRequiredError(RequestError):
    """The member must join again with the member id in this response (KIP-394)."""


class RebalanceInProgressError(RequestError):
    """The group is being rebalanced: the member must join again."""


class InconsistentGroupProtocolError(RequestError):
    """The member and its group have no common protocol, or different protocol types."""


class FencedInstanceIdError(RequestError):
    """Another member joined under the same group.instance.id (KIP-345)."""


class InvalidSessionTimeoutError(RequestError):
    """The session timeout is outside the limits of the broker."""


class GroupMaxSizeReachedError(RequestError):
    """The group already has `group.max.size` members (KIP-389)."""


class NonEmptyGroupError(RequestError):
    """The group is not empty."""


class GroupIdNotFoundError(RequestError):
    """The group does not exist."""


class GroupSubscribedToTopicError(RequestError):
    """Offsets cannot be deleted while the group is subscribed to the topic."""


class UnstableOffsetCommitError(RequestError):
    """An open transaction has newer offsets of the group."""


class CoordinatorNotAvailableError(RequestError):
    """The group is being deleted. A retry uses a new group."""


class CoordinatorLoadInProgressError(RequestError):
    """The coordinator is loading its state; retry later."""


class NotCoordinatorError(RequestError):
    """Another broker is the coordinator of the group or the transaction."""


class LeaderNotAvailableError(RequestError):
    """The partition currently has no leader."""


class NotLeaderForPartitionError(RequestError):
    """Another broker leads the partition."""

    kafka_error = "NOT_LEADER_OR_FOLLOWER"


class FencedLeaderEpochError(RequestError):
    """The leader epoch in the request is older than the current one."""


class UnknownLeaderEpochError(RequestError):
    """The leader epoch in the request is newer than the one known to the broker."""


class RequestTimedOutError(RequestError):
    """The broker did not respond in time. The request may or may not have been executed."""


class NetworkExceptionError(RequestError):
    """The connection broke before the response. The request may or may not have been executed."""


class NotEnoughReplicasError(RequestError):
    """There are fewer in-sync replicas than `min.insync.replicas`. Nothing was written."""


class NotEnoughReplicasAfterAppendError(RequestError):
    """The records were written to fewer replicas than `min.insync.replicas`."""


class TopicAuthorizationFailedError(RequestError):
    """The client is not authorized for this operation on the topic."""


class GroupAuthorizationFailedError(RequestError):
    """The client is not authorized for this operation on the group."""


class SaslAuthenticationFailedError(RequestError):
    """The client could not be authenticated."""


class UnsupportedSaslMechanismError(RequestError):
    """The client requested a SASL mechanism that is not enabled."""


class IllegalSaslStateError(RequestError):
    """An unexpected SASL message, or another request before authentication is complete."""


class InvalidPartitionsError(RequestError):
    """The number of partitions is invalid."""


class InvalidReplicationFactorError(RequestError):
    """The replication factor is larger than the number of brokers, or not positive."""


class InvalidReplicaAssignmentError(RequestError):
    """The replica assignment of a partition is invalid."""


class NoReassignmentInProgressError(RequestError):
    """The partition is not being reassigned."""


class OffsetsOutOfOrderError(RequestError):
    """The offsets of replicated batches do not increase."""

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


class UnknownTopicOrPartitionError(RequestError):
    """The topic or the partition does not exist."""

    exit_code = 2


class LogDirNotFoundError(RequestError):
    """The data directory does not exist on the broker."""

    exit_code = 2


class TopicAlreadyExistsError(RequestError):
    """A topic with this name already exists."""


class InvalidTopicError(RequestError):
    """The name is not a legal topic name (storage-format §6.2)."""

    kafka_error = "INVALID_TOPIC_EXCEPTION"
    exit_code = 2


class InconsistentTopicIdError(RequestError):
    """The topic id in a partition's folder differs from the topic's id."""


class IllegalStateError(LogStoreError):
    """A method was called in the wrong state, for example on a closed producer."""


class WakeupError(LogStoreError):
    """Another thread called `Consumer.wakeup` to end a poll; see Java's WakeupException."""


class CommitFailedError(LogStoreError):
    """The group was rebalanced without the member, whose partitions may have a new owner."""


class NoOffsetForPartitionError(LogStoreError):
    """No offset is committed, and `auto_offset_reset` does not provide a start offset."""


class KafkaTimeoutError(LogStoreError):
    """A wait timed out."""

    kafka_error = "REQUEST_TIMED_OUT"


class TransactionAbortedError(LogStoreError):
    """The transaction was aborted before the record was sent (KIP-654)."""


class UnsupportedFormatError(LogStoreError):
    """The bytes are valid but have an unsupported format. The file is not changed."""

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
    """A file is damaged.

    `check` names the failed check, `expected` and `found` are the compared values, `path` and
    `position` (bytes from the start of the file) the location. Each is None if unknown.
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


class DataLossError(CorruptionError):
    """Opening a log for writing would truncate valid batches, which was not permitted."""


class CorruptIndexError(CorruptionError):
    """An index file is damaged. It is derived data and can be rebuilt."""


class CorruptSnapshotError(CorruptionError):
    """A producer snapshot is damaged. An older snapshot is used instead."""


class CorruptCheckpointError(CorruptionError):
    """A checkpoint file is damaged."""


class SegmentOverflowError(LogStoreError):
    """An offset is more than 2^31-1 above its segment's base offset, or an index is full."""


class InvalidOffsetError(LogStoreError):
    """An appended index entry does not increase in offset or time."""


class KafkaStorageError(LogStoreError):
    """A file operation failed. The log directory is taken offline."""

    kafka_error = "KAFKA_STORAGE_ERROR"
    exit_code = 3


class ConcurrentTransactionsError(KafkaStorageError):
    """The last transaction is decided, but not all of its partitions can be written yet."""


def error_class(name: str) -> type[LogStoreError]:
    """Return the most general class for a Kafka error, or `RequestError` if there is none."""
    if name == CorruptRecordError.kafka_error:
        return CorruptRecordError
    for root in (RequestError, LogStoreError):
        kinds: list[type[LogStoreError]] = [root]
        for kind in kinds:
            if kind.kafka_error == name:
                return kind
            kinds.extend(kind.__subclasses__())
    return RequestError
