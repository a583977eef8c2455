"""Metrics of a consumer, named like Kafka's `consumer-fetch-manager-metrics` and other groups.

They include kafka-python's metrics that are meaningful without a network, and the Java client's
totals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore.types import TopicPartition

FETCH_GROUP = "consumer-fetch-manager-metrics"
COORDINATOR_GROUP = "consumer-coordinator-metrics"


@dataclass(slots=True)
class ConsumerMetrics:
    """Totals and maxima since the consumer was created.

    Attributes
    ----------
    started_ns : int
        Monotonic time when the consumer was created.
    fetches : int
        Number of partition reads that returned records.
    size_bytes : int
        Total size of the returned keys, values and headers.
    commits : int
        Number of successful commits.
    """

    started_ns: int
    fetches: int = 0
    records: int = 0
    size_bytes: int = 0
    fetch_bytes_max: int = 0
    commits: int = 0

    def record_fetch(self, records: int, size_bytes: int) -> None:
        """Count a partition read that returned records."""
        self.fetches += 1
        self.records += records
        self.size_bytes += size_bytes
        self.fetch_bytes_max = max(self.fetch_bytes_max, size_bytes)

    def values(
        self, now_ns: int, lags: Mapping[TopicPartition, int]
    ) -> dict[str, dict[str, float]]:
        """Return the metrics by group and Kafka's metric name.

        Sizes are in bytes, and rates are per second.

        Parameters
        ----------
        lags : mapping
            The lag of each assigned partition, in records.
        """
        # If no time has passed, as on a virtual clock that was not advanced, all rates are 0.
        seconds = (now_ns - self.started_ns) / 1e9 or float("inf")
        fetches = max(self.fetches, 1)
        return {
            FETCH_GROUP: {
                "bytes-consumed-rate": self.size_bytes / seconds,
                "bytes-consumed-total": self.size_bytes,
                "fetch-rate": self.fetches / seconds,
                "fetch-size-avg": self.size_bytes / fetches,
                "fetch-size-max": self.fetch_bytes_max,
                "fetch-total": self.fetches,
                "records-consumed-rate": self.records / seconds,
                "records-consumed-total": self.records,
                "records-lag-max": max(lags.values(), default=0),
                "records-per-request-avg": self.records / fetches,
            },
            **{f"{FETCH_GROUP}.{tp}": {"records-lag": lag} for tp, lag in lags.items()},
            COORDINATOR_GROUP: {
                "assigned-partitions": len(lags),
                "commit-rate": self.commits / seconds,
                "commit-total": self.commits,
            },
        }
