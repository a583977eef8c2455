"""Simulate the future of a partition on an in-memory copy.

The copy has an overlay file system and a virtual clock. Retention and cleaning are not predicted
but actually executed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.analysis.trial import Trial
from logstore.cleaner.command import CleanCommand
from logstore.cleaner.stats import CleanerStats
from logstore.cleaner.strategy import Strategy
from logstore.errors import (
    CorruptRecordError,
    LogStoreError,
    RequestError,
    UnsupportedFormatError,
)
from logstore.record.batch import decode_stored
from logstore.record.records import NewRecord
from logstore.record.walk import read_batch
from logstore.runtime import VirtualClock
from logstore.types import INT64_MAX, TimestampType

if TYPE_CHECKING:
    from logstore.cleaner.passes.clean import PassProgress
    from logstore.config.broker_config import BrokerConfig
    from logstore.runtime import FileSystem
    from logstore.types import TopicPartition

SimulationProgress = Callable[[str, int, int], None]

_NEVER_MS = INT64_MAX // 2
"""Times above this mean never."""


_REPEATED_PASSES_MAX = 3
"""Number of repeated passes over a clean section at the same time."""


class Cause(StrEnum):
    """What removes a record."""

    OPENING = "opening"
    CLEANING = "cleaning"
    RETENTION = "retention"


class Removal(NamedTuple):
    """A removal: its time, its cause, and since when it was due."""

    at_ms: int
    cause: Cause
    due_ms: int


class RetainedRecord(NamedTuple):
    """A record that is still in the log, and its batch's delete horizon."""

    is_tombstone: bool
    delete_horizon_ms: int | None


class TransactionEnd(NamedTuple):
    """How the coordinator ends an open transaction without its producer.

    Attributes
    ----------
    producer_epoch : int
        Producer epoch of the marker.
    commit : bool
        Whether the transaction is committed, which requires that it is already decided.
    due_ms : int
        Earliest time, in Unix milliseconds. The coordinator may check later.
    """

    producer_id: int
    producer_epoch: int
    commit: bool
    due_ms: int


