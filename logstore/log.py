"""A partition's log: append, roll, read, retention, delete-records, truncation, swap.

One lock guards everything that changes the log. Readers take an immutable view of the
segments and the published end offset, and hold no lock while they read. The log starts no
thread and never calls the cleaner; the cleaner asks for segments and hands back others through
`replace_segments`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logstore.append import AppendInfo, NewRecord, check_producers
from logstore.appender import LogAppender
from logstore.errors import CorruptionError, OffsetOutOfRangeError, PolicyViolationError
from logstore.fetch import FetchResult, Isolation, ListedOffset, LogReader
from logstore.local_log import LocalLog
from logstore.record.batch import RecordBatch
from logstore.record.codecs import Codec
from logstore.recovery import apply_to_segment
from logstore.replay import rebuild_producer_state
from logstore.retention import LogBounds, RetentionDecision, RetentionRule, decide_retention
from logstore.runtime.environment import VERIFY
from logstore.segment import BatchExtent
from logstore.split import split_segment
from logstore.types import INT64_MAX, AppendOrigin, TopicPartition
from logstore.validate import check_last_offset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from logstore.config.log_config import LogConfig
    from logstore.epochs import LeaderEpochCache
    from logstore.finding import Finding
    from logstore.producer_state import ProducerStateManager
    from logstore.record.columns import BytesColumn, RecordColumns
    from logstore.record.records import Record
    from logstore.runtime import Runtime
    from logstore.segment import LogSegment
    from logstore.segments import LogSegments

__all__ = ["AppendInfo", "Log", "NewRecord"]

HIGH_WATERMARK = -1
"""As the offset of a delete-records request: everything below the high watermark."""


class CheckpointOffsets(NamedTuple):
    """What the checkpoints of the data directory say of a log.

    Attributes
    ----------
    recovery_point, high_watermark : int
        As of the log.
    log_start_offset : int or None
        None where the base of the first segment says it.
    """

    recovery_point: int
    high_watermark: int
    log_start_offset: int | None


class Log(LocalLog):
    """One partition's log; opened through `logstore.loader.open_log`.

    Thread safety: any thread may read; changes serialise on the log's lock. The checkpoints of
    the data directory are the log manager's to write.
    """

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        segments: LogSegments,
        producer_state: ProducerStateManager,
        epochs: LeaderEpochCache,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        findings: Sequence[Finding] = (),
    ) -> None:
        super().__init__(
            runtime,
            directory,
            topic_partition,
            config,
            segments,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
        )
        self.producer_state = producer_state
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self._restarted_at = 0
        self.findings = tuple(findings)
        self._high_watermark = self._last_stable_offset = log_start_offset
        self.reader = LogReader(self)
        self.appender = LogAppender(self)
        self.lifetime.add(self.reader)
        self.lifetime.add(self.appender)
        self.set_high_watermark(log_end_offset)

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, offsets [{self.log_start_offset}, "
            f"{self.log_end_offset}), {len(self.segments)} segments)"
        )

    # -- offsets -------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what consumers see."""
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of what is decided: no open transaction below it, but the log start."""
        return self._last_stable_offset

    def set_high_watermark(self, offset: int) -> None:
        """Move the high watermark, clamped into [log_start_offset, log_end_offset].

        The last stable offset follows: readers, who hold no lock, take both as they were published.
        """
        with self.lock:
            high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
            self.producer_state.on_high_watermark_updated(high_watermark)
            unstable = self.producer_state.first_unstable_offset(high_watermark)
            stable = high_watermark if unstable is None else max(unstable, self.log_start_offset)
            self._last_stable_offset = min(stable, high_watermark)
            self._high_watermark = high_watermark
            if self.on_change is not None:
                self.on_change()

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch known: of the epoch file, else of the last batch, else 0."""
        latest = self.epochs.latest
        if latest is not None:
            return latest.epoch
        # A log start at the log end empties the file, but the batches below may still be there.
        for segment in reversed(self.segments.view):
            last = segment.last_batch()
            if last is not None:
                return max(last.header.partition_leader_epoch, 0)
        return 0

    # -- append --------------------------------------------------------------------------

    def append_records(self, records: Sequence[NewRecord], codec: Codec = Codec.NONE) -> AppendInfo:
        """Append records as one batch; see `LogAppender.records`."""
        return self.appender.records(records, codec)

    def append_columns(
        self,
        keys: BytesColumn,
        values: BytesColumn,
        timestamps: NDArray[np.int64] | None = None,
        headers: BytesColumn | None = None,
        codec: Codec = Codec.NONE,
    ) -> AppendInfo:
        """Append columns as one batch, the fast door; see `LogAppender.columns`."""
        return self.appender.columns(keys, values, timestamps, headers, codec)

    def append_batches(
        self,
        data: bytes,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        leader_epoch: int | None = None,
    ) -> AppendInfo:
        """Append ready-made batches; see `LogAppender.batches`."""
        return self.appender.batches(data, origin, leader_epoch)

    def append_end_txn_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, commit: bool
    ) -> AppendInfo:
        """End a transaction, as its coordinator; see `LogAppender.end_txn_marker`."""
        return self.appender.end_txn_marker(
            producer_id, producer_epoch, coordinator_epoch, commit=commit
        )

    def write(
        self, batches: Sequence[RecordBatch], origin: AppendOrigin, now_ms: int
    ) -> AppendInfo:
        """Write batches that were validated, with offsets in place; for `LogAppender`.

        The lock is held, the log is open. A batch that a client sends again is answered and not
        written; one that goes beyond the last offset is refused.
        """
        markers, duplicate = check_producers(self.producer_state, batches, origin)
        if duplicate is not None:
            return AppendInfo.of_duplicate(duplicate)
        headers = [batch.header for batch in batches]
        size = sum(header.size_bytes for header in headers)
        largest_timestamp = max(header.max_timestamp for header in headers)
        last_offset = headers[-1].last_offset
        check_last_offset(headers[0].base_offset, last_offset)
        with self._storage("append"):
            reason = self.active_segment.roll_reason(size, largest_timestamp, last_offset, now_ms)
            if reason is not None:
                self.roll(headers[0].base_offset)
            for header in headers:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            segment = self.active_segment
            segment.append(
                [BatchExtent.of(header) for header in headers], [batch.data for batch in batches]
            )
            self._publish_end(last_offset + 1)
            if markers:
                for header, marker in zip(headers, markers, strict=True):
                    apply_to_segment(segment, self.producer_state, header, marker)
        self.producer_state.map_end_offset = self.log_end_offset
        self.set_high_watermark(self.log_end_offset)
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()
        if VERIFY:
            self._check()
        return AppendInfo.of(headers, reason)

    # -- roll ----------------------------------------------------------------------------

    def roll(self, expected_next_offset: int | None = None) -> LogSegment:
        """Start a new active segment (storage-format §8.4).

        Parameters
        ----------
        expected_next_offset : int, optional
            Base of the new segment when above the log end offset (a replica's gap).

        Returns
        -------
        LogSegment
            The new active segment; an empty active one of the same base is recreated.

        Raises
        ------
        ValueError
            `expected_next_offset` is above 2⁶³ - 1.
        """
        with self.lock, self._storage("roll"):
            self.check_open()
            base = max(expected_next_offset or 0, self.log_end_offset)
            if base > INT64_MAX:
                raise ValueError(f"{self.topic_partition} has no offset {base}")
            active = self.active_segment
            assert base >= active.base_offset, "a roll never goes back"
            is_new = base != active.base_offset
            if is_new:
                active.on_become_inactive()
                self._delete_stale_files(base)
            self.producer_state.map_end_offset = base
            self.producer_state.take_snapshot()
            # Before the new file appears: a segment that a crash empties must be the last one.
            # Forced, since trimming changed the indexes even if no record is new.
            self.flush(base, force=is_new)
            segment = self._add_segment(base) if is_new else self._renew_segment(active)
            self._publish_end(base)
            if self.on_change is not None:
                self.on_change()
            if VERIFY:
                if is_new:
                    active._check()
                self._check()
            return segment

    # -- read ----------------------------------------------------------------------------

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        min_one_message: bool = False,
    ) -> FetchResult:
        """Read raw batches from `start_offset` on; see `LogReader.read`."""
        return self.reader.read(
            start_offset, max_bytes, isolation=isolation, min_one_message=min_one_message
        )

    def batches(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[RecordBatch]:
        """Yield whole batches that overlap [start, end); see `LogReader.batches`."""
        return self.reader.batches(start_offset, end_offset, isolation=isolation)

    def records(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[tuple[RecordBatch, Record]]:
        """Yield data records in [start, end); see `LogReader.records`."""
        return self.reader.records(start_offset, end_offset, isolation=isolation)

    def columns(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[tuple[RecordBatch, RecordColumns]]:
        """Yield the records in [start, end) as columns, a batch at a time; see `LogReader`."""
        return self.reader.columns(start_offset, end_offset, isolation=isolation)

    def offset_for_timestamp(self, target: int) -> ListedOffset | None:
        """Answer a ListOffsets query; see `LogReader.offset_for_timestamp`."""
        return self.reader.offset_for_timestamp(target)

    # -- durability ----------------------------------------------------------------------

    def close(self) -> CheckpointOffsets | None:
        """Flush, snapshot the producers, trim and close every file, and remove deleted ones.

        A log that is offline gives up its files as they are; one that goes offline meanwhile
        raises `KafkaStorageError` and is closed by a second call. All that is called afterwards
        raises `IllegalStateError`.

        Returns
        -------
        CheckpointOffsets or None
            As of the end; None if it is offline, or was closed before.
        """
        with self.lock:
            if self.lifetime.is_over:
                return None
            offsets = None
            if self._offline_reason is None:
                with self._storage("close"):
                    self._come_to_rest()
                    for segment in self.segments:
                        segment.close()
                    self.delete_expired_files(force=True)
                offsets = self.checkpoint_offsets()
            self._close_files()
            self.lifetime.end()
            return offsets

    def checkpoint_offsets(self) -> CheckpointOffsets:
        """Return what the checkpoints have to say of the log as it is."""
        with self.lock:
            hides_records = self.log_start_offset > self.segments.first.base_offset
            start = self.log_start_offset if hides_records else None
            return CheckpointOffsets(self.recovery_point, self._high_watermark, start)

    def _come_to_rest(self) -> None:
        super()._come_to_rest()
        self.producer_state.take_snapshot()

    # -- log start and retention ---------------------------------------------------------

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start: readers no longer see what lies below (storage-format §13.2).

        Returns False if the log start is there or beyond already.

        Raises
        ------
        OffsetOutOfRangeError
            `offset` is above the high watermark; nothing was changed.
        """
        with self.lock, self._storage("move the log start"):
            self.check_open()
            if offset > self._high_watermark:
                raise self._out_of_range(offset, "is above the high watermark")
            if offset <= self.log_start_offset:
                return False
            self.log_start_offset = offset
            self.recovery_point = max(self.recovery_point, offset)
            self.epochs.truncate_from_start(offset, flush=True)
            self.producer_state.on_log_start_offset_incremented(offset)
            self.set_high_watermark(self._high_watermark)
            return True

    def delete_records(self, before_offset: int) -> int:
        """Delete the records below an offset (KIP-107).

        Parameters
        ----------
        before_offset : int
            Exclusive end of what goes; -1 is the high watermark.

        Returns
        -------
        int
            The low watermark: the log start, at least as asked.

        Raises
        ------
        PolicyViolationError
            `cleanup.policy` does not include `delete`.
        OffsetOutOfRangeError
            Below 0 or above the high watermark.

        Notes
        -----
        Segments wholly below go at once; other records below stay in the first segment's file,
        invisible, until it goes.
        """
        with self.lock:
            self.check_open()
            if not self.config.delete:
                raise PolicyViolationError(
                    f"records of {self.topic_partition} cannot be deleted:"
                    f" cleanup.policy is {','.join(self.config.cleanup_policy) or 'empty'}"
                )
            target = self._high_watermark if before_offset == HIGH_WATERMARK else before_offset
            if target < 0:
                raise self._out_of_range(target, "is negative")
            self.maybe_increment_log_start_offset(target)
            self._retain(self.retention_decision(rules=(RetentionRule.LOG_START,)))
            return self.log_start_offset

    def _out_of_range(self, offset: int, why: str) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"offset {offset} of {self.topic_partition} {why}: the log is"
            f" [{self.log_start_offset}, {self._high_watermark}]",
            offset=offset,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )

    def retention_decision(
        self,
        *,
        rules: Sequence[RetentionRule] = tuple(RetentionRule),
        first_dirty_offset: int = 0,
    ) -> RetentionDecision:
        """Decide what a retention run would remove now; see `decide_retention`."""
        with self.lock, self._storage("decide about retention"):
            self.check_open()
            return decide_retention(
                self.topic_partition,
                self.segments.view,
                self.config,
                LogBounds(self.log_start_offset, self._high_watermark, self.log_end_offset),
                self.runtime.clock.now_ms(),
                rules=rules,
                first_dirty_offset=first_dirty_offset,
            )

    def next_expiry_ms(self) -> int | None:
        """Return from when on time alone lets retention remove something, Unix ms; None if never.

        That moment may have passed without effect, if something else keeps the segment.
        """
        first = self.segments.first
        if not self.config.delete or self.config.retention_ms < 0 or not self.size_bytes:
            return None  # an empty segment stays
        return first.largest_timestamp + self.config.retention_ms + 1

    def delete_old_segments(self, *, first_dirty_offset: int = 0) -> RetentionDecision:
        """Run retention once; return what was decided, and done."""
        with self.lock:
            self.check_open()
            decision = self.retention_decision(first_dirty_offset=first_dirty_offset)
            self._retain(decision)
            return decision

    def _retain(self, decision: RetentionDecision) -> None:
        """Remove the segments that a decision names. The lock is held."""
        if not decision.removed:
            return
        gone = [self.segments.get(verdict.base_offset) for verdict in decision.removed]
        with self._storage("delete segments"):
            if decision.rolls:
                self.roll()
                # Else a crash might leave no segment at all, and the log would start anew at 0.
                self.runtime.fs.sync_dir(self.directory)
            self.maybe_increment_log_start_offset(decision.log_start_offset)
            self._remove_segments(segment for segment in gone if segment is not None)
            self._delete_snapshots(verdict.base_offset for verdict in decision.removed)
        if VERIFY:
            self._check()

    # -- truncation ----------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Make `offset` the log end, dropping what lies at or above it (storage-format §13.4).

        Returns
        -------
        bool
            False if nothing lies there.

        Raises
        ------
        ValueError
            `offset` is negative.

        Notes
        -----
        A batch that reaches beyond `offset` goes whole, and leaves a hole below it. Durable on
        return.
        """
        if offset < 0:
            raise ValueError(
                f"cannot truncate {self.topic_partition} to a negative offset {offset}"
            )
        with self.lock, self._storage("truncate"):
            self.check_open()
            if offset >= self.log_end_offset:
                self.epochs.truncate_from_end(self.log_end_offset, flush=True)
                return False
            if offset < self.segments.first.base_offset:
                self.truncate_fully_and_start_at(offset)
                return True
            with self._truncation():
                gone = self._cut_segments(offset)
                self._delete_snapshots(segment.base_offset for segment in gone)
                self.log_start_offset = min(self.log_start_offset, offset)
                self.epochs.truncate_from_end(offset, flush=True)
                self._rebuild_producer_state()
                self.set_high_watermark(min(self._high_watermark, offset))
            if VERIFY:
                self._check()
            return True

    def _rebuild_producer_state(self) -> None:
        """Let the producer state reflect the log as it is now.

        Snapshots above the log's end may come back after a crash: a recovery drops them.
        """
        now_ms = self.runtime.clock.now_ms()
        start, end = self.log_start_offset, self.log_end_offset
        try:
            rebuild_producer_state(self.producer_state, self.segments, start, end, now_ms)
        except CorruptionError as error:
            self.go_offline(f"cannot rebuild the producer state: {error}")
            raise

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything and go on at `offset` with one empty segment.

        Parameters
        ----------
        log_start_offset : int, optional
            At most `offset`, which is the default.

        Raises
        ------
        ValueError
            The log start is negative or above `offset`, or that is above 2⁶³ - 1.
        """
        start = offset if log_start_offset is None else log_start_offset
        if not 0 <= start <= offset <= INT64_MAX:
            raise ValueError(
                f"cannot start {self.topic_partition} at {start} and end it at {offset}"
            )
        with self.lock, self._storage("truncate"):
            self.check_open()
            with self._truncation():
                # Before a segment stands above the snapshots, whose recovery would believe them.
                self.producer_state.truncate_fully_and_start_at(offset)
                self._start_anew(offset)
                self.log_start_offset = start
                self._restarted_at = offset
                self.epochs.clear(flush=True)
                self._rebuild_producer_state()
                self.set_high_watermark(offset)
            if VERIFY:
                self._check()

    # -- move ----------------------------------------------------------------------------

    def go_on_in(self, copy: Log) -> None:
        """Go on with the files of a log that was opened over a copy of this one's.

        To be called while this log is `at_rest`. Whoever holds it appends and reads on without
        noticing; who is in the middle of reading the old files looks again.
        """
        old = self.segments.view
        self.directory = copy.directory
        self.segments = copy.segments
        self.producer_state = copy.producer_state
        self.epochs = copy.epochs
        self.recovery_point = copy.recovery_point
        self._deletions.clear()  # they go with the old folder
        self._publish_end(copy.log_end_offset)
        self.set_high_watermark(self._high_watermark)
        for segment in old:
            segment.close_handlers()
        if VERIFY:
            self._check()

    # -- swap ----------------------------------------------------------------------------

    def replace_segments(
        self,
        new_segments: Sequence[LogSegment],
        old_segments: Sequence[LogSegment],
        *,
        apart: bool = False,
    ) -> None:
        """Put cleaned (or split) segments in the place of others (cleaner-semantics §9.1).

        Parameters
        ----------
        new_segments : sequence of LogSegment
            Complete, durable, named `.cleaned`.
        old_segments : sequence of LogSegment
            Those that are gone already (retention) are passed over.
        apart : bool
            Whether a crash may leave the first few of the new ones without the others.

        Notes
        -----
        See `logstore.swap` for the order that makes a crash harmless. Offsets do not change.
        """
        with self.lock, self._storage("replace segments"):
            self.check_open()
            old = self._swap(new_segments, old_segments, apart=apart)
            bases = (segment.base_offset for segment in old)
            self._delete_snapshots(base for base in bases if base not in self.segments)
            if VERIFY:
                for segment in new_segments:
                    if self.segments.get(segment.base_offset) is segment:
                        segment._check()
                self._check()

    def split_segment(self, segment: LogSegment) -> list[LogSegment]:
        """Put several segments in the place of one whose offsets go beyond 31 bits (§9.2).

        Raises
        ------
        SegmentOverflowError, CorruptRecordError, CorruptIndexError, UnsupportedFormatError
            It cannot be split; the log is unchanged. See `logstore.split.split_segment`.
        """
        with self.lock, self._storage("split a segment"):
            self.check_open()
            new = split_segment(self.runtime, self.directory, self.segments, segment, self.config)
            self._schedule_deletion(segment.remove_files)
            if segment.base_offset not in self.segments:
                self._delete_snapshots([segment.base_offset])
            if VERIFY:
                self._check()
            return new

    def _delete_snapshots(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self._schedule_file_deletion(self.producer_state.mark_snapshot_deleted(offset))

    def _check(self) -> None:
        """Assert every invariant that ties segments and offsets together."""
        super()._check()
        first = self.segments.first.base_offset
        assert first <= max(self.log_start_offset, self._restarted_at)
        assert self.log_start_offset <= self._high_watermark <= self.log_end_offset
        assert self.log_start_offset <= self.last_stable_offset <= self._high_watermark
