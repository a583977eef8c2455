"""Metrics of the cleaner and the sizes of logs for Prometheus, using its client library.

Requires the extra `metrics`. The names are those of Kafka's MBeans, as the JMX exporter writes them
in lower case::

    from prometheus_client import REGISTRY, start_http_server

    REGISTRY.register(BrokerCollector(broker))
    start_http_server(9404)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from logstore.errors import IllegalStateError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from logstore.broker.broker import Broker
    from logstore.storage.log.log import Log

_CLEANER = (
    (
        "kafka_log_logcleaner_max_buffer_utilization_percent",
        "Maximum utilization of the offset map in each thread's last pass.",
        "max_buffer_utilization_percent",
    ),
    (
        "kafka_log_logcleaner_cleaner_recopy_percent",
        "Bytes written / bytes read in each thread's last pass.",
        "cleaner_recopy_percent",
    ),
    (
        "kafka_log_logcleaner_max_clean_time_secs",
        "Maximum duration of each thread's last pass.",
        "max_clean_time_secs",
    ),
    (
        "kafka_log_logcleaner_max_compaction_delay_secs",
        "Maximum delay of a log beyond max.compaction.lag.ms.",
        "max_compaction_delay_secs",
    ),
    (
        "kafka_log_logcleaner_deadthreadcount",
        "Cleaner threads that died.",
        "dead_thread_count",
    ),
    (
        "kafka_log_logcleanermanager_max_dirty_percent",
        "Largest dirty ratio in the last selection of logs.",
        "max_dirty_percent",
    ),
    (
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        "Time since the last selection began.",
        "time_since_last_run_ms",
    ),
)
_BY_DIRECTORY = (
    (
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Partitions that the cleaner skips because cleaning failed.",
        "uncleanable_partitions_count",
    ),
    (
        "kafka_log_logcleanermanager_uncleanable_bytes",
        "Cleanable bytes in uncleanable partitions.",
        "uncleanable_bytes",
    ),
)
_LOGS: tuple[tuple[str, str, Callable[[Log], int]], ...] = (
    ("kafka_log_log_size", "Bytes of data.", lambda log: log.size_bytes),
    ("kafka_log_log_numlogsegments", "Segments.", lambda log: len(log.segments)),
    ("kafka_log_log_logstartoffset", "First offset.", lambda log: log.log_start_offset),
    ("kafka_log_log_logendoffset", "Next offset.", lambda log: log.log_end_offset),
)


class BrokerCollector(Collector):
    """A collector for a registry of `prometheus_client`. It is thread-safe."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the current value of each gauge, or nothing if the broker is closed."""
        try:
            gauges = list(self._gauges())
        except IllegalStateError:
            return
        yield from gauges

    def _gauges(self) -> Iterator[GaugeMetricFamily]:
        metrics = self._broker.metrics()
        for name, text, attribute in _CLEANER:
            yield GaugeMetricFamily(name, text, value=getattr(metrics, attribute))
        for name, text, attribute in _BY_DIRECTORY:
            gauge = GaugeMetricFamily(name, text, labels=["logDirectory"])
            for directory, value in getattr(metrics, attribute).items():
                gauge.add_metric([directory], value)
            yield gauge
        logs = [
            GaugeMetricFamily(name, text, labels=["topic", "partition"]) for name, text, _ in _LOGS
        ]
        for log in self._broker.manager.registry.open_logs():
            topic, partition = log.topic_partition
            # the topic has been deleted in the meantime, so it has no metrics
            with suppress(UnknownTopicOrPartitionError):
                values = [value_of(log) for _, _, value_of in _LOGS]
                log.lifetime.check()
                if not log.is_offline:
                    for gauge, value in zip(logs, values, strict=True):
                        gauge.add_metric([topic, str(partition)], value)
        yield from logs


def prometheus_text(broker: Broker) -> str:
    """Return all gauges in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(BrokerCollector(broker))
    return generate_latest(registry).decode()