class LogSimulation:
    """The log of a partition in an in-memory copy, with its own clock.

    Parameters
    ----------
    fs : FileSystem
        File system, only read.
    log_dirs : sequence of str
    configs : mapping
        Overrides of topic configs.
    now_ms : int
        Time at which the copy is opened, as by a starting broker.
    ends : sequence of TransactionEnd
        Ends of the open transactions known to the coordinator. All others remain open.
    progress : callable, optional
        Called at each step of a cleaning pass with the task, the number of bytes done, and the
        total.

    Raises
    ------
    LogStoreError
        The partition cannot be opened.

    Notes
    -----
    The output of cleaning passes stays in memory until the simulation is closed.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_dirs: Sequence[str],
        broker_config: BrokerConfig,
        topic_partition: TopicPartition,
        configs: Mapping[str, str],
        now_ms: int,
        ends: Sequence[TransactionEnd] = (),
        *,
        progress: SimulationProgress | None = None,
    ) -> None:
        self.clock = VirtualClock(now_ms)
        self._ends = sorted(ends, key=lambda end: end.due_ms)
        self._start_ms = now_ms
        self._broker_config = broker_config
        self._trial = Trial.of_copy(
            fs, log_dirs, broker_config, topic_partition, configs, self.clock
        )
        self.log = self._trial.log
        self._progress = progress

    def _report(self, topic_partition: TopicPartition, step: PassProgress) -> None:
        if self._progress is not None:
            self._progress(f"simulating {topic_partition}", step.bytes_done, step.bytes_total)

    def close(self) -> None:
        """Close the copy and discard its changes."""
        self._trial.close()

    def retained_record(self, offset: int, key: bytes) -> RetainedRecord | None:
        """Return a record's state, or None if it was removed. Unreadable records count as held."""
        segment = self.log.segments.floor(offset)
        if segment is None:
            return None
        try:
            at = segment.translate_offset(offset)
            if at is None or at.base_offset > offset:
                return None
            batch = read_batch(segment.file, segment.log_path, at.position, at.size_bytes)
            limit = segment.config.logstore_decompression_max_bytes
            for record in decode_stored(batch, limit):
                if record.offset == offset and record.key == key:
                    return RetainedRecord(record.value is None, batch.header.delete_horizon_ms)
        except (CorruptRecordError, UnsupportedFormatError):
            return RetainedRecord(False, None)
        return None

    # -- without appends -------------------------------------------------------------------

    def run_without_appends(self, *, late: bool) -> Iterator[Removal]:
        """Advance the clock without appends. Yields after each removal.

        Parameters
        ----------
        late : bool
            Act as late as the broker's intervals permit: `log.retention.check.interval.ms` for
            retention of topics with policy `delete`, `log.cleaner.backoff.ms` for everything else.
            If False, act immediately.
        """
        check_ms = self._check_interval_ms() if late else 0
        end_ms = self._broker_config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        end_ms = end_ms if late else 0
        while True:
            self._end_transactions(self.clock.now_ms() - end_ms)
            if self._is_due():
                due_ms = self.clock.now_ms()
                if due_ms + check_ms >= _NEVER_MS:
                    return
                self.clock.advance(ms=check_ms)
                self._end_transactions(self.clock.now_ms() - end_ms)
                done = [
                    cause for cause in (Cause.CLEANING, Cause.RETENTION) if self._run_due(cause)
                ]
                for cause in done:
                    yield Removal(self.clock.now_ms(), cause, due_ms)
                if done:
                    continue
            times = [self._next_due_ms(), *(end.due_ms + end_ms for end in self._ends[:1])]
            next_ms = min((each for each in times if each is not None), default=None)
            if next_ms is None:
                return
            self.clock.advance(ms=next_ms - self.clock.now_ms())

    def _end_transactions(self, until_ms: int) -> None:
        """Write the markers of transactions that end by a given time."""
        while self._ends and self._ends[0].due_ms <= until_ms:
            end = self._ends.pop(0)
            entry = self.log.producer_state.entry(end.producer_id)
            if entry is not None and entry.current_txn_first_offset is not None:
                self.log.writer.append_end_txn_marker(
                    end.producer_id,
                    max(end.producer_epoch, entry.producer_epoch),
                    max(entry.coordinator_epoch, 0),
                    commit=end.commit,
                )

    def _check_interval_ms(self) -> int:
        if self.log.config.compact:
            return max(1, self._broker_config.log_cleaner_backoff_ms)
        return self._broker_config.log_retention_check_interval_ms

    def _is_due(self) -> bool:
        """Return whether the engine has work now."""
        trial = self._trial
        return trial.is_due or trial.is_idle or bool(trial.retention().removed)

    def _run_due(self, cause: Cause) -> bool:
        """Do the work that is due. Return whether anything changed."""
        trial, log = self._trial, self.log
        if cause is Cause.RETENTION:
            first_dirty_offset = trial.first_dirty_offset
            return bool(log.delete_old_segments(first_dirty_offset=first_dirty_offset).removed)
        if not trial.is_cleaned:
            return False
        if trial.is_idle:
            log.writer.roll()
        return bool(CleanCommand(trial.cleaner, progress=self._report).run([log]).cleaned)

    def _next_due_ms(self) -> int | None:
        """Return when the engine may next have work without an append, or None if never."""
        next_ms = self._trial.next_due_ms()
        return next_ms if next_ms is not None and next_ms < _NEVER_MS else None

    # -- with appends ----------------------------------------------------------------------

    def run_with_appends(
        self, key: bytes, wanted: Callable[[], Mapping[int, RetainedRecord]]
    ) -> Iterator[Removal]:
        """Advance the clock, assuming appends that make passes due as early as possible.

        Yields after each removal. The active segment is rolled immediately, and a pass runs as soon
        as the configs permit: `min.compaction.lag.ms`, open transactions and delete horizons apply.
        A low dirty ratio does not prevent a pass, because appends can raise it. Transactions end
        immediately, because their producers could end them.

        Parameters
        ----------
        key : bytes
            Key of the awaited records. Appended records have different keys.
        wanted : callable
            Returns the awaited records that still exist, by offset.
        """
        log = self.log
        self._end_transactions(INT64_MAX)
        if log.active_segment.size_bytes:
            log.writer.roll()
        while wanted():
            now_ms = self.clock.now_ms()
            self._append_behind(key, wanted())
            if self._run_due(Cause.RETENTION):
                yield Removal(now_ms, Cause.RETENTION, now_ms)
            passes = 0
            while self._trial.is_cleaned and self._run_pass(wanted().values(), passes):
                passes += 1
                yield Removal(now_ms, Cause.CLEANING, now_ms)
            next_ms = self._next_change_ms(wanted().values())
            if next_ms is None:
                return
            self.clock.advance(ms=next_ms - now_ms)

    def _append_behind(self, key: bytes, wanted: Mapping[int, RetainedRecord]) -> None:
        """If the last record is awaited, append a record with a different key in its own segment.

        Version strategies always retain the last record in the log.
        """
        log = self.log
        is_kept = Strategy.of(log.config).has_versions and log.log_end_offset - 1 in wanted
        if not is_kept or not self._trial.is_cleaned:
            return
        stamp_ms = max(1, self.clock.now_ms() - log.config.timestamp_before_max_ms)
        with suppress(RequestError):  # the topic rejects the record
            log.writer.append_records([NewRecord(key + b"+", b"", stamp_ms)])
            log.writer.roll()

    def _run_pass(self, wanted: Collection[RetainedRecord], passes: int) -> bool:
        """Run a pass if one can be due and would change anything. Return whether it ran.

        `passes` is the number of passes at this time. With versions, an expired survivor may remain
        for one more pass, and a tombstone that expires immediately is removed by the second pass.
        """
        log, cleaner, now_ms = self.log, self._trial.cleaner, self.clock.now_ms()
        state = cleaner.chooser.state_of(log)
        if not wanted or not self._can_be_due(now_ms):
            return False
        if state.cleanable_bytes == 0 or state.first_dirty_offset >= state.upper_bound_offset:
            dirty = log.segments.from_offset(state.first_dirty_offset)
            if any(each.size_bytes for each in dirty if each is not log.active_segment):
                return False  # too young, or in an open transaction
            if passes > _REPEATED_PASSES_MAX or not any(
                _is_expired(each, now_ms) for each in wanted
            ):
                return False
        result = cleaner.clean(log, state, progress=partial(self._report, log.topic_partition))
        return isinstance(result, CleanerStats)

    def _can_be_due(self, now_ms: int) -> bool:
        """Return whether a pass is due, or appends could make it due."""
        return now_ms >= self._append_due_ms() or self._trial.is_due

    def _append_due_ms(self) -> int:
        """Return when appends with the earliest permitted timestamps make a pass due."""
        config = self.log.config
        age_ms = config.timestamp_before_max_ms
        if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            age_ms = 0
        waits = []
        if config.min_cleanable_dirty_ratio < 1:
            waits.append(config.min_compaction_lag_ms)
        if config.max_compaction_lag_ms < INT64_MAX:
            waits.append(max(config.min_compaction_lag_ms, config.max_compaction_lag_ms + 1))
        if not waits:
            return _NEVER_MS
        return self._start_ms + max(0, min(waits) - age_ms)

    def _next_change_ms(self, wanted: Iterable[RetainedRecord]) -> int | None:
        now_ms = self.clock.now_ms()
        times = [self._next_due_ms(), self._append_due_ms()]
        times += [each.delete_horizon_ms for each in wanted if each.is_tombstone]
        later = [each for each in times if each is not None and now_ms < each < _NEVER_MS]
        return min(later, default=None)


