"""The list of partitions. Dirty ratios are computed in the background.

An open log is measured on request, without reading files. A closed log is first listed with the
size of its files, then opened and measured in the background, starting with visible rows. The
cleaner computes the ratios (`LogChooser`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.analysis.assumptions import policy_assumption
from logstore.analysis.broker_state import (
    cleaner_view,
    cleaning_decision,
    open_logs,
    partition_folder,
    topic_config,
)
from logstore.analysis.segment_map import deleted_files, log_files
from logstore.analysis.verdict import (
    DAMAGED,
    RECORDS,
    STATES,
    UNCLEANABLE,
    Verdict,
    partition_verdict,
    quick_verdict,
)
from logstore.analysis.view import Damaged, PartitionView
from logstore.cleaner.selection import dirty_since_ms
from logstore.errors import LogStoreError, UnknownTopicOrPartitionError
from logstore.runtime import SystemClock
from logstore.types import TopicPartition
from logstore.ui.versions import LogVersion, version_of

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.cleaner.uncleanable import UncleanablePartition
    from logstore.config.log_config import LogConfig
    from logstore.manager.topics.store import Topic
    from logstore.storage.log.log import Log

FRESH_MS = 1_000
"""Maximum age of cached rows of unchanged logs. They age because ratios depend on the time."""

FOLDER_FRESH_MS = 10_000
"""Maximum age of cached rows of closed logs."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the list. Fields that have not been measured are None.

    Attributes
    ----------
    path : str or None
        Partition directory, or None if it does not exist yet.
    measured : bool
        Whether the log itself was measured, not just its directory.
    cleanable_ratio, dirty_bytes, first_dirty_offset : float or None, int or None, int or None
        As computed by the cleaner. None if the topic is not compacted.
    max_compaction_delay_ms : int or None
        By how long the oldest dirty data exceeds `max.compaction.lag.ms`, or None if unknown.
    lag_ms : int or None
        Age of the oldest dirty data, or None if unknown.
    must_clean : bool
        Whether `max.compaction.lag.ms` is exceeded, so that the log is due at any dirty ratio.
    uncleanable : UncleanablePartition or None
        Why and since when the cleaner skips the partition, or None if it does not.
    is_policy_assumed : bool
        Whether the directory lacks a configuration of the topic.
    verdict : Verdict or None
        The verdict, based on batch headers and known damage, or None if not computed yet.
    error : str or None
        Why the log cannot be opened, or None if it can.
    """

    topic_partition: TopicPartition
    path: str | None
    size_bytes: int
    segments: int
    cleanup_policy: str
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    measured: bool = False
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    cleanable_ratio: float | None = None
    dirty_bytes: int | None = None
    first_dirty_offset: int | None = None
    max_compaction_delay_ms: int | None = None
    lag_ms: int | None = None
    must_clean: bool = False
    will_clean: bool | None = None
    is_policy_assumed: bool = False
    uncleanable: UncleanablePartition | None = None
    in_progress: str | None = None
    error: str | None = None
    verdict: Verdict | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the log appears to be empty and there is nothing to report."""
        if self.verdict is None:
            return not self.size_bytes and self.error is None
        return self.verdict.is_of_an_empty_log and self.in_progress is None

    def to_json(self, deleted_bytes: int) -> dict[str, Any]:
        """Return the row as JSON."""
        return {
            "topic": self.topic_partition.topic,
            "partition": self.topic_partition.partition,
            "path": self.path,
            "measured": self.measured,
            "size_bytes": self.size_bytes,
            "segments": self.segments,
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "cleanup_policy": self.cleanup_policy,
            "cleanable_ratio": self.cleanable_ratio,
            "dirty_bytes": self.dirty_bytes,
            "first_dirty_offset": self.first_dirty_offset,
            "max_compaction_delay_ms": self.max_compaction_delay_ms,
            "max_compaction_lag_ms": self.max_compaction_lag_ms,
            "min_cleanable_dirty_ratio": self.min_cleanable_dirty_ratio,
            "lag_ms": self.lag_ms,
            "must_clean": self.must_clean,
            "will_clean": self.will_clean,
            "is_policy_assumed": self.is_policy_assumed,
            "uncleanable": None if self.uncleanable is None else self.uncleanable.to_json(),
            "in_progress": self.in_progress,
            "deleted_bytes": deleted_bytes,
            "error": self.error,
            "verdict": None if self.verdict is None else self.verdict.to_json(),
        }


def _frees(row: Row) -> tuple[int, ...]:
    """Return the sort key by bytes freed now, then by bytes freed after a roll. Unknown is last."""
    return (-1, 0) if row.verdict is None else row.verdict.removable_bytes


def _frees_if_rolled(row: Row) -> int:
    return -1 if row.verdict is None else row.verdict.removable_bytes.if_rolled


def _damage(row: Row) -> tuple[int, ...]:
    """Return the sort key by state, with damage first, then by bytes freed."""
    if row.verdict is None:
        return (-len(STATES),)
    return (-STATES.index(row.verdict.state), *row.verdict.removable_bytes)


