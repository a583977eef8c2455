"""A broker in one process, without a network: topics, produce, consume, clean."""

from typing import TYPE_CHECKING, Any

from logstore.broker.broker import Broker
from logstore.broker.partitioner import Partitioner, murmur2
from logstore.broker.records import ConsumerRecord, RecordMetadata

if TYPE_CHECKING:
    from logstore.broker.reports import CleanReport

__all__ = [
    "Broker",
    "CleanReport",
    "ConsumerRecord",
    "Partitioner",
    "RecordMetadata",
    "murmur2",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any public name
    """Load the reports of a clean when one is first wanted (PEP 562)."""
    if name != "CleanReport":
        raise AttributeError(f"module 'logstore.broker' has no attribute {name!r}")
    from logstore.broker.reports import CleanReport

    return CleanReport
