"""The log of a partition: files, offsets, a writer and a reader.

`Log` combines its files (the base class `LocalLog`) with `LogOffsets` (the offsets that readers may
see), `LogWriter` (appends and rolls) and `LogReader`. It adds the operations that involve more than
one of them: retention, deleting records, truncation, moves, swaps and closing.

One lock guards every change of the log. Readers take an immutable view of the segments and the
published end offset, and hold no lock while they read. The log starts no thread and never calls
the cleaner. The cleaner asks for segments and passes new ones to `replace_segments`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

from logstore.errors import CorruptRecordError, PolicyViolationError, UnsupportedFormatError
from logstore.runtime.environment import VERIFY
from logstore.runtime.lifetime import lasting
from logstore.storage.log.drafts import AppendInfo, NewRecord
from logstore.storage.log.local_log import LocalLog
from logstore.storage.log.offsets import CheckpointOffsets, LogOffsets
from logstore.storage.log.reader import LogReader
from logstore.storage.log.writer import LogWriter
from logstore.types import INT64_MAX, TopicPartition

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.record.survey import Damage, SegmentBounds
    from logstore.runtime import Runtime, Unsubscribe
    from logstore.storage.log.epochs import LeaderEpochCache
    from logstore.storage.log.finding import Finding
    from logstore.storage.log.retention import RetentionDecision, RetentionRule
    from logstore.storage.producers.state import ProducerStateManager
    from logstore.storage.segment.segment import LogSegment
    from logstore.storage.segment.segments import LogSegments

__all__ = ["AppendInfo", "CheckpointOffsets", "Log", "NewRecord"]

HIGH_WATERMARK = -1
"""As the offset of a delete-records request, this means everything below the high watermark."""


class Log(LocalLog):
    """The log of a partition. Use `logstore.storage.loading.loader.open_log` to open it.

    Any thread may read. Changes are serialized by the lock. The log manager writes the checkpoints
    of the data directory.

    Attributes
    ----------
    offsets : LogOffsets
        The offsets that limit readers.
    writer : LogWriter
    reader : LogReader
    findings : tuple of Finding
        Findings of opening the log.
    damages : tuple of Damage
        Damage that opening the log skipped; empty unless that was requested.
    torn : tuple of Damage
        Bytes after the last valid batch, if opening the log read every batch.
    surveyed : mapping of str to SegmentBounds
        The `.log` files that are read with parts skipped.
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
        high_watermark: int | None = None,
        findings: Sequence[Finding] = (),
        damages: Sequence[Damage] = (),
        torn: Sequence[Damage] = (),
        surveyed: Mapping[str, SegmentBounds] = MappingProxyType({}),
    ) -> None:
        super().__init__(
            runtime,
            directory,
            topic_partition,
            config,
            segments,
            producer_state,
            epochs,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
        )
        self.findings = tuple(findings)
        self.damages = tuple(damages)
        self.torn = tuple(torn)
        self.surveyed = surveyed
        self.offsets = LogOffsets(self, log_start_offset, high_watermark)
        self.writer = LogWriter(self, self.offsets)
        self.reader = LogReader(self, self.offsets)
        for member in (self.offsets, self.writer, self.reader):
            self.lifetime.add(member)

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, offsets [{self.offsets.log_start_offset}, "
            f"{self.log_end.offset}), {len(self.segments)} segments)"
        )

    # -- state ---------------------------------------------------------------------------

    @property
    def active_segment(self) -> LogSegment:
        """The last segment, the only one that accepts appends."""
        return self.segments.active

    @property
    def size_bytes(self) -> int:
        """Data bytes of all segments."""
        return self.segments.size_bytes

    @property
    @lasting
    def log_start_offset(self) -> int:
        """First offset that readers may ask for."""
        return self.offsets.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Next offset to assign, and exclusive end of the log."""
        return self.log_end.offset

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what consumers see."""
        return self.offsets.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of the decided records: first open transaction, or high watermark."""
        return self.offsets.last_stable_offset

    def subscribe(self, listener: Callable[[], object]) -> Unsubscribe:
        """Call a listener whenever the log may have changed.

        It is called after an append, a roll, a flush or a truncation, and when the log start, the
        high watermark or the last stable offset has moved. It is also called when the log goes
        offline, is closed or deleted. Using the log then raises an error.

        Parameters
        ----------
        listener : callable
            Called in the thread that changes the log, usually with the log's lock held. It may read
            offsets and should wake another task for all else. Changing the log here raises
            `IllegalStateError`. Its errors are logged. They neither undo the change nor keep other
            listeners from being called.

        Returns
        -------
        callable
            Ends the subscription.
        """
        with ExitStack() as subscriptions:
            for signal in (self.changed, self.closed):
                subscriptions.callback(signal.subscribe(listener))
            subscriptions.callback(self.went_offline.subscribe(lambda _: listener()))
            return subscriptions.pop_all().close

    # -- closing -------------------------------------------------------------------------

    def close(self) -> CheckpointOffsets | None:
        """Flush, snapshot the producers, trim and close every file, and remove deleted files.

        If the log is offline, its files are closed unchanged. If it goes offline during the close,
        this raises `KafkaStorageError`, and a second call closes it. Later use raises
        `IllegalStateError`.

        Returns
        -------
        CheckpointOffsets or None
            The final offsets, or None if the log is offline, or was closed before.
        """
        with self.lock:
            return None if self.lifetime.is_over else self.change(self._close)

    def _close(self) -> CheckpointOffsets | None:
        offsets = None
        if not self.is_offline:
            self._name_log_start()
            self.begin()
            with self.guard("cannot close"):
                self.prepare_shutdown()
                for segment in self.segments:
                    segment.close()
                self.delete_expired_files(force=True)
            offsets = self.offsets.checkpoint()
        self.close_files()
        self.is_unfinished = False
        self.lifetime.end()
        self.closed.emit()
        return offsets

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Flush the files and hold changes, so that others can open them; see `files_at_rest`."""
        with self.lock:
            self.check_open()
            self.change(self._name_log_start)
            with self.files_at_rest():
                yield

    def _name_log_start(self) -> None:
        """Roll if the last batch is below the log start but the log continues above.

        This happens if a cleaner removed the records above the batch and a truncation made its
        segment active. The next start would compute the log end from the last batch, ignore the log
        start, and bring deleted records back. The name of a new segment prevents that.
        """
        active = self.active_segment
        if self.log_start_offset <= active.base_offset:
            return
        data_end = self.log_end_offset
        with (
            self.guard("cannot read the end"),
            suppress(CorruptRecordError, UnsupportedFormatError),  # readers report it
        ):
            data_end = active.read_next_offset()
        if data_end < self.log_start_offset:
            self.writer.roll_inside()

    # -- retention -----------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> int:
        """Delete the records below an offset (KIP-107).

        Parameters
        ----------
        before_offset : int
            Exclusive end of the deletion; -1 is the high watermark.

        Returns
        -------
        int
            The low watermark: the log start, which may be higher than requested.

        Raises
        ------
        PolicyViolationError
            `cleanup.policy` does not include `delete`.
        OffsetOutOfRangeError
            Below 0 or above the high watermark.

        Notes
        -----
        Segments entirely below the offset are removed immediately. Other records below it remain in
        the first segment's file, invisible, until it is removed.
        """
        with self.lock:
            self.raise_log_start(self.deletion_end(before_offset))
            return self.offsets.log_start_offset

    def deletion_end(self, before_offset: int) -> int:
        """Return the exclusive end of a delete-records request.

        Raises the errors of `delete_records`.
        """
        offsets = self.offsets
        with self.lock:
            self.check_open()
            if not self.config.delete:
                raise PolicyViolationError(
                    f"records of {self.topic_partition} cannot be deleted:"
                    f" cleanup.policy is {','.join(self.config.cleanup_policy) or 'empty'}"
                )
            end = offsets.high_watermark if before_offset == HIGH_WATERMARK else before_offset
            if end < 0:
                raise offsets.out_of_range(end, "is negative")
            if end > offsets.high_watermark:
                raise offsets.out_of_range(end, "is above the high watermark")
            return end

    def raise_log_start(self, offset: int) -> bool:
        """Raise the log start, whatever the policy, and drop the segments entirely below it.

        Replicas follow their leader this way. False if the log start is already that high.

        Raises
        ------
        OffsetOutOfRangeError
            `offset` is above the high watermark; nothing was changed.
        """
        return self.change(self._raise_log_start, offset)

    def _raise_log_start(self, offset: int) -> bool:
        from logstore.storage.log.retention import RetentionRule  # see `retention_decision`

        is_raised = self.offsets.increment_log_start(offset)
        self._retain(self.retention_decision(rules=(RetentionRule.LOG_START,)))
        return is_raised

    def retention_decision(
        self,
        *,
        rules: Sequence[RetentionRule] | None = None,
        first_dirty_offset: int = 0,
    ) -> RetentionDecision:
        """Decide which segments retention removes now, by all rules; see `decide_retention`."""
        # Imported here because many logs are never retained.
        from logstore.storage.log.retention import LogBounds, RetentionRule, decide_retention

        offsets = self.offsets
        with self.lock, self.guard("cannot decide about retention"):
            self.check_open()
            return decide_retention(
                self.topic_partition,
                self.segments.view,
                self.config,
                LogBounds(offsets.log_start_offset, offsets.high_watermark, self.log_end.offset),
                self.runtime.clock.now_ms(),
                rules=tuple(RetentionRule) if rules is None else rules,
                first_dirty_offset=first_dirty_offset,
            )

    def next_expiry_ms(self) -> int | None:
        """Return when a segment can expire by time alone, in Unix ms, or None if never.

        The time may be in the past if something else keeps the segment.
        """
        first = self.segments.first
        if not self.config.delete or not self.size_bytes:
            return None  # an empty segment is retained
        from logstore.storage.log.retention import expires_at_ms  # see `retention_decision`

        return expires_at_ms(first, self.config)

    def delete_old_segments(self, *, first_dirty_offset: int = 0) -> RetentionDecision:
        """Run retention once, and return the decision that was applied."""
        return self.change(self._delete_old_segments, first_dirty_offset)

    def _delete_old_segments(self, first_dirty_offset: int) -> RetentionDecision:
        self.check_open()
        decision = self.retention_decision(first_dirty_offset=first_dirty_offset)
        self._retain(decision)
        return decision

    def _retain(self, decision: RetentionDecision) -> None:
        """Remove the segments of a decision, inside a change."""
        if not decision.removed:
            return
        gone = [self.segments.get(verdict.base_offset) for verdict in decision.removed]
        with self.guard("cannot delete segments"):
            self.check_changeable()
            if decision.rolls:
                self.writer.roll_inside()
                # Otherwise a crash might leave no segment, and the log would start again at 0.
                self.runtime.fs.sync_dir(self.directory)
            self.offsets.increment_log_start(decision.log_start_offset)
            self.remove_segments(segment for segment in gone if segment is not None)
            self.delete_snapshots(verdict.base_offset for verdict in decision.removed)
        if VERIFY:
            self._check()

    # -- truncation ----------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Make `offset` the log end, and drop the records at or above it.

        Returns
        -------
        bool
            False if there are none.

        Raises
        ------
        ValueError
            `offset` is negative.

        Notes
        -----
        A batch that crosses `offset` is dropped entirely, which leaves a gap below it. Durable on
        return.
        """
        if offset < 0:
            raise ValueError(
                f"cannot truncate {self.topic_partition} to a negative offset {offset}"
            )
        return self.change(self._truncate_to, offset)

    def _truncate_to(self, offset: int) -> bool:
        with self.guard("cannot truncate"):
            self.check_changeable()
            if offset >= self.log_end.offset:
                self.epochs.truncate_from_end(self.log_end.offset, flush=True)
                return False
            if offset < self.segments.first.base_offset:
                self._truncate_fully(offset, offset)
                return True
            with self.truncation():
                self.cut_segments(offset)
                self.offsets.follow_truncation()
            if VERIFY:
                self._check()
            return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop all records and continue at `offset` with one empty segment.

        Parameters
        ----------
        log_start_offset : int, optional
            At most `offset`, which is the default.

        Raises
        ------
        ValueError
            The log start is negative or above `offset`, or `offset` is above 2⁶³ - 1.
        """
        start = offset if log_start_offset is None else log_start_offset
        if not 0 <= start <= offset <= INT64_MAX:
            raise ValueError(
                f"cannot start {self.topic_partition} at {start} and end it at {offset}"
            )
        self.change(self._truncate_fully, offset, start)

    def _truncate_fully(self, offset: int, start: int) -> None:
        with self.guard("cannot truncate"):
            self.check_changeable()
            with self.truncation():
                self.restart_at(offset)
                self.offsets.restart(start)
            if VERIFY:
                self._check()

    # -- move ----------------------------------------------------------------------------

    def switch_files(self, copy: Log) -> None:
        """Replace the files by the files of a log that was opened on a copy of them.

        Call it while this log is at rest. Appends and reads continue with the same object.
        """
        self.take_files_of(copy)
        self.offsets.set_high_watermark(self.offsets.high_watermark)
        if VERIFY:
            self._check()

    # -- interrupts ----------------------------------------------------------------------

    def adopt_recovered(self, copy: Log) -> None:
        """Take over the state of a log that was opened on the same files, after an interrupt.

        Readers keep their open files.
        """
        with self.truncation():
            self.take_state_of(copy)
            self.offsets.recover(copy.offsets.log_start_offset)
        # Otherwise a crash could bring truncated records back, next to newly appended ones.
        self.flush(force=True)
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
        """Replace segments by cleaned (or split) ones.

        Parameters
        ----------
        new_segments : sequence of LogSegment
            Complete, durable, named `.cleaned`.
        old_segments : sequence of LogSegment
            Segments that retention removed meanwhile are skipped.
        apart : bool
            Whether a crash may leave the first few of the new segments without the others.

        Notes
        -----
        Offsets do not change. The order of operations in `logstore.storage.segment.swap` makes a
        crash harmless.
        """
        self.change(self._replace_segments, new_segments, old_segments, apart)

    def _replace_segments(
        self, new_segments: Sequence[LogSegment], old_segments: Sequence[LogSegment], apart: bool
    ) -> None:
        with self.guard("cannot replace segments"):
            self.check_changeable()
            self.swap_segments(new_segments, old_segments, apart=apart)
            if VERIFY:
                for segment in new_segments:
                    if self.segments.get(segment.base_offset) is segment:
                        segment._check()
                self._check()

    def split_segment(self, segment: LogSegment) -> list[LogSegment]:
        """Replace a segment whose offsets exceed 31 bits by several segments.

        Raises
        ------
        SegmentOverflowError, CorruptRecordError, CorruptIndexError, UnsupportedFormatError
            The segment cannot be split. The log is unchanged
            (`logstore.storage.log.split.split_segment`).
        """
        return self.change(self._split_segment, segment)

    def _split_segment(self, segment: LogSegment) -> list[LogSegment]:
        with self.guard("cannot split a segment"):
            self.check_changeable()
            new = self.swap_split(segment)
            if VERIFY:
                self._check()
            return new

    def _check(self) -> None:
        """Assert every invariant of the log."""
        self.offsets._check()
