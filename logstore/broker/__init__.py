"""A broker in one process: topics, producers, consumers, cleaning; in process or over the wire."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logstore.analysis.erasure import ErasurePlace, ErasureReport
    from logstore.analysis.fates import PartitionFates, RecordFate
    from logstore.analysis.losses import Loss, LostRecords
    from logstore.analysis.preview import Outlook, PartitionPreview, Preview
    from logstore.analysis.reports import ConfigChange, ExplainReport, RetainReport
    from logstore.analysis.stats import KeyStats, PartitionStats
    from logstore.broker.broker import Broker
    from logstore.broker.doors import Page
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
    from logstore.storage.log.reader import ListedOffset

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
    "ListedOffset",
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

_HOMES = (
    "logstore.broker.broker",
    "logstore.clients.partitioner",
    "logstore.storage.log.drafts",
    "logstore.storage.log.reader",
    "logstore.clients.writer",
    "logstore.analysis.fates",
    "logstore.broker.snapshots",
    "logstore.cleaner.stats",
    "logstore.cleaner.pool.metrics",
    "logstore.clients.futures",
    "logstore.clients.results",
    "logstore.analysis.reports",
    "logstore.analysis.losses",
    "logstore.analysis.preview",
    "logstore.coordinator.groups.offsets",
    "logstore.clients.producer",
    "logstore.clients.consumer",
    "logstore.clients.positions",
    "logstore.clients.admin_client",
    "logstore.analysis.stats",
    "logstore.analysis.erasure",
    "logstore.broker.doors",
)
"""Modules of the public names; after the broker itself, what is loaded quickly first."""


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any public name
    """Load a public name from its module (PEP 562)."""
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(home)
            if hasattr(module, name):
                value = globals()[name] = getattr(module, name)
                return value
    raise AttributeError(f"module 'logstore.broker' has no attribute {name!r}")
