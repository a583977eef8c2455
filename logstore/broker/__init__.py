"""A broker in one process, without a network: topics, produce, consume, clean."""

from logstore.broker.broker import Broker
from logstore.broker.partitioner import Partitioner, murmur2
from logstore.broker.records import ConsumerRecord, RecordMetadata
from logstore.broker.reports import CleanReport

__all__ = [
    "Broker",
    "CleanReport",
    "ConsumerRecord",
    "Partitioner",
    "RecordMetadata",
    "murmur2",
]
