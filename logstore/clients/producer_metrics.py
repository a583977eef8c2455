"""Metrics of a producer, named like Kafka's `producer-metrics`."""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "producer-metrics"


@dataclass(slots=True)
class ProducerMetrics:
    """Totals and maxima since the producer was created.

    Attributes
    ----------
    started_ns : int
        Monotonic time when the producer was created.
    queue_ms : float
        Total time that batches waited for more records, in milliseconds.
    """

    started_ns: int
    records: int = 0
    errors: int = 0
    retries: int = 0
    batches: int = 0
    batch_bytes: int = 0
    batch_bytes_max: int = 0
    record_bytes_max: int = 0
    queue_ms: float = 0.0
    queue_ms_max: float = 0.0

    def record_batch(self, records: int, size_bytes: int, largest_record_bytes: int) -> None:
        """Count a stored batch. Sizes are in bytes."""
        self.records += records
        self.batches += 1
        self.batch_bytes += size_bytes
        # This may run once per record, and `max` would be slower.
        if size_bytes > self.batch_bytes_max:
            self.batch_bytes_max = size_bytes
        if largest_record_bytes > self.record_bytes_max:
            self.record_bytes_max = largest_record_bytes

    def record_wait(self, waited_ms: float) -> None:
        """Record how long a batch waited for more records."""
        self.queue_ms += waited_ms
        self.queue_ms_max = max(self.queue_ms_max, waited_ms)

    def values(self, now_ns: int) -> dict[str, float]:
        """Return the metrics by Kafka's metric names, in bytes, milliseconds, and per second."""
        # If no time has passed, as on a virtual clock that was not advanced, all rates are 0.
        seconds = (now_ns - self.started_ns) / 1e9 or float("inf")
        batches = max(self.batches, 1)
        return {
            "batch-size-avg": self.batch_bytes / batches,
            "batch-size-max": self.batch_bytes_max,
            "byte-rate": self.batch_bytes / seconds,
            "record-error-rate": self.errors / seconds,
            "record-error-total": self.errors,
            "record-queue-time-avg": self.queue_ms / batches,
            "record-queue-time-max": self.queue_ms_max,
            "record-retry-rate": self.retries / seconds,
            "record-retry-total": self.retries,
            "record-send-rate": self.records / seconds,
            "record-send-total": self.records,
            "record-size-max": self.record_bytes_max,
            "records-per-request-avg": self.records / batches,
            "requests-in-flight": 0,
        }
