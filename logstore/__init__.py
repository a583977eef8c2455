"""A Kafka partition log and log cleaner, file for file Kafka's.

The public names, loaded when first used, so that `import logstore` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logstore.broker import (
        AlterReplicaLogDirsResult,
        Broker,
        CleanReport,
        ConsumerGroupMetadata,
        ConsumerRecord,
        DeleteRecordsResult,
        ExplainReport,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        Producer,
        RecordMetadata,
        RetainReport,
    )
    from logstore.errors import (
        CorruptRecordError,
        IllegalGenerationError,
        IllegalStateError,
        InconsistentTopicIdError,
        InvalidConfigurationError,
        InvalidGroupIdError,
        InvalidProducerEpochError,
        InvalidProducerIdMappingError,
        InvalidRecordError,
        InvalidTimestampError,
        InvalidTopicError,
        InvalidTransactionTimeoutError,
        InvalidTxnStateError,
        KafkaStorageError,
        LogDirNotFoundError,
        LogStoreError,
        MessageSizeTooLargeError,
        OffsetMetadataTooLargeError,
        OffsetOutOfRangeError,
        OutOfOrderSequenceNumberError,
        PolicyViolationError,
        ProducerFencedError,
        RecordListTooLargeError,
        TopicAlreadyExistsError,
        TransactionAbortedError,
        TransactionCoordinatorFencedError,
        UnknownTopicOrPartitionError,
        UnsupportedFormatError,
    )
    from logstore.runtime.clock import SystemClock, VirtualClock
    from logstore.types import TimestampType, TopicPartition

__version__ = "0.1.0"

__all__ = [
    "AlterReplicaLogDirsResult",
    "Broker",
    "CleanReport",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "CorruptRecordError",
    "DeleteRecordsResult",
    "ExplainReport",
    "IllegalGenerationError",
    "IllegalStateError",
    "InconsistentTopicIdError",
    "InvalidConfigurationError",
    "InvalidGroupIdError",
    "InvalidProducerEpochError",
    "InvalidProducerIdMappingError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionTimeoutError",
    "InvalidTxnStateError",
    "KafkaStorageError",
    "LogDirNotFoundError",
    "LogStoreError",
    "MessageSizeTooLargeError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceNumberError",
    "PolicyViolationError",
    "Producer",
    "ProducerFencedError",
    "RecordListTooLargeError",
    "RecordMetadata",
    "RetainReport",
    "SystemClock",
    "TimestampType",
    "TopicAlreadyExistsError",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionCoordinatorFencedError",
    "UnknownTopicOrPartitionError",
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
