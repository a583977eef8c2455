"""A Kafka partition log and log cleaner whose files are Kafka's files.

The public names are imported on first use, so that `import logstore` is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.lazy import import_on_use

if TYPE_CHECKING:
    from logstore.analysis.erasure import ErasurePlace, ErasureReport
    from logstore.analysis.fates import PartitionFates, RecordFate
    from logstore.analysis.losses import Loss, LostRecords
    from logstore.analysis.preview import Outlook, PartitionPreview, Preview
    from logstore.analysis.reports import ConfigChange, ExplainReport, RetainReport
    from logstore.analysis.stats import KeyStats, PartitionStats
    from logstore.broker.broker import Broker
    from logstore.broker.plugins import Page
    from logstore.broker.snapshots import Snapshot
    from logstore.cleaner.pool.metrics import CleanerMetrics
    from logstore.cleaner.stats import CleanerStats, CleanReport
    from logstore.clients.admin_client import (
        AdminClient,
        ConfigResource,
        MemberToRemove,
        NewTopic,
        OffsetSpec,
    )
    from logstore.clients.consumer import Consumer
    from logstore.clients.futures import FutureRecordMetadata
    from logstore.clients.partitioner import Partitioner, murmur2
    from logstore.clients.positions import ConsumedRecord
    from logstore.clients.producer import Producer
    from logstore.clients.records import ConsumerRecord, RecordMetadata
    from logstore.clients.results import (
        AlterReplicaLogDirsResult,
        DeleteRecordsResult,
        OffsetAndTimestamp,
    )
    from logstore.clients.writer import AppendedRange, BatchWriter
    from logstore.cluster import Cluster
    from logstore.config.overrides import ConfigValue
    from logstore.coordinator.groups.offsets import ConsumerGroupMetadata, OffsetAndMetadata
    from logstore.errors import (
        CommitFailedError,
        CoordinatorLoadInProgressError,
        CoordinatorNotAvailableError,
        CorruptRecordError,
        FencedInstanceIdError,
        FencedLeaderEpochError,
        GroupAuthorizationFailedError,
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
        LeaderNotAvailableError,
        LogDirNotFoundError,
        LogStoreError,
        MemberIdRequiredError,
        MessageSizeTooLargeError,
        NetworkExceptionError,
        NonEmptyGroupError,
        NoOffsetForPartitionError,
        NotCoordinatorError,
        NotEnoughReplicasAfterAppendError,
        NotEnoughReplicasError,
        NotLeaderForPartitionError,
        OffsetMetadataTooLargeError,
        OffsetOutOfRangeError,
        OutOfOrderSequenceNumberError,
        PolicyViolationError,
        ProducerFencedError,
        RebalanceInProgressError,
        RecordListTooLargeError,
        RequestTimedOutError,
        TopicAlreadyExistsError,
        TopicAuthorizationFailedError,
        TransactionAbortedError,
        TransactionCoordinatorFencedError,
        UnknownLeaderEpochError,
        UnknownMemberIdError,
        UnknownTopicOrPartitionError,
        UnstableOffsetCommitError,
        UnsupportedFormatError,
        WakeupError,
    )
    from logstore.faults.rules import FaultRule
    from logstore.manager.topics.store import Topic
    from logstore.reasons import Reason
    from logstore.record.records import NewRecord
    from logstore.runtime.clock import ShiftedClock, SystemClock, VirtualClock
    from logstore.security import Acl, AclFilter, Authorizer
    from logstore.storage.log.drafts import AppendInfo
    from logstore.types import TimestampType, TopicPartition
    from logstore.wire.listener import Listener

__version__ = "0.1.0"

__all__ = [
    "Acl",
    "AclFilter",
    "AdminClient",
    "AlterReplicaLogDirsResult",
    "AppendInfo",
    "AppendedRange",
    "Authorizer",
    "BatchWriter",
    "Broker",
    "CleanReport",
    "CleanerMetrics",
    "CleanerStats",
    "Cluster",
    "CommitFailedError",
    "ConfigChange",
    "ConfigResource",
    "ConfigValue",
    "ConsumedRecord",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorruptRecordError",
    "DeleteRecordsResult",
    "ErasurePlace",
    "ErasureReport",
    "ExplainReport",
    "FaultRule",
    "FencedInstanceIdError",
    "FencedLeaderEpochError",
    "FutureRecordMetadata",
    "GroupAuthorizationFailedError",
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
    "KeyStats",
    "LeaderNotAvailableError",
    "Listener",
    "LogDirNotFoundError",
    "LogStoreError",
    "Loss",
    "LostRecords",
    "MemberIdRequiredError",
    "MemberToRemove",
    "MessageSizeTooLargeError",
    "NetworkExceptionError",
    "NewRecord",
    "NewTopic",
    "NoOffsetForPartitionError",
    "NonEmptyGroupError",
    "NotCoordinatorError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderForPartitionError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "OffsetSpec",
    "OutOfOrderSequenceNumberError",
    "Outlook",
    "Page",
    "PartitionFates",
    "PartitionPreview",
    "PartitionStats",
    "Partitioner",
    "PolicyViolationError",
    "Preview",
    "Producer",
    "ProducerFencedError",
    "Reason",
    "RebalanceInProgressError",
    "RecordFate",
    "RecordListTooLargeError",
    "RecordMetadata",
    "RequestTimedOutError",
    "RetainReport",
    "ShiftedClock",
    "Snapshot",
    "SystemClock",
    "TimestampType",
    "Topic",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionCoordinatorFencedError",
    "UnknownLeaderEpochError",
    "UnknownMemberIdError",
    "UnknownTopicOrPartitionError",
    "UnstableOffsetCommitError",
    "UnsupportedFormatError",
    "VirtualClock",
    "WakeupError",
    "murmur2",
]

__getattr__, __dir__ = import_on_use(
    __name__,
    {
        "logstore.analysis.erasure": ("ErasurePlace", "ErasureReport"),
        "logstore.analysis.fates": ("PartitionFates", "RecordFate"),
        "logstore.analysis.losses": ("Loss", "LostRecords"),
        "logstore.analysis.preview": ("Outlook", "PartitionPreview", "Preview"),
        "logstore.analysis.reports": ("ConfigChange", "ExplainReport", "RetainReport"),
        "logstore.analysis.stats": ("KeyStats", "PartitionStats"),
        "logstore.broker.broker": ("Broker",),
        "logstore.broker.plugins": ("Page",),
        "logstore.broker.snapshots": ("Snapshot",),
        "logstore.cleaner.pool.metrics": ("CleanerMetrics",),
        "logstore.cleaner.stats": ("CleanReport", "CleanerStats"),
        "logstore.clients.admin_client": (
            "AdminClient",
            "ConfigResource",
            "MemberToRemove",
            "NewTopic",
            "OffsetSpec",
        ),
        "logstore.clients.consumer": ("Consumer",),
        "logstore.clients.futures": ("FutureRecordMetadata",),
        "logstore.clients.partitioner": ("Partitioner", "murmur2"),
        "logstore.clients.positions": ("ConsumedRecord",),
        "logstore.clients.producer": ("Producer",),
        "logstore.clients.records": ("ConsumerRecord", "RecordMetadata"),
        "logstore.clients.results": (
            "AlterReplicaLogDirsResult",
            "DeleteRecordsResult",
            "OffsetAndTimestamp",
        ),
        "logstore.clients.writer": ("AppendedRange", "BatchWriter"),
        "logstore.config.overrides": ("ConfigValue",),
        "logstore.coordinator.groups.offsets": ("ConsumerGroupMetadata", "OffsetAndMetadata"),
        "logstore.faults.rules": ("FaultRule",),
        "logstore.manager.topics.store": ("Topic",),
        "logstore.record.records": ("NewRecord",),
        "logstore.storage.log.drafts": ("AppendInfo",),
        "logstore.cluster": ("Cluster",),
        "logstore.errors": [name for name in __all__ if name.endswith("Error")],
        "logstore.runtime.clock": ("ShiftedClock", "SystemClock", "VirtualClock"),
        "logstore.reasons": ("Reason",),
        "logstore.security": ("Acl", "AclFilter", "Authorizer"),
        "logstore.types": ("TimestampType", "TopicPartition"),
        "logstore.wire.listener": ("Listener",),
    },
)
