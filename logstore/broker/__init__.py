"""A broker in one process, without a network: topics, produce, consume, clean."""

import importlib
from typing import TYPE_CHECKING, Any

from logstore.broker.broker import Broker
from logstore.broker.partitioner import Partitioner, murmur2
from logstore.broker.records import ConsumerRecord, RecordMetadata

if TYPE_CHECKING:
    from logstore.broker.producer import Producer
    from logstore.broker.reports import (
        AlterReplicaLogDirsResult,
        CleanReport,
        DeleteRecordsResult,
        ExplainReport,
        OffsetAndTimestamp,
        RetainReport,
    )
    from logstore.groups.offsets import ConsumerGroupMetadata, OffsetAndMetadata

__all__ = [
    "AlterReplicaLogDirsResult",
    "Broker",
    "CleanReport",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "DeleteRecordsResult",
    "ExplainReport",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Partitioner",
    "Producer",
    "RecordMetadata",
    "RetainReport",
    "murmur2",
]

_HOMES = ("logstore.broker.reports", "logstore.groups.offsets", "logstore.broker.producer")


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any public name
    """Load the producer and what goes with it when they are first wanted (PEP 562)."""
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(home)
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'logstore.broker' has no attribute {name!r}")