def _is_expired(record: RetainedRecord, now_ms: int) -> bool:
    horizon = record.delete_horizon_ms
    return record.is_tombstone and horizon is not None and horizon <= now_ms


class WatchedRemovals(NamedTuple):
    """Removals of the watched records by offset. None for records that remain."""

    removals: Mapping[int, Removal | None]
    failure: str | None


def watch_removals(
    make: Callable[[], LogSimulation],
    key: bytes,
    offsets: list[int],
    run: Callable[[LogSimulation, Callable[[], Mapping[int, RetainedRecord]]], Iterator[Removal]],
) -> WatchedRemovals:
    """Simulate a log until all watched records are removed or nothing changes anymore."""
    removals: dict[int, Removal | None] = dict.fromkeys(offsets)
    failure = None
    simulation = make()
    left: dict[int, RetainedRecord] = {}

    def check(removal: Removal) -> None:
        for offset in list(left):
            record = simulation.retained_record(offset, key)
            if record is None:
                removals[offset] = removal
                del left[offset]
            else:
                left[offset] = record

    try:
        left = dict.fromkeys(offsets, RetainedRecord(False, None))
        now_ms = simulation.clock.now_ms()
        check(Removal(now_ms, Cause.OPENING, now_ms))
        for removal in run(simulation, lambda: left):
            check(removal)
            if not left:
                break
    except LogStoreError as error:
        failure = str(error)
    finally:
        simulation.close()
    return WatchedRemovals(removals, failure)