def _urgency(row: Row) -> tuple[int, ...]:
    """Return the sort key by damage and possible losses, then by bytes freed."""
    verdict = row.verdict
    if verdict is None:
        rank = 2 if row.error is not None else 0
    elif verdict.state in _URGENT:
        rank = _URGENT[verdict.state]
    else:
        rank = 1 if verdict.notes else 0
    return (rank, *_frees(row))


_URGENT = {DAMAGED: 4, UNCLEANABLE: 3}


def _number(value: float | None) -> float:
    return -1 if value is None else value


SORTS: dict[str, Callable[[Row], Any]] = {
    "urgency": _urgency,
    "bytes": lambda row: row.size_bytes,
    "ratio": lambda row: _number(row.cleanable_ratio),
    "dirty": lambda row: _number(row.dirty_bytes),
    "delay": lambda row: _number(row.max_compaction_delay_ms),
    "uncleanable": lambda row: (row.uncleanable is not None, row.error is not None),
    "segments": lambda row: row.segments,
    "frees": _frees,
    "rolled": _frees_if_rolled,
    "damage": _damage,
    "name": lambda row: row.topic_partition,
}
"""Sort keys of the list. Ties are sorted by name."""


class PartitionList:
    """Rows for all partitions of a broker, cached between requests. Thread-safe.

    Parameters
    ----------
    broker : Broker
    run_in_background : callable
        Starts a function in a new thread.
    on_measured : callable
        Called in that thread for each measured partition.
    """

    def __init__(
        self,
        broker: Broker,
        run_in_background: Callable[[Callable[[], object]], object],
        on_measured: Callable[[TopicPartition], object],
    ) -> None:
        self._broker = broker
        self._run_in_background = run_in_background
        self._on_measured = on_measured
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._known: dict[TopicPartition, _CachedRow] = {}
        self._exact: dict[TopicPartition, _ExactVerdict] = {}
        self._wanted: dict[TopicPartition, None] = {}  # in measuring order
        self._is_measuring = False
        self._is_closed = False

    def close(self) -> None:
        """Stop measuring in the background."""
        self._is_closed = True

    # -- rows ----------------------------------------------------------------------------

    def rows(self, topics: Iterable[Topic]) -> list[Row]:
        """Return a row for each partition of the topics, in order."""
        logs = open_logs(self._broker)
        return [
            replace(self._row(tp, logs.get(tp), config), is_policy_assumed=is_assumed)
            for topic in topics
            # Computed once per topic, because a topic may have thousands of partitions.
            for config in [topic_config(self._broker, topic.name)]
            for is_assumed in [policy_assumption(self._broker.manager, topic.name) is not None]
            for number in topic.partitions
            for tp in [TopicPartition(topic.name, number)]
        ]

    def _row(self, topic_partition: TopicPartition, log: Log | None, config: LogConfig) -> Row:
        now_ms = self._clock.monotonic_ms()
        # A manual clock may advance by days between two requests.
        wall_ms = self._broker.clock.now_ms()
        known = self._known.get(topic_partition)
        version = None if log is None else version_of(log)
        fresh_ms = FOLDER_FRESH_MS if log is None else FRESH_MS
        if (
            known is not None
            and known.version == version
            and known.is_fresh(now_ms, wall_ms, fresh_ms)
        ):
            return known.row
        if log is None:
            if known is not None and known.row.error is not None:
                return known.row
            row = self._of_folder(topic_partition, config)
        else:
            row = self._of_log(log)
        self._known[topic_partition] = _CachedRow(row, version, now_ms, wall_ms)
        return row

    def _of_folder(self, topic_partition: TopicPartition, config: LogConfig) -> Row:
        """Return a row based on the names and sizes of the files in a directory."""
        policy = ",".join(config.cleanup_policy)
        lag_ms, ratio = config.max_compaction_lag_ms, config.min_cleanable_dirty_ratio
        path = partition_folder(self._broker, topic_partition)
        fs = PartitionView(self._broker, topic_partition).files
        sizes = [] if path is None else [size for _, size in log_files(fs, path)]
        return Row(topic_partition, path, sum(sizes), len(sizes), policy, lag_ms, ratio)

    def deleted_bytes(self, row: Row) -> int:
        """Return the total size of a partition's files that await deletion."""
        if row.path is None:
            return 0
        files = deleted_files(PartitionView(self._broker, row.topic_partition).files, row.path)
        return sum(size for _, size in files)

    def _of_log(self, log: Log) -> Row:
        """Measure a log with the cleaner's rules."""
        tp, config = log.topic_partition, log.config
        row = Row(
            topic_partition=tp,
            path=log.directory,
            size_bytes=log.size_bytes,
            segments=len(log.segments),
            cleanup_policy=",".join(config.cleanup_policy),
            max_compaction_lag_ms=config.max_compaction_lag_ms,
            min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
            measured=True,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
        )
        version, state = cleaner_view(self._broker, tp)
        row = replace(
            row,
            uncleanable=version,
            in_progress=None if state is None else str(state),
        )
        try:
            decision = cleaning_decision(self._broker, log, forecast=False)
            verdict = log.reader.steady(lambda: quick_verdict(self._broker, log, decision))
            since_ms = log.reader.steady(lambda: dirty_since_ms(log, decision.state))
        except LogStoreError as error:
            return replace(row, error=str(error), verdict=Verdict.of_error(error, log.size_bytes))
        except OSError as error:
            return replace(row, error=str(error))
        row = replace(row, verdict=self.exact_verdict(log, verdict))
        if not config.compact:
            return row
        measured = decision.state
        return replace(
            row,
            cleanable_ratio=measured.cleanable_ratio,
            dirty_bytes=measured.cleanable_bytes,
            first_dirty_offset=measured.first_dirty_offset,
            max_compaction_delay_ms=measured.max_compaction_delay_ms,
            must_clean=measured.max_compaction_delay_ms > 0,
            will_clean=decision.will_clean,
            lag_ms=None if since_ms is None else max(0, self._broker.clock.now_ms() - since_ms),
        )

    # -- exact verdicts ------------------------------------------------------------------

    def note_verdict(self, topic_partition: TopicPartition, exact: Verdict) -> None:
        """Cache an exact verdict until the log or its quick verdict changes."""

        def measured_verdict(log: Log) -> _ExactVerdict:
            return _ExactVerdict(exact, self._quick_verdict(log), version_of(log))

        view = PartitionView(self._broker, topic_partition)
        self._exact[topic_partition] = view.evaluate(measured_verdict)
        self._known.pop(topic_partition, None)

    def note_damage(self, topic_partition: TopicPartition, damaged: Damaged) -> None:
        """Store the verdict on a partition in which a request has found damage."""
        try:
            verdict = partition_verdict(self._broker, topic_partition, damaged=[damaged])
            self.note_verdict(topic_partition, replace(verdict, examined=RECORDS))
        except (LogStoreError, OSError):
            return  # the list shows the reason

    def _quick_verdict(self, log: Log) -> Verdict:
        decision = cleaning_decision(self._broker, log, forecast=False)
        return log.reader.steady(lambda: quick_verdict(self._broker, log, decision))

    def exact_verdict(self, log: Log, quick: Verdict) -> Verdict:
        """Return the cached exact verdict if still valid, otherwise `quick`."""
        known = self._exact.get(log.topic_partition)
        if known is None or known.version != version_of(log):
            return quick
        if known.verdict.state == DAMAGED:
            return known.verdict  # even if the decision changes with time
        is_unchanged = (known.quick.state, known.quick.reason) == (quick.state, quick.reason)
        return known.verdict if is_unchanged else quick

    # -- measuring in the background -------------------------------------------------------

    def measure(self, rows: Sequence[Row], first: Iterable[Row]) -> None:
        """Start measuring rows in the background, starting with `first`."""
        lacking = {row.topic_partition: None for row in rows if not row.measured and not row.error}
        if not lacking:
            return
        visible = {tp: None for row in first if (tp := row.topic_partition) in lacking}
        with self._lock:
            self._wanted = visible | lacking
            if self._is_measuring or self._is_closed:
                return
            self._is_measuring = True
        self._run_in_background(self._measure_all)

    def _measure_all(self) -> None:
        while True:
            with self._lock:
                tp = next(iter(self._wanted), None)
                if tp is None or self._is_closed:
                    self._is_measuring = False
                    return
                del self._wanted[tp]
            self._measure_one(tp)
            self._on_measured(tp)

    def _measure_one(self, topic_partition: TopicPartition) -> None:
        now_ms = self._clock.monotonic_ms()
        try:
            log = self._broker.log(topic_partition)
            self._row(topic_partition, log, log.config)
        except UnknownTopicOrPartitionError:  # deleted in the meantime
            self._known.pop(topic_partition, None)
        except (LogStoreError, OSError) as error:
            known = self._known.get(topic_partition)
            if known is None:
                return
            row = replace(known.row, measured=True, error=str(error))
            if isinstance(error, LogStoreError):
                row = replace(row, verdict=Verdict.of_error(error, row.size_bytes))
            self._known[topic_partition] = _CachedRow(
                row, None, now_ms, self._broker.clock.now_ms()
            )


@dataclass(frozen=True, slots=True)
class _CachedRow:
    """A cached row, the version of its log, and the times of both clocks."""

    row: Row
    version: LogVersion | None
    at_ms: int
    wall_ms: int

    def is_fresh(self, now_ms: int, wall_ms: int, fresh_ms: int) -> bool:
        """Return whether the row is younger than `fresh_ms` on the system and broker clocks."""
        return now_ms - self.at_ms < fresh_ms and abs(wall_ms - self.wall_ms) < fresh_ms


class _ExactVerdict(NamedTuple):
    """An exact verdict, and the quick verdict and log version when it was computed."""

    verdict: Verdict
    quick: Verdict
    version: LogVersion
