"""What was: the gauges of the last hours as curves, and the last cleanings, in bounded rings."""

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
"""Of a curve; with more every second one is dropped, so that it reaches back ever further."""

CLEANINGS_MAX = 500
PARTITIONS_MAX = 256
"""Partitions that have curves: those that were asked about last."""


class Gauge(NamedTuple):
    """A number that a curve is made of."""

    name: str
    unit: str


class Curve:
    """A number over time; of a stretch in which it stays the same, its two ends."""

    def __init__(self) -> None:
        self._points: list[tuple[int, float]] = []

    def note(self, at_ms: int, value: float) -> None:
        """Take a point."""
        points = self._points
        while points and points[-1][0] >= at_ms:  # of the same moment, or the clock was put back
            points.pop()
        if [each[1] for each in points[-2:]] == [value, value]:
            points.pop()
        points.append((at_ms, value))
        if len(points) > POINTS_MAX:
            self._points = points[::2]

    def points(self) -> list[tuple[int, float]]:
        """Return its points in order."""
        return list(self._points)


class History:
    """The curves and the cleanings of one broker, from when the page was opened.

    Notes
    -----
    Any thread may call.
    """

    cleanings_max = CLEANINGS_MAX

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._gauges: dict[Gauge, Curve] = {}
        self._of_partitions: OrderedDict[TopicPartition, dict[Gauge, Curve]] = OrderedDict()
        self._cleanings: deque[dict[str, Any]] = deque(maxlen=CLEANINGS_MAX)
        self._read_bytes = self._written_bytes = 0

    def note_pass(self, stats: CleanerStats, at_ms: int) -> dict[str, Any]:
        """Take the numbers of a pass that ended then; return how it is told."""
        told = {**stats.to_json(), "at_ms": at_ms}
        with self._lock:
            self._read_bytes += stats.bytes_read + stats.map_bytes_read + stats.seed_bytes_read
            self._written_bytes += stats.bytes_written
            self._cleanings.append(told)
        return told

    def sample(self) -> None:
        """Take a point of each curve, from memory."""
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
        """Return the last passes, the newest first."""
        with self._lock:
            return [each for each in reversed(self._cleanings) if wanted(each)]

    def curves(self) -> dict[str, Any]:
        """Return the curves of the broker as a whole."""
        self.sample()
        with self._lock:
            return _told(self._gauges)

    def curves_of(self, topic_partition: TopicPartition) -> dict[str, Any]:
        """Return the curves of a partition, which begin when it is first asked for."""
        with self._lock:
            self._of_partitions.setdefault(topic_partition, {})
            self._of_partitions.move_to_end(topic_partition)
            while len(self._of_partitions) > PARTITIONS_MAX:
                self._of_partitions.popitem(last=False)
        self._sample_partition(topic_partition, self._broker.clock.now_ms())
        with self._lock:
            return _told(self._of_partitions.get(topic_partition, {}))


def _told(curves: dict[Gauge, Curve]) -> dict[str, Any]:
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
    except LogStoreError:  # deleted, or it cannot be read: its curves end
        return
