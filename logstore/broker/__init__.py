"""A broker in this process: topics, producers, consumers, compaction, and the wire protocol."""

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
    from logstore.config.overrides import ConfigValue
    from logstore.coordinator.groups.offsets import ConsumerGroupMetadata, OffsetAndMetadata
    from logstore.faults.rules import FaultRule
    from logstore.manager.topics.store import Topic
    from logstore.record.records import NewRecord
    from logstore.storage.log.drafts import AppendInfo

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
    "ConfigChange",
    "ConfigResource",
    "ConfigValue",
    "ConsumedRecord",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "DeleteRecordsResult",
    "ErasurePlace",
    "ErasureReport",
    "ExplainReport",
    "FaultRule",
    "FutureRecordMetadata",
    "KeyStats",
    "Loss",
    "LostRecords",
    "MemberToRemove",
    "NewRecord",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "Outlook",
    "Page",
    "PartitionFates",
    "PartitionPreview",
    "PartitionStats",
    "Partitioner",
    "Preview",
    "Producer",
    "RecordFate",
    "RecordMetadata",
    "RetainReport",
    "Snapshot",
    "Topic",
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
    },
)
