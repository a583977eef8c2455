"""A broker in one process, without a network: topics, produce, consume, clean."""

from typing import TYPE_CHECKING, Any

from logstore.broker.broker import Broker
from logstore.broker.partitioner import Partitioner, murmur2
from logstore.broker.records import ConsumerRecord, RecordMetadata

if TYPE_CHECKING:
    from logstore.broker.producer import Producer
    from logstore.broker.reports import (
        CleanReport,
        DeleteRecordsResult,
        ExplainReport,
        OffsetAndTimestamp,
        RetainReport,
    )

__all__ = [
    "Broker",
    "CleanReport",
    "ConsumerRecord",
    "DeleteRecordsResult",
    "ExplainReport",
    "OffsetAndTimestamp",
    "Partitioner",
    "Producer",
    "RecordMetadata",
    "RetainReport",
    "murmur2",
]

_REPORTS = (
    "CleanReport",
    "DeleteRecordsResult",
    "ExplainReport",
    "OffsetAndTimestamp",
    "RetainReport",
)


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any public name
    """Load the producer and the reports when they are first wanted (PEP 562)."""
    if name == "Producer":
        from logstore.broker.producer import Producer

        return Producer
    if name not in _REPORTS:
        raise AttributeError(f"module 'logstore.broker' has no attribute {name!r}")
    from logstore.broker import reports

    return getattr(reports, name)
