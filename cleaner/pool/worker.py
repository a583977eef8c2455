"""A cleaner thread, as a generator of pauses (docs/spec/cleaner.md §11).

Each round selects a log, cleans it in one pass, and runs retention for compacted logs. If no log is
due, the worker sleeps. The caller decides when and in which thread to run the next step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from logstore.cleaner.choosing import Selected
from logstore.cleaner.stats import CleanerStats
from logstore.errors import KafkaStorageError, UnknownTopicOrPartitionError
from logstore.manager.housekeeping import log_removals

if TYPE_CHECKING:
    from logstore.cleaner.manager import LogCleanerManager
    from logstore.cleaner.pool.throttle import Throttles
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

PassListener = Callable[[CleanerStats], None]


class CleanerWorker:
    """A worker of a pool.

    Parameters
    ----------
    number : int
        Number of the worker, starting at 0, for logging and thread names.
    backoff_ms : int
        Time to sleep after a round in which no log was due, in milliseconds.
    on_pass : callable, optional
        Called in the worker's thread with the statistics of each completed pass.

    Attributes
    ----------
    last_pass : CleanerStats or None
        Statistics of the last completed pass, or None before the first one.
    max_compaction_delay_ms : int
        Maximum delay found by the last selection; see `Selected`.
    passes : int
        Number of completed passes.
    at : TopicPartition or None
        The partition being cleaned, or None between passes.
    pause_ms : int
        How long the worker was throttled before the last step of a pass, in milliseconds.
    is_quiet : bool
        Whether the last round had no work.
    """

    def __init__(
        self,
        manager: LogCleanerManager,
        throttles: Throttles,
        *,
        number: int,
        backoff_ms: int,
        on_pass: PassListener | None = None,
    ) -> None:
        self._manager = manager
        self._throttles = throttles
        self._backoff_ms = backoff_ms
        self._on_pass = on_pass
        self.number = number
        self.last_pass: CleanerStats | None = None
        self.max_compaction_delay_ms = 0
        self.passes = 0
        self.is_quiet = False
        self.at: TopicPartition | None = None
        self.pause_ms = 0

    @property
    def name(self) -> str:
        """Name of the thread, as in Kafka."""
        return f"kafka-log-cleaner-thread-{self.number}"

    def rounds(self) -> Generator[int, None, None]:
        """Run rounds forever.

        Yields the milliseconds to sleep before the next step, or 0 to let other workers run. A
        suspended worker holds no lock, and closing it aborts its pass. If cleaning a log fails, the
        log becomes uncleanable (`UncleanablePartitions.mark_uncleanable`). Other failures are
        logged, and the round is repeated after the back-off.
        """
        while True:
            self.is_quiet = False
            try:
                goes_on = yield from self._round()
            except Exception:
                logger.exception("%s: a round failed", self.name)
                goes_on = False
            yield 0 if goes_on else max(1, self._backoff_ms)

    def _round(self) -> Generator[int, None, bool]:
        """Clean the most urgent log and run retention. Return whether a log was due."""
        selected = self._manager.chooser.select()
        if selected is not None:
            yield from self._clean(selected)
        removals = self._manager.retain()
        for decision in removals:
            log_removals(decision)
        self.is_quiet = selected is None and not removals
        return selected is not None

    def _clean(self, selected: Selected) -> Generator[int, None, None]:
        """Run a throttled pass."""
        log, state, self.max_compaction_delay_ms = selected
        steps = self._manager.run_pass(log, state, claimed=True)
        self.at = log.topic_partition
        read = written = 0
        try:
            while True:
                step = next(steps)
                self.pause_ms = self._throttles.observe(
                    step.bytes_read - read, step.bytes_written - written
                )
                yield self.pause_ms
                read, written = step.bytes_read, step.bytes_written
        except StopIteration as done:
            result = done.value
        except (
            KafkaStorageError,
            UnknownTopicOrPartitionError,
        ) as error:  # deleted in the meantime (the latter error)
            logger.warning("%s", error)
            return
        except Exception as error:
            self._manager.uncleanable_partitions.mark_uncleanable(log, error)
            return
        finally:
            self.at, self.pause_ms = None, 0
            steps.close()
        if isinstance(result, CleanerStats):
            yield self._throttles.observe(0, result.bytes_written - written)
            self._note(result)

    def _note(self, stats: CleanerStats) -> None:
        self.last_pass = stats
        self.passes += 1
        logger.info(
            "%s: cleaned offsets %d to %d: %d of %d bytes kept",
            stats.topic_partition,
            stats.first_dirty_offset,
            stats.end_offset,
            stats.bytes_written,
            stats.bytes_read,
        )
        if self._on_pass is not None:
            self._on_pass(stats)
