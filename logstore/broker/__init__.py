"""A broker in one process: topics, producers, consumers, cleaning; in process or over the wire."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logstore.broker.admin_client import (
        AdminClient,
        ConfigResource,
        MemberToRemove,
        NewTopic,
        OffsetSpec,
    )
    from logstore.broker.broker import Broker
    from logstore.broker.consumer import Consumer
    from logstore.broker.doors import Page
    from logstore.broker.erasure import ErasurePlace, ErasureReport
    from logstore.broker.fates import PartitionFates, RecordFate
    from logstore.broker.futures import FutureRecordMetadata
    from logstore.broker.losses import Loss, LostRecords
    from logstore.broker.partitioner import Partitioner, murmur2
    from logstore.broker.positions import ConsumedRecord
    from logstore.broker.preview import Outlook, PartitionPreview, Preview
    from logstore.broker.producer import Producer
    from logstore.broker.records import ConsumerRecord, RecordMetadata
    from logstore.broker.reports import (
        AlterReplicaLogDirsResult,
        CleanReport,
        ConfigChange,
        DeleteRecordsResult,
        ExplainReport,
        OffsetAndTimestamp,
        RetainReport,
    )
    from logstore.broker.snapshots import Snapshot
    from logstore.broker.stats import KeyStats, PartitionStats
    from logstore.broker.writer import AppendedRange, BatchWriter
    from logstore.cleaner.pool.metrics import CleanerMetrics
    from logstore.cleaner.stats import CleanerStats
    from logstore.config.overrides import ConfigValue
    from logstore.faults.rules import FaultRule
    from logstore.groups.offsets import ConsumerGroupMetadata, OffsetAndMetadata
    from logstore.log.drafts import AppendInfo
    from logstore.log.reader import ListedOffset
    from logstore.record.records import NewRecord
    from logstore.topics.store import Topic

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
    "logstore.broker.partitioner",
    "logstore.log.drafts",
    "logstore.log.reader",
    "logstore.broker.writer",
    "logstore.broker.fates",
    "logstore.broker.snapshots",
    "logstore.cleaner.stats",
    "logstore.cleaner.pool.metrics",
    "logstore.broker.futures",
    "logstore.broker.reports",
    "logstore.broker.losses",
    "logstore.broker.preview",
    "logstore.groups.offsets",
    "logstore.broker.producer",
    "logstore.broker.consumer",
    "logstore.broker.positions",
    "logstore.broker.admin_client",
    "logstore.broker.stats",
    "logstore.broker.erasure",
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
