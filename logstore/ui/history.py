"""Gauges over time and the most recent cleaning passes, in bounded memory."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.analysis.broker_state import cleaner_offset, open_logs
from logstore.cleaner.selection import steady_state
from logstore.errors import LogStoreError

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.cleaner.stats import CleanerStats
    from logstore.types import TopicPartition

POINTS_MAX = 720
"""Maximum number of points of a curve. When it is reached, every second point is dropped."""

CLEANINGS_MAX = 500
PARTITIONS_MAX = 256
"""Maximum number of partitions with curves. The least recently requested is evicted."""


class Gauge(NamedTuple):
    """Name and unit of a curve."""

    name: str
    unit: str


class Curve:
    """A value over time. A run of equal values takes two points."""

    def __init__(self) -> None:
        self._points: list[tuple[int, float]] = []

    def note(self, at_ms: int, value: float) -> None:
        """Add a point."""
        points = self._points
        while points and points[-1][0] >= at_ms:  # same time, or the clock was set back
            points.pop()
        if [each[1] for each in points[-2:]] == [value, value]:
            points.pop()
        points.append((at_ms, value))
        if len(points) > POINTS_MAX:
            self._points = points[::2]

    def points(self) -> list[tuple[int, float]]:
        """Return the points, oldest first."""
        return list(self._points)


class History:
    """Curves and cleaning passes since the page was opened. Thread-safe."""

    cleanings_max = CLEANINGS_MAX

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._gauges: dict[Gauge, Curve] = {}
        self._of_partitions: OrderedDict[TopicPartition, dict[Gauge, Curve]] = OrderedDict()
        self._cleanings: deque[dict[str, Any]] = deque(maxlen=CLEANINGS_MAX)
        self._read_bytes = self._written_bytes = 0

    def note_pass(self, stats: CleanerStats, at_ms: int) -> dict[str, Any]:
        """Record a completed pass and return it as JSON."""
        cleaning = {**stats.to_json(), "at_ms": at_ms}
        with self._lock:
            self._read_bytes += stats.bytes_read + stats.map_bytes_read + stats.seed_bytes_read
            self._written_bytes += stats.bytes_written
            self._cleanings.append(cleaning)
        return cleaning

    def sample(self) -> None:
        """Add a point to each curve, without reading files."""
        now_ms = self._broker.clock.now_ms()
        gauges = dict(_gauges(self._broker))
        with self._lock:
            gauges[Gauge("cleaner-bytes-read", "bytes")] = self._read_bytes
            gauges[Gauge("cleaner-bytes-written", "bytes")] = self._written_bytes
            for gauge, value in gauges.items():
                self._gauges.setdefault(gauge, Curve()).note(now_ms, value)
            wanted = list(self._of_partitions)
        for tp in wanted:
            self._sample_partition(tp, now_ms)

    def _sample_partition(self, topic_partition: TopicPartition, now_ms: int) -> None:
        found = dict(_gauges_of(self._broker, topic_partition, now_ms))
        with self._lock:
            curves = self._of_partitions.get(topic_partition)
            if curves is not None:
                for gauge, value in found.items():
                    curves.setdefault(gauge, Curve()).note(now_ms, value)

    def cleanings(self, wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Return the latest matching passes, newest first."""
        with self._lock:
            return [each for each in reversed(self._cleanings) if wanted(each)]

    def curves(self) -> dict[str, Any]:
        """Return the curves of the broker."""
        self.sample()
        with self._lock:
            return _curves_json(self._gauges)

    def curves_of(self, topic_partition: TopicPartition) -> dict[str, Any]:
        """Return the curves of a partition, which start at the first request for them."""
        with self._lock:
            self._of_partitions.setdefault(topic_partition, {})
            self._of_partitions.move_to_end(topic_partition)
            while len(self._of_partitions) > PARTITIONS_MAX:
                self._of_partitions.popitem(last=False)
        self._sample_partition(topic_partition, self._broker.clock.now_ms())
        with self._lock:
            return _curves_json(self._of_partitions.get(topic_partition, {}))


def _curves_json(curves: dict[Gauge, Curve]) -> dict[str, Any]:
    return {
        gauge.name: {"unit": gauge.unit, "points": curve.points()}
        for gauge, curve in curves.items()
    }


def _gauges(broker: Broker) -> Iterable[tuple[Gauge, float]]:
    metrics = broker.metrics()
    logs = open_logs(broker).values()
    yield Gauge("size", "bytes"), sum(log.size_bytes for log in logs)
    yield Gauge("max-dirty-percent", "percent"), metrics.max_dirty_percent
    yield Gauge("max-compaction-delay", "ms"), metrics.max_compaction_delay_secs * 1000
    yield Gauge("cleaner-recopy-percent", "percent"), metrics.cleaner_recopy_percent
    yield (
        Gauge("uncleanable-partitions", "count"),
        sum(metrics.uncleanable_partitions_count.values()),
    )


def _gauges_of(
    broker: Broker, topic_partition: TopicPartition, now_ms: int
) -> Iterable[tuple[Gauge, float]]:
    try:
        log = broker.log(topic_partition)
        yield Gauge("size", "bytes"), log.size_bytes
        yield Gauge("segments", "count"), len(log.segments)
        if log.config.compact:
            state = steady_state(log, cleaner_offset(broker, topic_partition), now_ms)
            yield Gauge("dirty-ratio", "ratio"), state.cleanable_ratio
            yield Gauge("max-compaction-delay", "ms"), state.max_compaction_delay_ms
    except LogStoreError:  # deleted or unreadable
        return
