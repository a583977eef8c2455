"""Kafka's cleaner gauges (docs/spec/cleaner.md §11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logstore.cleaner.manager import LogCleanerManager
    from logstore.cleaner.pool.worker import CleanerWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerMetrics:
    """The gauges at a point in time, based on the last passes and selections of all workers.

    Attributes
    ----------
    max_buffer_utilization_percent : int
        Maximum offset map utilization in the last passes, 0 to 100.
    cleaner_recopy_percent : int
        Bytes written divided by bytes read over the last passes, in percent.
    max_clean_time_secs : int
        Maximum duration of the last passes, in seconds.
    max_compaction_delay_secs : int
        Maximum time, in seconds, by which a log exceeded `max.compaction.lag.ms` when a worker last
        selected a log.
    dead_thread_count : int
        Number of workers that died. Errors in a log do not count, because they make the log
        uncleanable.
    max_dirty_percent : int
        Maximum dirty ratio of all logs examined by the last selection.
    time_since_last_run_ms : int
        Milliseconds since the start of the last selection, or since 1970 as in Kafka.
    uncleanable_partitions_count, uncleanable_bytes : mapping of str to int
        Number of uncleanable partitions and their cleanable bytes, by data directory.
    """

    max_buffer_utilization_percent: int
    cleaner_recopy_percent: int
    max_clean_time_secs: int
    max_compaction_delay_secs: int
    dead_thread_count: int
    max_dirty_percent: int
    time_since_last_run_ms: int
    uncleanable_partitions_count: Mapping[str, int]
    uncleanable_bytes: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the gauges under Kafka's names."""
        return {
            "max-buffer-utilization-percent": self.max_buffer_utilization_percent,
            "cleaner-recopy-percent": self.cleaner_recopy_percent,
            "max-clean-time-secs": self.max_clean_time_secs,
            "max-compaction-delay-secs": self.max_compaction_delay_secs,
            "DeadThreadCount": self.dead_thread_count,
            "max-dirty-percent": self.max_dirty_percent,
            "time-since-last-run-ms": self.time_since_last_run_ms,
            "uncleanable-partitions-count": dict(self.uncleanable_partitions_count),
            "uncleanable-bytes": dict(self.uncleanable_bytes),
        }


def metrics_of(
    manager: LogCleanerManager, workers: Sequence[CleanerWorker] = (), dead_thread_count: int = 0
) -> CleanerMetrics:
    """Read the gauges of a pool. Without workers, read the gauges that do not depend on them."""
    passes = [worker.last_pass for worker in workers if worker.last_pass is not None]
    written = sum(stats.bytes_written for stats in passes)
    read = sum(stats.bytes_read for stats in passes)
    counts, sizes = manager.uncleanable_totals()
    return CleanerMetrics(
        # Kafka truncates before multiplying, so it only reports 0 or 100 (docs/spec/cleaner.md
        # §15.5).
        max_buffer_utilization_percent=int(
            100 * max((stats.map_utilization for stats in passes), default=0.0)
        ),
        cleaner_recopy_percent=int(100 * written / max(read, 1)),
        max_clean_time_secs=max((stats.index_ms + stats.clean_ms for stats in passes), default=0)
        // 1000,
        max_compaction_delay_secs=max(
            (worker.max_compaction_delay_ms for worker in workers), default=0
        )
        // 1000,
        dead_thread_count=dead_thread_count,
        max_dirty_percent=manager.chooser.max_dirty_percent,
        time_since_last_run_ms=manager.chooser.ms_since_last_selection,
        uncleanable_partitions_count=counts,
        uncleanable_bytes=sizes,
    )
