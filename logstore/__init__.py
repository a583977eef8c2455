"""A Kafka partition log and log cleaner, file for file Kafka's.

The public names, loaded when first used, so that `import logstore` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logstore.broker import (
        AdminClient,
        AlterReplicaLogDirsResult,
        AppendedRange,
        AppendInfo,
        BatchWriter,
        Broker,
        CleanerMetrics,
        CleanerStats,
        CleanReport,
        ConfigResource,
        ConfigValue,
        ConsumedRecord,
        Consumer,
        ConsumerGroupMetadata,
        ConsumerRecord,
        DeleteRecordsResult,
        ExplainReport,
        FutureRecordMetadata,
        ListedOffset,
        MemberToRemove,
        NewRecord,
        NewTopic,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        OffsetSpec,
        PartitionFates,
        Producer,
        RecordFate,
        RecordMetadata,
        RetainReport,
        Snapshot,
        Topic,
    )
    from logstore.errors import (
        CommitFailedError,
        CoordinatorNotAvailableError,
        CorruptRecordError,
        FencedInstanceIdError,
        GroupIdNotFoundError,
        GroupMaxSizeReachedError,
        GroupSubscribedToTopicError,
        IllegalGenerationError,
        IllegalStateError,
        InconsistentGroupProtocolError,
        InconsistentTopicIdError,
        InvalidConfigurationError,
        InvalidGroupIdError,
        InvalidPartitionsError,
        InvalidProducerEpochError,
        InvalidProducerIdMappingError,
        InvalidRecordError,
        InvalidReplicationFactorError,
        InvalidSessionTimeoutError,
        InvalidTimestampError,
        InvalidTopicError,
        InvalidTransactionTimeoutError,
        InvalidTxnStateError,
        KafkaStorageError,
        KafkaTimeoutError,
        LogDirNotFoundError,
        LogStoreError,
        MemberIdRequiredError,
        MessageSizeTooLargeError,
        NonEmptyGroupError,
        NoOffsetForPartitionError,
        OffsetMetadataTooLargeError,
        OffsetOutOfRangeError,
        OutOfOrderSequenceNumberError,
        PolicyViolationError,
        ProducerFencedError,
        RebalanceInProgressError,
        RecordListTooLargeError,
        TopicAlreadyExistsError,
        TransactionAbortedError,
        TransactionCoordinatorFencedError,
        UnknownMemberIdError,
        UnknownTopicOrPartitionError,
        UnstableOffsetCommitError,
        UnsupportedFormatError,
    )
    from logstore.runtime.clock import ShiftedClock, SystemClock, VirtualClock
    from logstore.types import TimestampType, TopicPartition

__version__ = "0.1.0"

__all__ = [
    "AdminClient",
    "AlterReplicaLogDirsResult",
    "AppendInfo",
    "AppendedRange",
    "BatchWriter",
    "Broker",
    "CleanReport",
    "CleanerMetrics",
    "CleanerStats",
    "CommitFailedError",
    "ConfigResource",
    "ConfigValue",
    "ConsumedRecord",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "CoordinatorNotAvailableError",
    "CorruptRecordError",
    "DeleteRecordsResult",
    "ExplainReport",
    "FencedInstanceIdError",
    "FutureRecordMetadata",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "GroupSubscribedToTopicError",
    "IllegalGenerationError",
    "IllegalStateError",
    "InconsistentGroupProtocolError",
    "InconsistentTopicIdError",
    "InvalidConfigurationError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidProducerEpochError",
    "InvalidProducerIdMappingError",
    "InvalidRecordError",
    "InvalidReplicationFactorError",
    "InvalidSessionTimeoutError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionTimeoutError",
    "InvalidTxnStateError",
    "KafkaStorageError",
    "KafkaTimeoutError",
    "ListedOffset",
    "LogDirNotFoundError",
    "LogStoreError",
    "MemberIdRequiredError",
    "MemberToRemove",
    "MessageSizeTooLargeError",
    "NewRecord",
    "NewTopic",
    "NoOffsetForPartitionError",
    "NonEmptyGroupError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "OffsetSpec",
    "OutOfOrderSequenceNumberError",
    "PartitionFates",
    "PolicyViolationError",
    "Producer",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "RecordFate",
    "RecordListTooLargeError",
    "RecordMetadata",
    "RetainReport",
    "ShiftedClock",
    "Snapshot",
    "SystemClock",
    "TimestampType",
    "Topic",
    "TopicAlreadyExistsError",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionCoordinatorFencedError",
    "UnknownMemberIdError",
    "UnknownTopicOrPartitionError",
    "UnstableOffsetCommitError",
    "UnsupportedFormatError",
    "VirtualClock",
]

_HOMES = ("logstore.types", "logstore.errors", "logstore.runtime.clock", "logstore.broker")
"""Modules of the public names, what is loaded quickly first."""


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any public name
    """Load a public name from its module (PEP 562)."""
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(home)
            if hasattr(module, name):
                value = globals()[name] = getattr(module, name)
                return value
    raise AttributeError(f"module 'logstore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
